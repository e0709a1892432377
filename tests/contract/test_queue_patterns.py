"""Consumers of all queues that a pattern covers."""

from __future__ import annotations

from collections import Counter

from gateway.messaging.destination import Destination
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, below, refused_consumer
from tests.contract.waiting import Inbox, Told


def by_queue(inbox: Inbox) -> dict[str, list[str]]:
    """The texts of each queue, by the last level of its name."""
    found: dict[str, list[str]] = {}
    for message in inbox.messages:
        level = message.headers.destination.name.rpartition(".")[2]
        found.setdefault(level, []).append(message.text)
    return found


@contract("queue_patterns")
async def test_it_receives_from_queues_that_are_there_and_from_later_ones(
    queue: Destination, client: Client
) -> None:
    await client.send(below(queue, "a"), range(3))
    inbox = await client.consumer(below(queue, ">"), count=3)
    await client.send(below(queue, "b"), range(3, 6))
    await client.send(below(queue, "deep", "c"), range(6, 9))
    await inbox.count(9)
    assert by_queue(inbox) == {"a": ["0", "1", "2"], "b": ["3", "4", "5"], "c": ["6", "7", "8"]}
    assert inbox.numbers == list(range(1, 10))


@contract("queue_patterns")
async def test_a_star_is_one_level(queue: Destination, client: Client) -> None:
    inbox = await client.consumer(below(queue, "*", "new"))
    await client.send(below(queue, "a", "old"), ["1"])
    await client.send(below(queue, "a", "b", "new"), ["2"])
    await client.send(below(queue, "a", "new"), ["3"])
    await client.send(below(queue, "b", "new"), ["4"])
    assert await inbox.received(2) == ["3", "4"]


@contract("queue_patterns")
async def test_an_acknowledgement_through_a_number_is_of_all_queues(
    queue: Destination, client: Client
) -> None:
    queues = [below(queue, level) for level in "ab"]
    for each in queues:
        await client.send(each, range(3))
    inbox = await client.consumer(below(queue, ">"), count=6)
    assert inbox.consumer.acknowledge_through(5) == 5
    (left,) = inbox.messages[5:]
    await client.leaves(left.headers.destination, [left.text])


@contract("queue_patterns", "individual")
async def test_deliveries_are_acknowledged_one_by_one(queue: Destination, client: Client) -> None:
    queues = [below(queue, level) for level in "ab"]
    for each in queues:
        await client.send(each, range(2))
    inbox = await client.consumer(below(queue, ">"), mode=Mode.INDIVIDUAL, count=4)
    last = [
        max(
            number
            for number, message in zip(inbox.numbers, inbox.messages, strict=True)
            if message.headers.destination == each
        )
        for each in queues
    ]
    inbox.consumer.acknowledge(last)
    await client.leaves(queues[0], ["0"])


@contract("queue_patterns", "transacted")
async def test_what_a_transaction_acknowledged_comes_back_with_its_rollback(
    queue: Destination, client: Client
) -> None:
    for level in "ab":
        await client.send(below(queue, level), ["1"])
    session = client.session(Mode.TRANSACTED)
    inbox = await client.consumer(below(queue, ">"), session=session, count=2)
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    told = Told()
    session.rollback(told)
    assert await told.result() is None
    await inbox.count(4)
    assert Counter(inbox.texts) == {"1": 4}
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    told = Told()
    session.commit(told)
    assert await told.result() is None
    await client.leaves(below(queue, "a"), [])


@contract("queue_patterns", "selectors")
async def test_a_selector_holds_for_all_queues(queue: Destination, client: Client) -> None:
    inbox = await client.consumer(below(queue, ">"), selector="colour = 'red'")
    for level in "ab":
        await client.send(below(queue, level), ["blue"], properties={"colour": "blue"})
        await client.send(below(queue, level), ["red"], properties={"colour": "red"})
    await inbox.count(2)
    assert by_queue(inbox) == {"a": ["red"], "b": ["red"]}


@contract("queue_patterns")
async def test_the_credit_is_for_all_queues_together(queue: Destination, client: Client) -> None:
    for level in "abc":
        await client.send(below(queue, level), range(4))
    inbox = await client.consumer(below(queue, ">"), credit=6, count=6)
    await client.send(below(queue, "d"), ["more"])
    assert len(inbox.messages) == 6
    inbox.consumer.grant(7)
    await inbox.count(13)
    assert by_queue(inbox) == {**{level: list("0123") for level in "abc"}, "d": ["more"]}


@contract("queue_patterns", "browse")
async def test_a_pattern_cannot_be_browsed(seam: Seam, queue: Destination, client: Client) -> None:
    error = await refused_consumer(client.session(), ConsumerSpec(below(queue, ">"), browse=True))
    assert isinstance(error, InvalidDestination)
