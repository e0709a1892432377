"""The attempts of one link to connect: how many have failed in a row, and whether and when the next
one is made.

Owns what counts as a failed attempt, and what ends a row of them. How long to wait after so many is
:mod:`bridge.link.retrying`'s; who waits is the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bridge.dead.chain import NotBuried
from bridge.link.errors import BatchRefused, NotDecided, TargetLost
from bridge.link.retrying import FOR_EVER, Retries
from bridge.status import LinkCounters
from gateway.messaging.errors import MessagingError

#: Seconds after which a connection that was lost had been there, though nothing was moved.
LASTING_S: Final = 60.0


class Attempts:
    """The attempts of one link.

    :param source: when to try again after the source has failed. :param target: after the target
        has.
    :param counters: the link's; tells whether anything was moved. :param seconds: a clock.
    """

    def __init__(
        self, source: Retries, target: Retries, counters: LinkCounters, seconds: Callable[[], float]
    ) -> None:
        #: How many have failed in a row.
        self.failed = 0
        #: Whether it was connected since :meth:`begin`.
        self.was_connected = False
        self._source: Final = source
        self._target: Final = target
        self._counters: Final = counters
        self._seconds: Final = seconds
        #: Since when it is connected; None where it is not.
        self._connected_at: float | None = None
        self._batches_then = 0

    def begin(self) -> None:
        """The link is started: what was before has nothing to say any more."""
        self.failed = 0
        self.was_connected = False
        self._connected_at = None

    def connected(self) -> None:
        """Both ends are connected."""
        self.was_connected = True
        self._connected_at = self._seconds()
        self._batches_then = self._counters.batches

    def wait_s(self, error: MessagingError) -> float | None:
        """This has ended an attempt, or what went on since one: seconds until the next; None to
        give up.
        """
        retries = self._target if isinstance(error, TargetLost) else self._source
        connected_at, self._connected_at = self._connected_at, None
        moved = self._counters.batches > self._batches_then
        if isinstance(error, NotBuried | BatchRefused | NotDecided):
            # Nothing was lost, and nothing may be given up: a message would be.
            retries = Retries(FOR_EVER, retries.interval_s, grows=True)
            self.failed = 1 if moved else self.failed + 1
        elif connected_at is None:
            self.failed += 1
        else:
            self._counters.reconnects += 1
            # One that is lost as often as it is connected is as good as not there.
            there = moved or self._seconds() - connected_at >= LASTING_S
            self.failed = retries.loss if there else max(retries.loss, self.failed + 1)
        return retries.wait_s(self.failed)
