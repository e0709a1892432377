"""What queues may be asked: Artemis's ``QueueControl``.

Attributes are those that this broker knows. It counts what comes, what has expired and what is dead,
since its start; what is acknowledged it does not count.

A queue of a topic is a durable subscription here: ``CLIENTID.NAME``, or ``NAME`` where connections
share it. It has a few attributes, and no operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from gateway.admin.management.controls import Asking, Control, Given, Operation, json_text
from gateway.admin.service.browsing import quoted
from gateway.admin.service.requests import Refused
from gateway.broker.core.destinations.subscription import SHARED_BY
from gateway.broker.operator.message_administration import Chosen
from gateway.broker.operator.views import DestinationView, DurableView
from gateway.broker.properties.pause import Pause
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue

#: Messages that one reply tells of; Artemis's own bound where it has one.
MOST_MESSAGES: Final = 200
#: What clients of Artemis call the dead message queue.
DEAD: Final = "DLQ"
_EXPIRED: Final = "ExpiryQueue"
#: Artemis's numbers of types of bodies.
_TYPES: Final = {"MESSAGE": 0, "OBJECT": 2, "TEXT": 3, "BYTES": 4, "MAP": 5, "STREAM": 6}
#: What Artemis counts as killed: its consumers do not take it.
_KILLED: Final = (DeadReason.UNDELIVERABLE, DeadReason.ERROR)
_PAUSED: Final = (Pause.CONSUMERS.state, Pause.ALL.state)

_FILTER: Final = ("filter:text",)
_FLUSHED: Final = ("filter:text", "flushLimit:number filter:text")


async def queue_view(asking: Asking, name: str) -> DestinationView:
    """Return a queue as it stands.

    :raises AdministrationRefused: it does not exist.
    """
    if name == DEAD and asking.provider.broker.find(Queue(DEAD)) is None:
        name = DMQ.name
    return await asking.broker.look("queue", name)


def durable_view(asking: Asking, name: str) -> DurableView | None:
    """Return the durable subscription that clients know as this queue.

    :returns: None where it does not exist, or a queue of that name does.
    """
    if asking.provider.broker.find(Queue(name)) is not None:
        return None
    return next((each for each in asking.broker.durables() if name_of(each) == name), None)


def name_of(durable: DurableView) -> str:
    """Return what clients know a durable subscription as."""
    shared = durable.client_id.startswith(SHARED_BY)
    return durable.name if shared else f"{durable.client_id}.{durable.name}"


def address_of(queue: DestinationView) -> str:
    """Return the address of a queue."""
    return str(queue.properties["address"]) or queue.name


def is_paused(destination: DestinationView) -> bool:
    """Whether it delivers nothing."""
    return destination.state in _PAUSED


def _dead(queue: DestinationView, usual: str) -> str | None:
    if not queue.properties["useDMQ"] or queue.name == DMQ.name:
        return None
    return str(queue.properties["deadLetterQueue"]) or usual


def _died(asking: Asking, queue: DestinationView, *reasons: DeadReason) -> int:
    """Count those given up for these reasons, since the start."""
    destination = Destination(Kind.QUEUE, queue.name, queue.temporary)
    physical = asking.provider.broker.find(destination)
    return 0 if physical is None else sum([physical.died.get(each, 0) for each in reasons])


_ATTRIBUTES: Final[Mapping[str, Any]] = {
    "Name": lambda asking, queue: queue.name,
    "Address": lambda asking, queue: address_of(queue),
    "RoutingType": lambda asking, queue: "ANYCAST",
    "Durable": lambda asking, queue: not queue.temporary,
    "Temporary": lambda asking, queue: queue.temporary,
    "Filter": lambda asking, queue: None,
    "MessageCount": lambda asking, queue: queue.messages,
    "PersistentSize": lambda asking, queue: queue.octets,
    "DeliveringCount": lambda asking, queue: queue.unacknowledged,
    "ScheduledCount": lambda asking, queue: queue.scheduled,
    "MessagesAdded": lambda asking, queue: queue.messages_in,
    "MessagesExpired": lambda asking, queue: _died(asking, queue, DeadReason.EXPIRED),
    "MessagesKilled": lambda asking, queue: _died(asking, queue, *_KILLED),
    "ConsumerCount": lambda asking, queue: queue.consumers,
    "MaxConsumers": lambda asking, queue: queue.properties["maxNumActiveConsumers"],
    "Paused": lambda asking, queue: is_paused(queue),
    "LastValue": lambda asking, queue: bool(queue.properties["lastValueKey"]),
    "LastValueKey": lambda asking, queue: queue.properties["lastValueKey"] or None,
    "DeadLetterAddress": lambda asking, queue: _dead(queue, DEAD),
    "ExpiryAddress": lambda asking, queue: _dead(queue, _EXPIRED),
    "FirstMessageAge": lambda asking, queue: (
        queue.oldest_age_ms if queue.oldest_age_ms > 0 else None
    ),
}


async def _count(asking: Asking, queue: DestinationView, given: Given) -> int:
    """Count what waits and is wanted.

    Without a filter, count what consumers have as well.
    """
    selector = given.get("filter") or ""
    if not selector.strip():
        return queue.messages
    chosen = Chosen(selector=selector)
    return (await asking.broker.messages.delete(queue.name, chosen, dry_run=True)).matched


async def _list(asking: Asking, queue: DestinationView, given: Given) -> list[dict[str, object]]:
    answer = await asking.act(
        "GET",
        "/v1/messages",
        name=queue.name,
        selector=given.get("filter") or "",
        limit=MOST_MESSAGES,
    )
    return [
        {
            **each["properties"],
            "messageID": each["message_id"],
            "address": address_of(queue),
            "timestamp": each["timestamp_ms"],
            "priority": each["priority"],
            "durable": each["persistent"],
            "expiration": each["expires_ms"],
            "type": _TYPES[each["body_type"]],
            "size": each["octets"],
        }
        for each in answer["messages"]
    ]


async def _list_text(asking: Asking, queue: DestinationView, given: Given) -> str:
    return json_text(await _list(asking, queue, given))


async def _purge(asking: Asking, queue: DestinationView, given: Given) -> int:
    return await _purged(asking, queue, given.get("filter"))


async def _bury_one(asking: Asking, queue: DestinationView, given: Given) -> bool:
    chosen = f"JMSMessageID = {quoted(_id(given))}"
    return await _purged(asking, queue, chosen, use_dmq=True) > 0


async def _bury(asking: Asking, queue: DestinationView, given: Given) -> int:
    return await _purged(asking, queue, given["filter"], use_dmq=True)


async def _purged(
    asking: Asking, queue: DestinationView, selector: str | None, **more: bool
) -> int:
    """Purge what a selector chooses, or all.

    :returns: how many messages have gone.
    """
    answer = await asking.act(
        "POST",
        "/v1/destination/purge",
        type="queue",
        name=queue.name,
        selector=selector or "",
        **more,
    )
    return int(answer["purged"])


async def _delete_one(asking: Asking, queue: DestinationView, given: Given) -> bool:
    return bool(await _order(asking, "delete", queue, given, id=_id(given)))


async def _move_one(asking: Asking, queue: DestinationView, given: Given) -> bool:
    to = given["otherQueueName"] or ""
    return bool(await _order(asking, "move", queue, given, id=_id(given), to=to))


async def _copy_one(asking: Asking, queue: DestinationView, given: Given) -> bool:
    to = given["targetQueue"] or ""
    return bool(await _order(asking, "copy", queue, given, id=_id(given), to=to))


async def _retry_one(asking: Asking, queue: DestinationView, given: Given) -> bool:
    return bool(await _order(asking, "replay", queue, given, id=_id(given)))


async def _move(asking: Asking, queue: DestinationView, given: Given) -> int:
    to = given["otherQueueName"] or ""
    return await _order(asking, "move", queue, given, **_all_of(queue, given), to=to)


async def _retry(asking: Asking, queue: DestinationView, given: Given) -> int:
    return await _order(asking, "replay", queue, given, **_all_of(queue, given))


def _all_of(queue: DestinationView, given: Given) -> dict[str, object]:
    """Return which messages are meant: those of a filter, or all."""
    selector = given.get("filter") or ""
    return {"selector": selector} if selector.strip() else {"limit": max(1, queue.messages)}


def _id(given: Given) -> str:
    """:raises Refused: it is missing, and all messages would be meant."""
    if not given["messageID"]:
        raise Refused("messageID is missing", "bad_request")
    return str(given["messageID"])


async def _order(
    asking: Asking, word: str, queue: DestinationView, given: Given, **more: object
) -> int:
    """Do something to messages. :returns: to how many.

    :raises Refused: some of the wanted ones stay.
    """
    answer = await asking.act("POST", f"/v1/message/{word}", name=queue.name, **more)
    if answer["left"]:
        reasons = "; ".join(answer["reasons"])
        text = f"{answer['done']} of {answer['matched']} messages are done, and the others stay: {reasons}"
        raise Refused(text, "left", HTTPStatus.CONFLICT)
    return int(answer["done"])


async def pause(asking: Asking, destination: DestinationView) -> None:
    """Have a destination deliver nothing, and take what is sent."""
    await asking.act(
        "POST",
        "/v1/destination/pause",
        type=destination.type,
        name=destination.name,
        pause="CONSUMERS",
    )


async def resume(asking: Asking, destination: DestinationView) -> None:
    """Have a destination deliver again."""
    await asking.act("POST", "/v1/destination/resume", type=destination.type, name=destination.name)


async def _pause(asking: Asking, queue: DestinationView, given: Given) -> None:
    await pause(asking, queue)


async def _resume(asking: Asking, queue: DestinationView, given: Given) -> None:
    await resume(asking, queue)


_MOVED: Final = ("messageID:text otherQueueName:text",)
_ONE: Final = ("messageID:text",)

QUEUES: Final[Control[DestinationView]] = Control(
    _ATTRIBUTES,
    {
        "countMessages": Operation(_count, ("", *_FILTER)),
        "listMessages": Operation(_list, _FILTER),
        "listMessagesAsJSON": Operation(_list_text, _FILTER),
        "removeAllMessages": Operation(_purge),
        "removeMessages": Operation(_purge, _FLUSHED),
        "removeMessage": Operation(_delete_one, _ONE),
        "moveMessages": Operation(
            _move,
            (
                "filter:text otherQueueName:text",
                "filter:text otherQueueName:text rejectDuplicates:flag",
            ),
        ),
        "moveMessage": Operation(_move_one, _MOVED),
        "copyMessage": Operation(_copy_one, ("messageID:text targetQueue:text",)),
        "retryMessages": Operation(_retry, ("", *_FILTER)),
        "retryMessage": Operation(_retry_one, _ONE),
        "sendMessagesToDeadLetterAddress": Operation(_bury, _FILTER),
        "sendMessageToDeadLetterAddress": Operation(_bury_one, _ONE),
        "pause": Operation(_pause, ("", "persist:flag")),
        "resume": Operation(_resume),
    },
)


_OF_DURABLES: Final[Mapping[str, Any]] = {
    "Name": lambda asking, durable: name_of(durable),
    "Address": lambda asking, durable: durable.topic,
    "RoutingType": lambda asking, durable: "MULTICAST",
    "Durable": lambda asking, durable: True,
    "Temporary": lambda asking, durable: False,
    "Filter": lambda asking, durable: durable.selector or None,
    "MessageCount": lambda asking, durable: durable.messages,
}

DURABLES: Final[Control[DurableView]] = Control(_OF_DURABLES, {})


def names_of(queues: Sequence[DestinationView], durables: Sequence[DurableView]) -> list[str]:
    """Return the names of queues, those of topics included."""
    return [*(each.name for each in queues), *map(name_of, durables)]
