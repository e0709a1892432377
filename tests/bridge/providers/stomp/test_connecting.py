"""Connections against a scripted peer: silence, half frames, refusals, heart-beats, and a
connection that is lost at each step.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from bridge.providers.asked import Asked, Operation
from bridge.providers.stomp.options import StompAddress, StompOptions, capabilities_of
from bridge.providers.stomp.wire import Wire
from gateway.messaging.errors import (
    AuthenticationFailed,
    ClientIdInUse,
    MessagingError,
    ProviderUnavailable,
)
from gateway.messaging.provider import ConsumerSpec, Mode
from gateway.stomp.brokers import ACTIVEMQ, GENERIC, RABBITMQ
from tests.bridge.providers.stomp.peer import QUEUE, WELL, Client, Meet, Peer, text, until
from tests.gateway_process import free_port
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


@on_reactor
async def test_a_broker_is_recognised_and_its_capabilities_are_known_from_then_on(
    meet: Meet,
) -> None:
    peer, client = meet()
    assert client.provider.capabilities == capabilities_of(GENERIC)
    connection = await client.connect("me")
    assert client.provider.capabilities == capabilities_of(ACTIVEMQ)
    assert (connection.client_id, connection.product) == ("me", "ActiveMQ")
    headers = peer.of("CONNECT")[0].headers
    assert headers["accept-version"].split(",")[0] == "1.2", "Open MQ takes the first"
    assert (headers["login"], headers["passcode"], headers["client-id"], headers["host"]) == (
        "guest",
        "secret",
        "me",
        "/",
    )
    await connection.close()
    assert client.losses == []


@on_reactor
async def test_a_declared_dialect_is_known_before_and_wins(meet: Meet) -> None:
    _, client = meet("something else", dialect="rabbitmq")
    assert client.provider.capabilities == capabilities_of(RABBITMQ)
    await client.connect()
    assert client.provider.capabilities == capabilities_of(RABBITMQ)


@on_reactor
async def test_a_broker_that_tells_no_name_has_that_of_its_dialect() -> None:
    peer = Peer("")
    assert (await Client(peer, dialect="artemis").connect()).product == "artemis"
    assert (await Client(peer).connect()).product == "generic"
    await peer.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@on_reactor
async def test_a_peer_that_accepts_and_stays_silent_is_given_up(tls: bool, meet: Meet) -> None:
    peer, client = meet(None, connect_timeout=0.2)
    peer.deaf = True
    address = peer.address
    client.provider.address = StompAddress(address.host, address.port, tls)
    with pytest.raises(ProviderUnavailable, match=r"did not answer within 0\.2 s"):
        await client.connect("me")
    await until(lambda: peer.lost == 1)
    with pytest.raises(ProviderUnavailable):
        await client.connect("me")
    assert client.losses == []


@on_reactor
async def test_nobody_listens(meet: Meet) -> None:
    _, client = meet()
    client.provider.address = StompAddress("127.0.0.1", free_port())
    with pytest.raises(ProviderUnavailable, match="refused"):
        await client.connect()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            b"ERROR\nmessage:User name [guest] or password is invalid.\n\nlong: text\0",
            AuthenticationFailed,
        ),
        (
            b"ERROR\nmessage:Bad CONNECT\n\nAccess refused for user 'guest'\n\0",
            AuthenticationFailed,
        ),
        (
            b"ERROR\nmessage:Broker: peer - Client: me already connected from tcp://x\n\n\0",
            ClientIdInUse,
        ),
        (b"ERROR\nmessage:go away\n\n\0", ProviderUnavailable),
        (b"ERROR\nmessage:caf\xc3\xa9 \\x : colons\n\n\0", ProviderUnavailable),
        (b"CONNECTED\nversion:1.0\n\n\0", ProviderUnavailable),
        (b"CONNECTED\n\n\0", ProviderUnavailable),
        (b"MESSAGE\n\n\0", ProviderUnavailable),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n\0", ProviderUnavailable),
        (b"\x15\x03\x01\x00\x02\x02\x28\n\n\0", ProviderUnavailable),
    ],
)
@on_reactor
async def test_what_may_come_in_place_of_connected(
    answer: bytes, error: type[MessagingError], meet: Meet
) -> None:
    peer, client = meet()
    peer.on["CONNECT"] = lambda frame: peer.octets(answer)
    with pytest.raises(error) as refused:
        await client.connect("me")
    assert "secret" not in str(refused.value)
    assert client.losses == []
    await until(lambda: peer.lost == 1)


@pytest.mark.parametrize("body", [b"", b"user 'guest' is refused: unknown user or wrong passcode"])
@on_reactor
async def test_the_sentence_of_another_gateway_is_not_said_twice(body: bytes) -> None:
    peer = Peer()
    answer = (
        b"ERROR\nmessage:user 'guest' is refused: unknown user or wrong passcode\n\n" + body + b"\0"
    )
    peer.on["CONNECT"] = lambda frame: peer.octets(answer)
    client = Client(peer)
    with pytest.raises(AuthenticationFailed) as refused:
        await client.connect()
    assert str(refused.value) == "user 'guest' is refused: unknown user or wrong passcode"
    await peer.close()


@on_reactor
async def test_the_connection_is_lost_before_connected(meet: Meet) -> None:
    peer, client = meet()
    peer.on["CONNECT"] = lambda frame: peer.drop()
    with pytest.raises(ProviderUnavailable):
        await client.connect()


@on_reactor
async def test_a_client_identifier_is_free_again_when_its_connection_is_not(meet: Meet) -> None:
    peer, client = meet()
    await client.connect("me")
    with pytest.raises(ClientIdInUse):
        await client.connect("me")
    peer.drop()
    await until(lambda: client.losses)
    await client.connect("me")


@pytest.mark.parametrize("header", ["a\nb", "a\0b"])
@on_reactor
async def test_a_client_identifier_that_would_break_the_frame_is_refused(
    header: str, meet: Meet
) -> None:
    peer, client = meet()
    with pytest.raises(ProviderUnavailable, match="line end"):
        await client.connect(header)
    assert peer.frames == []


# --- in the middle


@on_reactor
async def test_frames_that_come_octet_by_octet() -> None:
    peer = Peer()
    answer = b"\nCONNECTED\nversion:1.2\nserver:RabbitMQ/3.10\n\n\0\n"

    def trickle(frame: object) -> None:
        for at in range(len(answer)):
            peer.octets(answer[at : at + 1])

    peer.on["CONNECT"] = trickle
    client = Client(peer)
    await client.connect()
    assert client.provider.capabilities == capabilities_of(RABBITMQ)
    await peer.close()


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"NONSENSE\n\n\0", "NONSENSE"),
        (b"MESSAGE\ncontent-length:x\n\n\0", "does not speak STOMP"),
        (b"MESSAGE\ncontent-length:2\n\nabcd\0", "does not speak STOMP"),
        (b"MESSAGE\nno colon\n\n\0", "does not speak STOMP"),
        (b"MESSAGE\na:\xff\n\n\0", "does not speak STOMP"),
        (b"MESSAGE\n\n" + b"x" * 2000, "2009 octets so far, and stomp.max-frame is 1000"),
        (b"CONNECT\n\n\0", "which is not a frame of a broker"),
    ],
)
@on_reactor
async def test_a_broker_that_speaks_no_stomp_is_left(octets: bytes, said: str, meet: Meet) -> None:
    peer, client = meet(max_frame=1000)
    await client.connect()
    peer.octets(octets)
    await until(lambda: client.losses)
    assert said in str(client.losses[0])
    await until(lambda: peer.lost == 1)


@on_reactor
async def test_an_error_nobody_asked_for_ends_the_connection_once(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect()
    peer.say("ERROR", message="the broker is stopping")
    peer.say("ERROR", message="again")
    await until(lambda: client.losses)
    assert "the broker is stopping" in str(client.losses[0])
    with pytest.raises(ProviderUnavailable):
        connection.session(Mode.CLIENT)
    await connection.close()
    assert len(client.losses) == 1


# --- heart-beats and time


@on_reactor
async def test_heart_beats_are_sent_and_expected(meet: Meet) -> None:
    peer, client = meet(beat="100,100", heart_beat_ms=600)
    await client.connect()
    assert peer.of("CONNECT")[0].headers["heart-beat"] == "600,600"
    peer.octets(b"\n")
    await until(lambda: peer.beats >= 1)
    await until(lambda: client.losses)
    assert "twice its heart-beat" in str(client.losses[0])


def wired(clock: Clock, **options: Any) -> tuple[Wire, list[MessagingError]]:
    """A connection that is open, and how it was lost."""
    losses: list[MessagingError] = []
    wire = Wire(clock, StompOptions(**options), "broker", Asked(Operation.CONNECT), [])
    wire.on_lost = losses.append
    wire.makeConnection(StringTransport())  # type: ignore[no-untyped-call]
    wire.dataReceived(b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\n\n\0")
    return wire, losses


def passes(clock: Clock, seconds: float) -> None:
    for _ in range(round(seconds * 20)):
        clock.advance(0.05)


def test_a_broker_is_not_silent_while_this_process_does_not_run() -> None:
    clock = Clock()
    wire, losses = wired(clock, heart_beat_ms=1000)
    passes(clock, 1.5)
    clock.advance(60)
    passes(clock, 0.3)
    assert losses == []
    wire.dataReceived(b"\n")
    passes(clock, 1.8)
    assert losses == []
    passes(clock, 1)
    assert "twice its heart-beat" in str(losses[0])


def test_the_octets_that_lie_in_the_socket_are_read_before_a_broker_is_called_silent() -> None:
    clock = Clock()
    wire, losses = wired(clock, heart_beat_ms=1000)
    passes(clock, 1.95)
    clock.callLater(0.4, wire.dataReceived, b"\n")  # read after the timer that is due
    clock.advance(0.4)
    passes(clock, 1)
    assert losses == []


def test_a_receipt_has_its_time_while_this_process_runs() -> None:
    clock = Clock()
    wire, losses = wired(clock, heart_beat_ms=0, receipt_timeout=5)
    wire.request("SEND", [("destination", "/queue/a")], Asked(Operation.SEND))
    passes(clock, 3)
    clock.advance(60)
    passes(clock, 1)
    assert losses == []
    wire.dataReceived(b"RECEIPT\nreceipt-id:r1\n\n\0")
    passes(clock, 10)
    assert losses == []


@on_reactor
async def test_a_peer_that_beats_not_is_not_expected_to(meet: Meet) -> None:
    _, client = meet(beat="0,0", heart_beat_ms=1)
    connection = await client.connect()
    session = connection.session(Mode.CLIENT)
    for _ in range(3):
        client.told.clear()
        session.send([text("x")])
        await client.answered(session.completion)
    assert client.losses == []


@on_reactor
async def test_a_receipt_that_does_not_come_ends_the_connection(meet: Meet) -> None:
    _, client = meet(receipts=False, receipt_timeout=0.1)
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text("x")])
    session.completion(client.done)
    await until(lambda: client.losses)
    assert "RECEIPT did not come within 0.1 s" in str(client.losses[0])
    assert len(client.told) == 1
    assert isinstance(client.told[0], ProviderUnavailable)


# --- the end


@on_reactor
async def test_a_close_that_is_not_answered_takes_no_longer_than_it_may(meet: Meet) -> None:
    peer, client = meet(receipts=False, close_timeout=0.1)
    connection = await client.connect()
    session = connection.session(Mode.CLIENT)
    session.send([text("x")])
    session.completion(client.done)
    closing = [connection.close(), connection.close()]
    for one in closing:
        await one
    await connection.close()
    assert len(client.told) == 1
    assert isinstance(client.told[0], ProviderUnavailable)
    assert client.losses == []
    assert peer.commands().count("DISCONNECT") == 1


@on_reactor
async def test_a_connection_that_is_lost_while_it_closes_is_closed(meet: Meet) -> None:
    peer, client = meet()
    peer.on["DISCONNECT"] = lambda frame: peer.drop()
    await (await client.connect()).close()
    assert client.losses == []


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "ACK", "BEGIN", "COMMIT", "UNSUBSCRIBE"])
@on_reactor
async def test_a_connection_that_is_lost_at_any_step_is_told_once_after_those_who_wait(
    command: str, meet: Meet
) -> None:
    peer, client = meet()
    peer.on[command] = lambda frame: peer.drop()
    order: list[Any] = []
    client.losses = order
    client.told = order
    connection = await client.connect("me")
    plain, transacted = connection.session(Mode.CLIENT), connection.session(Mode.TRANSACTED)
    consumer = plain.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(5)
    consumer.start()
    if command not in ("SEND", "SUBSCRIBE", "BEGIN", "COMMIT"):
        await peer.heard("SUBSCRIBE")
        peer.message(1)
        await until(lambda: client.runs)
        if command == "ACK":
            consumer.acknowledge_through(1)
        else:
            consumer.close()
    plain.send([text("x")])
    plain.completion(client.done)
    transacted.send([text("x")])
    transacted.commit(client.done)
    await until(lambda: len(order) == 3)
    assert all(isinstance(error, MessagingError) or error is WELL for error in order)
    assert isinstance(order[-1], ProviderUnavailable), "the loss comes last"
    assert client.failures == []
    with pytest.raises(ProviderUnavailable):
        plain.send([text("x")])
    plain.close()
    transacted.close()
