"""A session (``messaging.provider.Session``): the order of frames, completions and commits.

Owns what one session was asked and has not finished. All sessions of a connection share its socket.
Frames gather until the end of the turn, and then those RECEIPTs are asked for that tell all of
them: how few that takes, the dialect says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bridge.providers.stomp.consumer import StompConsumer
from bridge.providers.stomp.dialect import Dialect, Vouching
from bridge.providers.stomp.mapping import is_wild, to_headers
from bridge.providers.stomp.promises import Promise, Promises
from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.transaction import Outgoing, Transaction
from bridge.providers.stomp.wire import Answer, Pairs
from gateway.messaging.destination import Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import Deliver, Done, Mode, Session, Subscription
from gateway.messaging.selector.selector import parse as parse_selector

if TYPE_CHECKING:
    from bridge.providers.stomp.connection import StompConnection

_SETTLED = "settled"


class _Frame(NamedTuple):
    """One to be written. :param alike: what its RECEIPT vouches for has the same; None needs
    none.
    """

    command: str
    headers: Pairs
    body: bytes
    asked: Asked
    alike: object


class StompSession:
    """One session. Made by its connection."""

    def __init__(self, connection: StompConnection, mode: Mode) -> None:
        self.connection = connection
        self.mode = mode
        self.closed = False
        self.consumers: dict[StompConsumer, None] = {}
        self._frames: list[_Frame] = []
        self._promises = Promises(connection.soon)
        self._transaction = Transaction(self)
        #: Transactions that the user has committed, and their promises; the first is with the
        #: broker.
        self._commits: deque[tuple[Transaction, Promise]] = deque()
        self._committing = False
        #: The name of the transaction that its subscriptions are born in, where the dialect has
        #: such.
        self._opened: str | None = None

    @property
    def dialect(self) -> Dialect:
        return self.connection.dialect

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        now = self.connection.now_ms()
        outgoing: list[Outgoing] = []
        unset = [(message, message.message_id, message.timestamp) for message in messages]
        try:
            for index, message in enumerate(messages):
                message.message_id = message.message_id or self.connection.new_message_id()
                message.timestamp = message.timestamp or now
                outgoing.append(self._outgoing(index, message, now))
        except MessageRejected:
            for message, identifier, timestamp in unset:
                message.message_id, message.timestamp = identifier, timestamp
            raise
        if self.mode is Mode.TRANSACTED:
            self._transaction.sends += outgoing
            return
        self._frames += [
            _Frame("SEND", one.headers, one.body, one.asked, one.alike) for one in outgoing
        ]
        self.connection.gathered += sum([len(one.body) for one in outgoing])
        self.connection.flush_later(self)

    def _outgoing(self, index: int, message: Message, now: int) -> Outgoing:
        destination = message.headers.destination
        topic = destination.kind is Kind.TOPIC
        origin = self.connection.origin if topic and not self.dialect.no_local else ""
        try:
            if topic and is_wild(destination.name):
                raise InvalidDestination(
                    destination, "a message cannot be sent to a name with wildcards"
                )
            headers = to_headers(message, self.dialect, now, origin)
        except MessagingError as error:
            raise MessageRejected(index, error) from error
        except ValueError as error:
            raise MessageRejected(
                index, InvalidDestination(destination, f"the message cannot be sent there: {error}")
            ) from error
        asked = Asked(Operation.SEND, self.connection.username, destination)
        vouching = self.dialect.vouching
        alike: object = (
            (destination.kind, message.headers.persistent)
            if vouching is Vouching.ALIKE
            else vouching
        )
        return Outgoing(
            headers, message.body, asked, object() if vouching is Vouching.ONE else alike
        )

    def writable(self) -> bool:
        return not self.connection.crowded

    def on_writable(self, resume: Callable[[], None]) -> None:
        if self.connection.crowded:
            self.connection.on_relief(resume)
        else:
            self.connection.soon(resume)

    # --- frames

    def put(self, command: str, headers: Pairs) -> None:
        """Write a frame, in order with everything else of this session."""
        settles = command in ("ACK", "NACK")
        self._frames.append(
            _Frame(command, headers, b"", Asked(Operation.SETTLE), _SETTLED if settles else None)
        )
        self.connection.flush_later(self)

    def ask(self, command: str, headers: Pairs, asked: Asked, answer: Answer) -> None:
        """The same with a RECEIPT, for which completions wait. :param answer: is told the outcome,
        before they are.
        """
        self.flush()
        self._ask(command, headers, b"", asked, answer)

    def _ask(
        self, command: str, headers: Pairs, body: bytes, asked: Asked, answer: Answer | None
    ) -> None:
        number = self._promises.take()

        def answered(error: MessagingError | None) -> None:
            if answer is not None:
                answer(error)
            self._promises.come(number, error)

        self.connection.wire.ask(command, headers, body, asked, answered)

    def flush(self) -> None:
        """Hand what has gathered to the socket."""
        frames, self._frames = self._frames, []
        vouched: set[object] = set()
        asking: list[bool] = []
        for frame in reversed(frames):
            asking.append(frame.alike is not None and frame.alike not in vouched)
            vouched.add(frame.alike)
        wire = self.connection.wire
        for frame, asks in zip(frames, reversed(asking), strict=True):
            if asks:
                self._ask(frame.command, frame.headers, frame.body, frame.asked, None)
            else:
                wire.write(frame.command, frame.headers, frame.body)

    # --- receiving

    def consumer(
        self, spec: Subscription, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> StompConsumer:
        self._check_open()
        capabilities = self.dialect.capabilities
        destination = spec.destination
        if spec.selector is not None:
            if not capabilities.selectors:
                raise NotSupported("selectors")
            if spec.selector.strip():
                parse_selector(spec.selector)
            else:
                spec = _without_selector(spec)
        if spec.browse:
            if not capabilities.browse:
                raise NotSupported("browse")
            if destination.kind is not Kind.QUEUE:
                raise InvalidDestination(destination, "only queues can be browsed")
        if destination.temporary:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )
        if spec.durable_name is not None:
            self._check_durable(spec.durable_name, spec)
        self.connection.check_name(destination)
        if (
            self.mode is Mode.TRANSACTED
            and not self.dialect.acknowledges_within
            and not spec.browse
        ):
            self._open_transaction()
        consumer = StompConsumer(self, spec, deliver, failed)
        self.consumers[consumer] = None
        self.connection.consumer_made(consumer)
        return consumer

    def _check_durable(self, name: str, spec: Subscription) -> None:
        if not self.dialect.capabilities.durable:
            raise NotSupported("durable")
        if spec.destination.kind is not Kind.TOPIC:
            raise InvalidDestination(spec.destination, "only topics have durable subscriptions")
        client_id = self.connection.client_id
        if client_id is None:
            raise ClientIdRequired(name)
        if self.connection.durable_in_use(name):
            raise DurableInUse(client_id, name)

    def forget(self, consumer: StompConsumer) -> None:
        """A consumer is closed and has nothing outstanding any more."""
        self.consumers.pop(consumer, None)

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        for consumer in self.consumers:
            consumer.subscribe()
        self.flush()
        self._promises.complete(done)

    def transaction_for(self, within: Session | None) -> Transaction | None:
        """The transaction in which a settlement of one of its consumers takes effect; None: at
        once.
        """
        if within is None or within is self:
            return self._transaction if self.mode is Mode.TRANSACTED else None
        if not self.dialect.capabilities.joined:
            raise NotSupported("joined")
        session = self.connection.own_session(within)
        if session is None or session.mode is not Mode.TRANSACTED:
            raise ProviderUnavailable(
                "an acknowledgement can only join a transacted session of its own connection"
            )
        return session._transaction

    def wire_transaction(self) -> str | None:
        """The transaction that subscriptions are to be born in; None where they are not."""
        return self._opened

    def _open_transaction(self) -> None:
        """Have a transaction open at the broker; it has one at a time for a connection."""
        if self._opened is None:
            if not self.connection.take_transaction(self):
                raise NotSupported(
                    "more than one transacted session with consumers in a connection"
                )
            self._begin()

    def _begin(self) -> None:
        self._opened = self.connection.new_id()
        self.put("BEGIN", [("transaction", self._opened)])

    def commit(self, done: Done) -> None:
        self._check_transacted("commit")
        promise = self._promises.make(done)
        transaction, self._transaction = self._transaction, Transaction(self)
        self._commits.append((transaction, promise))
        if not self._committing:
            self._commit_next()

    def _commit_next(self) -> None:
        """Have the next transaction carried out. Those without content need no broker."""
        while self._commits and self._commits[0][0].empty:
            _, promise = self._commits.popleft()
            self._promises.keep_soon(promise, None)
        if not self._commits:
            self._committing = False
            if self.closed:
                self._finish()
            return
        self._committing = True
        self.flush()
        transaction, promise = self._commits[0]
        wire = self.connection.wire
        transaction.write(
            wire,
            self._opened or self.connection.new_id(),
            lambda error: self._outcome(transaction, promise, error),
        )
        if self._opened is not None:
            self._begin()

    def _outcome(
        self, transaction: Transaction, promise: Promise, error: MessagingError | None
    ) -> None:
        self._commits.popleft()
        if error is None:
            transaction.committed()
        elif not self.connection.ending:
            transaction.undo()
        # What follows may be told only if it is not asked of a connection that has ended.
        if not self.connection.ending:
            self._commit_next()
        self._promises.keep(promise, error)

    def rollback(self, done: Done) -> None:
        self._check_transacted("rollback")
        promise = self._promises.make(done)
        self._transaction.undo()
        self._promises.keep_soon(promise, None)

    def recover(self) -> None:
        self._check_open()
        if self.mode is Mode.TRANSACTED:
            raise NotSupported("recover in a transacted session")
        for consumer in list(self.consumers):
            consumer.recover()

    def _check_transacted(self, what: str) -> None:
        self._check_open()
        if self.mode is not Mode.TRANSACTED:
            raise NotSupported(f"{what} outside of a transacted session")

    # --- the end

    def close(self) -> None:
        if self.closed:
            return
        if self.connection.ended:
            self.closed = True
            return
        self._transaction.undo()
        for consumer in list(self.consumers):
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
        self.connection.release_transaction(self)
        self.connection.forget(self)

    @property
    def waiting(self) -> bool:
        """Whether there is somebody to be told something."""
        return bool(self._promises)

    def lost(self, error: MessagingError) -> None:
        """The connection has ended."""
        self.abandon()
        self._commits.clear()
        self._promises.break_all(error)

    def abandon(self) -> None:
        """The connection is ending: nothing more is delivered, and the broker takes back what is
        outstanding.
        """
        self._frames.clear()
        for consumer in list(self.consumers):
            consumer.abandon()
        self.consumers.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise ProviderUnavailable("the session is closed")
        self.connection.check_open()


def _without_selector(spec: Subscription) -> Subscription:
    return Subscription(
        spec.destination, None, spec.no_local, spec.durable_name, spec.browse, spec.redelivery
    )
