"""Gives a gateway very many destinations and connections.

Owns the connections, which are raw sockets of one process, and a client that asks for receipts all
the time.
"""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.conformance.client import Client, encode
from tests.gateway.admin.console.serving import Served, serving
from tests.gateway_process import HOST

#: Topics and queues that each connection subscribes to.
_TOPICS: Final = 4
_QUEUES: Final = 2
#: Frames that are sent at once, and connections that are opened at once.
_AT_ONCE: Final = 5_000
_OPENED: Final = 250
#: Open files beside the connections.
_OTHERS: Final = 500
#: Seconds that a connection may take to say something.
_PATIENCE: Final = 120


@dataclass(frozen=True)
class Crowd:
    """What a gateway has.

    :param connections: each has consumers at 4 topics and 2 queues of its own.
    :param waiting: queues with a message and without a consumer.
    """

    connections: int
    waiting: int


@contextmanager
def crowded(folder: Path, crowd: Crowd) -> Iterator[Served]:
    """A gateway with all of these for as long as the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = crowd.connections + _OTHERS
    assert hard == resource.RLIM_INFINITY or needed <= hard, f"{needed} open files are needed"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    with ExitStack() as ending:
        served = ending.enter_context(
            serving(
                folder, None, {"imq.autocreate.reaptime": "3600", "imq.persist.store": "memory"}
            )
        )
        _fill(served, crowd.waiting)
        for start in range(0, crowd.connections, _OPENED):
            numbers = range(start, min(start + _OPENED, crowd.connections))
            for opened in _subscribers(served.gateway.port, numbers):
                ending.callback(opened.close)
        yield served


def _fill(served: Served, queues: int) -> None:
    client = Client(served.gateway.port)
    client.connect()
    for start in range(0, queues, _AT_ONCE):
        client.write(
            b"".join(
                encode("SEND", {"destination": f"/queue/waiting.{number:06}"}, b"waits", "1.2")
                for number in range(start, min(start + _AT_ONCE, queues))
            )
        )
        client.sync()
    client.close()


def _subscribers(port: int, numbers: range) -> list[socket.socket]:
    """Open connections, and wait until each has all of its consumers."""
    opened: list[socket.socket] = []
    for number in numbers:
        one = socket.create_connection((HOST, port), _PATIENCE)
        connect = {"accept-version": "1.2", "host": "localhost"}
        frames = [encode("CONNECT", {**connect, "login": "guest", "passcode": "guest"}, b"", "1.2")]
        for id, name in enumerate(
            [f"/topic/news.{number}.{each}" for each in range(_TOPICS)]
            + [f"/queue/work.{number}.{each}" for each in range(_QUEUES)]
        ):
            last = {"receipt": "last"} if id == _TOPICS + _QUEUES - 1 else {}
            frames.append(
                encode("SUBSCRIBE", {"id": str(id), "destination": name, **last}, b"", "1.2")
            )
        one.sendall(b"".join(frames))
        opened.append(one)
    for one in opened:
        said = b""
        while b"receipt-id:last" not in said:
            octets = one.recv(65536)
            assert octets, said
            said += octets
    return opened


@dataclass
class Others:
    """A client asks for one receipt after the other while the block lasts.

    :ivar waits: how long each took, in seconds.
    """

    port: int
    waits: list[float] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._client = Client(self.port)
        self._client.connect()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def _ask(self) -> None:
        while not self._over.wait(0.001):
            began = time.perf_counter()
            self._client.sync()
            self.waits.append(time.perf_counter() - began)

    def longest(self) -> float:
        """Return the longest wait since this was asked last, in seconds."""
        waits, self.waits = self.waits, []
        return max(waits, default=0.0)
