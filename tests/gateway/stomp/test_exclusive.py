"""Exclusive consumers through a gateway, with clients on sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.client import Client, Frame, encode
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("instance"), store="sqlite") as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).translate(str.maketrans("[:?=]", "-----"))
    return f"/queue/{name}"


def subscribe(client: Client, queue: str, **headers: str) -> None:
    asked = {
        "destination": queue,
        "id": "1",
        "ack": "client-individual",
        "exclusive-consumer": "true",
        **headers,
    }
    assert client.ask("SUBSCRIBE", asked) == []


def take(client: Client, count: int) -> list[Frame]:
    """Receive some, without acknowledging them."""
    return [client.message() for _ in range(count)]


def bodies(frames: list[Frame]) -> list[str]:
    return [frame.body.decode() for frame in frames]


def quiet(client: Client) -> bool:
    """Whether nothing came until two more frames were answered."""
    return (
        client.ask("BEGIN", {"transaction": "t"}) + client.ask("ABORT", {"transaction": "t"}) == []
    )


@pytest.mark.parametrize(
    "spelling",
    ["exclusive-consumer", "activemq.exclusive", "x-single-active-consumer", "?"],
)
def test_the_next_takes_over_with_what_was_not_acknowledged(
    gateway: GatewayProcess, queue: str, spelling: str
) -> None:
    if spelling == "?":
        headers = {"destination": f"{queue}?consumer.exclusive=true"}
    else:
        headers = {"destination": queue, spelling: "true"}
    asked = {"id": "1", "ack": "client-individual", **headers}
    with Client(gateway.port) as sender, Client(gateway.port) as second:
        third = Client(gateway.port)
        first = Client(gateway.port)
        for client in (first, second, third):
            assert client.ask("SUBSCRIBE", asked) == []
        for number in range(6):
            sender.store(queue, b"%d" % number)
        had = take(first, 6)
        assert bodies(had) == ["0", "1", "2", "3", "4", "5"]
        assert quiet(second)
        assert quiet(third)
        for frame in had[:2]:
            assert first.ask("ACK", {"id": frame.headers["ack"]}) == []
        first.close()
        sender.store(queue, b"6")
        got = take(second, 5)
        assert bodies(got) == ["2", "3", "4", "5", "6"]
        assert [frame.headers["redelivered"] for frame in got] == ["true"] * 4 + ["false"]
        assert quiet(third)
        third.close()


def test_who_is_not_exclusive_waits_and_gets_the_queue_back(
    gateway: GatewayProcess, queue: str
) -> None:
    with Client(gateway.port) as sender, Client(gateway.port) as plain:
        subscribe(plain, queue, **{"exclusive-consumer": "false"})
        sender.store(queue, b"before")
        assert bodies(take(plain, 1)) == ["before"]
        with Client(gateway.port) as only:
            subscribe(only, queue)
            sender.store(queue, b"during", JMSXGroupID="a")
            (got,) = take(only, 1)
            assert got.body == b"during"
            assert quiet(plain)
        again = take(plain, 1)
        sender.store(queue, b"after")
        again += take(plain, 1)
        assert bodies(again) == ["during", "after"]


def test_nothing_overtakes_what_may_be_acknowledged_after_unsubscribe(
    gateway: GatewayProcess, queue: str
) -> None:
    with (
        Client(gateway.port) as sender,
        Client(gateway.port) as first,
        Client(gateway.port) as second,
    ):
        subscribe(first, queue, **{"prefetch-count": "2"})
        subscribe(second, queue)
        for number in range(4):
            sender.store(queue, b"%d" % number)
        had = take(first, 2)
        assert first.ask("UNSUBSCRIBE", {"id": "1"}) == []
        assert quiet(second)
        first.write(encode("ACK", {"id": had[0].headers["ack"]}))
        assert quiet(second)
        first.write(encode("ACK", {"id": had[1].headers["ack"]}))
        assert bodies(take(second, 2)) == ["2", "3"]


def test_what_a_transaction_gives_back_comes_first(gateway: GatewayProcess, queue: str) -> None:
    with Client(gateway.port) as sender, Client(gateway.port) as second:
        first = Client(gateway.port)
        assert first.ask("BEGIN", {"transaction": "t"}) == []
        subscribe(first, queue, transaction="t")
        subscribe(second, queue)
        for number in range(3):
            sender.store(queue, b"%d" % number)
        had = take(first, 3)
        assert first.ask("ACK", {"id": had[1].headers["ack"], "transaction": "t"}) == []
        assert quiet(second)
        first.close()
        assert bodies(take(second, 3)) == ["0", "1", "2"]


def test_the_next_one_with_a_selector_takes_only_what_it_wants(
    gateway: GatewayProcess, queue: str
) -> None:
    with Client(gateway.port) as sender, Client(gateway.port) as second:
        first = Client(gateway.port)
        subscribe(first, queue)
        subscribe(second, queue, selector="colour = 'red'")
        for colour in ("red", "blue", "red"):
            sender.store(queue, colour.encode(), colour=colour)
        assert bodies(take(first, 3)) == ["red", "blue", "red"]
        assert quiet(second)
        first.close()
        assert bodies(take(second, 2)) == ["red", "red"]
        with Client(gateway.port) as third:
            subscribe(third, queue)
            assert quiet(third)
            assert second.ask("UNSUBSCRIBE", {"id": "1"}) == []
            second.close()
            assert bodies(take(third, 3)) == ["red", "blue", "red"]
