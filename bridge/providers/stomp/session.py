"""A session over STOMP (``messaging.provider.Session``).

Owns what one session was asked and has not finished. All sessions of a connection share its socket.
Frames gather until the end of the turn. Then as few RECEIPTs are asked for as confirm all of them;
how few, the dialect says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from bridge.providers.answers import SessionAnswers
from bridge.providers.asked import Asked, Operation
from bridge.providers.schedules import as_activemq_reads, asked, without_schedule
from bridge.providers.sessions import Sessions
from bridge.providers.stomp.consumer import StompConsumer
from bridge.providers.stomp.mapping import pattern, to_headers
from bridge.providers.stomp.options import capabilities_of
from bridge.providers.stomp.state import ConnectionState
from bridge.providers.stomp.transaction import Outgoing, Transaction
from bridge.providers.stomp.wire import Answer, Pairs
from bridge.providers.wildcards import is_wild
from gateway.messaging.completions import Completion
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.exchanges import is_declared
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Deliver, Done, Mode, Session
from gateway.messaging.scheduled import DELAY
from gateway.messaging.selector.selector import parse as parse_selector
from gateway.stomp.brokers import Schedules, Vouching

_SETTLED = "settled"


class StompSession:
    """One session. Made by its connection."""

    def __init__(self, connection: ConnectionState, sessions: StompSessions, mode: Mode) -> None:
        self.mode: Final = mode
        self.dialect: Final = connection.dialect
        self.closed = False
        self._connection = connection
        self._sessions = sessions
        self._consumers: dict[StompConsumer, None] = {}
        self._frames: list[Outgoing] = []
        self._answers = SessionAnswers(connection.turn.soon)
        self._transaction = Transaction(self.dialect)
        #: Transactions that the user has committed; the first is with the broker.
        self._commits: deque[tuple[Transaction, Completion]] = deque()
        self._committing = False
        #: The name of the open transaction that its subscriptions begin in, for dialects that need
        #: one.
        self._opened: str | None = None
        sessions.open[self] = None

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        now = self._connection.now_ms()
        outgoing: list[Outgoing] = []
        unset = [(message, message.message_id, message.timestamp) for message in messages]
        try:
            for index, message in enumerate(messages):
                message.message_id = message.message_id or self._connection.new_message_id()
                message.timestamp = message.timestamp or now
                outgoing.append(self._outgoing(index, message, now))
        except MessageRejected:
            for message, identifier, timestamp in unset:
                message.message_id, message.timestamp = identifier, timestamp
            raise
        if self.mode is Mode.TRANSACTED:
            self._transaction.sends += outgoing
            return
        self._frames += outgoing
        self._connection.turn.gathered += sum([len(one.body) for one in outgoing])
        self._connection.turn.flush_later(self.flush)

    def _outgoing(self, index: int, message: Message, now: int) -> Outgoing:
        destination = message.headers.destination
        topic = destination.kind is Kind.TOPIC
        origin = self._connection.origin if topic and not self.dialect.no_local else ""
        try:
            if topic and is_wild(destination.name):
                raise InvalidDestination(
                    destination, "a message cannot be sent to a name with wildcards"
                )
            self._check_exchange(destination)
            if self._connection.for_clients:
                if message.headers.group and not topic and not self.dialect.groups:
                    raise NotSupported("groups")
                if message.headers.scheduled:
                    message = self._scheduled(message, now)
            headers = to_headers(message, self.dialect, now, origin, self._connection.for_clients)
        except MessagingError as error:
            raise MessageRejected(index, error) from error
        except ValueError as error:
            raise MessageRejected(
                index, InvalidDestination(destination, f"the message cannot be sent there: {error}")
            ) from error
        asked = Asked(Operation.SEND, self._connection.username, destination)
        vouching = self.dialect.vouching
        stored = message.headers.persistent or vouching is Vouching.ONE
        alike: object = object() if stored and vouching is not Vouching.ALL else vouching
        return Outgoing("SEND", headers, message.body, asked, alike)

    def _check_exchange(self, destination: Destination) -> None:
        """Check that a client's exchange is one of the broker's.

        :raises NotSupported: the broker has none.
        """
        refuses = self._connection.for_clients and not self.dialect.has_exchanges
        if refuses and destination.kind is Kind.TOPIC and is_declared(destination.name):
            raise NotSupported("exchanges")

    def _scheduled(self, message: Message, now: int) -> Message:
        """Return a client's message with what has the broker deliver it later.

        :raises InvalidSchedule, NotSupported: see :func:`bridge.providers.schedules.asked`.
        """
        headers = message.headers
        schedule = asked(headers, capabilities_of(self.dialect))
        if self.dialect.schedules is Schedules.ACTIVEMQ:
            return message.replaced(as_activemq_reads(headers, schedule, now))
        if self.dialect.schedules is Schedules.DELAY:
            due = {DELAY: max(0, schedule.first(now) - now)}
            headers = without_schedule(headers)
            return message.replaced(headers.replace(properties={**headers.properties, **due}))
        return message

    def writable(self) -> bool:
        return not self._connection.turn.crowded

    def on_writable(self, resume: Callable[[], None]) -> None:
        if self._connection.turn.crowded:
            self._connection.turn.on_relief(resume)
        else:
            self._connection.turn.soon(resume)

    # --- frames

    def put(self, command: str, headers: Pairs) -> None:
        """Write a frame, in order with everything else of this session."""
        alike: object = None
        if command in ("ACK", "NACK"):
            alike = object() if self.dialect.vouching is Vouching.COMMIT else _SETTLED
        self._frames.append(Outgoing(command, headers, b"", Asked(Operation.SETTLE), alike))
        self._connection.turn.flush_later(self.flush)

    def ask(self, command: str, headers: Pairs, asked: Asked, answer: Answer) -> None:
        """Write a frame with a RECEIPT, for which completions wait.

        :param answer: called with the outcome, before the completions are.
        """
        self.flush()
        self._ask(command, headers, b"", asked, answer)

    def _ask(
        self, command: str, headers: Pairs, body: bytes, asked: Asked, answer: Answer | None
    ) -> None:
        number = self._answers.number()

        def answered(error: MessagingError | None) -> None:
            if answer is not None:
                answer(error)
            self._answers.arrived(number, error)

        self._connection.wire.ask(command, headers, body, asked, answered)

    def flush(self) -> None:
        """Hand what has gathered to the socket."""
        frames, self._frames = self._frames, []
        vouched: set[object] = set()
        asking: list[bool] = []
        for frame in reversed(frames):
            asking.append(frame.alike is not None and frame.alike not in vouched)
            vouched.add(frame.alike)
        if self.dialect.vouching is Vouching.COMMIT and sum(asking) > 1:
            self._flush_together(frames)
            return
        wire = self._connection.wire
        for frame, asks in zip(frames, reversed(asking), strict=True):
            if asks:
                self._ask(frame.command, frame.headers, frame.body, frame.asked, None)
            else:
                wire.write(frame.command, frame.headers, frame.body)

    def _flush_together(self, frames: Sequence[Outgoing]) -> None:
        """Write frames of which one COMMIT confirms all.

        SENDs are in its transaction. ACKs come before it, because a broker hands messages out in
        another order if they are in it.
        """
        wire = self._connection.wire
        transaction = ("transaction", self._connection.new_id())
        wire.write("BEGIN", [transaction])
        asked = frames[0].asked
        for frame in frames:
            if frame.command == "SEND":
                asked = frame.asked
                wire.write(frame.command, [*frame.headers, transaction], frame.body)
            else:
                wire.write(frame.command, frame.headers, frame.body)
        # An ERROR that does not say what it answers is a SEND's, most likely.
        self._ask("COMMIT", [transaction], b"", asked, None)

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> StompConsumer:
        self._check_open()
        dialect = self.dialect
        destination = spec.destination
        if spec.selector is not None:
            if not dialect.selectors:
                raise NotSupported("selectors")
            if spec.selector.strip():
                parse_selector(spec.selector)
            else:
                spec = replace(spec, selector=None)
        if spec.browse:
            if not dialect.browse:
                raise NotSupported("browse")
            if destination.kind is not Kind.QUEUE:
                raise InvalidDestination(destination, "only queues can be browsed")
            if dialect.queue_patterns and is_wild(destination.name):
                raise InvalidDestination(destination, "queues with wildcards cannot be browsed")
        if spec.exclusive and not dialect.exclusive:
            raise NotSupported("exclusive")
        if destination.temporary:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )
        if spec.shared_name is not None:
            raise NotSupported("shared")
        if spec.queue is not None and not (dialect.has_exchanges or spec.queue.is_plain):
            raise NotSupported("queues")
        self._check_exchange(destination)
        if spec.durable_name is not None:
            self._check_durable(spec.durable_name, spec)
        pattern(self.dialect, destination)
        if (
            self.mode is Mode.TRANSACTED
            and not self.dialect.acknowledges_within
            and not spec.browse
        ):
            self._open_transaction()
        consumer = StompConsumer(self, self._connection, spec, deliver, failed)
        self._consumers[consumer] = None
        self._connection.durables.opened(spec.durable_name, consumer)
        if spec.queue is not None and spec.queue.removable:
            self._connection.durables.queues[spec.queue.name] = spec.queue
        return consumer

    def _check_durable(self, name: str, spec: ConsumerSpec) -> None:
        if not self.dialect.durable:
            raise NotSupported("durable")
        if spec.destination.kind is not Kind.TOPIC:
            raise InvalidDestination(spec.destination, "only topics have durable subscriptions")
        client_id = self._connection.client_id
        if client_id is None:
            raise ClientIdRequired(name)
        if name in self._connection.durables.in_use:
            raise DurableInUse(client_id, name)

    def forget(self, consumer: StompConsumer) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""
        self._consumers.pop(consumer, None)

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        for consumer in self._consumers:
            consumer.subscribe()
        self.flush()
        self._answers.complete(done)

    def transaction_for(self, within: Session | None) -> Transaction | None:
        """The transaction of a settlement; None if it takes effect at once."""
        if within is None or within is self:
            return self._transaction if self.mode is Mode.TRANSACTED else None
        if not self.dialect.joined:
            raise NotSupported("joined")
        session = self._sessions.own(within)
        if session is None or session.mode is not Mode.TRANSACTED:
            raise ProviderUnavailable(
                "an acknowledgement can only join a transacted session of its own connection"
            )
        return session._transaction

    def wire_transaction(self) -> str | None:
        """The transaction that subscriptions begin in; None where they do not."""
        return self._opened

    def _open_transaction(self) -> None:
        """Open a transaction at the broker, which allows one per connection."""
        if self._opened is None:
            if not self._sessions.take_transaction(self):
                raise NotSupported(
                    "more than one transacted session with consumers in a connection"
                )
            self._begin()

    def _begin(self) -> None:
        self._opened = self._connection.new_id()
        self.put("BEGIN", [("transaction", self._opened)])

    def commit(self, done: Done) -> None:
        self._check_transacted("commit")
        transaction, self._transaction = self._transaction, Transaction(self.dialect)
        self._commits.append((transaction, self._answers.completions.ask(done)))
        if not self._committing:
            self._commit_next()

    def _commit_next(self) -> None:
        """Have the broker carry out the next transaction.

        Empty ones need no broker.
        """
        while self._commits and self._commits[0][0].empty:
            self._answers.finish_soon(self._commits.popleft()[1])
        if not self._commits:
            self._committing = False
            if self.closed:
                self._finish()
            return
        self._committing = True
        self.flush()
        transaction, completion = self._commits[0]
        wire = self._connection.wire
        transaction.write(
            wire,
            self._opened or self._connection.new_id(),
            self._opened is not None,
            lambda error: self._outcome(transaction, completion, error),
        )
        if self._opened is not None:
            self._begin()

    def _outcome(
        self, transaction: Transaction, completion: Completion, error: MessagingError | None
    ) -> None:
        self._commits.popleft()
        if error is None:
            transaction.committed()
        elif not self._connection.ending:
            transaction.undo(self, self._consumers)
        # The next one must not be asked of a connection that has ended.
        if not self._connection.ending:
            self._commit_next()
        self._answers.completions.finish(completion, error)

    def rollback(self, done: Done) -> None:
        self._check_transacted("rollback")
        completion = self._answers.completions.ask(done)
        self._transaction.undo(self, self._consumers)
        self._answers.finish_soon(completion)

    def recover(self) -> None:
        self._check_open()
        if self.mode is Mode.TRANSACTED:
            raise NotSupported("recover in a transacted session")
        for consumer in list(self._consumers):
            consumer.given_up([])

    def _check_transacted(self, what: str) -> None:
        self._check_open()
        if self.mode is not Mode.TRANSACTED:
            raise NotSupported(f"{what} outside of a transacted session")

    # --- the end

    def close(self) -> None:
        if self.closed:
            return
        if self._connection.ended:
            self.closed = True
            return
        self._transaction.undo(self, self._consumers)
        for consumer in list(self._consumers):
            consumer.close()
        self.closed = True
        if not self._committing:
            self._finish()

    def _finish(self) -> None:
        """Nothing is under way any more."""
        if self._opened is not None:
            self.put("ABORT", [("transaction", self._opened)])
            self._opened = None
        self.flush()
        self._sessions.forget(self)

    @property
    def waiting(self) -> bool:
        """Whether completions are pending."""
        return bool(self._answers)

    def lost(self, error: MessagingError) -> None:
        """The connection has ended."""
        self.abandon()
        self._commits.clear()
        self._answers.fail_all(error)

    def abandon(self) -> None:
        """Deliver nothing more: the connection is ending.

        The broker takes back what is outstanding.
        """
        self._frames.clear()
        for consumer in list(self._consumers):
            consumer.abandon()
        self._consumers.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise ProviderUnavailable("the session is closed")
        self._connection.check_open()


class StompSessions(Sessions[StompSession]):
    """The sessions of one connection, of which one may have its transaction."""

    def __init__(self) -> None:
        super().__init__()
        self._transacted: StompSession | None = None

    def take_transaction(self, session: StompSession) -> bool:
        """Give the connection's one transaction to a session.

        :returns: whether it was free, and no other session may need it.
        """
        others = [
            each
            for each in self.open
            if each is not session and each.mode is Mode.TRANSACTED and not each.closed
        ]
        if self._transacted is not None or others:
            return self._transacted is session
        self._transacted = session
        return True

    def forget(self, session: StompSession) -> None:
        """See :meth:`Sessions.forget`."""
        if self._transacted is session:
            self._transacted = None
        super().forget(session)
