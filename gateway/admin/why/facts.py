"""What is known beside the broker: clients, links, services.

Owns these values, and who a consumer is in the words of sentences. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.link.status import BridgeState, LinkStatus
from gateway.admin.service.bridge_resources import ElsewhereOwned
from gateway.admin.why.cause import quoted
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.refusals import Refusal
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.messaging.destination import Destination
from gateway.stomp.session.session import Session
from gateway.stomp.session.subscription import Hold, Subscription
from gateway.stomp.user_limits import Allowance

NO_HOLD: Final = Hold(0)


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """A link, and which of its ends are destinations of this broker.

    :param source: of this broker; None where it is elsewhere, or not known by its name.
    :param target: likewise.
    :param bridge: the state of its bridge.
    """

    status: LinkStatus
    source: Destination | None = None
    target: Destination | None = None
    bridge: BridgeState = BridgeState.STARTED


@dataclass(frozen=True, slots=True)
class StoppedLink:
    """A link of a bridge that is stopped, as it was when the bridge ran last.

    :param source: as that of :class:`LinkFacts`, and
    :param target: likewise.
    """

    bridge: str
    name: str
    source: Destination | None
    target: Destination | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer, and who has it.

    :param connection: the number of the connection.
    :param who: the connection, in words.
    :param link: ``(bridge, link)`` where a link has it.
    :param name: the subscription's, as the client or the link calls it.
    :param holds: why the client's subscription delivers nothing just now.
    :param unsent: octets for the client that its kernel has not taken.
    :param unused: headers of its SUBSCRIBE that mean nothing here.
    """

    consumer: EmbeddedConsumer
    connection: int
    who: str
    link: tuple[str, str] | None = None
    name: str = ""
    holds: Hold = NO_HOLD
    unsent: int = 0
    unused: tuple[str, ...] = ()

    @property
    def subscribed(self) -> str:
        """Name the subscription and whose it is; a link's has no name of its own."""
        return f"subscription {quoted(self.name)} of {self.who}" if self.name else self.who


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at one moment.

    :param connections: the broker's, with the address of each.
    :param owners: what in this process has a connection, by the ``id`` of each.
    :param sessions: of STOMP clients, by the ``id`` of the connection behind each.
    :param allowances: of their users, likewise.
    :param stomp: the state of the STOMP bridge, "" without one.
    :param closed: listeners that are not open: name and state.
    :param links: of the bridges that are not stopped.
    :param stopped: bridges that are stopped, and
    :param stopped_links: their links, where they have run.
    :param elsewhere: bridges that other brokers of the cluster run.
    :param refusals: what was refused there lately.
    """

    now_ms: int
    connections: Mapping[EmbeddedConnection, str]
    owners: Mapping[int, str] = field(default_factory=dict)
    sessions: Mapping[int, Session] = field(default_factory=dict)
    allowances: Mapping[int, Allowance] = field(default_factory=dict)
    stomp: str = ""
    closed: Sequence[tuple[str, str]] = ()
    links: Sequence[LinkFacts] = ()
    stopped: Sequence[str] = ()
    stopped_links: Sequence[StoppedLink] = ()
    elsewhere: Sequence[ElsewhereOwned] = ()
    refusals: Sequence[Refusal] = ()

    def holders(self, consumers: Sequence[EmbeddedConsumer]) -> Iterator[Holder]:
        """Yield who has each of some consumers."""
        by_number = {each.number: each for each in self.connections}
        held: dict[int, dict[int, Subscription]] = {}
        for consumer in consumers:
            number = consumer.origin.number
            connection = by_number.get(number)
            if connection is None:
                continue
            session = self.sessions.get(id(connection))
            if session is not None and number not in held:
                held[number] = {
                    id(each.consumer): each for each in session.subscriptions.by_number.values()
                }
            subscription = held.get(number, {}).get(id(consumer))
            owner = self.owners.get(id(connection), "")
            yield Holder(
                consumer,
                number,
                self.who(connection),
                link_of(owner),
                consumer.spec.durable_name or consumer.spec.name,
                NO_HOLD if subscription is None else subscription.holds,
                0 if subscription is None else subscription.unsent,
                () if subscription is None else subscription.unused,
            )

    def who(self, connection: EmbeddedConnection) -> str:
        """Name a connection as sentences do."""
        owner = self.owners.get(id(connection))
        if owner is not None:
            return f"connection {connection.number} ({owner})"
        address = self.connections.get(connection, "")
        place = f" at {address}" if address else ""
        return f"connection {connection.number} of user {quoted(connection.user)}{place}"


def link_of(owner: str) -> tuple[str, str] | None:
    """Return bridge and link of an owner: ``bridge B, link L, source``.

    None without a link.
    """
    bridge, comma, rest = owner.removeprefix("bridge ").partition(", link ")
    if not comma:
        return None
    return bridge, rest.removesuffix(", source").removesuffix(", target")
