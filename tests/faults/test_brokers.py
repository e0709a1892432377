"""ActiveMQ, by its JMS client and by STOMP, and RabbitMQ, by STOMP and by AMQP, as source and as
target: the network to them breaks, and they are killed, while messages move.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.crash.client import Client
from tests.faults.accounting import at_least_once
from tests.faults.links import HERE, BridgedGateway, Link, activemq, amqp, stomp
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.faults.traffic import LenientClient, declare, drain, produce
from tests.servers import ActiveMQ, RabbitMQ, started

pytestmark = pytest.mark.brokers

BATCH: Final = 20
#: Time for a broker to notice that a connection is gone: before it does, what it sent there is
#: overtaken by what it sends to the next one.
RETRY: Final = {"failure-retry-interval": "1000"}

#: In what answers a link that consumes. AMQP: the flow frame by which RabbitMQ confirms.
_ANSWERS: Final = {"amqp": b"\x00\x53\x13"}


class Peers:
    """The brokers of this test run, a proxy to each of their ports, and a gateway with links to and
    from each.
    """

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.activemq, self.rabbitmq = started(ActiveMQ), started(RabbitMQ)
        ports = {
            "jms": self.activemq.openwire_port,
            "stomp": self.activemq.port,
            "rabbitmq": self.rabbitmq.port,
            "amqp": self.rabbitmq.amqp_port,
        }
        self._proxies = {name: ending.enter_context(Proxy(port)) for name, port in ports.items()}
        factories = {"jms": activemq, "amqp": amqp}
        by = {
            name: factories.get(name, stomp)(name, proxy.port)
            for name, proxy in self._proxies.items()
        }
        # What a consumer has acknowledged may come back when its broker is killed, so each test has
        # queues of its own.
        links = [
            Link(
                f"{test}-{way}-{name}",
                *((HERE, factory) if way == "to" else (factory, HERE)),
                BATCH,
                attributes=RETRY,
            )
            for test in ("network", "kill")
            for way in ("to", "from")
            for name, factory in by.items()
        ]
        self.near = ending.enter_context(BridgedGateway(folder / "near", links, store="memory"))

    def proxy(self, link: Link) -> Proxy:
        return self._proxies[link.name.rpartition("-")[2]]

    def _port(self, link: Link) -> int:
        by = link.name.rpartition("-")[2]
        return (self.rabbitmq if by in {"rabbitmq", "amqp"} else self.activemq).port

    def produce(self, link: Link, first: int, last: int) -> None:
        produce(
            self.near.port if link.source is HERE else self._port(link),
            link.source_queue,
            first,
            last,
        )

    def account(self, link: Link, messages: int, faults: int, forgets: bool = False) -> None:
        """Everything has arrived, in order, and no more than a batch twice for each fault.

        :param forgets: that the source was killed and is one that forgets acknowledgements then, so
            that more comes again.
        """
        self.produce(link, messages + 1, messages + 1)
        target = self.near.port if link.target is HERE else self._port(link)
        by_amqp = link.target is not HERE and link.name.endswith("amqp")
        client_class = LenientClient if by_amqp else Client
        numbers = drain(target, link.target_queue, messages + 1, client_class)
        account = at_least_once(numbers, messages, messages if forgets else link.batch, faults)
        told = self.near.until_link(
            link.name, lambda told: not told["in_flight"], "nothing in flight"
        )
        assert forgets or account.duplicates <= told["counters"]["possible_duplicates"], told
        assert told["counters"]["reconnects"] > 0, told


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    with ExitStack() as ending:
        yield Peers(tmp_path_factory.mktemp("brokers"), ending)


@pytest.mark.parametrize("by", ["jms", "stomp", "rabbitmq", "amqp"])
@pytest.mark.parametrize("way", ["to", "from"])
def test_the_network_breaks(way: str, by: str, peers: Peers, messages: int) -> None:
    link = peers.near.links[f"network-{way}-{by}"]
    proxy = peers.proxy(link)
    toward = Toward.SERVER if way == "to" else Toward.CLIENT
    peers.near.until_moving(link.name)
    # In the middle of a message; behind one, so that nothing of what answers it comes; and behind
    # one, for both sides at once.
    triggers = [
        proxy.when(Trigger(toward, rb"number 00020", Fault.DROP)),
        proxy.when(Trigger(toward, rb"number 000400\.", Fault.SILENCE)),
        proxy.when(Trigger(toward, rb"number 000600\.", Fault.DROP)),
    ]
    peers.produce(link, 1, messages)
    for trigger in triggers:
        trigger.wait()
        if trigger.fault is Fault.SILENCE:
            proxy.drop()
    peers.account(link, messages, len(triggers))


def kill(peers: Peers, server: ActiveMQ | RabbitMQ, names: Sequence[str], messages: int) -> None:
    """Have messages moved to and from a broker by these links, and it killed twice meanwhile; and
    account for everything.
    """
    to, back = (
        [peers.near.links[f"kill-{way}-{name}"] for name in names] for way in ("to", "from")
    )
    links = [*to, *back]
    peers.near.until_moving(*(link.name for link in links))
    for link in links:
        peers.near.operate("pause", link.name)
        peers.produce(link, 1, messages)
    if server is peers.rabbitmq:
        for link in to:
            declare(server.port, link.target_queue)
        server.sync_queues()
    # Once while it takes a message of one link, once while it answers another; the others are
    # wherever they are.
    kills = [
        (to[0], Toward.SERVER, rb"number 000300\."),
        (back[-1], Toward.CLIENT, _ANSWERS.get(names[-1], rb"RECEIPT\n")),
    ]

    def trigger(running: Event, link: Link, toward: Toward, pattern: bytes) -> Trigger:
        return peers.proxy(link).when(
            Trigger(toward, pattern, Fault.DROP, then=server.kill, allowed=running)
        )

    running = Event()
    running.set()
    waiting = trigger(running, *kills[0])
    for link in links:
        peers.near.operate("resume", link.name)
    for _, following in itertools.zip_longest(kills, kills[1:]):
        waiting.wait()
        running = Event()
        if following is not None:
            # Before the start, as messages may flow as soon as the broker listens.
            waiting = trigger(running, *following)
        server.start()
        running.set()
    for link in links:
        peers.account(
            link, messages, len(kills), forgets=server is peers.rabbitmq and link.target is HERE
        )


def test_activemq_is_killed(peers: Peers, messages: int) -> None:
    kill(peers, peers.activemq, ["jms", "stomp"], messages)


@pytest.mark.long
@pytest.mark.parametrize("by", ["rabbitmq", "amqp"])
def test_rabbitmq_is_killed(by: str, peers: Peers, messages: int) -> None:
    kill(peers, peers.rabbitmq, [by], messages)
