"""``python -m benchmarks.costs NAME``: what a setting costs, in pairs.

One gateway has the setting and one has not; they are measured in turn, as by
:mod:`benchmarks.pairs`, whose options may follow. Fails when the rate with the setting is lower by
more than 2 %.

``chain``
    the journal with its chain of hashes, at the level ``all``
``tracing``
    traces of one message in a thousand, at the journal's level ``all``
``tracing-asked``
    an endpoint for traces where no message asks for one, at the journal's default level
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.peers import free_port


@dataclass(frozen=True)
class Cost:
    """A setting that is measured.

    :param both: settings of both gateways.
    :param new: those of one; ``{port}`` is the collector's.
    """

    both: Mapping[str, str]
    new: Mapping[str, str]


_ALL: Final = {"imq.journal.level": "all"}
_ENDPOINT: Final = {"imq.tracing.endpoint": "http://127.0.0.1:{port}/v1/traces"}
COSTS: Final = {
    "chain": Cost(_ALL, {"imq.journal.chain": "true"}),
    "tracing": Cost(_ALL, {**_ENDPOINT, "imq.tracing.oneIn": "1000"}),
    "tracing-asked": Cost({}, _ENDPOINT),
}
#: Percent of the rate.
_BOUND: Final = "2"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0 when the rate is within the bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__)
    parser.add_argument("name", choices=COSTS)
    parser.add_argument("--path", default=".", help="a folder with the packages (%(default)s)")
    options, more = parser.parse_known_args(arguments)
    cost, port = COSTS[options.name], free_port()
    folder = str(Path(options.path))
    asked = [folder, folder, "--bound", _BOUND, "--by", "rate"]
    for option, settings in (("--setting", cost.both), ("--new-setting", cost.new)):
        for name, value in settings.items():
            asked += [option, f"{name}={value.format(port=port)}"]
    with subprocess.Popen([sys.executable, "-m", "benchmarks.collector", str(port)]) as collector:
        try:
            return pairs.main([*asked, *more])
        finally:
            collector.terminate()


if __name__ == "__main__":
    sys.exit(main())
