"""How fast a link may take messages from its source.

Owns the link's allowance: it grows with time by the link's rate, up to what two batches need, and
what was taken is subtracted. A link that starts has none, so N messages need N/rate seconds at
least. What a rate is for, batches and sources, is not known here.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

#: Batches that may be taken at once after a while without any.
_SAVED: Final = 2
#: Seconds after the end of a wait for which the rate still counts as what holds the link back.
_LATELY_S: Final = 2.0


class LinkPace:
    """The allowance of one link, across its connections and restarts.

    :param clock: the reactor.
    :param rate: messages a second; None for any number.
    :param size: messages of a whole batch.
    """

    def __init__(self, clock: Any, rate: int | None, size: int) -> None:
        self._clock: Final = clock
        self._rate: Final = rate
        self._size: Final = size
        self._allowed = 0.0
        self._since: float = clock.seconds()
        self._waiting: Deferred[None] | None = None
        self._call: IDelayedCall | None = None
        #: When the wait under way began, and the last one ended.
        self._began = 0.0
        self._ended: float | None = None
        self._waited_s = 0.0

    @property
    def waits(self) -> bool:
        """Whether the link waits for its rate now."""
        return self._waiting is not None

    @property
    def holds(self) -> bool:
        """Whether the link waits for its rate, or did a moment ago."""
        lately = self._ended is not None and self._clock.seconds() - self._ended < _LATELY_S
        return self.waits or lately

    @property
    def waited_s(self) -> float:
        """Seconds that were waited, with the wait under way."""
        now = self._clock.seconds() - self._began if self.waits else 0.0
        return self._waited_s + now

    def allows(self) -> bool:
        """Whether a whole batch may be taken now."""
        return self._lacks_s() <= 0

    async def wait(self) -> None:
        """Wait until a whole batch may be taken, or until :meth:`interrupt`."""
        self._began = self._clock.seconds()
        waiting: Deferred[None] = Deferred()
        self._waiting = waiting
        self._later()
        await waiting

    def interrupt(self) -> None:
        """End the wait under way, if there is one. Idempotent."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        self._end()

    def took(self, count: int) -> None:
        """So many messages were taken."""
        if self._rate is not None:
            self._allowed -= count

    # --- inside

    def _lacks_s(self) -> float:
        """Let the allowance grow; return seconds until a whole batch may be taken."""
        if self._rate is None:
            return 0.0
        now = self._clock.seconds()
        grown = self._allowed + (now - self._since) * self._rate
        self._allowed, self._since = min(_SAVED * self._size, grown), now
        return (self._size - self._allowed) / self._rate

    def _later(self) -> None:
        """Look again once a whole batch must be allowed.

        A timer may be early by its grain.
        """
        lacks_s = self._lacks_s()
        if lacks_s <= 0:
            self._call = None
            self._end()
        else:
            self._call = self._clock.callLater(max(lacks_s, 0.001), self._later)

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._ended = self._clock.seconds()
            self._waited_s += self._ended - self._began
            waiting.callback(None)
