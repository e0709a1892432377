"""What clients can make a real gateway process hold in memory, measured from outside as its resident size."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.gateway_process import HOST, PATIENCE, GatewayProcess

_MIB: Final = 1024 * 1024
_CONNECT: Final = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0"


def resident(gateway: GatewayProcess) -> int:
    """Bytes of memory that the process has."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition that nothing else tells of."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience:g} s: {what}"
        time.sleep(0.02)


def connected(gateway: GatewayProcess) -> socket.socket:
    """A client that is CONNECTED."""
    client = socket.create_connection((HOST, gateway.port), PATIENCE)
    client.sendall(_CONNECT)
    answer = frame(client)
    assert answer.startswith(b"CONNECTED"), answer
    return client


def frame(client: socket.socket) -> bytes:
    """The octets up to the next NUL, without it; read one by one, so that none of what follows is taken."""
    read = bytearray()
    while octet := client.recv(1):
        if octet == b"\0":
            return bytes(read)
        read += octet
    raise AssertionError(f"the gateway has closed the connection after {bytes(read)!r}")


def unfinished(octets: int) -> Iterator[bytes]:
    """A SEND whose body is short of one octet, piece by piece."""
    yield b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % octets
    yield bytes(octets - 1)


def test_what_a_connection_held_goes_with_it(tmp_path: Path) -> None:
    """An unfinished body on each of many connections, one after the other: with none of them open, none of the bodies is in memory."""
    with GatewayProcess(tmp_path) as gateway:
        before = resident(gateway)
        for _ in range(8):
            with connected(gateway) as client:
                for part in unfinished(48 * _MIB):
                    client.sendall(part)
        until(lambda: resident(gateway) < before + 48 * _MIB, "the memory of closed connections is given back")


def test_output_that_was_never_read_goes_with_its_connection(tmp_path: Path) -> None:
    body = bytes(32 * _MIB)
    with GatewayProcess(tmp_path, store="memory") as gateway, connected(gateway) as sender:
        before = resident(gateway)
        for _ in range(6):
            reader = connected(gateway)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(b"SUBSCRIBE\nid:1\ndestination:/topic/a\nack:auto\nreceipt:r\n\n\0")
            assert b"receipt-id:r" in frame(reader)
            sender.sendall(b"SEND\ndestination:/topic/a\nreceipt:s\ncontent-length:%d\n\n" % len(body) + body + b"\0")
            assert b"receipt-id:s" in frame(sender)
            assert reader.recv(64), "the message is on its way"
            reader.close()
        until(lambda: resident(gateway) < before + 64 * _MIB, "the memory of closed connections is given back")
