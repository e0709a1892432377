"""When a link tries again after a failure.

Owns how long to wait after a number of failures, what counts as a failed attempt, and what ends a
row of them. To try is the link's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from bridge.config.model import ConnectionFactory, Link
from bridge.dead.chain import NotBuried
from bridge.link.errors import BatchRefused, NotDecided, TargetLost
from bridge.link.status import LinkCounters
from gateway.messaging.errors import MessagingError

#: Seconds that a growing interval grows to; a configured one may be longer, and then does not grow.
LONGEST_S: Final = 60.0
#: ``attempts`` for ever.
FOR_EVER: Final = -1
#: Seconds after which a connection that was lost had been there, though nothing was moved.
LASTING_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """When to try again.

    An operator who says how often or how long gets exactly that: a number of attempts, or a link's
    own ``failure-retry-interval``, makes the interval the same each time. Where a connection
    factory is tried for ever, the interval doubles from attempt to attempt up to
    :data:`LONGEST_S`, so that a provider which is away for a day is not asked every five seconds.

    :param attempts: how often to try, the first one counted; -1 for ever. 0 is as 1: nothing works
        without one.
    :param interval_s: seconds between the first attempt and the second.
    :param grows: whether the interval doubles from there.
    :param loss: as how many failed attempts it counts that a connection was lost which had been
        there.
    """

    attempts: int
    interval_s: float
    grows: bool
    loss: int = 0

    @classmethod
    def of_factory(cls, factory: ConnectionFactory) -> Retries:
        """Return the attempts that the factory configures (Open MQ's Table 12-8).

        They are its ``connect-attempts`` and ``connect-attempt-interval-in-seconds``.
        """
        return cls(
            factory.connect_attempts,
            float(factory.connect_attempt_interval_s),
            factory.connect_attempts == FOR_EVER,
        )

    @classmethod
    def of_link(cls, link: Link, factory: ConnectionFactory) -> Retries:
        """Return the link's attempts; its own settings win over the factory's.

        These are ``max-retries`` and ``failure-retry-interval`` (HornetQ, section 33.1).

        ``max-retries`` counts the attempts after the first, or after a connection was lost.
        """
        retries = cls.of_factory(factory)
        if link.max_retries is not None:
            attempts = FOR_EVER if link.max_retries == FOR_EVER else link.max_retries + 1
            retries = cls(attempts, retries.interval_s, attempts == FOR_EVER, loss=1)
        if link.failure_retry_interval_ms is not None:
            retries = replace(
                retries, interval_s=link.failure_retry_interval_ms / 1000, grows=False
            )
        return retries

    def wait_s(self, failures: int) -> float | None:
        """Return seconds to wait after that many failures; None to give up."""
        if self.attempts != FOR_EVER and failures >= max(1, self.attempts):
            return None
        if not self.grows:
            return self.interval_s
        longest = max(LONGEST_S, self.interval_s)
        # The exponent is bounded too: after a year of failures it would be an integer of a million
        # digits.
        return min(longest, self.interval_s * 2.0 ** min(max(0, failures - 1), 32))


class Attempts:
    """The attempts of one link.

    :param source: when to try again after the source has failed.
    :param target: after the target has.
    :param counters: the link's; tells whether anything was moved.
    :param seconds: a clock.
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
        """Return seconds until the attempt after this error; None to give up.

        It has ended an attempt, or what went on since one.
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
