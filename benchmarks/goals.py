"""The gateway's goals, as values to check against a run and to print.

Knows medians and losses by server, not how they came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Standing:
    """The medians of one row, and the subject's losses.

    :param subject: the gateway's median; None when it was not measured.
    :param others: the other servers' medians by name, those that were measured.
    :param missing: the subject's lost, duplicated and unexpected messages in all repetitions; None
        when it was not measured.
    :param ceiling: what the subject could reach at most, as its rate is bound by somebody else's;
        None where nothing binds it.
    """

    subject: float | None
    others: Mapping[str, float]
    missing: int | None = None
    ceiling: float | None = None


class Goal(Protocol):
    """Something to reach; ``str`` says it."""

    def reached(self, standing: Standing) -> bool | None:
        """None when what it needs was not measured."""


@dataclass(frozen=True)
class AtLeast:
    """A rate of at least ``factor`` times a server's, or the best one's."""

    factor: float
    peer: str | None = None

    def __str__(self) -> str:
        return f"≥ {self.factor:g}× {self.peer or 'the best'}"

    def reached(self, standing: Standing) -> bool | None:
        best = (
            max(standing.others.values(), default=None)
            if self.peer is None
            else standing.others.get(self.peer)
        )
        if standing.subject is None or best is None:
            return None
        return standing.subject >= self.factor * best


@dataclass(frozen=True)
class AtLeastUnlessLimited:
    """``factor`` times the best rate, unless the provider limits it."""

    factor: float
    #: So near to what the provider does by itself that the provider is the limit.
    near: float = 0.8

    def __str__(self) -> str:
        return f"≥ {self.factor:g}× the best, where the provider is not the limit"

    def limited(self, standing: Standing) -> bool:
        """Whether the subject is nearly as fast as the provider alone."""
        return (
            standing.ceiling is not None
            and standing.subject is not None
            and standing.subject >= self.near * standing.ceiling
        )

    def reached(self, standing: Standing) -> bool | None:
        reached = AtLeast(self.factor).reached(standing)
        return None if reached is False and self.limited(standing) else reached


@dataclass(frozen=True)
class NearTheLimit:
    """A rate of at least this share of the ceiling's. :param whose: who does."""

    share: float
    whose: str

    def __str__(self) -> str:
        return f"≥ {self.share * 100:g} % of {self.whose}"

    def reached(self, standing: Standing) -> bool | None:
        if standing.subject is None or standing.ceiling is None:
            return None
        return standing.subject >= self.share * standing.ceiling


@dataclass(frozen=True)
class Reaches:
    """An amount of at least ``limit``.

    :param unit: the limit's, and the row's.
    """

    limit: float
    unit: str

    def __str__(self) -> str:
        return f"≥ {self.limit:g} {self.unit}"

    def reached(self, standing: Standing) -> bool | None:
        return None if standing.subject is None else standing.subject >= self.limit


@dataclass(frozen=True)
class Below:
    """A time below every other server's."""

    def __str__(self) -> str:
        return "below all"

    def reached(self, standing: Standing) -> bool | None:
        if standing.subject is None or not standing.others:
            return None
        return standing.subject < min(standing.others.values())


@dataclass(frozen=True)
class AtMost:
    """An amount of at most ``limit``.

    :param unit: the limit's.
    :param scale: how many of that unit are in one of the row's.
    """

    limit: float
    unit: str
    scale: float = 1.0

    def __str__(self) -> str:
        return f"≤ {self.limit:g} {self.unit}"

    def reached(self, standing: Standing) -> bool | None:
        return None if standing.subject is None else standing.subject * self.scale <= self.limit


@dataclass(frozen=True)
class NoneLost:
    """Nothing lost, nothing twice."""

    def __str__(self) -> str:
        return "none lost or twice"

    def reached(self, standing: Standing) -> bool | None:
        return None if standing.missing is None else standing.missing == 0
