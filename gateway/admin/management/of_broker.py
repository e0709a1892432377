"""What the broker may be asked: Artemis's ``ActiveMQServerControl``.

A queue of an address with the routing type ANYCAST is a queue here, and an address with MULTICAST a
topic, whose queues are durable subscriptions: these are made by subscribing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from gateway.admin.management.controls import (
    Asking,
    Control,
    Given,
    Operation,
    check_count,
    json_text,
    page_of,
)
from gateway.admin.management.of_queues import address_of, is_paused, names_of
from gateway.admin.service.requests import Refused
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.views import BrokerView, ConnectionView, DestinationView
from gateway.messaging.destination import Queue
from gateway.messaging.message import LAST_VALUE
from gateway.stomp.destinations import MANAGEMENT
from gateway.stomp.profiles import ANYCAST, MULTICAST

#: Milliseconds of the units of an uptime, in Artemis's words.
_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))
_LISTED: Final = ("options:text page:number pageSize:number",)
#: What the configuration of a queue may say, as Artemis spells it in JSON.
_CONFIGURED: Final = (
    "name",
    "address",
    "routing-type",
    "durable",
    "max-consumers",
    "last-value",
    "last-value-key",
    "filter-string",
)


def _uptime(ms: int) -> str:
    """Return a span of time in Artemis's words, such as ``2 hours 5 minutes``."""
    words = []
    for unit, length in _UNITS:
        count, ms = divmod(ms, length)
        if count:
            words.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join([*words, f"{ms / 1000:.3f} seconds"])


# --- names


async def _queue_names(asking: Asking, broker: BrokerView, given: Given) -> list[str]:
    routing = (given.get("routingType") or "").upper()
    if routing not in ("", ANYCAST, MULTICAST):
        raise Refused(f"routingType '{routing[:40]}': expected ANYCAST or MULTICAST", "bad_request")
    queues = [] if routing == MULTICAST else await asking.destinations("queue")
    durables = [] if routing == ANYCAST else asking.broker.durables()
    names = names_of(queues, durables)
    check_count(len(names), "queues", "imqcmd list dst")
    return names


async def _all_queue_names(asking: Asking, broker: BrokerView) -> list[str]:
    return await _queue_names(asking, broker, {})


async def _address_names(asking: Asking, broker: BrokerView) -> list[str]:
    return sorted({_address(each) for each in await asking.destinations()})


def _address(destination: DestinationView) -> str:
    return address_of(destination) if destination.type == "queue" else destination.name


async def _consumers(asking: Asking, broker: BrokerView) -> int:
    """Count the consumers of all connections."""
    return sum([each.consumers for each in await _connections(asking)])


# --- connections


async def _connections(asking: Asking) -> list[ConnectionView]:
    found: list[ConnectionView] = []
    await asking.broker.list_connections(found.append)
    check_count(len(found), "connections", "imqcmd list cxn")
    return found


def _row(each: ConnectionView) -> dict[str, object]:
    return {
        "connectionID": str(each.id),
        "remoteAddress": f"{each.address}:{each.port}" if each.port else each.address,
        "users": each.user,
        "creationTime": each.since_ms,
        "protocol": each.protocol,
        "clientID": each.client_id,
        "consumerCount": each.consumers,
        "messagesSent": each.sent,
        "messagesDelivered": each.delivered,
        "deliveringCount": each.unacknowledged,
    }


async def _connection_ids(asking: Asking, broker: BrokerView, given: Given) -> list[str]:
    return [str(each.id) for each in await _connections(asking)]


async def _connections_text(asking: Asking, broker: BrokerView, given: Given) -> str:
    return json_text([_row(each) for each in await _connections(asking)])


async def _connections_page(asking: Asking, broker: BrokerView, given: Given) -> str:
    return page_of([_row(each) for each in await _connections(asking)], given)


async def _remote_addresses(asking: Asking, broker: BrokerView, given: Given) -> list[object]:
    address = given.get("ipAddress") or ""
    # Those inside the process have none.
    remote = [each for each in await _connections(asking) if each.address]
    return [_row(each)["remoteAddress"] for each in remote if address in each.address]


async def _close_connection(asking: Asking, broker: BrokerView, given: Given) -> bool:
    await asking.act("DELETE", "/v1/connection", id=given["ID"] or "")
    return True


# --- queues and addresses


async def _queues_page(asking: Asking, broker: BrokerView, given: Given) -> str:
    rows = [
        {
            "name": each.name,
            "address": address_of(each),
            "routingType": ANYCAST,
            "durable": not each.temporary,
            "temporary": each.temporary,
            "autoCreated": each.origin == "client",
            "paused": is_paused(each),
            "messageCount": each.messages,
            "deliveringCount": each.unacknowledged,
            "scheduledCount": each.scheduled,
            "messagesAdded": each.messages_in,
            "consumerCount": each.consumers,
            "maxConsumers": each.properties["maxNumActiveConsumers"],
        }
        for each in await asking.destinations("queue")
    ]
    return page_of(rows, given)


async def _create_queue(asking: Asking, broker: BrokerView, given: Given) -> object:
    said = _configuration(given["queueConfiguration"]) if "queueConfiguration" in given else given
    name = _text(said, "name")
    address = _text(said, "address") or name
    routing = _text(said, "routing-type") or ANYCAST
    if not name:
        raise Refused("the queue has no name", "bad_request")
    if routing.upper() != ANYCAST:
        text = f"routing type {routing[:40]}: only a queue with ANYCAST is made so. With MULTICAST an address is a topic, which createAddress makes, and its queues are durable subscriptions, which SUBSCRIBE to ADDRESS::NAME makes"
        raise Refused(text, "bad_request")
    if _text(said, "filter-string"):
        raise Refused("a queue has no filter here: consumers have selectors", "bad_request")
    if said.get("durable", True) is not True:
        raise Refused("a queue is durable here: expected durable to be true", "bad_request")
    exists = asking.provider.broker.find(Queue(name)) is not None
    if exists and (said.get("ignoreIfExists") is True or given.get("ignoreIfExists") is True):
        return None
    properties = {} if address == name else {"address": address}
    most = said.get("max-consumers")
    if most is not None:
        if not isinstance(most, int) or isinstance(most, bool):
            raise Refused("max-consumers is no whole number", "bad_request")
        properties["maxNumActiveConsumers"] = str(most)
    if key := _last_value_key(said):
        properties["lastValueKey"] = key
    await asking.act("POST", "/v1/destinations", type="queue", name=name, properties=properties)
    return None


def _last_value_key(said: Given) -> str:
    """Return by which property a queue keeps the last messages; "" for all."""
    last = said.get("last-value")
    if last is not None and not isinstance(last, bool):
        raise Refused("last-value is neither true nor false", "bad_request")
    return _text(said, "last-value-key") or (LAST_VALUE if last else "")


async def _deploy_queue(asking: Asking, broker: BrokerView, given: Given) -> object:
    return await _create_queue(asking, broker, {**given, "ignoreIfExists": True})


def _configuration(text: str | None) -> Mapping[str, object]:
    """Return the configuration of a queue.

    :raises Refused: it is not one.
    """
    try:
        said = json.loads(text or "")
    except (ValueError, RecursionError) as error:
        raise Refused(f"queueConfiguration is no JSON: {error}", "bad_request") from None
    if not isinstance(said, dict):
        raise Refused("queueConfiguration is no JSON object", "bad_request")
    other = sorted(set(said) - {*_CONFIGURED, "ignoreIfExists"})
    if other:
        text = (
            f"queueConfiguration has {', '.join(other)[:200]}: expected of {', '.join(_CONFIGURED)}"
        )
        raise Refused(text, "bad_request")
    return said


def _text(said: Given, name: str) -> str:
    value = said.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(f"{name} is no text", "bad_request")
    return value or ""


async def _destroy_queue(asking: Asking, broker: BrokerView, given: Given) -> None:
    name = given["name"] or ""
    consumers = asking.broker.destination("queue", name).consumers
    if consumers and not given.get("removeConsumers"):
        text = f"queue '{name}' has {consumers} consumers: expected removeConsumers to be true"
        raise Refused(text, "in_use", HTTPStatus.CONFLICT)
    await asking.act("DELETE", "/v1/destination", type="queue", name=name)


async def _create_address(asking: Asking, broker: BrokerView, given: Given) -> str:
    name = given["name"] or ""
    types = [each.strip().upper() for each in (given["routingTypes"] or "").split(",")]
    if types != [MULTICAST]:
        text = "only an address with MULTICAST is made so, which is a topic; one with ANYCAST is there with its first queue, which createQueue makes"
        raise Refused(text, "bad_request")
    await asking.act("POST", "/v1/destinations", type="topic", name=name)
    return f"Address [name={name}, routingTypes={{MULTICAST}}]"


async def _delete_address(asking: Asking, broker: BrokerView, given: Given) -> None:
    name = given["name"] or ""
    consumers = _topic(asking, name).consumers
    if consumers and not given.get("force"):
        text = f"address '{name}' has {consumers} consumers and durable subscriptions: expected force to be true"
        raise Refused(text, "in_use", HTTPStatus.CONFLICT)
    await asking.act("DELETE", "/v1/destination", type="topic", name=name)


def _topic(asking: Asking, name: str) -> DestinationView:
    try:
        return asking.broker.destination("topic", name)
    except AdministrationRefused as error:
        text = f"{error}; an address of queues goes with the last of them, see destroyQueue"
        raise Refused(text, "unknown_address", HTTPStatus.NOT_FOUND) from None


_ATTRIBUTES: Final[Mapping[str, Any]] = {
    "Name": lambda asking, broker: broker.instance,
    "NodeID": lambda asking, broker: broker.store_id,
    "Version": lambda asking, broker: broker.version,
    "Started": lambda asking, broker: True,
    "Active": lambda asking, broker: True,
    "Backup": lambda asking, broker: False,
    "SecurityEnabled": lambda asking, broker: True,
    "PersistenceEnabled": lambda asking, broker: broker.store != "memory",
    "ManagementAddress": lambda asking, broker: MANAGEMENT.name,
    "Uptime": lambda asking, broker: _uptime(broker.uptime_ms),
    "UptimeMillis": lambda asking, broker: broker.uptime_ms,
    "ConnectionCount": lambda asking, broker: broker.connections,
    "TotalConsumerCount": _consumers,
    "TotalMessageCount": lambda asking, broker: broker.messages,
    "TotalMessagesAdded": lambda asking, broker: broker.accepted,
    "AddressMemoryUsage": lambda asking, broker: broker.memory_used,
    "AddressMemoryUsagePercentage": lambda asking, broker: (
        100 * broker.memory_used // max(1, broker.memory_most)
    ),
    "GlobalMaxSize": lambda asking, broker: broker.memory_most,
    "QueueNames": _all_queue_names,
    "AddressNames": _address_names,
}

#: Parameters of a new queue, as Artemis has had them.
_NEW_QUEUE: Final = (
    "address:text name:text",
    "address:text name:text routing-type:text",
    "address:text name:text durable:flag",
    "address:text name:text durable:flag routing-type:text",
    "address:text name:text filter-string:text durable:flag",
    "address:text name:text filter-string:text durable:flag routing-type:text",
)

BROKER: Final[Control[BrokerView]] = Control(
    _ATTRIBUTES,
    {
        "getQueueNames": Operation(_queue_names, ("", "routingType:text")),
        "listQueues": Operation(_queues_page, _LISTED),
        "listConnectionIDs": Operation(_connection_ids),
        "listConnectionsAsJSON": Operation(_connections_text),
        "listConnections": Operation(_connections_page, _LISTED),
        "listRemoteAddresses": Operation(_remote_addresses, ("", "ipAddress:text")),
        "closeConnectionWithID": Operation(_close_connection, ("ID:text",)),
        "createQueue": Operation(
            _create_queue,
            (
                "queueConfiguration:text",
                "queueConfiguration:text ignoreIfExists:flag",
                *_NEW_QUEUE,
            ),
        ),
        "deployQueue": Operation(
            _deploy_queue,
            (
                "address:text name:text",
                "address:text name:text filter-string:text",
                "address:text name:text filter-string:text durable:flag",
            ),
        ),
        "destroyQueue": Operation(
            _destroy_queue,
            (
                "name:text",
                "name:text removeConsumers:flag",
                "name:text removeConsumers:flag autoDeleteAddress:flag",
            ),
        ),
        "createAddress": Operation(_create_address, ("name:text routingTypes:text",)),
        "deleteAddress": Operation(_delete_address, ("name:text", "name:text force:flag")),
    },
)
