"""The source, the target, or both are killed at each step of the sequence, and come back over what
they had stored.

All are gateways: one runs the links, and one or two, which get killed, are foreign STOMP brokers to
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.faults.accounting import at_least_once, at_most_once
from tests.faults.links import AT_MOST_ONCE, DUPLICATES_OK, HERE, BridgedGateway, Link, stomp
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.faults.traffic import drain, produce
from tests.gateway_process import GatewayProcess

BATCH: Final = 20
#: At which of the frames that a moment is about somebody is killed, counted over all links.
NTH: Final = 30
_WHOLE: Final = rb"[^\0]*\0"


@dataclass(frozen=True)
class Moment:
    """What passes a proxy, which way, and whether the kill comes behind it."""

    toward: Toward
    pattern: bytes
    after: bool


@dataclass(frozen=True)
class Kill:
    """Who dies when.

    :param at_source: whether the moment is one of the source's connection.
    """

    moment: Moment
    at_source: bool
    source_dies: bool = False
    target_dies: bool = False


AT_SOURCE: Final = (
    Moment(Toward.CLIENT, b"MESSAGE\n" + _WHOLE, True),
    Moment(Toward.SERVER, b"ACK\n", False),
    Moment(Toward.SERVER, b"ACK\n" + _WHOLE, True),
    Moment(Toward.CLIENT, b"RECEIPT\n", False),
)
AT_TARGET: Final = (
    Moment(Toward.SERVER, b"SEND\n", False),
    Moment(Toward.SERVER, b"SEND\n" + _WHOLE, True),
    Moment(Toward.CLIENT, b"RECEIPT\n", False),
    Moment(Toward.CLIENT, b"RECEIPT\n" + _WHOLE, True),
)
#: The last of each link's name: its batch and its quality of service.
KINDS: Final = (
    ("each", 1, DUPLICATES_OK),
    ("batch", BATCH, DUPLICATES_OK),
    ("once", BATCH, AT_MOST_ONCE),
)


class Brokers:
    """Two foreign brokers that can be killed, each behind a proxy, and links over them."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.source = ending.enter_context(GatewayProcess(folder / "source"))
        self.target = ending.enter_context(GatewayProcess(folder / "target"))
        self.to_source = ending.enter_context(Proxy(self.source.port))
        self.to_target = ending.enter_context(Proxy(self.target.port))
        source, target = stomp("source", self.to_source.port), stomp("target", self.to_target.port)
        ends = {"from": (source, HERE), "to": (HERE, target), "both": (source, target)}
        links = [
            Link(f"{way}-{kind}", *ends[way], batch, quality)
            for way in ends
            for kind, batch, quality in KINDS
        ]
        self.near = ending.enter_context(BridgedGateway(folder / "near", links, store="memory"))

    def kill(self, way: str, messages: int, kills: Sequence[Kill]) -> None:
        """Have messages moved by the links of this way while brokers are killed, and account for
        everything.

        :param way: ``from`` the source here, from here ``to`` the target, or ``both`` foreign.
        """
        near = self.near
        links = [link for link in near.links.values() if link.name.startswith(way)]
        source = near.port if way == "to" else self.source.port
        target = near.port if way == "from" else self.target.port
        near.until_moving(*(link.name for link in links))
        for link in links:
            near.operate("pause", link.name)
            produce(source, link.source_queue, 1, messages)
        running = Event()
        running.set()
        waiting = self._set(kills[0], running)
        for link in links:
            near.operate("resume", link.name)
        for kill, following in itertools.zip_longest(kills, kills[1:]):
            waiting.wait()
            running = Event()
            if following is not None:
                # Before the start, as messages may flow as soon as the broker listens.
                waiting = self._set(following, running)
            with ThreadPoolExecutor() as starting:
                for started in [starting.submit(victim.start) for victim in self._victims(kill)]:
                    started.result()
            running.set()
        for link in links:
            produce(source, link.source_queue, messages + 1, messages + 1)
        for link in links:
            numbers = drain(target, link.target_queue, messages + 1)
            account = (at_most_once if link.quality == AT_MOST_ONCE else at_least_once)(
                numbers, messages, link.batch, len(kills)
            )
            told = near.until_link(
                link.name, lambda told: not told["in_flight"], "nothing in flight"
            )
            assert (
                account.duplicates
                <= told["counters"]["possible_duplicates"]
                <= len(kills) * link.batch
            ), told
            assert told["counters"]["reconnects"] > 0, told

    def _set(self, kill: Kill, running: Event) -> Trigger:
        """Arm the proxy for a kill.

        :param running: set once the brokers' start has been seen to succeed.
        """

        def strike() -> None:
            for victim in self._victims(kill):
                victim.kill()

        moment = kill.moment
        proxy = self.to_source if kill.at_source else self.to_target
        return proxy.when(
            Trigger(
                moment.toward,
                moment.pattern,
                Fault.DROP,
                nth=NTH,
                after=moment.after,
                then=strike,
                allowed=running,
            )
        )

    def _victims(self, kill: Kill) -> list[GatewayProcess]:
        return [
            *([self.source] if kill.source_dies else []),
            *([self.target] if kill.target_dies else []),
        ]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as ending:
        yield Brokers(tmp_path_factory.mktemp("servers"), ending)


def test_the_source_is_killed_at_each_step(brokers: Brokers, messages: int) -> None:
    brokers.kill(
        "from", messages, [Kill(moment, at_source=True, source_dies=True) for moment in AT_SOURCE]
    )


def test_the_target_is_killed_at_each_step(brokers: Brokers, messages: int) -> None:
    brokers.kill(
        "to", messages, [Kill(moment, at_source=False, target_dies=True) for moment in AT_TARGET]
    )


def test_both_are_killed_at_once(brokers: Brokers, messages: int) -> None:
    moments = [
        (True, AT_SOURCE[0]),
        (False, AT_TARGET[1]),
        (False, AT_TARGET[2]),
        (True, AT_SOURCE[3]),
    ]
    brokers.kill(
        "both",
        messages,
        [
            Kill(moment, at_source, source_dies=True, target_dies=True)
            for at_source, moment in moments
        ],
    )
