"""Disks that fill up, fail or were damaged, below a real gateway: what clients see, what the
operator reads, and the exit code.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.crash.client import PATIENCE, Client, Frame, Refused, encode
from tests.crash.waiting import log_of, until, until_logged
from tests.gateway.broker.store.processes import build_faulty_disk
from tests.gateway_process import GatewayProcess

MIB = 1 << 20
QUEUE = "/queue/disk"
BODY = os.urandom(MIB // 2)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_faulty_disk(tmp_path_factory.mktemp("library"))


@pytest.fixture
def control(tmp_path: Path) -> Path:
    control = tmp_path / "control"
    control.write_text("")
    return control


def on_faulty_disk(tmp_path: Path, library: Path, control: Path) -> GatewayProcess:
    """A gateway whose store is on a disk that fails as ``control`` says."""
    gateway = GatewayProcess(tmp_path / "var")
    environment = dict(os.environ, LD_PRELOAD=str(library), FAULTY_DISK_CONTROL=str(control))
    environment["FAULTY_DISK"] = str(gateway.directory / "store")
    return GatewayProcess(tmp_path / "var", environment=environment)


@pytest.fixture(params=["preloaded", "tmpfs"])
def small_disk(
    request: pytest.FixtureRequest, tmp_path: Path, library: Path, control: Path
) -> Iterator[GatewayProcess]:
    """A gateway whose store has 160 MiB: enough for the reserve, and for the room that must be
    beside it before sends are taken again.
    """
    if request.param == "preloaded":
        control.write_text(f"space {160 * MIB}\n")
        with on_faulty_disk(tmp_path, library, control) as gateway:
            yield gateway
        return
    gateway = GatewayProcess(tmp_path / "var")
    with of_size(160 * MIB, gateway.directory / "store"), gateway:
        yield gateway


@contextmanager
def of_size(octets: int, folder: Path) -> Iterator[None]:
    """Make ``folder`` a file system of that size, which needs the rights of root."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={octets}", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("only who may mount a tmpfs can run this on a disk that is really full")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def send(client: Client, number: int, body: bytes = BODY) -> str:
    """SEND with a receipt. :returns: its id."""
    receipt = f"sent-{number}"
    headers = {"destination": QUEUE, "persistent": "true", "receipt": receipt}
    client.write(encode("SEND", headers, b"%d " % number + body))
    return receipt


def receipts(client: Client, seconds: float) -> list[str]:
    """Those that come before nothing has come for so many seconds."""
    found = []
    client.socket.settimeout(seconds)
    with suppress(TimeoutError):
        while True:
            found.append(client.frame().headers["receipt-id"])
    client.socket.settimeout(PATIENCE)
    return found


def take_all(client: Client) -> None:
    with suppress(OSError, EOFError):
        while client.socket.recv(1 << 20):
            pass


def answer(client: Client) -> str:
    """RECEIPT, or what an ERROR says."""
    frame = client.frame()
    return frame.command if frame.command != "ERROR" else frame.headers["message"]


def is_full(gateway: GatewayProcess) -> bool:
    """Whether the log says so: a disk that has room as soon as the store's log is shortened is not
    full for long.
    """
    log = log_of(gateway)
    return log.count("persistent messages wait until") > log.count("room again")


def cpu_seconds(gateway: GatewayProcess) -> float:
    fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_full_disk_delays_sends_takes_acknowledgements_and_goes_on(
    small_disk: GatewayProcess,
) -> None:
    gateway = small_disk
    with Client(gateway.port) as consumer, Client(gateway.port) as producer:
        consumer.ask(
            "SUBSCRIBE",
            {"destination": QUEUE, "id": "s", "ack": "client-individual", "prefetch-count": "5"},
        )
        sent = 0
        told: list[str] = []

        def full_or_told() -> bool:
            told.extend(receipts(producer, 0.1))
            return bool(told) or is_full(gateway)

        waits = False
        while not waits:
            told.clear()
            last = send(producer, sent)
            sent += 1
            assert sent < 1000, "the disk was never full"
            until(full_or_told, "no receipt")
            # The store may find room by itself when it looks, once a second.
            waits = not (told or receipts(producer, 3.5)) and is_full(gateway)
        rooms = log_of(gateway).count("room again")
        # Who sends nothing persistent goes on, and so do acknowledgements, from the reserve.
        with Client(gateway.port) as other:
            volatile = {"destination": "/queue/disk.volatile", "persistent": "false"}
            other.ask("SEND", volatile, b"not for the disk")
        early: list[Frame] = []
        for number in range(sent - 10):
            message = early.pop(0) if early else consumer.message()
            assert int(message.body[:8].split(b" ")[0]) == number
            early += consumer.ask("ACK", {"id": message.headers["ack"]})
        until_logged(gateway, "room again", rooms + 1)
        while producer.frame().headers["receipt-id"] != last:
            pass
        assert log_of(gateway).count("persistent messages wait until") == rooms + 1
    gateway.kill()
    gateway.start()
    with Client(gateway.port) as consumer:
        consumer.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "client"})
        found = [int(consumer.message().body[:8].split(b" ")[0]) for _ in range(10)]
        assert found == list(range(sent - 10, sent))


def test_a_disk_too_full_for_the_reserve_is_told_once_and_costs_nothing(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    folder = gateway.directory / "store"
    with of_size(160 * MIB, folder):
        filled = folder / "of others"
        with gateway, Client(gateway.port) as producer, Client(gateway.port) as consumer:
            producer.store(QUEUE, b"taken")
            consumer.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "client"})
            message = consumer.message()
            with suppress(OSError), filled.open("wb") as file:
                while True:
                    file.write(bytes(MIB))
            send(producer, 1, bytes(30 * MIB))
            assert producer.frame().headers["receipt-id"] == "sent-1", "the reserve serves it"
            until_logged(gateway, "the disk is full")
            send(producer, 2)
            with suppress(OSError), filled.open("ab") as file:
                while True:
                    file.write(bytes(4096))
            consumer.write(encode("ACK", {"id": message.headers["ack"], "receipt": "ack"}))
            (line,) = [
                line
                for line in log_of(gateway).splitlines()
                if "the disk is full" in line and "broker" in line
            ]
            assert " SEVERE " in line
            assert f"persistent messages wait until {folder} has {90 * MIB} bytes free" in line
            used, began = cpu_seconds(gateway), time.monotonic()
            assert receipts(producer, 3.0) == []
            used = cpu_seconds(gateway) - used
            assert used < 0.1 * (time.monotonic() - began), "it is busy with a disk that is full"
            filled.unlink()
            until_logged(gateway, "room again")
            assert producer.frame().headers["receipt-id"] == "sent-2"
            while consumer.frame().headers.get("receipt-id") != "ack":
                pass
            assert log_of(gateway).count("persistent messages wait until") == 1


def test_what_could_never_fit_is_refused(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    with of_size(100 * MIB, gateway.directory / "store"), gateway:
        with Client(gateway.port) as producer, pytest.raises(Refused, match="can hold") as refused:
            producer.store(QUEUE, bytes(20 * MIB))
        assert "the disk is full" not in log_of(gateway)
        assert str(gateway.directory) not in refused.value.frame.body.decode()
        with Client(gateway.port) as producer:
            producer.store(QUEUE, bytes(MIB))


@pytest.mark.parametrize(
    "fault", [f"fsync {errno.EIO}", f"fsync {errno.ENOSPC}", f"write {errno.EIO}"]
)
def test_a_failed_fsync_ends_the_process(
    fault: str, tmp_path: Path, library: Path, control: Path
) -> None:
    gateway = on_faulty_disk(tmp_path, library, control)
    with gateway:
        with Client(gateway.port) as bystander, Client(gateway.port) as client:
            for number in range(5):
                client.store(QUEUE, b"%d" % number)
            control.write_text(f"{fault}\n")
            client.write(
                encode(
                    "SEND",
                    {"destination": QUEUE, "persistent": "true", "receipt": "fatal"},
                    b"unsure",
                )
            )
            error = client.error()
            assert error.headers["receipt-id"] == "fatal"
            # What the store says is the operator's to read; clients get a number to ask about.
            incidents = []
            for told in (error, bystander.error()):
                found = re.fullmatch(
                    "the message store could not write, incident ([0-9a-f]+-[0-9]+)\n",
                    told.body.decode(),
                )
                assert found is not None, told
                assert told.headers["message"] == told.body.decode().strip()
                incidents.append(found[1])
        assert gateway.wait() == 3
        said = gateway.said.splitlines()
        assert said[-3].startswith("stomp-gateway"), said
        assert " SEVERE [gateway.broker.store.sqlite.SqliteStore] " in said[-2], said
        assert said[-1].startswith(
            f"the message store has failed: {gateway.directory / 'store' / 'messages.db'} cannot be written"
        )
        assert "the message store has failed" in log_of(gateway)
        for incident in incidents:
            assert re.search(
                f"incident {incident}: {re.escape(str(gateway.directory))}/store/messages.db cannot be written",
                gateway.log,
            )
        control.write_text("")
        gateway.start()
        with Client(gateway.port) as client:
            client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "auto"})
            client.send(QUEUE, b"the last")
            bodies = [client.message().body]
            while bodies[-1] != b"the last":
                bodies.append(client.message().body)
        assert [body for body in bodies if body != b"unsure"] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"the last",
        ]


@pytest.fixture
def killed(tmp_path: Path) -> GatewayProcess:
    """An instance whose gateway was killed, so that its log is full, with 200 messages."""
    gateway = GatewayProcess(tmp_path / "var")
    with gateway, Client(gateway.port) as client:
        for number in range(200):
            client.send(QUEUE, b"%d " % number + BODY[:3000])
        client.store(QUEUE, b"the last")
    return gateway


def refuses(gateway: GatewayProcess, file: str, *words: str) -> None:
    """It ends with 2, names file and place in one line, and leaves the files as they are."""
    store = gateway.directory / "store"
    before = {
        path.name: path.read_bytes() for path in store.iterdir() if path.name != "messages.reserve"
    }
    gateway.launch()
    assert gateway.wait() == 2
    lines = gateway.said.splitlines()
    assert len(lines) == 1, lines
    assert str(store / file) in lines[0]
    for word in words:
        assert word in lines[0], lines[0]
    assert {
        path.name: path.read_bytes() for path in store.iterdir() if path.name != "messages.reserve"
    } == before


def flip(path: Path, offset: int, count: int = 8) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        octets = file.read(count)
        assert len(octets) == count
        file.seek(offset)
        file.write(bytes(octet ^ 0xFF for octet in octets))


def test_a_damaged_log_is_refused(killed: GatewayProcess) -> None:
    log = killed.directory / "store" / "messages.db-wal"
    assert log.stat().st_size > 100_000
    flip(log, 50_000)
    refuses(killed, "messages.db-wal", "damaged", "offset")


def test_a_log_cut_short_by_the_loss_of_power_is_no_damage(killed: GatewayProcess) -> None:
    """The last commit is incomplete: it never got its RECEIPT.

    What was before it is there.
    """
    log = killed.directory / "store" / "messages.db-wal"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 100)
    with killed, Client(killed.port) as client:
        client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "auto"})
        client.store("/queue/disk.other", b"")


def test_a_damaged_database_is_refused(killed: GatewayProcess) -> None:
    killed.start()
    assert killed.terminate() == 0
    flip(killed.directory / "store" / "messages.db", 0, 16)
    refuses(killed, "messages.db", "not a message store")


def test_a_database_cut_short_is_refused(killed: GatewayProcess) -> None:
    killed.start()
    assert killed.terminate() == 0
    path = killed.directory / "store" / "messages.db"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)
    refuses(killed, "messages.db", "damaged", "offset")


def test_a_missing_database_beside_its_log_is_refused(killed: GatewayProcess) -> None:
    (killed.directory / "store" / "messages.db").unlink()
    refuses(killed, "messages.db", "missing")


def test_another_versions_store_is_refused(killed: GatewayProcess) -> None:
    killed.start()
    assert killed.terminate() == 0
    connection = sqlite3.connect(killed.directory / "store" / "messages.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    refuses(killed, "messages.db", "999", "version")


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    store = gateway.directory / "store"
    store.mkdir(parents=True)
    connection = sqlite3.connect(store / "messages.db")
    connection.execute("CREATE TABLE diary(day, text)")
    connection.commit()
    connection.close()
    gateway.launch()
    assert gateway.wait() == 2
    assert "not a message store" in gateway.said
    # An instance is there now; the store's file is what it was.
    assert sqlite3.connect(store / "messages.db").execute(
        "SELECT count(*) FROM diary"
    ).fetchone() == (0,)


def test_senders_whose_messages_fit_one_by_one_are_all_answered(tmp_path: Path) -> None:
    """What waits is stored together, so what would not fit beside it is refused."""
    gateway = GatewayProcess(tmp_path / "var")
    folder = gateway.directory / "store"
    filled = folder / "of others"
    with of_size(160 * MIB, folder), gateway, ExitStack() as stack:
        senders = [stack.enter_context(Client(gateway.port)) for _ in range(3)]
        with suppress(OSError), filled.open("wb") as file:
            while True:
                file.write(bytes(MIB))
        headers = {"destination": "/queue/big", "persistent": "true", "receipt": "big"}
        frame = encode("SEND", headers, bytes(55 * MIB))
        sending = [threading.Thread(target=sender.write, args=(frame,)) for sender in senders]
        for each in sending:
            each.start()
        for each in sending:
            each.join(PATIENCE)
        until_logged(gateway, "the disk is full")
        filled.unlink()
        consumer = stack.enter_context(Client(gateway.port))
        consumer.ask("SUBSCRIBE", {"destination": "/queue/big", "id": "s", "ack": "auto"})
        taking = threading.Thread(target=take_all, args=(consumer,))
        taking.start()
        answers = [answer(sender) for sender in senders]
        assert "RECEIPT" in answers
        others = [each for each in answers if each != "RECEIPT"]
        assert all("more than the disk can hold" in each for each in others), answers
