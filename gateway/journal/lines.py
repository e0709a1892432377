"""Lines of the journal, made of what writers hand over.

Owns how fields become JSON, what is folded on the way, and the notation of numbers that mostly rise
by one. Runs on the journal's thread; knows nothing of files.

Beside the names of :data:`~gateway.journal.schema.FIELDS` a writer may use one more: ``numbers``,
with ``prefix``, is what becomes ``runs``. A value that is callable is called, so that what takes
long is done here. ``sizes`` and ``timestamps`` that are equal become the field of the
singular.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.journal.schema import VERSION
from gateway.journal.tracer import TRACES

#: Fields with a value for each message, and the field where all have the same one.
_FOLDED: Final = (("sizes", "size"), ("timestamps", "timestamp"))

#: What escapes all but ASCII writes any text, also one that is not Unicode.
_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


#: The number that an id ends in, as it is written in one way only, and that a reader's 64 bits can
#: hold.
_DIGITS: Final = 18
_ENDS: Final = re.compile(rf"(?<![0-9])(?:0|[1-9][0-9]{{0,{_DIGITS - 1}}})\Z")


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """Return the numbers, in their order, as arithmetic progressions.

    Each is ``[first, count, step]``; that of a single number has the step 1.

    >>> runs_of([4, 5, 6, 20, 10, 15, 20])
    [[4, 3, 1], [20, 2, -10], [15, 2, 5]]
    """
    count = len(numbers)
    if not count:
        return []
    first = numbers[0]
    if numbers[-1] - first == count - 1 and (
        isinstance(numbers, range) or numbers == list(range(first, first + count))
    ):
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


def numbered(ids: Sequence[str]) -> tuple[str, list[int]] | None:
    """Return what all of the ids begin with, and the numbers they end in.

    Nearly all brokers number what a connection sends. None where they are not like that.

    >>> numbered(["ID:host-4000-1:2:1:9", "ID:host-4000-1:2:1:10"])
    ('ID:host-4000-1:2:1:', [9, 10])
    """
    found = _ENDS.search(ids[0]) if ids else None
    if found is None or not found.start():
        return None
    prefix = ids[0][: found.start()]
    begin = len(prefix)
    ends = [one[begin:] for one in ids if one.startswith(prefix)]
    digits = "".join(ends)
    if len(ends) < len(ids) or not all(ends) or not (digits.isascii() and digits.isdecimal()):
        return None
    numbers = [int(end) for end in ends]
    # One with a leading zero, or too many digits, would not come back.
    return (
        (prefix, numbers)
        if max(map(len, ends)) <= _DIGITS and list(map(str, numbers)) == ends
        else None
    )


class Lines:
    """Makes the lines of one run.

    :param run: as :func:`~gateway.journal.schema.run_name` gives it.
    :param instance: the gateway's.
    """

    def __init__(self, run: str, instance: str) -> None:
        self._head: Final = f'{{"v":{VERSION},"run":{_encode(run)},"line":'
        self._instance: Final = f',"instance":{_encode(instance)}'

    def line(self, number: int, fields: Mapping[str, object]) -> bytes:
        """One line, with its line feed.

        :param fields: ``time`` among them.
        :raises TypeError, ValueError: JSON has no such value. What a callable raises goes
            through.
        """
        said: dict[str, object] = {}
        for name, value in fields.items():
            if name == TRACES:
                continue
            if callable(value):
                value = value()
            if name == "numbers":
                if value is not None:
                    said["runs"] = runs_of(value)  # type: ignore[arg-type]
            elif (
                value is not None and value != "" and value != () and value != [] and name != "time"
            ):
                said[name] = value
        for many, one in _FOLDED:
            values = said.get(many)
            if isinstance(values, list) and values.count(values[0]) == len(values):
                del said[many]
                said[one] = values[0]
        rest = _encode(said)
        return f'{self._head}{number},"time":{fields["time"]}{self._instance}{"," if said else ""}{rest[1:]}\n'.encode(
            "ascii"
        )
