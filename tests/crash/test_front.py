"""Kill a gateway in front of a broker under load, or the broker.

That is ActiveMQ, reached by JMS and by STOMP, and RabbitMQ, reached by AMQP. Every message is accounted for. Order is not asked for: ActiveMQ hands out what came later before
what is given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.accounting import check
from tests.crash.load import TOPIC, Load
from tests.gateway.front import behind
from tests.gateway_process import GatewayProcess
from tests.servers import ActiveMQ, RabbitMQ

#: Some must start a broker of their own each time, which takes long.
_KINDS = ["jms", "stomp", pytest.param("amqp", marks=pytest.mark.long)]
#: RECEIPTs before the kill.
_RECEIPTS = 800


class Pair:
    """A gateway and the broker behind it.

    :param kind: how it reaches the broker: ``jms``, ``stomp`` or ``amqp``.
    :param hold: seconds that clients wait for the broker.
    """

    def __init__(self, folder: Path, kind: str, hold: str) -> None:
        self.broker = RabbitMQ(folder / "broker") if kind == "amqp" else ActiveMQ(folder / "broker")
        self.broker.start()
        factory = _factory(self.broker, kind)
        settings = behind.settings_for(folder / "front", factory, hold=hold)
        self.gateway = GatewayProcess(folder / "front", settings=settings)
        self._epoch = 0

    def load(self) -> Load:
        self._epoch += 1
        plain = isinstance(self.broker, RabbitMQ)
        load = Load(self.gateway.port, self._epoch, self._epoch, elsewhere=True, plain=plain)
        load.start()
        load.wait_for_receipts(_RECEIPTS)
        return load

    def kill_broker(self) -> None:
        if isinstance(self.broker, RabbitMQ):
            self.broker.sync_queues()
        self.broker.kill()

    def end(self) -> None:
        self.gateway.kill()
        self.broker.kill()


def _factory(broker: ActiveMQ | RabbitMQ, kind: str) -> behind.Factory:
    if isinstance(broker, RabbitMQ):
        return behind.rabbitmq_by_amqp(port=broker.amqp_port)
    if kind == "jms":
        return behind.activemq_by_jms(port=broker.openwire_port)
    return behind.activemq_by_stomp(port=broker.port)


def pairs(tmp_path: Path, kind: str, hold: str) -> Iterator[Pair]:
    pair = Pair(tmp_path, kind, hold)
    try:
        pair.gateway.start()
        yield pair
    finally:
        pair.end()


@pytest.fixture(params=_KINDS)
def survivor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Whose broker is not killed."""
    yield from pairs(tmp_path, request.param, "0")


@pytest.fixture(params=_KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    yield from pairs(tmp_path, request.param, "0")


@pytest.fixture(params=_KINDS)
def holding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    yield from pairs(tmp_path, request.param, "60")


def forget_unwritten(load: Load) -> None:
    """Expect nothing of acknowledgements that the broker writes after its answer.

    RabbitMQ does so with all, and ActiveMQ with those of durable subscriptions.
    """
    for place in load.places.values() if load.plain else [load.places[TOPIC]]:
        place.gone.clear()


def test_the_gateway_is_killed(survivor: Pair) -> None:
    for _ in range(2):
        load = survivor.load()
        survivor.gateway.kill()
        load.join()
        survivor.gateway.start()
        check(load, survivor.gateway.port)
        assert not load.errors


def test_the_broker_is_killed(pair: Pair) -> None:
    for _ in range(2):
        load = pair.load()
        pair.kill_broker()
        load.join()
        pair.broker.start()
        forget_unwritten(load)
        check(load, pair.gateway.port)
        said = [frame.headers["message"] for frame in load.errors]
        assert said
        assert all("the broker 'there'" in text for text in said), said


def test_both_are_killed(pair: Pair) -> None:
    load = pair.load()
    pair.gateway.kill()
    pair.kill_broker()
    load.join()
    pair.broker.start()
    pair.gateway.start()
    forget_unwritten(load)
    check(load, pair.gateway.port)


def test_clients_wait_for_the_broker_that_is_killed(holding: Pair) -> None:
    load = holding.load()
    holding.kill_broker()
    holding.broker.start()
    load.wait_for_receipts(2 * _RECEIPTS)
    holding.gateway.kill()
    load.join()
    holding.gateway.start()
    # What was on its way was sent again, and so was what was acknowledged without an answer.
    load.repeats = True
    forget_unwritten(load)
    check(load, holding.gateway.port)
    # Those with a transaction on its way are told.
    said = [frame.headers["message"] for frame in load.errors]
    known = ("was rolled back", "in spite of this acknowledgement", "the broker 'there'")
    assert all(any(words in text for words in known) for text in said), said
