"""Named points of a link's sequence at which the process kills itself, so that tests can prove what a crash there leaves behind.

Owns the points and how they are asked for. Nothing of it is part of a gateway that was not asked: the composition root gives links what
:func:`crash_point` returns where the environment names a point, and nothing elsewhere. The store has points of its own, with a variable of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.instance import killing

#: The variable of the environment that names a point: ``NAME`` or ``NAME:N``, for the N-th time that any link passes it.
VARIABLE: Final = "STOMP_GATEWAY_LINK_CRASH_POINT"

AFTER_RECEIVE: Final = "link.after-receive"
AFTER_SEND: Final = "link.after-send"
BEFORE_ACKNOWLEDGE: Final = "link.before-acknowledge"
AFTER_ACKNOWLEDGE: Final = "link.after-acknowledge"
AFTER_SETTLEMENT: Final = "link.after-settlement"
BEFORE_BURY: Final = "link.before-bury"
AFTER_BURY: Final = "link.after-bury"

#: Every point, in the order of the sequence where a message is acknowledged after it was sent. AT_MOST_ONCE passes those of the acknowledgement first.
POINTS: Final = (
    # A batch has been taken from the source, and nothing else has been done.
    AFTER_RECEIVE,
    # A message of it is to go to the dead message queues: before the first of them is asked.
    BEFORE_BURY,
    # A dead message queue has it for good, and the source has not been told.
    AFTER_BURY,
    # The target has been given the batch, and has not said that it is durable.
    AFTER_SEND,
    # The batch is the target's for good, and the source has not been told.
    BEFORE_ACKNOWLEDGE,
    # The source has been told, and has not said that this is durable.
    AFTER_ACKNOWLEDGE,
    # It is durable on both sides.
    AFTER_SETTLEMENT,
)


def crash_point(text: str) -> Callable[[str], None]:
    """As :func:`gateway.instance.killing.crash_point`, of these points. :raises ValueError:"""
    return killing.crash_point(VARIABLE, POINTS, text)
