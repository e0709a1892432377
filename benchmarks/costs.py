"""``python -m benchmarks.costs NAME``: what a setting costs, in pairs.

One gateway has the setting and one has not. They are compared by the processor time that they take
for a message, in cells of steady load, as :mod:`benchmarks.processor` measures it. Fails where more
than 2 % cannot be ruled out: where the upper end of the interval is above that. Traces are switched
on and off in one process instead, see :mod:`benchmarks.switched`.

With ``--rate`` they are compared by their rates instead, as by :mod:`benchmarks.pairs`, whose options
may follow: it says what users see, and cannot tell 2 % from noise.

``chain``
    the journal with its chain of hashes, at the level ``all``
``nothing``
    two equal gateways, at the journal's level ``all``: the interval that noise alone has
``tracing``
    traces of one message in a thousand, up to the default number in a second, at the journal's
    level ``all``
``tracing-asked``
    an endpoint for traces where no message asks for one, at the journal's default level
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from benchmarks import pairs, processor
from benchmarks.cells import select
from benchmarks.peers import Gateway, free_port
from benchmarks.processor import SLICES, OneProcess, Plan, Sides
from benchmarks.steady_cells import Steady
from benchmarks.switched import SwitchedGateway

_Kind = TypeVar("_Kind", bound=Gateway)


@dataclass(frozen=True)
class Cost:
    """A setting that is measured.

    :param both: settings of both gateways.
    :param new: those of one; ``{port}`` is the collector's.
    :param switched: it is of traces, which can be switched.
    """

    both: Mapping[str, str]
    new: Mapping[str, str]
    switched: bool = False


_ALL: Final = {"imq.journal.level": "all"}
_ENDPOINT: Final = {"imq.tracing.endpoint": "http://127.0.0.1:{port}/v1/traces"}
COSTS: Final = {
    "chain": Cost(_ALL, {"imq.journal.chain": "true"}),
    "nothing": Cost(_ALL, {}),
    "tracing": Cost(_ALL, {**_ENDPOINT, "imq.tracing.oneIn": "1000"}, switched=True),
    "tracing-asked": Cost({}, _ENDPOINT, switched=True),
}
#: Percent.
_BOUND: Final = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0 when the cost is within the bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__)
    parser.add_argument("name", choices=COSTS)
    parser.add_argument("--path", default=".", help="a folder with the packages (%(default)s)")
    parser.add_argument("--rate", action="store_true", help="compare rates")
    options, more = parser.parse_known_args(arguments)
    cost, port = COSTS[options.name], free_port()
    both, new = (
        {name: value.format(port=port) for name, value in settings.items()}
        for settings in (cost.both, cost.new)
    )
    with subprocess.Popen([sys.executable, "-m", "benchmarks.collector", str(port)]) as collector:
        try:
            if options.rate:
                return _rates(options.path, both, new, more)
            path, new = Path(options.path), {**both, **new}
            if cost.switched:
                traced = _gateway("switched", path, new, SwitchedGateway)
                return _processor(parser, partial(OneProcess, traced), SLICES, more)
            sides = partial(
                Sides, _gateway("old", path, both, Gateway), _gateway("new", path, new, Gateway)
            )
            return _processor(parser, sides, Plan(), more)
        finally:
            collector.terminate()


def _rates(path: str, both: Mapping[str, str], new: Mapping[str, str], more: Sequence[str]) -> int:
    asked = [path, path, "--bound", str(_BOUND), "--by", "rate"]
    for option, settings in (("--setting", both), ("--new-setting", new)):
        for name, value in settings.items():
            asked += [option, f"{name}={value}"]
    return pairs.main([*asked, *more])


def _processor(
    parser: argparse.ArgumentParser,
    sides: Callable[[Path], Sides],
    plan: Plan,
    more: Sequence[str],
) -> int:
    parser.add_argument("--starts", type=int, default=plan.starts, help="(%(default)s)")
    parser.add_argument("--pairs", type=int, default=plan.pairs, help="of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="(%(default)s)")
    parser.add_argument("--only", action="append", help="cells whose name contains this")
    parser.add_argument("--bound", type=float, default=_BOUND, help="percent more (%(default)s)")
    options = parser.parse_args(["nothing", *more])
    plan = Plan(options.starts, options.pairs, plan.warm_up, options.seconds)
    found = []
    for cell in select(pairs.CELLS):
        work = cell.work
        if not isinstance(work, Steady) or not any(
            part in cell.name for part in options.only or [""]
        ):
            continue
        print(cell.name, file=sys.stderr, flush=True)
        folder = Path(tempfile.mkdtemp(prefix="stomp-costs-"))
        try:
            measured = processor.measure(
                sides,
                work.load,
                folder,
                plan,
                lambda text: print(text, file=sys.stderr, flush=True),
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        found.append((cell.name, processor.estimate(measured)))
    if not found:
        parser.error("no cell of steady load has that in its name")
    for name, estimate in found:
        print(f"{name:<52} {estimate}")
    over = [name for name, estimate in found if estimate.high > 1 + options.bound / 100]
    for name in over:
        print(f"{options.bound:g} % more cannot be ruled out: {name}")
    return 1 if over else 0


def _gateway(name: str, path: Path, more: Mapping[str, str], kind: type[_Kind]) -> type[_Kind]:
    def settings(self: Gateway) -> dict[str, str]:
        return Gateway.settings(self) | dict(more)

    return type(name, (kind,), {"name": name, "path": path.resolve(), "settings": settings})


if __name__ == "__main__":
    sys.exit(main())
