"""The trace context of a message at the broker and over links.

ActiveMQ's STOMP headers are its messages' JMS properties. RabbitMQ keeps a queue between two links
by AMQP, as its STOMP headers show no property of AMQP messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.crash.client import Client, encode
from tests.faults.links import HERE, BridgedGateway, Link, activemq, amqp, stomp
from tests.gateway_process import GatewayProcess
from tests.servers import activemq as running_activemq
from tests.servers import rabbitmq as running_rabbitmq

pytestmark = pytest.mark.brokers

CONTEXT = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo@vendor=t61rcWkgMzE",
}
#: No trace contexts, which are kept, too. The backslash is STOMP's for a colon.
UNUSABLE = [
    {"traceparent": "no trace at all"},
    {"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
    {"traceparent": "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01"},
    {"traceparent": "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes"},
    {"traceparent": ""},
    {"tracestate": "alone=1"},
    {"tracestate": "a=b\\cc"},
]
#: What links are given.
CONTEXTS = [CONTEXT, {"traceparent": "no trace at all"}, {}]


def context(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}


def test_the_broker_keeps_it(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        for version in ("1.0", "1.1", "1.2"):
            with Client(gateway.port, headers={"accept-version": version}) as client:
                for destination in (f"/queue/{version}", f"/topic/{version}"):
                    said = {"destination": destination, "id": destination, "ack": "client"}
                    client.ask("SUBSCRIBE", said)
                    client.send(destination, b"x", **CONTEXT)
                    assert context(client.message().headers) == CONTEXT
        gateway.restart()
        with Client(gateway.port) as again:
            again.ask("SUBSCRIBE", {"destination": "/queue/1.0", "id": "1", "ack": "client"})
            message = again.message()
            assert message.headers["redelivered"] == "true"
            assert context(message.headers) == CONTEXT


def test_the_broker_keeps_what_is_no_context(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway, Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
        for given in UNUSABLE:
            client.send("/queue/q", b"x", **given)
            sent = {name: value.replace("\\c", ":") for name, value in given.items()}
            assert context(client.message().headers) == sent


def test_a_selector_finds_what_is_sampled(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway, Client(gateway.port) as client:
        sampled = {"selector": "traceparent LIKE '%-01'"}
        client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1", **sampled})
        client.send("/queue/q", b"no", traceparent=CONTEXT["traceparent"][:-2] + "00")
        client.send("/queue/q", b"yes", **CONTEXT)
        assert client.message().body == b"yes"


def test_a_dead_message_keeps_it(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway, Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client"})
        client.ask("SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": "2"})
        client.send("/queue/q", b"x", **CONTEXT)
        ack = client.message().headers["ack"]
        client.write(encode("NACK", {"id": ack, "requeue": "false"}))
        assert context(client.message().headers) == CONTEXT


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedGateway]:
    there = running_activemq()
    jms, by_stomp = activemq("jms", there.openwire_port), stomp("amq", there.port)
    by_amqp = amqp("rabbit", running_rabbitmq().amqp_port)
    links = [
        Link("trace-here", HERE, HERE),
        Link("trace-to-jms", HERE, jms),
        Link("trace-from-jms", jms, HERE),
        Link("trace-to-stomp", HERE, by_stomp),
        Link("trace-from-stomp", by_stomp, HERE),
        Link("trace-to-amqp", HERE, by_amqp),
        Link(
            "trace-from-amqp",
            by_amqp,
            HERE,
            source_attributes={"destination-ref": "trace-to-amqp.out"},
        ),
    ]
    with BridgedGateway(tmp_path_factory.mktemp("traced"), links) as gateway:
        gateway.until_moving()
        yield gateway


@pytest.mark.parametrize("name", ["here", "to-jms", "from-jms", "to-stomp", "from-stomp"])
def test_a_link_keeps_it(name: str, gateway: BridgedGateway) -> None:
    link = gateway.links[f"trace-{name}"]
    source, target = (
        gateway.port if end is HERE else running_activemq().port
        for end in (link.source, link.target)
    )
    with Client(source) as sender, Client(target) as receiver:
        receiver.ask("SUBSCRIBE", {"destination": link.target_queue, "id": "1"})
        for given in CONTEXTS:
            sender.store(link.source_queue, b"x", **given)
            assert context(receiver.message().headers) == given


def test_links_by_amqp_keep_it(gateway: BridgedGateway) -> None:
    gateway.until_moving("trace-to-amqp", "trace-from-amqp")
    to, back = gateway.links["trace-to-amqp"], gateway.links["trace-from-amqp"]
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": back.target_queue, "id": "1"})
        for given in CONTEXTS:
            # It may have gone there and back before the disk has confirmed it.
            came = client.store(to.source_queue, b"x", **given)
            message = came[0] if came else client.message()
            assert context(message.headers) == given
