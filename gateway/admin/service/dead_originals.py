"""What a dead message holds: the original to be sent again, and what operators are shown of it.

Owns where an original goes back to. Sends nothing.
"""

from __future__ import annotations

from gateway.messaging import dead
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError, decode
from gateway.messaging.message import BodyType, Message
from gateway.messaging.provider import DUPLICATE_ID


class NotAnEnvelope(Exception):
    """A message that cannot be replayed. ``str`` says why."""


def original_of(
    message: Message, queue: Destination, here: str, to: Destination | None, now_ms: int
) -> Message:
    """The message to send for a dead one.

    :param queue: where it is. :param here: the resource manager that the broker of this instance
        is.
    :param to: where to send it; None is where it came from.
    :param now_ms: epoch milliseconds now.
    :raises NotAnEnvelope: it holds no message, or there is no place here that it came from.
    """
    original = _decoded(message)
    said = message.headers.properties
    if to is None:
        if said.get(dead.BRIDGE_SOURCE_RESOURCE) != here:
            # Not by its name, which the broker of every instance has.
            raise NotAnEnvelope("it came from another provider: name a destination")
        to = (
            destination_of(str(said.get(dead.BRIDGE_SOURCE_DESTINATION, "")))
            or original.headers.destination
        )
        if to == queue or to.temporary:
            raise NotAnEnvelope(
                "it came from a place that it cannot go back to: name a destination"
            )
    expires = original.expires if original.expires > now_ms else 0
    # Its id is remembered where it was, which must not drop what an operator sends again.
    properties = {
        name: value for name, value in original.headers.properties.items() if name != DUPLICATE_ID
    }
    return Message(
        original.headers.replace(destination=to, properties=properties),
        original.body,
        expires=expires,
    )


def _decoded(message: Message) -> Message:
    if message.headers.body_type is not BodyType.BYTES:
        raise NotAnEnvelope(
            f"its body is no envelope: it is of type {message.headers.body_type.name}"
        )
    try:
        return decode(message.body)
    except EnvelopeError as error:
        raise NotAnEnvelope(
            "its body is no envelope" if not message.body.startswith(b"\xabSGE") else str(error)
        ) from None


def destination_of(text: str) -> Destination | None:
    """The destination that ``queue:NAME`` or ``topic:NAME`` is; None where the text is neither."""
    kind, _, name = text.partition(":")
    kinds = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}
    return Destination(kinds[kind], name) if kind in kinds and name else None


def described(message: Message) -> dict[str, object]:
    """A dead message in JSON: why it is dead by its properties, and whether it holds its
    original.
    """
    properties = message.headers.properties
    shown: dict[str, object] = {
        "message_id": message.message_id,
        "timestamp_ms": message.timestamp,
        "expires_ms": message.expires,
        "octets": len(message.body),
        "reason": properties.get(dead.BRIDGE_REASON),
        "exception": properties.get(dead.BRIDGE_EXCEPTION),
        "dead_since_ms": number_of(properties.get(dead.BRIDGE_TIMESTAMP)),
        "source": properties.get(dead.BRIDGE_SOURCE_DESTINATION),
        "source_provider": properties.get(dead.BRIDGE_SOURCE_PROVIDER),
        "source_message_id": properties.get(dead.BRIDGE_SOURCE_MESSAGE_ID),
        "target": properties.get(dead.BRIDGE_TARGET_DESTINATION),
        "target_provider": properties.get(dead.BRIDGE_TARGET_PROVIDER),
        "properties": {
            name: shown_value(value)
            for name, value in properties.items()
            if name not in dead.BRIDGE_PROPERTIES
        },
    }
    try:
        original = _decoded(message)
    except NotAnEnvelope as error:
        return {**shown, "original": None, "problem": str(error)}
    shown["original"] = {
        "destination": str(original.headers.destination),
        "body_type": original.headers.body_type.name,
        "octets": len(original.body),
        "persistent": original.headers.persistent,
        "priority": original.headers.priority,
        "correlation_id": original.headers.correlation_id,
        "timestamp_ms": original.timestamp,
        "expires_ms": original.expires,
    }
    return {**shown, "problem": ""}


def shown_value(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def number_of(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None
