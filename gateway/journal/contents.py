"""Headers and bodies of messages as the journal has them, where it is to.

Owns their texts. Called on the journal's thread: it only reads what no longer changes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from gateway.journal.schema import HEAD
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import DeliveryMode, Message


def headers(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return what producer and broker say of each message, as texts.

    The keys are JMS's names; :data:`HEAD` has the values with their types.
    """
    return [_headers(message) for message in messages]


def bodies(messages: Sequence[Message]) -> list[str]:
    """The bodies in Base64."""
    return [b64encode(message.body).decode() for message in messages]


def body_types(messages: Sequence[Message]) -> list[str]:
    """What each body is."""
    return [message.headers.body_type.name for message in messages]


def _headers(message: Message) -> dict[str, str]:
    said = message.headers
    mode = DeliveryMode.PERSISTENT if said.persistent else DeliveryMode.NON_PERSISTENT
    texts = dict(said.extras)
    texts.update((name, _text(value)) for name, value in said.properties.items())
    texts["JMSDestination"] = str(said.destination)
    texts["JMSDeliveryMode"] = mode.name
    texts["JMSPriority"] = str(said.priority)
    if message.expires:
        texts["JMSExpiration"] = str(message.expires)
    if said.reply_to is not None:
        texts["JMSReplyTo"] = str(said.reply_to)
    if said.correlation_id is not None:
        texts["JMSCorrelationID"] = said.correlation_id
    if said.type is not None:
        texts["JMSType"] = said.type
    texts[HEAD] = b64encode(encode_head(message)).decode()
    return texts


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
