"""The disk of the database is full, and another process takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import PATIENCE, Client, Frame, Gone, encode
from tests.crash.waiting import until
from tests.gateway.broker.store.processes import FullDisk
from tests.postgresql import Cluster
from tests.takeover.machines import Machine, Machines
from tests.takeover.test_takeover import create_tables

MIB: Final = 1 << 20
#: For the tables of the gateway, its reserve included.
SPACE: Final = 96 * MIB
QUEUE: Final = "/queue/filled"
BODY: Final = bytes(50_000)
#: Seconds without a RECEIPT after which a sender is taken to wait. The store looks for room once a
#: second.
SILENCE: Final = 3.5
SAID: Final = "persistent messages wait until"
ROOM: Final = "room again"


@pytest.fixture
def disk(postgresql_cluster: Cluster) -> FullDisk:
    return FullDisk(postgresql_cluster)


@pytest.fixture
def machines(disk: FullDisk, postgresql_cluster: Cluster, tmp_path: Path) -> Iterator[Machines]:
    """Two processes of a broker over a small disk."""
    url = postgresql_cluster.database()
    create_tables(url)
    disk.limit(SPACE)
    with Machines(tmp_path, url, "first", "second") as machines:
        yield machines


class Filler:
    """Sends one message after the other, each with a receipt, until no RECEIPT comes.

    :ivar sent: the number of the last, counted from 1.
    :ivar promised: the number of the last that got a RECEIPT.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._client = Client(machine.port)
        self.sent = self.promised = 0

    def fill(self) -> None:
        """Send until the store has no room and says so."""
        while not (self._receipt_missing() and self._is_full()):
            assert self.sent < 10_000, "the disk was never full"
            if self.sent == self.promised:
                self.sent += 1
                headers = {"destination": QUEUE, "persistent": "true", "receipt": f"{self.sent}"}
                self._client.write(encode("SEND", headers, b"%d " % self.sent + BODY))

    def _is_full(self) -> bool:
        log = self._machine.log
        return log.count(SAID) > log.count(ROOM)

    def _receipt_missing(self) -> bool:
        if self.sent == self.promised:
            return False
        self._client.socket.settimeout(SILENCE)
        try:
            self.answered()
        except TimeoutError:
            return True
        finally:
            self._client.socket.settimeout(PATIENCE)
        return False

    def answered(self) -> None:
        """Wait for the RECEIPT of the last."""
        frame = self._client.frame()
        assert frame.command == "RECEIPT", frame
        self.promised = int(frame.headers["receipt-id"])

    def ended(self) -> None:
        """Read what the socket still has after the gateway's end."""
        with suppress(Gone):
            while True:
                self.answered()

    def close(self) -> None:
        self._client.close()


class Taker:
    """Takes the filler's messages one by one, in order, each with a receipt.

    :ivar last: the number of the last.
    """

    def __init__(self, machine: Machine, last: int = 0) -> None:
        self._client = Client(machine.port)
        self.last = last
        self._early: list[Frame] = self._client.ask(
            "SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "client-individual"}
        )

    def take(self, last: int) -> None:
        """Take all up to that number."""
        while self.last < last:
            frame = self._early.pop(0) if self._early else self._client.message()
            number = int(frame.body[:8].split(b" ")[0])
            assert number == self.last + 1
            self._early += self._client.ask("ACK", {"id": frame.headers["ack"]})
            self.last = number

    def close(self) -> None:
        self._client.close()


def test_senders_wait_and_acknowledgements_are_confirmed(machines: Machines) -> None:
    owner = machines.owner
    filler = Filler(owner)
    filler.fill()
    waiting = filler.sent
    assert filler.promised == waiting - 1
    (standby,) = machines.standbys(owner)
    assert (owner.ready, standby.ready) == (True, False), machines.told()
    with Client(owner.port) as other:
        volatile = {"destination": "/queue/volatile", "persistent": "false"}
        other.ask("SEND", volatile, b"not for the disk")
    # What is taken gives room, and the sender's receipt comes.
    taker = Taker(owner)
    taker.take(waiting - 1)
    filler.answered()
    assert filler.promised == waiting
    taker.take(waiting)
    load = machines.load(30)
    load.wait_for_receipts(700)
    owner.kill()
    successor, _ = machines.until_taken_over(owner)
    machines.account(load, successor)
    assert machines.found > 0
    with Client(successor.port) as client:
        early = client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s"})
        early += client.store(QUEUE, b"the only one")
        assert (early or [client.message()])[0].body == b"the only one"
    filler.close()
    taker.close()


@pytest.mark.long
def test_another_process_takes_over_while_the_disk_is_full(
    machines: Machines, disk: FullDisk
) -> None:
    owner = machines.owner
    filler = Filler(owner)
    filler.fill()
    taker = Taker(owner)
    taker.take(5)
    owner.kill()
    filler.ended()
    successor, _ = machines.until_taken_over(owner)
    # It has all, confirms what is taken, and holds back what is sent.
    with Client(successor.port) as sender:
        until(lambda: "has no room" in successor.log, machines.told)
        headers = {"destination": "/queue/later", "persistent": "true", "receipt": "later"}
        sender.write(encode("SEND", headers, b"later"))
        second = Taker(successor, taker.last)
        second.take(10)
        sender.socket.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            pytest.fail(f"{sender.frame()}")
        sender.socket.settimeout(PATIENCE)
        disk.make_room()
        assert sender.frame().headers["receipt-id"] == "later"
    second.take(filler.promised)
    taker.close()
    second.close()
    owner.begin()
    load = machines.load(31)
    load.wait_for_receipts(300)
    successor.kill()
    machines.until_taken_over(successor)
    machines.account(load, owner)
    assert machines.found > 0
