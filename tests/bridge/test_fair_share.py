"""A link that works leaves the others their part, and is fast where there are none."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from gateway.reactor.deferreds import FEW, OTHERS, PAUSE, SHORT_S, TURN_S, FairShare
from gateway.reactor.polls import Polls


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


class Polling(Reactor):
    """A reactor that counts what it serves. :param others: the share that clients take."""

    _POLL_IN = 1

    def __init__(self, others: float) -> None:
        super().__init__(0.001)
        self.polls = Polls(self)
        self.share = others

    def advance(self, amount: float) -> None:
        self.polls.served_s += amount * self.share
        super().advance(amount)


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


def test_clients_that_want_much_are_paused_for_by_how_much_they_want() -> None:
    for others, much in ((0.25, 0.0), (0.5, 1 / 3), (1.0, 1.0)):
        reactor = Polling(others)
        share = FairShare(reactor)
        reactor.advance(1.0)
        assert share.wanted
        assert share.at_once(1000) == FEW
        assert share.at_once(2) == 2
        began = reactor.seconds()
        reactor.advance(2 * SHORT_S)
        share.worked_since(began)
        pause = reactor.go_round(Deferred.fromCoroutine(share.give()))
        assert abs(pause - 2 * SHORT_S * PAUSE * much) < 0.0011


def test_clients_that_want_little_cost_the_link_nothing_but_a_round() -> None:
    reactor = Polling(0.1)
    share = FairShare(reactor)
    reactor.advance(1.0)
    assert not share.wanted
    assert share.at_once(1000) == 1000
    _, giving = worked(reactor, 0.01)
    assert reactor.go_round(giving) < 0.0011


def test_the_link_is_fast_again_when_clients_have_gone() -> None:
    reactor = Polling(0.9)
    share = FairShare(reactor)
    reactor.advance(1.0)
    assert share.wanted
    reactor.share = 0.0
    reactor.advance(1.0)
    assert not share.wanted
