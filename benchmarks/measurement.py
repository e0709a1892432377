"""What one run of one cell measures.

Knows no servers and no sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from benchmarks.tally import Outcome


@dataclass(frozen=True)
class Measurement:
    """One repetition of one row at one server.

    :param value: the figure that the table compares, in the row's unit; None when there was no result,
        and then ``error`` says why.
    :param outcome: losses, duplicates, order.
    :param messages: how many messages ``outcome`` speaks of, each counted once for each who must
        receive it.
    :param percentiles: p50, p99 and p99.9 in milliseconds, of what the row's cell says; None where
        nothing was timed.
    :param server_cpu: the server's processor seconds for each 100,000 messages received.
    :param server_peak: the server's highest resident memory in octets.
    :param generator: the share of one core that the load generator used, 1.0 being a whole core:
        near that, the generator may be the limit.
    :param others: cores that were busy with neither server nor generator.
    :param ceiling: what somebody else, at whom it ends or begins, does by itself, in the unit of
        the value; None where no other takes part.
    :param extra: further figures by name, the unit in the name.
    """

    value: float | None
    outcome: Outcome = field(default_factory=Outcome)
    messages: int = 0
    percentiles: tuple[float, float, float] | None = None
    server_cpu: float | None = None
    server_peak: int | None = None
    generator: float | None = None
    others: float | None = None
    ceiling: float | None = None
    extra: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    def with_value(self, value: float, extra: dict[str, float]) -> Measurement:
        """Return the same run with another compared figure, and further figures."""
        return replace(self, value=value, extra={**self.extra, **extra})

    def with_ceiling(self, ceiling: float) -> Measurement:
        """The same run with what bounds its value."""
        return replace(self, ceiling=ceiling)

    def as_json(self) -> dict[str, object]:
        """Plain values for ``json``."""
        return asdict(self)


def failed(error: Exception) -> Measurement:
    """A run that came to nothing."""
    return Measurement(None, error=f"{type(error).__name__}: {error}")


def percentiles(seconds: Sequence[float]) -> tuple[float, float, float] | None:
    """Return p50, p99 and p99.9 in milliseconds; None for an empty sample.

    Each is the smallest value that that share of the sample does not exceed.
    """
    if not seconds:
        return None
    ordered = sorted(seconds)

    def at(thousandths: int) -> float:
        return ordered[-(-len(ordered) * thousandths // 1000) - 1] * 1000

    return at(500), at(990), at(999)
