"""Transactions: sends and acknowledgements together or not at all (``Session.commit``,
``rollback``, ``within``).
"""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull, TransactionTooLarge, UnknownDelivery
from gateway.messaging.provider import Mode
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, text, texts
from tests.contract.waiting import Told, committed, rolled_back


@contract("transacted")
async def test_sends_are_seen_after_the_commit_only_and_all_of_them(
    seam: Seam, client: Client
) -> None:
    queue, topic = seam.queue(), seam.topic()
    session = client.session(Mode.TRANSACTED)
    inbox, subscriber = await client.consumer(queue), await client.consumer(topic)
    session.send(texts(queue, range(3)))
    session.send(texts(topic, range(3)))
    session.send([text(queue, "3"), text(topic, "3")])
    await seam.quiet()
    assert inbox.messages == subscriber.messages == []
    told = Told()
    session.commit(told)
    assert told.results == [], "told inside commit"
    assert inbox.messages == [], "delivered inside commit"
    assert await told.result() is None
    await inbox.count(4)
    await subscriber.count(4)
    assert inbox.texts == subscriber.texts == ["0", "1", "2", "3"]


@contract("transacted")
async def test_rolled_back_sends_are_forgotten(
    seam: Seam, queue: Destination, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    session.send(texts(queue, ["never"]))
    await rolled_back(session)
    await committed(session)
    session.send(texts(queue, ["after"]))
    await committed(session)
    await committed(session)
    await seam.has_left(queue, ["after"])


@contract("transacted")
async def test_acknowledgements_take_effect_with_the_commit(
    queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue, session=(session := client.session(Mode.TRANSACTED)))
    await client.send(queue, range(4))
    await inbox.count(4)
    assert inbox.consumer.acknowledge_through(2) == 2
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    await committed(session)
    assert inbox.consumer.acknowledge_through(3) == 1, (
        "not acknowledged, so still outstanding after the commit"
    )
    await client.leaves(queue, ["2", "3"])


@contract("transacted")
async def test_deliveries_that_a_commit_left_outstanding_can_join_the_next(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3), mode=Mode.TRANSACTED)
    session = inbox.session
    inbox.consumer.acknowledge_through(1)
    await committed(session)
    await seam.quiet()
    assert len(inbox.messages) == 3, "they are not delivered again"
    assert inbox.consumer.acknowledge_through(3) == 2
    await committed(session)
    await client.leaves(queue, [])


@contract("transacted")
async def test_a_rollback_forgets_sends_and_delivers_again_in_order(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(5), mode=Mode.TRANSACTED)
    session = inbox.session
    out = seam.queue()
    inbox.consumer.acknowledge_through(2)
    session.send(texts(out, ["done"]))
    await committed(session)
    inbox.consumer.acknowledge_through(4)
    session.send(texts(out, ["undone"]))
    told = Told()
    session.rollback(told)
    assert told.results == [], "inside rollback"
    assert len(inbox.messages) == 5, "delivered inside rollback"
    assert await told.result() is None
    await inbox.count(8)
    assert (inbox.texts[5:], inbox.attempts[5:]) == (["2", "3", "4"], [2, 2, 2])
    assert inbox.numbers == list(range(1, 9))
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(4)
    inbox.consumer.acknowledge_through(8)
    session.send(texts(out, ["in the end"]))
    await committed(session)
    await client.leaves(queue, [])
    await seam.has_left(out, ["done", "in the end"])


@contract("transacted")
async def test_a_transaction_moves_messages_from_queue_to_queue(seam: Seam, client: Client) -> None:
    queue, out = seam.queue(), seam.queue()
    await client.send(queue, range(20))
    session = client.session(Mode.TRANSACTED)
    inbox = await client.consumer(queue, session=session, credit=5)
    told: list[Told] = []
    for end in range(5, 25, 5):
        await inbox.count(end)
        session.send([text(out, message.text) for message in inbox.messages[end - 5 : end]])
        inbox.consumer.acknowledge_through(end)
        told.append(Told())
        session.commit(told[-1])
        inbox.consumer.grant(5)
    assert [await one.result() for one in told] == [None] * 4
    await client.leaves(queue, [])
    await seam.has_left(out, [str(number) for number in range(20)])


@contract("transacted")
async def test_an_empty_transaction_can_be_ended_either_way(client: Client) -> None:
    session = client.session(Mode.TRANSACTED)
    await committed(session)
    await rolled_back(session)
    await committed(session)


@contract("transacted")
async def test_transactions_of_two_sessions_do_not_mix(
    seam: Seam, queue: Destination, client: Client
) -> None:
    first, second = client.session(Mode.TRANSACTED), client.session(Mode.TRANSACTED)
    first.send(texts(queue, ["first"]))
    second.send(texts(queue, ["second"]))
    await rolled_back(first)
    await committed(second)
    await seam.has_left(queue, ["second"])


@contract("transacted")
async def test_closing_a_session_rolls_its_transaction_back(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3), mode=Mode.TRANSACTED)
    session = inbox.session
    out = seam.queue()
    inbox.consumer.acknowledge_through(1)
    await committed(session)
    inbox.consumer.acknowledge_through(2)
    session.send(texts(out, ["never"]))
    session.close()
    other = await client.consumer(queue, count=2)
    assert (other.texts, other.attempts) == (["1", "2"], [2, 2])
    await seam.has_left(out, [])


@contract("transacted")
async def test_a_commit_asked_for_before_the_close_is_told(
    seam: Seam, queue: Destination, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    session.send(texts(queue, range(3)))
    told = Told()
    session.commit(told)
    session.close()
    error = await told.result()
    await seam.has_left(queue, (["0", "1", "2"] if error is None else []))


@contract("transacted", "joined", "individual")
async def test_single_acknowledgements_in_a_transaction(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(4), mode=Mode.TRANSACTED)
    session = inbox.session
    inbox.consumer.acknowledge([2])
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    await committed(session)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([1, 2])
    inbox.consumer.acknowledge([1, 4])
    await rolled_back(session)
    await inbox.count(7)
    assert inbox.texts[4:] == ["0", "2", "3"]


@contract("transacted", "joined", "individual")
async def test_a_rejection_in_a_transaction_takes_effect_with_the_commit(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(3), mode=Mode.TRANSACTED)
    session = inbox.session
    inbox.consumer.reject([2], delay_ms=0)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    await seam.quiet()
    assert len(inbox.messages) == 3
    await committed(session)
    await inbox.count(4)
    assert (inbox.texts[3], inbox.attempts[3]) == ("1", 2)


@contract("transacted")
@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_consumer_that_is_closed_before_its_transaction_ends(
    seam: Seam, requeue: bool, end: str
) -> None:
    client, queue, inbox = await seam.holding(range(4), mode=Mode.TRANSACTED)
    session = inbox.session
    inbox.consumer.acknowledge_through(2)
    inbox.consumer.close(requeue)
    if not requeue:
        assert inbox.consumer.acknowledge_through(3) == 1
    await (committed if end == "commit" else rolled_back)(session)
    session.close()
    left = ["0", "1", "2", "3"] if end == "rollback" else ["2", "3"] if requeue else ["3"]
    other = await client.consumer(queue, count=len(left))
    await seam.quiet()
    assert (sorted(other.texts), set(other.attempts), len(inbox.messages)) == (left, {2}, 4)


# --- commits that fail


@contract("transacted", arranged=("acknowledgements",))
async def test_a_commit_that_acknowledges_too_much_is_rolled_back(seam: Seam) -> None:
    most = seam.backend.acknowledgements
    assert most is not None
    client, queue, inbox = await seam.holding(range(most + 1), mode=Mode.TRANSACTED)
    session = inbox.session
    out = seam.queue()
    inbox.consumer.acknowledge_through(most + 1)
    session.send(texts(out, ["never"]))
    told = Told()
    session.commit(told)
    assert isinstance(await told.result(), TransactionTooLarge)
    await inbox.count(2 * (most + 1))
    assert inbox.texts[most + 1 :] == [str(number) for number in range(most + 1)]
    assert inbox.attempts[most + 1 :] == [2] * (most + 1)
    inbox.consumer.acknowledge_through(inbox.numbers[-2])
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(1)
    await committed(session)
    await client.leaves(queue, [str(most)])
    await seam.has_left(out, [])


@contract("transacted", arranged=("full",))
async def test_a_commit_whose_sends_are_refused_is_rolled_back(seam: Seam) -> None:
    assert seam.backend.full is not None
    full, most = seam.backend.full
    client, _, inbox = await seam.holding(["taken"], mode=Mode.TRANSACTED)
    session = inbox.session
    out = seam.queue()
    inbox.consumer.acknowledge_through(1)
    session.send([text(out, "never"), text(full, "too much")])
    await client.send(full, range(most))
    told = Told()
    session.commit(told)
    assert isinstance(await told.result(), DestinationFull)
    await inbox.count(2)
    assert (inbox.texts, inbox.attempts) == (["taken", "taken"], [1, 2])
    await seam.has_left(full, [str(number) for number in range(most)])
    await seam.has_left(out, [])


# --- within another session's transaction


@contract("joined")
async def test_a_joined_acknowledgement_takes_effect_with_the_commit(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(5))
    transacted = client.session(Mode.TRANSACTED)
    out = seam.queue()
    assert inbox.consumer.acknowledge_through(3, within=transacted) == 3
    transacted.send(texts(out, ["done"]))
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    assert inbox.consumer.acknowledge_through(4) == 1, "its own acknowledgements go on"
    await committed(transacted)
    await client.leaves(queue, ["4"])
    await seam.has_left(out, ["done"])


@contract("joined")
async def test_a_rollback_makes_joined_acknowledgements_outstanding_again(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(4))
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(3, within=transacted)
    await rolled_back(transacted)
    await seam.quiet()
    assert len(inbox.messages) == 4, "they are not delivered again"
    assert inbox.consumer.acknowledge_through(2) == 2, "under the numbers they had"
    assert inbox.consumer.acknowledge_through(4, within=transacted) == 2
    await committed(transacted)
    await client.leaves(queue, [])


@contract("joined")
async def test_closing_the_joined_session_makes_them_outstanding_again(seam: Seam) -> None:
    client, _, inbox = await seam.holding(range(2))
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(2, within=transacted)
    transacted.close()
    assert inbox.consumer.acknowledge_through(2) == 2


@contract("joined", "individual")
async def test_a_joined_rejection_takes_effect_with_the_commit(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3), mode=Mode.INDIVIDUAL)
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.reject([1], delay_ms=0, within=transacted)
    inbox.consumer.acknowledge([2], within=transacted)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([3, 1], within=transacted)
    await seam.quiet()
    assert len(inbox.messages) == 3
    await committed(transacted)
    await inbox.count(4)
    assert (inbox.texts[3], inbox.attempts[3]) == ("0", 2)
    inbox.consumer.acknowledge([3, 4])
    await client.leaves(queue, [])


@contract("joined")
async def test_a_refused_joined_acknowledgement_changes_nothing(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(2))
    transacted = client.session(Mode.TRANSACTED)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(3, within=transacted)
    await committed(transacted)
    await client.leaves(queue, ["0", "1"])


@contract("joined")
async def test_what_was_joined_goes_back_when_its_own_connection_ends_first(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(2))
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(2, within=transacted)
    await client.close()
    other = await (await seam.connect()).consumer(queue, count=2)
    assert (other.texts, other.attempts) == (["0", "1"], [2, 2])


@contract("joined")
async def test_what_was_joined_goes_back_to_the_queue_when_its_consumer_is_closed_and_then_rolled_back(
    seam: Seam,
) -> None:
    client, queue, inbox = await seam.holding(range(3))
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(2, within=transacted)
    inbox.consumer.close()
    other = await client.consumer(queue, count=1)
    await seam.quiet()
    assert other.texts == ["2"], "the others are the transaction's"
    await rolled_back(transacted)
    await other.count(3)
    assert (other.texts, other.attempts) == (["2", "0", "1"], [2, 2, 2])


@contract("joined")
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_recover_leaves_what_was_joined_with_the_transaction(seam: Seam, end: str) -> None:
    client, queue, inbox = await seam.holding(range(4))
    session = inbox.session
    transacted = client.session(Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(2, within=transacted)
    session.recover()
    await seam.everything(inbox, 6)
    assert inbox.texts[4:] == ["2", "3"]
    await (committed if end == "commit" else rolled_back)(transacted)
    await seam.quiet()
    assert len(inbox.messages) == 6
    if end == "rollback":
        assert inbox.consumer.acknowledge_through(2) == 2, (
            "outstanding again under the numbers they had"
        )
    assert inbox.consumer.acknowledge_through(6) == 2
    await client.leaves(queue, [])
