"""Transacted links between a gateway's own broker and a real ActiveMQ, which is killed while the
gateway is at a named point, and started again.

Then both are killed, and come back one late after the other. Else as :mod:`tests.crash.test_once`.
"""

from __future__ import annotations

import pytest

from tests.crash.once_pair import ACTIVEMQ_DIES, ACTIVEMQ_FIRST, GATEWAY_FIRST, Moves, Pair
from tests.crash.once_table import Row


@pytest.mark.parametrize(("point", "way"), ACTIVEMQ_DIES)
def test_activemq_dies_at(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.activemq_dies(way, point, messages))


@pytest.mark.parametrize(("point", "way"), GATEWAY_FIRST)
def test_both_die_and_the_gateway_is_back_first(point: str, way: str, moves: Moves) -> None:
    def case(pair: Pair, messages: int) -> Row:
        # What is decided is told of and kept; of what is not nobody need know.
        waits = pair.waiting_is_told if point == "xa.after-decision" else None
        return pair.both_die(way, point, messages, True, waits)

    moves(case)


@pytest.mark.parametrize(("point", "way"), ACTIVEMQ_FIRST)
def test_both_die_and_activemq_is_back_first(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.both_die(way, point, messages, False, None))
