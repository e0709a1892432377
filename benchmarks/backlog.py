"""Messages that wait: filling a queue without a consumer, draining it, the memory they take, the restart over them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from benchmarks.endpoint import Consumer, Endpoint, Poll, Producer, Refused
from benchmarks.load import drain as wait_for
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer
from benchmarks.tally import Outcome, Reader, Tally
from benchmarks.wire import Confirm, Shape, command, frame

# Runs of 100 whose receipts may be outstanding while a queue is filled.
_WINDOW = 10
_SAMPLE = 0.25


@dataclass(frozen=True)
class _Filled:
    messages: int
    seconds: float
    server_cpu: float
    generator: float


@dataclass(frozen=True)
class _Drained:
    messages: int
    seconds: float
    outcome: Outcome
    server_cpu: float
    generator: float


def fill_and_drain(peer: Peer, name: str, body: int, persistent: bool, seconds: float) -> list[Measurement]:
    """Fill a queue for so many seconds, then drain it with one ``client`` consumer, at most four times as long.

    :returns: messages confirmed a second while filling, and received a second while draining.
    :raises Refused: when the server refuses or stops.
    """
    peer.tree.reset_peak()
    filled = _fill(peer, name, body, persistent, 10**7, seconds)
    fill_peak = peer.tree.peak_bytes()
    peer.tree.reset_peak()
    drained = _drain(peer, name, filled.messages, 4 * seconds)
    return [
        Measurement(
            value=filled.messages / filled.seconds,
            messages=filled.messages,
            server_cpu=filled.server_cpu,
            server_peak=fill_peak,
            generator=filled.generator,
        ),
        _drain_measurement(peer, drained, filled.messages),
    ]


def waiting(peer: Peer, messages: int, seconds: float) -> list[Measurement]:
    """Fill a fresh server with persistent messages of 1 KiB, restart it twice over them, drain it and count.

    :param peer: not started, its folder empty; not running afterwards.
    :param seconds: bound for the filling, and again for the draining.
    :returns: resident MiB while all wait, seconds from an orderly restart to the first message, the same after SIGKILL, messages received a
        second while draining.
    :raises Refused: when the server refuses, stops, or does not take so many in time.
    """
    peer.start()
    empty = peer.tree.resident_bytes()
    peer.tree.reset_peak()
    filled = _fill(peer, "waiting", 1024, True, messages, seconds)
    if filled.messages < messages:
        raise Refused(f"{peer.name} took {filled.messages} of {messages} messages in {seconds:g} s")
    time.sleep(1)  # a moment for what it still has to write down; its memory then is that of waiting, not of receiving
    resident, peak = peer.tree.resident_bytes(), peer.tree.peak_bytes()
    peer.stop()
    orderly = _restart(peer, "waiting")
    resident_again = peer.tree.resident_bytes()
    peer.kill()
    killed = _restart(peer, "waiting")
    peer.tree.reset_peak()
    drained = _drain(peer, "waiting", messages, seconds)
    drain_measurement = _drain_measurement(peer, drained, messages)
    peer.kill()
    mib = 1024 * 1024
    return [
        Measurement(
            value=resident / mib,
            messages=messages,
            server_cpu=filled.server_cpu,
            server_peak=peak,
            generator=filled.generator,
            extra={
                "empty MiB": empty / mib,
                "highest MiB": peak / mib,
                "after restart MiB": resident_again / mib,
                "fill msg/s": filled.messages / filled.seconds,
            },
        ),
        Measurement(value=orderly),
        Measurement(value=killed),
        drain_measurement,
    ]


def _fill(peer: Peer, name: str, body: int, persistent: bool, messages: int, seconds: float) -> _Filled:
    destination = f"/queue/{name}"
    with Poll() as poll:
        # The subscription makes the queue where SEND does not (see Dialect.queue_prefix).
        Consumer(poll, peer, destination, "auto", Tally(1), Reader(1)).disconnect()
        shape = Shape(peer.dialect.sends_to(destination), 0, body, persistent, Confirm.EACH_100)
        producer = Producer(poll, peer, shape, _WINDOW)
        cpu, own, began = peer.tree.cpu_seconds(), time.process_time(), perf_counter()
        while producer.sent < messages and perf_counter() < began + seconds:
            while producer.ready() and producer.sent < messages:
                producer.produce()
            poll.turn(0.05)
        wait_for(poll, [producer], [], 0)
        elapsed = perf_counter() - began
        if producer.outstanding:
            raise Refused(f"{peer.name} owes {producer.outstanding} receipts")
        cpu = peer.tree.cpu_seconds() - cpu
        own = time.process_time() - own
        producer.disconnect()
        return _Filled(producer.sent, elapsed, cpu / producer.sent * 100_000, own / elapsed)


def _drain(peer: Peer, name: str, messages: int, seconds: float) -> _Drained:
    tally = Tally(1)
    with Poll() as poll:
        cpu, own, began = peer.tree.cpu_seconds(), time.process_time(), perf_counter()
        last, before = began, 0
        consumer = Consumer(poll, peer, f"/queue/{name}", "client", tally, Reader(1))
        while tally.distinct < messages and (now := perf_counter()) < began + seconds and now < last + 10:
            poll.turn(0.05)
            if tally.distinct != before:
                before, last = tally.distinct, now
        elapsed = perf_counter() - began
        cpu = peer.tree.cpu_seconds() - cpu
        own = time.process_time() - own
        received = tally.distinct
        if received == 0:
            raise Refused(f"{peer.name} delivered none of {messages} waiting messages")
        consumer.disconnect()
        return _Drained(received, elapsed, tally.outcome([messages]), cpu / received * 100_000, own / elapsed)


def _drain_measurement(peer: Peer, drained: _Drained, messages: int) -> Measurement:
    return Measurement(
        value=drained.messages / drained.seconds,
        outcome=drained.outcome,
        messages=messages,
        server_cpu=drained.server_cpu,
        server_peak=peer.tree.peak_bytes(),
        generator=drained.generator,
    )


class _First(Endpoint):
    """Waits for one message and acknowledges nothing."""

    arrived = False

    def subscribe(self, destination: str) -> None:
        headers = {"id": "0", "destination": destination, "ack": "client", "prefetch-count": "1", "activemq.prefetchSize": "1"}
        self.write(frame("SUBSCRIBE", headers | dict(self._dialect.queue_headers)))

    def frames(self, arrived: list[bytes]) -> None:
        self.arrived = self.arrived or any(command(octets) == b"MESSAGE" for octets in arrived)
        super().frames(arrived)


def _restart(peer: Peer, name: str) -> float:
    """Start the server over its data; seconds from there to the first message at a consumer."""
    began = perf_counter()
    peer.start()
    with Poll() as poll:
        first = _First(poll, peer)
        first.subscribe(f"/queue/{name}")
        while not first.arrived:
            if perf_counter() - began > 2 * peer.patience:
                raise Refused(f"{peer.name} delivered no waiting message within {2 * peer.patience:g} s of its restart")
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


__all__: Sequence[str] = ["fill_and_drain", "start_up", "waiting"]
