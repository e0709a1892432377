"""What follows from a transaction that was refused: which message is looked for, and whether there
is a pause before the next attempt.

Owns how a refusal is understood. Whose fault it is in the end, and how large the next transaction
is, is :mod:`bridge.once.poison`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from bridge.link.batch import Item
from bridge.link.errors import BatchRefused, Refused
from bridge.link.transfer import CannotBeRead
from bridge.once.poison import MOST, Poison
from bridge.xa.errors import RolledBack
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.message import Unreadable


def note(
    link: str, poison: Poison, items: Sequence[Item], refused: Refused | RolledBack, log: Logger
) -> None:
    """The target is there and does not take these, or a resource manager would not prepare them.

    :param items: all of the transaction, which was rolled back. :raises BatchRefused: it is one
        message alone, and is to be tried again later.
    """
    reason = (
        BridgeDeadReason.SEND_FAILURE
        if isinstance(refused, Refused)
        else BridgeDeadReason.COMMIT_FAILURE
    )
    messages = [item.received.message for item in items]
    times = poison.refused(messages, reason, str(refused.cause), _named(items, refused))
    log.debug(
        "link {link}: a transaction of {count} messages was rolled back: {error}",
        link=link,
        count=len(items),
        error=refused.cause,
    )
    if 0 < times < MOST:
        raise BatchRefused(refused.cause, times, MOST)


def _named(items: Sequence[Item], refused: Refused | RolledBack) -> int | None:
    """Which of these it is; None where nobody said. The target counts what was sent to it."""
    if isinstance(refused.cause, CannotBeRead):
        return next(
            (
                number
                for number, item in enumerate(items)
                if isinstance(item.received.message, Unreadable)
            ),
            None,
        )
    if not isinstance(refused, Refused) or refused.index is None:
        return None
    sent = [number for number, item in enumerate(items) if item.to_be_sent]
    return sent[refused.index] if refused.index < len(sent) else None
