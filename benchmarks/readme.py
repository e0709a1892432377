"""``python -m benchmarks.readme FILE``: put figures into ``README.rst``.

FILE is what ``python -m benchmarks --readme --json FILE`` has written. Replaces what stands between
two comments in ``README.rst``, or prints it with ``--print``. Figures of a busy machine are only
printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.peers import ROOT, ActiveMQ, Gateway, PureGateway, RabbitMQ
from benchmarks.table import QUIET, number

BEGIN: Final = ".. figures begin: python -m benchmarks.readme writes what follows"
END: Final = ".. figures end"
_SERVERS: Final = (Gateway.name, PureGateway.name, ActiveMQ.name, RabbitMQ.name)
_PEERS: Final = (ActiveMQ.name, RabbitMQ.name)
_LIMIT: Final = "a bare XA loop"


def tables(run: Mapping[str, Any]) -> str:
    """Return the tables of a run and what they are of, as reStructuredText.

    :param run: what :func:`benchmarks.results.write` has written.
    """
    rows: Sequence[Mapping[str, Any]] = run["rows"]
    servers = [name for name in _SERVERS if any(name in row["medians"] for row in rows)]
    compared = [row for row in rows if not _ceilings(row)]
    limited = [row for row in rows if _ceilings(row)]
    head = [
        "",
        *servers,
        *(f"to {name}" for name in _PEERS if name in servers),
        "µs a message",
    ]
    parts = [_grid([head, *(_compared(row, servers) for row in compared)])]
    if limited:
        head = ["", Gateway.name, _LIMIT, "share"]
        parts.append(_grid([head, *(_limited(row) for row in limited)]))
    return "\n\n".join([_measured(run), *parts])


def _measured(run: Mapping[str, Any]) -> str:
    machine = run["machine"]
    servers = ", ".join(
        f"{name} {version.removeprefix(name).removeprefix('/')}"
        for name, version in run["servers"].items()
    )
    text = f"Measured on {machine['processor']}, {machine['cores']} cores: {servers}. {_lost(run)}"
    return "\n".join(textwrap.wrap(text, 100))


def _lost(run: Mapping[str, Any]) -> str:
    counts = {
        f"{server} {count} in {row['cell']}": count
        for row in run["rows"]
        for server, runs in row["runs"].items()
        if (
            count := sum(
                each["outcome"][what]
                for each in runs
                for what in ("lost", "duplicated", "unexpected")
            )
        )
    }
    if not counts:
        return "No message was lost or delivered twice."
    return f"Lost or delivered twice: {', '.join(counts)}."


def busy(run: Mapping[str, Any]) -> float:
    """Return the median share of a core that others kept busy."""
    shares = [
        each["others"]
        for row in run["rows"]
        for runs in row["runs"].values()
        for each in runs
        if each["others"] is not None
    ]
    return median(shares) if shares else 0.0


def _compared(row: Mapping[str, Any], servers: Sequence[str]) -> list[str]:
    unit = "" if row["unit"] == "msg/s" else f", {row['unit']}"
    ratios = [row["times better than"].get(name) for name in _PEERS if name in servers]
    return [
        row["title"] + unit,
        *(_cell(row["medians"].get(name)) for name in servers),
        *(
            f"**{number(ratio)}**" if ratio is not None and ratio < 1 else _cell(ratio)
            for ratio in ratios
        ),
        _cell(row["cpu µs a message"].get(Gateway.name)),
    ]


def _limited(row: Mapping[str, Any]) -> list[str]:
    rate, ceiling = row["medians"].get(Gateway.name), median(_ceilings(row))
    share = "" if rate is None else f"{rate / ceiling * 100:.0f} %"
    return [row["title"], _cell(rate), number(ceiling), share]


def _ceilings(row: Mapping[str, Any]) -> list[float]:
    """What a bare loop does beside a transacted link; other rows have none."""
    if not any(goal.endswith(_LIMIT) for goal in row["goals"]):
        return []
    return [run["ceiling"] for run in row["runs"].get(Gateway.name, ()) if run["ceiling"]]


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def _grid(lines: Sequence[Sequence[str]]) -> str:
    """A simple table, its first line the head."""
    widths = [max(len(entry) for entry in column) for column in zip(*lines, strict=True)]
    rule = "  ".join("=" * max(width, 1) for width in widths)

    def line(entries: Sequence[str]) -> str:
        # An empty first entry would continue the line above.
        first = entries[0] or "\\"
        return "  ".join(
            entry.ljust(width) for entry, width in zip([first, *entries[1:]], widths, strict=True)
        ).rstrip()

    head, *body = lines
    return "\n".join([rule, line(head), rule, *map(line, body), rule])


def put(text: str, figures: str) -> str:
    """Return a page with other figures between the comments.

    :raises ValueError: the page lacks a comment.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n\n{figures}\n\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    :returns: 0 when the figures were written or printed, 1 when the machine was busy.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--page", type=Path, default=ROOT / "README.rst", help="%(default)s")
    parser.add_argument("--print", action="store_true", help="print them and write nothing")
    options = parser.parse_args(arguments)
    run = json.loads(options.file.read_text())
    figures = tables(run)
    if options.print:
        print(figures)
        return 0
    if busy(run) > QUIET:
        print(
            f"others kept {busy(run) * 100:.0f} % of a core busy meanwhile: measure again, or --print",
            file=sys.stderr,
        )
        return 1
    options.page.write_text(put(options.page.read_text(), figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
