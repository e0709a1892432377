"""Heads and envelopes: what the store and the dead message queue keep of a message."""

from __future__ import annotations

from zlib import crc32

import pytest

from gateway.messaging import envelope
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.envelope import (
    EnvelopeError,
    decode,
    decode_head,
    decode_row,
    encode,
    encode_head,
    encode_row,
)
from gateway.messaging.message import BodyType, Headers, Message, VariedHeaders
from gateway.messaging.values import Char, Int, encode_map


def a_message() -> Message:
    headers = Headers(
        Queue("orders"),
        body_type=BodyType.TEXT,
        persistent=False,
        priority=7,
        reply_to=Destination(Kind.TOPIC, "t1", True),
        correlation_id="c",
        type="T",
        properties={"n": Int(1), "s": "ü"},
        extras=(("content-type", "text/plain"), ("x-foo", "")),
    )
    message = Message(headers, b"body", expires=2, timestamp=1, message_id="ID-1")
    message.user = "guest"
    return message


#: The head of that message, as the documentation has it.
HEAD = bytes.fromhex(
    "01 0000000000000001 0000000000000002 0004 0005 49442d31 6775657374"  # version, times, lengths, ID-1, guest
    "01 01 07"  # TextMessage, NON_PERSISTENT, priority 7
    "01 00000008 00 00 6f7264657273"  # queue orders
    "02 00000004 01 01 7431"  # temporary topic t1
    "03 00000001 63"
    "04 00000001 54"
    "05 0000001a 00000002 00000001 6e 04 00000001 00000001 73 08 00000002 c3bc"
    "06 0000002f 00000002 0000000c 636f6e74656e742d74797065 0000000a 746578742f706c61696e 00000005 782d666f6f 00000000"
)


def equal(one: Message, other: Message) -> bool:
    fields = ("headers", "body", "expires", "timestamp", "message_id", "user")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def test_the_head_has_the_octets_of_the_documentation() -> None:
    assert encode_head(a_message()) == HEAD
    assert equal(decode_head(HEAD, b"body"), a_message())


def varied(lines: bytes) -> Message:
    """A message whose headers are ``lines`` and those of :data:`ROW`."""
    repeated = Headers(Queue("q"), properties={"a": "b"})
    count = lines.count(b"\n")
    headers = VariedHeaders(repeated, lines, count, repeated.octets + len(lines) - 2 * count)
    return Message(headers, b"body", expires=2, timestamp=1, message_id="m")


#: The head of version 2 of that message with the lines ``c:1`` and ``x-t:``, as the documentation
#: has it.
ROW = bytes.fromhex(
    "02 0000000000000001 0000000000000002 0001 0000 00000009 6d"  # version, times, lengths, m
    "63 3a 31 0a 78 2d 74 3a 0a"  # c:1, x-t:
    "01 02 04"  # TextMessage, PERSISTENT, priority 4
    "01 00000003 00 00 71"  # queue q
    "05 0000000f 00000001 00000001 61 08 00000001 62"
)


def test_a_row_has_the_octets_of_the_documentation() -> None:
    message = varied(b"c:1\nx-t:\n")
    assert encode_row(message) == ROW
    back = decode_row(encode_row(message), b"body")
    assert equal(back, message)
    assert back.headers.lines == message.headers.lines
    assert back.headers.properties == {"a": "b", "c": "1"}
    assert back.headers.extras == (("x-t", ""),)


def test_a_row_without_lines_is_a_head_and_such_rows_are_read_as_ever() -> None:
    assert encode_row(a_message()) == HEAD
    assert equal(decode_row(HEAD, b"body"), a_message())


def test_an_envelope_has_all_headers_in_version_1() -> None:
    message = varied(b"correlation-id:o\\c1\nc:\\\\\nx-t:\\n\n")
    assert encode_head(message)[0] == 1
    headers = decode(encode(message)).headers
    assert (headers.lines, headers.repeated, headers.correlation_id) == (b"", None, "o:1")
    assert headers.properties == {"a": "b", "c": "\\"}
    assert headers.extras == (("x-t", "\n"),)


@pytest.mark.parametrize(
    "lines",
    [
        *[b":x\n", b"ab\nc:d:e\n", b"a:b", b"a:b\n\n", b"a:b\r\n", b"a:\0\n", b"\n"],
        *[b"a\\c:b\n", b"a:\\x\n", b"a:\\\n", b"a:\xff\n", b"\xff:a\n"],
    ],
)
def test_a_row_with_damaged_lines_is_refused_when_it_is_decoded(lines: bytes) -> None:
    with pytest.raises(EnvelopeError, match="damaged"):
        decode_row(encode_row(varied(lines)), b"body")


@pytest.mark.parametrize(
    "length",
    # Without its last field it is whole.
    [length for length in range(len(ROW)) if length != len(ROW) - 20],
)
def test_a_row_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(EnvelopeError):
        decode_row(ROW[:length], b"body")


def test_the_envelope_has_the_octets_of_the_documentation() -> None:
    message = Message(Headers(Topic("n"), body_type=BodyType.BYTES), b"\x00\x01", message_id="m")
    head = bytes.fromhex(
        "01 0000000000000000 0000000000000000 0001 0000 6d 02 02 04 01 00000003 01 00 6e"
    )
    rest = len(head).to_bytes(4, "big") + b"\x00\x00\x00\x02" + head + b"\x00\x01"
    start = bytes.fromhex("ab534745 0001")
    checksum = crc32(start + rest).to_bytes(4, "big")
    assert encode(message) == start + checksum + rest
    assert encode(message).hex() == (
        "ab5347450001"
        + checksum.hex()
        + "0000002100000002"
        + "01"
        + "00" * 16
        + "000100006d"
        + "020204"
        + "010000000301006e"
        + "0001"
    )


def test_a_null_text_is_a_field_that_older_readers_skip() -> None:
    message = Message(Headers(Queue("q"), null_text=True), message_id="m")
    head = encode_head(message)
    assert head.endswith(bytes.fromhex("01 00000003 00 00 71 80 00000000"))
    for back in (decode_head(head, b""), decode(encode(message))):
        assert back.headers.null_text
        assert equal(back, message)
    assert not decode_head(encode_head(Message(Headers(Queue("q")))), b"").headers.null_text
    assert message.headers.replace(destination=Queue("other")).null_text
    assert message.headers != Headers(Queue("q"))
    assert not message.headers.replace(body_type=BodyType.BYTES).null_text


def test_everything_comes_back() -> None:
    message = a_message()
    assert equal(decode(encode(message)), message)
    assert equal(decode_head(encode_head(message), message.body), message)
    types = [type(value) for value in decode(encode(message)).headers.properties.values()]
    assert types == [Int, str]


@pytest.mark.parametrize("body_type", BodyType)
@pytest.mark.parametrize(
    "destination",
    [
        Queue("q"),
        Topic("t"),
        Destination(Kind.QUEUE, "tq", True),
        Destination(Kind.TOPIC, "tt", True),
        Queue(""),
    ],
    ids=str,
)
def test_all_types_and_destinations_come_back(
    body_type: BodyType, destination: Destination
) -> None:
    headers = Headers(
        destination, body_type=body_type, reply_to=destination, correlation_id="", type=""
    )
    message = Message(headers, encode_map({"c": Char("x")}), expires=-1, timestamp=2**63 - 1)
    back = decode(encode(message))
    assert equal(back, message)
    assert back.headers.correlation_id == ""
    assert type(back.headers.body_type) is BodyType


def test_a_message_without_optional_fields_has_none_of_them() -> None:
    back = decode(encode(Message(Headers(Queue("q")))))
    assert back.headers.reply_to is None
    assert back.headers.correlation_id is None
    assert back.headers.type is None
    assert (dict(back.headers.properties), back.headers.extras, back.user) == ({}, (), "")


def test_half_surrogates_from_java_come_back() -> None:
    headers = Headers(
        Queue("\ud800"),
        correlation_id="\udc00",
        properties={"a": "\ud800"},
        extras=(("\udfff", "x"),),
    )
    assert decode(encode(Message(headers))).headers == headers


def test_headers_are_encoded_once() -> None:
    headers = Headers(Queue("q"), properties={"a": "b"})
    first = encode_head(Message(headers, message_id="1"))
    # What the memo holds is what is used: the proof that nothing is encoded anew.
    (block,) = headers.memo.values()
    assert isinstance(block, bytes)
    headers.memo.update(dict.fromkeys(headers.memo, block[:-1] + b"c"))
    second = encode_head(Message(headers, message_id="2"))
    assert decode_head(first, b"").headers.properties == {"a": "b"}
    assert decode_head(second, b"").headers.properties == {"a": "c"}
    assert decode_head(second, b"").message_id == "2"


def test_messages_with_equal_headers_share_them_when_read() -> None:
    heads = [
        encode_head(
            Message(
                Headers(Queue("shared"), properties={"a": "b"}),
                message_id=f"ID-{index}",
                timestamp=index,
            )
        )
        for index in range(3)
    ]
    messages = [decode_head(head, b"") for head in heads]
    assert messages[0].headers is messages[1].headers is messages[2].headers
    assert [message.message_id for message in messages] == ["ID-0", "ID-1", "ID-2"]
    assert [encode_head(message) for message in messages] == heads


def test_the_headers_remembered_are_bounded() -> None:
    for index in range(envelope._KNOWN_BLOCKS + 10):
        decode_head(encode_head(Message(Headers(Queue(f"bound-{index}")))), b"")
        assert len(envelope._known) <= envelope._KNOWN_BLOCKS
    wide = "x" * (envelope._KNOWN_LONGEST - 100)
    for index in range(2 * envelope._KNOWN_OCTETS // len(wide)):
        decode_head(encode_head(Message(Headers(Queue(f"{index}{wide}")))), b"")
        assert sum(map(len, envelope._known)) <= envelope._KNOWN_OCTETS
        assert sum(map(len, envelope._known)) == envelope._known_octets
    longest = Headers(Queue("x" * envelope._KNOWN_LONGEST))
    before = dict(envelope._known)
    assert decode_head(encode_head(Message(longest)), b"").headers == longest
    assert envelope._known == before


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(Headers(Queue("q"), priority=10)), "priority 10"),
        (Message(Headers(Queue("q"), priority=-1)), "priority -1"),
        (
            Message(Headers(Queue("q"), properties={"n": 2**63})),
            "outside of the range of a Java long",
        ),
        (Message(Headers(Queue("q"), properties={"n": [1]})), "none of the types"),  # type: ignore[dict-item]
        (Message(Headers(Queue("q")), expires=2**63), "does not fit"),
        (Message(Headers(Queue("q")), message_id="x" * 65536), "does not fit"),
        (Message(Headers(Queue("q")), message_id="\ud800"), "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(message: Message, reason: str) -> None:
    with pytest.raises(EnvelopeError, match=reason):
        encode_head(message)
    with pytest.raises(EnvelopeError, match=reason):
        encode(message)


def test_every_truncated_or_damaged_envelope_is_refused() -> None:
    whole = encode(a_message())
    for length in range(len(whole)):
        with pytest.raises(EnvelopeError):
            decode(whole[:length])
    for place in range(len(whole)):
        with pytest.raises(EnvelopeError):
            decode(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
    with pytest.raises(EnvelopeError, match="checksum"):
        decode(whole + b"x")


def sealed(version: int, rest: bytes) -> bytes:
    start = b"\xabSGE" + version.to_bytes(2, "big")
    return start + crc32(start + rest).to_bytes(4, "big") + rest


def test_an_envelope_of_another_version_is_refused_by_its_version() -> None:
    with pytest.raises(EnvelopeError, match="version 2; this program reads version 1"):
        decode(sealed(2, encode(a_message())[10:]))


def test_what_is_no_envelope_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="not an envelope: it begins with 7b 22 61 22"):
        decode(b'{"a": 1}')
    with pytest.raises(EnvelopeError, match="begins with nothing"):
        decode(b"")


def test_an_optional_field_of_the_future_is_skipped_and_another_refused() -> None:
    rest = encode(a_message())[10:]
    assert equal(decode(sealed(1, rest + b"\x80\x00\x00\x00\x03new")), a_message())
    with pytest.raises(EnvelopeError, match="field 127"):
        decode(sealed(1, rest + b"\x7f\x00\x00\x00\x03new"))
    head = encode_head(a_message())
    assert decode_head(head + b"\xff\x00\x00\x00\x00", b"").headers == a_message().headers
    with pytest.raises(EnvelopeError, match="field 7"):
        decode_head(head + b"\x07\x00\x00\x00\x00", b"")


def test_a_length_beyond_the_end_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="too short"):
        decode(sealed(1, b"\x7f\xff\xff\xff\x00\x00\x00\x01"))


FIXED = bytes.fromhex("01 0000000000000000 0000000000000000 0000 0000")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "damaged"),
        (b"\x02" + FIXED[1:] + bytes.fromhex("01 02 04 01 00000003 00 00 71"), "version 2"),
        (FIXED, "cut short before its fields"),
        (FIXED + bytes.fromhex("06 02 04 01 00000003 00 00 71"), "body type 6"),
        (FIXED + bytes.fromhex("01 03 04 01 00000003 00 00 71"), "delivery mode 3"),
        (FIXED + bytes.fromhex("01 02 0a 01 00000003 00 00 71"), "priority 10"),
        (FIXED + bytes.fromhex("01 02 04"), "no destination"),
        (FIXED + bytes.fromhex("01 02 04 01 000000"), "a field of the head is cut short"),
        (
            FIXED + bytes.fromhex("01 02 04 01 00000004 00 00 71"),
            "field 1 of the head is cut short",
        ),
        (FIXED + bytes.fromhex("01 02 04 01 00000001 00"), "destination that is none"),
        (FIXED + bytes.fromhex("01 02 04 01 00000003 02 00 71"), "destination that is none"),
        (FIXED + bytes.fromhex("01 02 04 01 00000003 00 02 71"), "destination that is none"),
        (FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 ff"), "damaged"),
        (
            FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 71 01 00000003 00 00 71"),
            "out of order",
        ),
        (FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 71 05 00000001 00"), "malformed"),
        (
            FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 71 06 00000004 00000001"),
            "0 texts for 1",
        ),
        (
            FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 71 06 00000008 00000001 00000009"),
            "cut short",
        ),
        (
            FIXED + bytes.fromhex("01 02 04 01 00000003 00 00 71 06 00000008 00000001 00000000"),
            "1 texts for 1",
        ),
    ],
)
def test_a_damaged_head_is_refused(head: bytes, reason: str) -> None:
    with pytest.raises(EnvelopeError, match=reason):
        decode_head(head, b"")


def test_the_content_type_is_a_media_type() -> None:
    assert envelope.CONTENT_TYPE == "application/vnd.stomp-gateway.envelope"
