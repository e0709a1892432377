"""What the broker has refused to its users lately, by destination.

Operators ask why messages are not sent or received, and the client that was told is another
department's. Owns what is remembered of refusals: the last of each kind and user, and how often.
There are bounds on that, so that no client can fill memory with names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gateway.broker.core.consumers.origin import Origin
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.reactor.turn import Turn

#: Destinations of which refusals are remembered, those with the latest ones.
MOST_DESTINATIONS: Final = 1000
#: Refusals of different kinds or users that are remembered of one.
MOST_OF_ONE: Final = 8
#: Characters of a sentence, which may have names and selectors of a client's in it.
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that the broker has refused.

    :param kind: the class of the error.
    :param text: its sentence, of the last one.
    :param user: who was refused, and
    :param connection: the number of that user's last connection.
    :param count: how often.
    :param last_ms: when that was last, epoch milliseconds.
    """

    kind: str
    text: str
    user: str
    connection: int
    count: int
    last_ms: int


class Refusals:
    """The refusals of one broker.

    :param turn: says what time it is.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn: Final = turn
        #: By destination, then by kind and user; the latest last.
        self._known: Final[dict[Destination, dict[tuple[str, str], Refusal]]] = {}

    def note(self, destination: Destination, origin: Origin, error: MessagingError) -> None:
        """Remember that a user was refused something there."""
        known = self._known.pop(destination, None)
        if known is None:
            known = {}
            if len(self._known) >= MOST_DESTINATIONS:
                del self._known[next(iter(self._known))]
        self._known[destination] = known
        key = type(error).__name__, origin.user
        before = known.pop(key, None)
        if before is None and len(known) >= MOST_OF_ONE:
            del known[next(iter(known))]
        text = str(error)
        refusal = Refusal(key[0], text[:_LONGEST], origin.user, origin.number, 1, self._turn.now_ms)
        known[key] = refusal if before is None else replace(refusal, count=before.count + 1)

    def of(self, destination: Destination) -> list[Refusal]:
        """Return what is remembered of a destination, the latest first."""
        return list(reversed(self._known.get(destination, {}).values()))
