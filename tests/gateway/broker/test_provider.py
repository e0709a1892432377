"""The sentences of ``messaging.provider``, kept by the embedded broker over both of its stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.broker.core.limits import DestinationProperties, LimitBehavior
from gateway.broker.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdInUse,
    ClientIdRequired,
    DestinationFull,
    DurableInUse,
    InvalidDestination,
    InvalidSelector,
    MessageRejected,
    MessageTooLarge,
    ProviderUnavailable,
    UnknownDelivery,
    UnknownSubscription,
)
from gateway.messaging.provider import Credentials, Mode
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
from tests.gateway.broker.brokers import (
    Deployment,
    committed,
    completed,
    rolled_back,
    settled_down,
    text,
    with_properties,
)

pytestmark = pytest.mark.usefixtures("deployment")


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_twisted.async_yield_fixture
async def deployment(tmp_path: Path, kind: str) -> AsyncIterator[Deployment]:
    deployment = Deployment(reactor, tmp_path, kind)
    yield deployment
    await deployment.close()
    assert deployment.failures == []


@pytest_twisted.ensureDeferred
async def test_what_is_sent_is_delivered_in_order(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("orders"))
    session.send([text(Queue("orders"), str(number)) for number in range(10)])
    assert inbox.messages == [], "a delivery came from inside send"
    await inbox.count(10)
    assert inbox.texts == [str(number) for number in range(10)]
    assert inbox.numbers == list(range(1, 11))
    assert inbox.attempts == [1] * 10


@pytest_twisted.ensureDeferred
async def test_each_message_gets_an_id_without_a_colon_and_the_time(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), "a"), text(Queue("q"), "b")])
    await inbox.count(2)
    first, second = inbox.messages
    assert first.message_id != second.message_id
    assert ":" not in first.message_id
    assert abs(first.timestamp - deployment.turn.now_ms) < 5000


@pytest_twisted.ensureDeferred
async def test_higher_priorities_come_first_and_order_is_kept_within_one(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send(
        [
            text(Queue("q"), f"{priority}.{turn}", priority=priority)
            for turn in range(3)
            for priority in (1, 9, 4)
        ]
    )
    inbox = client.consumer(session, Queue("q"))
    await inbox.count(9)
    assert inbox.texts == ["9.0", "9.1", "9.2", "4.0", "4.1", "4.2", "1.0", "1.1", "1.2"]


@pytest_twisted.ensureDeferred
async def test_credit_is_never_exceeded(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Queue("q"), str(number)) for number in range(10)])
    inbox = client.consumer(session, Queue("q"), credit=3)
    await inbox.count(3)
    await settled_down(reactor)
    assert inbox.texts == ["0", "1", "2"]
    inbox.consumer.acknowledge_through(3)
    await settled_down(reactor)
    assert len(inbox.messages) == 3, "settling is not credit"
    inbox.consumer.grant(2)
    await inbox.count(5)
    await settled_down(reactor)
    assert inbox.texts == ["0", "1", "2", "3", "4"]


@pytest_twisted.ensureDeferred
async def test_credit_in_octets_stops_after_the_message_that_exceeds_it(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Queue("q"), "x" * 100) for _ in range(10)])
    inbox = client.consumer(session, Queue("q"), credit=100, octets=250)
    await inbox.count(3)
    await settled_down(reactor)
    assert len(inbox.messages) == 3


@pytest_twisted.ensureDeferred
async def test_a_stopped_consumer_gets_nothing_and_keeps_its_credit(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"), credit=5, start=False)
    session.send([text(Queue("q"), "a")])
    await settled_down(reactor)
    assert inbox.messages == []
    inbox.consumer.start()
    await inbox.count(1)
    inbox.consumer.stop()
    session.send([text(Queue("q"), "b")])
    await settled_down(reactor)
    assert inbox.texts == ["a"]


@pytest_twisted.ensureDeferred
async def test_messages_are_shared_fairly_by_consumers(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inboxes = [client.consumer(session, Queue("q")) for _ in range(3)]
    session.send([text(Queue("q"), str(number)) for number in range(30)])
    for inbox in inboxes:
        await inbox.count(10)
    assert sorted(int(body) for inbox in inboxes for body in inbox.texts) == list(range(30))


@pytest_twisted.ensureDeferred
async def test_single_messages_go_to_consumers_in_turn(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inboxes = [client.consumer(session, Queue("q")) for _ in range(2)]
    for number in range(6):
        session.send([text(Queue("q"), str(number))])
        await settled_down(reactor)
    assert [len(inbox.messages) for inbox in inboxes] == [3, 3]


@pytest_twisted.ensureDeferred
async def test_acknowledging_through_settles_what_came_before(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), str(number)) for number in range(5)])
    await inbox.count(5)
    assert inbox.consumer.acknowledge_through(3) == 3
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(2)
    assert inbox.consumer.acknowledge_through(5) == 2
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(6)


@pytest_twisted.ensureDeferred
async def test_single_acknowledgements_are_all_or_none(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session(Mode.INDIVIDUAL)
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), str(number)) for number in range(4)])
    await inbox.count(4)
    inbox.consumer.acknowledge([2])
    with pytest.raises(UnknownDelivery) as refused:
        inbox.consumer.acknowledge([1, 2])
    assert refused.value.number == 2
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([3, 3])
    inbox.consumer.acknowledge([1, 3, 4])
    assert deployment.broker.queue(Queue("q")).count == 0


@pytest_twisted.ensureDeferred
async def test_recover_gives_everything_outstanding_back_in_order(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), str(number)) for number in range(4)])
    await inbox.count(4)
    inbox.consumer.acknowledge_through(1)
    inbox.clear()
    session.recover()
    await inbox.count(3)
    assert inbox.texts == ["1", "2", "3"]
    assert inbox.attempts == [2, 2, 2]
    assert inbox.numbers == [5, 6, 7], "numbering goes on"
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(4)


@pytest_twisted.ensureDeferred
async def test_closing_a_connection_gives_unacknowledged_messages_to_others(
    deployment: Deployment,
) -> None:
    sender, taker, other = (
        await deployment.connect(),
        await deployment.connect(),
        await deployment.connect(),
    )
    session = sender.session()
    taken = taker.consumer(taker.session(), Queue("q"))
    session.send([text(Queue("q"), str(number)) for number in range(3)])
    await taken.count(3)
    taken.consumer.acknowledge_through(1)
    await taker.close()
    inbox = other.consumer(other.session(), Queue("q"))
    await inbox.count(2)
    assert inbox.texts == ["1", "2"]
    assert inbox.attempts == [2, 2]
    with pytest.raises(ProviderUnavailable):
        taker.connection.session(Mode.AUTO)


@pytest_twisted.ensureDeferred
async def test_deliveries_may_be_settled_after_a_close_that_keeps_them(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), str(number)) for number in range(3)])
    await inbox.count(3)
    inbox.consumer.close(requeue=False)
    inbox.consumer.acknowledge_through(2)
    session.send([text(Queue("q"), "more")])
    await settled_down(reactor)
    assert len(inbox.messages) == 3, "a closed consumer receives no more"
    other = client.consumer(client.session(), Queue("q"))
    await other.count(1)
    assert other.texts == ["more"]
    session.close()
    await other.count(2)
    assert other.texts == ["more", "2"]


@pytest_twisted.ensureDeferred
async def test_automatic_acknowledgement_follows_the_delivery(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session(Mode.AUTO)
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), "a")])
    await inbox.count(1)
    await settled_down(reactor)
    assert deployment.broker.queue(Queue("q")).count == 0


@pytest_twisted.ensureDeferred
async def test_completions_fire_in_the_order_asked_and_never_inside_the_call(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    session = client.session()
    fired: list[int] = []
    for number in range(4):
        if number % 2:
            session.send([text(Queue("q"), "x")])
        session.completion(lambda error, number=number: fired.append(number))  # type: ignore[misc]
        assert fired == []
    assert await completed(session) is None
    assert fired == [0, 1, 2, 3]


@pytest_twisted.ensureDeferred
async def test_a_run_is_taken_whole_or_not_at_all(deployment: Deployment) -> None:
    deployment.allow(deployment.rules + "queue.secret.produce.deny.user=*\n")
    client = await deployment.connect()
    session = client.session()
    run = [
        text(Queue("open"), "a"),
        text(Queue("open"), "b"),
        text(Queue("secret"), "c"),
        text(Queue("open"), "d"),
    ]
    with pytest.raises(MessageRejected) as refused:
        session.send(run)
    assert refused.value.index == 2
    assert isinstance(refused.value.cause, AccessDenied)
    inbox = client.consumer(session, Queue("open"))
    await settled_down(reactor)
    assert inbox.messages == []


@pytest_twisted.ensureDeferred
async def test_access_rules_hold_from_the_moment_they_are_loaded(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Queue("q"), "a")])
    deployment.allow(deployment.rules + "queue.q.produce.deny.user=*\n")
    with pytest.raises(MessageRejected):
        session.send([text(Queue("q"), "b")])


@pytest_twisted.ensureDeferred
async def test_a_user_who_is_one_no_more_loses_all_connections_and_nobody_else_does(
    deployment: Deployment,
) -> None:
    gone, more, denied, stays = [
        await deployment.connect(user) for user in ("gone", "gone", "denied", "stays")
    ]
    session = gone.session(Mode.TRANSACTED)
    session.send([text(Queue("q"), "never committed")])
    deployment.provider.readmit()
    deployment.users.deleted.add("gone")
    deployment.allow(deployment.rules + "connection.NORMAL.deny.user=denied\n")
    deployment.provider.readmit()
    await settled_down(reactor)
    assert [str(error) for client in (gone, more) for error in client.losses] == [
        "user 'gone' is refused: the user was deleted"
    ] * 2
    assert [type(error) for error in denied.losses] == [AccessDenied]
    assert stays.losses == []
    with pytest.raises(ProviderUnavailable):
        session.commit(lambda error: None)
    await completed(stays.session())
    assert deployment.broker.queue(Queue("q")).count == 0


@pytest_twisted.ensureDeferred
async def test_groups_that_changed_hold_for_connections_that_exist(deployment: Deployment) -> None:
    deployment.allow(deployment.rules + "queue.q.produce.deny.group=trainees\n")
    client = await deployment.connect("alice")
    session = client.session()
    session.send([text(Queue("q"), "a")])
    deployment.users.groups["alice"] = frozenset({"trainees"})
    deployment.provider.readmit()
    with pytest.raises(MessageRejected):
        session.send([text(Queue("q"), "b")])


@pytest_twisted.ensureDeferred
async def test_wrong_credentials_and_denied_services_are_refused(deployment: Deployment) -> None:
    with pytest.raises(AuthenticationFailed):
        await deployment.provider.connect(Credentials("guest", "wrong"), None, lambda error: None)
    deployment.allow(
        "version=JMQFileAccessControlModel/100\nconnection.NORMAL.allow.user=someone\n"
    )
    with pytest.raises(AccessDenied):
        await deployment.connect()


@pytest_twisted.ensureDeferred
async def test_a_client_id_belongs_to_one_connection_at_a_time(deployment: Deployment) -> None:
    first = await deployment.connect(client_id="me")
    with pytest.raises(ClientIdInUse):
        await deployment.connect(client_id="me")
    await first.close()
    await deployment.connect(client_id="me")


@pytest_twisted.ensureDeferred
async def test_selectors_choose_on_a_queue_and_leave_the_rest(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([with_properties(Queue("q"), str(number), {"n": number}) for number in range(20)])
    even = client.consumer(
        session, Queue("q"), selector="n IN ('x') OR n - 2 * (n / 2) = 0 AND n < 10"
    )
    low = client.consumer(session, Queue("q"), selector="n < 5")
    await even.until(lambda: True)
    await settled_down(reactor)
    got = sorted(int(body) for body in even.texts + low.texts)
    assert set(range(5)) <= set(got)
    rest = client.consumer(session, Queue("q"))
    await rest.count(20 - len(got))
    assert sorted(got + [int(body) for body in rest.texts]) == list(range(20))
    with pytest.raises(InvalidSelector):
        client.consumer(session, Queue("q"), selector="n =")


@pytest_twisted.ensureDeferred
async def test_a_topic_reaches_every_subscriber_and_nobody_later(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Topic("news"), "before")])
    inboxes = [client.consumer(client.session(), Topic("news")) for _ in range(3)]
    session.send([text(Topic("news"), "now")])
    for inbox in inboxes:
        await inbox.count(1)
        assert inbox.texts == ["now"]


@pytest_twisted.ensureDeferred
async def test_wildcards_cover_topics_that_exist_and_that_come(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Topic("a.b"), "no subscriber yet")])
    one_level = client.consumer(session, Topic("a.*"))
    rest = client.consumer(session, Topic("a.>"))
    session.send(
        [
            text(Topic("a.b"), "1"),
            text(Topic("a.b.c"), "2"),
            text(Topic("a"), "3"),
            text(Topic("a.new"), "4"),
        ]
    )
    await rest.count(3)
    assert rest.texts == ["1", "2", "4"]
    assert one_level.texts == ["1", "4"]
    for destination in (Topic("a.*"), Queue("a.*"), Queue(">")):
        with pytest.raises(MessageRejected) as refused:
            session.send([text(destination, "x")])
        assert isinstance(refused.value.cause, InvalidDestination)
    with pytest.raises(InvalidDestination):
        client.consumer(session, Queue("a.>"))


@pytest_twisted.ensureDeferred
async def test_no_local_leaves_out_what_the_connection_sent(deployment: Deployment) -> None:
    mine, others = await deployment.connect(), await deployment.connect()
    inbox = mine.consumer(mine.session(), Topic("t"), no_local=True)
    mine.session().send([text(Topic("t"), "mine")])
    others.session().send([text(Topic("t"), "theirs")])
    await inbox.count(1)
    assert inbox.texts == ["theirs"]


@pytest_twisted.ensureDeferred
async def test_a_durable_subscription_keeps_what_comes_while_nobody_listens(
    deployment: Deployment, kind: str
) -> None:
    client = await deployment.connect(client_id="me")
    inbox = client.consumer(client.session(), Topic("t"), durable_name="d")
    await client.close()
    sender = await deployment.connect()
    session = sender.session()
    session.send([text(Topic("t"), str(number)) for number in range(5)])
    assert await completed(session) is None
    if kind == "sqlite":
        await deployment.reopen()
    client = await deployment.connect(client_id="me")
    inbox = client.consumer(client.session(), Topic("t"), durable_name="d")
    await inbox.count(5)
    assert inbox.texts == ["0", "1", "2", "3", "4"]
    inbox.consumer.acknowledge_through(5)
    with pytest.raises(DurableInUse):
        client.consumer(client.session(), Topic("t"), durable_name="d")
    with pytest.raises(DurableInUse):
        await client.connection.unsubscribe("d")
    inbox.consumer.close()
    await client.connection.unsubscribe("d")
    with pytest.raises(UnknownSubscription):
        await client.connection.unsubscribe("d")


@pytest_twisted.ensureDeferred
async def test_a_durable_subscription_needs_a_client_id(deployment: Deployment) -> None:
    client = await deployment.connect()
    with pytest.raises(ClientIdRequired):
        client.consumer(client.session(), Topic("t"), durable_name="d")
    with pytest.raises(ClientIdRequired):
        await client.connection.unsubscribe("d")


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("change", ["topic", "selector", "no_local", "removed"])
async def test_the_backlog_of_a_redefined_or_removed_durable_subscription_is_dead(
    deployment: Deployment, change: str
) -> None:
    client = await deployment.connect(client_id="me")
    client.consumer(client.session(), Topic("t"), durable_name="d").consumer.close()
    sender = await deployment.connect()
    sender.session().send([text(Topic("t"), "owed")])
    if change == "removed":
        await client.connection.unsubscribe("d")
    else:
        specs: dict[str, dict[str, Any]] = {
            "topic": {},
            "selector": {"selector": "x = 1"},
            "no_local": {"no_local": True},
        }
        client.consumer(
            client.session(),
            Topic("u" if change == "topic" else "t"),
            durable_name="d",
            **specs[change],
        )
    dead = sender.consumer(sender.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    assert dead.texts == ["owed"]
    assert dead.messages[0].headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"


@pytest_twisted.ensureDeferred
async def test_temporary_destinations_are_their_creators_and_go_with_it(
    deployment: Deployment,
) -> None:
    creator, other = await deployment.connect(), await deployment.connect()
    temporary = creator.connection.temporary(Kind.QUEUE)
    with pytest.raises(InvalidDestination):
        other.consumer(other.session(), temporary)
    inbox = creator.consumer(creator.session(), temporary)
    other_session = other.session()
    other_session.send([text(temporary, "reply")])
    await inbox.count(1)
    await creator.close()
    with pytest.raises(MessageRejected) as refused:
        other_session.send([text(temporary, "late")])
    assert isinstance(refused.value.cause, InvalidDestination)


@pytest_twisted.ensureDeferred
async def test_a_transaction_is_seen_after_its_commit_only(deployment: Deployment) -> None:
    client = await deployment.connect()
    transacted = client.session(Mode.TRANSACTED)
    inbox = client.consumer(client.session(), Queue("out"))
    transacted.send([text(Queue("out"), "a"), text(Queue("out"), "b")])
    await settled_down(reactor)
    assert inbox.messages == []
    assert await committed(transacted) is None
    await inbox.count(2)
    transacted.send([text(Queue("out"), "c")])
    assert await rolled_back(transacted) is None
    await settled_down(reactor)
    assert inbox.texts == ["a", "b"]


@pytest_twisted.ensureDeferred
async def test_order_of_arrival_holds_across_a_commit_under_way(deployment: Deployment) -> None:
    client = await deployment.connect()
    transacted, plain = client.session(Mode.TRANSACTED), client.session()
    inbox = client.consumer(client.session(), Queue("q"))
    transacted.send([text(Queue("q"), "1"), text(Queue("q"), "2")])
    transacted.commit(lambda error: None)
    plain.send([text(Queue("q"), "3")])
    await inbox.count(3)
    assert inbox.texts == ["1", "2", "3"]


@pytest_twisted.ensureDeferred
async def test_a_transaction_takes_acknowledgements_and_sends_together(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    client.session().send([text(Queue("in"), str(number)) for number in range(4)])
    session = client.session(Mode.TRANSACTED)
    inbox = client.consumer(session, Queue("in"))
    await inbox.count(4)
    inbox.consumer.acknowledge_through(2)
    session.send([text(Queue("out"), "done")])
    assert await committed(session) is None
    inbox.consumer.acknowledge_through(4)
    session.send([text(Queue("out"), "undone")])
    inbox.clear()
    assert await rolled_back(session) is None
    await inbox.count(2)
    assert inbox.texts == ["2", "3"]
    assert inbox.attempts == [2, 2]
    out = client.consumer(client.session(), Queue("out"))
    await out.count(1)
    await settled_down(reactor)
    assert out.texts == ["done"]


@pytest_twisted.ensureDeferred
async def test_unacknowledged_deliveries_survive_a_commit(deployment: Deployment) -> None:
    client = await deployment.connect()
    client.session().send([text(Queue("in"), str(number)) for number in range(3)])
    session = client.session(Mode.TRANSACTED)
    inbox = client.consumer(session, Queue("in"))
    await inbox.count(3)
    inbox.consumer.acknowledge_through(1)
    assert await committed(session) is None
    inbox.consumer.acknowledge_through(3)
    assert await committed(session) is None
    assert deployment.broker.queue(Queue("in")).count == 0


@pytest_twisted.ensureDeferred
async def test_another_sessions_acknowledgement_can_join_a_transaction(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    transacted, individual = client.session(Mode.TRANSACTED), client.session(Mode.INDIVIDUAL)
    individual.send([text(Queue("in"), str(number)) for number in range(3)])
    inbox = client.consumer(individual, Queue("in"))
    await inbox.count(3)
    inbox.consumer.acknowledge([2], within=transacted)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([2])
    assert await rolled_back(transacted) is None
    inbox.consumer.acknowledge([2], within=transacted)
    inbox.consumer.acknowledge([1])
    assert await committed(transacted) is None
    assert deployment.broker.queue(Queue("in")).count == 1


@pytest_twisted.ensureDeferred
async def test_a_rejected_message_comes_again_after_its_pause_and_dies_in_the_end(
    deployment: Deployment,
) -> None:
    client = await deployment.connect()
    session = client.session(Mode.INDIVIDUAL)
    policy = RedeliveryChanges(
        maximum_redeliveries=2, initial_redelivery_delay=1, back_off_multiplier=1.0
    )
    inbox = client.consumer(session, Queue("q"), redelivery=policy)
    session.send([text(Queue("q"), "poison")])
    for attempt in (1, 2, 3):
        await inbox.count(attempt)
        assert inbox.attempts[-1] == attempt
        inbox.consumer.reject([inbox.numbers[-1]])
    dead = client.consumer(client.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    properties = dead.messages[0].headers.properties
    assert properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    assert properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 3
    assert deployment.broker.queue(Queue("q")).count == 0


@pytest_twisted.ensureDeferred
async def test_a_consumer_changes_of_the_redelivery_policy_what_it_names(
    deployment: Deployment,
) -> None:
    policy = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=600_000)
    deployment.broker.create(Queue("q"), DestinationProperties(redelivery=policy))
    client = await deployment.connect()
    session = client.session(Mode.INDIVIDUAL)
    inbox = client.consumer(
        session, Queue("q"), redelivery=RedeliveryChanges(initial_redelivery_delay=0)
    )
    session.send([text(Queue("q"), "poison")])
    for attempt in (1, 2):
        await inbox.count(attempt)
        inbox.consumer.reject([inbox.numbers[-1]])
    dead = client.consumer(client.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    assert dead.messages[0].headers.properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 2, (
        "the number is the queue's"
    )


@pytest_twisted.ensureDeferred
async def test_a_message_can_be_dead_at_once(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    inbox = client.consumer(session, Queue("q"))
    session.send([text(Queue("q"), "a"), text(Queue("q"), "b")])
    await inbox.count(2)
    inbox.consumer.reject([1], dead=DeadReason.UNDELIVERABLE)
    assert inbox.consumer.acknowledge_through(2) == 1
    dead = client.consumer(client.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    assert dead.texts == ["a"]


@pytest_twisted.ensureDeferred
async def test_an_expired_message_is_not_delivered_but_dead(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    now = deployment.turn.refresh()
    session.send(
        [text(Queue("q"), "old", expires=now - 1), text(Queue("q"), "good", expires=now + 60_000)]
    )
    inbox = client.consumer(session, Queue("q"))
    await inbox.count(1)
    assert inbox.texts == ["good"]
    dead = client.consumer(client.session(), Queue("mq.sys.dmq"))
    await dead.count(1)
    assert dead.texts == ["old"]
    assert dead.messages[0].headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "EXPIRED"


@pytest_twisted.ensureDeferred
async def test_a_browser_sees_everything_and_takes_nothing(deployment: Deployment) -> None:
    client = await deployment.connect()
    session = client.session()
    session.send([text(Queue("q"), str(number), priority=number % 3) for number in range(9)])
    browser = client.consumer(client.session(), Queue("q"), credit=5, browse=True)
    await browser.count(5)
    await settled_down(reactor)
    assert not browser.ended
    browser.consumer.grant(100)
    await browser.until(lambda: browser.ended)
    inbox = client.consumer(session, Queue("q"))
    await inbox.count(9)
    assert browser.texts == inbox.texts
    with pytest.raises(InvalidDestination):
        client.consumer(session, Topic("t"), browse=True)


LIMITED = Queue("limited")


def limited(behavior: LimitBehavior, **limits: Any) -> BrokerOptions:
    return BrokerOptions(
        destinations=((LIMITED, DestinationProperties(limit_behavior=behavior, **limits)),)
    )


@pytest_twisted.ensureDeferred
async def test_reject_newest_refuses_the_first_that_is_too_many(tmp_path: Path, kind: str) -> None:
    (tmp_path / "b").mkdir()
    deployment = Deployment(
        reactor, tmp_path / "b", kind, limited(LimitBehavior.REJECT_NEWEST, max_num_msgs=3)
    )
    client = await deployment.connect()
    session = client.session()
    with pytest.raises(MessageRejected) as refused:
        session.send([text(LIMITED, str(number)) for number in range(5)])
    assert refused.value.index == 3
    assert isinstance(refused.value.cause, DestinationFull)
    session.send([text(LIMITED, str(number)) for number in range(3)])
    with pytest.raises(MessageRejected):
        session.send([text(LIMITED, "3")])
    await deployment.close()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(
    ("behavior", "kept"),
    [
        (LimitBehavior.REMOVE_OLDEST, ["2", "1", "3"]),
        (LimitBehavior.REMOVE_LOW_PRIORITY, ["0", "2", "3"]),
    ],
)
async def test_room_is_made_as_the_destination_says(
    tmp_path: Path, kind: str, behavior: LimitBehavior, kept: list[str]
) -> None:
    (tmp_path / "b").mkdir()
    deployment = Deployment(reactor, tmp_path / "b", kind, limited(behavior, max_num_msgs=3))
    client = await deployment.connect()
    session = client.session()
    for number, priority in enumerate((9, 1, 5, 1)):
        session.send([text(LIMITED, str(number), priority=priority)])
    inbox = client.consumer(session, LIMITED)
    await inbox.count(3)
    assert inbox.texts == kept
    dead = client.consumer(session, Queue("mq.sys.dmq"))
    await dead.count(1)
    await deployment.close()


@pytest_twisted.ensureDeferred
async def test_flow_control_takes_everything_and_withholds_receipts(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "b").mkdir()
    deployment = Deployment(
        reactor, tmp_path / "b", kind, limited(LimitBehavior.FLOW_CONTROL, max_num_msgs=3)
    )
    client = await deployment.connect()
    session = client.session()
    session.send([text(LIMITED, str(number)) for number in range(4)])
    assert not session.writable()
    events: list[str] = []
    session.completion(lambda error: events.append("receipt"))
    session.on_writable(lambda: events.append("writable"))
    taker = client.session()
    inbox = client.consumer(taker, LIMITED)
    await inbox.count(4)
    assert await completed(taker) is None
    assert events == [], "the sender is held back while the limit stands"
    inbox.consumer.acknowledge_through(4)
    assert await completed(session) is None
    assert session.writable()
    await settled_down(reactor)
    assert sorted(events) == ["receipt", "writable"]
    await deployment.close()


@pytest_twisted.ensureDeferred
async def test_a_message_above_the_size_limits_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "b").mkdir()
    deployment = Deployment(
        reactor, tmp_path / "b", kind, limited(LimitBehavior.FLOW_CONTROL, max_bytes_per_msg=100)
    )
    client = await deployment.connect()
    session = client.session()
    with pytest.raises(MessageRejected) as refused:
        session.send([text(LIMITED, "x" * 200)])
    assert isinstance(refused.value.cause, MessageTooLarge)
    session.send([text(LIMITED, "x" * 20)])
    await deployment.close()
