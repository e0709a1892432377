"""What each header of SEND is to its message, and how consumers see it.

Owns the names: those bound to JMS (Open MQ's Table 12-11), those that are spent on the way, those
that no client may forge, and those whose values may vary within a shape. What values mean is
:mod:`gateway.stomp.send_plan`'s to know.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.dead import LOG_DEAD_MESSAGES, PRESERVE_UNDELIVERED, TRUNCATE_MSG_BODY
from gateway.messaging.header_lines import CORRELATION_ID
from gateway.messaging.message import GROUP_ID, GROUP_SEQUENCE
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.scheduled import SCHEDULES
from gateway.messaging.selector.names import is_property_name
from gateway.stomp.brokers import RELATIVE_EXPIRIES
from gateway.stomp.wire import Varying, bare_name, without_edge_blanks

#: Of MESSAGE: why the body could not be made into what its SEND has asked for.
TRANSFORMATION_ERROR: Final = "transformation-error"
#: Headers of SEND that are not the message's own properties: bound to JMS, spent on the way, or
#: forged.
SPENT: Final = frozenset(
    (
        "destination",
        "content-length",
        "transaction",
        "receipt",
        "persistent",
        "priority",
        "expires",
        "ttl",
        "expiration",
        "correlation-id",
        "type",
        "reply-to",
        # A client that sets these would pass for the gateway.
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "receipt-id",
        "timestamp",
        "browser",
        TRANSFORMATION_ERROR,
        "heart-beat",
    )
)
#: Artemis's name of the group of a message, beside JMSXGroupID.
ARTEMIS_GROUP: Final = "_AMQ_GROUP_ID"
#: Headers of SEND by whose values the gateway goes, beside those about expiry.
_READ: Final = frozenset(
    (
        "destination",
        "persistent",
        "priority",
        "type",
        "reply-to",
        "content-type",
        DUPLICATE_ID,
        GROUP_ID,
        ARTEMIS_GROUP,
    )
)
#: What a producer may set of JMSX (JMS 1.1, section 3.5.9); the others are the provider's.
_GROUPS: Final = frozenset((GROUP_ID, GROUP_SEQUENCE))
#: What links to STOMP brokers add begins so. It says nothing of the gateway's.
_LINKS: Final = "JMS_STOMP_"
#: These are booleans to the broker, and STOMP has text only.
_BOOLEANS: Final = frozenset((PRESERVE_UNDELIVERED, LOG_DEAD_MESSAGES, TRUNCATE_MSG_BODY))
#: Headers of MESSAGE that are the gateway's; a property of that name is not shown.
_OWN: Final = SPENT | {"JMSXDeliveryCount", "JMSXUserID"}

# What a header of SEND is to the message, by its name.
PROPERTY: Final = 1
EXTRA: Final = 2
BOOLEAN: Final = 3
EXPIRY: Final = 4
NOTHING: Final = 5
#: A property of an administrator's message, and nothing in anybody else's.
TRUSTED: Final = 6

#: The roles of names that were seen; clients use few.
_roles: Final[dict[str, int]] = {}
_MOST_ROLES: Final = 4096


def role_of(name: str) -> int:
    """What a header of SEND is to the message."""
    role = _roles.get(name)
    return _learn_role(name) if role is None else role


def _learn_role(name: str) -> int:
    if name == "expires" or name in RELATIVE_EXPIRIES:
        role = EXPIRY
    elif name in _BOOLEANS:
        role = BOOLEAN
    else:
        # Some consumer trims the name: to that one " ack" is "ack".
        bare = bare_name(name)
        if bare in SPENT:
            role = NOTHING
        elif bare.startswith("JMS") and bare not in _GROUPS and not bare.startswith(_LINKS):
            # JMS keeps these names for itself and its providers (JMS 1.1, sections 3.5.1, 3.5.9 and
            # 3.5.10).
            role = TRUSTED if bare.startswith("JMS_") and is_property_name(name) else NOTHING
        else:
            role = PROPERTY if is_property_name(name) else EXTRA
    if len(_roles) < _MOST_ROLES:
        _roles[name] = role
    return role


def varying(name: str) -> Varying:
    """Which headers of SEND may vary within a shape: the rule for parsers.

    Those pass that are not read on the way and that consumers see as they are.
    """
    if name == "expires":
        return Varying.OWN
    role = role_of(name)
    if role == NOTHING:
        if name == CORRELATION_ID:
            return Varying.PASSED
        return Varying.MEANING if name in _READ else Varying.IGNORED
    if (
        role in (PROPERTY, EXTRA)
        and name not in _READ
        and name not in SCHEDULES
        and shown_as(name) == name
    ):
        return Varying.PASSED
    return Varying.MEANING


#: As what names of properties and other headers are shown, "" for not at all; of those that were
#: seen.
_shown: Final[dict[str, str]] = {}


def shown_as(name: str) -> str:
    """Return a property's name in MESSAGE; "" if it is not shown."""
    shown = _shown.get(name)
    return _learn_shown(name) if shown is None else shown


def _learn_shown(name: str) -> str:
    # Whatever a link or an envelope has brought: a reader that trims it must not take it for the
    # gateway's.
    shown = "" if bare_name(name) in _OWN else without_edge_blanks(name)
    if len(_shown) < _MOST_ROLES:
        _shown[name] = shown
    return shown
