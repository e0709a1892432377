"""The memory budget: exact counts, a line that is fair to small and large, and the end of who holds
most.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.instance.memory.budget import Account, MemoryBudget, State

_MIB = 1024 * 1024
_CONNECTIONS = (State.RECEIVING, State.TRANSACTIONS, State.OUTPUT)


class Holder:
    """A connection as the budget sees it."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.account: Account = budget.account(self)
        self.granted = 0
        self.reasons: list[str] = []
        self.is_ending = False
        self.unacknowledged = 0

    def memory_granted(self) -> None:
        self.granted += 1

    def end_for_memory(self, reason: str) -> bool:
        if self.is_ending:
            return False
        self.is_ending = True
        self.reasons.append(reason)
        self.account.close()
        return True


def test_what_is_reserved_is_counted_and_given_back() -> None:
    budget = MemoryBudget(Clock(), 100 * _MIB)
    holder = Holder(budget)
    assert holder.account.reserve(State.RECEIVING, 10 * _MIB)
    assert budget.used(State.RECEIVING) == 10 * _MIB
    holder.account.hold(State.RECEIVING, 3)
    assert budget.used(State.RECEIVING) == 3
    holder.account.close()
    holder.account.close()
    assert budget.used(State.RECEIVING) == 0
    assert holder.account.hold(State.OUTPUT, 5), "who is gone holds nothing"
    assert budget.used(State.OUTPUT) == 0


def test_a_reservation_without_room_waits_until_others_give_back(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB)
    first, second = Holder(budget), Holder(budget)
    assert first.account.reserve(State.RECEIVING, 90 * _MIB)
    assert not second.account.reserve(State.RECEIVING, 20 * _MIB)
    assert (budget.used(State.RECEIVING), budget.usage().waiting) == (90 * _MIB, 1)
    clock.advance(1)
    assert budget.usage().waiting == 1
    first.account.hold(State.RECEIVING, 0)
    clock.advance(0)
    assert (second.granted, budget.used(State.RECEIVING)) == (1, 20 * _MIB)
    assert budget.usage().waiting == 0
    assert clock.getDelayedCalls() == [], "nobody waits, and nobody looks"


def test_each_state_has_a_part_of_its_own() -> None:
    budget = MemoryBudget(Clock(), 100 * _MIB, {State.TRANSACTIONS: 50})
    transactions, receiving = Holder(budget), Holder(budget)
    assert not transactions.account.hold(State.TRANSACTIONS, 60 * _MIB), (
        "it is counted, and more than there is"
    )
    assert budget.used(State.TRANSACTIONS) == 60 * _MIB
    assert receiving.account.reserve(State.RECEIVING, 30 * _MIB), "another state is not short"
    assert not Holder(budget).account.reserve(State.RECEIVING, 30 * _MIB), (
        "all of them together are"
    )


def test_small_reservations_pass_large_ones(clock: Clock) -> None:
    budget = MemoryBudget(clock, 64 * _MIB)
    assert Holder(budget).account.reserve(State.RECEIVING, 60 * _MIB)
    large, small = Holder(budget), Holder(budget)
    assert not large.account.reserve(State.RECEIVING, 2 * _MIB), "the last part is for small ones"
    assert small.account.reserve(State.RECEIVING, 100_000)


def test_large_ones_do_not_pass_each_other(clock: Clock) -> None:
    budget = MemoryBudget(clock, 160 * _MIB)
    holder, first, second = Holder(budget), Holder(budget), Holder(budget)
    assert holder.account.reserve(State.RECEIVING, 100 * _MIB)
    assert not first.account.reserve(State.RECEIVING, 90 * _MIB)
    assert not second.account.reserve(State.RECEIVING, 10 * _MIB)
    clock.advance(1)
    assert (first.granted, second.granted) == (0, 0)
    holder.account.close()
    clock.advance(0)
    assert (first.granted, second.granted) == (1, 1)


def test_who_holds_most_ends_when_the_line_stands_still(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB, patience=5)
    small, big, waits = Holder(budget), Holder(budget), Holder(budget)
    assert small.account.reserve(State.RECEIVING, 30 * _MIB)
    assert big.account.reserve(State.RECEIVING, 50 * _MIB)
    assert not waits.account.reserve(State.RECEIVING, 40 * _MIB)
    clock.pump([0.1] * 45)
    assert not big.reasons
    clock.pump([0.1] * 10)
    [reason] = big.reasons
    assert f"receiving {50 * _MIB}" in reason
    assert not small.reasons
    assert (waits.granted, budget.usage().ended) == (1, 1)


def test_the_one_that_holds_most_of_what_is_short_ends(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB, {State.TRANSACTIONS: 40}, patience=1)
    reader, transactions = Holder(budget), Holder(budget)
    assert reader.account.reserve(State.RECEIVING, 50 * _MIB)
    assert not transactions.account.hold(State.TRANSACTIONS, 41 * _MIB)
    clock.pump([0.1] * 15)
    assert not reader.reasons
    assert transactions.reasons


def test_who_is_ending_already_is_passed_over(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB, patience=1)
    ending, other, waits = Holder(budget), Holder(budget), Holder(budget)
    assert ending.account.reserve(State.RECEIVING, 60 * _MIB)
    assert other.account.reserve(State.RECEIVING, 30 * _MIB)
    ending.is_ending = True
    assert not waits.account.reserve(State.RECEIVING, 20 * _MIB)
    clock.pump([0.1] * 15)
    assert other.reasons
    assert waits.granted


def test_while_the_line_moves_nobody_ends(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB, patience=1)
    holders = [Holder(budget) for _ in range(20)]
    for holder in holders:
        holder.account.reserve(State.RECEIVING, 80 * _MIB)
    for holder in holders:
        clock.pump([0.1] * 8)
        holder.account.close()
        clock.advance(0)
    assert not any(holder.reasons for holder in holders)


def test_messages_that_wait_count_too() -> None:
    budget = MemoryBudget(Clock(), 100 * _MIB)
    budget.waiting_messages = lambda: 80 * _MIB
    assert not Holder(budget).account.reserve(State.RECEIVING, 30 * _MIB)
    assert budget.usage().used[State.WAITING] == 80 * _MIB


def test_what_the_broker_counts_is_part_of_the_states_and_of_what_is_left() -> None:
    budget = MemoryBudget(Clock(), 100 * _MIB, {State.UNACKNOWLEDGED: 50})
    budget.unacknowledged_messages = lambda: 30 * _MIB
    budget.transactions_inside = lambda: 5 * _MIB
    holder = Holder(budget)
    assert holder.account.hold(State.TRANSACTIONS, 2 * _MIB)
    assert budget.used(State.TRANSACTIONS) == 7 * _MIB
    assert budget.left(State.UNACKNOWLEDGED) == 20 * _MIB
    assert holder.account.hold(State.OUTPUT, 50 * _MIB)
    assert budget.left(State.UNACKNOWLEDGED) == 13 * _MIB, "all states together are bounded, too"
    assert not holder.account.hold(State.OUTPUT, 64 * _MIB)


def test_who_has_most_unacknowledged_is_ended_when_that_alone_is_too_much(clock: Clock) -> None:
    """Nobody waits in the line: consumers were given messages, one each, and that is more than
    there is.
    """
    budget = MemoryBudget(clock, 100 * _MIB, patience=10)
    large, larger = Holder(budget), Holder(budget)
    large.unacknowledged, larger.unacknowledged = 60 * _MIB, 70 * _MIB
    budget.unacknowledged_messages = lambda: sum(
        each.unacknowledged for each in (large, larger) if not each.is_ending
    )
    budget.press()
    clock.pump([1] * 9)
    assert not larger.reasons
    clock.pump([1] * 2)
    assert f"unacknowledged {70 * _MIB}" in larger.reasons[0]
    clock.pump([1] * 20)
    assert not large.reasons, "what is left fits"
    assert clock.getDelayedCalls() == []


def test_nobody_is_ended_while_what_is_not_acknowledged_becomes_less(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB, patience=10)
    holder = Holder(budget)
    holder.unacknowledged = 130 * _MIB
    budget.unacknowledged_messages = lambda: holder.unacknowledged
    budget.press()
    for _ in range(6):
        clock.pump([1] * 8)
        holder.unacknowledged -= 5 * _MIB
    assert not holder.reasons
    holder.unacknowledged = 99 * _MIB
    clock.pump([1] * 20)
    assert not holder.reasons
    assert clock.getDelayedCalls() == []


def test_who_leaves_the_line_gets_nothing(clock: Clock) -> None:
    budget = MemoryBudget(clock, 100 * _MIB)
    first, second = Holder(budget), Holder(budget)
    first.account.reserve(State.RECEIVING, 80 * _MIB)
    second.account.reserve(State.RECEIVING, 80 * _MIB)
    second.account.close()
    first.account.close()
    clock.advance(1)
    assert not second.granted
    assert all(budget.used(state) == 0 for state in _CONNECTIONS)


_STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["hold", "reserve", "close", "time"]),
        st.sampled_from(_CONNECTIONS),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(_STEPS)
def test_the_sums_are_those_of_the_accounts_whatever_happens(
    steps: list[tuple[int, str, State, int]],
) -> None:
    clock = Clock()
    budget = MemoryBudget(clock, 100 * _MIB, {State.OUTPUT: 30}, patience=1)
    holders = [Holder(budget) for _ in range(5)]
    for place, what, state, size in steps:
        holder = holders[place]
        held = holder.account.held[state]
        if what == "hold":
            holder.account.hold(state, size * _MIB)
        elif what == "reserve" and size * _MIB > held:
            before = sum(budget.used(each) for each in _CONNECTIONS)
            if holder.account.reserve(state, size * _MIB) and not holder.is_ending:
                assert before + size * _MIB - held <= budget.total
        elif what == "close":
            holder.is_ending = True
            holder.account.close()
        else:
            clock.advance(0.5)
        for each in _CONNECTIONS:
            assert budget.used(each) == sum(one.account.held[each] for one in holders)
    for holder in holders:
        holder.account.close()
    clock.advance(1)
    assert all(budget.used(each) == 0 for each in _CONNECTIONS)
    assert clock.getDelayedCalls() == []
