"""The map and the walk that CONTRIBUTING.rst shows are of this code."""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_map_of_the_house_is_drawn_from_this_code() -> None:
    spec = util.spec_from_file_location("house", ROOT / "docs" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    house = util.module_from_spec(spec)
    spec.loader.exec_module(house)
    drawn = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    assert drawn == house.draw(), "draw it again: .venv/bin/python docs/house.py"


def test_the_walk_of_a_send_names_files_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
    named = re.findall(r"``((?:gateway|bridge|certs|pipeline|tests|docs)/[\w/.-]+)``", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
