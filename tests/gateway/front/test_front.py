"""A gateway in front of another one.

Which broker has what, who may do what, and what clients notice when a broker goes away.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.admin.cli import imqbridgemgr
from tests.conformance.client import Client
from tests.crash.waiting import until_logged
from tests.gateway.front import behind
from tests.gateway_process import HOST, GatewayProcess, free_port

pytestmark = pytest.mark.process

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The broker behind."""
    with GatewayProcess(tmp_path_factory.mktemp("there")) as gateway:
        yield gateway


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as opened:

        def connected(to: GatewayProcess, **headers: str) -> Client:
            client = opened.enter_context(closing(Client(to.port)))
            client.connect("1.2", **headers)
            return client

        yield connected


@pytest.fixture
def name() -> str:
    return uuid4().hex


# --- which broker has what


@pytest.fixture(scope="module")
def divided(
    there: GatewayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """Some destinations are its own, some at another broker, some at none."""
    folder = tmp_path_factory.mktemp("divided")
    factories = (
        behind.gateway_by_stomp(there.port, "erp"),
        behind.gateway_by_stomp(free_port(), "away"),
    )
    shares = {
        "erp__destinations": "/queue/erp.>,/topic/prices.*",
        "away__destinations": "/queue/away,/queue/erp.away",
    }
    with behind.in_front_of(folder, *factories, main="embedded", **shares) as gateway:
        yield gateway


def test_destinations_are_divided(
    there: GatewayProcess, divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect(divided)
    client.put(f"/queue/erp.{name}", "for erp")
    client.put(f"/queue/{name}", "for itself")
    assert connect(there).left(f"/queue/erp.{name}") == ["for erp"]
    assert connect(there).left(f"/queue/{name}") == []
    assert client.left(f"/queue/{name}") == ["for itself"]


def test_one_send_to_two_brokers(
    there: GatewayProcess, divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect(divided)
    client.ask("SEND", {"destination": f"/queue/erp.{name},/queue/{name}"}, "both")
    assert connect(there).left(f"/queue/erp.{name}") == ["both"]
    assert client.left(f"/queue/{name}") == ["both"]


def test_a_topic_subscription_is_at_the_broker_of_its_text(
    there: GatewayProcess, divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client, other = connect(divided), connect(there)
    client.subscribe("/topic/prices.*", id="prices")
    client.subscribe("/topic/>", id="own")
    other.put(f"/topic/prices.{name}", "42")
    other.put(f"/topic/{name}", "not here")
    client.send("SEND", {"destination": f"/topic/{name}"}, "here")
    came = {message["subscription"]: message.text for message in client.messages(2)}
    assert came == {"prices": "42", "own": "here"}


def test_a_transaction_is_one_brokers(divided: GatewayProcess, connect: Connect, name: str) -> None:
    client = connect(divided)
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, "a")
    client.send("SEND", {"destination": f"/queue/erp.{name}", "transaction": "t"}, "b")
    client.send("COMMIT", transaction="t")
    client.error("a transaction is one broker's", f"/queue/erp.{name}")
    assert connect(divided).left(f"/queue/{name}") == []


def test_a_transaction_at_the_other_broker(
    there: GatewayProcess, divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client, queue = connect(divided), f"/queue/erp.{name}"
    client.put(queue, "a", "b")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t")
    client.ack(client.message(), transaction="t")
    client.send("SEND", {"destination": f"{queue}.out", "transaction": "t"}, "answer")
    client.ask("COMMIT", transaction="t")
    assert client.left(queue) == ["b"]
    assert connect(there).left(f"{queue}.out") == ["answer"]


def test_no_reply_to_what_the_other_broker_does_not_know(
    divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect(divided)
    client.subscribe("/temp-queue/answers")
    client.send("SEND", {"destination": f"/queue/erp.{name}", "reply-to": "/temp-queue/answers"})
    client.error("it is at the broker embedded", "which does not know it")


def test_a_broker_that_is_away_is_told_at_the_frame_that_needs_it(
    divided: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect(divided)
    client.put(f"/queue/{name}", "a")
    client.send("SEND", {"destination": "/queue/away", "receipt": "r"}, "b")
    error = client.error("the broker 'away' cannot be reached")
    assert "127.0.0.1" not in error["message"]
    # The more precise of two that have a destination.
    client = connect(divided)
    client.send("SUBSCRIBE", {"destination": "/queue/erp.away", "id": "s"})
    client.error("the broker 'away' cannot be reached")
    until_logged(divided, "Connection refused")


def test_a_subscription_that_the_broker_refuses_has_no_receipt(
    tmp_path: Path, connect: Connect, name: str
) -> None:
    with behind.in_front_of(tmp_path, behind.stub_by_jms()) as gateway:
        durable = {"durable-subscriber-name": "d", "destination": f"/topic/{name}"}
        for headers, why in (
            ({"selector": "bad", "destination": f"/queue/{name}"}, "selector"),
            (durable, "topics have nothing here"),
        ):
            client = connect(gateway, **{"client-id": name})
            client.send("SUBSCRIBE", {**headers, "id": "s", "receipt": "r"})
            error = client.expect("ERROR")
            assert why in error["message"]
            assert error["receipt-id"] == "r"
            client.close()


def test_clients_read_no_names_of_javas_classes_and_the_log_has_them(
    tmp_path: Path, connect: Connect, name: str
) -> None:
    factory = behind.stub_by_jms()
    with behind.in_front_of(tmp_path, factory, credentials="client") as gateway:
        client = connect(gateway, **{"client-id": name})
        topic = {"destination": f"/topic/{name}", "durable-subscriber-name": "d", "id": "s"}
        client.send("SUBSCRIBE", topic)
        refused = client.error("the provider refuses: topics have nothing here, incident ")
        client = connect(gateway)
        client.put("/queue/unreadable", "a class is missing")
        client.send("SUBSCRIBE", {"destination": "/queue/unreadable", "id": "s"})
        unreadable = client.error(
            "of /queue/unreadable cannot be read, and is left there: a class is missing there, or another than expected. "
        )
        factory.lookup_name = "denied"
        behind.settings_for(tmp_path, factory)
        gateway.kill()
        gateway.start()
        with closing(Client(gateway.port)) as client:
            login = {"login": "guest", "passcode": "secret"}
            client.send("CONNECT", {"accept-version": "1.2", "host": "h", **login})
            denied = client.error("user 'guest' is refused: not with password ***, incident ")
        for error, withheld in (
            (refused, "javax.jms.JMSException: topics have nothing here"),
            (unreadable, "java.lang.NoClassDefFoundError: some/Missing"),
            (denied, "javax.jms.JMSSecurityException: not with password ***"),
        ):
            assert "Exception" not in error.text + error["message"]
            assert "java" not in error.text + error["message"]
            # It is one line with the incident.
            until_logged(gateway, f"{error.text.strip()}: {withheld}")


# --- who may do what


@pytest.fixture(scope="module")
def front(
    there: GatewayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway in front, with access rules."""
    folder = tmp_path_factory.mktemp("front")
    settings = behind.settings_for(folder, behind.gateway_by_stomp(there.port))
    for profile in ("activemq", "artemis", "rabbitmq"):
        listener = f"imq.bridge.stomp.listener.{profile}"
        settings |= {f"{listener}.port": str(free_port()), f"{listener}.profile": profile}
    with GatewayProcess(folder, settings=settings) as gateway:
        rules = gateway.directory / "etc" / "accesscontrol.properties"
        lines = [
            "queue.closed.produce.deny.user=guest",
            "queue.closed.consume.deny.user=guest",
            "topic.secret.x.consume.deny.user=guest",
            "topic.hidden.consume.deny.user=guest",
        ]
        rules.write_text(rules.read_text() + "\n".join(lines) + "\n")
        gateway.kill()
        gateway.start()
        yield gateway


def test_the_access_rules_hold_in_front(front: GatewayProcess, connect: Connect, name: str) -> None:
    client = connect(front)
    client.send("SEND", {"destination": "/queue/closed", "receipt": "r"}, "a")
    client.error("user 'guest' may not produce on /queue/closed", receipt_id="r")
    # Some brokers have what is before the wildcard covered, too.
    for destination in ("/queue/closed", "/topic/secret.*", "/topic/>", "/topic/hidden.>"):
        client = connect(front)
        client.send("SUBSCRIBE", {"destination": destination, "id": "s"})
        client.error(f"user 'guest' may not consume on {destination}")
    client = connect(front)
    client.subscribe(f"/topic/{name}.*")
    client.put(f"/topic/{name}.a", "a")
    assert client.message().text == "a"


@pytest.mark.parametrize(
    "name",
    [
        "open,closed",
        "open,queue://closed",
        "closed?a",
        "open::closed",
        "clos%65d",
        "ID:host-38193-1796006914509-1:1:1",
        "\x01closed",
        "closed\x01",
        "*",
        "clos.>",
        "#",
    ],
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_no_name_leads_around_the_rules(
    front: GatewayProcess, connect: Connect, command: str, name: str
) -> None:
    """At ActiveMQ, Artemis or RabbitMQ these mean other queues."""
    client = connect(front)
    client.send(command, {"destination": f"/queue/{name}", "id": "s", "receipt": "r"})
    client.error("may mean something else to the broker that has it", receipt_id="r")


@pytest.mark.parametrize("topic", ["ActiveMQ.Advisory.Connection", "ActiveMQ.Advisory.>"])
def test_advisory_topics_of_the_broker_are_for_administrators(
    front: GatewayProcess, connect: Connect, topic: str
) -> None:
    client = connect(front)
    client.send("SUBSCRIBE", {"destination": f"/topic/{topic}", "id": "s", "receipt": "r"})
    client.error("may not consume", receipt_id="r")


def test_what_a_pattern_covers_is_for_the_broker_to_say(
    front: GatewayProcess, there: GatewayProcess, name: str
) -> None:
    """In front it means none or more levels, and behind one or more."""
    port = int(front.settings["imq.bridge.stomp.listener.artemis.port"])
    with closing(Client(port)) as client, closing(Client(there.port)) as sender:
        client.connect("1.1")
        sender.connect("1.2")
        client.subscribe(f"/topic/{name}.#")
        for each in (name, f"{name}.a"):
            sender.put(f"/topic/{each}", each)
        assert client.message().text == f"{name}.a"
        client.send("SUBSCRIBE", {"destination": f"/topic/{name}.#.a", "id": "b", "receipt": "r"})
        error = client.expect("ERROR")
        assert error["receipt-id"] == "r"
        assert "the wildcard # before the end of a name" in error.text


@pytest.mark.parametrize(("profile", "queue"), [("activemq", "ActiveMQ.DLQ"), ("artemis", "DLQ")])
def test_the_queue_of_dead_messages_is_the_brokers_own(
    front: GatewayProcess, there: GatewayProcess, profile: str, queue: str
) -> None:
    """It is not called as at the embedded broker."""
    port = int(front.settings[f"imq.bridge.stomp.listener.{profile}.port"])
    with closing(Client(port)) as client, closing(Client(there.port)) as sender:
        client.counted = False
        client.connect("1.1")
        client.subscribe(f"/queue/{queue}")
        sender.connect()
        sender.ask("SEND", {"destination": f"/queue/{queue}"}, "dead")
        assert client.message().text == "dead"


def test_the_broker_has_no_shared_subscriptions(front: GatewayProcess, name: str) -> None:
    with closing(Client(int(front.settings["imq.bridge.stomp.listener.rabbitmq.port"]))) as client:
        client.connect()
        shared = {"destination": f"/topic/{name}", "id": "s", "x-queue-name": name, "receipt": "r"}
        client.send("SUBSCRIBE", shared)
        error = client.expect("ERROR")
        assert error["receipt-id"] == "r"
        assert "does not support shared subscriptions; SUBSCRIBE to a queue" in error.text


def test_a_client_id_is_shared_without_its_durable_subscriptions(
    front: GatewayProcess, name: str
) -> None:
    port = int(front.settings["imq.bridge.stomp.listener.artemis.port"])
    with closing(Client(port)) as first, closing(Client(port)) as second:
        durable = {"destination": f"/topic/{name}", "durable-subscription-name": "d", "id": "s"}
        first.connect(client_id=name)
        first.ask("SUBSCRIBE", durable)
        second.connect(client_id=name)
        second.send("SUBSCRIBE", durable, receipt="r")
        error = second.expect("ERROR")
        assert error["receipt-id"] == "r"
        assert "does not support shared subscriptions; SUBSCRIBE to a queue" in error.text


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_the_broker_has_no_addresses_of_several_queues(
    front: GatewayProcess, name: str, command: str
) -> None:
    """Nothing that is sent to the address would come to the queue there."""
    port = int(front.settings["imq.bridge.stomp.listener.artemis.port"])
    with closing(Client(port)) as client:
        client.connect()
        # An address of one queue is another name of that.
        client.put(f"{name}::{name}", "a chair", persistent="true")
        client.subscribe(f"{name}::{name}", "same")
        assert client.message().text == "a chair"
        named = {"destination": f"{name}::{name}.east", "id": "s", "receipt": "r"}
        client.send(command, named)
        error = client.expect("ERROR")
        assert error["receipt-id"] == "r"
        assert "does not support addresses of several queues; name the queue" in error.text


def test_an_ack_is_of_all_before_of_the_connection(front: GatewayProcess, name: str) -> None:
    with closing(Client(int(front.settings["imq.bridge.stomp.listener.rabbitmq.port"]))) as client:
        client.connect()
        client.hold(f"/queue/{name}.a", "a", ack="client-individual", id="a")
        (second,) = client.hold(f"/queue/{name}.b", "b", ack="client", id="b")
        client.ask("ACK", id=second["ack"])
        assert client.left(f"/queue/{name}.a") == []


def test_a_name_alone_is_a_queue_where_the_broker_does_not_tell(
    front: GatewayProcess, there: GatewayProcess, name: str
) -> None:
    """To Artemis it is a topic's unless there is the queue."""
    port = int(front.settings["imq.bridge.stomp.listener.artemis.port"])
    with closing(Client(port)) as client, closing(Client(there.port)) as receiver:
        client.connect("1.1")
        receiver.connect("1.2")
        client.put(name, "there")
        assert receiver.left(f"/queue/{name}") == ["there"]


def test_users_are_the_gateways(front: GatewayProcess) -> None:
    with closing(Client(front.port)) as client:
        client.send(
            "CONNECT",
            {"login": "guest", "passcode": "wrong", "accept-version": "1.2", "host": "there"},
        )
        client.error("user 'guest' is refused")


def test_a_client_id_is_used_once(front: GatewayProcess, connect: Connect, name: str) -> None:
    connect(front, client_id=name)
    with closing(Client(front.port)) as client:
        headers = {"login": "guest", "passcode": "guest", "client-id": name, "host": "there"}
        client.send("CONNECT", {**headers, "accept-version": "1.2"})
        client.error(f"client-id '{name}' is in use")


def test_logins_are_passed_through(
    there: GatewayProcess, tmp_path: Path, connect: Connect, name: str
) -> None:
    factory = behind.gateway_by_stomp(there.port)
    factory.login = ""
    with behind.in_front_of(tmp_path, factory, credentials="client") as gateway:
        client = connect(gateway)
        client.put(f"/queue/{name}", "a")
        assert client.left(f"/queue/{name}") == ["a"]
        with closing(Client(gateway.port)) as wrong:
            wrong.send(
                "CONNECT",
                {"login": "guest", "passcode": "wrong", "accept-version": "1.2", "host": "there"},
            )
            wrong.error("user 'guest' is refused")
        # The gateway knows no admin of the other.
        password = (there.directory / "etc" / "passfile").read_text().split("=")[1].split()[0]
        admin = connect(gateway, login="admin", passcode=password)
        admin.put(f"/queue/{name}", "b")


def test_a_login_that_is_not_the_clients_is_told_apart(
    there: GatewayProcess, tmp_path: Path
) -> None:
    factory = behind.gateway_by_stomp(there.port)
    factory.login = "nobody"
    with behind.in_front_of(tmp_path, factory) as gateway, closing(Client(gateway.port)) as client:
        headers = {"login": "guest", "passcode": "guest", "accept-version": "1.2", "host": "there"}
        client.send("CONNECT", headers)
        error = client.error(
            "the broker 'there' refuses the login of its connection factory, which is not the client's"
        )
        assert "nobody" not in error["message"]
        until_logged(gateway, "user 'nobody' is refused")


# --- a broker that goes away


class Held:
    """A gateway whose clients wait, and the broker behind it."""

    def __init__(self, there: GatewayProcess, front: GatewayProcess) -> None:
        self.there = there
        self.front = front


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with (
        GatewayProcess(tmp_path / "there") as there,
        behind.in_front_of(
            tmp_path / "front", behind.gateway_by_stomp(there.port), hold="60"
        ) as front,
    ):
        yield Held(there, front)


def test_clients_wait_for_the_broker(held: Held, connect: Connect, name: str) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    messages = client.hold(queue, "a", "b", "c", ack="client-individual")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    # It has been dealt with meanwhile, and comes again.
    client.ack(messages[0])
    client.send("SEND", {"destination": f"{queue}.out", "receipt": "late"}, "meanwhile")
    held.there.start()
    came = [client.frame() for _ in range(4)]
    again = [frame for frame in came if frame.command == "MESSAGE"]
    assert [(frame.text, frame["redelivered"]) for frame in again] == [
        ("a", "true"),
        ("b", "true"),
        ("c", "true"),
    ]
    assert [frame["receipt-id"] for frame in came if frame.command == "RECEIPT"] == ["late"]
    for message in again:
        client.ack(message)
    client.sync()
    assert client.left(queue) == []
    assert connect(held.front).left(f"{queue}.out") == ["meanwhile"]
    until_logged(held.front, "there is back")


def test_a_receipt_is_not_given_for_what_comes_again(
    held: Held, connect: Connect, name: str
) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    [message] = client.hold(queue, "a", ack="client-individual")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    client.send("ACK", {"id": message["ack"], "receipt": "r"})
    held.there.start()
    while (frame := client.frame()).command == "MESSAGE":
        assert frame.text == "a"
    assert frame.command == "ERROR"
    assert frame["receipt-id"] == "r"
    assert "it comes again in spite of this acknowledgement" in frame["message"]


def test_no_more_is_outstanding_than_before(held: Held, connect: Connect, name: str) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    client.put(queue, *"abcd")
    client.subscribe(queue, ack="client-individual", prefetch_count="2")
    first = client.messages(2)
    held.there.kill()
    held.there.start()
    for message in first:
        client.ack(message)
    assert {message.text for message in client.messages(2)} == {"a", "b"}


def test_a_transaction_is_rolled_back(held: Held, connect: Connect, name: str) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    client.send("BEGIN", transaction="t")
    client.ask("SEND", {"destination": queue, "transaction": "t"}, "a")
    held.there.kill()
    held.there.start()
    client.send("COMMIT", transaction="t", receipt="r")
    client.error("the transaction was rolled back", receipt_id="r")
    # One that begins after it.
    client = connect(held.front)
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": queue, "transaction": "t"}, "b")
    client.ask("COMMIT", transaction="t")
    assert client.left(queue) == ["b"]


def test_an_acknowledgement_that_may_be_lost_is_told(
    held: Held, connect: Connect, name: str
) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    [message] = client.hold(queue, "a", ack="client-individual")
    # It takes what it is sent, and does not answer.
    held.there.signal(signal.SIGSTOP)
    client.send("ACK", {"id": message["ack"], "receipt": "r"})
    client.send("SEND", {"destination": f"{queue}.out"}, "b")
    held.there.kill()
    held.there.start()
    client.error("the broker 'there' cannot be reached")


def test_waiting_ends(there: GatewayProcess, tmp_path: Path, connect: Connect, name: str) -> None:
    with (
        GatewayProcess(tmp_path / "there") as there,
        behind.in_front_of(
            tmp_path / "front", behind.gateway_by_stomp(there.port), hold="1"
        ) as front,
    ):
        client = connect(front)
        client.subscribe(f"/queue/{name}")
        there.kill()
        client.error("the broker 'there' cannot be reached")


def test_without_waiting_it_is_told_at_once(tmp_path: Path, connect: Connect, name: str) -> None:
    with (
        GatewayProcess(tmp_path / "there") as there,
        behind.in_front_of(tmp_path / "front", behind.gateway_by_stomp(there.port)) as front,
    ):
        client = connect(front)
        client.subscribe(f"/queue/{name}")
        there.kill()
        error = client.error("the broker 'there' cannot be reached")
        assert str(there.port) not in error["message"]
        with closing(Client(front.port)) as late:
            late.send(
                "CONNECT",
                {"login": "guest", "passcode": "guest", "accept-version": "1.2", "host": "there"},
            )
            late.error("the broker 'there' cannot be reached")
        there.start()
        client = connect(front)
        client.put(f"/queue/{name}", "a")
        assert client.left(f"/queue/{name}") == ["a"]


# --- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"main": "their"}, "imq.bridge.stomp.provider names it, and "),
        ({"main": "there", "xmlurl": ""}, "imq.bridge.stomp.provider.xmlurl"),
        ({"main": "there", "xmlurl": "none.xml"}, "none.xml"),
        (
            {"main": "embedded", "there__destinations": "queue/a"},
            "there.destinations=queue/a: expected /queue/NAME or /topic/NAME for each",
        ),
        (
            {"main": "embedded", "hold__destinations": "/queue/a"},
            "expected another name than connections, credentials, hold, xmlurl",
        ),
        (
            {"main": "there", "there__exchanges": "orders=topic,news=fanout"},
            "expected EXCHANGE=direct or EXCHANGE=topic for each; 'news=fanout' is neither",
        ),
        (
            {"main": "there", "other__exchanges": "orders=topic"},
            "other.exchanges=orders=topic: expected a broker that imq.bridge.stomp.provider",
        ),
    ],
    ids=[
        "unknown",
        "no file",
        "missing file",
        "no destination",
        "taken",
        "no type",
        "no broker",
    ],
)
def test_what_is_wrong_is_said_by_the_bridge(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    given = behind.settings_for(tmp_path, behind.gateway_by_stomp(1), **settings)
    gateway = GatewayProcess(tmp_path, settings=given)
    try:
        gateway.launch()
        gateway.wait_for_output("no bridge could be started")
        assert words in gateway.said
        assert gateway.mapped_ports() == set()
    finally:
        gateway.kill()


# --- what was found by attacks


def test_a_commit_is_not_one_of_a_broker_that_is_away(
    tmp_path: Path, connect: Connect, name: str
) -> None:
    with GatewayProcess(tmp_path / "there") as there:
        factory = behind.gateway_by_stomp(there.port, "erp")
        shares = {"erp__destinations": "/queue/erp.>", "hold": "60"}
        with behind.in_front_of(tmp_path / "front", factory, main="embedded", **shares) as front:
            client = connect(front)
            for destination in (f"/queue/erp.{name}", f"/queue/{name}"):
                client.send("BEGIN", transaction="t")
                client.send("SEND", {"destination": destination, "transaction": "t"}, "a")
                client.ask("COMMIT", transaction="t")
                there.kill()
            # Nor does ABORT wait for it, or is what goes elsewhere held back.
            client.send("BEGIN", transaction="t")
            client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, "aborted")
            client.ask("ABORT", transaction="t")
            client.put(f"/queue/{name}", "b")
            assert client.left(f"/queue/{name}") == ["a", "b"]


def test_transactions_that_follow_each_other_while_the_broker_is_away(
    held: Held, connect: Connect, name: str
) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    client.send("BEGIN", transaction="before")
    client.ask("COMMIT", transaction="before")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    client.send("BEGIN", transaction="t")
    client.send("COMMIT", transaction="t", receipt="committed")
    client.send("BEGIN", transaction="u")
    client.send("ABORT", transaction="u", receipt="aborted")
    held.there.start()
    receipts = [client.expect("RECEIPT")["receipt-id"] for _ in range(2)]
    assert receipts == ["committed", "aborted"]
    client.put(queue, "a")
    assert client.left(queue) == ["a"]


def test_a_subscription_that_ends_while_the_broker_is_away(
    held: Held, connect: Connect, name: str
) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    client.put(queue, "a")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    client.send("SUBSCRIBE", {"destination": queue, "id": "s", "receipt": "subscribed"})
    client.send("UNSUBSCRIBE", {"id": "s", "receipt": "unsubscribed"})
    receipts = [client.expect("RECEIPT")["receipt-id"] for _ in range(2)]
    assert receipts == ["subscribed", "unsubscribed"]
    held.there.start()
    assert client.left(queue) == ["a"]


def test_a_durable_subscription_is_removed_when_the_broker_is_back(
    held: Held, connect: Connect, name: str
) -> None:
    client = connect(held.front, client_id=name)
    client.subscribe(f"/topic/{name}", durable_subscriber_name="d")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    client.send("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d", "receipt": "removed"})
    held.there.start()
    assert client.expect("RECEIPT")["receipt-id"] == "removed"
    client.send("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})
    client.error("has no durable subscription 'd'")


def test_a_durable_subscription_is_removed_where_it_is(
    divided: GatewayProcess, connect: Connect, name: str
) -> None:
    for topic in (f"/topic/prices.{name}", f"/topic/{name}"):
        client = connect(divided, client_id=name)
        client.subscribe(topic, durable_subscriber_name="d")
        client.disconnect()
        # Which broker has it is not known to the next connection.
        client = connect(divided, client_id=name)
        client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})
        client.disconnect()


def test_a_broker_that_takes_connections_and_says_nothing(
    tmp_path: Path, connect: Connect, name: str
) -> None:
    """Waiting ends as well."""
    with (
        GatewayProcess(tmp_path / "there") as there,
        behind.in_front_of(
            tmp_path / "front", behind.gateway_by_stomp(there.port), hold="2"
        ) as front,
    ):
        client = connect(front)
        there.kill()
        with socket.create_server((HOST, there.port)):
            began = time.monotonic()
            client.error("the broker 'there' cannot be reached")
            # The provider's own limit is 10 seconds or more.
            assert time.monotonic() - began < 9


def test_what_was_acknowledged_in_vain_comes_as_redelivered(
    held: Held, connect: Connect, name: str
) -> None:
    client, queue = connect(held.front), f"/queue/{name}"
    first, _ = client.hold(queue, "a", "b", transaction="t")
    client.ack(first, transaction="t")
    held.there.kill()
    until_logged(held.front, "clients wait for it")
    held.there.start()
    client.ask("ABORT", transaction="t")
    client.send("BEGIN", transaction="u")
    again = [(message.text, message["redelivered"]) for message in client.messages(2)]
    assert again == [("a", "true"), ("b", "true")]


def test_what_comes_for_clients_that_are_paused_goes_to_others(
    front: GatewayProcess, there: GatewayProcess, connect: Connect, name: str
) -> None:
    client, other = connect(front), connect(there)
    passfile = str(front.directory / "etc" / "passfile")
    login = ["-b", f"{HOST}:{front.port_mapper_port}", "-u", "admin", "-passfile", passfile]
    assert imqbridgemgr.run(["pause", "bridge", "-bn", "stomp", "-f", *login]) == 0
    try:
        client.subscribe(f"/queue/{name}")
        other.put(f"/queue/{name}", "a")
        other.subscribe(f"/queue/{name}")
        assert other.message().text == "a"
    finally:
        imqbridgemgr.run(["resume", "bridge", "-bn", "stomp", "-f", *login])
    other.ask("UNSUBSCRIBE", {"id": "s"})
    other.put(f"/queue/{name}", "b")
    assert client.message().text == "b"


def test_management_messages_are_about_the_broker_of_this_instance(
    front: GatewayProcess, there: GatewayProcess, name: str
) -> None:
    """The replies go to where the client's messages go."""
    port = int(front.settings["imq.bridge.stomp.listener.artemis.port"])
    passfile = (front.directory / "etc" / "passfile").read_text()
    password = passfile.partition("imq.imqcmd.password=")[2].partition("\n")[0]
    asked = {
        "destination": "activemq.management",
        "reply-to": f"/queue/{name}",
        "_AMQ_ResourceName": "broker",
        "_AMQ_Attribute": "NodeID",
    }
    with closing(Client(port)) as admin, closing(Client(port)) as guest:
        admin.connect("1.1", login="admin", passcode=password)
        admin.ask("SEND", asked)
        guest.connect("1.1")
        guest.send("SEND", asked)
        assert "may not manage" in guest.expect("ERROR")["message"]
    with closing(Client(there.port)) as client:
        client.connect("1.1")
        client.subscribe(f"/queue/{name}")
        message = client.message()
    assert message["_AMQ_OperationSucceeded"] == "true"
    assert len(json.loads(message.text)[0]) > 8
