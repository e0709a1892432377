"""What is missing in a journal, as its segments and its file of runs show.

The lines of a run are numbered from 1, so what is missing is a gap: within a segment, between two of
them, or before the end line that a run has which did not end in order. Lines before the oldest
segment of a run are not missed where its first segment is gone, since the retention removes the oldest.

Owns how a segment's lines are counted. Changes nothing. Its functions block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.journal.runs import KILLED, Unended, last_line, unended
from gateway.journal.schema import END_SEGMENT, segment_of

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """The lines of a whole segment, which has one at least.

    :param first: the number of the first of them, and
    :param last: that of the last.
    :param lines: how many there are.
    :param ended: the ``reason`` of an end line, "" where it has none; and
    :param lost: its ``lost``.
    """

    run: str
    segment: int
    first: int
    last: int
    lines: int
    ended: str = ""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class RunLines:
    """What is there of a run.

    :param last: the number of the last line that is there, without an end line.
    :param missing: lines that are missing.
    :param killed: it was killed, so that lines after those that are known may be missing, too.
    :param open: it is running, or was killed and there was no start since.
    """

    run: str
    last: int
    missing: int
    killed: bool = False
    open: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing can be missing."""
        return not (self.missing or self.killed or self.open)


def span(run: str, segment: int, first: bytes, last: bytes, lines: int) -> Span | None:
    """Return what a segment has, by its first and its last line.

    :returns: None where one of them is not a line of the journal.
    """
    try:
        begin, end = json.loads(first), json.loads(last)
        ended = str(end["reason"]) if segment == END_SEGMENT else ""
        lost = int(end.get("lost", 0))
        return Span(run, segment, int(begin["line"]), int(end["line"]), lines, ended, lost)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def runs_of(spans: Iterable[Span], left: Sequence[Unended] = ()) -> list[RunLines]:
    """Return what is there of each run, in the order of their names.

    :param spans: of all whole segments, or of the newest ones.
    :param left: the runs that have not ended in order, as far as that is noted.
    """
    by_run: dict[str, list[Span]] = {each.run: [] for each in left if each.run}
    for each in spans:
        by_run.setdefault(each.run, []).append(each)
    unfinished = {each.run: each for each in left}
    return [
        _run(run, sorted(found, key=lambda each: each.segment), unfinished.get(run))
        for run, found in sorted(by_run.items())
    ]


def _run(run: str, spans: Sequence[Span], left: Unended | None) -> RunLines:
    missing = last = before = 0
    ended = ""
    # Segments before the first that is there have lines that are too old.
    if spans and spans[0].segment > 1:
        before = spans[0].first - 1 - spans[0].lost
    for each in spans:
        missing += each.last - before - each.lines
        before, ended = each.last, each.ended
        if not ended:
            last = each.last
    if left is not None and not ended:
        # Whether what was taken last waits or is lost cannot be told from here.
        return RunLines(run, last, max(missing, left.lost), open=not left.closed)
    return RunLines(run, last, missing, killed=ended == KILLED)


def holes(folder: Path) -> list[RunLines]:
    """Return the runs of which lines are missing, or may be.

    It reads the whole journal, and may run while the journal is written.

    :raises OSError: something cannot be read.
    """
    # First these: a run that ends meanwhile has ended then.
    left = unended(folder)
    spans = [found for path in sorted(folder.iterdir()) if (found := _read(path)) is not None]
    return [each for each in runs_of(spans, left) if not each.whole]


def _read(path: Path) -> Span | None:
    named = segment_of(path.name)
    if named is None:
        return None
    lines = 0
    try:
        with path.open("rb") as file:
            first = file.readline()
            file.seek(0)
            while block := file.read(_BLOCK):
                lines += block.count(b"\n")
        return span(*named, first, last_line(path), lines)
    except FileNotFoundError:
        # The retention has removed it just now.
        return None
