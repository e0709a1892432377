"""What an edit of a message changes, and how the difference is shown."""

from __future__ import annotations

import pytest

from gateway.admin.service.edited import Edit, difference, edit_of, moment_text
from gateway.messaging.destination import Queue
from gateway.messaging.message import BodyType, Headers, Message

NOW_MS = 1_800_000_000_000


def message(expires: int = 0) -> Message:
    headers = Headers(Queue("orders"), body_type=BodyType.TEXT, priority=7, type="order")
    return Message(headers, b"text", expires=expires)


def test_what_is_not_edited_stays() -> None:
    before = message(NOW_MS + 5)
    assert not edit_of({"name": "q", "dry_run": True})
    after = edit_of({"text": "other"}).of(before, NOW_MS)
    assert (after.body, after.expires) == (b"other", NOW_MS + 5)
    assert (after.headers.priority, after.headers.type) == (7, "order")


def test_an_expiry_is_taken_away() -> None:
    before = message(NOW_MS + 5)
    after = edit_of({"expires": "never", "type": "", "priority": "0"}).of(before, NOW_MS)
    assert (after.expires, after.headers.type, after.headers.priority) == (0, None, 0)
    assert {*difference(before, after)} >= {
        "-priority 7",
        "+priority 0",
        "-type order",
        "+no type",
        "-expires 2027-01-15T08:00:00.005Z",
        "+expires never",
    }


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("2099-12-31T23:59:58Z", 4_102_444_798_000),
        ("2099-12-31T23:59:58.5", 4_102_444_798_500),
        ("2100-01-01T01:59:58+02:00", 4_102_444_798_000),
    ],
)
def test_an_expiry_without_a_zone_is_in_utc(given: str, ms: int) -> None:
    assert edit_of({"expires": given}) == Edit(expires=ms)
    assert edit_of({"expires": moment_text(ms)}) == Edit(expires=ms)


def test_an_expiry_beyond_the_calendar_is_shown() -> None:
    assert moment_text((1 << 63) - 1) == "9223372036854775807 ms after 1970"
