"""The configuration of a JMS bridge as values.

They are the elements of its XML file with references resolved. The fields have the names of the
attributes (Open MQ's Tables 12-3 to 12-9, HornetQ's parameters), with a unit where one is needed, and
their defaults. The reader takes both from here. Knows neither XML nor files, and no provider: the
meaning of a look-up name or a property is the provider's.

Values are equal if they configure the same: descriptions, and the lines they were read from, make
no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from bridge.config.secrets import secrets_in, usernames_in
from gateway.messaging import destination as messaging
from gateway.messaging.destination import Kind

AS_SOURCE: Final = "AS_SOURCE"
"""As a target's ``destination-ref``: each message goes to a destination of the name and type that
it came from.
"""
BRIDGE_NAME_PROPERTY: Final = "JMS_SUN_JMSBRIDGE_NAME"
"""The message property that has the name of the bridge."""
MESSAGE_IDS: Final = "HORNETQ_BRIDGE_MSG_ID_LIST"
"""The property to which each bridge on the way appends the message id that it saw, separated by
commas (HornetQ, section 33.1).
"""
HOPS: Final = "STOMP_GATEWAY_BRIDGE_HOPS"
"""The property to which each link with a loop guard on the way appends itself, separated by commas.
"""
PROVIDER_PROPERTY: Final = "provider"
"""The property of a connection factory that names the provider to use, of another package."""

UNSAID_BATCH_SIZE: Final = 100
"""Messages of a batch, at most, of a link that says nothing of it: as many as have come by then."""
PACED_BATCHES: Final = 10
"""Batches a second, about, of a link that its rate holds back."""
BATCH_OCTETS: Final = 16 * 1024 * 1024
"""Octets of bodies that end a batch: bodies of megabytes must not fill the memory."""

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


def _no_properties() -> Mapping[str, str]:
    return NO_PROPERTIES


class QualityOfService(Enum):
    """How often a message may arrive after failures (HornetQ, section 33.4)."""

    AT_MOST_ONCE = "AT_MOST_ONCE"
    """Acknowledged before it is sent: it may be lost."""
    DUPLICATES_OK = "DUPLICATES_OK"
    """Acknowledged after it was sent: it may arrive twice. What ``transacted="false"`` asks for."""
    ONCE_AND_ONLY_ONCE = "ONCE_AND_ONLY_ONCE"
    """Sent and acknowledged in one transaction. What ``transacted="true"`` asks for, which is the
    default.
    """

    @property
    def transacted(self) -> bool:
        """Whether it takes a transaction that spans source and target."""
        return self is QualityOfService.ONCE_AND_ONLY_ONCE


@dataclass(frozen=True, slots=True)
class ConnectionFactory:
    """Where connections come from.

    The element ``connection-factory``, Open MQ's Table 12-8.

    :param ref_name: what sources, targets and dead message queues call it.
    :param lookup_name: what its provider finds it by; None is the broker of this instance, if
        :attr:`embedded`.
    :param multi_rm: whether its connections may be to more than one XA resource manager.
    :param connect_attempts: how often to try to connect; -1 is for ever.
    :param connect_attempt_interval_s: seconds to wait before the next attempt.
    :param idle_timeout_s: seconds after which an unused connection of a pool, or a shared one, is
        closed; 0 is never.
    :param username: None connects without user and password, or to the broker of this instance as
        ``imq.bridge.admin.user``.
    :param password: given where ``username`` is; never in ``repr``.
    :param properties: the JNDI environment, or what else its provider wants to know. They may hold
        secrets, and are not in ``repr``.
    :param line: the line of the XML file; 0 without one.
    """

    ref_name: str
    lookup_name: str | None = None
    multi_rm: bool = False
    connect_attempts: int = -1
    connect_attempt_interval_s: int = 5
    idle_timeout_s: int = 1800
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=_no_properties, repr=False, hash=False)
    description: str = field(default="", repr=False, compare=False)
    line: int = field(default=0, repr=False, compare=False)

    @property
    def provider(self) -> str | None:
        """The value of the property ``provider``, or None."""
        return self.properties.get(PROVIDER_PROPERTY)

    @property
    def embedded(self) -> bool:
        """Whether connections are to the broker of this instance."""
        return self.lookup_name is None and self.provider is None


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue or topic: the element ``destination``, Open MQ's Table 12-9.

    :param ref_name: what sources, targets, dead message queues and a transformer's ``branch_to``
        call it.
    :param name: its name at the provider; None where ``lookup_name`` is given.
    :param kind: queue or topic; None where ``lookup_name`` is given, as it is then known only when
        it has been looked up.
    :param lookup_name: what the provider finds it by.
    :param properties: the JNDI environment. They may hold secrets, and are not in ``repr``.
    :param line: the line of the XML file; 0 without one.
    """

    ref_name: str
    name: str | None = None
    kind: Kind | None = None
    lookup_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=_no_properties, repr=False, hash=False)
    description: str = field(default="", repr=False, compare=False)
    line: int = field(default=0, repr=False, compare=False)

    @property
    def by_name(self) -> messaging.Destination | None:
        """The destination itself; None where it must be looked up."""
        if self.name is None or self.kind is None:
            return None
        return messaging.Destination(self.kind, self.name)

    @property
    def shown(self) -> str:
        """What operators see of it: ``queue:NAME``, or its look-up name."""
        return str(self.by_name or self.lookup_name)


@dataclass(frozen=True, slots=True)
class Source:
    """A link's source: the element ``source``, Open MQ's Table 12-5.

    :param selector: only messages that it matches; None is all.
    :param durable_sub: the name of a durable subscription; means nothing where the destination is,
        or turns out to be, a queue.
    :param clientid: the client identifier of the connection; None is the connection factory's own,
        without which ``durable_sub`` of a topic cannot be.
    """

    connection_factory: ConnectionFactory
    destination: Destination
    selector: str | None = None
    durable_sub: str | None = None
    clientid: str | None = None
    description: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SetHeader:
    """What a header becomes: the element ``set`` of a rule.

    :param value: its value as text; None where ``source`` has it.
    :param type: the JMS type of a property, in Java's word.
    :param source: the header whose value it becomes, with its type; where the message has none
        nothing is set.
    """

    name: str
    value: str | None = None
    type: str = "string"
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done to messages that match: the element ``rule``.

    The headers are changed in the order of the fields. Headers are the properties, and those header
    fields of JMS that may be changed.

    :param when: a selector; None is every message.
    :param removes: names of headers; ``*`` at the end stands for whatever follows.
    :param renames: old and new names.
    :param sets: what headers become; a ``source`` is read before the rule changes anything.
    :param drop: whether the message is consumed and sent nowhere.
    :param destination: where it goes instead of the target's destination; None is there.
    :param last: whether the rules after this one are not for it.
    """

    when: str | None = None
    removes: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    sets: tuple[SetHeader, ...] = ()
    drop: bool = False
    destination: Destination | None = None
    last: bool = False
    description: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Target:
    """A link's target: the element ``target``, Open MQ's Table 12-6.

    :param destination: None is ``AS_SOURCE``: the destination that each message came from, by name
        and type.
    :param stay_connected: whether the connection is the link's own, and stays.
    :param clientid: the client identifier of the connection, which then is the link's own.
    :param retain_replyto: whether JMSReplyTo is kept.
    :param message_transformer_class: the class that each message passes through; None without one.
    :param consume_no_transfer_on_transform_error: whether a message on which the transformer fails
        is dead; if not, the link stops.
    :param rules: applied in this order, before the transformer.
    :param properties: for the transformer.
    """

    connection_factory: ConnectionFactory
    destination: Destination | None = None
    stay_connected: bool = True
    clientid: str | None = None
    retain_replyto: bool = False
    message_transformer_class: str | None = None
    consume_no_transfer_on_transform_error: bool = False
    rules: tuple[Rule, ...] = ()
    properties: Mapping[str, str] = field(default_factory=_no_properties, repr=False, hash=False)
    description: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Link:
    """A way from a source to a target.

    The element ``link``, Open MQ's Table 12-4 and HornetQ's parameters.

    :param enabled: whether it can be started.
    :param quality_of_service: what ``quality-of-service`` or else ``transacted`` says.
    :param max_batch_size: messages that are sent and acknowledged at once, at least 1; None is as
        many as have come, see :attr:`batch_size`.
    :param max_batch_time_ms: milliseconds after which, at the latest, a batch is sent that is not
        full, at least 1; -1 waits until it is. Of a link without ``max_batch_size`` no batch waits.
    :param failure_retry_interval_ms: milliseconds between attempts to connect again, at least 1;
        None is the connection factory's.
    :param max_retries: attempts to connect again, -1 for ever; None is the connection factory's.
    :param add_message_id_in_header: whether the message's id is appended to its property
        ``HORNETQ_BRIDGE_MSG_ID_LIST``.
    :param loop_guard: whether a message that comes back to this link is dead.
    :param max_messages_per_second: messages that it takes a second, at least 1; None is as many as
        it can.
    :param max_bytes_per_second: octets of bodies that it takes a second, at least 1; None likewise.
    :param line: the line of the XML file; 0 without one.
    """

    name: str
    source: Source
    target: Target
    enabled: bool = True
    quality_of_service: QualityOfService = QualityOfService.ONCE_AND_ONLY_ONCE
    max_batch_size: int | None = None
    max_batch_time_ms: int = 100
    failure_retry_interval_ms: int | None = None
    max_retries: int | None = None
    add_message_id_in_header: bool = False
    loop_guard: bool = False
    max_messages_per_second: int | None = None
    max_bytes_per_second: int | None = None
    description: str = field(default="", repr=False, compare=False)
    line: int = field(default=0, repr=False, compare=False)

    @property
    def transacted(self) -> bool:
        """Whether each transfer is one transaction of source and target."""
        return self.quality_of_service.transacted

    @property
    def batch_size(self) -> int:
        """The most messages of one batch.

        The default for AT_MOST_ONCE is one, because a crash loses the whole batch. With a rate it is
        what the rate allows in a tenth of a second, so that a batch is smaller rather than late.
        """
        size = self.max_batch_size
        if size is None:
            once = self.quality_of_service is QualityOfService.AT_MOST_ONCE
            size = 1 if once else UNSAID_BATCH_SIZE
        rate = self.max_messages_per_second
        return size if rate is None else min(size, max(1, rate // PACED_BATCHES))

    @property
    def batch_octets(self) -> int:
        """The octets of bodies that end a batch.

        The message that reaches them still belongs to it.
        """
        rate = self.max_bytes_per_second
        return BATCH_OCTETS if rate is None else min(BATCH_OCTETS, max(1, rate // PACED_BATCHES))

    @property
    def batch_time_ms(self) -> int:
        """Milliseconds that the first message of a batch may wait for others.

        -1 is until the batch is full.
        """
        return 0 if self.max_batch_size is None else self.max_batch_time_ms


@dataclass(frozen=True, slots=True)
class Dmq:
    """A dead message queue: the element ``dmq``, Open MQ's Table 12-7.

    :param connection_factory: None only for the built-in one, which is on the broker of this
        instance.
    :param destination: None only for the built-in one, which is :data:`BUILT_IN_DMQ_DESTINATION`.
    :param stay_connected: whether the connection is its own, and stays.
    :param clientid: the client identifier of the connection, which then is its own.
    :param time_to_live_ms: milliseconds that a dead message is kept; 0 is for ever.
    :param send_attempts: how often it is tried to send one message there, at least 1.
    :param send_attempt_interval_s: seconds between these attempts.
    :param message_transformer_class: the class that each dead message passes through; None without one.
    :param properties: for the transformer.
    :param line: the line of the XML file; 0 without one.
    """

    name: str
    connection_factory: ConnectionFactory | None = None
    destination: Destination | None = None
    enabled: bool = True
    stay_connected: bool = True
    clientid: str | None = None
    time_to_live_ms: int = 0
    send_attempts: int = 3
    send_attempt_interval_s: int = 5
    message_transformer_class: str | None = None
    properties: Mapping[str, str] = field(default_factory=_no_properties, repr=False, hash=False)
    description: str = field(default="", repr=False, compare=False)
    line: int = field(default=0, repr=False, compare=False)

    @property
    def built_in(self) -> bool:
        """Whether this is the one that every bridge has."""
        return self.name == BUILT_IN_DMQ_NAME


BUILT_IN_DMQ_NAME: Final = "built-in-dmq"
BUILT_IN_DMQ_DESTINATION: Final = messaging.Queue("imq.bridge.jms.dmq")
"""Where the built-in dead message queue is, on the broker of this instance."""
BUILT_IN_DMQ: Final = Dmq(BUILT_IN_DMQ_NAME)
"""The built-in dead message queue as it is where the file does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A whole configuration: the element ``jmsbridge``, Open MQ's Table 12-3.

    :param links: in the order of the file, as are the others.
    :param built_in_dmq: always the first that a dead message goes to.
    :param dmqs: those after it, the disabled ones too.
    :param message_transfer_tag_bridge_name: whether each message gets the property
        ``JMS_SUN_JMSBRIDGE_NAME``.
    :param log_message_transfer: whether each transfer is a line of level INFO in the bridge's log.
    :param origin: the file or URL it was read from; empty without one.
    """

    name: str
    links: tuple[Link, ...] = ()
    built_in_dmq: Dmq = BUILT_IN_DMQ
    dmqs: tuple[Dmq, ...] = ()
    connection_factories: tuple[ConnectionFactory, ...] = ()
    destinations: tuple[Destination, ...] = ()
    message_transfer_tag_bridge_name: bool = False
    log_message_transfer: bool = True
    origin: str = field(default="", compare=False)

    def destination(self, ref_name: str) -> Destination | None:
        """Return the destination of that ``ref-name``, or None.

        Transformers name it in ``branch_to``.
        """
        return next(
            (destination for destination in self.destinations if destination.ref_name == ref_name),
            None,
        )

    def secrets(self) -> frozenset[str]:
        """Return every password, for the guard that keeps them out of the logs.

        They are those of users, and properties that are named like one.
        """
        return frozenset(secret for secret in self._secrets() if secret)

    def usernames(self) -> frozenset[str]:
        """Return the names of users, which the guard of logs leaves readable.

        They are those of connection factories, and of properties that are named like one.
        """
        given = [
            name for property, value in self._properties() for name in usernames_in(property, value)
        ]
        return frozenset(
            name
            for name in (*given, *(factory.username for factory in self.connection_factories))
            if name
        )

    def _secrets(self) -> Iterator[str]:
        for factory in self.connection_factories:
            yield factory.password or ""
        for name, value in self._properties():
            yield from secrets_in(name, value)

    def _properties(self) -> Iterator[tuple[str, str]]:
        elements: list[ConnectionFactory | Destination | Target | Dmq] = [
            *self.connection_factories,
            *self.destinations,
        ]
        elements += [*(link.target for link in self.links), self.built_in_dmq, *self.dmqs]
        for element in elements:
            yield from element.properties.items()
