"""Durable subscriptions and selectors (``ConsumerSpec``, ``Connection.unsubscribe``)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    UnknownSubscription,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Session
from gateway.messaging.values import Value
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, below, refused_consumer, send, text
from tests.contract.waiting import bounded


@contract("durable")
async def test_a_durable_subscription_keeps_what_comes_while_nobody_listens(
    seam: Seam, topic: Destination, mine: str
) -> None:
    client = await seam.connect(mine)
    first = await client.consumer(topic, durable_name="d")
    sender = await seam.connect()
    await sender.send(topic, ["0"])
    await first.count(1)
    first.consumer.acknowledge_through(1)
    await client.close()
    await sender.send(topic, range(1, 5))
    client = await seam.connect(mine)
    inbox = await client.consumer(topic, durable_name="d")
    await sender.send(topic, ["5"])
    await inbox.count(5)
    assert (inbox.texts, inbox.attempts) == (["1", "2", "3", "4", "5"], [1] * 5)


@contract("durable")
async def test_a_durable_subscription_keeps_what_was_not_acknowledged(
    seam: Seam, topic: Destination, mine: str
) -> None:
    client, sender = await seam.connect(mine), await seam.connect()
    first = await client.consumer(topic, durable_name="d")
    await sender.send(topic, range(4))
    await first.count(4)
    first.consumer.acknowledge_through(2)
    await first.close()
    second = await client.consumer(topic, durable_name="d", count=2)
    assert (second.texts, second.attempts) == (["2", "3"], [2, 2])


@contract("durable", arranged=("restart",))
async def test_a_durable_subscription_outlives_the_broker(
    seam: Seam, topic: Destination, mine: str
) -> None:
    client, sender = await seam.connect(mine), await seam.connect()
    inbox = await client.consumer(topic, durable_name="d")
    await inbox.close()
    await sender.send(topic, range(3))
    await seam.restart()
    client = await seam.connect(mine)
    inbox = await client.consumer(topic, durable_name="d")
    await (await seam.connect()).send(topic, ["3"])
    assert await inbox.received(4) == ["0", "1", "2", "3"]


@contract("durable")
async def test_durable_subscriptions_belong_to_a_client_identifier(
    seam: Seam, topic: Destination
) -> None:
    first, second = await seam.connect(seam.identifier()), await seam.connect(seam.identifier())
    inboxes = [
        await first.consumer(topic, durable_name="d"),
        await second.consumer(topic, durable_name="d"),
        await first.consumer(topic, durable_name="e"),
    ]
    await first.send(topic, ["1"])
    for inbox in inboxes:
        await inbox.count(1)


@contract("durable")
async def test_a_durable_subscription_has_one_consumer_at_a_time(
    topic: Destination, mine: str, subscriber: Client
) -> None:
    inbox = await subscriber.consumer(topic, durable_name="d")
    error = await refused_consumer(subscriber.session(), ConsumerSpec(topic, durable_name="d"))
    assert isinstance(error, DurableInUse)
    assert (error.client_id, error.durable_name) == (mine, "d")
    with pytest.raises(DurableInUse):
        await bounded(subscriber.connection.unsubscribe("d"))
    await subscriber.send(topic, ["1"])
    await inbox.count(1)


@contract("durable")
async def test_unsubscribe_removes_the_subscription_and_what_it_kept(
    topic: Destination, mine: str, subscriber: Client
) -> None:
    inbox = await subscriber.consumer(topic, durable_name="d")
    await inbox.close()
    await subscriber.send(topic, range(3))
    await bounded(subscriber.connection.unsubscribe("d"))
    with pytest.raises(UnknownSubscription) as refused:
        await bounded(subscriber.connection.unsubscribe("d"))
    assert (refused.value.client_id, refused.value.durable_name) == (mine, "d")
    again = await subscriber.consumer(topic, durable_name="d")
    await subscriber.send(topic, ["new"])
    assert await again.received(1) == ["new"]


@contract("durable", arranged=("restart",))
async def test_an_unsubscription_is_durable_when_it_fires(
    seam: Seam, topic: Destination, mine: str
) -> None:
    client = await seam.connect(mine)
    inbox = await client.consumer(topic, durable_name="d")
    await inbox.close()
    await bounded(client.connection.unsubscribe("d"))
    await seam.restart()
    client = await seam.connect(mine)
    with pytest.raises(UnknownSubscription):
        await bounded(client.connection.unsubscribe("d"))


@contract("durable")
async def test_a_queue_has_no_durable_subscriptions(seam: Seam, queue: Destination) -> None:
    client = await seam.connect(seam.identifier())
    error = await refused_consumer(client.session(), ConsumerSpec(queue, durable_name="d"))
    assert isinstance(error, InvalidDestination)
    assert error.destination == queue


@contract("durable")
async def test_a_durable_subscription_needs_a_client_identifier(seam: Seam, client: Client) -> None:
    error = await refused_consumer(client.session(), ConsumerSpec(seam.topic(), durable_name="d"))
    assert isinstance(error, ClientIdRequired)
    assert error.durable_name == "d"
    with pytest.raises(ClientIdRequired):
        await bounded(client.connection.unsubscribe("d"))


@contract("durable", "selectors")
async def test_a_durable_subscription_keeps_what_it_selects(
    seam: Seam, topic: Destination, subscriber: Client
) -> None:
    inbox = await subscriber.consumer(topic, durable_name="d", selector="n = 1")
    await inbox.close()
    for number in (0, 1, 2, 1):
        await subscriber.send(topic, [str(number)], properties={"n": number})
    inbox = await subscriber.consumer(topic, durable_name="d", selector="n = 1", count=2)
    await seam.quiet()
    assert inbox.texts == ["1", "1"]


@contract("durable")
async def test_a_durable_subscription_may_have_wildcards(
    topic: Destination, subscriber: Client
) -> None:
    inbox = await subscriber.consumer(below(topic, ">"), durable_name="d")
    await inbox.close()
    await subscriber.send(below(topic, "a"), ["1"])
    await subscriber.send(below(topic, "b", "c"), ["2"])
    inbox = await subscriber.consumer(below(topic, ">"), durable_name="d")
    assert await inbox.received(2) == ["1", "2"]


@contract("durable")
async def test_no_local_holds_for_a_durable_subscription(
    seam: Seam, topic: Destination, mine: str
) -> None:
    client, other = await seam.connect(mine), await seam.connect()
    inbox = await client.consumer(topic, durable_name="d", no_local=True)
    await client.send(topic, ["mine"])
    await other.send(topic, ["theirs"])
    assert await seam.everything(inbox, 1) == ["theirs"]
    inbox.consumer.acknowledge_through(1)
    await client.close()
    client = await seam.connect(mine)
    again = await client.consumer(topic, durable_name="d", no_local=True)
    await client.send(topic, ["mine again"])
    await other.send(topic, ["theirs again"])
    assert await seam.everything(again, 1) == ["theirs again"]


# --- selectors


async def send_with(client: Client, destination: Destination, *given: Mapping[str, Value]) -> None:
    """Messages whose bodies are their numbers, with these properties."""
    session = client.session()
    await send(
        session,
        [
            text(destination, str(number), properties=properties)
            for number, properties in enumerate(given)
        ],
    )


@contract("selectors")
async def test_a_selector_takes_what_matches_and_leaves_the_rest(
    seam: Seam, queue: Destination, client: Client
) -> None:
    await send_with(
        client,
        queue,
        *[{"n": number, "parity": "odd" if number % 2 else "even"} for number in range(10)],
    )
    inbox = await client.consumer(queue, selector="parity = 'even' AND n BETWEEN 2 AND 7", count=3)
    await seam.quiet()
    assert inbox.texts == ["2", "4", "6"]
    assert inbox.numbers == [1, 2, 3], "what does not match has no number"
    assert inbox.consumer.acknowledge_through(3) == 3
    await client.leaves(queue, ["0", "1", "3", "5", "7", "8", "9"])


@contract("selectors")
async def test_a_selector_on_a_topic(seam: Seam, topic: Destination, client: Client) -> None:
    every, some = (
        await client.consumer(topic),
        await client.consumer(topic, selector="s LIKE 'a%' OR s IS NULL"),
    )
    await send_with(client, topic, {"s": "abc"}, {"s": "bcd"}, {}, {"s": "a"})
    await every.count(4)
    assert await seam.everything(some, 3) == ["0", "2", "3"]


@contract("selectors")
async def test_a_selector_reads_header_fields(seam: Seam) -> None:
    client, queue = await seam.waiting(["no"], priority=3, type="t", correlation_id="c")
    await client.send(queue, ["yes"], priority=7, type="t", correlation_id="c")
    await client.send(queue, ["no"], priority=7, type="u", correlation_id="c")
    await client.send(queue, ["no"], priority=7, type="t", correlation_id="d")
    inbox = await client.consumer(
        queue, selector="JMSPriority > 5 AND JMSType = 't' AND JMSCorrelationID = 'c'", count=1
    )
    await seam.quiet()
    assert inbox.texts == ["yes"]


@contract("selectors")
async def test_two_selectors_share_a_queue(queue: Destination, client: Client) -> None:
    low, high = (
        await client.consumer(queue, selector="n < 5"),
        await client.consumer(queue, selector="n >= 5"),
    )
    await send_with(client, queue, *[{"n": number} for number in range(10)])
    await low.count(5)
    await high.count(5)
    assert (low.texts, high.texts) == (["0", "1", "2", "3", "4"], ["5", "6", "7", "8", "9"])


@contract("selectors")
async def test_what_a_selecting_consumer_gives_back_is_selected_again(
    queue: Destination, client: Client, session: Session
) -> None:
    inbox = await client.consumer(queue, session=session, selector="n = 1")
    await send_with(client, queue, *[{"n": number % 2} for number in range(6)])
    await inbox.count(3)
    session.recover()
    await inbox.count(6)
    assert (inbox.texts, inbox.attempts) == (["1", "3", "5"] * 2, [1, 1, 1, 2, 2, 2])


@contract("selectors")
async def test_no_selector_is_every_message(queue: Destination, client: Client) -> None:
    await send_with(client, queue, {}, {"n": 1})
    await client.consumer(queue, selector=None, count=2)


@contract("selectors")
@pytest.mark.parametrize("selector", ["n =", "n LIKE 5", "AND", "(n = 1"])
async def test_an_invalid_selector_is_refused(seam: Seam, selector: str, client: Client) -> None:
    for destination in (seam.queue(), seam.topic()):
        error = await refused_consumer(
            client.session(), ConsumerSpec(destination, selector=selector)
        )
        assert isinstance(error, InvalidSelector)
        assert error.selector == selector


@contract("selectors")
async def test_a_selector_sees_properties_of_every_type(
    seam: Seam, queue: Destination, client: Client
) -> None:
    await send_with(
        client,
        queue,
        {"f": 1.5, "b": True, "s": "x"},
        {"f": 2.5, "b": True, "s": "x"},
        {"f": 1.5, "b": False, "s": "x"},
    )
    typed, strings = (
        "f < 2 AND b = TRUE AND s IN ('x', 'y')",
        "f = '1.5' AND b = 'true' AND s IN ('x', 'y')",
    )
    inbox = await client.consumer(
        queue, selector=typed if seam.backend.typed_selectors else strings, count=1
    )
    await seam.quiet()
    messages: list[Message] = inbox.messages
    assert [message.text for message in messages] == ["0"]
