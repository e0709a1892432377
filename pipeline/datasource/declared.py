"""Properties of messages as columns, by the option ``properties``.

Owns which may be declared. What they have in a row is :mod:`pipeline.datasource.rows`' to know.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.selector.names import is_property_name
from pipeline.columns import MESSAGES
from pipeline.datasource.errors import OptionError

OPTION: Final = "properties"
TYPES: Final = ("string", "bigint", "double", "boolean")

#: Headers that are STOMP's, the broker's, or a column's, and no property under these names.
RESERVED: Final = frozenset(
    [
        "destination",
        "id",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "receipt",
        "receipt-id",
        "transaction",
        "content-length",
        "timestamp",
        "expires",
        "expiration",
        "ttl",
        "persistent",
        "priority",
        "type",
        "correlation-id",
        "reply-to",
        "session",
        "server",
        "heart-beat",
        "amq-msg-type",
        "destination-type",
        "browser",
        "x-queue-name",
        "original-destination",
        "JMSXDeliveryCount",
        "_AMQ_DUPL_ID",
        "JMSXUserID",
        "durable",
        "auto-delete",
        "exclusive",
        "subscription-type",
        "selector",
        "amqp-message-id",
    ]
)
_COLUMNS: Final = frozenset(
    [column.split()[0] for column in " ".join(MESSAGES.split()).split(", ")]
)


def parse(text: str) -> dict[str, str]:
    """The types by name.

    :param text: as ``region string, amount double``.
    :raises OptionError: something in it cannot be declared.
    """
    found: dict[str, str] = {}
    taken = set(_COLUMNS)
    for each in text.split(","):
        name, _, kind = each.strip().partition(" ")
        kind = kind.strip().lower()
        if kind not in TYPES:
            raise OptionError(
                OPTION, f"has {each.strip()!r}, expected NAME TYPE, with one of {', '.join(TYPES)}"
            )
        if not is_property_name(name) or name.startswith("JMS") or name in RESERVED:
            raise OptionError(OPTION, f"has {name!r}, which no property of a message is called")
        if name.lower() in taken:
            raise OptionError(OPTION, f"has {name!r}, and there is a column of that name")
        taken.add(name.lower())
        found[name] = kind
    return found
