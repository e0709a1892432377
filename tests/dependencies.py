"""Check the installed gateway's dependencies without a network.

Run as ``python -m tests.dependencies``.

Of the distribution and its extras that run in a server's process: each dependency is installed, in
a version that is allowed, and has a licence that an operator may take for granted. Known
vulnerabilities are not looked up: that needs a database on the network, see the page about
installing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final, cast

from packaging.requirements import Requirement

#: What a server installs; data pipelines have their own.
ROOT: Final = "stomp-gateway[amqp,jms,ldap,postgresql]"
#: As SPDX says it; the LGPL is for libraries that are used as they are.
ALLOWED: Final = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0"),
    *("LGPL-3.0-only", "MPL-2.0", "PSF-2.0", "ZPL-2.1"),
}
#: The classifiers of packages that do not say it as SPDX does.
CLASSIFIERS: Final = {
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "License :: OSI Approved :: Zope Public License": "ZPL-2.1",
    "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
}
#: What SPDX joins licences with. Of several to choose from, each must be allowed, too.
_JOINS: Final = re.compile(r"\s+(?:AND|OR)\s+|[()]")


def canonical(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(root: str, installed: Mapping[str, Distribution] | None = None) -> dict[str, str]:
    """Return what a requirement brings along.

    :param installed: by canonical name; None asks this interpreter.
    :returns: by canonical name, what is wrong with each, or "".
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    wanted = [Requirement(root)]
    while wanted:
        requirement = wanted.pop()
        name, extras = canonical(requirement.name), frozenset(requirement.extras)
        one = _installed(name, installed)
        wrong = _wrong(requirement, one)
        found[name] = found.get(name) or wrong
        if one is None or (name, extras) in seen:
            continue
        seen.add((name, extras))
        wanted += _required(one, extras)
    return found


def _installed(name: str, installed: Mapping[str, Distribution] | None) -> Distribution | None:
    if installed is not None:
        return installed.get(name)
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _required(one: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in one.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            yield requirement


def _wrong(requirement: Requirement, one: Distribution | None) -> str:
    if one is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(one.version, prereleases=True):
        return (
            f"{requirement.name} {one.version} is installed, and {requirement.specifier} required"
        )
    licences = licences_of(one)
    refused = sorted(licences - ALLOWED)
    if refused or not licences:
        return f"{requirement.name} {one.version} has the licence {', '.join(refused) or 'unknown'}, which is not in the list of tests/dependencies.py"
    return ""


def licences_of(one: Distribution) -> set[str]:
    """Return the licences of a package, in SPDX's words where known."""
    classified = {
        CLASSIFIERS.get(each, each)
        for each in one.metadata.get_all("Classifier", [])
        if each.startswith("License ::")
    }
    metadata = cast(Message, one.metadata)
    expression: str | None = metadata.get("License-Expression")
    if expression is None and not classified:
        # The older field is often an expression, too, and sometimes the whole text.
        expression = str(metadata.get("License", "")).partition("\n")[0]
    if expression:
        return {part.strip() for part in _JOINS.split(expression) if part.strip()}
    return classified


def main() -> int:
    """Print what is wrong. :returns: the exit code."""
    found = closure(ROOT)
    wrong = [what for _, what in sorted(found.items()) if what]
    print("\n".join(wrong) or f"{len(found)} packages are installed, and their licences allowed.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
