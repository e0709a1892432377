"""The journal's settings, from which the reference page is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gateway.instance.settings import Boolean, Choice, Duration, Octets, Setting, Settings
from gateway.journal.schema import Level

LEVEL: Final = Setting(
    "imq.journal.level",
    Choice(*(level.value for level in Level)),
    Level.LINKS.value,
    "What the journal tells: off is nothing, dead what expires or is given up, links that and every step on links, all that and every step at the "
    "embedded broker. SIGHUP reads it again.",
)
HEADERS: Final = Setting(
    "imq.journal.headers",
    Boolean(),
    False,
    "Whether the journal has the headers of messages that are produced, received or given up",
)
BODIES: Final = Setting(
    "imq.journal.bodies",
    Boolean(),
    False,
    "Whether the journal has the bodies of messages that are produced, received or given up",
)
SEGMENT_SIZE: Final = Setting(
    "imq.journal.segment.size",
    Octets(unlimited=False, minimum=4096),
    64 * 1024 * 1024,
    "Octets of a segment of the journal from which on the next is begun",
)
SEGMENT_AGE: Final = Setting(
    "imq.journal.segment.age",
    Duration("seconds", 1),
    60,
    "Time after which a segment of the journal can be read, and the next is begun",
)
RETENTION: Final = Setting(
    "imq.journal.retention",
    Duration("days"),
    7,
    "Time for which segments of the journal are kept; 0 is for ever",
)
RETENTION_SIZE: Final = Setting(
    "imq.journal.retention.size",
    Octets(),
    4 * 1024**3,
    "Octets that the segments of the journal may take together; above it the oldest go, however new they are",
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    LEVEL,
    HEADERS,
    BODIES,
    SEGMENT_SIZE,
    SEGMENT_AGE,
    RETENTION,
    RETENTION_SIZE,
)

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How much is written, and for how long it is kept.

    :param segment_size: octets. :param segment_age: seconds. :param retention: seconds, 0 for ever.
        :param retention_size: octets, negative for no bound.
    """

    level: Level = Level.LINKS
    headers: bool = False
    bodies: bool = False
    segment_size: int = 64 * 1024 * 1024
    segment_age: float = 60
    retention: float = 7 * _DAY
    retention_size: int = 4 * 1024**3

    @classmethod
    def read(cls, settings: Settings) -> JournalOptions:
        """The options that the settings ask for."""
        return cls(
            level=Level(settings[LEVEL]),
            headers=settings[HEADERS],
            bodies=settings[BODIES],
            segment_size=settings[SEGMENT_SIZE],
            segment_age=settings[SEGMENT_AGE],
            retention=settings[RETENTION] * _DAY,
            retention_size=settings[RETENTION_SIZE],
        )
