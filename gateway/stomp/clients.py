"""Which clients are connected, for those who look after the broker behind.

Owns what is told of a client. A broker's administrator sees one connection of the broker for each
of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.messaging.provider import Connection

if TYPE_CHECKING:
    from gateway.stomp.transport.connection import StompConnection


@dataclass(frozen=True, slots=True)
class Client:
    """A client that is CONNECTED.

    :param connection: the provider's connection behind it. :param service: the port mapper's name
        of what it came to: ``stomp``, ``sslstomp``.
    :param address: its own, and :param port: its own, 0 if it has none. :param protocol: such as
        ``STOMP 1.2``.
    :param session: the session identifier of its CONNECTED, which the log has, too.
    """

    connection: Connection
    service: str
    address: str
    port: int
    protocol: str
    session: str


def clients_of(connections: Iterable[StompConnection]) -> list[Client]:
    """The clients of those connections that are CONNECTED."""
    found = []
    for each in connections:
        session = each.session
        if session.connection is not None:
            service = "sslstomp" if each.secure else "stomp"
            protocol = f"STOMP {session.version!s}"
            found.append(
                Client(
                    session.connection,
                    service,
                    each.address,
                    each.port,
                    protocol,
                    session.identifier,
                )
            )
    return found
