"""Artemis' last-value queues, as its clients use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.client import Client
from tests.gateway_process import GatewayProcess


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    settings = {
        "imq.bridge.stomp.profile": "artemis",
        "imq.destination.queue.lvq.lastValueKey": "_AMQ_LVQ_NAME",
    }
    with GatewayProcess(tmp_path_factory.mktemp("lvq"), settings=settings) as gateway:
        yield gateway.port


def test_a_slow_consumer_gets_the_first_and_the_last(port: int) -> None:
    """Its window has room for one message."""
    with closing(Client(port)) as producer, closing(Client(port)) as consumer:
        producer.connect("1.2")
        consumer.connect("1.2")
        consumer.subscribe("lvq", ack="client", **{"consumer-window-size": "0"})
        consumer.sync()
        for number in range(1, 101):
            producer.send(
                "SEND",
                {"destination": "lvq", "_AMQ_LVQ_NAME": "test", "persistent": "true"},
                str(number),
            )
            producer.sync()
        found = []
        for _ in range(2):
            message = consumer.message()
            found.append((message.text, message["_AMQ_LVQ_NAME"]))
            consumer.send("ACK", {"id": message["ack"]})
        assert consumer.sync() == []
    assert found == [("1", "test"), ("100", "test")]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_messages_without_a_key_are_all_kept(port: int, version: str) -> None:
    with closing(Client(port)) as client:
        client.counted = version != "1.0"
        client.connect(version)
        for body, headers in (
            ("1", {}),
            ("2", {"_AMQ_LVQ_NAME": "k"}),
            ("3", {"_AMQ_LVQ_NAME": "k"}),
        ):
            client.send("SEND", {"destination": "lvq", **headers}, body)
        client.send("SEND", {"destination": "lvq"}, "4")
        client.sync()
        client.subscribe("lvq")
        assert [each.text for each in client.messages(3)] == ["1", "3", "4"]
