"""What a link's counters, and the lines that tell of each transfer, have of its transactions.

Owns what counts as what, once a transaction is committed or a dead message queue has a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.dead.chain import DeadMessage
from bridge.link.batch import Item
from bridge.link.pump import Journey
from bridge.link.transfer import NotTransferred
from bridge.status import LinkCounters
from gateway.messaging.dead import BridgeDeadReason


class Tally:
    """That of one link.

    :param journey: tells of each message that was moved.
    """

    def __init__(self, counters: LinkCounters, journey: Journey) -> None:
        self._counters: Final = counters
        self._journey: Final = journey

    def committed(self, items: Sequence[Item], sending: Sequence[Item]) -> None:
        """A transaction of these is committed. :param sending: those of them that were sent."""
        counters = self._counters
        for item in items:
            if item.dead is not None:
                self.dead(item.dead)
            elif isinstance(item.outcome, NotTransferred):
                counters.not_transferred += 1
        counters.sent += len(sending)
        counters.octets += sum(
            [len(item.outgoing.body) for item in sending if item.outgoing is not None]
        )
        counters.acknowledged += len(items)
        counters.batches += 1
        # 8
        self._journey.transferred(
            [
                (item.received.message, item.outgoing)
                for item in sending
                if item.outgoing is not None
            ]
        )

    def dead(self, dead: DeadMessage) -> None:
        """A message is dead for good."""
        reason = dead.reason
        self._counters.dead[reason] = self._counters.dead.get(reason, 0) + 1
        if reason is BridgeDeadReason.MESSAGE_EXPIRED:
            self._counters.expired += 1
        elif reason is BridgeDeadReason.TRANSFORM_FAILURE:
            self._counters.transform_failures += 1
