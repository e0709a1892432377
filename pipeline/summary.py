"""What a job reports: tables, maybe charted, and single figures.

Owns the form that the terminal and the report share, and how values and texts are written in both.
Shows nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

#: Characters of a text that are shown.
LONGEST: Final = 2_000
#: Needed inside words of several scripts, and harmless.
_JOINERS: Final = frozenset("\u200c\u200d")
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Cn", "Zl", "Zp"))


@dataclass(frozen=True)
class Cube:
    """Counts of messages, told apart by all that a page can be filtered by.

    :param columns: ``time``, where there is one: the beginning of a stretch; the names that are
        told apart; and ``measure``, ``value`` and ``messages``: of that number of messages this
        measure has this value, in milliseconds; None where it is not known.
    :param every: seconds that a stretch has.
    :param span: the first and the last second of all, since 1970-01-01 UTC.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    every: int = 0
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Stage:
    """A step of a flow, as a page shows it.

    :param number: as people know the step.
    :param phase: of the flow, one after the other.
    :param way: from where to where.
    :param what: is done.
    :param measure: of the cube: how many, and how long it took.
    :param untimed: said in place of times, where no time is known.
    """

    number: str
    phase: str
    way: str
    what: str
    measure: str
    untimed: str = "no time is known"


@dataclass(frozen=True)
class Chart:
    """How a table is drawn.

    :param kind: ``line`` over time or number; ``bar`` by name, or over time; ``range`` by name,
        from the lowest to the highest of ``y``, which are quantiles of one thing; ``timeline``:
        one point each row, at the time in ``x``, named by the first of ``y``; the others of ``y``
        are said beside it; ``flow``: ``stages`` in their order; or ``map``: from ``x`` to each of
        ``y``.
    :param x: the column along.
    :param y: the columns up; of a bar or a line each is a series.
    :param by: the column whose values make series of their own; bars of them are stacked. One named
        ``others`` is the rest.
    :param unit: of ``y``: seconds, ms and octets are written as what fits; all else as it is.
    :param every: seconds from one place to the next where ``x`` is a time, as some may have no row;
        0: as near as any two are.
    :param also: columns of the cube that a reader may tell apart by in place of ``by``.
    :param cube: finer than the rows: it is drawn of this, so that it can be filtered.
    :param measure: of the cube.
    """

    kind: Literal["line", "bar", "range", "timeline", "flow", "map"]
    x: str
    y: tuple[str, ...]
    by: str = ""
    unit: str = ""
    every: int = 0
    also: tuple[str, ...] = ()
    cube: Cube | None = None
    measure: str = ""
    stages: tuple[Stage, ...] = ()


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


def plain(text: str, limit: int = LONGEST) -> str:
    r"""Return the text with invisible characters written out, and shortened.

    They become ``\\x1b`` or ``\\u202e``; what exceeds the limit is counted. Line feeds and tabs
    stay.

    :param limit: characters.
    """
    kept = "".join(
        each if _seen(each) else each.encode("unicode_escape").decode("ascii")
        for each in text[:limit]
    )
    return kept if len(text) <= limit else f"{kept}… ({len(text):,} characters)"


def _seen(character: str) -> bool:
    return (
        character in "\n\t"
        or character in _JOINERS
        or unicodedata.category(character) not in _UNSEEN
    )
