"""How much a link moves: rates, and a log line for each message.

This is step 8 of the sequence in :mod:`bridge.link.transfer`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from twisted.logger import Logger

from bridge.link.status import LinkCounters
from gateway.messaging.message import Message
from gateway.reactor.clocks import wall_ms

#: Seconds over which a rate is the mean, and of one count within them.
WINDOW_S: Final = 60.0
_SLICE_S: Final = 1.0


class Rate:
    """Counts events, and gives their mean rate over the last minute.

    In the first minute it is the mean since the first event.

    :param seconds: a clock that only goes forward.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._slices: deque[tuple[float, int]] = deque()
        self._began: float | None = None

    def add(self, count: int) -> None:
        """So many happened now."""
        now = self._seconds()
        if self._began is None:
            self._began = now
        if self._slices and now - self._slices[-1][0] < _SLICE_S:
            began, before = self._slices.pop()
            self._slices.append((began, before + count))
        else:
            self._slices.append((now, count))
            self._drop(now)

    def a_second(self) -> float:
        """The rate now."""
        now = self._seconds()
        self._drop(now)
        if self._began is None:
            return 0.0
        return sum(count for _, count in self._slices) / min(
            WINDOW_S, max(_SLICE_S, now - self._began)
        )

    def _drop(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] > WINDOW_S:
            self._slices.popleft()


class Throughput:
    """What one link has moved.

    :param link: its name.
    :param counters: the link's, which the pump counts in.
    :param clock: the reactor.
    """

    def __init__(self, link: str, counters: LinkCounters, log: Logger, clock: Any) -> None:
        #: Whether each transfer is a line of level INFO; else of FINE.
        self.as_info = True
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
        """Count messages that were moved and are settled on both sides.

        Each as received and as sent.
        """
        received, sent = self._counted
        self._counted = self._counters.received, self._counters.sent
        self.received.add(self._counted[0] - received)
        self.sent.add(self._counted[1] - sent)
        if not moved:
            return
        self.last_ms = wall_ms(self._clock)
        log = self._log.info if self.as_info else self._log.debug
        log("{lines}", lines=_Lines(self._link, moved))


class _Lines:
    """A line for each message; for :data:`gateway.instance.log_lines.LINES`."""

    def __init__(self, link: str, moved: Sequence[tuple[Message, Message]]) -> None:
        self._link = link
        self._moved = moved

    def __iter__(self) -> Iterator[str]:
        link = self._link
        for received, sent in self._moved:
            yield f"message {received.message_id} was transferred by link {link}, as {sent.message_id}"

    def __str__(self) -> str:
        return "; ".join(self)
