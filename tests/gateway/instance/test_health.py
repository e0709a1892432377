"""The health service, asked over real sockets, by turns with a busy reactor."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.threads import deferToThread

from gateway.instance.health import Health, HealthService

pytestmark = pytest.mark.process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    def ensureDeferred(
        test: Callable[[str], Coroutine[Any, Any, None]],
    ) -> Callable[[str], None]: ...
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
