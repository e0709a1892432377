"""Clients of gateways in front of RabbitMQ, and of RabbitMQ itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway.front.behind import Connect
from tests.gateway_process import GatewayProcess
from tests.servers import rabbitmq


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as opened:

        def connected(front: GatewayProcess, profile: str = "", **headers: str) -> Client:
            listener = f"imq.bridge.stomp.listener.{profile}.port"
            port = int(front.settings[listener]) if profile else front.port
            client = opened.enter_context(closing(Client(port)))
            client.counted = profile != "activemq"
            client.connect("1.2", **headers)
            return client

        yield connected


def _at_rabbitmq() -> Client:
    client = Client(rabbitmq().port)
    client.connect("1.2", host="/", login="guest", passcode="guest")
    return client


@pytest.fixture
def own() -> Iterator[Client]:
    """A client of RabbitMQ itself."""
    with closing(_at_rabbitmq()) as client:
        yield client


@pytest.fixture
def sender() -> Iterator[Client]:
    """Another one."""
    with closing(_at_rabbitmq()) as client:
        yield client


@pytest.fixture
def name() -> str:
    return uuid4().hex
