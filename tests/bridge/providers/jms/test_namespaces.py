"""Both namespaces, by stub classes; and what a provider without acknowledgement one by one does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from bridge.providers.jms import batches
from bridge.providers.jms.connection import JMSConnection, JMSFactory
from bridge.providers.jms.failures import (
    ClientMissing,
    NoXAFactory,
    ProviderFull,
    XAFactoryOnly,
    without_classes,
)
from bridge.providers.jms.provider import JMSProvider
from bridge.providers.jms.xa_session import JMSXASession
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.errors import (
    AuthenticationFailed,
    ClientIdInUse,
    InvalidDestination,
    InvalidSelector,
    MessageRejected,
    NotSupported,
    ProviderUnavailable,
    UnknownSubscription,
)
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Connection, ConsumerSpec, Flags, Mode, Vote, Xid
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
from tests.bridge.providers.jms.branches import refused
from tests.bridge.providers.jms.stubs import (
    GUEST,
    clock,
    compiled,
    not_lost,
    received,
    send,
    stub_provider,
    texts,
    told,
    unavailable,
)
from tests.on_reactor import on_reactor

VALUES: list[Value] = [
    None,
    True,
    Byte(-1),
    Short(-2),
    Int(3),
    2**62,
    Float(0.5),
    1e300,
    "ü\U0001f600\ud800",
    b"\x00\xff",
    Char("\ud83d"),
]


@pytest.fixture(scope="module", params=["javax", "jakarta"])
def classes(request: pytest.FixtureRequest) -> Path:
    return compiled(request.param)


@pytest_twisted.async_yield_fixture
async def connection(classes: Path) -> AsyncIterator[Connection]:
    made = await stub_provider(classes).connect(GUEST, None, not_lost)
    yield made
    await made.close()


def types(values: Iterable[object]) -> list[type]:
    return [type(value) for value in values]


@on_reactor
async def test_every_body_and_every_type_of_value_comes_back(connection: Connection) -> None:
    queue = Queue("values")
    entries = {f"e{number}": value for number, value in enumerate(VALUES)}
    properties = {
        f"p{number}": value
        for number, value in enumerate(VALUES)
        if not isinstance(value, bytes | Char)
    }
    bodies = {
        BodyType.MESSAGE: b"",
        BodyType.TEXT: "größe \U0001f600".encode(),
        BodyType.BYTES: bytes(range(256)),
        BodyType.MAP: encode_map(entries),
        BodyType.STREAM: encode_stream(VALUES),
        BodyType.OBJECT: b"\xac\xed\x00\x05 never looked at",
    }
    session = connection.session(Mode.AUTO)
    sent = [
        Message(
            Headers(
                queue,
                body_type=kind,
                persistent=False,
                priority=7,
                reply_to=Topic("r"),
                correlation_id="c",
                type="t",
                properties=properties,
            ),
            body,
        )
        for kind, body in bodies.items()
    ]
    session.send(sent)
    assert await told(session.completion) is None
    found = [message for message, _ in await received(connection, ConsumerSpec(queue), len(sent))]
    for message, before in zip(found, sent, strict=True):
        assert (message.headers, message.body) == (before.headers, before.body)
        assert (message.message_id, message.timestamp) == (before.message_id, before.timestamp)
        got = message.headers.properties
        assert types(got[name] for name in properties) == types(properties.values())
    assert types(decode_map(found[3].body).values()) == types(VALUES)
    assert types(decode_stream(found[4].body)) == types(VALUES)


@on_reactor
async def test_a_connection_has_the_name_that_its_provider_tells_or_that_of_the_factorys_class(
    classes: Path,
) -> None:
    connection = await stub_provider(classes).connect(GUEST, "me", not_lost)
    assert (connection.client_id, connection.product) == ("me", "Stub")
    nameless = await stub_provider(classes).connect(GUEST, "nameless", not_lost)
    assert nameless.product == "stub.StubProvider$StubFactory"
    await nameless.close()
    await connection.close()


@on_reactor
async def test_a_header_that_is_no_property_travels_escaped_where_the_provider_refuses_it(
    connection: Connection,
) -> None:
    extras = (("content-type", "text/plain"), ("x.y_z", "ü"), ("é 1", ""))
    with capturedLogs() as logged:
        for _ in range(2):
            properties = {"STOMP_x": "stays"}
            await send(connection, Queue("extras"), b"", b"", properties=properties, extras=extras)
    for message, _ in await received(connection, ConsumerSpec(Queue("extras")), 4):
        assert (message.headers.extras, message.headers.properties) == (extras, properties)
    [line] = [formatEvent(event) for event in logged if "escaped" in event.get("text", "")]
    assert line.endswith(
        "'content-type' for properties; they travel escaped, this one as 'STOMP_content_002dtype'"
    ), "once a connection"


@on_reactor
async def test_a_name_that_escaping_does_not_give_is_a_property(connection: Connection) -> None:
    # That of a name that needs no escape, capital digits, an escape that is cut off, and one that
    # is none.
    names = ("STOMP_plain", "STOMP_a_002Db", "STOMP_a_00", "STOMP_a_b", "stomp_a_002db")
    await send(connection, Queue("near"), b"", properties=dict.fromkeys(names, "x"))
    [(message, _)] = await received(connection, ConsumerSpec(Queue("near")), 1)
    assert (set(message.headers.properties), message.headers.extras) == (set(names), ())


@on_reactor
async def test_without_single_acknowledgement_one_message_is_out_at_a_time(classes: Path) -> None:
    provider = stub_provider(classes)
    assert not provider.capabilities.individual
    connection = await provider.connect(GUEST, None, not_lost)
    with pytest.raises(NotSupported):
        connection.session(Mode.INDIVIDUAL)
    queue = Queue("cumulative")
    session = connection.session(Mode.CLIENT)
    session.send([Message(Headers(queue), str(number).encode()) for number in range(3)])
    runs: list[tuple[int, str]] = []
    last: Deferred[None] = Deferred()

    def deliver(consumer: Any, first: int, messages: Any, attempts: Any, /) -> None:
        runs.append((first, "".join(message.text for message in messages)))
        if len(runs) == 3:
            last.callback(None)
        else:
            assert consumer.acknowledge_through(first) == 1
            with pytest.raises(NotSupported):
                consumer.acknowledge([first])

    consumer = session.consumer(ConsumerSpec(queue), deliver, not_lost)
    consumer.grant(100)
    consumer.start()
    await last
    assert runs == [(1, "0"), (2, "1"), (3, "2")]
    session.close()
    assert [
        (message.text, attempts)
        for message, attempts in await received(connection, ConsumerSpec(queue), 1)
    ] == [("2", 2)]
    await connection.close()


@on_reactor
async def test_a_part_of_what_a_transaction_received_is_committed(classes: Path) -> None:
    connection = await stub_provider(classes).connect(GUEST, None, not_lost)
    queue, out = Queue("part"), Queue("part.out")
    session = connection.session(Mode.TRANSACTED)
    session.send([Message(Headers(queue), str(number).encode()) for number in range(5)])
    assert await told(session.commit) is None
    got: list[str] = []
    five: Deferred[None] = Deferred()
    again: Deferred[None] = Deferred()

    def deliver(consumer: Any, first: int, messages: Any, attempts: Any, /) -> None:
        got.extend(
            f"{message.text}x{attempt}"
            for message, attempt in zip(messages, attempts or [1] * len(messages), strict=True)
        )
        if len(got) == 5:
            five.callback(None)
        if len(got) == 7:
            again.callback(None)

    consumer = session.consumer(ConsumerSpec(queue), deliver, not_lost)
    consumer.grant(100)
    consumer.start()
    await five
    assert consumer.acknowledge_through(2) == 2
    session.send([Message(Headers(out), b"once")])
    assert await told(session.commit) is None
    assert consumer.acknowledge_through(3) == 1
    assert await told(session.commit) is None
    assert await told(session.rollback) is None
    await again
    assert got == ["0x1", "1x1", "2x1", "3x1", "4x1", "3x2", "4x2"]
    await connection.close()
    connection = await stub_provider(classes).connect(GUEST, None, not_lost)
    assert await texts(connection, out, 1) == ["once"]
    assert await texts(connection, queue, 2) == ["3", "4"]
    await connection.close()


@on_reactor
async def test_a_message_that_is_refused_is_named_and_those_before_it_are_sent(
    connection: Connection,
) -> None:
    queue = Queue("refusing")
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(queue), b"0")])
    session.send(
        [
            Message(Headers(queue), b"1"),
            Message(Headers(queue, properties={"refuse": True}), b"2"),
            Message(Headers(queue), b"3"),
        ]
    )
    session.send([Message(Headers(queue), b"4")])
    error = await told(session.completion)
    assert isinstance(error, MessageRejected)
    assert (error.index, type(error.cause)) == (2, ProviderFull)
    assert error.told(str) == "queue:refusing is full: refused"
    session.send([Message(Headers(queue), b"5")])
    assert await told(session.completion) is None
    assert await texts(connection, queue, 3) == ["0", "1", "5"]
    session.send([Message(Headers(Queue("no.such.queue")), b"")])
    error = await told(session.completion)
    assert isinstance(error, MessageRejected)
    assert isinstance(error.cause, InvalidDestination)
    # No names of Java's classes reach clients.
    assert error.told(str) == "queue:no.such.queue: no.such.queue"


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("javax.jms.InvalidDestinationException: no queue a.B", "no queue a.B"),
        ("jakarta.jms.InvalidDestinationException", "the provider does not say why"),
        (
            "a.b.C$DException: one; caused by a.b.EError: two; linked to x.YException",
            "one; caused by two",
        ),
        ("a.BException: a.b.CException: one (error code 7)", "one (error code 7)"),
        ("Queue com.example.Orders is unknown", "Queue com.example.Orders is unknown"),
        (
            "java.lang.NoClassDefFoundError: some/Missing",
            "a class is missing there, or another than expected",
        ),
        (
            "javax.jms.JMSException: no body. Reason: java.lang.ClassNotFoundException: a.B; caused by a.CException: d",
            "no body. Reason: a class is missing there, or another than expected; caused by d",
        ),
    ],
)
def test_clients_do_not_read_names_of_classes(reason: str, left: str) -> None:
    assert without_classes(reason) == left


@on_reactor
async def test_a_reply_to_a_temporary_queue_has_the_name_that_its_owner_knows(
    classes: Path,
) -> None:
    provider = stub_provider(classes)
    asking, answering = (
        await provider.connect(GUEST, None, not_lost),
        await provider.connect(GUEST, None, not_lost),
    )
    reply = asking.temporary(Kind.QUEUE)
    await send(asking, Queue("requests"), b"?", reply_to=reply)
    [(request, _)] = await received(answering, ConsumerSpec(Queue("requests")), 1)
    assert request.headers.reply_to == reply
    answer = answering.session(Mode.AUTO)
    answer.send([Message(Headers(reply), b"!")])
    assert await texts(asking, reply, 1) == ["!"]
    with pytest.raises(InvalidDestination):
        answer.consumer(ConsumerSpec(reply), lambda *_: None, not_lost)
    await asking.close()
    with pytest.raises(MessageRejected):
        answer.send([Message(Headers(reply), b"too late")])
    await answering.close()


@on_reactor
async def test_destinations_are_looked_up(classes: Path, connection: Connection) -> None:
    provider = stub_provider(classes)
    environment = provider.factory.environment
    queue, topic = (
        await provider.look_up("queue", environment),
        await provider.look_up("topic", environment),
    )
    assert (queue, topic) == (Queue("physical.queue"), Topic("physical.topic"))
    await send(connection, queue, b"found")
    assert await texts(connection, queue, 1) == ["found"]
    with pytest.raises(ProviderUnavailable, match="nowhere is not bound"):
        await provider.look_up("nowhere", environment)
    with pytest.raises(
        ProviderUnavailable, match=r"java\.lang\.String was found where a Destination was expected"
    ):
        await provider.look_up("text", environment)


@on_reactor
async def test_what_java_throws_is_told_in_errors_of_the_seam(classes: Path) -> None:
    with pytest.raises(AuthenticationFailed) as denied:
        await stub_provider(classes, "denied").connect(GUEST, None, not_lost)
    assert "secret" not in str(denied.value)
    with pytest.raises(ClientIdInUse):
        await stub_provider(classes).connect(GUEST, "taken", not_lost)
    await unavailable(
        stub_provider(classes, "text"),
        r"a ConnectionFactory of javax\.jms or jakarta\.jms was expected",
    )
    connection = await stub_provider(classes).connect(GUEST, "mine", not_lost)
    with pytest.raises(UnknownSubscription):
        await connection.unsubscribe("d")
    session = connection.session(Mode.CLIENT)
    failed: Deferred[Exception] = Deferred()
    session.consumer(ConsumerSpec(Queue("q"), selector="bad"), lambda *_: None, failed.callback)
    assert isinstance(await told(session.completion), InvalidSelector)
    assert str(await failed) == "selector 'bad' is invalid: bad"
    # It is told once, and the session goes on.
    session.consumer(ConsumerSpec(Queue("q")), lambda *_: None, not_lost)
    assert await told(session.completion) is None
    await connection.close()


@on_reactor
async def test_a_lost_connection_is_told_at_once(classes: Path) -> None:
    lost: Deferred[Exception] = Deferred()
    connection = await stub_provider(classes).connect(GUEST, None, lost.callback)
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(Queue("q"), properties={"lose": True}), b"")])
    assert "the cable was cut" in str(await lost)
    with pytest.raises(ProviderUnavailable, match="the cable was cut"):
        connection.session(Mode.AUTO)
    await connection.close()


def branch(format_id: int = 1) -> Xid:
    return Xid(format_id, os.urandom(64), os.urandom(64))


async def associated(classes: Path, xid: Xid) -> tuple[JMSConnection, JMSXASession]:
    """An XA session that a branch is associated with."""
    connection = await stub_provider(classes, "xa").connect(GUEST, None, not_lost)
    assert isinstance(connection, JMSConnection)
    session = connection.xa_session()
    await session.resource().start(xid, Flags.NOFLAGS)
    return connection, session


@on_reactor
async def test_branches_are_prepared_found_and_committed_by_another_connection(
    classes: Path,
) -> None:
    queue, xids = Queue("branches"), [branch(), branch(), branch()]
    connections = []
    for number, xid in enumerate(xids):
        connection, session = await associated(classes, xid)
        session.send([Message(Headers(queue), str(number).encode())])
        ended = session.resource().end(xid, Flags.SUCCESS)
        assert await session.resource().prepare(xid) is Vote.OK
        await ended
        connections.append(connection)
    provider = stub_provider(classes, "xa")
    assert not provider.capabilities.xa
    await provider.look_up_factory()
    assert provider.capabilities.xa
    again = await provider.connect(GUEST, None, not_lost)
    resource = again.xa_session().resource()
    # The provider tells of one at a time.
    assert await resource.recover() == xids
    await resource.commit(xids[0], False)
    await resource.rollback(xids[1])
    await resource.forget(xids[2])
    assert await resource.recover() == []
    await refused(-4, resource.commit(branch(), False))
    plain = await stub_provider(classes).connect(GUEST, None, not_lost)
    assert await texts(plain, queue, 1) == ["0"]
    for connection in (*connections, again, plain):
        await connection.close()


@on_reactor
async def test_what_an_xa_exception_says_is_told_with_its_code(classes: Path) -> None:
    heuristic, silent = branch(6), branch(7)
    connection, session = await associated(classes, heuristic)
    resource = session.resource()
    await resource.end(heuristic, Flags.SUCCESS)
    assert await resource.prepare(heuristic) is Vote.READ_ONLY
    await refused(6, resource.commit(heuristic, False))
    await resource.start(silent, Flags.NOFLAGS)
    await resource.end(silent, Flags.SUCCESS)
    said = r"the disk is on fire; caused by .*: too hot \(the provider gave no code\)"
    await refused(-3, resource.prepare(silent), match=said)
    await connection.close()


@on_reactor
async def test_a_message_that_is_refused_leaves_its_branch_nothing_but_a_rollback(
    classes: Path,
) -> None:
    queue, xid = Queue("refused.in.branch"), branch()
    connection, session = await associated(classes, xid)
    session.send([Message(Headers(queue), b"0")])
    session.send(
        [Message(Headers(queue), b"1"), Message(Headers(queue, properties={"refuse": True}), b"2")]
    )
    sending = told(session.completion)
    session.send([Message(Headers(queue), b"3")])
    ended, prepared = session.resource().end(xid, Flags.SUCCESS), session.resource().prepare(xid)
    error = await sending
    assert isinstance(error, MessageRejected)
    assert (error.index, type(error.cause)) == (2, ProviderFull)
    await refused(104, ended, prepared, match="refused")
    await session.resource().rollback(xid)
    assert await told(session.completion) is None
    assert session.writable()
    again = branch()
    await session.resource().start(again, Flags.NOFLAGS)
    session.send([Message(Headers(queue), b"again")])
    await session.resource().end(again, Flags.SUCCESS)
    await session.resource().commit(again, True)
    plain = await stub_provider(classes).connect(GUEST, None, not_lost)
    assert await texts(plain, queue, 1) == ["again"]
    await plain.close()
    await connection.close()


@on_reactor
async def test_a_factory_of_the_wrong_kind_says_both_ways_out(classes: Path) -> None:
    plain = stub_provider(classes)
    connection = await plain.connect(GUEST, None, not_lost)
    assert not plain.capabilities.xa
    either = r"'cf' is a stub\.StubProvider\$StubFactory, not the XAConnectionFactory that a transacted link needs: look up an XAConnectionFactory, or set transacted=\"false\""
    with pytest.raises(NoXAFactory, match=either):
        connection.xa_session()
    await connection.close()
    xa = stub_provider(classes, "xa")
    connection = await xa.connect(GUEST, None, not_lost)
    either = r"'xa' is a stub\.StubProvider\$StubXAFactory.*: look up a plain ConnectionFactory, or set transacted=\"true\""
    with pytest.raises(XAFactoryOnly, match=either):
        connection.session(Mode.AUTO)
    await connection.close()


@on_reactor
async def test_a_class_that_is_missing_is_named(classes: Path) -> None:
    provider = JMSProvider(
        clock,
        JMSFactory("cf", {"java.naming.factory.initial": "com.example.Missing"}, str(classes)),
    )
    with pytest.raises(ClientMissing, match=r"com\.example\.Missing"):
        await provider.connect(GUEST, None, not_lost)


@on_reactor
async def test_two_providers_of_different_namespaces_do_not_clash() -> None:
    providers = [stub_provider(compiled(namespace)) for namespace in ("javax", "jakarta")]
    connections = [await provider.connect(GUEST, None, not_lost) for provider in providers]
    for number, connection in enumerate(connections):
        await send(connection, Queue("both"), str(number).encode())
    # Each has queues of its own, because it has a process of its own.
    for number, connection in enumerate(connections):
        assert await texts(connection, Queue("both"), 1) == [str(number)]
        await connection.close()


@on_reactor
async def test_an_acknowledgement_of_a_consumer_that_has_failed_meanwhile_is_no_success() -> None:
    """Its failure is not known yet where the acknowledgement is asked for."""
    provider = stub_provider(compiled("javax"))
    connection = await provider.connect(GUEST, None, not_lost)
    assert isinstance(connection, JMSConnection)
    for mode in (Mode.CLIENT, Mode.TRANSACTED):
        session = connection.session(mode)
        session.ask(batches.settle(4711, [1]))
        asked = session.commit if mode is Mode.TRANSACTED else session.completion
        error = await told(asked)
        assert isinstance(error, ProviderUnavailable)
        assert "had gone back to the provider" in str(error)
    await connection.close()


@pytest.mark.parametrize("namespace", ["javax", "jakarta"])
@on_reactor
async def test_a_clients_message_is_held_back_and_a_links_has_had_its_time(namespace: str) -> None:
    provider, queue = stub_provider(compiled(namespace)), Queue(f"later.{namespace}")
    clients_own = replace(GUEST, for_clients=True)
    link = await provider.connect(GUEST, None, not_lost)
    client = await provider.connect(clients_own, None, not_lost)
    for connection, text in ((client, b"held back"), (link, b"at once")):
        await send(connection, queue, text, properties={"AMQ_SCHEDULED_DELAY": "300"})
    await send(client, queue, b"next")
    found = [message for message, _ in await received(link, ConsumerSpec(queue), 3)]
    assert [message.text for message in found] == ["at once", "next", "held back"]
    assert [dict(message.headers.properties) for message in found] == [
        {"AMQ_SCHEDULED_DELAY": "300"},
        {},
        {},
    ]
    await client.close()
    await link.close()
