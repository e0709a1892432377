"""Answers are given in the order in which they were asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.completions import Completion, Completions
from gateway.messaging.errors import MessagingError, ProviderUnavailable

GONE = ProviderUnavailable("gone")
REFUSED = ProviderUnavailable("refused")


class Asked:
    """A line, and what it has answered, in order."""

    def __init__(self) -> None:
        self.line = Completions()
        self.answers: list[tuple[int, MessagingError | None]] = []
        self.completions: list[Completion] = []

    def ask(self) -> Completion:
        number = len(self.completions)
        self.completions.append(self.line.ask(lambda error: self.answers.append((number, error))))
        return self.completions[-1]


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_whatever_comes_first(order: list[int], failed: set[int]) -> None:
    asked = Asked()
    completions = [asked.ask() for _ in order]
    outcomes = [REFUSED if number in failed else None for number in range(6)]
    for come, number in enumerate(order):
        asked.line.finish(completions[number], outcomes[number])
        given_so_far = len(asked.answers)
        assert set(range(given_so_far)) <= set(order[: come + 1])
        assert given_so_far == 6 or given_so_far not in order[: come + 1]
        assert len(asked.line) == 6 - given_so_far
    assert asked.answers == list(enumerate(outcomes))


def test_settling_calls_nothing_before_release() -> None:
    asked = Asked()
    first, second = asked.ask(), asked.ask()
    asked.line.settle(second, REFUSED)
    asked.line.settle(first)
    assert asked.answers == []
    asked.line.release()
    assert asked.answers == [(0, None), (1, REFUSED)]


def test_an_answer_may_ask_and_finish_others() -> None:
    asked = Asked()
    last: list[Completion] = []

    def done(error: MessagingError | None) -> None:
        asked.line.finish(second)
        last.append(asked.ask())

    first = asked.line.ask(done)
    second = asked.ask()
    asked.line.finish(first)
    assert asked.answers == [(0, None)]
    asked.line.finish(last[0])
    assert asked.answers == [(0, None), (1, None)]


def test_when_nothing_more_will_come_all_are_told_and_those_that_came_of_their_own_outcome() -> (
    None
):
    asked = Asked()
    asked.ask()
    asked.line.settle(asked.ask())
    asked.line.settle(asked.ask(), REFUSED)
    asked.line.fail_all(GONE)
    assert asked.answers == [(0, GONE), (1, None), (2, REFUSED)]
    asked.line.finish(asked.completions[0])
    assert len(asked.answers) == 3


def test_abandoning_gives_what_is_ready_and_drops_the_rest() -> None:
    asked = Asked()
    asked.ask()
    asked.line.settle(asked.ask())
    asked.line.abandon()
    assert (asked.answers, len(asked.line)) == ([(1, None)], 0)
    asked.line.settle(asked.ask())
    asked.line.clear()
    asked.line.release()
    assert len(asked.answers) == 1
