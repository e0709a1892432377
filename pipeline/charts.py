"""Tables that several reports share: traffic, counts, a map of links.

Owns that what comes to the driver for a figure is bounded, whatever the time and the names are. How
it is counted is :mod:`pipeline.transforms.traffic`'s, and :mod:`pipeline.cube`'s where the page can
filter it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from pipeline.output import top
from pipeline.summary import Chart, Cube, Table
from pipeline.transforms.traffic import (
    MOST_BARS,
    MOST_NAMES,
    MOST_STRETCHES,
    largest,
    over_time,
    span,
    stretch,
)

#: What cubes count: all messages, those of links, and those of them that were late.
MESSAGES: Final = "messages"
LINKED: Final = "linked"
LATE: Final = "late"
_ROUTES: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def traffic(
    rows: DataFrame,
    at: str,
    amounts: Mapping[str, Column],
    title: str,
    by: str | None = None,
    unit: str = "",
    cube: Cube | None = None,
    also: tuple[str, ...] = (),
) -> list[Table]:
    """Return tables for a report only: each amount over time, as columns.

    None where no row has a time.

    Without a cube the rows are read twice: once for how long the time is.

    :param at: the column with the time.
    :param amounts: what is summed up, by its name.
    :param title: what the plot is of; it gets "per hour", or whatever it is per.
    :param by: the column that is told apart.
    :param unit: of a single amount; else their names are.
    :param cube: of the same rows, that the figure is drawn of, in its stretches of time.
    :param also: columns of the cube that a reader may tell apart by.
    """
    if cube is not None:
        # Its rows are of what it draws.
        seconds = cube.every
    else:
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
                also=also,
                cube=cube,
                measure=MESSAGES if cube else "",
            ),
            long=True,
        )
        for name in amounts
    ]


def _per(seconds: int) -> str:
    size, name = next((size, name) for size, name in _UNITS if seconds % size == 0)
    return name if seconds == size else f"{seconds // size} {name}s"


def counted(
    rows: DataFrame,
    by: str,
    title: str,
    what: str,
    within: str | None = None,
    cube: Cube | None = None,
) -> Table:
    """Return a table for a report only: rows by value of a column, as bars.

    The most frequent value comes first.

    :param by: the column.
    :param what: the rows are: the name of the number.
    :param within: a column whose values are told apart in each bar.
    :param cube: of the same rows, that the figure is drawn of.
    """
    found = largest(rows, by, what, within).limit(MOST_BARS * (MOST_NAMES + 1)).collect()
    columns = (by, what) if within is None else (by, within, what)
    note = (
        f"The first {MOST_BARS}, and no others."
        if len({row[by] for row in found}) == MOST_BARS
        else ""
    )
    measure = MESSAGES if cube else ""
    chart = Chart("bar", by, (what,), within or "", what, cube=cube, measure=measure)
    heading = f"{title} by {by}{f' and {within}' if within else ''}"
    return Table(heading, columns, [tuple(row) for row in found], note, chart, long=True)


def links(
    rows: DataFrame, source: str, late: Column, outcomes: Sequence[str], cube: Cube
) -> list[Table]:
    """Return a table of what became of each link's messages, and its map.

    It is empty where no message went over a link.

    :param rows: with the columns ``link``, ``target`` and ``outcome``; it is read once.
    :param source: the column with where they come from.
    :param late: whether one is.
    :param outcomes: that are counted, each in a column.
    :param cube: of the same rows, by these columns, with :data:`LINKED` and :data:`LATE`.
    """
    routes = (
        rows.where("link is not null")
        .groupBy(source, "link", "target")
        .agg(
            sql.count("*").alias("messages"),
            sql.count_if(sql.coalesce(late, sql.lit(False))).alias("late"),
            *(sql.count_if(sql.col("outcome") == one).alias(one) for one in outcomes),
        )
        .orderBy(sql.desc("messages"), source, "link", "target")
    )
    chart = Chart("map", source, ("link", "target"), "outcome", cube=cube, measure=LINKED)
    table = top(routes, _ROUTES, "Links, and what became of their messages", chart, long=True)
    return [table] if table.rows else []
