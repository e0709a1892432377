"""Temporary destinations: nodes that the broker names late."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from bridge.providers.amqp.mapping import from_bytes, to_bytes
from bridge.providers.amqp.peers import ARTEMIS
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination, MessageRejected, NotSupported
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.bridge.providers.amqp.peer import QUEUE, WELL, Attached, Meet, Peer, a_while, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


class Slow:
    """Holds back the names of nodes until it is told to give them."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.held: list[Attached] = []
        peer.on_attach = self.hold

    def hold(self, attached: Attached) -> bool:
        if attached.dynamic:
            self.held.append(attached)
        return attached.dynamic

    def name(self, index: int = 0) -> str:
        """Attach a node. :returns: its name."""
        name = self.peer.name_of_next_node()
        link = self.held[index].link

        def answer() -> None:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.target.address = name
            link.open()

        self.peer.drive(answer)
        return name


def sent_messages(peer: Peer) -> list[Any]:
    """Keep what is sent to the peer, by address, as it is on the wire."""
    found: list[Any] = []
    original = peer._received

    def received(delivery: Any) -> None:
        link = delivery.link
        if delivery.partial or not delivery.pending:
            original(delivery)
            return
        data = bytes(link.recv(delivery.pending))
        link.advance()
        message = from_bytes(data, ARTEMIS, QUEUE).message
        found.append((link.remote_target.address, message))
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()

    peer._received = received  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: str(kind.name).lower())
@on_reactor
async def test_the_broker_is_asked_for_a_node_that_goes_with_its_link(
    kind: Kind, meet: Meet
) -> None:
    peer, client = meet()
    connection = await client.connect()
    temporary = connection.temporary(kind)
    assert (temporary.kind, temporary.temporary) == (kind, True)
    await until(lambda: peer.links)
    asked = peer.links[0]
    assert (asked.sends, asked.dynamic, asked.address) == (True, True, None)
    assert str(asked.capabilities) == f"temporary-{kind.name.lower()}"
    assert asked.expiry == proton.Terminus.EXPIRE_WITH_LINK
    assert asked.properties["lifetime-policy"].descriptor == 0x2B, "delete-on-close"
    session = connection.session(Mode.CLIENT)
    session.consumer(ConsumerSpec(temporary), client.deliver, client.failures.append)
    assert await client.answered(session.completion) is WELL
    reads = peer.links[1]
    assert (reads.address, str(reads.capabilities)) == (
        "node-1",
        f"temporary-{kind.name.lower()}",
    )
    assert peer.detached == []


@on_reactor
async def test_a_request_waits_for_the_name_of_its_reply_to_and_keeps_its_place(
    meet: Meet,
) -> None:
    peer, client = meet()
    slow, there = Slow(peer), sent_messages(peer)
    connection = await client.connect()
    answers = connection.temporary(Kind.QUEUE)
    session = connection.session(Mode.CLIENT)
    session.send([text("before"), text("question", reply_to=answers), text("behind")])
    session.completion(client.done)
    await until(lambda: there and slow.held)
    await a_while()
    assert [message.body for _, message in there] == [b"before"]
    assert client.told == []
    slow.name()
    await until(lambda: client.told)
    assert client.told == [WELL]
    assert [message.body for _, message in there] == [b"before", b"question", b"behind"]
    reply_to = there[1][1].headers.reply_to
    assert reply_to == Destination(Kind.QUEUE, "node-1", True)


@on_reactor
async def test_its_consumer_and_who_sends_to_it_wait_for_the_name(meet: Meet) -> None:
    peer, client = meet()
    slow, there = Slow(peer), sent_messages(peer)
    creator, other = await client.connect(), await client.connect()
    temporary = creator.temporary(Kind.QUEUE)
    receiving, sending = creator.session(Mode.CLIENT), other.session(Mode.CLIENT)
    consumer = receiving.consumer(ConsumerSpec(temporary), client.deliver, client.failures.append)
    consumer.grant(5)
    consumer.start()
    sending.send([text("answer", temporary)])
    sending.completion(client.done)
    await until(lambda: slow.held)
    await a_while()
    assert (client.told, peer.receiving()) == ([], [])
    slow.name()
    await until(lambda: client.told and peer.flows)
    assert client.told == [WELL]
    assert [(address, message.body) for address, message in there] == [("node-1", b"answer")]
    assert [each.address for each in peer.receiving()] == ["node-1"]
    # What the broker calls by its own name comes by ours.
    link = peer.receiving()[0].link
    named = text("answer", Destination(Kind.QUEUE, "node-1", True))

    def deliver() -> None:
        link.delivery("d1")
        link.stream(to_bytes(named, ARTEMIS, 0))
        link.advance()

    peer.drive(deliver)
    await until(lambda: client.messages)
    assert client.messages[0].headers.destination == temporary


@on_reactor
async def test_nobody_else_receives_from_it_and_it_goes_with_its_connection(meet: Meet) -> None:
    peer, client = meet()
    creator, other = await client.connect(), await client.connect()
    temporary = creator.temporary(Kind.QUEUE)
    session = other.session(Mode.CLIENT)
    spec = ConsumerSpec(temporary)
    with pytest.raises(InvalidDestination):
        session.consumer(spec, client.deliver, client.failures.append)
    await until(lambda: peer.links)
    await creator.close()
    with pytest.raises(MessageRejected) as refused:
        session.send([text("late", temporary)])
    assert "the temporary destination is gone" in str(refused.value)
    # A request that names it still goes.
    session.send([text("question", reply_to=temporary)])
    assert await client.answered(session.completion) is WELL


@on_reactor
async def test_what_waits_for_a_node_that_its_connection_takes_along_is_refused(meet: Meet) -> None:
    peer, client = meet()
    slow = Slow(peer)
    creator, other = await client.connect(), await client.connect()
    temporary = creator.temporary(Kind.QUEUE)
    session = other.session(Mode.CLIENT)
    session.send([text("answer", temporary), text("to another")])
    session.completion(client.done)
    await until(lambda: slow.held)
    await creator.close()
    await until(lambda: client.told)
    [told] = client.told
    assert isinstance(told, MessageRejected)
    assert isinstance(told.cause, InvalidDestination)
    assert [body for body, _ in peer.sent] == ["to another"]


@on_reactor
async def test_a_node_that_the_broker_refuses_is_told_to_who_uses_it(meet: Meet) -> None:
    peer, client = meet()
    peer.on_attach = lambda attached: (
        attached.dynamic and peer.refuse(attached, "amqp:unauthorized-access", "no nodes for you")
    )
    connection = await client.connect()
    temporary = connection.temporary(Kind.QUEUE)
    session = connection.session(Mode.CLIENT)
    spec = ConsumerSpec(temporary)
    session.consumer(spec, client.deliver, client.failures.append)
    session.send([text("answer", temporary)])
    assert isinstance(
        await client.answered(session.completion), (InvalidDestination, MessageRejected)
    )
    assert "no nodes for you" in str(client.failures[0])
    with pytest.raises(InvalidDestination, match="no nodes for you"):
        session.consumer(spec, client.deliver, client.failures.append)
    session.send([text("elsewhere")])
    assert await client.answered(session.completion) is WELL
    assert client.losses == []


@on_reactor
async def test_a_consumer_that_is_closed_before_the_node_has_a_name(meet: Meet) -> None:
    peer, client = meet()
    slow = Slow(peer)
    connection = await client.connect()
    temporary = connection.temporary(Kind.QUEUE)
    session = connection.session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(temporary), client.deliver, client.failures.append)
    consumer.close()
    assert await client.answered(session.completion) is WELL
    await until(lambda: slow.held)
    slow.name()
    await a_while()
    assert peer.receiving() == []
    assert (client.failures, client.losses) == ([], [])


@on_reactor
async def test_a_broker_without_dynamic_nodes_is_not_asked(meet: Meet) -> None:
    _, client = meet("RabbitMQ")
    connection = await client.connect()
    assert not client.provider.capabilities.temporary
    with pytest.raises(NotSupported):
        connection.temporary(Kind.QUEUE)
