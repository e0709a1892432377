"""Central properties: from a file or a web server; what must not differ."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gateway import central
from gateway.central import CentralProperties, CentralUnreadable
from gateway.configuration import Configuration, configure, reread, settings_now
from gateway.exit_codes import StartRefused
from gateway.instance.settings import SettingsError
from gateway.instance.settings_general import BRIDGE_ACTIVELIST, BRIDGE_TYPE
from gateway.stomp.settings import TCP_PORT
from tests.documented_blocks import shown

REMOTE = "imq.bridge.config.remote=true"


class Web:
    """A web server that has one file.

    :ivar status: of its next answers; with ``location`` as their header.
    """

    def __init__(self) -> None:
        self.data = b""
        self.status = 200
        self.location = ""
        self.short = 0
        web = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(web.status)
                if web.location:
                    self.send_header("Location", web.location)
                self.send_header("Content-Length", str(len(web.data) + web.short))
                self.end_headers()
                self.wfile.write(web.data)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}/imq/cluster.properties?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture
def varhome(tmp_path: Path) -> Path:
    """Of an instance that exists."""
    configured(tmp_path)
    return tmp_path


def configured(varhome: Path, *overrides: str) -> Configuration:
    return configure(varhome, "one", None, overrides)


def settings_file(varhome: Path) -> Path:
    return varhome / "instances" / "one" / "etc" / "gateway.properties"


def refused(varhome: Path, *overrides: str) -> str:
    with pytest.raises(StartRefused) as error:
        configured(varhome, *overrides)
    return str(error.value)


def test_the_instance_is_over_its_cluster_and_the_command_line_over_both(varhome: Path) -> None:
    common = varhome / "cluster.properties"
    common.write_text("imq.bridge.b.type=jms\nimq.bridge.stomp.tcp.port=1\n")
    found = configured(varhome, f"imq.cluster.url={common}")
    assert found.settings[TCP_PORT] == 1
    assert found.settings.source(TCP_PORT) == f"{common}:2"
    assert found.settings.named(BRIDGE_TYPE, "b") == "JMS"
    assert found.warnings == ()
    with settings_file(varhome).open("a") as file:
        file.write(f"imq.cluster.url=file:{common}\nimq.bridge.stomp.tcp.port=2\n")
    found = configured(varhome)
    assert found.settings[TCP_PORT] == 2
    [warning] = found.warnings
    assert warning.endswith(
        f"imq.bridge.stomp.tcp.port=2: expected no other value than {common}:2 has for all brokers, 1; this line counts"
    )
    assert configured(varhome, "imq.bridge.stomp.tcp.port=3").settings[TCP_PORT] == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "imq.brokerid=x",
            "imq.brokerid=x: expected what brokers have in common; this belongs in gateway.properties of each",
        ),
        ("imq.bridge.activelist=stomp,b", "this belongs in gateway.properties of each"),
        ("imq.cluster.url=else", "this belongs in gateway.properties of each"),
        (
            "imq.persist.jdbc.password=pass-word",
            "imq.persist.jdbc.password=********: expected what brokers have in common; this belongs in the passfile of each",
        ),
        ("imq.cluster.ha=maybe", ":1: imq.cluster.ha=maybe: expected true or false"),
        ("imq.bridge.enabeld=true", "the nearest known name is imq.bridge.enabled"),
    ],
)
def test_what_has_no_place_there(varhome: Path, line: str, told: str) -> None:
    common = varhome / "cluster.properties"
    common.write_text(f"{line}\n")
    text = refused(varhome, f"imq.cluster.url={common}")
    assert f"{common}:1: " in text
    assert told in text
    assert "pass-word" not in text


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("imq.bridge.enabled=true", "imq.bridge.enabled=false"),
        ("imq.bridge.b.xmlurl=a.xml", "imq.bridge.b.xmlurl=b.xml"),
    ],
)
def test_what_may_not_differ(varhome: Path, here: str, there: str) -> None:
    common = varhome / "cluster.properties"
    common.write_text(f"\n{there}\n")
    with settings_file(varhome).open("a") as file:
        file.write(f"{here}\n")
    text = refused(varhome, f"imq.cluster.url={common}")
    name, _, value = there.partition("=")
    assert f"{here}: expected {value}, as {common}:2 has it for all brokers" in text
    assert f"{settings_file(varhome)}:" in text
    assert name in text


def test_a_file_that_is_not_there(varhome: Path) -> None:
    path = varhome / "none.properties"
    assert (
        refused(varhome, f"imq.cluster.url={path}")
        == f"{path}: expected a file that can be read: No such file or directory"
    )
    assert "imq.cluster.url=ftp://x/: expected a path, a file: URL" in refused(
        varhome, "imq.cluster.url=ftp://x/"
    )
    told = refused(varhome, "imq.cluster.url=http://me:pass-word@x/")
    assert "only with imq.bridge.config.remote=true" in told
    assert "pass-word" not in told


def test_a_file_is_read_whenever_settings_are(varhome: Path) -> None:
    common = varhome / "cluster.properties"
    common.write_text("imq.bridge.b.type=jms\n")
    found = configured(varhome, f"imq.cluster.url={common}")
    common.write_text("imq.bridge.b.type=jms\nimq.bridge.c.type=jms\n")
    for now in (reread(found), settings_now(found)):
        assert now.names(BRIDGE_TYPE)[-2:] == ["b", "c"]
    assert now[BRIDGE_ACTIVELIST] == ("stomp",)
    common.unlink()
    with pytest.raises(SettingsError, match="a file that can be read"):
        reread(found)


@pytest.mark.process
def test_from_a_web_server(varhome: Path, web: Web) -> None:
    web.data = "# Größe\nimq.bridge.b.type=jms\n".encode()
    found = configured(varhome, f"imq.cluster.url={web.url}", REMOTE)
    assert found.settings.named(BRIDGE_TYPE, "b") == "JMS"
    assert found.settings.source(BRIDGE_TYPE, "b") == f"{web.url}:2"
    # It is asked when it is told to, and not whenever settings are read.
    web.data = b"imq.bridge.c.type=jms\n"
    assert "c" not in reread(found).names(BRIDGE_TYPE)
    assert found.central is not None
    found.central.fetch()
    assert "c" in reread(found).names(BRIDGE_TYPE)
    web.close()
    with pytest.raises(CentralUnreadable, match="Connection refused"):
        found.central.fetch()
    assert "c" in reread(found).names(BRIDGE_TYPE)
    # And it may be down when the process starts again.
    again = configured(varhome, f"imq.cluster.url={web.url}", REMOTE)
    assert "c" in again.settings.names(BRIDGE_TYPE)
    [warning] = again.warnings
    assert warning.startswith(f"{web.url}: expected a web server that has the file: ")
    assert warning.endswith("; the last copy of them is used, " + str(_kept(varhome)))


@pytest.mark.process
def test_what_the_page_has(varhome: Path, web: Web) -> None:
    """The list of a new instance is replaced by the page's."""
    common = shown("high_availability", "# cluster.properties")
    web.data = common.encode()
    with settings_file(varhome).open("a") as file:
        mine = shown("high_availability", "# gateway.properties of each")
        file.write(mine.replace("https://config.example.com/mq/cluster.properties", web.url) + "\n")
    found = configured(varhome)
    [warning] = found.warnings
    assert "imq.bridge.activelist=stomp,to_erp: expected each name once" in warning
    assert found.settings.named(BRIDGE_TYPE, "to_erp") == "JMS"
    assert found.settings.source(BRIDGE_TYPE, "to_erp") == f"{web.url}:5"


@pytest.mark.process
def test_what_cannot_be_used_is_not_kept(varhome: Path, web: Web) -> None:
    web.data = b"imq.bridge.b.type=jms\n"
    found = configured(varhome, f"imq.cluster.url={web.url}", REMOTE)
    # As of a server that answers with a page about its trouble.
    web.data = b"<html>Sorry</html>\n"
    assert found.central is not None
    found.central.fetch()
    with pytest.raises(SettingsError):
        reread(found)
    assert "<html>" in refused(varhome, f"imq.cluster.url={web.url}", REMOTE)
    web.close()
    again = configured(varhome, f"imq.cluster.url={web.url}", REMOTE)
    assert again.settings.named(BRIDGE_TYPE, "b") == "JMS"


def _kept(varhome: Path) -> Path:
    return settings_file(varhome).with_name("cluster.properties.copy")


@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "location", "told"),
    [
        (404, "", "it answers 404 Not Found"),
        (302, "/else", "it answers 302 Found, which leads to /else; a redirection is not followed"),
    ],
)
def test_a_web_server_that_does_not_have_it(
    varhome: Path, web: Web, status: int, location: str, told: str
) -> None:
    web.status, web.location = status, location
    assert (
        refused(varhome, f"imq.cluster.url={web.url}", REMOTE)
        == f"{web.url}: expected a web server that has the file: {told}"
    )
    assert not _kept(varhome).exists()


@pytest.mark.process
def test_a_web_server_that_gives_too_much_or_too_little(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = CentralProperties(web.url, tmp_path / "kept")
    monkeypatch.setattr(central, "LARGEST", 10)
    web.data = b"a" * 11
    with pytest.raises(CentralUnreadable, match="more than 10 octets"):
        place.fetch()
    monkeypatch.setattr(central, "FETCH_SECONDS", 0.5)
    web.data, web.short = b"a" * 5, 1
    with pytest.raises(CentralUnreadable):
        place.fetch()
    assert not (tmp_path / "kept").exists()


class Slow:
    """A web server that gives an octet now and then, for ever."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(first, again))
        self._thread.start()

    def _serve(self, first: bytes, again: bytes) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(first)
                while not self._ended.wait(0.05):
                    connection.sendall(again)

    def close(self) -> None:
        self._ended.set()
        self._listener.close()
        self._thread.join()


@pytest.mark.process
@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    ],
    ids=["header", "chunk", "file"],
)
def test_a_web_server_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes, again: bytes
) -> None:
    monkeypatch.setattr(central, "FETCH_SECONDS", 0.5)
    web = Slow(first, again)
    with ThreadPoolExecutor() as pool:
        fetching = pool.submit(CentralProperties(web.url, tmp_path / "kept").fetch)
        try:
            error = fetching.exception(60)
        finally:
            web.close()
    assert isinstance(error, CentralUnreadable)
    assert "it has not answered in full within 0.5 seconds" in str(error)
