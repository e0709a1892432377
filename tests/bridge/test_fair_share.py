"""A link that works leaves the others their part, and is fast where there are none."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from gateway.reactor.deferreds import OTHERS, TURN_S, FairShare


class Reactor(Clock):
    """A reactor whose rounds others fill with so much work each."""

    def __init__(self, others: float) -> None:
        super().__init__()
        self.others = others
        self.rounds = 0

    def callLater(  # type: ignore[override]
        self, when: float, what: Callable[..., object], *args: object, **kwargs: object
    ) -> IDelayedCall:
        self.rounds += 1
        # In the next round at the earliest.
        return super().callLater(max(when, 1e-9), what, *args, **kwargs)

    def go_round(self, until: Deferred[None]) -> float:
        """Until this has fired. :returns: how long that took."""
        began = self.seconds()
        while not until.called:
            self.advance(self.others)
        return float(self.seconds() - began)


def worked(reactor: Reactor, seconds: float) -> tuple[FairShare, Deferred[None]]:
    share = FairShare(reactor)
    began = reactor.seconds()
    reactor.advance(seconds)
    share.worked_since(began)
    return share, Deferred.fromCoroutine(share.give())


def test_alone_it_waits_for_one_round() -> None:
    reactor = Reactor(others=0.00001)
    _, giving = worked(reactor, 0.01)
    assert not giving.called
    reactor.go_round(giving)
    assert reactor.rounds == 1


def test_others_that_want_all_there_is_get_most_of_it() -> None:
    reactor = Reactor(others=0.005)
    _, giving = worked(reactor, 0.01)
    assert OTHERS * 0.01 - 0.001 <= reactor.go_round(giving) < OTHERS * 0.01 + 0.01


def test_it_waits_for_no_more_than_a_moment_whatever_they_do() -> None:
    reactor = Reactor(others=0.1)
    _, giving = worked(reactor, 10.0)
    assert reactor.go_round(giving) < 0.5


def test_little_work_waits_for_nobody_until_it_adds_up() -> None:
    reactor = Reactor(others=0.005)
    share, giving = worked(reactor, TURN_S / 2)
    assert (giving.called, reactor.rounds) == (True, 0)
    began = reactor.seconds()
    reactor.advance(TURN_S)
    share.worked_since(began)
    assert not Deferred.fromCoroutine(share.give()).called
