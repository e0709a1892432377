"""Losses, duplicates and order are counted exactly: against a slow count that is obviously
right.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tally import Outcome, Reader, Tally
from benchmarks.wire import SPAN


def numbered(producer: int, *counts: int) -> list[int]:
    return [producer * SPAN + count for count in counts]


def test_everything_once_and_in_order() -> None:
    tally, reader = Tally(2), Reader(2)
    tally.add(reader, numbered(0, *range(100)))
    tally.add(reader, numbered(1, *range(50)))
    tally.add(reader, numbered(0, *range(100, 130)))
    assert tally.distinct == 180
    assert tally.outcome([130, 50]) == Outcome()


def test_lost_messages_are_those_never_seen() -> None:
    tally, reader = Tally(1), Reader(1)
    tally.add(reader, numbered(0, 0, 1, 2, 5, 6))
    assert tally.outcome([10]) == Outcome(lost=5)


def test_a_run_that_comes_twice_is_duplicated_whole() -> None:
    tally, reader = Tally(1), Reader(1)
    tally.add(reader, numbered(0, *range(100)))
    tally.add(reader, numbered(0, *range(40, 120)))
    assert tally.distinct == 120
    assert tally.outcome([120]) == Outcome(duplicated=60)


def test_a_duplicate_at_another_reader_of_the_same_queue_counts() -> None:
    tally = Tally(1)
    tally.add(Reader(1), numbered(0, 0, 1, 2))
    tally.add(Reader(1), numbered(0, 2, 3))
    assert tally.outcome([4]) == Outcome(duplicated=1)


def test_order_is_each_readers_own() -> None:
    tally, first, second = Tally(1), Reader(1), Reader(1)
    tally.add(first, numbered(0, 0, 2, 4))
    tally.add(second, numbered(0, 1, 3, 5))
    assert tally.outcome([6]) == Outcome()
    tally.add(second, numbered(0, 8, 7, 6))
    assert tally.outcome([9]) == Outcome(disordered=2)


def test_producers_are_ordered_apart() -> None:
    tally, reader = Tally(2), Reader(2)
    tally.add(reader, [*numbered(0, 0, 1), *numbered(1, 0), *numbered(0, 2), *numbered(1, 1)])
    assert tally.outcome([3, 2]) == Outcome()


def test_what_nobody_sent_is_unexpected() -> None:
    tally, reader = Tally(1), Reader(1)
    tally.add(reader, [*numbered(0, 0, 1, 2), *numbered(1, 0), SPAN - 1])
    assert tally.outcome([2]) == Outcome(unexpected=3)


def test_as_many_counts_as_producers_are_wanted() -> None:
    with pytest.raises(ValueError, match="2 producers"):
        Tally(2).outcome([1])


chunks = st.lists(
    st.tuples(
        st.integers(0, 2),  # the reader
        st.one_of(
            st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30))),
            st.builds(
                lambda p, start, count: [(p, start + i) for i in range(count)],
                st.integers(0, 1),
                st.integers(0, 30),
                st.integers(1, 20),
            ),
        ),
    )
)


@given(chunks, st.lists(st.integers(0, 50), min_size=2, max_size=2))
def test_it_counts_like_a_slow_count(
    received: list[tuple[int, list[tuple[int, int]]]], sent: list[int]
) -> None:
    tally = Tally(2)
    readers = [Reader(2) for _ in range(3)]
    arrivals: Counter[tuple[int, int]] = Counter()
    highest: dict[tuple[int, int], int] = {}
    disordered = 0
    for reader, chunk in received:
        tally.add(readers[reader], [producer * SPAN + count for producer, count in chunk])
        for producer, count in chunk:
            if (producer, count) not in arrivals:
                disordered += count < highest.get((reader, producer), -1)
                highest[reader, producer] = max(count, highest.get((reader, producer), -1))
            arrivals[producer, count] += 1
    due = {(producer, count) for producer in (0, 1) for count in range(sent[producer])}
    expected = Outcome(
        lost=len(due - arrivals.keys()),
        duplicated=sum(arrivals.values()) - len(arrivals),
        disordered=disordered,
        unexpected=len(arrivals.keys() - due),
    )
    assert tally.outcome(sent) == expected
    assert tally.distinct == len(arrivals)
