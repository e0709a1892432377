"""The cost of a stretch of time: processor time and memory, by whose.

Reads ``/proc`` and nothing of the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.process import ProcessTree

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """:param seconds: how long it took.
    :param server: processor seconds of the server's processes.
    :param generator: the share of one core that this process used.
    :param others: cores that were busy with neither, also those that a hypervisor took away. Well
        above 0, the figures are not worth much.
    :param peak: the server's highest resident memory in octets.
    :param further: processor seconds of further servers that took part.
    """

    seconds: float
    server: float
    generator: float
    others: float
    peak: int
    further: float = 0.0


class Meter:
    """Runs from its making to :meth:`stop`.

    :param tree: the server.
    :param further: servers that take part besides.
    """

    def __init__(self, tree: ProcessTree, further: Sequence[ProcessTree] = ()) -> None:
        self._tree, self._others = tree, further
        tree.reset_peak()
        self._server, self._own, self._busy = (
            tree.cpu_seconds(),
            time.process_time(),
            busy_seconds(),
        )
        self._further = self._further_seconds()
        self.began = perf_counter()

    def stop(self) -> Cost:
        """The cost up to now."""
        seconds = perf_counter() - self.began
        own = time.process_time() - self._own
        server = self._tree.cpu_seconds() - self._server
        further = self._further_seconds() - self._further
        busy = busy_seconds() - self._busy
        rest = max(0.0, busy - server - further - own)
        return Cost(
            seconds, server, own / seconds, rest / seconds, self._tree.peak_bytes(), further
        )

    def _further_seconds(self) -> float:
        return sum(tree.cpu_seconds() for tree in self._others)


def busy_seconds() -> float:
    """Return the machine's busy seconds, all cores together (/proc/stat)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / _TICKS
