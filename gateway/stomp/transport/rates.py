"""What one connection waits for because its user has rates.

Owns the counts of what the connection sends and gets, and the calls for the ends of the waits. The rates
themselves are :mod:`gateway.stomp.user_limits`'; how reading and delivering pause is for the
connection and its session to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.reactor.turn import Turn
from gateway.stomp.counters import Counters
from gateway.stomp.session.subscription import Hold
from gateway.stomp.session.subscriptions import Subscriptions
from gateway.stomp.user_limits import ANY, Allowance


class ConnectionRates:
    """The waits of one connection; none before its user is known.

    :ivar allowance: of its user, shared with its other connections.
    :ivar came: octets that came and are not counted.
    """

    __slots__ = ("_clock", "_counters", "_deliver", "_read", "_turn", "allowance", "came")

    def __init__(self, clock: IReactorTime, turn: Turn, counters: Counters) -> None:
        self._clock: Final = clock
        self._turn: Final = turn
        self._counters: Final = counters
        self._read: IDelayedCall | None = None
        self._deliver: IDelayedCall | None = None
        self.allowance: Allowance = ANY
        self.came = 0

    def claimed(self, allowance: Allowance, subscriptions: Subscriptions) -> None:
        """The user is known: what comes from now on is its own."""
        self.allowance, self.came = allowance, 0
        subscriptions.bound(allowance.delivered.most)

    def changed(self, subscriptions: Subscriptions) -> None:
        """The limits of the user are others now."""
        subscriptions.bound(self.allowance.delivered.most)
        if self._deliver is not None:
            self._deliver.cancel()
            self._deliver_on(subscriptions)

    def received(self, messages: int) -> float:
        """Count what came; return for how many seconds to wait.

        :param messages: how many came, in octets that are counted already.
        """
        octets, self.came = self.came, 0
        return self.allowance.sent.spend(messages, octets)

    def read_later(self, wait: float, read_on: Callable[[], None]) -> None:
        """Have reading go on after that many seconds."""
        self._counters.rate_waits += 1
        self._read = self._clock.callLater(wait, read_on)

    def written(self, octets: int, subscriptions: Subscriptions) -> None:
        """Count what is written; deliver no more while it is not paid for.

        For a user that has such a rate.
        """
        wait = self.allowance.delivered.spend(subscriptions.take_written(), octets)
        if wait and self._deliver is None:
            self._counters.delivery_waits += 1
            subscriptions.hold(Hold.RATE)
            self._deliver = self._clock.callLater(wait, self._deliver_on, subscriptions)

    def end(self) -> None:
        """The connection is gone."""
        calls, self._read, self._deliver = (self._read, self._deliver), None, None
        for call in calls:
            if call is not None and call.active():
                call.cancel()

    def _deliver_on(self, subscriptions: Subscriptions) -> None:
        # Other connections of the user may have got something meanwhile.
        wait = self.allowance.delivered.wait()
        self._deliver = None
        if wait:
            self._deliver = self._clock.callLater(wait, self._deliver_on, subscriptions)
        else:
            with self._turn:
                subscriptions.free(Hold.RATE)
