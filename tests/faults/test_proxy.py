"""The proxy does what it is told: a fault that does not happen would prove nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.crash.waiting import until
from tests.faults.proxy import PATIENCE, Fault, Proxy, Toward, Trigger
from tests.gateway_process import HOST


class Line:
    """Both ends of a connection through the proxy."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.listener.settimeout(PATIENCE)
        self.proxy = Proxy(self.listener.getsockname()[1])
        self.client, self.server = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection((HOST, self.proxy.port), PATIENCE)
        server, _ = self.listener.accept()
        server.settimeout(PATIENCE)
        return client, server

    def close(self) -> None:
        self.proxy.close()
        for one in (self.client, self.server, self.listener):
            one.close()


@pytest.fixture
def line() -> Iterator[Line]:
    with closing(Line()) as line:
        yield line


def everything(connection: socket.socket) -> tuple[bytes, str]:
    """What comes until the end, and which end: FIN or RST."""
    found = b""
    while True:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            return found, "RST"
        if not data:
            return found, "FIN"
        found += data


def exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, found
        found += data
    return found


def test_it_passes_octets_both_ways_and_the_end(line: Line) -> None:
    much = bytes(range(256)) * 40_000
    sending = threading.Thread(target=line.client.sendall, args=(much,))
    sending.start()
    assert exactly(line.server, len(much)) == much
    sending.join()
    line.server.sendall(b"back")
    assert exactly(line.client, 4) == b"back"
    line.client.shutdown(socket.SHUT_WR)
    assert everything(line.server) == (b"", "FIN")
    line.server.sendall(b"the other way is open")
    line.server.close()
    assert everything(line.client) == (b"the other way is open", "FIN")


def test_it_drops(line: Line) -> None:
    line.proxy.drop()
    assert (everything(line.client)[1], everything(line.server)[1]) == ("RST", "RST")
    again, _ = line.connect()
    again.close()
    assert line.proxy.connections == 2


@pytest.mark.parametrize(("after", "passed"), [(True, b"one two"), (False, b"one ")])
def test_it_drops_at_a_pattern_that_comes_in_pieces(line: Line, after: bool, passed: bytes) -> None:
    trigger = line.proxy.when(Trigger(Toward.SERVER, b"tw[o]", Fault.DROP, after=after))
    line.client.sendall(b"one t")
    assert exactly(line.server, 5) == b"one t"
    line.client.sendall(b"wo three")
    trigger.wait()
    # What has passed cannot be called back.
    assert everything(line.server) == (passed[5:] if after else b"", "RST")


def test_it_counts_over_connections(line: Line) -> None:
    trigger = line.proxy.when(Trigger(Toward.CLIENT, b"x", Fault.DROP, nth=3))
    line.server.sendall(b"x.")
    assert exactly(line.client, 2) == b"x."
    client, server = line.connect()
    server.sendall(b"xyxy")
    trigger.wait()
    assert everything(client) == (b"xyx", "RST")
    line.server.sendall(b"xx")
    assert exactly(line.client, 2) == b"xx"


def test_it_calls_before_the_fault(line: Line) -> None:
    called: list[str] = []
    line.proxy.when(
        Trigger(Toward.SERVER, b"!", Fault.NONE, then=lambda: called.append("then"))
    ).fired.is_set()
    line.client.sendall(b"now!")
    assert exactly(line.server, 4) == b"now!"
    assert called == ["then"]


def test_it_half_closes(line: Line) -> None:
    line.proxy.half_close(Toward.SERVER)
    assert everything(line.server) == (b"", "FIN")
    line.server.sendall(b"still")
    assert exactly(line.client, 5) == b"still"


def test_it_goes_silent(line: Line) -> None:
    line.proxy.silence()
    line.client.sendall(b"nobody hears")
    line.server.settimeout(0.2)
    with pytest.raises(TimeoutError):
        line.server.recv(1)
    line.client.close()
    with pytest.raises(TimeoutError):
        line.server.recv(1)


def test_it_swallows_new_connections(line: Line) -> None:
    line.proxy.swallow()
    before = line.proxy.connections
    with socket.create_connection((HOST, line.proxy.port), PATIENCE) as silent:
        silent.sendall(b"anybody there?")
        until(lambda: line.proxy.connections > before, "the proxy has not accepted it")
        silent.settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent.recv(1)
    line.proxy.swallow(False)
    client, server = line.connect()
    client.sendall(b"yes")
    assert exactly(server, 3) == b"yes"


def test_it_cuts_and_heals(line: Line) -> None:
    line.proxy.cut()
    line.client.sendall(b"late")
    # The system accepts it; the server hears of it later.
    with socket.create_connection((HOST, line.proxy.port), PATIENCE) as new:
        new.sendall(b"new")
        for waiting in (line.listener, line.server):
            waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            line.server.recv(1)
        with pytest.raises(TimeoutError):
            line.listener.accept()
        for waiting in (line.listener, line.server):
            waiting.settimeout(PATIENCE)
        line.proxy.heal()
        assert exactly(line.server, 4) == b"late"
        accepted, _ = line.listener.accept()
        with accepted:
            accepted.settimeout(PATIENCE)
            assert exactly(accepted, 3) == b"new"
    line.server.sendall(b"back")
    assert exactly(line.client, 4) == b"back"


def test_an_end_waits_while_the_network_is_cut(line: Line) -> None:
    # Time enough to cut the network on a busy machine, too.
    line.proxy.delay(2)
    line.client.sendall(b"bye")
    line.proxy.cut()
    line.client.close()
    # What was on its way when the network was cut waits, too.
    line.server.settimeout(2.5)
    with pytest.raises(TimeoutError):
        line.server.recv(1)
    line.server.settimeout(PATIENCE)
    line.proxy.heal()
    assert everything(line.server) == (b"bye", "FIN")


def test_it_refuses_and_admits(line: Line) -> None:
    line.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, line.proxy.port), PATIENCE)
    line.client.sendall(b"I was here before")
    assert exactly(line.server, 17) == b"I was here before"
    line.proxy.admit()
    line.connect()


def test_a_server_that_is_not_there_resets(line: Line) -> None:
    line.listener.close()
    # It is accepted and then reset, which may show before connecting is over.
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection((HOST, line.proxy.port), PATIENCE) as client,
    ):
        client.recv(1)


def test_it_delays_in_order(line: Line) -> None:
    line.proxy.delay(0.1)
    began = time.monotonic()
    for piece in (b"a", b"b", b"c"):
        line.client.sendall(piece)
    first = line.server.recv(1)
    # A busy machine takes longer, none is quicker.
    assert time.monotonic() - began >= 0.1
    line.proxy.delay(0)
    line.client.sendall(b"d")
    assert first + exactly(line.server, 3) == b"abcd"
