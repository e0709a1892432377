"""Message groups through a gateway, whose clients share a queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client, Frame, encode
from tests.gateway_process import GatewayProcess

pytestmark = pytest.mark.process

FIRST = "JMSXGroupFirstForConsumer"


@pytest.fixture(scope="module", params=["sqlite", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("instance"), store=request.param) as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return f"/queue/{request.node.name.partition('[')[0]}"


def subscribe(client: Client, queue: str, **headers: str) -> None:
    asked = {"destination": queue, "id": "1", "ack": "client-individual", **headers}
    assert client.ask("SUBSCRIBE", asked) == []


def take(client: Client, count: int) -> list[Frame]:
    """Receive some, without acknowledging them."""
    return [client.message() for _ in range(count)]


def acknowledge(client: Client, frames: list[Frame]) -> list[Frame]:
    """Acknowledge them. :returns: what came meanwhile."""
    came: list[Frame] = []
    for frame in frames:
        came += client.ask("ACK", {"id": frame.headers["ack"]})
    return came


def bodies(frames: list[Frame]) -> list[str]:
    return [frame.body.decode() for frame in frames]


def test_two_consumers_share_groups_and_one_inherits_what_the_other_leaves(
    gateway: GatewayProcess, queue: str
) -> None:
    with Client(gateway.port) as sender, Client(gateway.port) as stays:
        leaves = Client(gateway.port)
        subscribe(leaves, queue)
        sender.store(queue, b"a0", JMSXGroupID="a")
        had = take(leaves, 1)
        subscribe(stays, queue)
        sender.store(queue, b"b0", JMSXGroupID="b")
        kept = take(stays, 1)
        for number in (1, 2, 3):
            for group in "ab":
                sender.store(queue, b"%s%d" % (group.encode(), number), JMSXGroupID=group)
        had += take(leaves, 3)
        kept += take(stays, 3)
        assert (bodies(had), bodies(kept)) == (
            ["a0", "a1", "a2", "a3"],
            ["b0", "b1", "b2", "b3"],
        )
        assert [frame.headers.get(FIRST) for frame in had] == ["true", None, None, None]
        assert acknowledge(leaves, had[:1]) == []
        leaves.close()
        sender.store(queue, b"a4", JMSXGroupID="a")
        inherited = take(stays, 4)
    assert bodies(inherited) == ["a1", "a2", "a3", "a4"]
    assert [frame.headers.get(FIRST) for frame in inherited] == ["true", None, None, None]
    assert [frame.headers["JMSXGroupID"] for frame in inherited] == ["a"] * 4


def test_a_group_whose_consumer_never_acknowledges_stops_no_other(
    gateway: GatewayProcess, queue: str
) -> None:
    with (
        Client(gateway.port) as sender,
        Client(gateway.port) as stuck,
        Client(gateway.port) as works,
    ):
        subscribe(stuck, queue, **{"prefetch-count": "1"})
        sender.store(queue, b"a0", JMSXGroupID="a")
        (never,) = take(stuck, 1)
        subscribe(works, queue)
        for number in range(1, 200):
            sender.send(queue, b"a%d" % number, JMSXGroupID="a")
        for number in range(200):
            sender.send(queue, b"b%d" % number, JMSXGroupID="b")
        sender.store(queue, b"end", JMSXGroupID="b")
        done = take(works, 201)
        assert bodies(done) == [*(f"b{number}" for number in range(200)), "end"]
        assert acknowledge(works, done) == []
        # Those of the other group have waited for their consumer, in order.
        stuck.write(encode("ACK", {"id": never.headers["ack"]}))
        assert bodies(take(stuck, 1)) == ["a1"]


def test_a_group_that_was_ended_goes_to_who_has_fewer(gateway: GatewayProcess, queue: str) -> None:
    with (
        Client(gateway.port) as sender,
        Client(gateway.port) as one,
        Client(gateway.port) as two,
    ):
        subscribe(one, queue)
        sender.store(queue, b"b0", JMSXGroupID="b")
        sender.store(queue, b"a0", JMSXGroupID="a", JMSXGroupSeq="-1")
        assert bodies(take(one, 2)) == ["b0", "a0"]
        subscribe(two, queue)
        sender.store(queue, b"a1", JMSXGroupID="a")
        sender.store(queue, b"b1", JMSXGroupID="b")
        assert (bodies(take(one, 1)), bodies(take(two, 1))) == (["b1"], ["a1"])


def test_groups_are_found_again_after_sigkill(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, store="sqlite") as gateway:
        _find_groups_again(gateway, "/queue/crash")


def _find_groups_again(gateway: GatewayProcess, queue: str) -> None:
    with Client(gateway.port) as sender:
        # Their headers vary beside the group, as those of nearly every producer do.
        for number in range(30):
            sender.store(
                queue,
                b"%s%d" % (b"abc"[number % 3 :][:1], number // 3),
                trace=f"order-{number}",
                JMSXGroupID="abc"[number % 3],
                JMSXGroupSeq=str(number // 3 + 1 if number < 27 else -1),
                persistent="true",
            )
    gateway.restart(crash=True)
    with (
        Client(gateway.port) as sender,
        Client(gateway.port) as one,
        Client(gateway.port) as two,
    ):
        subscribe(one, queue, **{"prefetch-count": "1"})
        had = take(one, 1)
        subscribe(two, queue)
        others = take(two, 20)
        assert bodies(others) == [f"{group}{number}" for number in range(10) for group in "bc"]
        assert [frame.headers["JMSXGroupSeq"] for frame in others[-3:]] == ["9", "-1", "-1"]
        for _ in range(9):
            one.write(encode("ACK", {"id": had[-1].headers["ack"]}))
            had += take(one, 1)
        assert bodies(had) == [f"a{number}" for number in range(10)]
        # All groups have ended: the next of each is anybody's, and first of its group.
        sender.store(queue, b"a10", JMSXGroupID="a")
        (after,) = take(two, 1)
        assert (after.body, after.headers.get(FIRST)) == (b"a10", "true")
