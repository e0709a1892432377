"""When messages expire that are in the store only: against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.core.waiting.expiries import Expiries

_entries = st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(1, 1 << 62))


@given(st.lists(st.one_of(_entries, st.integers(0, 45), st.sets(st.integers(0, 9)))))
def test_the_earliest_comes_first(steps: list[tuple[int, int, int] | int | set[int]]) -> None:
    """Entries are added, a number takes out what has expired by then, and a set of priorities is
    what stays.
    """
    expiries = Expiries()
    known: list[tuple[int, int, int]] = []
    for step in steps:
        if isinstance(step, tuple):
            expiries.add(*step)
            known.append(step)
        elif isinstance(step, int):
            taken = []
            while (found := expiries.take(step)) is not None:
                taken.append(found)
            assert [entry[:2] for entry in taken] == sorted(
                entry[:2] for entry in known if entry[0] <= step
            )
            assert sorted(taken) == sorted(entry for entry in known if entry[0] <= step)
            known = [entry for entry in known if entry[0] > step]
        else:
            priorities = step
            expiries.keep(lambda priority, seq, stay=priorities: priority in stay)  # type: ignore[misc]
            known = [entry for entry in known if entry[1] in priorities]
        assert len(expiries) == len(known)


def test_any_time_can_be_named() -> None:
    expiries = Expiries()
    expiries.add((1 << 63) - 1, 9, 7)
    expiries.add(-5, 0, 8)
    assert expiries.take(1) == (1, 0, 8)
    assert expiries.take((1 << 60) - 2) is None
    assert expiries.take((1 << 60) - 1) == ((1 << 60) - 1, 9, 7)
