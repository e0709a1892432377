"""Which names a destination can have."""

from __future__ import annotations

from typing import Final

from gateway.broker.core.wildcards import is_wild
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination

_LONGEST_NAME: Final = 1024


def check_name(destination: Destination) -> None:
    """Whether a destination can have this name.

    :raises InvalidDestination: it is empty, too long, has a control character or half a surrogate
        pair, which the store cannot write, is a queue's and has wildcards, or begins with ``mq.``,
        which is the broker's own.
    """
    name = destination.name
    if not name:
        raise InvalidDestination(destination, "a destination needs a name")
    if len(name) > _LONGEST_NAME:
        raise InvalidDestination(
            f"{name[:40]}...", f"the name is longer than {_LONGEST_NAME} characters"
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidDestination(repr(name), "the name has a control character")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidDestination(repr(name), "the name has half a surrogate pair")
    if destination.kind is Kind.QUEUE and is_wild(name):
        raise InvalidDestination(
            destination,
            "a queue's name cannot have wildcards, which are for subscriptions of topics",
        )
    if name.startswith("mq.") and destination != DMQ:
        raise InvalidDestination(destination, "names that begin with 'mq.' are the broker's own")
