"""Transacted links between a gateway's own broker and a real ActiveMQ, which is killed while the gateway is at a named point, and started again."""

from __future__ import annotations

import pytest

from bridge.crash_points import AFTER_DECISION, AFTER_PREPARE_2, ONCE_POINTS
from tests.crash.once_pair import BACK, OUT, Moves, Pair
from tests.crash.once_table import Row


@pytest.mark.parametrize("way", [OUT, BACK])
@pytest.mark.parametrize("point", ONCE_POINTS)
def test_activemq_dies_at(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.activemq_dies(way, point, messages))


@pytest.mark.parametrize("first", ["gateway", "ActiveMQ"])
@pytest.mark.parametrize("way", [OUT, BACK])
@pytest.mark.parametrize("point", [AFTER_PREPARE_2, AFTER_DECISION])
def test_both_die_and_come_back_one_after_the_other(point: str, way: str, first: str, moves: Moves) -> None:
    def case(pair: Pair, messages: int) -> Row:
        waits = pair.waiting_is_told if point == AFTER_DECISION else None
        return pair.both_die(way, point, messages, first == "gateway", waits)

    moves(case)
