"""How long to wait before the next attempt to connect, and when to give up.

Owns the arithmetic. Who connects, and what is told of it, belong to others.

An operator who says how often or how long gets exactly that: a number of attempts, or a link's own
``failure-retry-interval``, makes the interval the same each time. Where a connection factory is
tried for ever, the interval doubles from attempt to attempt up to :data:`LONGEST_S`, so that a
provider which is away for a day is not asked every five seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from bridge.config.model import ConnectionFactory, Link

#: Seconds that a growing interval grows to; a configured one may be longer, and then does not grow.
LONGEST_S: Final = 60.0
#: ``attempts`` for ever.
FOR_EVER: Final = -1


@dataclass(frozen=True, slots=True)
class Retries:
    """When to try again.

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
        """As ``connect-attempts`` and ``connect-attempt-interval-in-seconds`` say (seed table
        12-8).
        """
        return cls(
            factory.connect_attempts,
            float(factory.connect_attempt_interval_s),
            factory.connect_attempts == FOR_EVER,
        )

    @classmethod
    def of_link(cls, link: Link, factory: ConnectionFactory) -> Retries:
        """The link's ``max-retries`` and ``failure-retry-interval`` win over the factory's attempts
        (HornetQ, section 33.1).

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
        """Seconds to wait after that many failures in a row, at least one; None to give up."""
        if self.attempts != FOR_EVER and failures >= max(1, self.attempts):
            return None
        if not self.grows:
            return self.interval_s
        longest = max(LONGEST_S, self.interval_s)
        # The exponent is bounded too: after a year of failures it would be an integer of a million
        # digits.
        return min(longest, self.interval_s * 2.0 ** min(max(0, failures - 1), 32))
