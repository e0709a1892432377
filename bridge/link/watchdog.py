"""Notices a link that moves nothing although something waits.

Such a link is STALLED. Owns when a link is called that, when no longer, and what the log says of
it. What a link waits for meanwhile is :class:`bridge.link.trouble.Stall`'s to say.

The time counts over connections: a broker that lets the link in and never answers ends each of them
after a while, and a new one is no progress. A link whose broker is only away is not stalled: it must
have been connected within that time, and have moved nothing over that connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

#: Seconds between two looks, at most; there are at least four within the time that is allowed.
LOOK_S: Final = 5.0
_LOOKS: Final = 4


class Watchdog:
    """Watches one link from its start to its stop.

    :param clock: the reactor.
    :param seconds: without a message moved after which a link is stalled; 0 for never.
    :param moved: whatever grows when a message is moved, or is done with in another way.
    :param look: looks at the source; fires soon, never with an error.
    :param waiting: how many messages waited then, those under way included; -1 when unknown.
    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        clock: Any,
        link: str,
        seconds: float,
        moved: Callable[[], object],
        look: Callable[[], Deferred[None]],
        waiting: Callable[[], int],
        now_ms: Callable[[], int],
        log: Logger,
    ) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._seconds: Final = seconds
        self._moved: Final = moved
        self._look_at_source: Final = look
        self._waiting: Final = waiting
        self._now_ms: Final = now_ms
        self._log: Final = log
        self._call: IDelayedCall | None = None
        self._seen: object = None
        #: Since when nothing was moved, or nothing waited.
        self._since = 0.0
        #: Whether something waited then, as far as is known.
        self._waits = False
        #: Since when it is connected; None while it is not.
        self._connected_at: float | None = None
        #: Whether a connection was made and lost since then.
        self._in_vain = False
        #: Since when it is stalled, epoch milliseconds; 0 while it is not.
        self.since_ms = 0

    @property
    def stalled(self) -> bool:
        """Whether something waits, and nothing was moved for too long.

        One that has moved a message since the last look is not.
        """
        return self.since_ms != 0 and self._moved() == self._seen

    def connected(self) -> None:
        """The link is connected: look from now on. Idempotent."""
        if self._seconds <= 0:
            return
        if self._call is None:
            self._begin_again()
            self._later()
        if self._connected_at is None:
            self._connected_at = self._clock.seconds()

    def lost(self) -> None:
        """A connection is lost: the time goes on. Idempotent."""
        connected_at, self._connected_at = self._connected_at, None
        if connected_at is not None and connected_at >= self._since:
            self._in_vain = True

    def stop(self) -> None:
        """Look no more; it is not stalled any longer. Idempotent."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        self._connected_at = None
        self.since_ms = 0

    def _begin_again(self) -> None:
        self._seen, self._since = self._moved(), self._clock.seconds()
        self._waits = self._in_vain = False
        self.since_ms = 0

    def _later(self) -> None:
        self._call = self._clock.callLater(self._look_s, self._look)

    @property
    def _look_s(self) -> float:
        return min(LOOK_S, self._seconds / _LOOKS)

    @property
    def _silent_s(self) -> float:
        return float(self._clock.seconds()) - self._since

    @property
    def _tried(self) -> bool:
        """Whether it was connected, had time to move something, and did not."""
        if self._in_vain or self._connected_at is None:
            return self._in_vain
        since = max(self._since, self._connected_at)
        return float(self._clock.seconds()) - since >= self._look_s

    def _look(self) -> None:
        self._later()
        if self._moved() != self._seen:
            if self.since_ms:
                self._log.info(
                    "link {link}: moves messages again, after {seconds:.0f} seconds",
                    link=self._link,
                    seconds=self._silent_s,
                )
            self._begin_again()
        elif self._silent_s >= self._seconds / 2:
            # A source elsewhere is not browsed before that.
            call = self._call
            self._look_at_source().addCallback(lambda _: self._looked(call))

    def _looked(self, call: IDelayedCall | None) -> None:
        if call is not self._call or self._moved() != self._seen:
            # Stopped, or another look has come meanwhile.
            return
        waiting = self._waiting()
        if not waiting or (waiting < 0 and not self._waits):
            # Nothing waits, as far as is known: the time begins when something does.
            if self.since_ms:
                self._log.info(
                    "link {link}: is not stalled any longer, as nothing waits", link=self._link
                )
            self._begin_again()
        elif waiting > 0:
            self._waits = True
            if not self.since_ms and self._silent_s >= self._seconds and self._tried:
                self.since_ms = self._now_ms()
                self._log.warn(
                    "link {link} is STALLED: {waiting} messages wait, and none was moved for {seconds:.0f} seconds; "
                    "'imqbridgemgr why link' says what it waits for",
                    link=self._link,
                    waiting=waiting,
                    seconds=self._silent_s,
                )
