"""A message that does not fit into the heap of the Java process: its link waits and says what to
set, others go on, and with more heap it arrives.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.client import Client
from tests.faults.links import HERE, BridgedGateway, Link, activemq
from tests.faults.traffic import drain, produce
from tests.java_processes import java_processes
from tests.servers import ActiveMQ, started

pytestmark = pytest.mark.brokers

SMALL: Final = {"imq.jms.jvmOptions": "-Xmx64m"}
#: Enough for the largest message, as the documentation says.
ENOUGH: Final = {"imq.jms.jvmOptions": "-Xmx512m"}
RETRY: Final = {"failure-retry-interval": "1000"}
#: What the link and the log say: the size of the heap, the option and the prefetch.
TOLD: Final = r"heap is at most 64 MiB: give it more by -Xmx in imq\.jms\.jvmOptions, or have the client fetch fewer .* jms\.prefetchPolicy"


def counted(name: str, least: int, told: dict[str, Any]) -> bool:
    """Whether a link's counter has come so far."""
    return bool(told["counters"][name] >= least)


@pytest.mark.parametrize(
    ("name", "body", "headers"),
    [
        # The client cannot hold it.
        ("octets", b"\x00\x07" * 34_000_000, {}),
        # The client can, but not the characters that are made of it: it is not to be taken for one
        # that cannot be read.
        ("text", "\u0416".encode() * 7_000_000, {"amq-msg-type": "text"}),
    ],
)
def test_a_message_beyond_the_heap_is_not_received(
    name: str, body: bytes, headers: dict[str, str], tmp_path: Path
) -> None:
    peer = started(ActiveMQ)
    there = activemq("there", peer.openwire_port)
    large, beside = [
        Link(f"beyond-{name}{which}", there, HERE, attributes=RETRY) for which in ("", "-beside")
    ]
    put(peer.port, large.source_queue, body, headers)
    with BridgedGateway(tmp_path / "small", [large, beside], settings=SMALL) as gateway:
        # Two attempts that overlap fill the heap with the text, and then the process may end and
        # start anew.
        waits(gateway, large, beside, peer.port, restarts=name == "text")
    with BridgedGateway(tmp_path / "enough", [large], settings=ENOUGH) as gateway:
        arrives(gateway.port, large.target_queue, body)
        assert gateway.query(large.name)["counters"]["reconnects"] == 0


def test_a_message_beyond_the_heap_is_not_sent(tmp_path: Path) -> None:
    peer = started(ActiveMQ)
    there = activemq("there", peer.openwire_port)
    large, beside = (
        Link("beyond-to", HERE, there, attributes=RETRY),
        Link("beyond-to-beside", there, HERE, attributes=RETRY),
    )
    body = b"\x00\x07" * 20_000_000
    with BridgedGateway(tmp_path, [large, beside], settings=SMALL) as gateway:
        put(gateway.port, large.source_queue, body, {})
        waits(gateway, large, beside, peer.port)
    with BridgedGateway(tmp_path, [large, beside], settings=ENOUGH):
        arrives(peer.port, large.target_queue, body)


def put(port: int, queue: str, body: bytes, headers: dict[str, str]) -> None:
    with Client(port) as client:
        client.ask("SEND", {"destination": queue, "persistent": "true", **headers}, body)


def waits(
    gateway: BridgedGateway, large: Link, beside: Link, port: int, restarts: bool = False
) -> None:
    """A link waits and says what to set, while the one beside it goes on.

    :param port: of the latter's source.
    :param restarts: the process may end and start anew meanwhile.
    """
    last = 0
    for reconnects in (1, 3):
        least = partial(counted, "reconnects", reconnects)
        told = gateway.until_link(large.name, least, f"{reconnects} attempts")
        assert told["counters"]["sent"] == 0
        produce(port, beside.source_queue, last + 1, last + 10)
        last += 10
        gateway.until_link(beside.name, partial(counted, "sent", last), "it goes on")
    if not restarts:
        # The process is the same, and only the link has lost its connection.
        assert gateway.query(beside.name)["counters"]["reconnects"] == 0
        assert len(java_processes(gateway.pid)) == 1
    gateway.until_link(
        large.name, lambda told: re.search(TOLD, told["last_error"]), "it says what to set"
    )
    numbers = drain(gateway.port, beside.target_queue, last)
    assert (sorted(set(numbers)) if restarts else numbers) == list(range(1, last)), (
        "the last one ends it"
    )
    assert "is dead" not in gateway.log


def arrives(port: int, queue: str, body: bytes) -> None:
    with Client(port) as client:
        client.ask("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "auto"})
        assert client.message().body == body
