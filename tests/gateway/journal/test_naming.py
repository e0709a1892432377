"""Ids and numbers as the journal writes them: whoever reads has them back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.journal.lines import numbered, runs_of
from tests.gateway.journal.reading import numbers_of

ENDS = st.one_of(st.integers(0, 10**19).map(str), st.text("0123456789²٣:-x", max_size=4))


@given(st.sampled_from(["ID:", "ID:a-1:", "1", "", "٣"]), st.lists(ENDS, max_size=6))
@example("ID:", ["7", "07"])
@example("ID:", ["7", ""])
def test_ids_that_are_numbers_come_back_and_others_are_none(begin: str, ends: list[str]) -> None:
    ids = [begin + end for end in ends]
    found = numbered(ids)
    if found is not None:
        prefix, numbers = found
        assert prefix
        assert [f"{prefix}{number}" for number in numbers_of(runs_of(numbers))] == ids
        assert max(numbers) < 2**63


@pytest.mark.parametrize(
    "ids",
    [
        ["ID-4f1c2a9d8e7b6a50-9", "ID-4f1c2a9d8e7b6a50-10"],
        ["ID:host-40123-1795343560-1:1:1:1:5"],
        ["ID:a:0", "ID:a:999999999999999999"],
    ],
)
def test_those_of_known_brokers_are_numbers(ids: Sequence[str]) -> None:
    found = numbered(ids)
    assert found is not None
    assert [found[0] + str(number) for number in found[1]] == ids


@pytest.mark.parametrize(
    "ids", [["ID:a:1", "ID:b:2"], ["ID:x"], [""], [], ["12", "13"], ["ID:a:1", "ID:a:01"]]
)
def test_others_are_not(ids: Sequence[str]) -> None:
    assert numbered(ids) is None
