"""The gateway's goals, as values to check against a run and to print.

Knows medians and losses by server, not how they came about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Standing:
    """The medians of one row, and the subject's losses.

    :param subject: the gateway's median; None when it was not measured.
    :param others: the other servers' medians by name, those that were measured; not the gateway's
        in pure Python.
    :param missing: the subject's lost, duplicated and unexpected messages in all repetitions; None
        when it was not measured.
    :param ceiling: what the subject could reach at most, as its rate is bound by somebody else's;
        None where nothing binds it.
    :param cost: the subject's processor time for each message, in microseconds; None when that was
        not measured.
    :param pure: the median of the gateway in pure Python; None when it was not measured.
    :param higher: whether more is better.
    """

    subject: float | None
    others: Mapping[str, float]
    missing: int | None = None
    ceiling: float | None = None
    cost: float | None = None
    pure: float | None = None
    higher: bool = True


class Goal(Protocol):
    """Something to reach; ``str`` says it."""

    def reached(self, standing: Standing) -> bool | None:
        """None when what it needs was not measured."""

    def distance(self, standing: Standing) -> str | None:
        """Return what was reached, and how far that is from the goal.

        None if that was not measured.
        """


class _Bounded(ABC):
    """A figure with a bound.

    :cvar least: whether the bound is the least that will do.
    """

    least = True

    @abstractmethod
    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        """Return the figure, its bound and their unit.

        None when it was not measured.
        """

    def reached(self, standing: Standing) -> bool | None:
        found = self._figure(standing)
        if found is None:
            return None
        figure, bound, _ = found
        return figure >= bound if self.least else figure <= bound

    def distance(self, standing: Standing) -> str | None:
        found = self._figure(standing)
        if found is None:
            return None
        figure, bound, unit = found
        said = f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
        away = round((figure / bound - 1) * 100)
        return f"{said}{unit}, " + (
            f"{abs(away)} % {'above' if away > 0 else 'below'} it" if away else "just that"
        )


@dataclass(frozen=True)
class AtLeast(_Bounded):
    """A rate of at least ``factor`` times a server's, or the best one's."""

    factor: float
    peer: str | None = None

    def __str__(self) -> str:
        return f"≥ {self.factor:g}× {self.peer or 'the best'}"

    def compared(self, standing: Standing) -> float:
        """The rate it is compared with; 0 when that was not measured."""
        if self.peer is None:
            return max(standing.others.values(), default=0.0)
        return standing.others.get(self.peer, 0.0)

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        best = self.compared(standing)
        if standing.subject is None or not best:
            return None
        return standing.subject / best, self.factor, "×"


@dataclass(frozen=True)
class AtLeastUnlessLimited(AtLeast):
    """The same, unless the provider limits it.

    :param near: the share of what the provider does by itself above which the provider is the
        limit.
    """

    near: float = 0.8

    def __str__(self) -> str:
        return f"{super().__str__()}, where the provider is not the limit"

    def limited(self, standing: Standing) -> bool:
        """Whether the subject is nearly as fast as the provider alone."""
        return (
            standing.ceiling is not None
            and standing.subject is not None
            and standing.subject >= self.near * standing.ceiling
        )

    def reached(self, standing: Standing) -> bool | None:
        reached = super().reached(standing)
        return None if reached is False and self.limited(standing) else reached


@dataclass(frozen=True)
class NearTheLimit(_Bounded):
    """A rate of at least this share of the ceiling's. :param whose: who does."""

    share: float
    whose: str

    def __str__(self) -> str:
        return f"≥ {self.share * 100:g} % of {self.whose}"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        if standing.subject is None or not standing.ceiling:
            return None
        return standing.subject / standing.ceiling * 100, self.share * 100, " %"


@dataclass(frozen=True)
class Reaches(_Bounded):
    """An amount of at least ``limit``.

    :param unit: the limit's, and the row's.
    """

    limit: float
    unit: str

    def __str__(self) -> str:
        return f"≥ {self.limit:g} {self.unit}"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        if standing.subject is None:
            return None
        return standing.subject, self.limit, f" {self.unit}"


@dataclass(frozen=True)
class Below(_Bounded):
    """A time below every other server's."""

    least = False

    def __str__(self) -> str:
        return "below all"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        least = min(standing.others.values(), default=None)
        if standing.subject is None or not least:
            return None
        return standing.subject / least, 1.0, "× the least"

    def reached(self, standing: Standing) -> bool | None:
        found = self._figure(standing)
        return None if found is None else found[0] < 1.0


@dataclass(frozen=True)
class AtMost(_Bounded):
    """An amount of at most ``limit``.

    :param unit: the limit's.
    :param scale: how many of that unit are in one of the row's.
    """

    limit: float
    unit: str
    scale: float = 1.0
    least = False

    def __str__(self) -> str:
        return f"≤ {self.limit:g} {self.unit}"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        if standing.subject is None:
            return None
        return standing.subject * self.scale, self.limit, f" {self.unit}"


@dataclass(frozen=True)
class CostsAtMost(_Bounded):
    """Processor time of the server for each message.

    :param limit: in microseconds.
    """

    limit: float
    least = False

    def __str__(self) -> str:
        return f"≤ {self.limit:g} µs of processor time a message"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        return None if standing.cost is None else (standing.cost, self.limit, " µs")


@dataclass(frozen=True)
class PureLevelWith(_Bounded):
    """In pure Python at least as good as a server, whichever way is better."""

    peer: str

    def __str__(self) -> str:
        return f"in pure Python level with {self.peer}"

    def _figure(self, standing: Standing) -> tuple[float, float, str] | None:
        peer = standing.others.get(self.peer)
        if not standing.pure or not peer:
            return None
        ratio = standing.pure / peer if standing.higher else peer / standing.pure
        return ratio, 1.0, "×"


@dataclass(frozen=True)
class NoneLost:
    """Nothing lost, nothing twice."""

    def __str__(self) -> str:
        return "none lost or twice"

    def reached(self, standing: Standing) -> bool | None:
        return None if standing.missing is None else standing.missing == 0

    def distance(self, standing: Standing) -> str | None:
        return f"{standing.missing} were" if standing.missing else None
