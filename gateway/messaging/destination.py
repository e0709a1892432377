"""Destinations: what a message is sent to and a subscription reads from.

Owns the kinds and names of destinations. Knows nothing of how a protocol spells them
(``/queue/x`` is STOMP's business) nor of what a broker keeps behind one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

#: Between the names of a topic and of one of its durable subscriptions. No destination's name has it.
_OF: Final = "\x1f"


class Kind(IntEnum):
    """The two domains of JMS (JMS 1.1, section 2.3).

    The numbers are those of the store.
    """

    QUEUE = 0
    TOPIC = 1


class Destination(NamedTuple):
    """A queue or topic by name.

    A value, equal to every other of the same kind and name.

    ``temporary`` destinations belong to the connection that created them and are gone with it.
    """

    kind: Kind
    name: str
    temporary: bool = False

    def __str__(self) -> str:
        """Return ``queue:NAME`` or ``topic:NAME``.

        The form of Open MQ's Table 12-1's properties.
        """
        return f"{'queue' if self.kind is Kind.QUEUE else 'topic'}:{self.name}"


def Queue(name: str) -> Destination:
    """The queue of that name."""
    return Destination(Kind.QUEUE, name)


def Topic(name: str) -> Destination:
    """The topic of that name."""
    return Destination(Kind.TOPIC, name)


def subscription_of(topic: Destination, name: str) -> Destination:
    """What is sent to for one durable subscription of a topic alone.

    It is no destination otherwise: nothing is received from it by that name, and no message has it
    once it was accepted.

    :param name: of a durable subscription that consumers share.
    """
    return topic._replace(name=f"{topic.name}{_OF}{name}")


def split_subscription(destination: Destination) -> tuple[Destination, str]:
    """The inverse of :func:`subscription_of`.

    :returns: the topic and the name; any other destination itself, and "".
    """
    name, separator, subscription = destination.name.partition(_OF)
    if not separator or destination.kind is not Kind.TOPIC:
        return destination, ""
    return destination._replace(name=name), subscription
