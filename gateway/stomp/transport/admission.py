"""How many connections there may be: in all, by address, by user.

Owns the counts, and the list of those that are open. Over TCP and TLS alike.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, succeed

from gateway.stomp.counters import Counters
from gateway.stomp.refusals import TooManyConnections
from gateway.stomp.settings import TransportOptions

ConnectionT = TypeVar("ConnectionT")


class Admission(Generic[ConnectionT]):
    """The connections that are open."""

    def __init__(self, options: TransportOptions, counters: Counters) -> None:
        self._options = options
        self._counters = counters
        #: By connection its address, and its user once that is known.
        self._open: dict[ConnectionT, str] = {}
        self._users: dict[ConnectionT, str] = {}
        self._by_address: Counter[str] = Counter()
        self._by_user: Counter[str] = Counter()
        self._emptied: list[Deferred[None]] = []

    @property
    def connections(self) -> list[ConnectionT]:
        """Those that are open."""
        return [*self._open]

    def admit(self, connection: ConnectionT, address: str) -> None:
        """Count a new connection, for which :meth:`gone` is called in any case.

        :param address: empty: it is not known yet, and :meth:`moved` tells it.
        :raises TooManyConnections: it is one too many.
        """
        self._open[connection] = ""
        self._counters.connections = len(self._open)
        self._counters.connections_total += 1
        options = self._options
        if 0 <= options.max_connections < len(self._open):
            raise TooManyConnections(
                f"too many connections: {options.max_connections} is the limit"
            )
        self.moved(connection, address)

    def moved(self, connection: ConnectionT, address: str) -> None:
        """A connection is a client's at this address.

        :raises TooManyConnections: it is one too many there.
        """
        _decrease(self._by_address, self._open[connection])
        self._open[connection] = address
        if not address:
            return
        self._by_address[address] += 1
        limit = self._options.max_connections_per_address
        if 0 <= limit < self._by_address[address]:
            raise TooManyConnections(f"too many connections from {address}: {limit} is the limit")

    def claim_user(self, connection: ConnectionT, username: str) -> None:
        """Count a connection for its user.

        :raises TooManyConnections: the user has as many as one may have.
        """
        limit = self._options.max_connections_per_user
        if 0 <= limit <= self._by_user[username]:
            raise TooManyConnections(
                f"too many connections of user '{username}': {limit} is the limit"
            )
        self._by_user[username] += 1
        self._users[connection] = username

    def gone(self, connection: ConnectionT) -> None:
        """That connection is closed."""
        _decrease(self._by_address, self._open.pop(connection, None))
        _decrease(self._by_user, self._users.pop(connection, None))
        self._counters.connections = len(self._open)
        if not self._open:
            emptied, self._emptied = self._emptied, []
            for each in emptied:
                each.callback(None)

    def emptied(self) -> Deferred[None]:
        """Fires when no connection is open."""
        if not self._open:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._emptied.append(waiting)
        return waiting


def _decrease(counts: Counter[str], key: str | None) -> None:
    """Count one less; names without connections are forgotten."""
    if key:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]
