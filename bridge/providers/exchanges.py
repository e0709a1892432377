"""Topics that stand for RabbitMQ's exchanges, as providers address them.

Owns which topics of :mod:`gateway.messaging.exchanges` have an address, and which patterns a
subscription may have.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.providers.wildcards import is_wild
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.exchanges import (
    DIRECT,
    FANNED,
    KEYLESS,
    exchange_of,
    is_declared,
    topic_of,
)

_MISSING: Final = re.compile(r"NOT_FOUND - no exchange '(.*)' in vhost '[^']*'")
#: What precedes an exchange in an address.
PREFIX: Final = "/exchange/"


def parts_of(destination: Destination) -> tuple[str, ...]:
    """Return the exchange that a destination stands for, and any key.

    :returns: empty for a queue, and for a topic of ``amq.topic``.
    :raises InvalidDestination: the broker has two exchanges and keys of this one name.
    """
    found = exchange_of(destination.name) if destination.kind is Kind.TOPIC else None
    if found is None:
        return ()
    exchange, key = found
    if exchange in FANNED and key == KEYLESS:
        return (exchange,)
    if exchange == DIRECT and key == KEYLESS:
        raise InvalidDestination(
            destination,
            f"it may be the exchange {exchange} without a key, or with the key '{KEYLESS}'",
        )
    return (exchange, key) if key else (exchange,)


def received_from(destination: Destination) -> Destination:
    """Return what a subscription to a destination is to.

    :raises InvalidDestination: the broker would deliver what another topic stands for.
    """
    found = exchange_of(destination.name) if destination.kind is Kind.TOPIC else None
    if found is None or is_declared(destination.name):
        return destination
    exchange, key = found
    if exchange in FANNED:
        if key != ">":
            raise InvalidDestination(
                destination,
                f"the exchange {exchange} delivers whatever has any key: expected {exchange}.>",
            )
        return destination._replace(name=f"{exchange}.{KEYLESS}")
    if is_wild(key):
        raise InvalidDestination(
            destination, f"the exchange {exchange} has no wildcards: expected one key"
        )
    return destination


def named_by(exchange: str, key: str) -> Destination | None:
    """Return the destination for an exchange and a key, None for none."""
    topic = topic_of(exchange, key)
    return None if topic is None else Destination(Kind.TOPIC, topic)


def unnamed(destination: Destination) -> Destination:
    """Return where messages are from whose own destination has no name here."""
    found = exchange_of(destination.name) if destination.kind is Kind.TOPIC else None
    if found is None or not is_wild(destination.name):
        return destination
    return named_by(found[0], "") or destination


def is_bound(destination: Destination) -> bool:
    """Whether a message to there has come to a topic by a binding."""
    return destination.kind is Kind.QUEUE or exchange_of(destination.name) is not None


def declares_nothing(extra: tuple[str, object]) -> bool:
    """Whether a header says that a message's queue is not to be declared."""
    name, value = extra
    return name == "destination" and str(value).startswith("/amq/queue/")


def missing_exchange(text: str) -> str | None:
    """Return RabbitMQ's sentence that an exchange is missing, None for none."""
    found = _MISSING.search(text)
    return None if found is None else found[0]


def is_missing(destination: Destination | None, text: str) -> bool:
    """Whether RabbitMQ says that the exchange of a destination is missing."""
    found = _MISSING.search(text)
    if found is None or destination is None or destination.kind is not Kind.TOPIC:
        return False
    there = exchange_of(destination.name)
    return there is not None and there[0] == found[1]
