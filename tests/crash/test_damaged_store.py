"""A real gateway over a store that was damaged: it refuses to start and says where, or stops what
is damaged and goes on with the rest.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client, Refused, encode
from tests.gateway_process import INSTANCE, ROOT, GatewayFailed, GatewayProcess


def check(gateway: GatewayProcess) -> tuple[int, str]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gateway.broker.operator.dbmgr",
            "check",
            "--varhome",
            str(gateway.varhome),
            "--instance",
            INSTANCE,
        ],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def fill(gateway: GatewayProcess) -> Path:
    """Send 133 messages with RECEIPTs to one queue, a few to another.

    :returns: the database.
    """
    gateway.start()
    with Client(gateway.port) as client:
        for number in range(133):
            client.ask(
                "SEND",
                {"destination": "/queue/orders", "persistent": "true"},
                b"order %d." % number,
            )
        for number in range(5):
            client.ask(
                "SEND", {"destination": "/queue/bills", "persistent": "true"}, b"bill %d." % number
            )
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
    refused(
        gateway,
        f"{database} is damaged at table destination",
        "missing" if killed else "when the store was closed",
    )
    code, said = check(gateway)
    assert code == 1
    assert "its destination, row " in said
    other = sqlite3.connect(database)
    assert other.execute("SELECT count(*) FROM message").fetchall() == [(138,)]
    other.close()


@pytest.fixture(scope="module")
def subscribed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Path]]:
    """A gateway that was killed, with queues and topics, some of them empty, and two durable
    subscriptions.

    The subscription ``prices`` is owed a message, ``news`` is owed none.

    :returns: the gateway, and a copy of its store, whose log was copied back.
    """
    gateway = GatewayProcess(tmp_path_factory.mktemp("subscribed"))
    try:
        database = fill(gateway)
        with Client(gateway.port, headers={"client-id": "me"}) as client:
            for number, topic in enumerate(("prices", "news")):
                headers = {
                    "destination": f"/topic/{topic}",
                    "id": f"{number}",
                    "durable-subscriber-name": topic,
                    "ack": "client",
                }
                client.ask("SUBSCRIBE", headers | {"selector": "urgent = 'yes'"})
        with Client(gateway.port) as client:
            client.ask(
                "SEND",
                {"destination": "/topic/prices", "persistent": "true", "urgent": "yes"},
                b"1",
            )
            client.ask("SEND", {"destination": "/queue/emptied", "persistent": "true"}, b"1")
            client.write(
                encode("SUBSCRIBE", {"destination": "/queue/emptied", "id": "1", "ack": "client"})
            )
            client.ask("ACK", {"id": client.frame().headers["ack"]})
        gateway.kill()
        other = sqlite3.connect(database)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        other.close()
        # SQLite removes a log that it has copied back.
        database.with_name("messages.db-wal").touch()
        copy = gateway.varhome / "copy"
        shutil.copytree(database.parent, copy)
        yield gateway, copy
    finally:
        gateway.kill()


def changed(
    subscribed: tuple[GatewayProcess, Path], change: str
) -> tuple[GatewayProcess, Path, bytes]:
    gateway, copy = subscribed
    gateway.kill()
    store = gateway.directory / "store"
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    database = store / "messages.db"
    other = sqlite3.connect(database)
    assert other.execute(change).rowcount == 1
    other.commit()
    other.close()
    database.with_name("messages.db-wal").touch()
    return gateway, database, database.read_bytes()


def row_id(copy: Path, table: str, name: str) -> int:
    other = sqlite3.connect(copy / "messages.db")
    ((number,),) = other.execute(f"SELECT id FROM {table} WHERE name = ?", (name,)).fetchall()
    other.close()
    # SQLite removes a log that it has copied back.
    (copy / "messages.db-wal").touch()
    return int(number)


@pytest.mark.parametrize(
    "assignment",
    ["id = 4711", "kind = 1", "name = 'others'", "properties = 'maxNumMsgs=1'", "administered = 2"],
)
def test_a_destination_changed_after_a_crash_is_refused(
    subscribed: tuple[GatewayProcess, Path], assignment: str
) -> None:
    gateway, database, octets = changed(
        subscribed, f"UPDATE destination SET {assignment} WHERE name = 'orders'"
    )
    number = 4711 if assignment == "id = 4711" else row_id(subscribed[1], "destination", "orders")
    place = f"{database} is damaged at destination {number}: its checksum is wrong"
    refused(gateway, place, "table destination")
    assert database.read_bytes() == octets, "nothing was deleted"
    code, said = check(gateway)
    assert (code, place in said) == (1, True)


@pytest.mark.parametrize(
    "assignment",
    [
        "id = 4711",
        "destination = (SELECT id FROM destination WHERE name = 'prices')",
        "client_id = 'you'",
        "name = 'other'",
        "selector = 'urgent IS NULL'",
        "no_local = 1",
    ],
)
def test_a_subscription_changed_after_a_crash_is_refused(
    subscribed: tuple[GatewayProcess, Path], assignment: str
) -> None:
    """Of one that is owed nothing, so that no other row refers to it."""
    gateway, database, octets = changed(
        subscribed, f"UPDATE subscription SET {assignment} WHERE name = 'news'"
    )
    number = 4711 if assignment == "id = 4711" else row_id(subscribed[1], "subscription", "news")
    place = f"{database} is damaged at subscription {number}: its checksum is wrong"
    refused(gateway, place, "table subscription")
    assert database.read_bytes() == octets
    code, said = check(gateway)
    assert (code, place in said) == (1, True)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("DELETE FROM subscription WHERE name = 'news'", "table subscription"),
        ("DELETE FROM subscription WHERE name = 'prices'", "table subscription"),
        ("DELETE FROM destination WHERE name = 'orders'", "table destination"),
        ("DELETE FROM destination WHERE name = 'news'", "table destination"),
        ("DELETE FROM destination WHERE name = 'emptied'", "table destination"),
        ("DELETE FROM meta WHERE key = 'subscriptions'", "table meta"),
        ("UPDATE meta SET value = value + 1 WHERE key = 'destinations'", "table destination"),
        ("UPDATE destination SET crc = 0 WHERE name = 'orders'", "destination 2"),
    ],
)
def test_a_row_lost_after_a_crash_is_refused(
    subscribed: tuple[GatewayProcess, Path], change: str, place: str
) -> None:
    gateway, database, octets = changed(subscribed, change)
    refused(gateway, f"{database} is damaged at {place}: ")
    assert database.read_bytes() == octets
    code, said = check(gateway)
    assert (code, f"{database} is damaged at {place}: " in said) == (1, True)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE destination SET kind = 0 WHERE name = 'prices'", "subscription "),
        (
            "UPDATE subscription SET destination = (SELECT id FROM destination WHERE name = 'orders') WHERE name = 'news'",
            "subscription ",
        ),
        ("UPDATE owed SET seq = (SELECT min(seq) FROM message)", "owed row of message "),
    ],
)
def test_a_row_that_contradicts_another_is_refused_after_a_crash(
    subscribed: tuple[GatewayProcess, Path], change: str, found: str
) -> None:
    gateway, database, _ = changed(subscribed, change)
    refused(gateway, f"{database} is damaged at ")
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
            client.write(
                encode("SUBSCRIBE", {"destination": "/queue/orders", "id": "1", "ack": "client"})
            )
            frames = list(client.rest())
            assert [frame.body for frame in frames[:-1]] == [
                b"order %d." % number for number in range(len(frames) - 1)
            ]
            assert len(frames) <= 8
            assert (frames[-1].command, "/queue/orders is stopped" in str(frames[-1])) == (
                "ERROR",
                True,
            )
        with (
            Client(gateway.port) as client,
            pytest.raises(Refused, match="/queue/orders is stopped"),
        ):
            client.ask("SEND", {"destination": "/queue/orders", "persistent": "true"}, b"new")
        with Client(gateway.port) as client:
            client.ask("SEND", {"destination": "/queue/bills", "persistent": "true"}, b"bill 6.")
        gateway.wait_for_output(f"{database} is damaged at message 8")
        gateway.wait_for_output("queue:orders is stopped")
        assert gateway.terminate() == 0
    other = sqlite3.connect(database)
    assert other.execute("SELECT count(*) FROM message").fetchall() == [(134,)]
    other.close()
