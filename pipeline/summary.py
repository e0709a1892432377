"""What a job reports: tables, maybe charted, and single figures.

Owns the form that the terminal and the report share. Shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal


@dataclass(frozen=True)
class Chart:
    """How a table is drawn.

    :param kind: ``line`` over time or number; ``bar`` by name, or over time; ``range`` by name,
        from the lowest to the highest of ``y``, which are quantiles of one thing; or ``timeline``:
        one point each row, at the time in ``x``, named by the first of ``y``; the others of ``y``
        are said beside it.
    :param x: the column along.
    :param y: the columns up; of a bar or a line each is a series.
    :param by: the column whose values make series of their own; bars of them are stacked. One named
        ``others`` is the rest.
    :param unit: of ``y``: seconds, ms and octets are written as what fits; all else as it is.
    :param every: seconds from one place to the next where ``x`` is a time, as some may have no row;
        0: as near as any two are.
    """

    kind: Literal["line", "bar", "range", "timeline"]
    x: str
    y: tuple[str, ...]
    by: str = ""
    unit: str = ""
    every: int = 0


@dataclass(frozen=True)
class Table:
    """A small table of a summary, in memory.

    :param rows: as many values each as there are columns; numbers, texts, datetimes in UTC, or
        None.
    :param note: a sentence below it, such as that there are more rows.
    :param chart: how a report draws it.
    :param long: too much for a terminal: for the report only.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    note: str = ""
    chart: Chart | None = None
    long: bool = False


@dataclass(frozen=True)
class Summary:
    """What a job has found, for people.

    :param facts: single figures by name.
    :param tables: in the order to be shown.
    """

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    tables: Sequence[Table] = ()


def shown(value: object) -> str:
    """Return a value for people: grouped digits, UTC, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime):
        return (
            value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        ).isoformat(sep=" ", timespec="milliseconds")
    return str(value)
