"""Links that receive: attaching, credit, outcomes and redelivery."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    UnknownSubscription,
)
from gateway.messaging.message import Unreadable
from gateway.messaging.provider import Consumer, ConsumerSpec, Mode, Session
from tests.bridge.providers.amqp.peer import (
    QUEUE,
    WELL,
    Attached,
    Client,
    Meet,
    Peer,
    a_while,
    until,
)
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27


async def _reading(peer: Peer, client: Client) -> tuple[Session, Consumer]:
    """A session and its consumer, for which the broker may send five messages."""
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(5)
    consumer.start()
    await until(lambda: (5, False) in peer.flows)
    return session, consumer


@on_reactor
async def test_a_queue_is_named_by_a_capability_and_a_selector_is_a_filter(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    spec = ConsumerSpec(Queue("orders"), selector="colour = 'red'")
    session.consumer(spec, client.deliver, client.failures.append)
    assert await client.answered(session.completion) is WELL
    asked = peer.links[0]
    assert (asked.address, str(asked.capabilities), asked.copies) == ("orders", "queue", False)
    described = asked.filters["jms-selector"]
    assert described.descriptor == "apache.org:selector-filter:string"
    assert described.value == "colour = 'red'"
    assert asked.durability == proton.Terminus.NONDURABLE


@on_reactor
async def test_a_pattern_is_spelled_as_the_broker_wants_it(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    spec = ConsumerSpec(Topic("a.*.>"), no_local=True)
    session.consumer(spec, client.deliver, client.failures.append)
    assert await client.answered(session.completion) is WELL
    asked = peer.links[0]
    assert (asked.address, str(asked.capabilities)) == ("a.*.*.#", "topic")
    assert asked.filters["no-local"].descriptor == "apache.org:no-local-filter:list"


@on_reactor
async def test_a_durable_subscription_is_the_link_of_its_name(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect("me")
    served = peer.sockets[0].connection
    assert served.remote_container == "me"
    assert "sole-connection-for-container" in str(served.remote_desired_capabilities)
    session = connection.session(Mode.CLIENT)
    spec = ConsumerSpec(Topic("news"), durable_name="sub")
    consumer = session.consumer(spec, client.deliver, client.failures.append)
    with pytest.raises(DurableInUse):
        session.consumer(spec, client.deliver, client.failures.append)
    assert await client.answered(session.completion) is WELL
    asked = peer.links[0]
    assert (asked.name, asked.durability, asked.expiry) == (
        "sub",
        proton.Terminus.DELIVERIES,
        proton.Terminus.EXPIRE_NEVER,
    )
    consumer.close()
    assert await client.answered(session.completion) is WELL
    assert peer.detached == [("sub", False)], "detached, not closed"


@on_reactor
async def test_unsubscribing_attaches_without_a_source_and_closes(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect("me")

    def known(attached: Attached) -> bool:
        assert attached.address is None
        attached.link.source.address = "news"
        attached.link.open()
        return True

    peer.on_attach = known
    await connection.unsubscribe("sub")
    assert peer.detached == [("sub", True)]
    peer.on_attach = lambda attached: peer.refuse(attached, "amqp:not-found")
    with pytest.raises(UnknownSubscription):
        await connection.unsubscribe("gone")


@on_reactor
async def test_credit_is_never_more_than_granted_and_taken_back_on_stop(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(5)
    await client.answered(session.completion)
    await a_while()
    assert all(credit == 0 for credit, _ in peer.flows), "it is not started"
    consumer.start()
    await until(lambda: (5, False) in peer.flows)
    peer.deliver("1", "d1")
    peer.deliver("2", "d2")
    await until(lambda: len(client.texts) == 2)
    consumer.grant(2)
    await until(lambda: peer.flows[-1] == (5, False))
    consumer.stop()
    await until(lambda: peer.flows[-1][1])
    await a_while()
    consumer.start()
    await until(lambda: peer.flows[-1] == (5, False))
    assert max(credit for credit, _ in peer.flows) == 5


@on_reactor
async def test_outcomes_are_confirmed_before_a_completion(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.INDIVIDUAL)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(5)
    consumer.start()
    await until(lambda: peer.flows)
    assert peer.links[0].link.remote_rcv_settle_mode == proton.Link.RCV_SECOND
    for number in range(4):
        peer.deliver(str(number), f"d{number}", count=number)
    await until(lambda: len(client.texts) == 4)
    assert [attempts for _, _, run in client.runs for attempts in run or [1]][-3:] == [2, 3, 4]
    held: list[Any] = []

    def hold(delivery: Any) -> bool:
        held.append(delivery)
        return True

    peer.on_outcome = hold
    consumer.acknowledge([1])
    consumer.reject([2], dead=DeadReason.UNDELIVERABLE)
    session.completion(client.done)
    await until(lambda: len(peer.outcomes) == 2)
    await a_while()
    assert client.told == []
    peer.drive(lambda: [each.settle() for each in held])
    await until(lambda: client.told)
    assert client.told == [WELL]
    peer.on_outcome = lambda delivery: False
    consumer.close()
    assert await client.answered(session.completion) is WELL
    assert sorted(outcome[:2] for outcome in peer.outcomes) == [
        ("d0", ACCEPTED),
        ("d1", REJECTED),
        ("d2", MODIFIED),
        ("d3", MODIFIED),
    ]


@on_reactor
async def test_what_came_for_a_stopped_consumer_is_released(meet: Meet) -> None:
    peer, client = meet()
    peer.keeps_credit = True
    _, consumer = await _reading(peer, client)
    consumer.stop()
    await until(lambda: peer.flows[-1][1])
    peer.deliver("1", "d1")
    peer.drive(lambda: peer.links[0].link.drained())
    await until(lambda: peer.outcomes)
    assert peer.outcomes == [("d1", RELEASED, None)]
    assert client.texts == []


@on_reactor
async def test_a_closed_consumer_takes_its_credit_back_before_its_messages(meet: Meet) -> None:
    # A broker would send them here again, as this link may be next.
    peer, client = meet()
    session, consumer = await _reading(peer, client)
    peer.deliver("1", "d1")
    await until(lambda: len(client.texts) == 1)
    consumer.close()
    assert await client.answered(session.completion) is WELL
    assert peer.outcomes == [("d1", MODIFIED, None)]
    assert peer.flows[-1] == (0, False)


@on_reactor
async def test_a_browser_copies_and_is_told_the_end(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.AUTO)
    spec = ConsumerSpec(QUEUE, browse=True)
    consumer = session.consumer(spec, client.deliver, client.failures.append)
    await client.answered(session.completion)
    assert peer.links[0].copies
    assert peer.links[0].link.remote_snd_settle_mode == proton.Link.SND_SETTLED
    peer.keeps_credit = True
    consumer.grant(10)
    consumer.start()
    await until(lambda: (10, True) in peer.flows)
    peer.deliver("1", "d1")
    peer.deliver("2", "d2")
    peer.drive(lambda: peer.links[0].link.drained())
    await until(lambda: client.runs and client.runs[-1][1] == [])
    assert client.texts == ["1", "2"]
    assert peer.outcomes == []


@pytest.mark.parametrize(
    ("condition", "text", "error"),
    [
        ("amqp:not-found", "no queue", InvalidDestination),
        ("amqp:unauthorized-access", "not you", AccessDenied),
        ("amqp:invalid-field", "bad selector", InvalidSelector),
    ],
)
@on_reactor
async def test_a_refused_consumer_fails_and_its_session_goes_on(
    condition: str, text: str, error: type[Exception], meet: Meet
) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on_attach = lambda attached: peer.refuse(attached, condition, text)
    spec = ConsumerSpec(QUEUE, selector="a = 1")
    session.consumer(spec, client.deliver, client.failures.append)
    told = await client.answered(session.completion)
    assert [type(each) for each in client.failures] == [error]
    assert isinstance(told, error)
    peer.on_attach = lambda attached: False
    session.consumer(spec, client.deliver, client.failures.append)
    assert await client.answered(session.completion) is WELL


@on_reactor
async def test_a_consumer_that_is_closed_before_it_is_attached_holds_nothing_back(
    meet: Meet,
) -> None:
    _, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append).close()
    assert await client.answered(session.completion) is WELL


@on_reactor
async def test_a_consumer_whose_queue_is_deleted_fails(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(1)
    consumer.start()
    await until(lambda: peer.flows)
    peer.deliver("1", "d1")
    await until(lambda: client.texts)

    def delete() -> None:
        link = peer.links[0].link
        link.condition = proton.Condition("amqp:resource-deleted", "the queue is deleted")
        link.close()

    peer.drive(delete)
    await until(lambda: client.failures)
    assert "the queue is deleted" in str(client.failures[0])
    consumer.acknowledge_through(1)
    assert await client.answered(session.completion) is not WELL, "the broker gives it to others"
    assert client.losses == []


@on_reactor
async def test_a_message_above_the_limit_is_unreadable(meet: Meet) -> None:
    peer, client = meet(max_message=1000)
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(5)
    consumer.start()
    await until(lambda: peer.flows)
    peer.deliver("x" * 300_000, "d1")
    peer.deliver("small", "d2")
    await until(lambda: len(client.messages) == 2)
    large, small = client.messages
    assert isinstance(large, Unreadable)
    assert "amqp.max-message is 1000" in large.reason
    assert small.body == b"small"


@on_reactor
async def test_what_waits_for_credit_is_bounded_by_the_window_of_its_session(meet: Meet) -> None:
    peer, client = meet(max_buffer=100_000)
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    # The first message exceeds the credit in bytes, so the others wait here.
    consumer.grant(1000, 64 * 1024 * 1000)
    consumer.start()
    await until(lambda: peer.flows)
    for number in range(200):
        peer.deliver("x" * 40_000, f"d{number}")
    consumer.stop()
    await until(lambda: peer.sockets[0].engine.pending() == 0)
    await a_while(0.2)
    served = peer.links[0].link.session
    assert served.outgoing_bytes > 1_000_000, "the rest stays with the broker"
    assert not client.losses
