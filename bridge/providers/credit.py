"""What may be delivered to a consumer, and as which attempt.

Owns a consumer's credit, and the attempts that it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.providers.redelivery import Attempted

#: Bytes of a body, as long as none was seen.
_ASSUMED_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Credit:
    """What may still be delivered to a consumer.

    :ivar messages: their number. :ivar octets: bytes of their bodies; None where bytes do not
        count.
    """

    messages: int = 0
    octets: int | None = None

    def grant(self, messages: int, octets: int) -> None:
        """Add to it. :raises ValueError: a number is negative."""
        if messages < 0 or octets < 0:
            raise ValueError(f"credit is not negative: {messages} messages, {octets} octets")
        self.messages += messages
        if octets:
            self.octets = octets + (self.octets or 0)

    @property
    def left(self) -> bool:
        """Whether another message may be delivered."""
        return self.messages > 0 and (self.octets is None or self.octets > 0)


class MeanSize:
    """How many messages a credit in bytes allows, by earlier bodies."""

    def __init__(self) -> None:
        #: Messages that were delivered, and their bytes.
        self._seen = self._seen_bytes = 0

    def count(self, octets: int) -> None:
        """A message with a body of this many bytes was delivered."""
        self._seen += 1
        self._seen_bytes += octets

    def allowed(self, credit: int, octets: int | None) -> int:
        """Return how many messages the credit allows.

        :param octets: bytes of their bodies; None where bytes do not count.
        """
        if octets is None:
            return credit
        if not self._seen:
            # Too many cost no memory, as little is read then.
            return min(credit, max(1, octets // _ASSUMED_BYTES))
        return max(0, min(credit, -(-octets * self._seen // max(self._seen_bytes, 1))))


def reported(run: Sequence[Attempted], counted: bool) -> list[int] | None:
    """The delivery attempts to report; None where all are first ones.

    :param counted: by the broker. Otherwise only the attempts on this side are known, and any
        number above 1 is reported as 2.
    """
    if all(delivery.attempts == 1 for delivery in run):
        return None
    most = 0x7FFF_FFFF if counted else 2
    return [min(delivery.attempts, most) for delivery in run]
