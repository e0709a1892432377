"""Which cases of the crash matrix there are, and which of them only the long run takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from gateway.instance.crashpoints import ONCE_POINTS
from tests.crash.once_pair import BACK, OUT

_WAYS: Final = (OUT, BACK)
#: Legible where a terminal shows no more than ASCII.
_NAMES: Final = {OUT: "out", BACK: "back"}


def _each(points: Sequence[str], first: int) -> Iterator[Any]:
    """Each point in both directions, of which the ordinary run takes one, in turns. :param first:
    which one at the first point.
    """
    for place, point in enumerate(points):
        for number, way in enumerate(_WAYS):
            ordinary = (place + first) % len(_WAYS) == number
            yield pytest.param(
                point, way, id=f"{point}-{_NAMES[way]}", marks=() if ordinary else pytest.mark.long
            )


GATEWAY_DIES: Final = list(_each(ONCE_POINTS, 0))
#: Where the one half has a direction, the other has the other one.
ACTIVEMQ_DIES: Final = list(_each(ONCE_POINTS, 1))
#: As for the gateway, whose process it is.
JAVA_DIES: Final = list(_each(ONCE_POINTS, 1))
#: Both die, and the gateway is back first; then ActiveMQ is.
GATEWAY_FIRST: Final = list(_each(("xa.after-prepare-2", "xa.after-decision"), 0))
ACTIVEMQ_FIRST: Final = list(_each(("xa.after-prepare-2", "xa.after-decision"), 1))
