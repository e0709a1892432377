"""What SUBSCRIBE and SEND say of RabbitMQ's queues.

There a subscription of a topic or an exchange has a queue. Headers say how that or a named queue is
made, and who may use it (RabbitMQ 3.10, measured). A SEND to a named queue may have them, too.

Owns which of these headers mean something here, and which are refused because the subscription
would not be what the client asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.exchanges import DEAD_EXCHANGE, DEAD_KEY, QueueDeclaration
from gateway.stomp.client_headers import QUEUE_NAME, durable_name, flagged, milliseconds
from gateway.stomp.refusals import CommandRefused, Refusal

Headers = Mapping[str, str]

_REAPED: Final = "a queue goes when it has been empty and without consumers for imq.autocreate.reaptime. Leave it out"
_NO_STREAMS: Final = "there are no streams. Leave it out"
#: What no subscription has, and what to do instead.
_NEVER: Final = {
    "x-message-ttl": "messages expire as their SEND says. SEND them with 'expiration', in milliseconds",
    "x-max-length": "limits are a destination's. The operator sets maxNumMsgs and limitBehavior of it",
    "x-max-length-bytes": "limits are a destination's. The operator sets maxTotalMsgBytes and limitBehavior of it",
    DEAD_EXCHANGE: "dead messages are in the queue mq.sys.dmq. Leave it out",
    DEAD_KEY: "dead messages are in the queue mq.sys.dmq. Leave it out",
    "x-overflow": "limits are a destination's. The operator sets limitBehavior of it",
    "x-max-age": _NO_STREAMS,
    "x-stream-max-segment-size-bytes": _NO_STREAMS,
    "x-stream-filter-size-bytes": _NO_STREAMS,
}
#: What no consumer has, also of a queue that RabbitMQ does not declare.
_NEVER_CONSUMED: Final = {
    "x-stream-offset": _NO_STREAMS,
    "x-stream-filter": "there are no streams. SUBSCRIBE with a selector",
    "x-stream-match-unfiltered": "there are no streams. SUBSCRIBE with a selector",
}
_TTL: Final = "x-message-ttl"
#: What a RabbitMQ behind the gateway is told of a queue.
_TOLD: Final = frozenset(
    (
        *("durable", "persistent", "auto-delete", "exclusive"),
        *("x-expires", "x-max-priority", "x-queue-type", "x-dead-letter-strategy"),
        *_NEVER,
        *_NEVER_CONSUMED,
    )
)
#: It has queues for these that are there, however they were made.
_EXISTING: Final = "/amq/queue/"
#: Headers of SEND whose values count.
READ_OF_SEND: Final = frozenset((_TTL, "x-queue-type"))
#: Kinds of queues that keep a message until it is acknowledged.
_TYPES: Final = ("classic", "quorum")
#: RabbitMQ declares no queue for these, and reads no arguments.
_DECLARED: Final = (_EXISTING, "/reply-queue/")
_RESERVED: Final = "amq."
#: What RabbitMQ reads of these as numbers. Anything else is an error there that says nothing of the
#: header.
_NUMBERS: Final = (
    _TTL,
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
)
_NUMBER: Final = re.compile(r" *[+-]?[0-9]{1,30} *")
#: The same of ``true`` and ``false``, in just these letters. That of SEND is about the message.
_FLAGS: Final = {"SEND": ("durable",), "SUBSCRIBE": ("durable", "persistent")}
#: Where in a stream a subscription begins, as far as numbers say it.
_OFFSET: Final = "x-stream-offset"
_COUNTED: Final = ("offset=", "timestamp=")


class Share(NamedTuple):
    """A subscription of a topic that connections share.

    :param name: what they call it; "" where the subscription is one connection's.
    :param kept: it outlives its consumers, and a restart.
    :param named: its name is that of a queue; else it has its topic's and that of a subscription.
    """

    name: str = ""
    kept: bool = False
    named: bool = False


def share_of(headers: Headers, destination: Destination) -> Share:
    """Return what a SUBSCRIBE asks to share.

    :raises CommandRefused: it asks for what it would not get. The sentence has the remedy.
    """
    _check(headers, _NEVER_CONSUMED)
    if destination.temporary or headers["destination"].startswith(_DECLARED):
        return Share()
    _check(headers, _NEVER)
    _check_type(headers)
    if destination.kind is Kind.QUEUE:
        _check_queue(headers)
        return Share()
    durable = flagged(headers)
    if durable and "id" not in headers:
        raise CommandRefused(
            "a durable subscription without id, which is its name",
            refusal=Refusal.DURABLE_WITHOUT_ID,
        )
    name = shared_name(headers, destination)
    kept = _is(headers, "auto-delete", "false")
    _check_name(headers, name)
    if name and durable_name(headers) is not None:
        return Share()
    if name and _is(headers, "exclusive", "true"):
        raise _refused(
            "exclusive",
            "all connections of the user share a subscription that has a name. Leave it out, or the name",
        )
    if name and kept and "x-expires" in headers:
        raise _refused(
            "x-expires",
            "a subscription with auto-delete:false stays until UNSUBSCRIBE with durable:true removes it. Leave it out",
        )
    return Share(name, bool(name) and kept, bool(headers.get(QUEUE_NAME)))


def declaration_of(headers: Headers, destination: Destination) -> QueueDeclaration | None:
    """Return the queue that a SUBSCRIBE asks another RabbitMQ for.

    :returns: None for what it gives anyway.
    :raises CommandRefused: the queue could not be found again, or RabbitMQ could not read an
        argument. The sentence has the remedy.
    """
    text = headers["destination"]
    if destination.temporary or text.startswith("/reply-queue/"):
        return None
    _check_offset(headers)
    if text.startswith(_EXISTING):
        told = tuple((each, headers[each]) for each in _NEVER_CONSUMED if each in headers)
        return QueueDeclaration("", told, exists=True)
    name = ""
    if destination.kind is Kind.TOPIC:
        name = headers.get(QUEUE_NAME, "")
        _check_name(headers, name)
        if durable_name(headers) is not None:
            return None
        if flagged(headers) and not name:
            raise _refused(
                "durable",
                f"RabbitMQ would name the queue by the id. SUBSCRIBE with {QUEUE_NAME}:NAME, too",
            )
    _check_values(headers, "SUBSCRIBE")
    told = tuple((each, value) for each, value in headers.items() if each in _TOLD)
    # RabbitMQ removes none of an exchange.
    removable = name != "" and flagged(headers) and text.startswith("/topic/")
    return QueueDeclaration(name, told, removable=removable) if name or told else None


def _check_name(headers: Headers, name: str) -> None:
    """Check the name of a subscription's queue.

    :raises CommandRefused: RabbitMQ has such names for itself, or another header names it, too.
    """
    if name.startswith(_RESERVED):
        reserved = f"queue name '{name[:100]}' contains reserved prefix 'amq.*'"
        raise CommandRefused(reserved, refusal=Refusal.ACCESS, subject=reserved)
    if headers.get(QUEUE_NAME) and durable_name(headers) is not None:
        raise _refused(QUEUE_NAME, "another header names a durable subscription. Use one of them")


def most_ttl(headers: Headers, destination: Destination) -> int:
    """Return for how many milliseconds the queue of a SEND keeps messages.

    0 is for ever.

    :raises CommandRefused: the queue would not be what the client asks for. The sentence has the
        remedy.
    """
    declared = destination.kind is Kind.QUEUE and not destination.temporary
    if not declared or headers["destination"].startswith(_DECLARED):
        return 0
    for name, why in _NEVER.items():
        if name in headers and name != _TTL:
            raise _refused(name, why, "SEND")
    if "x-expires" in headers:
        raise _refused("x-expires", _REAPED, "SEND")
    _check_type(headers, "SEND")
    # To live for no time is to be gone at once.
    return max(milliseconds(_TTL, headers[_TTL]), 1) if _TTL in headers else 0


def existing_queue(headers: Headers, destination: Destination) -> str:
    """Return the destination of a SEND to a RabbitMQ that declares nothing.

    :returns: "" where it declares the queue, with the arguments that the SEND has.
    :raises CommandRefused: it may not say these, or RabbitMQ could not read one.
    """
    text = headers["destination"]
    if text.startswith(_EXISTING):
        return text
    if destination.kind is Kind.QUEUE and not destination.temporary:
        _check_values(headers, "SEND")
        for name in (DEAD_EXCHANGE, DEAD_KEY):
            if name in headers:
                raise _refused(
                    name,
                    "a SUBSCRIBE says that of a queue. SEND to /amq/queue/NAME, which declares nothing",
                    "SEND",
                )
    return ""


def _check_values(headers: Headers, command: str) -> None:
    """Check that RabbitMQ can read the arguments of a queue.

    What it makes of the value is its own to say.

    :raises CommandRefused: it would answer with an error that names no header.
    """
    for name in _NUMBERS:
        value = headers.get(name, "0")
        if _NUMBER.fullmatch(value) is None:
            raise _refused(name, f"'{value[:40]}' is no number: expected digits alone", command)
    for name in _FLAGS[command]:
        value = headers.get(name, "true")
        if value not in ("true", "false"):
            raise _refused(
                name, f"'{value[:40]}' is neither true nor false, in small letters", command
            )


def _check_offset(headers: Headers) -> None:
    """Check that RabbitMQ can read where in a stream a subscription begins.

    :raises CommandRefused: as for :func:`_check_values`.
    """
    value = headers.get(_OFFSET, "")
    for begins in _COUNTED:
        if value.startswith(begins) and _NUMBER.fullmatch(value.removeprefix(begins)) is None:
            raise _refused(_OFFSET, f"'{value[:40]}' has no number behind {begins}")


def shared_name(headers: Headers, destination: Destination) -> str:
    """Return the shared subscription that a frame names, "" for none."""
    name = headers.get(QUEUE_NAME)
    if name:
        return name
    return f"{headers.get('id')} {destination.name}" if flagged(headers) else ""


def _check(headers: Headers, never: Mapping[str, str]) -> None:
    """Refuse headers that cannot be asked for.

    :raises CommandRefused: the frame has one.
    """
    for name, why in never.items():
        if name in headers:
            raise _refused(name, why)


def _check_type(headers: Headers, command: str = "SUBSCRIBE") -> None:
    """Check what kind of queue it is.

    :raises CommandRefused: one that is not here.
    """
    kind = headers.get("x-queue-type")
    if kind is not None and kind.strip() not in _TYPES:
        raise _refused("x-queue-type", f"'{kind[:40]}' is neither {' nor '.join(_TYPES)}", command)


def _check_queue(headers: Headers) -> None:
    """Check SUBSCRIBE to a queue.

    :raises CommandRefused: the queue would not be what the client asks for.
    """
    if "x-expires" in headers:
        raise _refused("x-expires", _REAPED)
    # RabbitMQ's queue that is not durable is exclusive and goes with its last consumer.
    passing = _is(headers, "durable", "false") or _is(headers, "persistent", "false")
    for name, why in (
        ("auto-delete", "a queue keeps its messages when its last consumer leaves"),
        ("exclusive", "a queue is for all who may consume from it"),
    ):
        if _is(headers, name, "true") or (passing and not _is(headers, name, "false")):
            said = name if _is(headers, name, "true") else "durable"
            raise _refused(
                said,
                f"{why}. SUBSCRIBE with {name}:false, or to a topic, or use reply-to:/temp-queue/NAME",
            )


def _is(headers: Headers, name: str, value: str) -> bool:
    return headers.get(name, "").strip().lower() == value


def _refused(name: str, why: str, command: str = "SUBSCRIBE") -> CommandRefused:
    return CommandRefused(
        f"'{name}' is not allowed on '{command}': {why}.\n", summary="Invalid header"
    )
