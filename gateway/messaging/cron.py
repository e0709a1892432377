"""Cron entries: five fields that say when something recurs.

The fields are minute, hour, day of the month, month and day of the week, each ``*``, a number, a
range ``1-5``, steps ``*/15`` or ``0-30/10``, or several of these with commas between. Days of the
week are 0 to 7, of which 0 and 7 are Sunday; months and days have their English names, too. Where
both days are limited, either suffices, as in cron. Times are those of the machine's time zone.

Where a clock is set forward, a time that the day does not have comes as much later. Where it is set
back, a time that the day has twice comes once, as in cron, unless the hour begins with ``*``: what
comes each hour, or all the time, goes on.

Owns what an entry means.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun")
_LATER_MONTHS: Final = ("jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Name, lowest and highest value, and names of values from the lowest on.
_FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS + _LATER_MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART: Final = re.compile(r"(\*|[0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?(?:/([0-9]{1,2}))?")
#: An entry that matches no day within this many does not recur: 29 February is eight years apart at
#: most.
_MOST_DAYS: Final = 366 * 9
#: By how much a clock is set back at most where summer ends.
_SET_BACK: Final = timedelta(hours=2)
_ENTRIES: Final = 256


class Cron:
    """An entry that was read. Made by :func:`read_cron`."""

    def __init__(self, fields: list[frozenset[int]], either_day: bool, goes_on: bool) -> None:
        self._minutes, self._hours, self._days, self._months, self._weekdays = fields
        self._either_day = either_day
        #: Whether it comes again at times that a day has twice.
        self._goes_on = goes_on

    def after(self, at_ms: int) -> int:
        """The next time behind ``at_ms``, both epoch milliseconds; 0 for never."""
        at = at_ms // 1000
        now = datetime.fromtimestamp(at)
        minute = now.replace(second=0, fold=0)
        found = self._first(minute + timedelta(minutes=1), at_ms, twice=False)
        if self._goes_on and found and (now.fold or _offset(found // 1000) < _offset(at)):
            found = min(found, self._first(minute - _SET_BACK, at_ms, twice=True) or found)
        return found

    def _first(self, moment: datetime, at_ms: int, *, twice: bool) -> int:
        """Return the first time from a moment on that is behind ``at_ms``.

        :param twice: of a time that the day has twice the second counts, else the first.
        """
        last = moment + timedelta(days=_MOST_DAYS)
        while moment < last:
            if moment.month not in self._months or not self._on_day(moment):
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
            elif moment.hour not in self._hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in self._minutes:
                moment += timedelta(minutes=1)
            else:
                found = moment.timestamp()
                if twice:
                    found = max(found, moment.replace(fold=1).timestamp())
                if int(found) * 1000 > at_ms:
                    return int(found) * 1000
                # The clock was set back, so this time of day has been before.
                moment += timedelta(minutes=1)
        return 0

    def _on_day(self, moment: datetime) -> bool:
        day, weekday = moment.day in self._days, moment.isoweekday() % 7 in self._weekdays
        return (day or weekday) if self._either_day else (day and weekday)


def _offset(at: int) -> int:
    """Return by how many seconds the zone is ahead of UTC then."""
    return time.localtime(at).tm_gmtoff


@lru_cache(_ENTRIES)
def read_cron(text: str) -> Cron:
    """Read an entry.

    :raises ValueError: it is no entry, or means no time at all; the text says what is wrong.
    """
    words = text.lower().split()
    if len(words) != len(_FIELDS):
        raise ValueError("five fields are expected: minute, hour, day, month and day of the week")
    fields = [_values(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
    fields[4] = frozenset([day % 7 for day in fields[4]])
    either_day = not words[2].startswith("*") and not words[4].startswith("*")
    cron = Cron(fields, either_day, words[1].startswith("*"))
    if not cron.after(0):
        raise ValueError("there is no such day")
    return cron


def _values(word: str, name: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{name} '{part[:20]}' cannot be read")
        first, last, step = match.groups()
        begin = low if first == "*" else _number(first, name, low, names)
        if last is not None:
            end = _number(last, name, low, names)
        else:
            end = high if first == "*" or step is not None else begin
        if not low <= begin <= end <= high or step == "0" or (first == "*" and last is not None):
            raise ValueError(f"{name} '{part[:20]}' is not within {low}-{high}")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, name: str, low: int, names: tuple[str, ...]) -> int:
    if text.isdigit():
        return int(text)
    if text not in names:
        raise ValueError(f"{name} '{text}' is unknown")
    return low + names.index(text)
