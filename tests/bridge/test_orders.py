"""What an operator said last, and what follows from it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.python.failure import Failure

from bridge.orders import Orders, OrdersNotKept, StandingOrders, after


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        (["pause a"], {"a": "PAUSED"}),
        (["pause a", "resume a"], {}),
        (["pause a", "start a"], {}),
        (["pause a", "stop a", "pause b"], {"a": "STOPPED", "b": "PAUSED"}),
        # To start a bridge starts all its links, and to resume it resumes those that are paused.
        (["pause a", "stop b", "pause"], {"a": "PAUSED", "b": "STOPPED", "": "PAUSED"}),
        (["pause a", "stop b", "pause", "resume"], {"b": "STOPPED"}),
        (["pause a", "stop"], {"": "STOPPED"}),
        (["pause a", "stop b", "stop", "start"], {}),
    ],
)
def test_what_stands(said: list[str], stands: Mapping[str, str]) -> None:
    orders: Orders = {}
    for each in said:
        operation, _, link = each.partition(" ")
        orders = after(orders, operation, link)
    assert orders == stands


class Kept:
    """A place for orders that can fail."""

    def __init__(self) -> None:
        self.orders: dict[str, Orders] = {}
        self.fails = False

    def read(self, bridge: str) -> Deferred[Orders]:
        return self._done(self.orders.get(bridge, {}))

    def write(self, bridge: str, orders: Orders) -> Deferred[None]:
        if not self.fails:
            self.orders[bridge] = orders
        return self._done(None)

    def _done(self, result: Any) -> Deferred[Any]:
        return fail(OrdersNotKept("the disk is gone")) if self.fails else succeed(result)


def result(done: Coroutine[Any, Any, Any]) -> Any:
    found: list[Any] = []
    ensureDeferred(done).addBoth(found.append)
    [one] = found
    if isinstance(one, Failure):
        one.raiseException()
    return one


OPERATIONS = st.tuples(
    st.sampled_from(["start", "stop", "pause", "resume"]), st.sampled_from(["", "a", "b"])
)


@given(st.lists(OPERATIONS))
def test_the_next_process_has_what_was_said(said: list[tuple[str, str]]) -> None:
    kept = Kept()
    orders = StandingOrders(kept)
    expected: Orders = {}
    for operation, link in said:
        result(orders.note("one", operation, link))
        expected = after(expected, operation, link)
        assert result(orders.of("one")) == expected
    assert result(StandingOrders(kept).of("one")) == expected
    assert result(StandingOrders(kept).of("other")) == {}


def test_what_cannot_be_kept_is_told_and_not_believed() -> None:
    kept = Kept()
    orders = StandingOrders(kept)
    result(orders.note("one", "pause", "a"))
    kept.fails = True
    with pytest.raises(OrdersNotKept, match="the disk is gone"):
        result(orders.note("one", "stop", "b"))
    with pytest.raises(OrdersNotKept):
        result(orders.of("one"))
    kept.fails = False
    assert result(orders.of("one")) == {"a": "PAUSED"}
