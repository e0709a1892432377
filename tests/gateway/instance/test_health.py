"""The health service, asked over real sockets, by turns with a busy reactor."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.threads import deferToThread

from gateway.instance import health
from gateway.instance.health import Health, HealthService

pytestmark = pytest.mark.process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    def ensureDeferred(
        test: Callable[..., Coroutine[Any, Any, None]],
    ) -> Callable[..., None]: ...
else:
    from pytest_twisted import ensureDeferred

reactor = cast(Any, global_reactor)


def asked(port: int, what: str) -> tuple[int, str | None, Any]:
    """The status, the type and the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", what)
        response = connection.getresponse()
        body = response.read()
        kind = response.headers["Content-Type"]
        return response.status, kind, json.loads(body) if response.status != 404 else None
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
@ensureDeferred
async def test_a_thread_answers_while_the_reactor_is_busy(host: str) -> None:
    service = HealthService(reactor, lambda: Health("owner"))
    port = await service.start(host, 0)
    serves = (200, "application/json", {"ready": True, "state": "owner", "reasons": []})
    try:
        assert await deferToThread(asked, port, "/ready") == serves
        # These calls keep the reactor from answering.
        with service.answered_beside("the broker is opened"):
            silent = socket.create_connection(("127.0.0.1", port))
            gone = socket.create_connection(("127.0.0.1", port))
            gone.close()
            assert asked(port, "/live?who=me") == (
                200,
                "application/json",
                {"live": True, "state": "starting"},
            )
            assert asked(port, "/ready") == (
                503,
                "application/json",
                {"ready": False, "state": "starting", "reasons": ["the broker is opened"]},
            )
            assert asked(port, "/")[0] == 404
            silent.sendall(b"GET /li")
        silent.close()
        assert await deferToThread(asked, port, "/ready") == serves
    finally:
        await maybeDeferred(service.stop)


def dribbled_for(port: int, octets: bytes, most: float = 20) -> float:
    """Send octets one by one until the service ends the connection.

    :returns: the seconds that took.
    """
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 0.05) as connection:
        while time.monotonic() < began + most:
            for octet in octets:
                try:
                    connection.sendall(bytes([octet]))
                    if not connection.recv(1):
                        return time.monotonic() - began
                except TimeoutError:
                    continue
                except OSError:
                    return time.monotonic() - began
    return most


@ensureDeferred
async def test_who_dribbles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_S", 0.5)
    service = HealthService(reactor, lambda: Health("owner"))
    port = await service.start("127.0.0.1", 0)
    try:
        assert (
            await deferToThread(dribbled_for, port, b"GET /live HTTP/1.1\r\nX: " + b"x" * 999) < 10
        )
    finally:
        await maybeDeferred(service.stop)


@ensureDeferred
async def test_who_dribbles_does_not_keep_the_reactor_from_going_on() -> None:
    """The reactor waits for the thread that has answered in its place."""
    service = HealthService(reactor, lambda: Health("owner"))
    port = await service.start("127.0.0.1", 0)
    done = threading.Event()
    try:
        with service.answered_beside("the broker is opened"):
            # It is the first to be answered.
            connection = socket.create_connection(("127.0.0.1", port))
            dribbler = threading.Thread(target=dribble, args=(connection, done))
            dribbler.start()
            assert asked(port, "/live")[0] == 200
            left = time.monotonic()
        assert time.monotonic() - left < 5
    finally:
        done.set()
        dribbler.join()
        await maybeDeferred(service.stop)


def dribble(connection: socket.socket, done: threading.Event) -> None:
    with connection, suppress(OSError):
        while not done.wait(0.05):
            connection.sendall(b"x")


def sent(port: int, octets: bytes, more: bytes = b"") -> bytes:
    """Send a request, and then more until it is refused.

    :returns: what came back.
    """
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        answer = b""
        try:
            connection.sendall(octets)
            for _ in range(1000 if more else 0):
                connection.sendall(more)
            while some := connection.recv(65536):
                answer += some
        except ConnectionError:
            pass
        return answer


@ensureDeferred
async def test_a_connection_has_one_request_and_its_body_is_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What has a file for a body fails.
    monkeypatch.setattr("tempfile.TemporaryFile", None)
    monkeypatch.setattr("twisted.web.http.tempfile", None)
    looks = []

    def look() -> Health:
        looks.append(1)
        return Health("owner")

    service = HealthService(reactor, look)
    port = await service.start("127.0.0.1", 0)
    try:
        request = b"GET /live HTTP/1.1\r\nHost: h\r\n"
        answer = await deferToThread(sent, port, (request + b"\r\n") * 100)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"\r\nConnection: close\r\n" in answer
        assert (answer.count(b"HTTP/1.1 200"), len(looks)) == (1, 1)
        body = b"Content-Length: 60000\r\n\r\n" + b"x" * 60_000
        assert (await deferToThread(sent, port, request + body)).startswith(b"HTTP/1.1 200")
        large = b"Content-Length: 100000000\r\n\r\n"
        assert await deferToThread(sent, port, request + large, b"x" * 100_000) == b""
        for odd in (b"GET /live HTTP/1.1\r\nHost: \xff", b"GET /%ff HTTP/1.1\r\nHost: h"):
            answer = await deferToThread(sent, port, odd + b"\r\n\r\n")
            assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 404"))
        assert await deferToThread(asked, port, "/live")
    finally:
        await maybeDeferred(service.stop)


@ensureDeferred
async def test_strangers_connections_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MOST_CONNECTIONS", 2)
    service = HealthService(reactor, lambda: Health("owner"))
    port = await service.start("127.0.0.1", 0)
    there = [
        await deferToThread(socket.create_connection, ("127.0.0.1", port), 20) for _ in range(3)
    ]
    try:
        with pytest.raises(ConnectionResetError):
            await deferToThread(there[0].recv, 1)
        assert (await deferToThread(asked, port, "/live"))[0] == 200
        there[2].sendall(b"GET /live HTTP/1.0\r\n\r\n")
        assert (await deferToThread(there[2].recv, 12)) == b"HTTP/1.0 200"
    finally:
        for connection in there:
            connection.close()
        await maybeDeferred(service.stop)
