"""How numbers that mostly rise by one are written in a few.

Owns that notation. Knows nothing of what is numbered.
"""

from __future__ import annotations

from collections.abc import Sequence


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """The numbers, in their order, as arithmetic progressions ``[first, count, step]``; that of a single number has the step 1.

    >>> runs_of([4, 5, 6, 20, 10, 15, 20])
    [[4, 3, 1], [20, 2, -10], [15, 2, 5]]
    """
    count = len(numbers)
    if not count:
        return []
    first = numbers[0]
    if numbers[-1] - first == count - 1 and (isinstance(numbers, range) or numbers == list(range(first, first + count))):
        return [[first, count, 1]]
    runs: list[list[int]] = []
    first = last = numbers[0]
    length, step = 1, 0
    for number in numbers[1:]:
        if length == 1:
            length, step = 2, number - last
        elif number - last == step:
            length += 1
        else:
            runs.append([first, length, step])
            first, length = number, 1
        last = number
    runs.append([first, length, step if length > 1 else 1])
    return runs


def numbers_of(runs: Sequence[Sequence[int]]) -> list[int]:
    """What :func:`runs_of` was given."""
    return [first + place * step for first, count, step in runs for place in range(count)]
