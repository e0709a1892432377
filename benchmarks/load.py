"""Steady load: producers and consumers for a fixed time, all counted.

One process, one thread, one epoll for all connections: the other core is the server's. What is in
flight is bounded, the same for every server, so that what is measured is passing messages on and
not piling them up; piling up is :mod:`benchmarks.backlog`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from benchmarks.endpoint import Consumer, Poll, Producer, Refused
from benchmarks.measurement import Measurement, percentiles
from benchmarks.meter import Meter
from benchmarks.peers import Peer
from benchmarks.tally import Outcome, Reader, Tally
from benchmarks.wire import SPAN, Confirm, Shape

#: Receipts outstanding for each producer: one, or those of five runs of 100.
_WINDOWS = {Confirm.NONE: 1, Confirm.EACH: 1, Confirm.EACH_100: 5, Confirm.TRANSACTIONS_OF_100: 5}
# Messages and octets sent and not yet received, over all producers.
_IN_FLIGHT = 2_000
_IN_FLIGHT_OCTETS = 16 * 1024 * 1024
# Between two looks at the sockets, in seconds, where many messages are on their way. A server that
# writes each message by itself would otherwise wake the generator for each, and lose to it the
# processor it needs.
_PAUSE = 0.001
# How long nothing may arrive before what is missing is called lost, and how long draining may take
# at all, in seconds.
_SILENCE = 3.0
_DRAIN = 15.0
#: Seconds by which a measurement that nothing got through is made longer.
_LONGER = 0.05


@dataclass(frozen=True)
class Load:
    """One cell of steady load.

    :param topic: a topic instead of a queue.
    :param rate: messages a second in all, sent on schedule whatever the server does (open loop);
        None: as fast as it goes.
    """

    topic: bool = False
    body: int = 100
    persistent: bool = False
    confirm: Confirm = Confirm.NONE
    producers: int = 1
    consumers: int = 1
    ack: str = "auto"
    varying: bool = False
    rate: float | None = None


class Schedule:
    """When each message of an open loop is due.

    Late messages keep their time, so waiting is counted (no coordinated omission).
    """

    def __init__(self, rate: float, producers: int) -> None:
        self._interval = producers / rate
        self._start = perf_counter()
        self._from = self._start
        self.waits: list[float] = []

    def due(self, producer: Producer, now: float) -> bool:
        """Whether the producer's next message is due."""
        return self._start + producer.sent * self._interval <= now

    def due_by(self, now: float) -> int:
        """How many messages of one producer are due."""
        return int((now - self._start) / self._interval) + 1

    def measure_from(self, now: float) -> None:
        """Forget earlier messages."""
        self._from = now

    def arrival(self, numbers: Sequence[int]) -> None:
        """These arrived now."""
        now = perf_counter()
        for number in numbers:
            due = self._start + number % SPAN * self._interval
            if due >= self._from:
                self.waits.append(now - due)


def run(
    peer: Peer,
    load: Load,
    name: str,
    warm_up: float,
    seconds: float,
    see: Callable[[int], bool] | None = None,
) -> Measurement:
    """Load one server.

    :param name: of the destination, not used before.
    :param warm_up: seconds of load before the measurement begins.
    :param seconds: length of the measurement.
    :param see: gets often, a thousand times a second at most, how many messages were received so
        far, from the beginning of the measurement on. It says whether that is enough.
    :returns: ``value`` is messages received a second; of a topic, by all subscribers together. With
        a rate, percentiles are from the time a message was due to its arrival; with receipts, from
        sending to the receipt.
    :raises Refused: when the server refuses or stops.
    """
    gc.collect()
    gc.disable()
    try:
        with Poll() as poll:
            destination = f"/{'topic' if load.topic else 'queue'}/{name}"
            return _run(poll, peer, load, destination, warm_up, seconds, see)
    finally:
        gc.enable()


def _run(
    poll: Poll,
    peer: Peer,
    load: Load,
    destination: str,
    warm_up: float,
    seconds: float,
    see: Callable[[int], bool] | None,
) -> Measurement:
    schedule = None if load.rate is None else Schedule(load.rate, load.producers)
    tallies = [Tally(load.producers) for _ in range(load.consumers if load.topic else 1)]
    consumers = [
        Consumer(
            poll,
            peer,
            destination,
            load.ack,
            tallies[index % len(tallies)],
            Reader(load.producers),
            None if schedule is None else schedule.arrival,
        )
        for index in range(load.consumers)
    ]
    block = 1 if load.confirm is Confirm.EACH or schedule is not None else 100
    producers = [
        Producer(
            poll,
            peer,
            Shape(
                peer.dialect.sends_to(destination),
                index,
                load.body,
                load.persistent,
                load.confirm,
                load.varying,
            ),
            _WINDOWS[load.confirm],
            block,
        )
        for index in range(load.producers)
    ]
    latency_bound = load.confirm is Confirm.EACH or schedule is not None
    limit = max(block, min(_IN_FLIGHT, _IN_FLIGHT_OCTETS // load.body))

    def send_until(end: float) -> None:
        while (now := perf_counter()) < end:
            sent = sum(producer.sent for producer in producers)
            room = limit - sent + min(tally.distinct for tally in tallies)
            asleep = True
            for producer in producers:
                while (
                    room > 0
                    and producer.ready()
                    and (schedule is None or schedule.due(producer, now))
                ):
                    producer.produce()
                    room -= block
                    asleep = False
                    if schedule is None and not producer.idle:
                        break
            if latency_bound:
                # An open loop spins: epoll sleeps whole milliseconds, longer than the latencies it
                # is there to show.
                poll.turn(0.0 if schedule is not None or not asleep else min(end - now, 0.05))
            else:
                time.sleep(_PAUSE)
                poll.turn(min(end - now, 0.05))
            if seen is not None and seen(sum(tally.distinct for tally in tallies)):
                return

    seen = None
    send_until(perf_counter() + warm_up)
    for producer in producers:
        producer.waits.clear()
    meter = Meter(peer.tree)
    received = sum(tally.distinct for tally in tallies)
    if schedule is not None:
        schedule.measure_from(meter.began)
    seen = see
    send_until(meter.began + seconds)

    def measured() -> bool:
        timed = (
            schedule.waits
            if schedule is not None
            else [wait for producer in producers for wait in producer.waits]
        )
        waited_for = schedule is not None or load.confirm is not Confirm.NONE
        return sum(tally.distinct for tally in tallies) > received and (
            bool(timed) or not waited_for
        )

    while not measured() and perf_counter() - meter.began < seconds + _SILENCE:
        # On a busy machine a short measurement may end before anything got through; the rate counts
        # the time that it took in fact.
        send_until(perf_counter() + _LONGER)
    received = sum(tally.distinct for tally in tallies) - received
    cost = meter.stop()
    waits = (
        schedule.waits
        if schedule is not None
        else [wait for producer in producers for wait in producer.waits]
    )
    timed = percentiles(waits)
    sent = [producer.sent for producer in producers]
    drain(poll, producers, tallies, sum(sent))
    for producer in producers:
        producer.disconnect()
    for consumer in consumers:
        consumer.disconnect()
    outcome = sum((tally.outcome(sent) for tally in tallies), Outcome())
    if received == 0:
        raise Refused(f"{peer.name} delivered nothing in {seconds:g} s")
    return Measurement(
        value=received / cost.seconds,
        outcome=outcome,
        messages=sum(sent) * len(tallies),
        percentiles=timed,
        server_cpu=cost.server / received * 100_000,
        server_peak=cost.peak,
        generator=cost.generator,
        others=cost.others,
    )


def drain(poll: Poll, producers: Sequence[Producer], tallies: Sequence[Tally], sent: int) -> None:
    """Finish sending, then wait for receipts and messages while some come."""
    start = last = perf_counter()
    before = -1
    while True:
        arrived = sum(tally.distinct for tally in tallies) - sum(
            producer.outstanding for producer in producers
        )
        done = all(tally.distinct >= sent for tally in tallies) and all(
            item.idle and not item.outstanding for item in producers
        )
        now = perf_counter()
        if arrived != before:
            before, last = arrived, now
        if done or now - last > _SILENCE or now - start > _DRAIN:
            return
        poll.turn(0.05)
