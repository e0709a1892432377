"""How often and after which pause a message is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy


def test_the_default_is_six_attempts_with_doubled_pauses() -> None:
    policy = RedeliveryPolicy()
    assert [policy.delay(attempts) for attempts in range(1, 7)] == [
        1000,
        2000,
        4000,
        8000,
        16000,
        None,
    ]


def test_no_pause_is_longer_than_a_minute_by_default() -> None:
    policy = RedeliveryPolicy(maximum_redeliveries=-1)
    assert [policy.delay(attempts) for attempts in (6, 7, 8, 1_000_000)] == [
        32000,
        60000,
        60000,
        60000,
    ]


def test_pauses_that_do_not_grow() -> None:
    policy = RedeliveryPolicy(
        use_exponential_back_off=False, initial_redelivery_delay=10, redelivery_delay=70
    )
    assert [policy.delay(attempts) for attempts in (1, 2, 3)] == [10, 70, 70]


@pytest.mark.parametrize(
    ("maximum", "attempts", "dead"),
    [(0, 1, True), (1, 1, False), (1, 2, True), (-1, 10_000, False)],
)
def test_when_a_message_is_dead(maximum: int, attempts: int, dead: bool) -> None:
    assert (RedeliveryPolicy(maximum_redeliveries=maximum).delay(attempts) is None) is dead


def test_a_first_redelivery_at_once_still_grows_from_the_delay() -> None:
    policy = RedeliveryPolicy(
        initial_redelivery_delay=0, redelivery_delay=100, back_off_multiplier=3
    )
    assert [policy.delay(attempts) for attempts in (1, 2, 3)] == [0, 300, 900]


def test_changes_leave_what_they_do_not_name() -> None:
    policy = RedeliveryPolicy(2, 10, 20, False, 3.0, 99)
    assert RedeliveryChanges().over(policy) == policy
    assert RedeliveryChanges(maximum_redeliveries=0).over(policy) == RedeliveryPolicy(
        0, 10, 20, False, 3.0, 99
    )
    assert RedeliveryChanges(-1, 0, 1, True, 1.5, 7).over(policy) == RedeliveryPolicy(
        -1, 0, 1, True, 1.5, 7
    )


@given(
    st.integers(0, 10**6),
    st.floats(1, 1e6),
    st.integers(-1, 10**6),
    st.integers(1, 10**9),
    st.booleans(),
)
def test_pauses_are_bounded_and_never_shrink(
    first: int, factor: float, most: int, attempts: int, exponential: bool
) -> None:
    policy = RedeliveryPolicy(
        maximum_redeliveries=-1,
        initial_redelivery_delay=first,
        redelivery_delay=first,
        use_exponential_back_off=exponential,
        back_off_multiplier=factor,
        maximum_redelivery_delay=most,
    )
    pause, after = policy.delay(attempts), policy.delay(attempts + 1)
    assert pause is not None
    assert after is not None
    assert 0 <= pause <= after
    assert most < 0 or after <= most
