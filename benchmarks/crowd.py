"""Many connections that each send one message a second.

They send in turn, evenly over the second, whatever the server does; one consumer receives all.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from benchmarks.cell import Cell, Row, Timing
from benchmarks.endpoint import Consumer, Endpoint, Poll, Refused
from benchmarks.goals import Below, NoneLost
from benchmarks.idle import raise_descriptor_limit
from benchmarks.load import Schedule
from benchmarks.measurement import Measurement, percentiles
from benchmarks.meter import Meter
from benchmarks.peers import Peer
from benchmarks.tally import Reader, Tally
from benchmarks.wire import Block, Shape

# Between two looks at what is due and what has arrived, in seconds. All latencies are exact to that.
_PAUSE = 0.0002
# How long opening all may take, in seconds.
_OPENING = 180.0
# Seconds of load before the measurement, and how long nothing may arrive after it before what is
# missing is called lost.
_WARM_UP = 5.0
_SILENCE = 15.0


class _Order:
    """Counts messages that came after a later one of the same connection."""

    def __init__(self, connections: int) -> None:
        self._last = [-1] * connections
        self.disordered = 0

    def arrival(self, numbers: Sequence[int]) -> None:
        """These arrived, in this order."""
        last = self._last
        for number in numbers:
            connection = number % len(last)
            if number < last[connection]:
                self.disordered += 1
            last[connection] = number


def run(peer: Peer, connections: int, body: int, seconds: float) -> list[Measurement]:
    """Have each connection send once a second to one queue of a fresh server.

    Messages are non-persistent with varying headers.

    :param connections: the senders and the one consumer.
    :param peer: not started, its folder empty; not running afterwards.
    :returns: the server's processor time in percent of one core; p99 in milliseconds, from when a
        message was due to its arrival; resident KiB for each connection.
    :raises Refused: when the server does not take all connections, or closes one.
    """
    limit = raise_descriptor_limit()
    if connections + 200 > limit:
        raise Refused(
            f"{connections} connections need as many open files; the limit here is {limit}"
        )
    peer.start()
    gc.collect()
    gc.disable()
    try:
        with Poll() as poll:
            return _run(poll, peer, connections, body, seconds)
    finally:
        gc.enable()
        peer.kill()


def _run(poll: Poll, peer: Peer, connections: int, body: int, seconds: float) -> list[Measurement]:
    destination, senders = "/queue/crowd", connections - 1
    block = Block(Shape(peer.dialect.sends_to(destination), body=body, varying=True), 1)
    tally, order = Tally(1), _Order(senders)
    schedules: list[Schedule] = []

    def arrived(numbers: Sequence[int]) -> None:
        order.arrival(numbers)
        for schedule in schedules:
            schedule.arrival(numbers)

    consumer = Consumer(poll, peer, destination, "auto", tally, Reader(1), arrived)
    # One sender before the baseline: what the server loads for the first is not a cost of each.
    crowd = [Endpoint(poll, peer)]
    empty = peer.tree.resident_bytes()
    began = perf_counter()
    while len(crowd) < senders:
        crowd.append(Endpoint(poll, peer))
        if perf_counter() - began > _OPENING:
            raise Refused(f"{peer.name} took {len(crowd)} of {senders} senders in {_OPENING:g} s")
    opening = perf_counter() - began
    schedule = Schedule(senders, 1)
    schedules.append(schedule)
    sent = 0

    def send_until(end: float) -> None:
        nonlocal sent
        while (now := perf_counter()) < end:
            due = schedule.due_by(now)
            while sent < due:
                crowd[sent % senders].write(bytes(block.fill(sent)))
                sent += 1
            time.sleep(_PAUSE)
            poll.turn(0.0)

    send_until(perf_counter() + _WARM_UP)
    meter = Meter(peer.tree)
    schedule.measure_from(meter.began)
    received = tally.distinct
    send_until(meter.began + seconds)
    received = tally.distinct - received
    cost = meter.stop()
    full = peer.tree.resident_bytes()
    last = perf_counter()
    before = -1
    while tally.distinct < sent and perf_counter() < last + _SILENCE:
        if tally.distinct != before:
            before, last = tally.distinct, perf_counter()
        poll.turn(0.05)
    consumer.disconnect()
    # Those that came late are counted, too: a server that falls behind is to show it.
    timed = percentiles(schedule.waits)
    if timed is None or not received:
        raise Refused(f"{peer.name} delivered nothing in {seconds:g} s")
    processor = Measurement(
        value=cost.server / cost.seconds * 100,
        outcome=replace(tally.outcome([sent]), disordered=order.disordered),
        messages=sent,
        percentiles=timed,
        server_cpu=cost.server / received * 100_000,
        server_peak=cost.peak,
        generator=cost.generator,
        others=cost.others,
        extra={"msg/s": received / cost.seconds, "opened/s": senders / opening},
    )
    return [
        processor,
        replace(processor, value=timed[1], extra={}),
        replace(processor, value=(full - empty) / 1024 / senders, extra={}),
    ]


@dataclass(frozen=True)
class Crowd:
    """One consumer, and senders that each send once a second."""

    connections: int
    body: int = 100
    seconds: float = 20.0
    alone: bool = True
    tls: bool = False
    once: bool = True

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return run(peer, self.connections, self.body, self.seconds)


def crowd(connections: int) -> Cell:
    """Return the cell of this many connections."""
    goals = (NoneLost(), Below())
    title = f"{connections:,} connections, all but the consumer's send 100 B once a second"
    rows = (
        Row(f"{title}: processor, of one core", "%", False, goals),
        Row("the same: p99 from due to received", "ms", False, goals),
        Row("the same: memory of each connection", "KiB", False, goals),
    )
    return Cell(f"crowd-{connections}", Crowd(connections), rows)
