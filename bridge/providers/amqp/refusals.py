"""AMQP error conditions as errors of ``gateway.messaging``.

Conditions are few (section 2.8.15 and those behind it), and brokers use ``amqp:internal-error`` and
``amqp:not-allowed`` for much. So the error follows from what was asked, too, and quotes the broker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.providers.asked import Asked, Operation
from bridge.providers.exchanges import missing_exchange
from gateway.messaging.errors import (
    AccessDenied,
    ClientIdInUse,
    DestinationFull,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    MessageTooLarge,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    UnknownExchange,
    UnknownSubscription,
)

_QUOTED: Final = 300

UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_FOUND: Final = "amqp:not-found"
INVALID_FIELD: Final = "amqp:invalid-field"
LIMIT: Final = "amqp:resource-limit-exceeded"
LOCKED: Final = "amqp:resource-locked"
STOLEN: Final = "amqp:link:stolen"
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"


class Refusal(NamedTuple):
    """An error that the broker told (section 2.8.14).

    :param condition: such as ``amqp:not-found``; "" where it told none.
    :param text: its description.
    :param field: which field of the open frame is invalid, where it says so.
    """

    condition: str = ""
    text: str = ""
    field: str = ""

    @classmethod
    def of(cls, condition: object) -> Refusal:
        """Return what a condition of the protocol engine says."""
        if condition is None:
            return cls()
        info = getattr(condition, "info", None)
        field = info.get("invalid-field", "") if isinstance(info, dict) else ""
        return cls(
            str(getattr(condition, "name", "") or ""),
            str(getattr(condition, "description", "") or ""),
            str(field),
        )

    def __str__(self) -> str:
        """Return one line of at most 300 characters."""
        text = " ".join(self.text.split())
        told = f"{text} ({self.condition})" if text and self.condition else text or self.condition
        printable = "".join(one if one.isprintable() else " " for one in told)
        return printable[:_QUOTED] or "no reason given"


def refusal(asked: Asked, told: Refusal) -> MessagingError:
    """Return the error for what was asked."""
    operation, destination = asked.operation, asked.destination
    condition, small = told.condition, told.text.lower()
    if operation is Operation.CONNECT:
        taken = condition == INVALID_FIELD and told.field == "container-id"
        if asked.client_id is not None and (taken or "container-id" in small):
            return ClientIdInUse(asked.client_id)
        if condition in (UNAUTHORIZED, "amqp:not-allowed"):
            return AccessDenied(asked.username, f"connect, as the broker says: {told}", "it")
        return ProviderUnavailable(f"it refuses the connection: {told}")
    if asked.durable_name is not None:
        client_id = asked.client_id or ""
        if operation is Operation.UNSUBSCRIBE and condition == NOT_FOUND:
            return UnknownSubscription(client_id, asked.durable_name)
        if condition in (LOCKED, STOLEN) or "in use" in small:
            return DurableInUse(client_id, asked.durable_name)
    if condition == NOT_IMPLEMENTED:
        return NotSupported(f"this: {told}")
    if asked.selector is not None and "selector" in small:
        return InvalidSelector(asked.selector, 0, str(told))
    if destination is None:
        return ProviderUnavailable(f"the broker refuses to {operation.value}: {told}")
    if (sentence := missing_exchange(told.text)) is not None:
        return UnknownExchange(destination, sentence)
    if condition == UNAUTHORIZED or "access_refused" in small or "not allowed" in small:
        return AccessDenied(asked.username, operation.value, destination)
    if operation is Operation.SEND:
        if condition == LIMIT:
            return DestinationFull(destination, str(told), -1)
        if condition == TOO_LARGE:
            return MessageTooLarge(destination, -1, str(told), -1)
    return InvalidDestination(destination, f"the broker refuses to {operation.value}: {told}")
