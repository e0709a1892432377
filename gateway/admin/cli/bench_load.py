"""Load on a gateway over STOMP: producers and consumers for some seconds.

Knows frames and sockets, no admin service and no terminal. All connections are of one thread. Owns
what is measured: rates, and latencies from before a message is written until it is read, or its
RECEIPT. The messages carry their time, so producers and consumers are of one process.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, perf_counter_ns
from typing import Final

from gateway.stomp.wire import Frame, FrameParser, Limits, Version, serialize

#: Messages on their way beyond which producers wait for consumers.
_MOST_UNDER_WAY: Final = 2_000
#: Bytes of messages on their way, likewise.
_MOST_OCTETS: Final = 16 * 1024 * 1024
#: Seconds that the last messages may take after the load, as long as some come.
_DRAIN_S: Final = 5.0
#: Seconds between two looks of one that waits.
_LOOK_S: Final = 0.002
_CONNECT_S: Final = 20.0
_READ: Final = 256 * 1024
#: Property of each message that tells its run.
RUN: Final = "benchRun"
_SENT: Final = "benchSent"
#: Buckets of a histogram for each doubling: values are exact to a sixty-fourth.
_BITS: Final = 6


class Histogram:
    """Counts of latencies in buckets that grow with the value, as HDR's do."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.longest_us = 0

    def record(self, us: int) -> None:
        """Count a latency, in microseconds."""
        us = max(0, us)
        shift = max(0, us.bit_length() - _BITS - 1)
        bucket = (shift << (_BITS + 1)) + (us >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.longest_us = max(self.longest_us, us)

    def percentile(self, percent: float) -> int:
        """Return the microseconds that this many percent do not exceed.

        0 without any.
        """
        left = self.count * percent / 100
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                shift, value = bucket >> (_BITS + 1), bucket & ((1 << (_BITS + 1)) - 1)
                return min(self.longest_us, ((value + 1) << shift) - 1)
        return self.longest_us


@dataclass(frozen=True)
class Load:
    """What is done.

    :param destination: as in frames, such as ``/queue/a``.
    :param size: bytes of a body.
    :param window: RECEIPTs that a producer waits for at one time; 0: it asks for none.
    :param ack: ``auto``, ``client`` or ``client-individual``.
    :param seconds: how long is sent.
    :param run: a word that is in each message.
    """

    destination: str
    producers: int
    consumers: int
    size: int
    persistent: bool
    window: int
    ack: str
    seconds: float
    run: str

    @property
    def copies(self) -> int:
        """How many consumers get each message."""
        if self.destination.startswith("/topic/"):
            return self.consumers
        return min(1, self.consumers)


@dataclass(frozen=True)
class Server:
    """Where the gateway speaks STOMP, and who connects."""

    host: str
    port: int
    user: str
    passcode: str = field(repr=False)
    tls: ssl.SSLContext | None = None


@dataclass
class Outcome:
    """What came of it.

    :param sent_s: seconds in which messages were sent, and
    :param received_s: in which they were received.
    :param errors: texts of the errors, the first ones.
    """

    sent: int = 0
    received: int = 0
    sent_s: float = 0.0
    received_s: float = 0.0
    latency: Histogram = field(default_factory=Histogram)
    receipts: Histogram = field(default_factory=Histogram)
    error_count: int = 0
    errors: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        """Count an error."""
        self.error_count += 1
        if len(self.errors) < 5 and text not in self.errors:
            self.errors.append(text)


class Refused(Exception):
    """The gateway sends an ERROR, or closes the connection; ``str`` says why."""


class _Connection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._parser = FrameParser(Limits(), Version.V1_2)

    @classmethod
    async def open(cls, server: Server) -> _Connection:
        """:raises Refused, OSError: it cannot be."""
        reader, writer = await asyncio.open_connection(
            server.host, server.port, ssl=server.tls, limit=_READ
        )
        connection = cls(reader, writer)
        connection.send(
            "CONNECT",
            {
                "accept-version": "1.2",
                "host": server.host,
                "login": server.user,
                "passcode": server.passcode,
            },
        )
        await connection.frames()
        return connection

    def send(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Write a frame; the kernel may have it later."""
        self.writer.write(serialize(command, headers.items(), body))

    async def frames(self) -> list[Frame]:
        """Wait for frames; at least one.

        :raises Refused: one of them is an ERROR, or no more come.
        """
        found: list[Frame] = []
        while not found:
            octets = await self._reader.read(_READ)
            if not octets:
                raise Refused("the gateway has closed the connection")
            self._parser.receive(octets)
            found = [*self._pulled()]
        return found

    def _pulled(self) -> Iterator[Frame]:
        while (frame := self._parser.next()) is not None:
            if frame.head.command == "ERROR":
                raise Refused(frame.head.headers.get("message", "ERROR"))
            yield frame

    async def close(self) -> None:
        """Disconnect, without waiting long."""
        with suppress(OSError, asyncio.TimeoutError):
            self.send("DISCONNECT", {})
            self.writer.close()
            await asyncio.wait_for(self.writer.wait_closed(), 2)


class _Run:
    """The load while it goes on."""

    def __init__(self, server: Server, load: Load) -> None:
        self._server = server
        self._load = load
        self._over = False
        self._began = 0.0
        self.outcome = Outcome()

    async def go(self) -> Outcome:
        """Do all of it. :raises Refused, OSError: nothing can be done."""
        load = self._load
        async with asyncio.timeout(_CONNECT_S):
            opened = [await self._subscribed() for _ in range(load.consumers)]
            senders = [await _Connection.open(self._server) for _ in range(load.producers)]
        patience = load.seconds + 2 * _DRAIN_S
        self._began = perf_counter()
        consuming = [asyncio.create_task(self._failing(self._consume(each))) for each in opened]
        producing = [
            asyncio.create_task(self._failing(self._produce(each), patience)) for each in senders
        ]
        await asyncio.gather(*producing)
        await self._drain()
        self._over = True
        for task in consuming:
            task.cancel()
        await asyncio.gather(*consuming, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in (*opened, *senders)))
        return self.outcome

    async def _failing(self, work: Awaitable[None], seconds: float | None = None) -> None:
        """Count what fails, or has not ended in time."""
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            self.outcome.fail(
                "the gateway takes nothing: is the destination full or paused, or does the gateway hang?"
            )
        except (Refused, OSError) as error:
            if not self._over:
                self.outcome.fail(str(error) or type(error).__name__)

    async def _subscribed(self) -> _Connection:
        connection = await _Connection.open(self._server)
        headers = {"id": "bench", "destination": self._load.destination, "ack": self._load.ack}
        connection.send("SUBSCRIBE", {**headers, "receipt": "subscribed"})
        await connection.frames()
        return connection

    async def _drain(self) -> None:
        """Wait for what is under way, as long as some of it comes."""
        load, outcome = self._load, self.outcome
        last, seen = perf_counter(), -1
        while outcome.received < outcome.sent * load.copies:
            if outcome.received != seen:
                last, seen = perf_counter(), outcome.received
            elif perf_counter() - last > _DRAIN_S:
                break
            await asyncio.sleep(_LOOK_S)

    async def _consume(self, connection: _Connection) -> None:
        outcome, ack, run = self.outcome, self._load.ack, self._load.run
        while True:
            frames = await connection.frames()
            now = perf_counter_ns()
            last = ""
            for frame in frames:
                headers = frame.head.headers
                if frame.head.command != "MESSAGE" or headers.get(RUN) != run:
                    continue
                outcome.received += 1
                outcome.latency.record((now - int(headers[_SENT])) // 1000)
                last = headers.get("ack", "")
                if ack == "client-individual":
                    connection.send("ACK", {"id": last})
            if last and ack == "client":
                connection.send("ACK", {"id": last})
            outcome.received_s = perf_counter() - self._began
            await connection.writer.drain()

    async def _produce(self, connection: _Connection) -> None:
        load, outcome = self._load, self.outcome
        body = b"x" * load.size
        waiting: dict[str, int] = {}
        room = asyncio.Event()
        confirming = asyncio.create_task(self._confirm(connection, waiting, room))
        most = max(1, min(_MOST_UNDER_WAY, _MOST_OCTETS // max(1, load.size)))
        number = 0
        try:
            while perf_counter() - self._began < load.seconds and not confirming.done():
                under_way = outcome.sent * load.copies - outcome.received
                if load.consumers and under_way >= most * load.copies:
                    await asyncio.sleep(_LOOK_S)
                    continue
                now = perf_counter_ns()
                headers = {
                    "destination": load.destination,
                    "persistent": "true" if load.persistent else "false",
                    "content-length": str(load.size),
                    RUN: load.run,
                    _SENT: str(now),
                }
                if load.window:
                    headers["receipt"] = str(number)
                    waiting[str(number)] = now
                number += 1
                connection.send("SEND", headers, body)
                outcome.sent += 1
                outcome.sent_s = perf_counter() - self._began
                await connection.writer.drain()
                while load.window and len(waiting) >= load.window and not confirming.done():
                    room.clear()
                    await room.wait()
                if not number % 20:
                    # Drain does not let others go on while the kernel takes all.
                    await asyncio.sleep(0)
            until = perf_counter() + _DRAIN_S
            while waiting and not confirming.done() and perf_counter() < until:
                await asyncio.sleep(_LOOK_S)
            if waiting and not confirming.done():
                outcome.fail(f"{len(waiting)} receipts have not come")
            if confirming.done():
                confirming.result()
        finally:
            confirming.cancel()

    async def _confirm(
        self, connection: _Connection, waiting: dict[str, int], room: asyncio.Event
    ) -> None:
        """Take the RECEIPTs of a producer. :raises Refused: an ERROR comes."""
        try:
            while True:
                for frame in await connection.frames():
                    sent = waiting.pop(frame.head.headers.get("receipt-id", ""), None)
                    if sent is not None:
                        self.outcome.receipts.record((perf_counter_ns() - sent) // 1000)
                room.set()
        finally:
            room.set()


def run(server: Server, load: Load) -> Outcome:
    """Load a gateway. Blocks.

    :raises Refused, OSError, TimeoutError: it cannot be connected.
    """
    return asyncio.run(_Run(server, load).go())
