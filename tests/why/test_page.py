"""The page about ``why`` has each kind of cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.admin.why.cause import CauseKind

TESTS = Path(__file__).parents[1]
#: Where causes are asked for.
SCENES = (
    *sorted((TESTS / "why").glob("*.py")),
    *sorted((TESTS / "takeover").glob("*.py")),
    *sorted((TESTS / "faults").glob("*.py")),
    TESTS / "gateway" / "admin" / "test_why.py",
    TESTS / "gateway" / "front" / "test_reach.py",
    TESTS / "bridge" / "test_pace.py",
)
PAGE = Path(__file__).parents[2] / "docs" / "why.rst"


def test_each_kind_has_its_remedy_in_the_order_in_which_they_are_told() -> None:
    table = PAGE.read_text().split("\nCauses and remedies\n")[1].split("\nWhat it looks at\n")[0]
    rows = re.findall(
        r"^   \* - ``(\w+)``\n     - (.+(?:\n       .+)*)\n     - (.+)$", table, re.MULTILINE
    )
    assert [kind for kind, *_ in rows] == [kind.value for kind in CauseKind]


@pytest.mark.parametrize("kind", CauseKind, ids=lambda kind: kind.value)
def test_each_kind_is_made_to_happen_somewhere(kind: CauseKind) -> None:
    """A cause that no scene brings about is one of which nothing is known."""
    asserted = re.compile(rf"""["']{kind.value}["']|CauseKind\.{kind.name}\b""")
    assert any(asserted.search(path.read_text()) for path in SCENES)
