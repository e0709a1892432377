"""Duplicate ids, where a provider remembers them: what is sent twice is kept once."""

from __future__ import annotations

from typing import Any

from gateway.messaging.destination import Destination
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Mode, Session
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, send, text
from tests.contract.waiting import committed, rolled_back


def bearing(destination: Destination, id: str, body: str, **headers: Any) -> Message:
    """A message with a duplicate id."""
    return text(destination, body, properties={DUPLICATE_ID: id}, **headers)


@contract("duplicate_ids")
async def test_the_first_with_an_id_is_kept_and_the_second_is_taken(
    queue: Destination, client: Client, session: Session
) -> None:
    await send(session, [bearing(queue, "a", "1")])
    again = bearing(queue, "a", "2")
    await send(session, [again, text(queue, "3"), bearing(queue, "b", "4")])
    assert again.message_id
    await client.leaves(queue, ["1", "3", "4"])


@contract("duplicate_ids")
async def test_one_that_comes_when_the_first_is_consumed_is_dropped_too(
    seam: Seam, queue: Destination, client: Client
) -> None:
    inbox = await client.consumer(queue)
    session = client.session()
    await send(session, [bearing(queue, "a", "1")])
    await inbox.count(1)
    inbox.consumer.acknowledge_through(1)
    other = (await seam.connect()).session()
    await send(other, [bearing(queue, "a", "2"), text(queue, "3")])
    assert await inbox.received(2) == ["1", "3"]


@contract("duplicate_ids")
async def test_each_destination_remembers_its_own(seam: Seam) -> None:
    client, first, second = await seam.connect(), seam.queue(), seam.queue()
    session = client.session()
    await send(session, [bearing(first, "a", "1"), bearing(second, "a", "2")])
    await client.leaves(first, ["1"])
    await seam.has_left(second, ["2"])


@contract("duplicate_ids")
async def test_the_id_is_delivered(queue: Destination, client: Client) -> None:
    inbox = await client.consumer(queue)
    session = client.session()
    session.send([bearing(queue, "a", "1")])
    await inbox.count(1)
    assert inbox.messages[0].headers.properties[DUPLICATE_ID] == "a"


@contract("duplicate_ids", "transacted")
async def test_a_rolled_back_one_was_never_sent_and_a_committed_one_was(
    queue: Destination, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    session.send([bearing(queue, "a", "1")])
    await rolled_back(session)
    session.send([bearing(queue, "a", "2"), bearing(queue, "b", "3")])
    await committed(session)
    plain = client.session()
    await send(plain, [bearing(queue, "a", "4"), bearing(queue, "b", "5"), text(queue, "6")])
    await client.leaves(queue, ["2", "3", "6"])
