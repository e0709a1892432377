"""Tables that several reports share: traffic over time, and counts.

Owns that what comes to the driver for a plot is bounded, whatever the time and the names are. How
it is counted is :mod:`pipeline.transforms.traffic`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame

from pipeline.summary import Chart, Table
from pipeline.transforms.traffic import (
    MOST_BARS,
    MOST_NAMES,
    MOST_STRETCHES,
    largest,
    over_time,
    span,
    stretch,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def traffic(
    rows: DataFrame,
    at: str,
    amounts: Mapping[str, Column],
    title: str,
    by: str | None = None,
    unit: str = "",
) -> list[Table]:
    """Return tables for a report only: each amount over time, as columns.

    None where no row has a time.

    The rows are read twice: once for how long the time is.

    :param at: the column with the time.
    :param amounts: what is summed up, by its name.
    :param title: what the plot is of; it gets "per hour", or whatever it is per.
    :param by: the column that is told apart.
    :param unit: of a single amount; else their names are.
    """
    ends = span(rows, at).collect()[0]
    if ends["first"] is None:
        return []
    seconds = stretch(ends["first"], ends["last"])
    # A name more: the rest.
    found = (
        over_time(rows, at, seconds, amounts, by).limit(MOST_STRETCHES * (MOST_NAMES + 1)).collect()
    )
    named = [row.asDict() for row in found]
    keys = ("time",) if by is None else ("time", by)
    return [
        Table(
            f"{title if len(amounts) == 1 else name.capitalize()} per {_per(seconds)}{f' by {by}' if by else ''}",
            (*keys, name),
            [
                (
                    _EPOCH + timedelta(seconds=row["time"]),
                    *(row[key] for key in keys[1:]),
                    row[name],
                )
                for row in named
            ],
            chart=Chart(
                "bar",
                "time",
                (name,),
                by=by or "",
                unit=unit if len(amounts) == 1 and unit else name,
                every=seconds,
            ),
            long=True,
        )
        for name in amounts
    ]


def _per(seconds: int) -> str:
    size, name = next((size, name) for size, name in _UNITS if seconds % size == 0)
    return name if seconds == size else f"{seconds // size} {name}s"


def counted(rows: DataFrame, by: str, title: str, what: str, within: str | None = None) -> Table:
    """Return a table for a report only: rows by value of a column, as bars.

    The most frequent value comes first.

    :param by: the column.
    :param what: the rows are: the name of the number.
    :param within: a column whose values are told apart in each bar.
    """
    found = largest(rows, by, what, within).limit(MOST_BARS * (MOST_NAMES + 1)).collect()
    columns = (by, what) if within is None else (by, within, what)
    note = (
        f"The first {MOST_BARS}, and no others."
        if len({row[by] for row in found}) == MOST_BARS
        else ""
    )
    chart = Chart("bar", by, (what,), by=within or "", unit=what)
    heading = f"{title} by {by}{f' and {within}' if within else ''}"
    return Table(heading, columns, [tuple(row) for row in found], note, chart, long=True)
