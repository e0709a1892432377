"""Copies of a store that is open, and of one that was killed."""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.broker.store.integrity import online, opening, wal
from gateway.broker.store.interface import Batch, BranchRow, DestinationRow, StoreError
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import Model, QueueReactor, batch_of, contents, insert, row

BATCHES: Final = 12


def no_work(row: BranchRow) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The branches of these tests hold no messages."""
    return (), ()


class History:
    """Batches as a broker writes them, and what the store holds after each."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._model = Model()
        self._seq = 0
        self._number = 0

    def next(self) -> Batch:
        self._number += 1
        choose, batch = self._random, batch_of(self._number)
        if self._number == 1:
            batch.destinations[1] = DestinationRow(1, 0, "orders", "maxNumMsgs=5\n", 0)
        for seq in choose.sample(sorted(self._model.rows), min(len(self._model.rows), 2)):
            batch.deletes[seq] = None
        for _ in range(choose.choice((1, 3, 8))):
            self._seq += 1
            body = choose.randbytes(choose.choice((10, 100, 6000)))
            insert(batch, row(self._seq, persistent=int(choose.random() < 0.9), body=body))
        self._model.apply(batch)
        return batch

    def after_restart(self) -> dict[str, object]:
        """What is found when the store is opened now."""
        model = self._model.copy()
        model.restart()
        return model.contents()


class Opened:
    """A store that is open, and a copy of it.

    Its log is copied back after each batch.
    """

    def __init__(self, folder: Path) -> None:
        (folder / "store").mkdir()
        (folder / "copy").mkdir()
        self.path = folder / "store" / "messages.db"
        self.copy = folder / "copy" / "messages.db"
        self.reactor = QueueReactor()
        self.store = self.made(self.path, checkpoint_octets=4096)
        self.store.open()
        self.history = History()

    def made(self, path: Path, checkpoint_octets: int = 1 << 24) -> SqliteStore:
        return SqliteStore(
            str(path),
            self.reactor.reactor,
            reserve_octets=0,
            idle_seconds=600,
            checkpoint_octets=checkpoint_octets,
        )

    def commit(self, batches: int) -> None:
        for _ in range(batches):
            assert self.reactor.commit(self.store, self.history.next()) is None

    def back_up(self) -> int:
        return online.backup(str(self.path), str(self.copy), no_work)

    def found(self, path: Path) -> dict[str, object]:
        """What a gateway finds there."""
        store = self.made(path)
        recovered = store.open()
        assert recovered.clean
        found = contents(self.reactor, store, recovered)
        self.reactor.close(store)
        return found


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.reactor.close_all()


def test_a_copy_has_all_that_was_committed(opened: Opened) -> None:
    opened.commit(BATCHES)
    opened.back_up()
    assert opened.found(opened.copy) == opened.history.after_restart()
    # What was copied goes on.
    opened.commit(1)


def test_a_copy_is_alone_in_its_folder(opened: Opened) -> None:
    opened.commit(BATCHES)
    opened.back_up()
    assert [path.name for path in opened.copy.parent.iterdir()] == ["messages.db"]
    with pytest.raises(StoreError, match="is there already: move it away"):
        opened.back_up()


def test_while_it_is_copied_the_database_stays_as_it_is(opened: Opened) -> None:
    log = opened.path.with_name("messages.db-wal")
    opened.commit(BATCHES)
    folder = os.open(opened.path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    before = opened.path.read_bytes()
    # From here on the log only grows.
    opened.commit(40)
    assert opened.path.read_bytes() == before
    longest = wal.survey(str(log), opening.PAGE_SIZE).frames
    os.close(folder)
    opened.commit(20)
    assert opened.path.read_bytes() != before
    assert wal.survey(str(log), opening.PAGE_SIZE).frames < longest


def test_copies_while_batches_are_committed(opened: Opened, tmp_path: Path) -> None:
    """Each is what some batches give, at least those of before it."""
    opened.commit(BATCHES)
    states = [opened.history.after_restart()]
    made: list[tuple[int, Path]] = []
    over = threading.Event()

    def copy() -> None:
        number = 0
        while not over.is_set():
            # The last one is perhaps not committed yet.
            least, folder = max(0, len(states) - 2), tmp_path / f"copy{number}"
            folder.mkdir()
            online.backup(str(opened.path), str(folder / "messages.db"), no_work)
            made.append((least, folder))
            number += 1

    copying = threading.Thread(target=copy)
    copying.start()
    while len(made) < 4 and copying.is_alive():
        batch = opened.history.next()
        # Before it is committed, as it may be copied at once.
        states.append(opened.history.after_restart())
        assert opened.reactor.commit(opened.store, batch) is None
    over.set()
    copying.join()
    assert len(made) >= 4
    for least, folder in made:
        assert opened.found(folder / "messages.db") in states[least:]


def test_a_database_that_is_written_meanwhile_is_copied_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.commit(BATCHES)
    copies: list[str] = []
    copy_file = online._copy_file

    def copied(source: str, target: str) -> None:
        copy_file(source, target)
        if not source.endswith("-wal"):
            copies.append(source)
            if len(copies) < 3:
                os.utime(source, ns=(0, len(copies)))

    monkeypatch.setattr(online, "_copy_file", copied)
    opened.back_up()
    assert len(copies) == 3
    assert opened.found(opened.copy) == opened.history.after_restart()


def test_a_database_that_never_stays_is_given_up(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(range(100))
    monkeypatch.setattr(online, "_state", lambda path: next(states))
    with pytest.raises(StoreError, match="was changed each of the 5 times that it was copied"):
        opened.back_up()
    assert list(opened.copy.parent.iterdir()) == []


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        octet = file.read(1)[0]
        file.seek(place)
        file.write(bytes([octet ^ 0x10]))


def test_a_damaged_log_is_not_copied(opened: Opened) -> None:
    opened.commit(BATCHES)
    killed = opened.path.parent.with_name("killed")
    shutil.copytree(opened.path.parent, killed)
    log = killed / "messages.db-wal"
    assert wal.survey(str(log), opening.PAGE_SIZE).frames > 2
    flip(log, wal.HEADER + 100)
    with pytest.raises(StoreError, match=re.escape(f"{log} is damaged at offset")):
        online.backup(str(killed / "messages.db"), str(opened.copy), no_work)
    assert list(opened.copy.parent.iterdir()) == []


def test_a_damaged_database_is_not_copied(opened: Opened) -> None:
    opened.commit(BATCHES)
    body = b"of this one an octet is changed" * 10
    batch = insert(batch_of(BATCHES + 1), row(10_000, body=body))
    assert opened.reactor.commit(opened.store, batch) is None
    opened.reactor.close(opened.store)
    flip(opened.path, opened.path.read_bytes().index(body) + 7)
    with pytest.raises(StoreError, match=rf"{opened.path} is damaged at message 10000"):
        opened.back_up()
    assert list(opened.copy.parent.iterdir()) == []


def test_a_copy_is_put_back(opened: Opened, tmp_path: Path) -> None:
    opened.commit(BATCHES)
    opened.back_up()
    wanted = opened.history.after_restart()
    opened.commit(5)
    opened.reactor.close(opened.store)
    aside = tmp_path / "aside"
    _, moved = online.restore(str(opened.copy), str(opened.path), str(aside), no_work)
    assert moved
    assert (aside / "messages.db").exists()
    assert opened.found(opened.path) == wanted
    # Numbers that were given since are not given again.
    store = opened.made(opened.path)
    restored = store.open().next_seq
    opened.reactor.close(store)
    former = opened.made(aside / "messages.db")
    assert restored == former.open().next_seq
    opened.reactor.close(former)


def test_a_damaged_copy_leaves_the_store_as_it_is(opened: Opened, tmp_path: Path) -> None:
    opened.commit(BATCHES)
    opened.back_up()
    opened.reactor.close(opened.store)
    before = opened.path.read_bytes()
    with opened.copy.open("r+b") as file:
        file.seek(-50, os.SEEK_END)
        file.write(b"\x55" * 20)
    with pytest.raises(StoreError):
        online.restore(str(opened.copy), str(opened.path), str(tmp_path / "aside"), no_work)
    assert opened.path.read_bytes() == before
    assert [path.name for path in opened.path.parent.iterdir()] == ["messages.db"]
    assert not (tmp_path / "aside").exists()
