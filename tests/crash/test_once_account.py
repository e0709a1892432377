"""The counting of the crash matrix: it must see what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest
from docutils.core import publish_doctree

from tests.crash.once_account import Account, account
from tests.crash.once_table import Row, as_text, write


@pytest.mark.parametrize(
    ("came", "found"),
    [
        ([3, 4, 5, 6], Account(0, 0, 0, 0)),
        ([3, 4, 6], Account(1, 0, 0, 0)),
        ([], Account(4, 0, 0, 0)),
        ([3, 4, 4, 5, 6], Account(0, 1, 0, 0)),
        ([3, 4, 5, 3, 4, 5, 6], Account(0, 3, 0, 0)),
        ([3, 5, 6, 4], Account(0, 0, 1, 0)),
        ([5, 6, 3, 4], Account(0, 0, 2, 0)),
        ([3, 4, 5, 6, 9], Account(0, 0, 0, 1)),
    ],
)
def test_what_is_lost_doubled_disordered_or_strange(came: list[int], found: Account) -> None:
    assert account(came, 3, 6) == found


def row(point: str, **other: int) -> Row:
    nothing = {
        "lost": 0,
        "doubled": 0,
        "disordered": 0,
        "held": 0,
        "left": 0,
        "prepared": 2,
        "in_doubt": 0,
    }
    return Row(
        point=point,
        dies="gateway",
        way="there → here",
        nth=3,
        messages=51,
        batch=5,
        seconds=1.5,
        **{**nothing, **other},
    )


@pytest.mark.parametrize("kind", ["lost", "doubled", "disordered", "left", "in_doubt"])
def test_a_row_is_not_clean_with(kind: str) -> None:
    assert row("xa.after-decision").clean
    assert not row("xa.after-decision", **{kind: 1}).clean


def test_the_table_for_the_documentation_is_one(tmp_path: Path) -> None:
    rows = [row("xa.after-start-1"), row("xa.after-decision")]
    write(rows, tmp_path / "matrix.rst")
    tree = publish_doctree(
        (tmp_path / "matrix.rst").read_text(), settings_overrides={"halt_level": 2}
    )
    text = tree.astext()
    assert "51 messages each" in text
    assert text.index("xa.after-start-1") < text.index("xa.after-decision")
    assert [line.split()[0] for line in as_text(rows)] == [
        "point",
        "xa.after-start-1",
        "xa.after-decision",
    ]
