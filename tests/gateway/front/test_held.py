"""What is sent while a broker is away, and sent when it is back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from gateway.front.held import HeldProvider
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Capabilities, Connection, Credentials, Done, Mode
from gateway.messaging.values import Value

CLIENT = Credentials("guest", "guest", for_clients=True)
HOLD_S = 60.0


class Broker:
    """A broker that takes all, answers nothing, and goes away as told."""

    capabilities = Capabilities(transacted=True, delayed=True, recurring=True)
    resource = "broker"

    def __init__(self) -> None:
        #: The scheduling properties of all messages, in the order in which they came.
        self.came: list[dict[str, Value]] = []
        self._lost: list[Callable[[MessagingError], None]] = []
        self._waiting: list[Deferred[Connection]] = []
        self._there = True

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        self._lost.append(lost)
        if self._there:
            return succeed(self._connection())
        waiting: Deferred[Connection] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def _connection(self) -> Any:
        return _Connection(self)

    def go(self) -> None:
        self._there = False
        lost, self._lost = self._lost, []
        for each in lost:
            each(ProviderUnavailable("it went away"))

    def come_back(self) -> None:
        self._there = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self._connection())


class _Connection:
    product = "a broker"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def session(self, mode: Mode) -> _Session:
        return _Session(self._broker)

    def close(self) -> Deferred[None]:
        return succeed(None)


class _Session:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def send(self, messages: Sequence[Message]) -> None:
        self._broker.came += [dict(message.headers.properties) for message in messages]

    def completion(self, done: Done) -> None:
        """Never answer."""

    commit = rollback = completion


def later(seconds: int) -> dict[str, Value]:
    return {"AMQ_SCHEDULED_DELAY": str(seconds * 1000)}


CASES = [
    (later(30), later(10)),
    # What is overdue is delivered at once, which is no delay of 0.
    (later(15), {"AMQ_SCHEDULED_DELAY": "1"}),
    (
        {**later(30), "AMQ_SCHEDULED_PERIOD": "5000", "AMQ_SCHEDULED_REPEAT": "3"},
        {**later(10), "AMQ_SCHEDULED_PERIOD": "5000", "AMQ_SCHEDULED_REPEAT": "3"},
    ),
    ({"AMQ_SCHEDULED_PERIOD": "30000"}, {**later(10), "AMQ_SCHEDULED_PERIOD": "30000"}),
    # These say when, however long the message waits.
    *[
        (same, same)
        for same in (
            {"AMQ_SCHEDULED_TIME": "2000000000000", **later(30)},
            {"_AMQ_SCHED_DELIVERY": "2000000000000"},
            {"AMQ_SCHEDULED_CRON": "0 * * * *", **later(30)},
            {"colour": "red"},
        )
    ],
]


def held(broker: Broker, clock: Clock) -> Connection:
    """A connection that waits for the broker."""
    opened: list[Connection] = []
    provider = HeldProvider(broker, clock, HOLD_S, "there", None)
    provider.connect(CLIENT, None, _lost).addCallback(opened.append)
    [connection] = opened
    return connection


def _lost(error: MessagingError) -> None:
    raise AssertionError(f"it is lost: {error}")


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.TRANSACTED])
@pytest.mark.parametrize(("asked", "after_20_s"), CASES, ids=str)
def test_what_is_sent_while_the_broker_is_away_has_waited(
    mode: Mode, asked: dict[str, Value], after_20_s: dict[str, Value]
) -> None:
    clock, broker = Clock(), Broker()
    session = held(broker, clock).session(mode)
    broker.go()
    clock.advance(1)
    session.send([Message(Headers(Queue("q"), properties=asked))])
    clock.advance(20)
    assert broker.came == []
    broker.come_back()
    assert broker.came == [after_20_s]


@pytest.mark.parametrize(("asked", "after_20_s"), CASES, ids=str)
def test_what_is_sent_again_has_waited_since_it_was_sent_first(
    asked: dict[str, Value], after_20_s: dict[str, Value]
) -> None:
    clock, broker = Clock(), Broker()
    session = held(broker, clock).session(Mode.AUTO)
    session.send([Message(Headers(Queue("q"), properties=asked))])
    assert broker.came == [asked]
    for _ in range(2):
        clock.advance(5)
        broker.go()
        clock.advance(5)
        broker.come_back()
    assert broker.came[-1] == after_20_s
    assert len(broker.came) == 3
