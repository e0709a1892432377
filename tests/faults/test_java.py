"""The gateway's Java process is killed while links move messages by JMS: nothing is lost, nothing
but the links by JMS notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.faults.accounting import at_least_once
from tests.faults.links import HERE, BridgedGateway, Link, activemq, stomp
from tests.faults.traffic import drain, produce
from tests.java_processes import kill_java
from tests.servers import ActiveMQ, started

pytestmark = pytest.mark.brokers

BATCH: Final = 20
#: Time for ActiveMQ to notice that a connection is gone: before it does, what it sent there is
#: overtaken by what it sends to the next one.
RETRY: Final = {"failure-retry-interval": "1000"}
KILLS: Final = 3


@pytest.fixture
def near(tmp_path: Path) -> Iterator[BridgedGateway]:
    peer = started(ActiveMQ)
    jms, by_stomp = activemq("jms", peer.openwire_port), stomp("stomp", peer.port)
    links = [
        Link("java-to", HERE, jms, BATCH, attributes=RETRY),
        Link("java-from", jms, HERE, BATCH, attributes=RETRY),
        Link("java-beside", HERE, by_stomp, BATCH, attributes=RETRY),
    ]
    # One for each test: a Java process that has died several times is started anew only after a
    # pause.
    with BridgedGateway(tmp_path, links, store="memory") as gateway:
        yield gateway


def until_sent(near: BridgedGateway, link: Link, count: int) -> None:
    near.until_link(link.name, lambda told: told["counters"]["sent"] >= count, f"{count} sent")


@pytest.mark.parametrize("way", ["to", "from"])
def test_java_is_killed(way: str, near: BridgedGateway, messages: int) -> None:
    peer = started(ActiveMQ)
    link = near.links[f"java-{way}"]
    near.until_moving()
    source, target = (near.port, peer.port) if way == "to" else (peer.port, near.port)
    before = near.query(link.name)["counters"]
    beside = near.query("java-beside")["counters"]["reconnects"]
    first = 1
    for number in range(KILLS):
        last = messages * (number + 1) // KILLS
        produce(source, link.source_queue, first, last)
        first = last + 1
        until_sent(near, link, before["sent"] + last - messages // KILLS // 2)
        kill_java(near.pid)
    produce(source, link.source_queue, messages + 1, messages + 1)
    numbers = drain(target, link.target_queue, messages + 1)
    account = at_least_once(numbers, messages, BATCH, KILLS)
    told = near.until_link(link.name, lambda told: not told["in_flight"], "nothing in flight")
    assert account.duplicates <= told["counters"]["possible_duplicates"], told
    assert told["counters"]["reconnects"] >= before["reconnects"] + KILLS, told
    assert near.query("java-beside")["counters"]["reconnects"] == beside
    assert "the Java process was killed by SIGKILL" in near.log
