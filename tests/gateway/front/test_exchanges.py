"""Exchanges and named queues of one's own, at RabbitMQ behind a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.client import Client
from tests.faults.proxy import Proxy
from tests.gateway.front import behind
from tests.gateway.front.behind import Connect, check_exchange, of_this_test
from tests.gateway_process import GatewayProcess
from tests.servers import rabbitmq

pytestmark = pytest.mark.brokers

#: Exchanges that an operator has made, by their types.
EXCHANGES: Final = {
    "orders": "topic",
    "orders.eu": "topic",
    "prices": "direct",
    "news": "fanout",
    "marks": "headers",
    "a/b": "direct",
    "guarded": "topic",
    "shut": "fanout",
    "typed": "topic",
}

#: Access rules besides those of a new instance.
RULES: Final = """
topic.amq.exchange.guarded.closed.produce.deny.user=admin
topic.amq.exchange.guarded.closed.consume.deny.user=admin
topic.amq.exchange.shut.>.produce.deny.user=admin
topic.amq.exchange.shut.>.consume.deny.user=admin
topic.amq.exchange.orders%2Eeu.secret.produce.deny.user=admin
topic.amq.exchange.typed.closed.>.consume.deny.user=admin
queue.unread.consume.deny.user=admin
queue.unfed.produce.deny.user=admin
"""


#: Headers of a named queue that stays, for several connections.
KEPT: Final = {"durable": "true", "auto_delete": "false", "exclusive": "false"}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    rabbitmq().declare_exchanges(EXCHANGES, ("orders", "bound.#", "amq.topic"))
    folder = tmp_path_factory.mktemp("front")
    by_key = {"there__exchanges": "typed=topic,prices=direct"}
    with behind.with_profiles(folder, behind.rabbitmq_by_stomp(), RULES, **by_key) as gateway:
        yield gateway


def _refused(client: Client, command: str, headers: dict[str, str]) -> str:
    """What an ERROR with the receipt-id says."""
    client.send(command, {"id": "s", "receipt": "r", **headers})
    error = client.expect("ERROR")
    assert error["receipt-id"] == "r"
    return f"{error['message']} {error.text}"


# --- exchanges


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("orders", "/{}.created"),
        ("orders", "/{}.ä b"),
        ("orders.eu", "/{}"),
        ("prices", "/{}%2Fc"),
        ("a%2Fb", "/{}"),
        ("news", ""),
        ("news", "/{}"),
        ("marks", ""),
        ("amq.match", ""),
    ],
)
def test_an_exchange_is_that_of_rabbitmqs_own_clients(
    front: GatewayProcess,
    connect: Connect,
    own: Client,
    sender: Client,
    name: str,
    exchange: str,
    key: str,
) -> None:
    there = f"/exchange/{exchange}{key.format(name)}"
    client, other = (connect(front, "rabbitmq") for _ in range(2))
    check_exchange(there, name, client, own, (sender, other))


@pytest.mark.parametrize("pattern", ["{}.*", "{}.#", "#.{}.created", "*.created.#"])
def test_wildcards_are_those_of_the_exchange(
    front: GatewayProcess, connect: Connect, own: Client, name: str, pattern: str
) -> None:
    client = connect(front, "rabbitmq")
    client.subscribe(f"/exchange/orders/{pattern.format(name)}")
    own.put(f"/exchange/orders/{name}.created", name)
    message = of_this_test(client, name)
    assert message["destination"] == f"/exchange/orders/{name}.created"


@pytest.mark.parametrize("profile", ["", "activemq", "artemis"])
def test_clients_of_other_brokers_know_it_as_a_topic(
    front: GatewayProcess, connect: Connect, own: Client, sender: Client, name: str, profile: str
) -> None:
    topic, there = f"/topic/amq.exchange.orders%2Eeu.{name}", f"/exchange/orders.eu/{name}"
    client = connect(front, profile)
    client.subscribe(topic)
    own.subscribe(there)
    connect(front, profile).put(topic, "a", reply_to=topic)
    sender.put(there, "b", reply_to=there)
    came = own.messages(2)
    assert [(each.text, each["destination"], each["reply-to"]) for each in came] == [
        ("a", there, there),
        ("b", there, there),
    ]
    messages = client.messages(2)
    assert [each.text for each in messages] == ["a", "b"]
    if profile != "artemis":
        assert {(each["destination"], each["reply-to"]) for each in messages} == {(topic, topic)}


def test_a_message_has_the_exchange_that_it_was_sent_to(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    """Also where a queue or another exchange is bound to it."""
    exchange = f"/exchange/orders/bound.{name}.x"
    client, plain = connect(front, "rabbitmq"), connect(front)
    client.subscribe(f"/topic/bound.{name}.#", id="topic")
    plain.subscribe(f"/topic/bound.{name}.>")
    own.subscribe(exchange, x_queue_name=name, **KEPT)
    own.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe(f"/amq/queue/{name}", id="queue")
    own.put(exchange, "a")
    messages = client.messages(2)
    assert {each["subscription"] for each in messages} == {"topic", "queue"}
    assert {each["destination"] for each in messages} == {exchange}
    assert plain.message()["destination"] == f"/topic/amq.exchange.orders.bound.{name}.x"


def test_a_durable_subscription_to_an_exchange(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    exchange, durable = f"/exchange/orders/{name}", {"durable_subscriber_name": "d"}
    client = connect(front, "rabbitmq", client_id=name)
    client.subscribe(exchange, **durable)
    client.disconnect()
    own.put(exchange, "meanwhile", persistent="true")
    client = connect(front, "rabbitmq", client_id=name)
    client.subscribe(exchange, **durable)
    message = client.message()
    assert (message.text, message["destination"]) == ("meanwhile", exchange)
    client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})


# --- what RabbitMQ refuses


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_exchange_that_is_not_there_is_an_error_as_rabbitmq_words_it(
    front: GatewayProcess, connect: Connect, own: Client, name: str, command: str
) -> None:
    frame = {"destination": f"/exchange/{name}/k", "id": "s", "receipt": "r"}
    client = connect(front, "rabbitmq")
    client.send(command, frame)
    error = client.expect("ERROR")
    own.send(command, frame)
    theirs = own.expect("ERROR")
    sentence = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    assert (error["message"], error.text) == ("not_found", sentence)
    assert error["receipt-id"] == "r"
    assert sentence in theirs.text + theirs["message"]
    # As there, the connection ends.
    assert [each.command for each in client.rest()] in ([], ["ERROR"])


def test_the_error_says_what_message_it_is_about(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    client = connect(front)
    own.subscribe(f"/exchange/orders/{name}")
    client.send("SEND", {"destination": f"/topic/amq.exchange.orders.{name}", "receipt": "a"}, "a")
    client.send("SEND", {"destination": f"/topic/amq.exchange.{name}.k", "receipt": "b"}, "b")
    frames = client.rest()
    # It is that of the first of both receipts that were asked for together.
    errors = [each for each in frames if each.command == "ERROR"]
    assert f"no exchange '{name}'" in errors[0].text
    assert own.message().text == "a"


def test_an_error_without_a_receipt_is_told(
    front: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect(front, "rabbitmq")
    client.send("SEND", {"destination": f"/exchange/{name}/k"}, "a")
    assert f"no exchange '{name}'" in client.expect("ERROR").text
    client.rest()
    # That says nothing of whether the broker is there.
    connect(front, "rabbitmq").put(f"/queue/{name}", "a")
    assert "is back" not in front.said
    assert name not in front.said


@pytest.mark.parametrize(
    ("destination", "why"),
    [
        ("/exchange/orders/a.#", "wildcards"),
        ("/exchange/a%25b/k", "a name with %"),
        ("/exchange/a,b/k", "a name with ,"),
        ("/exchange/amq.rabbitmq.trace/#", "NOT_FOUND"),
        ("/exchange/amq.rabbitmq.trace", "NOT_FOUND"),
        ("/exchange/*/k", "NOT_FOUND"),
        ("/exchange//orders", "not a valid exchange"),
    ],
)
def test_what_cannot_be_passed_on_is_refused(
    front: GatewayProcess, connect: Connect, destination: str, why: str
) -> None:
    client = connect(front, "rabbitmq")
    assert why in _refused(client, "SEND", {"destination": destination})


def test_transactions_are_refused_as_elsewhere(front: GatewayProcess, connect: Connect) -> None:
    client = connect(front, "rabbitmq")
    assert "does not support transactions" in _refused(client, "BEGIN", {"transaction": "t"})


# --- access


@pytest.mark.parametrize(
    ("destination", "command", "headers"),
    [
        ("/exchange/guarded/closed", "SEND", {}),
        ("/exchange/shut", "SEND", {}),
        ("/exchange/shut/any", "SEND", {}),
        ("/exchange/orders.eu/secret", "SEND", {}),
        # Who receives by any key may receive all, as the gateway does not know the types.
        ("/exchange/guarded/open", "SUBSCRIBE", {}),
        ("/exchange/guarded/#", "SUBSCRIBE", {}),
        ("/exchange/guarded", "SUBSCRIBE", {}),
        ("/exchange/shut", "SUBSCRIBE", {}),
        ("/exchange/typed/closed", "SUBSCRIBE", {}),
        ("/exchange/typed/closed.a", "SUBSCRIBE", {}),
        ("/exchange/typed/*.a", "SUBSCRIBE", {}),
        ("/exchange/typed/#.a", "SUBSCRIBE", {}),
        ("/exchange/typed/#", "SUBSCRIBE", {}),
        # A queue's name is a way to what is in it, and into it.
        ("/topic/open", "SUBSCRIBE", {"x-queue-name": "unread"}),
        ("/exchange/orders/open", "SUBSCRIBE", {"x-queue-name": "unfed"}),
        ("/amq/queue/unread", "SUBSCRIBE", {}),
        # Dead messages are sent on.
        ("/queue/dying", "SUBSCRIBE", {"x-dead-letter-exchange": "shut"}),
        (
            "/topic/open",
            "SUBSCRIBE",
            {"x-dead-letter-exchange": "guarded", "x-dead-letter-routing-key": "closed"},
        ),
        ("/topic/open", "SUBSCRIBE", {"x-dead-letter-exchange": "guarded"}),
        (
            "/queue/dying",
            "SUBSCRIBE",
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "unfed"},
        ),
    ],
)
def test_no_exchange_or_queue_leads_around_the_rules(
    front: GatewayProcess,
    connect: Connect,
    destination: str,
    command: str,
    headers: dict[str, str],
) -> None:
    client = connect(front, "rabbitmq", login="admin", passcode="admin")
    said = _refused(client, command, {"destination": destination, **headers})
    assert "ACCESS_REFUSED" in said


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"x-dead-letter-exchange": ""}, "where its dead messages would go is not known"),
        (
            {"x-dead-letter-exchange": "amq.rabbitmq.log"},
            "where its dead messages would go is not known",
        ),
        ({"durable": "true"}, "SUBSCRIBE with x-queue-name:NAME, too"),
        ({"x-queue-name": "amq.own"}, "reserved prefix"),
        ({"x-queue-name": "a%2Fb"}, "a name with %"),
    ],
)
def test_queues_that_cannot_be_passed_on_are_refused_by_name(
    front: GatewayProcess, connect: Connect, name: str, headers: dict[str, str], why: str
) -> None:
    client = connect(front, "rabbitmq")
    assert why in _refused(client, "SUBSCRIBE", {"destination": f"/topic/{name}", **headers})


def test_who_may_not_all_may_what_other_rules_say(front: GatewayProcess, connect: Connect) -> None:
    client = connect(front, "rabbitmq", login="admin", passcode="admin")
    client.subscribe("/exchange/orders.eu/#")
    # As the operator has said that it goes by the key.
    client.subscribe("/exchange/typed/open", id="open")
    client.subscribe("/exchange/typed/open.#", id="all")
    connect(front, "rabbitmq").put("/exchange/typed/open", "a")
    assert {message["subscription"] for message in client.messages(2)} == {"open", "all"}
    client.put("/exchange/guarded/open", "a")
    client.put("/exchange/orders/secret", "a")


def test_a_send_does_not_say_where_dead_messages_go(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    """From a profile that takes any header."""
    client = connect(front)
    client.put(f"/queue/{name}", "a", x_dead_letter_exchange="shut")
    # A queue with that argument would be refused to who does not say it.
    own.subscribe(f"/queue/{name}", durable="true", auto_delete="false", exclusive="false")
    assert own.message().text == "a"
    client.put(f"/queue/{name}.b", "b", x_dead_letter_exchange="shut")
    client.subscribe(f"/queue/{name}.b")
    assert client.message()["x-dead-letter-exchange"] == "shut"


# --- named queues


@pytest.mark.parametrize("destination", ["/topic/{}", "/exchange/orders/{}.#", "/exchange/news"])
def test_clients_with_one_queue_share_its_messages(
    front: GatewayProcess, connect: Connect, own: Client, name: str, destination: str
) -> None:
    destination = destination.format(name)
    queue = {"x_queue_name": name, **KEPT}
    one, two = connect(front, "rabbitmq"), connect(front, "rabbitmq")
    for each in (one, two):
        each.subscribe(destination, ack="client-individual", prefetch_count="1", **queue)
    sent = destination.replace("#", "x")
    own.put(sent, "a", "b", persistent="true")
    first, second = one.message(), two.message()
    assert {first.text, second.text} == {"a", "b"}
    assert first["destination"] == second["destination"] == sent
    # What one does not acknowledge is the other's when it leaves.
    one.close()
    two.ask("ACK", {"id": second["ack"]})
    again = two.message()
    assert (again.text, again["redelivered"]) == (first.text, "true")
    two.ask("ACK", {"id": again["ack"]})
    two.disconnect()
    # The queue stays, and is that of RabbitMQ's own clients.
    own.put(sent, "meanwhile", persistent="true")
    own.subscribe(f"/amq/queue/{name}")
    assert own.message().text == "meanwhile"


def test_a_nack_gives_a_message_back(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    client = connect(front, "rabbitmq")
    client.subscribe(f"/exchange/orders/{name}", ack="client-individual", x_queue_name=name, **KEPT)
    own.put(f"/exchange/orders/{name}", "a")
    message = client.message()
    assert message["redelivered"] == "false"
    client.nack(message)
    message = client.message()
    assert (message.text, message["redelivered"]) == ("a", "true")
    client.ask("NACK", {"id": message["ack"], "requeue": "false"})
    client.disconnect()
    own.put(f"/exchange/orders/{name}", "b")
    own.subscribe(f"/amq/queue/{name}")
    assert own.message().text == "b"


def test_a_queue_has_several_keys(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    queue = {"x_queue_name": name, **KEPT}
    client = connect(front, "rabbitmq")
    client.subscribe(f"/exchange/orders/{name}.a", id="a", **queue)
    client.subscribe(f"/exchange/prices/{name}.b", id="b", **queue)
    for destination in (f"/exchange/orders/{name}.a", f"/exchange/prices/{name}.b"):
        own.put(destination, "a")
        assert client.message()["destination"] == destination


def test_a_queue_has_the_arguments_that_the_client_says(
    front: GatewayProcess, connect: Connect, own: Client, sender: Client, name: str
) -> None:
    queue = {"x_queue_name": name, **KEPT, "x_max_length": "1", "x_dead_letter_exchange": "news"}
    client = connect(front, "rabbitmq")
    client.subscribe(f"/exchange/orders/{name}", **queue)
    client.disconnect()
    own.subscribe("/exchange/news")
    sender.put(f"/exchange/orders/{name}", f"{name} a", f"{name} b")
    assert of_this_test(own, f"{name} a")["destination"] == f"/exchange/news/{name}"
    # With other arguments it is another queue to RabbitMQ, which refuses it.
    client = connect(front, "rabbitmq")
    frame = {"destination": f"/exchange/orders/{name}", "x-queue-name": name, "x-max-length": "2"}
    said = _refused(
        client, "SUBSCRIBE", {**{k.replace("_", "-"): v for k, v in KEPT.items()}, **frame}
    )
    assert "PRECONDITION_FAILED" in said


@pytest.mark.parametrize("said", [{"x-max-length": "-1"}, {"x-expires": "0"}])
def test_a_queue_that_rabbitmq_refuses_has_no_receipt(
    front: GatewayProcess, connect: Connect, name: str, said: dict[str, str]
) -> None:
    for destination in (f"/queue/{name}", f"/topic/{name}"):
        client = connect(front, "rabbitmq")
        # The next frame, so there is no RECEIPT before it.
        told = _refused(client, "SUBSCRIBE", {"destination": destination, **said})
        assert f"invalid arg '{next(iter(said))}'" in told
        assert client.rest() == []


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("x-max-length", "many", "'many' is no number: expected digits alone"),
        ("x-max-length-bytes", "", "'' is no number: expected digits alone"),
        ("x-max-priority", "high", "'high' is no number: expected digits alone"),
        ("x-expires", "1.5", "'1.5' is no number: expected digits alone"),
        ("x-message-ttl", "1s", "'1s' is no number: expected digits alone"),
        ("durable", "TRUE", "'TRUE' is neither true nor false, in small letters"),
    ],
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_argument_that_rabbitmq_cannot_read_is_refused_by_name(
    front: GatewayProcess,
    connect: Connect,
    name: str,
    command: str,
    header: str,
    value: str,
    expected: str,
) -> None:
    """RabbitMQ says "Processing error", and closes the connection."""
    _check_refused(front, connect, f"/queue/{name}", command, {header: value}, expected)


@pytest.mark.parametrize("destination", ["/queue/{}", "/amq/queue/{}", "/topic/{}"])
def test_an_offset_that_rabbitmq_cannot_read_is_refused_by_name(
    front: GatewayProcess, connect: Connect, name: str, destination: str
) -> None:
    headers = {"x-stream-offset": "offset=first"}
    expected = "'offset=first' has no number behind offset="
    _check_refused(front, connect, destination.format(name), "SUBSCRIBE", headers, expected)


def _check_refused(
    front: GatewayProcess,
    connect: Connect,
    destination: str,
    command: str,
    headers: dict[str, str],
    expected: str,
) -> None:
    said = front.log.count("cannot be reached")
    client = connect(front, "rabbitmq")
    told = _refused(client, command, {"destination": destination, **headers})
    assert f"'{next(iter(headers))}' is not allowed on '{command}': {expected}" in told
    assert "incident" not in told
    assert front.log.count("cannot be reached") == said


@pytest.mark.parametrize("value", [" 5 ", "+5", "5"])
def test_rabbitmq_reads_an_argument_as_it_reads_its_own_clients(
    front: GatewayProcess, connect: Connect, own: Client, name: str, value: str
) -> None:
    for client in (own, connect(front, "rabbitmq")):
        client.subscribe(f"/queue/{name}", x_max_length=value)


def test_a_queue_goes_with_its_last_consumer(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    client = connect(front, "rabbitmq")
    client.subscribe(f"/exchange/orders/{name}", x_queue_name=name)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.sync()
    own.send("SUBSCRIBE", {"destination": f"/amq/queue/{name}", "id": "s"})
    assert "NOT_FOUND" in own.expect("ERROR").text


def test_an_exclusive_queue_is_one_connections(
    front: GatewayProcess, connect: Connect, name: str
) -> None:
    queue = {"x_queue_name": name, "exclusive": "true"}
    connect(front, "rabbitmq").subscribe(f"/topic/{name}", **queue)
    other = {"destination": f"/topic/{name}", "x-queue-name": name, "exclusive": "true"}
    assert "RESOURCE_LOCKED" in _refused(connect(front, "rabbitmq"), "SUBSCRIBE", other)


def test_unsubscribe_removes_a_topics_queue_as_at_rabbitmq(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    queue = {"x_queue_name": name, **KEPT}
    client = connect(front, "rabbitmq")
    client.subscribe(f"/topic/{name}", **queue)
    client.ask("UNSUBSCRIBE", {"id": "s", "durable": "true", "x-queue-name": name})
    own.send("SUBSCRIBE", {"destination": f"/amq/queue/{name}", "id": "s"})
    assert "NOT_FOUND" in own.expect("ERROR").text


def test_a_queue_with_arguments_is_read_where_it_is(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    """By a name that declares nothing, and by one that says the arguments."""
    limited = {**KEPT, "x_max_length": "5"}
    own.subscribe(f"/queue/{name}", **limited)
    own.ask("UNSUBSCRIBE", {"id": "s"})
    for destination, headers in ((f"/amq/queue/{name}", {}), (f"/queue/{name}", limited)):
        client = connect(front, "rabbitmq")
        client.subscribe(destination, ack="client-individual", **headers)
        own.put(f"/amq/queue/{name}", "a", "b")
        messages = client.messages(2)
        assert [message.text for message in messages] == ["a", "b"]
        for message in messages:
            client.ask("ACK", {"id": message["ack"]})
        client.disconnect()


def test_a_send_names_a_queue_with_arguments(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    limited = {**KEPT, "x_max_length": "5"}
    own.subscribe(f"/queue/{name}", **limited)
    client = connect(front, "rabbitmq")
    client.put(f"/queue/{name}", "a", x_max_length="5")
    client.put(f"/amq/queue/{name}", "b")
    assert [message.text for message in own.messages(2)] == ["a", "b"]
    sent = {"destination": f"/queue/{name}", "x-dead-letter-exchange": "news"}
    assert "SEND to /amq/queue/NAME" in _refused(client, "SEND", sent)
    # RabbitMQ makes no queue for this one.
    client = connect(front, "rabbitmq")
    client.put(f"/amq/queue/{name}.none", "c")
    own.send("SUBSCRIBE", {"destination": f"/amq/queue/{name}.none", "id": "n"})
    assert "NOT_FOUND" in own.expect("ERROR").text


def test_each_client_reads_all_of_a_stream(
    front: GatewayProcess, connect: Connect, own: Client, name: str
) -> None:
    stream = {**KEPT, "x_queue_type": "stream", "x_stream_offset": "first"}
    bodies = [str(number) for number in range(30)]
    for count in range(2):
        client = connect(front, "rabbitmq")
        client.subscribe(
            f"/topic/{name}",
            x_queue_name=name,
            ack="client-individual",
            prefetch_count="2",
            **stream,
        )
        if not count:
            own.put(f"/topic/{name}", *bodies)
        for body in bodies:
            message = client.message()
            assert message.text == body
            client.ack(message)
        assert client.sync() == []


def test_clients_that_wait_for_the_broker_go_on(
    front: GatewayProcess, tmp_path: Path, connect: Connect, own: Client, name: str
) -> None:
    proxy = Proxy(rabbitmq().port)
    factory = behind.Factory("there", f"stomp://127.0.0.1:{proxy.port}", "guest")
    with proxy, behind.with_profiles(tmp_path, factory, hold="60") as gateway:
        client = connect(gateway, "rabbitmq")
        exchange = f"/exchange/orders/{name}"
        client.subscribe(exchange, ack="client-individual", x_queue_name=name, **KEPT)
        own.put(exchange, "a", persistent="true")
        message = client.message()
        proxy.drop()
        # What was not acknowledged comes again, and what is sent meanwhile goes on.
        again = client.message()
        assert (again.text, again["redelivered"]) == ("a", "true")
        assert again["destination"] == exchange
        client.send("ACK", {"id": message["ack"]})
        client.ask("ACK", {"id": again["ack"]})
        connect(gateway, "rabbitmq").put(exchange, "b")
        assert client.message().text == "b"
        # What RabbitMQ refuses is not sent again and again.
        for headers in ({}, {"receipt": "r"}):
            client = connect(gateway, "rabbitmq")
            client.send("SEND", {"destination": f"/exchange/{name}/k", **headers}, "a")
            assert f"no exchange '{name}'" in client.expect("ERROR").text
