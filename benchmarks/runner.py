"""Who is measured when: servers kept, repetitions interleaved.

A server that failed is replaced.

Owns the servers' lives: when its context is left, by whatever way, none of them runs.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks import load
from benchmarks.cell import Cell, Timing
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.measurement import Measurement, failed
from benchmarks.peers import NotInstalled, NotReady, Peer
from benchmarks.results import RowResult

# The servers count as quiet when together they use less than this share of a core for this many
# seconds; waited for at most so long.
_QUIET, _QUIET_SECONDS, _QUIET_PATIENCE = 0.1, 0.2, 3.0


class Runner:
    """Measures cells at several servers.

    :param peers: the servers, the first being the one that is compared. Those that are not
        installed are left out.
    :param folder: for their data; each server gets a new folder below it.
    :param say: gets a line of text for each thing that takes its time or goes wrong.
    """

    def __init__(
        self,
        peers: Sequence[type[Peer]],
        folder: Path,
        timing: Timing,
        repetitions: int,
        say: Callable[[str], None],
    ) -> None:
        self.peers = list(peers)
        self._folder = folder
        self._timing = timing
        self._repetitions = repetitions
        self._say = say
        self._running: dict[str, Peer] = {}
        self._alone: Peer | None = None
        #: The stand-ins of the cell measured last; the servers that run are these.
        self._servers: Mapping[str, type[Peer]] = {}
        self._numbers = itertools.count()
        #: What each server calls itself, by name.
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        everything = [*self._running.values(), *([] if self._alone is None else [self._alone])]
        self._running.clear()
        for peer in everything:
            peer.kill()

    def measure(self, cell: Cell) -> list[RowResult]:
        """All repetitions of one cell, server by server in turn: A B C, A B C, ..."""
        repetitions = 1 if cell.work.once else self._repetitions
        if cell.work.alone or cell.servers != self._servers:
            self._stop_running()
        self._servers = cell.servers
        results = [
            RowResult(cell.name, row, [peer.name for peer in self.peers]) for row in cell.rows
        ]
        for _ in range(repetitions):
            for kind in list(self.peers):
                measurements = self._measure_once(cell, kind)
                for result, measurement in zip(results, measurements, strict=True):
                    result.add(kind.name, measurement)
        for result in results:
            result.servers = [peer.name for peer in self.peers]
        return results

    def _measure_once(self, cell: Cell, kind: type[Peer]) -> Sequence[Measurement]:
        try:
            if cell.servers and kind.name not in cell.servers:
                return [Measurement(None, error="it is not measured here")] * len(cell.rows)
            server = cell.servers.get(kind.name, kind)
            if cell.work.alone:
                return self._measure_alone(cell, server)
            peer = self._started(server)
            self._wait_until_quiet()
            return cell.work.measure(peer, f"{cell.name}.{next(self._numbers)}", self._timing)
        except NotInstalled as error:
            self._say(f"without {kind.name}: {error}")
            self.peers.remove(kind)
            return [failed(error)] * len(cell.rows)
        except (Refused, NotReady, TimeoutError) as error:
            self._say(f"{cell.name}: {error}")
            # Whatever this cell left behind must not load the next one.
            if kind.name in self._running:
                self._drop(self._running.pop(kind.name))
            return [failed(error)] * len(cell.rows)

    def _measure_alone(self, cell: Cell, kind: type[Peer]) -> Sequence[Measurement]:
        peer = self._alone = self._made(kind, cell.work.tls)
        try:
            return cell.work.measure(peer, cell.name, self._timing)
        finally:
            self._alone = None
            self._drop(peer)

    def _started(self, kind: type[Peer]) -> Peer:
        peer = self._running.get(kind.name)
        if peer is not None and not peer.running():
            self._say(f"{kind.name} has ended by itself and is started anew")
            self._drop(self._running.pop(kind.name))
            peer = None
        if peer is None:
            peer = self._made(kind, tls=False)
            self._running[kind.name] = peer
            seconds = peer.start()
            self._say(f"{kind.name} started in {seconds:.1f} s: {peer.version}")
            self.versions[kind.name] = peer.version
            load.run(peer, Load(), "warm-up", 0, self._timing.first / 2)
            load.run(
                peer,
                Load(persistent=True, ack="client"),
                "warm-up-persistent",
                0,
                self._timing.first / 2,
            )
        return peer

    def _made(self, kind: type[Peer], tls: bool) -> Peer:
        return kind(self._folder / f"{kind.name.lower()}-{next(self._numbers)}", tls)

    def _stop_running(self) -> None:
        while self._running:
            _, peer = self._running.popitem()
            try:
                peer.stop()
            finally:
                self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        peer.kill()
        shutil.rmtree(peer.folder, ignore_errors=True)

    def _wait_until_quiet(self) -> None:
        """Let the servers finish what the last measurement left them to do."""
        deadline = time.monotonic() + _QUIET_PATIENCE
        while time.monotonic() < deadline:
            before = self._cpu()
            time.sleep(_QUIET_SECONDS)
            if self._cpu() - before < _QUIET * _QUIET_SECONDS:
                return

    def _cpu(self) -> float:
        return sum(peer.tree.cpu_seconds() for peer in self._running.values())
