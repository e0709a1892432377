"""What a message carries from end to end: bodies, properties, header fields, expiry, priority,
persistence.
"""

from __future__ import annotations

import struct

import pytest

from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import MessageRejected
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Mode, Session
from gateway.messaging.values import (
    Byte,
    Char,
    Float,
    Int,
    Short,
    Value,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
)
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, now_ms, refused_send, send, text
from tests.contract.waiting import until

MAP: dict[str, Value] = {
    "null": None,
    "boolean": True,
    "byte": Byte(-128),
    "short": Short(32767),
    "int": Int(-2147483648),
    "long": 9223372036854775807,
    "float": Float(struct.unpack(">f", struct.pack(">f", 1.1))[0]),
    "double": 1.1,
    "string": "größe \U0001f600",
    "bytes": b"\x00\xff",
    "char": Char("ü"),
}

BODIES: list[tuple[str, BodyType, bytes]] = [
    ("message", BodyType.MESSAGE, b""),
    ("text", BodyType.TEXT, "größe \U0001f600\n\r\\:\0 end".encode()),
    ("text-empty", BodyType.TEXT, b""),
    ("bytes", BodyType.BYTES, bytes(range(256)) * 3),
    ("bytes-empty", BodyType.BYTES, b""),
    ("map", BodyType.MAP, encode_map(MAP)),
    ("map-empty", BodyType.MAP, encode_map({})),
    ("stream", BodyType.STREAM, encode_stream(list(MAP.values()))),
    # A serialised java.lang.Integer of 42: an object is never deserialised, but providers may look
    # at its head.
    (
        "object",
        BodyType.OBJECT,
        bytes.fromhex(
            "aced0005737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565787200106a6176612e6c616e672e4e756d62"
            "657286ac951d0b94e08b02000078700000002a"
        ),
    ),
]


def with_types(value: object) -> object:
    """A value in which an equal one of another type differs."""
    if isinstance(value, dict):
        return {name: with_types(one) for name, one in value.items()}
    if isinstance(value, list):
        return [with_types(one) for one in value]
    return type(value), value


@contract()
@pytest.mark.parametrize(
    ("body_type", "body"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES]
)
async def test_a_body_comes_back_as_it_was_sent_or_is_refused(
    seam: Seam,
    body_type: BodyType,
    body: bytes,
    queue: Destination,
    client: Client,
    session: Session,
) -> None:
    message = Message(Headers(queue, body_type=body_type), body)
    if body_type not in seam.backend.bodies:
        assert isinstance(await refused_send(session, [message]), MessageRejected)
        return
    session.send([message])
    inbox = await client.consumer(queue, count=1)
    received = inbox.messages[0]
    assert received.headers.body_type is body_type
    if body_type is BodyType.MAP:
        assert with_types(decode_map(received.body)) == with_types(decode_map(body))
    elif body_type is BodyType.STREAM:
        assert with_types(decode_stream(received.body)) == with_types(decode_stream(body))
    else:
        assert received.body == body


@contract()
@pytest.mark.parametrize("null", [True, False], ids=["null", "empty"])
async def test_a_text_that_is_null_stays_one(
    null: bool, queue: Destination, client: Client
) -> None:
    client.session().send([Message(Headers(queue, body_type=BodyType.TEXT, null_text=null))])
    inbox = await client.consumer(queue, count=1)
    (received,) = inbox.messages
    assert (received.headers.body_type, received.body, received.headers.null_text) == (
        BodyType.TEXT,
        b"",
        null,
    )


@contract()
async def test_a_large_body_comes_back(queue: Destination, client: Client) -> None:
    body = "0123456789abcdef" * (1 << 17)
    inbox = await client.consumer(queue)
    await client.send(queue, [body])
    await inbox.count(1)
    assert inbox.messages[0].body == body.encode()


PROPERTIES: list[tuple[str, Value]] = [
    ("boolean", True),
    ("byte", Byte(-7)),
    ("short", Short(-30000)),
    ("int", Int(2147483647)),
    ("long", -9223372036854775808),
    ("float", Float(0.5)),
    ("double", -1e300),
    ("string", "größe \U0001f600\n:\\ x"),
    ("empty", ""),
]


@contract()
@pytest.mark.parametrize(("name", "value"), PROPERTIES, ids=[case[0] for case in PROPERTIES])
async def test_a_property_comes_back_with_its_type(seam: Seam, name: str, value: Value) -> None:
    client, queue = await seam.waiting(["x"], properties={name: value, "other": "kept"})
    inbox = await client.consumer(queue, count=1)
    properties = inbox.messages[0].headers.properties
    assert properties["other"] == "kept"
    if seam.backend.typed_properties:
        assert with_types(properties[name]) == with_types(value)
    elif isinstance(value, bool):
        assert properties[name] == str(value).lower()
    elif isinstance(value, float):
        assert isinstance(properties[name], str)
        assert float(str(properties[name])) == value
    else:
        assert properties[name] == str(value)


@contract()
async def test_properties_and_body_of_a_run_keep_to_their_message(
    queue: Destination, client: Client, session: Session
) -> None:
    session.send(
        [
            text(queue, str(number), properties={f"p{number % 3}": str(number)})
            for number in range(9)
        ]
    )
    inbox = await client.consumer(queue, count=9)
    for number, message in enumerate(inbox.messages):
        named = {
            name: value
            for name, value in message.headers.properties.items()
            if name.startswith("p")
        }
        assert (message.text, named) == (str(number), {f"p{number % 3}": str(number)})


@contract()
@pytest.mark.parametrize("reply_to", [Queue("replies.q"), Topic("replies.t")], ids=str)
async def test_header_fields_come_back(
    reply_to: Destination, queue: Destination, client: Client, session: Session
) -> None:
    expires = now_ms() + 600_000
    session.send(
        [
            text(
                queue,
                "x",
                correlation_id="c 1",
                type="t:1",
                reply_to=reply_to,
                priority=7,
                expires=expires,
            )
        ]
    )
    inbox = await client.consumer(queue, count=1)
    message = inbox.messages[0]
    headers = message.headers
    assert (headers.destination, headers.correlation_id, headers.type, headers.reply_to) == (
        queue,
        "c 1",
        "t:1",
        reply_to,
    )
    assert (headers.priority, headers.persistent) == (7, True)
    assert abs(message.expires - expires) <= 1000


@contract()
async def test_header_fields_that_were_not_set_are_not_there(seam: Seam) -> None:
    client, queue = await seam.waiting(["x"])
    inbox = await client.consumer(queue, count=1)
    message = inbox.messages[0]
    headers = message.headers
    assert (headers.correlation_id, headers.type, headers.reply_to) == (None, None, None)
    assert (headers.priority, headers.persistent, message.expires) == (4, True, 0)


@contract()
async def test_a_message_that_is_not_persistent_says_so(queue: Destination, client: Client) -> None:
    inbox = await client.consumer(queue)
    await client.send(queue, ["x"], persistent=False)
    await inbox.count(1)
    assert not inbox.messages[0].headers.persistent


@contract()
async def test_a_message_that_expires_while_it_waits_is_not_delivered(
    seam: Seam, queue: Destination, client: Client, session: Session
) -> None:
    due = now_ms() + 100
    mark = seam.identifier()
    await send(
        session,
        [
            text(queue, mark, expires=due),
            text(queue, "good", expires=now_ms() + 600_000),
            text(queue, "for ever"),
        ],
    )
    # A relative time to live begins when the broker's client has the message.
    await until(lambda: now_ms() > due + 300)
    inbox = await client.consumer(queue, count=2)
    await seam.quiet()
    assert inbox.texts == ["good", "for ever"]
    if seam.backend.dead is not None:
        dead = await client.consumer(seam.backend.dead, mode=Mode.AUTO)
        await until(lambda: mark in dead.texts)


@contract()
async def test_a_message_that_had_expired_when_it_was_sent_is_not_delivered(
    seam: Seam, queue: Destination, client: Client, session: Session
) -> None:
    await send(session, [text(queue, "late", expires=now_ms() - 1000), text(queue, "good")])
    # To a JMS provider the sender can only say that it expires in a millisecond.
    sent = now_ms()
    await until(lambda: now_ms() > sent + 1)
    inbox = await client.consumer(queue, count=1)
    await seam.quiet()
    assert inbox.texts == ["good"]


@contract()
async def test_every_priority_comes_back(
    seam: Seam, queue: Destination, client: Client, session: Session
) -> None:
    await send(session, [text(queue, str(priority), priority=priority) for priority in range(10)])
    inbox = await client.consumer(queue, count=10)
    assert [message.text for message in inbox.messages] == [
        str(message.headers.priority) for message in inbox.messages
    ]
    expected = range(9, -1, -1) if seam.backend.by_priority else range(10)
    assert inbox.texts == [str(priority) for priority in expected]


@contract()
async def test_order_is_kept_within_one_priority(
    queue: Destination, client: Client, session: Session
) -> None:
    await send(
        session,
        [
            text(queue, f"{priority}.{turn}", priority=priority)
            for turn in range(5)
            for priority in (1, 9, 4)
        ],
    )
    inbox = await client.consumer(queue, count=15)
    for priority in (1, 9, 4):
        assert [body for body in inbox.texts if body.startswith(str(priority))] == [
            f"{priority}.{turn}" for turn in range(5)
        ]


@contract(arranged=("restart",))
async def test_everything_a_persistent_message_carries_outlives_the_broker(
    seam: Seam, queue: Destination, session: Session
) -> None:
    expires = now_ms() + 600_000
    properties: dict[str, Value] = {"n": Short(5), "s": "größe", "b": False}
    headers = Headers(
        queue,
        body_type=BodyType.BYTES,
        priority=8,
        correlation_id="c",
        type="t",
        reply_to=Queue("r"),
        properties=properties,
    )
    await send(session, [Message(headers, b"\x00\x01\xff", expires=expires)])
    await seam.restart()
    inbox = await (await seam.connect()).consumer(queue, count=1)
    message = inbox.messages[0]
    assert (message.body, message.headers.body_type, message.headers.priority) == (
        b"\x00\x01\xff",
        BodyType.BYTES,
        8,
    )
    assert (message.headers.correlation_id, message.headers.type, message.headers.reply_to) == (
        "c",
        "t",
        Queue("r"),
    )
    assert abs(message.expires - expires) <= 1000
    kept = {name: message.headers.properties[name] for name in properties}
    if seam.backend.typed_properties:
        assert with_types(kept) == with_types(properties)
    else:
        assert kept == {"n": "5", "s": "größe", "b": "false"}
