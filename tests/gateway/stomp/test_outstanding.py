"""The places of deliveries in a connection, against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message
from gateway.stomp.session.outstanding import DeliveryOrder, OrderedOutstanding

_MESSAGE = Message(Headers(Queue("q")), b"")

#: A run for one of three subscriptions, or what is done with one of the deliveries in flight.
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.sampled_from(["settle", "lend", "through"]), st.integers(0, 99), st.just(0)),
        st.tuples(st.sampled_from(["restore", "clear"]), st.integers(0, 2), st.just(0)),
    ),
    max_size=120,
)


@given(_STEPS)
def test_places_are_those_of_a_list_of_all_deliveries(
    steps: list[tuple[str, int, int]],
) -> None:
    order = DeliveryOrder()
    every = [OrderedOutstanding(order) for _ in range(3)]
    #: What was delivered, in order, and what of it is in flight or lent to a transaction.
    made: list[tuple[int, int]] = []
    flying: list[tuple[int, int]] = []
    lent: list[tuple[int, int, int]] = []
    for what, which, count in steps:
        if what == "deliver":
            ledger = every[which]
            first = ledger.next
            ledger.add(first, [_MESSAGE] * count)
            made += [(which, number) for number in range(first, first + count)]
            flying += made[-count:]
        elif what == "clear":
            every[which].clear()
            flying = [each for each in flying if each[0] != which]
            lent = [each for each in lent if each[0] != which]
        elif what == "restore":
            for of, number, place in lent:
                every[of].restore_at(place, number, _MESSAGE)
                flying.append((of, number))
            lent = []
        elif flying:
            flying.sort(key=made.index)
            of, number = chosen = flying[which % len(flying)]
            place = every[of].place_of(number)
            assert place == made.index(chosen) + 1
            before = [each for each in flying if made.index(each) < place]
            found = [(at, one) for at in range(3) for one in every[at].before(place)]
            assert sorted(found) == sorted(before)
            for at, one in before if what == "through" else [chosen]:
                if what == "lend":
                    lent.append((at, one, every[at].place_of(one)))
                every[at].pop(one)
                flying.remove((at, one))


def test_runs_of_what_is_settled_are_forgotten() -> None:
    order = DeliveryOrder()
    one, other = OrderedOutstanding(order), OrderedOutstanding(order)
    for _ in range(1000):
        for ledger in (one, other):
            ledger.add(ledger.next, [_MESSAGE])
        one.pop(one.next - 1)
        other.pop(other.next - 1)
    assert len(one._places) < 100
