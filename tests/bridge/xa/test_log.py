"""The log: its file, torn, flipped, full and killed anywhere; and how the reactor sees it, where
what comes during a sync shares the next.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as twisted_reactor
from twisted.internet.defer import DeferredList

from bridge.xa.decision_log import Change, Entry, LoggedBranch, Presumed, Removed
from bridge.xa.errors import LogDamaged, LogFailed, NotWritten
from bridge.xa.log.file import FileStorage, LogFile, Storage, SyncFailed
from bridge.xa.log.log import LAZY_S, FileDecisionLog, log_thread
from bridge.xa.status import BranchState
from bridge.xa.xids import Run
from tests.bridge.xa.coordinator_process import MemoryStorage, Process


def entry(number: int, state: BranchState = BranchState.WAITING) -> Entry:
    branches = (
        LoggedBranch(b"\x06source\x01", "source", "rm:a", state, 4),
        LoggedBranch("\x06zwölf\x02".encode(), "zwölf", 'rm:"b"', BranchState.HEURISTIC_MIXED),
    )
    return Entry(b"gtrid %d" % number, 1000 + number, number % 2 == 0, number % 3 == 0, branches)


def opened(storage: Storage, size: int = 100_000, sync: bool = True) -> LogFile:
    return LogFile(storage, "here:bridge", size, sync, lambda count: bytes(range(count)))


def begun(*numbers: int, size: int = 100_000) -> tuple[MemoryStorage, LogFile]:
    """A log of these decisions, each synced."""
    storage = MemoryStorage()
    file = opened(storage, size)
    for number in numbers:
        file.write([entry(number)], sync=True)
    return storage, file


def copy(data: bytes | bytearray) -> MemoryStorage:
    storage = MemoryStorage()
    storage.data = bytearray(data)
    storage.synced = len(data)
    return storage


def entries_or_damage(storage: Storage) -> Sequence[Entry] | LogDamaged:
    try:
        return opened(storage).entries()
    except LogDamaged as damaged:
        return damaged


def written() -> bytes:
    """A log of three decisions, each synced, of which one is over."""
    storage, file = begun(1, 2, 3)
    file.write([Removed(entry(2).gtrid)], sync=False)
    assert storage.data is not None
    return bytes(storage.data)


def test_what_is_written_is_read_again_with_another_generation() -> None:
    storage = MemoryStorage()
    first = opened(storage)
    assert (first.entries(), first.header.generation, first.header.identity) == (
        (),
        1,
        bytes(range(8)),
    )
    first.write([entry(1), entry(2)], sync=True)
    first.write([entry(1, BranchState.COMMITTED), Removed(entry(2).gtrid)], sync=True)
    again = LogFile(storage, "here:bridge", 100_000, True, os.urandom)
    assert again.entries() == (entry(1, BranchState.COMMITTED),)
    assert (again.header.generation, again.header.earlier, again.cut) == (
        2,
        (Run(bytes(range(8)), 1),),
        0,
    )
    assert opened(storage).header.generation == 3


def test_a_torn_tail_is_cut_at_every_octet() -> None:
    storage, file = begun(1)
    assert storage.data is not None
    synced = storage.synced
    start = len(storage.data)
    storage.append(b"")
    file.write([entry(2), Removed(entry(1).gtrid)], sync=False)
    whole = bytes(storage.data)
    for length in range(synced, len(whole)):
        torn = opened(copy(whole[:length]))
        cut = length - start if length >= start else length - synced
        assert (torn.entries(), torn.cut) == ((entry(1),), cut)
    assert opened(copy(whole)).entries() == (entry(2),)


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_every_flipped_octet_is_refused_or_harmless(bit: int) -> None:
    whole = written()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << bit
        storage = copy(flipped)
        found = entries_or_damage(storage)
        if isinstance(found, LogDamaged):
            assert found.offset <= at
            assert storage.name in str(found)
            assert storage.data == flipped
        else:
            # No decision may be lost; that one is over may.
            assert {entry(1).gtrid, entry(3).gtrid} <= {one.gtrid for one in found}


def test_a_flip_in_a_log_that_was_written_anew_is_refused_too() -> None:
    storage = copy(written())
    opened(storage)
    assert storage.data is not None
    whole = bytes(storage.data)
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        found = entries_or_damage(copy(flipped))
        assert (
            found.offset <= at if isinstance(found, LogDamaged) else found == (entry(1), entry(3))
        )


def test_what_was_not_synced_may_be_torn_in_any_order() -> None:
    """A machine that loses power may have written what came later, and not what came before."""
    storage, file = begun(1)
    assert storage.data is not None
    start = len(storage.data)
    file.write([entry(2)], sync=False)
    middle = len(storage.data)
    file.write([entry(3)], sync=False)
    data = bytearray(storage.data)
    data[start:middle] = bytes(middle - start)
    assert opened(copy(data)).entries() == (entry(1),)


@pytest.mark.parametrize(
    "data", [b"", b"something else", b"SGtxlog", b"SGtxlog2" + bytes(100), b"SGtxlog1" + bytes(100)]
)
def test_what_is_no_log_is_refused_and_left(data: bytes) -> None:
    storage = copy(data)
    with pytest.raises(LogDamaged):
        opened(storage)
    assert storage.read() == data


def test_the_log_is_written_anew_when_it_has_grown() -> None:
    storage, file = begun(size=3000)
    for number in range(300):
        file.write([entry(number)], sync=True)
        if number >= 2:
            file.write([Removed(entry(number - 2).gtrid)], sync=False)
        assert storage.data is not None
        assert len(storage.data) < 4000
    assert storage.replacements > 5
    assert file.entries() == opened(storage).entries() == (entry(298), entry(299))


def test_a_log_full_of_what_is_not_complete_is_not_written_anew_each_time() -> None:
    storage, _ = begun(*range(200), size=1024)
    assert storage.replacements < 20
    assert len(opened(storage).entries()) == 200


@pytest.mark.parametrize("room", [0, 1, 40, 200])
def test_a_full_disk_leaves_the_log_as_it_was(room: int) -> None:
    storage, file = begun(1)
    before = bytes(storage.data or b"")
    storage.room = room
    with pytest.raises(NotWritten):
        file.write([entry(2), entry(3)], sync=True)
    assert (storage.read(), file.failed) == (before, None)
    storage.room = None
    file.write([entry(4)], sync=True)
    assert opened(storage).entries() == file.entries() == (entry(1), entry(4))


def test_a_failed_sync_is_final() -> None:
    storage, file = begun()
    storage.sync_fails = True
    with pytest.raises(LogFailed) as caught:
        file.write([entry(1)], sync=True)
    assert not isinstance(caught.value, NotWritten)
    storage.sync_fails = False
    before = bytes(storage.data or b"")
    with pytest.raises(NotWritten):
        file.write([entry(2)], sync=True)
    assert storage.read() == before
    assert file.failed is not None


@pytest.mark.parametrize("after_truncate", [False, True])
def test_another_failure_to_write_is_final(
    after_truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, file = begun()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(storage, "append", broken)
    if after_truncate:
        monkeypatch.setattr(storage, "truncate", broken)
    with pytest.raises(LogFailed) as caught:
        file.write([entry(1)], sync=True)
    assert not isinstance(caught.value, NotWritten)
    assert file.failed is caught.value


def test_a_rewriting_that_finds_no_room_is_put_off() -> None:
    storage, file = begun(*range(4), size=1024)
    replacements = storage.replacements
    storage.room = 450
    for number in range(4, 12):
        file.write([entry(number)], sync=True)
    assert storage.replacements == replacements
    assert len(opened(copy(bytes(storage.data or b""))).entries()) == 12


def test_without_syncs_nothing_is_synced() -> None:
    storage = MemoryStorage()
    opened(storage, sync=False).write([entry(1)], sync=True)
    assert (storage.syncs, opened(storage).entries()) == (0, (entry(1),))


changes = st.lists(
    st.lists(
        st.one_of(
            st.builds(entry, st.integers(0, 9), st.sampled_from(BranchState)),
            st.integers(0, 9).map(lambda number: Removed(entry(number).gtrid)),
            st.builds(
                lambda number, at_ms: Presumed(entry(number).gtrid, b"b", at_ms),
                st.integers(0, 9),
                st.integers(0, 9),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=12,
)


@given(
    changes,
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.integers(0, 10_000),
    st.integers(1024, 4000),
    st.booleans(),
)
def test_after_a_loss_of_power_there_is_what_was_synced_and_maybe_more(
    batches: Sequence[Sequence[Change]], syncs: Sequence[bool], kept: int, size: int, zeros: bool
) -> None:
    storage, file = begun(size=size)
    states: list[dict[bytes, Entry]] = [{}]
    presumed: list[dict[bytes, Presumed]] = [{}]
    durable = 0
    for number, batch in enumerate(batches):
        replacements = storage.replacements
        file.write(batch, syncs[number])
        now, known = dict(states[-1]), dict(presumed[-1])
        for change in batch:
            if isinstance(change, Removed):
                now.pop(change.gtrid, None)
            elif isinstance(change, Presumed):
                known[change.gtrid] = change
            else:
                now[change.gtrid] = change
        states.append(now)
        presumed.append(known)
        if syncs[number] or storage.replacements > replacements:
            durable = len(states) - 1
    assert {one.gtrid: one for one in file.entries()} == states[-1]
    after = storage.crash(kept)
    if zeros and after.data is not None:
        after.data += bytes(kept % 700)
    again = opened(after)
    found = (
        {one.gtrid: one for one in again.entries()},
        {one.gtrid: one for one in again.presumed()},
    )
    assert found in list(zip(states, presumed, strict=True))[durable:]


# files


class Watched(FileStorage):
    """A file of which a copy is taken before and after everything that is done with it. :param at:
    called with a name for the moment.
    """

    def __init__(self, path: Path, at: Callable[[str], None]) -> None:
        super().__init__(path)
        self._at = at

    def replace(self, data: bytes) -> None:
        self._at("before a replacement")
        super().replace(data)
        self._at("after a replacement")

    def append(self, data: bytes) -> None:
        for end in range(0, len(data), 50):
            super().append(data[end : end + 50])
            self._at("while it is appended to")


def test_a_process_that_is_killed_at_any_point_leaves_a_log_that_opens(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    path = folder / "txlog.bridge"
    copies: list[tuple[Path, set[bytes]]] = []
    written: set[bytes] = set()

    def at(moment: str) -> None:
        kept = tmp_path / str(len(copies))
        shutil.copytree(folder, kept)
        copies.append((kept, set(written)))

    file = opened(Watched(path, at), size=1500)
    for number in range(20):
        file.write([entry(number)], sync=True)
        written.add(entry(number).gtrid)
        if number % 2:
            written.discard(entry(number).gtrid)
            file.write([Removed(entry(number).gtrid)], sync=False)
    file.close()
    for kept, expected in copies:
        storage = FileStorage(kept / "txlog.bridge")
        found = {one.gtrid for one in opened(storage).entries()}
        storage.close()
        assert expected <= found
        assert [one.name for one in kept.iterdir()] == ["txlog.bridge"]


def test_the_file_is_its_owners_alone_and_a_leftover_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "txlog.bridge"
    (tmp_path / "txlog.bridge.tmp").write_bytes(b"half of it")
    storage = FileStorage(path)
    file = opened(storage)
    file.write([entry(1)], sync=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.close()
    file.close()
    with pytest.raises(LogFailed):
        file.write([entry(2)], sync=True)
    assert opened(FileStorage(path)).entries() == (entry(1),)
    assert [one.name for one in tmp_path.iterdir()] == ["txlog.bridge"]


def test_a_file_that_cannot_be_read_or_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogFailed):
        opened(FileStorage(tmp_path / "missing" / "txlog.bridge"))
    (tmp_path / "txlog.bridge").mkdir()
    with pytest.raises(LogFailed):
        opened(FileStorage(tmp_path / "txlog.bridge"))


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_disk_that_does_not_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    storage = FileStorage(tmp_path / "txlog.bridge")
    storage.replace(b"before")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(SyncFailed):
        storage.replace(b"after")
    assert storage.read() == (b"before" if call == "fdatasync" else b"after")
    storage.close()


# --- as the reactor sees it


def test_group_commit() -> None:
    process = Process(MemoryStorage())
    fired: list[int] = []
    for number in range(5):
        process.decisions.write(entry(number)).addCallback(
            lambda _, which: fired.append(which), number
        )
    assert len(process.jobs.waiting) == 1
    process.work()
    assert fired == [0, 1, 2, 3, 4]
    assert process.storage.syncs == 2


def test_what_nobody_waits_for_goes_with_the_next_or_a_moment_later() -> None:
    process = Process(MemoryStorage())
    told: list[str] = []
    process.decisions.note(Removed(b"x"), lambda: told.append("x"))
    assert not process.jobs.waiting
    process.decisions.write(entry(1))
    process.work()
    assert told == ["x"]
    assert not process.reactor.getDelayedCalls()
    process.decisions.note(Removed(entry(1).gtrid), lambda: told.append("1"))
    process.reactor.advance(LAZY_S)
    process.work()
    assert told == ["x", "1"]
    assert process.storage.syncs == 1


def test_closing_writes_what_waits() -> None:
    process = Process(MemoryStorage())
    deciding = process.decisions.write(entry(1))
    process.decisions.note(entry(2))
    fired: list[str] = []
    for name in ("first", "second"):
        process.decisions.close().addCallback(lambda _, which: fired.append(which), name)
    late: list[object] = []
    process.decisions.write(entry(3)).addErrback(lambda failure: late.append(failure.value))
    process.decisions.note(entry(4))
    process.work()
    process.reactor.advance(0)
    assert deciding.called
    assert fired == ["first", "second"]
    assert isinstance(late[0], NotWritten)
    assert process.storage.closed
    assert Process(process.storage).file.entries() == (entry(1), entry(2))
    assert process.decisions.close().called


def test_those_that_share_a_failure_are_all_told_and_what_nobody_waits_for_is_kept() -> None:
    process = Process(MemoryStorage())
    process.storage.room = 10
    told: list[object] = []
    process.decisions.note(entry(1))
    for number in (2, 3):
        process.decisions.write(entry(number)).addErrback(
            lambda failure: told.append(type(failure.value))
        )
    process.work()
    process.work()
    assert told == [NotWritten, NotWritten]
    assert process.decisions.failed is None
    process.storage.room = None
    process.reactor.advance(LAZY_S)
    process.work()
    assert [one.gtrid for one in process.file.entries()] == [entry(1).gtrid]


def test_what_breaks_unexpectedly_is_taken_for_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(MemoryStorage())
    monkeypatch.setattr(process.file, "write", lambda *_: 1 / 0)
    told: list[object] = []
    process.decisions.write(entry(1)).addErrback(lambda failure: told.append(failure.value))
    process.work()
    assert isinstance(told[0], LogFailed)
    assert process.decisions.failed is told[0]


@pytest_twisted.ensureDeferred
async def test_the_disk_is_never_touched_on_the_reactors_thread() -> None:
    threads: set[int] = set()

    class Noted(MemoryStorage):
        def _here(self, of: Callable[[], None]) -> None:
            threads.add(threading.get_ident())
            of()

        def append(self, data: bytes) -> None:
            self._here(lambda: super(Noted, self).append(data))

        def sync(self) -> None:
            self._here(super().sync)

        def close(self) -> None:
            self._here(super().close)

    storage = Noted()
    file = LogFile(storage, "here:bridge", 1024, True, bytes)
    decisions = FileDecisionLog(twisted_reactor, file, log_thread("txlog.test"))
    await DeferredList(
        [decisions.write(entry(number)) for number in range(50)], fireOnOneErrback=True
    )
    await decisions.close()
    assert threads
    assert threading.get_ident() not in threads
    assert len(Process(storage).file.entries()) == 50
