"""What pages have their reader do works, block by block."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.documented_blocks import ROOT, steps
from tests.pages.declared import ELSEWHERE, NOT_RUN, PAGES
from tests.pages.reader import Reader

pytestmark = pytest.mark.process


@pytest.mark.parametrize("page", PAGES)
def test_it_works_as_it_is_written(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    file = next(
        path for path in (ROOT / "docs" / f"{page}.rst", ROOT / f"{page}.rst") if path.exists()
    )
    with ExitStack() as ending:
        reader = Reader(
            tmp_path,
            ending,
            lambda: request.getfixturevalue("postgresql"),
            monkeypatch,
        )
        for block in steps(file):
            if block.language != "file" and (page, block.first) not in {**NOT_RUN, **ELSEWHERE}:
                try:
                    reader.does(block)
                except BaseException as error:
                    error.add_note(f"in {file.name}:\n{block.text}")
                    raise
