"""Frames of WebSocket, made by another implementation, cut, and broken."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from gateway.stomp.websocket import frames
from gateway.stomp.websocket.codes import Code, WebSocketError
from gateway.stomp.websocket.endpoint import WebSocket
from gateway.stomp.websocket.frames import MOST_AT_ONCE, Control, FrameReader, Opcode
from gateway.stomp.websocket.upgrade import ANY_ORIGIN, Rules

_LENGTHS = (0, 1, 2, 3, 4, 5, 125, 126, 127, 65_535, 65_536, 200_003)

_events = st.one_of(
    st.builds(TextMessage, data=st.text(max_size=60), message_finished=st.just(True)),
    st.builds(BytesMessage, data=st.binary(max_size=300), message_finished=st.just(True)),
    st.builds(Ping, payload=st.binary(max_size=125)),
    st.builds(Pong, payload=st.binary(max_size=125)),
)


def _sent(*events: Event) -> bytes:
    """What a client sends, made by wsproto."""
    client = Connection(ConnectionType.CLIENT)
    return b"".join(client.send(event) for event in events)


def _frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0, mask: bytes = b"abcd"
) -> bytes:
    first = fin << 7 | reserved << 4 | opcode
    if len(payload) < 126:
        length = bytes((0x80 | len(payload),))
    else:
        length = struct.pack("!BQ", 0xFF, len(payload))
    masked = bytes(octet ^ mask[place % 4] for place, octet in enumerate(payload))
    return bytes((first,)) + length + mask + masked


def _read(*parts: bytes) -> tuple[bytes, list[Control]]:
    reader = FrameReader()
    return b"".join(reader.receive(part) for part in parts), reader.controls


def _cut(octets: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(octets) + 1) for place in places), len(octets)]
    return [octets[low:high] for low, high in itertools.pairwise(edges)]


@given(st.lists(_events, max_size=8), st.lists(st.integers(0, 5_000), max_size=20))
def test_what_a_client_says_is_read_however_it_is_cut(
    events: list[Event], places: list[int]
) -> None:
    carried, controls = _read(*_cut(_sent(*events), places))
    texts = [
        each.data.encode() if isinstance(each, TextMessage) else each.data
        for each in events
        if isinstance(each, TextMessage | BytesMessage)
    ]
    assert carried == b"".join(texts)
    assert [(each.opcode.name, each.payload) for each in controls] == [
        (type(each).__name__.upper(), bytes(each.payload))
        for each in events
        if isinstance(each, Ping | Pong)
    ]


@pytest.mark.parametrize("length", _LENGTHS)
def test_a_message_of_any_length_goes_both_ways(length: int) -> None:
    payload = bytes(place * 7 & 0xFF for place in range(length))
    assert _read(_sent(BytesMessage(data=payload))) == (payload, [])
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(frames.head(Opcode.BINARY, length) + payload)
    assert b"".join(each.data for each in client.events()) == payload  # type: ignore[attr-defined]


def test_octets_of_a_message_are_given_on_before_it_is_whole() -> None:
    whole = _frame(Opcode.BINARY, b"0123456789")
    reader = FrameReader()
    assert [reader.receive(whole[:6]), reader.receive(whole[6:9]), reader.receive(whole[9:])] == [
        b"",
        b"012",
        b"3456789",
    ]


def test_a_message_may_come_in_fragments_with_pings_between() -> None:
    parts = (
        _frame(Opcode.TEXT, "a\u20ac".encode()[:2], fin=False),
        _frame(Opcode.PING, b"there?"),
        _frame(Opcode.CONTINUATION, "\u20ac".encode()[1:], fin=False),
        _frame(Opcode.CONTINUATION, b""),
        _frame(Opcode.BINARY, b"\xff"),
    )
    assert _read(*parts) == ("a\u20ac".encode() + b"\xff", [Control(Opcode.PING, b"there?")])


@pytest.mark.parametrize("cut", [0, 3, 14, 100])
@pytest.mark.parametrize("length", [1000, 1001])
def test_a_frame_may_carry_so_much_and_no_more(length: int, cut: int) -> None:
    reader = FrameReader(1000)
    octets = _frame(Opcode.BINARY, b"x" * length)
    came = map(reader.receive, (octets[:cut], octets[cut:]))
    if length == 1000:
        assert b"".join(came) == b"x" * length
        return
    with pytest.raises(WebSocketError, match="1001 octets, and 1000 is the limit") as refused:
        b"".join(came)
    assert refused.value.code is Code.TOO_BIG


def test_nothing_is_read_behind_a_close() -> None:
    reader = FrameReader()
    payload = (1000).to_bytes(2, "big") + "adi\u00f3s".encode()
    octets = _frame(Opcode.BINARY, b"x") + _frame(Opcode.CLOSE, payload) + b"\x00nonsense"
    assert reader.receive(octets) == b"x"
    assert reader.controls == [Control(Opcode.CLOSE, payload)]
    assert reader.closed
    assert reader.receive(b"\x00more") == b""


@pytest.mark.parametrize(
    ("octets", "code", "text"),
    [
        (b"\x81\x01a", Code.PROTOCOL_ERROR, "not masked"),
        (_frame(Opcode.TEXT, reserved=4), Code.PROTOCOL_ERROR, "reserved bit"),
        (_frame(3), Code.PROTOCOL_ERROR, "opcode 3"),
        (_frame(11), Code.PROTOCOL_ERROR, "opcode 11"),
        (_frame(Opcode.PING, fin=False), Code.PROTOCOL_ERROR, "fragmented"),
        (b"\x89\xfe\x00\x7eabcd", Code.PROTOCOL_ERROR, "more than 125"),
        (_frame(Opcode.CONTINUATION), Code.PROTOCOL_ERROR, "has not begun"),
        (_frame(Opcode.TEXT, fin=False) * 2, Code.PROTOCOL_ERROR, "within another"),
        (b"\x82\xff\x80" + bytes(11), Code.PROTOCOL_ERROR, "first bit"),
        (_frame(Opcode.TEXT, b"\xff"), Code.INVALID_TEXT, "not UTF-8"),
        (_frame(Opcode.TEXT, b"\xe2\x82"), Code.INVALID_TEXT, "not UTF-8"),
        (
            _frame(Opcode.TEXT, b"\xe2", fin=False) + _frame(Opcode.CONTINUATION, b"a"),
            Code.INVALID_TEXT,
            "not UTF-8",
        ),
        (_frame(Opcode.TEXT, b"\xed\xa0\x80"), Code.INVALID_TEXT, "not UTF-8"),
        (_frame(Opcode.CLOSE, b"\x03"), Code.PROTOCOL_ERROR, "no valid code"),
        (_frame(Opcode.CLOSE, b"\x03\xed"), Code.PROTOCOL_ERROR, "no valid code"),
        (_frame(Opcode.CLOSE, b"\x13\x88"), Code.PROTOCOL_ERROR, "no valid code"),
        (_frame(Opcode.CLOSE, b"\x03\xe8\xff"), Code.INVALID_TEXT, "reason"),
    ],
)
def test_a_broken_rule_is_told_with_the_code_to_close_with(
    octets: bytes, code: Code, text: str
) -> None:
    for parts in ((octets,), tuple(bytes((octet,)) for octet in octets)):
        with pytest.raises(WebSocketError, match=text) as raised:
            _read(*parts)
        assert raised.value.code is code


@pytest.mark.parametrize(("whole", "most"), [(True, MOST_AT_ONCE), (False, MOST_AT_ONCE // 5)])
def test_of_many_frames_some_wait_for_the_next_call(whole: bool, most: int) -> None:
    octets = b"".join(
        _frame(
            Opcode.CONTINUATION if number and not whole else Opcode.BINARY,
            b"%d" % (number % 10),
            fin=whole,
        )
        for number in range(3 * most)
    )
    reader = FrameReader()
    carried = [reader.receive(octets[:-3])]
    assert reader.more
    while reader.more:
        carried.append(reader.receive(b""))
    assert [len(part) for part in carried] == [most] * 2 + [most - 1]
    carried.append(reader.receive(octets[-3:]))
    assert b"".join(carried) == b"0123456789" * (3 * most // 10)
    assert not reader.more


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.BINARY, Opcode.TEXT])
def test_many_frames_that_carry_nothing_are_refused(opcode: Opcode) -> None:
    with pytest.raises(WebSocketError, match="carry nothing") as raised:
        _read(_frame(opcode) * 10_000)
    assert raised.value.code is Code.POLICY


@pytest.mark.parametrize("opcode", [Opcode.BINARY, Opcode.TEXT])
def test_empty_messages_may_come_as_fast_as_they_are_answered(opcode: Opcode) -> None:
    assert _read(*[_frame(opcode) * 100] * 100)[0] == b""


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG])
def test_control_frames_are_allowed_again_in_time(opcode: Opcode) -> None:
    websocket = WebSocket(Rules("/", frozenset((ANY_ORIGIN,))))
    websocket.receive(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n",
        0,
    )
    websocket.receive(_frame(opcode) * frames.MOST_CONTROLS, 5)
    # Fifty a second, however they come.
    for now_ms in range(1005, 21_005, 100):
        websocket.receive(_frame(opcode) * 5, now_ms)
    websocket.receive(_frame(opcode) * frames.MOST_CONTROLS, 90_000)
    with pytest.raises(WebSocketError, match="carry nothing") as raised:
        websocket.receive(_frame(opcode) * 10, 90_100)
    assert raised.value.code is Code.POLICY


@pytest.mark.parametrize("code", [1000, 1003, 1007, 1011, 1014, 3000, 4999])
def test_a_close_may_have_each_of_these_codes(code: int) -> None:
    payload = code.to_bytes(2, "big")
    _, controls = _read(_frame(Opcode.CLOSE, payload))
    assert controls == [Control(Opcode.CLOSE, payload)]


def test_a_control_frame_has_its_answer() -> None:
    client = Connection(ConnectionType.CLIENT)
    client.send(Ping(payload=b"x"))
    client.receive_data(frames.answer(Control(Opcode.PING, b"x")))
    assert [*client.events()] == [Pong(payload=b"x")]
    assert frames.answer(Control(Opcode.PONG, b"x")) == b""
    client.receive_data(frames.answer(Control(Opcode.CLOSE, b"\x03\xe8bye")))
    assert [*client.events()] == [CloseConnection(code=1000, reason="")]


@given(st.text())
def test_a_close_says_as_much_as_has_room(reason: str) -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(frames.close(Code.POLICY, reason))
    (said,) = client.events()
    assert isinstance(said, CloseConnection)
    assert said.code == Code.POLICY
    assert reason.startswith(said.reason or "")
    assert len(reason.encode()) <= 123 or len((said.reason or "").encode()) > 119


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_whatever_comes_is_read_or_refused_wherever_it_is_cut(
    octets: bytes, places: list[int]
) -> None:
    def outcome(parts: list[bytes]) -> object:
        reader = FrameReader()
        carried = b""
        try:
            for part in parts:
                carried += reader.receive(part)
        except WebSocketError as error:
            return str(error), error.code
        return carried, reader.controls

    assert outcome([octets]) == outcome(_cut(octets, places))
