"""Who may connect, and how much: in all, by address and by user.

Owns the counts, and the list of those that are open. Over TCP and TLS alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, succeed

from gateway.stomp.counters import Counters
from gateway.stomp.refusals import TooManyConnections
from gateway.stomp.settings import TransportOptions
from gateway.stomp.user_limits import Allowance, UserLimits

ConnectionT = TypeVar("ConnectionT")


class Admission(Generic[ConnectionT]):
    """The connections that are open."""

    def __init__(
        self, options: TransportOptions, counters: Counters, now: Callable[[], float]
    ) -> None:
        self._options = options
        self._limits = options.user_limits
        self._now = now
        self._counters = counters
        #: By connection its address, and its user once that is known.
        self._open: dict[ConnectionT, str] = {}
        self._users: dict[ConnectionT, str] = {}
        #: By user. One that has no connection any more is kept while what it has sent matters.
        self._allowances: dict[str, Allowance] = {}
        #: Such users, the one that left first in front.
        self._left: dict[str, None] = {}
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

    def claim_user(self, connection: ConnectionT, user: str) -> Allowance:
        """Count a connection for its user, and return what that user may send.

        :raises TooManyConnections: the user has as many as one may have.
        """
        limit = self._limits.of(user)
        if 0 <= limit.connections <= self._by_user[user]:
            raise TooManyConnections(
                f"too many connections of user '{user}': {limit.connections} is the limit"
            )
        self._by_user[user] += 1
        self._users[connection] = user
        self._left.pop(user, None)
        allowance = self._allowances.get(user)
        if allowance is None:
            allowance = self._allowances[user] = Allowance(user, limit, self._now)
        return allowance

    def change_limits(self, limits: UserLimits) -> None:
        """Have these limits from now on; connections that are open stay."""
        self._limits = limits
        for allowance in self._allowances.values():
            allowance.change(limits.of(allowance.user))

    def gone(self, connection: ConnectionT) -> None:
        """That connection is closed."""
        _decrease(self._by_address, self._open.pop(connection, None))
        user = self._users.pop(connection, "")
        _decrease(self._by_user, user)
        if user and user not in self._by_user:
            self._left[user] = None
        self._forget()
        self._counters.connections = len(self._open)
        if not self._open:
            emptied, self._emptied = self._emptied, []
            for each in emptied:
                each.callback(None)

    def _forget(self) -> None:
        """Forget those who have left and paid, two at a time."""
        for user in [*islice(self._left, 2)]:
            del self._left[user]
            if self._allowances[user].is_fresh:
                del self._allowances[user]
            else:
                # Behind those that may have paid by now.
                self._left[user] = None

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
