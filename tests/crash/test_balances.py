"""A link's balance is compared with what was sent and what arrived.

The gateway is killed at named points while its links move messages.

A link that transfers once, by XA or by duplicate ids, must be exact to the message, after any number
of crashes. One that may double messages may not know the last batch, but never hides it:
``out <= arrived <= out + possibly twice``.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.instance.crashpoints import LINK_VARIABLE
from tests.crash.client import PATIENCE
from tests.faults.links import BRIDGE, DUPLICATES_OK, HERE, BridgedGateway, Link, stomp
from tests.faults.traffic import drain, produce
from tests.gateway_process import GatewayProcess

ONCE: Final = "ONCE_AND_ONLY_ONCE"
MESSAGES: Final = 120
BATCH: Final = 7
#: In the order of the sequence; the links are at any other point when one of them dies there.
POINTS: Final = (
    "link.after-receive",
    "link.after-send",
    "link.before-acknowledge",
    "link.after-acknowledge",
    "xa.after-end",
    "xa.after-commit-1",
    "link.after-settlement",
)
#: Of these, those that each run of the tests takes.
ORDINARY: Final = ("link.after-send", "link.after-acknowledge", "xa.after-commit-1")


class Books:
    """A gateway over many starts, the broker beside it, and what was moved."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self._far = ending.enter_context(GatewayProcess(folder / "far", store="memory"))
        far = stomp("far", self._far.port)
        self._links = [
            Link(f"{way}-{kind}", source, target, batch, quality)
            for way, source, target in (
                ("to", HERE, far),
                ("from", far, HERE),
                ("within", HERE, HERE),
            )
            for kind, batch, quality in (
                ("once", BATCH, ONCE),
                ("each", 1, ONCE),
                ("twice", BATCH, DUPLICATES_OK),
            )
        ]
        self._folder = folder / "near"
        self.near = self.gateway()
        ending.callback(lambda: self.near.kill())
        self.near.start()
        #: By link.
        self._sent: Counter[str] = Counter()
        self._arrived: Counter[str] = Counter()

    def gateway(self, point: str | None = None) -> BridgedGateway:
        environment = dict(os.environ) if point is None else {**os.environ, LINK_VARIABLE: point}
        return BridgedGateway(self._folder, self._links, environment=environment)

    @property
    def folder(self) -> Path:
        """Of the bridge."""
        return self.near.directory / "bridges" / BRIDGE

    def fill(self) -> None:
        """Put messages where links that are killed then will find them."""
        for link in self._links:
            self.near.operate("pause", link.name)
            produce(self._port(link.source is HERE), link.source_queue, 1, MESSAGES)
            self._sent[link.name] += MESSAGES
        self.near.kill()
        # As if its operator had paused none of them: they move at once.
        (self.folder / "orders.json").unlink()

    def kill_at(self, point: str) -> None:
        self.near = self.gateway(point)
        self.near.launch()
        assert self.near.wait(PATIENCE) == -signal.SIGKILL, self.near.said

    def settle(self) -> None:
        """Start it again, and compare each link's balance with the books."""
        self.near = self.gateway()
        self.near.start()
        for link in self._links:
            produce(self._port(link.source is HERE), link.source_queue, MESSAGES + 1, MESSAGES + 1)
            self._sent[link.name] += 1
        for link in self._links:
            arrived = drain(self._port(link.target is HERE), link.target_queue, MESSAGES + 1)
            self._arrived[link.name] += len(arrived) + 1
        for link in self._links:
            self._compare(link)

    def balance(self, link: str) -> dict[str, Any]:
        told = self.near.until_link(
            link, lambda told: not told["balance"]["held"], "a balance with nothing under way"
        )
        return {**told["balance"], "difference": told["difference"], "once": told["once_by"]}

    def _compare(self, link: Link) -> None:
        sent, arrived = self._sent[link.name], self._arrived[link.name]
        found = self.balance(link.name)
        case = f"{link.name}: {sent} sent, {arrived} arrived, {found}"
        assert found["difference"] == 0, case
        if link.quality == ONCE:
            assert found["once"] == ("XA" if link.name.startswith("within") else "DUPLICATE_IDS")
            moved = (found["taken"], found["out"], found["in_doubt"], found["possibly_twice"])
            assert moved == (sent, sent, 0, 0), case
            assert arrived == sent, case
        else:
            assert found["out"] <= arrived <= found["out"] + found["possibly_twice"], case

    def _port(self, here: bool) -> int:
        return self.near.port if here else self._far.port


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    with ExitStack() as ending:
        yield Books(tmp_path_factory.mktemp("balances"), ending)


@pytest.mark.parametrize(
    "point",
    [
        point if point in ORDINARY else pytest.param(point, marks=pytest.mark.long)
        for point in POINTS
    ],
)
def test_killed_at(point: str, books: Books) -> None:
    books.fill()
    books.kill_at(f"{point}:{random.Random(point).randrange(1, 60)}")
    books.settle()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("point", POINTS)
def test_killed_again_and_again(point: str, seed: int, books: Books) -> None:
    """Twice, the second time while it finishes what the first one left."""
    books.fill()
    for times in range(2):
        passed = random.Random(f"{point} {seed} {times}").randrange(1, 40)
        books.kill_at(f"{point}:{passed}")
    books.settle()


def test_without_what_was_written_durably(books: Books) -> None:
    """The marks alone are enough, and a torn one is no harm."""
    before = {link: books.balance(link)["out"] for link in books.near.links}
    books.near.kill()
    (books.folder / "balances.json").write_bytes(b"")
    books.near = books.gateway()
    books.near.start()
    assert {link: books.balance(link)["out"] for link in books.near.links} == before
