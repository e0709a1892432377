"""What the journal says of one message.

Owns how much of the journal is read: the newest whole segments, within bounds of octets and time,
on a thread of its own. The segment that is being written may not be read; an answer says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.journal.holes import RunLines, Span, runs_of, span
from gateway.journal.runs import unended
from gateway.journal.schema import OPEN, segment_of

#: Octets of segments that are read.
MOST_OCTETS: Final = 256 * 1024 * 1024
#: Octets read at once; after each, others have the interpreter for a while.
_BLOCK: Final = 256 * 1024
_BREATH_S: Final = 0.002
#: Steps that are kept, the latest.
_MOST_STEPS: Final = 200
_RUNS: Final = b'"runs":'


@dataclass(frozen=True, slots=True)
class StepTold:
    """A step of the message.

    :param time_ms: epoch milliseconds.
    :param line: the line's fields.
    :param target_id: its id at a link's target, "" where that is not told.
    :param as_target: the line tells of a message of another broker that got this id here.
    """

    step: str
    time_ms: int
    line: dict[str, Any]
    target_id: str = ""
    as_target: bool = False

    def text(self, name: str) -> str:
        """A field of the line, "" without it."""
        return str(self.line.get(name, ""))


@dataclass(slots=True)
class Journey:
    """What was found.

    :param steps: by time.
    :param segments: whole segments there are, and
    :param read: those that were read to their end.
    :param open: a segment is being written, and may have later steps.
    :param oldest_ms: when the oldest that was read was written, 0 for none.
    :param runs: what is there of the gateway's runs in the segments that were read.
    """

    steps: list[StepTold] = field(default_factory=list)
    segments: int = 0
    read: int = 0
    open: bool = False
    oldest_ms: int = 0
    runs: list[RunLines] = field(default_factory=list)


def read_journey(folder: Path, id: str, seconds: float, most: int = MOST_OCTETS) -> Journey:
    """Read what the journal says of a message. Blocks: for a thread.

    :param id: its JMSMessageID.
    :param seconds: how long reading may take, and
    :param most: how many octets of segments are read.
    """
    journey = Journey()
    found = []
    spans: list[Span] = []
    try:
        left = unended(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(OPEN):
                    journey.open = True
                elif segment_of(entry.name) is not None:
                    status = entry.stat()
                    found.append((status.st_mtime, entry.name, status.st_size))
    except OSError:
        return journey
    journey.segments = len(found)
    until = time.monotonic() + seconds
    for changed, name, size in sorted(found, reverse=True):
        if most < size and journey.read:
            break
        most -= size
        try:
            whole = _read(folder / name, id, journey, until, spans)
        except OSError:
            continue
        if not whole:
            break
        journey.read += 1
        journey.oldest_ms = int(changed * 1000)
    journey.runs = runs_of(spans, left)
    journey.steps.sort(key=lambda told: told.time_ms)
    del journey.steps[:-_MOST_STEPS]
    return journey


def _read(path: Path, id: str, journey: Journey, until: float, spans: list[Span]) -> bool:
    """Read one segment, and add its span.

    :returns: whether there was time for all of it.
    """
    prefix, number = _parted(id)
    quoted = json.dumps(id).encode()
    begins = None if number is None else b'"prefix":' + json.dumps(prefix).encode()
    first = last = b""
    count = 0
    with path.open("rb") as file:
        while lines := file.readlines(_BLOCK):
            first, last, count = first or lines[0], lines[-1], count + len(lines)
            for line in lines:
                if quoted in line or (
                    begins is not None
                    and number is not None
                    and begins in line
                    and _may_have(line, number)
                ):
                    journey.steps += _steps(line, id, prefix, number)
            if time.monotonic() > until:
                return False
            time.sleep(_BREATH_S)
    named = segment_of(path.name)
    if named is not None and (found := span(*named, first, last, count)) is not None:
        spans.append(found)
    return True


def _parted(id: str) -> tuple[str, int | None]:
    """Return what an id begins with, and its number; None without one."""
    digits = len(id) - len(id.rstrip("0123456789"))
    end = id[len(id) - digits :]
    if not end or len(end) > 18 or (end[0] == "0" and end != "0"):
        return id, None
    return id[: len(id) - digits], int(end)


def _may_have(line: bytes, number: int) -> bool:
    begin = line.find(_RUNS)
    end = line.find(b"]]", begin)
    if begin < 0 or end < 0:
        return False
    return _place(json.loads(line[begin + len(_RUNS) : end + 2]), number) is not None


def _place(runs: list[list[int]], number: int) -> int | None:
    """The place of a number among arithmetic progressions."""
    place = 0
    for first, count, step in runs:
        at, rest = divmod(number - first, step) if step else (0, number - first)
        if not rest and 0 <= at < count:
            return place + at
        place += count
    return None


def _steps(octets: bytes, id: str, prefix: str, number: int | None) -> Iterator[StepTold]:
    try:
        line = json.loads(octets)
    except ValueError:
        return
    targets = line.get("target_ids") or []
    place: int | None = None
    if number is not None and line.get("prefix") == prefix:
        place = _place(line.get("runs") or [], number)
    if place is None and id in (line.get("ids") or ()):
        place = line["ids"].index(id)
    as_target = place is None and id in targets
    if place is None and not as_target:
        return
    target = str(targets[place]) if place is not None and place < len(targets) else ""
    for step in line.get("steps", ()):
        yield StepTold(step, line["time"] // 1000, line, target, as_target)
