"""How results look on a terminal: a block for each row, then a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.goals import AtLeastUnlessLimited, Goal, NearTheLimit
from benchmarks.measurement import Measurement
from benchmarks.results import RowResult

_COLUMNS = (
    "min",
    "max",
    "times",
    "lost",
    "twice",
    "order",
    "cpu µs/msg",
    "peak MiB",
    "p50 ms",
    "p99",
    "p99.9",
    "gen %",
    "others %",
)
#: Cores that others may use before the figures are called into question.
QUIET = 0.2
_MARKS = {True: "reached", False: "MISSED", None: "not measured"}


def number(value: float | None) -> str:
    """Three significant digits, or all of them before the point."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def block(result: RowResult) -> str:
    """Everything about one row: a line for each server, then its goals."""
    row = result.row
    head = ["server", row.unit, *_COLUMNS]
    lines = [_server_line(result, server) for server in result.servers]
    text = [f"{row.title}  [{result.cell}]", *_aligned([head, *lines], "  ")]
    for server in result.servers:
        runs = result.runs.get(server, [])
        text += [
            f"    {server}: {error}"
            for error in sorted({run.error for run in runs if run.error is not None})
        ]
        extra = _extra(runs)
        if extra:
            text.append(f"    {server}: {extra}")
    text += [f"    {note}" for note in row.notes]
    text += [f"    goal {goal}: {_mark(result, goal, reached)}" for goal, reached in result.goals()]
    return "\n".join(text)


def _mark(result: RowResult, goal: Goal, reached: bool | None) -> str:
    """What is said of a goal."""
    standing = result.standing()
    if isinstance(goal, AtLeastUnlessLimited) and result.limited():
        mark = "the provider is the limit"
    elif (distance := goal.distance(standing)) is None:
        mark = _MARKS[reached]
    else:
        mark = f"{_MARKS[reached]}, {distance}"
    if standing.ceiling is None or standing.subject is None:
        return mark
    share = _percent(standing.subject / standing.ceiling)
    if isinstance(goal, NearTheLimit):
        return f"{mark}; {goal.whose} does {number(standing.ceiling)}"
    if not isinstance(goal, AtLeastUnlessLimited):
        return mark
    wanted = goal.factor * goal.compared(standing)
    less = " and so never reaches it" if standing.ceiling < wanted else ""
    return f"{mark}; alone the provider does {number(standing.ceiling)}{less}, of which this is {share} %"


def _server_line(result: RowResult, server: str) -> list[str]:
    runs = [run for run in result.runs.get(server, ()) if run.value is not None]
    values = result.values(server)
    outcome = result.outcome(server)
    timed = [run.percentiles for run in runs if run.percentiles is not None]
    generator = _median([run.generator for run in runs])
    peak = _median([None if run.server_peak is None else run.server_peak / 2**20 for run in runs])
    return [
        server,
        number(result.median(server)),
        number(min(values, default=None)),
        number(max(values, default=None)),
        "" if server == result.servers[0] else _times(result.ratio(server)),
        *(
            [
                str(outcome.lost),
                str(outcome.duplicated + outcome.unexpected),
                str(outcome.disordered),
            ]
            if any(run.messages for run in runs)
            else "---"
        ),
        number(result.cost(server)),
        number(peak),
        *([number(median(column)) for column in zip(*timed, strict=True)] if timed else "---"),
        _percent(generator),
        _percent(_median([run.others for run in runs])),
    ]


def _extra(runs: Sequence[Measurement]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.extra)
    return ", ".join(
        f"{name} {number(median([run.extra[name] for run in runs if name in run.extra]))}"
        for name in names
    )


def summary(results: Sequence[RowResult], versions: Mapping[str, str]) -> str:
    """Return one line for each row.

    It has medians, ratios to the others, the processor time of each server for a message, goals.

    :param versions: what each server calls itself, by its name.
    """
    if not results:
        return "nothing was measured"
    servers = results[0].servers
    head = [
        "",
        "unit",
        *servers,
        *(f"{servers[0]} to {other}" for other in servers[1:]),
        *(f"{server} µs/msg" for server in servers),
    ]
    lines = [head]
    for result in results:
        ratios = [_times(result.ratio(other)) for other in servers[1:]]
        lines.append(
            [
                result.row.title,
                result.row.unit,
                *(number(result.median(server)) for server in servers),
                *ratios,
                *(number(result.cost(server)) for server in servers),
            ]
        )
    text = [
        *(f"  {server}: {versions[server]}" for server in servers if server in versions),
        "",
        # Goals are long, so they are not aligned.
        *map(
            "  ".join, zip(_aligned(lines, "  "), ["goals", *map(_verdict, results)], strict=True)
        ),
    ]
    others = [
        share
        for result in results
        for runs in result.runs.values()
        for run in runs
        if (share := run.others) is not None
    ]
    if others and median(others) > QUIET:
        text += [
            "",
            f"Others kept {_percent(median(others))} % of a core busy meanwhile: take these figures as a hint, and only their ratios.",
        ]
    return "\n".join(text)


def _verdict(result: RowResult) -> str:
    """The goals missed, or else those reached, with their distances."""
    standing = result.standing()
    found = {
        wanted: [
            str(goal) if (distance := goal.distance(standing)) is None else f"{goal} ({distance})"
            for goal, reached in result.goals()
            if reached is wanted
        ]
        for wanted in (True, False)
    }
    if found[False]:
        return "MISSED: " + "; ".join(found[False])
    if result.limited():
        return "the provider is the limit"
    told = [text for text in found[True] if text.endswith(")")]
    return ": ".join(["reached", *(["; ".join(told)] if told else [])]) if found[True] else ""


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{number(ratio)}×"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f}"


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _aligned(lines: Sequence[Sequence[str]], indent: str) -> list[str]:
    """Align columns to their widest entry; the first left, the others right."""
    widths = [max(len(entry) for entry in column) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        entries = [
            line[0].ljust(widths[0]),
            *(entry.rjust(width) for entry, width in zip(line[1:], widths[1:], strict=True)),
        ]
        text.append((indent + "  ".join(entries)).rstrip())
    return text
