"""A gateway in front of ActiveMQ is killed under load, or ActiveMQ is.

Every message is accounted for. Order is not asked for: ActiveMQ hands out what came later before what is given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.accounting import check
from tests.crash.load import TOPIC, Load
from tests.gateway.front import behind
from tests.gateway_process import GatewayProcess
from tests.servers import ActiveMQ

#: RECEIPTs before the kill.
_RECEIPTS = 800


class Pair:
    """A gateway and the broker behind it.

    :param kind: how it reaches the broker: ``jms`` or ``stomp``.
    :param hold: seconds that clients wait for the broker.
    """

    def __init__(self, folder: Path, kind: str, hold: str) -> None:
        self.broker = ActiveMQ(folder / "broker")
        self.broker.start()
        factory = (
            behind.activemq_by_jms(port=self.broker.openwire_port)
            if kind == "jms"
            else behind.activemq_by_stomp(port=self.broker.port)
        )
        settings = behind.settings_for(folder / "front", factory, hold=hold)
        self.gateway = GatewayProcess(folder / "front", settings=settings)
        self._epoch = 0

    def load(self) -> Load:
        self._epoch += 1
        load = Load(self.gateway.port, self._epoch, self._epoch, elsewhere=True)
        load.start()
        load.wait_for_receipts(_RECEIPTS)
        return load

    def end(self) -> None:
        self.gateway.kill()
        self.broker.kill()


def pairs(tmp_path: Path, kind: str, hold: str) -> Iterator[Pair]:
    pair = Pair(tmp_path, kind, hold)
    try:
        pair.gateway.start()
        yield pair
    finally:
        pair.end()


@pytest.fixture(params=["jms", "stomp"])
def survivor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Whose broker is not killed."""
    yield from pairs(tmp_path, request.param, "0")


@pytest.fixture(params=["jms", "stomp"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    yield from pairs(tmp_path, request.param, "0")


@pytest.fixture(params=["jms", "stomp"])
def holding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    yield from pairs(tmp_path, request.param, "60")


def forget_topic(load: Load) -> None:
    """ActiveMQ answers before it writes acknowledgements of durable ones."""
    load.places[TOPIC].gone.clear()


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
        pair.broker.kill()
        load.join()
        pair.broker.start()
        forget_topic(load)
        check(load, pair.gateway.port)
        said = [frame.headers["message"] for frame in load.errors]
        assert said
        assert all("the broker 'there'" in text for text in said), said


def test_both_are_killed(pair: Pair) -> None:
    load = pair.load()
    pair.gateway.kill()
    pair.broker.kill()
    load.join()
    pair.broker.start()
    pair.gateway.start()
    forget_topic(load)
    check(load, pair.gateway.port)


def test_clients_wait_for_the_broker_that_is_killed(holding: Pair) -> None:
    load = holding.load()
    holding.broker.kill()
    holding.broker.start()
    load.wait_for_receipts(2 * _RECEIPTS)
    holding.gateway.kill()
    load.join()
    holding.gateway.start()
    # What was on its way was sent again, and so was what was acknowledged without an answer.
    load.repeats = True
    forget_topic(load)
    check(load, holding.gateway.port)
    # Those with a transaction on its way are told.
    said = [frame.headers["message"] for frame in load.errors]
    known = ("was rolled back", "in spite of this acknowledgement", "the broker 'there'")
    assert all(any(words in text for words in known) for text in said), said
