"""What an operator does, and sees, while messages move: nothing is lost or sent twice by it, and a
link that cannot go on says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.faults.accounting import at_least_once
from tests.faults.links import HERE, BridgedGateway, Link, stomp
from tests.faults.proxy import Proxy
from tests.faults.traffic import drain, produce
from tests.gateway_process import GatewayProcess

#: What is done to a link, again and again; each pair leaves it running.
OPERATIONS: Final = (("pause", "resume"), ("stop", "start"), ("pause", "start"), ("stop", "start"))
#: Longer than this no operation may take, in seconds, be the other side as silent as it likes.
PROMPTLY: Final = 12.0


class Far:
    """Another gateway behind a proxy for each link."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.gateway = ending.enter_context(GatewayProcess(folder / "far", store="memory"))
        self.proxies: dict[str, Proxy] = {}
        links = []
        for test in ("busy", "delayed", "refused", "silent"):
            for way, batch in (("to", 1), ("to", 20), ("from", 1), ("from", 20)):
                name = f"{test}-{way}-{batch}"
                self.proxies[name] = ending.enter_context(Proxy(self.gateway.port))
                far = stomp(f"far-{name}", self.proxies[name].port, connect_timeout="1")
                links.append(Link(name, *((HERE, far) if way == "to" else (far, HERE)), batch))
        self.near = ending.enter_context(BridgedGateway(folder / "near", links, store="memory"))

    def produce(self, link: Link, first: int, last: int) -> None:
        produce(
            self.near.port if link.source is HERE else self.gateway.port,
            link.source_queue,
            first,
            last,
        )

    def drain(self, link: Link, last: int) -> list[int]:
        return drain(
            self.near.port if link.target is HERE else self.gateway.port, link.target_queue, last
        )


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with ExitStack() as ending:
        yield Far(tmp_path_factory.mktemp("operators"), ending)


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("way", ["to", "from"])
def test_what_is_done_to_a_busy_link_neither_loses_nor_doubles(
    way: str, batch: int, far: Far, messages: int
) -> None:
    near = far.near
    link = near.links[f"busy-{way}-{batch}"]
    near.until_moving(link.name)
    producing = threading.Thread(target=far.produce, args=(link, 1, messages))
    producing.start()
    for operations in OPERATIONS * 3:
        for operation in operations:
            near.operate(operation, link.name)
    producing.join()
    far.produce(link, messages + 1, messages + 1)
    at_least_once(far.drain(link, messages + 1), messages, batch, faults=0)
    told = near.until_link(link.name, lambda told: not told["in_flight"], "nothing in flight")
    assert told["counters"]["possible_duplicates"] == 0, told


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_slow_network_changes_nothing(way: str, far: Far) -> None:
    link = far.near.links[f"delayed-{way}-20"]
    far.near.until_moving(link.name)
    far.proxies[link.name].delay(0.05)
    far.produce(link, 1, 101)
    at_least_once(far.drain(link, 101), 100, link.batch, faults=0)
    assert far.near.query(link.name)["counters"]["reconnects"] == 0


@pytest.mark.parametrize("way", ["to", "from"])
def test_while_connections_are_refused_it_says_so_and_goes_on_trying(way: str, far: Far) -> None:
    near = far.near
    link, proxy = near.links[f"refused-{way}-20"], far.proxies[f"refused-{way}-20"]
    near.until_moving(link.name)
    far.produce(link, 1, 10)
    before = int(time.time() * 1000)
    proxy.refuse()
    proxy.drop()
    told = near.until_link(
        link.name,
        lambda told: told["state"] == "RETRYING" and told["attempt"] >= 3,
        "RETRYING, the third time",
    )
    assert f":{proxy.port}" in told["last_error"], told
    assert told["last_error_ms"] >= before, told
    near.until_link(
        link.name,
        lambda told: told["next_try_ms"] > told["last_error_ms"],
        "the time of the next attempt",
    )
    proxy.admit()
    far.produce(link, 11, 21)
    at_least_once(far.drain(link, 21), 20, link.batch, faults=1)
    told = near.until_link(link.name, lambda told: told["state"] == "STARTED", "STARTED")
    assert told["next_try_ms"] == 0, told


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_link_to_a_server_that_accepts_and_is_silent_can_be_stopped_and_started(
    way: str, far: Far
) -> None:
    near = far.near
    link, proxy = near.links[f"silent-{way}-20"], far.proxies[f"silent-{way}-20"]
    near.until_moving(link.name)
    proxy.swallow()
    proxy.drop()
    near.until_link(
        link.name, lambda told: told["state"] == "RETRYING" and told["attempt"], "RETRYING"
    )
    began = time.monotonic()
    for operation, state in (("pause", "PAUSED"), ("resume", ""), ("stop", "STOPPED")):
        near.operate(operation, link.name)
        assert near.query(link.name)["state"] == state or not state
    assert time.monotonic() - began < PROMPTLY
    # Another link is not held up.
    other = near.links["silent-to-1"]
    far.produce(other, 1, 11)
    at_least_once(far.drain(other, 11), 10, 1, faults=0)
    proxy.swallow(False)
    near.operate("start", link.name)
    far.produce(link, 1, 11)
    at_least_once(far.drain(link, 11), 10, link.batch, faults=1)
