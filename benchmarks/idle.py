"""Connections that do nothing but beat: what each costs the server in memory, and all together in processor time."""

from __future__ import annotations

import resource
import select
import socket
import ssl
import time
from time import perf_counter

from benchmarks.endpoint import PATIENCE, Refused
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer
from benchmarks.tally import Outcome
from benchmarks.wire import command

# Heart-beats asked for in both directions, and the interval at which ours are sent: early enough to be on time (STOMP 1.2,
# "Heart-beating"), late enough not to make work that an ordinary client would not make.
_HEART_BEAT = "10000,10000"
_INTERVAL = 8.0
_BATCH = 50
_SLICES = 160


def raise_descriptor_limit() -> int:
    """Allow this process, and the servers it starts, as many open files as the system lets it.

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

    def __init__(self, peer: Peer, tls: bool) -> None:
        self._peer = peer
        self._tls = peer.tls_context() if tls else None
        self._epoll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        self.closed = 0
        self.beats: dict[int, int] = {}

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._epoll.close()

    def open(self, count: int) -> None:
        """:raises Refused: when the server does not answer each with CONNECTED."""
        started = [self._connected() for _ in range(count)]
        for connection in started:
            try:
                connection.sendall(self._peer.connect_frame(_HEART_BEAT))
            except OSError as error:
                raise Refused(f"{self._peer.name} broke connection {len(self._open)}: {error}") from error
        for connection in started:
            self._complete(connection)

    def _connected(self) -> socket.socket:
        port = self._peer.port if self._tls is None else self._peer.tls_port
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection)
        except OSError as error:
            raise Refused(f"{self._peer.name} takes no connection beyond {len(self._open)}: {error}") from error
        return connection

    def _complete(self, connection: socket.socket) -> None:
        answer = b""
        try:
            while b"\0" not in answer:
                data = connection.recv(4096)
                if not data:
                    break
                answer += data
        except OSError as error:
            raise Refused(f"{self._peer.name} broke connection {len(self._open)}: {error}") from error
        if command(answer) != b"CONNECTED":
            raise Refused(f"{self._peer.name} answered connection {len(self._open)} with {answer[:300]!r}")
        connection.setblocking(False)
        self._open[connection.fileno()] = connection
        self.beats[connection.fileno()] = 0
        self._epoll.register(connection, select.EPOLLIN)

    def beat(self, seconds: float) -> None:
        """Send our beats and read the server's for so long, the sockets spread evenly over the interval."""
        numbers = list(self._open)
        began = perf_counter()
        done = 0
        while (now := perf_counter()) < began + seconds:
            step = int((now - began) / _INTERVAL * _SLICES)
            while done < step:
                for number in numbers[done % _SLICES :: _SLICES]:
                    self._send_beat(number)
                done += 1
            for number, _ in self._epoll.poll(_INTERVAL / _SLICES):
                self._read(number)

    def _send_beat(self, number: int) -> None:
        connection = self._open.get(number)
        if connection is None:
            return
        try:
            connection.send(b"\n")
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
        connection = self._open.pop(number, None)
        if connection is not None:
            self.closed += 1
            self._epoll.unregister(number)
            connection.close()


def run(peer: Peer, connections: int, seconds: float, tls: bool = False) -> list[Measurement]:
    """Open idle connections with heart-beats of 10 s both ways to a fresh server and keep them.

    :param peer: not started, its folder empty; not running afterwards.
    :param seconds: how long they are watched once all are open; at least 20, so that each must see a beat.
    :returns: resident KiB for each connection, and the server's processor time in percent of one core. ``lost`` counts connections that were
        closed, ``extra`` those that saw no beat.
    :raises Refused: when the server does not take them all.
    """
    limit = raise_descriptor_limit()
    if connections + 200 > limit:
        raise Refused(f"{connections} connections need as many open files; the limit here is {limit}")
    peer.start()
    held = _Connections(peer, tls)
    try:
        # One connection before the baseline: what the server loads for the first is not a cost of each.
        held.open(1)
        held.beat(1)
        empty = peer.tree.resident_bytes()
        began = perf_counter()
        for start in range(0, connections, _BATCH):
            held.open(min(_BATCH, connections - start))
            if perf_counter() - began > 120:
                raise Refused(f"{peer.name} took {start + _BATCH} of {connections} connections in 120 s")
        opening = perf_counter() - began
        held.beat(2)
        held.beats = dict.fromkeys(held.beats, 0)
        cpu, own, began = peer.tree.cpu_seconds(), time.process_time(), perf_counter()
        held.beat(seconds)
        elapsed = perf_counter() - began
        cpu, own = peer.tree.cpu_seconds() - cpu, time.process_time() - own
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
        generator=own / elapsed,
        extra={"empty MiB": empty / 2**20, "opened/s": connections / opening, "without a beat": silent},
    )
    return [memory, Measurement(value=cpu / elapsed * 100, outcome=outcome, messages=connections, server_peak=full, generator=own / elapsed)]
