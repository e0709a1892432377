"""Messages through an AMQP 1.0 broker: links, and the gateway in front."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client
from tests.faults.links import HERE, BridgedGateway, Link, amqp
from tests.gateway_process import HOST, GatewayProcess
from tests.servers import rabbitmq as running_rabbitmq

pytestmark = pytest.mark.brokers

COUNT = 200


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedGateway]:
    """Links from the embedded broker to RabbitMQ, and back from there."""
    rabbit = amqp("rabbit", running_rabbitmq().amqp_port)
    links = [
        Link("there", HERE, rabbit, 10),
        Link("back", rabbit, HERE, 10, source_attributes={"destination-ref": "there.out"}),
    ]
    with BridgedGateway(tmp_path_factory.mktemp("amqp"), links) as running:
        yield running


def test_messages_go_there_and_back_in_order_with_all_that_they_carry(
    gateway: BridgedGateway,
) -> None:
    gateway.until_moving("there", "back")
    with Client(gateway.port) as client:
        for number in range(COUNT):
            client.store("/queue/there.in", b"%d" % number, colour="red", type="order")
        client.ask("SUBSCRIBE", {"destination": "/queue/back.out", "id": "1"})
        frames = [client.message() for _ in range(COUNT)]
    assert [frame.body for frame in frames] == [b"%d" % number for number in range(COUNT)]
    assert {(frame.headers["colour"], frame.headers["type"]) for frame in frames} == {
        ("red", "order")
    }


def test_stomp_clients_work_on_it_through_the_gateway_in_front(tmp_path: Path) -> None:
    port = running_rabbitmq().amqp_port
    factories = tmp_path / "factories.xml"
    factories.touch(mode=0o600)
    factories.write_text(
        f'<jmsbridge name="stomp"><connection-factory ref-name="rabbit" lookup-name="amqp://{HOST}:{port}"/></jmsbridge>'
    )
    settings = {
        "imq.bridge.stomp.provider": "rabbit",
        "imq.bridge.stomp.provider.xmlurl": str(factories),
    }
    with GatewayProcess(tmp_path / "var", settings=settings) as front, Client(front.port) as client:
        client.store("/queue/front.a", b"one", **{"content-type": "text/plain"})
        subscribe = {"destination": "/queue/front.a", "id": "1", "ack": "client"}
        before = client.ask("SUBSCRIBE", subscribe)
        frame = before[0] if before else client.message()
        assert (frame.body, frame.headers["content-type"]) == (b"one", "text/plain")
        client.ask("ACK", {"id": frame.headers["ack"]})
        # It may come before the RECEIPT of its own SEND.
        before = client.store("/queue/front.a", b"two")
        assert (before[0] if before else client.message()).body == b"two"
