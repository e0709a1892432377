"""Artemis' addresses of several queues: ``ADDRESS::NAME``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import PREFIXED, Join
from tests.gateway_process import GatewayProcess

TYPED = {"subscription-type": "ANYCAST"}
SENT = {"destination-type": "ANYCAST", "persistent": "true"}


def worker(join: Join, address: str, queue: str, **headers: str) -> Client:
    """A client that receives from a queue of an address."""
    client = join("artemis")
    client.subscribe(f"{address}::{queue}", **(headers or TYPED))
    return client


def send(client: Client, destination: str, *bodies: str, **headers: str) -> None:
    for body in bodies:
        client.send("SEND", {"destination": destination, **(headers or SENT)}, body)
    client.sync()


def texts(client: Client) -> list[str]:
    """What has come by now."""
    return [each.text for each in client.sync()]


def test_queues_of_an_address_take_turns(join: Join, name: str) -> None:
    workers = [worker(join, name, f"{name}.{queue}") for queue in "ab"]
    sender = join("artemis")
    send(sender, name, *"123456")
    assert [texts(each) for each in workers] == [["1", "3", "5"], ["2", "4", "6"]]
    assert workers[0].sync() == []


@pytest.mark.parametrize("headers", [SENT, {"persistent": "true"}])
def test_a_message_to_one_of_them_comes_to_that_alone(
    join: Join, name: str, headers: dict[str, str]
) -> None:
    workers = [worker(join, name, f"{name}.{queue}") for queue in "ab"]
    sender = join("artemis")
    send(sender, f"{name}::{name}.a", *"123", **headers)
    assert [texts(each) for each in workers] == [["1", "2", "3"], []]


def test_blanks_around_the_names_are_none_of_them(join: Join, name: str) -> None:
    workers = [
        worker(join, f"{name} ", f" {name}.a"),
        worker(join, f"/queue/{name} ", f"{name}.b", **{"subscription-type": "ANYCAST"}),
    ]
    sender = join("artemis")
    send(sender, name, *"1234")
    assert [texts(each) for each in workers] == [["1", "3"], ["2", "4"]]


def test_the_queue_of_the_addresss_name_is_one_of_them(join: Join, name: str) -> None:
    workers = [worker(join, name, queue) for queue in (name, f"{name}.a")]
    sender = join("artemis")
    send(sender, f"{name}::{name}", *"12")
    send(sender, name, *"34")
    assert [texts(each) for each in workers] == [["1", "2", "3"], ["4"]]


def test_message_names_the_address_as_its_sender_did(join: Join, name: str) -> None:
    client = worker(join, name, f"{name}.a")
    sender = join("artemis")
    send(sender, name, "1")
    send(sender, f"{name}::{name}.a", "2")
    came = client.messages(2)
    assert [each["destination"] for each in came] == [name, f"{name}::{name}.a"]
    assert {each["destination-type"] for each in came} == {"ANYCAST"}


def test_send_makes_a_queue_of_the_address(join: Join, name: str) -> None:
    sender = join("artemis")
    send(sender, f"{name}::{name}.a", "1")
    send(sender, name, "2")
    # Without a type it is the queue now, as there is one.
    send(sender, name, "3", persistent="true")
    assert [each.text for each in worker(join, name, f"{name}.a").messages(3)] == list("123")


@pytest.mark.parametrize("parted", [True, False])
def test_a_queue_that_was_sent_to_becomes_one_of_the_address(
    join: Join, name: str, parted: bool
) -> None:
    sender = join("artemis")
    sender.send("SEND", {"destination": f"/queue/{name}.a"}, "1")
    if parted:
        sender.sync()
    send(sender, f"{name}::{name}.a", "2")
    send(sender, name, "3")
    assert [each.text for each in worker(join, name, f"{name}.a").messages(3)] == list("123")


def test_a_name_alone_is_an_address_that_has_queues(join: Join, name: str) -> None:
    workers = [worker(join, name, f"{name}.{queue}") for queue in "ab"]
    send(join("artemis"), name, *"12", persistent="false")
    assert [texts(each) for each in workers] == [["1"], ["2"]]


def test_prefixes_of_a_listener_stand_before_an_address(join: Join, name: str) -> None:
    client, sender = join(PREFIXED), join(PREFIXED)
    client.subscribe(f"jms.queue.{name}::{name}.a")
    send(sender, f"jms.queue.{name}", "1", persistent="true")
    send(sender, f"jms.queue.{name}::{name}.a", "2", persistent="true")
    assert [each.text for each in client.messages(2)] == ["1", "2"]


@pytest.mark.parametrize("profile", ["openmq", "activemq", "rabbitmq"])
def test_clients_of_other_profiles_send_to_the_address(join: Join, name: str, profile: str) -> None:
    workers = [worker(join, name, f"{name}.{queue}") for queue in "ab"]
    join(profile).put(f"/queue/{name}", "1", "2")
    assert [texts(each) for each in workers] == [["1"], ["2"]]


def test_a_queue_with_a_consumer_comes_before_one_without(join: Join, name: str) -> None:
    away = worker(join, name, f"{name}.a")
    away.ask("UNSUBSCRIBE", id="s")
    here = worker(join, name, f"{name}.b")
    send(join("artemis"), name, *"123")
    assert texts(here) == ["1", "2", "3"]


@pytest.mark.parametrize("ends", ["COMMIT", "ABORT"])
def test_in_a_transaction_the_queue_is_chosen_at_send(join: Join, name: str, ends: str) -> None:
    workers = [worker(join, name, f"{name}.{queue}") for queue in "ab"]
    sender, other = join("artemis"), join("artemis")
    sender.send("BEGIN", transaction="t")
    sender.ask("SEND", {"destination": name, **SENT, "transaction": "t"}, "in it")
    send(other, name, "outside")
    sender.ask(ends, transaction="t")
    kept = ["in it"] * (ends == "COMMIT")
    assert [texts(each) for each in workers] == [kept, ["outside"]]


def test_a_dead_message_tells_its_address_and_its_queue(join: Join, name: str) -> None:
    client = worker(join, name, f"{name}.a", **TYPED, ack="client")
    send(join("artemis"), name, "dead")
    client.nack(client.message())
    client.subscribe("DLQ", "dead", selector=f"_AMQ_ORIG_ADDRESS = '{name}'")
    message = client.message()
    assert message["_AMQ_ORIG_ADDRESS"] == name
    assert message["_AMQ_ORIG_QUEUE"] == f"{name}.a"


def test_browsers_see_what_waits_in_one_queue(join: Join, name: str) -> None:
    for queue in "ab":
        worker(join, name, f"{name}.{queue}").close()
    send(join("artemis"), name, *"12")
    browser = worker(join, name, f"{name}.b", **TYPED, browser="true")
    assert browser.message().text == "2"
    assert browser.message()["browser"] == "end"
    assert worker(join, name, f"{name}.b").message().text == "2"


# --- queues of topics


@pytest.mark.parametrize("typed", ["type", "prefix", "nothing"])
def test_send_to_a_queue_of_a_topic_comes_to_that_alone(join: Join, name: str, typed: str) -> None:
    clients = [join("artemis"), join("artemis"), join("artemis")]
    for client, queue in zip(clients, "aab", strict=True):
        client.subscribe(f"{name}::{name}.{queue}", **{"subscription-type": "MULTICAST"})
    whole = join("artemis")
    whole.subscribe(f"/topic/{name}")
    headers = {"destination-type": "MULTICAST"} if typed == "type" else {"persistent": "true"}
    prefix = "/topic/" if typed == "prefix" else ""
    sender = join("artemis")
    send(sender, f"{prefix}{name}::{name}.a", "one", **headers)
    send(sender, name, "all", **{"destination-type": "MULTICAST"})
    got = [texts(each) for each in (*clients, whole)]
    assert sorted(got[0] + got[1]) == ["all", "one"]
    assert got[2:] == [["all"], ["all"]]


def test_send_to_a_queue_that_a_topic_has_not_is_refused(join: Join, name: str) -> None:
    client = join("artemis", "1.1")
    sent = {"destination": f"{name}::q", "destination-type": "MULTICAST", "receipt": "r"}
    client.send("SEND", sent, "x")
    assert "no queue 'q'" in client.expect("ERROR").text


# --- restart


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(tmp_path, settings={"imq.bridge.stomp.profile": "artemis"})
    with gateway:
        yield gateway


def test_queues_of_addresses_survive_kill_9(gateway: GatewayProcess) -> None:
    def client() -> Client:
        made = opened.enter_context(closing(Client(gateway.port)))
        made.connect("1.2")
        return made

    with ExitStack() as opened:
        for queue in "ab":
            for address, kind in (("orders", "ANYCAST"), ("prices", "MULTICAST")):
                receiver = client()
                receiver.subscribe(f"{address}::{address}.{queue}", **{"subscription-type": kind})
                receiver.disconnect()
        sender = client()
        sender.ask("SEND", {"destination": "prices::prices.a", "persistent": "true"}, "one")
        gateway.kill()
        gateway.start()
        sender = client()
        send(sender, "orders", *"1234")
        sender.ask("SEND", {"destination": "prices::prices.b", "persistent": "true"}, "two")
        gateway.kill()
        gateway.start()
        expected = {
            "orders.a": ["1", "3"],
            "orders.b": ["2", "4"],
            "prices.a": ["one"],
            "prices.b": ["two"],
        }
        for queue, bodies in expected.items():
            receiver = client()
            # Without a type they are what they were.
            receiver.subscribe(f"{queue.partition('.')[0]}::{queue}")
            assert [each.text for each in receiver.messages(len(bodies))] == bodies
            assert receiver.sync() == []
