"""``imqbridgemgr validate``: check an XML file without a broker.

Owns when a file is valid: nothing is wrong with it, and each enabled link can start as far as that
is known without connecting. Passwords are not checked; the names that the passfile must have are
printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bridge.config.loading import read_path
from bridge.config.model import Bridge
from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.settings import PASSWORD
from gateway.admin.cli.client import AdminError
from gateway.admin.cli.options import Common


def validate(common: Common, path: Path, name: str | None) -> int:
    """Print errors and warnings, and which passwords the file needs.

    :param name: the name that the bridge must have; None where any will do.
    :returns: the exit code: 0 where it is valid. :raises AdminError: the file cannot be read.
    """
    passwords = _AnyPassword()
    bridge: Bridge | None = None
    found: Sequence[Problem]
    try:
        bridge, found = read_path(path, name, passwords)
    except ConfigurationError as error:
        found = error.problems
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror or error}") from None
    problems = [_told(problem) for problem in found]
    valid = bridge is not None
    needed = [PASSWORD.full_name(each) for each in passwords.asked]
    if common.json:
        common.show_json(
            {"file": str(path), "valid": valid, "problems": problems, "passfile": needed}
        )
        return 0 if valid else 1
    for problem in problems:
        word = "Warning" if problem["severity"] == Severity.WARNING.name else "Error"
        common.complain(f"{word}: {problem['text']}")
    if bridge is not None:
        links = len(bridge.links)
        common.say(
            f"{path} configures bridge {bridge.name} with {links} link{'' if links == 1 else 's'}."
        )
    if needed:
        common.say(f"Needs in the passfile: {', '.join(needed)}")
    return 0 if valid else 1


def _told(problem: Problem) -> dict[str, object]:
    return {
        "line": problem.line,
        "element": problem.element,
        "attribute": problem.attribute,
        "value": problem.value,
        "expected": problem.expected,
        "severity": problem.severity.name,
        "text": str(problem),
    }


class _AnyPassword(Mapping[str, str]):
    """Has every password, in place of a passfile that may not be readable.

    :ivar asked: the names that were asked for, in the order of the file.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> str:
        if name not in self.asked:
            self.asked.append(name)
        return "password"

    def __iter__(self) -> Iterator[str]:
        return iter(("any",))

    def __len__(self) -> int:
        return 1
