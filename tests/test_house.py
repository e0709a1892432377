"""The map and the walk that CONTRIBUTING.rst shows are of this code, and its language is plain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import language
from tests.scripts import script

ROOT = Path(__file__).parents[1]


def test_the_map_of_the_house_is_drawn_from_this_code() -> None:
    house = script("house")
    drawn = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    assert drawn == house.draw(), "draw it again: .venv/bin/python docs/house.py"


def test_the_pictures_are_what_the_script_draws() -> None:
    pictures = script("pictures")
    drawn = {f"{name}.svg": draw() for name, draw in pictures.DRAWN.items()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in pictures.FOLDER.iterdir()}
    assert kept == drawn, "draw them again: .venv/bin/python docs/pictures.py"


def test_the_walk_of_a_send_names_files_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
    named = re.findall(r"``((?:gateway|bridge|certs|pipeline|tests|docs)/[\w/.-]+)``", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_the_language_gets_plainer() -> None:
    excess = language.excess(list(language.findings()))
    assert not excess, "\n".join([*excess, "see python -m tests.language"])


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ('"""Return the answer."""\n', []),
        ('"""Tell whoever asks."""\n', ["phrases"]),
        ("# What is sent to\n# nobody is dropped.\nx = 1\n", ["phrases"]),
        ('x = f"{y} is none of those"\n', ["phrases"]),
        ("assert x is None\n", []),
        ('"""What comes before\nthe first line ends"""\n', ["unfinished first lines"]),
        (f'"""{"a" * 72}."""\n', ["long first lines"]),
    ],
)
def test_what_is_not_plain_is_found(source: str, kinds: list[str]) -> None:
    assert [each.kind for each in language.findings_in("a.py", source)] == kinds


def test_phrases_are_found_across_lines_of_a_page() -> None:
    found = list(language.findings_in("a.rst", "One\ntwo, but\nfor three\n"))
    assert [(each.line, each.text) for each in found] == [(2, "but for")]
