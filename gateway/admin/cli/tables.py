"""Tables as Open MQ's commands print them: a row of titles between two lines of dashes, then the
rows.

Owns widths and blanks. Columns are as wide as what is in them, with a gap between; no line ends in
blanks.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.instance.problems import printable


def table(
    titles: Sequence[str | tuple[str, str]],
    rows: Sequence[Sequence[object]],
    gap: int = 4,
    *,
    centred: bool = False,
) -> str:
    """The table, its lines ended.

    :param titles: of the columns; one of two lines is a pair. :param rows: as many cells each as
        there are titles; what is not printable is escaped.
    :param gap: blanks between columns. :param centred: cells and titles stand in the middle of
        their columns.
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


def broker_table(host: str, port: int) -> str:
    """Which broker a command is about."""
    return table(("Host", "Primary Port"), [(host, port)])


def _line(cells: Sequence[str], widths: Sequence[int], gap: int, centred: bool) -> str:
    return (
        (" " * gap)
        .join([_padded(cell, width, centred) for cell, width in zip(cells, widths, strict=True)])
        .rstrip()
    )


def _padded(cell: str, width: int, centred: bool) -> str:
    # str.center has the odd blank on the left or the right, by the width.
    return (" " * ((width - len(cell)) // 2 if centred else 0) + cell).ljust(width)
