"""One octet of a closed store is changed, anywhere: nothing wrong is ever delivered, and nothing is
lost without a word.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.broker.store.integrity import inspection, opening
from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    Row,
    StoreDamaged,
    StoreError,
    SubscriptionRow,
)
from gateway.broker.store.sqlite import SqliteStore
from gateway.broker.xa.branch import restored
from tests.gateway.broker.store.harness import Model, QueueReactor, insert

MESSAGES = 300
SEEDS = range(200)
PAGE = opening.PAGE_SIZE


def store_at(
    path: Path, reactor: QueueReactor, check_octets: int = 1 << 28, idle_seconds: float = 600
) -> SqliteStore:
    return SqliteStore(
        str(path),
        reactor.reactor,
        reserve_octets=0,
        check_octets=check_octets,
        idle_seconds=idle_seconds,
    )


def batches() -> list[Batch]:
    """Queues, a topic with two durable subscriptions, a prepared branch; some messages are deleted
    again, so that pages are free.
    """
    choose = random.Random(4)
    first, second = Batch(1), Batch(2)
    first.destinations = {
        1: DestinationRow(1, 0, "orders", "maxNumMsgs=5000"),
        2: DestinationRow(2, 0, "bills", ""),
        3: DestinationRow(3, 1, "prices", ""),
    }
    first.subscriptions = {
        1: SubscriptionRow(1, 3, "client", "one", "", 0),
        2: SubscriptionRow(2, 3, "client", "two", "colour = 'red'", 1),
    }
    for seq in range(1, MESSAGES + 101):
        destination = 1 + seq % 3
        head, body = choose.randbytes(60), choose.randbytes(choose.choice((0, 20, 800, 3000, 9000)))
        insert(first, Row(seq, destination, seq % 10, 0, len(head) + len(body), 1, head, body))
        if destination == 3:
            first.owed |= {(1, seq): None, (2, seq): None}
        if seq % 20 == 1:
            owner = 0 if destination != 3 else 1
            first.redeliveries[owner, seq] = RedeliveryRow(owner, seq, 2, 0)
        if seq % 15 == 0:
            first.duplicates[seq] = DuplicateRow(
                seq, destination, 1_700_000_000_000, b"id %d" % seq
            )
    first.branches[1] = BranchRow(
        1, 7, b"global", b"branch", 0, 5, "guest", struct.pack("<2I1q", 1, 0, 4)
    )
    first.reserved = MESSAGES + 1_000
    for seq in range(MESSAGES + 1, MESSAGES + 101):
        second.deletes[seq] = None
        if seq % 3 == 2:
            second.settled |= {(1, seq): None, (2, seq): None}
    return [first, second]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    path = tmp_path_factory.mktemp("sound") / "messages.db"
    reactor = QueueReactor()
    store = store_at(path, reactor)
    store.open()
    model = Model()
    for batch in batches():
        assert reactor.commit(store, batch) is None
        model.apply(batch)
    reactor.close(store)
    assert inspection.inspect(str(path), work) == inspection.Report([], MESSAGES, True)
    return path, model


def work(row: BranchRow) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    return restored(row)[1:]


def found_in(path: Path, model: Model, check_octets: int) -> list[StoreError]:
    """Open the store and read everything.

    What is delivered is right; what is not is named.

    :returns: what was said to be wrong.
    """
    reactor = QueueReactor()
    store = store_at(path, reactor, check_octets)
    expected = model.contents()
    try:
        recovered = store.open()
    except StoreError as error:
        return [error]
    try:
        try:
            index = [each for block in store.scan() for each in block]
            owed = [pair for block in store.scan_owed() for pair in block]
            redeliveries = [each for block in store.scan_redeliveries() for each in block]
            duplicates = [each for block in store.scan_duplicates() for each in block]
            branches = [each for block in store.scan_branches() for each in block]
        except StoreError as error:
            return [error]
        assert (index, owed) == (expected["index"], expected["owed"])
        assert (redeliveries, duplicates) == (expected["redeliveries"], expected["duplicates"])
        assert branches == expected["branches"]
        assert list(recovered.destinations) == expected["destinations"]
        assert list(recovered.subscriptions) == expected["subscriptions"]
        assert recovered.next_seq == MESSAGES + 1_000
        wrong: list[StoreError] = []
        for seq, right in sorted(model.rows.items()):
            rows = reactor.fetch(store, [seq])
            if isinstance(rows, StoreError):
                assert isinstance(rows, StoreDamaged)
                assert (rows.seq, rows.destination) == (seq, right.destination)
                wrong.append(rows)
            else:
                assert list(rows) == [right]
        return wrong
    finally:
        reactor.close(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check_octets", [1 << 28, PAGE], ids=["pages checked", "too large for that"]
)
def test_no_damage_of_one_octet_is_passed_over(
    sound: tuple[Path, Model], tmp_path: Path, check_octets: int
) -> None:
    original, model = sound
    path = tmp_path / "messages.db"
    octets = original.read_bytes()
    harmless = refused = 0
    for seed in SEEDS:
        choose = random.Random(seed)
        # Each third in the first pages, where the small tables are.
        place = choose.randrange(20 * PAGE if seed % 3 == 0 else len(octets))
        damaged = bytearray(octets)
        damaged[place] ^= choose.randrange(1, 256)
        path.write_bytes(damaged)
        checked = _inspected(path)
        wrong = found_in(path, model, check_octets)
        where = f"seed {seed}, offset {place}"
        for error in wrong:
            assert str(path) in str(error), where
        if wrong:
            assert checked, f"{where}: a gateway finds {wrong[0]}, and 'check' nothing"
            refused += 1
        elif not checked:
            harmless += 1
    assert refused > len(SEEDS) // 2
    assert harmless < len(SEEDS) // 2


def _inspected(path: Path) -> list[str]:
    try:
        return inspection.inspect(str(path), work).problems
    except StoreError as error:
        return [str(error)]


def test_the_check_in_the_background_finds_what_nobody_asks_for(
    sound: tuple[Path, Model], tmp_path: Path
) -> None:
    original, model = sound
    path = tmp_path / "messages.db"
    shutil.copy(original, path)
    octets = path.read_bytes()
    bodies = [row for row in model.rows.values() if len(row.body) == 800][3:5]
    damaged = bytearray(octets)
    for row in bodies:
        damaged[octets.index(row.body) + 400] ^= 1
    path.write_bytes(damaged)
    reactor = QueueReactor()
    store = store_at(path, reactor, idle_seconds=0.01)
    found: list[StoreDamaged] = []
    store.on_damaged = found.append
    store.open()
    # It begins with the first job.
    reactor.fetch(store, [1])
    reactor.until(lambda: len(found) == 2)
    assert [(error.path, error.place, error.destination) for error in found] == [
        (str(path), f"message {row.seq}", row.destination) for row in bodies
    ]
    reactor.close(store)


def test_the_check_goes_on_while_commits_never_end(
    sound: tuple[Path, Model], tmp_path: Path
) -> None:
    original, model = sound
    path = tmp_path / "messages.db"
    octets = bytearray(original.read_bytes())
    row = [row for row in model.rows.values() if len(row.body) == 800][-1]
    octets[bytes(octets).index(row.body) + 400] ^= 1
    path.write_bytes(octets)
    reactor = QueueReactor()
    store = store_at(path, reactor)
    found: list[StoreDamaged] = []
    store.on_damaged = found.append
    store.open()
    number = 10
    while not found:
        number += 1
        assert (
            reactor.commit(store, insert(Batch(number), row._replace(seq=10_000 + number))) is None
        )
    assert found[0].seq == row.seq
    reactor.close(store)
