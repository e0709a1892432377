"""What the lines of a batch say of each of its messages: ids, sizes, times and hashes.

Owns what is found once for all lines of a batch. All of it takes long, so it is called on the
journal's thread, except the constructor. When a line is told, and of which messages, is
:mod:`bridge.journal_lines`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from gateway.journal.naming import numbered
from gateway.messaging.digest import digest_of_body, digest_of_headers
from gateway.messaging.message import Headers, Message

if TYPE_CHECKING:
    from bridge.link.arrivals import Received

#: Which messages of a batch: their places, from 0.
Places: TypeAlias = Sequence[int]


class BatchContents:
    """A batch as it was received. Keeps hold of what its messages have now: a provider may change
    what it was given.
    """

    __slots__ = ("_hashes", "_messages", "_named", "octets", "said")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        #: The bodies.
        self.octets = [message.body for message in messages]
        #: What is said about them.
        self.said = [message.headers for message in messages]
        self._hashes: list[str] | None = None
        #: What the ids begin with and the numbers that they end in, or None; empty before that is
        #: known.
        self._named: list[tuple[str, list[int]] | None] = []

    def ids(self, places: Places) -> list[str] | None:
        """The ids; None where they are numbers with a prefix."""
        messages = self._messages
        return (
            [messages[place].message_id for place in places] if self._numbered() is None else None
        )

    def prefix(self) -> str | None:
        """What the ids begin with; None where they have no numbers."""
        named = self._numbered()
        return None if named is None else named[0]

    def ends(self, places: Places) -> Sequence[int] | None:
        """The numbers that the ids end in; None where they have none."""
        named = self._numbered()
        if named is None:
            return None
        found = named[1]
        return found if len(places) == len(found) else [found[place] for place in places]

    def sizes(self, places: Places) -> list[int]:
        """Octets of the bodies."""
        octets = self.octets
        return [len(octets[place]) for place in places]

    def timestamps(self, places: Places) -> list[int]:
        """JMSTimestamps."""
        messages = self._messages
        return [messages[place].timestamp for place in places]

    def bodies(self, places: Places) -> list[str]:
        """Hashes of the bodies as received."""
        hashes = self._hashes
        if hashes is None:
            kinds = [headers.body_type for headers in self.said]
            hashes = self._hashes = list(map(digest_of_body, kinds, self.octets))
        return hashes if len(places) == len(hashes) else [hashes[place] for place in places]

    def headers(self, places: Places) -> list[str]:
        """Hashes of the headers as received."""
        said = self.said
        return [digest_of_headers(said[place]) for place in places]

    def sent_bodies(
        self, places: Places, given: Sequence[Headers], bodies: Sequence[bytes]
    ) -> list[str]:
        """Hashes of bodies as sent. :param given: the headers that they are sent with, which say
        what kind of body that is.
        """
        octets, received, known = self.octets, self.said, self.bodies(range(len(self.octets)))
        return [
            known[place]
            if body is octets[place] and headers.body_type is received[place].body_type
            else digest_of_body(headers.body_type, body)
            for place, headers, body in zip(places, given, bodies, strict=True)
        ]

    def sent_headers(self, places: Places, given: Sequence[Headers]) -> list[str]:
        """Hashes of headers as sent."""
        received = self.said
        return [
            digest_of_headers(headers, received[place])
            for place, headers in zip(places, given, strict=True)
        ]

    def _numbered(self) -> tuple[str, list[int]] | None:
        if not self._named:
            self._named.append(numbered([message.message_id for message in self._messages]))
        return self._named[0]


def target_ids(messages: Sequence[Message]) -> list[str] | None:
    """The ids that messages have at the target; None where it does not tell them."""
    ids = [message.message_id for message in messages]
    return ids if any(ids) else None


def numbers(first: int, places: Places) -> list[int]:
    """Numbers of transfers. :param first: that of the batch's first message."""
    return [first + place for place in places]


def attempts(received: Sequence[Received], places: Places) -> list[int] | None:
    """How often each was delivered; None where each was once."""
    found = [received[place].attempts for place in places]
    return found if max(found) > 1 else None
