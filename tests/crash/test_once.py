"""Transacted links between a gateway's own broker and a real ActiveMQ: the gateway is killed at
each named point, and started again.

Then each message is at the target once and only once, in order, and nothing is in doubt anywhere.
The other half of the matrix, where ActiveMQ or both die, is :mod:`tests.crash.test_once_activemq`,
so that two processes can share the work. The ordinary run takes each point in one of the two
directions, the long one in both.
"""

from __future__ import annotations

import pytest

from tests.crash.once_pair import GATEWAY_DIES, Moves


@pytest.mark.parametrize(("point", "way"), GATEWAY_DIES)
def test_the_gateway_dies_at(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.gateway_dies(way, point, messages))
