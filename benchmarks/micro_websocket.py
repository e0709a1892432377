"""Microseconds to read a WebSocket message, by our reader and wsproto's.

    python -m benchmarks.micro_websocket [--seconds 0.3]

A buffer of 64 KiB, which is what one read of a socket brings, is read again and again. Each message
is one masked frame with a SEND. Twisted's own WebSocket server reads by wsproto, too, so that is what
it costs at least.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Callable

from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import Message

from benchmarks.micro_wire import READ, THREE, best, sends
from gateway.stomp.websocket.frames import FrameReader, Opcode
from gateway.stomp.wire import Version


def masked(opcode: Opcode, payload: bytes) -> bytes:
    """A message of one frame, as a client sends it."""
    mask = os.urandom(4)
    first, length = 0x80 | opcode, len(payload)
    head = bytes([first, 0x80 | length]) if length < 126 else b""
    head = head or struct.pack("!BBH", first, 0x80 | 126, length)
    return head + mask + bytes(octet ^ mask[at & 3] for at, octet in enumerate(payload))


def ours(octets: bytes) -> Callable[[], int]:
    """Reads the octets and returns how many octets the messages had."""
    reader = FrameReader()

    def read() -> int:
        carried = len(reader.receive(octets))
        while reader.more:
            carried += len(reader.receive(b""))
        return carried

    return read


def of_wsproto(octets: bytes) -> Callable[[], int]:
    """The same by wsproto."""
    connection = Connection(ConnectionType.SERVER)

    def read() -> int:
        connection.receive_data(octets)
        events = connection.events()
        return sum([len(event.data) for event in events if isinstance(event, Message)])

    return read


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description="Microseconds a message of WebSocket.")
    arguments.add_argument("--seconds", type=float, default=0.3, help="(default: %(default)s)")
    seconds: float = arguments.parse_args().seconds
    print(f"{'message':24} {'ours':>8} {'wsproto':>8} {'times':>6}")
    for opcode in (Opcode.TEXT, Opcode.BINARY):
        for body in (100, 1024):
            frame = sends(THREE, body, "content-type", Version.V1_2)
            payloads = [frame(number) for number in range(READ // len(frame(0)))]
            octets = b"".join([masked(opcode, payload) for payload in payloads])
            carried = sum(map(len, payloads))
            figures = []
            for read in (ours(octets), of_wsproto(octets)):
                if read() != carried:
                    raise SystemExit("a reader did not read all")

                def round_of(read: Callable[[], int] = read, many: int = len(payloads)) -> int:
                    read()
                    return many

                figures.append(best(round_of, seconds))
            kind = f"{opcode.name.lower()}, {body} B"
            print(f"{kind:24} {figures[0]:8.2f} {figures[1]:8.2f} {figures[1] / figures[0]:6.1f}")


if __name__ == "__main__":
    main()
