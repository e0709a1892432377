"""A disk that was full has room again once it is empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.broker.store.interface import Batch, DestinationRow, Row, StoreFull
from gateway.broker.store.sqlite import SqliteStore
from tests.crash.test_disk import of_size
from tests.gateway.broker.store.harness import QueueReactor, batch_of

pytestmark = pytest.mark.process

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "store"
    with of_size(32 * MIB, folder):
        yield folder


def opened(folder: Path, reactor: QueueReactor) -> SqliteStore:
    store = SqliteStore(
        str(folder / "messages.db"),
        reactor.reactor,
        reserve_octets=8 * MIB,
        checkpoint_octets=MIB,
        idle_seconds=0.05,
    )
    store.open()
    return store


def insert(number: int, seq: int, octets: int) -> Batch:
    batch = batch_of(number, destinations=[DestinationRow(1, 0, "q", "")])
    batch.inserts[seq] = Row(seq, 1, 4, 0, octets, 1, b"head", bytes(octets))
    batch.octets = octets
    return batch


def test_an_empty_disk_has_room_although_a_large_batch_had_none(
    folder: Path, reactor: QueueReactor
) -> None:
    store = opened(folder, reactor)
    full: list[bool] = []
    store.on_full = full.append
    try:
        large = 14 * MIB
        assert store.largest > large, "it is taken"
        filled = folder / "of others"
        filled.write_bytes(bytes(20 * MIB))
        answers: list[object] = []
        store.submit(insert(1, 1, large), answers.append)
        reactor.until(lambda: bool(answers))
        assert isinstance(answers[0], StoreFull)
        assert full == [True]
        filled.unlink()
        reactor.until(lambda: full == [True, False])
        assert reactor.commit(store, insert(2, 1, large)) is None
    finally:
        reactor.close(store)


def test_a_batch_that_fits_into_the_log_only_does_not_take_what_deletes_need(
    folder: Path, reactor: QueueReactor
) -> None:
    store = opened(folder, reactor)
    assert reactor.commit(store, insert(1, 1, 1000)) is None
    with suppress(OSError), (folder / "of others").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))
    reactor.commit(store, insert(2, 2, 5 * MIB))
    reactor.close(store)
    again = opened(folder, reactor)
    batch = batch_of(1, deletes=[1])
    try:
        assert reactor.commit(again, batch) is None
    finally:
        reactor.close(again)
