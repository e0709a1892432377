"""``python -m benchmarks``: measure, print a table, keep JSON."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks import front, peers, postgresql, results, table
from benchmarks.cell import Cell, Timing
from benchmarks.cells import full, quick, readme, select
from benchmarks.idle import raise_descriptor_limit
from benchmarks.peers import Gateway
from benchmarks.results import RowResult
from benchmarks.runner import Runner

_PEERS = {**peers.PEERS, **postgresql.PEERS, **front.PEERS}
_RESULTS = Path(__file__).parent / "results"


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the gateway, ActiveMQ and RabbitMQ under one STOMP load.",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the whole matrix, some hours; without it, the quick set, some forty minutes",
    )
    parser.add_argument(
        "--readme",
        action="store_true",
        help="only the cells of the tables in README.rst, with which the quick set begins",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="cells of either set by name, part of it or shell pattern; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cells and end")
    parser.add_argument(
        "--peers",
        default="gateway,activemq,rabbitmq",
        help=f"of {', '.join(_PEERS)}; the first is compared with the others (%(default)s)",
    )
    parser.add_argument(
        "--gateway-path",
        type=Path,
        metavar="DIR",
        help="run the gateway from the packages in this folder, such as build/compiled; as it is installed, if not given",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=3,
        metavar="N",
        help="of each cell but the longest (%(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="length of each measurement (%(default)s)"
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="load before each measurement (%(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="where the servers keep their data while they run; a folder on a real disk",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the figures go; benchmarks/results/TIME.json if not given",
    )
    options = parser.parse_args(arguments)
    options.peers = [name.strip().lower() for name in options.peers.split(",")]
    for name in options.peers:
        if name not in _PEERS:
            parser.error(f"--peers: {name!r} is not one of {', '.join(_PEERS)}")
    if options.gateway_path is not None:
        if not (options.gateway_path / "gateway").is_dir():
            parser.error(f"--gateway-path: {options.gateway_path} has no package gateway")
        Gateway.path = options.gateway_path
    if options.repetitions < 1 or options.seconds <= 0 or options.warm_up < 0:
        parser.error(
            "--repetitions must be 1 or more, --seconds more than 0, --warm-up not negative"
        )
    try:
        options.cells = (
            select(options.only)
            if options.only
            else readme()
            if options.readme
            else list(full())
            if options.full
            else quick()
        )
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    :returns: 0 when something was measured, 1 when nothing was.
    """
    options = _arguments(arguments)
    if options.list:
        print("\n".join(cell.name for cell in options.cells))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    raise_descriptor_limit()
    folder = Path(tempfile.mkdtemp(prefix="stomp-benchmark-", dir=options.data))
    path = options.json or _RESULTS / time.strftime("%Y%m%dT%H%M%S.json")
    measured: list[RowResult] = []
    try:
        measured = _measure(options, folder, path)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return (
        0 if any(result.values(server) for result in measured for server in result.servers) else 1
    )


def _measure(options: argparse.Namespace, folder: Path, path: Path) -> list[RowResult]:
    timing = Timing(options.warm_up, options.seconds)
    measured: list[RowResult] = []
    machine = results.machine()
    kind = results.filesystem(folder)
    print(
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory MiB']} MiB; data on {kind} in {folder}",
        flush=True,
    )
    if kind in ("tmpfs", "ramfs"):
        _say(
            f"{folder} is in memory: figures of persistent messages mean nothing there; name a disk with --data"
        )
    began = time.monotonic()
    with Runner(
        [_PEERS[name] for name in options.peers], folder, timing, options.repetitions, _say
    ) as runner:
        try:
            for number, cell in enumerate(options.cells, 1):
                _say(
                    f"[{time.monotonic() - began:.0f} s] cell {number} of {len(options.cells)}: {cell.name}"
                )
                for result in _cell(runner, cell):
                    measured.append(result)
                    print(f"\n{table.block(result)}", flush=True)
                settings = {
                    "servers": runner.versions,
                    "file system": kind,
                    "timing": vars(timing),
                    "repetitions": options.repetitions,
                }
                results.write(path, measured, settings)
        finally:
            print(
                f"\n{table.summary(measured, runner.versions)}\n\n{path if path.exists() else 'no figures were kept'}",
                flush=True,
            )
    return measured


def _cell(runner: Runner, cell: Cell) -> list[RowResult]:
    found = runner.measure(cell)
    return [result for result in found if result.servers]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
