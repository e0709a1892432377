"""The health of the process, for load balancers and supervisors.

Two resources over HTTP, without a login: ``/live`` says that the process runs, ``/ready`` whether
clients can be served here. Each answers 200 or 503 and a JSON object that says why. Owns the
listener and the form; what the health is, its user says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klein import Klein
from twisted.internet.interfaces import IListeningPort
from twisted.web.server import Site

from gateway.instance.listening import server_endpoint

#: Connections there may be; a look takes a millisecond.
_CONNECTIONS: Final = 64
#: Seconds after which a silent client is disconnected.
_IDLE_SECONDS: Final = 10


@dataclass(frozen=True)
class Health:
    """How the process is.

    :param state: such as ``owner`` or ``standby``.
    :param reasons: why clients cannot be served, sentences; empty while they can be.
    """

    state: str
    reasons: tuple[str, ...] = ()


class HealthService:
    """Listens for those who ask about the health.

    :param health: called for each of them.
    """

    def __init__(self, reactor: Any, health: Callable[[], Health]) -> None:
        self._reactor = reactor
        self._health = health
        self._listening: IListeningPort | None = None
        app = Klein()
        app.route("/live")(self._live)
        app.route("/ready")(self._ready)
        self._site = _Site(app.resource(), reactor=reactor, timeout=_IDLE_SECONDS)  # type: ignore[no-untyped-call]

    async def start(self, host: str, port: int) -> int:
        """Listen.

        :returns: the port, which is another one where 0 was asked for.
        :raises CannotListenError: it cannot listen there.
        """
        endpoint = server_endpoint(self._reactor, host, port, _CONNECTIONS)
        self._listening = await endpoint.listen(self._site)
        address: Any = self._listening.getHost()
        return int(address.port)

    def stop(self) -> Any:
        """Stop listening. :returns: a Deferred that fires then, or None."""
        listening, self._listening = self._listening, None
        return None if listening is None else listening.stopListening()

    def _live(self, request: Any) -> bytes:
        return _answer(request, True, {"live": True, "state": self._health().state})

    def _ready(self, request: Any) -> bytes:
        health = self._health()
        ready = not health.reasons
        answer = {"ready": ready, "state": health.state, "reasons": list(health.reasons)}
        return _answer(request, ready, answer)


class _Site(Site):
    """Twisted's site, which logs no requests."""

    noisy = False

    def log(self, request: Any) -> None:
        """Nothing."""


def _answer(request: Any, well: bool, value: object) -> bytes:
    request.setResponseCode(200 if well else 503)
    request.setHeader(b"Content-Type", b"application/json")
    request.setHeader(b"Cache-Control", b"no-store")
    return json.dumps(value).encode() + b"\n"
