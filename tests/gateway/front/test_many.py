"""Many gateways before one broker, and many clients before one gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import stomp

from tests.conformance.client import Client
from tests.crash.waiting import until
from tests.gateway.front import behind
from tests.gateway_process import HOST, GatewayProcess

pytestmark = pytest.mark.brokers

#: Threads that a thousand idle clients may cost.
_MOST_THREADS = 60


@pytest.fixture(params=[behind.activemq_by_jms, behind.rabbitmq_by_amqp], ids=["jms", "amqp"])
def gateways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Two, before one broker."""
    factory = request.param()
    with ExitStack() as running:
        yield [
            running.enter_context(behind.in_front_of(tmp_path / side, factory, hold="20"))
            for side in ("east", "west")
        ]


class _Client(stomp.ConnectionListener):  # type: ignore[misc]
    """stomp.py with a list of hosts, of which it takes the next."""

    def __init__(self, gateways: list[GatewayProcess]) -> None:
        hosts = [(HOST, gateway.port) for gateway in gateways]
        self.connection: Any = stomp.Connection12(hosts, reconnect_attempts_max=1)
        self.connection.set_listener("", self)
        self.received: list[str] = []
        self.confirmed: set[str] = set()
        self.subscribes = False
        self.gone = threading.Event()

    def connect(self) -> None:
        self.gone.clear()
        self.connection.connect("guest", "guest", wait=True)
        if self.subscribes:
            self.connection.subscribe("/queue/two.gateways", id="s", ack="client-individual")

    def on_message(self, frame: Any) -> None:
        self.received.append(frame.body)
        self.connection.ack(frame.headers["ack"])

    def on_receipt(self, frame: Any) -> None:
        self.confirmed.add(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self.gone.set()


def test_one_of_two_gateways_is_killed(gateways: list[GatewayProcess]) -> None:
    """Clients with a list of hosts go on at the other, and nothing is lost."""
    sending, receiving = _Client(gateways), _Client(gateways)
    receiving.subscribes = True
    for client in (sending, receiving):
        client.connect()
    for number in range(300):
        text = str(number)
        if number == 100:
            gateways[0].kill()
        while text not in sending.confirmed:
            try:
                if sending.gone.is_set():
                    sending.connect()
                if receiving.gone.is_set():
                    receiving.connect()
                sending.connection.send("/queue/two.gateways", text, receipt=text)
                until(
                    lambda text=text: text in sending.confirmed or sending.gone.is_set(),  # type: ignore[misc]
                    "no receipt came",
                )
            except stomp.exception.StompException:
                sending.gone.set()
    if receiving.gone.is_set():
        receiving.connect()
    until(lambda: len(set(receiving.received)) == 300, lambda: f"{len(set(receiving.received))}")
    for client in (sending, receiving):
        client.connection.disconnect()


def test_idle_clients_cost_few_threads(tmp_path: Path) -> None:
    """All have sent something, and half of them are subscribed."""
    with (
        ExitStack() as opened,
        behind.in_front_of(tmp_path, behind.activemq_by_jms()) as gateway,
    ):
        clients = []
        for number in range(1_000):
            client = opened.enter_context(closing(Client(gateway.port)))
            client.connect()
            client.put(f"/queue/idle.{number % 10}", "a")
            if number % 2:
                client.subscribe(f"/queue/idle.own.{number}")
            clients.append(client)
        [java] = psutil.Process(gateway.pid).children()
        assert java.num_threads() <= _MOST_THREADS
        # All of them are served.
        clients[0].put("/queue/idle.own.999", "b")
        assert clients[999].message().text == "b"
