"""Duplicate ids on SEND, through a gateway: what is sent again gets its RECEIPT and is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client, Frame, encode
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process

ID = "_AMQ_DUPL_ID"


@pytest.fixture(scope="module", params=["sqlite", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("instance"), store=request.param) as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return f"/queue/{request.node.name.partition('[')[0]}"


def rest(gateway: GatewayProcess, queue: str) -> list[Frame]:
    """What is in the queue, taken."""
    with Client(gateway.port) as client:
        client.store(queue, b"end")
        found = client.ask("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "client"})
        while not found or found[-1].body != b"end":
            found.append(client.message())
        client.ask("ACK", {"id": found[-1].headers["ack"]})
    return found[:-1]


def bodies(frames: list[Frame]) -> list[bytes]:
    return [frame.body for frame in frames]


def test_a_second_one_gets_its_receipt_and_is_dropped(gateway: GatewayProcess, queue: str) -> None:
    with Client(gateway.port) as client:
        client.store(queue, b"1", **{ID: "a"})
        client.store(queue, b"2", **{ID: "a"})
        client.store(queue, b"3", **{ID: "b"})
    with Client(gateway.port) as client:
        client.store(queue, b"4", persistent="false", **{ID: "b"})
        client.store(queue, b"5")
    found = rest(gateway, queue)
    assert bodies(found) == [b"1", b"3", b"5"]
    assert [frame.headers.get(ID) for frame in found] == ["a", "b", None]


def test_in_one_read_too(gateway: GatewayProcess, queue: str) -> None:
    frames = [
        encode(
            "SEND",
            {"destination": queue, ID: f"id {number // 2}", "receipt": str(number)},
            b"%d" % number,
        )
        for number in range(100)
    ]
    with Client(gateway.port) as client:
        client.write(b"".join(frames))
        assert [client.frame().headers["receipt-id"] for _ in frames] == [
            str(number) for number in range(100)
        ]
    assert bodies(rest(gateway, queue)) == [b"%d" % number for number in range(0, 100, 2)]


def test_in_a_transaction(gateway: GatewayProcess, queue: str) -> None:
    with Client(gateway.port) as client:
        client.store(queue, b"1", **{ID: "a"})
        client.ask("BEGIN", {"transaction": "t"})
        client.store(queue, b"2", transaction="t", **{ID: "a"})
        client.store(queue, b"3", transaction="t", **{ID: "b"})
        client.store(queue, b"4", transaction="t", **{ID: "b"})
        client.store(queue, b"5", transaction="t")
        client.ask("COMMIT", {"transaction": "t"})
        client.ask("BEGIN", {"transaction": "t"})
        client.store(queue, b"6", transaction="t", **{ID: "c"})
        client.ask("ABORT", {"transaction": "t"})
        client.store(queue, b"7", **{ID: "c"})
    assert bodies(rest(gateway, queue)) == [b"1", b"3", b"5", b"7"]


@pytest.mark.parametrize("id", ["", "x" * 1025])
def test_what_is_no_id_is_an_error(gateway: GatewayProcess, queue: str, id: str) -> None:
    with Client(gateway.port) as client:
        client.send(queue, b"1", **{ID: id})
        assert "duplicate id" in client.error().headers["message"]
    assert rest(gateway, queue) == []


def test_each_topic_and_queue_has_its_own(gateway: GatewayProcess, queue: str) -> None:
    topic = queue.replace("/queue/", "/topic/")
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": topic, "id": "1"})
        client.store(queue, b"1", **{ID: "a"})
        found = (
            client.store(topic, b"2", **{ID: "a"})
            + client.store(topic, b"3", **{ID: "a"})
            + client.store(topic, b"4")
        )
        while len(found) < 2:
            found.append(client.message())
    assert bodies(found) == [b"2", b"4"]
    assert bodies(rest(gateway, queue)) == [b"1"]


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    settings = {"imq.duplicateIds.maxCount": "16"}
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        with Client(gateway.port) as client:
            for number in range(100):
                client.store("/queue/q", b"first", **{ID: str(number)})
        gateway.restart()
        with Client(gateway.port) as client:
            for number in range(84, 101):
                client.store("/queue/q", b"again", **{ID: str(number)})
        found = rest(gateway, "/queue/q")
        assert [(frame.body, frame.headers[ID]) for frame in found[99:]] == [
            (b"first", "99"),
            (b"again", "100"),
        ]
