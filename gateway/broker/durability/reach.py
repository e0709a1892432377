"""Holds everything while this process may not answer for the broker.

That is while the database of the store cannot be reached, and while it has not confirmed for too
long that this process owns the broker. Whatever is said meanwhile might be wrong later: nothing is
confirmed, nothing is delivered, and no more is read from clients.

Owns why and since when. How a turn is suspended is :mod:`gateway.reactor.turn`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from gateway.broker.store.interface import Store
from gateway.reactor.turn import Turn


class Reach:
    """Suspends the turn, and lets it go on.

    Takes the store's ``on_reachable`` and ``on_owned`` and the turn's ``on_overdue``.

    :param held: called when the turn has been suspended.
    """

    _log = Logger(namespace="gateway.broker")

    def __init__(self, store: Store, turn: Turn, held: Callable[[], None]) -> None:
        self._turn = turn
        self._held = held
        self._lost = self._overdue = False
        #: Since when everything is held, in epoch milliseconds; 0 while it is not.
        self.since_ms = 0
        #: The same by the clock of timers.
        self._since_timer_ms = 0
        store.on_reachable = self._reachable
        store.on_owned = self._owned
        turn.on_overdue = self._is_overdue

    def _reachable(self, reachable: bool) -> None:
        """The database can be reached, or no longer; the log has the reason."""
        self._lost = not reachable
        if self._lost:
            self._hold("the database cannot be reached")
        else:
            self._go_on()

    def _owned(self, seconds: float) -> None:
        """This process owns the broker for sure for this time."""
        self._turn.answer_for(seconds)
        if self._overdue and seconds > 0:
            self._overdue = False
            self._go_on()

    def _is_overdue(self) -> None:
        """Another process may own the broker by now."""
        self._overdue = True
        self._hold("the database has not confirmed in time that this process still owns the broker")

    def _hold(self, why: str) -> None:
        if self._turn.suspended:
            return
        self._turn.suspend()
        self.since_ms = self._turn.refresh()
        self._since_timer_ms = self._turn.refresh_timer()
        self._log.error(
            "{why}: nothing is confirmed and nothing is delivered until it answers; clients stay connected, and wait",
            why=why,
        )
        self._held()

    def _go_on(self) -> None:
        if self._lost or self._overdue or not self._turn.suspended:
            return
        self._log.info(
            "the database answers again after {seconds:.1f} s: everything goes on where it was",
            seconds=(self._turn.refresh_timer() - self._since_timer_ms) / 1000,
        )
        self.since_ms = 0
        self._turn.resume()
