"""The table of AMQP 1.0 brokers: addresses, abilities, guarantees.

Owns the table, and how a broker is recognised by the ``product`` of its open frame (section 2.7.1).
Knows neither sockets nor messages.

AMQP does not say how a queue and a topic are addressed, nor which optional parts a broker has. So
both are known of the product. Where a broker was tried is in ``docs/amqp.rst``; what is said here of
the others is from their documentation.

Temporary destinations are dynamic nodes (section 3.5.4), which not every broker has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from bridge.providers.exchanges import PREFIX, named_by, parts_of
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.provider import Capabilities
from gateway.stomp.brokers import Wildcards, with_slashes, with_slashes_escaped

#: Of a Destination's kind: what follows a prefix is percent-encoded, too.
_SAFE: Final = "!$&'()*+,:;=@~-._"
#: The kinds of x-opt-jms-dest and x-opt-jms-reply-to (AMQP JMS mapping, section 3.2.1).
KINDS: Final = (
    (Kind.QUEUE, False),
    (Kind.TOPIC, False),
    (Kind.QUEUE, True),
    (Kind.TOPIC, True),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """One kind of broker.

    :param name: in configuration files, options and errors.
    :param products: parts of ``product``, in small letters, that tell it; the first peer of
        :data:`PEERS` that has one wins.

    Addresses:

    :param prefixes: what precedes the name of a queue and of a topic.
    :param escapes_names: names are percent-encoded.
    :param reads_octets: to it each character of a link's address is one octet of the name in UTF-8,
        and ``%2F`` is a slash; no other character is encoded.
    :param node_capabilities: sources and targets have the capability ``queue`` or ``topic``, which
        tells the kind of a bare name.
    :param wildcards: of topics.
    :param has_exchanges: their addresses are as :data:`~bridge.providers.exchanges.PREFIX` says; see :class:`~gateway.stomp.brokers.Dialect`.
    :param knows_exchanges: it has them, and they have no address here.
    :param host_prefix: what precedes a virtual host in the open frame's ``hostname``.

    What it can do:

    :param transactions: local transactions by a coordinator (section 4.5), over links of one
        session.
    :param durable: durable subscriptions, named by the container and the link.
    :param selectors: the filter ``apache.org:selector-filter:string``.
    :param no_local: the filter ``apache.org:no-local-filter:list``.
    :param browse: the distribution mode ``copy`` (section 3.5.3).
    :param delivery_count: ``delivery-count`` of the header is kept (section 3.2.1).
    :param tells_redelivery: ``first-acquirer`` of the header is false where a message was delivered
        before.
    :param duplicate_ids: a message sent twice with one duplicate id is kept once.
    :param dynamic: it makes a node for a dynamic target (section 3.5.4), of the kind that the
        capability ``temporary-queue`` or ``temporary-topic`` tells (AMQP JMS mapping).
    :param groups: messages of one group go to one consumer, by rules of its own.
    :param delivery_time: the annotation of a message that says when it is delivered; "" for none.
    :param delivery_timestamp: it is a timestamp, not a number.
    :param scheduler_optional: what it does depends on how it is set up.
    :param id_is_duplicate_id: that is by ``message-id``, which becomes the duplicate id where a
        message has one.

    What can be relied on:

    :param probe: the address of a target that costs nothing to attach, for brokers that do not
        settle a delivery when they are sent its outcome without a settlement (section 2.6.12).
        There outcomes are sent settled, and what is attached behind them in the same session
        confirms that the broker has them.
    :param drains: it knows *drain* (section 2.6.7). If not, credit is taken back by granting less,
        and what is on its way still arrives.
    :param modifies: it knows the outcome ``modified`` (section 3.4.5). If not, what its user had is
        ``released``, too.
    :param settles_first: it refuses ``rcv-settle-mode`` *second* (section 2.8.3).
    :param ends_sessions: it ends the session when it refuses a link. So each link has a session of
        its own, whose end gives back what is not settled, at once and in order.
    :param keeps_dead: rejected messages are kept somewhere, whatever the queue.
    """

    name: str
    products: tuple[str, ...] = ()
    prefixes: tuple[str, str] = ("", "")
    escapes_names: bool = False
    reads_octets: bool = False
    node_capabilities: bool = True
    wildcards: Wildcards = Wildcards.JMS
    has_exchanges: bool = False
    knows_exchanges: bool = False
    host_prefix: str = ""
    transactions: bool = False
    durable: bool = False
    selectors: bool = False
    no_local: bool = False
    browse: bool = False
    dynamic: bool = False
    delivery_count: bool = False
    tells_redelivery: bool = False
    duplicate_ids: bool = False
    id_is_duplicate_id: bool = False
    groups: bool = True
    delivery_time: str = ""
    delivery_timestamp: bool = False
    scheduler_optional: bool = False
    probe: str = ""
    drains: bool = True
    modifies: bool = True
    settles_first: bool = False
    ends_sessions: bool = False
    keeps_dead: bool = False

    @property
    def capabilities(self) -> Capabilities:
        """What a provider to such a broker can do."""
        return Capabilities(
            transacted=self.transactions,
            joined=self.transactions,
            durable=self.durable,
            selectors=self.selectors,
            temporary=self.dynamic,
            browse=self.browse,
            individual=True,
            delivery_count=self.delivery_count,
            duplicate_ids=self.duplicate_ids,
            # message-id is the sender's, which no broker changes (section 3.2.4).
            stable_ids=True,
            delayed=bool(self.delivery_time),
            scheduler_optional=self.scheduler_optional,
        )

    def address(self, destination: Destination) -> str:
        """Return the address of a destination, as messages have it.

        :raises InvalidDestination: it has no address.
        """
        name = destination.name
        if destination.temporary:
            return name
        if self.has_exchanges and (parts := parts_of(destination)):
            return PREFIX + "/".join(map(with_slashes_escaped, parts))
        if self.reads_octets:
            try:
                return self.prefixes[destination.kind] + with_slashes_escaped(name)
            except ValueError as error:
                raise InvalidDestination(destination, str(error)) from None
        return self.prefixes[destination.kind] + (
            quote(name, safe=_SAFE) if self.escapes_names else name
        )

    def node(self, destination: Destination) -> str:
        """Return the address of a link to a destination.

        :raises InvalidDestination: it has no address.
        """
        address = self.address(destination)
        return address.encode().decode("latin-1") if self.reads_octets else address

    def pattern(self, destination: Destination) -> str:
        """Return the address to receive from, of a name or a pattern.

        :raises InvalidDestination: it has no address.
        """
        if self.escapes_names and not destination.temporary:
            name = quote(destination.name, safe=_SAFE + "#")
            return self.prefixes[destination.kind] + name
        return self.node(destination)

    def destination(self, address: str, said: int | None, kind: Kind) -> Destination:
        """Return the destination that an address means.

        :param said: the annotation about it, an index of :data:`KINDS`; None without one.
        :param kind: where neither address nor annotation tell it.
        """
        temporary = False
        if said is not None and 0 <= said < len(KINDS):
            kind, temporary = KINDS[said]
        if temporary:
            return Destination(kind, address, True)
        if self.reads_octets and address.startswith(f"{self.prefixes[Kind.QUEUE]}/"):
            # A reply destination of STOMP's, which the broker takes for the name of a queue.
            address = address[len(self.prefixes[Kind.QUEUE]) :]
        if self.has_exchanges and address.startswith(PREFIX):
            exchange, _, key = address[len(PREFIX) :].partition("/")
            found = named_by(with_slashes(exchange), with_slashes(key)) if "/" not in key else None
            if found is not None:
                return found
        for each, prefix in zip(Kind, self.prefixes, strict=True):
            if prefix and address.startswith(prefix) and len(address) > len(prefix):
                name = address[len(prefix) :]
                if self.reads_octets:
                    return Destination(each, with_slashes(name))
                return Destination(each, unquote(name) if self.escapes_names else name)
        return Destination(kind, address)


#: Apache ActiveMQ Artemis, and Red Hat AMQ Broker, which is the same.
ARTEMIS: Final = Peer(
    "artemis",
    ("artemis",),
    wildcards=Wildcards.HASH,
    transactions=True,
    durable=True,
    selectors=True,
    no_local=True,
    browse=True,
    dynamic=True,
    delivery_count=True,
    duplicate_ids=True,
    delivery_time="x-opt-delivery-time",
)

#: Apache ActiveMQ Classic.
ACTIVEMQ: Final = Peer(
    "activemq",
    ("activemq",),
    transactions=True,
    durable=True,
    selectors=True,
    no_local=True,
    browse=True,
    dynamic=True,
    delivery_count=True,
    keeps_dead=True,
    delivery_time="x-opt-delivery-time",
    scheduler_optional=True,
)

#: Apache Qpid Broker-J and the C++ broker.
QPID: Final = Peer(
    "qpid",
    ("qpid",),
    wildcards=Wildcards.HASH,
    transactions=True,
    durable=True,
    selectors=True,
    no_local=True,
    browse=True,
    dynamic=True,
    delivery_count=True,
)

#: RabbitMQ from 4.0 on, which has AMQP 1.0 in its core.
RABBITMQ: Final = Peer(
    "rabbitmq",
    ("rabbitmq",),
    prefixes=("/queues/", "/exchanges/amq.topic/"),
    escapes_names=True,
    node_capabilities=False,
    wildcards=Wildcards.HASH,
    knows_exchanges=True,
    host_prefix="vhost:",
    # Quorum queues count deliveries, classic queues do not.
    tells_redelivery=True,
    groups=False,
    ends_sessions=True,
)

#: The plugin rabbitmq_amqp1_0 of RabbitMQ 3. The product is the same, and the version tells it.
RABBITMQ_3: Final = Peer(
    "rabbitmq3",
    prefixes=("/queue/", "/topic/"),
    reads_octets=True,
    node_capabilities=False,
    wildcards=Wildcards.HASH,
    has_exchanges=True,
    host_prefix="vhost:",
    tells_redelivery=True,
    groups=False,
    # It crashes on a disposition without the field ``settled``, which the engine leaves out where
    # it has the default.
    probe="/amq/queue/stomp-gateway-probe",
    # Its classic queues crash when a link drains.
    drains=False,
    modifies=False,
    settles_first=True,
    ends_sessions=True,
)

#: Microsoft Azure Service Bus. A subscription is read as the queue ``TOPIC/subscriptions/NAME``.
SERVICE_BUS: Final = Peer(
    "servicebus",
    ("servicebus", "service bus"),
    node_capabilities=False,
    delivery_count=True,
    duplicate_ids=True,
    id_is_duplicate_id=True,
    keeps_dead=True,
    delivery_time="x-opt-scheduled-enqueue-time",
    delivery_timestamp=True,
)

#: Solace PubSub+.
SOLACE: Final = Peer(
    "solace",
    ("solace", "solos"),
    prefixes=("queue://", "topic://"),
    durable=True,
    selectors=True,
)

#: IBM MQ from 9.3 on, by its AMQP channel.
IBM_MQ: Final = Peer(
    "ibmmq",
    ("ibm mq", "ibmmq", "websphere mq"),
    browse=True,
)

#: A broker that is not recognised: it sends, receives and settles, and nothing besides is relied
#: on.
GENERIC: Final = Peer("generic")

#: Those that are recognised, by name, the more particular products first: Artemis calls itself
#: ``apache-activemq-artemis``, and ActiveMQ ``ActiveMQ``.
PEERS: Final = {
    peer.name: peer
    for peer in (ARTEMIS, ACTIVEMQ, QPID, RABBITMQ, RABBITMQ_3, SERVICE_BUS, SOLACE, IBM_MQ)
}


def recognise(product: str, version: str, host: str) -> Peer:
    """Return the peer that calls itself this, or :data:`GENERIC`.

    :param product: ``product`` of the open frame's properties, "" without one.
    :param version: ``version`` of the same.
    :param host: of its address: Service Bus does not say what it is.
    """
    small = product.lower()
    if host.lower().endswith(".servicebus.windows.net"):
        return SERVICE_BUS
    for peer in PEERS.values():
        if any(mark in small for mark in peer.products):
            if peer is RABBITMQ and version.partition(".")[0] in ("2", "3"):
                return RABBITMQ_3
            return peer
    return GENERIC
