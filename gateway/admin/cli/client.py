"""Find the admin service and send it requests.

Blocking, by the standard library's HTTP client. Owns the way from ``HOST:PORT`` of the port mapper to an answer. Prints nothing and knows no
command; news while it waits goes to a callable.

A password is sent in the clear only where it does not leave this machine. Elsewhere the service
must speak TLS, and its certificate must be trusted.
"""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from gateway.admin.service.settings import PORT_MAPPER_NAME, is_loopback

DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 7676

#: The most that is read of a port mapper's answer, in octets.
_MOST_OF_A_TABLE: Final = 1024 * 1024
#: An entry: name, protocol, type, port, and sometimes properties. Names may have brackets of their
#: own: ``stomp[bridge]``.
_ENTRY: Final = re.compile(r"(\S+) (\S+) (\S+) ([0-9]{1,5})(?: \[(.*)\])?")


class AdminError(Exception):
    """A command cannot go on.

    :param text: why, a sentence.
    :param code: of the service or of Open MQ's; may be empty.
    :param status: HTTP's where the service answered, else 0.
    """

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class Entry:
    """One service, as the port mapper tells of it."""

    name: str
    protocol: str
    type: str
    port: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the admin service is.

    :param tls: whether it speaks TLS.
    :param name: what its certificate must be for.
    """

    host: str
    port: int
    tls: bool
    name: str


def broker_address(text: str) -> tuple[str, int]:
    """Read host and port of a port mapper.

    The form is ``HOST:PORT``, ``HOST``, ``:PORT`` or ``[IPV6]:PORT``, with the defaults for what is
    missing.

    :raises AdminError: it has another form.
    """
    match = re.fullmatch(
        r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::([0-9]{1,5}))?",
        text.strip().removeprefix("mq://").rstrip("/"),
    )
    port = DEFAULT_PORT if match is None or match[3] is None else int(match[3])
    if match is None or not 0 < port <= 65535:
        raise AdminError(f"{text!r} is no broker; expected HOST:PORT")
    return match[1] or match[2] or DEFAULT_HOST, port


def port_mapper_entries(host: str, port: int, timeout_s: float | None = 10.0) -> list[Entry]:
    """Read the table of the port mapper there.

    :raises AdminError: nothing answers, or something that is not a port mapper.
    """
    broker = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(b"101\n")
            answer = b""
            while not answer.endswith(b"\n.\n") and len(answer) < _MOST_OF_A_TABLE:
                octets = connection.recv(65536)
                if not octets:
                    break
                answer += octets
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise AdminError(
            f"no broker answers at {broker}: {reason}. Is it running, and is this its port mapper?",
            "unreachable",
        ) from None
    lines = answer.decode("ascii", "replace").splitlines()
    if not lines or re.match(r"[0-9]+ \S", lines[0]) is None:
        raise AdminError(f"what answers at {broker} is no port mapper", "unreachable")
    entries = []
    for line in lines[1:]:
        match = _ENTRY.fullmatch(line.strip())
        if match is not None:
            pairs = (pair.partition("=") for pair in (match[5] or "").split(","))
            properties = {name.strip(): value for name, equals, value in pairs if equals}
            entries.append(Entry(match[1], match[2], match[3], int(match[4]), properties))
    return entries


def find(host: str, port: int, *, secure: bool = False, timeout_s: float | None = 10.0) -> Address:
    """Find the admin service of the broker whose port mapper is there.

    :param secure: whether the service must speak TLS.
    :raises AdminError: it is not found, or a password would be sent in the clear over a network.
    """
    broker = f"{host}:{port}"
    entry = next(
        (
            each
            for each in port_mapper_entries(host, port, timeout_s)
            if each.name == PORT_MAPPER_NAME
        ),
        None,
    )
    if entry is None:
        raise AdminError(
            f"the broker at {broker} runs, and has no admin service: the bridge service manager does not run (imq.bridge.enabled)",
            "no_admin_service",
        )
    tls = entry.protocol == "tls"
    if secure and not tls:
        raise AdminError(
            f"the admin service of {broker} does not speak TLS: imq.bridge.admin.tls.enabled is false",
            "not_secure",
        )
    if tls:
        return Address(host, entry.port, True, host)
    if not is_here(host):
        raise AdminError(
            f"the admin service of {broker} listens on that machine's loopback only: run the command there, or set "
            "imq.bridge.admin.hostname and imq.bridge.admin.tls.enabled",
            "not_here",
        )
    # It is on this machine, but on its loopback, whatever address the port mapper was asked at.
    there = entry.properties.get("hostname", "")
    return Address(there if is_loopback(there) else "127.0.0.1", entry.port, False, host)


def is_here(host: str) -> bool:
    """Whether that is a name or an address of this machine.

    Only its own addresses can be bound.
    """
    if is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(address)
        except OSError:
            return False
    return bool(found)


class AdminClient:
    """Sends requests to the admin service, as one administrator.

    A request is sent once, whatever happens, because it may have been carried out. Retries only
    wait again for the answer.

    :param timeout_s: seconds until the first notice that there is no answer yet; None waits for
        ever.
    :param retries: how often to wait again, each time ``timeout_s`` longer than before.
    :param retrying: called before each retry with its number, the number of retries, and its
        seconds.
    :param authorities: a file of the certificates to trust, PEM; None trusts those of the system.
    """

    def __init__(
        self,
        address: Address,
        user: str,
        password: str,
        *,
        timeout_s: float | None = 10.0,
        retries: int = 5,
        retrying: Callable[[int, int, float], None] | None = None,
        authorities: Path | None = None,
    ) -> None:
        self._address = address
        #: Name and password.
        self.credentials: Final = (user, password)
        self._authorization = "Basic " + b64encode(f"{user}:{password}".encode()).decode("ascii")
        self._timeout_s = timeout_s
        self._retries = retries
        self._retrying = retrying
        self._tls: ssl.SSLContext | None = None
        if address.tls:
            try:
                self._tls = ssl.create_default_context(
                    cafile=None if authorities is None else str(authorities)
                )
            except (OSError, ssl.SSLError) as error:
                raise AdminError(
                    f"{authorities}: no certificates can be read from it: {error}"
                ) from None

    def get(self, path: str, **parameters: object) -> Any:
        """GET, as :meth:`ask`."""
        return self.ask("GET", path, parameters)

    def ask(self, method: str, path: str, parameters: Mapping[str, object] | None = None) -> Any:
        """Request something. :returns: the answer, as ``json`` reads it.

        :param path: its parts quoted.
        :param parameters: of the URL for GET, else of the body; those that are None are left out,
            and of a URL empty ones.
        :raises AdminError: the service refuses, with its text and code; or does not answer.
        """
        given = {
            name: value
            for name, value in (parameters or {}).items()
            if value is not None and (value != "" or method != "GET")
        }
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        target, content = path, b""
        if method != "GET":
            headers["Content-Type"] = "application/json"
            content = json.dumps(given).encode()
        elif given:
            target += "?" + urlencode({name: _text(value) for name, value in given.items()})
        connection = self._connection()
        try:
            connection.request(method, target, content, headers)
            self._wait(connection)
            response = connection.getresponse()
            octets = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        return self._read(response.status, octets)

    def move(self, address: Address) -> None:
        """Ask the service there from now on."""
        self._address = address

    def stream(
        self, path: str, parameters: Mapping[str, object], last: str, silence_s: float
    ) -> Iterator[str]:
        """Yield the lines of server-sent events, until the stream ends.

        :param last: the id of the last event that is known; "" for none.
        :param silence_s: seconds without a line after which it is over.
        :raises AdminError: the service refuses, or does not answer.
        """
        headers = {"Authorization": self._authorization, "Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        given = {name: value for name, value in parameters.items() if value}
        target = f"{path}?{urlencode(given)}" if given else path
        connection = self._connection()
        try:
            connection.request("GET", target, headers=headers)
            self._wait(connection)
            response = connection.getresponse()
            if response.status != 200:
                self._read(response.status, response.read())
            if connection.sock is not None:
                connection.sock.settimeout(silence_s)
            for line in response:
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> AdminError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return AdminError(
                f"the certificate of the admin service at {self._where} cannot be trusted: {error.verify_message or error}",
                "untrusted",
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return AdminError(
            f"the admin service at {self._where} does not answer: {reason}", "unreachable"
        )

    def _connection(self) -> http.client.HTTPConnection:
        address, timeout_s = self._address, self._timeout_s
        if self._tls is None:
            return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout_s, context=self._tls
        )

    def _wait(self, connection: http.client.HTTPConnection) -> None:
        """Until the answer begins to come. :raises TimeoutError: it does not."""
        if self._timeout_s is None or (
            isinstance(connection.sock, ssl.SSLSocket) and connection.sock.pending()
        ):
            return
        for attempt in range(self._retries + 1):
            wait_s = self._timeout_s * (attempt + 1)
            if attempt and self._retrying is not None:
                self._retrying(attempt, self._retries, wait_s)
            if select.select([connection.sock], [], [], wait_s)[0]:
                return
        raise TimeoutError("no answer in time; what was asked may still be done")

    def _read(self, status: int, octets: bytes) -> Any:
        try:
            answer = json.loads(octets)
        except (ValueError, RecursionError):
            raise AdminError(
                f"what answers at {self._where} is no admin service: no JSON came, with status {status}",
                "",
                status,
            ) from None
        if status < 300:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            raise AdminError(
                f"the admin service at {self._where} refused with status {status}", "", status
            )
        raise AdminError(str(error.get("text", "")), str(error.get("code", "")), status)

    @property
    def _where(self) -> str:
        return f"{self._address.host}:{self._address.port}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
