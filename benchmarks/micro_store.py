"""The store by itself: rows a second, with an idle and a busy main thread.

``python -m benchmarks.micro_store [--folder DIR] [--seconds S] [--fill]``. The folder should be on
the disk that counts. A busy main thread runs bytecode all the time, which is the worst a reactor
can be to the store's thread: what the server sees lies between the two.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Final, cast

from twisted.internet.interfaces import IReactorFromThreads

from gateway.broker.store.interface import Batch, Row, StoreError
from gateway.broker.store.sqlite import SqliteStore

BATCHES: Final = (1, 10, 100, 1000)
BODIES: Final = (100, 1024)
#: Batches on their way at a time: the one in the thread and the one that waits.
IN_FLIGHT: Final = 2

_HEAD: Final = bytes(range(80))


class Main:
    """Stands for the reactor: runs the store's callbacks, and maybe bytecode."""

    def __init__(self, busy: bool) -> None:
        self._busy = busy
        self._calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        self._calls.put((call, args))

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            if not self._busy:
                call, args = self._calls.get()
            else:
                try:
                    call, args = self._calls.get_nowait()
                except Empty:
                    sum(number * number for number in range(200))
                    continue
            call(*args)


class Bench:
    """One store in a folder of its own."""

    def __init__(self, folder: Path, busy: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.main = Main(busy)
        self.store = SqliteStore(
            str(self.folder / "messages.db"),
            cast(IReactorFromThreads, self.main),
            reserve_octets=0,
            idle_seconds=600,
        )
        self.store.open()
        self.number = 0
        self.seq = 0

    def close(self) -> None:
        closed: list[None] = []
        self.store.close(lambda: closed.append(None))
        self.main.until(lambda: bool(closed))
        shutil.rmtree(self.folder)

    def inserts(self, rows: int, body: bytes) -> Batch:
        batch = self._batch()
        first = self.seq + 1
        self.seq += rows
        for seq in range(first, self.seq + 1):
            batch.inserts[seq] = Row(seq, 1, 4, 0, len(body), 1, _HEAD, body)
        batch.octets = rows * (len(_HEAD) + len(body))
        return batch

    def deletes(self, seqs: Sequence[int]) -> Batch:
        batch = self._batch()
        batch.deletes.update(dict.fromkeys(seqs))
        return batch

    def _batch(self) -> Batch:
        self.number += 1
        return Batch(self.number)

    def run(self, make: Callable[[], Batch | None], seconds: float) -> float:
        """Keep batches under way until the time is over or no batch is left.

        :returns: batches a second.
        """
        done = sent = 0
        over = False
        start = perf_counter()
        end = start

        def submit() -> None:
            nonlocal sent, over
            batch = None if over else make()
            if batch is None:
                over = True
                return
            sent += 1
            self.store.submit(batch, committed)

        def committed(error: StoreError | None) -> None:
            nonlocal done, over, end
            if error is not None:
                raise SystemExit(str(error))
            done += 1
            end = perf_counter()
            over = over or end - start > seconds
            submit()

        for _ in range(IN_FLIGHT):
            submit()
        self.main.until(lambda: over and done == sent)
        return done / (end - start)

    def fetch(self, count: int, seconds: float) -> float:
        """Read the first rows again and again in blocks.

        :returns: rows a second.
        """
        rows = 0
        start = perf_counter()
        while perf_counter() - start < seconds:
            found: list[Sequence[Row] | StoreError] = []
            first = rows % max(1, self.seq - count) + 1
            self.store.fetch(range(first, first + count), found.append)
            self.main.until(lambda found=found: bool(found))  # type: ignore[misc]
            if isinstance(found[0], StoreError):
                raise SystemExit(str(found[0]))
            rows += len(found[0])
        return rows / (perf_counter() - start)


def measure(folder: Path, seconds: float, busy: bool) -> None:
    for octets in BODIES:
        body = os.urandom(octets)
        for size in BATCHES:
            bench = Bench(folder, busy)
            inserted = size * bench.run(
                lambda bench=bench, size=size, body=body: bench.inserts(size, body),  # type: ignore[misc]
                seconds,
            )
            fetched = bench.fetch(min(500, bench.seq), seconds)
            # Every second one first, so that they are no ranges.
            order = [*range(1, bench.seq + 1, 2), *range(2, bench.seq + 1, 2)]
            runs = iter([order[at : at + size] for at in range(0, len(order), size)])

            def deletes(bench: Bench = bench, runs: Any = runs) -> Batch | None:
                seqs = next(runs, None)
                return None if seqs is None else bench.deletes(seqs)

            deleted = size * bench.run(deletes, seconds)
            bench.close()
            print(
                f"{'busy' if busy else 'idle':>5} {octets:>6} {size:>6} {inserted:>12,.0f} {deleted:>12,.0f} {fetched:>12,.0f}",
                flush=True,
            )


def fill(folder: Path, rows: int) -> None:
    """Store a million messages of 1 KiB, a thousand a commit; then restart."""
    bench = Bench(folder, False)
    body = os.urandom(1024)
    start = perf_counter()
    bench.run(lambda: bench.inserts(1000, body) if bench.seq < rows else None, 3600.0)
    filled = perf_counter() - start
    closed: list[None] = []
    bench.store.close(lambda: closed.append(None))
    bench.main.until(lambda: bool(closed))
    size = (bench.folder / "messages.db").stat().st_size
    print(
        f"fill {rows:,} of 1 KiB: {filled:.1f} s, {rows / filled:,.0f} a second, {size / 2**20:,.0f} MiB"
    )
    start = perf_counter()
    bench.store.open()
    opened = perf_counter() - start
    found = sum(len(block) for block in bench.store.scan())
    print(f"open {opened:.2f} s, scan of {found:,}: {perf_counter() - start - opened:.2f} s")
    bench.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro_store",
        description=__doc__.split("\n")[0] if __doc__ else None,
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where the stores are made (%(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="length of each measurement (%(default)s)"
    )
    parser.add_argument(
        "--fill", action="store_true", help="also fill a store with a million messages, 1.3 GB"
    )
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    print(
        f"{'main':>5} {'octets':>6} {'batch':>6} {'inserted/s':>12} {'deleted/s':>12} {'fetched/s':>12}"
    )
    for busy in (False, True):
        measure(options.folder, options.seconds, busy)
    if options.fill:
        fill(options.folder, 1_000_000)


if __name__ == "__main__":
    main()
