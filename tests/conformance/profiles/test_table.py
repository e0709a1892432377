"""The table of ``docs/profiles.rst`` says what is tested."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from tests.conformance.profiles.rows import ROWS

DOCUMENT = Path(__file__).parents[3] / "docs" / "profiles.rst"


def cells_of_the_document() -> dict[str, dict[str, str]]:
    """The rows of the table as the page has them."""
    text = DOCUMENT.read_text()
    table = text[text.index(".. list-table::") :].split("\n\n\n")[0]
    rows = [
        [cell.strip() for cell in re.split(r"\n {5}- ?", "\n     - " + block)[1:]]
        for block in re.split(r"\n {3}\* - ", table)[1:]
    ]
    profiles = [cell.strip("`") for cell in rows[0][1:]]
    return {cells[0]: dict(zip(profiles, cells[1:], strict=True)) for cells in rows[1:] if cells}


def test_the_page_says_what_is_tested() -> None:
    for module in Path(__file__).parent.glob("test_rows_*.py"):
        import_module(f"{__package__}.{module.stem}")
    assert cells_of_the_document() == ROWS
