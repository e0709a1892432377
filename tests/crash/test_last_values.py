"""A gateway is killed under a sender to a last-value queue.

After that there is one message of each key: the last that got its RECEIPT, or one that was sent
after it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.instance.crashpoints import STORE_VARIABLE
from tests.crash.client import Client, Gone, encode
from tests.gateway_process import GatewayProcess

QUEUE = "/queue/quotes"
KEYS = 5
SETTINGS = {"imq.destination.queue.quotes.lastValueKey": "symbol"}
POINTS = ("store.mid-batch:12", "store.after-commit:12")
MORE_POINTS = ("broker.before-submit:12", "store.before-commit:12", "broker.before-receipts:12")


def quote(number: int, **more: str) -> bytes:
    headers = {"destination": QUEUE, "symbol": str(number % KEYS), "receipt": "r", **more}
    return encode("SEND", headers, b"%d" % number)


def send(port: int, first: int) -> int:
    """Send quotes one by one. :returns: the first without RECEIPT."""
    number = first
    try:
        with Client(port) as client:
            while True:
                client.write(quote(number))
                assert client.frame().command == "RECEIPT"
                number += 1
    except (Gone, ConnectionError):
        return number


def hold(port: int) -> Client:
    """A consumer that has what waits, and acknowledges nothing."""
    client = Client(port)
    client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client"})
    return client


def waiting(port: int) -> list[int]:
    with Client(port) as client:
        client.store(QUEUE, b"-1")
        found = client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client"})
        while not found or found[-1].body != b"-1":
            found.append(client.message())
        for frame in found:
            if frame.body == b"-1":
                client.ask("ACK", {"id": frame.headers["ack"]})
    return [int(frame.body) for frame in found[:-1]]


@pytest.mark.parametrize("points", [POINTS, pytest.param(MORE_POINTS, marks=pytest.mark.long)])
def test_killed_at_points_of_a_commit(tmp_path: Path, points: tuple[str, ...]) -> None:
    first = 0
    for point in points:
        environment = {**os.environ, STORE_VARIABLE: point}
        with GatewayProcess(tmp_path, settings=SETTINGS, environment=environment) as gateway:
            unanswered = send(gateway.port, first)
            assert gateway.wait() == -signal.SIGKILL, gateway.said
        assert unanswered >= first + KEYS
        with GatewayProcess(tmp_path, settings=SETTINGS) as gateway:
            found = waiting(gateway.port)
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0
        last = {number % KEYS: number for number in range(unanswered)}
        doubtful = {**last, unanswered % KEYS: unanswered}
        assert sorted(found) in (sorted(last.values()), sorted(doubtful.values()))
        assert found == sorted(found)
        first = unanswered + 1


def test_killed_while_a_consumer_has_the_older_ones(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, settings=SETTINGS) as gateway:
        with Client(gateway.port) as sender:
            for number in range(KEYS):
                sender.write(quote(number))
                assert sender.frame().command == "RECEIPT"
            holder = hold(gateway.port)
            for number in range(KEYS, 2 * KEYS - 2):
                sender.write(quote(number))
                assert sender.frame().command == "RECEIPT"
            gateway.signal(signal.SIGKILL)
            assert gateway.wait() == -signal.SIGKILL
        holder.close()
    with GatewayProcess(tmp_path, settings=SETTINGS) as gateway:
        assert waiting(gateway.port) == [3, 4, 5, 6, 7]
