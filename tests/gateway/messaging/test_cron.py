"""Entries of cron, compared with a walk through all minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.cron import read_cron


def after(entry: str, moment: str) -> str:
    at = datetime.fromisoformat(moment).timestamp()
    found = read_cron(entry).after(int(at * 1000))
    return datetime.fromtimestamp(found / 1000).isoformat(" ", "minutes")


@pytest.mark.parametrize(
    ("entry", "moment", "following"),
    [
        ("* * * * *", "2026-01-31 23:59:59", "2026-02-01 00:00"),
        ("*/15 * * * *", "2026-03-02 10:45:00", "2026-03-02 11:00"),
        ("0 9 * * mon-fri", "2026-03-06 09:00:00", "2026-03-09 09:00"),
        ("0 9 * * 7", "2026-03-06 09:00:00", "2026-03-08 09:00"),
        ("30 4 1,15 * 5", "2026-03-02 00:00:00", "2026-03-06 04:30"),
        ("0 20 * 4,5 0", "2011-03-07 09:15:30", "2011-04-03 20:00"),
        ("50 20 * * 5", "2011-03-07 09:15:30", "2011-03-11 20:50"),
        ("0 0 29 feb *", "2026-01-01 00:00:00", "2028-02-29 00:00"),
        ("10-20/5 8-10 * * *", "2026-01-01 10:20:00", "2026-01-02 08:10"),
    ],
)
def test_the_following_time(entry: str, moment: str, following: str) -> None:
    assert after(entry, moment) == following


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "0 0 31 4 *",
        "* * * foo *",
        "*-5 * * * *",
    ],
)
def test_what_is_no_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"expected|cannot|not within|unknown|no such day"):
        read_cron(entry)


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    every = frozenset(range(low, high + 1))
    numbers = st.frozensets(st.integers(low, high), min_size=1, max_size=3)
    steps = st.integers(1, 20)
    return st.one_of(
        st.just(("*", every)),
        numbers.map(lambda values: (",".join(map(str, values)), values)),
        steps.map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step)))),
    )


@given(
    field(0, 59),
    field(0, 23),
    field(1, 31),
    field(0, 6),
    st.datetimes(datetime(2001, 1, 1), datetime(2035, 1, 1)),
)
def test_it_is_the_next_minute_that_matches(
    minutes: tuple[str, frozenset[int]],
    hours: tuple[str, frozenset[int]],
    days: tuple[str, frozenset[int]],
    weekdays: tuple[str, frozenset[int]],
    moment: datetime,
) -> None:
    entry = f"{minutes[0]} {hours[0]} {days[0]} * {weekdays[0]}"
    at_ms = int(moment.timestamp()) * 1000
    found = read_cron(entry).after(at_ms)
    walked = moment.replace(second=0, microsecond=0)
    while True:
        walked += timedelta(minutes=1)
        on = (walked.day in days[1], walked.isoweekday() % 7 in weekdays[1])
        either = not days[0].startswith("*") and not weekdays[0].startswith("*")
        if not (any(on) if either else all(on)):
            walked = walked.replace(hour=23, minute=59)
        elif walked.hour in hours[1] and walked.minute in minutes[1]:
            break
    assert found == int(walked.timestamp()) * 1000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Berlin: in 2026 summer is from 03-29 to 10-25, at 01:00Z."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def series(entry: str, moment: str, count: int) -> list[str]:
    """Return that many times behind a moment, both in UTC."""
    cron, at_ms = read_cron(entry), int(datetime.fromisoformat(moment).timestamp()) * 1000
    found = []
    for _ in range(count):
        at_ms = cron.after(at_ms)
        found.append(f"{datetime.fromtimestamp(at_ms / 1000, UTC):%d %H:%M}")
    return found


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("entry", "moment", "following"),
    [
        # The clock is set back from 03:00 to 02:00. What comes all the time goes on,
        ("*/20 * * * *", "2026-10-25T00:30Z", "25 00:40, 25 01:00, 25 01:20, 25 01:40, 25 02:00"),
        ("0 * * * *", "2026-10-24T23:00Z", "25 00:00, 25 01:00, 25 02:00"),
        # and goes on from within the second of the two hours,
        ("*/20 * * * *", "2026-10-25T01:10Z", "25 01:20, 25 01:40, 25 02:00"),
        # and what comes at a time of day comes once.
        ("30 2 * * *", "2026-10-24T12:00Z", "25 00:30, 26 01:30"),
        ("30 2 * * *", "2026-10-25T01:10Z", "26 01:30"),
        # It is set forward from 02:00 to 03:00.
        ("*/20 * * * *", "2026-03-29T00:30Z", "29 00:40, 29 01:00, 29 01:20"),
        ("0 * * * *", "2026-03-29T00:00Z", "29 01:00, 29 02:00"),
        ("30 2 * * *", "2026-03-28T12:00Z", "29 01:30, 30 00:30"),
    ],
)
def test_what_comes_when_the_clock_is_set_for_summer_and_back(
    entry: str, moment: str, following: str
) -> None:
    assert series(entry, moment, following.count(",") + 1) == following.split(", ")
