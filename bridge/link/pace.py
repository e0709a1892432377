"""How fast a link may take messages from its source.

Owns the link's waits for its rates, of messages and of octets: for a whole batch of messages before
it is taken, and for the octets of a batch after it was, as they are known then. What two batches need
may be saved. A link that starts has saved none, so N messages need N/rate seconds at least. What a
rate is for, batches and sources, is not known here.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from bridge.config.model import PACED_BATCHES
from gateway.reactor.rates import TokenBucket

#: Batches that may be taken at once after a while without any.
_SAVED: Final = 2
#: Seconds after the end of a wait for which the rate still counts as what holds the link back.
_LATELY_S: Final = 2.0


class LinkPace:
    """The rates of one link, across its connections and restarts.

    :param clock: the reactor.
    :param rate: messages a second; None for any number.
    :param size: messages of a whole batch.
    :param octets: octets of bodies a second; None for any number.
    """

    def __init__(self, clock: Any, rate: int | None, size: int, octets: int | None = None) -> None:
        self._clock: Final = clock
        #: Messages of a whole batch.
        self.size: Final = size
        self._messages: Final = (
            None if rate is None else TokenBucket(clock.seconds, rate, _SAVED * size / rate)
        )
        self._octets: Final = (
            None if octets is None else TokenBucket(clock.seconds, octets, _SAVED / PACED_BATCHES)
        )
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

    @property
    def counts_octets(self) -> bool:
        """Whether :meth:`took` must be told of octets."""
        return self._octets is not None

    def took(self, count: int, octets: int = 0) -> None:
        """Count the messages of a batch, and the octets of their bodies."""
        if self._messages is not None:
            self._messages.take(count)
        if self._octets is not None:
            self._octets.take(octets)

    # --- inside

    def _lacks_s(self) -> float:
        """Return seconds until a whole batch may be taken."""
        lacks_s = 0.0
        if self._messages is not None:
            lacks_s = self._messages.lacks_s(self.size)
        if self._octets is not None:
            lacks_s = max(lacks_s, self._octets.lacks_s())
        return lacks_s

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
