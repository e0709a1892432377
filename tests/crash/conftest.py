"""What the tests of crashes of transacted links share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.crash.once_pair import BACK, GATEWAY, Moves, Pair
from tests.crash.once_table import PROPERTY, Row, recorded


class Pairs:
    """The pair of a module, and the next where that was spoiled.

    :param make: a pair, which the stack ends.
    """

    def __init__(self, make: Callable[[ExitStack], Pair]) -> None:
        self._make = make
        self._ending = ExitStack()
        self._pair: Pair | None = None

    def get(self) -> Pair:
        if self._pair is None:
            self._pair = self._make(self._ending)
        return self._pair

    def end(self) -> None:
        self._pair = None
        self._ending.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    made = Pairs(lambda ending: Pair(tmp_path_factory.mktemp("once"), ending))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def moves(
    pairs: Pairs, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Moves:
    """Has a case happen with 50 messages, in the long run with 1,000, records its row, and asserts
    that it is clean.
    """
    long = bool(request.config.getoption("--long"))
    messages = 1_000 if long else 50

    def happen(case: Callable[[Pair, int], Row]) -> None:
        spoiled = True
        try:
            row = case(pairs.get(), messages)
            record_property(PROPERTY, recorded(row))
            assert row.clean, row
            # After such a death ActiveMQ may hold back messages of the next case only, which then
            # seem to be out of order.
            spoiled = long and row.prepared > 0 and row.way == BACK and row.dies != GATEWAY
        finally:
            if spoiled:
                pairs.end()

    return happen
