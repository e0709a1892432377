"""``amqps://`` against RabbitMQ: the chain and the host name are checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.threads import deferToThread

from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.provider import AmqpProvider
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Credentials, Mode
from tests.bridge.providers.amqp.peer import WELL, clock, text, until
from tests.on_reactor import on_reactor
from tests.servers import RabbitMQ, started

pytestmark = pytest.mark.brokers


async def provider(**options: str | Path) -> AmqpProvider:
    server = await deferToThread(started, RabbitMQ)
    address = AmqpAddress("127.0.0.1", server.amqp_tls_port, True)
    ca = {"ca": server.keys / "ca.pem", **options}
    return AmqpProvider(address, AmqpOptions(**ca), clock)  # type: ignore[arg-type]


@on_reactor
async def test_a_message_goes_over_tls() -> None:
    losses: list[MessagingError] = []
    told: list[object] = []
    there = await provider()
    connection = await there.connect(Credentials("guest", "guest"), None, losses.append)
    session = connection.session(Mode.CLIENT)
    session.send([text("x" * 300_000, Queue("tls-amqp"))])
    session.completion(lambda error: told.append(WELL if error is None else error))
    await until(lambda: told)
    await connection.close()
    assert (told, losses) == ([WELL], [])


@pytest.mark.parametrize("wrong", ["server_name", "ca"])
@on_reactor
async def test_what_tls_refuses_is_unavailable(wrong: str, tmp_path: Path) -> None:
    options: dict[str, str | Path] = {"server_name": "elsewhere.example.org"}
    if wrong == "ca":
        options = {"ca": tmp_path / "missing.pem"}
    there = await provider(**options)
    with pytest.raises(ProviderUnavailable):
        await there.connect(Credentials("guest", "guest"), None, lambda error: None)
