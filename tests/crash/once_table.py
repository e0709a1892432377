"""The crash matrix as a table: for the terminal at the end of a run, and for the documentation.

Owns its form. The rows come from tests by :data:`PROPERTY`, through which they come from other
processes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gateway.instance.crashpoints import ONCE_POINTS

#: The name under which a test records a row.
PROPERTY: Final = "crash matrix"

_COLUMNS: Final = (
    "point",
    "dies",
    "direction",
    "at pass",
    "lost",
    "twice",
    "out of order",
    "held back",
    "left",
    "prepared then",
    "in doubt",
    "seconds",
)
_HEAD: Final = """\
.. Written by pytest --crash-matrix=FILE tests/crash/test_once.py tests/crash/test_once_activemq.py, with --long for all of it.

{messages} messages each, in transactions of {batch}. *At pass* is at which time of passing the point somebody died, *prepared then* how many branches
were prepared at that moment, the two brokers' together; *lost*, *twice*, *out of order*, *left* (at the source, or in a queue of dead messages) and *in
doubt* (prepared at either broker, or in the transaction log) were counted when all was over. *Seconds* are from the first process's being started again
until the last message was at the target; most of them are a start of Java.

*Held back* are messages that ActiveMQ 5.17.2 itself gave to nobody, neither to the link nor to a plain client. That happens sometimes when ActiveMQ is the
source, is killed with a prepared branch and hears of its outcome after its start: as many of the queue's last messages stay behind, also after another
start, while a message that is sent then may overtake them. They are not lost: they are in its journal, and come when ActiveMQ is started without
``db.data`` and ``db.redo`` in its ``KahaDB`` folder, so that it builds its index anew. That was done in these cases, and 15 seconds of waiting count in.

"""


@dataclass(frozen=True)
class Row:
    """One case of the crash matrix, as it was measured.

    :param dies: who is killed.
    :param nth: at which time that the point is passed.
    :param prepared: branches that were in doubt at either side when somebody had died.
    :param in_doubt: when all was over.
    :param messages: that were sent.
    :param batch: messages of a transaction, at most.
    :param held: messages that ActiveMQ gave to nobody before its index was built anew.
    :param left: messages left at the source, or dead.
    :param seconds: from the start of who had died until the target had all messages.
    """

    point: str
    dies: str
    way: str
    nth: int
    messages: int
    batch: int
    lost: int
    doubled: int
    disordered: int
    held: int
    left: int
    prepared: int
    in_doubt: int
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether each message was moved once and only once, in order, and nothing is left."""
        return not (self.lost or self.doubled or self.disordered or self.left or self.in_doubt)


def recorded(row: Row) -> dict[str, Any]:
    return asdict(row)


def rows(reports: Iterable[Any]) -> list[Row]:
    """Those of these reports of tests, in the order of the sequence."""
    found = [
        Row(**value)
        for report in reports
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    return sorted(found, key=lambda row: (row.dies, ONCE_POINTS.index(row.point), row.way))


def as_text(rows: Sequence[Row]) -> list[str]:
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def write(rows: Sequence[Row], file: Path) -> None:
    counts = sorted({row.messages for row in rows})
    head = _HEAD.format(messages=" or ".join(f"{count:,}" for count in counts), batch=rows[0].batch)
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
    for cells in (_COLUMNS, *(_cells(row) for row in rows)):
        lines += [f"   {'* ' if not number else '  '}- {cell}" for number, cell in enumerate(cells)]
    file.write_text(head + "\n".join(lines) + "\n")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.point,
        row.dies,
        row.way,
        str(row.nth),
        str(row.lost),
        str(row.doubled),
        str(row.disordered),
        str(row.held),
        str(row.left),
        str(row.prepared),
        str(row.in_doubt),
        f"{row.seconds:.1f}",
    )
