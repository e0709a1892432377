"""Load over WebSocket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.cell import Timing
from benchmarks.load import Load
from benchmarks.tally import Outcome
from benchmarks.web import OverWebSocket, Web, WebGateway, WebRabbitMQ, WebSocketed, readme
from benchmarks.wire import Confirm

_TIMING = Timing(warm_up=0.1, seconds=0.3)


def check(peer: OverWebSocket, *loads: Load) -> None:
    peer.start()
    try:
        for number, declared in enumerate(loads):
            web, share = Web(declared).measure(peer, f"web{number}", _TIMING)
            assert web.value
            assert web.outcome == share.outcome == Outcome()
            assert share.value
            assert web.value == pytest.approx(share.value / 100 * share.extra["tcp msg/s"])
    finally:
        peer.kill()


def test_the_gateway_takes_it(tmp_path: Path) -> None:
    check(
        WebGateway(tmp_path / "gateway"),
        Load(varying=True),
        Load(body=65536),
        Load(persistent=True, confirm=Confirm.EACH_100, ack="client"),
    )


@pytest.mark.long
def test_so_does_rabbitmq(tmp_path: Path) -> None:
    check(WebRabbitMQ(tmp_path / "other"), Load(varying=True))


def test_a_server_that_speaks_no_websocket_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with plain, other:
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(OSError, match=r"no WebSocket: b'HTTP/1\.1 400"):
                WebSocketed(plain, "/stomp")


def test_each_frame_is_a_message_and_a_full_socket_takes_it_later() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x03abc\x82")
        web = WebSocketed(ours, "/stomp")
        theirs.recv(4096)
        web.send(b"A\n\n\0BC\n\n\0")
        assert theirs.recv(4096) == b"\x81\x84\0\0\0\0A\n\n\0\x81\x85\0\0\0\0BC\n\n\0"
        theirs.sendall(b"\x7e\x00\x80" + b"x" * 100)
        assert web.recv(4096) == b"abc" + b"x" * 100
        theirs.sendall(b"y" * 28)
        assert web.recv(4096) == b"y" * 28
        ours.setblocking(False)
        long = b"z" * 5_000_000 + b"\0"
        theirs.settimeout(10)
        got = 0
        with pytest.raises(BlockingIOError):
            web.send(long)
        while True:
            got += len(theirs.recv(1 << 20))
            try:
                assert web.send(long) == len(long)
                break
            except BlockingIOError:
                continue
        while got < len(long) + 14:
            got += len(theirs.recv(1 << 20))
        assert got == len(long) + 14


def test_the_servers_that_have_no_websocket_are_not_measured() -> None:
    [cell] = readme()
    assert set(cell.servers) == {"gateway", "pure", "RabbitMQ"}
