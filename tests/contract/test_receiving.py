"""Receiving: credit, numbers, start and stop, and what a delivery is (``Consumer``,
``Deliver``).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from gateway.messaging.destination import Destination
from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Mode, Session
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, now_ms, text, texts
from tests.contract.waiting import Inbox, completed, until


def count_runs(inbox: Inbox) -> None:
    """Runs are numbered from 1 without gaps."""
    following = 1
    for first, messages, attempts in inbox.runs:
        assert first == following
        assert attempts is None or len(attempts) == len(messages)
        following += len(messages)


@contract()
async def test_a_new_consumer_is_stopped_and_without_credit(seam: Seam) -> None:
    client, queue = await seam.waiting(range(3))
    inbox = await client.consumer(queue, credit=0, start=False)
    await seam.quiet()
    inbox.consumer.start()
    await seam.quiet()
    assert inbox.runs == [], "started without credit"
    inbox.consumer.stop()
    inbox.consumer.grant(3)
    await seam.quiet()
    assert inbox.runs == [], "credit without start"
    inbox.consumer.start()
    assert inbox.runs == [], "delivered inside start"
    assert await inbox.received(3) == ["0", "1", "2"]


@contract()
async def test_credit_is_added_up_and_never_exceeded(seam: Seam) -> None:
    client, queue = await seam.waiting(range(20))
    inbox = await client.consumer(queue, credit=3, count=3)
    await seam.quiet()
    assert len(inbox.messages) == 3
    inbox.consumer.acknowledge_through(3)
    await seam.quiet()
    assert len(inbox.messages) == 3, "settling is no credit"
    inbox.consumer.grant(2)
    inbox.consumer.grant(4)
    assert len(inbox.messages) == 3, "delivered inside grant"
    assert await seam.everything(inbox, 9) == [str(number) for number in range(9)]
    count_runs(inbox)


@contract()
async def test_order_is_kept_however_credit_is_granted(seam: Seam) -> None:
    client, queue = await seam.waiting(range(100))
    inbox = await client.consumer(queue, credit=5)
    for granted in (1, 7, 2, 20, 3):
        inbox.consumer.grant(granted)
        inbox.consumer.grant(granted)
        await inbox.count(min(len(inbox.messages) + granted, 100))
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
    inbox.on_delivery = lambda first, messages: inbox.consumer.grant(2 * len(messages))
    inbox.consumer.grant(1)
    assert await inbox.received(100) == [str(number) for number in range(100)]
    count_runs(inbox)


@contract()
async def test_credit_is_never_exceeded_by_what_arrives_later(
    seam: Seam, queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue, credit=5)
    for number in range(10):
        await client.send(queue, [str(number)])
    assert await seam.everything(inbox, 5) == ["0", "1", "2", "3", "4"]


@contract()
async def test_credit_of_a_topics_consumer_is_never_exceeded(
    seam: Seam, topic: Destination, client: Client
) -> None:
    inbox = await client.consumer(topic, credit=2)
    await client.send(topic, range(6))
    assert await seam.everything(inbox, 2) == ["0", "1"]
    inbox.consumer.grant(10)
    assert await inbox.received(6) == ["0", "1", "2", "3", "4", "5"]
    count_runs(inbox)


@contract()
async def test_deliveries_are_numbered_from_1_without_gaps(
    queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue, credit=7)
    for start in range(0, 60, 20):
        await client.send(queue, range(start, start + 20))
        inbox.consumer.grant(11)
        await inbox.count(min(start + 20, len(inbox.messages) + 1))
    inbox.consumer.grant(100)
    assert await inbox.received(60) == [str(number) for number in range(60)]
    assert inbox.numbers == list(range(1, 61))
    count_runs(inbox)


@contract()
async def test_each_consumer_has_its_own_numbers(topic: Destination, client: Client) -> None:
    first = await client.consumer(topic)
    await client.send(topic, ["1"])
    await first.count(1)
    second = await client.consumer(topic)
    await client.send(topic, ["2"])
    await second.count(1)
    await first.count(2)
    assert (first.numbers, second.numbers) == ([1, 2], [1])


@contract()
async def test_first_attempts_are_not_counted_out(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3))
    assert {attempts for _, _, attempts in inbox.runs} == {None}
    inbox.consumer.close()
    again = await client.consumer(queue, count=3)
    assert again.attempts == [2, 2, 2]
    await client.send(queue, ["first"])
    await again.count(4)
    assert again.runs[-1][2] is None, "a run of first attempts, beside others"


@contract()
async def test_a_stopped_consumer_gets_nothing_and_keeps_its_credit(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(2), credit=5)
    inbox.consumer.stop()
    await client.send(queue, range(2, 10))
    await seam.quiet()
    assert inbox.texts == ["0", "1"]
    inbox.consumer.start()
    assert await seam.everything(inbox, 5) == ["0", "1", "2", "3", "4"]
    count_runs(inbox)


@contract()
async def test_nothing_is_delivered_once_stop_has_returned(seam: Seam) -> None:
    client, queue = await seam.waiting(range(10))
    inbox = await client.consumer(queue, credit=10, start=False)
    inbox.consumer.start()
    inbox.consumer.stop()
    await seam.quiet()
    assert inbox.runs == []
    inbox.consumer.start()
    inbox.consumer.start()
    assert await inbox.received(10) == [str(number) for number in range(10)]


@contract()
async def test_a_stopped_consumer_can_settle(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3))
    inbox.consumer.stop()
    assert inbox.consumer.acknowledge_through(3) == 3
    await client.leaves(queue, [])


@contract()
async def test_credit_in_octets_stops_after_the_message_that_exceeds_it(seam: Seam) -> None:
    client, queue = await seam.waiting(["x" * 100] * 10)
    inbox = await client.consumer(queue, credit=100, octets=250, count=3)
    await seam.quiet()
    assert (len(inbox.messages), {len(message.body) for message in inbox.messages}) == (3, {100})
    inbox.consumer.grant(0, 150)
    await seam.everything(inbox, 4)
    assert len(inbox.messages) == 4, "50 octets were still owed"
    inbox.consumer.grant(0, 10_000)
    await inbox.count(10)
    count_runs(inbox)


@contract()
async def test_credit_in_messages_is_not_exceeded_by_octets_left(seam: Seam) -> None:
    client, queue = await seam.waiting(range(5))
    inbox = await client.consumer(queue, credit=2, octets=1_000_000, count=2)
    await seam.quiet()
    assert len(inbox.messages) == 2


@contract(arranged=("shares",))
async def test_credit_in_octets_is_each_consumers_own(
    seam: Seam, queue: Destination, client: Client
) -> None:
    few, many = [await client.consumer(queue, credit=100, octets=octets) for octets in (150, 550)]
    await client.send(queue, ["x" * 100] * 12)
    await few.count(2)
    await seam.everything(many, 6)
    assert (len(few.messages), len(many.messages)) == (2, 6)


@contract()
async def test_without_any_octets_granted_they_do_not_count(seam: Seam) -> None:
    client, queue = await seam.waiting(["x" * 100_000] * 5)
    await client.consumer(queue, credit=5, count=5)


@contract("selectors")
async def test_credit_of_both_kinds_holds_for_a_consumer_with_a_selector(
    seam: Seam, queue: Destination, client: Client
) -> None:
    for number in range(12):
        await client.send(queue, ["x" * 100], properties={"n": number % 2})
    inbox = await client.consumer(queue, credit=5, octets=150, selector="n = 1", count=2)
    await seam.quiet()
    assert len(inbox.messages) == 2
    inbox.consumer.grant(0, 10_000)
    await seam.everything(inbox, 5)
    assert len(inbox.messages) == 5


# --- what deliver may do


@contract()
async def test_a_run_is_the_callees_to_keep(queue: Destination, client: Client) -> None:
    copies: list[list[Message]] = []
    inbox = await client.consumer(
        queue, on_delivery=lambda first, messages: copies.append(list(messages))
    )
    for start in range(0, 9, 3):
        await client.send(queue, range(start, start + 3))
        await inbox.count(start + 3)
        inbox.consumer.acknowledge_through(start + 3)
    await client.close()
    assert [list(messages) for _, messages, _ in inbox.runs] == copies
    assert [message.text for messages in copies for message in messages] == [
        str(number) for number in range(9)
    ]


def pumping(client: Client, session: Session, target: Destination) -> Inbox:
    """An inbox that sends on, settles and grants inside of each delivery."""
    inbox = Inbox()
    depth = 0

    def pump(first: int, messages: Sequence[Message]) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1, "a delivery inside of another"
        session.send([text(target, message.text) for message in messages])
        inbox.consumer.acknowledge_through(first + len(messages) - 1)
        inbox.consumer.grant(len(messages))
        depth -= 1

    inbox.on_delivery = pump
    return inbox


@contract()
async def test_deliver_may_send_settle_and_grant(seam: Seam, client: Client) -> None:
    queue, target = seam.queue(), seam.queue()
    sender = client.session()
    received = await client.consumer(target)
    inbox = await client.consumer(queue, credit=0, start=False)
    pump = pumping(client, sender, target)
    pump.consumer = inbox.consumer
    inbox.on_delivery = pump.on_delivery
    inbox.consumer.grant(4)
    inbox.consumer.start()
    await client.send(queue, range(50))
    assert await received.received(50) == [str(number) for number in range(50)]
    await client.leaves(queue, [])


@contract()
async def test_deliver_may_stop_its_consumer(seam: Seam) -> None:
    client, queue = await seam.waiting(range(10))
    inbox = await client.consumer(queue, credit=10, start=False)
    inbox.on_delivery = lambda first, messages: inbox.consumer.stop()
    inbox.consumer.start()
    await seam.everything(inbox, 1)
    assert len(inbox.runs) == 1


@contract()
@pytest.mark.parametrize("close", [True, False], ids=["close", "stop"])
async def test_deliver_may_close_or_stop_another_consumer(seam: Seam, close: bool) -> None:
    client, queue = await seam.waiting(range(10))
    inboxes = [await client.consumer(queue, credit=10, start=False) for _ in range(2)]
    ended: list[Inbox] = []

    def end(other: Inbox) -> None:
        if not ended:
            ended.append(other)
            if close:
                other.consumer.close()
            else:
                other.consumer.stop()

    for inbox, other in (inboxes, reversed(inboxes)):
        inbox.on_delivery = lambda first, messages, other=other: end(other)
        inbox.consumer.start()
    await until(lambda: ended)
    await seam.quiet()
    assert ended[0].runs == [], "delivered after it had been ended"
    await ended[0].close()
    rest = await client.consumer(queue)
    await until(lambda: sum(len(inbox.messages) for inbox in (*inboxes, rest)) == 10)
    assert sorted(body for inbox in (*inboxes, rest) for body in inbox.texts) == [
        str(number) for number in range(10)
    ]


@contract()
@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
async def test_deliver_may_close_its_own(seam: Seam, what: str, client: Client) -> None:
    other, queue = await seam.waiting(range(4))
    inbox = await client.consumer(queue, credit=2, start=False)
    close = {
        "consumer": inbox.consumer.close,
        "session": inbox.session.close,
        "connection": client.end,
    }[what]
    inbox.on_delivery = lambda first, messages: close()
    inbox.consumer.start()
    await inbox.count(1)
    again = await other.consumer(queue, count=4)
    # Another connection may be quicker than what this one gives back.
    assert (sorted(again.texts), len(inbox.runs)) == (["0", "1", "2", "3"], 1)


@contract()
async def test_deliver_may_make_another_consumer(seam: Seam, client: Client) -> None:
    queue, other = seam.queue(), seam.queue()
    more: list[Inbox] = []

    def another(first: int, messages: Sequence[Message]) -> None:
        inbox = Inbox()
        inbox.consumer = client.session().consumer(
            ConsumerSpec(other), inbox.deliver, inbox.failures.append
        )
        inbox.consumer.grant(10)
        inbox.consumer.start()
        assert inbox.runs == []
        more.append(inbox)

    await client.consumer(queue, credit=1, on_delivery=another)
    await client.send(other, range(2))
    await client.send(queue, ["1"])
    await until(lambda: more)
    assert await more[0].received(2) == ["0", "1"]


# --- the mode AUTO, and the end of a consumer


@contract()
async def test_a_delivery_in_auto_mode_is_settled_once_it_has_returned(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(4), mode=Mode.AUTO, credit=2)
    session = inbox.session
    await completed(session)
    await client.leaves(queue, ["2", "3"])


@contract()
async def test_a_delivery_in_auto_mode_is_not_settled_if_it_closes_its_connection_first(
    seam: Seam, client: Client
) -> None:
    other, queue = await seam.waiting(range(2))
    ends: list[Deferred[None]] = []
    await client.consumer(
        queue,
        mode=Mode.AUTO,
        credit=1,
        on_delivery=lambda first, messages: ends.append(client.end()),
        count=1,
    )
    # A server that has not heard of the end would give the second message to the other client first.
    await ends[0]
    await seam.quiet()
    again = await other.consumer(queue)
    assert await again.received(2) == ["0", "1"]


@contract()
async def test_a_closed_consumer_receives_no_more_and_what_it_held_goes_back(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(3))
    inbox.consumer.acknowledge_through(1)
    inbox.consumer.close()
    inbox.consumer.close()
    inbox.consumer.grant(10)
    inbox.consumer.start()
    # A server that has not heard of it yet may count this one as delivered, too.
    await seam.quiet()
    await client.send(queue, ["3"])
    await seam.quiet()
    assert (len(inbox.messages), inbox.failures) == (3, [])
    other = await client.consumer(queue, count=3)
    assert (other.texts, other.attempts) == (["1", "2", "3"], [2, 2, 1])


@contract()
async def test_a_consumer_that_kept_its_deliveries_gives_them_back_when_it_is_closed_again(
    seam: Seam,
) -> None:
    client, queue, inbox = await seam.holding(range(3))
    inbox.consumer.close(requeue=False)
    inbox.consumer.close(requeue=False)
    assert inbox.consumer.acknowledge_through(1) == 1
    inbox.consumer.close()
    inbox.consumer.close(requeue=False)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(3)
    other = await client.consumer(queue, count=2)
    assert (other.texts, other.attempts) == (["1", "2"], [2, 2])
    inbox.session.close()
    inbox.consumer.close()
    await client.leaves(queue, ["1", "2"])


@contract()
async def test_nothing_is_delivered_once_close_has_returned(seam: Seam) -> None:
    client, queue = await seam.waiting(range(10))
    inbox = await client.consumer(queue, credit=10)
    inbox.consumer.close()
    count = len(inbox.messages)
    await seam.quiet()
    assert len(inbox.messages) == count
    await seam.has_left(queue, [str(number) for number in range(10)])


@contract()
async def test_deliveries_may_be_settled_after_a_close_that_keeps_them(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(4))
    session = inbox.session
    inbox.consumer.close(requeue=False)
    other = await client.consumer(queue)
    await client.send(queue, ["more"])
    await seam.quiet()
    assert other.texts in ([], ["more"]), "what the closed one holds stays with it"
    assert len(inbox.messages) == 4, "a closed consumer receives no more"
    assert inbox.consumer.acknowledge_through(2) == 2
    session.close()
    await other.count(3)
    assert sorted(other.texts) == ["2", "3", "more"]
    assert {
        body: attempts
        for body, attempts in zip(other.texts, other.attempts, strict=True)
        if body != "more"
    } == {
        "2": 2,
        "3": 2,
    }


@contract(arranged=("shares",))
async def test_a_closed_consumer_that_keeps_its_deliveries_leaves_what_comes_to_others(
    seam: Seam,
) -> None:
    client, queue, inbox = await seam.holding(["held"])
    inbox.consumer.close(requeue=False)
    await client.send(queue, ["more"])
    other = await client.consumer(queue)
    assert await other.received(1) == ["more"]


@contract()
async def test_expired_messages_use_no_credit(queue: Destination, client: Client) -> None:
    due = now_ms() + 50
    await client.send(queue, range(3), expires=due)
    # A relative time to live begins when the broker's client has the message.
    await until(lambda: now_ms() > due + 300)
    inbox = await client.consumer(queue, credit=2)
    await client.send(queue, ["fresh", "and good"])
    await inbox.count(2)
    assert (inbox.texts, inbox.numbers) == (["fresh", "and good"], [1, 2])


@contract()
async def test_sessions_of_one_connection_work_beside_each_other(
    seam: Seam, client: Client
) -> None:
    queues = [seam.queue() for _ in range(3)]
    inboxes = [
        await client.consumer(queue, mode=mode)
        for queue, mode in zip(queues, (Mode.AUTO, Mode.CLIENT, Mode.CLIENT), strict=True)
    ]
    session = client.session()
    session.send([message for queue in queues for message in texts(queue, range(5))])
    for inbox in inboxes:
        assert await inbox.received(5) == ["0", "1", "2", "3", "4"]
