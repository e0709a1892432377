"""Power that fails in the middle of a commit, and damage to a commit that was reported: which of
the two may be taken for the other.

Sectors of the last commit are lost in every way, in a log that grows and in one that is written
over; and every block of a commit that was reported is spoilt. Nothing reported is ever passed over,
and what was not reported is never called damage for certain.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.broker.store.integrity import opening, wal
from gateway.broker.store.integrity.wal import Finding
from gateway.broker.store.interface import StoreDamaged
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import History, QueueReactor, contents

pytestmark = pytest.mark.slow

PAGE: Final = opening.PAGE_SIZE
#: What systems write at once, whatever SQLite's pages are.
BLOCK: Final = 4096
FRAME: Final = wal.FRAME_HEADER + PAGE
#: The batches whose commits are torn or spoilt, of each log.
LAST: Final = (4, 7)


class Recorded(NamedTuple):
    """One use of a log, batch by batch.

    :param logs: the whole file after each batch of :attr:`numbers`.
    :param ends: how many frames were committed then.
    """

    database: bytes
    logs: list[bytes]
    ends: list[int]
    numbers: list[int]
    history: History

    def __repr__(self) -> str:
        return f"<batches {self.numbers}>"

    def began(self, batch: int) -> int:
        """From which octet on nothing was synced before this batch's commit: its second writing of
        the one before is not, behind the block.
        """
        before = commit_frame(self.logs[batch - 1], self.ends[batch - 1])
        return -(-at(before + 1) // wal.SYNCED) * wal.SYNCED

    def former(self, batch: int) -> bytes:
        """The file before the commit of this batch, as if nothing not synced had reached the
        disk.
        """
        began, end = self.began(batch), at(self.ends[batch - 1])
        older = self.logs[batch - 2]
        return (
            self.logs[batch - 1][:began]
            + older[began:end]
            + self.logs[batch - 1][max(end, began) :]
        )


def at(frame: int) -> int:
    return wal.HEADER + frame * FRAME


def head(log: bytes, frame: int) -> bytes:
    return log[at(frame) : at(frame) + 8]


def commit_frame(log: bytes, end: int) -> int:
    """The last frame of the commit before ``end``, which its second writing may follow."""
    return (
        end - 2
        if at(end - 1) % wal.SYNCED and head(log, end - 1) == head(log, end - 2)
        else end - 1
    )


def record(folder: Path, *, over: bool) -> Recorded:
    """:param over: whether the log is written over, from its beginning, or grows."""
    path = folder / "messages.db"
    reactor = QueueReactor()
    # One octet: the log is copied back after each eighth commit, and begins again with the ninth.
    store = SqliteStore(
        str(path), reactor.reactor, reserve_octets=0, checkpoint_octets=1, idle_seconds=600
    )
    store.open()
    history = History(21)
    first = 9 if over else 1
    logs: list[bytes] = []
    database = b""
    for number in range(1, first + 8):
        assert reactor.commit(store, history.next()) is None
        if number == first:
            database = path.read_bytes()
        if first <= number < first + 8:
            # The copy follows the eighth commit, and changes nothing in the log.
            logs.append(Path(f"{path}-wal").read_bytes())
    reactor.close(store)
    ends = [wal.survey(str(write(folder / "log", log)), PAGE).frames for log in logs]
    assert ends == sorted(set(ends))
    salts = {
        log[at(frame) + 8 : at(frame) + 16]
        for log in logs
        for frame in range((len(log) - wal.HEADER) // FRAME)
    }
    assert (len(salts) > 1) is over
    return Recorded(database, logs, ends, list(range(first, first + 8)), history)


GROWING: Final = "growing"
OVER: Final = "written over"
KINDS: Final = (GROWING, OVER)


@cache
def recorded_as(kind: str) -> Recorded:
    """Recorded once for all tests; what hypothesis draws cannot be a fixture of several values."""
    with TemporaryDirectory() as folder:
        return record(Path(folder), over=kind == OVER)


@pytest.fixture(params=KINDS)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return recorded_as(request.param)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "messages.db-wal"


def write(path: Path, octets: bytes, holes: list[tuple[int, int]] | None = None) -> Path:
    """A new file; in the holes nothing is written."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        start = 0
        for hole, end in [*(holes or []), (len(octets), len(octets))]:
            file.write(octets[start:hole])
            file.seek(end)
            start = end
        file.truncate(len(octets))
    return path


def torn(
    recorded: Recorded, batch: int, unit: int, reached: list[bool]
) -> tuple[bytes, list[tuple[int, int]]]:
    """The file when only some units of a commit's octets have reached the disk, and the units of it
    that were never written.
    """
    new, old = recorded.logs[batch], recorded.former(batch)
    start, end = recorded.began(batch), at(recorded.ends[batch])
    result = bytearray(old)
    holes: list[tuple[int, int]] = []
    size = len(old)
    for place, there in zip(range(start // unit * unit, end, unit), reached, strict=False):
        stop = min(place + unit, len(new))
        if there:
            size = max(size, stop)
            result.extend(bytes(max(0, stop - len(result))))
            result[place:stop] = new[place:stop]
        elif place >= len(old):
            holes.append((place, stop))
            result.extend(bytes(max(0, stop - len(result))))
    return bytes(result[:size]), [hole for hole in holes if hole[1] <= size]


def units(recorded: Recorded, batch: int, unit: int) -> int:
    return -(-(at(recorded.ends[batch]) - recorded.began(batch) // unit * unit) // unit)


def check_unfinished(recorded: Recorded, batch: int, log: Path) -> Finding:
    """Everything that was reported before is there, or the log is refused without saying that it is
    damaged for certain.
    """
    found = wal.survey(str(log), PAGE)
    assert found.finding is not Finding.DAMAGED, found
    if found.finding is Finding.UNSURE:
        return found.finding
    before = commit_frame(recorded.logs[batch - 1], recorded.ends[batch - 1]) + 1
    last = commit_frame(recorded.logs[batch], recorded.ends[batch]) + 1
    assert found.frames in (before, recorded.ends[batch - 1], last, recorded.ends[batch]), (
        found,
        recorded.ends,
    )
    return found.finding


@settings(max_examples=200, deadline=None)
@given(
    st.data(),
    st.sampled_from(KINDS),
    st.sampled_from(LAST),
    st.sampled_from([512, 4096]),
    st.booleans(),
)
def test_a_commit_of_which_some_sectors_are_lost(
    log: Path, data: st.DataObject, kind: str, batch: int, unit: int, holes: bool
) -> None:
    recorded = recorded_as(kind)
    count = units(recorded, batch, unit)
    reached = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    octets, missing = torn(recorded, batch, unit, reached)
    write(log, octets, missing if holes and unit == 4096 else None)
    check_unfinished(recorded, batch, log)


@pytest.mark.parametrize("unit", [512, 4096])
@pytest.mark.parametrize("batch", LAST)
def test_a_commit_cut_off_at_any_sector(
    recorded: Recorded, log: Path, batch: int, unit: int
) -> None:
    """What comes first reached the disk, or what comes last did."""
    count = units(recorded, batch, unit)
    for number in range(count + 1):
        for reached in (
            [True] * number + [False] * (count - number),
            [False] * number + [True] * (count - number),
        ):
            octets, holes = torn(recorded, batch, unit, reached)
            write(log, octets, holes if unit == 4096 else None)
            check_unfinished(recorded, batch, log)


@pytest.mark.parametrize("batch", LAST)
def test_a_commit_of_which_one_page_of_the_cache_is_missing_is_known_to_be_unfinished(
    recorded: Recorded, log: Path, batch: int
) -> None:
    """Systems write pages of 4096 octets: one that was not written leaves a head of the former use,
    or a hole.
    """
    count = units(recorded, batch, 4096)
    for missing in range(count):
        octets, holes = torn(recorded, batch, 4096, [number != missing for number in range(count)])
        write(log, octets, holes)
        place = (recorded.began(batch) // BLOCK + missing) * BLOCK
        # Where the file ended there is neither: zeros behind its end, in a block that had been
        # written.
        if not place < len(recorded.former(batch)) < place + BLOCK:
            assert check_unfinished(recorded, batch, log) is not Finding.UNSURE, missing


@pytest.mark.parametrize("batch", LAST)
def test_a_process_killed_at_any_write_of_a_commit_is_never_refused(
    recorded: Recorded, log: Path, batch: int
) -> None:
    """Each frame is two writes, its head and its page, in order."""
    new, old = recorded.logs[batch], recorded.logs[batch - 1]
    for frame in range(recorded.ends[batch - 1], recorded.ends[batch]):
        for stop in (at(frame), at(frame) + wal.FRAME_HEADER, at(frame + 1)):
            write(log, new[:stop] + old[stop:])
            assert check_unfinished(recorded, batch, log) is not Finding.UNSURE, (frame, stop)


def check_reported(recorded: Recorded, batch: int, log: Path) -> None:
    """The log is refused, or nothing is lost."""
    found = wal.survey(str(log), PAGE)
    if found.finding not in (Finding.UNSURE, Finding.DAMAGED):
        assert found.frames > commit_frame(recorded.logs[batch], recorded.ends[batch]), found


SPOILT: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zeros": lambda octets: bytes(len(octets)),
    "ones": lambda octets: b"\xff" * len(octets),
    "turned": lambda octets: octets[::-1],
    "moved": lambda octets: octets[-8:] + octets[:-8],
    "noise": lambda octets: random.Random(len(octets)).randbytes(len(octets)),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("unit", [512, 4096])
def test_a_reported_commit_with_any_block_spoilt_is_not_passed_over(
    recorded: Recorded, log: Path, unit: int, how: str
) -> None:
    for batch in LAST:
        octets = recorded.logs[batch]
        # Sectors of the last commit only: of those before it any block will do.
        for place in range(
            0 if unit == BLOCK else at(recorded.ends[batch] - 4) // BLOCK * BLOCK,
            at(recorded.ends[batch]),
            unit,
        ):
            write(
                log,
                octets[:place] + SPOILT[how](octets[place : place + unit]) + octets[place + unit :],
            )
            check_reported(recorded, batch, log)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(KINDS), st.sampled_from(LAST))
def test_a_reported_commit_with_any_change_within_a_block_is_not_passed_over(
    log: Path, data: st.DataObject, kind: str, batch: int
) -> None:
    recorded = recorded_as(kind)
    octets = recorded.logs[batch]
    end = at(recorded.ends[batch])
    # Where the last commit ends there is most to go wrong.
    block = (
        data.draw(
            st.one_of(
                st.integers(0, (end - 1) // BLOCK),
                st.integers(max(0, end // BLOCK - 3), (end - 1) // BLOCK),
            )
        )
        * BLOCK
    )
    start = data.draw(st.integers(block, min(block + BLOCK, end) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=min(block + BLOCK, end) - start))
    write(log, octets[:start] + noise + octets[start + len(noise) :])
    check_reported(recorded, batch, log)


@pytest.mark.parametrize("batch", LAST)
def test_any_bit_of_the_last_heads_flipped_is_not_passed_over(
    recorded: Recorded, log: Path, batch: int
) -> None:
    octets = recorded.logs[batch]
    last = commit_frame(octets, recorded.ends[batch])
    for frame in {last - 1, last, recorded.ends[batch] - 1}:
        for bit in range(0, 8 * wal.FRAME_HEADER, 3):
            place = at(frame) + bit // 8
            write(log, octets[:place] + bytes([octets[place] ^ 1 << bit % 8]) + octets[place + 1 :])
            check_reported(recorded, batch, log)


@pytest.mark.parametrize("seed", range(12))
def test_sqlite_takes_what_the_survey_says(recorded: Recorded, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    batch = choose.choice(LAST)
    count = units(recorded, batch, 4096)
    octets, holes = torn(recorded, batch, 4096, [choose.random() < 0.7 for _ in range(count)])
    path = tmp_path / "messages.db"
    path.write_bytes(recorded.database)
    write(tmp_path / "messages.db-wal", octets, holes)
    found = wal.survey(f"{path}-wal", PAGE)
    reactor = QueueReactor()
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=600)
    if found.finding is Finding.UNSURE:
        with pytest.raises(StoreDamaged, match="imqdbmgr recover"):
            store.open()
        return
    there = contents(reactor, store, store.open())
    reactor.close(store)
    complete = found.frames > commit_frame(recorded.logs[batch], recorded.ends[batch])
    assert there == recorded.history.after_restart(recorded.numbers[batch] - (not complete))
