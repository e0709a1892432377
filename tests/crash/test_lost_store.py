"""A store whose files are taken away from under a real gateway, stopped or running: what it says,
its exit code, and the ways out.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.client import PATIENCE, Client, Gone, Refused
from tests.gateway_process import GatewayProcess

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


def refused(gateway: GatewayProcess, *words: str) -> None:
    gateway.launch()
    assert gateway.wait() == 2, gateway.said
    (line,) = gateway.said.splitlines()
    for word in words:
        assert word in line, line


def imqdbmgr(gateway: GatewayProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on a gateway's instance; a question is answered with no."""
    instance = gateway.directory
    command = [
        sys.executable,
        "-m",
        "gateway.broker.operator.dbmgr",
        *words,
        "--varhome",
        str(gateway.varhome),
        "-i",
        instance.name,
    ]
    return subprocess.run(
        command, input="n\n", capture_output=True, text=True, timeout=PATIENCE, check=False
    )


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
    refused(
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
    refused(gateway, f"{log} is damaged at the whole file: it is missing", "'imqdbmgr recover'")
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
    refused(filled, str(file), *words)
    assert ".tmp" not in filled.said
    assert "messages.db" not in filled.said
