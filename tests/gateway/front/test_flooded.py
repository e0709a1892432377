"""What a STOMP broker floods the gateway with goes back to the system.

The gateway is a process of its own, and what it has is seen from outside.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.conformance.client import Client
from tests.crash.waiting import until
from tests.gateway.front import behind
from tests.gateway_process import HOST

pytestmark = pytest.mark.process

_MIB: Final = 1024 * 1024
_BODY: Final = 24 * _MIB
_CLIENTS: Final = 8
#: Bytes that the gateway must have taken of the system for a test to mean anything, and that it may
#: keep.
_TAKEN: Final = 128 * _MIB
_KEPT: Final = 64 * _MIB

#: What is sent for a SUBSCRIBE of this id.
Answer = Callable[[str], bytes]


def _message(id: str, name: str, body: bytes, length: int | None = None) -> bytes:
    head = f"MESSAGE\nsubscription:{id}\nmessage-id:{name}\nack:{name}\ndestination:/queue/q\n"
    return f"{head}content-length:{length or len(body)}\n\n".encode() + body


def _half(id: str) -> bytes:
    """A message that is never whole."""
    return _message(id, "1", bytes(_BODY), 2 * _BODY)


def _wrong(id: str) -> bytes:
    """What is no STOMP, behind a message."""
    return _message(id, "1", bytes(_BODY)) + b"\0garbage\n\n\0"


def _many(id: str) -> bytes:
    """Messages that wait for the client's credit."""
    body = bytes(_MIB // 2)
    return b"".join(_message(id, str(number), body) + b"\0" for number in range(48))


class _Broker:
    """A broker that floods those who subscribe, on a free port."""

    def __init__(self, answer: Answer) -> None:
        self._answer: Final = answer
        self._listening: Final = socket.create_server((HOST, 0))
        self.port: Final[int] = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        waiting = b""
        with client, suppress(OSError):
            while octets := client.recv(65_536):
                *frames, waiting = (waiting + octets).split(b"\0")
                for frame in frames:
                    self._frame(client, frame.decode().lstrip("\n"))

    def _frame(self, client: socket.socket, frame: str) -> None:
        command, *lines = frame.split("\n")
        headers = dict(line.split(":", 1) for line in lines if ":" in line)
        if command == "CONNECT":
            client.sendall(b"CONNECTED\nversion:1.2\nserver:RabbitMQ/3.12\nheart-beat:0,0\n\n\0")
        if "receipt" in headers:
            client.sendall(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0".encode())
        if command == "SUBSCRIBE" and "queue" in headers["destination"]:
            client.sendall(self._answer(headers["id"]))


@pytest.mark.parametrize("answer", [_half, _wrong, _many])
def test_what_a_broker_floods_with_goes_back_to_the_system(tmp_path: Path, answer: Answer) -> None:
    broker = _Broker(answer)
    properties = {"stomp.close-timeout": "0.5"}
    factory = behind.Factory("there", f"stomp://{HOST}:{broker.port}", "guest", properties)
    with behind.in_front_of(tmp_path, factory) as gateway:
        process = psutil.Process(gateway.pid)
        before: int = process.memory_info().rss

        def taken() -> int:
            return int(process.memory_info().rss) - before

        clients = [Client(gateway.port) for _ in range(_CLIENTS)]
        for client in clients:
            client.connect()
            client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client"})
        if answer is _wrong:
            for client in clients:
                while client.frame().command != "ERROR":
                    pass
        else:
            until(lambda: taken() > _TAKEN, "it has taken no memory")
        for client in clients:
            client.close()
        until(lambda: taken() < _KEPT, lambda: f"{taken()} bytes are kept")
    broker.close()
