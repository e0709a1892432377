"""Scheduled messages as STOMP clients and ``imqcmd`` see them.

The gateway is a process, which is also killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.client import Client
from tests.gateway.admin.test_imqcmd_live import imqcmd
from tests.gateway_process import GatewayProcess

Connect = Callable[[], Client]

pytestmark = pytest.mark.process

DELAY, PERIOD, REPEAT, CRON, TIME = (
    f"AMQ_SCHEDULED_{word}" for word in ("DELAY", "PERIOD", "REPEAT", "CRON", "TIME")
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def connect(gateway: GatewayProcess) -> Iterator[Connect]:
    clients: list[Client] = []

    def connected() -> Client:
        clients.append(Client(gateway.port))
        clients[-1].connect()
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return f"/queue/{request.node.name}"


def wall_ms() -> int:
    return int(time.time() * 1000)


def scheduled(gateway: GatewayProcess, queue: str) -> list[dict[str, Any]]:
    name = queue.removeprefix("/queue/")
    found = imqcmd(gateway, "list", "scheduled", "-t", "q", "-n", name)["scheduled"]
    return list(found)


def test_it_comes_at_its_time_with_the_headers_of_activemq(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    begin = wall_ms()
    client.put(queue, "later", **{DELAY: "700", "colour": "red"})
    client.put(queue, "at", **{TIME: str(begin + 400)})
    client.send("SEND", {"destination": queue}, "now")
    now, at, later = client.messages(3)
    assert wall_ms() >= begin + 700
    assert (now.text, at.text, later.text) == ("now", "at", "later")
    assert later["colour"] == "red"
    assert later["scheduledJobId"] == later["message-id"]
    assert not [name for name in later.headers if name.startswith("AMQ_")]
    assert "scheduledJobId" not in now


def test_a_producer_may_vary_its_delays(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    delays = [900, 100, 700, 300, 500, 200, 800, 400, 600, 1000]
    for delay in delays:
        client.send("SEND", {"destination": queue, DELAY: str(delay)}, str(delay))
    assert [int(each.text) for each in client.messages(10)] == sorted(delays)


def test_it_repeats(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    # By another client: the first may come before its RECEIPT.
    connect().put(queue, "x", **{DELAY: "100", PERIOD: "100", REPEAT: "2"})
    found = client.messages(3)
    assert len({each["message-id"] for each in found}) == 3
    assert len({each["scheduledJobId"] for each in found}) == 1
    client.put(queue, "marker", **{DELAY: "300"})
    assert client.message().text == "marker"


def test_it_is_scheduled_when_its_transaction_commits(connect: Connect, queue: str) -> None:
    client, sender = connect(), connect()
    client.subscribe(queue)
    for end in ("ABORT", "COMMIT"):
        sender.send("BEGIN", transaction="t")
        sender.send("SEND", {"destination": queue, "transaction": "t", DELAY: "100"}, end)
        sender.ask(end, transaction="t")
    assert client.message().text == "COMMIT"


def test_kills_lose_none_and_double_none(
    gateway: GatewayProcess, connect: Connect, queue: str
) -> None:
    """They have their RECEIPTs, and are due before, between or after kills."""
    client = connect()
    count = 600
    for number in range(count):
        headers = {"destination": queue, DELAY: str(number * 10), "receipt": str(number)}
        client.send("SEND", headers, str(number))
    for number in range(count):
        assert client.expect("RECEIPT")["receipt-id"] == str(number)
    client.put(queue, "again", **{PERIOD: "1000", REPEAT: "3"})
    for _ in range(2):
        gateway.restart(crash=True)
    client = connect()
    client.subscribe(queue, ack="client-individual", **{"prefetch-count": "10000"})
    found: list[str] = []
    while len({*found}) < count + 1 or found.count("again") < 4:
        message = client.message()
        # Nothing is acknowledged, so none of these was delivered before.
        assert message.headers.get("redelivered") != "true"
        found.append(message.text)
    assert len(found) == count + 4
    assert sorted(found)[-4:] == ["again"] * 4


def test_an_administrator_lists_and_removes_them(
    gateway: GatewayProcess, connect: Connect, queue: str
) -> None:
    client = connect()
    client.put(queue, "cron", **{CRON: "0 0 1 1 *"})
    client.put(queue, "never", **{DELAY: "86400000"})
    client.put(queue, "soon", **{DELAY: "2000000"})
    soon, never, cron = scheduled(gateway, queue)
    assert (soon["asked"], never["asked"]) == ({DELAY: "2000000"}, {DELAY: "86400000"})
    assert cron["asked"] == {CRON: "0 0 1 1 *"}
    name = queue.removeprefix("/queue/")
    for job in (never, cron):
        removed = imqcmd(gateway, "destroy", "scheduled", "-n", job["job_id"])
        assert removed["destination"] == f"queue:{name}"
    gateway.restart(crash=True)
    assert scheduled(gateway, queue) == [soon]
    found = imqcmd(gateway, "query", "dst", "-t", "q", "-n", name)
    assert (found["messages"], found["scheduled"]) == (1, 1)
    refused = imqcmd(gateway, "destroy", "scheduled", "-n", never["job_id"], code=1)["error"]
    assert "there is no scheduled message" in refused["text"]
