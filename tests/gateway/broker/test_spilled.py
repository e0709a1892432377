"""Which messages are in the store for a subscription's sake: against a dict of them, and how little
of it is kept.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.core.waiting.spilled import Spilled

_TOPICS: Final[tuple[Any, ...]] = ("first", "second")

_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.sampled_from(_TOPICS), st.lists(st.integers(1, 60), unique=True)
        ),
        st.tuples(
            st.just("run"),
            st.sampled_from(_TOPICS),
            st.tuples(st.integers(1, 60), st.integers(0, 20)),
        ),
        st.tuples(st.just("discard"), st.none(), st.lists(st.integers(1, 80), unique=True)),
        st.tuples(
            st.just("discard run"), st.none(), st.tuples(st.integers(1, 60), st.integers(0, 20))
        ),
    )
)


@given(_steps)
def test_it_is_a_dict_in_order(steps: list[tuple[str, Any, Any]]) -> None:
    spilled, known = Spilled[Any](), dict[int, Any]()
    for what, topic, given_seqs in steps:
        seqs = (
            sorted(given_seqs)
            if isinstance(given_seqs, list)
            else list(range(given_seqs[0], sum(given_seqs)))
        )
        if topic is not None:
            new = [seq for seq in seqs if seq not in known]
            spilled.add_all(new, topic)
            known |= dict.fromkeys(new, topic)
        elif what == "discard":
            for seq in seqs:
                assert spilled.discard(seq) is (known.pop(seq, None) is not None)
        else:
            assert list(spilled.discard_all(seqs)) == [seq for seq in seqs if seq not in known]
            known = {seq: of for seq, of in known.items() if seq not in seqs}
        assert (list(spilled), len(spilled)) == (sorted(known), len(known))
        for seq, of in known.items():
            assert spilled.topic(seq) is of
        for seq in set(range(90)) - known.keys():
            with pytest.raises(KeyError):
                spilled.topic(seq)


def test_what_leaves_in_the_order_of_its_coming_leaves_nothing() -> None:
    """Every other seq, which makes a run of each."""
    spilled = Spilled[Any]()
    seqs = range(1, 20_000, 2)
    spilled.add_all(seqs, _TOPICS[0])
    kept = []
    for seq in seqs:
        assert spilled.discard(seq)
        kept.append(len(spilled._firsts))
    assert kept[len(seqs) // 2] <= len(seqs) // 2 + 1
    assert kept[-1] == 0
