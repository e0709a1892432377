"""The levels of java.util.logging, and how Twisted's map to them.

Operators of the original choose by them what a log holds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from twisted.logger import LogLevel


class Level(IntEnum):
    """How much an event matters.

    A log set to one of these takes the events of that level and above; ALL takes every one, OFF
    none.
    """

    OFF = 2**31 - 1
    SEVERE = 1000
    WARNING = 900
    INFO = 800
    CONFIG = 700
    FINE = 500
    FINER = 400
    FINEST = 300
    ALL = -(2**31)


LEVELS = tuple(level.name for level in (*list(Level)[1:], Level.OFF))
"""The names, from SEVERE down to FINEST, then ALL and OFF."""

ALIASES = {
    "ERROR": "SEVERE",
    "NONE": "OFF",
    "DEBUG": "FINE",
    "DEBUGMED": "FINER",
    "DEBUGHIGH": "FINEST",
}
"""What ``imq.log.level`` calls them in the original."""

DETAIL = "detail"
"""The field of an event by which it says a :class:`Level` that Twisted has none for:
``log.debug("...", detail=Level.FINER)``.
"""

_OF_TWISTED = {
    LogLevel.debug: Level.FINE,
    LogLevel.info: Level.INFO,
    LogLevel.warn: Level.WARNING,
    LogLevel.error: Level.SEVERE,
    LogLevel.critical: Level.SEVERE,
}


_CHATTER = ("log_legacy", "twisted")
"""The beginnings of namespaces of what Twisted says of itself: of each port that it opens and
closes, and of each connection that it makes.
"""


def level_of(event: dict[str, Any]) -> Level:
    """Return the level of an event of :mod:`twisted.logger`.

    It is the event's own :data:`DETAIL`, or what Twisted's level maps to.

    What Twisted itself says without a level of its own choosing is FINE.
    """
    detail = event.get(DETAIL)
    if isinstance(detail, Level):
        return detail
    level = _OF_TWISTED.get(event.get("log_level"), Level.INFO)
    if level is Level.INFO:
        namespace = event.get("log_namespace")
        if isinstance(namespace, str) and namespace.partition(".")[0] in _CHATTER:
            return Level.FINE
    return level
