"""The path of a message by stages, in one process and without sockets.

``python -m benchmarks.micro_stages [--constant] [--queues N]``; compiled,
``PYTHONPATH=build/compiled:. python -P -m benchmarks.micro_stages``.
Processor microseconds for each message of 100 bytes, not persistent, from one producer, to N queues
in turn, to one consumer with ack:auto; 300 in each read. The collector of cyclic garbage is off, so
that what a stage keeps for its measurement costs the others nothing.

*parse* is octets to frames; *plan* frames to messages; *encode* messages to the octets of MESSAGE;
*broker* what is left of all together: routing, the backlog, dispatch, credit and the session.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, Final, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.testing import MemoryReactorClock

from gateway.broker.recovery import open_broker
from gateway.broker.security.access import AccessRules
from gateway.broker.security.users import Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.memory import MemoryStore
from gateway.configuration import configure
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn
from gateway.stomp.header_roles import varying
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.service import StompService
from gateway.stomp.wire import FrameParser, Limits, Version

RUN: Final = 300
READS: Final = 200
ROUNDS: Final = 4
_HOST: Final = IPv4Address("TCP", "127.0.0.1", 40_000)
_CONNECT: Final = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n\0"


def reads(constant: bool, queues: int = 1, count: int = READS) -> list[bytes]:
    """SEND frames as the sockets would bring them.

    :param constant: headers are the same in each frame, beside the destination.
    :param queues: that they are for, in turn.
    """
    made: list[bytes] = []
    for number in range(0, RUN * count, RUN):
        frames = [
            b"SEND\ndestination:/queue/stages-%04d\npersistent:false\ncorrelation-id:order-%d\ncreated:%d\n"
            b"trace:%032x\ncontent-length:100\n\n%s\0"
            % (
                place % queues,
                10**6 + each,
                1_732_555_555_000 + each,
                each * 7919 + 2**100,
                b"x" * 100,
            )
            for place in range(number, number + RUN)
            for each in (7 if constant else place,)
        ]
        made.append(b"".join(frames))
    return made


class Everyone:
    """Lets every user in."""

    def authenticate(self, credentials: Any) -> Deferred[Principal]:
        return succeed(Principal(credentials.username, frozenset()))

    def readmit(self, principal: Principal, address: str) -> Principal:
        return principal


class Sink:
    """A transport whose kernel takes everything at once."""

    disconnecting = False

    def __init__(self) -> None:
        self.octets = 0
        self.producer: Any = None

    def write(self, octets: bytes) -> None:
        self.octets += len(octets)

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def getPeer(self) -> IPv4Address:
        return _HOST

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*arguments: object) -> None:
    """Nothing is to be done for the measurement."""


class Gateway:
    """A STOMP service over an embedded broker, both in memory."""

    def __init__(self, folder: Path) -> None:
        configuration = configure(
            folder, "stages", None, ["imq.bridge.stomp.tls.enabled=false", "imq.hostname=127.0.0.1"]
        )
        self.clock: Any = MemoryReactorClock()  # type: ignore[no-untyped-call]
        self.turn = Turn(self.clock)
        broker = open_broker(
            self.clock, self.turn, MemoryStore(self.clock), configuration.broker, _nothing
        )
        rules = AccessRules(configuration.layout.access_control)
        rules.load()
        provider = EmbeddedProvider(broker, cast(Any, Everyone()), rules, os.urandom)
        assert configuration.stomp is not None
        service = StompService(self.clock, self.turn, provider, configuration.stomp)
        ensureDeferred(service.start())

    def connect(self) -> tuple[Any, Sink]:
        """Return a connection that is CONNECTED, and its transport."""
        transport = Sink()
        connection = self.clock.tcpServers[-1][1].buildProtocol(_HOST)
        connection.makeConnection(transport)
        connection.dataReceived(_CONNECT)
        self.settle()
        return connection, transport

    def settle(self) -> None:
        """Let all be done that is due."""
        while self.clock.calls and self.clock.calls[0].getTime() <= self.clock.seconds():
            self.clock.advance(0)


def best(work: Callable[[bytes], object], octets: Sequence[bytes]) -> float:
    """Processor microseconds for each message, in the best of the rounds."""
    figures: list[float] = []
    for _ in range(ROUNDS):
        began = process_time()
        for each in octets:
            work(each)
        figures.append((process_time() - began) / (RUN * len(octets)) * 1e6)
    return min(figures)


def stages(octets: Sequence[bytes], queues: int, folder: Path) -> dict[str, float]:
    """Measure every stage.

    :param octets: to that many `queues`, see :func:`reads`.
    """
    gateway = Gateway(folder)
    parser = FrameParser(Limits(), Version.V1_2, varying)

    def parse(each: bytes) -> None:
        parser.receive(each)
        while parser.frames(1000):
            pass

    producer, _ = gateway.connect()
    consumer, transport = gateway.connect()
    for queue in range(queues):
        consumer.dataReceived(
            b"SUBSCRIBE\nid:%d\ndestination:/queue/stages-%04d\nack:auto\n\n\0" % (queue, queue)
        )
    gateway.settle()

    def all_of_them(each: bytes) -> None:
        producer.dataReceived(each)
        if transport.producer is not None:
            transport.producer.resumeProducing()
        gateway.settle()

    session = producer.session
    gathered: list[Message] = session._sending.pending
    planning = FrameParser(Limits(), Version.V1_2, varying)

    def plan(each: bytes) -> None:
        gathered.clear()
        planning.receive(each)
        while frames := planning.frames(1000):
            session.receive(frames)

    encoder = MessageEncoder(Version.V1_2, gateway.turn)
    found = {"parse": best(parse, octets), "all": best(all_of_them, octets)}
    if transport.octets < ROUNDS * RUN * len(octets) * 100:
        raise RuntimeError("messages did not arrive")
    gathered = session._sending.pending
    found["plan"] = best(plan, octets) - found["parse"]
    encoding: list[float] = []
    for _ in range(ROUNDS):
        spent = 0.0
        for each in octets:
            plan(each)
            for message in gathered:
                message.message_id = "ID:127.0.0.1-1-1"
            began = process_time()
            for message in gathered:
                encoder.tail(message)
            spent += process_time() - began
        encoding.append(spent / (RUN * len(octets)) * 1e6)
    found["encode"] = min(encoding)
    found["broker"] = found["all"] - sum(found[name] for name in ("parse", "plan", "encode"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_stages")
    parser.add_argument("--constant", action="store_true", help="the same headers in each frame")
    parser.add_argument("--queues", type=int, default=1, help="queues that get them in turn")
    given = parser.parse_args()
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        found = stages(reads(given.constant, given.queues), given.queues, Path(folder))
    for name in ("parse", "plan", "broker", "encode", "all"):
        print(f"{name:8}{found[name]:8.2f} µs")


if __name__ == "__main__":
    main()
