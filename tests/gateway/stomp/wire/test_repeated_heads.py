"""Heads that come again: which are remembered, for how long, and that nothing else changes by
it.
"""

from __future__ import annotations

import pytest

from gateway.stomp.wire import Frame, FrameParser, Head, Limits, ProtocolError, Version
from gateway.stomp.wire.head import MOST_HEADS, MOST_OCTETS


def send(header: str, body: bytes = b"x") -> bytes:
    return b"SEND\n" + header.encode() + b"\n\n" + body + b"\0"


def heads(parser: FrameParser, octets: bytes) -> list[Head]:
    parser.receive(octets)
    found: list[Frame] = []
    while frames := parser.frames(1000):
        found += frames
    return [frame.head for frame in found]


def parser_of(version: Version = Version.V1_2) -> FrameParser:
    return FrameParser(Limits(), version)


@pytest.fixture
def parser() -> FrameParser:
    return parser_of()


def test_a_block_is_remembered_at_its_second_sight() -> None:
    found = heads(parser_of(), send("a:b") * 5)
    assert [head.repeats for head in found] == [False, True, True, True, True]
    assert found[0] is not found[1]
    assert all(head is found[1] for head in found[2:])
    assert {tuple(head.headers.items()) for head in found} == {(("a", "b"),)}


def test_it_is_remembered_over_reads_and_however_it_is_cut() -> None:
    for size in (1, 5, 100):
        parser = parser_of()
        octets = send("a:b", b"x" * 20) * 6
        found = [
            head
            for at in range(0, len(octets), size)
            for head in heads(parser, octets[at : at + size])
        ]
        assert [head.repeats for head in found] == [False, True, True, True, True, True]
        assert len({id(head) for head in found}) == 2


def test_a_frame_read_in_parts_counts_as_one_sight(parser: FrameParser) -> None:
    assert heads(parser, b"SEND\na:b\n\nxx") == []
    assert heads(parser, b"xxxxxxxxxxxxxxxxxxxxxxxx") == []
    assert [head.repeats for head in heads(parser, b"\0" + send("a:b"))] == [False, True]


def test_plans_stay_with_their_heads(parser: FrameParser) -> None:
    first = heads(parser, send("a:b") * 2 + send("a:c") * 2)
    first[1].plan, first[3].plan = "b", "c"
    again = heads(parser, send("a:c") + send("a:b") + send("a:b") + send("a:d") + send("a:c"))
    assert [head.plan for head in again] == ["c", "b", "b", None, "c"]


def test_length_and_body_vary_under_one_head(parser: FrameParser) -> None:
    parser.receive(b"".join([send("a:b", b"x" * size) for size in (0, 5, 2, 100, 1)]))
    assert [len(frame.body) for frame in parser.frames(10)] == [0, 5, 2, 100, 1]


def test_what_varies_by_nature_is_not_remembered() -> None:
    for octets in (
        send("receipt:1"),
        send("a:b\nreceipt:1"),
        send("transaction:1"),
        send("a:" + "x" * MOST_OCTETS),
        b"ACK\nid:1\n\n\0",
        b"ACK\nid:a b\n\n\0",
        b"MESSAGE\na:b\n\n\0",
        send("a:b\r"),
    ):
        assert not any(head.repeats for head in heads(parser_of(), octets * 4))


def test_escapes_and_padding_are_read_once() -> None:
    found = heads(parser_of(), send("a:\\c") * 3)
    assert [(head.repeats, head.headers["a"]) for head in found] == [
        (False, ":"),
        (True, ":"),
        (True, ":"),
    ]
    found = heads(parser_of(Version.V1_0), send("a: b") * 3)
    assert [(head.repeats, head.headers["a"]) for head in found] == [
        (False, "b"),
        (True, "b"),
        (True, "b"),
    ]


def test_a_changed_version_forgets() -> None:
    parser = parser_of(Version.V1_1)
    assert heads(parser, send("a: b") * 3)[-1].headers == {"a": " b"}
    parser.change_rules(Version.V1_0)
    found = heads(parser, send("a: b") * 2)
    assert [(head.repeats, head.headers["a"]) for head in found] == [(False, "b"), (True, "b")]


def test_changed_limits_forget(parser: FrameParser) -> None:
    heads(parser, send("a:b") * 3)
    parser.change_rules(limits=Limits(header_line=50))
    assert [head.repeats for head in heads(parser, send("a:b") * 2)] == [False, True]


def test_the_memory_is_bounded_and_not_emptied_by_a_few_more(parser: FrameParser) -> None:
    some = b"".join([send(f"a:{number}") for number in range(100)])
    kept = {id(head) for _ in range(3) for head in heads(parser, some) if head.repeats}
    assert len(kept) == MOST_HEADS
    repeating = [head.repeats for head in heads(parser, some)]
    assert sum(repeating) == MOST_HEADS


def test_a_new_kind_of_producer_is_learnt_in_the_end(parser: FrameParser) -> None:
    heads(parser, b"".join([send(f"a:{number}") for number in range(MOST_HEADS)]) * 2)
    assert not heads(parser, send("b:1") * 10)[-1].repeats
    assert heads(parser, send("b:1") * 5000)[-1].repeats


def test_headers_that_never_come_again_are_not_kept(parser: FrameParser) -> None:
    for round_ in range(5):
        found = heads(parser, b"".join([send(f"a:{round_}-{number}") for number in range(1000)]))
        assert not any(head.repeats for head in found)
    assert heads(parser, send("b:1") * 2)[-1].repeats


def test_a_body_like_a_header_block_is_a_body(parser: FrameParser) -> None:
    body = b"SEND\na:b\n\n"
    octets = b"SEND\ncontent-length:10\n\n" + body + b"\0"
    parser.receive(send("a:b") * 3 + octets * 3 + send("a:b", body))
    assert [frame.body for frame in parser.frames(10)] == [b"x"] * 3 + [body] * 4


def test_only_a_bounded_number_of_blocks_seen_once_is_known(parser: FrameParser) -> None:
    others = b"".join([send(f"a:{number}") for number in range(300)])
    assert not any(head.repeats for head in heads(parser, send("b:1") + others + send("b:1")))


# --- receipts


def test_a_receipt_is_taken_out_of_a_block_that_comes_again(parser: FrameParser) -> None:
    found = heads(
        parser,
        b"".join([send(f"a:b\nreceipt:{number}\nc:d") for number in range(5)]) + send("a:b\nc:d"),
    )
    assert [list(head.headers.items()) for head in found[:5]] == [
        [("a", "b"), ("receipt", str(number)), ("c", "d")] for number in range(5)
    ]
    assert [head.repeats for head in found] == [False] * 5 + [True]
    assert found[0].base is not None
    assert not found[0].base.repeats
    assert all(head.base is found[5] for head in found[1:5])
    assert found[5].headers == {"a": "b", "c": "d"}


def test_a_head_with_a_receipt_that_has_to_be_read_carefully_stands_for_itself() -> None:
    for version, header in (
        (Version.V1_2, "a:b\nreceipt:\\c"),
        (Version.V1_0, "a:b\nreceipt: 1"),
        (Version.V1_2, "a:b\nreceipt:\u00e9"),
        (Version.V1_2, "a:b\nreceipt:1\nreceipt:2"),
        (Version.V1_2, "a:b\na:c\nreceipt:2"),
    ):
        found = heads(parser_of(version), send("a:b") * 2 + send(header))
        assert found[2].base is None
        assert len(found[2].headers) == 2


def test_limits_count_the_receipt() -> None:
    def fits(limits: Limits) -> bool:
        parser = FrameParser(limits, Version.V1_2)
        block = b"SEND\na:b\nreceipt:12345\ncontent-length:3\n\nxxx\0"
        parser.receive(b"SEND\na:b\ncontent-length:3\n\nxxx\0" * 2 + block)
        try:
            return sum(len(parser.frames(10)) for _ in range(2)) == 3
        except ProtocolError:
            return False

    assert fits(Limits(header_count=3))
    assert not fits(Limits(header_count=2))
    octets = len(b"SEND\na:b\nreceipt:12345\ncontent-length:3\n\nxxx\0")
    assert fits(Limits(frame=octets))
    assert not fits(Limits(frame=octets - 1))
