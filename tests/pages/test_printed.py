"""What a page shows is compared with what is printed, loosely."""

from __future__ import annotations

import pytest

from tests.pages.printed import has

PRINTED = """\
Name     Messages   Since
-------------------------
orders   12         2026-11-29 15:45:59Z
prices   1,204      2026-11-29 15:46:00Z

The store 9a07fe4dbc81 has 2 queues, and this sentence is long.
"""


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "orders 7 2024-01-01 00:00:00Z",
        "Name Messages Since\n----\norders 9 2024-01-01 00:00:00Z\n...",
        "Name Messages Since\n...\nprices 9 2024-01-01 00:00:00Z",
        "The store 4f1c2a9d8e7b6a50 has 30\n  queues, and ... is long.",
        "The store 4f1c... has 2 queues, and this sentence is long.",
    ],
)
def test_figures_blanks_and_ends_of_lines_may_be_others(shown: str) -> None:
    assert has(PRINTED, shown)


@pytest.mark.parametrize(
    "shown",
    [
        "offers 12 2026-11-29 15:45:59Z",
        "orders - 2026-11-29 15:45:59Z",
        "orders 12",
        "Name Messages Since\n----\nprices 1,204 2026-11-29 15:46:00Z",
        "prices 1,204 2026-11-29 15:46:00Z\n...\norders 12 2026-11-29 15:45:59Z",
        "12 2026-11-29 15:45:59Z",
    ],
)
def test_words_lines_and_their_order_may_not(shown: str) -> None:
    assert not has(PRINTED, shown)
