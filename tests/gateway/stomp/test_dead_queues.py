"""Dead message queues of ActiveMQ's names through a gateway, over a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.client import Client
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process

DEAD = "/queue/ActiveMQ.DLQ.Queue.orders"


def test_a_nacked_message_is_in_the_dead_queue_of_its_queue_also_after_a_crash(
    tmp_path: Path,
) -> None:
    settings = {
        "imq.bridge.stomp.profile": "activemq",
        "imq.autocreate.queue.deadLetterQueue": "ActiveMQ.DLQ.Queue.",
        "imq.destination.queue.orders.maximumRedeliveries": "0",
    }
    with GatewayProcess(tmp_path, settings=settings) as gateway, Client(gateway.port) as client:
        asked = {"destination": "/queue/orders", "id": "1", "ack": "client-individual"}
        assert client.ask("SUBSCRIBE", asked) == []
        with Client(gateway.port) as sender:
            sender.store("/queue/orders", b"m")
        assert client.ask("NACK", {"id": client.message().headers["ack"]}) == []
        gateway.kill()
    with GatewayProcess(tmp_path, settings=settings) as gateway, Client(gateway.port) as client:
        came = client.ask("SUBSCRIBE", {"destination": DEAD, "id": "1", "ack": "client"})
        frame = came[0] if came else client.message()
        assert frame.body == b"m"
        assert frame.headers["destination"] == DEAD
        assert frame.headers["original-destination"] == "/queue/orders"
        assert frame.headers["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
