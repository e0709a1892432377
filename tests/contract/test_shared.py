"""Subscriptions that are not durable and that consumers share by a name."""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Destination
from gateway.messaging.errors import SubscriptionDiffers
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam


@contract("shared")
async def test_each_message_goes_to_one_consumer(
    topic: Destination, client: Client, seam: Seam
) -> None:
    other = await seam.connect()
    inboxes = [await each.consumer(topic, shared_name="s", credit=2) for each in (client, other)]
    alone = await client.consumer(topic)
    await client.send(topic, ["1", "2", "3", "4"])
    for inbox in inboxes:
        await inbox.count(2)
    assert sorted(inboxes[0].texts + inboxes[1].texts) == ["1", "2", "3", "4"]
    assert await alone.received(4) == ["1", "2", "3", "4"]


@contract("shared")
async def test_what_one_has_not_settled_goes_to_another(
    topic: Destination, client: Client, seam: Seam
) -> None:
    leaver = await seam.connect()
    first = await leaver.consumer(topic, shared_name="s")
    await client.send(topic, ["1", "2"])
    await first.count(2)
    second = await client.consumer(topic, shared_name="s")
    await leaver.close()
    assert await second.received(2) == ["1", "2"]


@contract("shared")
async def test_the_last_consumer_ends_it(topic: Destination, client: Client, seam: Seam) -> None:
    last = await seam.connect()
    await last.consumer(topic, shared_name="s")
    await client.send(topic, ["lost"])
    await last.close()
    await client.send(topic, ["lost, too"])
    inbox = await client.consumer(topic, shared_name="s")
    await client.send(topic, ["later"])
    assert await inbox.received(1) == ["later"]


@contract("shared")
async def test_all_want_the_same(topic: Destination, client: Client, seam: Seam) -> None:
    inbox = await client.consumer(topic, shared_name="s", selector="a = 1")
    for selector in (None, "a = 2"):
        with pytest.raises(SubscriptionDiffers):
            await client.consumer(topic, shared_name="s", selector=selector)
    with pytest.raises(SubscriptionDiffers):
        await client.consumer(seam.topic(), shared_name="s", selector="a = 1")
    await client.send(topic, ["1"], properties={"a": 1})
    assert await inbox.received(1) == ["1"]


@contract("shared")
async def test_one_may_bring_another_topic(topic: Destination, client: Client, seam: Seam) -> None:
    inbox = await client.consumer(topic, shared_name="s", adds=True)
    other = seam.topic()
    bringer = await seam.connect()
    await bringer.consumer(other, shared_name="s", adds=True, start=False)
    await client.send(topic, ["1"])
    await client.send(other, ["2"])
    assert await inbox.received(2) == ["1", "2"]
    await bringer.close()
    await client.send(other, ["3"])
    assert await inbox.received(3) == ["1", "2", "3"]
