"""The load's client connections: non-blocking sockets around one epoll.

Owns sockets and the cutting of what arrives into frames. What frames mean for a measurement is for
:mod:`benchmarks.load` and its neighbours.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from types import TracebackType

from benchmarks.peers import Peer
from benchmarks.tally import Reader, Tally
from benchmarks.wire import Block, Cutter, Shape, ack_id, acks, command, frame, numbers

# Large enough that a busy consumer takes about a thousand small messages, or several of 64 KiB, in
# one system call.
_READ = 512 * 1024
# Reads of that size in one turn, of one endpoint.
_READS = 16
# What one record of TLS has at most; a read gives no more.
_RECORD = 16 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: How long a handshake or a closing receipt may take, in seconds.
PATIENCE = 10.0


class Refused(Exception):
    """The server sent ERROR, closed the connection, or did not answer.

    The text says which and quotes it.
    """


class Poll:
    """The sockets of one measurement; a context that closes them."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._endpoints: dict[int, Endpoint] = {}

    def __enter__(self) -> Poll:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for endpoint in self._endpoints.values():
            endpoint.socket.close()
        self._endpoints.clear()
        self._epoll.close()

    def add(self, endpoint: Endpoint) -> None:
        """Watch an endpoint for input; the poll closes it in the end."""
        self._endpoints[endpoint.socket.fileno()] = endpoint
        self._epoll.register(endpoint.socket, select.EPOLLIN)

    def forget(self, endpoint: Endpoint) -> None:
        """Stop watching an endpoint and close it."""
        number = endpoint.socket.fileno()
        if self._endpoints.pop(number, None) is not None:
            self._epoll.unregister(number)
        endpoint.socket.close()

    def watch_writable(self, endpoint: Endpoint, wanted: bool) -> None:
        """Whether the endpoint has octets that wait for room in its socket."""
        self._epoll.modify(endpoint.socket, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def turn(self, seconds: float) -> None:
        """Wait at most so long for something to do and do it.

        :raises Refused: from an endpoint.
        """
        endpoints = self._endpoints
        for number, events in self._epoll.poll(seconds):
            endpoint = endpoints[number]
            if events & select.EPOLLOUT:
                endpoint.flush()
            if events & ~select.EPOLLOUT:
                endpoint.readable()


class Endpoint:
    """One client's connection, CONNECTED when the constructor returns.

    :raises Refused: when the server does not answer with CONNECTED.
    """

    def __init__(self, poll: Poll, peer: Peer, heart_beat: str = "0,0") -> None:
        self._poll = poll
        self._dialect = peer.dialect
        self._name = peer.name
        try:
            self.socket = peer.connect(PATIENCE)
        except OSError as error:
            raise Refused(f"{peer.name} takes no connection: {error}") from error
        poll.add(self)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending: deque[memoryview | bytes] = deque()
        self._cutter = Cutter()
        self._early: list[bytes] = []
        self._exchange(peer.connect_frame(heart_beat), b"CONNECTED")

    def frames(self, arrived: list[bytes]) -> None:
        """Complete frames came, without their NULs. The default knows only ERROR."""
        for octets in arrived:
            self._refuse_error(octets)

    def readable(self) -> None:
        """The socket has input.

        A read that brought all that it may is followed by another: with a pause between two turns,
        eight messages of 64 KiB in each would be the most that any server could deliver.

        :raises Refused: when the socket was closed by the server, or an ERROR came.
        """
        for _ in range(_READS):
            try:
                data = self._read()
            except _WOULD_BLOCK:
                return
            except OSError as error:
                raise Refused(f"{self._name} broke the connection: {error}") from error
            if not data:
                raise Refused(
                    f"{self._name} closed the connection; before that it sent {self._cutter.rest[-300:]!r}"
                )
            found = self._cutter.cut(data)
            if found:
                self.frames(found)
            if len(data) < _READ:
                return

    def _read(self) -> bytes:
        """Return what there is; empty when the server has closed the connection."""
        if not isinstance(self.socket, ssl.SSLSocket):
            return self.socket.recv(_READ)
        read = [self.socket.recv(_RECORD)]
        try:
            while read[-1]:
                read.append(self.socket.recv(_RECORD))
        except _WOULD_BLOCK:
            pass
        return b"".join(read)

    def write(self, octets: memoryview | bytes) -> None:
        """Send, or keep what the socket does not take.

        The buffer must stay as it is until :attr:`idle`.
        """
        self._pending.append(octets)
        if len(self._pending) == 1:
            self.flush()
            if self._pending:
                self._poll.watch_writable(self, True)

    @property
    def idle(self) -> bool:
        """Whether everything written has gone into the socket."""
        return not self._pending

    def flush(self) -> None:
        """Go on sending what waits."""
        pending = self._pending
        try:
            while pending:
                octets = pending[0]
                count = self.socket.send(octets)
                if count == len(octets):
                    pending.popleft()
                else:
                    pending[0] = memoryview(octets)[count:]
        except _WOULD_BLOCK:
            return
        except OSError as error:
            raise Refused(f"{self._name} broke the connection: {error}") from error
        self._poll.watch_writable(self, False)

    def disconnect(self) -> None:
        """Send DISCONNECT, wait for its receipt, close.

        The server has then taken all that was written before.

        :raises Refused: when the receipt does not come within :data:`PATIENCE`.
        """
        self.socket.settimeout(PATIENCE)
        bye = ("DISCONNECT", {"receipt": "bye-r"})
        if not self._dialect.says_goodbye:
            # What has done nothing when the connection is closed.
            bye = ("BEGIN", {"transaction": "bye", "receipt": "bye-r"})
        self._exchange(b"".join([*self._pending, frame(*bye)]), b"RECEIPT", b"bye-r")
        self._pending.clear()
        self._deliver_early()
        self._poll.forget(self)

    def _exchange(self, octets: bytes, answer: bytes, containing: bytes = b"") -> None:
        """Send and wait for one frame, with the socket blocking.

        Other frames that come meanwhile are kept for :meth:`frames`.
        """
        deadline = perf_counter() + PATIENCE
        try:
            self.socket.settimeout(PATIENCE)
            self.socket.sendall(octets)
            while perf_counter() < deadline:
                data = self.socket.recv(_READ)
                if not data:
                    raise Refused(
                        f"{self._name} closed the connection instead of {answer.decode()}: {self._cutter.rest[-300:]!r}"
                    )
                found = self._cutter.cut(data)
                answered = False
                for item in found:
                    if command(item) == answer and containing in item:
                        answered = True
                    else:
                        self._early.append(item)
                        if command(item) == b"ERROR":
                            self._refuse_error(item)
                if answered:
                    self.socket.setblocking(False)
                    return
        except TimeoutError:
            pass  # said below
        except OSError as error:
            raise Refused(
                f"{self._name} broke the connection instead of {answer.decode()}: {error}"
            ) from error
        raise Refused(f"{self._name} did not answer with {answer.decode()} within {PATIENCE:g} s")

    def _deliver_early(self) -> None:
        early, self._early = self._early, []
        if early:
            self.frames(early)

    def _refuse_error(self, octets: bytes) -> None:
        if command(octets) == b"ERROR":
            raise Refused(f"{self._name} sent {octets.lstrip()[:500].decode(errors='replace')!r}")


class Producer(Endpoint):
    """Sends blocks of messages and counts their receipts.

    :param shape: the messages.
    :param window: receipts that may be outstanding, where receipts are asked for.
    :param messages: in one block, 1 or 100.
    """

    def __init__(
        self, poll: Poll, peer: Peer, shape: Shape, window: int, messages: int = 100
    ) -> None:
        super().__init__(poll, peer)
        self._block = Block(shape, messages)
        self._window = window
        self._blocks = 0
        self._asked: deque[float] = deque()
        #: Messages of the blocks handed to :meth:`write`.
        self.sent = 0
        #: Receipts that have come, and for each the time from writing its block, in seconds.
        self.waits: list[float] = []

    def ready(self) -> bool:
        """Whether the last block has left and another receipt may be asked for."""
        return not self._pending and len(self._asked) < self._window

    @property
    def outstanding(self) -> int:
        """Receipts asked for that have not come."""
        return len(self._asked)

    def produce(self) -> None:
        """Send the next block. Only when :meth:`ready`."""
        if self._block.confirmed:
            self._asked.append(perf_counter())
        octets = self._block.fill(self._blocks)
        self._blocks += 1
        self.sent += self._block.messages
        self.write(octets)

    def frames(self, arrived: list[bytes]) -> None:
        """Receipts, which every server sends in the order asked."""
        now = perf_counter()
        for octets in arrived:
            if command(octets) == b"RECEIPT" and self._asked:
                self.waits.append(now - self._asked.popleft())
            else:
                self._refuse_error(octets)


class Consumer(Endpoint):
    """Subscribes, counts what arrives and acknowledges it.

    :param ack: ``auto``; ``client``: one ACK for each 50; ``client-individual``: an ACK for each.
    :param arrival: called with the numbers of each chunk once they are counted.
    """

    def __init__(
        self,
        poll: Poll,
        peer: Peer,
        destination: str,
        ack: str,
        tally: Tally,
        reader: Reader,
        arrival: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        super().__init__(poll, peer)
        self._ack = ack
        self._tally = tally
        self._reader = reader
        self._arrival = arrival
        self._unacknowledged = 0
        self._last = b""
        headers = {"id": "0", "destination": destination, "ack": ack, "receipt": "subscribed-r"}
        if destination.startswith("/queue/"):
            headers |= dict(peer.dialect.queue_headers)
        self._exchange(frame("SUBSCRIBE", headers), b"RECEIPT", b"subscribed-r")
        self._deliver_early()

    def frames(self, arrived: list[bytes]) -> None:
        """Messages, nearly always; anything else is told apart on the slow path."""
        try:
            found = numbers(arrived)
        except ValueError:
            for octets in arrived:
                self._refuse_error(octets)
            arrived = [octets for octets in arrived if command(octets) == b"MESSAGE"]
            found = numbers(arrived)
        self._tally.add(self._reader, found)
        if self._arrival is not None:
            self._arrival(found)
        if self._ack == "auto" or not arrived:
            return
        if self._ack == "client":
            due = range(49 - self._unacknowledged, len(arrived), 50)
            self._unacknowledged = (self._unacknowledged + len(arrived)) % 50
            self._last = arrived[-1]
            if due:
                self.write(acks([ack_id(arrived[index]) for index in due]))
        else:
            self.write(acks([ack_id(octets) for octets in arrived]))

    def disconnect(self) -> None:
        """Acknowledge what is left, then as :meth:`Endpoint.disconnect`."""
        if self._unacknowledged:
            self.write(acks([ack_id(self._last)]))
        super().disconnect()
