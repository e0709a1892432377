"""Names of settings in pages and sources are those of settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.connections.factories import JMS_PREFIX, JMS_PROPERTIES
from gateway.configuration import DECLARED
from gateway.instance.passfile import COMMAND_PASSWORDS
from gateway.instance.setting_types import Catalogue, is_of_the_original

ROOT = Path(__file__).parents[1]
PAGES = (*sorted((ROOT / "docs").glob("*.rst")), ROOT / "README.rst")
SOURCES = tuple(
    sorted(path for top in ("gateway", "bridge") for path in (ROOT / top).rglob("*.py"))
)
#: A name, with a full stop or a star where only the begin of names is meant.
NAME = re.compile(r"(?<![\w.])imq(?:\.[A-Za-z][\w-]*)+(?:\.\*?)?")
CATALOGUE = Catalogue(DECLARED)
DECLARED_NAMES = (*(setting.name for setting in DECLARED), *JMS_PROPERTIES, *COMMAND_PASSWORDS)
#: What follows a name that the operator chooses, or the begin of that.
NAMED_ENDS = {
    "." + ".".join(words[at:])
    for setting in DECLARED
    if setting.name.startswith(("imq.bridge.NAME.", "imq.destination.NAME."))
    for words in [setting.name.split(".")[3:]]
    for at in range(len(words))
}
#: Names of other things, and of what is not a setting on purpose.
OTHERS = {
    "imq.bridge.jms.dmq": "a queue, the built-in dead message queue of bridges",
    "imq.bridge.NAME.tm.class": "Open MQ's, which the page of differences says is not there",
    "imq.foo": "stands for any name",
}


def is_known(name: str) -> bool:
    """Whether a setting has this name, or one that begins with it."""
    # At the end of a sentence, or before what a program adds.
    begin = name.removesuffix("*").rstrip(".")
    return (
        name in OTHERS
        or is_known_exactly(begin)
        or any(each.startswith(f"{begin}.") for each in DECLARED_NAMES)
        or any(CATALOGUE.find(f"{begin}{end}") for end in NAMED_ENDS)
        or (name.endswith("*") and is_of_the_original(f"{begin}.any"))
    )


def is_known_exactly(name: str) -> bool:
    if name.startswith(JMS_PREFIX):
        return name in DECLARED_NAMES
    if name in DECLARED_NAMES:
        return True
    return CATALOGUE.find(name) is not None or is_of_the_original(name)


def of_texts(path: Path) -> Iterator[str]:
    """The texts of a page, or the literals of a module."""
    text = path.read_text()
    if path.suffix == ".rst":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("paths", [PAGES, SOURCES], ids=["pages", "sources"])
def test_each_name_is_of_a_setting(paths: tuple[Path, ...]) -> None:
    assert paths
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for text in of_texts(path)
        for name in NAME.findall(text)
        if not is_known(name)
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("imq.memory.budget", True),
        ("imq.memory.budget.", True),
        ("imq.memory.total", False),
        ("imq.selector.maxCost", False),
        ("imq.bridge.stomp.maxConnections", False),
        ("imq.bridge.stomp.limit.*", True),
        ("imq.bridge.stomp.limits.*", False),
        ("imq.bridge.orders.xmlurl", True),
        ("imq.jms.process", True),
        ("imq.jms.proces", False),
        ("imq.accesscontrol.enabled", True),
        ("imq.duplicateIds", True),
    ],
)
def test_what_counts_as_a_name(name: str, known: bool) -> None:
    assert is_known(name) is known
