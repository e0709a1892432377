"""Asking an admin service that runs in this process's reactor, by the standard library's HTTP on a
thread.
"""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

ADMIN = ("admin", "correct horse")


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[str, str]:
        error = self.json["error"]
        return error["code"], error["text"]


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    who: tuple[str, str] | None = ADMIN,
) -> Deferred[Reply]:
    """One request on a connection of its own."""
    return deferToThread(
        _ask, port, method, path, body, {**({} if who is None else basic(*who)), **(headers or {})}
    )


def post(
    port: int, path: str, who: tuple[str, str] | None = ADMIN, method: str = "POST", **body: object
) -> Deferred[Reply]:
    return ask(
        port, method, path, json.dumps(body).encode(), {"Content-Type": "application/json"}, who
    )


def _ask(
    port: int, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Reply(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )
    finally:
        connection.close()
