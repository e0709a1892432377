"""Virtual topics through a gateway, for clients and for a link."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client, Frame, Refused, encode
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process

BRIDGE = """\
<jmsbridge name="moves">
<link name="mover" transacted="{transacted}">
  <source connection-factory-ref="here" destination-ref="in"/>
  <target connection-factory-ref="here" destination-ref="out"/>
</link>
<connection-factory ref-name="here"/>
<destination ref-name="in" name="in" type="queue"/>
<destination ref-name="out" name="VirtualTopic.moved" type="topic"/>
</jmsbridge>
"""


@pytest.fixture(scope="module", params=["sqlite", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("instance")
    file = folder / "moves.xml"
    file.write_text(BRIDGE.format(transacted=str(request.param == "sqlite").lower()))
    with GatewayProcess(
        folder / "var",
        store=request.param,
        settings={
            "imq.bridge.activelist": "stomp,moves",
            "imq.bridge.moves.type": "jms",
            "imq.bridge.moves.xmlurl": str(file),
            "imq.destination.queue.Consumer.small.VirtualTopic.limited.maxNumMsgs": "1",
        },
    ) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"VirtualTopic.{request.node.name.partition('[')[0]}"


def subscribe(client: Client, destination: str, id: str = "1") -> None:
    asked = {"destination": destination, "id": id, "ack": "client-individual"}
    assert client.ask("SUBSCRIBE", asked) == []


def bodies(client: Client, count: int) -> list[bytes]:
    return [client.message().body for _ in range(count)]


def test_each_group_of_workers_gets_all_and_shares_it(gateway: GatewayProcess, topic: str) -> None:
    with (
        Client(gateway.port) as sender,
        Client(gateway.port) as first,
        Client(gateway.port) as second,
        Client(gateway.port) as other,
        Client(gateway.port) as subscriber,
    ):
        for worker, name in ((first, "shipping"), (second, "shipping"), (other, "billing")):
            subscribe(worker, f"/queue/Consumer.{name}.{topic}")
        subscribe(subscriber, f"/topic/{topic}")
        for number in range(4):
            sender.store(f"/topic/{topic}", b"%d" % number)
        assert bodies(other, 4) == bodies(subscriber, 4) == [b"0", b"1", b"2", b"3"]
        assert sorted(bodies(first, 2) + bodies(second, 2)) == [b"0", b"1", b"2", b"3"]


def test_what_a_client_sees_of_a_copy(gateway: GatewayProcess, topic: str) -> None:
    with Client(gateway.port) as client:
        subscribe(client, f"/queue/Consumer.a.{topic}")
        subscribe(client, f"/topic/{topic}", "2")
        with Client(gateway.port) as sender:
            sender.store(f"/topic/{topic}", b"m", priority="7", kind="k", **{"x-y": "z"})
        came: dict[str, Frame] = {}
        for _ in range(2):
            frame = client.message()
            came[frame.headers["subscription"]] = frame
    copy, original = came["1"].headers, came["2"].headers
    assert copy["destination"] == f"/queue/Consumer.a.{topic}"
    assert copy["original-destination"] == f"/topic/{topic}"
    assert "original-destination" not in original
    own = {"subscription", "destination", "message-id", "ack"}
    assert {**copy, **dict.fromkeys(own | {"original-destination"})} == {
        **original,
        **dict.fromkeys(own | {"original-destination"}),
    }
    assert copy["message-id"] != original["message-id"]


def test_copies_wait_for_workers_that_are_away_over_a_restart(tmp_path: Path, topic: str) -> None:
    queue = f"/queue/Consumer.a.{topic}"
    settings = {"imq.autocreate.reaptime": "1"}
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        with Client(gateway.port) as client:
            subscribe(client, queue)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        with Client(gateway.port) as client:
            client.store(f"/topic/{topic}", b"m")
        gateway.kill()
    with GatewayProcess(tmp_path, settings=settings) as gateway, Client(gateway.port) as client:
        subscribe(client, queue)
        assert bodies(client, 1) == [b"m"]


def test_a_transaction_is_copied_as_a_whole(gateway: GatewayProcess, topic: str) -> None:
    queue = f"/queue/Consumer.a.{topic}"
    with Client(gateway.port) as sender, Client(gateway.port) as worker:
        subscribe(worker, queue)
        for end in ("ABORT", "COMMIT"):
            sender.write(encode("BEGIN", {"transaction": "t"}))
            for number in range(3):
                asked = {"destination": f"/topic/{topic}", "transaction": "t"}
                sender.write(encode("SEND", asked, f"{end} {number}".encode()))
            assert sender.ask(end, {"transaction": "t"}) == []
        assert bodies(worker, 3) == [b"COMMIT 0", b"COMMIT 1", b"COMMIT 2"]


def test_a_full_queue_of_one_is_what_the_sender_hears(gateway: GatewayProcess) -> None:
    topic = "/topic/VirtualTopic.limited"
    with Client(gateway.port) as worker:
        subscribe(worker, "/queue/Consumer.large.VirtualTopic.limited")
        with Client(gateway.port) as sender:
            sender.store(topic, b"1")
            with pytest.raises(Refused, match=r"Consumer\.small\.VirtualTopic\.limited"):
                sender.store(topic, b"2")
        assert bodies(worker, 1) == [b"1"]
        with Client(gateway.port) as small:
            subscribe(small, "/queue/Consumer.small.VirtualTopic.limited")
            frame = small.message()
            assert small.ask("ACK", {"id": frame.headers["ack"]}) == []
        with Client(gateway.port) as sender:
            sender.store(topic, b"3")
        assert bodies(worker, 1) == [b"3"]


def test_what_a_link_brings_is_copied(gateway: GatewayProcess) -> None:
    with Client(gateway.port) as sender, Client(gateway.port) as worker:
        subscribe(worker, "/queue/Consumer.a.VirtualTopic.moved")
        for number in range(3):
            sender.store("/queue/in", b"%d" % number)
        assert bodies(worker, 3) == [b"0", b"1", b"2"]


def test_a_repeated_duplicate_id_is_copied_once(gateway: GatewayProcess, topic: str) -> None:
    with Client(gateway.port) as client, Client(gateway.port) as sender:
        subscribe(client, f"/queue/Consumer.a.{topic}")
        for body, id in ((b"1", "a"), (b"again", "a"), (b"2", "b")):
            sender.store(f"/topic/{topic}", body, _AMQ_DUPL_ID=id)
        assert bodies(client, 2) == [b"1", b"2"]
