"""Delivery numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.providers.jms.ledger import Delivery, Ledger
from gateway.messaging.destination import Queue
from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.message import Headers, Message

MESSAGE = Message(Headers(Queue("q")))


def deliveries(*keys: int) -> list[Delivery]:
    return [Delivery(key, MESSAGE, 1) for key in keys]


def keys(taken: list[Delivery]) -> list[int]:
    return [delivery.key for delivery in taken]


def test_numbers_go_on_when_everything_is_taken_out() -> None:
    ledger = Ledger()
    assert ledger.add(deliveries(7, 8)) == 1
    assert keys(ledger.clear()) == [7, 8]
    assert ledger.add(deliveries(9)) == ledger.next - 1 == 3
    with pytest.raises(UnknownDelivery):
        ledger.through(2)


def test_of_numbers_that_are_not_all_outstanding_none_is_taken() -> None:
    ledger = Ledger()
    ledger.add(deliveries(10, 20, 30))
    for wrong in ([1, 4], [2, 2], [0]):
        with pytest.raises(UnknownDelivery) as error:
            ledger.take(wrong)
        assert error.value.number == wrong[-1]
    assert keys(ledger.take([3, 1])) == [30, 10]
    assert keys(ledger.through(2)) == [20]


@given(
    st.lists(
        st.one_of(
            st.integers(1, 5), st.tuples(st.sampled_from(["through", "take"]), st.integers(1, 40))
        )
    )
)
def test_it_is_a_list_of_what_is_outstanding(steps: list[int | tuple[str, int]]) -> None:
    ledger, model, made = Ledger(), list[int](), 0
    for step in steps:
        if isinstance(step, int):
            assert ledger.add(deliveries(*range(made + 1, made + step + 1))) == made + 1
            model += range(made + 1, made + step + 1)
            made += step
            continue
        what, number = step
        if number not in model:
            with pytest.raises(UnknownDelivery):
                ledger.through(number) if what == "through" else ledger.take([number])
            continue
        expected = [one for one in model if one <= number] if what == "through" else [number]
        assert (
            keys(ledger.through(number) if what == "through" else ledger.take([number])) == expected
        )
        model = [one for one in model if one not in expected]
    assert keys(ledger.clear()) == model
