"""Transacted links between a gateway's own broker and a real ActiveMQ: the gateway is killed at each named point, and started again.

Then each message is at the target once and only once, in order, and nothing is in doubt anywhere. See also the modules of ActiveMQ's death and of both's.
"""

from __future__ import annotations

import pytest

from bridge.crash_points import ONCE_POINTS
from tests.crash.once_pair import BACK, OUT, Moves


@pytest.mark.parametrize("way", [OUT, BACK])
@pytest.mark.parametrize("point", ONCE_POINTS)
def test_the_gateway_dies_at(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.gateway_dies(way, point, messages))
