"""Which broker a destination is at, and what clients are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.front.held import HeldProvider
from gateway.front.settings import Share
from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    MessagingError,
    NotSupported,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.provider import Credentials

#: What a client may do instead of what its broker cannot, by what providers call it.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "transacted": ("transactions", "SEND and ACK outside of transactions"),
    "individual": ("acknowledgement one by one", "SUBSCRIBE with ack:client"),
    "acknowledgement one by one": ("", "SUBSCRIBE with ack:client, and ACK"),
    "joined": (
        "acknowledgement in a transaction for a subscription outside of it",
        "SUBSCRIBE in the transaction",
    ),
    "acknowledging within another session": (
        "acknowledgement in a transaction for a subscription outside of it",
        "SUBSCRIBE in the transaction",
    ),
    "temporary": ("temporary destinations", "have replies sent to a queue"),
    "browse": ("browsing", "look with the tools of the broker"),
    "durable": ("durable subscriptions", "SUBSCRIBE to a queue that the topic is routed to"),
    "selectors": ("selectors", "SUBSCRIBE without a selector"),
    "rejection": ("NACK", "DISCONNECT, and the message comes again"),
    "dead messages": ("NACK with requeue:false", "NACK without it"),
    "no-local on a connection that it shares": (
        "no-local for a client without client-id",
        "CONNECT with a client-id",
    ),
}


class Unsupported(NotSupported):
    """A broker behind the gateway cannot do what a client asks.

    :param broker: its name, and what it calls itself.
    :param capability: as the provider calls it.
    """

    def __init__(self, broker: str, capability: str) -> None:
        super().__init__(capability)
        named, remedy = _REMEDIES.get(capability, ("", ""))
        text = f"the broker {broker} does not support {named or capability}"
        self.args = (f"{text}; {remedy}" if remedy else text,)


class BrokerAway(ProviderUnavailable):
    """A broker behind the gateway cannot be reached.

    Its own words are for the log: they name hosts and classes.

    :param broker: its name.
    :param error: what its provider says.
    """

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(f"the broker '{broker}' cannot be reached")
        self._error: Final = error

    @property
    def withheld(self) -> str:
        return str(self._error)


class CommitUnknown(OutcomeUnknown):
    """As :class:`BrokerAway`, while a transaction was being committed."""

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(f"the broker '{broker}' went away")
        self._error: Final = error

    @property
    def withheld(self) -> str:
        return str(self._error)


def of_broker(broker: str, error: MessagingError) -> MessagingError:
    """Return what a client is told of an error of a broker's.

    :param broker: its name.
    """
    if isinstance(error, BrokerAway | CommitUnknown):
        return error
    if isinstance(error, ProviderUnavailable):
        return BrokerAway(broker, error)
    return CommitUnknown(broker, error) if isinstance(error, OutcomeUnknown) else error


@dataclass(frozen=True, eq=False)
class Way:
    """The way to one broker.

    :param name: of its connection factory.
    :param credentials: as whom the gateway connects; None: as each client.
    """

    name: str
    provider: HeldProvider
    credentials: Credentials | None


class Routes:
    """Which broker a destination is at.

    :param main: the way to those that are no other's; None is the embedded broker.
    :param shares: the others, None for the embedded broker, and what is theirs.
    """

    def __init__(self, main: Way | None, shares: Mapping[Way | None, Sequence[Share]]) -> None:
        self.main: Final = main
        #: All ways, and None where the embedded broker has something.
        self.every: Final = tuple(dict.fromkeys((main, *shares)))
        #: All but that to the embedded broker.
        self.ways: Final = tuple(way for way in self.every if way is not None)
        #: Whether all is at one broker.
        self.is_single: Final = len(self.every) == 1
        every = [(share, way) for way, theirs in shares.items() for share in theirs]
        # Of those that cover the same, the one that says it best.
        self._shares: Final = sorted(every, key=lambda each: each[0].precision, reverse=True)

    def way(self, destination: Destination) -> Way | None:
        """The way to its broker."""
        for share, way in self._shares:
            if share.has(destination):
                return way
        return self.main
