"""Named points of a link's sequence, and of its transactions, at which the process kills itself or
is held, so that tests can prove what a crash there leaves behind.

Owns the points and how they are asked for. Nothing of it is part of a gateway that was not asked:
the composition root gives links what
:func:`crash_point` returns where the environment names a point, and nothing elsewhere. The store
has points of its own, with a variable of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.instance import killing

#: The variable of the environment that names a point: ``NAME`` or ``NAME:N``, for the N-th time
#: that any link passes it. ``@FOLDER``: orders for points are put into that folder while the
#: process runs; :func:`gateway.instance.killing.crash_orders` says how.
VARIABLE: Final = "STOMP_GATEWAY_LINK_CRASH_POINT"

AFTER_RECEIVE: Final = "link.after-receive"
AFTER_SEND: Final = "link.after-send"
BEFORE_ACKNOWLEDGE: Final = "link.before-acknowledge"
AFTER_ACKNOWLEDGE: Final = "link.after-acknowledge"
AFTER_SETTLEMENT: Final = "link.after-settlement"
BEFORE_BURY: Final = "link.before-bury"
AFTER_BURY: Final = "link.after-bury"

AFTER_START_1: Final = "xa.after-start-1"
AFTER_START_2: Final = "xa.after-start-2"
AFTER_END: Final = "xa.after-end"
AFTER_PREPARE_1: Final = "xa.after-prepare-1"
AFTER_PREPARE_2: Final = "xa.after-prepare-2"
BEFORE_DECISION: Final = "xa.before-decision"
AFTER_DECISION: Final = "xa.after-decision"
AFTER_COMMIT_1: Final = "xa.after-commit-1"
AFTER_COMMIT_2: Final = "xa.after-commit-2"
AFTER_FORGET: Final = "xa.after-forget"

#: The points of a link, in the order of the sequence where a message is acknowledged after it was
#: sent. AT_MOST_ONCE passes those of the acknowledgement first.
LINK_POINTS: Final = (
    # A batch has been taken from the source, and nothing else has been done.
    AFTER_RECEIVE,
    # A message of it is to go to the dead message queues: before the first of them is asked.
    BEFORE_BURY,
    # A dead message queue has it for good, and the source has not been told.
    AFTER_BURY,
    # The target has been given the batch, and has not said that it is durable.
    AFTER_SEND,
    # The batch is the target's for good, and the source has not been told. In a transaction nobody
    # has anything for good before the decision.
    BEFORE_ACKNOWLEDGE,
    # The source has been told, and has not said that this is durable.
    AFTER_ACKNOWLEDGE,
    # It is durable on both sides.
    AFTER_SETTLEMENT,
)

#: The points of one transaction of a transacted link, in the order of its sequence; those of the
#: link that it passes are among them. Nothing is waited for that need not be: the answer to a start
#: may come behind what was asked of that session next, and the next transaction passes its points
#: from AFTER_DECISION on, up to its own BEFORE_DECISION, which is behind AFTER_COMMIT_2.
ONCE_POINTS: Final = (
    # The source has begun its branch, in which it will receive.
    AFTER_START_1,
    AFTER_RECEIVE,
    # The target has begun its branch, in which it will send.
    AFTER_START_2,
    AFTER_SEND,
    BEFORE_ACKNOWLEDGE,
    AFTER_ACKNOWLEDGE,
    # Both branches are ended, and nobody has been asked to prepare.
    AFTER_END,
    # One of the two resource managers has answered that its branch is prepared, then the other,
    # too. Both are asked at once.
    AFTER_PREPARE_1,
    AFTER_PREPARE_2,
    # Both are prepared, and the log does not have the decision.
    BEFORE_DECISION,
    # The decision to commit is on the disk, and nobody has been told.
    AFTER_DECISION,
    # One of the two has answered that its branch is committed, then the other, too. Both are asked
    # at once.
    AFTER_COMMIT_1,
    AFTER_COMMIT_2,
    AFTER_SETTLEMENT,
    # The log does not have the transaction any more.
    AFTER_FORGET,
)

#: Every point.
POINTS: Final = (*LINK_POINTS, *(point for point in ONCE_POINTS if point not in LINK_POINTS))


def crash_point(text: str) -> Callable[[str], None]:
    """As :func:`gateway.instance.killing.crash_point`, or for ``@FOLDER`` as ``crash_orders``
    there, of these points. :raises ValueError:
    """
    if text.startswith("@"):
        return killing.crash_orders(VARIABLE, POINTS, Path(text[1:]))
    return killing.crash_point(VARIABLE, POINTS, text)
