"""The forms in which both programs print answers.

Tables as Open MQ's commands print them, lists of names and values, moments and durations. Owns widths, blanks and units. Columns are as wide as what is in them; no line ends in blanks; what
is not printable is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.instance.settings import printable

#: An object of an answer.
Json = Mapping[str, Any]
#: Of a column; a pair has two lines.
Title = str | tuple[str, str]
#: A line of a list: a name and its value. Two empty texts are an empty line; a name with None is a
#: heading.
Line = tuple[str, object]


def table(
    titles: Sequence[Title],
    rows: Sequence[Sequence[object]],
    gap: int = 4,
    *,
    centred: bool = False,
) -> str:
    """Return a table, its lines ended.

    The titles stand between two lines of dashes, then come the rows.

    :param rows: each with as many cells as there are titles.
    :param gap: blanks between columns.
    :param centred: cells and titles stand in the middle of their columns.
    """
    two = any(isinstance(title, tuple) for title in titles)
    heads = [title if isinstance(title, tuple) else (title, "") for title in titles]
    head_rows = (
        [[head[0] for head in heads], [head[1] for head in heads]]
        if two
        else [[head[0] for head in heads]]
    )
    body = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [*head_rows, *body]) for column in range(len(titles))]
    dashes = "-" * (sum(widths) + gap * (len(widths) - 1))
    lines = [dashes, *(_line(row, widths, gap, centred) for row in head_rows), dashes]
    lines += [_line(row, widths, gap, centred) for row in body]
    return "".join(line + "\n" for line in lines)


def table_of(
    columns: Sequence[tuple[Title, str | Callable[[Json], object]]],
    rows: Sequence[Json],
    gap: int = 3,
    *,
    centred: bool = False,
) -> str:
    """Return a table of objects.

    :param columns: each with its title, and the name of the field or what makes the cell; None is
        an empty cell.
    """
    cells = [
        [_cell(row[field] if isinstance(field, str) else field(row)) for _, field in columns]
        for row in rows
    ]
    return table([title for title, _ in columns], cells, gap, centred=centred)


def broker_table(host: str, port: int) -> str:
    """Return the table that says which broker a command is about."""
    return table(("Host", "Primary Port"), [(host, port)])


def listed(lines: Sequence[Line], gap: int = 4) -> str:
    """Return names and values under each other, their lines ended.

    :param gap: blanks between the columns.
    """
    width = max(len(printable(name)) for name, value in lines if value is not None)
    text = ""
    for name, value in lines:
        shown = printable(name)
        if value is not None:
            shown = f"{shown.ljust(width + gap)}{printable(str(value))}"
        text += shown.rstrip() + "\n"
    return text


def moment(ms: int, never: str = "never") -> str:
    """Return a moment of epoch milliseconds, in UTC."""
    if not ms:
        return never
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def duration(ms: int) -> str:
    """Return milliseconds as ``HH:MM:SS``, after days where there are any."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days} d " if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"


def truth(value: bool) -> str:
    return "true" if value else "false"


def one_line(value: object) -> str:
    """Return a text whose lines are joined by blanks."""
    return " ".join(str(value).split("\n"))


def _cell(value: object) -> object:
    if value is None:
        return ""
    return truth(value) if isinstance(value, bool) else value


def _line(cells: Sequence[str], widths: Sequence[int], gap: int, centred: bool) -> str:
    return (
        (" " * gap)
        .join([_padded(cell, width, centred) for cell, width in zip(cells, widths, strict=True)])
        .rstrip()
    )


def _padded(cell: str, width: int, centred: bool) -> str:
    # str.center has the odd blank on the left or the right, by the width.
    return (" " * ((width - len(cell)) // 2 if centred else 0) + cell).ljust(width)
