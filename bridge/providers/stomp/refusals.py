"""What an ERROR frame means, as an error of ``gateway.messaging``.

STOMP has no error codes. The error follows from what was asked and from words that brokers use.
Where those say nothing, the error says what was asked and quotes the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bridge.providers.asked import Asked, Operation
from bridge.providers.exchanges import missing_exchange
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdInUse,
    DestinationFull,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    MessagingError,
    ProviderUnavailable,
    TooManyConsumers,
    UnknownExchange,
    UnknownSubscription,
)

_QUOTED: Final = 300

_IN_USE: Final = re.compile(r"already connected|in use|duplicate client", re.IGNORECASE)
_DENIED: Final = re.compile(
    r"access|denied|not authori[sz]ed|authenticat|permission|may not|security|credential|password|passcode|login|is refused",
    re.IGNORECASE,
)
_SELECTOR: Final = re.compile(r"selector", re.IGNORECASE)
_CONSUMERS: Final = re.compile(
    r"too many consumers|maxNumActiveConsumers|all the consumers|exclusive", re.IGNORECASE
)
_ACTIVE: Final = re.compile(r"in use|active consumer|already", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"no durable|does not exist|unknown|not.found|has no", re.IGNORECASE)
_ABOUT: Final = re.compile(r"destination|not.found|precondition.failed|selector", re.IGNORECASE)
_FULL: Final = re.compile(r"\bfull\b|usage|limit|quota", re.IGNORECASE)


def sentence(headers: Mapping[str, str], body: bytes) -> str:
    """Return the text of an ERROR frame on one line.

    It has at most 300 characters: the ``message``, and the body as far as there is room.
    """
    message = " ".join(headers.get("message", "").split())
    # ActiveMQ's has Java's trace of the stack.
    first = " ".join(body[: 4 * _QUOTED].decode("utf-8", "replace").partition("\n\tat ")[0].split())
    if first and first not in message and not message.startswith(first[:40]):
        message = first if message in first else f"{message}: {first}"
    printable = "".join(one if one.isprintable() else " " for one in message)
    return printable[:_QUOTED] or "no reason given"


def is_refusal(text: str) -> bool:
    """Whether a broker's sentence is about the request.

    Other sentences are about the broker or the connection.
    """
    return _DENIED.search(text) is not None or _ABOUT.search(text) is not None


def refusal(asked: Asked, text: str) -> MessagingError:
    """Return the error for what was asked.

    :param text: the broker's sentence, of :func:`sentence`.
    """
    if asked.operation is Operation.CONNECT:
        if asked.client_id is not None and _IN_USE.search(text):
            return ClientIdInUse(asked.client_id)
        if _DENIED.search(text):
            # Another gateway's sentence is ours already.
            begins = str(AuthenticationFailed(asked.username, ""))
            return AuthenticationFailed(asked.username, text.removeprefix(begins) or text)
        return ProviderUnavailable(f"it refuses the connection: {text}")
    # To RabbitMQ a queue is exclusive to a connection, and no matter of rights.
    locked = "RESOURCE_LOCKED" in text
    if asked.operation is Operation.UNSUBSCRIBE and asked.durable_name is not None:
        client_id = asked.client_id or ""
        if _ACTIVE.search(text):
            return DurableInUse(client_id, asked.durable_name)
        if _UNKNOWN.search(text):
            return UnknownSubscription(client_id, asked.durable_name)
    if asked.operation is Operation.SUBSCRIBE:
        if asked.selector is not None and _SELECTOR.search(text):
            return InvalidSelector(asked.selector, 0, text)
        if asked.durable_name is not None and _ACTIVE.search(text):
            return DurableInUse(asked.client_id or "", asked.durable_name)
        if asked.destination is not None and not locked and _CONSUMERS.search(text):
            return TooManyConsumers(asked.destination, -1)
    if asked.destination is not None:
        if (missing := missing_exchange(text)) is not None:
            return UnknownExchange(asked.destination, missing)
        if _DENIED.search(text) and not locked:
            return AccessDenied(asked.username, asked.operation.value, asked.destination)
        if asked.operation is Operation.SEND and _FULL.search(text):
            return DestinationFull(asked.destination, text, -1)
        return InvalidDestination(
            asked.destination, f"the broker refuses to {asked.operation.value}: {text}"
        )
    return ProviderUnavailable(f"the broker refuses to {asked.operation.value}: {text}")
