"""Which broker a destination is at, and what clients are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.front.held import HeldProvider
from gateway.front.settings import Share
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AuthenticationFailed,
    InvalidDestination,
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


#: What has a meaning in names at some brokers.
_ODD: Final = (",", "?", "::", "://", "%")
_ANYWHERE: Final = frozenset({"#"})


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


class LoginRefused(BrokerAway):
    """A broker behind the gateway refuses the gateway's own login.

    Whose that is, is for the log.
    """

    def __init__(self, broker: str, error: MessagingError) -> None:
        super().__init__(broker, error)
        self.args = (
            f"the broker '{broker}' refuses the login of its connection factory, which is not the client's",
        )


def of_broker(broker: str, error: MessagingError, *, own_login: bool = False) -> MessagingError:
    """Return what a client is told of an error of a broker's.

    :param broker: its name.
    :param own_login: the gateway has logged in there by itself.
    """
    if isinstance(error, BrokerAway | CommitUnknown | Unsupported):
        return error
    if isinstance(error, NotSupported):
        return Unsupported(f"'{broker}'", error.capability)
    if own_login and isinstance(error, AuthenticationFailed):
        return LoginRefused(broker, error)
    if isinstance(error, ProviderUnavailable):
        return BrokerAway(broker, error)
    return CommitUnknown(broker, error) if isinstance(error, OutcomeUnknown) else error


def check_name(destination: Destination) -> None:
    """Check that a name means one destination, whatever broker has it.

    Else access rules, and who has which destination, would be asked about another name than the
    broker is. To ActiveMQ a comma divides several destinations, options follow a question mark, and
    blanks at the edges are not there; to Artemis a queue is behind ``::``, and ``#`` is a wildcard,
    as it is to RabbitMQ, to which ``%`` begins a character's number.

    :raises InvalidDestination: it may mean another, or several.
    """
    if destination.temporary:
        return
    name = destination.name
    odd = next((each for each in _ODD if each in name), "")
    wild = _ANYWHERE if destination.kind is Kind.TOPIC else _ANYWHERE | {"*", ">"}
    if name != name.strip():
        odd = "blanks at an edge"
    elif not wild.isdisjoint(name.split(".")):
        odd = "wildcards" if destination.kind is Kind.QUEUE else "the wildcard #"
    if odd:
        raise InvalidDestination(
            destination, f"a name with {odd} may mean something else to the broker that has it"
        )


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
