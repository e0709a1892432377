"""What has no socket: addresses, options, dialects, encodings, frames, selectors, destinations and
refusals.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.providers.answers import SessionAnswers
from bridge.providers.asked import Asked, Operation
from bridge.providers.connection_options import InvalidAddress, InvalidOption
from bridge.providers.exchanges import is_missing
from bridge.providers.stomp.encoding import decode_headers, encode_headers
from bridge.providers.stomp.frames import FrameReader, MalformedFrames, write
from bridge.providers.stomp.mapping import (
    RESERVED,
    from_headers,
    parse,
    parse_reply,
    pattern,
    spell,
    to_headers,
)
from bridge.providers.stomp.options import (
    DIALECTS,
    StompAddress,
    StompOptions,
)
from bridge.providers.stomp.refusals import refusal, sentence
from bridge.providers.stomp.subscriptions import with_decimals
from bridge.providers.wildcards import covers
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    MessagingError,
    ProviderUnavailable,
    TooManyConsumers,
    UnknownExchange,
    UnknownSubscription,
)
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.selector.selector import parse as parse_selector
from gateway.messaging.values import Byte, Float, Int, Short, Value
from gateway.stomp.brokers import (
    ACTIVEMQ,
    ARTEMIS,
    GATEWAY,
    GENERIC,
    OPEN_MQ,
    RABBITMQ,
    SCHEDULES,
    Dialect,
    product,
    recognise,
)

# --- addresses and options


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("stomp://broker:61613", StompAddress("broker", 61613)),
        ("stomp+tls://broker.example:7673/", StompAddress("broker.example", 7673, True)),
        ("stomp://broker", StompAddress("broker", 61613)),
        ("stomp+tls://broker", StompAddress("broker", 61614, True)),
        ("stomp://[::1]:5", StompAddress("::1", 5)),
        ("stomp://broker:1/a%2Fb", StompAddress("broker", 1, False, "a/b")),
    ],
)
def test_addresses(text: str, address: StompAddress) -> None:
    assert StompAddress.parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "tcp://broker:1",
        "broker:61613",
        "",
        "stomp://",
        "stomp://b:0",
        "stomp://b:66000",
        "stomp://b:x",
        "stomp://b/?a=b",
        "stomp://[b",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidAddress, match="expected stomp://HOST:PORT"):
        StompAddress.parse(text)


def test_an_address_with_a_passcode_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidAddress) as refused:
        StompAddress.parse("stomp://me:s3cret@broker:1")
    assert "s3cret" not in str(refused.value)


def test_options_come_from_properties() -> None:
    properties = {
        "stomp.connect-timeout": "1.5",
        "stomp.heart-beat-ms": "0",
        "stomp.ca": "/x/ca.pem",
        "other": "x",
        "stomp.dialect": "rabbitmq",
    }
    options = StompOptions.from_properties(properties)
    assert options == StompOptions(
        connect_timeout=1.5, heart_beat_ms=0, ca=Path("/x/ca.pem"), dialect="rabbitmq"
    )
    assert options.declared is RABBITMQ
    assert StompOptions().declared is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stomp.conect-timeout", "1"),
        ("stomp.connect-timeout", "0"),
        ("stomp.receipt-timeout", "nan"),
        ("stomp.close-timeout", "x"),
        ("stomp.max-frame", "0"),
        ("stomp.heart-beat-ms", "-1"),
        ("stomp.dialect", "kafka"),
        ("stomp.ca", ""),
        ("stomp.key", "/x/key.pem"),
    ],
)
def test_what_is_no_option_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(name)):
        StompOptions.from_properties({name: value})


def test_files_without_certificates_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    address = StompAddress("localhost", 1, True)
    for options in (StompOptions(ca=empty), StompOptions(certificate=empty)):
        with pytest.raises(InvalidOption, match=re.escape(str(empty))):
            options.tls(address)
    with pytest.raises(OSError, match=re.escape("missing.pem")):
        StompOptions(ca=tmp_path / "missing.pem").tls(address)


# --- dialects


@pytest.mark.parametrize(
    ("server", "dialect"),
    [
        ("ActiveMQ/5.17.2", ACTIVEMQ),
        ("ActiveMQ-Artemis/2.31.0 ActiveMQ Artemis Messaging Engine", ARTEMIS),
        ("RabbitMQ/3.10.8", RABBITMQ),
        ("stomp-gateway/1.0", GATEWAY),
        ("Open Message Queue 5.1", OPEN_MQ),
        ("apache-apollo/1.7", GENERIC),
        ("", GENERIC),
    ],
)
def test_brokers_are_recognised(server: str, dialect: Dialect) -> None:
    assert recognise(server) is dialect


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("ActiveMQ/5.17.2", "ActiveMQ"),
        ("ActiveMQ-Artemis/2.31.0 ActiveMQ Artemis Messaging Engine", "ActiveMQ-Artemis"),
        ("Open Message Queue 5.1", "Open Message Queue 5.1"),
        ("coilmq", "coilmq"),
        ("a / b", "a / b"),
        (" ", ""),
        ("", ""),
    ],
)
def test_a_broker_has_the_name_that_it_tells(server: str, name: str) -> None:
    assert product(server) == name


def test_brokers_without_real_transactions_are_not_transacted() -> None:
    assert {name for name, dialect in DIALECTS.items() if dialect.transacted} == {
        "activemq",
        "gateway",
        "openmq",
    }


# --- destinations

dialects = st.sampled_from(list(DIALECTS.values()))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(dialect=dialects, kind=st.sampled_from(Kind), name=names)
def test_a_spelt_destination_is_read_back(dialect: Dialect, kind: Kind, name: str) -> None:
    assume(dialect.prefixes or not name.startswith("/"))
    assume("%2F" not in name)
    destination = Destination(kind, name)
    sent = spell(dialect, destination)
    if dialect is RABBITMQ:
        assert parse_reply(dialect, sent) == destination
        sent = _said_by_rabbitmq(sent)
    assert parse(dialect, sent, kind) == destination


def _said_by_rabbitmq(sent: str) -> str:
    """What MESSAGE has as its destination, where this was SEND's."""
    _, kind, name = sent.split("/")
    octets = name.replace("%2F", "/").encode()
    shown = (
        chr(octet) if 32 <= octet <= 127 and octet not in b"/%" else f"%{octet:02X}"
        for octet in octets
    )
    return f"/{kind}/{''.join(shown)}"


def test_a_name_that_rabbitmq_cannot_be_told_is_refused() -> None:
    with pytest.raises(InvalidDestination, match="takes %2F in a name for a slash"):
        spell(RABBITMQ, Queue("a%2Fb"))
    assert spell(RABBITMQ, Queue("a%2fb/ä")) == "/queue/a%2fb%2Fä"


def test_a_reply_to_somebodys_temporary_queue_goes_back_as_it_came() -> None:
    for dialect, text in (
        (ACTIVEMQ, "/remote-temp-queue/ID:1"),
        (GATEWAY, "/temp-queue/temporary_destination://queue/abc"),
        (RABBITMQ, "/reply-queue/abc"),
    ):
        destination = parse(dialect, text, Kind.QUEUE)
        assert destination is not None
        assert destination.temporary
        assert spell(dialect, destination) == text
    assert parse(ACTIVEMQ, "somewhere", Kind.QUEUE) is None


def test_wildcards() -> None:
    assert pattern(RABBITMQ, Topic("a.*.>")) == "/topic/a.*.*.#"
    assert pattern(RABBITMQ, Queue("a.>")) == "/queue/a.>"
    assert pattern(ACTIVEMQ, Topic("a.*.>")) == "/topic/a.*.>"
    assert pattern(RABBITMQ, Topic("a.*.>"), none_or_more=True) == "/topic/a.*.#"
    assert pattern(ACTIVEMQ, Topic("a.*.>"), none_or_more=True) == "/topic/a.*.>"
    assert [name for name in ("a", "a.b", "a.b.c", "b.a") if covers("a.>", name)] == [
        "a.b",
        "a.b.c",
    ]
    assert [name for name in ("a", "a.b", "a.b.c") if covers("a.*", name)] == ["a.b"]


# --- the encoding of headers

header_texts = st.text(st.characters(exclude_categories=[]))
values: st.SearchStrategy[Value] = st.one_of(
    header_texts,
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
)
property_names = st.one_of(
    st.sampled_from(
        [
            "type",
            "destination",
            "JMS_STOMP_TYPES",
            "JMSXGroupID",
            "priority",
            "a",
            "fenêtre",
            "é" * 3,
        ]
    ),
    st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True).filter(
        lambda name: (
            is_property_name(name) and (not name.startswith("JMS") or name.startswith("JMS_"))
        )
    ),
)
extra_names = st.one_of(
    st.sampled_from(
        ["content-type", "x-foo", "destination", "ack", "", " a", "a:b", "a\nb", "JMS_STOMP_BODY"]
    ),
    header_texts,
).filter(
    lambda name: not is_property_name(name) or name in RESERVED or name.startswith("JMS_STOMP_")
)


def typed(properties: dict[str, Value]) -> dict[str, tuple[type, Value]]:
    return {name: (type(value), value) for name, value in properties.items()}


def through_a_frame(pairs: list[tuple[str, str]], body: bytes = b"") -> dict[str, str]:
    """What a broker that keeps everything would give back."""
    reader = FrameReader(1_000_000)
    reader.escaped = True
    (frame,) = reader.read(write("SEND", pairs, body))
    assert frame.body == body
    return frame.headers


@given(st.dictionaries(property_names, values), st.dictionaries(extra_names, header_texts))
def test_properties_and_extras_come_back_as_they_were(
    properties: dict[str, Value], extras: dict[str, str]
) -> None:
    kept = tuple((name, value) for name, value in extras.items() if name not in properties)
    pairs = encode_headers(properties, kept, RESERVED)
    assert not {name for name, _ in pairs} & RESERVED
    found, more = decode_headers(through_a_frame(pairs), RESERVED, RESERVED)
    assert typed(found) == typed(properties)
    assert dict(more) == dict(kept)


def test_a_string_is_a_plain_header_that_others_can_read() -> None:
    assert encode_headers({"a": "b", "n": Int(5)}, (("x-foo", "y"),), RESERVED) == [
        ("a", "b"),
        ("n", "5"),
        ("x-foo", "y"),
        ("JMS_STOMP_TYPES", "n=int"),
    ]


@pytest.mark.parametrize("types", ["n=int", "n=nonsense", "n", "=", "n=float,,"])
def test_a_type_that_does_not_fit_leaves_a_string(types: str) -> None:
    assert decode_headers({"n": "many", "JMS_STOMP_TYPES": types}, RESERVED, RESERVED)[0] == {
        "n": "many"
    }


def test_names_that_are_no_encoding_are_passed_over() -> None:
    assert decode_headers(
        {"JMS_STOMP_P_xx": "1", "JMS_STOMP_E_ff": "1", "JMS_STOMP_NEW": "1"}, RESERVED, RESERVED
    ) == ({}, ())


@pytest.mark.parametrize("name", ["JMS_SUN_DMQ_DESTINATION", "JMSMessageID", "colour", "x-foo"])
def test_names_that_need_no_encoding_do_not_come_in_by_it(name: str) -> None:
    """A sender cannot hand on, past a broker that drops such a header, what only a provider may
    say.
    """
    forged = {
        f"JMS_STOMP_P_{name.encode().hex()}": "forged",
        f"JMS_STOMP_E_{name.encode().hex().upper()}": "forged",
    }
    received = from_headers(forged, b"", GATEWAY, Kind.QUEUE, Queue("q"))
    assert (received.message.headers.properties, received.message.headers.extras) == ({}, ())


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_link_has_a_gateway_deliver_at_once_what_has_had_its_time(name: str) -> None:
    message = Message(Headers(Queue("q"), properties={name: 5}), b"")
    for dialect in DIALECTS.values():
        sent = through_a_frame(to_headers(message, dialect, 1, ""))
        assert (name in sent) is (dialect is not GATEWAY)
        assert from_headers(
            sent, b"", dialect, Kind.QUEUE, Queue("q")
        ).message.headers.properties == {name: 5}
        clients_own = through_a_frame(to_headers(message, dialect, 1, "", for_clients=True))
        assert name in clients_own


# --- messages


@given(
    dialect=dialects,
    body_type=st.sampled_from(BodyType),
    body=st.binary(),
    text=st.text(st.characters(exclude_categories=["Cs"])),
    properties=st.dictionaries(property_names, values),
    persistent=st.booleans(),
    priority=st.integers(0, 9),
    reply=st.sampled_from([None, Queue("r"), Topic("r.s")]),
)
def test_a_message_comes_back_from_a_broker_that_keeps_headers(
    dialect: Dialect,
    body_type: BodyType,
    body: bytes,
    text: str,
    properties: dict[str, Value],
    persistent: bool,
    priority: int,
    reply: Destination | None,
) -> None:
    octets = (
        text.encode()
        if body_type is BodyType.TEXT
        else b""
        if body_type is BodyType.MESSAGE
        else body
    )
    if reply is not None and not dialect.prefixes:
        reply = Queue(reply.name)  # Artemis does not tell, in reply-to, a queue from a topic
    headers = Headers(
        Queue("a/b.c"),
        body_type=body_type,
        persistent=persistent,
        priority=priority,
        reply_to=reply,
        correlation_id="c: 1",
        type="t",
        properties=properties,
        extras=(("content-type", "text/plain"),),
    )
    message = Message(headers, octets, expires=4_000_000_000_000, timestamp=5, message_id="ID-1")
    sent = through_a_frame(to_headers(message, dialect, 1, ""), octets)
    if dialect is ACTIVEMQ and body_type is BodyType.TEXT and octets and b"\0" not in octets:
        del sent["content-length"]  # as it does
    received = from_headers(
        sent | {"message-id": "m", "redelivered": "false"},
        octets,
        dialect,
        Kind.QUEUE,
        Queue("a/b.c"),
    )
    assert (received.message.headers, received.message.body) == (headers, octets)
    assert typed(dict(received.message.headers.properties)) == typed(properties)
    assert (received.message.expires, received.attempts) == (4_000_000_000_000, 1)
    assert received.message.message_id == ("ID-1" if dialect.own_ids else "m")


@pytest.mark.parametrize(
    ("given_headers", "body", "dialect", "expected"),
    [
        ({}, b"text", ACTIVEMQ, BodyType.TEXT),
        ({"content-length": "4"}, b"text", ACTIVEMQ, BodyType.BYTES),
        ({}, b"\xff", ACTIVEMQ, BodyType.BYTES),
        ({"content-length": "4"}, b"text", RABBITMQ, BodyType.TEXT),
        ({"content-length": "4"}, b"\xff\0", RABBITMQ, BodyType.BYTES),
        (
            {"content-length": "4", "content-type": "application/octet-stream"},
            b"text",
            RABBITMQ,
            BodyType.BYTES,
        ),
        (
            {"content-length": "4", "content-type": "application/json; charset=utf-8"},
            b"1234",
            RABBITMQ,
            BodyType.TEXT,
        ),
        ({"JMS_STOMP_BODY": "map"}, b"", GATEWAY, BodyType.MAP),
        ({"JMS_STOMP_BODY": "text"}, b"\xff", GATEWAY, BodyType.BYTES),
        ({"JMS_STOMP_BODY": "picture"}, b"", GATEWAY, BodyType.TEXT),
    ],
)
def test_the_type_of_a_body_that_others_sent(
    given_headers: dict[str, str], body: bytes, dialect: Dialect, expected: BodyType
) -> None:
    received = from_headers(given_headers, body, dialect, Kind.QUEUE, Queue("q"))
    assert received.message.headers.body_type is expected


def test_headers_of_a_careless_broker() -> None:
    told = {
        "priority": "99",
        "expires": "soon",
        "timestamp": "-1",
        "JMSXDeliveryCount": "3",
        "JMSXUserID": "alice",
        "persistent": "TRUE",
        "reply-to": "x",
    }
    message, attempts, _ = from_headers(told, b"", ACTIVEMQ, Kind.QUEUE, Queue("q"))
    assert (
        message.headers.priority,
        message.expires,
        message.timestamp,
        attempts,
        message.user,
    ) == (9, 0, 0, 3, "alice")
    assert (message.headers.destination, message.headers.persistent) == (Queue("q"), True)
    assert (message.headers.reply_to, message.headers.extras) == (None, (("reply-to", "x"),))


def test_a_message_id_is_the_messages_own_and_not_the_deliverys() -> None:
    """As Artemis has it since 2.33: two consumers that get one message are told two ids, and
    duplicate ids are made of what they have in common.
    """
    for said in ("4,2147483700", "9,2147483700", "2147483700"):
        assert (
            from_headers(
                {"message-id": said}, b"", ARTEMIS, Kind.QUEUE, Queue("q")
            ).message.message_id
            == "2147483700"
        )
    assert (
        from_headers(
            {"message-id": "a,b"}, b"", ACTIVEMQ, Kind.QUEUE, Queue("q")
        ).message.message_id
        == "a,b"
    )


def test_a_temporary_destination_of_another_is_spelt_for_a_reply() -> None:
    message = Message(Headers(Destination(Kind.QUEUE, "ID:1", True), body_type=BodyType.TEXT), b"x")
    assert ("destination", "/remote-temp-queue/ID:1") in to_headers(message, ACTIVEMQ, 0, "")


# --- frames


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
            st.binary(),
        ),
        max_size=4,
    ),
    st.data(),
)
def test_any_split_of_the_octets_gives_the_same_frames(
    frames: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    octets = b"\n".join(
        write("MESSAGE", [("a", text), ("content-length", str(len(body)))], body)
        for text, body in frames
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=6)))
    reader = FrameReader(1_000_000)
    reader.escaped = True
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        found += list(reader.read(octets[start:end]))
    assert [(frame.headers["a"], frame.body) for frame in found] == frames


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_octets_that_are_no_stomp_give_our_own_error_or_wait(parts: list[bytes]) -> None:
    reader = FrameReader(100)
    reader.escaped = True
    try:
        for part in parts:
            for _ in reader.read(part):
                pass
    except MalformedFrames as error:
        # There may be none.
        texts = ("it does not speak STOMP", "it sent a frame that is too large")
        assert str(error).startswith(texts)  # noqa: PT017


def test_frames_before_the_wrong_one_are_told() -> None:
    reader = FrameReader(1000)
    frames = reader.read(b"RECEIPT\nreceipt-id:1\n\n\0NONSENSE\n\n\0")
    assert next(frames).command == "RECEIPT"
    with pytest.raises(MalformedFrames):
        next(frames)


def test_escapes_that_no_version_has_are_left() -> None:
    reader = FrameReader(1000)
    reader.escaped = True
    (frame,) = reader.read(b"MESSAGE\na:1:2\\c\\n\\r\\\\\\t\na:second\n\n\0")
    assert frame.headers == {"a": "1:2:\n\r\\\\t"}


# --- selectors


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n > 2", "n > 2.0"),
        ("n BETWEEN 2 AND 70", "n BETWEEN 2.0 AND 70.0"),
        ("n2 = '3 ''4' AND x IN ('5')", "n2 = '3 ''4' AND x IN ('5')"),
        ("f < 2.5 OR f = 1e3 OR f = .5 OR f = 3.", "f < 2.5 OR f = 1e3 OR f = .5 OR f = 3."),
        ("n / 2 = 1", "n / 2 = 1"),
        ("n = 9007199254740993", "n = 9007199254740993"),
        ("n = -7", "n = -7.0"),
    ],
)
def test_whole_numbers_become_decimals(selector: str, expected: str) -> None:
    assert with_decimals(selector) == expected
    parse_selector(expected)


# --- refusals and completions


@pytest.mark.parametrize(
    ("destination", "named"),
    [
        (Topic("amq.exchange.orders%2Eeu.created"), True),
        (Topic("amq.exchange.orders%2Eeu"), True),
        (Topic("amq.exchange.orders.eu"), False),
        (Topic("orders.eu"), False),
        (Queue("orders.eu"), False),
        (None, False),
    ],
)
def test_a_sentence_about_an_exchange_names_what_was_asked(
    destination: Destination | None, named: bool
) -> None:
    assert is_missing(destination, "NOT_FOUND - no exchange 'orders.eu' in vhost '/'") == named
    assert not is_missing(destination, "NOT_FOUND - no queue 'orders.eu' in vhost '/'")


@pytest.mark.parametrize(
    ("asked", "text", "kind"),
    [
        (
            Asked(Operation.SUBSCRIBE, "me", Queue("q"), "a ="),
            "Invalid selector: a =",
            InvalidSelector,
        ),
        (Asked(Operation.SUBSCRIBE, "me", Queue("q")), "Too many consumers", TooManyConsumers),
        (
            Asked(Operation.SUBSCRIBE, "me", Topic("t"), None, "c", "d"),
            "Durable consumer is in use",
            DurableInUse,
        ),
        (Asked(Operation.SUBSCRIBE, "me", Queue("q")), "access to queue refused", AccessDenied),
        (
            Asked(Operation.UNSUBSCRIBE, "me", None, None, "c", "d"),
            "Durable consumer is in use",
            DurableInUse,
        ),
        (
            Asked(Operation.UNSUBSCRIBE, "me", None, None, "c", "d"),
            "No durable subscription exists",
            UnknownSubscription,
        ),
        (
            Asked(Operation.SUBSCRIBE, "me", Topic("t")),
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q'",
            InvalidDestination,
        ),
        (
            Asked(Operation.SEND, "me", Topic("amq.exchange.login.k")),
            "not_found: NOT_FOUND - no exchange 'login' in vhost '/'",
            UnknownExchange,
        ),
        (Asked(Operation.COMMIT), "whatever", ProviderUnavailable),
    ],
)
def test_refusals(asked: Asked, text: str, kind: type[MessagingError]) -> None:
    assert type(refusal(asked, text)) is kind


def test_a_sentence_is_one_short_line() -> None:
    assert sentence({"message": "a\nb"}, b"c\x00d\n" + b"x" * 5000).startswith("a b: c d x")
    assert len(sentence({}, b"x" * 5000)) == 300
    assert sentence({}, b"") == "no reason given"
    assert sentence({"message": "same"}, b"same") == "same"
    assert (
        sentence({"message": "full"}, b"an.Exception: full\n\tat a.b(C.java)\n")
        == "an.Exception: full"
    )


@given(st.data())
def test_completions_are_told_in_the_order_asked_when_all_before_them_has_arrived(
    data: st.DataObject,
) -> None:
    later: list[object] = []
    receipts = SessionAnswers(later.append)
    told: list[int] = []
    taken: list[int] = []
    needs: list[set[int]] = []
    come: set[int] = set()
    for _ in range(data.draw(st.integers(0, 30))):
        step = data.draw(st.sampled_from(["take", "ask", "come"]))
        if step == "take":
            taken.append(receipts.number())
        elif step == "ask":
            number = len(needs)
            needs.append(set(taken))
            receipts.complete(lambda error, number=number: told.append(number))  # type: ignore[misc]
        elif waiting := [number for number in taken if number not in come]:
            number = data.draw(st.sampled_from(waiting))
            come.add(number)
            receipts.arrived(number, None)
        for call in later:
            call()  # type: ignore[operator]
        later.clear()
        expected = 0
        while expected < len(needs) and needs[expected] <= come:
            expected += 1
        assert told == list(range(expected))
    errors: list[object] = []
    receipts.complete(errors.append)
    receipts.fail_all(ProviderUnavailable("over"))
    assert told == list(range(len(needs)))
    assert len(receipts) == 0
