"""Running totals of long sequences, as the work of many tasks.

A window over a link's messages, or over a queue's, is one task, however many cores there are. Here
a sequence is cut into stretches: each is summed up, the sums are carried on from stretch to stretch,
and then each stretch is a task's work, which begins with what was carried to it. Reads and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sql

#: Numbers in a row that are one stretch.
STRETCH: Final = 4_096

#: How the names of the totals end.
BEFORE: Final = "_before"
_CARRIED: Final = "_carried"


def running(
    rows: DataFrame,
    total: Callable[[str], Column],
    values: Sequence[str],
    *,
    of: Sequence[str],
    stretch: str,
    order: Sequence[str],
    backwards: bool = False,
) -> DataFrame:
    """Add what the values of all rows before a row come to.

    For each value there is a column with :data:`BEFORE` added to its name. It is null for the first
    row of a sequence, and as ``total`` has it where values are null. The rows are computed twice.

    :param total: of totals is the total of all: ``min``, ``max`` or ``sum`` of
        :mod:`pyspark.sql.functions`.
    :param values: the columns that are totalled.
    :param of: columns that are the same in all rows of one sequence, and in no other; maybe null.
    :param stretch: a column that never falls along a sequence. One task does a stretch; there is a
        row for each of them in the task that carries a sequence's totals on. See :func:`number`.
    :param order: columns by which the rows of a stretch come one after the other. Of rows that are
        equal it is not said which comes before the other.
    :param backwards: from the last row to the first.
    """
    ordered = sql.desc if backwards else sql.asc

    def before(window: WindowSpec) -> list[Column]:
        earlier = window.rowsBetween(Window.unboundedPreceding, -1)
        return [total(value).over(earlier) for value in values]

    stretches = rows.groupBy(*of, stretch).agg(*(total(value).alias(value) for value in values))
    along = Window.partitionBy(*of).orderBy(ordered(stretch))
    carried = stretches.withColumns(dict(zip(values, before(along), strict=True)))
    # What is carried to a stretch is its first row.
    marked = rows.withColumn(_CARRIED, sql.lit(False)).unionByName(
        carried.withColumn(_CARRIED, sql.lit(True)), allowMissingColumns=True
    )
    within = Window.partitionBy(*of, stretch).orderBy(
        sql.desc(_CARRIED), *(ordered(name) for name in order)
    )
    names = [value + BEFORE for value in values]
    totalled = marked.withColumns(dict(zip(names, before(within), strict=True)))
    return totalled.where(~sql.col(_CARRIED)).drop(_CARRIED)


def number(line: Column) -> Column:
    """The stretch of a row with this number, such as a line's or a place's."""
    return sql.floor(line / STRETCH)
