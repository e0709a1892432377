"""What addresses may be asked: Artemis's ``AddressControl``.

An address is here the topic of its name, the queue of its name, and the queues that have it for
their ``address``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from gateway.admin.management.controls import Asking, Control, Given, Operation, json_text
from gateway.admin.management.of_queues import (
    DEAD,
    address_of,
    is_paused,
    names_of,
    pause,
    resume,
)
from gateway.admin.service.requests import Refused
from gateway.broker.operator.views import DestinationView, DurableView
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind, Queue


@dataclass(frozen=True)
class AddressView:
    """An address as it stands.

    :param topic: of its name; None without one.
    :param queues: that it has, without durable subscriptions.
    :param durables: subscriptions of the topic.
    """

    name: str
    topic: DestinationView | None
    queues: Sequence[DestinationView]
    durables: Sequence[DurableView]

    @property
    def parts(self) -> list[DestinationView]:
        """The destinations that it is."""
        return [*self.queues, *([] if self.topic is None else [self.topic])]

    @property
    def routing_types(self) -> list[str]:
        anycast = ["ANYCAST"] if self.queues else []
        return [*anycast, *([] if self.topic is None else ["MULTICAST"])]


async def address_view(asking: Asking, name: str) -> AddressView:
    """Return an address as it stands. :raises Refused: it does not exist."""
    broker = asking.provider.broker
    own = Queue(name)
    if name == DEAD and broker.find(own) is None:
        own = DMQ
    addressed = broker.addresses.by_name.get(name)
    of_address = [] if addressed is None else [each.destination.name for each in addressed.queues]
    own_queue = _found(asking, own)
    queues = [asking.broker.destination("queue", each) for each in of_address]
    if own_queue is not None and own.name not in of_address and address_of(own_queue) == own.name:
        queues.insert(0, own_queue)
    topic = _found(asking, Destination(Kind.TOPIC, name))
    if topic is None and not queues:
        text = f"there is no address '{name[:200]}': no topic has that name, and no queue has that address"
        raise Refused(text, "unknown_address", HTTPStatus.NOT_FOUND)
    return AddressView(name, topic, queues, asking.broker.durables(name) if topic else ())


def _found(asking: Asking, destination: Destination) -> DestinationView | None:
    broker = asking.provider.broker
    found = broker.find(destination) or broker.find(destination._replace(temporary=True))
    if found is None:
        return None
    return asking.broker.destination(destination.kind.name.lower(), destination.name)


def _messages(asking: Asking, address: AddressView) -> int:
    return sum([each.messages for each in address.parts])


_ATTRIBUTES: Final[Mapping[str, Any]] = {
    "Address": lambda asking, address: address.name,
    "RoutingTypes": lambda asking, address: address.routing_types,
    "RoutingTypesAsJSON": lambda asking, address: json_text(address.routing_types),
    "QueueNames": lambda asking, address: names_of(address.queues, address.durables),
    "QueueCount": lambda asking, address: len(address.queues) + len(address.durables),
    "MessageCount": _messages,
    "NumberOfMessages": _messages,
    "AddressSize": lambda asking, address: sum([each.octets for each in address.parts]),
    "Paused": lambda asking, address: all(map(is_paused, address.parts)),
    "Temporary": lambda asking, address: all(each.temporary for each in address.parts),
}


async def _pause(asking: Asking, address: AddressView, given: Given) -> None:
    for each in address.parts:
        await pause(asking, each)


async def _resume(asking: Asking, address: AddressView, given: Given) -> None:
    for each in address.parts:
        await resume(asking, each)


async def _purge(asking: Asking, address: AddressView, given: Given) -> int:
    count = 0
    for each in address.parts:
        answer = await asking.act("POST", "/v1/destination/purge", type=each.type, name=each.name)
        count += answer["purged"]
    return count


ADDRESSES: Final[Control[AddressView]] = Control(
    _ATTRIBUTES,
    {
        "pause": Operation(_pause, ("", "persist:flag")),
        "resume": Operation(_resume),
        "purge": Operation(_purge),
    },
)
