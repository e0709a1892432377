"""What the journal costs: the same loads at each of its levels, in turn.

The level is changed as an operator changes it, by the file of settings and SIGHUP, so that nothing
differs but what is told.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from benchmarks import load
from benchmarks.cell import Cell, Row, Timing
from benchmarks.endpoint import Refused
from benchmarks.goals import NoneLost, Reaches
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.peers import Gateway, Peer, PureGateway
from benchmarks.tally import Outcome
from benchmarks.wire import Confirm

LEVELS = ("off", "links", "all")
LOADS = (Load(), Load(body=1024, persistent=True, confirm=Confirm.EACH_100, ack="client"))
# How often each level.
_TURNS = 4
_PATIENCE = 10.0
_READ_AGAIN = "settings were read again"


class GatewayWithLevels(Gateway):
    """The gateway, whose journal can be told its level."""

    def set_level(self, level: str) -> None:
        """Set the level; it holds when this returns.

        :raises Refused: the gateway does not say so.
        """
        settings = self.instance / "etc" / "gateway.properties"
        lines = [
            line
            for line in settings.read_text().splitlines()
            if not line.startswith("imq.journal.level=")
        ]
        settings.write_text("\n".join([*lines, f"imq.journal.level={level}", ""]))
        before = self._read_again()
        os.kill(self.tree.pid, signal.SIGHUP)
        until = time.monotonic() + _PATIENCE
        while self._read_again() == before:
            if time.monotonic() > until:
                raise Refused(f"{self.name} has not read its settings again")
            time.sleep(0.01)

    def _read_again(self) -> int:
        return sum(
            [
                path.read_text(errors="replace").count(_READ_AGAIN)
                for path in (self.instance / "log").iterdir()
            ]
        )


class PureGatewayWithLevels(GatewayWithLevels, PureGateway):
    """The same in pure Python."""


@dataclass(frozen=True)
class Levels:
    """Each load at each level."""

    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        """Return each load's rate at ``links`` and ``all``, in percent of ``off``."""
        assert isinstance(peer, GatewayWithLevels)
        found: list[Measurement] = []
        for number, declared in enumerate(LOADS):
            runs: dict[str, list[Measurement]] = {level: [] for level in LEVELS}
            for turn in range(_TURNS):
                for level in LEVELS:
                    peer.set_level(level)
                    run = load.run(
                        peer,
                        declared,
                        f"{name}.{number}.{level}{turn}",
                        timing.warm_up,
                        timing.seconds,
                    )
                    runs[level].append(run)
            found += [_compared(runs, level) for level in LEVELS[1:]]
        return found


def _compared(runs: Mapping[str, list[Measurement]], level: str) -> Measurement:
    rates = {
        each: median([run.value for run in measured if run.value is not None])
        for each, measured in runs.items()
    }
    costs = {
        f"{each}, server s/100k": median(
            [run.server_cpu for run in runs[each] if run.server_cpu is not None]
        )
        for each in ("off", level)
    }
    mine = [*runs[level], *runs["off"]]
    return replace(
        runs[level][-1],
        value=100 * rates[level] / rates["off"],
        outcome=sum((run.outcome for run in mine), Outcome()),
        messages=sum(run.messages for run in mine),
        extra={**rates, **costs},
    )


_SERVERS: Mapping[str, type[Peer]] = {
    peer.name: peer for peer in (GatewayWithLevels, PureGatewayWithLevels)
}

JOURNAL = Cell(
    "journal",
    Levels(),
    (
        Row(
            "journal at level links, of the rate at off: queue, 100 B, non-persistent, auto",
            "%",
            True,
            (NoneLost(), Reaches(97, "%")),
        ),
        Row("the same at level all", "%", True, (NoneLost(), Reaches(75, "%"))),
        Row(
            "journal at level links, of the rate at off: queue, 1 KiB, persistent, a receipt each 100, ack client",
            "%",
            True,
            (NoneLost(), Reaches(97, "%")),
        ),
        Row("the same at level all", "%", True, (NoneLost(),)),
    ),
    _SERVERS,
)
