"""The pause that an administrator gives a destination.

Owns its words, which are Open MQ's, and the line that the store keeps of it among the properties in
the destination's row.
What a pause stops is said by :mod:`gateway.broker.core.destinations.pauses`.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

#: Begins its line in the row. No property of a destination has this name.
_LINE: Final = "paused="


class Pause(IntFlag):
    """Whom a destination is paused for."""

    NONE = 0
    #: Nothing is delivered.
    CONSUMERS = 1
    #: Senders are held back.
    PRODUCERS = 2
    ALL = 3

    @property
    def state(self) -> str:
        """Open MQ's word for the destination's state."""
        return _STATES[self]


_STATES: Final = {
    Pause.NONE: "RUNNING",
    Pause.CONSUMERS: "CONSUMERS_PAUSED",
    Pause.PRODUCERS: "PRODUCERS_PAUSED",
    Pause.ALL: "PAUSED",
}
#: What an administrator may ask for, by Open MQ's name.
TYPES: Final = {"ALL": Pause.ALL, "CONSUMERS": Pause.CONSUMERS, "PRODUCERS": Pause.PRODUCERS}


def add_to(text: str, pause: Pause) -> str:
    """Add a pause to the properties in a destination's row."""
    if not pause:
        return text
    name = next(name for name, each in TYPES.items() if each is pause)
    return f"{text}\n{_LINE}{name}" if text else f"{_LINE}{name}"


def taken_from(text: str) -> tuple[str, Pause]:
    """Return the properties without the pause, and the pause.

    :raises ValueError: it is unknown.
    """
    if _LINE not in text:
        return text, Pause.NONE
    lines = text.splitlines()
    pause = Pause.NONE
    for line in lines:
        if line.startswith(_LINE):
            name = line.removeprefix(_LINE)
            if name not in TYPES:
                raise ValueError(f"'{line}' is no pause of a destination")
            pause = TYPES[name]
    return "\n".join([line for line in lines if not line.startswith(_LINE)]), pause
