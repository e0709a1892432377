"""What STOMP promises, with each kind of broker behind the gateway.

It works, or the frame that asks for it is refused, with what to do instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway_process import GatewayProcess, free_port
from tests.servers import rabbitmq

pytestmark = pytest.mark.brokers

BROKERS: Final = (
    "activemq by jms",
    "activemq by stomp",
    "rabbitmq by stomp",
    "rabbitmq by amqp",
    "gateway by stomp",
    "stub by jms",
)
_LISTENER: Final = "imq.bridge.stomp.listener.rabbitmq"
_RABBITMQ: Final = ("rabbitmq by stomp", "rabbitmq by amqp")
_NO_TEMPORARY: Final = "does not support temporary destinations; have replies sent to a queue"
_NOT_ONE_BY_ONE: Final = "does not support acknowledgement one by one; SUBSCRIBE with ack:client"
_NO_BROWSING: Final = "does not support browsing; look with the tools of the broker"
_NO_SELECTORS: Final = "does not support selectors; SUBSCRIBE without a selector"
_NO_TRANSACTIONS: Final = "does not support transactions; SEND and ACK outside of transactions"
_NOT_JOINED: Final = "acknowledgement in a transaction for a subscription outside of it; SUBSCRIBE in it, as the profile openmq"
_NOT_EXCLUSIVE: Final = "does not support exclusive consumers; SUBSCRIBE without exclusive-consumer"
_NO_GROUPS: Final = "does not support message groups; SEND without JMSXGroupID"
_NOT_LATER: Final = "does not support delivery at a later time; SEND the message when it is due"
_NOT_AGAIN: Final = "does not support delivery again and again; SEND the message each time"
_NO_EXCHANGE: Final = "NOT_FOUND - no exchange 'front' in vhost '/'"
_NOT_SHARED: Final = "does not support shared subscriptions; SUBSCRIBE to a queue that the topic"
_NOT_HERE: Final = "the provider refuses"

#: It has every message fit each selector, and JMS leaves groups to the provider.
_NOT_OF_THE_STUB: Final = ("selector", "groups", "end_of_a_group")

#: By feature, what is refused by whom: a part of the ERROR. The table in docs/front.rst says the
#: same.
REFUSED: Final[dict[str, dict[str, str]]] = {
    "individual": {"stub by jms": _NOT_ONE_BY_ONE},
    "nack": {"stub by jms": _NOT_ONE_BY_ONE},
    "nack_of_client": {"stub by jms": "does not support NACK; DISCONNECT, and the message comes"},
    "dead": {"stub by jms": _NOT_ONE_BY_ONE},
    "several": {},
    "browse": {
        "rabbitmq by stomp": _NO_BROWSING,
        "rabbitmq by amqp": _NO_BROWSING,
        "stub by jms": _NOT_HERE,
    },
    "durable": {
        "rabbitmq by amqp": "does not support durable subscriptions; SUBSCRIBE to a queue that the topic",
        "stub by jms": _NOT_HERE,
    },
    "topic": {"stub by jms": _NOT_HERE},
    "own_exchange": dict.fromkeys(
        [each for each in BROKERS if each not in _RABBITMQ], _NO_EXCHANGE
    ),
    "topic_of_an_exchange": {
        "activemq by stomp": "does not support exchanges other than amq.topic",
        "gateway by stomp": "does not support exchanges other than amq.topic",
        "stub by jms": _NOT_HERE,
    },
    "queue_name": {
        **dict.fromkeys([each for each in BROKERS if each not in _RABBITMQ], _NOT_SHARED),
        "rabbitmq by amqp": "does not support queues of subscriptions by x-queue-name",
    },
    "wildcards": {"stub by jms": _NOT_HERE},
    "temporary": {
        "activemq by stomp": _NO_TEMPORARY,
        "rabbitmq by stomp": _NO_TEMPORARY,
        "rabbitmq by amqp": _NO_TEMPORARY,
        "gateway by stomp": _NO_TEMPORARY,
    },
    "exclusive": dict.fromkeys((*_RABBITMQ, "stub by jms"), _NOT_EXCLUSIVE),
    "exclusive_of_rabbitmq": dict.fromkeys((*_RABBITMQ, "stub by jms"), _NOT_EXCLUSIVE),
    "groups": dict.fromkeys(_RABBITMQ, _NO_GROUPS),
    "end_of_a_group": dict.fromkeys(_RABBITMQ, _NO_GROUPS),
    "selector": dict.fromkeys(_RABBITMQ, _NO_SELECTORS),
    "sent_in_transaction": dict.fromkeys(_RABBITMQ, _NO_TRANSACTIONS),
    "acknowledged_in_transaction": dict.fromkeys(_RABBITMQ, _NO_TRANSACTIONS),
    "aborted": dict.fromkeys(_RABBITMQ, _NO_TRANSACTIONS),
    "joined": {
        "gateway by stomp": _NOT_JOINED,
        "activemq by jms": _NOT_JOINED,
        "rabbitmq by stomp": _NO_TRANSACTIONS,
        "rabbitmq by amqp": _NO_TRANSACTIONS,
        "stub by jms": _NOT_JOINED,
    },
    "no_local": {
        "activemq by jms": "does not support no-local for a client without client-id; CONNECT with",
        "stub by jms": "does not support no-local for a client without client-id; CONNECT with",
    },
    "delayed": dict.fromkeys(_RABBITMQ, _NOT_LATER),
    "at_a_time": dict.fromkeys(_RABBITMQ, _NOT_LATER),
    "at_a_time_of_artemis": dict.fromkeys(_RABBITMQ, _NOT_LATER),
    "delayed_in_transaction": dict.fromkeys(_RABBITMQ, _NO_TRANSACTIONS),
    "repeated": {**dict.fromkeys(_RABBITMQ, _NOT_LATER), "stub by jms": _NOT_AGAIN},
    "by_calendar": {**dict.fromkeys(_RABBITMQ, _NOT_LATER), "stub by jms": _NOT_AGAIN},
    "no_local_with_client_id": {"stub by jms": _NOT_HERE},
}


@pytest.fixture(scope="module", params=BROKERS)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, GatewayProcess]]:
    """A gateway in front of each broker."""
    kind, folder = str(request.param), tmp_path_factory.mktemp("front")
    with ExitStack() as running:
        if kind == "gateway by stomp":
            there = running.enter_context(GatewayProcess(folder / "there"))
            factory = behind.gateway_by_stomp(there.port)
        else:
            factory = getattr(behind, kind.replace(" ", "_"))()
        if kind in _RABBITMQ:
            rabbitmq().declare_exchanges({"front": "direct"})
        more = {
            "imq.bridge.stomp.ack.transaction": "join",
            f"{_LISTENER}.port": str(free_port()),
            f"{_LISTENER}.profile": "rabbitmq",
        }
        made = GatewayProcess(
            folder / "front", settings=more | behind.settings_for(folder / "front", factory)
        )
        yield kind, running.enter_context(made)


Connect = Callable[..., Client]


@pytest.fixture
def connect(front: tuple[str, GatewayProcess]) -> Iterator[Connect]:
    with ExitStack() as opened:

        def connected(profile: str = "", **headers: str) -> Client:
            port = int(front[1].settings[f"{_LISTENER}.port"]) if profile else front[1].port
            client = opened.enter_context(closing(Client(port)))
            client.connect("1.2", **headers)
            return client

        yield connected


def individual(connect: Connect, name: str) -> None:
    client = connect()
    messages = client.hold(f"/queue/{name}", "a", "b", "c", ack="client-individual")
    client.ask("ACK", id=messages[1]["ack"])
    assert client.left(f"/queue/{name}") == ["a", "c"]


def nack(connect: Connect, name: str) -> None:
    client = connect()
    [message] = client.hold(f"/queue/{name}", "a", ack="client-individual")
    client.nack(message)
    again = client.message()
    assert (again.text, again["redelivered"], again["JMSXDeliveryCount"]) == ("a", "true", "2")


def nack_of_client(connect: Connect, name: str) -> None:
    client = connect()
    [message] = client.hold(f"/queue/{name}", "a", ack="client")
    client.nack(message)
    assert client.message()["redelivered"] == "true"


def dead(connect: Connect, name: str) -> None:
    client = connect()
    [message] = client.hold(f"/queue/{name}", "a", ack="client-individual")
    client.send("NACK", {"id": message["ack"], "requeue": "false"})
    client.sync()
    assert client.left(f"/queue/{name}") == []


def several(connect: Connect, name: str) -> None:
    client = connect()
    client.ask("SEND", {"destination": f"/queue/{name},/queue/{name}.too"}, "a")
    for queue in (f"/queue/{name}", f"/queue/{name}.too"):
        client.subscribe(queue, id=queue)
        assert client.message().text == "a"


def browse(connect: Connect, name: str) -> None:
    client = connect()
    client.put(f"/queue/{name}", "a", "b")
    client.subscribe(f"/queue/{name}", browser="true")
    assert [message.text for message in client.messages(2)] == ["a", "b"]
    assert client.message()["browser"] == "end"
    assert client.left(f"/queue/{name}") == ["a", "b"]


def durable(connect: Connect, name: str) -> None:
    for text in ("", "a"):
        client = connect(client_id=name)
        client.subscribe(f"/topic/{name}", durable_subscriber_name="d")
        if text:
            assert client.message().text == text
            client.ask("UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "d"})
        client.disconnect()
        connect().put(f"/topic/{name}", "a")


def topic(connect: Connect, name: str) -> None:
    client = connect()
    client.subscribe(f"/topic/{name}")
    connect().put(f"/topic/{name}", "a")
    assert client.message().text == "a"


def wildcards(connect: Connect, name: str) -> None:
    _arrives(connect, f"/topic/{name}.low", pattern=f"/topic/{name}.*")


def own_exchange(connect: Connect, name: str) -> None:
    _arrives(connect, f"/exchange/front/{name}", profile="rabbitmq")


def topic_of_an_exchange(connect: Connect, name: str) -> None:
    _arrives(connect, f"/topic/amq.exchange.front.{name}")


def _arrives(connect: Connect, there: str, *, pattern: str = "", profile: str = "") -> None:
    """A subscriber gets a message under the name that it was sent to."""
    client = connect(profile)
    client.subscribe(pattern or there)
    connect(profile).put(there, "a")
    message = client.message()
    assert (message.text, message["destination"]) == ("a", there)


def queue_name(connect: Connect, name: str) -> None:
    clients = [connect("rabbitmq") for _ in range(2)]
    for client in clients:
        client.subscribe(f"/topic/{name}", x_queue_name=name, ack="client", prefetch_count="1")
    connect().put(f"/topic/{name}", "a", "b")
    assert {client.message().text for client in clients} == {"a", "b"}


def temporary(connect: Connect, name: str) -> None:
    asking, answering = connect(), connect()
    asking.subscribe("/temp-queue/answers")
    asking.put(f"/queue/{name}", "question", reply_to="/temp-queue/answers")
    answering.subscribe(f"/queue/{name}")
    answering.put(answering.message()["reply-to"], "answer")
    assert asking.message().text == "answer"


def selector(connect: Connect, name: str) -> None:
    client = connect()
    for number in ("1", "2"):
        client.put(f"/queue/{name}", number, number=number)
    client.subscribe(f"/queue/{name}", selector="number = '2'")
    assert client.message().text == "2"


def only_one(connect: Connect, name: str, **headers: str) -> None:
    """One consumer has all. The next one has what it did not settle."""
    first, second, queue = connect(), connect(), f"/queue/{name}"
    for each in (first, second):
        each.subscribe(queue, ack="client", **headers)
    connect().put(queue, "a", "b", "c")
    assert [message.text for message in first.messages(3)] == ["a", "b", "c"]
    first.disconnect()
    again = second.messages(3)
    assert [message.text for message in again] == ["a", "b", "c"]
    second.ack(again[-1])
    assert second.left(queue) == []


def exclusive(connect: Connect, name: str) -> None:
    only_one(connect, name, exclusive_consumer="true")


def exclusive_of_rabbitmq(connect: Connect, name: str) -> None:
    only_one(connect, name, x_single_active_consumer="true")


def groups(connect: Connect, name: str) -> None:
    """A group stays with the consumer that has its first message, in order."""
    first, second, queue = connect(), connect(), f"/queue/{name}"
    first.subscribe(queue)
    connect().put(queue, "0", JMSXGroupID="g")
    assert first.message().text == "0"
    second.subscribe(queue)
    connect().put(queue, "1", "2", "3", "4", JMSXGroupID="g")
    assert [message.text for message in first.messages(4)] == ["1", "2", "3", "4"]


def end_of_a_group(connect: Connect, name: str) -> None:
    """Its id is free for another consumer."""
    first, second, queue = connect(), connect(), f"/queue/{name}"
    first.subscribe(queue)
    connect().put(queue, "0", JMSXGroupID="g")
    connect().put(queue, "last", JMSXGroupID="g", JMSXGroupSeq="-1")
    assert [message.text for message in first.messages(2)] == ["0", "last"]
    first.disconnect()
    second.subscribe(queue)
    connect().put(queue, "new", JMSXGroupID="g")
    assert second.message().text == "new"


def sent_in_transaction(connect: Connect, name: str) -> None:
    client = connect()
    for text, end in (("a", "ABORT"), ("b", "COMMIT")):
        client.send("BEGIN", transaction="t")
        client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, text)
        client.ask(end, transaction="t")
    assert client.left(f"/queue/{name}") == ["b"]


def acknowledged_in_transaction(connect: Connect, name: str) -> None:
    client = connect()
    client.put(f"/queue/{name}", "a", "b")
    client.send("BEGIN", transaction="t")
    client.subscribe(f"/queue/{name}", transaction="t")
    client.ack(client.message(), transaction="t")
    client.send("SEND", {"destination": f"/queue/{name}.out", "transaction": "t"}, "answer")
    client.ask("COMMIT", transaction="t")
    assert client.left(f"/queue/{name}") == ["b"]
    other = connect()
    assert other.left(f"/queue/{name}.out") == ["answer"]


def aborted(connect: Connect, name: str) -> None:
    client = connect()
    [message] = client.hold(f"/queue/{name}", "a", transaction="t")
    client.ack(message, transaction="t")
    client.ask("ABORT", transaction="t")
    client.send("BEGIN", transaction="u")
    assert client.message()["redelivered"] == "true"


def joined(connect: Connect, name: str) -> None:
    client = connect()
    [message] = client.hold(f"/queue/{name}", "a", ack="client")
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    client.ask("COMMIT", transaction="t")
    assert client.left(f"/queue/{name}") == []


def comes_later(connect: Connect, name: str, seconds: float, **headers: str) -> None:
    """A message that asks for a later time comes then, and holds nothing back."""
    client, queue, sent = connect(), f"/queue/{name}", time.monotonic()
    client.put(queue, "later", **headers)
    client.put(queue, "now")
    receiving = connect()
    receiving.subscribe(queue)
    first, second = receiving.messages(2)
    assert (first.text, second.text) == ("now", "later")
    assert time.monotonic() - sent >= seconds
    assert not [header for header in second.headers if "SCHED" in header or "_P_" in header]


def delayed(connect: Connect, name: str) -> None:
    comes_later(connect, name, 1.0, AMQ_SCHEDULED_DELAY="1000")


def due(seconds: float) -> str:
    return str(int((time.time() + seconds) * 1000))


def at_a_time(connect: Connect, name: str) -> None:
    comes_later(connect, name, 0.9, AMQ_SCHEDULED_TIME=due(1.0))


def at_a_time_of_artemis(connect: Connect, name: str) -> None:
    comes_later(connect, name, 0.9, _AMQ_SCHED_DELIVERY=due(1.0))


def delayed_in_transaction(connect: Connect, name: str) -> None:
    client, queue = connect(), f"/queue/{name}"
    for text, end in (("aborted", "ABORT"), ("later", "COMMIT")):
        client.send("BEGIN", transaction="t")
        headers = {"destination": queue, "transaction": "t", "AMQ_SCHEDULED_DELAY": "1000"}
        client.send("SEND", headers, text)
        client.ask(end, transaction="t")
    client.put(queue, "now")
    receiving = connect()
    receiving.subscribe(queue)
    assert [message.text for message in receiving.messages(2)] == ["now", "later"]


def repeated(connect: Connect, name: str) -> None:
    client, queue, sent = connect(), f"/queue/{name}", time.monotonic()
    client.put(queue, "again", AMQ_SCHEDULED_PERIOD="500", AMQ_SCHEDULED_REPEAT="1")
    client.put(queue, "now")
    receiving = connect()
    receiving.subscribe(queue)
    assert [message.text for message in receiving.messages(3)] == ["now", "again", "again"]
    assert time.monotonic() - sent >= 1.0


def by_calendar(connect: Connect, name: str) -> None:
    """The broker keeps it: its time is not waited for."""
    client, queue = connect(), f"/queue/{name}"
    yearly = f"30 4 1 {(time.localtime().tm_mon + 5) % 12 + 1} *"
    client.put(queue, "in half a year", AMQ_SCHEDULED_CRON=yearly)
    client.put(queue, "now")
    assert client.left(queue) == ["now"]


def no_local(connect: Connect, name: str, **headers: str) -> None:
    client = connect(**headers)
    client.subscribe(f"/topic/{name}", no_local="true")
    client.put(f"/topic/{name}", "own")
    connect().put(f"/topic/{name}", "another's")
    assert client.message().text == "another's"


def no_local_with_client_id(connect: Connect, name: str) -> None:
    no_local(connect, name, client_id=name)


FEATURES: Final[tuple[Callable[[Connect, str], None], ...]] = (
    individual,
    nack,
    nack_of_client,
    dead,
    several,
    browse,
    durable,
    topic,
    wildcards,
    own_exchange,
    topic_of_an_exchange,
    queue_name,
    temporary,
    selector,
    exclusive,
    exclusive_of_rabbitmq,
    groups,
    end_of_a_group,
    sent_in_transaction,
    acknowledged_in_transaction,
    aborted,
    joined,
    delayed,
    at_a_time,
    at_a_time_of_artemis,
    delayed_in_transaction,
    repeated,
    by_calendar,
    no_local,
    no_local_with_client_id,
)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: str(each.__name__))
def test_what_stomp_promises(
    front: tuple[str, GatewayProcess], connect: Connect, feature: Callable[[Connect, str], None]
) -> None:
    kind, name = front[0], f"front.{uuid4().hex}"
    if kind == "stub by jms" and feature.__name__ in _NOT_OF_THE_STUB:
        return
    words = REFUSED[feature.__name__].get(kind)
    if words is None:
        feature(connect, name)
        return
    with pytest.raises(AssertionError) as refused:
        feature(connect, name)
    assert "ERROR" in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (("DELAY", "soon"), "AMQ_SCHEDULED_DELAY 'soon' is invalid: a whole number is expected"),
        (("PERIOD", "-1"), "AMQ_SCHEDULED_PERIOD '-1' is invalid: expected 0 to"),
        (("CRON", "daily"), "AMQ_SCHEDULED_CRON 'daily' is invalid"),
    ],
)
@pytest.mark.parametrize("transaction", [False, True])
def test_a_time_that_cannot_be_read_is_refused_as_by_the_own_broker(
    front: tuple[str, GatewayProcess],
    connect: Connect,
    value: tuple[str, str],
    words: str,
    transaction: bool,
) -> None:
    if transaction and front[0] in _RABBITMQ:
        # RabbitMQ has no transactions.
        return
    client, headers = connect(), {f"AMQ_SCHEDULED_{value[0]}": value[1]}
    if transaction:
        client.send("BEGIN", transaction="t")
        headers["transaction"] = "t"
    client.send("SEND", {"destination": f"/queue/front.{uuid4().hex}", "receipt": "r", **headers})
    client.error(words, receipt_id="r")


def test_a_provider_of_jms_1_delivers_nothing_later(
    front: tuple[str, GatewayProcess], connect: Connect
) -> None:
    if front[0] != "stub by jms":
        return
    client = connect(client_id="jms-1.1")
    headers = {"destination": "/queue/later", "receipt": "r", "AMQ_SCHEDULED_DELAY": "1000"}
    client.send("SEND", headers)
    client.error(_NOT_LATER, receipt_id="r")


def test_a_message_comes_as_it_was_sent(
    front: tuple[str, GatewayProcess], connect: Connect
) -> None:
    queue, client = f"/queue/front.{uuid4().hex}", connect()
    client.ask(
        "SEND",
        {
            "destination": queue,
            "content-length": "3",
            "priority": "7",
            "correlation-id": "c 1",
            "type": "order",
            "reply-to": "/queue/answers",
            "country": "de",
            "x-y": "z",
        },
        b"\0\xff\n",
    )
    client.put(queue, "grün", persistent="false")
    client.subscribe(queue)
    first, second = client.message(), client.message()
    assert first.body == b"\0\xff\n"
    assert [first[name] for name in ("priority", "correlation-id", "type", "reply-to")] == [
        "7",
        "c 1",
        "order",
        "/queue/answers",
    ]
    assert [first[name] for name in ("country", "x-y", "persistent")] == ["de", "z", "true"]
    assert (second.text, second["priority"], "persistent" in second) == ("grün", "4", False)
    assert first["message-id"] != second["message-id"]


def test_a_message_of_five_megabytes(front: tuple[str, GatewayProcess], connect: Connect) -> None:
    queue, client = f"/queue/front.{uuid4().hex}", connect()
    body = bytes(range(33, 127)) * 55_000
    client.ask("SEND", {"destination": queue}, body)
    client.subscribe(queue)
    assert client.message().body == body


def test_a_right_that_the_broker_denies_is_told_as_the_brokers(
    front: tuple[str, GatewayProcess], connect: Connect
) -> None:
    if front[0] != "rabbitmq by amqp":
        return
    client = connect()
    client.send("SUBSCRIBE", {"destination": "/queue/amq.x", "id": "s", "receipt": "r"})
    client.error("the broker 'there' denies the right to consume on /queue/amq.x", receipt_id="r")
    # Whom the broker knows is for the log.
    assert "user 'guest' may not consume on queue:amq.x" in front[1].log


@pytest.mark.parametrize("connected", [True, False])
def test_a_transaction_is_refused_by_the_frame_that_shows_where_it_is(
    tmp_path: Path, connected: bool
) -> None:
    factory = behind.rabbitmq_by_amqp()
    settings = {"there__destinations": "/queue/there.>"}
    with (
        behind.in_front_of(tmp_path, factory, main="embedded", **settings) as gateway,
        closing(Client(gateway.port)) as client,
    ):
        client.connect()
        if connected:
            client.put("/queue/there.before", "a")
        client.ask("BEGIN", transaction="t")
        client.send("SEND", {"destination": "/queue/there.q", "transaction": "t"}, "b", receipt="r")
        if not connected:
            # It is in the transaction before the broker has said that there can be none.
            assert client.expect("RECEIPT")["receipt-id"] == "r"
        client.error(_NO_TRANSACTIONS, receipt_id="r")
