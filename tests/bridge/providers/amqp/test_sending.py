"""Links that send: credit, outcomes, refusals, order."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.errors import (
    AccessDenied,
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    ProviderUnavailable,
)
from gateway.messaging.provider import Mode
from tests.bridge.providers.amqp.peer import QUEUE, WELL, Meet, a_while, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


@on_reactor
async def test_a_completion_waits_until_each_message_is_accepted(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    held: list[Any] = []

    def hold(delivery: Any, body: str) -> bool:
        held.append(delivery)
        return True

    peer.on_sent = hold
    session.send([text("1"), text("2", persistent=False)])
    session.completion(client.done)
    await until(lambda: len(held) == 2)
    await a_while()
    assert client.told == []

    def accept() -> None:
        for delivery in held:
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()

    peer.drive(accept)
    await until(lambda: client.told)
    assert client.told == [WELL]


@pytest.mark.parametrize(
    ("state", "condition", "cause"),
    [
        (proton.Delivery.REJECTED, "amqp:resource-limit-exceeded", DestinationFull),
        (proton.Delivery.REJECTED, "amqp:unauthorized-access", AccessDenied),
        (proton.Delivery.REJECTED, "", InvalidDestination),
        (proton.Delivery.RELEASED, "", InvalidDestination),
        (proton.Delivery.MODIFIED, "", InvalidDestination),
        (0, "", InvalidDestination),
    ],
)
@on_reactor
async def test_a_refused_message_is_told_with_its_place(
    state: Any, condition: str, cause: type[Exception], meet: Meet
) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text("before")])
    assert await client.answered(session.completion) is WELL

    def refuse(delivery: Any, body: str) -> bool:
        if body != "2":
            return False
        if condition:
            delivery.local.condition = proton.Condition(condition, "no room")
        if state:
            delivery.update(state)
        delivery.settle()
        return True

    peer.on_sent = refuse
    session.send([text("0"), text("1")])
    session.send([text("2"), text("3")])
    error = await client.answered(session.completion)
    assert isinstance(error, MessageRejected)
    assert (error.index, type(error.cause)) == (2, cause)
    session.send([text("4")])
    assert await client.answered(session.completion) is WELL, "it is told once"


@on_reactor
async def test_a_refused_target_refuses_what_waits_for_it_and_no_other(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on_attach = lambda attached: (
        peer.refuse(attached, "amqp:not-found", "no such queue")
        if attached.address == "bad"
        else False
    )
    session.send([text("1"), text("2", Queue("bad")), text("3")])
    error = await client.answered(session.completion)
    assert isinstance(error, MessageRejected)
    assert error.index == 1
    assert "no such queue" in str(error)
    await until(lambda: len(peer.sent) == 2)
    assert [body for body, _ in peer.sent] == ["1", "3"]


@on_reactor
async def test_without_credit_messages_wait_in_order_and_the_sender_is_told(meet: Meet) -> None:
    peer, client = meet(credit=0)
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text("x" * 300_000 + str(number)) for number in range(5)])
    session.completion(client.done)
    assert not session.writable()
    resumed: list[bool] = []
    session.on_writable(lambda: resumed.append(True))
    await until(lambda: peer.links)
    await a_while()
    assert (peer.sent, resumed) == ([], [])
    peer.drive(lambda: peer.links[0].link.flow(2))
    await until(lambda: len(peer.sent) == 2)
    assert resumed == [True]
    peer.drive(lambda: peer.links[0].link.flow(10))
    await until(lambda: client.told)
    assert [body[-1] for body, _ in peer.sent] == ["0", "1", "2", "3", "4"]
    assert client.told == [WELL]


@on_reactor
async def test_targets_that_are_no_longer_sent_to_are_closed(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    for number in range(70):
        session.send([text("1", Queue(f"q{number}"))])
        assert await client.answered(session.completion) is WELL
    assert len(peer.detached) == 6
    session.close()
    await until(lambda: len(peer.detached) == 70)


@on_reactor
async def test_an_answer_that_does_not_come_ends_the_connection(meet: Meet) -> None:
    peer, client = meet(answer_timeout=0.2)
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on_sent = lambda delivery, body: True
    session.send([text("1")])
    error = await client.answered(session.completion)
    assert isinstance(error, ProviderUnavailable)
    assert "an answer did not come within 0.2 s" in str(error)
    assert [str(each) for each in client.losses] == [str(error)]


@on_reactor
async def test_a_session_that_the_broker_ends_refuses_what_was_sent(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)

    def end(delivery: Any, body: str) -> bool:
        served = delivery.link.session
        served.condition = proton.Condition("amqp:internal-error", "a bug of mine")
        served.close()
        return True

    peer.on_sent = end
    session.send([text("1", QUEUE)])
    error = await client.answered(session.completion)
    assert isinstance(error, MessageRejected)
    assert "a bug of mine" in str(error)
    peer.on_sent = lambda delivery, body: False
    session.send([text("2")])
    assert await client.answered(session.completion) is WELL, "in another session"
