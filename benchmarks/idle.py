"""Idle connections that only beat: their memory and processor time."""

from __future__ import annotations

import resource
import select
import socket
import ssl
from collections import deque
from dataclasses import replace
from time import perf_counter

from benchmarks.endpoint import PATIENCE, Refused
from benchmarks.measurement import Measurement
from benchmarks.meter import Meter
from benchmarks.peers import Peer
from benchmarks.tally import Outcome
from benchmarks.wire import command

# Heart-beats asked for in both directions, and the interval at which ours are sent: early enough to
# be on time (STOMP 1.2, "Heart-beating"), late enough not to make work that an ordinary client
# would not make.
_HEART_BEAT = "10000,10000"
_INTERVAL = 8.0
_BATCH = 50
# The longest wait between two looks at what is due, in seconds.
_PAUSE = 0.02


def raise_descriptor_limit() -> int:
    """Allow this process and its servers as many open files as possible.

    :returns: the limit in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


class _Connections:
    """Many CONNECTED sockets, those that are still open by descriptor."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._context = peer.tls_context() if peer.tls else None
        self._epoll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        # When each is to beat next; always in order, as all have one interval.
        self._due: deque[tuple[float, int]] = deque()
        #: How many the server closed.
        self.closed = 0
        #: Reads that brought nothing but beats, by descriptor.
        self.beats: dict[int, int] = {}

    def close(self) -> None:
        """Close all."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._epoll.close()

    def open(self, count: int) -> None:
        """Open more.

        :raises Refused: when the server does not answer each with CONNECTED.
        """
        started = [self._connected() for _ in range(count)]
        try:
            for connection in started:
                connection.sendall(self._peer.connect_frame(_HEART_BEAT))
            for connection in started:
                self._complete(connection)
        except OSError as error:
            raise Refused(
                f"{self._peer.name} broke connection {len(self._open)}: {error}"
            ) from error

    def _connected(self) -> socket.socket:
        port = self._peer.port if self._context is None else self._peer.tls_port
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            return (
                connection
                if self._context is None
                else self._context.wrap_socket(connection, server_hostname="localhost")
            )
        except OSError as error:
            raise Refused(
                f"{self._peer.name} takes no connection beyond {len(self._open)}: {error}"
            ) from error

    def _complete(self, connection: socket.socket) -> None:
        answer = b""
        while b"\0" not in answer and (data := connection.recv(4096)):
            answer += data
        if command(answer) != b"CONNECTED":
            raise Refused(
                f"{self._peer.name} answered connection {len(self._open)} with {answer[:300]!r}"
            )
        connection.setblocking(False)
        number = connection.fileno()
        self._open[number] = connection
        self.beats[number] = 0
        self._due.append((perf_counter() + _INTERVAL, number))
        self._epoll.register(connection, select.EPOLLIN)

    def beat(self, seconds: float) -> None:
        """Send our beats and read the server's for so long.

        0 does what is due now.
        """
        end = perf_counter() + seconds
        while True:
            now = perf_counter()
            while self._due and self._due[0][0] <= now:
                due, number = self._due.popleft()
                if number in self._open:
                    self._send_beat(number)
                    self._due.append((due + _INTERVAL, number))
            for number, _ in self._epoll.poll(max(0.0, min(end - now, _PAUSE))):
                self._read(number)
            if now >= end:
                return

    def _send_beat(self, number: int) -> None:
        try:
            self._open[number].send(b"\n")
        except BlockingIOError:
            return
        except OSError:
            self._forget(number)

    def _read(self, number: int) -> None:
        try:
            data = self._open[number].recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        if not data or data.strip():
            self._forget(number)  # closed, or an ERROR before closing
        else:
            self.beats[number] += 1

    def _forget(self, number: int) -> None:
        self.closed += 1
        self._epoll.unregister(number)
        self._open.pop(number).close()


def run(peer: Peer, connections: int, seconds: float) -> list[Measurement]:
    """Keep idle connections with heart-beats of 10 s to a fresh server.

    Over TLS where the peer has it.

    :param peer: not started, its folder empty; not running afterwards.
    :param seconds: how long they are watched once all are open; at least 20, so that each must see
        a beat.
    :returns: resident KiB for each connection, and the server's processor time in percent of one
        core. ``lost`` counts connections that were closed, ``extra`` those that saw no beat.
    :raises Refused: when the server does not take them all.
    """
    limit = raise_descriptor_limit()
    if connections + 200 > limit:
        raise Refused(
            f"{connections} connections need as many open files; the limit here is {limit}"
        )
    peer.start()
    held = _Connections(peer)
    try:
        # One connection before the baseline: what the server loads for the first is not a cost of
        # each.
        held.open(1)
        held.beat(1)
        empty = peer.tree.resident_bytes()
        began = perf_counter()
        for start in range(0, connections, _BATCH):
            held.open(min(_BATCH, connections - start))
            held.beat(0)
            if perf_counter() - began > 120:
                raise Refused(
                    f"{peer.name} took {start + _BATCH} of {connections} connections in 120 s"
                )
        opening = perf_counter() - began
        held.beat(2)
        held.beats = dict.fromkeys(held.beats, 0)
        meter = Meter(peer.tree)
        held.beat(seconds)
        cost = meter.stop()
        full = peer.tree.resident_bytes()
        outcome = Outcome(lost=held.closed)
        silent = float(sum(1 for count in held.beats.values() if count == 0))
    finally:
        held.close()
        peer.kill()
    memory = Measurement(
        value=(full - empty) / 1024 / connections,
        outcome=outcome,
        messages=connections,
        server_peak=full,
        generator=cost.generator,
        others=cost.others,
        extra={
            "empty MiB": empty / 2**20,
            "opened/s": connections / opening,
            "without a beat": silent,
        },
    )
    return [memory, replace(memory, value=cost.server / cost.seconds * 100, extra={})]
