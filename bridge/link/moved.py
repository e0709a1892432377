"""What a link has moved: the lines of the log, how many messages a second, and when the last.

Owns step 8 of the sequence. Costs next to nothing for each message: the lines of a batch are one
event, and are made only if they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from twisted.logger import Logger

from bridge.link.rates import Rate
from bridge.status import LinkCounters
from gateway.messaging.clocks import wall_ms
from gateway.messaging.message import Message


class Moved:
    """What one link has moved.

    :param link: its name. :param counters: the link's, which the pump counts in. :param clock: the
        reactor.
    """

    def __init__(self, link: str, counters: LinkCounters, log: Logger, clock: Any) -> None:
        #: Whether each transfer is a line of level INFO; else of FINE.
        self.told = True
        #: When the last message was moved, epoch milliseconds; 0 for never.
        self.last_ms = 0
        #: Messages that were received, and sent.
        self.received: Final = Rate(clock.seconds)
        self.sent: Final = Rate(clock.seconds)
        self._link: Final = link
        self._counters: Final = counters
        self._log: Final = log
        self._clock: Final = clock
        self._counted = (0, 0)

    def transferred(self, moved: Sequence[tuple[Message, Message]]) -> None:
        """These were moved, and are done with on both sides: each as received and as sent."""
        received, sent = self._counted
        self._counted = self._counters.received, self._counters.sent
        self.received.add(self._counted[0] - received)
        self.sent.add(self._counted[1] - sent)
        if not moved:
            return
        self.last_ms = wall_ms(self._clock)
        log = self._log.info if self.told else self._log.debug
        log("{lines}", lines=_Lines(self._link, moved))


class _Lines:
    """A line for each message; for :data:`gateway.instance.logs.LINES`."""

    def __init__(self, link: str, moved: Sequence[tuple[Message, Message]]) -> None:
        self._link = link
        self._moved = moved

    def __iter__(self) -> Iterator[str]:
        link = self._link
        for received, sent in self._moved:
            yield f"message {received.message_id} was transferred by link {link}, as {sent.message_id}"

    def __str__(self) -> str:
        return "; ".join(self)
