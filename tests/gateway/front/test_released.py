"""What a closed connection held is freed at once.

The collector hardly ever comes by: objects are many, and live long.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from uuid import uuid4

import pytest

from bridge.providers.amqp.options import AmqpOptions
from bridge.providers.amqp.provider import AmqpProvider
from gateway.front.held import HeldProvider
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, ConsumerSpec, Credentials, Mode, Provider
from tests.bridge.providers.amqp.peer import Peer, a_while, clock, until
from tests.bridge.providers.jms.stubs import compiled, send, stub_provider
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


@pytest.fixture
def mark() -> Iterator[str]:
    """Begins the bodies of one test's messages, while nothing is collected."""
    gc.collect()
    gc.disable()
    yield uuid4().hex
    gc.enable()


def _kept(mark: str) -> int:
    """How many of a test's messages there are."""
    every = [each for each in gc.get_objects() if isinstance(each, Message)]
    return sum(each.body.startswith(mark.encode()) for each in every)


async def _connected(provider: Provider, hold_s: float, login: str = "") -> Connection:
    clients = Credentials(login, login, for_clients=True)
    front = HeldProvider(provider, clock, hold_s, "there", None)
    connection: Connection = await front.connect(clients, None, _lost)
    return connection


def _lost(error: MessagingError) -> None:
    """It may be told, as it is where the broker goes away."""


def _receiving(connection: Connection, mark: str) -> list[int]:
    """Receive up to ten messages, and settle none.

    :returns: the numbers of those that come.
    """
    numbers: list[int] = []

    def deliver(consumer: object, first: int, messages: list[Message], *_: object) -> None:
        numbers.extend(range(first, first + len(messages)))

    session = connection.session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(Queue(mark)), deliver, _lost)  # type: ignore[arg-type]
    consumer.grant(10)
    consumer.start()
    session.completion(lambda error: None)
    return numbers


def _send(connection: Connection, mark: str) -> None:
    """Send a message for which no completion is asked for."""
    connection.session(Mode.AUTO).send([Message(Headers(Queue(mark)), f"{mark} sent".encode())])


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
@pytest.mark.parametrize("ends", ["closed", "lost"])
@on_reactor
async def test_of_an_amqp_broker(ends: str, hold_s: float, mark: str) -> None:
    peer = Peer("apache-activemq-artemis")
    connection = await _connected(AmqpProvider(peer.address, AmqpOptions(), clock), hold_s)
    numbers = _receiving(connection, mark)
    await until(lambda: peer.flows)
    for number in range(10):
        peer.deliver(f"{mark} {number}", f"d{number}")
    await until(lambda: len(numbers) == 10)
    assert _kept(mark) >= 10
    _send(connection, mark)
    if ends == "lost":
        peer.drop()
        await until(lambda: peer.lost)
    await connection.close()
    await until(lambda: peer.lost)
    await a_while()
    assert _kept(mark) == 0
    await peer.close()


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
@on_reactor
async def test_of_a_jms_provider(hold_s: float, mark: str) -> None:
    provider = stub_provider(compiled("javax"))
    connection = await _connected(provider, hold_s, "guest")
    await send(connection, Queue(mark), *[f"{mark} {number}".encode() for number in range(10)])
    numbers = _receiving(connection, mark)
    # A client acknowledges one at a time.
    await until(lambda: numbers)
    assert _kept(mark) > 0
    _send(connection, mark)
    await connection.close()
    await a_while()
    assert _kept(mark) == 0
