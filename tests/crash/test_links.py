"""A gateway whose links move messages is killed at named points of their sequence, and started
again: every message is accounted for.

The other broker is a gateway, too, which lives on. All links move messages when one of them passes
the point; which one that is, is left to chance.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from gateway.instance.crashpoints import LINK_POINTS, LINK_VARIABLE
from tests.crash.client import PATIENCE
from tests.faults.accounting import at_least_once, at_most_once
from tests.faults.links import (
    AT_MOST_ONCE,
    BRIDGE,
    DUPLICATES_OK,
    HERE,
    BridgedGateway,
    Link,
    stomp,
)
from tests.faults.traffic import drain, produce
from tests.gateway_process import GatewayProcess

MESSAGES: Final = 1_000
BATCH: Final = 20
#: How often the point is passed before: far enough for each link to be in the middle of its work.
PASSED: Final = 25
#: Of the link whose transformer fails, every such message is dead.
EVERY: Final = 10
BURYING: Final = ("link.before-bury", "link.after-bury")

TRANSFORMER: Final = dedent('''\
    """Fails for some messages."""

    from gateway.messaging.transformer import MessageTransformer


    class Picky(MessageTransformer):
        def transform(self, message, read_only, charset_name, source, target, properties):
            number = int(message.octets.decode().split()[1].rstrip("."))
            if number % int(properties["every"]) == 0 and number <= int(properties["last"]):
                raise ValueError(f"number {number} is not to my taste")
            return message
    ''')


class Instance:
    """A gateway over many starts, and the broker at the other end of its links."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.far = ending.enter_context(GatewayProcess(folder / "far", store="memory"))
        far = stomp("far", self.far.port)
        self.links = [
            Link(f"{way}-{kind}", source, target, batch, quality)
            for way, source, target in (
                ("to", HERE, far),
                ("from", far, HERE),
                ("within", HERE, HERE),
            )
            for kind, batch, quality in (
                ("each", 1, DUPLICATES_OK),
                ("batch", BATCH, DUPLICATES_OK),
                ("once", BATCH, AT_MOST_ONCE),
            )
            if (way, kind) != ("within", "once")
        ]
        picky = {
            "message-transformer-class": "picky:Picky",
            "consume-no-transfer-on-transform-error": "true",
        }
        given = {"every": str(EVERY), "last": str(MESSAGES)}
        self.burying = Link(
            "dead", HERE, far, BATCH, target_attributes=picky, target_properties=given
        )
        self.dmq = "/queue/imq.bridge.jms.dmq"
        extensions = folder / "near" / "lib" / "ext"
        extensions.mkdir(parents=True)
        (extensions / "picky.py").write_text(TRANSFORMER)
        self._folder = folder / "near"
        self.near = self._gateway()
        self.near.start()
        ending.callback(lambda: self.near.kill())

    def _gateway(self, point: str | None = None) -> BridgedGateway:
        environment = dict(os.environ) if point is None else {**os.environ, LINK_VARIABLE: point}
        return BridgedGateway(self._folder, [*self.links, self.burying], environment=environment)

    def kill_at(self, point: str, times: int) -> None:
        """Have all links move messages, and the gateway killed when one of them passes the point
        for the N-th time; and account for everything.
        """
        links = [self.burying] if point in BURYING else self.links
        for link in links:
            self.near.operate("pause", link.name)
            produce(self._source(link), link.source_queue, 1, MESSAGES)
        self.near.kill()
        # As if its operator had paused none of them: they move at once.
        (self.near.directory / "bridges" / BRIDGE / "orders.json").unlink()
        self.near = self._gateway(f"{point}:{times}")
        self.near.launch()
        assert self.near.wait(PATIENCE) == -signal.SIGKILL, self.near.said
        self.near = self._gateway()
        self.near.start()
        for link in links:
            produce(self._source(link), link.source_queue, MESSAGES + 1, MESSAGES + 1)
        for link in links:
            numbers = drain(
                self.far.port if link.target is not HERE else self.near.port,
                link.target_queue,
                MESSAGES + 1,
            )
            if link is self.burying:
                self._account_for_the_dead(numbers)
            else:
                (at_most_once if link.quality == AT_MOST_ONCE else at_least_once)(
                    numbers, MESSAGES, link.batch, 1
                )

    def _source(self, link: Link) -> int:
        return self.near.port if link.source is HERE else self.far.port

    def _account_for_the_dead(self, numbers: list[int]) -> None:
        """Each is alive at the target or dead in the queue, in order; of both a batch may be there
        twice.
        """
        produce(self.near.port, self.dmq, MESSAGES + 1, MESSAGES + 1)
        dead = drain(self.near.port, self.dmq, MESSAGES + 1)
        assert all(number % EVERY == 0 for number in dead), dead
        at_least_once(
            [number // EVERY for number in dead], MESSAGES // EVERY, -(-BATCH // EVERY), 1
        )
        assert all(number % EVERY for number in numbers), numbers
        at_least_once(
            [number - number // EVERY for number in numbers], MESSAGES - MESSAGES // EVERY, BATCH, 1
        )


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with ExitStack() as ending:
        yield Instance(tmp_path_factory.mktemp("links"), ending)


@pytest.mark.parametrize("point", LINK_POINTS)
def test_killed_at(point: str, instance: Instance) -> None:
    instance.kill_at(point, PASSED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("point", LINK_POINTS)
def test_killed_at_again_and_again(point: str, seed: int, instance: Instance) -> None:
    instance.kill_at(
        point, random.Random(f"{point} {seed}").randrange(1, 90 if point in BURYING else 200)
    )


def test_a_point_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    links = [Link("one", HERE, HERE)]
    gateway = BridgedGateway(
        tmp_path, links, environment={**os.environ, LINK_VARIABLE: "link.before-lunch"}
    )
    gateway.launch()
    assert gateway.wait() == 2
    assert LINK_VARIABLE in gateway.said
