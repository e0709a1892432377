"""A gateway in front of RabbitMQ, whose own clients use the same queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Final
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway_process import GatewayProcess, free_port
from tests.servers import rabbitmq

pytestmark = pytest.mark.brokers

#: In these, a SEND without ``persistent`` is not persistent.
PROFILES: Final = ("activemq", "artemis", "rabbitmq")


def _in_front(folder_of: pytest.TempPathFactory, factory: behind.Factory) -> GatewayProcess:
    folder = folder_of.mktemp("front")
    settings = behind.settings_for(folder, factory)
    for profile in PROFILES:
        listener = f"imq.bridge.stomp.listener.{profile}"
        settings |= {f"{listener}.port": str(free_port()), f"{listener}.profile": profile}
    return GatewayProcess(folder, settings=settings)


@pytest.fixture(scope="module")
def by_stomp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with _in_front(tmp_path_factory, behind.rabbitmq_by_stomp()) as gateway:
        yield gateway


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as opened:

        def connected(front: GatewayProcess, profile: str = "") -> Client:
            listener = f"imq.bridge.stomp.listener.{profile}.port"
            port = int(front.settings[listener]) if profile else front.port
            client = opened.enter_context(closing(Client(port)))
            client.connect("1.2")
            return client

        yield connected


@pytest.fixture
def own() -> Iterator[Client]:
    """A client of RabbitMQ itself."""
    with closing(Client(rabbitmq().port)) as client:
        client.connect("1.2", host="/", login="guest", passcode="guest")
        yield client


@pytest.fixture
def name() -> str:
    return uuid4().hex


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_not_persistent_goes_to_a_durable_queue(
    by_stomp: GatewayProcess, connect: Connect, own: Client, name: str, profile: str
) -> None:
    own.subscribe(f"/queue/{name}")
    client = connect(by_stomp, profile)
    client.put(f"/queue/{name}", "a", "b")
    client.put(f"/queue/{name}", "c", persistent="true")
    came = own.messages(3)
    assert [message.text for message in came] == ["a", "b", "c"]
    assert ["persistent" in message for message in came] == [False, False, True]


def test_what_is_not_persistent_makes_a_durable_queue(
    by_stomp: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    connect(by_stomp).put(f"/queue/{name}", "a", persistent="false")
    client = connect(by_stomp)
    client.put(f"/queue/{name}", "b")
    own.subscribe(f"/queue/{name}")
    assert [message.text for message in own.messages(2)] == ["a", "b"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("odd", ["ä b", "✓/c", 'a:"\\b'])
def test_a_name_means_to_rabbitmq_what_it_means_to_the_client(
    by_stomp: GatewayProcess, connect: Connect, own: Client, name: str, kind: str, odd: str
) -> None:
    there = f"/{kind}/{name}.{odd.replace('/', '%2F')}"
    here = f"/{kind}/{name}.{odd}"
    own.subscribe(there)
    client = connect(by_stomp)
    client.put(here, "to RabbitMQ", reply_to=here)
    message = own.message()
    assert (message.text, message["reply-to"]) == ("to RabbitMQ", there)
    own.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe(here)
    own.put(there, "from RabbitMQ", reply_to=there)
    message = client.message()
    assert (message.text, message["destination"], message["reply-to"]) == (
        "from RabbitMQ",
        here,
        here,
    )
    client.send("SEND", {"destination": message["reply-to"]}, "an answer")
    assert client.message().text == "an answer"


def test_a_durable_subscription_to_a_topic_with_an_odd_name(
    by_stomp: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    with closing(Client(by_stomp.port)) as client:
        client.connect("1.2", client_id=name)
        client.subscribe(f"/topic/{name}.ä", durable_subscriber_name="d")
        own.put(f"/topic/{name}.ä", "a")
        message = client.message()
        assert (message.text, message["destination"]) == ("a", f"/topic/{name}.ä")
        client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})


@pytest.fixture(scope="module")
def by_amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with _in_front(tmp_path_factory, behind.rabbitmq_by_amqp()) as gateway:
        yield gateway


@pytest.mark.parametrize("front", ["by_stomp", "by_amqp"])
def test_exchanges_are_refused_as_they_are_not_passed_on(
    request: pytest.FixtureRequest, connect: Connect, name: str, front: str
) -> None:
    gateway: GatewayProcess = request.getfixturevalue(front)
    refused = "does not support exchanges other than amq.topic; use /topic/KEY or /queue/NAME"
    for exchange in ("amq.direct/k", "amq.fanout", "amq.headers/k"):
        destination = f"/exchange/{exchange}"
        for command, headers in (("SEND", {}), ("SUBSCRIBE", {"id": "s"})):
            client = connect(gateway, "rabbitmq")
            client.send(command, {"destination": destination, "receipt": "r", **headers})
            error = client.expect("ERROR")
            assert (refused in error.text, error["receipt-id"]) == (True, "r"), error
    client = connect(gateway)
    client.subscribe(f"/topic/{name}")
    connect(gateway, "rabbitmq").put(f"/exchange/amq.topic/{name}", "a")
    assert client.message().text == "a"


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("odd", ["ä b", "✓/c"])
def test_a_name_means_the_same_by_amqp(
    by_amqp: GatewayProcess, connect: Connect, own: Client, name: str, kind: str, odd: str
) -> None:
    here = f"/{kind}/{name}.{odd}"
    client = connect(by_amqp)
    client.subscribe(here)
    own.put(f"/{kind}/{name}.{odd.replace('/', '%2F')}", "from RabbitMQ")
    message = client.message()
    assert (message.text, message["destination"]) == ("from RabbitMQ", here)
    connect(by_amqp).put(here, "to RabbitMQ", reply_to=here)
    message = client.message()
    assert (message.text, message["destination"], message["reply-to"]) == (
        "to RabbitMQ",
        here,
        here,
    )
