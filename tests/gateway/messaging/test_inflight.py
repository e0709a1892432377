"""The ledger of unsettled deliveries, against a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.inflight import InFlight


def outcome(call: Callable[[Any], object], argument: object) -> object:
    try:
        return call(argument)
    except UnknownDelivery as error:
        return f"unknown: {error.number}"


def of(*deliveries: str) -> InFlight[str]:
    ledger: InFlight[str] = InFlight()
    ledger.add(1, deliveries)
    return ledger


def test_numbers_go_on_when_everything_is_taken_out() -> None:
    ledger = of("a", "b")
    assert ledger.clear() == ["a", "b"]
    assert (len(ledger), ledger.next) == (0, 3)
    ledger.add(ledger.next, ["c"])
    with pytest.raises(UnknownDelivery):
        ledger.through(2)
    assert ledger.through(3) == ["c"]


@pytest.mark.parametrize("wrong", [[1, 4], [2, 2], [0]])
def test_of_numbers_that_are_not_all_in_flight_none_is_taken(wrong: list[int]) -> None:
    ledger = of("a", "b", "c")
    with pytest.raises(UnknownDelivery) as error:
        ledger.take(wrong)
    assert error.value.number == wrong[-1]
    assert ledger.take([3, 1]) == ["c", "a"]
    assert ledger.through(2) == ["b"]


def test_an_early_delivery_that_is_never_settled_does_not_make_the_rest_slow() -> None:
    """The numbers in between are not looked at one by one."""
    ledger = of("first")
    ledger.next = 1_000_000_000
    ledger.add(ledger.next, ["last"])
    assert ledger.up_to(1_000_000_000) == [1, 1_000_000_000]
    assert ledger.through(1_000_000_000) == ["first", "last"]


NUMBERS = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["through", "up to", "pop", "get"]), NUMBERS),
        st.tuples(st.just("take"), st.lists(NUMBERS, max_size=4)),
        st.tuples(st.just("restore"), st.sets(NUMBERS, max_size=4)),
        st.tuples(st.just("clear"), st.none()),
    )
)


class Naive:
    """The same, in the plainest way."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {}

    def __getitem__(self, number: int) -> str:
        if number not in self.open:
            raise UnknownDelivery(number)
        return self.open[number]

    def up_to(self, number: int) -> list[int]:
        return sorted(each for each in self.open if each <= number)

    def pop(self, number: int) -> str:
        return self.take([number])[0]

    def take(self, numbers: list[int]) -> list[str]:
        for index, number in enumerate(numbers):
            if number not in self.open or number in numbers[:index]:
                raise UnknownDelivery(number)
        return [self.open.pop(number) for number in numbers]

    def through(self, number: int) -> list[str]:
        _ = self[number]
        return self.take(self.up_to(number))


@given(STEPS)
def test_it_agrees_with_a_dict(steps: list[tuple[str, object]]) -> None:
    ledger: InFlight[str] = InFlight()
    naive = Naive()
    following = 1
    taken: dict[int, str] = {}
    for step in steps:
        before = dict(naive.open)
        match step:
            case "restore", set(wanted):
                back = [(number, taken.pop(number)) for number in wanted if number in taken]
                ledger.restore(back)
                naive.open.update(back)
            case "clear", _:
                assert ledger.clear() == [naive.open[number] for number in sorted(naive.open)]
                naive.open.clear()
            case "add", int(count):
                made = [f"m{following + each}" for each in range(count)]
                ledger.add(following, made)
                naive.open.update(enumerate(made, following))
                following += count
            case what, argument:
                name = {"up to": "up_to", "get": "__getitem__"}.get(what, what)
                assert outcome(getattr(ledger, name), argument) == outcome(
                    getattr(naive, name), argument
                )
        taken |= {number: one for number, one in before.items() if number not in naive.open}
        assert (len(ledger), ledger.items()) == (len(naive.open), sorted(naive.open.items()))
        assert all((number in ledger) is (number in naive.open) for number in range(following + 1))
        assert ledger.next == following
