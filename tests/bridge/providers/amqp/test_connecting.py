"""Connections: recognition, refusals, silence, idle timeouts, garbage.

The engine is C code, and a crash would end the process. So garbage comes in many forms.
"""

from __future__ import annotations

import os
import random
import struct
from typing import Any

import proton
import pytest
from twisted.internet.protocol import Factory, Protocol

from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.peers import ARTEMIS, GENERIC, QPID, RABBITMQ, RABBITMQ_3, recognise
from bridge.providers.amqp.provider import AmqpProvider
from gateway.messaging.errors import ClientIdInUse, MessagingError, ProviderUnavailable
from gateway.messaging.provider import ConsumerSpec, Credentials, Mode
from tests.bridge.providers.amqp.peer import QUEUE, WELL, Client, Meet, Peer, a_while, clock, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
HEADER = b"AMQP\x00\x01\x00\x00"
MECHANISMS = b"\x00\x00\x00\x1f\x02\x01\x00\x00\x00\x53\x40\xc0\x12\x01\xe0\x0f\x01\xb3\x00\x00\x00\x09ANONYMOUS"
OUTCOME = b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x44\xc0\x03\x01\x50\x00"


class Raw:
    """A peer that sends given bytes and reads nothing."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        factory = Factory.forProtocol(Protocol)
        factory.buildProtocol = lambda addr: self._serve()  # type: ignore[method-assign]
        self._listener: Any = clock.listenTCP(0, factory, interface="127.0.0.1")

    def _serve(self) -> Protocol:
        served = Protocol()

        def made() -> None:
            transport: Any = served.transport
            transport.write(self.octets)

        served.connectionMade = made  # type: ignore[method-assign]
        return served

    def provider(self, **options: Any) -> AmqpProvider:
        address = AmqpAddress("127.0.0.1", self._listener.getHost().port)
        return AmqpProvider(address, AmqpOptions(**options), clock)

    async def close(self) -> None:
        await self._listener.stopListening()


@on_reactor
async def test_a_broker_is_recognised_and_its_capabilities_are_known_from_then_on(
    meet: Meet,
) -> None:
    peer, client = meet("qpid-cpp")
    assert client.provider.capabilities == GENERIC.capabilities
    connection = await client.connect("me")
    assert client.provider.capabilities == QPID.capabilities
    assert (connection.client_id, connection.product) == ("me", "qpid-cpp")
    served = peer.sockets[0].connection
    assert (served.remote_hostname, served.remote_container) == ("127.0.0.1", "me")
    with pytest.raises(ClientIdInUse):
        await client.connect("me")
    await connection.close()
    assert client.losses == []
    await until(lambda: peer.lost == 1)
    wire: Any = connection
    await until(lambda: wire._wire.connection is None)  # the engine's memory is free


@pytest.mark.parametrize(
    ("product", "version", "host", "peer"),
    [
        ("apache-activemq-artemis", "2.40", "h", ARTEMIS),
        ("RabbitMQ", "3.10.8", "h", RABBITMQ_3),
        ("RabbitMQ", "4.1.0", "h", RABBITMQ),
        ("", "", "x.servicebus.windows.net", None),
        ("Cisco", "1", "h", GENERIC),
    ],
)
def test_products_are_told_apart(product: str, version: str, host: str, peer: Any) -> None:
    found = recognise(product, version, host)
    assert found is peer or (peer is None and found.name == "servicebus")


@on_reactor
async def test_a_client_id_that_another_has_is_told(meet: Meet) -> None:
    peer, client = meet(None)

    def refuse(served: Any, event: Any) -> None:
        if event.type is proton.Event.CONNECTION_REMOTE_OPEN:
            served.connection.properties = {
                proton.symbol("amqp:connection-establishment-failed"): True
            }
            served.connection.open()
            served.connection.condition = proton.Condition(
                "amqp:invalid-field", "taken", {proton.symbol("invalid-field"): "container-id"}
            )
            served.connection.close()

    peer.happened = refuse  # type: ignore[method-assign]
    with pytest.raises(ClientIdInUse):
        await client.connect("me")
    assert client.losses == []


@on_reactor
async def test_a_broker_that_closes_the_connection_is_lost_with_its_reason(meet: Meet) -> None:
    peer, client = meet()
    await client.connect()

    def close() -> None:
        served = peer.sockets[0].connection
        served.condition = proton.Condition("amqp:connection:forced", "going down")
        served.close()

    peer.drive(close)
    await until(lambda: client.losses)
    assert "it closed the connection: going down" in str(client.losses[0])


@pytest.mark.parametrize("answers", [False, True], ids=["deaf", "no open"])
@on_reactor
async def test_a_peer_that_stays_silent_is_given_up(answers: bool, meet: Meet) -> None:
    peer, client = meet(None, connect_timeout=0.2)
    peer.deaf = not answers
    with pytest.raises(ProviderUnavailable, match=r"did not answer within 0\.2 s"):
        await client.connect("me")
    await until(lambda: peer.lost == 1)
    assert client.losses == []


@on_reactor
async def test_a_peer_that_falls_silent_is_lost_after_the_idle_timeout(meet: Meet) -> None:
    peer, client = meet(idle_timeout=1.0)
    await client.connect()
    peer.deaf = True
    await until(lambda: client.losses)
    assert "nothing was heard for 1 s" in str(client.losses[0])


@on_reactor
async def test_a_peer_with_an_idle_timeout_gets_empty_frames(meet: Meet) -> None:
    peer, client = meet()
    original = peer.happened

    def impatient(served: Any, event: Any) -> None:
        if event.type is proton.Event.CONNECTION_REMOTE_OPEN:
            served.engine.idle_timeout = 2.0
        original(served, event)

    peer.happened = impatient  # type: ignore[method-assign]
    await client.connect()
    before = peer.sockets[0].engine.frames_input
    await until(lambda: peer.sockets[0].engine.frames_input > before)
    assert client.losses == []


@on_reactor
async def test_close_does_not_wait_for_a_peer_that_hangs(meet: Meet) -> None:
    peer, client = meet(close_timeout=0.2)
    connection = await client.connect()
    session = connection.session(Mode.CLIENT)
    session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    peer.deaf = True
    session.completion(client.done)
    await connection.close()
    assert isinstance(client.told[0], ProviderUnavailable)
    assert client.losses == []


@on_reactor
async def test_a_wrong_passcode_is_not_in_the_error() -> None:
    only_plain = MECHANISMS.replace(b"ANONYMOUS", b"SCRAM-XYZ")
    peer = Raw(SASL_HEADER + only_plain)
    with pytest.raises(MessagingError) as refused:
        await peer.provider().connect(Credentials("guest", "sesame"), None, lambda error: None)
    assert "sesame" not in str(refused.value)
    assert "guest" in str(refused.value)
    await peer.close()


def _frame(body: bytes, kind: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


_OPENED = SASL_HEADER + MECHANISMS + OUTCOME + HEADER
GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "amqp 0-9-1": b"AMQP\x00\x00\x09\x01",
    "no sasl": HEADER + _frame(b"\x00\x53\x10\xc0\x04\x01\xa1\x01x"),
    "sasl garbage": SASL_HEADER + os.urandom(8) * 100,
    "frame too large": _OPENED + b"\xff\xff\xff\xff\x02\x00\x00\x00",
    "frame too small": _OPENED + b"\x00\x00\x00\x01\x02\x00\x00\x00",
    "no performative": _OPENED + _frame(b"\x00\x53\x99\x45"),
    "not described": _OPENED + _frame(b"\xa1\x05hello"),
    "nested lists": _OPENED
    + _frame(b"\x00\x53\x10" + b"\xd0\x00\x00\x10\x00\x00\x00\x00\x01" * 300),
    "open not utf-8": _OPENED + _frame(b"\x00\x53\x10\xc0\x05\x01\xa1\x02\xff\xfe"),
    "properties no map": _OPENED
    + _frame(b"\x00\x53\x10\xc0\x0e\x0a\xa1\x01x\x40\x40\x40\x40\x40\x40\x40\x40\x45"),
    "properties not utf-8": _OPENED
    + _frame(
        b"\x00\x53\x10\xc0\x1a\x0a\xa1\x01x\x40\x40\x40\x40\x40\x40\x40\x40"
        b"\xc1\x0d\x02\xa3\x07product\xa1\x01\xff"
    ),
    "transfer before open": _OPENED + _frame(b"\x00\x53\x14\xc0\x02\x01\x43" + b"x" * 50),
}


async def _attempt(provider: AmqpProvider) -> MessagingError | None:
    """Connect, and close again. :returns: why that was not possible, if so."""
    try:
        connection = await provider.connect(Credentials("", ""), None, lambda error: None)
    except MessagingError as error:
        return error
    await connection.close()
    return None


@pytest.mark.parametrize("what", GARBAGE)
@on_reactor
async def test_garbage_ends_in_a_sentence(what: str, capfd: Any) -> None:
    peer = Raw(GARBAGE[what])
    error = await _attempt(peer.provider(connect_timeout=1.0, close_timeout=0.1))
    assert error is None or "127.0.0.1" in str(error)
    assert error is None or isinstance(error, ProviderUnavailable)
    await peer.close()
    assert capfd.readouterr().err == ""


@on_reactor
async def test_garbage_of_chance_never_ends_the_process(capfd: Any) -> None:
    chance = random.Random(7)
    for _ in range(150):
        body = bytearray(chance.choice(list(GARBAGE.values())))
        for _ in range(chance.randrange(1, 6)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        peer = Raw(bytes(body) + chance.randbytes(chance.randrange(200)))
        await _attempt(peer.provider(connect_timeout=0.05, close_timeout=0.05))
        await peer.close()
    assert capfd.readouterr().err == ""


async def _open_consumer(peer: Peer, client: Client) -> Any:
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(3)
    consumer.start()
    assert await client.answered(session.completion) is WELL
    await until(lambda: peer.flows)
    return session


@on_reactor
async def test_garbage_on_an_open_connection_is_a_loss(meet: Meet, capfd: Any) -> None:
    chance = random.Random(11)
    for number in range(60):
        peer, client = meet()
        await _open_consumer(peer, client)
        body = b"\x00\x53" + bytes((chance.randrange(0x10, 0x1E),)) + chance.randbytes(40)
        peer.octets(_frame(body) if number % 2 else chance.randbytes(64))
        await a_while(0.02)
        # It may be the beginning of a frame, or one that means nothing.
        peer.drop()
        await until(lambda client=client: client.losses)  # type: ignore[misc]
        assert isinstance(client.losses[0], ProviderUnavailable)
    assert capfd.readouterr().err == ""


@on_reactor
async def test_more_messages_than_were_asked_for_are_a_loss(meet: Meet) -> None:
    peer, client = meet()
    await _open_consumer(peer, client)
    payload = b"\x00\x53\x77\xa1\x01x"
    for number in range(2000):
        number %= 256
        one = b"\x00\x53\x14\xc0\x0b\x05\x43" + bytes((0x52, number)) + b"\xa0\x01"
        peer.octets(_frame(one + bytes((number,)) + b"\x43\x42" + payload))
    await until(lambda: client.losses)
    await a_while()
    assert isinstance(client.losses[0], ProviderUnavailable)
    assert len(client.messages) <= 3


@on_reactor
async def test_a_peer_that_opens_links_of_its_own_is_lost(meet: Meet) -> None:
    peer, client = meet()
    await _open_consumer(peer, client)

    def attach() -> None:
        link = peer.links[0].link.session.receiver("mine")
        link.open()

    peer.drive(attach)
    await until(lambda: client.losses)
    assert "a link that it was not asked for" in str(client.losses[0])
