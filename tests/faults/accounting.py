"""What arrived, compared with what was sent: nothing lost, nothing out of order, nothing twice but
what a fault explains.

Owns the rules. A target that gets each message once has 1, 2, 3 and so on. After a fault a link may
send again what it does not know to have arrived: the sequence steps back, by a batch at most, and
from there goes on number by number as before. Nothing else is allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """What was found.

    :param steps_back: how far back each repetition began: 1 is that the last message came once
        more.
    :param duplicates: messages that came again.
    :param lost: messages that never came, for links that may lose some.
    """

    steps_back: tuple[int, ...]
    duplicates: int
    lost: tuple[int, ...] = ()


def at_least_once(numbers: Sequence[int], sent: int, batch: int, faults: int) -> Account:
    """Messages 1 to ``sent`` have all arrived, in order, and after each fault at most a batch of
    them once more.

    :raises AssertionError: they have not.
    """
    assert set(numbers) == set(range(1, sent + 1)), (
        f"{_some(sorted(set(range(1, sent + 1)) - set(numbers)))} never came; nobody sent {_some(sorted(set(numbers) - set(range(1, sent + 1))))}"
    )
    steps = []
    highest = last = 0
    for place, number in enumerate(numbers):
        if number != last + 1:
            back = highest - number + 1
            assert number <= last, (
                f"{number} stands after {last}: something is missing. {_around(numbers, place)}"
            )
            assert back <= batch, (
                f"{number} stands after {last}, {back} back: more than a batch. {_around(numbers, place)}"
            )
            steps.append(back)
        last = number
        highest = max(highest, number)
    duplicates = len(numbers) - sent
    assert len(steps) <= faults, (
        f"{len(steps)} times something was sent again, by {_some(steps)}, after {faults} faults"
    )
    assert duplicates <= batch * faults, (
        f"{duplicates} duplicates after {faults} faults, with batches of {batch}"
    )
    return Account(tuple(steps), duplicates)


def at_most_once(numbers: Sequence[int], sent: int, batch: int, faults: int) -> Account:
    """Messages arrived in order, none twice, and for each fault at most a batch is missing.

    :raises AssertionError: otherwise.
    """
    for before, after in itertools.pairwise(numbers):
        assert after > before, (
            f"{after} stands after {before}: {'twice' if after in numbers[: numbers.index(before)] else 'not in order'}"
        )
    assert set(numbers) <= set(range(1, sent + 1))
    lost = tuple(sorted(set(range(1, sent + 1)) - set(numbers)))
    assert len(lost) <= batch * faults, (
        f"{len(lost)} are lost after {faults} faults, with batches of {batch}: {_some(lost)}"
    )
    return Account((), 0, lost)


def _around(numbers: Sequence[int], place: int) -> str:
    return f"There: {list(numbers[max(0, place - 30) : place + 30])}"


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown or "none"
