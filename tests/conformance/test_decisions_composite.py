"""A SEND to several destinations, ``/queue/a,/queue/b``.

A copy in each, all or none, one RECEIPT.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.conformance.client import Client
from tests.conformance.conftest import Connect
from tests.gateway_process import GatewayProcess


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a queue that holds one message, and one that guest may not send to."""
    settings: dict[str, str] = {}
    for name in ("small", "tight"):
        settings |= {
            f"imq.destination.queue.{name}.maxNumMsgs": "1",
            f"imq.destination.queue.{name}.limitBehavior": "REJECT_NEWEST",
        }
    process = GatewayProcess(tmp_path_factory.mktemp("composite"), settings=settings)
    with process:
        pass
    rules = process.directory / "etc" / "accesscontrol.properties"
    rules.write_text(rules.read_text() + "queue.forbidden.produce.deny.user=guest\n")
    with process:
        yield process


def queues(count: int) -> list[str]:
    return [f"/queue/composite.{uuid4().hex}" for _ in range(count)]


def waiting(client: Client, queue: str) -> list[str]:
    """The bodies of what waits in a queue."""
    client.send("SUBSCRIBE", destination=queue, id=queue, browser="true")
    found = []
    while "browser" not in (message := client.message()):
        found.append(message.text)
    client.send("UNSUBSCRIBE", id=queue)
    return found


@pytest.mark.parametrize("comma", [",", " , ", ",\t"])
def test_each_destination_gets_a_copy(connect: Connect, version: str, comma: str) -> None:
    sender, consumer = connect(version), connect(version)
    first, second, third = (*queues(2), f"/topic/composite.{uuid4().hex}")
    for place in (first, second, third):
        consumer.subscribe(place, place)
    for body in ("1", "2", "3", "4"):
        sender.put(comma.join((first, second, third)), body, colour="red")
    messages = consumer.messages(12)
    assert sorted(
        (message["subscription"], message["destination"], message.text) for message in messages
    ) == sorted(
        (place, place, body) for place in (first, second, third) for body in ("1", "2", "3", "4")
    )
    assert {message["colour"] for message in messages} == {"red"}
    assert len({message["message-id"] for message in messages}) == 12


def test_a_destination_that_is_named_twice_gets_one_copy(connect: Connect) -> None:
    client = connect()
    first, second = queues(2)
    client.put(f"{first},{second},{first},{second}", "1")
    assert [waiting(client, queue) for queue in (first, second)] == [["1"], ["1"]]


def test_a_comma_that_no_slash_follows_is_part_of_a_name(connect: Connect) -> None:
    client = connect()
    [queue] = queues(1)
    client.put(f"{queue},b", "1")
    assert waiting(client, f"{queue},b") == ["1"]
    assert waiting(client, queue) == []


def test_the_copies_are_sent_with_their_transaction(connect: Connect, version: str) -> None:
    client, other = connect(version), connect()
    both = queues(2)
    for end, expected in (("ABORT", []), ("COMMIT", ["2"])):
        client.send("BEGIN", transaction="t")
        client.ask("SEND", {"destination": ",".join(both), "transaction": "t"}, "2")
        assert [waiting(other, queue) for queue in both] == [[], []]
        client.ask(end, transaction="t")
        assert [waiting(other, queue) for queue in both] == [expected, expected]


@pytest.mark.parametrize(
    "bad",
    [
        "/queue/small",
        "/queue/forbidden",
        "/queue/mq.own",
        "/topic/a.*",
        "/temp-queue/temporary_destination://queue/gone",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_where_one_is_refused_none_gets_it(
    connect: Connect, limited: GatewayProcess, bad: str, place: int
) -> None:
    client, other = connect(to=limited), connect(to=limited)
    if not waiting(other, "/queue/small"):
        other.put("/queue/small", "fills it")
    both = queues(2)
    every = [*both[:place], bad, *both[place:]]
    # In one packet, so that they are one run.
    client.write(
        b"SEND\ndestination:%s\nreceipt:1\n\nbefore\0SEND\ndestination:%s\nreceipt:2\n\nrefused\0SEND\ndestination:%s\nreceipt:3\n\nafter\0"
        % (",".join(both).encode(), ",".join(every).encode(), both[0].encode())
    )
    assert client.expect("RECEIPT")["receipt-id"] == "1"
    client.error(receipt_id="2")
    assert [waiting(other, queue) for queue in both] == [["before"], ["before"]]
    assert waiting(other, "/queue/small") == ["fills it"]


def test_where_one_is_full_by_the_commit_none_gets_it(
    connect: Connect, limited: GatewayProcess
) -> None:
    client, other = connect(to=limited), connect(to=limited)
    [queue] = queues(1)
    client.send("BEGIN", transaction="t")
    client.ask("SEND", {"destination": f"{queue},/queue/tight", "transaction": "t"}, "1")
    other.put("/queue/tight", "fills it")
    client.send("COMMIT", transaction="t", receipt="c")
    client.error(receipt_id="c")
    assert waiting(other, queue) == []


def test_what_has_its_receipt_survives_in_each(connect: Connect, limited: GatewayProcess) -> None:
    client = connect(to=limited)
    both = queues(2)
    client.put(",".join(both), "1")
    limited.restart(crash=True)
    other = connect(to=limited)
    assert [waiting(other, queue) for queue in both] == [["1"], ["1"]]


def test_temporary_destinations_may_be_among_them(connect: Connect) -> None:
    client = connect()
    [queue] = queues(1)
    client.subscribe("/temp-queue/mine")
    client.send("SEND", {"destination": f"{queue},/temp-queue/mine"}, "1")
    assert client.message().text == "1"
    assert waiting(client, queue) == ["1"]


@pytest.mark.parametrize("header", ["destination", "reply-to"])
def test_several_are_an_error_elsewhere(connect: Connect, version: str, header: str) -> None:
    client = connect(version)
    both = ",".join(queues(2))
    if header == "destination":
        client.send("SUBSCRIBE", destination=both, id="1", receipt="r")
    else:
        client.send("SEND", {"destination": "/queue/a", "reply-to": both, "receipt": "r"})
    error = client.error()
    assert error["receipt-id"] == "r"
    for words in (header, "several destinations", "SUBSCRIBE to each"):
        assert words in error.text


def test_more_than_a_hundred_are_an_error(connect: Connect) -> None:
    client = connect()
    client.send("SEND", destination=",".join(["/queue/a"] * 101), receipt="r")
    assert "100 is the limit" in client.error().text
