"""What a running gateway tells its operator: who connected and how it ended, who was refused and
why, and what is wrong with the start.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.crash.client import PATIENCE, Client, Gone, Refused
from tests.crash.waiting import reload, until, until_logged
from tests.gateway_process import HOST, ROOT, Certificates, GatewayProcess, free_port

pytestmark = pytest.mark.process

QUEUE = "/queue/logs"
SESSION = "[0-9a-f]{32}"
TWISTD = Path(sys.executable).with_name("twistd")


def bridge_lines(gateway: GatewayProcess, word: str) -> list[str]:
    """The lines of the bridge's log that have ``word``, without their time."""
    text = (gateway.directory / "bridges" / "stomp" / "stomp0.log").read_text()
    return [line.split(" ", 1)[1] for line in text.splitlines() if word in line]


def the_line(gateway: GatewayProcess, word: str) -> str:
    """The one line of the bridge's log that has ``word``, as soon as it is there."""
    until(
        lambda: bridge_lines(gateway, word),
        lambda: f"{word!r} is not in the bridge's log:\n{gateway.log}",
    )
    [line] = bridge_lines(gateway, word)
    return line


def port_of(client: Client) -> int:
    port = client.socket.getsockname()[1]
    assert isinstance(port, int)
    return port


def fits(pattern: str, line: str) -> bool:
    return re.fullmatch(pattern, line) is not None


# Connections.


def test_each_connection_has_a_line_when_it_begins_and_one_when_it_ends(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        who = rf"INFO \[gateway\.stomp\.connection\] {SESSION} at {HOST}:%d of user 'guest' "
        with Client(gateway.port, headers={"client-id": "o'clock"}) as client:
            begins = who % port_of(client)
            line = the_line(gateway, "is CONNECTED")
            assert fits(
                begins + r"is CONNECTED: STOMP 1\.2 over TCP, client-id 'o\\'clock'", line
            ), line
            client.store(QUEUE, b"x")
            client.ask("DISCONNECT", {})
        line = the_line(gateway, " ends")
        assert fits(begins + "ends: DISCONNECT", line), line
        with Client(gateway.port) as client:
            begins = who % port_of(client)
        line = the_line(gateway, "without DISCONNECT")
        assert fits(
            begins + "ends: the client has closed the connection without DISCONNECT", line
        ), line
        with Client(gateway.port) as client:
            begins = who % port_of(client)
            client.send("/nothing", b"x")
            client.error()
        line = the_line(gateway, "ends with ERROR")
        assert fits(begins + "ends with ERROR: .*/nothing.*", line), line
        # A probe, as load balancers make them, is worth no line, and messages have none either.
        socket.create_connection((HOST, gateway.port)).close()
        with Client(gateway.port) as client:
            for _ in range(20):
                client.store(QUEUE, b"x")
            gateway.terminate()
        lines = bridge_lines(gateway, "gateway.stomp.connection")
        assert len(lines) == 8, lines
        assert fits(who % port_of_line(lines[-1]) + "ends with ERROR: .*stop.*", lines[-1]), lines[
            -1
        ]


def port_of_line(line: str) -> int:
    found = re.search(rf" at {re.escape(HOST)}:(\d+) ", line)
    assert found, line
    return int(found[1])


def test_fine_tells_of_subscriptions_transactions_and_probes(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, settings={"imq.bridge.stomp.level": "FINE"}) as gateway:
        with Client(gateway.port) as client:
            client.ask(
                "SUBSCRIBE",
                {"destination": QUEUE, "id": "1", "ack": "client", "selector": "a = 'b'"},
            )
            client.ask("UNSUBSCRIBE", {"id": "1"})
            for end in ("COMMIT", "ABORT"):
                client.ask("BEGIN", {"transaction": "t"})
                client.send(QUEUE, b"x", transaction="t")
                client.ask(end, {"transaction": "t"})
            client.ask("DISCONNECT", {})
        assert [
            line.split(" asks ")[1].split(" ")[0] for line in bridge_lines(gateway, " asks ")
        ] == [*("SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "BEGIN", "ABORT", "DISCONNECT")]
        line = the_line(gateway, "asks SUBSCRIBE")
        assert line.startswith("FINE ")
        assert f"SUBSCRIBE destination:{QUEUE} id:1 ack:client selector:a = 'b'" in line
        socket.create_connection((HOST, gateway.port)).close()
        assert the_line(gateway, "ends before CONNECT").startswith("FINE ")


def test_who_was_refused_and_from_where_is_a_warning(tmp_path: Path) -> None:
    limits = {
        "imq.bridge.stomp.limit.connectionsPerUser": "1",
        "imq.bridge.stomp.limit.connectionsPerAddress": "2",
    }
    with GatewayProcess(tmp_path, settings=limits) as gateway:
        with pytest.raises(Refused):
            Client(gateway.port, login="mallory' at 192.0.2.1:1", passcode="guess")
        line = the_line(gateway, "mallory")
        assert fits(
            rf"WARNING \[gateway\.stomp\.connection\] {SESSION} at {HOST}:\d+ of user 'mallory\\' at 192\.0\.2\.1:1' ends with ERROR: .*",
            line,
        ), line
        assert "guess" not in gateway.log
        with Client(gateway.port):
            with pytest.raises(Refused):
                Client(gateway.port)
            line = the_line(gateway, "too many connections of user")
            assert fits(
                rf"WARNING .* {SESSION} at {HOST}:\d+ of user 'guest' ends with ERROR: .*", line
            ), line
            # From an address from which no connection is still being closed.
            server, other = (HOST, gateway.port), ("127.0.0.2", 0)
            with (
                socket.create_connection(server, PATIENCE, other),
                socket.create_connection(server, PATIENCE, other),
                socket.create_connection(server, PATIENCE, other) as third,
            ):
                assert third.recv(5) == b"ERROR"
            line = the_line(gateway, "too many connections from")
            assert fits(rf"WARNING .* {SESSION} at 127\.0\.0\.2:\d+ ends with ERROR: .*", line), (
                line
            )
        # Warnings are in the instance's log as well, and whoever runs it in the foreground sees
        # them.
        for text in ("mallory", "too many connections of user", "too many connections from"):
            assert text in (gateway.directory / "log" / "log.txt").read_text()
            gateway.wait_for_output(text)
        assert "is CONNECTED" not in gateway.said


def context_of(certificates: Certificates, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if name is not None:
        clients = certificates.directory / "clients"
        context.load_cert_chain(clients / f"{name}.pem", clients / f"{name}.key")
    return context


def test_who_is_refused_by_tls_is_in_the_log_with_address_and_reason(
    tmp_path: Path, certificates: Certificates
) -> None:
    with GatewayProcess(tmp_path, tls=certificates, require_client_certificate=True) as gateway:
        directory = gateway.directory / "etc" / "tls"
        mine = Certificates(directory, certificates.client)
        with Client(gateway.tls_port, tls=context_of(mine, certificates.client)) as client:
            line = the_line(gateway, "is CONNECTED")
            assert line.endswith(
                f"of user 'guest' is CONNECTED: STOMP 1.2 over TLSv1.3 with the certificate of '{mine.client}'"
            ), line
            assert f" at {HOST}:{port_of(client)} " in line

        def refused(context: ssl.SSLContext, word: str) -> str:
            with pytest.raises((ssl.SSLError, Gone)):
                Client(gateway.tls_port, tls=context)
            return the_line(gateway, word)

        begins = rf" \[gateway\.stomp\.connection\] connection from {HOST}:\d+ is refused in the TLS handshake: "
        line = refused(context_of(mine, None), "peer did not return a certificate")
        assert fits("WARNING" + begins + "peer did not return a certificate", line), line
        old = context_of(mine, certificates.client)
        old.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would refuse to try
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        line = refused(old, "unsupported protocol")
        assert fits("INFO" + begins + "unsupported protocol", line), line
        revoke = [
            sys.executable,
            "-m",
            "certs.command",
            "revoke",
            mine.client,
            "--dir",
            str(directory),
        ]
        subprocess.run(revoke, cwd=ROOT, check=True, capture_output=True)
        reload(gateway, "certificates were read again")
        line = refused(context_of(mine, mine.client), "cert revoked")
        serial = ssl._ssl._test_decode_cert(str(mine.client_certificate))["serialNumber"].lower()  # type: ignore[attr-defined]
        assert fits(
            "WARNING"
            + begins
            + f"the certificate of '{mine.client}' with serial number {serial.lstrip('0')}: cert revoked",
            line,
        ), line
        assert "client certificate of" not in gateway.log, "it is said once"


# Destinations.


def test_what_comes_into_being_by_use_and_what_is_removed_is_in_the_log(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, settings={"imq.autocreate.reaptime": "1"}) as gateway:
        with Client(gateway.port, headers={"client-id": "c"}) as client:
            client.store(QUEUE, b"x")
            client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1"})
            client.message()
            client.ask("UNSUBSCRIBE", {"id": "1"})
            durable = {"destination": "/topic/logs", "id": "2", "durable-subscriber-name": "d"}
            client.ask("SUBSCRIBE", durable)
            client.ask("UNSUBSCRIBE", {"id": "2"})
            client.ask("SUBSCRIBE", {**durable, "selector": "a = 'b'"})
            client.ask("UNSUBSCRIBE", {"durable-subscriber-name": "d"})
        until_logged(gateway, "queue:logs is removed: nobody has used it for 1 seconds")
        log = (gateway.directory / "log" / "log.txt").read_text()
        made = (
            r"INFO \[gateway\.broker\.[\w.]+\] queue:logs is made, because user 'guest' uses it\n"
        )
        assert re.search(made, log)
        for what in ("made", "redefined", "made", "removed"):
            assert (
                f"durable subscription 'd' of client-id 'c' to topic:logs is {what} by user 'guest'"
                in log
            )


def test_a_destination_at_its_limit_is_in_the_log(tmp_path: Path) -> None:
    limits = {
        "imq.destination.queue.slow.limitBehavior": "FLOW_CONTROL",
        "imq.destination.queue.slow.maxNumMsgs": "2",
        "imq.destination.queue.full.limitBehavior": "REJECT_NEWEST",
        "imq.destination.queue.full.maxNumMsgs": "0",
    }
    with GatewayProcess(tmp_path, settings=limits) as gateway:
        for _ in range(3):
            with Client(gateway.port) as client, pytest.raises(Refused):
                client.store("/queue/full", b"x")
        with Client(gateway.port) as sender, Client(gateway.port) as consumer:
            sender.store("/queue/slow", b"1")
            sender.send("/queue/slow", b"2", receipt="withheld")
            gateway.wait_for_output(
                "queue:slow is at its limit and begins to hold its senders back: maxNumMsgs is 2"
            )
            consumer.ask("SUBSCRIBE", {"destination": "/queue/slow", "id": "1"})
            assert sender.frame().headers == {"receipt-id": "withheld"}
            until_logged(gateway, "queue:slow has room again, and its senders go on")
        log = (gateway.directory / "log" / "log.txt").read_text()
        assert (
            log.count("queue:full is at its limit and begins to refuse messages: maxNumMsgs is 0")
            == 1
        )


# The start.


def test_a_new_instance_is_in_the_log_and_its_password_is_not(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        passfile = gateway.directory / "etc" / "passfile"
        [password] = {
            line.split("=", 1)[1] for line in passfile.read_text().splitlines() if "=" in line
        }
        assert f"new instance {gateway.directory}" in gateway.log
        assert f"the password of user 'admin' is in {passfile}" in gateway.said
        assert password not in gateway.said + gateway.log
        # Twisted's own words about ports and factories are no operator's business.
        assert "log_legacy" not in gateway.log
        assert "did not end in order" not in gateway.log
        gateway.restart()
        assert "did not end in order" not in gateway.log
        assert gateway.log.count("new instance") == 1
        gateway.restart(crash=True)
        gateway.wait_for_output(
            "WARNING [gateway.broker.broker.Broker] the last run did not end in order"
        )
        assert gateway.log.count("did not end in order") == 1


def test_a_terminal_is_shown_the_password_of_a_new_instance(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    program = "from gateway.tap import Options, makeService; import sys; o = Options(); o.parseOptions(sys.argv[1:]); makeService(o)"
    try:
        subprocess.run(
            [sys.executable, "-c", program, "--varhome", str(tmp_path)],
            cwd=ROOT,
            stdout=theirs,
            check=True,
        )
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    passfile = tmp_path / "instances" / "imqbroker" / "etc" / "passfile"
    [password] = {
        line.split("=", 1)[1] for line in passfile.read_text().splitlines() if "=" in line
    }
    assert f"user 'admin' has the password {password}; it is not shown again" in shown


def test_what_is_without_effect_or_unknown_or_gone_is_said_at_the_start(tmp_path: Path) -> None:
    given = {"imq.cluster.masterbroker": "c"}
    with GatewayProcess(tmp_path, settings=given) as gateway:
        line = "-D: imq.cluster.masterbroker=c: has no effect in this gateway"
        assert gateway.said.count(line) == 1, gateway.said
        assert gateway.log.count(line) == 1, gateway.log
        gateway.terminate()
        settings = gateway.directory / "etc" / "gateway.properties"
        settings.unlink()
        gateway.start()
        gateway.wait_for_output(f"{settings}: the file was gone")
        assert f"WARNING [gateway.app.Gateway] {settings}: the file was gone" in gateway.log


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("imq.bridge.enabled", "false", "imq.bridge.enabled is false"),
        ("imq.bridge.activelist", "", "imq.bridge.activelist has none"),
        ("imq.bridge.stomp.autostart", "false", "imq.bridge.stomp.autostart is false"),
    ],
)
def test_no_bridge_at_all_is_a_warning(tmp_path: Path, name: str, value: str, why: str) -> None:
    gateway = GatewayProcess(tmp_path, settings={name: value})
    gateway.launch()
    try:
        gateway.wait_for_output("is ready")
        gateway.wait_for_output(
            f"WARNING [gateway.app.Gateway] no bridge runs, so no client can connect: {why}"
        )
    finally:
        gateway.kill()


def test_a_reload_of_what_cannot_be_used_is_seen_in_the_foreground(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        etc = gateway.directory / "etc"
        places = (
            ("users", "users"),
            ("accesscontrol.properties", "access rules"),
            ("gateway.properties", "settings"),
        )
        for number, (name, what) in enumerate(places, 1):
            path = etc / name
            path.write_text(path.read_text() + "\nimq.log.levle=nonsense\n")
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_output(f"{what} stay as they were: {path}:")
            # Signals that come meanwhile are one.
            until_logged(gateway, "log files were reopened", number)
        with pytest.raises(Refused):
            Client(gateway.port, passcode="wrong")
        with Client(gateway.port) as client:
            client.store(QUEUE, b"x")


@pytest.mark.parametrize("together", [True, False])
def test_warnings_of_twistd_in_the_foreground_are_on_the_standard_error_once(
    tmp_path: Path, together: bool
) -> None:
    command = [
        str(TWISTD),
        "--nodaemon",
        "--pidfile=",
        "stomp-gateway",
        "--varhome",
        str(tmp_path / "var"),
        "-Dimq.bridge.enabled=false",
    ]
    command += [f"-Dimq.portmapper.port={free_port()}", f"-Dimq.hostname={HOST}"]
    files = [tmp_path / "out", tmp_path / "err"]
    with files[0].open("w") as out, files[1].open("w") as error:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=out if together else error,
        )
    try:
        shown = files[:1] if together else files
        until(
            lambda: all("no bridge runs" in file.read_text() for file in shown),
            lambda: files[0].read_text() + files[1].read_text(),
        )
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert files[0].read_text().count("no bridge runs") == 1
    assert files[1].read_text().count("WARNING [gateway.app.Gateway] no bridge runs") == (
        0 if together else 1
    )
    instance = tmp_path / "var" / "instances" / "imqbroker"
    assert f"new instance {instance}" in (instance / "log" / "log.txt").read_text()
    assert f"new instance {instance}" in files[0].read_text()
