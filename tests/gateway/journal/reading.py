"""Reads a journal back, as plainly as its format allows: what the tests compare with the truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gateway.journal.chain import CHAIN
from gateway.journal.runs import RUNS
from gateway.journal.schema import FIELDS, OPEN, RUN_ENDED, VERSION, Step, segment_of

Line = dict[str, Any]
_NAMES = {field.name for field in FIELDS}


class Event(NamedTuple):
    """One step of one message."""

    step: str
    id: str
    line: Line
    place: int


def lines_of(folder: Path) -> list[Line]:
    """The lines of all whole segments, in order.

    :raises AssertionError: one is not as the format says.
    """
    names = sorted(
        path.name
        for path in folder.iterdir()
        if not path.name.endswith(OPEN) and path.name not in (CHAIN, RUNS)
    )
    assert all(segment_of(name) for name in names), names
    lines = []
    for name in names:
        data = (folder / name).read_bytes()
        assert data.endswith(b"\n"), name
        for line in data.splitlines():
            lines.append(json.loads(line))
            assert lines[-1]["v"] == VERSION
            assert lines[-1].keys() <= _NAMES
    return lines


def numbers_of(runs: Sequence[Sequence[int]]) -> list[int]:
    """What :func:`gateway.journal.lines.runs_of` was given."""
    return [first + place * step for first, count, step in runs for place in range(count)]


def ids_of(line: Mapping[str, Any]) -> list[str]:
    """The ids of a line's messages."""
    if "ids" in line:
        return list(line["ids"])
    return [f"{line['prefix']}{number}" for number in numbers_of(line["runs"])]


def events_of(lines: Iterable[Line]) -> list[Event]:
    """Every step of every message, in order."""
    found = []
    for line in lines:
        if line["steps"] == [RUN_ENDED]:
            continue
        ids = ids_of(line)
        assert all(step in set(Step) for step in line["steps"])
        for name in ("sizes", "attempts", "timestamps", "headers", "bodies", "body_types"):
            assert name not in line or len(line[name]) == len(ids), (name, line)
        found += [
            Event(step, id, line, place) for step in line["steps"] for place, id in enumerate(ids)
        ]
    return found


def journeys(events: Iterable[Event]) -> dict[str, list[str]]:
    """The steps of each message, in order."""
    steps: dict[str, list[str]] = {}
    for event in events:
        steps.setdefault(event.id, []).append(event.step)
    return steps
