"""The gateway as a process: how it starts, is refused, reloads and ends, by the signals, exit codes
and lines that an operator sees.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.client import PATIENCE, Client, Gone, Refused, encode
from tests.crash.waiting import log_of, reload, until, until_logged
from tests.gateway_process import COMMAND, HOST, ROOT, Certificates, GatewayProcess, free_port

pytestmark = pytest.mark.process

QUEUE = "/queue/process"
TWISTD = Path(sys.executable).with_name("twistd")


def commanded(varhome: Path, **options: Any) -> GatewayProcess:
    """A gateway that is started as its users start it: one of each kind of start is, the others
    are forked.
    """
    return GatewayProcess(varhome, command=COMMAND, **options)


def stopped(varhome: Path, **options: Any) -> GatewayProcess:
    """A gateway that has an instance, and was ended in order."""
    gateway = GatewayProcess(varhome, **options)
    gateway.start()
    assert gateway.terminate() == 0
    return gateway


@contextmanager
def occupied(port: int) -> Iterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, port))
        taken.listen()
        yield


def files_below(directory: Path) -> set[str]:
    return (
        {str(path.relative_to(directory)) for path in directory.rglob("*")}
        if directory.exists()
        else set()
    )


# A process that does not run for a while.


@contextmanager
def beating(clients: Sequence[Client]) -> Iterator[threading.Event]:
    """Have a thread send an octet for each client four times a second.

    The list may grow meanwhile. The event is never set: to wait for it is to wait.
    """
    over, never = threading.Event(), threading.Event()

    def beat() -> None:
        while not over.wait(0.25):
            for client in tuple(clients):
                client.write(b"\n")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield never
    finally:
        over.set()
        thread.join()


def test_clients_that_keep_their_promise_outlast_a_pause_of_the_process(tmp_path: Path) -> None:
    """What they send meanwhile lies in their sockets; the gateway reads it before it calls any of
    them silent.

    They promise an octet each three seconds, and may be silent for six, as a thread of a busy
    machine may have to wait.
    """
    clients: list[Client] = []
    with GatewayProcess(tmp_path) as gateway, ExitStack() as stack, beating(clients) as never:
        while len(clients) < 20:
            client = Client(gateway.port, headers={"heart-beat": "3000,0"})
            clients.append(stack.enter_context(client))
        for pause in (7, 13):
            gateway.signal(signal.SIGSTOP)
            try:
                never.wait(pause)
            finally:
                gateway.signal(signal.SIGCONT)
            for client in clients:
                client.store(QUEUE, b"still here")
        assert "is dropped" not in log_of(gateway)


# Clients that close their half of the connection.


def answers_after(gateway: GatewayProcess, frames: bytes, *, pipelined: bool) -> list[bytes]:
    """The commands that a client gets which closes its half of the connection behind its last
    frame.
    """
    hello = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0"
    answers = b""
    with socket.create_connection((HOST, gateway.port), PATIENCE) as client:
        client.sendall(hello)
        if not pipelined:
            answers = client.recv(65536)
        client.sendall(frames)
        client.shutdown(socket.SHUT_WR)
        while octets := client.recv(65536):
            answers += octets
    return [
        line.strip(b"\0")
        for line in answers.split(b"\n")
        if line.strip(b"\0") in (b"CONNECTED", b"RECEIPT", b"ERROR")
    ]


def test_a_client_that_sends_no_more_gets_its_answers(tmp_path: Path) -> None:
    sends = b"".join(
        [
            encode("SEND", {"destination": QUEUE, "receipt": f"r{number}"}, b"x")
            for number in range(5)
        ]
    )
    goodbye = encode("DISCONNECT", {"receipt": "bye"})
    answers = [b"CONNECTED", *[b"RECEIPT"] * 5]
    with GatewayProcess(tmp_path) as gateway:
        for pipelined in (False, True):
            assert answers_after(gateway, sends, pipelined=pipelined) == answers
            assert answers_after(gateway, sends + goodbye, pipelined=pipelined) == [
                *answers,
                b"RECEIPT",
            ]
            assert answers_after(gateway, sends + b"NONSENSE\n\n\0", pipelined=pipelined) == [
                *answers,
                b"ERROR",
            ]
        with Client(gateway.port) as consumer:
            consumer.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "auto"})
            assert [consumer.message().body for _ in range(30)] == [b"x"] * 30


def test_what_a_client_has_not_acknowledged_goes_back_when_it_sends_no_more(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path) as gateway,
        Client(gateway.port) as client,
        Client(gateway.port) as other,
    ):
        client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client"})
        if not client.store(QUEUE, b"a"):
            client.message()
        client.write(encode("SEND", {"destination": QUEUE, "receipt": "r"}, b"b"))
        client.socket.shutdown(socket.SHUT_WR)
        other.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "auto"})
        assert sorted([other.message().body for _ in range(2)]) == [b"a", b"b"]


# The end.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_under_load(number: signal.Signals, tmp_path: Path) -> None:
    """Clients get an ERROR, what got a RECEIPT is there at the next start, the exit code is 0, and
    it takes no more than ten seconds.
    """
    promised: list[int] = []
    told: list[str] = []

    def produce(gateway: GatewayProcess, half: int) -> None:
        with Client(gateway.port) as client:
            sent = half
            try:
                while True:
                    client.store(QUEUE, b"%d" % sent)
                    promised.append(sent)
                    sent += 2
            except Refused as refused:
                told.append(refused.frame.headers["message"])
            except Gone:
                pass

    gateway = commanded(tmp_path)
    with gateway:
        threads = [threading.Thread(target=produce, args=(gateway, half)) for half in (0, 1)]
        for thread in threads:
            thread.start()
        with Client(gateway.port, receive_buffer=4096) as paused, Client(gateway.port) as idle:
            # One who reads nothing holds nothing up.
            paused.write(
                encode(
                    "SUBSCRIBE",
                    {"destination": "/queue/process.paused", "id": "1", "ack": "client"},
                )
            )
            for _ in range(2000):
                idle.send("/queue/process.paused", b"x" * 2000)
            idle.ask("BEGIN", {"transaction": "t"})
            idle.send("/queue/process.transaction", b"never committed", transaction="t")
            until(lambda: len(promised) > 100, lambda: f"only {len(promised)} were received")
            began = time.monotonic()
            gateway.signal(number)
            error = idle.error()
            assert "stop" in error.headers["message"]
            assert gateway.wait(60) == 0, gateway.said
            # Ten seconds are promised to an idle machine; this one may be busy.
            assert time.monotonic() - began < 30
        for thread in threads:
            thread.join(PATIENCE)
    assert any("stop" in message for message in told), told
    assert "Traceback" not in log_of(gateway)
    with gateway, Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "auto"})
        client.send(QUEUE, b"end")
        found = []
        while (body := client.message().body) != b"end":
            found.append(int(body))
        assert set(promised) <= set(found)
        assert len(found) == len(set(found))
        for half in (0, 1):
            mine = [number for number in found if number % 2 == half]
            assert mine == sorted(mine)
        client.ask(
            "SUBSCRIBE", {"destination": "/queue/process.transaction", "id": "2", "ack": "auto"}
        )
        client.send("/queue/process.transaction", b"end")
        assert client.message().body == b"end"


def test_it_can_be_ended_twice_while_it_ends(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway, Client(gateway.port):
        gateway.signal(signal.SIGTERM)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0, gateway.said


def test_signals_while_it_ends_change_nothing(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path) as gateway,
        Client(gateway.port, receive_buffer=4096) as paused,
        Client(gateway.port) as idle,
    ):
        # One who reads nothing makes the end last for a while.
        paused.write(encode("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client"}))
        for _ in range(2000):
            idle.send(QUEUE, b"x" * 2000, persistent="false")
        idle.store(QUEUE, b"x")
        gateway.signal(signal.SIGTERM)
        idle.error()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            gateway.signal(number)
        assert gateway.wait(60) == 0, gateway.said
        for text in (gateway.said, gateway.log):
            assert "Traceback" not in text, text
            assert "ReactorNotRunning" not in text, text


def test_the_text_of_all_logs_is_at_hand_for_failed_tests(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        until_logged(gateway, "is ready")
        assert "is ready" in gateway.log
        assert "STOMP bridge started" in gateway.log


def test_a_gateway_that_is_ready_prepares_for_selectors_by_itself(tmp_path: Path) -> None:
    script = """
from twisted.internet import reactor
from gateway.messaging.selector import grammar

def look():
    if grammar._parser.cache_info().currsize:
        print("selectors are prepared", flush=True)
    else:
        reactor.callLater(0.02, look)

reactor.callWhenRunning(look)
from gateway.command import main
main()
"""
    with GatewayProcess(tmp_path / "var", command=(sys.executable, "-c", script)) as gateway:
        gateway.wait_for_output("is ready")
        gateway.wait_for_output("selectors are prepared")


def test_ports_and_files_are_let_go(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    for _ in range(2):
        with gateway, Client(gateway.port) as client:
            client.store(QUEUE, b"x")
            assert gateway.terminate() == 0
        assert (gateway.directory / "lock").read_bytes() == b""
        # Closed in order, its log is empty.
        wal = gateway.directory / "store" / "messages.db-wal"
        assert not wal.exists() or not wal.stat().st_size


# Reload.


def run(*words: str | Path, input: str | None = None) -> None:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        input=input,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def usermgr(gateway: GatewayProcess, command: str, *words: str | Path) -> None:
    place = ("-varhome", gateway.varhome, "--instance", gateway.directory.name)
    run("-m", "gateway.broker.security.usermgr", command, *place, "-u", "alice", *words)


def add_alice(gateway: GatewayProcess, folder: Path) -> None:
    """Add the user alice, whose password is ``secret``."""
    passwords = folder / "passwords"
    passwords.write_text("imq.imqusermgr.password=secret\n")
    passwords.chmod(0o600)
    usermgr(gateway, "add", "-passfile", passwords)


def test_a_reload_keeps_connections_and_takes_users_and_rules(tmp_path: Path) -> None:
    with commanded(tmp_path / "var") as gateway, Client(gateway.port) as guest:
        guest.store("/queue/process.secret", b"allowed")
        with pytest.raises(Refused):
            Client(gateway.port, login="alice", passcode="secret")
        add_alice(gateway, tmp_path)
        rules = gateway.directory / "etc" / "accesscontrol.properties"
        kept = rules.read_text()
        rules.write_text(kept + "queue.process.secret.produce.deny.user=guest\n")
        reload(gateway, "log files were reopened")
        with Client(gateway.port, login="alice", passcode="secret") as alice:
            alice.store("/queue/process.secret", b"x")
            # The connection from before is there, and the new rules are its own, too.
            guest.store(QUEUE, b"x")
            with pytest.raises(Refused) as refused:
                guest.store("/queue/process.secret", b"x")
            assert "guest" in refused.value.frame.headers["message"]
            # What cannot be used leaves what was.
            rules.write_text(kept + "queue.nonsense\n")
            reload(gateway, "access rules stay as they were")
            assert str(rules) in log_of(gateway)
            alice.store("/queue/process.secret", b"x")
            with Client(gateway.port) as again, pytest.raises(Refused):
                again.store("/queue/process.secret", b"x")
        usermgr(gateway, "delete", "-f")
        reload(gateway, "log files were reopened", 3)
        with pytest.raises(Refused):
            Client(gateway.port, login="alice", passcode="secret")


@pytest.mark.parametrize("command", [("delete", "-f"), ("update", "-a", "false")])
def test_a_user_who_is_one_no_more_is_disconnected_by_a_reload_and_nobody_else_is(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    with GatewayProcess(tmp_path / "var") as gateway:
        add_alice(gateway, tmp_path)
        reload(gateway, "users were read again")
        with (
            Client(gateway.port) as guest,
            Client(gateway.port, login="alice", passcode="secret") as alice,
        ):
            alice.ask("BEGIN", {"transaction": "t"})
            alice.send(QUEUE, b"never committed", transaction="t")
            alice.store("/queue/process.other", b"x")
            usermgr(gateway, *command)
            gateway.signal(signal.SIGHUP)
            assert "user 'alice' is refused" in alice.error().headers["message"]
            guest.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1"})
            guest.send(QUEUE, b"still here")
            assert guest.message().body == b"still here"
        until_logged(gateway, "of user 'alice' ends with ERROR")
        bridge = gateway.directory / "bridges" / "stomp" / "stomp0.log"
        assert bridge.read_text().count("ends with ERROR") == 1, log_of(gateway)


def test_a_reload_takes_the_levels_of_the_logs(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        file = gateway.directory / "etc" / "gateway.properties"
        kept = file.read_text()
        bridge = gateway.directory / "bridges" / "stomp" / "stomp0.log"

        def told_of_a_connection() -> int:
            with Client(gateway.port) as client:
                client.send("/nothing", b"x")
                client.error()
            return bridge.read_text().count("ends with ERROR")

        assert told_of_a_connection() == 1
        file.write_text(kept + "imq.bridge.stomp.level=WARNING\nimq.log.level=FINE\n")
        reload(gateway, "settings were read again")
        assert told_of_a_connection() == 1, "the bridge's log is at WARNING"
        # What cannot be used leaves what was, all of it.
        for wrong in (
            "imq.bridge.stomp.level=LOUD",
            "imq.log.level=LOUD",
            "imq.log.levle=INFO\nimq.log.level=\\u12",
        ):
            file.write_text(f"{kept}imq.bridge.stomp.level=INFO\n{wrong}\n")
            before = log_of(gateway).count("settings stay as they were")
            reload(gateway, "settings stay as they were", before + 1)
            assert told_of_a_connection() == 1
        [line] = [line for line in log_of(gateway).splitlines() if "imq.log.level=LOUD" in line]
        assert "SEVERE" in line
        assert f"{file}:" in line
        file.unlink()
        reload(gateway, "settings stay as they were", 4)
        file.write_text(kept)
        reload(gateway, "settings were read again", 2)
        assert told_of_a_connection() == 2


def test_a_reload_opens_and_closes_listeners(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway, Client(gateway.port) as before:
        file = gateway.directory / "etc" / "gateway.properties"
        kept, port = file.read_text(), free_port()
        listener = f"imq.bridge.stomp.listener.second.port={port}\n"
        file.write_text(kept + listener)
        reload(gateway, f"STOMP over TCP on {HOST}:{port}, listener second")
        assert gateway.mapped_ports() == {gateway.port, port}
        with Client(port) as second:
            second.store("/queue/a", b"by the second")
            file.write_text(kept + listener + "imq.bridge.stomp.listener.second.ws=maybe\n")
            reload(gateway, "settings stay as they were")
            file.write_text(f"{kept}{listener}imq.bridge.stomp.listener.third.ws=true\n")
            reload(gateway, "listeners stay as they were")
            assert gateway.mapped_ports() == {gateway.port, port}
            file.write_text(kept)
            reload(gateway, "listener second is closed")
            assert gateway.mapped_ports() == {gateway.port}
            with pytest.raises(ConnectionRefusedError):
                Client(port)
            second.store("/queue/a", b"still")
        before.store("/queue/a", b"still")


def test_a_level_of_the_command_line_stays_over_that_of_the_file(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, settings={"imq.log.level": "INFO"}) as gateway:
        file = gateway.directory / "etc" / "gateway.properties"
        file.write_text(file.read_text() + "imq.log.level=OFF\n")
        for times in (1, 2):
            reload(gateway, "settings were read again", times)


def client_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(certificates.client_certificate, certificates.client_key)
    return context


def test_a_listener_may_be_the_first_for_tls_and_may_ask_for_other_certificates(
    tmp_path: Path, certificates: Certificates
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates.ca))
    with GatewayProcess(tmp_path) as gateway:
        file = gateway.directory / "etc" / "gateway.properties"
        kept, first, second = file.read_text(), free_port(), free_port()
        # The settings of a new instance ask for certificates.
        strict = "".join(
            f"imq.bridge.stomp.listener.strict.{line}\n" for line in (f"port={first}", "tls=true")
        )
        file.write_text(kept + strict)
        reload(gateway, "listener strict is not opened")
        assert "imqkeytool server" in log_of(gateway)
        tls = gateway.directory / "etc" / "tls"
        shutil.copytree(certificates.directory, tls, dirs_exist_ok=True)
        open_one = "".join(
            f"imq.bridge.stomp.listener.open.{line}\n"
            for line in (f"port={second}", "tls=true", "requireClientAuth=false")
        )
        file.write_text(file.read_text() + open_one)
        reload(gateway, f"STOMP over TLS on {HOST}:{second}, listener open")
        with Client(second, tls=trusting) as client:
            client.store(QUEUE, b"without a certificate")
        with pytest.raises((ssl.SSLError, Gone)):
            Client(first, tls=trusting)
        with Client(first, tls=client_context(certificates)) as client:
            client.store(QUEUE, b"with one")


def test_a_revoked_certificate_is_refused_after_a_reload(
    tmp_path: Path, certificates: Certificates
) -> None:
    context = client_context(certificates)
    with GatewayProcess(tmp_path, tls=certificates, require_client_certificate=True) as gateway:
        tls = gateway.directory / "etc" / "tls"
        run("-m", "certs.command", "client", "--name", "other", "--dir", tls)
        unrevoked = client_context(Certificates(tls, "other"))
        with (
            Client(gateway.tls_port, tls=context) as before,
            Client(gateway.tls_port, tls=unrevoked) as other,
            Client(gateway.port) as plain,
        ):
            run("-m", "certs.command", "revoke", certificates.client, "--dir", tls)
            Client(gateway.tls_port, tls=context).close()  # not known yet
            before.store(QUEUE, b"x")
            gateway.signal(signal.SIGHUP)
            assert "revoked" in before.error().headers["message"]
            with pytest.raises((ssl.SSLError, Gone)):
                Client(gateway.tls_port, tls=context)
            reload(gateway, "certificates were read again", 2)
            other.store(QUEUE, b"still here")
            plain.store(QUEUE, b"still here")
        bridge = gateway.directory / "bridges" / "stomp" / "stomp0.log"
        assert bridge.read_text().count("certificate was revoked") == 1, log_of(gateway)


def test_a_new_certificate_is_shown_after_a_reload(
    tmp_path: Path, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))

    def serial(gateway: GatewayProcess) -> object:
        with Client(gateway.tls_port, tls=context) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            shown = client.socket.getpeercert()
            assert shown
            return shown["serialNumber"]

    with commanded(tmp_path, tls=certificates) as gateway:
        first = serial(gateway)
        tls = gateway.directory / "etc" / "tls"
        run("-m", "certs.command", "renew", "server", "--dir", tls)
        assert serial(gateway) == first
        reload(gateway, "certificates were read again")
        second = serial(gateway)
        assert second != first
        (tls / "server.pem").write_text("no certificate\n")
        reload(gateway, "certificates stay as they were")
        assert serial(gateway) == second


def test_without_a_host_name_it_listens_to_both_families(
    tmp_path: Path, certificates: Certificates
) -> None:
    with GatewayProcess(tmp_path, tls=certificates, settings={"imq.hostname": ""}) as gateway:
        for host in (HOST, "::1"):
            for port, word in (
                (gateway.port, b"version:1.2"),
                (gateway.tls_port, b"this port speaks TLS"),
                (gateway.port_mapper_port, b"stomp[bridge]"),
            ):
                with socket.create_connection((host, port), timeout=PATIENCE) as client:
                    # The user guest may connect from this machine only, and that it is, by either
                    # family.
                    client.sendall(
                        encode(
                            "CONNECT",
                            {"accept-version": "1.2", "login": "guest", "passcode": "guest"},
                        )[:100]
                    )
                    data = b""
                    while word not in data:
                        more = client.recv(4096)
                        assert more, (host, port, data)
                        data += more
        gateway.wait_for_output(f"STOMP over TCP on *:{gateway.port}")
        gateway.wait_for_output(f"port mapper on *:{gateway.port_mapper_port}")


# Starts that are refused.


def refused(gateway: GatewayProcess) -> str:
    """It ends with code 2 and says why in one line, besides what it has made by then. :returns: the
    line.
    """
    gateway.launch()
    assert gateway.wait() == 2, gateway.said
    lines = [
        line
        for line in gateway.said.splitlines()
        if not line.startswith(("new instance", "the password of", "user 'guest'"))
    ]
    assert len(lines) == 1, lines
    assert "Traceback" not in lines[0]
    return lines[0]


def test_one_process_has_an_instance(tmp_path: Path) -> None:
    with commanded(tmp_path) as first, Client(first.port) as client:
        line = refused(commanded(tmp_path))
        assert f"process {first.pid}" in line
        assert str(first.directory / "lock") in line
        client.store(QUEUE, b"not disturbed")
        first.kill()
        # What a dead process left does no harm.
        with commanded(tmp_path) as second, Client(second.port) as other:
            other.store(QUEUE, b"x")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"imq.bridge.stomp.tcp.prot": "7672"},
            ["imq.bridge.stomp.tcp.prot", "imq.bridge.stomp.tcp.port"],
        ),
        ({"imq.persist.stroe": "sqlite"}, ["imq.persist.stroe", "imq.persist.store"]),
        ({"imq.persist.store": "oracle"}, ["imq.persist.store=oracle", "sqlite"]),
        (
            {"imq.persist.store": "jdbc"},
            ["imq.persist.jdbc.postgresql.opendburl=", "postgresql://"],
        ),
        ({"imq.portmapper.port": "seventy"}, ["imq.portmapper.port=seventy"]),
        ({"imq.message.max_size": "-2x"}, ["imq.message.max_size"]),
    ],
)
def test_a_wrong_setting_is_named(
    settings: dict[str, str], words: Sequence[str], tmp_path: Path
) -> None:
    line = refused(GatewayProcess(tmp_path / "var", settings=settings))
    for word in words:
        assert word in line, line
    if "jdbc" not in settings.values():
        assert files_below(tmp_path / "var") == set(), (
            "something was made though the command line is wrong"
        )


def test_a_wrong_setting_of_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    gateway = stopped(tmp_path, command=COMMAND)
    file = gateway.directory / "etc" / "gateway.properties"
    count = len(file.read_text().splitlines())
    file.write_text(file.read_text() + "imq.persist.stroe=memory\n")
    before = files_below(tmp_path)
    line = refused(gateway)
    assert f"{file}:{count + 1}" in line
    assert "imq.persist.store" in line
    assert files_below(tmp_path) == before


def test_tls_without_a_certificate_names_the_command(tmp_path: Path) -> None:
    gateway = stopped(tmp_path)
    gateway.settings["imq.bridge.stomp.tls.enabled"] = "true"
    line = refused(gateway)
    assert "imqkeytool" in line
    assert "server.pem" in line


@pytest.mark.parametrize(
    "missing",
    [
        ("server.key",),
        ("server.pem",),
        ("server.pem", "server.key"),
        ("server.pem", "server.key", "ca.pem", "ca.key", "crl.pem", "register.json"),
    ],
)
def test_the_command_for_a_missing_certificate_works_and_keeps_the_authority(
    missing: tuple[str, ...], tmp_path: Path, certificates: Certificates
) -> None:
    varhome = tmp_path / "of all instances"
    gateway = GatewayProcess(varhome, tls=certificates)
    shutil.copytree(certificates.directory, gateway.directory / "etc" / "tls")
    tls = gateway.directory / "etc" / "tls"
    kept = (tls / "ca.pem").read_bytes()
    for name in missing:
        (tls / name).unlink()
    line = refused(gateway)
    command = shlex.split(line.partition("make them with: ")[2])
    assert command[0] == "imqkeytool", line
    run("-m", "certs.command", *command[1:])
    assert ((tls / "ca.pem").read_bytes() == kept) == ("ca.pem" not in missing)
    with gateway:
        Client(gateway.tls_port, tls=ssl.create_default_context(cafile=str(tls / "ca.pem"))).close()


@pytest.mark.parametrize("missing", ["ca.pem", "ca.key"])
def test_half_an_authority_is_to_be_restored(
    missing: str, tmp_path: Path, certificates: Certificates
) -> None:
    gateway = GatewayProcess(tmp_path, tls=certificates)
    shutil.copytree(certificates.directory, gateway.directory / "etc" / "tls")
    tls = gateway.directory / "etc" / "tls"
    for name in ("server.key", missing):
        (tls / name).unlink()
    line = refused(gateway)
    assert (
        f"server.key is missing; {missing} is missing, too: restore it from a backup, then: imqkeytool server --force --varhome "
        in line
    )
    both = shlex.split(line.partition("with: ")[2].removesuffix(")"))
    middle = both.index("&&")
    for command in (both[:middle], both[middle + 1 :]):
        assert command[0] == "imqkeytool", line
        run("-m", "certs.command", *command[1:])
    with gateway:
        Client(gateway.tls_port, tls=ssl.create_default_context(cafile=str(tls / "ca.pem"))).close()


def test_a_revoked_certificate_stays_so_when_the_list_is_lost(
    tmp_path: Path, certificates: Certificates
) -> None:
    context = client_context(certificates)
    with GatewayProcess(tmp_path, tls=certificates, require_client_certificate=True) as gateway:
        tls = gateway.directory / "etc" / "tls"
        run("-m", "certs.command", "revoke", certificates.client, "--dir", tls)
        reload(gateway, "certificates were read again")
        with pytest.raises((ssl.SSLError, Gone, OSError)):
            Client(gateway.tls_port, tls=context)
        (tls / "crl.pem").unlink()
        reload(gateway, "certificates stay as they were")
        with pytest.raises((ssl.SSLError, Gone, OSError)):
            Client(gateway.tls_port, tls=context)
        assert gateway.terminate() == 0
        line = refused(gateway)
        assert f"{tls}/crl.pem: is missing" in line
        command = shlex.split(line.partition("make it anew with: ")[2])
        run("-m", "certs.command", *command[1:])
        gateway.start()
        with pytest.raises((ssl.SSLError, Gone, OSError)):
            Client(gateway.tls_port, tls=context)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("etc/users", "nonsense"),
        ("etc/accesscontrol.properties", "queue.nonsense"),
        ("etc/gateway.properties", "imq.instancename=\\u12"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named(name: str, content: str, tmp_path: Path) -> None:
    gateway = stopped(tmp_path)
    file = gateway.directory / name
    file.write_text(file.read_text() + content + "\n")
    file.chmod(0o600)
    assert str(file) in refused(gateway)


@pytest.mark.parametrize(
    "name", ["etc/users", "etc/accesscontrol.properties", "etc/passfile", "store/messages.db"]
)
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    """A directory in its place, because nothing else is unreadable for root."""
    gateway = stopped(tmp_path)
    file = gateway.directory / name
    file.unlink()
    file.mkdir()
    assert str(file) in refused(gateway)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(GatewayProcess(tmp_path / "file" / "var"))


def test_a_taken_port_mapper_port_is_named(tmp_path: Path) -> None:
    gateway = stopped(tmp_path, command=COMMAND)
    with occupied(gateway.port_mapper_port):
        assert f":{gateway.port_mapper_port}" in refused(gateway)
    gateway.start()
    gateway.kill()


def test_a_taken_stomp_port_stops_the_bridge_and_with_none_left_the_process(tmp_path: Path) -> None:
    gateway = stopped(tmp_path)
    with occupied(gateway.port):
        gateway.launch()
        assert gateway.wait() == 2
        assert f"{HOST}:{gateway.port}" in gateway.said
    gateway.start()
    gateway.kill()


# twistd.


class Daemon:
    """The gateway under ``twistd``, on free ports.

    :param options: twistd's own.
    """

    def __init__(self, varhome: Path, *options: str) -> None:
        self.port = free_port()
        self.command = [
            str(TWISTD),
            *options,
            "stomp-gateway",
            "--varhome",
            str(varhome),
            "-Dimq.hostname=127.0.0.1",
            f"-Dimq.bridge.stomp.tcp.port={self.port}",
            f"-Dimq.portmapper.port={free_port()}",
        ]

    def answers(self) -> bool:
        try:
            with Client(self.port) as client:
                client.store(QUEUE, b"x")
        except (OSError, Gone):
            return False
        return True


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_twistd_in_the_foreground(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "var", "--nodaemon", "--pidfile=")
    process = subprocess.Popen(
        daemon.command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: process.poll() is not None or daemon.answers(), "it does not answer")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
        # twistd ends by the signal that ended it.
        assert process.returncode in (0, -signal.SIGTERM), output
        assert "is ready" in output
        assert "Traceback" not in output
        assert (tmp_path / "var" / "instances" / "imqbroker" / "lock").read_bytes() == b""
    finally:
        process.kill()
        process.wait()


def test_twistd_as_a_daemon(tmp_path: Path) -> None:
    pidfile, logfile = tmp_path / "gateway.pid", tmp_path / "gateway.log"
    daemon = Daemon(tmp_path / "var", f"--pidfile={pidfile}", f"--logfile={logfile}")
    started = subprocess.run(
        daemon.command,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert started.returncode == 0, started.stdout + started.stderr
    until(pidfile.exists, "there is no pid file")
    pid = int(pidfile.read_text())
    try:
        until(daemon.answers, lambda: f"it does not answer:\n{logfile.read_text()}")
        # The lock names the process that is in the background, not the one that went.
        lock = tmp_path / "var" / "instances" / "imqbroker" / "lock"
        assert int(lock.read_text()) == pid
        assert "is ready" in logfile.read_text()
        second = Daemon(tmp_path / "var", "--nodaemon", f"--pidfile={tmp_path / 'second.pid'}")
        done = subprocess.run(
            second.command,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"process {pid}" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert not (tmp_path / "second.pid").exists()
        # One in the background has lost its terminal by then, and twistd shows 100 octets of a
        # reason.
        third = Daemon(
            tmp_path / "var",
            f"--pidfile={tmp_path / 'third.pid'}",
            f"--logfile={tmp_path / 'third.log'}",
        )
        done = subprocess.run(
            third.command,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            f"{lock}: the instance is in use by process {pid}; stop that first, or choose another instance",
            "An error has occurred: b'gateway.exit_codes.StartRefused: not started, for the reason above'",
            "Please look at log file for more information.",
        ]
        # The one that was started tells twistd of its end before it has written its log.
        reason = f"{lock}: the instance is in use by process {pid}; stop"
        third_log = tmp_path / "third.log"
        until(lambda: reason in third_log.read_text(), lambda: third_log.read_text())
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not pidfile.exists(), lambda: f"it does not end:\n{logfile.read_text()}")
    until(lambda: not lock.read_bytes(), "the instance was not let go")
    assert "Traceback" not in logfile.read_text()


def test_twistd_refuses_what_the_command_refuses(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "var", "--nodaemon", "--pidfile=")
    done = subprocess.run(
        [*daemon.command, "-Dimq.persist.stroe=x"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "imq.persist.store" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert files_below(tmp_path) == set()
    assert shutil.which(str(TWISTD))
