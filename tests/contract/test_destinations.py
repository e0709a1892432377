"""Queues and their consumers, topics and their subscribers, browsers and temporary destinations
(``ConsumerSpec``).
"""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AccessDenied,
    InvalidDestination,
    TooManyConsumers,
    UnknownDelivery,
)
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, below, refused_consumer, text, texts
from tests.contract.waiting import Inbox, completed, until


async def all_of(inboxes: list[Inbox], number: int) -> list[str]:
    """Wait until that many messages are in these inboxes together.

    :returns: their texts, sorted as numbers.
    """
    await until(
        lambda: sum(len(inbox.messages) for inbox in inboxes) >= number,
        lambda: f"{[inbox.texts for inbox in inboxes]} of {number}",
    )
    return sorted((body for inbox in inboxes for body in inbox.texts), key=int)


# --- queues


@contract()
async def test_each_message_of_a_queue_goes_to_one_consumer(seam: Seam, queue: Destination) -> None:
    first, second = await seam.connect(), await seam.connect()
    inboxes = [await client.consumer(queue) for client in (first, first, second)]
    for start in range(0, 60, 10):
        await first.send(queue, range(start, start + 10))
    assert await all_of(inboxes, 60) == [str(number) for number in range(60)]
    await seam.quiet()
    assert await all_of(inboxes, 60) == [str(number) for number in range(60)]
    for inbox in inboxes:
        assert [int(body) for body in inbox.texts] == sorted(int(body) for body in inbox.texts), (
            "in order with each"
        )


@contract(arranged=("shares",))
async def test_messages_go_to_whoever_has_credit(queue: Destination, client: Client) -> None:
    few, many = await client.consumer(queue, credit=2), await client.consumer(queue, credit=100)
    idle = await client.consumer(queue, credit=0)
    await client.send(queue, range(20))
    assert await all_of([few, many], 20) == [str(number) for number in range(20)]
    assert len(few.messages) <= 2
    assert idle.messages == []


@contract()
async def test_what_one_consumer_gives_back_goes_to_another(
    queue: Destination, client: Client
) -> None:
    first = await client.consumer(queue)
    await client.send(queue, range(5))
    await first.count(5)
    second = await client.consumer(queue)
    first.consumer.acknowledge_through(2)
    first.consumer.close()
    await second.count(3)
    assert (second.texts, second.attempts) == (["2", "3", "4"], [2, 2, 2])


@contract()
async def test_a_consumer_that_comes_later_gets_what_waits(seam: Seam) -> None:
    client, queue = await seam.waiting(range(3))
    await client.close()
    inbox = await (await seam.connect()).consumer(queue)
    assert await inbox.received(3) == ["0", "1", "2"]


@contract(arranged=("denied",))
async def test_a_queue_that_is_denied_has_no_consumer(seam: Seam, client: Client) -> None:
    assert seam.backend.denied is not None
    assert isinstance(
        await refused_consumer(client.session(), ConsumerSpec(seam.backend.denied)), AccessDenied
    )


@contract("browse", arranged=("denied",))
async def test_a_queue_that_is_denied_has_no_browser(seam: Seam, client: Client) -> None:
    assert seam.backend.denied is not None
    assert isinstance(
        await refused_consumer(client.session(), ConsumerSpec(seam.backend.denied, browse=True)),
        AccessDenied,
    )


@contract(arranged=("exclusive",))
async def test_a_queue_may_have_as_many_consumers_as_it_says(seam: Seam, client: Client) -> None:
    assert seam.backend.exclusive is not None
    queue, most = seam.backend.exclusive
    inboxes = [await client.consumer(queue) for _ in range(most)]
    assert isinstance(
        await refused_consumer(client.session(), ConsumerSpec(queue)), TooManyConsumers
    )
    inboxes[0].consumer.close()
    await client.consumer(queue)


@contract(arranged=("remove",))
async def test_a_consumer_that_ends_by_itself_is_told_once(seam: Seam, client: Client) -> None:
    queue, other = seam.queue(), seam.queue()
    session = client.session()
    inbox, stays = (
        await client.consumer(queue, session=session),
        await client.consumer(other, session=session),
    )
    await client.send(queue, range(3))
    await inbox.count(3)
    await seam.backend.remove(queue)
    assert isinstance(await inbox.failed(), InvalidDestination)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(3)
    inbox.consumer.close()
    await client.send(other, ["1"])
    await seam.everything(stays, 1)
    assert (len(inbox.failures), len(inbox.messages)) == (1, 3)


# --- topics


@contract()
async def test_a_topic_reaches_every_subscriber_and_nobody_who_comes_later(
    seam: Seam, topic: Destination
) -> None:
    first, second = await seam.connect(), await seam.connect()
    await first.send(topic, ["before"])
    inboxes = [await client.consumer(topic) for client in (first, first, second)]
    await first.send(topic, range(10))
    for inbox in inboxes:
        await inbox.count(10)
    later = await second.consumer(topic)
    await first.send(topic, ["after"])
    for inbox in inboxes:
        assert await inbox.received(11) == [*(str(number) for number in range(10)), "after"]
    assert await later.received(1) == ["after"]


@contract()
async def test_a_stopped_subscriber_misses_nothing(topic: Destination, client: Client) -> None:
    inbox = await client.consumer(topic, credit=0, start=False)
    await client.send(topic, range(3))
    inbox.consumer.grant(10)
    inbox.consumer.start()
    assert await inbox.received(3) == ["0", "1", "2"]


@contract()
async def test_subscribers_settle_each_for_itself(
    seam: Seam, topic: Destination, client: Client
) -> None:
    sessions = [client.session(), client.session()]
    first, second = [await client.consumer(topic, session=session) for session in sessions]
    await client.send(topic, range(3))
    await first.count(3)
    await second.count(3)
    assert first.consumer.acknowledge_through(3) == 3
    sessions[1].recover()
    await second.count(6)
    assert second.texts[3:] == ["0", "1", "2"]
    await seam.quiet()
    assert len(first.messages) == 3


@contract()
async def test_wildcards_cover_one_level_or_the_rest(
    seam: Seam, topic: Destination, client: Client
) -> None:
    one, rest, exact = [
        await client.consumer(below(topic, *levels)) for levels in (("*",), (">",), ("a",))
    ]
    middle = await client.consumer(below(topic, "*", "c"))
    session = client.session()
    for body, levels in (
        ("1", ("a",)),
        ("2", ("a", "c")),
        ("3", ("b",)),
        ("4", ("b", "c")),
        ("5", ("b", "d")),
    ):
        session.send([text(below(topic, *levels), body)])
    await completed(session)
    await rest.count(5)
    await one.count(2)
    await middle.count(2)
    await seam.everything(exact, 1)
    assert (rest.texts, one.texts) == (["1", "2", "3", "4", "5"], ["1", "3"])
    assert (middle.texts, exact.texts) == (["2", "4"], ["1"])
    assert one.messages[1].headers.destination == below(topic, "b"), "the topic that it was sent to"


@contract()
async def test_no_local_leaves_out_what_the_connection_sent_itself(
    seam: Seam, topic: Destination
) -> None:
    mine, others = await seam.connect(), await seam.connect()
    inbox = await mine.consumer(topic, no_local=True)
    both = await mine.consumer(topic)
    await mine.send(topic, ["mine"])
    await others.send(topic, ["theirs"])
    await mine.send(topic, ["mine again"])
    await both.count(3)
    assert await seam.everything(inbox, 1) == ["theirs"]


# --- browsers


@contract("browse")
async def test_a_browser_reads_everything_once_and_leaves_it(seam: Seam) -> None:
    client, queue = await seam.waiting(range(10))
    browser = await client.consumer(queue, browse=True, credit=4, count=4)
    await seam.quiet()
    assert (len(browser.messages), browser.ends) == (4, 0)
    browser.consumer.grant(100)
    await browser.ended()
    await seam.quiet()
    assert (browser.texts, browser.ends) == ([str(number) for number in range(10)], 1)
    first, messages, _ = browser.runs[-1]
    assert (first, list(messages)) == (11, []), "the end is one empty delivery"
    browser.consumer.close()
    inbox = await client.consumer(queue, count=10)
    assert (inbox.texts, inbox.attempts) == ([str(number) for number in range(10)], [1] * 10)


@contract("browse")
async def test_a_browser_of_an_empty_queue_ends_at_once(seam: Seam, client: Client) -> None:
    browser = await client.consumer(seam.queue(), browse=True)
    await browser.ended()
    assert (browser.messages, browser.ends) == ([], 1)


@contract("browse")
async def test_a_browser_does_not_keep_messages_from_consumers(seam: Seam) -> None:
    client, queue = await seam.waiting(range(5))
    await client.consumer(queue, browse=True, credit=2, count=2)
    inbox = await client.consumer(queue, count=5)
    assert inbox.consumer.acknowledge_through(5) == 5


@contract("browse", "selectors")
async def test_a_browser_with_a_selector_reads_what_it_selects(
    queue: Destination, client: Client
) -> None:
    for number in range(6):
        await client.send(queue, [str(number)], properties={"n": number})
    browser = await client.consumer(queue, browse=True, selector="n >= 4")
    await browser.ended()
    assert browser.texts == ["4", "5"]


@contract("browse")
async def test_only_queues_are_browsed(seam: Seam, client: Client) -> None:
    error = await refused_consumer(client.session(), ConsumerSpec(seam.topic(), browse=True))
    assert isinstance(error, InvalidDestination)


# --- temporary destinations


@contract("temporary")
@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: str(kind.name).lower())
async def test_anyone_who_knows_a_temporary_destination_may_send_to_it(
    seam: Seam, kind: Kind
) -> None:
    creator, other = await seam.connect(), await seam.connect()
    temporary = creator.connection.temporary(kind)
    assert temporary.kind is kind
    assert temporary.temporary
    inbox = await creator.consumer(temporary)
    await other.send(temporary, ["1"])
    await creator.send(temporary, ["2"])
    assert await inbox.received(2) == ["1", "2"]


@contract("temporary")
async def test_only_its_creator_consumes_from_a_temporary_destination(seam: Seam) -> None:
    creator, other = await seam.connect(), await seam.connect()
    temporary = creator.connection.temporary(Kind.QUEUE)
    error = await refused_consumer(other.session(), ConsumerSpec(temporary))
    assert isinstance(error, InvalidDestination)
    for session in (creator.session(), creator.session(Mode.AUTO)):
        await creator.consumer(temporary, session=session)


@contract("temporary")
async def test_temporary_destinations_have_names_of_their_own(seam: Seam) -> None:
    first, second = await seam.connect(), await seam.connect()
    names = {
        client.connection.temporary(kind).name for client in (first, second, first) for kind in Kind
    }
    assert len(names) == 6
    assert min(len(name) for name in names) >= 16


@contract("temporary")
async def test_a_reply_comes_back_to_a_temporary_queue(seam: Seam, queue: Destination) -> None:
    asking, answering = await seam.connect(), await seam.connect()
    temporary = asking.connection.temporary(Kind.QUEUE)
    replies = await asking.consumer(temporary)
    requests = await answering.consumer(queue)
    await asking.send(queue, ["what?"], reply_to=temporary, correlation_id="c-1")
    await requests.count(1)
    request = requests.messages[0]
    assert request.headers.reply_to is not None
    await answering.send(
        request.headers.reply_to, ["that"], correlation_id=request.headers.correlation_id
    )
    await replies.count(1)
    assert (replies.texts, replies.messages[0].headers.correlation_id) == (["that"], "c-1")


# --- several consumers of one session


async def two_consumers(client: Client, mode: Mode, queues: list[Destination]) -> list[Inbox]:
    """Two consumers of one session."""
    session = client.session(mode)
    return [await client.consumer(queue, session=session) for queue in queues]


@contract()
async def test_consumers_of_one_session_have_numbers_and_settlements_of_their_own(
    seam: Seam, client: Client
) -> None:
    queues = [seam.queue(), seam.queue()]
    inboxes = await two_consumers(client, Mode.CLIENT, queues)
    for queue in queues:
        await client.send(queue, range(3))
    for inbox in inboxes:
        await inbox.count(3)
        assert inbox.numbers == [1, 2, 3]
    assert inboxes[0].consumer.acknowledge_through(2) == 2
    assert inboxes[1].consumer.acknowledge_through(1) == 1
    await client.close()
    await seam.has_left(queues[0], ["2"])
    await seam.has_left(queues[1], ["1", "2"])


@contract("transacted")
async def test_consumers_of_one_transacted_session_commit_together(
    seam: Seam, client: Client
) -> None:
    queues = [seam.queue(), seam.queue()]
    inboxes = await two_consumers(client, Mode.TRANSACTED, queues)
    session = client.session()
    session.send([message for queue in queues for message in texts(queue, range(2))])
    for inbox in inboxes:
        await inbox.count(2)
        inbox.consumer.acknowledge_through(2)
    await client.close()
    for queue in queues:
        await seam.has_left(queue, ["0", "1"])
