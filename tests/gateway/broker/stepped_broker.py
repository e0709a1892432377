"""A broker that does nothing until a test lets it: its clock stands still, and its disk commits
when told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from gateway.broker.broker import Broker
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import LINGER
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.interface import StoreError
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Credentials, Mode, Session
from gateway.reactor.turn import Turn
from tests.gateway.broker.brokers import EveryoneIn, Inbox, consume, text
from tests.gateway.broker.step_store import Disk, StepStore


class SlowClock(Clock):
    """A clock on which each look at it takes a while."""

    tick = 0.0

    def seconds(self) -> float:
        self.rightNow += self.tick
        return super().seconds()


class Told:
    """What completions and commits said."""

    def __init__(self) -> None:
        self.results: list[MessagingError | None] = []

    def __call__(self, error: MessagingError | None) -> None:
        self.results.append(error)

    @property
    def well(self) -> bool:
        """Told once, and that all is well."""
        return self.results == [None]

    @property
    def failed(self) -> bool:
        """Told once, and that it failed."""
        return len(self.results) == 1 and self.results[0] is not None


class Stepped:
    """A broker over a disk; :meth:`restart` is what a crash and a new start leave."""

    def __init__(
        self,
        folder: Path,
        options: BrokerOptions | None = None,
        memory: Memory | None = None,
        rules: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.access = AccessRules(folder / "accesscontrol.properties")
        self.access.path.write_text(DEFAULT_RULES + rules)
        self.access.load()
        self.options = options or BrokerOptions(reap_time=0)
        self.memory = memory
        self.disk = Disk()
        self.clock = clock or Clock()
        self.clock.advance(1_000_000)
        self.failures: list[StoreError] = []
        self.losses: list[MessagingError] = []
        self.open()

    def open(self) -> None:
        self.store = StepStore(self.disk)
        self.turn = Turn(self.clock)
        self.broker: Broker = open_broker(
            self.clock,
            self.turn,
            self.store,
            self.options,
            self.failures.append,
            memory=self.memory,
        )
        self.provider = EmbeddedProvider(
            self.broker, EveryoneIn(), self.access, lambda count: bytes(count)
        )

    def restart(self, memory: Memory | None = None) -> None:
        clock = Clock()
        clock.advance(self.clock.seconds())
        self.clock = clock
        if memory is not None or self.memory is not None:
            self.memory = (
                memory or Memory(self.memory.total, self.memory.share, self.memory.least)
                if self.memory
                else memory
            )
        self.open()

    def connect(self, client_id: str | None = None) -> Connection:
        made: list[Connection] = []
        self.provider.connect(
            Credentials("guest", "guest"), client_id, self.losses.append
        ).addCallback(made.append)
        return made[0]

    def session(self, mode: Mode = Mode.CLIENT, client_id: str | None = None) -> Session:
        """A session of a connection of its own."""
        return self.connect(client_id).session(mode)

    def consume(self, session: Session, destination: Destination, **given: Any) -> Inbox:
        return consume(session, destination, **given)

    def receive(self, session: Session, destination: Destination, **given: Any) -> Inbox:
        """As :meth:`consume`, and settle: the inbox has what waits."""
        inbox = self.consume(session, destination, **given)
        self.run_until_idle()
        return inbox

    def send(self, messages: Sequence[Message], session: Session | None = None) -> None:
        """Send, in a session of its own unless one is given, and settle."""
        (self.session() if session is None else session).send(messages)
        self.run_until_idle()

    def send_each(self, messages: Sequence[Message], session: Session | None = None) -> None:
        """As :meth:`send`, each message in a call of its own."""
        session = self.session() if session is None else session
        for message in messages:
            session.send([message])
        self.run_until_idle()

    def acknowledge_through(self, inbox: Inbox, number: int) -> None:
        """Acknowledge through this delivery, and settle."""
        inbox.consumer.acknowledge_through(number)
        self.run_until_idle()

    def acknowledge(self, inbox: Inbox, numbers: Sequence[int]) -> None:
        """Acknowledge these deliveries, and settle."""
        inbox.consumer.acknowledge(numbers)
        self.run_until_idle()

    def reject(self, inbox: Inbox, numbers: Sequence[int], **how: Any) -> None:
        """Reject these deliveries, and settle."""
        inbox.consumer.reject(numbers, **how)
        self.run_until_idle()

    def remove(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        """Remove a destination, and settle."""
        self.broker.remove(physical)
        self.run_until_idle()

    def complete(self, session: Session) -> Told:
        """Ask for a completion, and settle. :returns: what the session was told."""
        told = Told()
        session.completion(told)
        self.run_until_idle()
        return told

    def grant(self, inbox: Inbox, messages: int) -> None:
        """Grant credit for more messages, and settle."""
        inbox.consumer.grant(messages)
        self.run_until_idle()

    def close(self, what: Session | Connection) -> None:
        """Close a session or a connection, and settle."""
        what.close()
        self.run_until_idle()

    def commit(self, session: Session) -> Told:
        """Commit, and settle. :returns: what the session was told."""
        told = Told()
        session.commit(told)
        self.run_until_idle()
        return told

    def run_reactor(self) -> None:
        """Let the reactor do what is due now, and hand off to the disk what is to go there."""
        for _ in range(20):
            self.clock.advance(0)
        self.clock.advance(LINGER)
        for _ in range(10):
            self.clock.advance(0)

    def run_until_idle(self) -> None:
        """Let reactor and disk do all there is."""
        self.run_reactor()
        while self.store.busy:
            self.store.step()
            self.run_reactor()

    def later(self, seconds: float, times: int = 1) -> None:
        """Let so many seconds pass, so many times over, and settle after each."""
        for _ in range(times):
            self.clock.advance(seconds)
            self.run_until_idle()

    @property
    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    @property
    def bodies(self) -> list[str]:
        """What the disk has, by seq."""
        return [self.disk.rows[seq].body.decode() for seq in sorted(self.disk.rows)]

    @property
    def empty(self) -> bool:
        """The disk has no message, and nothing about any; and no row is shared."""
        return not (
            self.disk.rows or self.disk.owed or self.disk.redeliveries or self.broker.rows.shared
        )


def texts(destination: Destination, bodies: Sequence[object], **headers: Any) -> list[Message]:
    return [text(destination, str(body), **headers) for body in bodies]


def all_of(inbox: Inbox) -> list[str]:
    """The texts delivered until now, forgotten here."""
    found = inbox.texts
    inbox.clear()
    return found


def in_each_pass(stepped: Stepped, seconds: float, count: Callable[[], int]) -> list[int]:
    """Let so many seconds pass.

    :returns: by how much ``count`` rose in each pass of the reactor, which calls the timers that
        are due, and those that they ask for in the next pass.
    """
    clock = stepped.clock
    clock.rightNow += seconds
    before = count()
    rises: list[int] = []
    while due := [call for call in clock.calls if call.getTime() <= clock.rightNow]:
        for call in due:
            if call.active():
                clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        rises.append(count() - before)
        before = count()
    return rises
