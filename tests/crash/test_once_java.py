"""Transacted links between a gateway's own broker and a real ActiveMQ: the Java process that the
gateway speaks to ActiveMQ by is killed at each named point.

Else as :mod:`tests.crash.test_once`.
"""

from __future__ import annotations

import pytest

from tests.crash.once_pair import JAVA_DIES, Moves


@pytest.mark.parametrize(("point", "way"), JAVA_DIES)
def test_java_dies_at(point: str, way: str, moves: Moves) -> None:
    moves(lambda pair, messages: pair.java_dies(way, point, messages))
