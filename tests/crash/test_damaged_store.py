"""A store that is damaged, or whose files are taken away from under a real gateway: it refuses to
start and says where, or stops what is damaged and goes on; and the ways out.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gateway import dbmgr
from tests.crash.client import PATIENCE, Client, Gone, Refused, encode
from tests.gateway_process import GatewayFailed, GatewayProcess


def imqdbmgr(gateway: GatewayProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on a gateway's instance; a question is answered with no."""
    instance = gateway.directory
    command = [
        sys.executable,
        "-m",
        "gateway.dbmgr",
        *words,
        "--varhome",
        str(gateway.varhome),
        "-i",
        instance.name,
    ]
    return subprocess.run(
        command, input="n\n", capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def found_damaged(gateway: GatewayProcess, place: str) -> None:
    """``imqdbmgr check`` finds damage there, in this process, as Python takes longer to start."""
    words = ("check", "--varhome", str(gateway.varhome), "-i", gateway.directory.name)
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = dbmgr.run(words)
    assert (status, err.getvalue()) == (1, "")
    assert place in out.getvalue()


def executed(database: Path, statement: str, *arguments: object) -> tuple[int, list[Any]]:
    """Change or read a store without its gateway.

    :returns: how many rows were changed, and those that were read.
    """
    with closing(sqlite3.connect(database)) as connection:
        cursor = connection.execute(statement, arguments)
        rows = cursor.fetchall()
        connection.commit()
    # SQLite removes a log that it has copied back.
    database.with_name("messages.db-wal").touch()
    return cursor.rowcount, rows


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
    found_damaged(gateway, f"{log} is damaged at the whole file")


@pytest.mark.parametrize("killed", [False, True])
def test_messages_of_a_missing_destination_are_not_deleted(tmp_path: Path, killed: bool) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    if killed:
        gateway.kill()
    else:
        gateway.terminate()
    executed(database, "DELETE FROM destination WHERE name = 'orders'")
    refused(
        gateway,
        f"{database} is damaged at table destination",
        "missing" if killed else "when the store was closed",
    )
    found_damaged(gateway, "its destination, row ")
    assert executed(database, "SELECT count(*) FROM message")[1] == [(138,)]


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
        executed(database, "PRAGMA wal_checkpoint(TRUNCATE)")
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
    assert executed(database, change)[0] == 1
    return gateway, database, database.read_bytes()


def row_id(copy: Path, table: str, name: str) -> int:
    statement = f"SELECT id FROM {table} WHERE name = ?"
    _, ((number,),) = executed(copy / "messages.db", statement, name)
    return int(number)


@pytest.mark.parametrize(
    ("table", "name", "assignment"),
    [
        ("destination", "orders", "id = 4711"),
        ("destination", "orders", "kind = 1"),
        ("destination", "orders", "name = 'others'"),
        ("destination", "orders", "properties = 'maxNumMsgs=1'"),
        ("destination", "orders", "administered = 2"),
        # Of one that is owed nothing, so that no other row refers to it.
        ("subscription", "news", "id = 4711"),
        (
            "subscription",
            "news",
            "destination = (SELECT id FROM destination WHERE name = 'prices')",
        ),
        ("subscription", "news", "client_id = 'you'"),
        ("subscription", "news", "name = 'other'"),
        ("subscription", "news", "selector = 'urgent IS NULL'"),
        ("subscription", "news", "no_local = 1"),
    ],
)
def test_a_row_changed_after_a_crash_is_refused(
    subscribed: tuple[GatewayProcess, Path], table: str, name: str, assignment: str
) -> None:
    gateway, database, octets = changed(
        subscribed, f"UPDATE {table} SET {assignment} WHERE name = '{name}'"
    )
    number = 4711 if assignment == "id = 4711" else row_id(subscribed[1], table, name)
    place = f"{database} is damaged at {table} {number}: its checksum is wrong"
    refused(gateway, place, f"table {table}")
    assert database.read_bytes() == octets, "nothing was deleted"
    found_damaged(gateway, place)


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
    found_damaged(gateway, f"{database} is damaged at {place}: ")


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
    found_damaged(gateway, f"is damaged at {found}")


def test_a_message_damaged_on_the_disk_stops_its_queue_only(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    database = fill(gateway)
    gateway.terminate()
    # What SQLite has left of it on other pages, too.
    database.write_bytes(database.read_bytes().replace(b"order 7.", b"Order 7."))
    found_damaged(gateway, f"{database} is damaged at message 8: its checksum is wrong")
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
    assert executed(database, "SELECT count(*) FROM message")[1] == [(134,)]


# --- files that are taken away, stopped or running


QUEUE = "/queue/lost"


@pytest.fixture
def filled(tmp_path: Path) -> GatewayProcess:
    gateway = GatewayProcess(tmp_path / "var")
    with gateway:
        with Client(gateway.port) as client:
            client.store(QUEUE, b"kept")
        assert gateway.terminate() == 0
    return gateway


def taken(gateway: GatewayProcess) -> list[bytes]:
    with gateway, Client(gateway.port) as client:
        client.store(QUEUE, b"the last")
        client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "client"})
        bodies = [client.message().body]
        while bodies[-1] != b"the last":
            bodies.append(client.message().body)
        return bodies[:-1]


def refused_in_a_line(gateway: GatewayProcess, *words: str) -> None:
    gateway.launch()
    assert gateway.wait() == 2, gateway.said
    (line,) = gateway.said.splitlines()
    for word in words:
        assert word in line, line


@pytest.mark.parametrize("lost", ["file", "folder", "content of the folder"])
def test_a_store_that_is_gone_is_refused_until_it_is_put_back(
    filled: GatewayProcess, lost: str, tmp_path: Path
) -> None:
    store = filled.directory / "store"
    database = store / "messages.db"
    aside = tmp_path / "aside"
    what = database if lost == "file" else store
    what.rename(aside)
    if lost == "content of the folder":
        store.mkdir()
    refused_in_a_line(
        filled, f"{database} is missing", "put it back", "restore a backup", "'imqdbmgr recreate'"
    )
    assert not database.exists()
    if lost == "content of the folder":
        store.rmdir()
    aside.rename(what)
    assert taken(filled) == [b"kept"]


def test_a_new_store_is_made_by_command_and_the_old_one_kept(filled: GatewayProcess) -> None:
    store = filled.directory / "store"
    kept = (store / "messages.db").read_bytes()
    no = imqdbmgr(filled, "recreate")
    assert no.returncode == 1
    assert no.stderr.endswith("imqdbmgr: aborted; nothing was changed\n")
    assert (store / "messages.db").read_bytes() == kept
    done = imqdbmgr(filled, "recreate", "-f")
    assert (done.returncode, done.stderr) == (0, "")
    aside = Path(done.stdout.split()[-1])
    assert aside.parent == filled.directory
    assert (aside / "messages.db").read_bytes() == kept
    assert taken(filled) == []


@pytest.mark.parametrize("lost", ["file", "folder"])
def test_a_new_store_is_made_by_command_where_the_old_one_is_gone(
    filled: GatewayProcess, lost: str
) -> None:
    store = filled.directory / "store"
    if lost == "file":
        (store / "messages.db").unlink()
    else:
        shutil.rmtree(store)
    done = imqdbmgr(filled, "recreate", "-f")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store / 'messages.db'} is an empty store.\n"
    assert taken(filled) == []


def test_no_instance_is_made_by_a_command_for_its_store(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    done = imqdbmgr(gateway, "recreate", "-f")
    assert (done.returncode, done.stderr) == (1, f"imqdbmgr: {gateway.directory} is no instance\n")
    assert not gateway.directory.exists()


def test_without_a_store_on_disk_none_is_missed(filled: GatewayProcess) -> None:
    shutil.rmtree(filled.directory / "store")
    gateway = GatewayProcess(filled.varhome, store="memory")
    assert taken(gateway) == []


@pytest.mark.parametrize(
    ("how", "after"),
    [
        # A log that is removed is copied into the database at the end, so SIGTERM loses nothing.
        ("log removed", "send"),
        *(
            (how, after)
            for how in ("removed", "replaced", "folder removed", "instance removed")
            for after in ("send", "SIGTERM")
        ),
    ],
)
def test_a_store_that_is_lost_while_in_use_ends_the_process(
    tmp_path: Path, how: str, after: str
) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    database = gateway.directory / "store" / "messages.db"
    log = database.with_name("messages.db-wal")
    lost = log if how == "log removed" else database
    with gateway, Client(gateway.port) as client:
        client.store(QUEUE, b"before")
        if how == "replaced":
            copy = database.with_name("copy")
            shutil.copy(database, copy)
            copy.rename(database)
        elif how == "folder removed":
            shutil.rmtree(database.parent)
        elif how == "instance removed":
            shutil.rmtree(gateway.directory)
        else:
            lost.unlink()
        if after == "SIGTERM":
            os.kill(gateway.pid, signal.SIGTERM)
        else:
            # It may just have been looked at; then this one is taken, and the next idle moment
            # finds it.
            with suppress(Refused, Gone):
                client.store(QUEUE, b"after")
        assert gateway.wait() == 3, gateway.said
    said = gateway.said
    assert (
        f"the message store has failed: {lost} was {'replaced' if how == 'replaced' else 'removed'} while it was in use"
        in said
    )
    assert "Traceback" not in said


def test_what_a_removed_log_held_is_in_the_database(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    log = gateway.directory / "store" / "messages.db-wal"
    with gateway, Client(gateway.port) as client:
        client.store(QUEUE, b"before")
        log.unlink()
        with suppress(Refused, Gone):
            client.store(QUEUE, b"after")
        assert gateway.wait() == 3, gateway.said
    refused_in_a_line(
        gateway, f"{log} is damaged at the whole file: it is missing", "'imqdbmgr recover'"
    )
    assert imqdbmgr(gateway, "recover", "-f").returncode == 0
    assert taken(gateway)[0] == b"before"


def test_after_a_crash_only_what_is_known_is_said(tmp_path: Path) -> None:
    """A log that was shortened at the end of a commit is one that a crash may leave."""
    gateway = GatewayProcess(tmp_path / "var")
    log = gateway.directory / "store" / "messages.db-wal"
    with gateway, Client(gateway.port) as client:
        for number in range(10):
            client.store(QUEUE, b"%d" % number)
        gateway.kill()
    os.truncate(log, 0)
    said = imqdbmgr(gateway, "check").stdout
    assert "It was not closed in order" in said
    assert f"{log} has 0 frames up to its last commit; whether it had more cannot be known" in said
    with gateway:
        gateway.wait_for_output("did not end in order")
        assert "what had a RECEIPT is here" not in gateway.log
        assert f"{log} has 0 frames up to its last commit, in 0 bytes" in gateway.log


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("store/messages.reserve", ("is not a file", "remove it")),
        ("etc/gateway.properties", ("Is a directory",)),
    ],
)
def test_a_directory_in_place_of_a_file_is_named(
    filled: GatewayProcess, name: str, words: tuple[str, ...]
) -> None:
    file = filled.directory / name
    file.unlink()
    file.mkdir()
    refused_in_a_line(filled, str(file), *words)
    assert ".tmp" not in filled.said
    assert "messages.db" not in filled.said
