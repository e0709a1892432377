"""``stomp+tls://`` against real servers: the chain and the host name are checked, and the client's
certificate is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.providers.stomp.options import StompAddress, StompOptions
from bridge.providers.stomp.provider import StompProvider
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Credentials, Mode
from tests.bridge.providers.stomp.peer import WELL, clock, text, until
from tests.gateway_process import HOST, Certificates, GatewayProcess
from tests.on_reactor import on_reactor
from tests.servers import ActiveMQ, RabbitMQ, started

pytestmark = pytest.mark.brokers


async def exchange(address: StompAddress, options: StompOptions) -> None:
    """Send a message and wait until it is safe; the connection must not be lost."""
    losses: list[MessagingError] = []
    told: list[object] = []
    provider = StompProvider(address, options, clock)
    connection = await provider.connect(Credentials("guest", "guest"), None, losses.append)
    session = connection.session(Mode.CLIENT)
    session.send([text("x" * 100_000, Queue("tls"))])
    session.completion(lambda error: told.append(WELL if error is None else error))
    await until(lambda: told)
    await connection.close()
    assert (told, losses) == ([WELL], [])


@pytest.fixture(scope="module")
def tls_gateway(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that wants a client certificate."""
    with GatewayProcess(
        tmp_path_factory.mktemp("tls"), tls=certificates, require_client_certificate=True
    ) as running:
        yield running


@on_reactor
async def test_a_client_certificate_is_shown(
    tls_gateway: GatewayProcess, certificates: Certificates, tmp_path: Path
) -> None:
    ca, certificate, key = certificates.ca, certificates.client_certificate, certificates.client_key
    for host in ("localhost", HOST):
        await exchange(
            StompAddress(host, tls_gateway.tls_port, True),
            StompOptions(ca=ca, certificate=certificate, key=key),
        )
    together = tmp_path / "both.pem"
    together.write_bytes(certificate.read_bytes() + key.read_bytes())
    await exchange(
        StompAddress("localhost", tls_gateway.tls_port, True),
        StompOptions(ca=ca, certificate=together),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda known: StompOptions(certificate=known.client_certificate, key=known.client_key),
        lambda known: StompOptions(
            ca=known.ca,
            certificate=known.client_certificate,
            key=known.client_key,
            server_name="elsewhere",
        ),
        lambda known: StompOptions(ca=known.ca),
        lambda known: StompOptions(ca=known.ca.with_name("missing.pem")),
    ],
    ids=["unknown authority", "another name", "no client certificate", "no such file"],
)
@on_reactor
async def test_what_tls_refuses_is_unavailable(
    tls_gateway: GatewayProcess,
    certificates: Certificates,
    wrong: Callable[[Certificates], StompOptions],
) -> None:
    with pytest.raises(ProviderUnavailable):
        await exchange(StompAddress("localhost", tls_gateway.tls_port, True), wrong(certificates))


@on_reactor
async def test_tls_to_a_plain_port_and_plain_to_a_tls_port(
    tls_gateway: GatewayProcess, certificates: Certificates
) -> None:
    options = StompOptions(ca=certificates.ca, connect_timeout=2)
    for address in (
        StompAddress("localhost", tls_gateway.port, True),
        StompAddress("localhost", tls_gateway.tls_port),
    ):
        with pytest.raises(ProviderUnavailable):
            await exchange(address, options)


@pytest.fixture(params=[ActiveMQ, RabbitMQ])
def another(request: pytest.FixtureRequest) -> ActiveMQ | RabbitMQ:
    """Another broker, which runs: starting one takes as long as the machine needs, and what is
    asked of it does not.
    """
    server: type[ActiveMQ] | type[RabbitMQ] = request.param
    return started(server)


@on_reactor
async def test_other_brokers(another: ActiveMQ | RabbitMQ) -> None:
    await exchange(
        StompAddress("localhost", another.tls_port, True), StompOptions(ca=another.keys / "ca.pem")
    )
