"""Temporary destinations of one connection, by the names that the client gives them (seed table
12-11, ``destination`` and ``reply-to``).

``/temp-queue/NAME`` is made when it is first named, wherever that is, and means the same in every
frame of the connection. Other connections see the string that the provider's random name makes, and
so does this one in ``MESSAGE``; both may send to it. The provider sees to it that only this
connection consumes, and that all are gone with it.
"""

from __future__ import annotations

from gateway.messaging.destination import Destination
from gateway.messaging.provider import Connection
from gateway.stomp import destinations
from gateway.stomp.refusals import CommandRefused


class Temporaries:
    """Finds the destinations that a client names.

    :param most: how many temporary ones the client may make.
    """

    def __init__(self, connection: Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._named: dict[destinations.LocalTemporary, Destination] = {}

    def resolve(self, text: str, header: str) -> Destination:
        """The destination that ``text`` means.

        :param header: the header's name, for errors.
        :raises CommandRefused: no destination, or one temporary too many.
        :raises MessagingError: the provider makes none.
        """
        found = destinations.parse(text, header)
        if isinstance(found, Destination):
            return found
        known = self._named.get(found)
        if known is not None:
            return known
        if len(self._named) >= self._most:
            raise CommandRefused(
                f"{header} '{text[:200]}' is one temporary destination too many: {self._most} is the limit"
            )
        made = self._named[found] = self._connection.temporary(found.kind)
        return made
