"""What every client must be able to do, written once: each scenario drives one client and asserts
what came of it.

They keep to what the gateway and ActiveMQ both promise, so that the drivers could be proven against
a server we did not write;
:data:`OURS` holds the scenarios of what only the gateway has. Names of destinations are fresh in
each run, because the server outlives it. No scenario waits to see that nothing comes: what must not
arrive would arrive before something that must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.interop.client import Client, ClientFailed

Scenario = Callable[[Client], None]


def queue_name() -> str:
    return f"/queue/interop.{uuid4().hex}"


def topic_name() -> str:
    return f"/topic/interop.{uuid4().hex}"


def connects(client: Client) -> None:
    """The version asked for is the one that is spoken."""
    assert client.connect("a") == client.version
    client.disconnect("a")
    assert client.connect("a") == client.version, "again, after an orderly end"
    client.disconnect("a")


def sends_and_receives(client: Client) -> None:
    """Bodies and headers come through as they were sent, in order; not only text."""
    queue = queue_name()
    bodies = [b"plain", "grün und größer".encode(), b"with \x00 nul \xff octets", b""]
    client.connect("producer")
    client.connect("consumer")
    client.subscribe("consumer", queue)
    for number, body in enumerate(bodies):
        client.send("producer", queue, body, {"place": f"n{number}", "priority": "4"})
    received = [client.receive("consumer") for _ in bodies]
    assert [message.body for message in received] == bodies
    assert [message.headers["place"] for message in received] == ["n0", "n1", "n2", "n3"]
    assert {message.headers["destination"] for message in received} == {queue}
    assert len({message.headers["message-id"] for message in received}) == len(bodies)
    client.disconnect("consumer")
    client.disconnect("producer")


def acknowledges_cumulatively(client: Client) -> None:
    """``ack:client``: one ACK settles what came before it; what is not settled comes again, in
    order, marked as redelivered.
    """
    queue = queue_name()
    client.connect("a")
    for body in (b"1", b"2", b"3", b"4"):
        client.send("a", queue, body)
    client.subscribe("a", queue, ack="client")
    held = [client.receive("a") for _ in range(4)]
    client.ack("a", held[1])
    client.disconnect("a")

    client.connect("b")
    client.subscribe("b", queue, ack="client")
    again = [client.receive("b") for _ in range(2)]
    assert [message.body for message in again] == [b"3", b"4"]
    assert [message.headers["redelivered"] for message in again] == ["true", "true"]
    assert [message.headers["message-id"] for message in again] == [
        message.headers["message-id"] for message in held[2:]
    ]
    client.ack("b", again[1])
    client.disconnect("b")


def acknowledges_individually(client: Client) -> None:
    """``ack:client-individual``: an ACK settles its own message and no other."""
    queue = queue_name()
    client.connect("a")
    for body in (b"1", b"2", b"3"):
        client.send("a", queue, body)
    client.subscribe("a", queue, ack="client-individual")
    held = [client.receive("a") for _ in range(3)]
    client.ack("a", held[1])
    client.disconnect("a")

    client.connect("b")
    client.subscribe("b", queue)
    assert [client.receive("b").body for _ in range(2)] == [b"1", b"3"]
    client.disconnect("b")


def sends_in_transactions(client: Client) -> None:
    """What was aborted never arrives; what was committed arrives, after the commit."""
    queue = queue_name()
    client.connect("a")
    client.connect("consumer")
    client.subscribe("consumer", queue)
    client.begin("a", "t1")
    client.send("a", queue, b"aborted", transaction="t1")
    client.abort("a", "t1")
    client.begin("a", "t2")
    client.send("a", queue, b"committed", transaction="t2")
    client.send("a", queue, b"outside")
    client.commit("a", "t2")
    client.send("a", queue, b"last")
    assert [client.receive("consumer").body for _ in range(3)] == [
        b"outside",
        b"committed",
        b"last",
    ]
    client.disconnect("consumer")
    client.disconnect("a")


def subscribes_durably(client: Client) -> None:
    """A durable subscription keeps what comes while its subscriber is away, until it is removed."""
    topic, client_id = topic_name(), f"c{uuid4().hex}"
    # The same name as the client identifier, because ActiveMQ confuses the two when a STOMP 1.0
    # client unsubscribes.
    durable = {client.server.durable_header: client_id}
    client.connect("publisher")
    client.connect("a", client_id)
    client.subscribe("a", topic, id="d", headers=durable)
    client.disconnect("a")
    client.send("publisher", topic, b"while away")

    client.connect("a", client_id)
    client.subscribe("a", topic, id="d", headers=durable)
    assert client.receive("a").body == b"while away"
    client.unsubscribe("a", topic, id="d")
    client.unsubscribe("a", topic, id="d", headers=durable)
    client.send("publisher", topic, b"nobody subscribes")
    client.subscribe("a", topic, id="d2", headers=durable)
    client.send("publisher", topic, b"subscribed again")
    assert client.receive("a").body == b"subscribed again"
    client.unsubscribe("a", topic, id="d2")
    client.unsubscribe("a", topic, id="d2", headers=durable)
    client.disconnect("a")
    client.disconnect("publisher")


def selects(client: Client) -> None:
    """A selector takes what it matches, in order, and leaves the rest to others."""
    queue = queue_name()
    client.connect("a")
    client.connect("picky")
    client.subscribe("picky", queue, headers={"selector": "shade = 'dark' AND place LIKE 'n%'"})
    for body, shade in ((b"1", "light"), (b"2", "dark"), (b"3", "light"), (b"4", "dark")):
        client.send("a", queue, body, {"shade": shade, "place": f"n{body.decode()}"})
    assert [client.receive("picky").body for _ in range(2)] == [b"2", b"4"]
    client.subscribe("a", queue)
    assert [client.receive("a").body for _ in range(2)] == [b"1", b"3"]
    client.disconnect("picky")
    client.disconnect("a")


def replies(client: Client) -> None:
    """Request and reply through a temporary queue: the requester's name for it, the responder's
    copy of ``reply-to``.
    """
    queue = queue_name()
    client.connect("requester")
    client.connect("responder")
    client.subscribe("responder", queue)
    client.subscribe("requester", "/temp-queue/answers", id="answers")
    client.send(
        "requester", queue, b"question", {"reply-to": "/temp-queue/answers", "correlation-id": "q1"}
    )
    question = client.receive("responder")
    client.send(
        "responder",
        question.headers["reply-to"],
        b"answer",
        {"correlation-id": question.headers["correlation-id"]},
    )
    answer = client.receive("requester")
    assert answer.body == b"answer"
    assert answer.headers["correlation-id"] == "q1"
    client.disconnect("responder")
    client.disconnect("requester")


def acknowledges_in_transactions(client: Client) -> None:
    """A transacted subscription: ABORT gives back what was acknowledged, with the next BEGIN;
    COMMIT settles it.
    """
    queue = queue_name()
    client.connect("a")
    for body in (b"1", b"2", b"3"):
        client.send("a", queue, body)
    client.begin("a", "t1")
    client.subscribe("a", queue, ack="client", headers={"transaction": "t1"})
    first = [client.receive("a") for _ in range(3)]
    client.ack("a", first[2], "t1")
    client.abort("a", "t1")
    client.begin("a", "t2")
    again = [client.receive("a") for _ in range(3)]
    assert [message.body for message in again] == [b"1", b"2", b"3"]
    assert {message.headers["redelivered"] for message in again} == {"true"}
    client.ack("a", again[1], "t2")
    client.commit("a", "t2")
    client.disconnect("a")

    client.connect("b")
    client.subscribe("b", queue)
    assert client.receive("b").body == b"3"
    client.disconnect("b")


def is_refused(client: Client) -> None:
    """A wrong passcode is refused, and the client knows that it is; the right one is accepted
    afterwards.
    """
    right = client.server
    client.server = replace(right, passcode="not this one")
    with pytest.raises(ClientFailed, match=r"^connect: "):
        client.connect("refused")
    client.server = right
    client.connect("accepted")
    client.disconnect("accepted")


COMMON: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        connects,
        sends_and_receives,
        acknowledges_cumulatively,
        acknowledges_individually,
        sends_in_transactions,
        subscribes_durably,
        selects,
        replies,
    )
}
OURS: Mapping[str, Scenario] = {
    scenario.__name__: scenario for scenario in (acknowledges_in_transactions, is_refused)
}
