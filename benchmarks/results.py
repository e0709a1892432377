"""What a run has measured so far: repetitions, medians, ratios, JSON.

Knows no servers; how it looks on a terminal is :mod:`benchmarks.table`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.cell import Row
from benchmarks.goals import AtLeastUnlessLimited, Goal, NoneLost, PureLevelWith, Standing
from benchmarks.measurement import Measurement
from benchmarks.peers import ActiveMQ, Gateway, PureGateway
from benchmarks.tally import Outcome


@dataclass
class RowResult:
    """All repetitions of one row.

    :param cell: the cell's name.
    :param servers: in the table's order; the first is the one that is compared with the others.
    """

    cell: str
    row: Row
    servers: Sequence[str]
    runs: dict[str, list[Measurement]] = field(default_factory=dict)

    def add(self, server: str, measurement: Measurement) -> None:
        """One more repetition."""
        self.runs.setdefault(server, []).append(measurement)

    def values(self, server: str) -> list[float]:
        """What was measured at a server, failed repetitions left out."""
        return [run.value for run in self.runs.get(server, ()) if run.value is not None]

    def median(self, server: str) -> float | None:
        """The middle of :meth:`values`."""
        values = self.values(server)
        return median(values) if values else None

    def outcome(self, server: str) -> Outcome:
        """Losses and duplicates of all repetitions together."""
        return sum((run.outcome for run in self.runs.get(server, ())), Outcome())

    def cost(self, server: str) -> float | None:
        """The median processor time of a server for each message, in microseconds."""
        costs = [run.server_cpu for run in self.runs.get(server, ()) if run.server_cpu is not None]
        return median(costs) * 10 if costs else None

    def ratio(self, other: str) -> float | None:
        """Return how many times better the first server is than ``other``.

        Whichever way is better; None unless both were measured.
        """
        subject, compared = self.median(self.servers[0]), self.median(other)
        if subject is None or compared is None:
            return None
        over, under = (subject, compared) if self.row.higher else (compared, subject)
        return over / under if under else None

    def standing(self) -> Standing:
        """What goals are checked against."""
        medians = {
            server: value for server in self.servers if (value := self.median(server)) is not None
        }
        subject = self.servers[0]
        outcome = self.outcome(subject)
        missing = (
            outcome.lost + outcome.duplicated + outcome.unexpected if subject in medians else None
        )
        pure = medians.get(PureGateway.name)
        others = {
            server: value
            for server, value in medians.items()
            if server not in (subject, PureGateway.name)
        }
        return Standing(
            medians.get(subject),
            others,
            missing,
            self.ceiling(),
            self.cost(subject),
            pure,
            self.row.higher,
        )

    def ceiling(self) -> float | None:
        """What binds the first server's rate, the median; None where nothing does."""
        ceilings = [
            run.ceiling for run in self.runs.get(self.servers[0], ()) if run.ceiling is not None
        ]
        return median(ceilings) if ceilings else None

    def limited(self) -> bool:
        """Whether a goal was not reached because somebody else is the limit."""
        standing = self.standing()
        return any(
            isinstance(goal, AtLeastUnlessLimited)
            and reached is None
            and standing.others
            and goal.limited(standing)
            for goal, reached in self.goals()
        )

    def goals(self) -> list[tuple[Goal, bool | None]]:
        """Return each goal, and whether it was reached, None if not measured.

        Only the gateway has goals; in pure Python it has that of being level with ActiveMQ.
        """
        standing = self.standing()
        goals: list[Goal] = []
        if self.servers[0] == Gateway.name:
            goals += self.row.goals
        elif self.servers[0] == PureGateway.name:
            goals.append(NoneLost())
        if standing.pure is not None and ActiveMQ.name in standing.others:
            goals.append(PureLevelWith(ActiveMQ.name))
        return [(goal, goal.reached(standing)) for goal in goals]

    def as_json(self) -> dict[str, object]:
        """Plain values for ``json``."""
        standing = self.standing()
        return {
            "cell": self.cell,
            "title": self.row.title,
            "unit": self.row.unit,
            "higher is better": self.row.higher,
            "medians": {server: self.median(server) for server in self.servers},
            "cpu µs a message": {server: self.cost(server) for server in self.servers},
            "times better than": {server: self.ratio(server) for server in self.servers[1:]},
            "goals": {str(goal): reached for goal, reached in self.goals()},
            "distances": {str(goal): goal.distance(standing) for goal, _ in self.goals()},
            "runs": {server: [run.as_json() for run in runs] for server, runs in self.runs.items()},
        }


def write(path: Path, results: Iterable[RowResult], settings: Mapping[str, object]) -> None:
    """Write what there is; called after each cell, in case of interruption."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), **settings, "rows": [result.as_json() for result in results]}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)


def machine() -> dict[str, object]:
    """What the figures depend on besides the servers."""
    processor = next(
        (
            line.split(":", 1)[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "unknown",
    )
    memory = next(
        (
            int(line.split()[1]) // 1024
            for line in _lines("/proc/meminfo")
            if line.startswith("MemTotal")
        ),
        0,
    )
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory MiB": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load before": os.getloadavg()[0],
    }


def filesystem(path: Path) -> str:
    """Return the type of the file system that holds ``path``.

    On ``tmpfs`` syncing costs nothing and durable figures mean little.
    """
    best, kind = "", "unknown"
    for line in _lines("/proc/mounts"):
        _, mount, type_, *_ = line.split()
        if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, type_
    return kind


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
