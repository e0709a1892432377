"""THE SEAM: what a messaging provider promises to those who use one.

The STOMP bridge and the JMS bridge links reach every broker through these protocols and nothing
else: the embedded broker, a JMS provider behind its client jars, another STOMP broker. They are
shaped like JMS and cheap enough for the hot path.

Three rules hold for all of it.

*Threads.* Every method is called on the reactor thread and every callback arrives there; threads
are the provider's secret. No callback arrives from inside a call that the user of the seam makes,
except where a docstring says so.

*Order.* What one session is asked to do takes effect in the order asked.

*Durability.* A completion fires when everything asked of that session before it is durable.

Errors are those of :mod:`gateway.messaging.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.exchanges import QueueDeclaration
from gateway.messaging.message import Message
from gateway.messaging.redelivery import RedeliveryChanges

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

#: The property that is a message's duplicate id, a String, where the provider has
#: ``duplicate_ids``. It stays on the message.
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"

#: Called once: None when all is well, else what failed.
Done: TypeAlias = Callable[[MessagingError | None], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do.

    What it cannot raises :class:`~gateway.messaging.errors.NotSupported` when asked.

    :param transacted: sessions of mode TRANSACTED, atomic over sends and acknowledgements.
    :param joined: an acknowledgement of any consumer may be made ``within`` a transacted session of
        its connection.
    :param xa: :meth:`Connection.xa_session`.
    :param durable: durable subscriptions.
    :param selectors: JMS selectors.
    :param temporary: temporary destinations.
    :param browse: queue browsers.
    :param individual: sessions of mode INDIVIDUAL, :meth:`Consumer.acknowledge` and
        :meth:`Consumer.reject`; where these are to take effect in a transaction, they may raise
        NotSupported anyway.
    :param delivery_count: the ``attempts`` of a delivery are counted, not only known to be more
        than one.
    :param duplicate_ids: a message sent twice to one destination with one duplicate id
        (:data:`DUPLICATE_ID`) is kept once.
    :param queue_patterns: a consumer of all queues that a name with wildcards covers.
    :param delayed: a message is delivered later, as the properties of
        :mod:`gateway.messaging.scheduled` ask. It is accepted and durable as any, and such a
        property that cannot be read is refused with InvalidSchedule. That is so for clients'
        messages, see :class:`Credentials`. Those of links have been delivered elsewhere at their
        time: to them these properties mean nothing.
    :param recurring: it is delivered again and again, as they ask.
    :param scheduler_optional: both depend on how the broker is set up. Only a message shows it.
    :param groups: messages of a queue that have one ``JMSXGroupID`` go to one of its consumers as long
        as that is there; by a negative ``JMSXGroupSeq`` the group ends. Where the one that has a group
        leaves, its unsettled messages of it come first, in order, to the one that has it then.
    :param exclusive: a consumer of a queue may have it for itself, see :class:`ConsumerSpec`.
    :param shared: a subscription that is not durable may have a name by which consumers share it, see
        :class:`ConsumerSpec`.
    :param stable_ids: the ``message_id`` of a message is the same each time that it is delivered,
        and no other message's.
    """

    transacted: bool = False
    joined: bool = False
    xa: bool = False
    durable: bool = False
    selectors: bool = False
    temporary: bool = False
    browse: bool = False
    individual: bool = False
    delivery_count: bool = False
    duplicate_ids: bool = False
    stable_ids: bool = False
    queue_patterns: bool = False
    delayed: bool = False
    recurring: bool = False
    scheduler_optional: bool = False
    groups: bool = False
    exclusive: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who wants to connect.

    :param passcode: never in a ``repr``, a log or an error.
    :param address: the peer's IP address, "" for a user inside this process; some users are
        confined to the loopback.
    :param certificate: the name that a verified client certificate vouches for, where the operator
        accepts that in place of a passcode.
    :param certificate_groups: the groups that it vouches for, where the operator takes them from
        there; the user then need not be known otherwise. None: it vouches for none.
    :param for_clients: the messages are clients' own, and may ask for delivery at a later time.
    """

    username: str
    passcode: str
    address: str = ""
    certificate: str | None = None
    certificate_groups: frozenset[str] | None = None
    for_clients: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.username!r}, {self.address!r})"


class Mode(Enum):
    """How deliveries of a session are settled (JMS 1.1, section 4.4.11)."""

    #: By the provider, as soon as ``deliver`` has returned.
    AUTO = "auto"
    #: By the user, cumulatively: :meth:`Consumer.acknowledge_through`.
    CLIENT = "client"
    #: By the user, one by one: :meth:`Consumer.acknowledge`.
    INDIVIDUAL = "individual"
    #: By the user, taking effect with :meth:`Session.commit`.
    TRANSACTED = "transacted"


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What a consumer wants to receive.

    :param destination: a queue or a topic, whose name may hold wildcards: ``*`` one level, ``>``
        the rest. A consumer of a queue with wildcards receives from every queue that they cover and
        that its user may consume from, also from those that are created while it lives. Its credit
        and the numbers of its deliveries are for all of them together, messages of one queue come
        in its order, and queues have their turns. It creates no queue, and a queue that goes does not
        end it. Queues that have as many consumers as they may have are consumed from once they have
        fewer; temporary ones are never covered. It cannot browse.
    :param selector: a JMS selector, or None for every message.
    :param no_local: not what this connection sent itself; topics only.
    :param durable_name: a durable subscription of the connection's client identifier; on a queue it
        is refused.
    :param browse: read and leave everything where it is; queues only. An empty delivery is the end.
    :param redelivery: for rejected deliveries, what differs from the destination's own policy.
    :param name: what its user calls it, for those who look.
    :param shared: consumers of several connections of one user may share the durable subscription,
        without a client identifier (JMS 2.0, "Shared durable subscriptions"). A provider that has no
        such subscriptions asks for the connection's client identifier.
    :param shared_name: of a topic: consumers of several connections of one user that say this name
        share a subscription, which is not durable and ends with the last of them (JMS 2.0, "Shared
        non-durable subscriptions"). They want the same: another topic or selector is refused with
        SubscriptionDiffers, and so is the name of a shared durable subscription, or ``no_local``.
    :param redefines: a durable subscription of that name to another topic, or with another selector,
        is replaced where it has no consumer (JMS 1.1, section 6.11.1). If not, that is refused with
        SubscriptionDiffers, and what waits is kept. Of ``shared`` ones only.
    :param adds: of what consumers share: another topic is added to those it has, and stays.
    :param tells_groups: a message that is the first of its group for this consumer has the property
        ``JMSXGroupFirstForConsumer``, a boolean. A provider without ``groups`` has no such property
        to tell.
    :param exclusive: of a queue: one of the consumers that ask for this gets all messages, the one
        that came first, and no other consumer gets any. When it leaves, the next of them does, first
        what that one has not settled. Message groups mean nothing then.
    :param priority: of consumers, those with the highest get messages first, as long as they have
        credit and want them. A provider that knows no such thing has all alike.
    :param none_or_more: of a name with wildcards: ``>`` stands for none or more levels, wherever it
        is, so that ``a.>`` covers ``a``, too. Else it is one or more, as the last level. A durable
        subscription that did not have it, and is asked for with it, is the same one, and covers
        more from then on. A JMS provider has patterns of its own, and this changes nothing there.
    :param address: of a queue: where it does not exist, it is made as one of the queues of that
        address, see :class:`~gateway.messaging.message.AddressedHeaders`; "" for none. A provider
        that knows no such thing has the queue alone.
    :param queue: the queue that the subscription has at a RabbitMQ, None for what it has anyway.
    """

    destination: Destination
    selector: str | None = None
    no_local: bool = False
    durable_name: str | None = None
    browse: bool = False
    redelivery: RedeliveryChanges | None = None
    name: str = ""
    shared: bool = False
    shared_name: str | None = None
    redefines: bool = True
    adds: bool = False
    tells_groups: bool = False
    exclusive: bool = False
    priority: int = 0
    none_or_more: bool = False
    address: str = ""
    queue: QueueDeclaration | None = None


class Waiting(NamedTuple):
    """What waits for a subscription's consumers, besides what they have.

    :param messages: how many; -1 when unknown.
    :param oldest_ms: the JMSTimestamp of the oldest; 0 when none waits, -1 when unknown.

    A provider that knows this without reading the messages has a method
    ``waiting(spec, client_id)``, which returns a Deferred of it, or of None where only a browser
    can tell. Every other provider is browsed.
    """

    messages: int
    oldest_ms: int


class Provider(Protocol):
    """A messaging provider: a broker, or the way to one."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def resource(self) -> str:
        """The name of the resource manager.

        Equal strings, same resource manager (XA's ``isSameRM``).
        """

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        """Open a connection.

        :param client_id: JMS client identifier, unique among the provider's connections.
        :param lost: called at most once if the connection ends without being closed, with
            ProviderUnavailable or with why the provider ended it; every later call on it but
            ``close`` raises :class:`~gateway.messaging.errors.ProviderUnavailable`.
        :returns: fails with AuthenticationFailed, AccessDenied, ClientIdInUse, ProviderUnavailable.
        """


class Connection(Protocol):
    """A connection of one user."""

    @property
    def client_id(self) -> str | None:
        """Its JMS client identifier, None if it has none.

        The one asked for, or the one that the provider's own configuration gave it.
        """

    @property
    def user(self) -> str:
        """The user's name, as authenticated; "" if the provider does not say."""

    @property
    def product(self) -> str:
        """What the provider calls itself; never empty (``getJMSProviderName``)."""

    @property
    def administers(self) -> bool:
        """Whether its user is known to be an administrator of the provider.

        It is False if the provider does not say, and may change while the connection is open.
        """

    def exists(self, destination: Destination) -> bool | None:
        """Whether there is that destination now; None: it does not tell."""

    def has_exchanges(self, destination: Destination) -> bool:
        """Whether its broker may have :mod:`~gateway.messaging.exchanges`."""

    def session(self, mode: Mode) -> Session:
        """Make a session; cheap.

        What is wrong with it may show later, in its completions.
        """

    def xa_session(self) -> XASession:
        """A new session that takes part in XA transactions. :raises NotSupported:"""

    def temporary(self, kind: Kind) -> Destination:
        """Make a temporary destination with a random name.

        Only this connection may consume from it, and it goes with it.
        """

    def renew(self, credentials: Credentials) -> Deferred[None]:
        """Go on with other credentials of the same user, such as a newer token.

        Until it fires those of before hold.

        Fails with AuthenticationFailed, AccessDenied; with NotSupported where a connection has its
        credentials once and for all.
        """

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        """Remove a durable subscription; durable when it fires.

        A shared one, where the connection's client identifier has none of that name. Fails with
        ClientIdRequired, UnknownSubscription, DurableInUse.
        """

    def close(self) -> Deferred[None]:
        """Close sessions, then the connection.

        Unacknowledged deliveries go back, open transactions roll back, temporary destinations go.
        Idempotent, and as good after a loss, also from inside ``lost``: fires, and never fails.
        """


class Session(Protocol):
    """A single-threaded context for sending and receiving."""

    def send(self, messages: Sequence[Message]) -> None:
        """Take all, or raise for none.

        What was taken is in force at once, and durable at a later completion or commit.

        The messages are the provider's from now on. It sets each one's ``message_id`` and
        ``timestamp`` unless they are set, at the latest when the next completion fires without an
        error; in a transacted session, when its commit does. What was received is copied before it
        is sent on.

        What was taken may be refused later, where the provider must ask: :meth:`completion` says
        so.

        :raises MessageRejected: for one that cannot be taken, with one of AccessDenied,
            InvalidDestination, DestinationFull, MessageTooLarge, TransactionTooLarge,
            StorageFailed, InvalidDuplicateId, InvalidSchedule, DuplicateInDoubt as its cause. Those before it may be
            sent by themselves, and one of them may be rejected then. With ProducersPaused as its
            cause it is only held: it and those behind it are to be sent again when the session is
            :meth:`writable`.
        """

    def writable(self) -> bool:
        """Return False to stop the sender until :meth:`on_writable` says so.

        What is sent anyway is taken.
        """

    def on_writable(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when the session can take more.

        If it can now, ``resume`` is called at the end of this turn.
        """

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> Consumer:
        """A new consumer, stopped and without credit.

        :param failed: called at most once if the consumer ends without being closed: with an error
            that this raises, where the provider must ask first or has changed its mind
            (InvalidDestination: the destination is gone); with ProviderUnavailable, where it learns
            of a loss of the connection before the connection does, otherwise told by ``lost``
            alone; with another MessagingError for what only the provider knows.
        :raises: AccessDenied, InvalidDestination (a durable subscription to a queue or a temporary
            topic, browsing a topic or a queue with wildcards, somebody else's temporary
            destination), InvalidSelector,
            ClientIdRequired, DurableInUse, TooManyConsumers, NotSupported.
        """

    def completion(self, done: Done) -> None:
        """Call ``done`` once all asked before is durable, or has failed.

        All that this session was asked: sends, consumers, acknowledgements, commits.

        Completions of one session, commits and rollbacks among them, fire in the order asked, never
        from inside this call. Each fires once, also when the session is closed or the connection
        lost before it could.

        What failed is told to the first completion behind it:

        * ProviderUnavailable: the connection was lost or the session closed before. The same may be
          asked again of another connection.
        * MessageRejected: a message was refused. Its index counts what was sent since the
          completion before, in a transacted session since the last boundary.
        * A cause of MessageRejected, StorageFailed, or another MessagingError: refused, and the
          provider does not tell which message.

        After a refusal the session goes on. Which of the other messages were taken is not known; in
        a transacted session none is, and the commit fails, too.
        """

    def commit(self, done: Done) -> None:
        """Make durable, together or not at all, what followed the last boundary.

        That is sends and acknowledgements.

        A failure, one of those of :meth:`completion`, means rolled back, unless it is
        OutcomeUnknown. Deliveries not acknowledged stay outstanding.
        """

    def rollback(self, done: Done) -> None:
        """Forget sends and acknowledgements since the last boundary.

        Outstanding deliveries are given back, as :meth:`recover` does elsewhere.

        Acknowledgements of other sessions' consumers that were made ``within`` this one become
        outstanding again instead.
        """

    def recover(self) -> None:
        """Give back all outstanding deliveries of the session's own consumers.

        They are delivered again in order, as redelivered. Their numbers are void; numbering goes on.

        :raises NotSupported: in a session of mode TRANSACTED, where it is for :meth:`rollback` to
            do (JMS 1.1, ``Session.recover``). An XASession has it.
        """

    def close(self) -> None:
        """Close the consumers, give back deliveries, roll back. Idempotent."""


class Deliver(Protocol):
    """The callback that receives a consumer's messages."""

    def __call__(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        """Deliveries ``first``, ``first + 1``, ... of this consumer.

        :param attempts: for each message how often it is being delivered now, from 1; None when all
            are first attempts.

        A message that the provider has and cannot read is an
        :class:`~gateway.messaging.message.Unreadable`, and a delivery as any other.

        Must not raise. May call anything of the seam. The sequence is the callee's to keep.
        """


class Consumer(Protocol):
    """Receives messages of one subscription, as far as credit was granted.

    Deliveries are numbered from 1 without gaps.
    """

    def start(self) -> None:
        """Begin, or go on, to deliver."""

    def stop(self) -> None:
        """Deliver nothing until :meth:`start`; credit is kept."""

    def grant(self, messages: int, octets: int = 0) -> None:
        """Add credit. The provider never delivers more messages than were granted.

        :param octets: credit in octets of body, once any was granted; the message that exceeds it
            is still delivered whole.
        """

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        """Settle every outstanding delivery up to ``number``.

        :param within: a transacted session of the same connection whose commit makes it take
            effect.
        :returns: how many deliveries that settled.
        :raises UnknownDelivery: ``number`` itself is not outstanding; nothing changed.
        """

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        """Settle these, all or none.

        :raises UnknownDelivery: for the first that is not outstanding.
        """

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        """The user could not take these. All or none.

        :param delay_ms: deliver them again after this long; None leaves it to the redelivery
            policy, which may decide that they are dead.
        :param dead: they are dead at once, for this reason.
        :raises UnknownDelivery: for the first that is not outstanding.
        """

    def close(self, requeue: bool = True) -> None:
        """Receive no more. Idempotent.

        It may also be called when the session or the connection is closed or lost.

        :param requeue: outstanding deliveries go back at once; if False they may still be settled,
            and go back with the session, or when this is called again with True.
        """


class Flags(IntFlag):
    """Flags of XA calls, as in the X/Open CAE Specification, section 4.2."""

    NOFLAGS = 0x0
    JOIN = 0x200000
    RESUME = 0x8000000
    SUCCESS = 0x4000000
    SUSPEND = 0x2000000
    FAIL = 0x20000000


class Vote(Enum):
    """The answer to prepare."""

    OK = 0
    READ_ONLY = 3


@dataclass(frozen=True, slots=True)
class Xid:
    """A transaction branch.

    :param format_id: not negative.
    :param gtrid: global transaction id, 1 to 64 octets.
    :param bqual: branch qualifier, 1 to 64 octets.
    """

    format_id: int
    gtrid: bytes
    bqual: bytes


class XAConsumer(Consumer, Protocol):
    """A consumer of an :class:`XASession`."""

    def withdraw(self) -> None:
        """Take back what is left of the credit in messages.

        Where the consumer was stopped before, and a completion asked behind that has fired, no
        delivery is on its way that counts on it.
        """


class XASession(Session, Protocol):
    """A session whose work is associated with XA branches."""

    def resource(self) -> XAResource: ...

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> XAConsumer:
        """As :meth:`Session.consumer`."""


class XAResource(Protocol):
    """The resource manager's side of XA.

    Every failure is an :class:`~gateway.messaging.errors.XAError` with its code.
    """

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        """Associate the session's work with the branch."""

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        """End or suspend the association; another may then begin."""

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        """Promise to commit or roll back as told; durable when it fires."""

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]: ...

    def rollback(self, xid: Xid) -> Deferred[None]: ...

    def recover(self) -> Deferred[Sequence[Xid]]:
        """Return all prepared and heuristically completed branches.

        The scan's flags are the provider's business.
        """

    def forget(self, xid: Xid) -> Deferred[None]: ...

    def is_same_rm(self, other: XAResource) -> Deferred[bool]:
        """Whether the other's session is known to have the same resource manager.

        Then both may take part in one branch.

        :param other: of a session, of whatever provider, that was asked something before.
        """
