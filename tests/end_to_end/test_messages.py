"""What arrives at the other end of a link is what was sent, in the order it was sent: through real
brokers, read by clients that are not ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.crash.client import Client
from tests.end_to_end.jms import jms_client
from tests.faults.accounting import at_least_once
from tests.faults.links import HERE, BridgedGateway, Link, activemq, stomp
from tests.faults.traffic import SHARED, body, drain, produce
from tests.servers import activemq as running_activemq
from tests.servers import rabbitmq as running_rabbitmq

pytestmark = pytest.mark.brokers

MESSAGES: Final = 1_000
BATCH: Final = 50
#: Headers of SEND, and how they come back in MESSAGE.
SENT: Final = {
    "type": "order",
    "correlation-id": "c 1",
    "priority": "7",
    "colour": "red",
    "many-words": "no property of JMS",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedGateway]:
    amq, rabbit = running_activemq(), running_rabbitmq()
    by = {
        "jms": activemq("jms", amq.openwire_port),
        "amq": stomp("amq", amq.port),
        "rabbit": stomp("rabbit", rabbit.port),
    }
    links = [Link(f"{name}-out", HERE, factory, BATCH) for name, factory in by.items()]
    links += [Link(f"{name}-in", factory, HERE, BATCH) for name, factory in by.items()]
    links.append(Link("foreign", by["jms"], by["rabbit"], BATCH))
    links.append(
        Link("there", by["jms"], HERE, BATCH, target_attributes={"destination-ref": "back.in"})
    )
    links.append(Link("back", HERE, by["jms"], BATCH))
    links.append(
        Link(
            "topic",
            HERE,
            by["jms"],
            source_kind="topic",
            source_attributes={"durable-sub": "proof", "clientid": "proof"},
        )
    )
    with ExitStack() as ending:
        yield ending.enter_context(BridgedGateway(tmp_path_factory.mktemp("messages"), links))


def received(port: int, queue: str) -> dict[str, str]:
    """The headers of the one message in a queue, and its text under no name."""
    with Client(port, headers={"host": "/"}) as client:
        early = client.ask(
            "SUBSCRIBE", {"destination": queue, "id": "1", "ack": "client-individual", **SHARED}
        )
        message = early[0] if early else client.message()
        client.ask("ACK", {"id": message.headers["ack"]})
        return {**message.headers, "": message.body.decode()}


@pytest.mark.parametrize("by", ["jms", "amq"])
def test_a_message_of_stomp_is_one_of_jms_behind_the_link(by: str, gateway: BridgedGateway) -> None:
    with Client(gateway.port) as client:
        client.store(f"/queue/{by}-out.in", b"ten chairs", **SENT)
    found = dict(line.split(": ", 1) for line in jms_client().run("inspect", f"queue:{by}-out.out"))
    assert found["JMSDestination"] == f"queue:{by}-out.out"
    assert (found["JMSType"], found["JMSCorrelationID"], found["JMSPriority"]) == (
        "order",
        "c 1",
        "7",
    )
    assert (found["JMSDeliveryMode"], found["JMSExpiration"], found["JMSReplyTo"]) == (
        "PERSISTENT",
        "0",
        "none",
    )
    assert found["colour"] == "red (String)"
    # It was sent with its length, so it is no text.
    assert found["octets"] == "ten chairs"


@pytest.mark.parametrize("by", ["jms", "amq"])
def test_a_message_of_jms_is_one_of_stomp_behind_the_link(by: str, gateway: BridgedGateway) -> None:
    words = ("JMSType=order", "JMSCorrelationID=c 1", "JMSPriority=7", "colour=red")
    jms_client().run("send", f"queue:{by}-in.in", "ten chairs", *words)
    found = received(gateway.port, f"/queue/{by}-in.out")
    assert found[""] == "ten chairs"
    assert {name: found[name] for name in ("type", "correlation-id", "priority", "colour")} == {
        "type": "order",
        "correlation-id": "c 1",
        "priority": "7",
        "colour": "red",
    }
    assert "content-length" not in found or found["content-length"] == "10"


def test_a_text_that_is_null_is_null_at_the_other_end(gateway: BridgedGateway) -> None:
    for words in ((), ("",)):
        jms_client().run("send", "queue:there.in", *words)
    assert jms_client().run("inspect", "queue:back.out")[-1] == "text: null"
    assert jms_client().run("inspect", "queue:back.out")[-1] == "text: "


def test_a_text_that_is_null_is_an_empty_body_to_stomp(gateway: BridgedGateway) -> None:
    jms_client().run("send", "queue:jms-in.in")
    assert received(gateway.port, "/queue/jms-in.out")[""] == ""


def test_a_message_goes_to_rabbitmq_and_one_comes_from_it(gateway: BridgedGateway) -> None:
    with Client(gateway.port) as client:
        client.store("/queue/rabbit-out.in", b"ten chairs", **SENT)
    found = received(running_rabbitmq().port, "/queue/rabbit-out.out")
    assert (found[""], found["colour"], found["correlation-id"], found["persistent"]) == (
        "ten chairs",
        "red",
        "c 1",
        "true",
    )
    with Client(running_rabbitmq().port, headers={"host": "/"}) as client:
        client.ask(
            "SEND",
            {"destination": "/queue/rabbit-in.in", "persistent": "true", **SHARED, **SENT},
            b"six tables",
        )
    found = received(gateway.port, "/queue/rabbit-in.out")
    assert (found[""], found["colour"], found["correlation-id"], found["type"]) == (
        "six tables",
        "red",
        "c 1",
        "order",
    )


@pytest.mark.parametrize("by", ["jms", "amq", "rabbit"])
def test_many_come_in_order(by: str, gateway: BridgedGateway) -> None:
    there = running_rabbitmq().port if by == "rabbit" else running_activemq().port
    if by == "jms":
        jms_client().run("number", f"queue:{by}-in.in", "1", str(MESSAGES + 1))
    else:
        produce(there, f"/queue/{by}-in.in", 1, MESSAGES + 1)
    at_least_once(drain(gateway.port, f"/queue/{by}-in.out", MESSAGES + 1), MESSAGES, BATCH, 0)


@pytest.mark.parametrize("by", ["jms", "amq", "rabbit"])
def test_many_go_in_order(by: str, gateway: BridgedGateway) -> None:
    there = running_rabbitmq().port if by == "rabbit" else running_activemq().port
    produce(gateway.port, f"/queue/{by}-out.in", 1, MESSAGES + 1)
    if by == "jms":
        lines = jms_client().run("receive", f"queue:{by}-out.out", str(MESSAGES + 1))
        assert [line.split(" {")[0] for line in lines] == [
            body(number).decode() for number in range(1, MESSAGES + 2)
        ]
    else:
        at_least_once(drain(there, f"/queue/{by}-out.out", MESSAGES + 1), MESSAGES, BATCH, 0)


def test_many_go_from_activemq_to_rabbitmq(gateway: BridgedGateway) -> None:
    jms_client().run("number", "queue:foreign.in", "1", str(MESSAGES + 1))
    at_least_once(
        drain(running_rabbitmq().port, "/queue/foreign.out", MESSAGES + 1), MESSAGES, BATCH, 0
    )


def test_a_durable_subscription_keeps_what_is_published_while_its_link_is_stopped(
    gateway: BridgedGateway,
) -> None:
    gateway.until_moving("topic")
    produce(gateway.port, "/topic/topic.in", 1, 10)
    assert len(jms_client().run("receive", "queue:topic.out", "10")) == 10
    gateway.operate("stop", "topic")
    produce(gateway.port, "/topic/topic.in", 11, 20)
    gateway.restart()
    gateway.until_link("topic", lambda told: told["state"] == "STOPPED", "it stays STOPPED")
    gateway.operate("start", "topic")
    lines = jms_client().run("receive", "queue:topic.out", "10")
    assert [line.split(" {")[0] for line in lines] == [
        body(number).decode() for number in range(11, 21)
    ]
