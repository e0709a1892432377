"""Both ledgers, against a list of what is outstanding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.core.consumers.ledger import CumulativeLedger, Ledger
from gateway.messaging.destination import Queue
from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Headers, Message

HEADERS = Headers(Queue("q"))
LEDGERS = [CumulativeLedger, InFlight]


class Naive:
    """Outstanding deliveries, with no thought of speed."""

    def __init__(self) -> None:
        self.open: dict[int, Message] = {}

    def through(self, number: int) -> list[Message]:
        if number not in self.open:
            raise UnknownDelivery(number)
        return self.take(self.up_to(number))

    def take(self, numbers: list[int]) -> list[Message]:
        for place, number in enumerate(numbers):
            if number not in self.open or number in numbers[:place]:
                raise UnknownDelivery(number)
        return [self.open.pop(number) for number in numbers]

    def up_to(self, number: int) -> list[int]:
        return [one for one in sorted(self.open) if one <= number]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("through"), st.integers(-1, 30)),
        st.tuples(st.just("take"), st.lists(st.integers(-1, 30), max_size=4)),
        st.tuples(st.just("restore"), st.integers(0, 5)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=40,
)


def outcome(call: Callable[[Any], list[Any]], argument: object) -> list[Any] | int:
    """What a call gives, or the number it refuses."""
    try:
        return call(argument)
    except UnknownDelivery as refused:
        return refused.number


@given(kind=st.sampled_from(LEDGERS), steps=STEPS)
def test_ledgers_agree_with_a_list(
    kind: type[CumulativeLedger] | type[InFlight[Message]], steps: list[tuple[str, object]]
) -> None:
    ledger: Ledger = kind()
    naive = Naive()
    following = 1
    # Taken, and restorable until everything outstanding is void.
    taken: list[tuple[int, Message]] = []
    for what, argument in steps:
        if what == "add":
            assert isinstance(argument, int)
            messages = [Message(HEADERS, seq=following + index) for index in range(argument)]
            ledger.add(following, messages)
            naive.open.update(enumerate(messages, following))
            following += argument
        elif what == "through":
            before = dict(naive.open)
            assert outcome(ledger.up_to, argument) == outcome(naive.up_to, argument)
            assert outcome(ledger.through, argument) == outcome(naive.through, argument)
            taken += [
                (number, message) for number, message in before.items() if number not in naive.open
            ]
        elif what == "take":
            before = dict(naive.open)
            assert outcome(ledger.take, argument) == outcome(naive.take, argument)
            taken += [
                (number, message) for number, message in before.items() if number not in naive.open
            ]
        elif what == "restore":
            assert isinstance(argument, int)
            back, taken = taken[:argument], taken[argument:]
            ledger.restore(back)
            naive.open.update(back)
        else:
            assert ledger.clear() == [naive.open[number] for number in sorted(naive.open)]
            naive.open.clear()
            taken.clear()
        assert len(ledger) == len(naive.open)
    assert ledger.clear() == [naive.open[number] for number in sorted(naive.open)]
    assert len(ledger) == 0


@pytest.mark.parametrize("kind", LEDGERS)
def test_a_refused_acknowledgement_changes_nothing(
    kind: type[CumulativeLedger] | type[InFlight[Message]],
) -> None:
    ledger: Ledger = kind()
    messages = [Message(HEADERS, seq=number) for number in range(1, 5)]
    ledger.add(1, messages)
    for numbers, refused in (([2, 9], 9), ([3, 3], 3), ([0], 0), ([5], 5)):
        with pytest.raises(UnknownDelivery) as caught:
            ledger.take(numbers)
        assert caught.value.number == refused
    with pytest.raises(UnknownDelivery):
        ledger.through(5)
    assert ledger.take([]) == []
    assert ledger.clear() == messages
