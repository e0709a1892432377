"""Settling: cumulative, one by one, rejections, and what comes back (``Consumer``,
``Session.recover``).
"""

from __future__ import annotations

import pytest

from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import NotSupported, UnknownDelivery
from gateway.messaging.provider import Mode, Session
from gateway.messaging.redelivery import RedeliveryChanges
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, now_ms
from tests.contract.waiting import Inbox, committed, completed, until

#: A consumer's policy of one more try at once.
ONE_MORE = RedeliveryChanges(maximum_redeliveries=1, initial_redelivery_delay=0)
#: One of many tries, the first at once and all others, too.
AT_ONCE = RedeliveryChanges(
    maximum_redeliveries=10,
    initial_redelivery_delay=0,
    redelivery_delay=0,
    use_exponential_back_off=False,
)


async def until_dead(seam: Seam, bodies: set[str]) -> None:
    """Wait until messages with these bodies are in the dead message queue, where the backend has
    one.
    """
    if seam.backend.dead is not None:
        client = await seam.connect()
        inbox = await client.consumer(seam.backend.dead, mode=Mode.AUTO)
        await until(
            lambda: bodies <= set(inbox.texts), lambda: f"{bodies} among the dead {inbox.texts}"
        )


# --- cumulative


@contract()
async def test_acknowledging_through_settles_what_came_before_and_counts_it(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(6))
    assert inbox.consumer.acknowledge_through(3) == 3
    assert inbox.consumer.acknowledge_through(4) == 1
    await client.leaves(queue, ["4", "5"])


@contract()
async def test_acknowledging_through_what_is_not_outstanding_changes_nothing(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(4))
    inbox.consumer.acknowledge_through(2)
    for number in (1, 2, 5, 0, -1, 1000):
        with pytest.raises(UnknownDelivery) as refused:
            inbox.consumer.acknowledge_through(number)
        assert refused.value.number == number
    assert inbox.consumer.acknowledge_through(4) == 2, "nothing changed"
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(4)


@contract()
async def test_acknowledging_settles_nothing_of_another_consumer(
    seam: Seam, client: Client
) -> None:
    queue, other = seam.queue(), seam.queue()
    first, second = await client.consumer(queue), await client.consumer(other)
    await client.send(queue, range(3))
    await client.send(other, range(3))
    await first.count(3)
    await second.count(3)
    assert first.consumer.acknowledge_through(3) == 3
    await client.leaves(queue, [])
    await seam.has_left(other, ["0", "1", "2"])


# --- one by one


@contract("individual")
async def test_single_acknowledgements_settle_what_they_name(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(6), mode=Mode.INDIVIDUAL)
    session = inbox.session
    inbox.consumer.acknowledge([4])
    inbox.consumer.acknowledge([6, 2])
    inbox.consumer.acknowledge([])
    await completed(session)
    await client.leaves(queue, ["0", "2", "4"])


@contract("individual")
async def test_single_acknowledgements_are_all_or_none(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(5), mode=Mode.INDIVIDUAL)
    inbox.consumer.acknowledge([2])
    for numbers, first in (([1, 2], 2), ([3, 9, 8], 9), ([1, 1], 1), ([0], 0)):
        with pytest.raises(UnknownDelivery) as refused:
            inbox.consumer.acknowledge(numbers)
        assert refused.value.number == first
    inbox.consumer.acknowledge([1, 3, 4, 5])
    await client.leaves(queue, [])


# --- rejections


@contract("individual")
async def test_a_rejected_message_comes_again_after_the_delay_and_is_counted(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(["poison"], mode=Mode.INDIVIDUAL)
    inbox.consumer.reject([1], delay_ms=0)
    assert len(inbox.messages) == 1, "delivered inside reject"
    await inbox.count(2)
    before = now_ms()
    inbox.consumer.reject([2], delay_ms=200)
    await inbox.count(3)
    assert now_ms() - before >= 190
    assert (inbox.attempts, inbox.numbers) == (seam.counted(1, 2, 3), [1, 2, 3])
    assert len({message.message_id for message in inbox.messages}) == 1, "stable over redelivery"
    inbox.consumer.acknowledge([3])
    await client.leaves(queue, [])


@contract("individual")
async def test_what_is_rejected_with_a_delay_does_not_hold_up_the_others(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(3), mode=Mode.INDIVIDUAL, credit=1)
    # The others have this long to come, on a busy machine too.
    inbox.consumer.reject([1], delay_ms=1500)
    inbox.consumer.grant(10)
    await inbox.count(4)
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2", "0"], seam.counted(1, 1, 1, 2))


@contract("individual")
async def test_a_rejected_delivery_is_not_outstanding_any_more(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(2), mode=Mode.INDIVIDUAL)
    inbox.consumer.reject([1], delay_ms=0)
    await inbox.count(3)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([1])
    inbox.consumer.acknowledge([2, 3])


@contract("individual")
async def test_rejections_are_all_or_none(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(3), mode=Mode.INDIVIDUAL)
    inbox.consumer.acknowledge([2])
    with pytest.raises(UnknownDelivery) as refused:
        inbox.consumer.reject([1, 2, 3], delay_ms=0)
    assert refused.value.number == 2
    await seam.quiet()
    assert len(inbox.messages) == 3
    inbox.consumer.acknowledge([1, 3])


@contract("individual")
async def test_a_rejection_with_a_reason_is_death_at_once(
    seam: Seam, queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue, mode=Mode.INDIVIDUAL)
    marks = {seam.identifier(), seam.identifier()}
    await client.send(queue, ["good", *sorted(marks)])
    await inbox.count(3)
    inbox.consumer.reject([2, 3], dead=DeadReason.ERROR)
    await until_dead(seam, marks)
    await seam.quiet()
    assert len(inbox.messages) == 3
    inbox.consumer.acknowledge([1])
    await client.leaves(queue, [])


@contract("individual")
async def test_the_redelivery_policy_decides_how_often_a_message_is_tried(
    seam: Seam, queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue, mode=Mode.INDIVIDUAL, redelivery=ONE_MORE)
    mark = seam.identifier()
    await client.send(queue, [mark])
    for attempt in (1, 2):
        await inbox.count(attempt)
        inbox.consumer.reject([attempt])
    await until_dead(seam, {mark})
    await seam.quiet()
    assert (inbox.texts, inbox.attempts) == ([mark, mark], [1, 2])


@contract("individual")
async def test_the_redelivery_policy_decides_on_the_pauses(
    queue: Destination, client: Client
) -> None:
    pauses = RedeliveryChanges(
        maximum_redeliveries=3, initial_redelivery_delay=50, back_off_multiplier=3.0
    )
    inbox = await client.consumer(queue, mode=Mode.INDIVIDUAL, redelivery=pauses)
    await client.send(queue, ["poison"])
    for attempt, least in ((1, 45), (2, 145)):
        await inbox.count(attempt)
        before = now_ms()
        inbox.consumer.reject([attempt])
        await inbox.count(attempt + 1)
        assert now_ms() - before >= least
    inbox.consumer.acknowledge([3])


@contract("individual", arranged=("shares",))
async def test_rejected_messages_may_go_to_another_consumer(
    queue: Destination, client: Client
) -> None:
    first = await client.consumer(queue, mode=Mode.INDIVIDUAL, credit=1)
    await client.send(queue, ["1"])
    await first.count(1)
    second = await client.consumer(queue, mode=Mode.INDIVIDUAL)
    first.consumer.reject([1], delay_ms=0)
    await second.count(1)
    assert (second.numbers, second.attempts) == ([1], [2])


@contract("individual")
async def test_cumulative_acknowledgement_leaves_out_what_was_rejected(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(4))
    inbox.consumer.reject([2, 4], delay_ms=0)
    await inbox.count(6)
    for number in (2, 4):
        with pytest.raises(UnknownDelivery):
            inbox.consumer.acknowledge_through(number)
    assert inbox.consumer.acknowledge_through(3) == 2
    assert inbox.consumer.acknowledge_through(6) == 2
    assert (inbox.texts[4:], inbox.attempts[4:]) == (["1", "3"], [2, 2])


# --- giving back


@contract()
async def test_recover_gives_back_in_order_what_is_outstanding(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(5))
    session = inbox.session
    inbox.consumer.acknowledge_through(2)
    session.recover()
    assert len(inbox.messages) == 5, "delivered inside recover"
    assert await inbox.received(8) == ["0", "1", "2", "3", "4", "2", "3", "4"]
    assert inbox.attempts == [1, 1, 1, 1, 1, 2, 2, 2]
    assert inbox.numbers == list(range(1, 9)), "numbering goes on"
    ids = [message.message_id for message in inbox.messages]
    assert ids[2:5] == ids[5:], "stable over redelivery"
    for number in (3, 5):
        with pytest.raises(UnknownDelivery):
            inbox.consumer.acknowledge_through(number)
    session.recover()
    await inbox.count(11)
    assert inbox.attempts[8:] == seam.counted(3, 3, 3)
    assert inbox.consumer.acknowledge_through(11) == 3
    await client.leaves(queue, [])


@contract()
async def test_recover_of_nothing_is_nothing(
    queue: Destination, client: Client, session: Session
) -> None:
    inbox = await client.consumer(queue, session=session)
    session.recover()
    await client.send(queue, ["1"])
    await inbox.count(1)
    assert inbox.attempts == [1]


@contract()
async def test_what_recover_gives_back_comes_before_what_waits(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(6), credit=3)
    session = inbox.session
    session.recover()
    await seam.quiet()
    assert len(inbox.messages) == 3, "credit that was used stays used"
    inbox.consumer.grant(6)
    await inbox.count(9)
    assert inbox.texts[3:] == ["0", "1", "2", "3", "4", "5"]
    assert inbox.attempts[3:] == [2, 2, 2, 1, 1, 1]


@contract()
async def test_recover_leaves_other_sessions_alone(seam: Seam, client: Client) -> None:
    queue, other = seam.queue(), seam.queue()
    session = client.session()
    await client.consumer(queue, session=session)
    inbox = await client.consumer(other)
    await client.send(other, range(2))
    await inbox.count(2)
    session.recover()
    await seam.quiet()
    assert len(inbox.messages) == 2
    assert inbox.consumer.acknowledge_through(2) == 2


@contract("transacted")
async def test_recover_is_not_for_transacted_sessions_and_changes_nothing_there(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3), mode=Mode.TRANSACTED)
    inbox.consumer.acknowledge_through(2)
    with pytest.raises(NotSupported):
        inbox.session.recover()
    await committed(inbox.session)
    assert inbox.consumer.acknowledge_through(3) == 1, "still outstanding"
    await client.leaves(queue, ["2"])


@contract("individual")
async def test_recover_gives_back_what_single_acknowledgements_left(seam: Seam) -> None:
    _, _, inbox = await seam.holding(range(5), mode=Mode.INDIVIDUAL)
    session = inbox.session
    inbox.consumer.acknowledge([2, 4])
    session.recover()
    await inbox.count(8)
    assert (inbox.texts[5:], inbox.attempts[5:]) == (["0", "2", "4"], [2, 2, 2])


@contract()
async def test_recover_on_a_topic_gives_back_to_the_same_subscriber(
    seam: Seam, topic: Destination, client: Client, session: Session
) -> None:
    inbox, other = await client.consumer(topic, session=session), await client.consumer(topic)
    await client.send(topic, range(3))
    await inbox.count(3)
    await other.count(3)
    inbox.consumer.acknowledge_through(1)
    session.recover()
    await inbox.count(5)
    assert (inbox.texts[3:], inbox.attempts[3:]) == (["1", "2"], [2, 2])
    await seam.quiet()
    assert len(other.messages) == 3


@contract()
async def test_what_a_closed_session_gives_back_comes_first_and_in_order(seam: Seam) -> None:
    client, queue, taken = await seam.holding(range(6), credit=3)
    session = taken.session
    session.close()
    inbox = await client.consumer(queue, count=6)
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2", "3", "4", "5"], [2, 2, 2, 1, 1, 1])


@contract()
async def test_numbers_that_were_given_back_are_unknown(seam: Seam) -> None:
    _, queue, inbox = await seam.holding(range(2))
    await inbox.close()
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    await seam.has_left(queue, ["0", "1"])


@contract()
async def test_attempts_are_counted_over_connections(seam: Seam, queue: Destination) -> None:
    sender = await seam.connect()
    await sender.send(queue, ["1"])
    for attempt in (1, 2, 3):
        client = await seam.connect()
        inbox: Inbox = await client.consumer(queue)
        await inbox.count(1)
        assert inbox.attempts == seam.counted(attempt)
        await client.close()


@contract()
async def test_recover_gives_back_what_a_closed_consumer_kept(seam: Seam) -> None:
    client, queue, taken = await seam.holding(range(3))
    session = taken.session
    taken.consumer.close(requeue=False)
    taken.consumer.acknowledge_through(1)
    session.recover()
    with pytest.raises(UnknownDelivery):
        taken.consumer.acknowledge_through(3)
    inbox = await client.consumer(queue, count=2)
    assert (inbox.texts, inbox.attempts, len(taken.messages)) == (["1", "2"], [2, 2], 3)
