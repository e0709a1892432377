"""What a link's balance knows after a crash, by what is left on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from bridge.link.arrivals import Received
from bridge.link.balance import RESERVED, BalanceMarks, BalancesNotKept, UnderWay
from bridge.link.balance_mark import Fate
from bridge.link.balances import WRITE_S, Balances
from bridge.link.status import BalanceTerms
from bridge.link.transfer import Item, ToSend
from gateway.link_balances import MarksInFiles
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message
from tests.logged import recording

QUEUE = Queue("q")


class Disk:
    """What survives processes; the marks are in real files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boot = 1
        self.kept: Mapping[str, Any] = {}
        self.full = False
        #: Writes that are not over; None ends each at once.
        self.slow: list[Deferred[None]] | None = None

    def place(self, number: int) -> Path:
        """The file of the mark of that number."""
        return self.folder / f"a%2Fb%20%C3%9F.{number & 1}"

    def read(self) -> Mapping[str, Any]:
        return self.kept

    def write(self, balances: Mapping[str, Any]) -> Deferred[None]:
        if self.full:
            return fail(BalancesNotKept("the disk is full"))
        self.kept = balances
        if self.slow is not None:
            self.slow.append(Deferred())
            return self.slow[-1]
        return succeed(None)

    def marks(self, link: str) -> BalanceMarks:
        return MarksInFiles(self.folder, link)


class Process:
    """One process that has a link; it ends by a crash."""

    def __init__(self, disk: Disk) -> None:
        self.clock = Clock()
        log, self.said = recording()
        self.balances = Balances(self.clock, disk, lambda: 0, log)
        self.balance = self.balances.of("a/b ß")

    @property
    def terms(self) -> tuple[int, int, int, int, int]:
        found: BalanceTerms = self.balance.terms
        assert found.difference == found.lost
        return found.taken, found.out, found.in_doubt, found.held, found.possibly_twice

    def asks(self, *ids: str) -> tuple[list[Item], UnderWay]:
        items = batch(*ids)
        self.balance.taken([item.received for item in items])
        return items, self.balance.asking(items, Fate.OUT)

    def moves(self, *ids: str) -> None:
        items, under_way = self.asks(*ids)
        for item in items:
            item.sent = True
        self.balance.settled(items, len(items), under_way)


def batch(*ids: str) -> list[Item]:
    made = []
    for id in ids:
        message = Message(Headers(QUEUE), message_id=id)
        made.append(Item(Received(1, message), ToSend(message)))
    return made


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "balances")


def test_what_was_asked_for_is_in_doubt_until_the_link_runs(disk: Disk) -> None:
    process = Process(disk)
    process.moves("1", "2")
    process.asks("3", "4", "5")
    process = Process(disk)
    assert process.terms == (5, 2, 3, 0, 0)
    process.balance.recovered()
    assert process.terms == (5, 5, 0, 0, 0)


def test_what_comes_again_counts_once_also_after_another_crash(disk: Disk) -> None:
    Process(disk).asks("1", "2", "3")
    Process(disk).balance.recovered()
    process = Process(disk)
    process.moves("7")
    assert process.terms == (4, 4, 0, 0, 0)
    # The source had forgotten the first only.
    process.moves("2", "3")
    assert process.terms == (4, 4, 0, 0, 0)
    assert Process(disk).terms == (4, 2, 2, 0, 0)


def test_what_was_only_received_is_the_sources_again(disk: Disk) -> None:
    process = Process(disk)
    process.moves("1")
    process.balance.taken([item.received for item in batch("2", "3")])
    process.clock.advance(WRITE_S)
    assert process.terms == (3, 1, 0, 2, 0)
    assert Process(disk).terms == (1, 1, 0, 0, 0)


def test_what_may_be_twice_is_bounded_by_what_was_being_sent(disk: Disk) -> None:
    process = Process(disk)
    items = batch("1", "2", "3")
    process.balance.taken([item.received for item in items])
    process.balance.sending(3)
    process = Process(disk)
    assert process.terms == (0, 0, 0, 0, 3)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_torn_mark_leaves_the_one_before(part: float, disk: Disk) -> None:
    process = Process(disk)
    process.moves("1", "2")
    process.moves("3")
    newest = disk.place(process.balance.number)
    os.truncate(newest, int(newest.stat().st_size * part))
    process = Process(disk)
    process.balance.recovered()
    # The third had not been asked for, as far as is known: it comes again, or is moved anew.
    assert process.terms == (2, 2, 0, 0, 0)


def test_any_damaged_octet_of_a_mark_is_noticed(disk: Disk) -> None:
    process = Process(disk)
    process.moves("1", "2")
    process.moves("3")
    newest = disk.place(process.balance.number)
    whole = newest.read_bytes()
    for at in range(len(whole)):
        newest.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert Process(disk).terms[0] == 2, at


@pytest.mark.parametrize("lost", ["durable", "marks"])
def test_either_is_enough(lost: str, disk: Disk) -> None:
    process = Process(disk)
    process.moves("1", "2")
    process.clock.advance(WRITE_S)
    if lost == "durable":
        disk.kept = {}
    else:
        for mark in disk.folder.iterdir():
            mark.unlink()
    assert Process(disk).terms == (2, 2, 0, 0, 0)


def test_a_full_disk_is_told_once_and_the_link_goes_on(disk: Disk) -> None:
    process = Process(disk)
    disk.folder.mkdir()
    for place in range(2):
        os.symlink("/dev/full", disk.place(place))
    disk.full = True
    for number in range(2 * RESERVED):
        waiting = process.balance.room(10)
        assert waiting is None or waiting.called
        process.moves(str(number))
    assert process.terms == (2 * RESERVED, 2 * RESERVED, 0, 0, 0)
    assert sum("its marks cannot be kept" in line for line in map(str, process.said)) == 1


def test_a_machine_that_went_down_is_bounded_by_what_was_reserved(disk: Disk) -> None:
    process = Process(disk)
    assert process.balance.room(10) is not None
    assert process.balance.room(10) is None
    process.balance.sending(5)
    # A second is over, and what is durable has this.
    process.balance.taken([])
    process.clock.advance(1)
    for mark in disk.folder.iterdir():
        mark.unlink()
    disk.boot = 2
    process = Process(disk)
    assert process.terms == (0, 0, 0, 0, RESERVED)
    assert any("may lack up to" in line for line in map(str, process.said))


def test_no_more_is_moved_than_is_reserved(disk: Disk) -> None:
    process = Process(disk)
    disk.slow = []
    waiting = process.balance.room(10)
    assert waiting is not None
    assert not waiting.called
    disk.slow.pop(0).callback(None)
    assert waiting.called
    moved = 0
    while process.balance.room(10) is None:
        process.moves(*[str(moved + number) for number in range(10)])
        moved += 10
    assert moved == RESERVED
    # The next was asked for when half of it was used.
    assert len(disk.slow) == 1
    disk.slow.pop(0).callback(None)
    assert process.balance.room(10) is None


def test_a_stop_leaves_nothing_to_doubt(disk: Disk) -> None:
    process = Process(disk)
    process.moves("1")
    Deferred.fromCoroutine(process.balances.flush())
    disk.boot = 2
    process = Process(disk)
    assert process.terms == (1, 1, 0, 0, 0)
    assert not process.said


def test_a_stop_does_not_wait_for_a_full_disk(disk: Disk) -> None:
    process = Process(disk)
    disk.full = True
    process.moves("1")
    done = Deferred.fromCoroutine(process.balances.flush())
    assert done.called
    assert not process.clock.getDelayedCalls()
