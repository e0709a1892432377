"""What ActiveMQ refuses after the gateway took it must not vanish."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway_process import GatewayProcess
from tests.servers import ActiveMQ

pytestmark = pytest.mark.brokers

_TOO_LARGE = b"x" * 3_000_000
Start = Callable[[str, str], GatewayProcess]


class _Strict(ActiveMQ):
    """Takes no frame of more than a megabyte, and delivers nothing later."""

    scheduler = False

    def listeners(self) -> list[str]:
        return [
            f"tcp://127.0.0.1:{self.openwire_port}?wireFormat.maxFrameSize=1000000",
            f"stomp+nio://127.0.0.1:{self.port}?wireFormat.maxDataLength=1000000",
        ]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMQ]:
    broker = _Strict(tmp_path_factory.mktemp("strict"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def start(strict: ActiveMQ, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:

        def started(kind: str, hold: str) -> GatewayProcess:
            factory = (
                behind.activemq_by_jms(port=strict.openwire_port)
                if kind == "jms"
                else behind.activemq_by_stomp(port=strict.port)
            )
            return running.enter_context(behind.in_front_of(tmp_path, factory, hold=hold))

        yield started


@pytest.mark.parametrize("hold", ["0", "5"])
@pytest.mark.parametrize("kind", ["jms", "stomp"])
@pytest.mark.parametrize("asked", ["receipt", "nothing", "transaction"])
def test_a_message_that_is_too_large_is_told(
    start: Start, kind: str, hold: str, asked: str
) -> None:
    gateway, queue = start(kind, hold), f"/queue/{uuid4().hex}"
    with closing(Client(gateway.port)) as client:
        client.connect()
        headers = {"destination": queue}
        if asked == "receipt":
            headers["receipt"] = "large"
        if asked == "transaction":
            client.send("BEGIN", transaction="t")
            headers["transaction"] = "t"
        client.send("SEND", headers, _TOO_LARGE)
        if asked == "transaction":
            client.send("COMMIT", transaction="t", receipt="committed")
        frame = client.frame()
        assert frame.command == "ERROR", frame
        assert client.rest() == []
    with closing(Client(gateway.port)) as client:
        client.connect()
        client.put(queue, "small")
        assert client.left(queue) == ["small"]


@pytest.mark.parametrize("kind", ["jms", "stomp"])
def test_what_it_would_deliver_at_once_is_refused(start: Start, kind: str) -> None:
    gateway, queue = start(kind, "0"), f"/queue/{uuid4().hex}"
    for transaction in ("", "t"):
        with closing(Client(gateway.port)) as client:
            client.connect()
            headers = {"destination": queue, "AMQ_SCHEDULED_DELAY": "60000", "receipt": "r"}
            if transaction:
                client.send("BEGIN", transaction="t")
                headers["transaction"] = "t"
            client.send("SEND", headers, "later")
            client.error(
                "does not support delivery at a later time as it is set up; set schedulerSupport in its configuration",
                receipt_id="r",
            )
    with closing(Client(gateway.port)) as client:
        client.connect()
        assert client.left(queue) == []


def test_what_was_sent_before_the_broker_was_known_is_refused(
    strict: ActiveMQ, tmp_path: Path
) -> None:
    factory = behind.activemq_by_stomp(port=strict.port)
    settings = {"there__destinations": "/queue/there.>"}
    with behind.in_front_of(tmp_path, factory, main="embedded", **settings) as gateway:
        with closing(Client(gateway.port)) as client:
            client.connect()
            headers = {"destination": "/queue/there.late", "AMQ_SCHEDULED_DELAY": "60000"}
            client.send("SEND", headers, "later", receipt="r")
            client.error("the broker 'there' does not support delivery at a later time as it is")
        with closing(Client(gateway.port)) as client:
            client.connect()
            assert client.left("/queue/there.late") == []
