"""Sends, completions and transactions against a scripted peer."""

from __future__ import annotations

import pytest
from stompest.protocol import StompFrame

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    ClosedOverRefusal,
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    NotSupported,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.bridge.providers.stomp.peer import QUEUE, WELL, Meet, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


def receipts(frames: list[StompFrame]) -> list[bool]:
    """Which of these asked for a RECEIPT."""
    return ["receipt" in frame.headers for frame in frames]


@pytest.mark.parametrize(
    ("server", "asked"),
    [
        ("RabbitMQ/3.10", [True] * 5),
        ("stomp-gateway/1.0", [False, False, False, False, True]),
        ("who knows", [True] * 5),
    ],
)
@on_reactor
async def test_as_many_receipts_are_asked_for_as_tell_all(
    server: str, asked: list[bool], meet: Meet
) -> None:
    peer, client = meet(server)
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text("1"), text("2")])
    session.send([text("3"), text("4", Topic("t")), text("5", persistent=False)])
    await client.answered(session.completion)
    assert receipts(peer.of("SEND")) == asked
    assert client.told == [WELL]


@pytest.mark.parametrize("count", [1, 3])
@on_reactor
async def test_activemq_stores_what_is_sent_together_in_a_transaction(
    count: int, meet: Meet
) -> None:
    peer, client = meet("ActiveMQ/5.17")
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text(str(number)) for number in range(count)])
    await client.answered(session.completion)
    commands = [frame.command for frame in peer.frames if frame.command != "CONNECT"]
    if count == 1:
        assert commands == ["SEND"]
        assert receipts(peer.of("SEND")) == [True]
        return
    assert commands == ["BEGIN", "SEND", "SEND", "SEND", "COMMIT"]
    assert receipts(peer.frames[1:]) == [False, False, False, False, True]
    assert len({frame.headers["transaction"] for frame in peer.frames[1:]}) == 1


@on_reactor
async def test_activemq_confirms_with_one_receipt_what_it_does_not_store(meet: Meet) -> None:
    peer, client = meet("ActiveMQ/5.17")
    session = (await client.connect()).session(Mode.CLIENT)
    session.send([text("1", persistent=False), text("2", persistent=False)])
    await client.answered(session.completion)
    assert receipts(peer.of("SEND")) == [False, True]


@on_reactor
async def test_receipts_that_come_out_of_order_do_not_let_completions_pass(meet: Meet) -> None:
    peer, client = meet("RabbitMQ/3.10", receipts=False)
    session = (await client.connect()).session(Mode.CLIENT)
    order: list[int] = []
    for number in range(3):
        session.send([text(str(number))])
        session.completion(lambda error, number=number: order.append(number))  # type: ignore[misc]
    sends = await peer.heard("SEND", 3)
    for frame in (sends[2], sends[1]):
        peer.receipt(frame)
    peer.octets(b"\n")
    second = (await client.connect()).session(
        Mode.CLIENT
    )  # a round trip, after which both have been read
    await client.answered(second.completion)
    assert order == []
    peer.sockets.reverse()
    peer.receipt(sends[0])
    await until(lambda: order)
    assert order == [0, 1, 2]


@on_reactor
async def test_a_receipt_that_nobody_asked_for_is_passed_over(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    peer.say("RECEIPT", receipt_id="r1")
    peer.say("RECEIPT")
    await client.answered(session.completion)
    assert (client.told, client.losses) == ([WELL], [])


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("User guest is not authorized to write to: queue://q", AccessDenied),
        ("Usage Manager Store is Full", DestinationFull),
        ("no idea", InvalidDestination),
    ],
)
@on_reactor
async def test_activemq_refuses_a_send_and_the_connection_goes_on(
    message: str, kind: type[MessagingError], meet: Meet
) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on["SEND"] = lambda frame: peer.refuse(frame, message)
    session.send([text("1")])
    session.completion(client.done)
    del peer.on["SEND"]
    await until(lambda: client.told)
    session.send([text("2")])
    await client.answered(session.completion)
    assert client.losses == []


@on_reactor
async def test_a_refused_send_is_told_by_the_completion_behind_it_and_by_no_other(
    meet: Meet,
) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on["SEND"] = lambda frame: (
        peer.refuse(frame, "not authorized") if frame.body == b"2" else peer.receipt(frame)
    )
    for body in "123":
        session.send([text(body)])
        await client.answered(session.completion)
    assert client.told[0] is client.told[2] is WELL
    assert isinstance(client.told[1], AccessDenied)
    assert (client.told[1].username, client.told[1].destination) == ("guest", QUEUE)


@on_reactor
async def test_an_error_without_receipt_id_is_for_the_first_that_waits_and_ends_the_connection(
    meet: Meet,
) -> None:
    peer, client = meet("RabbitMQ/3.10")
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on["SEND"] = lambda frame: peer.say("ERROR", message="access_refused")
    for body in "12":
        session.send([text(body)])
        session.completion(client.done)
    await until(lambda: client.losses)
    assert [type(told) for told in client.told] == [AccessDenied, ClosedOverRefusal]


@on_reactor
async def test_what_stomp_cannot_carry_is_refused_and_nothing_is_sent(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    wrong = [
        Message(Headers(QUEUE, correlation_id="a\0b")),
        Message(Headers(QUEUE, type="\ud800")),
        Message(Headers(Queue("a\0b"))),
        Message(Headers(Topic("a.*"))),
        Message(Headers(QUEUE, body_type=BodyType.TEXT), b"\xff"),
        Message(Headers(QUEUE, properties={"b": b"octets"})),
    ]
    for message in wrong:
        good = text("good")
        with pytest.raises(MessageRejected) as refused:
            session.send([good, message])
        assert refused.value.index == 1
        assert (good.message_id, good.timestamp) == ("", 0)
    await client.answered(session.completion)
    assert peer.of("SEND") == []


@on_reactor
async def test_who_sends_more_than_the_peer_reads_is_told_to_wait(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect()
    session = connection.session(Mode.CLIENT)
    session.send([text("x" * 2_000_000)])
    assert not session.writable()
    resumed: list[bool] = []
    session.on_writable(lambda: resumed.append(session.writable()))
    assert resumed == []
    await until(lambda: resumed)
    assert resumed == [True]
    await peer.heard("SEND")


# --- transactions


@on_reactor
async def test_commit_waits_until_the_broker_has_taken_all_before_it(meet: Meet) -> None:
    peer, client = meet(receipts=False)
    session = (await client.connect()).session(Mode.TRANSACTED)
    session.send([text("1"), text("2")])
    assert peer.of("BEGIN") == []
    session.commit(client.done)
    sends = await peer.heard("SEND", 2)
    assert peer.commands() == ["CONNECT", "BEGIN", "SEND", "SEND"]
    assert len({frame.headers["transaction"] for frame in peer.frames[1:]}) == 1
    peer.receipt(sends[1])
    commit = (await peer.heard("COMMIT"))[0]
    assert client.told == []
    peer.receipt(commit)
    await until(lambda: client.told)
    assert client.told == [WELL]


@on_reactor
async def test_a_refused_part_rolls_the_transaction_back(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    peer.on["SEND"] = lambda frame: peer.refuse(frame, "no")
    session.send([text("1")])
    session.commit(client.done)
    await peer.heard("ABORT")
    await until(lambda: client.told)
    assert peer.of("COMMIT") == []
    assert isinstance(client.told[0], MessagingError)
    assert not isinstance(client.told[0], OutcomeUnknown)


@on_reactor
async def test_a_refused_commit_is_rolled_back_and_a_lost_one_is_unknown(meet: Meet) -> None:
    peer, client = meet()
    connection = await client.connect()
    first, second = connection.session(Mode.TRANSACTED), connection.session(Mode.TRANSACTED)
    peer.on["COMMIT"] = lambda frame: peer.refuse(frame, "no")
    first.send([text("1")])
    await client.answered(first.commit)
    assert not isinstance(client.told[0], OutcomeUnknown)
    assert isinstance(client.told[0], MessagingError)
    peer.on["COMMIT"] = lambda frame: peer.drop()
    second.send([text("1")])
    second.commit(client.done)
    await until(lambda: client.losses)
    assert isinstance(client.told[1], OutcomeUnknown)


@on_reactor
async def test_an_error_that_does_not_say_what_it_answers_leaves_the_outcome_of_a_commit_unknown(
    meet: Meet,
) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    peer.on["COMMIT"] = lambda frame: peer.say("ERROR", message="access denied, perhaps")
    session.send([text("1")])
    session.commit(client.done)
    await until(lambda: client.losses)
    assert isinstance(client.told[0], OutcomeUnknown)


@on_reactor
async def test_an_error_about_the_broker_refuses_nothing(meet: Meet) -> None:
    peer, client = meet("RabbitMQ/3.10")
    session = (await client.connect()).session(Mode.CLIENT)
    peer.on["SEND"] = lambda frame: peer.say("ERROR", message="shutting down")
    session.send([text("1")])
    session.completion(client.done)
    await until(lambda: client.losses)
    assert [type(told) for told in client.told] == [ProviderUnavailable], (
        "the message is none of a dead message queue's"
    )


@on_reactor
async def test_a_transaction_lost_before_commit_is_rolled_back_for_sure(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    peer.on["SEND"] = lambda frame: peer.drop()
    session.send([text("1")])
    session.commit(client.done)
    session.send([text("2")])
    session.commit(client.done)
    await until(lambda: client.losses)
    assert [type(told) for told in client.told] == [ProviderUnavailable] * 2


@on_reactor
async def test_a_rollback_and_an_empty_commit_need_no_frames(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.TRANSACTED)
    session.send([text("1")])
    session.rollback(client.done)
    session.commit(client.done)
    assert client.told == []
    await until(lambda: len(client.told) == 2)
    assert peer.commands() == ["CONNECT"]


@on_reactor
async def test_a_dialect_whose_subscriptions_are_born_in_transactions_has_one_open(
    meet: Meet,
) -> None:
    peer, client = meet("stomp-gateway/1.0")
    connection = await client.connect()
    session = connection.session(Mode.TRANSACTED)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(10)
    consumer.start()
    subscribe = (await peer.heard("SUBSCRIBE"))[0]
    begin = peer.of("BEGIN")[0]
    assert subscribe.headers["transaction"] == begin.headers["transaction"]
    assert subscribe.headers["ack"] == "client"
    for number in (1, 2, 3):
        peer.message(number)
    await until(lambda: sum(len(run[1]) for run in client.runs) == 3)
    with pytest.raises(NotSupported):
        consumer.acknowledge([2])
    consumer.acknowledge_through(2)
    session.send([text("on")])
    await client.answered(session.commit)
    assert client.told == [WELL]
    first, second = await peer.heard("BEGIN", 2)
    assert [frame.headers["id"] for frame in peer.of("ACK")] == ["a2"], "one for all"
    assert (
        peer.of("COMMIT")[0].headers["transaction"]
        == first.headers["transaction"]
        != second.headers["transaction"]
    )
    other = connection.session(Mode.TRANSACTED)
    with pytest.raises(NotSupported):
        other.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    session.close()
    await peer.heard("ABORT")
