"""Polls of the epoll reactor, and the turns that end with them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from twisted.internet import epollreactor, posixbase
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.tcp import Server
from twisted.python.failure import Failure

from gateway.reactor.polls import Polls, polls_of, serve_at_once
from gateway.reactor.turn import Turn
from tests.logged import logged

pytestmark = pytest.mark.process

_EPOLL: Any = epollreactor.EPollReactor


class Noting(Protocol):
    """Notes what it hears, and has its factory's ``said`` called."""

    def connectionMade(self) -> None:
        self.notes: list[str] = cast(Any, self.factory).notes
        self.notes.append("made")

    def dataReceived(self, data: bytes) -> None:
        cast(Any, self.factory).said(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert reason.value is not None
        self.notes.append(type(reason.value).__name__)


class Served:
    """A reactor of its own, which listens, and clients of it."""

    def __init__(self) -> None:
        self.reactor: Any = _EPOLL()
        serve_at_once(self.reactor)
        self.notes: list[str] = []
        factory: Any = Factory.forProtocol(Noting)
        self.factory = factory
        factory.notes = self.notes
        factory.said = lambda data: self.notes.append(data.decode())
        self._port = self.reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self._clients: list[socket.socket] = []

    def client(self) -> socket.socket:
        """Return a client that the reactor has taken."""
        taken = self.notes.count("made")
        client = socket.create_connection(("127.0.0.1", self._port.getHost().port))
        self._clients.append(client)
        self.until(lambda: self.notes.count("made") > taken)
        return client

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(1000):
            if reached():
                return
            self.reactor.iterate(0.01)
        raise AssertionError(f"not reached; noted: {self.notes}")

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.reactor.disconnectAll()
        self.reactor.removeAll()
        self.reactor._poller.close()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.close()


def test_turns_left_by_all_that_were_ready_end_with_their_poll(served: Served) -> None:
    turn = Turn(served.reactor)

    def said(data: bytes) -> None:
        turn.begin()
        served.notes.append(f"read {data.decode()}")
        turn.deliver(lambda: served.notes.append(f"delivered {data.decode()}"))
        turn.leave()

    served.factory.said = said
    first, second = served.client(), served.client()
    first.sendall(b"a")
    second.sendall(b"b")
    served.notes.clear()
    served.reactor.doIteration(1)
    assert sorted(served.notes[:2]) == ["read a", "read b"]
    assert sorted(served.notes[2:]) == ["delivered a", "delivered b"]
    assert not [call for call in served.reactor.getDelayedCalls() if call.func == turn._late]


def test_what_threads_ask_for_comes_before_the_ending(served: Served) -> None:
    turn = Turn(served.reactor)

    def said(data: bytes) -> None:
        turn.begin()
        turn.deliver(lambda: served.notes.append("delivered"))
        turn.leave()
        served.reactor.callFromThread(served.notes.append, "thread")

    served.factory.said = said
    client = served.client()
    served.notes.clear()
    client.sendall(b"a")
    served.until(lambda: "delivered" in served.notes)
    assert served.notes == ["thread", "delivered"]


def test_the_time_that_clients_take_is_counted_and_no_other(served: Served) -> None:
    turn = Turn(served.reactor)
    polls = polls_of(served.reactor)
    assert polls is not None
    now = [served.reactor.seconds()]
    served.reactor.seconds = lambda: now[0]

    def takes(seconds: float) -> None:
        now[0] += seconds
        served.notes.append("took")

    def said(data: bytes) -> None:
        turn.begin()
        takes(1)
        turn.deliver(lambda: takes(2))
        turn.leave()

    served.factory.said = said
    client = served.client()
    served.reactor.callLater(0, takes, 4)
    served.until(lambda: served.notes.count("took") == 1)
    before = polls.served_s
    client.sendall(b"a")
    served.until(lambda: served.notes.count("took") == 3)
    assert polls.served_s - before == pytest.approx(3)


def test_a_failure_ends_its_connection_alone_and_is_logged(served: Served) -> None:
    bad, good = served.client(), served.client()

    def said(data: bytes) -> None:
        if data == b"bad":
            raise ZeroDivisionError("on purpose")
        served.notes.append(data.decode())

    served.factory.said = said
    bad.sendall(b"bad")
    with logged() as events:
        served.until(lambda: "ZeroDivisionError" in served.notes)
    assert [event["log_failure"].type for event in events if "log_failure" in event] == [
        ZeroDivisionError
    ]
    good.sendall(b"good")
    served.until(lambda: "good" in served.notes)


def test_a_client_that_closes_is_heard_of(served: Served) -> None:
    client = served.client()
    client.sendall(b"last")
    client.close()
    served.until(lambda: ConnectionDone.__name__ in served.notes)
    assert served.notes == ["made", "last", "ConnectionDone"]


def test_one_that_another_closed_in_the_same_poll_is_not_read(served: Served) -> None:
    clients = [served.client(), served.client()]

    def said(data: bytes) -> None:
        served.notes.append(data.decode())
        for selectable in served.reactor.getReaders():
            if isinstance(selectable, Server):
                selectable.connectionLost(cast(Any, Failure)(ConnectionAborted()))

    served.factory.said = said
    for client in clients:
        client.sendall(b"x")
    served.until(lambda: served.notes.count("ConnectionAborted") == 2)
    assert served.notes.count("x") == 1


class _Poller:
    """Fails with that error number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        raise OSError(self._number, "on purpose")


def test_an_interrupted_poll_has_found_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.reactor, "_poller", _Poller(errno.EINTR))
    served.reactor.doIteration(0)
    monkeypatch.setattr(served.reactor, "_poller", _Poller(errno.EBADF))
    with pytest.raises(OSError, match="on purpose"):
        served.reactor.doIteration(0)
    monkeypatch.undo()


def test_only_the_epoll_reactor_itself_is_changed_and_only_once(served: Served) -> None:
    class Own(epollreactor.EPollReactor):
        """Polls in its own way."""

    own: Any = cast(Any, Own)()
    for other in (Clock(), own):
        serve_at_once(other)
        assert polls_of(other) is None
    own.removeAll()
    own._poller.close()
    polls = polls_of(served.reactor)
    serve_at_once(served.reactor)
    assert isinstance(polls, Polls)
    assert polls_of(served.reactor) is polls


def test_a_twisted_that_has_other_names_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = _EPOLL()
    monkeypatch.delattr(posixbase._PollLikeMixin, "_doReadOrWrite")
    serve_at_once(other)
    assert polls_of(other) is None
    monkeypatch.undo()
    other.removeAll()
    other._poller.close()
