"""Properties of the way from SEND to MESSAGE.

- A message whose SEND has a shape is the one that it would be without: the same headers, the same
  count of octets, the same frame to each version.
- So it is once it has been stored and read back.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.messaging.destination import Destination
from gateway.messaging.envelope import decode_row, encode_row
from gateway.messaging.message import Headers, Message
from gateway.reactor.turn import Turn
from gateway.stomp import destinations
from gateway.stomp.header_roles import varying
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.send_plan import headers_of, plan_send
from gateway.stomp.wire import Frame, FrameParser, Head, Limits, ShapedHead, Version, serialize

NAMES = st.sampled_from(
    [
        "correlation-id",
        "created",
        "trace",
        "x-dashed",
        "9number",
        "type",
        "reply-to",
        "priority",
        "persistent",
        "content-type",
        "expires",
        "ttl",
        "timestamp",
        "message-id",
        "JMSXGroupID",
        "JMS_STOMP_HOPS",
        "JMSFoo",
        "_AMQ_DUPL_ID",
        "envelope",
        "receipt",
        "transaction",
        "blank ",
        "blank_",
        "_blank",
        " blank",
        "\u00fcber",
        "colon:in",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        ["4", "true", "/queue/q", "10:30", "a b", " edge ", "\u00e9", "back\\slash", ""]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
#: Of each header: its name, and its values in successive frames.
HEADERS = st.lists(
    st.tuples(NAMES, st.one_of(VALUES.map(lambda value: [value]), st.lists(VALUES, min_size=2))),
    max_size=6,
    unique_by=lambda header: header[0],
)


def resolve(text: str, header: str) -> Destination:
    found = destinations.PLAIN.parse(text, header)
    assert isinstance(found, Destination)
    return found


def planned(head: Head) -> Headers:
    if isinstance(head, ShapedHead):
        own = head.own_headers()
        plan = plan_send(head.meaning.head(own), resolve, False)
        return headers_of(head, plan, own.get("receipt"))
    return plan_send(head, resolve, False).headers


def frames(parser: FrameParser, octets: bytes) -> list[Frame]:
    parser.receive(octets)
    found: list[Frame] = []
    while some := parser.frames(100):
        found += some
    return found


def said(headers: Headers) -> tuple[object, ...]:
    """What headers say, whatever the order of those that are not properties."""
    return (headers.replace(extras=()), sorted(headers.extras))


def shown(encoder: MessageEncoder, message: Message) -> tuple[object, ...]:
    tail = encoder.tail(message)
    (frame,) = frames(FrameParser(Limits(), encoder.version), b"MESSAGE\n" + tail)
    return sorted(frame.head.headers.items()), frame.body


def message(headers: Headers) -> Message:
    return Message(headers, b"body", timestamp=5, message_id="ID:1")


@given(HEADERS, st.sampled_from(list(Version)), st.booleans())
def test_a_shape_makes_no_difference(
    headers: Sequence[tuple[str, list[str]]], version: Version, length: bool
) -> None:
    octets = b"".join(
        [
            serialize(
                "SEND",
                [
                    ("destination", "/queue/orders"),
                    *[(name, values[number % len(values)]) for name, values in headers],
                    *([("content-length", "4")] if length else []),
                ],
                b"body",
                version,
            )
            for number in range(12)
        ]
    )
    encoders = [MessageEncoder(each, Turn(Clock())) for each in Version]
    one = frames(FrameParser(Limits(), version, varying), octets)
    other = frames(FrameParser(Limits(), version), octets)
    assert len(one) == len(other) == 12
    for (head, body), (naive, as_naive) in zip(one, other, strict=True):
        assert list(head.headers.items()) == list(naive.headers.items())
        assert (head.content_length, body) == (naive.content_length, as_naive)
        try:
            expected = planned(naive)
        except CommandRefused:
            continue
        headers_ = planned(head)
        assert said(headers_) == said(expected)
        if octets.isascii() and b"\\" not in octets:
            assert headers_.octets == expected.octets
        for encoder in encoders:
            # Twice, as the block that it remembers must be the right one, too.
            for _ in range(2):
                assert shown(encoder, message(headers_)) == shown(encoder, message(expected))
        read = decode_row(encode_row(message(headers_)), b"body").headers
        assert said(read) == said(expected)
        assert read.lines == headers_.lines
