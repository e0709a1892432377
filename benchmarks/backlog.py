"""Messages that wait: filling and draining a queue, memory, restart."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from time import perf_counter

from benchmarks.endpoint import Consumer, Endpoint, Poll, Producer, Refused
from benchmarks.load import drain as wait_for
from benchmarks.measurement import Measurement
from benchmarks.meter import Cost, Meter
from benchmarks.peers import Peer
from benchmarks.tally import Outcome, Reader, Tally
from benchmarks.wire import Confirm, Shape, command, frame

# Runs of 100 whose receipts may be outstanding while a queue is filled.
_WINDOW = 10


@dataclass(frozen=True)
class Moved:
    """So many messages put in, or taken out, and what it cost."""

    messages: int
    cost: Cost
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def rate(self) -> float:
        return self.messages / self.cost.seconds

    def measurement(self, expected: int) -> Measurement:
        return Measurement(
            value=self.rate,
            outcome=self.outcome,
            messages=expected,
            server_cpu=self.cost.server / self.messages * 100_000,
            server_peak=self.cost.peak,
            generator=self.cost.generator,
            others=self.cost.others,
        )


def fill_and_drain(
    peer: Peer, name: str, body: int, persistent: bool, seconds: float
) -> list[Measurement]:
    """Fill a queue for ``seconds``, then drain it with one consumer.

    The consumer uses ``client`` and gets at most four times as long.

    :returns: messages confirmed a second while filling, and received a second while draining.
    :raises Refused: when the server refuses or stops.
    """
    filled = fill(peer, name, body, persistent, 10**7, seconds)
    drained = _drain(peer, name, filled.messages, 4 * seconds)
    return [filled.measurement(filled.messages), drained.measurement(filled.messages)]


def waiting(peer: Peer, messages: int, seconds: float) -> list[Measurement]:
    """Fill a fresh server, restart it twice, drain it and count.

    The messages are persistent and have 1 KiB.

    :param peer: not started, its folder empty; not running afterwards.
    :param seconds: bound for the filling, and again for the draining.
    :returns: resident MiB while all wait, seconds from an orderly restart to the first message, the
        same after SIGKILL, messages received a second while draining.
    :raises Refused: when the server refuses, stops, or does not take that many in time.
    """
    peer.start()
    empty = peer.tree.resident_bytes()
    filled = fill(peer, "waiting", 1024, True, messages, seconds)
    if filled.messages < messages:
        raise Refused(f"{peer.name} took {filled.messages} of {messages} messages in {seconds:g} s")
    time.sleep(
        1
    )  # a moment for what it still has to write down; its memory then is that of waiting, not of receiving
    resident = peer.tree.resident_bytes()
    peer.stop()
    orderly = _restart(peer, "waiting")
    resident_again = peer.tree.resident_bytes()
    peer.kill()
    killed = _restart(peer, "waiting")
    drained = _drain(peer, "waiting", messages, seconds)
    peer.kill()
    mib = 1024 * 1024
    return [
        Measurement(
            value=resident / mib,
            server_cpu=filled.cost.server / messages * 100_000,
            server_peak=filled.cost.peak,
            generator=filled.cost.generator,
            others=filled.cost.others,
            extra={
                "empty MiB": empty / mib,
                "after restart MiB": resident_again / mib,
                "fill msg/s": filled.rate,
            },
        ),
        Measurement(value=orderly),
        Measurement(value=killed),
        drained.measurement(messages),
    ]


def fill(
    peer: Peer, name: str, body: int, persistent: bool, messages: int, seconds: float
) -> Moved:
    """Put messages into a queue without consumers, a receipt each 100.

    :param messages: that many, unless ``seconds`` are over before.
    :raises Refused: when the server refuses, or owes receipts.
    """
    destination = f"/queue/{name}"
    with Poll() as poll:
        # The subscription makes the queue where SEND does not (see Dialect.queue_prefix).
        Consumer(poll, peer, destination, "auto", Tally(1), Reader(1)).disconnect()
        shape = Shape(peer.dialect.sends_to(destination), 0, body, persistent, Confirm.EACH_100)
        producer = Producer(poll, peer, shape, _WINDOW)
        meter = Meter(peer.tree)
        while producer.sent < messages and perf_counter() < meter.began + seconds:
            while producer.ready() and producer.sent < messages:
                producer.produce()
            poll.turn(0.05)
        wait_for(poll, [producer], [], 0)
        cost = meter.stop()
        if producer.outstanding:
            raise Refused(f"{peer.name} owes {producer.outstanding} receipts")
        producer.disconnect()
        return Moved(producer.sent, cost)


def _drain(peer: Peer, name: str, messages: int, seconds: float) -> Moved:
    tally = Tally(1)
    with Poll() as poll:
        meter = Meter(peer.tree)
        last, before = meter.began, 0
        consumer = Consumer(poll, peer, f"/queue/{name}", "client", tally, Reader(1))
        while (
            tally.distinct < messages
            and (now := perf_counter()) < meter.began + seconds
            and now < last + 10
        ):
            poll.turn(0.05)
            if tally.distinct != before:
                before, last = tally.distinct, now
        cost = meter.stop()
        received = tally.distinct
        if received == 0:
            raise Refused(f"{peer.name} delivered none of {messages} waiting messages")
        consumer.disconnect()
        return Moved(received, cost, tally.outcome([messages]))


class _First(Endpoint):
    """Waits for one message and acknowledges nothing."""

    arrived = False

    def subscribe(self, destination: str) -> None:
        headers = {
            "id": "0",
            "destination": destination,
            "ack": "client",
            "prefetch-count": "1",
            "activemq.prefetchSize": "1",
        }
        self.write(frame("SUBSCRIBE", headers | dict(self._dialect.queue_headers)))

    def frames(self, arrived: list[bytes]) -> None:
        self.arrived = self.arrived or any(command(octets) == b"MESSAGE" for octets in arrived)
        super().frames(arrived)


def _restart(peer: Peer, name: str) -> float:
    """Start the server over its data; return seconds to the first message."""
    began = perf_counter()
    peer.start()
    with Poll() as poll:
        first = _First(poll, peer)
        first.subscribe(f"/queue/{name}")
        while not first.arrived:
            if perf_counter() - began > 2 * peer.patience:
                raise Refused(
                    f"{peer.name} delivered no waiting message within {2 * peer.patience:g} s of its restart"
                )
            poll.turn(0.05)
        return perf_counter() - began


def start_up(peer: Peer) -> list[Measurement]:
    """Seconds from the start of the process over an empty folder to CONNECTED.

    :param peer: not started; not running afterwards.
    """
    seconds = peer.start()
    resident = peer.tree.resident_bytes()
    peer.stop()
    return [Measurement(value=seconds, server_peak=resident)]
