"""Local transactions with a coordinator, as Artemis and Qpid have it."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import (
    InvalidDestination,
    MessageRejected,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.bridge.providers.amqp.peer import QUEUE, WELL, Meet, a_while, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

ACCEPTED, REJECTED = 0x24, 0x25


@on_reactor
async def test_a_commit_sends_and_settles_within_one_transaction(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(10)
    consumer.start()
    await until(lambda: peer.flows)
    for number in range(3):
        peer.deliver(str(number), f"d{number}")
    await until(lambda: len(client.texts) == 3)
    consumer.acknowledge_through(2)
    consumer.reject([3], dead=DeadReason.UNDELIVERABLE)
    session.send([text("a"), text("b")])
    await a_while()
    assert (peer.sent, peer.outcomes) == ([], []), "the broker has nothing before the commit"
    assert await client.answered(session.commit) is WELL
    assert peer.sent == [("a", b"t1"), ("b", b"t1")]
    assert peer.outcomes[:3] == [
        ("d0", ACCEPTED, b"t1"),
        ("d1", ACCEPTED, b"t1"),
        ("d2", REJECTED, b"t1"),
    ]
    assert peer.discharged == [(b"t1", False)]
    session.send([text("c")])
    assert await client.answered(session.commit) is WELL
    assert (peer.sent[-1], peer.discharged[-1]) == (("c", b"t2"), (b"t2", False))
    assert [each.coordinator for each in peer.links].count(True) == 1


@on_reactor
async def test_an_acknowledgement_joins_a_transaction_of_another_session(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect()
    assert client.provider.capabilities.joined
    transacted, other = connection.session(Mode.TRANSACTED), connection.session(Mode.CLIENT)
    consumer = other.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(1)
    consumer.start()
    await until(lambda: peer.flows)
    peer.deliver("1", "d1")
    await until(lambda: client.texts)
    consumer.acknowledge_through(1, within=transacted)
    assert await client.answered(transacted.commit) is WELL
    assert peer.outcomes[0] == ("d1", ACCEPTED, b"t1")


@on_reactor
async def test_a_refused_message_fails_the_commit_which_is_rolled_back(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)

    def refuse(delivery: Any, body: str) -> bool:
        if body == "bad":
            delivery.local.condition = proton.Condition("amqp:not-allowed", "bad body")
            delivery.update(proton.Delivery.REJECTED)
            delivery.settle()
            return True
        return False

    peer.on_sent = refuse
    session.send([text("good")])
    session.send([text("bad"), text("more")])
    error = await client.answered(session.commit)
    assert isinstance(error, MessageRejected)
    assert error.index == 1
    assert isinstance(error.cause, InvalidDestination)
    assert "bad body" in str(error)
    assert peer.discharged == [(b"t1", True)]
    session.send([text("next")])
    assert await client.answered(session.commit) is WELL, "the session goes on"


@on_reactor
async def test_a_rollback_asks_nothing_and_redelivers(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(10)
    consumer.start()
    await until(lambda: peer.flows)
    peer.deliver("1", "d1")
    peer.deliver("2", "d2")
    await until(lambda: len(client.texts) == 2)
    consumer.acknowledge_through(1)
    session.send([text("never")])
    assert await client.answered(session.rollback) is WELL
    await until(lambda: len(client.texts) == 4)
    assert client.runs[-1] == (3, ["1", "2"], [2, 2])
    assert (peer.sent, peer.outcomes, peer.discharged) == ([], [], [])


@on_reactor
async def test_what_the_coordinator_rolls_back_is_redelivered(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(10)
    consumer.start()
    await until(lambda: peer.flows)
    peer.deliver("1", "d1")
    await until(lambda: client.texts)

    def refuse(delivery: Any, fails: bool) -> bool:
        delivery.local.condition = proton.Condition("amqp:transaction:rollback", "disk full")
        delivery.update(proton.Delivery.REJECTED)
        delivery.settle()
        return True

    peer.on_discharge = refuse
    consumer.acknowledge_through(1)
    error = await client.answered(session.commit)
    assert isinstance(error, ProviderUnavailable)
    assert "disk full" in str(error)
    await until(lambda: len(client.texts) == 2)
    assert client.runs[-1] == (2, ["1"], [2])


@on_reactor
async def test_a_loss_in_the_middle_of_a_discharge_leaves_the_outcome_unknown(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)

    def drop(delivery: Any, fails: bool) -> bool:
        peer.drop()
        return True

    peer.on_discharge = drop
    session.send([text("1")])
    assert isinstance(await client.answered(session.commit), OutcomeUnknown)
    assert len(client.losses) == 1


@on_reactor
async def test_a_loss_before_the_discharge_is_a_rollback(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)

    def drop(delivery: Any, body: str) -> bool:
        peer.drop()
        return True

    peer.on_sent = drop
    session.send([text("1")])
    assert isinstance(await client.answered(session.commit), ProviderUnavailable)


@on_reactor
async def test_a_broker_without_a_coordinator_fails_the_commit(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    peer.on_attach = lambda attached: (
        peer.refuse(attached, "amqp:not-implemented") if attached.coordinator else False
    )
    session.send([text("1")])
    assert "amqp:not-implemented" in str(await client.answered(session.commit))
    assert peer.sent == []
