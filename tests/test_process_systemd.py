"""The gateway under a supervisor.

What it tells it, and sockets that were opened before it.

The sockets are systemd's own: ``systemd-socket-activate`` opens them and starts the command.
"""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client
from tests.crash.waiting import until, until_logged
from tests.gateway_process import COMMAND, HOST, PATIENCE, GatewayProcess, free_port

pytestmark = pytest.mark.process

QUEUE = "/queue/supervised"


class Supervisor:
    """Hears what the process tells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE)

    def until(self, said: str) -> list[str]:
        """What is told up to a datagram that begins so."""
        found: list[str] = []
        while not found or not found[-1].startswith(said):
            found.append(self._socket.recv(4096).decode())
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    heard = Supervisor(tmp_path / "notify")
    yield heard
    heard.close()


def test_a_supervisor_is_told_each_state(tmp_path: Path, supervisor: Supervisor) -> None:
    gateway = GatewayProcess(tmp_path / "var")
    gateway.add_environment({"NOTIFY_SOCKET": str(supervisor.path), "WATCHDOG_USEC": "200000"})
    gateway.launch()
    try:
        begun = supervisor.until("READY=1")
        assert begun[0] == "STATUS=the store is opened"
        assert begun[-1] == "READY=1\nSTATUS=clients are served"
        # It says so when it is so.
        with Client(gateway.port) as client:
            client.store(QUEUE, b"as soon as it says it")
        assert supervisor.until("WATCHDOG=1")
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        gateway.signal(signal.SIGHUP)
        reloading = supervisor.until("RELOADING=1")[-1]
        assert int(reloading.partition("MONOTONIC_USEC=")[2]) >= before
        supervisor.until("READY=1")
        until_logged(gateway, "users were read again")
        gateway.signal(signal.SIGTERM)
        supervisor.until("STOPPING=1")
        assert gateway.wait() == 0
    finally:
        gateway.kill()


def activated(varhome: Path, ports: dict[str, int], **settings: str) -> GatewayProcess:
    """A gateway that starts when a client comes to one of these ports."""
    opened = [word for port in ports.values() for word in ("-l", f"{HOST}:{port}")]
    names = f"--fdname={':'.join(ports)}"
    passed = [f"--setenv={name}" for name in os.environ]
    command = ["systemd-socket-activate", *passed, *opened, names, "--", *COMMAND]
    return GatewayProcess(varhome, command=command, settings=settings)


def test_sockets_that_were_opened_before(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("stomp", "health", "unknown")}
    gateway = activated(tmp_path / "var", ports, **{"imq.bridge.admin.port": "0"})
    gateway.launch()
    try:
        gateway.wait_for_output("Listening on")
        # The client that has it started is served, and not by the port of the settings.
        with Client(ports["stomp"]) as client:
            client.store(QUEUE, b"by a socket of systemd")
        assert gateway.mapped_ports() == {ports["stomp"]}
        with socket.socket() as other:
            assert other.connect_ex((HOST, gateway.port)) != 0
        with urllib.request.urlopen(f"http://{HOST}:{ports['health']}/ready") as answer:
            assert answer.status == 200
        until_logged(gateway, "the socket unknown was given, and no service has that name")
        assert gateway.terminate() == 0
    finally:
        gateway.kill()


def test_two_sockets_of_one_name_are_one_listener(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    command = [
        "systemd-socket-activate",
        *[f"--setenv={name}" for name in os.environ],
        *("-l", f"{HOST}:{first}", "-l", f"{HOST}:{second}", "--fdname=stomp:stomp"),
        *("--", *COMMAND),
    ]
    gateway = GatewayProcess(tmp_path / "var", command=command)
    gateway.launch()
    try:
        gateway.wait_for_output("Listening on")
        for port in (second, first):
            with Client(port) as client:
                client.store(QUEUE, b"by either")
        assert gateway.terminate() == 0
    finally:
        gateway.kill()


def test_a_socket_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    port = free_port()
    command = [
        "systemd-socket-activate",
        *[f"--setenv={name}" for name in os.environ],
        *("--datagram", "-l", f"{HOST}:{port}", "--fdname=stomp", "--", *COMMAND),
    ]
    gateway = GatewayProcess(tmp_path / "var", command=command)
    gateway.launch()
    try:
        gateway.wait_for_output("Listening on")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", (HOST, port))
        assert gateway.wait() == 2
        assert "the socket stomp: expected a TCP socket that listens" in gateway.said
    finally:
        gateway.kill()


def test_a_listener_that_was_closed_opens_its_socket_again(tmp_path: Path) -> None:
    """By a reload that takes the listener away, and one that brings it back."""
    ports = {"stomp": free_port(), "stomp-other": free_port()}
    gateway = activated(tmp_path / "var", ports)
    gateway.launch()
    try:
        gateway.wait_for_output("Listening on")
        with Client(ports["stomp"]) as client:
            client.store(QUEUE, b"first")
        settings = gateway.directory / "etc" / "gateway.properties"
        text = settings.read_text()
        for times in (1, 2):
            settings.write_text(f"{text}imq.bridge.stomp.listener.other.port=0\n")
            gateway.signal(signal.SIGHUP)
            until(lambda: len(gateway.mapped_ports()) == 2, "listener other is not mapped")
            with Client(ports["stomp-other"]) as client:
                client.store(QUEUE, b"again")
            settings.write_text(text)
            gateway.signal(signal.SIGHUP)
            until_logged(gateway, "listener other is closed", times)
        assert gateway.terminate() == 0
    finally:
        gateway.kill()
