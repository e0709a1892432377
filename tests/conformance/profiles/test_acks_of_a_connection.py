"""ACK and NACK of all that came before on a connection, as in RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from tests.conformance.client import Client, Frame
from tests.conformance.profiles.conftest import Join

ACKS = ("client", "client-individual", "client")


class Scene:
    """A connection that has had a1, b1, c1, a2, b2 and c2, of three queues.

    :param acks: of the subscriptions to the queues a, b and c.
    """

    def __init__(self, join: Join, name: str, acks: tuple[str, ...] = ACKS) -> None:
        self.join, self.name = join, name
        self.client: Client = join("rabbitmq")
        for place, ack in zip("abc", acks, strict=True):
            self.client.subscribe(self.queue(place), id=place, ack=ack)
        self.had: dict[str, Frame] = {}
        sender = join("rabbitmq")
        for body in ("a1", "b1", "c1", "a2", "b2", "c2"):
            sender.put(self.queue(body[0]), body)
            self.had[body] = self.client.message()

    def queue(self, place: str) -> str:
        return f"/queue/{self.name}.{place}"

    def settle(self, body: str, command: str = "ACK", **headers: str) -> None:
        """Settle a delivery, and wait until it is."""
        self.client.ask(command, {"id": self.had[body]["ack"]}, **headers)

    @property
    def left(self) -> list[str]:
        """What is in the queues once the connection has ended."""
        self.client.disconnect()
        found: list[str] = []
        for place in "abc":
            with closing(self.join("rabbitmq")) as client:
                found += client.left(self.queue(place))
        return found


@pytest.fixture
def scene(join: Join, name: str) -> Callable[..., Scene]:
    return lambda *acks: Scene(join, name, acks or ACKS)


MakeScene = Callable[..., Scene]


def test_an_ack_is_of_all_before_whatever_their_mode(scene: MakeScene) -> None:
    made = scene()
    made.settle("a2")
    assert made.left == ["b2", "c2"]


def test_an_individual_one_is_of_one_message(scene: MakeScene) -> None:
    made = scene()
    made.settle("b2")
    assert made.left == ["a1", "a2", "b1", "c1", "c2"]


def test_what_was_acknowledged_before_is_not_again(scene: MakeScene) -> None:
    made = scene()
    made.settle("b1")
    made.settle("c2")
    assert made.left == []


def test_auto_ones_are_not_in_it(scene: MakeScene) -> None:
    made = scene("client", "auto", "client")
    made.settle("c1")
    assert made.left == ["a2", "c2"]


def test_a_nack_is_of_all_before(scene: MakeScene) -> None:
    made = scene()
    made.settle("c1", "NACK", requeue="false")
    assert made.left == ["a2", "b2", "c2"]


def test_what_a_nack_gives_back_comes_again_and_counts_anew(scene: MakeScene) -> None:
    made = scene()
    made.client.nack(made.had["c1"])
    again = {each.text: each for each in made.client.messages(3)}
    assert sorted(again) == ["a1", "b1", "c1"]
    assert {each["redelivered"] for each in again.values()} == {"true"}
    # They come behind a2, b2 and c2 now.
    made.settle("c2")
    assert made.left == ["a1", "b1", "c1"]


def test_one_in_a_transaction_is_of_all_before(scene: MakeScene) -> None:
    made = scene()
    made.client.send("BEGIN", transaction="t")
    made.settle("a2", transaction="t")
    # They are in it already.
    made.settle("c1", transaction="t")
    made.client.ask("COMMIT", transaction="t")
    assert made.left == ["b2", "c2"]


def test_what_an_aborted_transaction_held_can_be_acknowledged(scene: MakeScene) -> None:
    made = scene()
    made.client.send("BEGIN", transaction="t")
    made.settle("c1", transaction="t")
    made.client.ask("ABORT", transaction="t")
    made.settle("a1")
    made.settle("c1")
    assert made.left == ["a2", "b2", "c2"]


def test_an_aborted_nack(scene: MakeScene) -> None:
    made = scene()
    made.client.send("BEGIN", transaction="t")
    made.settle("c2", "NACK", transaction="t", requeue="false")
    made.client.ask("ABORT", transaction="t")
    made.settle("a2")
    assert made.left == ["b2", "c2"]


def test_places_outlast_a_transaction_and_all_that_came_meanwhile(scene: MakeScene) -> None:
    made = scene()
    made.client.send("BEGIN", transaction="t")
    made.settle("b1", transaction="t")
    made.settle("c2")
    sender = made.join("rabbitmq")
    for number in range(100):
        place = "ab"[number % 2]
        sender.put(made.queue(place), str(number))
        last = made.client.message()
        made.client.ack(last)
    made.client.ask("ABORT", transaction="t")
    sender.put(made.queue("a"), "last")
    made.client.ask("ACK", {"id": made.client.message()["ack"]})
    assert made.left == []


def test_a_subscription_that_is_over_is_in_it(scene: MakeScene) -> None:
    made = scene()
    made.client.ask("UNSUBSCRIBE", id="b")
    made.settle("c2")
    assert made.left == []


def test_a_receipt_tells_that_all_is_durable(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.put(f"/queue/{name}.a", "1", persistent="true")
    client.put(f"/queue/{name}.b", "2", persistent="true")
    client.subscribe(f"/queue/{name}.a", id="a", ack="client-individual")
    client.message()
    client.subscribe(f"/queue/{name}.b", id="b", ack="client")
    second = client.message()
    client.send("SEND", {"destination": f"/queue/{name}.c", "receipt": "before"})
    client.ack(second, receipt="r")
    client.send("SEND", {"destination": f"/queue/{name}.c", "receipt": "after"})
    receipts = [client.expect("RECEIPT")["receipt-id"] for _ in range(3)]
    assert receipts == ["before", "r", "after"]
    assert client.left(f"/queue/{name}.a") == []


def test_what_is_settled_makes_room_in_every_window(join: Join, name: str) -> None:
    client = join("rabbitmq")
    bodies = [str(number) for number in range(4)]
    for place in "ab":
        client.put(f"/queue/{name}.{place}", *bodies)
    window = {"ack": "client", "prefetch-count": "2"}
    client.subscribe(f"/queue/{name}.a", id="a", **window)
    client.messages(2)
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}.b", "id": "b"}, **window)
    client.ack(client.messages(2)[-1])
    assert sorted(each.text for each in client.messages(4)) == ["2", "2", "3", "3"]
