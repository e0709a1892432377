"""Why messages die, and the properties that say so.

The reasons and property names of the broker's dead message queue (Open MQ's ``JMS_SUN_DMQ_*``) and of the bridges' (seed table 12-1).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class DeadReason(Enum):
    """Why the broker gave a message up; the values are those of ``JMS_SUN_DMQ_UNDELIVERED_REASON``."""

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

#: A producer may set these on a message (booleans): keep it when it dies whatever ``useDMQ`` says; log it; keep its headers only.
PRESERVE_UNDELIVERED: Final = "JMS_SUN_PRESERVE_UNDELIVERED"
LOG_DEAD_MESSAGES: Final = "JMS_SUN_LOG_DEAD_MESSAGES"
TRUNCATE_MSG_BODY: Final = "JMS_SUN_TRUNCATE_MSG_BODY"
