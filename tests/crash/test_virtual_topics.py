"""A gateway is killed under a sender to a virtual topic.

Each message is in all queues of the topic or in none, and what got its RECEIPT is in all.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from gateway.instance.crashpoints import STORE_VARIABLE
from tests.crash.client import Client, Gone, encode
from tests.gateway_process import GatewayProcess

TOPIC = "VirtualTopic.orders"
QUEUES = [f"/queue/Consumer.{name}.{TOPIC}" for name in ("a", "b", "c")]
POINTS = (
    "broker.before-submit:4",
    "store.mid-batch:4",
    "store.before-commit:4",
    "store.after-commit:4",
    "broker.before-receipts:4",
)


def exist(port: int) -> None:
    with Client(port) as client:
        for number, queue in enumerate(QUEUES):
            client.ask("SUBSCRIBE", {"destination": queue, "id": str(number), "ack": "client"})


def send(port: int, first: int) -> int:
    """Send messages one by one. :returns: the first without RECEIPT."""
    number = first
    try:
        with Client(port) as client:
            while True:
                client.write(
                    encode(
                        "SEND",
                        {"destination": f"/topic/{TOPIC}", "receipt": "r"},
                        b"%d" % number,
                    )
                )
                assert client.frame().command == "RECEIPT"
                number += 1
    except (Gone, ConnectionError):
        return number


def waiting(port: int, queue: str) -> list[int]:
    with Client(port) as client:
        client.store(queue, b"-1")
        found = client.ask("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "client"})
        while not found or found[-1].body != b"-1":
            found.append(client.message())
    return [int(frame.body) for frame in found[:-1]]


def test_killed_at_each_point_of_a_commit(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        exist(gateway.port)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    answered: set[int] = set()
    doubtful: set[int] = set()
    first = 0
    for point in POINTS:
        with GatewayProcess(tmp_path, environment={**os.environ, STORE_VARIABLE: point}) as gateway:
            unanswered = send(gateway.port, first)
            assert gateway.wait() == -signal.SIGKILL, gateway.said
        answered.update(range(first, unanswered))
        doubtful.add(unanswered)
        first = unanswered + 1
    with GatewayProcess(tmp_path) as gateway:
        found = [waiting(gateway.port, queue) for queue in QUEUES]
    assert found[0] == found[1] == found[2] == sorted(set(found[0]))
    assert answered <= set(found[0]) <= answered | doubtful
    # Both happened: some commits came too late, and some did not.
    assert answered
    assert doubtful & set(found[0])
    assert doubtful - set(found[0])
