"""A gateway in front of RabbitMQ, whose own clients use the same queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final
from urllib.parse import unquote

import pytest

from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway.front.behind import Connect, check_exchange, of_this_test
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.brokers

#: Access rules besides those of a new instance.
RULES: Final = """
topic.amq.direct.closed.produce.deny.user=admin
topic.amq.direct.closed.consume.deny.user=admin
topic.amq.headers.closed.consume.deny.user=admin
"""


@pytest.fixture(scope="module")
def by_stomp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with behind.with_profiles(
        tmp_path_factory.mktemp("front"), behind.rabbitmq_by_stomp(), RULES
    ) as gateway:
        yield gateway


@pytest.mark.parametrize("profile", behind.PROFILES)
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
    with behind.with_profiles(
        tmp_path_factory.mktemp("front"), behind.rabbitmq_by_amqp()
    ) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("amq.direct", "/{}.ä.b"),
        ("amq.direct", "/{}%2Fc"),
        ("amq.fanout", ""),
        ("amq.headers", ""),
        ("amq.match", "/{}"),
    ],
)
def test_an_exchange_is_passed_on_by_amqp(
    by_amqp: GatewayProcess, connect: Connect, own: Client, name: str, exchange: str, key: str
) -> None:
    there = f"/exchange/{exchange}{key.format(name)}"
    client = connect(by_amqp, "rabbitmq")
    client.subscribe(there)
    connect(by_amqp, "rabbitmq").put(there, name, reply_to=there)
    own.put(there, name, reply_to=there)
    for _ in range(2):
        message = of_this_test(client, name)
        named = unquote(message["destination"])
        assert (named, unquote(message["reply-to"])) == (unquote(there), unquote(there))


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_exchange_that_is_not_there_is_an_error_by_amqp(
    by_amqp: GatewayProcess, connect: Connect, name: str, command: str
) -> None:
    client = connect(by_amqp, "rabbitmq")
    client.send(command, {"destination": f"/exchange/{name}/k", "id": "s", "receipt": "r"})
    error = client.expect("ERROR")
    assert (error["message"], error["receipt-id"]) == ("not_found", "r"), error
    assert error.text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"


def test_a_queue_is_read_where_it_is_by_amqp(
    by_amqp: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    own.subscribe(f"/queue/{name}", durable="true", auto_delete="false", x_max_length="5")
    own.ask("UNSUBSCRIBE", {"id": "s"})
    own.put(f"/amq/queue/{name}", "a")
    client = connect(by_amqp, "rabbitmq")
    client.subscribe(f"/amq/queue/{name}")
    assert client.message().text == "a"
    client.send("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "q", "x-queue-name": name})
    assert "does not support queues of subscriptions" in client.expect("ERROR").text


# --- exchanges


@pytest.mark.parametrize("front", ["by_stomp", "by_amqp"])
def test_the_exchange_of_topics_has_the_topics(
    request: pytest.FixtureRequest, connect: Connect, name: str, front: str
) -> None:
    gateway: GatewayProcess = request.getfixturevalue(front)
    client = connect(gateway)
    client.subscribe(f"/topic/{name}")
    connect(gateway, "rabbitmq").put(f"/exchange/amq.topic/{name}", "a")
    assert client.message().text == "a"


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("amq.direct", "/{}.ä.b"),
        ("amq.direct", "/{}%2Fc"),
        ("amq.fanout", "/{}"),
        ("amq.fanout", ""),
        ("amq.headers", "/{}.x"),
        ("amq.headers", ""),
    ],
)
def test_an_exchange_is_that_of_rabbitmqs_own_clients(
    by_stomp: GatewayProcess,
    connect: Connect,
    own: Client,
    sender: Client,
    name: str,
    exchange: str,
    key: str,
) -> None:
    there = f"/exchange/{exchange}{key.format(name)}"
    client, other = (connect(by_stomp, "rabbitmq") for _ in range(2))
    check_exchange(there, name, client, own, (sender, other))


@pytest.mark.parametrize("profile", ["", "activemq", "artemis"])
def test_clients_of_other_brokers_know_it_as_a_topic(
    by_stomp: GatewayProcess,
    connect: Connect,
    own: Client,
    sender: Client,
    name: str,
    profile: str,
) -> None:
    topic, there = f"/topic/amq.direct.{name}", f"/exchange/amq.direct/{name}"
    client = connect(by_stomp, profile)
    client.subscribe(topic)
    own.subscribe(there)
    connect(by_stomp, profile).put(topic, "a", reply_to=topic)
    sender.put(there, "b", reply_to=there)
    came = [own.message(), own.message()]
    assert [(each.text, each["destination"], each["reply-to"]) for each in came] == [
        ("a", there, there),
        ("b", there, there),
    ]
    assert [client.message().text for _ in range(2)] == ["a", "b"]


def test_a_durable_subscription_to_an_exchange(
    by_stomp: GatewayProcess, own: Client, name: str
) -> None:
    exchange, durable = f"/exchange/amq.direct/{name}", {"durable_subscriber_name": "d"}
    port = int(by_stomp.settings["imq.bridge.stomp.listener.rabbitmq.port"])
    with closing(Client(port)) as client:
        client.connect("1.2", client_id=name)
        client.subscribe(exchange, **durable)
        client.disconnect()
    own.put(exchange, "meanwhile", persistent="true")
    with closing(Client(port)) as client:
        client.connect("1.2", client_id=name)
        client.subscribe(exchange, **durable)
        message = client.message()
        assert (message.text, message["destination"]) == ("meanwhile", exchange)
        client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})


@pytest.mark.parametrize(
    ("profile", "destination", "commands", "why"),
    [
        ("rabbitmq", "/exchange/amq.direct/closed", ("SEND", "SUBSCRIBE"), "ACCESS_REFUSED"),
        ("", "/topic/amq.direct.closed", ("SEND", "SUBSCRIBE"), "user 'admin' may not"),
        # Whoever hears one key of these hears all.
        ("rabbitmq", "/exchange/amq.headers", ("SUBSCRIBE",), "ACCESS_REFUSED"),
        ("rabbitmq", "/exchange/amq.headers/open", ("SUBSCRIBE",), "ACCESS_REFUSED"),
        ("", "/topic/amq.headers.open", ("SUBSCRIBE",), "expected amq.headers.>"),
        ("", "/topic/amq.fanout.*", ("SUBSCRIBE",), "expected amq.fanout.>"),
        # To RabbitMQ that is a key like any other.
        ("", "/topic/amq.direct.open.*", ("SUBSCRIBE",), "has no wildcards"),
        ("rabbitmq", "/exchange/amq.direct", ("SEND", "SUBSCRIBE"), "without a key"),
        # Not all exchanges have topics that stand for them.
        ("rabbitmq", "/exchange/amq.rabbitmq.trace/#", ("SEND", "SUBSCRIBE"), "NOT_FOUND"),
        ("rabbitmq", "/exchange//orders", ("SEND", "SUBSCRIBE"), "not a valid exchange"),
    ],
)
def test_no_exchange_leads_around_the_rules(
    by_stomp: GatewayProcess,
    connect: Connect,
    profile: str,
    destination: str,
    commands: tuple[str, ...],
    why: str,
) -> None:
    for command in commands:
        client = connect(by_stomp, profile, login="admin", passcode="admin")
        client.send(command, {"destination": destination, "id": "s", "receipt": "r"})
        error = client.expect("ERROR")
        assert error["receipt-id"] == "r"
        assert why in error["message"] + error.text


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


def test_a_subscription_that_ends_at_once_by_amqp(
    by_amqp: GatewayProcess, connect: Connect, name: str
) -> None:
    """Before RabbitMQ has answered that it has begun."""
    client = connect(by_amqp)
    for number in range(5):
        client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": str(number)})
        client.send("UNSUBSCRIBE", {"id": str(number)})
    client.put(f"/queue/{name}", "a", "b")
    client.subscribe(f"/queue/{name}", ack="client")
    assert [message.text for message in client.messages(2)] == ["a", "b"]


def test_a_message_may_expire_in_thousands_of_years(
    by_stomp: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    """RabbitMQ takes no time to live of more than a hundred years."""
    client = connect(by_stomp)
    client.put(f"/queue/{name}", "a", expires="99999999999999")
    own.subscribe(f"/queue/{name}")
    message = own.message()
    assert (message.text, message["expires"]) == ("a", "99999999999999")
