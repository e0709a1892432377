"""The target of a link is a full queue of ActiveMQ: one line says so and what to do, the link goes
on once there is room, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.client import Client, encode
from tests.faults.full_activemq import FullActiveMQ, RefusingActiveMQ
from tests.faults.links import HERE, BridgedGateway, Link, activemq, stomp
from tests.faults.traffic import body, drain

#: Twice and more of what fits.
MESSAGES = 300
PADDING = b"x" * 10_000
BATCH = 20


class Filled:
    """An ActiveMQ whose queues are full, and a gateway with links to it by JMS, by XA and by
    STOMP.
    """

    def __init__(self, folder: Path, server: FullActiveMQ, ending: ExitStack) -> None:
        ending.callback(server.kill)
        server.start()
        self.server = server
        jms, far = activemq("jms", server.openwire_port), stomp("stomp", server.port)
        xa = replace(
            activemq("xa", server.openwire_port), attributes={"lookup-name": "XAConnectionFactory"}
        )
        pause = {"failure-retry-interval": "500"}
        self.links = [
            Link("jms", HERE, jms, BATCH, attributes=pause),
            Link("xa", HERE, xa, BATCH, "ONCE_AND_ONLY_ONCE", {**pause, "transacted": "true"}),
            Link("stomp", HERE, far, BATCH, attributes=pause),
        ]
        self.gateway = ending.enter_context(
            BridgedGateway(folder / "gateway", self.links, store="memory")
        )
        self.gateway.until_moving()
        for link in self.links:
            with Client(self.gateway.port) as client:
                given = {"destination": link.source_queue, "persistent": "true"}
                client.write(
                    b"".join(
                        [
                            encode("SEND", given, body(number) + PADDING)
                            for number in range(1, MESSAGES)
                        ]
                    )
                )
                client.ask("SEND", given, body(MESSAGES))

    def until_told(self, link: Link, what: str) -> None:
        """Its last error has the reason and the remedy, and so has one line of the log."""
        told = self.gateway.until_link(link.name, lambda told: what in told["last_error"], what)
        assert "make room there" in told["last_error"], told
        logged = dict.fromkeys(self.gateway.log.splitlines())
        lines = [
            line for line in logged if f"link {link.name}: " in line and "make room there" in line
        ]
        assert lines
        assert f"{link.name}.out" in lines[0] or link.target.ref in lines[0]
        assert len(lines) <= 2, lines

    def account(self, link: Link) -> None:
        """What the queue had no room for comes by itself, and what was refused too often is
        dead.
        """
        numbers = [*drain(self.server.port, link.target_queue, MESSAGES), MESSAGES]
        told = self.gateway.until_link(
            link.name, lambda told: told["counters"]["acknowledged"] >= MESSAGES, "all acknowledged"
        )
        dead = told["counters"]["dead"].get("SEND_FAILURE", 0)
        assert len(set(numbers)) + dead == MESSAGES, (link.name, told)
        assert len(numbers) - len(set(numbers)) <= told["counters"]["possible_duplicates"], (
            link.name,
            told,
        )


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as ending:
        yield ending


def test_sends_to_a_full_queue_fail(tmp_path: Path, ending: ExitStack) -> None:
    filled = Filled(tmp_path, RefusingActiveMQ(tmp_path / "activemq"), ending)
    for link in filled.links:
        filled.until_told(link, "Usage Manager Memory Limit reached")
        filled.account(link)


def test_sends_to_a_full_queue_wait(tmp_path: Path, ending: ExitStack) -> None:
    filled = Filled(tmp_path, FullActiveMQ(tmp_path / "activemq"), ending)
    for link in filled.links:
        filled.until_told(link, "has not taken what is being sent to")
    for link in filled.links:
        filled.account(link)
