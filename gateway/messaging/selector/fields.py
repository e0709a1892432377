"""What identifiers of a selector stand for in a message.

Owns the header fields by their names: those of JMS 1.1, section 3.8.1.1, JMSXUserID, and those that
Artemis's filters have for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gateway.messaging.dead import ORIGINAL_ADDRESS, ORIGINAL_DESTINATION
from gateway.messaging.message import Message
from gateway.messaging.selector.nodes import Identifier, Literal, Node
from gateway.messaging.values import Value

Properties: TypeAlias = Mapping[str, Value]
#: Reads a value; the properties of the message are given beside it, since nearly all that is asked
#: for is there.
Operand: TypeAlias = Callable[[Properties, Message], Value]

HEADER_READERS: Final[dict[str, Operand]] = {
    "JMSDeliveryMode": lambda properties, message: (
        "PERSISTENT" if message.headers.persistent else "NON_PERSISTENT"
    ),
    "JMSPriority": lambda properties, message: message.headers.priority,
    "JMSMessageID": lambda properties, message: message.message_id or None,
    "JMSTimestamp": lambda properties, message: message.timestamp,
    "JMSCorrelationID": lambda properties, message: message.headers.correlation_id,
    "JMSType": lambda properties, message: message.headers.type,
    "JMSXUserID": lambda properties, message: message.user or None,
}


def _original(properties: Properties, message: Message) -> Value:
    """Where a dead message was to go, by its name alone."""
    original = properties.get(ORIGINAL_DESTINATION)
    return original.partition(":")[2] if isinstance(original, str) else None


def _original_address(properties: Properties, message: Message) -> Value:
    return properties.get(ORIGINAL_ADDRESS) or _original(properties, message)


def _original_queue(properties: Properties, message: Message) -> Value:
    original = properties.get(ORIGINAL_DESTINATION)
    is_queue = isinstance(original, str) and original.startswith("queue:")
    return _original(properties, message) if is_queue else None


#: A property may have such a name, and goes before it.
_OF_ARTEMIS: Final[dict[str, Operand]] = {
    "AMQAddress": lambda properties, message: message.headers.destination.name,
    "AMQDurable": lambda properties, message: (
        "DURABLE" if message.headers.persistent else "NON_DURABLE"
    ),
    "AMQExpiration": lambda properties, message: message.expires,
    "AMQGroupID": lambda properties, message: message.headers.group or None,
    "AMQPriority": lambda properties, message: message.headers.priority,
    # Whatever a broker counts, filters ask for what is large: these are the bytes that it sent.
    "AMQSize": lambda properties, message: message.headers.octets + len(message.body),
    "AMQTimestamp": lambda properties, message: message.timestamp,
    # Artemis calls what identifies a message a user's id: JMSMessageID.
    "AMQUserID": lambda properties, message: message.message_id or None,
    "_AMQ_ORIG_ADDRESS": _original_address,
    "_AMQ_ORIG_QUEUE": _original_queue,
    "_AMQ_ORIG_MESSAGE_ID": lambda properties, message: (
        message.message_id if ORIGINAL_DESTINATION in properties else None
    ),
}


def value_reader(node: Node) -> Operand:
    """Return what reads an identifier or a literal, as it is."""
    match node:
        case Identifier(name):
            if "-" in name:
                return _extra(name)
            if name in _OF_ARTEMIS:
                return _property_or(name, _OF_ARTEMIS[name])
            return HEADER_READERS.get(name) or (lambda properties, message: properties.get(name))
        case Literal(value):
            return lambda properties, message: value
    raise AssertionError(f"{node} is neither literal nor identifier")


def is_property(name: str) -> bool:
    """Whether this identifier is a property, and nothing else."""
    return "-" not in name and name not in HEADER_READERS and name not in _OF_ARTEMIS


def _extra(name: str) -> Operand:
    """A header whose name is not a property's."""
    return lambda properties, message: dict(message.headers.extras).get(name)


def _property_or(name: str, field: Operand) -> Operand:
    return lambda properties, message: (
        properties[name] if name in properties else field(properties, message)
    )
