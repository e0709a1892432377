"""Runs of the gateway that have not ended in order.

Owns what is known to be lost of them.

A journal that has stopped loses lines, and a kill ends the process that knows how many. So each run
has a *slot* in the file :data:`RUNS` beside the segments. The file is written whole when the first
run begins, and from then on in place only, as PostgreSQL's ``pg_control`` is: so a full disk does not
keep a run from noting there what it loses. A run takes a free slot when it begins and frees it when
it ends in order.

The next start finds the slots of runs that did not end so. For each it writes the *end line*, in a
segment of its own, and frees the slot: a line of that run with the step
:data:`~gateway.journal.schema.RUN_ENDED`, whose number is the one after the last line that was taken.
So readers who look for gaps in the numbers see what is missing at the end of a run, too.

Owns the file, the slots and the end lines. Its functions block, and are called on the journal's
thread, or where no journal is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from errno import ENOSPC
from pathlib import Path
from typing import Final

from gateway.journal.chain import Chain
from gateway.journal.lines import Lines
from gateway.journal.schema import (
    END_SEGMENT,
    OPEN,
    RUN_ENDED,
    SEGMENT,
    segment_name,
    segment_of,
)
from gateway.journal.segments import complete_left

#: Not a segment's name: readers of segments take all files with theirs.
RUNS: Final = "journal.runs"
#: Octets of a slot, and how many there are. A sector is written whole or not at all.
_SLOT: Final = 512
_SLOTS: Final = 64
_BLANK: Final = b" " * (_SLOT - 1) + b"\n"
#: Octets from the end of a segment in which its last line begins, mostly.
_TAIL: Final = 64 * 1024
#: The values of ``reason`` of an end line.
KILLED: Final = "killed"
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class Unended:
    """A run that has not ended in order, or is running.

    :param run: its name; "" where the slot cannot be read.
    :param taken: the number of the last line that it had taken when it noted that,
    :param written: that of the last line that was written then, and
    :param lost: how many lines it had lost then.
    :param stopped: its disk took no more.
    :param closed: it has stopped in order, and could not write its end line.
    """

    run: str
    instance: str = ""
    taken: int = 0
    written: int = 0
    lost: int = 0
    stopped: bool = False
    closed: bool = False

    def slot(self) -> bytes:
        """What stands in its slot."""
        said = json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode(
            errors="backslashreplace"
        )
        if len(said) >= _SLOT:
            # Only an instance's name may be so long.
            said = replace(self, instance="").slot().rstrip()
        return said.ljust(_SLOT - 1) + b"\n"


@dataclass(frozen=True, slots=True)
class EndTold:
    """An end line that was written.

    :param run: "" where its slot could not be read, so that there is no line.
    :param comment: what is known to be missing, a sentence.
    """

    run: str
    comment: str


class Runs:
    """The slot of the run that writes the journal.

    :param folder: the journal's.
    :param run: as :func:`~gateway.journal.schema.run_name` gives it.
    """

    def __init__(self, folder: Path, run: str, instance: str) -> None:
        self._folder: Final = folder
        self._standing = Unended(run, instance)
        #: None until it has one.
        self._slot: int | None = None

    def note(
        self,
        taken: int,
        written: int,
        lost: int,
        *,
        stopped: bool = False,
        closed: bool = False,
    ) -> None:
        """Note how the run stands, in its slot, and take one first if it has none.

        What is noted survives the end of the process. It is synced where lines were lost for the
        first time, so that it mostly survives a loss of power, too.

        :param taken: as of :class:`Unended`, like the others.
        :raises OSError: it could not be noted.
        """
        before, first = self._standing, self._slot is None
        self._standing = Unended(before.run, before.instance, taken, written, lost, stopped, closed)
        if self._slot is None:
            self._slot = _free_slot(self._folder, self._standing.run)
        _write(
            self._folder,
            self._slot,
            self._standing.slot(),
            sync=first or closed or (lost > 0 and not before.lost),
        )

    def end(self) -> None:
        """Free the slot: the run has ended in order, and its last line is written.

        :raises OSError: it could not be freed, so the next start finds it.
        """
        if self._slot is not None:
            _write(self._folder, self._slot, _BLANK)
            self._slot = None

    def end_others(self, chain: Chain | None) -> Iterator[EndTold]:
        """Write the end lines of other runs, as :func:`end_left` does."""
        return end_left(self._folder, chain, lambda run: run != self._standing.run)

    def end_this(self, chain: Chain | None) -> None:
        """Write the end line of this run, as :func:`end_left` does.

        It was noted as closed before.
        """
        for _ in end_left(self._folder, chain, lambda run: run == self._standing.run):
            pass


def unended(folder: Path) -> list[Unended]:
    """Return the runs that have a slot, in the order of their names.

    :raises OSError: the file is there and cannot be read.
    """
    return sorted((each for _, each in _slots(folder)), key=lambda each: each.run)


def end_left(
    folder: Path, chain: Chain | None = None, which: Callable[[str], bool] = lambda run: True
) -> Iterator[EndTold]:
    """Write the end lines of runs, and free their slots.

    They have not ended in order. Their segments must be whole. Nothing is written of a run that has told nothing, and that is not
    known to have lost anything.

    :param chain: is told of each segment.
    :param which: the runs that it is about, by their names.
    :raises OSError: one could not be written; it is tried again the next time.
    """
    for slot, run in _slots(folder):
        if not which(run.run):
            continue
        told = _end(folder, run, chain) if run.run else EndTold("", "its note cannot be read")
        _write(folder, slot, _BLANK)
        if told is not None:
            yield told


def complete_runs(folder: Path) -> None:
    """Complete the segments of earlier runs, and write their end lines.

    Only while there is no run.

    :raises OSError: something could not be done.
    """
    complete_left(folder)
    for _ in end_left(folder):
        pass


def last_line(path: Path) -> bytes:
    """Return the last whole line of a segment, which may be open.

    Empty where it has no whole line.

    :raises OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        block = _TAIL
        while True:
            file.seek(max(0, size - block))
            lines = file.read().rpartition(b"\n")[0].split(b"\n")
            if len(lines) > 1 or block >= size:
                return lines[-1]
            block *= 16


# --- end lines


def _end(folder: Path, run: Unended, chain: Chain | None) -> EndTold | None:
    """Write the end line of a run. :returns: None where it gets no line."""
    number = last = 0
    for path in folder.iterdir():
        named = segment_of(path.name)
        if named is not None and named[0] == run.run:
            number = max(number, named[1])
    if number == END_SEGMENT:
        # It was written, and the slot was not freed any more.
        return None
    if number:
        last = _number(last_line(folder / segment_name(run.run, number)))
    if not (last or run.taken) or (run.closed and run.taken <= last):
        return None
    # Where no segment of it is left, they may have been too old.
    missing = max(0, run.taken - last if number else min(run.taken - run.written, run.lost))
    comment = _comment(run, missing)
    fields: dict[str, object] = {
        "time": time.time_ns() // 1000,
        "steps": [RUN_ENDED],
        "reason": STOPPED if run.closed else KILLED,
        "comment": comment,
        "lost": missing or None,
    }
    data = Lines(run.run, run.instance).line(max(last, run.taken) + 1, fields)
    name = segment_name(run.run, END_SEGMENT) + OPEN.removeprefix(SEGMENT)
    _write_segment(folder / name, data)
    complete_left(folder, chain)
    return EndTold(run.run, comment)


def _number(line: bytes) -> int:
    """Return the number of a line; 0 where somebody has changed it."""
    try:
        return _whole(json.loads(line)["line"])
    except (ValueError, TypeError, KeyError):
        return 0


def _comment(run: Unended, missing: int) -> str:
    lines = "1 line before this one is" if missing == 1 else f"{missing} lines before this one are"
    if run.closed:
        return f"the run has stopped in order, and {lines} lost"
    if missing:
        return f"the run was killed: {lines} lost, and more may be"
    return "the run was killed: lines of its last moment may be lost"


def _write_segment(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        written = os.write(descriptor, data)
        if written < len(data):
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


# --- the file


def _slots(folder: Path) -> list[tuple[int, Unended]]:
    """Return the slots that are taken, each with its number."""
    try:
        data = (folder / RUNS).read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for slot in range(len(data) // _SLOT):
        said = data[slot * _SLOT : (slot + 1) * _SLOT].strip(b" \n\0")
        if said:
            found.append((slot, _parsed(said)))
    return found


def _parsed(said: bytes) -> Unended:
    try:
        found = json.loads(said)
        return Unended(
            str(found["run"]),
            str(found["instance"]),
            _whole(found["taken"]),
            _whole(found["written"]),
            _whole(found["lost"]),
            found["stopped"] is True,
            found["closed"] is True,
        )
    except (ValueError, TypeError, KeyError):
        return Unended("")


def _free_slot(folder: Path, run: str) -> int:
    """Return the number of a free slot.

    The file is made if it is missing.

    :raises OSError: no slot is free, and there is no room for more.
    """
    path = folder / RUNS
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        taken = {slot for slot, each in _slots(folder) if each.run != run}
        wanted = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        size = os.fstat(descriptor).st_size // _SLOT * _SLOT
        most = max(_SLOTS, wanted + 1) * _SLOT
        try:
            while size < most:
                size += os.pwrite(descriptor, _BLANK[size % _SLOT :], size)
        except OSError:
            if size < (wanted + 1) * _SLOT:
                raise
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return wanted


def _write(folder: Path, slot: int, data: bytes, *, sync: bool = True) -> None:
    """Write a slot in place."""
    descriptor = os.open(folder / RUNS, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if os.pwrite(descriptor, data, slot * _SLOT) < len(data):
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(folder / RUNS))
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
