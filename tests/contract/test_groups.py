"""Message groups: one consumer of a queue gets all of a group, in order."""

from __future__ import annotations

from typing import Any

from gateway.messaging.destination import Destination
from gateway.messaging.message import FIRST_FOR_CONSUMER, GROUP_ID, GROUP_SEQUENCE, Message
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, send, text
from tests.contract.waiting import Inbox, until


def of(queue: Destination, group: str, body: object, **properties: Any) -> Message:
    """A message of a group."""
    return text(queue, str(body), properties={GROUP_ID: group, **properties})


def total(*inboxes: Inbox) -> int:
    return sum(len(inbox.messages) for inbox in inboxes)


@contract("groups")
async def test_each_group_has_one_consumer_and_its_order(
    queue: Destination, client: Client
) -> None:
    inboxes = [await client.consumer(queue) for _ in range(2)]
    session = client.session()
    for number in range(5):
        await send(session, [of(queue, group, f"{group}{number}") for group in "abcd"])
    await until(lambda: total(*inboxes) == 20, lambda: str([each.texts for each in inboxes]))
    for inbox in inboxes:
        groups = {body[0] for body in inbox.texts}
        assert len(groups) == 2
        for group in groups:
            mine = [body for body in inbox.texts if body[0] == group]
            assert mine == [f"{group}{number}" for number in range(5)]


@contract("groups")
async def test_what_a_consumer_left_of_a_group_comes_first_to_the_next(
    queue: Destination, client: Client, seam: Seam
) -> None:
    leaver = await seam.connect()
    first = await leaver.consumer(queue, credit=2)
    await send(client.session(), [of(queue, "a", number) for number in range(4)])
    await first.count(2)
    second = await client.consumer(queue)
    await send(client.session(), [of(queue, "b", "other")])
    await second.count(1)
    assert second.texts == ["other"]
    await leaver.close()
    assert await second.received(5) == ["other", "0", "1", "2", "3"]


@contract("groups")
async def test_a_negative_sequence_number_ends_a_group(queue: Destination, client: Client) -> None:
    first = await client.consumer(queue)
    session = client.session()
    await send(session, [of(queue, "b", "0"), of(queue, "a", "1", **{GROUP_SEQUENCE: -1})])
    await first.count(2)
    second = await client.consumer(queue)
    await send(session, [of(queue, "a", "2"), of(queue, "b", "3")])
    await second.count(1)
    await first.count(3)
    assert (first.texts, second.texts) == (["0", "1", "3"], ["2"])


@contract("groups")
async def test_the_first_of_a_group_is_told_to_who_asks(queue: Destination, client: Client) -> None:
    inbox = await client.consumer(queue, tells_groups=True)
    await send(client.session(), [of(queue, "a", "0"), of(queue, "a", "1"), of(queue, "b", "2")])
    await inbox.count(3)
    marks = [message.headers.properties.get(FIRST_FOR_CONSUMER) for message in inbox.messages]
    assert marks == [True, None, True]
