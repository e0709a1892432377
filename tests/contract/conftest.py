"""Each contract test runs over every backend of ``BACKENDS`` that can arrange what it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from gateway.messaging.destination import Destination
from gateway.messaging.provider import Session
from tests.contract.backends.amqp import AmqpRabbitMQ, AmqpRhea
from tests.contract.backends.backend import Backend, arranges
from tests.contract.backends.embedded import EmbeddedMemory, EmbeddedSqlite
from tests.contract.backends.front import Held, SharedJMS
from tests.contract.backends.jms import JMS
from tests.contract.backends.jms_xa import JMSXA
from tests.contract.backends.stomp import StompActiveMQ, StompGateway, StompRabbitMQ
from tests.contract.contracts import ARRANGED
from tests.contract.driving import Client, Seam

BACKENDS: tuple[type[Backend], ...] = (
    EmbeddedSqlite,
    EmbeddedMemory,
    Held,
    JMS,
    SharedJMS,
    JMSXA,
    StompGateway,
    StompActiveMQ,
    StompRabbitMQ,
    AmqpRabbitMQ,
    AmqpRhea,
)

clock: Any = reactor


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        needed: tuple[str, ...] = getattr(metafunc.function, ARRANGED, ())
        able = [
            pytest.param(
                backend, id=backend.name, marks=_marks(backend, metafunc.function.__name__)
            )
            for backend in BACKENDS
            if all(arranges(backend, what) for what in needed)
            and (not backend.only or metafunc.module.__name__.rpartition(".")[2] in backend.only)
        ]
        metafunc.parametrize("backend", able, indirect=True, scope="session")


def _marks(backend: type[Backend], test: str) -> list[pytest.MarkDecorator]:
    """Return the backend's mark, and another if the backend is known to fail this test."""
    marks = [] if backend.mark is None else [getattr(pytest.mark, backend.mark)]
    if why := backend.breaches.get(test):
        marks.append(pytest.mark.xfail(strict=True, reason=why))
    return marks


def _run(work: Callable[[], Awaitable[None]]) -> None:
    """Do ``work`` on the reactor and wait for it; async fixtures cannot last a whole session."""
    done: Deferred[None] = Deferred()

    async def awaiting() -> None:
        await work()

    clock.callLater(0, lambda: Deferred.fromCoroutine(awaiting()).chainDeferred(done))
    pytest_twisted.blockon(done)


@pytest.fixture(scope="session")
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """A backend that has been started, one for the whole session."""
    backend: Backend = request.param()
    _run(lambda: backend.start(tmp_path_factory.mktemp(backend.name)))
    yield backend
    _run(backend.stop)


@pytest_twisted.async_yield_fixture
async def seam(backend: Backend) -> AsyncIterator[Seam]:
    """The seam to this backend; connections that a test leaves open are closed behind it."""
    seam = Seam(backend)
    yield seam
    await seam.close()


@pytest_twisted.async_fixture
async def client(seam: Seam) -> Client:
    """A connection without client identifier."""
    return await seam.connect()


@pytest.fixture
def session(client: Client) -> Session:
    """A session of that connection that is settled by the client."""
    return client.session()


@pytest.fixture
def queue(seam: Seam) -> Destination:
    """A queue that no test has used."""
    return seam.queue()


@pytest.fixture
def topic(seam: Seam) -> Destination:
    """A topic that no test has used."""
    return seam.topic()


@pytest.fixture
def mine(seam: Seam) -> str:
    """A client identifier that no test has used."""
    return seam.identifier()


@pytest_twisted.async_fixture
async def subscriber(seam: Seam, mine: str) -> Client:
    """A connection with the client identifier ``mine``."""
    return await seam.connect(mine)
