"""What the tests of crashes of transacted links share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.crash.once_pair import BACK, GATEWAY, Moves, Pair
from tests.crash.once_table import PROPERTY, Row, recorded


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Pair]]:
    """Gives the pair of this module; another one where the last case has spoiled it."""
    with ExitStack() as ending:
        made: list[tuple[Pair, ExitStack]] = []

        def give(anew: bool) -> Pair:
            if anew and made:
                made.pop()[1].close()
            if not made:
                own = ending.enter_context(ExitStack())
                made.append((Pair(tmp_path_factory.mktemp("once"), own), own))
            return made[0][0]

        yield give


@pytest.fixture
def moves(pairs: Callable[[bool], Pair], request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Moves:
    """Has a case happen with 50 messages, in the long run with 1,000, records its row, and asserts that it is clean."""
    long = bool(request.config.getoption("--long"))
    messages = 1_000 if long else 50

    def happen(case: Callable[[Pair, int], Row]) -> None:
        spoiled = True
        try:
            row = case(pairs(False), messages)
            record_property(PROPERTY, recorded(row))
            assert row.clean, row
            # What ActiveMQ holds back after such a death it may hold back of the next case's messages only, which then seem to be out of order.
            spoiled = long and row.prepared > 0 and row.way == BACK and row.dies != GATEWAY
        finally:
            if spoiled:
                pairs(True)

    return happen
