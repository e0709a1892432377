"""Why messages die, and the properties that say so.

The reasons and property names of the broker's dead message queue (Open MQ's ``JMS_SUN_DMQ_*``) and
of the bridges' (Open MQ's Table 12-1).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gateway.messaging.destination import Destination, Queue

#: The broker's dead message queue.
DMQ: Final[Destination] = Queue("mq.sys.dmq")


class DeadReason(Enum):
    """Why the broker gave a message up.

    The values are those of ``JMS_SUN_DMQ_UNDELIVERED_REASON``.
    """

    OLDEST = "OLDEST"
    LOW_PRIORITY = "LOW_PRIORITY"
    EXPIRED = "EXPIRED"
    UNDELIVERABLE = "UNDELIVERABLE"
    ERROR = "ERROR"


UNDELIVERED_TIMESTAMP: Final = "JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"
UNDELIVERED_REASON: Final = "JMS_SUN_DMQ_UNDELIVERED_REASON"
UNDELIVERED_EXCEPTION: Final = "JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"
UNDELIVERED_COMMENT: Final = "JMS_SUN_DMQ_UNDELIVERED_COMMENT"
DELIVERY_COUNT: Final = "JMS_SUN_DMQ_DELIVERY_COUNT"
BODY_TRUNCATED: Final = "JMS_SUN_DMQ_BODY_TRUNCATED"
PRODUCING_BROKER: Final = "JMS_SUN_DMQ_PRODUCING_BROKER"
DEAD_BROKER: Final = "JMS_SUN_DMQ_DEAD_BROKER"
#: Where it was to go, ``queue:NAME`` or ``topic:NAME``; ours.
ORIGINAL_DESTINATION: Final = "JMS_SUN_DMQ_DESTINATION"
#: The address of that queue, where it has another name. Ours.
ORIGINAL_ADDRESS: Final = "JMS_SUN_DMQ_ADDRESS"
#: When it was to expire, in epoch milliseconds, a Long; only where it was to. Ours.
ORIGINAL_EXPIRATION: Final = "JMS_SUN_DMQ_EXPIRATION"

#: A producer may set these on a message (booleans): keep it when it dies whatever ``useDMQ`` says;
#: log it; keep its headers only.
PRESERVE_UNDELIVERED: Final = "JMS_SUN_PRESERVE_UNDELIVERED"
LOG_DEAD_MESSAGES: Final = "JMS_SUN_LOG_DEAD_MESSAGES"
TRUNCATE_MSG_BODY: Final = "JMS_SUN_TRUNCATE_MSG_BODY"


class BridgeDeadReason(Enum):
    """Why a link gave a message up.

    The values are those of ``JMS_SUN_JMSBRIDGE_DMQ_REASON`` (Open MQ's Table 12-1).
    """

    MESSAGE_EXPIRED = "MESSAGE_EXPIRED"
    TRANSFORM_FAILURE = "TRANSFORM_FAILURE"
    SEND_FAILURE = "SEND_FAILURE"
    ACK_FAILURE = "ACK_FAILURE"
    COMMIT_FAILURE = "COMMIT_FAILURE"


#: The properties that a bridge adds to a dead message (Open MQ's Table 12-1); Strings, all but the
#: source's timestamp, which is a Long.
BRIDGE_REASON: Final = "JMS_SUN_JMSBRIDGE_DMQ_REASON"
BRIDGE_EXCEPTION: Final = "JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION"
BRIDGE_TIMESTAMP: Final = "JMS_SUN_JMSBRIDGE_DMQ_TIMESTAMP"
BRIDGE_BODY_TRUNCATED: Final = "JMS_SUN_JMSBRIDGE_DMQ_BODY_TRUNCATED"
BRIDGE_SOURCE_MESSAGE_ID: Final = "JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID"
BRIDGE_SOURCE_TIMESTAMP: Final = "JMS_SUN_JMSBRIDGE_SOURCE_TIMESTAMP"
BRIDGE_SOURCE_CORRELATION_ID: Final = "JMS_SUN_JMSBRIDGE_SOURCE_CORRELATIONID"
BRIDGE_SOURCE_TYPE: Final = "JMS_SUN_JMSBRIDGE_SOURCE_JMSTYPE"
BRIDGE_SOURCE_DESTINATION: Final = "JMS_SUN_JMSBRIDGE_SOURCE_DESTINATION"
BRIDGE_SOURCE_PROVIDER: Final = "JMS_SUN_JMSBRIDGE_SOURCE_PROVIDER"
#: Which broker it came from, where that is the broker of the bridge's own instance; else absent.
#: All of these call themselves the same. It is ours.
BRIDGE_SOURCE_RESOURCE: Final = "JMS_SUN_JMSBRIDGE_SOURCE_RESOURCE"
BRIDGE_TARGET_DESTINATION: Final = "JMS_SUN_JMSBRIDGE_TARGET_DESTINATION"
BRIDGE_TARGET_PROVIDER: Final = "JMS_SUN_JMSBRIDGE_TARGET_PROVIDER"
#: Where it was going after AS_SOURCE or a transformer's ``branch_to``; the original has it, and its
#: documentation does not.
BRIDGE_TARGET_CURRENT_DESTINATION: Final = "JMS_SUN_JMSBRIDGE_TARGET_CURRENT_DESTINATION"

#: All of those.
BRIDGE_PROPERTIES: Final = frozenset(
    (
        BRIDGE_REASON,
        BRIDGE_EXCEPTION,
        BRIDGE_TIMESTAMP,
        BRIDGE_BODY_TRUNCATED,
        BRIDGE_SOURCE_MESSAGE_ID,
        BRIDGE_SOURCE_TIMESTAMP,
        BRIDGE_SOURCE_CORRELATION_ID,
        BRIDGE_SOURCE_TYPE,
        BRIDGE_SOURCE_DESTINATION,
        BRIDGE_SOURCE_PROVIDER,
        BRIDGE_SOURCE_RESOURCE,
        BRIDGE_TARGET_DESTINATION,
        BRIDGE_TARGET_PROVIDER,
        BRIDGE_TARGET_CURRENT_DESTINATION,
    )
)
