"""Which broker a destination is at, and which names say that."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import category

from gateway.broker.security.access import Operation
from gateway.front.held import HeldProvider
from gateway.front.settings import Share
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.exchanges import (
    DEAD_EXCHANGE,
    DEAD_KEY,
    QueueDeclaration,
    exchange_of,
    is_declared,
    topic_of,
    whole_exchange,
)
from gateway.messaging.provider import ConsumerSpec, Credentials

#: What has a meaning in names at some brokers.
_ODD: Final = (",", "?", "::", "://", "%")
_ANYWHERE: Final = frozenset({"#"})
#: Begins the names of temporary destinations at ActiveMQ, whose client makes these of them.
_TEMPORARY: Final = "ID:"


def check_name(destination: Destination) -> None:
    """Check that a name means one destination, whatever broker has it.

    Else access rules, and who has which destination, would be asked about another name than the
    broker is. To ActiveMQ a comma divides several destinations, options follow a question mark, and
    blanks and control characters at the edges are not there; to Artemis a queue is behind ``::``, and ``#`` is a wildcard,
    as it is to RabbitMQ, to which ``%`` begins a character's number. In the name of an exchange it is
    the gateway's own. By JMS a name can be that of a temporary destination at ActiveMQ, from which
    each user of its owner's connection could consume.

    :raises InvalidDestination: it may mean another, or several.
    """
    if destination.temporary:
        return
    name = destination.name
    if destination.kind is Kind.TOPIC and is_declared(name):
        name = ".".join(exchange_of(name) or ())
    odd = next((each for each in _ODD if each in name), "")
    wild = _ANYWHERE if destination.kind is Kind.TOPIC else _ANYWHERE | {"*", ">"}
    if name != name.strip():
        odd = "blanks at an edge"
    elif name.startswith(_TEMPORARY):
        odd = f"{_TEMPORARY} at its beginning"
    elif any(category(each) == "Cc" for each in name):
        odd = "control characters"
    elif not wild.isdisjoint(name.split(".")):
        odd = "wildcards" if destination.kind is Kind.QUEUE else "the wildcard #"
    if odd:
        raise InvalidDestination(
            destination, f"a name with {odd} may mean something else to the broker that has it"
        )


def check_gaps(spec: ConsumerSpec) -> None:
    """Check that a pattern means the same to every broker.

    :raises InvalidDestination: it has one of these before its end, as only some brokers know it.
    """
    name = spec.destination.name
    if spec.none_or_more and ">" in name.split(".")[:-1] and not is_declared(name):
        raise InvalidDestination(
            spec.destination,
            "the wildcard # before the end of a name means nothing to some brokers",
        )


def needed(spec: ConsumerSpec, by_key: Collection[str]) -> Iterator[tuple[Operation, Destination]]:
    """Yield the rights that a consumer at another broker needs.

    Only RabbitMQ knows of what type an exchange is, and many deliver whatever the key. So who receives
    from one may receive all of it, unless the operator says the type. Who names a queue of RabbitMQ's receives what is in it, and has
    messages come into it. What is dead there goes where the queue's arguments say.

    :param by_key: exchanges that deliver by the key alone.
    :raises InvalidDestination: where that is is not known.
    """
    destination = spec.destination
    found = exchange_of(destination.name) if is_declared(destination.name) else None
    if found is not None and destination.kind is Kind.TOPIC and found[0] not in by_key:
        destination = Topic(whole_exchange(found[0]) or destination.name)
    yield Operation.BROWSE if spec.browse else Operation.CONSUME, destination
    if spec.queue is not None:
        if spec.queue.name:
            queue = Queue(spec.queue.name)
            check_name(queue)
            yield Operation.CONSUME, queue
            yield Operation.PRODUCE, queue
        if spec.queue.header(DEAD_EXCHANGE) is not None:
            yield Operation.PRODUCE, _dead_of(spec.queue, spec.destination)


def _dead_of(queue: QueueDeclaration, destination: Destination) -> Destination:
    """Return where dead messages of a queue go, a pattern for several places."""
    exchange, key = queue.header(DEAD_EXCHANGE) or "", queue.header(DEAD_KEY)
    if not exchange and key:
        dead: Destination | None = Queue(key)
    else:
        topic = whole_exchange(exchange) if key is None else topic_of(exchange, key)
        dead = None if topic is None else Topic(topic)
    if dead is None:
        raise InvalidDestination(
            destination,
            f"where its dead messages would go is not known: expected an exchange of one's own or {DEAD_KEY} beside {DEAD_EXCHANGE}",
        )
    check_name(dead)
    return dead


@dataclass(frozen=True, eq=False)
class Way:
    """The way to one broker.

    :param name: of its connection factory.
    :param credentials: as whom the gateway connects; None: as each client.
    :param by_key: exchanges that deliver by the key alone.
    """

    name: str
    provider: HeldProvider
    credentials: Credentials | None
    by_key: frozenset[str] = frozenset()


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
