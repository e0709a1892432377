"""What an administrator makes of destinations, and how they stand: at once, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import AdministrationRefused, BrokerAdministration
from gateway.broker.operator.ages import PATIENCE_S
from gateway.broker.operator.views import DestinationView
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import (
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    MessageTooLarge,
    TooManyConsumers,
)
from gateway.messaging.provider import Connection, Mode, Session
from tests.gateway.broker.administration import administration, connections, destinations, outcome
from tests.gateway.broker.brokers import Deployment, completed, settled_down, text
from tests.gateway.broker.stepped_broker import SlowClock, Stepped, Told, in_each_pass, texts

Q = Queue("q")
T = Topic("t")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, BrokerOptions(reap_time=10))


# --- creating


def test_a_created_destination_has_its_properties_and_is_not_reaped(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    assert (
        outcome(
            stepped,
            admin.create("queue", "q", {"maxNumMsgs": "10", "limitBehavior": "REMOVE_OLDEST"}),
        )
        == []
    )
    stepped.later(1000)
    found = admin.destination("queue", "q")
    assert (found.type, found.name, found.temporary, found.state, found.origin) == (
        "queue",
        "q",
        False,
        "RUNNING",
        "administrator",
    )
    assert found.administered == {"maxNumMsgs": "10", "limitBehavior": "REMOVE_OLDEST"}
    assert found.properties == {
        "maxNumMsgs": 10,
        "maxTotalMsgBytes": -1,
        "maxBytesPerMsg": -1,
        "limitBehavior": "REMOVE_OLDEST",
        "useDMQ": True,
        "deadLetterQueue": "",
        "isDMQ": False,
        "address": "",
        "lastValueKey": "",
        "maxNumActiveConsumers": -1,
        "maximumRedeliveries": 5,
        "initialRedeliveryDelay": 1000,
        "redeliveryDelay": 1000,
        "useExponentialBackOff": True,
        "backOffMultiplier": 2.0,
        "maximumRedeliveryDelay": 60000,
    }


def test_it_is_there_after_a_restart_without_having_had_a_message(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(
        stepped, admin.create("topic", "t", {"maxBytesPerMsg": "1k", "maximumRedeliveries": "1"})
    )
    outcome(stepped, admin.create("queue", "plain", {}))
    before = admin.destination("topic", "t")
    stepped.restart()
    again = administration(stepped)
    assert (again.destination("topic", "t"), before.properties["maxBytesPerMsg"]) == (before, 1024)
    assert again.destination("queue", "plain").origin == "administrator"
    stepped.later(1000)
    assert again.destination("queue", "plain").administered == {}


def test_created_is_said_when_it_is_durable(stepped: Stepped, admin: BrokerAdministration) -> None:
    told: list[object] = []
    admin.create("queue", "q", {}).addCallback(told.append)
    stepped.run_reactor()
    assert (stepped.disk.destinations, told) == ({}, [])
    stepped.run_until_idle()
    assert ([row.name for row in stepped.disk.destinations.values()], told) == (["q"], [[]])


def test_it_is_created_where_none_is_created_by_use(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(auto_queue=None))
    session = stepped.session()
    with pytest.raises(MessageRejected):
        session.send(texts(Q, ["x"]))
    outcome(stepped, administration(stepped).create("queue", "q", {}))
    session.send(texts(Q, ["x"]))
    assert stepped.broker.queue(Q).count == 1


@pytest.mark.parametrize(
    ("type", "name", "given", "sentence"),
    [
        ("queue", "mq.sys.dmq", {}, "queue:mq.sys.dmq exists already"),
        ("queue", "mq.other", {}, "begin with 'mq.'"),
        ("queue", "", {}, "needs a name"),
        ("queue", "a.*", {}, "wildcards"),
        ("topic", "a.>", {}, "wildcards"),
        ("topic", "a\nb", {}, "control character"),
        ("queue", "a\udcff", {}, "half a surrogate pair"),
        ("basket", "a", {}, "'basket' is no type of a destination; expected queue or topic"),
        (
            "queue",
            "a",
            {"maxNumMsg": "1"},
            "there is no property maxNumMsg; maxNumMsgs may be meant",
        ),
        ("queue", "a", {"zzz": "1"}, "there is no property zzz$"),
        ("queue", "a", {"maxNumMsgs": "many"}, "maxNumMsgs=many: expected a whole number"),
        ("queue", "a", {"limitBehavior": "PANIC"}, "limitBehavior=PANIC: expected .*REJECT_NEWEST"),
        (
            "topic",
            "a",
            {"maxNumActiveConsumers": "1"},
            "maxNumActiveConsumers is a property of queues",
        ),
    ],
)
def test_what_cannot_be_created_is_refused_with_the_reason(
    stepped: Stepped,
    admin: BrokerAdministration,
    type: str,
    name: str,
    given: dict[str, str],
    sentence: str,
) -> None:
    with pytest.raises((AdministrationRefused, InvalidDestination), match=sentence):
        outcome(stepped, admin.create(type, name, given))
    assert stepped.disk.destinations == {}
    assert [each.name for each in destinations(admin)] == ["mq.sys.dmq"]


def test_what_exists_is_not_created_again(stepped: Stepped, admin: BrokerAdministration) -> None:
    stepped.send(texts(Q, ["x"]))
    with pytest.raises(
        AdministrationRefused, match="exists already, made by its use; 'update dst'"
    ):
        outcome(stepped, admin.create("queue", "q", {}))
    assert admin.destination("queue", "q").origin == "client"


def test_properties_of_the_original_without_effect_are_said_and_not_kept(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    notes = outcome(
        stepped,
        admin.create(
            "queue", "q", {"maxNumProducers": "100", "maxNumMsgs": "5", "isLocalOnly": "false"}
        ),
    )
    assert notes == [
        "maxNumProducers has no effect: producers are not limited",
        "isLocalOnly has no effect: there is no cluster",
    ]
    assert admin.destination("queue", "q").administered == {"maxNumMsgs": "5"}


# --- updating


def test_an_update_takes_effect_at_once_and_survives(
    stepped: Stepped, admin: BrokerAdministration, session: Session
) -> None:
    outcome(stepped, admin.create("queue", "q", {"maxNumMsgs": "1"}))
    session.send(texts(Q, ["1"]))
    with pytest.raises(MessageRejected) as full:
        session.send(texts(Q, ["2"]))
    assert isinstance(full.value.cause, DestinationFull)
    outcome(stepped, admin.update("queue", "q", {"maxNumMsgs": "2", "maxBytesPerMsg": "100"}))
    session.send(texts(Q, ["2"]))
    with pytest.raises(MessageRejected) as large:
        session.send(texts(Q, ["x" * 200]))
    assert isinstance(large.value.cause, MessageTooLarge)
    stepped.run_until_idle()
    stepped.restart()
    found = administration(stepped).destination("queue", "q")
    assert (found.properties["maxNumMsgs"], found.properties["maxBytesPerMsg"], found.messages) == (
        2,
        100,
        2,
    )


def test_what_its_use_has_made_becomes_an_administrators_and_keeps_what_it_had(
    tmp_path: Path,
) -> None:
    auto = DestinationProperties(max_num_msgs=7, max_total_msg_bytes=5000)
    stepped = Stepped(tmp_path, BrokerOptions(auto_queue=auto, reap_time=10))
    stepped.send(texts(Q, ["x"]))
    outcome(stepped, administration(stepped).update("queue", "q", {"useDMQ": "false"}))
    expected = DestinationProperties(max_num_msgs=7, max_total_msg_bytes=5000, use_dmq=False)
    assert stepped.broker.queue(Q).properties == expected
    stepped.options = BrokerOptions(reap_time=10)
    stepped.restart()
    assert stepped.broker.queue(Q).properties == expected
    outcome(stepped, administration(stepped).purge("queue", "q"))
    stepped.later(100)
    assert Q in stepped.broker.destinations


def test_an_administrators_properties_lie_over_those_of_the_settings(tmp_path: Path) -> None:
    given = DestinationProperties(max_num_msgs=7, max_bytes_per_msg=100)
    stepped = Stepped(tmp_path, BrokerOptions(destinations=((Q, given),)))
    admin = administration(stepped)
    assert admin.destination("queue", "q").origin == "settings"
    outcome(stepped, admin.update("queue", "q", {"maxNumMsgs": "9"}))
    assert stepped.broker.queue(Q).properties == DestinationProperties(
        max_num_msgs=9, max_bytes_per_msg=100
    )
    stepped.options = BrokerOptions(
        destinations=((Q, DestinationProperties(max_num_msgs=8, max_bytes_per_msg=200)),)
    )
    stepped.restart()
    assert stepped.broker.queue(Q).properties == DestinationProperties(
        max_num_msgs=9, max_bytes_per_msg=200
    )
    assert administration(stepped).destination("queue", "q").administered == {"maxNumMsgs": "9"}
    stepped.options = BrokerOptions()
    stepped.restart()
    assert stepped.broker.queue(Q).properties == DestinationProperties(max_num_msgs=9)


def test_properties_that_settings_once_gave_stay_under_an_update(tmp_path: Path) -> None:
    given = DestinationProperties(max_num_msgs=7)
    stepped = Stepped(tmp_path, BrokerOptions(destinations=((Q, given),)))
    stepped.send(texts(Q, ["x"]))
    stepped.options = BrokerOptions()
    stepped.restart()
    outcome(stepped, administration(stepped).update("queue", "q", {"maxBytesPerMsg": "50"}))
    stepped.restart()
    assert stepped.broker.queue(Q).properties == DestinationProperties(
        max_num_msgs=7, max_bytes_per_msg=50
    )


@pytest.mark.parametrize("count", [20, 1000])
def test_a_lowered_limit_removes_the_oldest_slice_by_slice(
    stepped: Stepped, admin: BrokerAdministration, count: int
) -> None:
    stepped.send(texts(Q, range(count)))
    asked = admin.update("queue", "q", {"maxNumMsgs": "5", "limitBehavior": "REMOVE_OLDEST"})
    assert stepped.broker.queue(Q).count >= count - 100, "in one turn a hundred go"
    outcome(stepped, asked)
    inbox = stepped.receive(stepped.session(), Q)
    assert inbox.texts == [str(number) for number in range(count - 5, count)]
    dead = stepped.receive(stepped.session(Mode.AUTO), Queue("mq.sys.dmq"))
    assert len(dead.texts) == count - 5
    assert {
        message.headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] for message in dead.messages
    } == {DeadReason.OLDEST.value}


def test_a_lowered_limit_removes_what_only_the_store_has(tmp_path: Path) -> None:
    stepped = Stepped(
        tmp_path, memory=Memory(total=40 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)
    )
    stepped.send_each(texts(Q, range(100)))
    assert stepped.broker.queue(Q).dispatch.backlog.behind > 80
    outcome(
        stepped,
        administration(stepped).update(
            "queue", "q", {"maxNumMsgs": "5", "limitBehavior": "REMOVE_OLDEST"}
        ),
    )
    inbox = stepped.receive(stepped.session(), Q)
    assert inbox.texts == ["95", "96", "97", "98", "99"]


def test_senders_who_were_held_back_go_on_when_the_limit_is_raised(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(
        stepped, admin.create("queue", "q", {"maxNumMsgs": "2", "limitBehavior": "FLOW_CONTROL"})
    )
    session = stepped.session()
    session.send(texts(Q, ["1", "2"]))
    told, resumed = Told(), Told()
    session.completion(told)
    session.on_writable(lambda: resumed(None))
    stepped.run_until_idle()
    assert (told.results, resumed.results) == ([], [])
    outcome(stepped, admin.update("queue", "q", {"maxNumMsgs": "3"}))
    assert (told.well, resumed.well) == (True, True)


def test_a_lower_number_of_consumers_holds_for_new_ones(
    stepped: Stepped, admin: BrokerAdministration, session: Session
) -> None:
    inboxes = [stepped.consume(session, Q) for _ in range(2)]
    outcome(stepped, admin.update("queue", "q", {"maxNumActiveConsumers": "1"}))
    assert [inbox.failures for inbox in inboxes] == [[], []]
    with pytest.raises(TooManyConsumers):
        stepped.consume(session, Q)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("nowhere", {"maxNumMsgs": "1"}, "there is no queue 'nowhere'"),
        (
            "mq.sys.dmq",
            {"limitBehavior": "FLOW_CONTROL"},
            "limitBehavior=FLOW_CONTROL: the dead message queue cannot have that",
        ),
        ("mq.sys.dmq", {"useDMQ": "true"}, "useDMQ=true: the dead message queue cannot have that"),
        ("mq.sys.dmq", {}, "no property is given"),
    ],
)
def test_what_cannot_be_updated_is_refused(
    stepped: Stepped, admin: BrokerAdministration, name: str, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(AdministrationRefused, match=sentence):
        outcome(stepped, admin.update("queue", name, given))


def test_the_dead_message_queue_keeps_its_own_defaults(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(stepped, admin.update("queue", "mq.sys.dmq", {"maxNumMsgs": "1000"}))
    stepped.restart()
    found = administration(stepped).destination("queue", "mq.sys.dmq")
    assert (found.origin, found.administered) == ("broker", {"maxNumMsgs": "1000"})
    assert (found.properties["maxTotalMsgBytes"], found.properties["limitBehavior"]) == (
        1024**3,
        "REMOVE_OLDEST",
    )


# --- how they stand


def test_counts_of_a_queue(
    stepped: Stepped, admin: BrokerAdministration, individual: Session
) -> None:
    stepped.session().send(texts(Q, range(10)))
    inbox = stepped.receive(individual, Q, credit=4)
    inbox.consumer.acknowledge([1])
    stepped.reject(inbox, [2], delay_ms=100_000)
    found = admin.destination("queue", "q")
    size = inbox.messages[0].size
    assert (found.messages, found.octets, found.unacknowledged) == (9, 9 * size, 2)
    assert (found.messages_in, found.messages_out, found.octets_in, found.octets_out) == (
        10,
        1,
        10 * size,
        size,
    )
    assert (found.peak_messages, found.peak_octets) == (10, 10 * size)
    assert (found.producers, found.consumers) == (1, 1)
    stepped.close(individual)
    stepped.restart()
    found = administration(stepped).destination("queue", "q")
    assert (found.messages, found.messages_in, found.messages_out, found.peak_messages) == (
        9,
        0,
        0,
        9,
    )


def test_the_age_of_the_oldest_message(stepped: Stepped, admin: BrokerAdministration) -> None:
    """Also of one that a consumer has, that pauses, or is in the store only."""

    def age(asked: BrokerAdministration) -> int:
        return asked.destination("queue", "q").oldest_age_ms

    admin.create("queue", "q", {})
    assert age(admin) == 0
    stepped.session().send(texts(Q, range(3)))
    stepped.later(10)
    assert 10_000 <= age(admin) < 20_000
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.receive(session, Q, credit=1)
    assert 10_000 <= age(admin) < 20_000
    stepped.reject(inbox, [1], delay_ms=100_000)
    assert 10_000 <= age(admin) < 20_000
    stepped.close(session)
    stepped.restart()
    anew = administration(stepped)
    assert age(anew) == -1
    stepped.run_until_idle()
    assert age(anew) >= 10_000


def test_after_a_restart_the_first_look_waits_for_the_age(stepped: Stepped) -> None:
    stepped.session().send(texts(Q, range(3)))
    stepped.later(10)
    stepped.restart()
    found: list[DestinationView] = []
    outcome(stepped, administration(stepped).list_destinations(found.append, "queue"))
    assert {each.name: each.oldest_age_ms >= 10_000 for each in found} == {
        "mq.sys.dmq": False,
        "q": True,
    }
    stepped.restart()
    assert outcome(stepped, administration(stepped).look("queue", "q")).oldest_age_ms >= 10_000


def test_no_look_waits_for_long(stepped: Stepped) -> None:
    stepped.send(texts(Q, range(3)))
    stepped.restart()
    admin = administration(stepped)
    looked: list[DestinationView] = []
    stepped.broker.turn.suspend()
    admin.look("queue", "q").addCallback(looked.append)
    assert looked == []
    stepped.clock.advance(PATIENCE_S)
    assert [each.oldest_age_ms for each in looked] == [-1]
    # It was late: no look waits until it has answered.
    admin.look("queue", "q").addCallback(looked.append)
    assert [each.oldest_age_ms for each in looked] == [-1, -1]
    stepped.broker.turn.resume()
    stepped.run_until_idle()
    assert outcome(stepped, admin.look("queue", "q")).oldest_age_ms > 0


def test_counts_of_a_topic_with_patterns(stepped: Stepped, admin: BrokerAdministration) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, T)
    stepped.consume(session, T, durable_name="d").consumer.close()
    stepped.consume(session, Topic("*"))
    stepped.consume(session, Topic("*"))
    stepped.consume(session, Topic(">"))
    stepped.send(texts(T, ["a", "b"]))
    found = admin.destination("topic", "t")
    assert (found.messages, found.messages_in, found.unacknowledged) == (10, 10, 2)
    assert (found.consumers, found.wildcards) == (5, {"*": 2, ">": 1})
    (durable,) = admin.durables()
    assert (durable.name, durable.client_id, durable.topic, durable.messages, durable.active) == (
        "d",
        "me",
        "t",
        2,
        False,
    )


def test_messages_of_a_transaction_are_told_apart_until_its_commit(
    stepped: Stepped, admin: BrokerAdministration, transacted: Session
) -> None:
    transacted.send(texts(Q, ["a", "b"]))
    told = Told()
    transacted.commit(told)
    stepped.run_reactor()
    found = admin.destination("queue", "q")
    assert (found.messages, found.in_transaction) == (0, 2)
    assert found.octets_in_transaction > 0
    stepped.run_until_idle()
    assert told.well
    found = admin.destination("queue", "q")
    assert (found.messages, found.in_transaction) == (2, 0)


def test_the_list_has_queues_first_and_temporary_ones_if_wanted(
    stepped: Stepped, admin: BrokerAdministration, connection: Connection
) -> None:
    temporary = connection.temporary(Q.kind)
    connection.session(Mode.AUTO).send(
        [*texts(T, ["x"]), *texts(Queue("z"), ["x"]), *texts(Queue("a"), ["x"])]
    )
    assert [(each.type, each.name) for each in destinations(admin)] == [
        ("queue", "a"),
        ("queue", "mq.sys.dmq"),
        ("queue", "z"),
        ("topic", "t"),
    ]
    assert [each.name for each in destinations(admin, "topic")] == ["t"]
    assert {each.name for each in destinations(admin, "queue", True)} == {
        "a",
        "z",
        "mq.sys.dmq",
        temporary.name,
    }
    found = admin.destination("queue", temporary.name)
    assert (found.temporary, found.origin) == (True, "client")
    with pytest.raises(AdministrationRefused, match="is temporary"):
        outcome(stepped, admin.update("queue", temporary.name, {"maxNumMsgs": "1"}))
    with pytest.raises(AdministrationRefused, match="'x' is no type"):
        destinations(admin, "x")


def test_connections_and_who_is_behind_them(stepped: Stepped) -> None:
    class Behind:
        service, address, port, protocol, session = "stomp", "192.0.2.7", 4711, "STOMP 1.2", "abc"
        silent_ms, beat_ms = 1_500, 1_000

        def __init__(self, connection: object) -> None:
            self.connection = connection

    outer, inner = stepped.connect(client_id="me"), stepped.connect()
    admin = BrokerAdministration(stepped.provider, lambda: [Behind(outer)])
    session = outer.session(Mode.CLIENT)
    session.send(texts(Q, ["a", "b", "c"]))
    inbox = stepped.receive(session, Q, credit=2)
    inbox.consumer.acknowledge_through(1)
    first, second = connections(stepped, admin)
    assert (first.user, first.client_id, first.service, first.address, first.port) == (
        "guest",
        "me",
        "stomp",
        "192.0.2.7",
        4711,
    )
    assert (first.protocol, first.session, first.since_ms) == ("STOMP 1.2", "abc", 1_000_000_000)
    assert (first.silent_ms, first.beat_ms, first.late) == (1_500, 1_000, True)
    assert (first.credit, first.held_since_ms) == (0, 1_000_000_000)
    assert (second.silent_ms, second.beat_ms, second.late) == (-1, 0, False)
    assert (second.credit, second.held_since_ms) == (0, 0)
    assert (
        first.producers,
        first.consumers,
        first.sent,
        first.delivered,
        first.unacknowledged,
    ) == (1, 1, 3, 2, 1)
    assert (second.service, second.address, second.port, second.client_id) == ("bridge", "", 0, "")
    assert second.id > first.id
    assert [each.id for each in connections(stepped, admin, "bridge")] == [second.id]
    assert inner is not outer


def test_the_broker_as_a_whole(stepped: Stepped) -> None:
    admin = BrokerAdministration(stepped.provider, lambda: (), varhome="/var/imq", store="memory")
    session = stepped.session(client_id="me")
    session.send([*texts(Q, ["a"]), *texts(Queue("mq.sys.dmq"), ["b"])])
    stepped.consume(session, T, durable_name="d")
    stepped.later(5)
    found = outcome(stepped, admin.broker())
    assert (found.instance, found.varhome, found.store, found.store_id) == (
        "imqbroker",
        "/var/imq",
        "memory",
        "step",
    )
    assert (
        found.messages,
        found.dead_messages,
        found.destinations,
        found.durables,
        found.connections,
    ) == (2, 1, 3, 1, 1)
    assert (found.started_ms, found.uptime_ms // 1000, found.accepted, found.refusing) == (
        1_000_000_000,
        5,
        2,
        "",
    )
    assert 0 < found.octets < found.memory_used < found.memory_most
    assert (found.auto_create_queues, found.auto_create_topics, found.max_message_octets) == (
        True,
        True,
        70 * 1024 * 1024,
    )


# --- real stores


@pytest.fixture(params=["memory", "sqlite"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Deployment(reactor, tmp_path, request.param)
    yield made
    pytest_twisted.blockon(Deferred.fromCoroutine(made.close()))


@pytest_twisted.ensureDeferred
async def test_all_of_it_on_a_real_store(deployment: Deployment) -> None:
    admin = BrokerAdministration(deployment.provider, lambda: ())
    await admin.create("queue", "q", {"maxNumMsgs": "3", "useDMQ": "false"})
    await admin.create("topic", "t", {})
    await admin.update("queue", "q", {"maxNumMsgs": "4", "limitBehavior": "REMOVE_OLDEST"})
    client = await deployment.connect(client_id="me")
    session = client.session()
    session.send([text(Q, str(number)) for number in range(6)])
    client.consumer(session, T, durable_name="d").consumer.close()
    session.send([text(T, "for d")])
    assert await completed(session) is None
    await settled_down(reactor)
    found = admin.destination("queue", "q")
    assert (found.messages, found.properties["limitBehavior"]) == (
        4,
        LimitBehavior.REMOVE_OLDEST.value,
    )
    await client.close()
    if deployment.kind == "sqlite":
        await deployment.reopen()
        admin = BrokerAdministration(deployment.provider, lambda: ())
        again = admin.destination("queue", "q")
        assert (again.properties, again.messages, again.origin) == (
            found.properties,
            4,
            "administrator",
        )
        assert admin.destination("topic", "t").origin == "administrator"
    assert await admin.purge("queue", "q") == 4
    await admin.destroy_durable("d", "me")
    await admin.destroy("topic", "t")
    await admin.destroy("queue", "q")
    assert [each.name for each in destinations(admin)] == ["mq.sys.dmq"]
    if deployment.kind == "sqlite":
        await deployment.reopen()
        admin = BrokerAdministration(deployment.provider, lambda: ())
        left: list[DestinationView] = []
        # The age of what is dead is read.
        await admin.list_destinations(left.append)
        assert [each.name for each in left] == ["mq.sys.dmq"]
        assert (admin.durables(), (await admin.broker()).messages) == ([], 1), (
            "what the durable subscription had is dead"
        )


def test_many_destinations_are_listed_a_few_in_each_turn(tmp_path: Path) -> None:
    clock = SlowClock()
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0), clock=clock)
    admin = administration(stepped)
    sender = stepped.session()
    names = [f"q{number}" for number in range(300)]
    stepped.send_each([text(Queue(name), "x") for name in names], sender)
    # Two looks at the clock are all that a turn has time for.
    clock.tick = 0.0025
    found: list[DestinationView] = []
    ended: list[None] = []
    admin.list_destinations(found.append, "queue").addCallback(ended.append)
    assert len(found) <= 5, "others had to wait for all of it"
    stepped.broker.remove(stepped.broker.queue(Queue("q99")))
    stepped.broker.create(Queue("zz"))
    rises = in_each_pass(stepped, 0.01, lambda: len(found))
    assert max(rises) <= 5
    assert ended == [None]
    assert [each.name for each in found] == sorted(["mq.sys.dmq", *names[:99], *names[100:]])
    assert {each.producers for each in found if each.name != "mq.sys.dmq"} == {1}
