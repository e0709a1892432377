"""What a setting costs in processor time for a message.

It is measured in many short pairs, and told with an interval.

The rate wavers with all else that the machine does, by more than the 2 % that are looked for. The
processor time that a gateway's process takes for a message wavers less, and a higher one is a lower
rate where the gateway is what holds the rate back. Two gateways run side by side, one with the setting;
they are loaded in turn for a short time, in changing order, so that what changes slowly touches both.
Each pair gives a ratio.

Two equal processes differ, too, by where their memory lies. So the gateways are started anew several
times, and the interval is that of the median by a bootstrap that draws starts first, and then their
pairs: pairs of one start are no independent witnesses of what another start would show.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import load
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.peers import Peer

#: Drawings of the bootstrap, and the share that the interval has.
_DRAWN: Final = 4_000
_SHARE: Final = 0.95
#: Seconds of load after a start, before anything is measured.
_SETTLES: Final = 2.0


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    :param starts: of both gateways.
    :param pairs: after each start.
    :param warm_up: seconds of load before each measurement, and
    :param seconds: its length.
    """

    starts: int = 8
    pairs: int = 15
    warm_up: float = 0.1
    seconds: float = 0.4


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


def measure(
    old: type[Peer],
    new: type[Peer],
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
        peers = [kind(folder / f"{kind.name}{start}") for kind in (old, new)]
        try:
            for peer in peers:
                peer.start()
                load.run(peer, work, "settle", 0.0, _SETTLES)
            pairs = [_pair(peers, work, number, plan) for number in range(plan.pairs)]
        finally:
            for peer in peers:
                peer.kill()
        found.append(pairs)
        ratio = median(new / old for old, new in pairs)
        say(f"  start {start + 1} of {plan.starts}: {100 * (ratio - 1):+.2f} %")
    return found


def _pair(peers: Sequence[Peer], work: Load, number: int, plan: Plan) -> tuple[float, float]:
    costs = [0.0, 0.0]
    # Which of the two comes first changes.
    for which in (0, 1) if number % 2 else (1, 0):
        measured = load.run(peers[which], work, f"pair{number}", plan.warm_up, plan.seconds)
        if not measured.server_cpu:
            raise Refused(f"{peers[which].name} was not measured")
        # Seconds for 100,000 messages are tens of microseconds for one.
        costs[which] = 10 * measured.server_cpu
    return costs[0], costs[1]
