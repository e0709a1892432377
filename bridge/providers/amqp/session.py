"""A session over AMQP 1.0 (``messaging.provider.Session``).

Owns what one session was asked and has not finished: the messages that wait for credit, in order,
and the transactions. It is not a session of AMQP: those are shared by all links of a connection, or
have one link each.

Messages are sent unsettled, so that the broker answers each one (section 2.6.12), whatever their
delivery mode: a message is with the broker before it is acknowledged at its source. They go by one
link for each destination, and a message that a destination has no credit for holds back those behind
it, which keeps the order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from bridge.providers.amqp.consumer import AmqpConsumer
from bridge.providers.amqp.mapping import duplicate_id, to_bytes
from bridge.providers.amqp.refusals import Refusal, refusal
from bridge.providers.amqp.sender import SenderLink, coordinator, node
from bridge.providers.amqp.state import ConnectionState
from bridge.providers.amqp.temporary import capability
from bridge.providers.amqp.transaction import Outgoing, Transaction, declare, discharge
from bridge.providers.answers import SessionAnswers
from bridge.providers.asked import Asked, Operation
from bridge.providers.exchanges import received_from
from bridge.providers.schedules import asked, without_schedule
from bridge.providers.sessions import Sessions
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
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.exchanges import exchange_of, is_declared
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Deliver, Done, Mode, Session
from gateway.messaging.selector.selector import parse as parse_selector

#: Bytes of messages that wait for credit from which on a session is not writable.
_MOST_QUEUED: Final = 1_048_576
#: Links for sending that a session keeps; one that nothing waits for is closed for another.
_MOST_SENDERS: Final = 64


class AmqpSession:
    """One session. Made by its connection."""

    def __init__(
        self, connection: ConnectionState, sessions: Sessions[AmqpSession], mode: Mode
    ) -> None:
        self.mode: Final = mode
        self.closed = False
        self.answers: Final = SessionAnswers(connection.turn.soon)
        self._connection = connection
        self._sessions = sessions
        self._consumers: dict[AmqpConsumer, None] = {}
        self._queue: deque[Outgoing] = deque()
        self._queued = 0
        self._senders: dict[Destination, SenderLink] = {}
        self._resumes: list[Callable[[], None]] = []
        #: How many messages were sent since the last completion or boundary.
        self._place = 0
        self._transaction = Transaction()
        #: Transactions that the user has committed; the first is with the broker.
        self._commits: deque[tuple[Transaction, Completion]] = deque()
        self._committing = False
        self._coordinator: SenderLink | None = None
        #: What waits for the coordinator's credit.
        self._waiting: Callable[[], None] | None = None
        self._id = b""
        sessions.open[self] = None

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        now = self._connection.now_ms()
        outgoing: list[Outgoing] = []
        unset = [(message, message.message_id, message.timestamp) for message in messages]
        transacted = self.mode is Mode.TRANSACTED
        try:
            for index, message in enumerate(messages):
                repeated = duplicate_id(message) if self._connection.peer.id_is_duplicate_id else ""
                message.message_id = (
                    repeated or message.message_id or self._connection.new_message_id()
                )
                message.timestamp = message.timestamp or now
                data = self._encoded(index, message, now)
                place = self._place + index
                waits = self._connection.temporaries.wait(message, self.push)
                unnamed = message if waits else None
                outgoing.append(Outgoing(message.headers.destination, data, place, 0, unnamed))
        except MessageRejected:
            for message, identifier, timestamp in unset:
                message.message_id, message.timestamp = identifier, timestamp
            raise
        self._place += len(messages)
        if transacted:
            self._transaction.sends += outgoing
            return
        for each in outgoing:
            self._queue.append(each._replace(number=self.answers.number()))
            self._queued += len(each.data)
        self._connection.turn.flush_later(self.push)

    def _encoded(self, index: int, message: Message, now: int) -> bytes:
        destination = message.headers.destination
        topic = destination.kind is Kind.TOPIC
        peer = self._connection.peer
        origin = self._connection.origin if topic and not peer.no_local else ""
        try:
            if topic and is_wild(destination.name):
                raise InvalidDestination(
                    destination, "a message cannot be sent to a name with wildcards"
                )
            _check_name(destination)
            self._check_exchange(destination)
            due, for_clients = 0, self._connection.for_clients
            if for_clients and message.headers.group and not topic and not peer.groups:
                raise NotSupported("groups")
            if for_clients and message.headers.scheduled:
                due = asked(message.headers, peer.capabilities).first(now)
                message = message.replaced(without_schedule(message.headers))
            return to_bytes(self._connection.temporaries.sent(message), peer, now, origin, due)
        except MessagingError as error:
            raise MessageRejected(index, error) from error
        except (ValueError, TypeError) as error:
            raise MessageRejected(
                index, InvalidDestination(destination, f"the message cannot be sent there: {error}")
            ) from error

    def writable(self) -> bool:
        return not self._connection.turn.crowded and self._queued < _MOST_QUEUED

    def on_writable(self, resume: Callable[[], None]) -> None:
        if self.writable():
            self._connection.turn.soon(resume)
        else:
            self._resumes.append(resume)

    def push(self) -> None:
        """Hand messages to the engine, as far as credit and its buffer go."""
        if self._connection.ending:
            return
        while self._queue:
            first = self._queue[0]
            if first.unnamed is not None:
                if self._connection.temporaries.wait(first.unnamed, self.push):
                    break
                self._name_first(first.unnamed)
                continue
            try:
                link = self._sender(first.destination)
            except InvalidDestination as error:
                # A temporary destination that has gone meanwhile.
                self._queue.popleft()
                self._queued -= len(first.data)
                self._finished(first, MessageRejected(first.place, error))
                continue
            if not link.writable:
                break
            self._queue.popleft()
            self._queued -= len(first.data)
            self._transfer(link, first)
        if self._resumes and self.writable():
            resumes, self._resumes = self._resumes, []
            for resume in resumes:
                self._connection.turn.soon(resume)

    def _name_first(self, message: Message) -> None:
        """Put the broker's names into the first message, which it has told."""
        first = self._queue.popleft()
        self._queued -= len(first.data)
        try:
            data = self._encoded(first.place, message, self._connection.now_ms())
        except MessageRejected as error:
            self._finished(first, error)
            return
        self._queue.appendleft(first._replace(data=data, unnamed=None))
        self._queued += len(data)

    def _sender(self, destination: Destination) -> SenderLink:
        link = self._senders.get(destination)
        if link is None:
            if len(self._senders) >= _MOST_SENDERS:
                self._close_idle_sender()
            peer, connection = self._connection.peer, self._connection
            there = connection.temporaries.there(destination)
            link = SenderLink(
                connection.channel(),
                connection.new_name(),
                node(
                    peer.node(there),
                    capability(destination) if peer.node_capabilities else "",
                    destination.kind is Kind.QUEUE and not peer.node_capabilities,
                ),
                self.push,
                lambda told: self._sender_failed(destination, told),
            )
            self._senders[destination] = link
        return link

    def _close_idle_sender(self) -> None:
        for destination, link in self._senders.items():
            if link.idle and link.open:
                del self._senders[destination]
                link.close()
                self._connection.leave(link.channel)
                return

    def _sender_failed(self, destination: Destination, told: Refusal) -> None:
        """The broker takes nothing there: refuse what waits for it."""
        link = self._senders.pop(destination, None)
        if link is not None:
            self._connection.leave(link.channel)
        waiting = [each for each in self._queue if each.destination == destination]
        self._queue = deque(each for each in self._queue if each.destination != destination)
        self._queued -= sum([len(each.data) for each in waiting])
        for each in waiting:
            self._answered(each, told)
        self._connection.turn.flush_later(self.push)

    def _transfer(self, link: SenderLink, outgoing: Outgoing) -> None:
        link.send(outgoing.data, lambda told, _: self._answered(outgoing, told), self._id or None)

    def _answered(self, outgoing: Outgoing, told: Refusal | None) -> None:
        """The broker has taken or refused a message."""
        error: MessagingError | None = None
        if told is not None:
            asked = Asked(Operation.SEND, self._connection.username, outgoing.destination)
            error = MessageRejected(outgoing.place, refusal(asked, told))
        self._finished(outgoing, error)

    def _finished(self, outgoing: Outgoing, error: MessagingError | None) -> None:
        if self.mode is Mode.TRANSACTED:
            self._sent_within(error)
        else:
            self.answers.arrived(outgoing.number, error)
            if self.closed:
                self._finish()

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> AmqpConsumer:
        self._check_open()
        peer = self._connection.peer
        destination = spec.destination
        if spec.selector is not None:
            if not peer.selectors:
                raise NotSupported("selectors")
            if spec.selector.strip():
                parse_selector(spec.selector)
            else:
                spec = replace(spec, selector=None)
        if spec.browse:
            if not peer.browse:
                raise NotSupported("browse")
            if destination.kind is not Kind.QUEUE:
                raise InvalidDestination(destination, "only queues can be browsed")
        if spec.exclusive:
            raise NotSupported("exclusive")
        if destination.temporary and destination not in self._connection.nodes:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )
        self._connection.temporaries.there(destination)
        if spec.shared_name is not None:
            raise NotSupported("shared")
        if spec.queue is not None and not spec.queue.is_plain:
            raise NotSupported("queues")
        if spec.durable_name is not None:
            self._check_durable(spec.durable_name, spec)
        _check_name(destination)
        self._check_exchange(destination)
        if peer.has_exchanges:
            received_from(destination)
        peer.address(destination)
        consumer = AmqpConsumer(self, self._connection, spec, deliver, failed)
        self._consumers[consumer] = None
        if spec.durable_name is not None:
            self._connection.durables[spec.durable_name] = consumer
        return consumer

    def _check_exchange(self, destination: Destination) -> None:
        """Refuse a client's exchange where it has no address.

        There it is no topic of the broker's.
        """
        connection, name = self._connection, destination.name
        if not connection.for_clients or destination.kind is not Kind.TOPIC:
            return
        peer = connection.peer
        refuses = is_declared(name) or (peer.knows_exchanges and exchange_of(name) is not None)
        if refuses and not peer.has_exchanges:
            raise NotSupported("exchanges")

    def _check_durable(self, name: str, spec: ConsumerSpec) -> None:
        if not self._connection.peer.durable:
            raise NotSupported("durable")
        if spec.destination.kind is not Kind.TOPIC:
            raise InvalidDestination(spec.destination, "only topics have durable subscriptions")
        client_id = self._connection.client_id
        if client_id is None:
            raise ClientIdRequired(name)
        if name in self._connection.durables:
            raise DurableInUse(client_id, name)

    def forget(self, consumer: AmqpConsumer) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""
        self._consumers.pop(consumer, None)

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        if self.mode is not Mode.TRANSACTED:
            self._place = 0
        for consumer in self._consumers:
            consumer.confirm()
        self.push()
        self.answers.complete(done)

    def transaction_for(self, within: Session | None) -> Transaction | None:
        """The transaction of a settlement; None if it takes effect at once."""
        if within is None or within is self:
            return self._transaction if self.mode is Mode.TRANSACTED else None
        if not self._connection.peer.transactions:
            raise NotSupported("joined")
        session = self._sessions.own(within)
        if session is None or session.mode is not Mode.TRANSACTED:
            raise ProviderUnavailable(
                "an acknowledgement can only join a transacted session of its own connection"
            )
        return session._transaction

    def commit(self, done: Done) -> None:
        self._check_transacted("commit")
        transaction, self._transaction = self._transaction, Transaction()
        self._place = 0
        self._commits.append((transaction, self.answers.completions.ask(done)))
        if not self._committing:
            self._commit_next()

    def _commit_next(self) -> None:
        """Have the broker carry out the next transaction.

        Empty ones need no broker.
        """
        while self._commits and self._commits[0][0].empty:
            self.answers.finish_soon(self._commits.popleft()[1])
        if not self._commits:
            self._committing = False
            if self.closed:
                self._finish()
            return
        self._committing = True
        if self._coordinator is None:
            connection = self._connection
            self._coordinator = SenderLink(
                connection.channel(),
                connection.new_name(),
                coordinator,
                self._coordinate,
                self._coordinator_failed,
            )
        self._when_coordinated(self._declare)

    def _when_coordinated(self, ask: Callable[[], None]) -> None:
        """Ask the coordinator as soon as it has credit."""
        self._waiting = ask
        self._coordinate()

    def _coordinate(self) -> None:
        link, ask = self._coordinator, self._waiting
        if ask is not None and link is not None and link.writable:
            self._waiting = None
            ask()

    def _coordinator_failed(self, told: Refusal) -> None:
        self._coordinator = None
        # What was asked of it was answered by its failure.
        if self._waiting is not None:
            self._waiting = None
            self._outcome(self._refused(told))

    def _refused(self, told: Refusal) -> MessagingError:
        return refusal(Asked(Operation.TRANSACT, self._connection.username), told)

    def _declare(self) -> None:
        assert self._coordinator is not None
        self._coordinator.send(declare(), self._declared)

    def _declared(self, told: Refusal | None, identifier: bytes) -> None:
        if told is not None:
            self._outcome(self._refused(told))
            return
        self._id = identifier
        transaction = self._commits[0][0]
        if not transaction.settle(identifier):
            transaction.refused = ProviderUnavailable("the link of a delivery has ended")
        transaction.unanswered = len(transaction.sends)
        if transaction.refused is None and transaction.sends:
            self._queue.extend(transaction.sends)
            self._queued += sum([len(each.data) for each in transaction.sends])
            self.push()
        else:
            self._when_coordinated(self._discharge)

    def _sent_within(self, error: MessagingError | None) -> None:
        """The broker has answered a message of the transaction that is with it."""
        if not self._commits:
            return
        transaction = self._commits[0][0]
        transaction.unanswered -= 1
        transaction.refused = transaction.refused or error
        if transaction.unanswered == 0:
            self._when_coordinated(self._discharge)

    def _discharge(self) -> None:
        assert self._coordinator is not None
        transaction = self._commits[0][0]
        transaction.discharging = True
        fails = transaction.refused is not None
        self._coordinator.send(discharge(self._id, fails), self._discharged)

    def _discharged(self, told: Refusal | None, _: bytes) -> None:
        transaction = self._commits[0][0]
        error = transaction.refused
        if error is None and told is not None:
            error = self._refused(told)
        self._outcome(error)

    def _outcome(self, error: MessagingError | None) -> None:
        self._id = b""
        transaction, completion = self._commits.popleft()
        if error is None:
            transaction.committed()
        elif not self._connection.ending:
            transaction.undo(self, self._consumers)
            self._connection.turn.soon(self.push)
        # The next one must not be asked of a connection that has ended.
        if not self._connection.ending:
            self._commit_next()
        self.answers.completions.finish(completion, error)

    def rollback(self, done: Done) -> None:
        self._check_transacted("rollback")
        completion = self.answers.completions.ask(done)
        self._place = 0
        self._transaction.undo(self, self._consumers)
        self.answers.finish_soon(completion)

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
        self.push()
        self._finish()

    def _finish(self) -> None:
        """Close the links for sending once nothing is under way any more."""
        if self._queue or self._committing or self._connection.ending:
            return
        links = [*self._senders.values()]
        if not all(link.idle for link in links):
            return
        if self._coordinator is not None:
            links.append(self._coordinator)
        self._senders, self._coordinator = {}, None
        for link in links:
            link.close()
            self._connection.leave(link.channel)
        self._sessions.forget(self)

    @property
    def waiting(self) -> bool:
        """Whether completions are pending."""
        return bool(self.answers)

    def lost(self, error: MessagingError) -> None:
        """The connection has ended."""
        self.abandon()
        if self._commits and self._commits[0][0].discharging:
            # Whether it was carried out the broker alone knows.
            self._commits[0][1].error = OutcomeUnknown(str(error))
            self._commits[0][1].ready = True
        self._commits.clear()
        self.answers.fail_all(error)

    def abandon(self) -> None:
        """Deliver nothing more: the connection is ending.

        The broker takes back what is outstanding.
        """
        self._queue.clear()
        self._queued = 0
        self._senders.clear()
        self._resumes.clear()
        self._coordinator, self._waiting = None, None
        for consumer in list(self._consumers):
            consumer.abandon()
        self._consumers.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise ProviderUnavailable("the session is closed")
        self._connection.check_open()


def _check_name(destination: Destination) -> None:
    """:raises InvalidDestination: AMQP cannot express the name."""
    if not destination.name:
        raise InvalidDestination(destination, "the name must not be empty")
    if "\0" in destination.name:
        raise InvalidDestination(destination, "the name holds a NUL")
    try:
        destination.name.encode()
    except UnicodeEncodeError:
        raise InvalidDestination(destination, "the name holds half a surrogate pair") from None
