"""The embedded broker as clients see it, over both of its stores.

What the seam promises of each provider, ``tests.contract`` shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    InvalidDestination,
    MessageRejected,
    ProviderUnavailable,
)
from gateway.messaging.provider import Mode
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
from tests.gateway.broker.brokers import Client, Deployment, completed, settled_down, text

Q, T = Queue("q"), Topic("t")
#: A queue of three messages for each way of making room.
LIMITED = {
    behavior: Queue(behavior.value)
    for behavior in (LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY)
}


@pytest_twisted.async_yield_fixture(params=["memory", "sqlite"])
async def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    options = BrokerOptions(
        destinations=tuple(
            (queue, DestinationProperties(max_num_msgs=3, limit_behavior=behavior))
            for behavior, queue in LIMITED.items()
        )
    )
    deployment = Deployment(reactor, tmp_path, request.param, options)
    yield deployment
    await deployment.close()
    assert deployment.failures == []


@pytest_twisted.async_yield_fixture
async def client(deployment: Deployment) -> AsyncIterator[Client]:
    """A connection whose client identifier is ``me``."""
    yield await deployment.connect(client_id="me")


@pytest_twisted.ensureDeferred
async def test_a_connection_tells_what_there_is(deployment: Deployment, client: Client) -> None:
    limited = LIMITED[LimitBehavior.REMOVE_OLDEST]
    exists = client.connection.exists
    assert [exists(each) for each in (Q, T, limited)] == [False, False, True]
    session = client.session()
    session.send([text(Q, "a")])
    client.consumer(session, T)
    assert [exists(each) for each in (Q, T, Topic("q"))] == [True, True, False]


async def the_dead(client: Client) -> list[tuple[str, object, object]]:
    """Return text, reason and delivery count of each dead message."""
    dead = client.consumer(client.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    await settled_down(reactor)
    return [
        (
            message.text,
            message.headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"],
            message.headers.properties["JMS_SUN_DMQ_DELIVERY_COUNT"],
        )
        for message in dead.messages
    ]


@pytest_twisted.ensureDeferred
async def test_each_message_gets_an_id_without_a_colon_and_the_time(
    deployment: Deployment, client: Client
) -> None:
    session = client.session()
    inbox = client.consumer(session, Q)
    session.send([text(Q, "a"), text(Q, "b")])
    await inbox.count(2)
    first, second = inbox.messages
    assert first.message_id != second.message_id
    assert ":" not in first.message_id
    assert abs(first.timestamp - deployment.turn.now_ms) < 5000


@pytest_twisted.ensureDeferred
async def test_access_rules_hold_from_the_moment_they_are_loaded(
    deployment: Deployment, client: Client
) -> None:
    session = client.session()
    session.send([text(Q, "a")])
    deployment.allow(deployment.rules + "queue.q.produce.deny.user=*\n")
    with pytest.raises(MessageRejected):
        session.send([text(Q, "b")])


@pytest_twisted.ensureDeferred
async def test_a_user_who_is_one_no_more_loses_all_connections_and_nobody_else_does(
    deployment: Deployment,
) -> None:
    gone, more, denied, stays = [
        await deployment.connect(user) for user in ("gone", "gone", "denied", "stays")
    ]
    session = gone.session(Mode.TRANSACTED)
    session.send([text(Q, "never committed")])
    deployment.provider.readmit()
    deployment.users.deleted.add("gone")
    deployment.allow(deployment.rules + "connection.NORMAL.deny.user=denied\n")
    deployment.provider.readmit()
    await settled_down(reactor)
    assert [str(error) for client in (gone, more) for error in client.losses] == [
        "user 'gone' is refused: the user was deleted"
    ] * 2
    assert ([type(error) for error in denied.losses], stays.losses) == ([AccessDenied], [])
    with pytest.raises(ProviderUnavailable):
        session.commit(lambda error: None)
    await completed(stays.session())
    assert deployment.broker.queue(Q).count == 0


@pytest_twisted.ensureDeferred
async def test_groups_that_changed_hold_for_connections_that_exist(deployment: Deployment) -> None:
    deployment.allow(deployment.rules + "queue.q.produce.deny.group=trainees\n")
    session = (await deployment.connect("alice")).session()
    session.send([text(Q, "a")])
    deployment.users.groups["alice"] = frozenset({"trainees"})
    deployment.provider.readmit()
    with pytest.raises(MessageRejected):
        session.send([text(Q, "b")])


@pytest_twisted.ensureDeferred
async def test_a_user_who_is_denied_the_service_is_refused(deployment: Deployment) -> None:
    deployment.allow(
        "version=JMQFileAccessControlModel/100\nconnection.NORMAL.allow.user=someone\n"
    )
    with pytest.raises(AccessDenied):
        await deployment.connect()


@pytest_twisted.ensureDeferred
async def test_wildcards_cover_topics_that_exist_and_that_come(client: Client) -> None:
    session = client.session()
    session.send([text(Topic("a.b"), "no subscriber yet")])
    one_level, rest = [client.consumer(session, Topic(name)) for name in ("a.*", "a.>")]
    session.send([text(Topic(name), name) for name in ("a.b", "a.b.c", "a", "a.new")])
    await rest.count(3)
    assert (rest.texts, one_level.texts) == (["a.b", "a.b.c", "a.new"], ["a.b", "a.new"])


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("destination", [Topic("a.*"), Queue("a.*"), Queue(">")], ids=str)
async def test_nothing_is_sent_to_a_wildcard(client: Client, destination: Destination) -> None:
    session = client.session()
    with pytest.raises(MessageRejected) as refused:
        session.send([text(destination, "x")])
    assert isinstance(refused.value.cause, InvalidDestination)


@pytest_twisted.ensureDeferred
async def test_queues_have_wildcard_consumers(client: Client) -> None:
    session = client.session()
    one_level, rest = [client.consumer(session, Queue(name)) for name in ("b.*", "a.>")]
    session.send([text(Queue(name), name) for name in ("a.b", "a.b.c", "a", "b.b.c", "b.new")])
    await rest.count(2)
    await one_level.count(1)
    assert (rest.texts, one_level.texts) == (["a.b", "a.b.c"], ["b.new"])


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(
    ("topic", "changed"),
    [
        (Topic("u"), {}),
        (T, {"selector": "x = 1"}),
        (T, {"no_local": True}),
        (None, {}),
    ],
    ids=["topic", "selector", "no_local", "removed"],
)
async def test_the_backlog_of_a_redefined_or_removed_durable_subscription_is_dead(
    deployment: Deployment, client: Client, topic: Destination | None, changed: dict[str, Any]
) -> None:
    client.consumer(client.session(), T, durable_name="d").consumer.close()
    sender = await deployment.connect()
    sender.session().send([text(T, "owed")])
    if topic is None:
        await client.connection.unsubscribe("d")
    else:
        client.consumer(client.session(), topic, durable_name="d", **changed)
    assert await the_dead(sender) == [("owed", "UNDELIVERABLE", 0)]


@pytest_twisted.ensureDeferred
async def test_order_of_arrival_holds_across_a_commit_under_way(client: Client) -> None:
    transacted, plain = client.session(Mode.TRANSACTED), client.session()
    inbox = client.consumer(client.session(), Q)
    transacted.send([text(Q, "1"), text(Q, "2")])
    transacted.commit(lambda error: None)
    plain.send([text(Q, "3")])
    await inbox.count(3)
    assert inbox.texts == ["1", "2", "3"]


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(
    ("of_queue", "of_consumer", "attempts"),
    [
        (
            None,
            RedeliveryChanges(
                maximum_redeliveries=2, initial_redelivery_delay=1, back_off_multiplier=1.0
            ),
            [1, 2, 3],
        ),
        (
            RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=600_000),
            RedeliveryChanges(initial_redelivery_delay=0),
            [1, 2],
        ),
    ],
    ids=["the consumer's policy", "the queue's number and the consumer's pause"],
)
async def test_a_rejected_message_comes_again_after_its_pause_and_dies_in_the_end(
    deployment: Deployment,
    client: Client,
    of_queue: RedeliveryPolicy | None,
    of_consumer: RedeliveryChanges,
    attempts: list[int],
) -> None:
    if of_queue is not None:
        deployment.broker.create(Q, DestinationProperties(redelivery=of_queue))
    session = client.session(Mode.INDIVIDUAL)
    inbox = client.consumer(session, Q, redelivery=of_consumer)
    session.send([text(Q, "poison")])
    for attempt in attempts:
        await inbox.count(attempt)
        inbox.consumer.reject([inbox.numbers[-1]])
    assert await the_dead(client) == [("poison", "UNDELIVERABLE", attempts[-1])]
    assert (inbox.attempts, deployment.broker.queue(Q).count) == (attempts, 0)


@pytest_twisted.ensureDeferred
async def test_an_expired_message_is_not_delivered_but_dead(
    deployment: Deployment, client: Client
) -> None:
    session, now = client.session(), deployment.turn.refresh()
    session.send([text(Q, "old", expires=now - 1), text(Q, "good", expires=now + 60_000)])
    inbox = client.consumer(session, Q)
    assert await the_dead(client) == [("old", "EXPIRED", 0)]
    assert inbox.texts == ["good"]


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(
    ("behavior", "kept", "removed"),
    [
        (LimitBehavior.REMOVE_OLDEST, ["2", "1", "3"], "0"),
        (LimitBehavior.REMOVE_LOW_PRIORITY, ["0", "2", "3"], "1"),
    ],
)
async def test_room_is_made_as_the_destination_says(
    client: Client, behavior: LimitBehavior, kept: list[str], removed: str
) -> None:
    session, limited = client.session(), LIMITED[behavior]
    for number, priority in enumerate((9, 1, 5, 1)):
        session.send([text(limited, str(number), priority=priority)])
    inbox = client.consumer(session, limited)
    await inbox.count(3)
    assert inbox.texts == kept
    assert [body for body, *_ in await the_dead(client)] == [removed]
