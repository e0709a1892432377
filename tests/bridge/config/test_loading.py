"""Loading from files and from a web server on the loopback, without ever holding up the reactor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, PrivateCertificate
from twisted.internet.task import deferLater
from twisted.web.client import BrowserLikePolicyForHTTPS

from bridge.config.document import LARGEST
from bridge.config.loading import load, passwords, read_path
from bridge.config.model import Bridge
from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.config.remote import fetch
from bridge.config.settings import SETTINGS
from gateway.instance.settings import Settings, SettingsError, read
from tests.bridge.config.documents import document, link
from tests.gateway_process import make_certificates
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

clock: Any = reactor
DOCUMENT = document(link()).encode()
FOUND = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def settings(*overrides: str) -> Settings:
    return read(SETTINGS, None, overrides)[0]


class WebServer(Protocol):
    """Answers a request, or what is none, with the octets it is given, and closes if it shall."""

    def __init__(self, answer: bytes, close: bool, ended: Callable[[], None]) -> None:
        self.requested = b""
        self._answer = answer
        self._close = close
        self._ended = ended

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.requested += data
        if self.requested.endswith(b"\r\n\r\n") or not self.requested.startswith(b"GET "):
            self.transport.write(self._answer)
            if self._close:
                self.transport.loseConnection()

    def connectionLost(self, reason: object = None) -> None:
        self._ended()


class Served:
    """A web server on the loopback.

    :ivar ended: fires when a client's connection has ended.
    """

    def __init__(self, answer: bytes, close: bool, certificate: PrivateCertificate | None) -> None:
        self.ended: Deferred[None] = Deferred()
        self.requests: list[WebServer] = []
        factory = Factory()
        factory.buildProtocol = self._connected  # type: ignore[method-assign, assignment]
        self._answer, self._close = answer, close
        if certificate is None:
            self.port = clock.listenTCP(0, factory, interface="127.0.0.1")
        else:
            self.port = clock.listenSSL(0, factory, certificate.options(), interface="127.0.0.1")  # type: ignore[no-untyped-call]
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port.getHost().port}/imq/mq.xml"

    def _connected(self, address: object) -> WebServer:
        self.requests.append(WebServer(self._answer, self._close, self._has_ended))
        return self.requests[-1]

    def _has_ended(self) -> None:
        if not self.ended.called:
            self.ended.callback(None)

    def load(self, **options: Any) -> Deferred[tuple[Bridge, list[Problem]]]:
        given = settings(f"imq.bridge.mq.xmlurl={self.url}", "imq.bridge.config.remote=true")
        return load(given, "mq", Path("/nowhere"), clock, **options)


@contextmanager
def serving(
    answer: bytes, close: bool = False, certificate: PrivateCertificate | None = None
) -> Iterator[Served]:
    served = Served(answer, close, certificate)
    try:
        yield served
    finally:
        served.port.stopListening()


async def failure(loading: Deferred[Any]) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await loading
    return str(raised.value)


@on_reactor
async def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "mq.xml").write_bytes(DOCUMENT)
    found, warnings = await load(settings("imq.bridge.mq.xmlurl=mq.xml"), "mq", tmp_path, clock)
    assert found.links[0].name == "orders"
    assert found.origin == str(tmp_path / "mq.xml")
    assert warnings == []


@on_reactor
async def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mq.xml"

    def loading() -> Deferred[tuple[Bridge, list[Problem]]]:
        return load(settings(f"imq.bridge.mq.xmlurl={path.as_uri()}"), "mq", tmp_path, clock)

    assert (
        await failure(loading())
        == f"{path}: expected a file that can be read: No such file or directory"
    )
    path.write_text('<jmsbridge\nname="other"/>')
    assert await failure(loading()) == (
        f'{path}:2: jmsbridge "other", attribute name="other": expected mq, the name of this bridge in imq.bridge.activelist'
    )


@on_reactor
async def test_settings_that_say_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        await load(settings(), "mq", tmp_path, clock)


@on_reactor
async def test_passwords(tmp_path: Path) -> None:
    path = tmp_path / "mq.xml"
    path.write_text(
        document(
            factories='<connection-factory ref-name="a" lookup-name="x" username="u" password="${passfile:there}"/>'
            '<connection-factory ref-name="b" lookup-name="x" username="u" password="plain"/>'
        )
    )
    path.chmod(0o644)
    given = settings("imq.bridge.mq.xmlurl=mq.xml", "imq.bridge.config.password.there=s3cret")
    assert passwords(given) == {"there": "s3cret"}
    found, [warning] = await load(given, "mq", tmp_path, clock)
    assert [one.password for one in found.connection_factories] == ["s3cret", "plain"]
    assert warning.severity is Severity.WARNING
    assert warning.expected.endswith(
        "because others than its owner may read this file, with mode 0644"
    )
    assert read_path(path, None, passwords(given))[0] == found
    path.chmod(0o600)
    assert read_path(path, "mq", passwords(given)) == (found, [])


@on_reactor
async def test_a_file_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server that is gone, whose part a lock has."""
    answer = threading.Event()
    real = os.open

    def gone(path: Any, *rest: Any, **options: Any) -> int:
        if str(path).endswith("mq.xml"):
            answer.wait(20)
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", gone)
    try:
        loading = load(
            settings("imq.bridge.mq.xmlurl=mq.xml"), "mq", tmp_path, clock, timeout_s=0.1
        )
        assert (
            await failure(loading)
            == f"{tmp_path / 'mq.xml'}: expected a file that can be read within 0.1 seconds"
        )
    finally:
        answer.set()


@on_reactor
async def test_a_web_server() -> None:
    with serving(FOUND % len(DOCUMENT) + DOCUMENT, close=True) as served:
        found, warnings = await served.load()
        assert found.links[0].name == "orders"
        assert found.origin == served.url
        assert warnings == []
        assert served.requests[0].requested.startswith(b"GET /imq/mq.xml HTTP/1.1\r\n")
        await served.ended


@on_reactor
async def test_a_password_that_came_in_the_clear() -> None:
    text = document(
        factories='<connection-factory ref-name="b" lookup-name="x" username="u" password="plain"/>'
    ).encode()
    with serving(FOUND % len(text) + text) as served:
        _, [warning] = await served.load()
        assert warning.expected.endswith(
            "because it came by http:, which everybody on the way can read"
        )
        await served.ended


@on_reactor
async def test_a_body_that_ends_with_its_connection() -> None:
    with serving(b"HTTP/1.1 200 OK\r\n\r\n" + DOCUMENT, close=True) as served:
        assert (await served.load())[0].links[0].name == "orders"
        await served.ended


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n", "and it answers 404 Not Found"),
        (b"HTTP/1.1 500 Oh\x1b no\r\n\r\n", "and it answers 500 Oh\\x1b no"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
            "and it answers 302 Found, which leads to http://elsewhere/; a redirection is not followed",
        ),
    ],
)
@on_reactor
async def test_other_answers(answer: bytes, expected: str) -> None:
    with serving(answer) as served:
        assert (
            await failure(served.load())
            == f"{served.url}: expected a web server that has the document, {expected}"
        )
        await served.ended


@pytest.mark.parametrize(
    "answer",
    [FOUND % (LARGEST + 1), b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (LARGEST + 1)],
    ids=["as announced", "without a length"],
)
@on_reactor
async def test_too_large_a_document(answer: bytes) -> None:
    with serving(answer) as served:
        assert (
            await failure(served.load())
            == f"{served.url}: expected a document of at most {LARGEST} octets"
        )
        await served.ended


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200", FOUND % 100, FOUND % 100 + b"<jms"],
    ids=["nothing", "half", "head", "cut"],
)
@on_reactor
async def test_a_web_server_that_falls_silent(answer: bytes) -> None:
    with serving(answer) as served:
        assert await failure(served.load(timeout_s=0.2)) == (
            f"{served.url}: expected a web server that has the document: it has not answered in full within 0.2 seconds"
        )
        await served.ended


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200", FOUND % 100 + b"<jms", b"hello\r\n\r\n"],
    ids=["nothing", "half", "cut", "no HTTP"],
)
@on_reactor
async def test_a_web_server_that_breaks_off(answer: bytes) -> None:
    with serving(answer, close=True) as served:
        told = await failure(served.load())
        assert told.startswith(f"{served.url}: expected a web server that has the document: ")
        assert len(told) > len(f"{served.url}: expected a web server that has the document: ")
        await served.ended


@on_reactor
async def test_tls(tmp_path: Path) -> None:
    store = make_certificates(tmp_path)
    pem = (tmp_path / "server.pem").read_bytes() + (tmp_path / "server.key").read_bytes()
    server = PrivateCertificate.loadPEM(pem)  # type: ignore[no-untyped-call]
    text = document(
        factories='<connection-factory ref-name="b" lookup-name="x" username="u" password="plain"/>'
    ).encode()
    with serving(FOUND % len(text) + text, certificate=server) as served:
        trust = BrowserLikePolicyForHTTPS(Certificate.loadPEM(store.ca.read_bytes()))  # type: ignore[no-untyped-call]
        found, warnings = await served.load(trust=trust)
        assert found.connection_factories[0].password == "plain"
        assert warnings == []
        await served.ended
    with serving(FOUND % len(text) + text, certificate=server) as served:
        told = await failure(served.load())
        assert told.startswith(f"{served.url}: expected a web server that has the document: TLS: ")
        assert told.endswith("certificate verify failed")


@on_reactor
async def test_nobody_there() -> None:
    with serving(b"") as served:
        await served.port.stopListening()
        told = await failure(served.load())
        assert told.startswith(
            f"{served.url}: expected a web server that has the document: Connection was refused"
        )


@on_reactor
async def test_a_host_name_that_is_none() -> None:
    told = await failure(fetch("http://a..b/mq.xml", clock))
    assert told.startswith("http://a..b/mq.xml: expected a web server that has the document: ")


@on_reactor
async def test_a_server_without_tls() -> None:
    with serving(b"hello", close=True) as served:
        url = served.url.replace("http:", "https:")
        told = await failure(fetch(url, clock))
        assert told.startswith(f"{url}: expected a web server that has the document: TLS: ")
        await served.ended


@pytest.mark.parametrize("answer", [b"", FOUND % 100], ids=["before the answer", "in the answer"])
@on_reactor
async def test_fetching_can_be_cancelled(answer: bytes) -> None:
    with serving(answer) as served:
        fetching = fetch(served.url, clock)
        while not served.requests or not served.requests[0].requested:
            await deferLater(clock, 0.005, lambda: None)
        fetching.cancel()
        with pytest.raises(CancelledError):
            await fetching
        await served.ended
