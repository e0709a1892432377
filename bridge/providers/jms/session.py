"""A session over JMS (``messaging.provider.Session``).

Each question becomes bytes for the session's channel at once, so Java does everything in the order
it was asked. Owns completions and their order, and which messages wait for the id that the provider
gives them. Deliveries are the consumers' business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from bridge.providers.jms import batches
from bridge.providers.jms.channels import JavaFailure, SessionChannel
from bridge.providers.jms.consumer import Delivery, JMSConsumer
from bridge.providers.jms.failures import of_consuming, of_sending
from bridge.providers.schedules import as_activemq_reads, asked, without_schedule
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError, encode_head
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
from gateway.messaging.message import Message
from gateway.messaging.provider import Capabilities, ConsumerSpec, Deliver, Done, Mode, Session
from gateway.reactor.clocks import wall_ms

#: How names of temporary destinations begin that are made here; ``Destinations.java`` has it, too.
TEMPORARY_PREFIX: Final = "stompgateway-"
#: Bytes that were sent and not answered, from which on a session is not writable, and below which
#: it is writable again.
_HIGH: Final = 4 << 20
_LOW: Final = 1 << 20
#: A field behind those of the head, for ``MessageWriter.java``: when the message is delivered.
_DUE: Final = Struct(">BIq")
_DUE_TAG: Final = 255


#: Makes a session's channel, given what to call with answers and with a failure.
ChannelMaker: TypeAlias = Callable[
    [Callable[[bytes], None], Callable[[BaseException], None]], SessionChannel
]


class ConnectionScope:
    """What the sessions of one connection share.

    :param provider: its name, for the log.
    :param individual: whether deliveries can be settled one by one.
    :param dead_queue: where dead messages go; None where the provider has no such queue.
    :param temporary: the temporary destinations of all connections of the provider.
    :param fail: ends the connection with an error.
    :param schedules: of the provider, where the messages are clients' own: they are delivered at
        the time that they ask for.
    :param exclusive: what follows the name of a queue that a consumer has for itself; "" where there
        is no such consumer.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        provider: str,
        username: str,
        client_id: str | None,
        individual: bool,
        dead_queue: Destination | None,
        temporary: set[Destination],
        fail: Callable[[MessagingError], None],
        schedules: Capabilities | None = None,
        exclusive: str = "",
    ) -> None:
        self.reactor: Final = reactor
        self.provider: Final = provider
        self.username: Final = username
        self.client_id: Final = client_id
        self.individual: Final = individual
        self.dead_queue: Final = dead_queue
        self.fail: Final = fail
        self.schedules: Final = schedules
        self.exclusive: Final = exclusive
        self.sessions: dict[JMSSession, None] = {}
        #: The connection's own temporary destinations.
        self.temporary: set[Destination] = set()
        self.open = True
        #: Why the connection was lost, if it was.
        self.error: MessagingError | None = None
        self.all_temporary: Final = temporary

    def check_open(self) -> None:
        """:raises ProviderUnavailable: the connection is closed or was lost."""
        if not self.open:
            raise ProviderUnavailable(str(self.error or "the connection is closed"))

    def check_sendable(self, destination: Destination) -> None:
        """:raises InvalidDestination: nothing can be sent there."""
        if not destination.name:
            raise InvalidDestination(destination, "it has no name")
        made_here = destination.temporary and destination.name.startswith(TEMPORARY_PREFIX)
        if made_here and destination not in self.all_temporary:
            raise InvalidDestination(destination, "the temporary destination does not exist")

    def encoded(self, message: Message) -> bytes:
        """Return the head of a message that is sent.

        :raises InvalidSchedule, NotSupported: see :func:`bridge.providers.schedules.asked`.
        :raises EnvelopeError: it fits into none.
        """
        schedules = self.schedules
        if schedules is None or not message.headers.scheduled:
            return encode_head(message)
        schedule, now = asked(message.headers, schedules), wall_ms(self.reactor)
        if schedules.recurring:
            return encode_head(message.replaced(as_activemq_reads(message.headers, schedule, now)))
        head = encode_head(message.replaced(without_schedule(message.headers)))
        return head + _DUE.pack(_DUE_TAG, 8, schedule.first(now))

    def has_durable(self, name: str) -> bool:
        """Whether an open consumer has this durable subscription."""
        return any(session.has_durable(name) for session in self.sessions)


class _Completion(NamedTuple):
    done: Done
    #: Messages sent since the boundary before, for those that a transaction takes back and for the
    #: index of one that was refused.
    sent: list[Message]
    commit: bool
    rollback: bool


class JMSSession:
    """One session. Made by its connection.

    :param channel: makes its channel.
    """

    _log: Final = Logger(namespace="bridge.jms")

    def __init__(
        self,
        connection: ConnectionScope,
        mode: Mode,
        channel: ChannelMaker,
    ) -> None:
        self.mode: Final = mode
        self.channel = channel(self._answered, self._broke)
        self._connection = connection
        self._consumers: dict[int, JMSConsumer] = {}
        self._numbers = 0
        self._completions: dict[int, _Completion] = {}
        self._tags = 0
        #: Why consumers could not be opened, until a completion tells it.
        self._refusals: list[MessagingError] = []
        self._sent: list[Message] = []
        self._unsent: deque[tuple[Message, int]] = deque()
        self._unsent_octets = 0
        #: Nothing that Java answers matters any more.
        self._over = False
        self._resume: list[Callable[[], None]] = []
        #: Voids that Java has not reached: deliveries before them are void.
        self._voiding = 0
        self._closed = False
        connection.sessions[self] = None

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        encoded: list[tuple[bytes, bytes]] = []
        for index, message in enumerate(messages):
            try:
                self._connection.check_sendable(message.headers.destination)
                encoded.append((self._connection.encoded(message), message.body))
            except (MessagingError, EnvelopeError) as error:
                raise MessageRejected(index, error) from error
        if encoded:
            for question in batches.sends(encoded):
                self.ask(question)
            self._sent += messages
            for message, (head, body) in zip(messages, encoded, strict=True):
                self._unsent.append((message, len(head) + len(body)))
                self._unsent_octets += len(head) + len(body)

    def writable(self) -> bool:
        return self._unsent_octets < _HIGH and not self._resume

    def on_writable(self, resume: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._unsent_octets < _HIGH:
            self.later(0, resume)
        else:
            self._resume.append(resume)

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> JMSConsumer:
        self._check_open()
        self._check(spec)
        self._numbers += 1
        consumer = self._consumer(self._numbers, spec, deliver, failed)
        self._consumers[self._numbers] = consumer
        suffix = self._connection.exclusive if spec.exclusive else ""
        self.ask(batches.open_consumer(self._numbers, spec, suffix))
        return consumer

    def _consumer(
        self,
        number: int,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> JMSConsumer:
        return JMSConsumer(self, number, spec, deliver, failed)

    def _check(self, spec: ConsumerSpec) -> None:
        destination = spec.destination
        topic = destination.kind is Kind.TOPIC
        if not destination.name:
            raise InvalidDestination(destination, "it has no name")
        if spec.browse and topic:
            raise InvalidDestination(destination, "only queues can be browsed")
        if spec.shared_name is not None:
            raise NotSupported("shared")
        if spec.exclusive and (not self._connection.exclusive or destination.temporary):
            raise NotSupported("exclusive")
        if spec.durable_name is not None:
            if not topic or destination.temporary:
                raise InvalidDestination(
                    destination, "only topics that are not temporary have durable subscriptions"
                )
            if self._connection.client_id is None:
                raise ClientIdRequired(spec.durable_name)
            if self._connection.has_durable(spec.durable_name):
                raise DurableInUse(self._connection.client_id, spec.durable_name)
        if destination.temporary and destination not in self._connection.temporary:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )

    def has_durable(self, name: str) -> bool:
        return any(
            consumer.spec.durable_name == name and not consumer.closed
            for consumer in self._consumers.values()
        )

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        self.ask(batches.sync(self._completion(done)))

    def commit(self, done: Done) -> None:
        self._check_transacted()
        self.ask(batches.commit(self._completion(done, commit=True)))

    def rollback(self, done: Done) -> None:
        self._check_transacted()
        self.ask(batches.rollback(self._completion(done, rollback=True)))
        self._void()

    def recover(self) -> None:
        self._check_open()
        if self.mode is Mode.TRANSACTED:
            raise NotSupported("recover in a transacted session")
        self.ask(batches.RECOVER)
        self._void()

    def _completion(self, done: Done, *, commit: bool = False, rollback: bool = False) -> int:
        self._tags += 1
        in_transaction = self.mode is Mode.TRANSACTED and not commit and not rollback
        sent, self._sent = self._sent, self._sent if in_transaction else []
        self._completions[self._tags] = _Completion(done, sent, commit, rollback)
        return self._tags

    def _void(self) -> None:
        self._voiding += 1
        for consumer in self._consumers.values():
            consumer.void()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # The channel and this are a reference cycle, which the collector may not visit for long.
            self._sent = []
            self.channel.ask(batches.CLOSE)
            self.channel.end()
            self._abandon_consumers()
            self._connection.sessions.pop(self, None)

    # --- for the connection and the consumers

    @property
    def dead_queue(self) -> Destination | None:
        return self._connection.dead_queue

    def ask(self, question: bytes) -> None:
        """Ask something of Java; nothing once it is closed."""
        if not self._closed:
            self.channel.ask(question)

    def later(self, seconds: float, work: Callable[[], None]) -> IDelayedCall:
        """Do something after a number of seconds."""
        return self._connection.reactor.callLater(seconds, work)

    def forget(self, number: int) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""
        self._consumers.pop(number, None)

    def lost(self, error: MessagingError) -> None:
        """The connection is lost: fail everything pending."""
        self._closed = True
        self._abandon_consumers()
        self._forget_sent()
        completions, self._completions = self._completions, {}
        for completion in completions.values():
            completion.done(OutcomeUnknown(str(error)) if completion.commit else error)
        self.channel.ask(batches.CLOSE)
        self.channel.end()

    def _forget_sent(self) -> None:
        self._over = True
        self._sent = []
        self._unsent.clear()
        self._unsent_octets = 0

    def _abandon_consumers(self) -> None:
        for consumer in self._consumers.values():
            consumer.abandon()
        self._consumers.clear()
        self._resume.clear()

    # --- what Java answers

    def _answered(self, octets: bytes) -> None:
        try:
            answers = list(batches.answers(octets))
        except Exception as error:  # noqa: BLE001
            # The answers behind it are lost, and completions would wait for them for ever.
            self._broke(
                ProviderUnavailable(f"the answer of the provider's classes cannot be read: {error}")
            )
            return
        run: list[Delivery] = []
        consumer = 0
        for answer in answers:
            if run and not (isinstance(answer, batches.Arrived) and answer.consumer == consumer):
                self._arrived(consumer, run)
                run = []
            if isinstance(answer, batches.Arrived):
                consumer = answer.consumer
                run.append(Delivery(answer.key, answer.message, answer.attempts))
            else:
                self._told(answer)
        if run:
            self._arrived(consumer, run)

    def _arrived(self, number: int, run: list[Delivery]) -> None:
        consumer = self._consumers.get(number)
        if consumer is None:
            return
        if self._voiding:
            consumer.discarded(run)
        else:
            consumer.arrived(run)

    def _told(self, answer: Any) -> None:
        if self._over:
            return
        match answer:
            case batches.Sent(identities):
                for message_id, timestamp in identities:
                    message = self._unqueued()
                    message.message_id = message.message_id or message_id
                    message.timestamp = message.timestamp or timestamp
                self._relieve()
            case batches.Dropped(count):
                for _ in range(count):
                    self._unqueued()
                self._relieve()
            case batches.Finished(tag, kind, index, reason):
                self._finished(tag, kind, index, reason)
            case batches.Ended(number, kind, reason, refused):
                consumer = self._consumers.pop(number, None)
                if consumer is not None:
                    connection = self._connection
                    error = of_consuming(
                        kind, reason, consumer.spec, connection.username, connection.client_id
                    )
                    if refused:
                        self._refusals.append(error)
                    consumer.ended(error)
            case batches.Voided():
                if self._voiding:
                    self._voiding -= 1
                else:
                    # A commit failed and was rolled back.
                    for one in self._consumers.values():
                        one.void()
            case batches.Note(text):
                self._log.warn("{provider}: {text}", provider=self._connection.provider, text=text)
            case batches.Shown(number):
                if number in self._consumers:
                    self._consumers[number].shown()

    def _unqueued(self) -> Message:
        message, octets = self._unsent.popleft()
        self._unsent_octets -= octets
        return message

    def _relieve(self) -> None:
        if self._resume and self._unsent_octets < _LOW:
            resumed, self._resume = self._resume, []
            for resume in resumed:
                self.later(0, resume)

    def _finished(self, tag: int, kind: int, index: int, reason: str) -> None:
        completion = self._completions.pop(tag, None)
        if completion is None:
            return
        if completion.rollback or (completion.commit and kind >= 0):
            for _ in completion.sent:
                self._unqueued()
            self._relieve()
        if kind < 0:
            told = None
            if not (completion.commit or completion.rollback):
                # Java does one after the other, so these were asked for before it.
                told, self._refusals = next(iter(self._refusals), None), []
            completion.done(told)
            return
        refused = completion.sent[index] if 0 <= index < len(completion.sent) else None
        destination = refused.headers.destination if refused is not None else None
        error = of_sending(kind, reason, destination, self._connection.username)
        if (
            refused is not None
            and not completion.commit
            and not isinstance(error, ProviderUnavailable)
        ):
            error = MessageRejected(index, error)
        completion.done(error)

    @property
    def _owes(self) -> bool:
        """Whether completions or calls are pending."""
        return bool(self._completions)

    def _broke(self, error: BaseException) -> None:
        """The channel has ended or was abandoned."""
        if self._closed and not self._owes:
            self._forget_sent()
            return
        if isinstance(error, JavaFailure):
            error = of_sending(error.kind, error.reason, None, self._connection.username)
        elif not isinstance(error, MessagingError):
            self._log.error("a session failed: {error!r}", error=error)
            error = ProviderUnavailable(f"a session failed: {error}")
        assert isinstance(error, MessagingError)
        if self._closed:
            self.lost(error)
        else:
            self._connection.fail(error)

    # --- checks

    def _check_open(self) -> None:
        self._connection.check_open()
        if self._closed:
            raise ProviderUnavailable("the session is closed")

    def _check_transacted(self) -> None:
        self._check_open()
        if self.mode is not Mode.TRANSACTED:
            raise NotSupported("commit and rollback outside of a transacted session")

    def check_within(self, within: Session | None) -> None:
        """:raises NotSupported: this session cannot make an acknowledgement."""
        self._check_open()
        if within is not None and within is not self:
            raise NotSupported("acknowledging within another session")

    def check_individual(self, within: Session | None) -> None:
        """:raises NotSupported: deliveries cannot be settled one by one."""
        self.check_within(within)
        if not self._connection.individual:
            raise NotSupported("acknowledgement one by one")
        if self.mode is Mode.TRANSACTED:
            raise NotSupported("acknowledgement one by one in a transaction")
