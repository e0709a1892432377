"""A window out of whose middle messages are taken, against a list."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.core.waiting.sorted_window import SortedWindow
from gateway.messaging.message import Message
from tests.gateway.broker.core.test_backlog import make


class WindowModel(RuleBasedStateMachine):
    """Runs have at most four messages, so that there are many."""

    def __init__(self) -> None:
        super().__init__()
        self.window = SortedWindow(most=4)
        self.list: list[Message] = []
        self.seq = 0

    def next(self, gap: int) -> Message:
        self.seq += gap
        return make(self.seq)

    @rule(gap=st.integers(1, 3))
    def append(self, gap: int) -> None:
        message = self.next(gap)
        self.window.append(message)
        self.list.append(message)

    @rule(gaps=st.lists(st.integers(1, 3), max_size=30))
    def extend(self, gaps: list[int]) -> None:
        messages = [self.next(gap) for gap in gaps]
        self.window.extend(messages)
        self.list += messages

    @rule(most=st.integers(1, 6))
    def take(self, most: int) -> None:
        for _ in range(most):
            if not self.list:
                with pytest.raises(IndexError):
                    self.window.popleft()
                return
            assert self.window.popleft() is self.list.pop(0)

    @rule(data=st.data())
    def pluck(self, data: st.DataObject) -> None:
        for seq in data.draw(st.lists(st.integers(0, self.seq + 1), max_size=10)):
            found = [message for message in self.list if message.seq == seq]
            self.list = [message for message in self.list if message.seq != seq]
            assert self.window.find(seq) is (found[0] if found else None)
            assert self.window.pluck(seq) is (found[0] if found else None)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.seq + 1))
        assert list(self.window.after(seq)) == [each for each in self.list if each.seq > seq]
        assert self.window.before(seq) == len([each for each in self.list if each.seq < seq])

    @rule()
    def copy(self) -> None:
        self.window = SortedWindow(self.window, most=4)

    @invariant()
    def is_the_list(self) -> None:
        assert (list(self.window), len(self.window)) == (self.list, len(self.list))
        if self.list:
            assert (self.window[0], self.window[-1]) == (self.list[0], self.list[-1])


def test_it_is_a_list_in_order() -> None:
    run_state_machine_as_test(WindowModel, settings=settings(stateful_step_count=40))


def test_runs_do_not_stay_short() -> None:
    window = SortedWindow([make(seq) for seq in range(1, 1_001)], most=10)
    for seq in range(1, 1_001):
        if seq % 10:
            assert window.pluck(seq) is not None
    assert [message.seq for message in window] == list(range(10, 1_001, 10))
    assert len(window._runs) <= 2 * 100 / 5


@pytest.mark.parametrize("most", [2_000, 100_000])
def test_taking_one_out_moves_few_whatever_their_number(most: int) -> None:
    backlog = Backlog(Memory(total=1 << 40, share=1 << 40), True)
    backlog.sort(True)
    backlog.put([make(seq) for seq in range(1, most + 1)])
    ((_, lane),) = backlog.lanes()
    assert isinstance(lane.window, SortedWindow)
    assert max(map(len, lane.window._runs)) <= 256
    middle = most // 2
    assert backlog.size_of(4, middle) == 10
    assert backlog.take_out(4, middle, 0) == (10, 0)
    assert backlog.size_of(4, middle) is None
    assert (backlog.waiting, len(lane.window)) == (most - 1, most - 1)
    assert [message.seq for message in backlog.take(2, -1, 0)[0]] == [1, 2]
