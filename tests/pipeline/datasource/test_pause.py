"""How long a task waits for more before it acknowledges: brokers of every kind, in a time of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, cycle, repeat
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pipeline.datasource.pause import SHORTEST, Pause

LONGEST = 1.0
seconds = st.integers(1, 300).map(lambda milliseconds: milliseconds / 1000)
soon = st.floats(0.0001, 0.9 * SHORTEST)


def pieces_of(arrivals: list[float], acknowledging: Iterator[float]) -> int:
    """How many pieces a task makes of messages that come at these times, whatever it does. :param
    acknowledging: seconds that each piece takes to be done with.
    """
    pause, now, pieces, left = Pause(LONGEST), 0.0, 0, list(arrivals)
    while left:
        pause.acknowledged(now)
        pieces += 1
        received = 0
        while left and (not received or left[0] <= now + pause.seconds):
            now = max(now, left[0])
            here = [at for at in left if at <= now]
            del left[: len(here)]
            received += len(here)
            pause.came(now, len(here))
        now += pause.seconds + next(acknowledging)
    return pieces


def pauses_of(window: int, answers: list[float], number: int) -> list[float]:
    """How long a task waits in vain, piece by piece, for a broker that sends so many messages, and
    others when those are acknowledged: after so many seconds each.
    """
    pause, now, found = Pause(LONGEST), 0.0, []
    for _, answer in zip(range(number), cycle(answers), strict=False):
        pause.acknowledged(now)
        now += answer
        pause.came(now, window)
        found.append(pause.seconds)
        now += pause.seconds
    return found


@given(st.integers(30, 450).map(lambda milliseconds: milliseconds / 1000), seconds)
def test_messages_that_come_singly_are_few_pieces(interval: float, acknowledging: float) -> None:
    """However it happens that one comes just as another is acknowledged."""
    assert pieces_of([number * interval for number in range(60)], repeat(acknowledging)) <= 12


@given(
    st.integers(0, 2**32),
    st.integers(30, 400).map(lambda milliseconds: milliseconds / 1000),
    seconds,
)
def test_nor_are_they_many_where_nothing_is_regular(
    seed: int, interval: float, acknowledging: float
) -> None:
    """By chance a broker may seem to wait; that is not for ever."""
    random = Random(seed)
    arrivals = list(accumulate(interval * random.uniform(0.6, 1.4) for _ in range(300)))
    takes = (acknowledging * random.uniform(0.6, 1.4) for _ in repeat(None))
    assert pieces_of(arrivals, takes) <= 250


@given(st.integers(1, 1000), st.lists(soon, min_size=1, max_size=5))
def test_a_broker_that_waits_for_acknowledgements_is_not_waited_for(
    window: int, answers: list[float]
) -> None:
    found = pauses_of(window, answers, 20)
    assert sum(pause > SHORTEST for pause in found) <= 1
    assert max(found) <= 4 * SHORTEST


@given(st.integers(1, 1000), soon, seconds)
def test_nor_is_one_that_is_slow_every_other_time(window: int, quick: float, slow: float) -> None:
    found = pauses_of(window, [quick, slow], 40)
    assert max(found[4:]) <= 2 * SHORTEST


@given(
    st.lists(st.tuples(seconds, st.integers(1, 3)), min_size=1),
    st.sampled_from([0.1, 0.75, LONGEST]),
)
def test_no_pause_is_longer_than_it_may_be(pieces: list[tuple[float, int]], longest: float) -> None:
    pause, now = Pause(longest), 0.0
    for after, messages in pieces:
        pause.acknowledged(now)
        now += after
        pause.came(now, messages)
        assert SHORTEST <= pause.seconds <= longest


@given(st.integers(100, 1000), st.lists(seconds, min_size=1, max_size=5))
def test_nor_is_one_that_sends_many_however_slow_it_is(window: int, answers: list[float]) -> None:
    assert set(pauses_of(window, answers, 20)) == {SHORTEST}
