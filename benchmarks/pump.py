"""The least that can pass for a STOMP server: SEND becomes MESSAGE.

It has one queue or topic, stores nothing, and makes MESSAGE frames by substitution.

``python -m benchmarks.pump PORT`` runs it. It is no server: what the load generator reaches against
it is the ceiling of the generator, below which the figures of real servers are the servers' own. It
understands exactly the frames of :mod:`benchmarks.wire`, one subscription a connection, and gives
each SUBSCRIBE its own messages: a queue's go to its consumers in turn chunk by chunk, a topic's to
all.
"""

from __future__ import annotations

import asyncio
import re
import sys

_RECEIPT = re.compile(rb"\nreceipt:([^\n]*)")
_DESTINATION = re.compile(rb"\ndestination:([^\n]*)")
_OTHERS = re.compile(rb"(?:BEGIN|COMMIT|ACK)\n[^\0]*\0")


class _Connection(asyncio.Protocol):
    subscribers: dict[bytes, list[_Connection]]
    transport: asyncio.Transport

    def __init__(self, subscribers: dict[bytes, list[_Connection]]) -> None:
        self.subscribers = subscribers
        self._rest = b""
        self._destination: bytes | None = None
        self._turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._destination is not None:
            self.subscribers[self._destination].remove(self)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = data.rfind(b"\0") + 1
        self._rest, data = data[end:], data[:end]
        if not data:
            return
        first = data.lstrip(b"\n")[:4]
        if first == b"CONN":
            self.transport.write(b"CONNECTED\nversion:1.2\n\n\0")
        elif first == b"SUBS":
            self._subscribe(data)
        elif first in (b"SEND", b"BEGI", b"ACK\n", b"COMM"):
            self._forward(data)
        receipts = _RECEIPT.findall(data)
        if receipts:
            self.transport.write(
                b"".join([b"RECEIPT\nreceipt-id:" + name + b"\n\n\0" for name in receipts])
            )

    def _subscribe(self, data: bytes) -> None:
        match = _DESTINATION.search(data)
        if match is not None:
            self._destination = match[1]
            self.subscribers.setdefault(match[1], []).append(self)

    def _forward(self, data: bytes) -> None:
        match = _DESTINATION.search(data)
        if match is None:
            return  # only ACK, BEGIN, COMMIT
        receivers = self.subscribers.get(match[1], [])
        if b"BEGIN\n" in data[:64] or b"COMMIT\n" in data:
            data = _OTHERS.sub(b"", data)
        messages = data.replace(b"SEND\n", b"MESSAGE\nsubscription:0\nmessage-id:1\nack:1\n")
        if receivers and not match[1].startswith(b"/topic/"):
            self._turn += 1
            receivers = [receivers[self._turn % len(receivers)]]
        for receiver in receivers:
            receiver.transport.write(messages)


async def _serve(port: int) -> None:
    subscribers: dict[bytes, list[_Connection]] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(subscribers), "127.0.0.1", port
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
