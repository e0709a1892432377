"""The accounts find what they are there to find."""

from __future__ import annotations

import pytest

from tests.faults.accounting import Account, at_least_once, at_most_once


def test_each_once() -> None:
    assert at_least_once([1, 2, 3], 3, 1, 0) == Account((), 0)


def test_the_last_one_again() -> None:
    assert at_least_once([1, 2, 2, 3], 3, 1, 1) == Account((1,), 1)


def test_part_of_a_batch_and_then_all_of_it() -> None:
    assert at_least_once([1, 2, 3, 4, 2, 3, 4, 5], 5, 4, 1) == Account((3,), 3)


@pytest.mark.parametrize(
    ("numbers", "sent", "batch", "faults"),
    [
        ([1, 3], 3, 5, 5),  # lost
        ([1, 2, 3, 4], 3, 5, 5),  # nobody sent it
        ([1, 3, 2], 3, 5, 5),  # out of order
        ([1, 2, 4, 3, 4], 4, 5, 5),  # a gap that was filled late
        ([1, 2, 3, 1, 2, 3], 3, 2, 5),  # further back than a batch
        ([1, 1, 2, 2, 3], 3, 1, 1),  # more than the faults explain
        ([1, 2, 3, 1, 3], 3, 3, 5),  # not all of what came again
    ],
)
def test_what_must_not_be(numbers: list[int], sent: int, batch: int, faults: int) -> None:
    with pytest.raises(AssertionError):
        at_least_once(numbers, sent, batch, faults)


def test_some_lost() -> None:
    assert at_most_once([1, 4], 4, 2, 1) == Account((), 0, (2, 3))


@pytest.mark.parametrize(
    ("numbers", "sent", "batch", "faults"),
    [([1, 2, 2, 3], 3, 5, 5), ([2, 1], 2, 5, 5), ([1, 4], 4, 1, 1), ([1, 5], 4, 9, 9)],
)
def test_what_must_not_be_at_most_once(
    numbers: list[int], sent: int, batch: int, faults: int
) -> None:
    with pytest.raises(AssertionError):
        at_most_once(numbers, sent, batch, faults)
