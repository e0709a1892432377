"""A backlog of large messages at a JMS provider fills no heap: it arrives, and nobody beside it
waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import Client, encode
from tests.crash.waiting import until
from tests.faults.links import HERE, BridgedGateway, Factory, Link, activemq, stomp
from tests.faults.traffic import drain, produce
from tests.java_processes import java_processes
from tests.servers import ActiveMQ, started

pytestmark = pytest.mark.brokers

SIZE: Final = 1_000_000
#: As many as have filled a heap of this size before, while the client fetched a thousand ahead.
MESSAGES: Final = 400
HEAP: Final = "-Xmx128m"
#: By the defaults, in the long run.
LONG: Final = 2_000


def xa_activemq(ref: str, port: int) -> Factory:
    plain = activemq(ref, port)
    return Factory(ref, {"lookup-name": "XAConnectionFactory"}, plain.properties)


def filled(port: int, queue: str, count: int) -> None:
    """Send and store large messages whose bodies begin with their numbers.

    Each is stored before the next is sent. ActiveMQ before 5.18.7 may otherwise pass one over, and
    keep it until it is restarted, when a queue grows past the memory for its cache (AMQ-9625).
    """
    with Client(port) as client:
        for number in range(count):
            body = b"%06d" % number + bytes(SIZE - 6)
            client.ask("SEND", {"destination": queue, "persistent": "true"}, body)


class RoundTrips:
    """A STOMP client beside it all that sends itself a message, and waits for it, and so on.

    :param port: of the gateway.
    """

    def __init__(self, port: int) -> None:
        self.seconds: list[float] = []
        self._client = Client(port)
        self._client.write(
            encode("SUBSCRIBE", {"destination": "/queue/round", "id": "1", "ack": "auto"})
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go)
        self._thread.start()

    def _go(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._client.write(
                encode("SEND", {"destination": "/queue/round", "persistent": "false"}, b"?")
            )
            self._client.message()
            self.seconds.append(time.monotonic() - began)
            self._over.wait(0.01)

    def stop(self) -> list[float]:
        """Seconds that each took, the shortest first."""
        self._over.set()
        self._thread.join()
        self._client.close()
        return sorted(self.seconds)


@pytest.mark.parametrize("quality", ["DUPLICATES_OK", "ONCE_AND_ONLY_ONCE"])
def test_a_backlog_of_large_messages_arrives(
    quality: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    long = bool(request.config.getoption("--long"))
    count = LONG if long else MESSAGES
    peer = started(ActiveMQ)
    name = f"large-{quality.lower()}"
    factory = (xa_activemq if quality == "ONCE_AND_ONLY_ONCE" else activemq)(
        "there", peer.openwire_port
    )
    large = Link(name, factory, HERE, 100, quality)
    beside = Link(f"{name}-beside", HERE, stomp("stomp", peer.port), 20)
    filled(peer.port, large.source_queue, count)
    settings = {} if long else {"imq.jms.jvmOptions": HEAP}
    with BridgedGateway(tmp_path, [large, beside], settings=settings) as gateway:
        # The first process that runs is the last one.
        until(lambda: java_processes(gateway.pid), "no Java process runs")
        java = java_processes(gateway.pid)
        beating = RoundTrips(gateway.port)
        produce(gateway.port, beside.source_queue, 1, 201)
        assert drain(peer.port, beside.target_queue, 201) == list(range(1, 201))
        numbers: list[int] = []
        with Client(gateway.port) as client:
            client.write(
                encode(
                    "SUBSCRIBE",
                    {
                        "destination": large.target_queue,
                        "id": "1",
                        "ack": "client",
                        "prefetch": "10",
                    },
                )
            )
            while len(numbers) < count:
                frame = client.message()
                assert len(frame.body) == SIZE
                numbers.append(int(frame.body[:6]))
                client.write(encode("ACK", {"id": frame.headers["ack"]}))
            client.ask("DISCONNECT", {})
        trips = beating.stop()
        assert numbers == list(range(count)), (
            f"{[pair for pair in pairwise(numbers) if pair[1] != pair[0] + 1]}\n{gateway.log[-3000:]}"
        )
        assert java_processes(gateway.pid) == java, gateway.log[-3000:]
        told = gateway.until_link(
            large.name, lambda told: not told["in_flight"], "nothing in flight"
        )
        assert told["counters"]["reconnects"] == 0, told
        p99 = trips[len(trips) * 99 // 100]
        print(
            f"{quality}: {count} messages of {SIZE} bytes; round trips beside them: {len(trips)}, p99 {p99 * 1000:.1f} ms, longest {trips[-1] * 1000:.1f} ms"
        )
        record_property("p99_ms", round(p99 * 1000, 1))
