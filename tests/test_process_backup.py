"""``imqdbmgr backup`` beside a working gateway, and ``restore``."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import Client
from tests.gateway_process import INSTANCE, ROOT, GatewayProcess

pytestmark = pytest.mark.process

QUEUE: Final = "/queue/backup"
#: Long enough that the log is copied back a few times a second.
BODY: Final = bytes(20_000)


def imqdbmgr(gateway: GatewayProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "gateway.dbmgr", *words),
            *("-varhome", str(gateway.varhome), "-i", INSTANCE),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


class Sender(threading.Thread):
    """Sends one message after the other, each with a receipt.

    :attr:`stored` counts those whose RECEIPT has come.
    """

    def __init__(self, port: int, queue: str) -> None:
        super().__init__(daemon=True)
        self.stored = 0
        self.over = threading.Event()
        self._port = port
        self._queue = queue

    def run(self) -> None:
        with Client(self._port) as client:
            while not self.over.is_set():
                client.store(self._queue, b"%d " % self.stored + BODY)
                self.stored += 1


def numbers(port: int, queue: str, count: int) -> Iterator[int]:
    """The numbers of that many messages of a sender, as they come."""
    with Client(port) as client:
        client.ask("SUBSCRIBE", {"id": "1", "destination": queue, "ack": "auto"})
        for _ in range(count):
            yield int(client.message().body.split(b" ")[0])


def test_a_backup_of_a_gateway_that_works_is_restored(tmp_path: Path) -> None:
    queues = [f"{QUEUE}/{number}" for number in range(3)]
    folder = tmp_path / "backup"
    with GatewayProcess(tmp_path / "var") as gateway:
        senders = [Sender(gateway.port, queue) for queue in queues]
        for sender in senders:
            sender.start()
        while min(sender.stored for sender in senders) < 100:
            senders[0].join(0.05)
        least = [sender.stored for sender in senders]
        done = imqdbmgr(gateway, "backup", "-dir", str(folder))
        most = [sender.stored + 1 for sender in senders]
        assert (done.returncode, done.stderr) == (0, "")
        for sender in senders:
            sender.over.set()
            sender.join()
        # While it runs nothing is put back.
        refused = imqdbmgr(gateway, "restore", "-dir", str(folder), "-f")
        assert refused.returncode == 1
        assert "the instance is in use by process" in refused.stderr
        assert gateway.terminate() == 0

        done = imqdbmgr(gateway, "restore", "-dir", str(folder), "-f")
        assert (done.returncode, done.stderr) == (0, "")
        count = int(done.stdout.partition(" messages.")[0].rpartition(" ")[2])
        gateway.start()
        found = 0
        for queue, lower, upper in zip(queues, least, most, strict=True):
            # All that was confirmed before it began, and of the rest no gap.
            got = list(numbers(gateway.port, queue, lower))
            assert got == list(range(lower))
            found += len(got)
            assert lower <= upper
        assert found <= count <= sum(most)
        assert gateway.terminate() == 0


def test_a_restore_asks(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "var") as gateway:
        with Client(gateway.port) as client:
            client.store(QUEUE, b"kept")
        assert imqdbmgr(gateway, "backup", "tbl", "-dir", str(tmp_path / "backup")).returncode == 0
        assert gateway.terminate() == 0
        before = (gateway.directory / "store" / "messages.db").read_bytes()
        done = imqdbmgr(gateway, "restore", "tbl", "-dir", str(tmp_path / "backup"))
        assert done.returncode == 1
        assert "aborted; nothing was changed" in done.stderr
        assert (gateway.directory / "store" / "messages.db").read_bytes() == before
        own = imqdbmgr(gateway, "backup", "-dir", str(gateway.directory / "store"))
        assert "is the store itself; give another folder" in own.stderr
        missing = imqdbmgr(gateway, "restore", "-f", "-dir", str(tmp_path / "nowhere"))
        assert missing.stderr.endswith("nowhere/messages.db does not exist\n")
