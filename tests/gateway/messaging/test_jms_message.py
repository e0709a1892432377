"""The message as a transformer's author sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.jms_message import JMSMessage, MessageFormatInvalid, MessageNotWriteable
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import (
    Byte,
    Char,
    Float,
    Int,
    MalformedValues,
    Value,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
)


def a_message(body_type: BodyType = BodyType.TEXT, body: bytes = b"hello") -> Message:
    headers = Headers(
        Queue("q"),
        body_type=body_type,
        persistent=False,
        priority=7,
        reply_to=Topic("r"),
        correlation_id="c",
        type="t",
        properties={"n": Int(1)},
        extras=(("content-type", "text/plain"),),
    )
    message = Message(headers, body, expires=3, timestamp=2, message_id="ID-1", seq=9)
    message.user = "guest"
    return message


def test_a_view_shows_the_message() -> None:
    view = JMSMessage.of(a_message(), read_only=True)
    assert view.read_only
    assert (view.destination, view.persistent, view.priority, view.expires) == (
        Queue("q"),
        False,
        7,
        3,
    )
    assert (view.timestamp, view.message_id, view.user) == (2, "ID-1", "guest")
    assert (view.reply_to, view.correlation_id, view.type) == (Topic("r"), "c", "t")
    assert dict(view.properties) == {"n": 1}
    assert type(view.properties["n"]) is Int
    assert view.extras == (("content-type", "text/plain"),)
    assert (view.body_type, view.text) == (BodyType.TEXT, "hello")


def test_a_new_message_knows_nothing_of_the_bridge() -> None:
    new = JMSMessage(BodyType.MESSAGE)
    shown = (
        new.destination,
        new.persistent,
        new.priority,
        new.expires,
        new.timestamp,
        new.message_id,
        new.user,
    )
    assert shown == (None,) * 7
    assert not new.read_only


CHANGES: list[Callable[[JMSMessage], object]] = [
    lambda message: setattr(message, "reply_to", None),
    lambda message: setattr(message, "correlation_id", "x"),
    lambda message: setattr(message, "type", None),
    lambda message: setattr(message, "extras", ()),
    lambda message: message.properties.update(a=1),
    lambda message: message.properties.clear(),
    lambda message: message.properties.pop("n"),
]
BODY_CHANGES: list[tuple[BodyType, bytes, Callable[[JMSMessage], object]]] = [
    (BodyType.TEXT, b"", lambda message: setattr(message, "text", "x")),
    (BodyType.BYTES, b"", lambda message: setattr(message, "octets", b"x")),
    (BodyType.OBJECT, b"", lambda message: setattr(message, "octets", b"x")),
    (BodyType.MAP, encode_map({"a": 1}), lambda message: message.entries.update(a=2)),
    (BodyType.MAP, encode_map({"a": 1}), lambda message: message.entries.pop("a")),
    (BodyType.STREAM, encode_stream([1]), lambda message: message.items.append(2)),
    (BodyType.STREAM, encode_stream([1]), lambda message: message.items.pop()),
    (BodyType.STREAM, encode_stream([1]), lambda message: message.items.__setitem__(0, 5)),
    (
        BodyType.STREAM,
        encode_stream([1]),
        lambda message: message.items.__setitem__(slice(None), []),
    ),
]


@pytest.mark.parametrize(
    ("body_type", "body", "change"),
    [*[(BodyType.TEXT, b"", change) for change in CHANGES], *BODY_CHANGES],
)
def test_a_read_only_message_refuses_every_change_and_its_copy_takes_it(
    body_type: BodyType, body: bytes, change: Callable[[JMSMessage], object]
) -> None:
    message = a_message(body_type, body)
    before = repr(message), message.body
    view = JMSMessage.of(message, read_only=True)
    with pytest.raises(MessageNotWriteable, match=r"copy\(\)"):
        change(view)
    assert view.to_message(message) is message

    copy = view.copy()
    assert not copy.read_only
    change(copy)
    changed = copy.to_message(message)
    assert changed is not message
    assert (changed.headers, changed.body) != (message.headers, message.body)
    # Neither the message nor the view of it has seen the change.
    assert (repr(message), message.body) == before
    assert view.to_message(message) is message


def test_an_unchanged_message_is_given_back_itself() -> None:
    message = a_message()
    view = JMSMessage.of(message, read_only=False)
    assert (view.text, view.properties["n"]) == ("hello", 1)
    assert view.to_message(message) is message
    assert view.copy().to_message(message) is message


def test_what_the_bridge_decides_comes_from_the_original() -> None:
    original = a_message()
    new = JMSMessage(BodyType.MAP)
    new.entries["x"] = Byte(1)
    new.properties["p"] = "v"
    made = new.to_message(original)
    assert made.headers == Headers(
        Queue("q"), body_type=BodyType.MAP, persistent=False, priority=7, properties={"p": "v"}
    )
    assert (made.expires, made.timestamp, made.message_id, made.user) == (3, 2, "ID-1", "guest")
    assert (made.seq, made.size, made.stored, decode_map(made.body)) == (0, 0, 0, {"x": 1})


def test_all_bodies_can_be_written_and_read() -> None:
    original = a_message()
    text = JMSMessage(BodyType.TEXT)
    assert text.text == ""
    text.text = "Grüße"
    assert text.to_message(original).body == "Grüße".encode()
    text.text = None
    null = text.to_message(original)
    assert (text.text, text.null_text, null.body, null.headers.null_text) == ("", True, b"", True)
    view = JMSMessage.of(null, read_only=False)
    view.properties["p"] = "x"
    assert view.copy().to_message(original).headers.null_text
    view.text = ""
    assert not view.to_message(original).headers.null_text

    octets = JMSMessage(BodyType.BYTES)
    octets.octets = bytearray(b"\x00\x01")
    assert (octets.octets, octets.to_message(original).body) == (b"\x00\x01", b"\x00\x01")

    stream = JMSMessage(BodyType.STREAM)
    stream.items.extend([Char("x"), None, b"y", Float(0.5)])
    stream.items.insert(0, "first")
    stream.items[1:2] = [True, False]
    del stream.items[0]
    back = decode_stream(stream.to_message(original).body)
    assert back == [True, False, None, b"y", 0.5] == list(stream.items)
    assert stream.items == back
    assert stream.items == JMSMessage.of(stream.to_message(original), read_only=True).items
    assert stream.items[1:] == [False, None, b"y", 0.5]

    mapped = JMSMessage(BodyType.MAP)
    assert mapped.to_message(original).body == encode_map({})
    mapped.entries["content-type"] = Char("c")
    mapped.entries["bytes"] = b"b"
    del mapped.entries["bytes"]
    assert decode_map(mapped.to_message(original).body) == {"content-type": "c"}
    assert JMSMessage(BodyType.MESSAGE).to_message(original).body == b""
    assert JMSMessage(BodyType.STREAM).to_message(original).body == encode_stream([])


def test_a_copy_has_a_body_of_its_own() -> None:
    one = JMSMessage(BodyType.MAP)
    one.entries["a"] = 1
    other = one.copy()
    other.entries["a"] = 2
    other.properties["p"] = 1
    assert (dict(one.entries), dict(one.properties)) == ({"a": 1}, {})
    assert dict(other.entries) == {"a": 2}


@pytest.mark.parametrize("body_type", BodyType)
def test_a_body_of_another_type_is_refused(body_type: BodyType) -> None:
    message = JMSMessage(body_type)
    accessors: dict[str, tuple[BodyType, ...]] = {
        "text": (BodyType.TEXT,),
        "octets": (BodyType.BYTES, BodyType.OBJECT),
        "entries": (BodyType.MAP,),
        "items": (BodyType.STREAM,),
    }
    for name, types in accessors.items():
        if body_type in types:
            getattr(message, name)
        else:
            with pytest.raises(MessageFormatInvalid, match=f"of type {body_type.name}, not"):
                getattr(message, name)


@pytest.mark.parametrize("name", ["content-type", "", "1a", "NOT", "like"])
def test_a_name_that_is_no_property_name_is_refused(name: str) -> None:
    with pytest.raises(MessageFormatInvalid, match="not the name of a JMS property"):
        JMSMessage(BodyType.TEXT).properties[name] = "x"


@pytest.mark.parametrize(
    "value", [b"x", Char("x"), [], 2**63, Byte(128), pytest.param(object(), id="object")], ids=repr
)
def test_a_value_that_is_none_of_a_property_is_refused(value: Value) -> None:
    message = JMSMessage(BodyType.TEXT)
    with pytest.raises(MessageFormatInvalid, match="'a'"):
        message.properties["a"] = value
    assert "a" not in message.properties


def test_values_that_no_body_can_have_are_refused() -> None:
    mapped, stream = JMSMessage(BodyType.MAP), JMSMessage(BodyType.STREAM)
    with pytest.raises(MessageFormatInvalid, match="not empty"):
        mapped.entries[""] = 1
    with pytest.raises(MessageFormatInvalid, match="none of the types"):
        mapped.entries["a"] = {}  # type: ignore[assignment]
    with pytest.raises(MessageFormatInvalid, match="range of a Java byte"):
        stream.items.append(Byte(200))


@pytest.mark.parametrize(
    ("body_type", "name", "value", "why"),
    [
        (BodyType.TEXT, "text", 5, "must be a str or None, not int"),
        (BodyType.TEXT, "text", "\ud800", "UTF-8"),
        (BodyType.BYTES, "octets", "x", "must be bytes, not str"),
        (BodyType.TEXT, "type", 5, "JMSType must be a str"),
        (BodyType.TEXT, "correlation_id", b"x", "JMSCorrelationID must be a str"),
        (BodyType.TEXT, "reply_to", "/queue/x", "JMSReplyTo must be a destination"),
        (BodyType.TEXT, "extras", [("a", 1)], "must be strings"),
    ],
)
def test_what_an_attribute_cannot_be_is_refused(
    body_type: BodyType, name: str, value: object, why: str
) -> None:
    message = JMSMessage(body_type)
    with pytest.raises(MessageFormatInvalid, match=why):
        setattr(message, name, value)


def test_a_damaged_body_is_refused_when_it_is_read() -> None:
    with pytest.raises(MessageFormatInvalid, match="not UTF-8"):
        _ = JMSMessage.of(a_message(body=b"\xff"), read_only=True).text
    with pytest.raises(MalformedValues):
        _ = JMSMessage.of(a_message(BodyType.MAP, b"x"), read_only=True).entries
    with pytest.raises(MalformedValues):
        _ = JMSMessage.of(a_message(BodyType.STREAM, b"x"), read_only=True).items
    # Nobody asked for the body, so it goes on as it is.
    damaged = a_message(BodyType.MAP, b"x")
    view = JMSMessage.of(damaged, read_only=False)
    view.type = "y"
    assert view.to_message(damaged).body == b"x"
