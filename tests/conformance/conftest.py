"""A gateway for most tests of conformance, with clients for it.

And with destinations that no other test uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway_process import GatewayProcess

#: Gives a client that is CONNECTED; its arguments are those of :meth:`Client.connect`. ``to`` is
#: another gateway than the shared one.
Connect = Callable[..., Client]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("conformance")) as gateway:
        yield gateway


@pytest.fixture(params=["1.0", "1.1", "1.2"])
def version(request: pytest.FixtureRequest) -> str:
    """Each version, for rules that all of them have."""
    return str(request.param)


@pytest.fixture
def dial(gateway: GatewayProcess) -> Iterator[Callable[..., Client]]:
    """Open a socket to the gateway and send nothing.

    It is closed after the test. ``to`` is another gateway than the shared one.
    """
    with ExitStack() as opened:

        def dialled(to: GatewayProcess | None = None, **options: Any) -> Client:
            return opened.enter_context(closing(Client((to or gateway).port, **options)))

        yield dialled


@pytest.fixture
def connect(dial: Callable[..., Client]) -> Connect:
    def connected(
        version: str | None = "1.2", to: GatewayProcess | None = None, **headers: str
    ) -> Client:
        client = dial(to)
        client.connect(version, **headers)
        return client

    return connected


@pytest.fixture
def queue() -> str:
    """A queue of this test's own, as STOMP spells it."""
    return f"/queue/conformance.{uuid4().hex}"


@pytest.fixture
def topic() -> str:
    return f"/topic/conformance.{uuid4().hex}"
