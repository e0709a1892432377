"""Brokers for tests: over either store, with everyone allowed everything unless a test says
otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.broker import Broker
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.security.users import Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.interface import Store, StoreError
from gateway.broker.store.memory import MemoryStore
from gateway.broker.store.sqlite import SqliteStore
from gateway.messaging.destination import Destination
from gateway.messaging.errors import AuthenticationFailed, MessagingError
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Session,
)
from gateway.messaging.values import Value
from gateway.reactor.turn import Turn


class EveryoneIn:
    """Lets everyone in whose passcode is not ``wrong``; the user's name is the only group, at
    first.
    """

    def __init__(self) -> None:
        self.deleted: set[str] = set()
        #: Groups that users are in later.
        self.groups: dict[str, frozenset[str]] = {}

    def readmit(self, principal: Principal, address: str) -> Principal:
        if principal.name in self.deleted:
            raise AuthenticationFailed(principal.name, "the user was deleted")
        return Principal(principal.name, self.groups.get(principal.name, principal.groups))

    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        if credentials.passcode == "wrong":
            return fail(AuthenticationFailed(credentials.username))
        return succeed(Principal(credentials.username, frozenset({credentials.username})))


@dataclass
class Deployment:
    """A broker and the way to it, which can be closed or abandoned, and opened again over the same
    files.
    """

    reactor: Any
    folder: Path
    kind: str
    options: BrokerOptions = field(default_factory=BrokerOptions)
    memory: Memory | None = None
    rules: str = DEFAULT_RULES
    failures: list[StoreError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.access = AccessRules(self.folder / "accesscontrol.properties")
        self.allow(self.rules)
        self.open()

    def allow(self, rules: str) -> None:
        """Put these access rules in force."""
        self.access.path.write_text(rules)
        self.access.load()

    def open(self) -> None:
        self.turn = Turn(self.reactor)
        self.store = self.make_store()
        self.broker: Broker = open_broker(
            self.reactor,
            self.turn,
            self.store,
            self.options,
            self.failures.append,
            spills=self.kind != "memory",
            memory=self.memory,
        )
        self.users = EveryoneIn()
        self.provider = EmbeddedProvider(self.broker, self.users, self.access, os.urandom)

    def make_store(self) -> Store:
        """A store over the files, not opened."""
        if self.kind == "memory":
            return MemoryStore(self.reactor)
        return SqliteStore(str(self.folder / "messages.db"), self.reactor, reserve_octets=0)

    async def close(self) -> None:
        done: Deferred[None] = Deferred()
        self.broker.close(lambda: done.callback(None))
        await done

    async def reopen(self) -> None:
        await self.close()
        self.open()

    async def connect(self, user: str = "guest", client_id: str | None = None) -> Client:
        client = Client(self)
        client.connection = await self.provider.connect(
            Credentials(user, "guest"), client_id, client.losses.append
        )
        return client


class Client:
    """A connection with the conveniences that tests want."""

    connection: Connection

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.losses: list[MessagingError] = []

    def session(self, mode: Mode = Mode.CLIENT) -> Session:
        return self.connection.session(mode)

    def consumer(self, session: Session, destination: Destination, **given: Any) -> Inbox:
        return consume(session, destination, **given)

    async def close(self) -> None:
        await self.connection.close()


class Inbox:
    """What a consumer was given, in order."""

    consumer: Consumer

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.messages: list[Message] = []
        self.attempts: list[int] = []
        self.runs = 0
        self.ended = False
        self.failures: list[MessagingError] = []
        self._waiters: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        self.runs += 1
        if not messages:
            self.ended = True
        self.numbers += range(first, first + len(messages))
        self.messages += messages
        self.attempts += attempts if attempts is not None else [1] * len(messages)
        for waiter in list(self._waiters):
            if waiter[0]():
                self._waiters.remove(waiter)
                waiter[1].callback(None)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def clear(self) -> None:
        self.numbers.clear()
        self.messages.clear()
        self.attempts.clear()

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Fires when the condition holds after a delivery, or now."""
        if condition():
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._waiters.append((condition, done))
        return done

    def count(self, number: int) -> Deferred[None]:
        """Fires when that many messages are here."""
        return self.until(lambda: len(self.messages) >= number)


def consume(
    session: Session,
    destination: Destination,
    *,
    credit: int = 1000,
    octets: int = 0,
    start: bool = True,
    **spec: Any,
) -> Inbox:
    """Make a consumer that keeps what it is given. :param spec: as of ConsumerSpec."""
    inbox = Inbox()
    inbox.consumer = session.consumer(
        ConsumerSpec(destination, **spec), inbox.deliver, inbox.failures.append
    )
    if credit:
        inbox.consumer.grant(credit, octets)
    if start:
        inbox.consumer.start()
    return inbox


def text(destination: Destination, body: str, *, expires: int = 0, **headers: Any) -> Message:
    """A TEXT message."""
    return Message(
        Headers(destination, body_type=BodyType.TEXT, **headers), body.encode(), expires=expires
    )


def with_properties(destination: Destination, body: str, properties: dict[str, Value]) -> Message:
    return text(destination, body, properties=properties)


def completed(session: Session) -> Deferred[MessagingError | None]:
    """Fires with what the session's completion says."""
    done: Deferred[MessagingError | None] = Deferred()
    session.completion(done.callback)
    return done


def committed(session: Session) -> Deferred[MessagingError | None]:
    done: Deferred[MessagingError | None] = Deferred()
    session.commit(done.callback)
    return done


def settled_down(reactor: Any) -> Deferred[None]:
    """Fires once everything that is due now has been done: two turns of the reactor with nothing
    between.
    """
    done: Deferred[None] = Deferred()
    reactor.callLater(
        0, lambda: reactor.callLater(0, lambda: reactor.callLater(0, lambda: done.callback(None)))
    )
    return done
