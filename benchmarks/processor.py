"""What a setting costs in processor time for a message.

It is measured in many short pairs, and told with an interval.

The rate wavers with all else that the machine does, by more than the 2 % that are looked for. The
processor time that a gateway's process takes for a message wavers less, and a higher one is a lower
rate where the gateway is what holds the rate back. Two gateways run side by side, one with the setting;
they are loaded in turn for a short time, in changing order, so that what changes slowly touches both.
Each pair gives a ratio.

Two equal processes differ, too, by where their memory lies: by up to 8 % on one machine. So they are
started anew several times, and the interval is that of the median by a bootstrap that draws starts
first, and then their pairs: pairs of one start are no independent witnesses of what another start
would show. Where a setting can be switched while a gateway runs, one process is both, and starts
differ little.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks import load
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.peers import Peer
from benchmarks.switched import SwitchedGateway

#: Drawings of the bootstrap, and the share that the interval has.
_DRAWN: Final = 4_000
_SHARE: Final = 0.95
#: Seconds of load after a start, before anything is measured.
_SETTLES: Final = 2.0


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    :param starts: of the gateways.
    :param pairs: after each start.
    :param warm_up: seconds of load before each measurement, and
    :param seconds: its length.
    """

    starts: int = 8
    pairs: int = 15
    warm_up: float = 0.1
    seconds: float = 0.4


#: Of one process that is switched. Its noise lasts for longer than a slice, so that many short ones
#: tell more than few long ones.
SLICES: Final = Plan(starts=4, pairs=500, warm_up=0.05, seconds=0.1)


@dataclass(frozen=True)
class Estimate:
    """The median of ratios, new to old, with an interval.

    It lies between ``low`` and ``high`` with a probability of 95 %.

    :param old: microseconds of processor time for a message, the median; and
    :param new: likewise.
    """

    ratio: float
    low: float
    high: float
    old: float
    new: float
    pairs: int

    def __str__(self) -> str:
        percent = [100 * (each - 1) for each in (self.ratio, self.low, self.high)]
        return (
            f"{self.old:8.3f} {self.new:8.3f} µs/msg  {percent[0]:+.2f} % "
            f"({percent[1]:+.2f} to {percent[2]:+.2f} %), {self.pairs} pairs"
        )


def estimate(starts: Sequence[Sequence[tuple[float, float]]]) -> Estimate:
    """Compare pairs of figures, old and new, of several starts.

    :raises ValueError: there is no pair.
    """
    ratios = [[new / old for old, new in pairs] for pairs in starts if pairs]
    if not ratios:
        raise ValueError("no pair was measured")
    chance = random.Random(1)
    drawn = sorted(
        median(
            ratio
            for start in chance.choices(ratios, k=len(ratios))
            for ratio in chance.choices(start, k=len(start))
        )
        for _ in range(_DRAWN)
    )
    beyond = round(_DRAWN * (1 - _SHARE) / 2)
    every = [pair for pairs in starts for pair in pairs]
    return Estimate(
        median(itertools.chain.from_iterable(ratios)),
        drawn[beyond],
        drawn[-1 - beyond],
        median(old for old, _ in every),
        median(new for _, new in every),
        len(every),
    )


class Sides:
    """The two gateways that are compared.

    :param folder: for their data; it must be empty.
    """

    def __init__(self, old: type[Peer], new: type[Peer], folder: Path) -> None:
        self.peers: Sequence[Peer] = (old(folder / "old"), new(folder / "new"))

    def pairs(self, work: Load, plan: Plan) -> list[tuple[float, float]]:
        """Microseconds of processor time for a message, old and new."""
        return [self._pair(work, number, plan) for number in range(plan.pairs)]

    def _pair(self, work: Load, number: int, plan: Plan) -> tuple[float, float]:
        costs = [0.0, 0.0]
        # Which of the two comes first changes.
        for which in (0, 1) if number % 2 else (1, 0):
            peer = self.peers[which]
            measured = load.run(peer, work, f"pair{number}", plan.warm_up, plan.seconds)
            if not measured.server_cpu:
                raise Refused(f"{peer.name} was not measured")
            # Seconds for 100,000 messages are tens of microseconds for one.
            costs[which] = 10 * measured.server_cpu
        return costs[0], costs[1]


class OneProcess(Sides):
    """One gateway that is both, and is switched while a load goes on."""

    def __init__(self, kind: type[SwitchedGateway], folder: Path) -> None:
        self._gateway: Final = kind(folder / kind.name)
        self.peers = (self._gateway,)

    def pairs(self, work: Load, plan: Plan) -> list[tuple[float, float]]:
        # What is done once a second must not fall on the same side each time.
        chance = random.Random(self._gateway.port)
        order = [which for _ in range(plan.pairs) for which in chance.sample((0, 1), 2)]
        slices = Slices(self._gateway, order, plan)
        # It ends when they are done; a machine that is too slow for it shall not go on for ever.
        seconds = 5 * len(order) * (plan.warm_up + plan.seconds)
        load.run(self._gateway, work, "pairs", _SETTLES, seconds, slices.see)
        return slices.pairs()


class Slices:
    """Parts of one load, each on one side.

    :param order: of the sides, 0 the old one and 1 the new one; each two are a pair.
    """

    def __init__(self, gateway: SwitchedGateway, order: Sequence[int], plan: Plan) -> None:
        self._gateway: Final = gateway
        self._order: Final = order
        self._plan: Final = plan
        self._costs: Final[list[float]] = []
        self._received = 0
        self._pauses: Final = self._measured()
        self._due = 0.0

    def see(self, received: int) -> bool:
        """See :func:`benchmarks.load.run`."""
        now = perf_counter()
        if now >= self._due:
            self._received = received
            self._due = now + next(self._pauses, 0.0)
        return len(self._costs) == len(self._order)

    def pairs(self) -> list[tuple[float, float]]:
        """What was measured, old and new.

        :raises Refused: the load ended before that.
        """
        if len(self._costs) < len(self._order):
            raise Refused(f"only {len(self._costs)} of {len(self._order)} slices were measured")
        first = zip(self._order[::2], self._costs[::2], self._costs[1::2], strict=True)
        return [(second, one) if which else (one, second) for which, one, second in first]

    def _measured(self) -> Iterator[float]:
        """Measure; what it gives are the seconds to wait for."""
        tree = self._gateway.tree
        for which in self._order:
            self._gateway.switch(on=which == 1)
            yield self._plan.warm_up
            used, received = tree.cpu_seconds(), self._received
            yield self._plan.seconds
            many = max(1, self._received - received)
            self._costs.append(1e6 * (tree.cpu_seconds() - used) / many)


def measure(
    sides: Callable[[Path], Sides],
    work: Load,
    folder: Path,
    plan: Plan,
    say: Callable[[str], None],
) -> list[list[tuple[float, float]]]:
    """Measure processor time for a message in pairs, of each start.

    :param folder: for the gateways' data; it must be empty.
    :param say: gets a line for each start.
    :returns: for each start its pairs, old and new, in microseconds.
    :raises Refused: a gateway does not take the load.
    """
    found = []
    for start in range(plan.starts):
        those = sides(folder / str(start))
        try:
            for peer in those.peers:
                peer.start()
                load.run(peer, work, "settle", 0.0, _SETTLES)
            pairs = those.pairs(work, plan)
        finally:
            for peer in those.peers:
                peer.kill()
        found.append(pairs)
        ratio = median(new / old for old, new in pairs)
        say(f"  start {start + 1} of {plan.starts}: {100 * (ratio - 1):+.2f} %")
    return found
