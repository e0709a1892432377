"""What most tests of the gateway's sessions begin with."""

from __future__ import annotations

import pytest

from tests.gateway.stomp.client import Client, Server


@pytest.fixture
def server() -> Server:
    """A gateway with the options that :class:`Server` gives it."""
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    """A client of that gateway that is CONNECTED, with STOMP 1.2."""
    return server.connected()
