"""Notices a link that moves nothing although something waits.

Such a link is STALLED. Owns when a link is called that, when no longer, and what the log says of
it. What a link waits for meanwhile is :class:`bridge.link.trouble.Stall`'s to say.
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
    """Watches one link while it runs.

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
        #: Since when it is stalled, epoch milliseconds; 0 while it is not.
        self.since_ms = 0

    @property
    def stalled(self) -> bool:
        """Whether something waits, and nothing was moved for too long.

        One that has moved a message since the last look is not.
        """
        return self.since_ms != 0 and self._moved() == self._seen

    def watch(self) -> None:
        """Look from now on. Idempotent."""
        if self._call is None and self._seconds > 0:
            self._begin_again()
            self._later()

    def stop(self) -> None:
        """Look no more; it is not stalled any longer. Idempotent."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        self.since_ms = 0

    def _begin_again(self) -> None:
        self._seen, self._since = self._moved(), self._clock.seconds()

    def _later(self) -> None:
        self._call = self._clock.callLater(min(LOOK_S, self._seconds / _LOOKS), self._look)

    def _look(self) -> None:
        self._later()
        if self._moved() != self._seen:
            if self.since_ms:
                self._log.info(
                    "link {link}: moves messages again, after {seconds:.0f} seconds",
                    link=self._link,
                    seconds=self._clock.seconds() - self._since,
                )
            self.since_ms = 0
            self._begin_again()
        elif not self.since_ms and self._clock.seconds() - self._since >= self._seconds / 2:
            # A source elsewhere is not browsed before that.
            call = self._call
            self._look_at_source().addCallback(lambda _: self._looked(call))

    def _looked(self, call: IDelayedCall | None) -> None:
        if call is not self._call or self._moved() != self._seen:
            # Stopped, or another look has come meanwhile.
            return
        waiting = self._waiting()
        silent = self._clock.seconds() - self._since
        if waiting <= 0:
            # Nothing waits, as far as is known: the time begins when something does.
            self._begin_again()
        elif silent >= self._seconds:
            self.since_ms = self._now_ms()
            self._log.warn(
                "link {link} is STALLED: {waiting} messages wait, and none was moved for {seconds:.0f} seconds; "
                "'imqbridgemgr why link' says what it waits for",
                link=self._link,
                waiting=waiting,
                seconds=silent,
            )
