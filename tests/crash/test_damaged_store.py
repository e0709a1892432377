"""A real gateway over a store that was damaged: it refuses to start and says where, or stops what is damaged and goes on with the rest."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.client import Client, Refused, encode
from tests.gateway_process import INSTANCE, ROOT, GatewayFailed, GatewayProcess


def check(gateway: GatewayProcess) -> tuple[int, str]:
    """``imqdbmgr check``: exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.broker.dbmgr", "check", "--varhome", str(gateway.varhome), "--instance", INSTANCE],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def fill(gateway: GatewayProcess) -> Path:
    """Send 133 messages with RECEIPTs to one queue, a few to another. :returns: the database."""
    gateway.start()
    with Client(gateway.port) as client:
        for number in range(133):
            client.ask("SEND", {"destination": "/queue/orders", "persistent": "true"}, b"order %d." % number)
        for number in range(5):
            client.ask("SEND", {"destination": "/queue/bills", "persistent": "true"}, b"bill %d." % number)
    return gateway.directory / "store" / "messages.db"


def refused(gateway: GatewayProcess, *sentences: str) -> None:
    """It does not start, however often it is tried, and says why."""
    for _ in range(2):
        with pytest.raises(GatewayFailed) as error:
            gateway.start()
        assert "ended with 2 before it was ready" in str(error.value)
        for sentence in sentences:
            assert sentence in str(error.value)


def test_a_log_that_vanished_after_a_kill_is_missed(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    gateway.kill()
    log = database.with_name("messages.db-wal")
    assert log.stat().st_size
    log.unlink()
    refused(gateway, f"{log} is damaged at the whole file: it is missing", "imqdbmgr recover")
    code, said = check(gateway)
    assert code == 1
    assert f"{log} is damaged at the whole file" in said


@pytest.mark.parametrize("killed", [False, True])
def test_messages_of_a_missing_destination_are_not_deleted(tmp_path: Path, killed: bool) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    if killed:
        gateway.kill()
    else:
        gateway.terminate()
    other = sqlite3.connect(database)
    other.execute("DELETE FROM destination WHERE name = 'orders'")
    other.commit()
    other.close()
    # SQLite removes a log that it has copied back.
    database.with_name("messages.db-wal").touch()
    refused(gateway, f"{database} is damaged at ", "is missing" if killed else "table destination")
    code, said = check(gateway)
    assert code == 1
    assert "its destination, row " in said
    other = sqlite3.connect(database)
    assert other.execute("SELECT count(*) FROM message").fetchall() == [(138,)]
    other.close()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE destination SET kind = 0 WHERE name = 'prices'", "subscription "),
        ("UPDATE subscription SET destination = (SELECT id FROM destination WHERE name = 'orders')", "subscription "),
        ("UPDATE owed SET seq = (SELECT min(seq) FROM message)", "owed row of message "),
    ],
)
def test_a_row_that_contradicts_another_is_refused_after_a_crash(tmp_path: Path, change: str, found: str) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    with Client(gateway.port, headers={"client-id": "me"}) as client:
        client.ask("SUBSCRIBE", {"destination": "/topic/prices", "id": "1", "durable-subscriber-name": "d", "ack": "client"})
    with Client(gateway.port) as client:
        client.ask("SEND", {"destination": "/topic/prices", "persistent": "true"}, b"1")
    gateway.kill()
    other = sqlite3.connect(database)
    assert other.execute(change).rowcount == 1
    other.commit()
    other.close()
    # SQLite removes a log that it has copied back.
    database.with_name("messages.db-wal").touch()
    refused(gateway, f"{database} is damaged at {found}")
    code, said = check(gateway)
    assert code == 1
    assert f"is damaged at {found}" in said


def test_a_message_damaged_on_the_disk_stops_its_queue_only(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    gateway.terminate()
    # What SQLite has left of it on other pages, too.
    database.write_bytes(database.read_bytes().replace(b"order 7.", b"Order 7."))
    code, said = check(gateway)
    assert code == 1
    assert f"{database} is damaged at message 8: its checksum is wrong" in said
    with gateway:
        with Client(gateway.port) as client:
            client.ask("SUBSCRIBE", {"destination": "/queue/bills", "id": "1", "ack": "auto"})
            bills = [client.frame().body for _ in range(5)]
            assert bills == [b"bill %d." % number for number in range(5)]
        with Client(gateway.port) as client:
            client.write(encode("SUBSCRIBE", {"destination": "/queue/orders", "id": "1", "ack": "client"}))
            frames = list(client.rest())
            assert [frame.body for frame in frames[:-1]] == [b"order %d." % number for number in range(len(frames) - 1)]
            assert len(frames) <= 8
            assert (frames[-1].command, "/queue/orders is stopped" in str(frames[-1])) == ("ERROR", True)
        with Client(gateway.port) as client, pytest.raises(Refused, match="/queue/orders is stopped"):
            client.ask("SEND", {"destination": "/queue/orders", "persistent": "true"}, b"new")
        with Client(gateway.port) as client:
            client.ask("SEND", {"destination": "/queue/bills", "persistent": "true"}, b"bill 6.")
        gateway.wait_for_output(f"{database} is damaged at message 8")
        gateway.wait_for_output("queue:orders is stopped")
        assert gateway.terminate() == 0
    other = sqlite3.connect(database)
    assert other.execute("SELECT count(*) FROM message").fetchall() == [(134,)]
    other.close()
