"""Header blocks that come again with other values: which are recognised, for how long, and that
nothing else changes by it.
"""

from __future__ import annotations

import gc
import re
import sys
import tracemalloc

import pytest

from gateway.stomp.wire import (
    Frame,
    FrameParser,
    Head,
    Limits,
    ProtocolError,
    ShapedHead,
    Varying,
    Version,
)
from gateway.stomp.wire.shapes import (
    CROWDED,
    ENOUGH,
    LONGEST,
    MOST_KEPT,
    MOST_OCTETS,
    MOST_SHAPES,
    Meaning,
)


def rule(name: str) -> Varying:
    """In these tests ``to`` and others with it change the meaning, ``x`` and others with it mean nothing."""
    if name.startswith("to"):
        return Varying.MEANING
    return Varying.IGNORED if name.startswith("x") else Varying.PASSED


def send(header: str, body: bytes = b"x") -> bytes:
    return b"SEND\n" + header.encode() + b"\n\n" + body + b"\0"


def heads(parser: FrameParser, octets: bytes) -> list[Head]:
    parser.receive(octets)
    found: list[Frame] = []
    while frames := parser.frames(1000):
        found += frames
    return [frame.head for frame in found]


def parser_of(version: Version = Version.V1_2, limits: Limits | None = None) -> FrameParser:
    return FrameParser(limits or Limits(), version, rule)


def shaped(head: Head) -> ShapedHead:
    assert isinstance(head, ShapedHead)
    return head


def meanings(found: list[Head]) -> set[Meaning]:
    """Different ones of the heads that have a shape."""
    return {head.meaning for head in found if isinstance(head, ShapedHead)}


def lines(found: list[Head]) -> list[bytes | None]:
    """Of each head the lines that are passed on; None where it has no shape."""
    return [head.lines if isinstance(head, ShapedHead) else None for head in found]


@pytest.fixture
def parser() -> FrameParser:
    return parser_of()


def test_a_shape_is_made_when_enough_blocks_have_come(parser: FrameParser) -> None:
    found = heads(parser, b"".join([send(f"to:q\na:{number}\nb:c") for number in range(8)]))
    assert lines(found) == [None] * ENOUGH + [
        b"a:%d\nb:c\n" % number for number in range(ENOUGH, 8)
    ]
    assert [head.headers for head in found] == [
        {"to": "q", "a": str(number), "b": "c"} for number in range(8)
    ]
    [meaning] = meanings(found)
    assert meaning.head({"r": "s"}).headers == {"to": "q", "r": "s"}


def test_lines_that_are_passed_on_are_joined_in_their_order(parser: FrameParser) -> None:
    block = "a:1\nto:q\nb:2\nx:3\ncontent-length:1\nc:4\nd:\nreceipt:r"
    found = heads(parser, send(block) * (ENOUGH + 1))
    last = shaped(found[-1])
    assert (last.lines, last.content_length) == (b"a:1\nb:2\nc:4\nd:\n", 1)
    assert last.meaning.shape.count == 4
    assert not last.meaning.shape.is_bare
    assert last.octets == len(block.replace("\n", "").replace(":", ""))
    assert list(last.headers.items()) == [tuple(line.split(":")) for line in block.split("\n")]


def test_values_that_change_the_meaning_have_one_each(parser: FrameParser) -> None:
    octets = b"".join([send(f"to:{'pq'[number % 2]}\na:{number}") for number in range(20)])
    found = heads(parser, octets)
    assert [head is None for head in lines(found)] == [True] * ENOUGH + [False] * (20 - ENOUGH)
    assert len(meanings(found)) == 2
    assert len({meaning.shape for meaning in meanings(found)}) == 1
    assert [head.headers["to"] for head in found] == ["p", "q"] * 10
    for head in found[ENOUGH:]:
        assert shaped(head).meaning.head({}).headers == {"to": head.headers["to"]}


def test_a_meaning_is_of_all_its_lines_in_their_order(parser: FrameParser) -> None:
    blocks = [f"to:{a}\na:1\ntoo:{b}\nb:2\ntop:{c}" for a in "12" for b in "12" for c in "12"]
    found = heads(parser, send(blocks[0]) * ENOUGH + b"".join(map(send, blocks)))[ENOUGH:]
    assert len(meanings(found)) == 8
    for head, block in zip(found, blocks, strict=True):
        said = dict(line.split(":") for line in block.split("\n"))
        assert head.headers == said
        assert shaped(head).lines == b"a:1\nb:2\n"
        assert shaped(head).meaning.head({}).headers == {
            name: said[name] for name in ("to", "too", "top")
        }


@pytest.mark.parametrize(
    ("version", "line", "plain"),
    [
        (Version.V1_2, "to:/queue/a:b", "/queue/a:b"),
        (Version.V1_2, "to:\\c\\n\\r\\\\", ":\n\r\\"),
        (Version.V1_1, "to:\u00e9\\c", "\u00e9:"),
        (Version.V1_0, "to:a:b", "a:b"),
    ],
)
def test_what_changes_the_meaning_is_read_as_any_header(
    version: Version, line: str, plain: str
) -> None:
    parser = parser_of(version)
    found = heads(parser, send("to:q\na:1") * ENOUGH + send(line + "\na:1") * 9)
    assert [head.headers["to"] for head in found[ENOUGH:]] == [plain] * 9
    assert shaped(found[-1]).meaning.head({}).headers == {"to": plain}


def test_other_names_make_another_shape(parser: FrameParser) -> None:
    found = heads(parser, send("to:q\na:1") * 6 + send("to:q\nb:1") * 6 + send("a:1\nto:q") * 6)
    assert [head is None for head in lines(found)] == ([True] * ENOUGH + [False] * (6 - ENOUGH)) * 3


def test_a_block_that_is_the_same_gives_the_same_head(parser: FrameParser) -> None:
    found = heads(parser, send("to:q\na:1", b"y") * 8 + send("to:q\na:2") + send("to:q\na:1") * 3)
    assert all(head is found[ENOUGH] for head in found[ENOUGH:8])
    assert len({id(head) for head in found[8:]}) == 2
    assert [head.headers["a"] for head in found[8:]] == ["2", "1", "1", "1"]


def test_a_head_is_not_given_again_where_a_value_differs_that_is_not_passed_on() -> None:
    for name in ("x", "receipt", "transaction"):
        octets = b"".join([send(f"a:1\n{name}:{number}") for number in range(9)])
        found = heads(parser_of(), octets)
        assert [head.headers[name] for head in found] == [str(number) for number in range(9)]


def test_it_is_recognised_over_reads_and_however_it_is_cut() -> None:
    octets = b"".join([send(f"to:q\na:{number}", b"x" * 20) for number in range(12)])
    for size in (1, 5, 100):
        parser = parser_of()
        found = [
            head
            for at in range(0, len(octets), size)
            for head in heads(parser, octets[at : at + size])
        ]
        assert [head.headers["a"] for head in found] == [str(number) for number in range(12)]
        assert size < 100 or any(isinstance(head, ShapedHead) for head in found)


def test_a_block_that_comes_in_parts_does_not_make_its_shape_wide(parser: FrameParser) -> None:
    heads(parser, send("to:q\na:1") * (ENOUGH + 1))
    octets = send("to:q\na:2", b"x" * 100)
    for octet in octets:
        heads(parser, bytes((octet,)))
    assert not shaped(heads(parser, octets)[0]).meaning.shape.is_wide


def test_length_and_body_vary_within_a_shape(parser: FrameParser) -> None:
    sizes = (0, 5, 2, 100, 1, 7, 7, 3)
    parser.receive(b"".join([send(f"a:b\ncontent-length:{size}", b"x" * size) for size in sizes]))
    parser.receive(b"".join([send("a:b", b"y" * size) for size in sizes]))
    assert [len(frame.body) for frame in parser.frames(100)] == [*sizes, *sizes]


def test_values_in_other_forms_make_the_shape_wide() -> None:
    for version, value, line, plain in (
        (Version.V1_2, "10:30", b"a:10\\c30\n", "10:30"),
        (Version.V1_1, "10\\c30", b"a:10\\c30\n", "10:30"),
        (Version.V1_2, "\\\\\\n\\r", b"a:\\\\\\n\\r\n", "\\\n\r"),
        (Version.V1_2, "\u00e9\t", "a:\u00e9\t\n".encode(), "\u00e9\t"),
        (Version.V1_0, "1:0", b"a:1\\c0\n", "1:0"),
    ):
        parser = parser_of(version)
        found = heads(parser, send("to:q\na:1") * (ENOUGH + 1) + send(f"to:q\na:{value}") * 2)
        assert lines(found)[ENOUGH:] == [b"a:1\n", None, line]
        assert [head.headers["a"] for head in found[-2:]] == [plain, plain]
        assert lines(heads(parser, send("to:q\na:2"))) == [b"a:2\n"]


@pytest.mark.parametrize(
    ("version", "value", "fault"),
    [
        (Version.V1_2, b"\\x", "the escape '\\x'"),
        (Version.V1_1, b"\\r", "the escape '\\r'"),
        (Version.V1_2, b"\xff", "header line 1 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("name", [b"a", b"to"])
def test_a_bad_value_is_a_fault_in_a_wide_shape_too(
    name: bytes, version: Version, value: bytes, fault: str
) -> None:
    parser = parser_of(version)
    heads(parser, send(f"{name.decode()}:1:2") * (ENOUGH + 2))
    with pytest.raises(ProtocolError, match=fault.replace("\\", "\\\\")):
        heads(parser, b"SEND\n" + name + b":" + value + b"\n\n\0")


def test_padding_does_not_count_in_1_0() -> None:
    parser = parser_of(Version.V1_0)
    found = heads(parser, send("a:1 2") * 6 + send("a: 3") + send("a:4\t") + send(" a:5"))
    assert [head.headers["a"] for head in found] == ["1 2"] * 6 + ["3", "4", "5"]
    assert lines(found)[-4:] == [b"a:1 2\n", None, None, None]


def test_what_is_no_plain_send_has_no_shape() -> None:
    for octets in (
        send("a:" + "x" * MOST_OCTETS),
        b"ACK\nid:1\n\n\0",
        b"ACK\nid:a b\n\n\0",
        b"MESSAGE\na:b\n\n\0",
        send("a:b\r"),
        send("a:1\na:2"),
        send("a\\c:b"),
        send("a\\\\:b"),
        # Consumers see _a.
        send("_a:1\n a:2"),
        send("a :2\na_:1"),
    ):
        assert not any(isinstance(head, ShapedHead) for head in heads(parser_of(), octets * 9))
    assert not any(
        isinstance(head, ShapedHead)
        for head in heads(FrameParser(Limits(), Version.V1_2), send("a:b") * 9)
    )


def test_a_name_with_a_colon_is_not_taken_for_another(parser: FrameParser) -> None:
    found = heads(parser, send("a\\cb:1") * 8 + send("a:b:1"))
    assert found[-1].headers == {"a": "b:1"}


def test_a_changed_version_forgets() -> None:
    parser = parser_of(Version.V1_1)
    assert heads(parser, send("a: b") * 9)[-1].headers == {"a": " b"}
    parser.change_rules(Version.V1_0)
    assert heads(parser, send("a: b") * 9)[-1].headers == {"a": "b"}


def test_changed_limits_hold_at_once(parser: FrameParser) -> None:
    heads(parser, send("a:b") * 9)
    parser.change_rules(limits=Limits(header_line=5))
    assert lines(heads(parser, send("a:b")))[0] is None
    with pytest.raises(ProtocolError, match="header line 1 is longer than 5"):
        heads(parser, send("a:bcdefgh"))


def test_a_line_that_grows_too_long_is_refused_within_a_shape() -> None:
    parser = parser_of(limits=Limits(header_line=20))
    assert isinstance(heads(parser, send("a:b") * 9)[-1], ShapedHead)
    with pytest.raises(ProtocolError, match="header line 1 is longer than 20"):
        heads(parser, send("a:" + "b" * 30))


def test_limits_on_body_and_frame_hold_within_a_shape() -> None:
    block = b"SEND\na:b\ncontent-length:%d\n\n%s\0"
    for limits, most in ((Limits(body=9), 9), (Limits(frame=40), 40 - len(block % (10, b"")))):
        parser = parser_of(limits=limits)
        heads(parser, block % (3, b"xxx") * 9)
        assert heads(parser, block % (most, b"x" * most))
        with pytest.raises(ProtocolError):
            heads(parser, block % (most + 1, b"x" * (most + 1)))


def test_the_shapes_are_bounded_and_not_thrown_out_by_a_few_more(parser: FrameParser) -> None:
    some = b"".join([send(f"a{number}:1") for number in range(MOST_SHAPES + 4)])
    for _ in range(ENOUGH):
        heads(parser, some)
    found = heads(parser, some)
    assert sum(isinstance(head, ShapedHead) for head in found) == MOST_SHAPES


@pytest.mark.parametrize(
    "block",
    [
        "to:1\n" + "%02d" + "n" * 900 + ":1",
        "to:1\nn%02d:\n" + "\n".join([f"n{number}:" for number in range(90)]),
    ],
)
def test_all_shapes_together_are_bounded(block: str, parser: FrameParser) -> None:
    some = b"".join([send(block % number) for number in range(100, 100 + MOST_SHAPES)])
    for _ in range(ENOUGH):
        heads(parser, some)
    found = {meaning.shape for meaning in meanings(heads(parser, some))}
    assert 1 <= len(found) < MOST_SHAPES // 2
    # They are forgotten in the end, and others have the room.
    assert isinstance(heads(parser, send(block % 177) * (CROWDED + 1))[-1], ShapedHead)


def test_meanings_are_bounded_and_not_thrown_out_by_a_few_more(parser: FrameParser) -> None:
    some = b"".join([send(f"to:{number:08}\na:1") for number in range(300)])
    first = meanings(heads(parser, some))
    kept = meanings(heads(parser, some)) & first
    assert 50 < len(kept) < 150
    assert meanings(heads(parser, some)) & first == kept
    # Those that come no more are forgotten in the end, and others have the room.
    others = b"".join([send(f"to:{number:08}\na:1") for number in range(1000, 1050)])
    for _ in range(CROWDED // 50):
        heads(parser, others)
    assert meanings(heads(parser, others)) == meanings(heads(parser, others))


@pytest.mark.parametrize(
    "block",
    [
        "to:%d" + "x" * 900 + "\na:1",
        "to:%d\na:1",
        "to:%d\na:1:1",
        "a%d:1\n" + "b" * 900 + ":1",
        "a%d:1:1\n" + "\n".join([f"b{number}:" for number in range(90)]),
        "".join([f"to{number}:1\na{number}:1\n" for number in range(45)]) + "to:%d",
    ],
)
def test_what_a_client_makes_a_parser_keep_is_bounded(block: str, parser: FrameParser) -> None:
    gc.collect()
    re.purge()
    tracemalloc.start()
    try:
        for number in range(2000):
            heads(parser, send(block % number))
            heads(parser, send(block % (number // 100)))
        gc.collect()
        re.purge()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MOST_KEPT + (20 << 10)


def test_blocks_that_have_become_long_are_read(parser: FrameParser) -> None:
    heads(parser, send("to:q\na:1") * 9)
    rest = len("SEND\nto:q\na:\n\n")
    for more, is_shaped in ((0, True), (1, False)):
        [head] = heads(parser, send("to:q\na:" + "b" * (LONGEST - rest + more)))
        assert isinstance(head, ShapedHead) is is_shaped
        assert len(head.headers["a"]) == LONGEST - rest + more


def test_a_receipt_with_colons_is_no_reason_to_read_the_block(parser: FrameParser) -> None:
    found = heads(parser, b"".join([send(f"a:1\nreceipt:ID:{number}:1") for number in range(9)]))
    assert lines(found)[ENOUGH:] == [b"a:1\n"] * (9 - ENOUGH)
    assert found[-1].headers == {"a": "1", "receipt": "ID:8:1"}


def test_a_new_kind_of_producer_is_learnt_in_the_end(parser: FrameParser) -> None:
    heads(parser, b"".join([send(f"a{number}:1") for number in range(MOST_SHAPES)]) * ENOUGH)
    assert not isinstance(heads(parser, send("b:1") * 20)[-1], ShapedHead)
    assert isinstance(heads(parser, send("b:1") * (CROWDED + 1))[-1], ShapedHead)


def test_shapes_that_never_come_again_are_not_kept(parser: FrameParser) -> None:
    for round_ in range(5):
        found = heads(parser, b"".join([send(f"a{round_}-{number}:1") for number in range(1000)]))
        assert not any(isinstance(head, ShapedHead) for head in found)
    assert isinstance(heads(parser, send("b:1") * 9)[-1], ShapedHead)


def test_a_body_like_a_header_block_is_a_body(parser: FrameParser) -> None:
    body = b"SEND\na:b\n\n"
    octets = b"SEND\ncontent-length:10\n\n" + body + b"\0"
    parser.receive(send("a:b") * 9 + octets * 9 + send("a:b", body))
    assert [frame.body for frame in parser.frames(100)] == [b"x"] * 9 + [body] * 10


def test_what_was_received_is_not_held_by_its_last_blocks(parser: FrameParser) -> None:
    heads(parser, send("a:b") * 9 + send("c:d") * 9)
    received = send("a:c") + send("c:d", b"y" * 1000)
    before = sys.getrefcount(received)
    found = heads(parser, received)
    assert isinstance(found[0], ShapedHead)
    assert heads(parser, send("a:e"))
    assert sys.getrefcount(received) == before
    assert [head.headers for head in found] == [{"a": "c"}, {"c": "d"}]


def test_blocks_with_other_meanings_do_not_hold_what_was_received(parser: FrameParser) -> None:
    heads(parser, send("to:p\na:b") * 9 + send("to:q\na:b") * 9)
    received = send("to:p\na:c") + send("to:q\na:d", b"y" * 1000)
    before = sys.getrefcount(received)
    assert meanings(heads(parser, received))
    assert sys.getrefcount(received) == before
