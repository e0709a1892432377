"""The request that makes a connection WebSocket's (RFC 6455, section 4.2).

Owns which requests are agreed to, and what is answered. Reading HTTP is h11's. Knows no sockets.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import h11

#: STOMP's names at IANA, the best first.
SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")
#: In place of origins: all of them.
ANY_ORIGIN: Final = "*"
#: Most octets of a request.
_LONGEST: Final = 16 * 1024
#: Behind the client's key (RFC 6455, section 1.3).
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION: Final = "13"
_KEY_OCTETS: Final = 16


@dataclass(frozen=True, slots=True)
class Rules:
    """Which requests a listener agrees to.

    :param path: the one resource that there is, without a query.
    :param origins: of pages that may connect, such as ``https://shop.example.org``, besides those
        of the host that was asked for; or :data:`ANY_ORIGIN`.
    :param most_octets: that a frame may carry afterwards; 0 for any number.
    """

    path: str = "/stomp"
    origins: Collection[str] = ()
    most_octets: int = 0


@dataclass(frozen=True, slots=True)
class Agreed:
    """A request that was agreed to.

    :param answer: octets for the client, before all frames.
    :param rest: octets that came behind the request.
    :param subprotocol: one of :data:`SUBPROTOCOLS`, or empty: the client has named none.
    :param headers: of the request, with names in lower case; those of one name are joined by commas.
    """

    answer: bytes
    rest: bytes
    subprotocol: str
    headers: Mapping[str, str]


class UpgradeRefused(Exception):
    """The request is not agreed to.

    The text says why, for the client and the log.

    :param answer: octets for the client, after which the connection closes.
    :param headers: of the request, as far as it could be read.
    """

    def __init__(self, text: str, answer: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(text)
        self.answer = answer
        self.headers = headers


class _Refusal(Exception):
    def __init__(
        self, status: HTTPStatus, text: str, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Upgrade:
    """One connection until its request is answered."""

    def __init__(self, rules: Rules) -> None:
        self._rules: Final = rules
        self._method = b""
        self._headers: Mapping[str, str] = {}
        self._http: Final = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST)

    def receive(self, octets: bytes) -> Agreed | None:
        """Take what has come.

        :returns: None: the request is not whole.
        :raises UpgradeRefused: it is not agreed to.
        """
        http = self._http
        try:
            http.receive_data(octets)
            request = http.next_event()
            if request is h11.NEED_DATA:
                return None
            if not isinstance(request, h11.Request):
                raise _Refusal(HTTPStatus.BAD_REQUEST, "the connection ended before its request")
            self._method = request.method
            self._headers = headers = _joined(request)
            subprotocol = self._check(request, headers)
            if not isinstance(http.next_event(), h11.EndOfMessage):
                raise _Refusal(HTTPStatus.BAD_REQUEST, "a request for WebSocket has no body")
            return self._agree(headers, subprotocol)
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise self._refused(status, f"this is no request of HTTP/1.1: {error}") from None
        except _Refusal as refusal:
            raise self._refused(refusal.status, str(refusal), refusal.headers) from None

    def refuse(self, text: str) -> bytes:
        """Return an answer that the connection cannot be had now.

        For before another one was given.
        """
        return self._answered(HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _check(self, request: h11.Request, headers: Mapping[str, str]) -> str:
        """Check a request.

        :returns: the subprotocol.
        :raises _Refusal: it breaks a rule.
        """
        rules = self._rules
        if request.http_version < b"1.1":
            raise _Refusal(HTTPStatus.BAD_REQUEST, "a WebSocket needs HTTP/1.1")
        path = request.target.decode("latin-1").partition("?")[0]
        if path != rules.path:
            raise _Refusal(
                HTTPStatus.NOT_FOUND, f"there is nothing at {path}: STOMP is at {rules.path}"
            )
        if request.method != b"GET":
            raise _Refusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "a WebSocket begins with GET",
                [("Allow", "GET")],
            )
        if "websocket" not in _tokens(headers, "upgrade") or "upgrade" not in _tokens(
            headers, "connection"
        ):
            raise _Refusal(
                HTTPStatus.UPGRADE_REQUIRED,
                "this is STOMP over WebSocket: connect with a client for it",
                [("Upgrade", "websocket"), ("Connection", "Upgrade")],
            )
        if headers.get("sec-websocket-version") != _VERSION:
            raise _Refusal(
                HTTPStatus.UPGRADE_REQUIRED,
                "the one version of WebSocket is 13",
                [("Sec-WebSocket-Version", _VERSION), ("Upgrade", "websocket")],
            )
        try:
            key = base64.b64decode(headers.get("sec-websocket-key", ""), validate=True)
        except ValueError:
            key = b""
        if len(key) != _KEY_OCTETS:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key is not 16 octets in base64")
        self._check_origin(headers)
        return _subprotocol(headers)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Check whose page connects; what is no browser does not say."""
        origin = headers.get("origin")
        allowed = self._rules.origins
        if origin is None or ANY_ORIGIN in allowed or origin in allowed:
            return
        try:
            same = urlsplit(origin).hostname == urlsplit(f"//{headers.get('host', '')}").hostname
        except ValueError:
            same = False
        # A page without an origin of its own says "null", which has no host.
        if not same or not urlsplit(origin).hostname:
            raise _Refusal(
                HTTPStatus.FORBIDDEN,
                f"pages of {origin} may not connect here: the listener's origins do not name it",
            )

    def _agree(self, headers: Mapping[str, str], subprotocol: str) -> Agreed:
        key = headers["sec-websocket-key"].encode("ascii")
        # Not for secrecy: it shows that this is WebSocket.
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        answers: list[tuple[bytes, bytes]] = [
            (b"Upgrade", b"websocket"),
            (b"Connection", b"Upgrade"),
            (b"Sec-WebSocket-Accept", accept),
        ]
        if subprotocol:
            answers.append((b"Sec-WebSocket-Protocol", subprotocol.encode()))
        answer = self._http.send(
            h11.InformationalResponse(
                status_code=HTTPStatus.SWITCHING_PROTOCOLS,
                reason=HTTPStatus.SWITCHING_PROTOCOLS.phrase.encode(),
                headers=answers,
            )
        )
        assert answer is not None
        return Agreed(answer, self._http.trailing_data[0], subprotocol, headers)

    def _refused(
        self, status: HTTPStatus, text: str, headers: Sequence[tuple[str, str]] = ()
    ) -> UpgradeRefused:
        return UpgradeRefused(text, self._answered(status, text, headers), self._headers)

    def _answered(
        self, status: HTTPStatus, text: str, headers: Sequence[tuple[str, str]] = ()
    ) -> bytes:
        body = f"{text}\n".encode()
        http = self._http
        fixed = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            *(
                []
                if any(name == "Connection" for name, _ in headers)
                else [("Connection", "close")]
            ),
        ]
        response = h11.Response(
            status_code=status,
            reason=status.phrase.encode(),
            headers=[(name.encode(), value.encode()) for name, value in (*headers, *fixed)],
        )
        said = [] if self._method == b"HEAD" else [h11.Data(data=body)]
        events: list[h11.Event] = [response, *said, h11.EndOfMessage()]
        return b"".join(http.send(event) or b"" for event in events)


def _joined(request: h11.Request) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _tokens(headers: Mapping[str, str], name: str) -> set[str]:
    return {one.strip().lower() for one in headers.get(name, "").split(",")}


def _subprotocol(headers: Mapping[str, str]) -> str:
    """The best of those that the client names.

    :raises _Refusal: none of them is STOMP's.
    """
    named = headers.get("sec-websocket-protocol")
    if named is None:
        return ""
    offered = {one.strip() for one in named.split(",")}
    found = next((one for one in SUBPROTOCOLS if one in offered), None)
    if found is None:
        raise _Refusal(
            HTTPStatus.BAD_REQUEST,
            f"none of the subprotocols {named} is spoken here: expected one of {', '.join(SUBPROTOCOLS)}, or none",
        )
    return found
