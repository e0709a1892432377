"""Messages and their headers."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.message import (
    DEFAULT_PRIORITY,
    MEMO_STORED,
    BodyType,
    DeliveryMode,
    Headers,
    Message,
    VariedHeaders,
)
from gateway.messaging.values import Value

CHANGES: dict[str, object] = {
    "destination": Topic("q"),
    "body_type": BodyType.BYTES,
    "persistent": False,
    "priority": 9,
    "reply_to": Queue("r"),
    "correlation_id": "c",
    "type": "t",
    "properties": {"a": "b"},
    "extras": (("x-foo", "y"),),
}


def test_the_defaults_are_those_of_jms() -> None:
    headers = Headers(Queue("q"))
    assert (headers.persistent, headers.priority, headers.body_type) == (
        True,
        DEFAULT_PRIORITY,
        BodyType.TEXT,
    )
    assert (headers.reply_to, headers.correlation_id, headers.type, headers.extras) == (
        None,
        None,
        None,
        (),
    )
    assert headers.properties == {}
    message = Message(headers)
    assert (message.body, message.expires, message.timestamp, message.message_id, message.seq) == (
        b"",
        0,
        0,
        "",
        0,
    )
    assert (message.user, message.size, message.stored) == ("", 0, 0)


def test_the_numbers_are_those_of_java_and_of_the_envelope() -> None:
    assert (DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT) == (1, 2)
    assert [kind.name for kind in sorted(BodyType)] == [
        "MESSAGE",
        "TEXT",
        "BYTES",
        "MAP",
        "STREAM",
        "OBJECT",
    ]
    assert sorted(BodyType) == list(range(6))


@pytest.mark.parametrize(("name", "value"), CHANGES.items(), ids=CHANGES)
def test_a_copy_differs_in_what_was_changed_and_in_nothing_else(name: str, value: object) -> None:
    headers = Headers(Queue("q"))
    headers.memo[MEMO_STORED] = b"as it was encoded"
    changed = headers.replace(**{name: value})
    assert getattr(changed, name) == value
    assert all(
        getattr(changed, other) == getattr(headers, other) for other in CHANGES if other != name
    )
    assert changed != headers
    # What was encoded from the old headers is not true of the new.
    assert changed.memo == {}


def test_a_copy_of_everything_is_equal() -> None:
    headers = Headers(**CHANGES)  # type: ignore[arg-type]
    assert headers.replace() == headers
    assert headers.replace() is not headers


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="no colour, size"):
        Headers(Queue("q")).replace(size=1, colour=2, priority=3)


def test_equality_looks_at_the_fields_and_not_at_what_was_remembered() -> None:
    one, other = (
        Headers(Queue("q"), properties={"a": "b"}),
        Headers(Queue("q"), properties={"a": "b"}),
    )
    one.memo[MEMO_STORED] = b"x"
    assert one == other
    assert one != "headers"
    with pytest.raises(TypeError):
        hash(one)


def test_two_headers_never_share_their_properties_or_memo_by_default() -> None:
    one, other = Headers(Queue("q")), Headers(Queue("q"))
    assert one.properties is not other.properties
    assert one.memo is not other.memo


def test_lines_are_read_alike_on_several_threads() -> None:
    made: list[VariedHeaders] = []
    overtaken: list[bool] = []

    class Slow(dict[str, Value]):
        """Properties whose first reader is overtaken by one on another thread."""

        def __iter__(self) -> Iterator[str]:
            if made and not overtaken:
                overtaken.append(True)
                thread = Thread(target=lambda: made[0].properties)
                thread.start()
                thread.join()
            return super().__iter__()

        def keys(self) -> Any:
            return [*self]

    repeated = Headers(Queue("q"), properties=Slow(a="b"), extras=(("x-a", "b"),))
    headers = VariedHeaders(repeated, b"c:d\nx-c:d\ncorrelation-id:e\n", 3, 50)
    made.append(headers)
    assert headers.properties == {"a": "b", "c": "d"}
    assert overtaken
    assert headers.extras == (("x-a", "b"), ("x-c", "d"))
    assert headers.correlation_id == "e"


def test_the_text_of_a_text_message() -> None:
    assert Message(Headers(Queue("q")), "Grüße".encode()).text == "Grüße"


def test_what_a_log_shows() -> None:
    message = Message(
        Headers(Queue("orders"), properties={"a": "b"}),
        b"secret",
        message_id="ID-1",
        seq=5,
        expires=9,
    )
    assert "secret" not in repr(message)
    for part in ("'ID-1'", "seq=5", "queue:orders", "'a': 'b'", "6 octets", "expires=9"):
        assert part in repr(message)
