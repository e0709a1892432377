"""A gateway under load is killed, at named points and at any moment, and started again over its
files: every message is accounted for.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.instance.crashpoints import STORE_VARIABLE
from tests.crash.accounting import check
from tests.crash.client import PATIENCE
from tests.crash.load import Load
from tests.gateway_process import GatewayFailed, GatewayProcess

#: Kills at any moment over one store.
KILLS = 10


class Instance:
    """One instance over many starts. Each load gets an epoch of its own.

    :ivar found: messages that were there after crashes, in all.
    """

    def __init__(self, varhome: Path) -> None:
        self._varhome = varhome
        self._epoch = 0
        self._gateway: GatewayProcess | None = None
        self.found = 0

    @property
    def gateway(self) -> GatewayProcess:
        assert self._gateway is not None
        return self._gateway

    def start(self, point: str | None = None) -> GatewayProcess:
        self.end()
        self._gateway = GatewayProcess(
            self._varhome,
            environment=dict(os.environ)
            if point is None
            else {**os.environ, STORE_VARIABLE: point},
        )
        self._gateway.start()
        return self._gateway

    def end(self) -> None:
        if self._gateway is not None:
            self._gateway.kill()

    def load(self, seed: int) -> Load:
        self._epoch += 1
        load = Load(self.gateway.port, self._epoch, seed)
        load.start()
        return load

    def account(self, load: Load) -> None:
        """The gateway is dead: start another over its files, and account for everything; it runs
        on.
        """
        load.join()
        again = self.start()
        self.found += check(load, again.port)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("instance"))
    yield made
    made.end()


POINTS = [
    "broker.before-submit:40",
    "store.mid-batch:41",
    "store.before-commit:42",
    "store.after-commit:43",
    "broker.before-receipts:44",
    "broker.after-receipts:45",
    "store.before-checkpoint:3",
    "store.after-checkpoint:2",
]


def kill_at(instance: Instance, point: str, seed: int) -> None:
    gateway = instance.start(point)
    load = instance.load(seed)
    assert gateway.wait(PATIENCE) == -signal.SIGKILL, gateway.said
    assert not load.errors, load.errors
    instance.account(load)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, instance: Instance) -> None:
    kill_at(instance, point, len(point))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("point", [point.partition(":")[0] for point in POINTS])
def test_killed_at_again_and_again(point: str, seed: int, instance: Instance) -> None:
    most = 12 if "checkpoint" in point else 200
    kill_at(instance, f"{point}:{random.Random(seed).randrange(1, most)}", seed)


@pytest.mark.parametrize("point", ["broker.before-close", "broker.after-close"])
def test_killed_in_an_orderly_stop(point: str, instance: Instance) -> None:
    gateway = instance.start(point)
    load = instance.load(7)
    load.wait_for_receipts(300)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == -signal.SIGKILL, gateway.said
    instance.account(load)


def test_killed_while_it_opens_the_store_again(instance: Instance) -> None:
    gateway = instance.start()
    load = instance.load(8)
    load.wait_for_receipts(300)
    gateway.kill()
    with pytest.raises(GatewayFailed, match=r"ended with -9"):
        instance.start("broker.opened")
    instance.account(load)


@pytest.mark.parametrize("point", ["store.before-rename", "store.after-rename"])
def test_killed_at_its_first_start(point: str, tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    try:
        with pytest.raises(GatewayFailed, match=r"ended with -9"):
            instance.start(point)
        gateway = instance.start()
        load = instance.load(9)
        load.wait_for_receipts(50)
        gateway.kill()
        instance.account(load)
    finally:
        instance.end()


def kill_again_and_again(instance: Instance, kills: int, seed: int) -> None:
    """Each moment is that of some receipt, which has no relation to what the gateway is at."""
    moments = random.Random(seed)
    found = instance.found
    instance.start()
    for kill in range(kills):
        load = instance.load(seed + kill)
        load.wait_for_receipts(moments.choice((1, 20, 200, 600)) + moments.randrange(100))
        instance.gateway.kill()
        assert not load.errors, load.errors
        instance.account(load)
    assert instance.found > found, "nothing was ever there, so nothing was proved"


def test_killed_at_any_moment(instance: Instance) -> None:
    kill_again_and_again(instance, KILLS, 100)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 20_000, 1000))
def test_killed_at_any_moment_again_and_again(seed: int, instance: Instance) -> None:
    kill_again_and_again(instance, 20, seed)


def test_a_point_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    gateway = GatewayProcess(
        tmp_path, environment={**os.environ, STORE_VARIABLE: "store.before-lunch"}
    )
    gateway.launch()
    assert gateway.wait() == 2
    assert STORE_VARIABLE in gateway.said
