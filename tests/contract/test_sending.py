"""Sending: what is taken, what is refused, and when to wait (``Session.send``, ``writable``)."""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AccessDenied,
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    MessageTooLarge,
    TransactionTooLarge,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode, Session
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, now_ms, refused_send, send, text, texts
from tests.contract.waiting import Told, committed, rolled_back, until

MIB = 1 << 20


@contract()
async def test_what_is_sent_is_delivered_in_order_and_never_inside_the_call(
    queue: Destination, client: Client, session: Session
) -> None:
    inbox = await client.consumer(queue, session=session)
    for start in (0, 10):
        count = len(inbox.messages)
        session.send(texts(queue, range(start, start + 10)))
        assert len(inbox.messages) == count, "delivered inside send"
    for number in range(20, 30):
        session.send([text(queue, str(number))])
    assert await inbox.received(30) == [str(number) for number in range(30)]


@contract()
async def test_sending_nothing_is_nothing(session: Session) -> None:
    await send(session, [])


@contract()
async def test_one_call_may_send_to_many_destinations(seam: Seam, client: Client) -> None:
    first, second, topic = seam.queue(), seam.queue(), seam.topic()
    inboxes = [await client.consumer(destination) for destination in (first, second, topic)]
    session = client.session()
    run = [
        text(destination, f"{turn}") for turn in range(3) for destination in (first, second, topic)
    ]
    await send(session, run)
    for inbox, destination in zip(inboxes, (first, second, topic), strict=True):
        assert await inbox.received(3) == ["0", "1", "2"]
        assert {message.headers.destination for message in inbox.messages} == {destination}


@contract()
async def test_a_sent_message_gets_an_id_and_the_time(
    seam: Seam, queue: Destination, client: Client
) -> None:
    before = now_ms()
    session, sent = client.session(), texts(queue, ["a", "b"])
    session.send(sent)
    ids: list[str] = []
    session.completion(
        lambda error: ids.extend(message.message_id for message in sent if message.timestamp)
    )
    await until(lambda: ids)
    assert ids == [message.message_id for message in sent], "they are set when the completion fires"
    inbox = await client.consumer(queue, count=2)
    for messages in (sent, inbox.messages):
        assert all(message.message_id for message in messages)
        assert len({message.message_id for message in messages}) == 2
        assert all(before - 1000 <= message.timestamp <= now_ms() + 1000 for message in messages)
    if seam.backend.same_ids:
        assert [message.message_id for message in inbox.messages] == [
            message.message_id for message in sent
        ]


@contract()
async def test_a_message_id_and_a_timestamp_that_are_set_stay(
    seam: Seam, queue: Destination, client: Client, session: Session
) -> None:
    message = text(queue, "a")
    message.message_id, message.timestamp = "ID-mine-1", 1_700_000_000_123
    await send(session, [message])
    assert (message.message_id, message.timestamp) == ("ID-mine-1", 1_700_000_000_123)
    if seam.backend.same_ids and seam.backend.keeps_ids:
        inbox = await client.consumer(queue, count=1)
        assert inbox.messages[0].message_id == "ID-mine-1"
        assert inbox.messages[0].timestamp == 1_700_000_000_123


@contract("transacted")
async def test_messages_of_a_transaction_have_an_id_and_the_time_once_committed(
    seam: Seam, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    sent = texts(seam.queue(), ["a", "b"])
    before = now_ms()
    session.send(sent)
    await committed(session)
    assert len({message.message_id for message in sent} - {""}) == 2
    assert all(before - 1000 <= message.timestamp <= now_ms() + 1000 for message in sent)


@contract()
async def test_what_was_received_is_copied_and_sent_on(seam: Seam, client: Client) -> None:
    queue, onward = seam.queue(), seam.queue()
    await client.send(queue, ["a"])
    source, target = await client.consumer(queue), await client.consumer(onward)
    await source.count(1)
    received = source.messages[0]
    before = received.message_id, received.headers.destination
    session = client.session()
    session.send([Message(received.headers.replace(destination=onward), received.body)])
    assert await target.received(1) == ["a"]
    assert target.messages[0].message_id != received.message_id
    assert (received.message_id, received.headers.destination) == before


# --- refusals


@contract(arranged=("denied",))
async def test_a_run_is_taken_whole_or_not_at_all(
    seam: Seam, queue: Destination, session: Session
) -> None:
    denied = seam.backend.denied
    assert denied is not None
    error = await refused_send(
        session, [*texts(queue, range(2)), text(denied, "x"), text(queue, "2")]
    )
    if isinstance(error, MessageRejected):
        assert error.index == 2
        error = error.cause
    assert isinstance(error, AccessDenied)
    await seam.has_left(queue, [])


@contract(arranged=("denied",))
async def test_a_session_whose_send_was_refused_takes_the_next(
    seam: Seam, queue: Destination, session: Session
) -> None:
    denied = seam.backend.denied
    assert denied is not None
    await refused_send(session, [text(denied, "x")])
    await send(session, texts(queue, range(3)))
    await seam.has_left(queue, ["0", "1", "2"])


@contract(arranged=("full",))
async def test_a_full_destination_refuses_the_first_that_is_too_many(
    seam: Seam, session: Session
) -> None:
    assert seam.backend.full is not None
    queue, most = seam.backend.full
    error = await refused_send(session, texts(queue, range(most + 2)))
    assert isinstance(error, MessageRejected)
    assert error.index == most
    assert isinstance(error.cause, DestinationFull)
    await send(session, texts(queue, range(most)))
    error = await refused_send(session, texts(queue, ["more"]))
    assert isinstance(error, MessageRejected)
    assert isinstance(error.cause, DestinationFull)
    await seam.has_left(queue, [str(number) for number in range(most)])


@contract(arranged=("small",))
async def test_a_message_that_is_too_large_is_refused(seam: Seam, session: Session) -> None:
    assert seam.backend.small is not None
    queue, most = seam.backend.small
    error = await refused_send(session, texts(queue, ["x" * (most + 1)]))
    assert isinstance(error, MessageRejected)
    assert isinstance(error.cause, MessageTooLarge)
    await send(session, texts(queue, ["x"]))
    await seam.has_left(queue, ["x"])


@contract("transacted", arranged=("transaction",))
async def test_a_transaction_that_is_too_large_takes_no_more_and_can_be_rolled_back(
    seam: Seam, queue: Destination, client: Client
) -> None:
    most = seam.backend.transaction
    assert most is not None
    session = client.session(Mode.TRANSACTED)
    session.send(texts(queue, range(most)))
    with pytest.raises(MessageRejected) as refused:
        session.send(texts(queue, ["more"]))
    assert isinstance(refused.value.cause, TransactionTooLarge)
    await rolled_back(session)
    session.send(texts(queue, ["after"]))
    await committed(session)
    await seam.has_left(queue, ["after"])


@contract("temporary")
async def test_a_temporary_destination_that_is_gone_takes_nothing(seam: Seam) -> None:
    creator, sender = await seam.connect(), await seam.connect()
    temporary = creator.connection.temporary(Kind.QUEUE)
    await sender.send(temporary, ["1"])
    await creator.close()
    error = await refused_send(sender.session(), texts(temporary, ["2"]))
    assert isinstance(
        error.cause if isinstance(error, MessageRejected) else error, InvalidDestination
    )


# --- when to wait


@contract()
async def test_a_session_with_nothing_to_do_is_writable_and_says_so_in_another_turn(
    seam: Seam, session: Session
) -> None:
    assert session.writable()
    resumed: list[int] = []
    session.on_writable(lambda: resumed.append(1))
    assert resumed == [], "called inside on_writable"
    await until(lambda: resumed)
    await seam.quiet()
    assert resumed == [1]


@contract()
async def test_who_sends_too_much_is_told_to_wait_and_when_to_go_on_and_loses_nothing(
    queue: Destination, client: Client, session: Session
) -> None:
    sent = 0
    body = "x" * MIB
    while session.writable() and sent < 128:
        session.send(texts(queue, [body]))
        sent += 1
    assert not session.writable(), f"{sent} MiB were taken in one turn"
    session.send(texts(queue, [body]))
    resumed: list[bool] = []
    session.on_writable(lambda: resumed.append(session.writable()))
    assert resumed == []
    inbox = await client.consumer(queue, mode=Mode.AUTO, count=sent + 1)
    await until(lambda: resumed)
    assert (resumed, {len(message.body) for message in inbox.messages}) == ([True], {MIB})


@contract(arranged=("flow",))
async def test_a_destination_at_its_limit_holds_its_senders_back_until_there_is_room(
    seam: Seam, client: Client, session: Session
) -> None:
    assert seam.backend.flow is not None
    queue, most = seam.backend.flow
    session.send(texts(queue, range(most + 1)))
    assert not session.writable()
    told, resumed = Told(), Told()
    session.completion(told)
    session.on_writable(lambda: resumed(None))
    inbox = await client.consumer(queue, count=most + 1)
    await seam.quiet()
    assert told.results == resumed.results == []
    inbox.consumer.acknowledge_through(most + 1)
    assert await told.result() is None
    await resumed.result()
    assert session.writable()
