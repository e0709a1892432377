"""How much may be taken in a second, and how long to wait after more.

Owns the arithmetic of a rate: what is taken is paid for by time that passes, and time without any
is saved up to a bound. Nothing is refused here. Who waits, and in which way, is for the users to
know: a link that takes messages from its source, and a client whose user has a rate.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final


class TokenBucket:
    """What may be taken at one rate.

    :param now: seconds of a clock.
    :param rate: units a second, above 0.
    :param saved_s: for how many seconds without any the rate is saved.
    :param is_full: whether all of that is saved already; else nothing is.
    :ivar rate: may be changed; what was taken is not paid for anew.
    """

    def __init__(
        self, now: Callable[[], float], rate: float, saved_s: float, *, is_full: bool = False
    ) -> None:
        self.rate = rate
        self._now: Final = now
        self._saved_s: Final = saved_s
        #: Until when what was taken is paid for.
        self._until = -inf if is_full else now()

    def take(self, count: int) -> None:
        """Count what was taken, which may be more than there is."""
        self._until = self._paid_until() + count / self.rate

    def lacks_s(self, count: int = 0) -> float:
        """Return seconds until that many units may be taken; 0 for now.

        :param count: 0 is until what was taken is paid for.
        """
        return max(0.0, self._paid_until() + count / self.rate - self._now())

    @property
    def is_full(self) -> bool:
        """Whether it has saved what it may."""
        return self._until <= self._now() - self._saved_s

    def _paid_until(self) -> float:
        return max(self._until, self._now() - self._saved_s)
