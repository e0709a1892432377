"""A provider of the seam that keeps a record: what it was asked, in one ordered list, and nothing
of its own.

It checks what the seam's users owe it (credit is never exceeded, numbers are outstanding) and calls
back only outside of their calls. Tests push messages into its consumers and decide when completions
fire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    MessageRejected,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    UnknownDelivery,
)
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    ConsumerSpec,
    Credentials,
    Deliver,
    Done,
    Mode,
    Session,
    XASession,
)
from gateway.reactor.turn import Turn


class RecordingProvider:
    """The provider.

    Its connections' calls end up in :attr:`log` as tuples, the name of the call first.
    """

    resource = "recording"

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.capabilities = Capabilities(*[True] * 10)
        self.log: list[tuple[Any, ...]] = []
        self.connections: list[RecordingConnection] = []
        #: Answered with this instead of a connection.
        self.refusal: MessagingError | None = None
        #: Neither accept nor refuse until told.
        self.undecided: list[Deferred[Connection]] | None = None
        #: Completions wait until :meth:`complete`.
        self.holds_completions = False
        self._completions: list[Callable[[], None]] = []
        self._sent = 0

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        self.log.append(("connect", credentials.username, credentials.passcode, client_id))
        self.credentials = credentials
        if self.refusal is not None:
            return fail(self.refusal)
        connection = RecordingConnection(self, client_id, lost)
        self.connections.append(connection)
        if self.undecided is not None:
            waiting: Deferred[Connection] = Deferred()
            self.undecided.append(waiting)
            return waiting
        return succeed(connection)

    def later(self, done: Callable[[], None]) -> None:
        """Fire a completion, at the end of the turn or when told."""
        self._completions.append(done)
        if not self.holds_completions:
            self.turn.store(self.complete)

    def complete(self) -> None:
        """Fire what waits, in order."""
        waiting, self._completions = self._completions, []
        for done in waiting:
            done()

    def next_id(self) -> str:
        self._sent += 1
        return f"ID-{self._sent}"

    @property
    def connection(self) -> RecordingConnection:
        """The latest."""
        return self.connections[-1]

    @property
    def sent(self) -> list[Message]:
        """All messages sent, in order."""
        return [message for call in self.log if call[0] == "send" for message in call[2]]

    def calls(self, *names: str) -> list[tuple[Any, ...]]:
        """The record of these calls, in order."""
        return [call for call in self.log if call[0] in names]


class RecordingConnection:
    """A connection."""

    def __init__(
        self,
        provider: RecordingProvider,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> None:
        self.provider = provider
        self.client_id = client_id
        self.lost = lost
        self.sessions: list[RecordingSession] = []
        self.consumers: list[RecordingConsumer] = []
        self.durables: set[str] = set()
        self.closed = False
        self.closing: Deferred[None] | None = None
        self.product = "recording"
        #: As whom it was authenticated, where that is not the login.
        self.user = ""
        #: What becomes of new credentials.
        self.renewing: Deferred[None] | None = None
        self.administers = False
        self._temporaries = 0

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return False

    def session(self, mode: Mode) -> RecordingSession:
        if mode is Mode.TRANSACTED and not self.provider.capabilities.transacted:
            raise NotSupported("transactions")
        session = RecordingSession(self, mode, len(self.sessions))
        self.sessions.append(session)
        self.provider.log.append(("session", session.number, mode))
        return session

    def xa_session(self) -> XASession:
        raise NotSupported("xa")

    def temporary(self, kind: Kind) -> Destination:
        self._temporaries += 1
        made = Destination(kind, f"generated{self._temporaries}", True)
        self.provider.log.append(("temporary", made))
        return made

    def renew(self, credentials: Credentials) -> Deferred[None]:
        self.provider.log.append(("renew", credentials.username, credentials.passcode))
        return succeed(None) if self.renewing is None else self.renewing

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        self.provider.log.append(("unsubscribe", durable_name))
        if self.client_id is None:
            return fail(ClientIdRequired(durable_name))
        return succeed(None)

    def close(self) -> Deferred[None]:
        assert not self.closed, "closed twice"
        self.closed = True
        self.provider.log.append(("close connection",))
        return succeed(None) if self.closing is None else self.closing


class RecordingSession:
    """A session."""

    def __init__(self, connection: RecordingConnection, mode: Mode, number: int) -> None:
        self.connection = connection
        self.provider = connection.provider
        self.mode = mode
        self.number = number
        self.closed = False
        self.is_writable = True
        self.resume: Callable[[], None] | None = None
        #: Index of the first message to refuse, counted over all sends of the session, and why.
        self.refuses: dict[int, MessagingError] = {}
        #: The next completions fail with these.
        self.failures: list[MessagingError] = []
        self._taken = 0

    def send(self, messages: Sequence[Message]) -> None:
        assert not self.closed
        assert not self.connection.closed
        for index in range(len(messages)):
            cause = self.refuses.get(self._taken + index)
            if cause is not None:
                raise MessageRejected(index, cause)
        self._taken += len(messages)
        for message in messages:
            message.message_id = message.message_id or self.provider.next_id()
        self.provider.log.append(("send", self.mode, list(messages)))

    def writable(self) -> bool:
        return self.is_writable

    def on_writable(self, resume: Callable[[], None]) -> None:
        self.resume = resume

    def drain(self) -> None:
        """The session can take more now."""
        self.is_writable = True
        assert self.resume is not None
        resume, self.resume = self.resume, None
        resume()

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> RecordingConsumer:
        consumer = RecordingConsumer(
            self, spec, deliver, failed, len(self.connection.consumers) + 1
        )
        self.connection.consumers.append(consumer)
        self.provider.log.append(("consumer", consumer.index, spec))
        return consumer

    def _done(self, done: Done) -> None:
        failure = self.failures.pop(0) if self.failures else None
        self.provider.later(lambda: done(failure))

    def completion(self, done: Done) -> None:
        self.provider.log.append(("completion", self.mode))
        self._done(done)

    def commit(self, done: Done) -> None:
        self.provider.log.append(("commit",))
        for consumer in self.connection.consumers:
            consumer.committed()
        self._done(done)

    def rollback(self, done: Done) -> None:
        self.provider.log.append(("rollback",))
        self._done(done)
        self.recover()

    def recover(self) -> None:
        for consumer in self.connection.consumers:
            if consumer.session is self:
                consumer.outstanding.clear()
                consumer.pending.clear()
            else:
                consumer.outstanding.update(consumer.pending)
                consumer.pending.clear()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.provider.log.append(("close session", self.number))


class RecordingConsumer:
    """A consumer. :meth:`push` makes it deliver."""

    def __init__(
        self,
        session: RecordingSession,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
        index: int,
    ) -> None:
        self.session = session
        self.spec = spec
        self.deliver = deliver
        self.failed = failed
        self.index = index
        self.log = session.provider.log
        self.running = False
        self.credit = 0
        self.octets = 0
        self.delivered = 0
        self.outstanding: dict[int, Message] = {}
        #: Settled in a transaction that is open.
        self.pending: dict[int, Message] = {}
        self.closed: bool | None = None

    def push(self, *messages: Message, attempts: Sequence[int] | None = None) -> None:
        """Deliver these, as a broker would at the end of a turn."""
        assert self.running, "a stopped consumer delivers nothing"
        assert self.closed is None
        assert len(messages) <= self.credit, "credit is never exceeded"
        self.credit -= len(messages)
        self.octets -= sum(len(message.body) for message in messages)
        first = self.delivered + 1
        self.delivered += len(messages)
        if not self.spec.browse:
            self.outstanding.update(enumerate(messages, first))
        self.session.provider.turn.begin()
        try:
            self.deliver(self, first, list(messages), attempts)
        finally:
            self.session.provider.turn.end()

    def push_end(self) -> None:
        """The end of a browse."""
        self.session.provider.turn.begin()
        self.deliver(self, self.delivered + 1, [], None)
        self.session.provider.turn.end()

    def start(self) -> None:
        self.running = True
        self.log.append(("start", self.index))

    def stop(self) -> None:
        self.running = False
        self.log.append(("stop", self.index))

    def grant(self, messages: int, octets: int = 0) -> None:
        self.credit += messages
        self.octets += octets
        self.log.append(("grant", self.index, messages, octets))

    def _settle(self, numbers: Sequence[int], within: Session | None) -> None:
        for number in numbers:
            if number not in self.outstanding:
                raise UnknownDelivery(number)
        assert within is None or self.session.mode is not Mode.TRANSACTED
        for number in numbers:
            message = self.outstanding.pop(number)
            if within is not None or self.session.mode is Mode.TRANSACTED:
                self.pending[number] = message

    def committed(self) -> None:
        self.pending.clear()

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        if number not in self.outstanding:
            raise UnknownDelivery(number)
        numbers = [each for each in sorted(self.outstanding) if each <= number]
        self._settle(numbers, within)
        self.log.append(("acknowledge through", self.index, number, within is not None))
        return len(numbers)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        self._settle(numbers, within)
        self.log.append(("acknowledge", self.index, list(numbers), within is not None))

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        self._settle(numbers, within)
        self.log.append(("reject", self.index, list(numbers), dead, within is not None))

    def close(self, requeue: bool = True) -> None:
        if self.closed is None or (requeue and not self.closed):
            self.closed = requeue
            self.log.append(("close", self.index, requeue))


def message(
    body: bytes = b"hello",
    destination: Destination | None = None,
    identifier: str = "ID-1",
    **headers: Any,
) -> Message:
    """A message as a provider delivers it."""
    made = Headers(destination or Destination(Kind.QUEUE, "a"), **headers)
    return Message(made, body, message_id=identifier, timestamp=1234)


def unavailable() -> MessagingError:
    """Some error of a provider."""
    return ProviderUnavailable("it is gone")
