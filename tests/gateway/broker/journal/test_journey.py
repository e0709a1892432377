"""What the journal is told of messages at the broker, step by step, against what happens to
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.broker.properties.destination_properties import LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.journal.journal import Journal
from gateway.journal.lines import Lines
from gateway.journal.schema import HEAD, Level
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Mode
from gateway.opened_broker import tell
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import OTHER, Branching, branched, fill, xid
from tests.gateway.journal.reading import Event, Line, events_of, journeys

Q = Queue("q")
T = Topic("t")
DMQ = Queue("mq.sys.dmq")


class Recorded:
    """A journal that keeps lines as its reader would find them."""

    def __init__(
        self, level: Level = Level.ALL, headers: bool = False, bodies: bool = False
    ) -> None:
        self.level = level
        self.headers = headers
        self.bodies = bodies
        self.tracer = None
        self.lines: list[Line] = []
        self._lines = Lines("run", "test")

    def add(self, fields: Mapping[str, object], octets: int = 0) -> None:
        self.lines.append(json.loads(self._lines.line(len(self.lines) + 1, fields)))

    @property
    def events(self) -> list[Event]:
        return events_of(self.lines)

    @property
    def steps(self) -> dict[str, list[str]]:
        return journeys(self.events)

    def clear(self) -> None:
        self.lines.clear()


def record(stepped: Stepped, level: Level = Level.ALL, **options: bool) -> Recorded:
    journal = Recorded(level, **options)
    tell(stepped.broker, cast(Journal, journal))
    return journal


@pytest.fixture
def journal(stepped: Stepped) -> Recorded:
    return record(stepped)


def sent(stepped: Stepped, destination: Destination, count: int, **headers: Any) -> list[Message]:
    messages = texts(destination, range(count), **headers)
    stepped.session(Mode.AUTO).send(messages)
    return messages


def each(messages: list[Message], *steps: str) -> dict[str, list[str]]:
    """All of them took these."""
    return {message.message_id: list(steps) for message in messages}


def ids(messages: list[Message]) -> list[str]:
    return [message.message_id for message in messages]


def test_what_is_not_stored_is_produced_delivered_acknowledged_and_deleted(
    stepped: Stepped, journal: Recorded
) -> None:
    inbox = stepped.consume(stepped.session(), Q, name="s1")
    messages = sent(stepped, Q, 1000, persistent=False)
    stepped.run_until_idle()
    stepped.acknowledge_through(inbox, 1000)
    assert [line["steps"] for line in journal.lines] == [
        ["produced"],
        ["routed", "delivered"],
        ["acknowledged", "deleted"],
    ]
    assert journal.steps == each(
        messages, "produced", "routed", "delivered", "acknowledged", "deleted"
    )
    produced, delivered, _ = journal.lines
    assert produced["runs"] == delivered["runs"] == [[messages[0].seq, 1000, 1]]
    assert produced["sizes"] == [len(message.body) for message in messages]
    assert produced["timestamp"] == messages[0].timestamp == produced["time"] // 1000
    assert (produced["destination"], produced["connection"], produced["user"]) == (
        "queue:q",
        2,
        "guest",
    )
    assert (delivered["destination"], delivered["connection"], delivered["subscription"]) == (
        "queue:q",
        1,
        "s1",
    )


def test_what_is_stored_is_told_when_it_is_durable(stepped: Stepped, journal: Recorded) -> None:
    session = stepped.session(Mode.AUTO)
    messages = texts(Q, range(3))
    session.send(messages)
    told = Told()
    session.completion(told)
    stepped.run_reactor()
    assert [line["steps"] for line in journal.lines] == [["produced"]]
    stepped.run_until_idle()
    assert told.well
    assert [line["steps"] for line in journal.lines] == [["produced"], ["stored"], ["confirmed"]]
    assert [line.get("connection") for line in journal.lines] == [1, None, 1]
    inbox = stepped.receive(stepped.session(), Q)
    journal.clear()
    inbox.consumer.acknowledge_through(3)
    stepped.run_reactor()
    assert [line["steps"] for line in journal.lines] == [["acknowledged"]]
    stepped.run_until_idle()
    assert [line["steps"] for line in journal.lines] == [["acknowledged"], ["deleted"]]
    assert set(journal.steps) == set(ids(messages))


def test_what_never_touches_the_disk_was_not_stored(stepped: Stepped, journal: Recorded) -> None:
    inbox = stepped.consume(stepped.session(Mode.AUTO), Q)
    session = stepped.session(Mode.AUTO)
    session.send(texts(Q, "ab"))
    stepped.complete(session)
    assert inbox.texts == ["a", "b"]
    assert {tuple(steps) for steps in journal.steps.values()} == {
        ("produced", "routed", "delivered", "acknowledged", "deleted", "confirmed"),
    }


def test_a_promise_speaks_of_what_was_sent_before_it(stepped: Stepped, journal: Recorded) -> None:
    session = stepped.session(Mode.AUTO)
    messages = texts(Q, range(4), persistent=False)
    session.send(messages[:2])
    other = stepped.session(Mode.AUTO)
    other.send([text(Q, "other", persistent=False)])
    session.send(messages[2:3])
    session.completion(Told())
    stepped.send(messages[3:], session)
    assert [event.id for event in journal.events if event.step == "confirmed"] == ids(messages[:3])
    stepped.complete(session)
    assert [event.id for event in journal.events if event.step == "confirmed"] == ids(messages)


def test_several_runs_of_one_turn_are_one_line(stepped: Stepped, journal: Recorded) -> None:
    session = stepped.session(Mode.AUTO)
    stepped.send_each([text(Q, str(body), persistent=False) for body in range(20)], session)
    assert [(line["steps"], line["runs"]) for line in journal.lines] == [
        (["produced"], [[1, 20, 1]])
    ]


def test_a_transaction_is_told_when_it_is_committed(stepped: Stepped, journal: Recorded) -> None:
    sent(stepped, Q, 2)
    stepped.run_until_idle()
    session = stepped.session(Mode.TRANSACTED)
    inbox = stepped.receive(session, Q)
    journal.clear()
    inbox.consumer.acknowledge_through(2)
    more = texts(Queue("r"), "xy")
    stepped.send(more, session)
    assert journal.lines == []
    assert stepped.commit(session).well
    assert journal.steps == {
        **each(more, "produced", "stored", "confirmed"),
        **each(inbox.messages, "acknowledged", "deleted", "acknowledgement confirmed"),
    }


def test_a_rollback_returns_and_delivers_again(stepped: Stepped, journal: Recorded) -> None:
    messages = sent(stepped, Q, 3, persistent=False)
    session = stepped.session(Mode.TRANSACTED)
    inbox = stepped.receive(session, Q)
    inbox.consumer.acknowledge_through(2)
    session.rollback(Told())
    stepped.run_until_idle()
    assert journal.steps == each(
        messages, "produced", "routed", "delivered", "returned", "routed", "redelivered"
    )
    assert (journal.lines[-1]["attempts"], journal.lines[-2]["reason"]) == ([2, 2, 2], "unsettled")


def test_what_comes_again_is_told_apart_from_what_comes_first(
    stepped: Stepped, journal: Recorded
) -> None:
    messages = sent(stepped, Q, 1, persistent=False)
    session = stepped.session()
    stepped.receive(session, Q)
    session.close()
    messages += sent(stepped, Q, 1, persistent=False)
    stepped.run_until_idle()
    journal.clear()
    stepped.receive(stepped.session(), Q)
    assert journal.steps == {
        messages[0].message_id: ["routed", "redelivered"],
        messages[1].message_id: ["routed", "delivered"],
    }


def test_a_refusal_returns_and_the_dead_keep_their_ids(stepped: Stepped, journal: Recorded) -> None:
    (message,) = sent(stepped, Q, 1)
    inbox = stepped.receive(stepped.session(), Q)
    stepped.reject(inbox, [1], dead=DeadReason.UNDELIVERABLE)
    assert journal.steps == {
        message.message_id: [
            "produced",
            "routed",
            "delivered",
            "stored",
            "returned",
            "dead",
            "stored",
            "deleted",
        ],
    }
    (dead,) = [event for event in journal.events if event.step == "dead"]
    assert (dead.line["reason"], dead.line["comment"]) == (
        "UNDELIVERABLE",
        "refused by its consumer once",
    )
    assert dead.line["destination"] == "queue:q"
    # The copy has a number of its own, from which its id does not follow.
    journal.clear()
    graveyard = stepped.receive(stepped.session(), DMQ)
    stepped.acknowledge(graveyard, [1])
    assert graveyard.messages[0].seq != message.seq
    assert journal.steps == {message.message_id: ["routed", "delivered", "acknowledged", "deleted"]}
    assert {line["destination"] for line in journal.lines} == {"queue:mq.sys.dmq"}


def test_what_is_sent_after_one_with_an_id_of_its_own_is_numbers_again(
    stepped: Stepped, journal: Recorded
) -> None:
    foreign = text(Q, "b", persistent=False)
    foreign.message_id = "ID:elsewhere"
    run = [text(Q, "a", persistent=False), foreign, text(Q, "c", persistent=False)]
    stepped.session(Mode.AUTO).send(run)
    stepped.run_until_idle()
    assert journal.lines[-1]["ids"] == ids(run)
    later = sent(stepped, Q, 2, persistent=False)
    inbox = stepped.receive(stepped.session(), Q, credit=3)
    assert journal.steps[foreign.message_id] == ["produced", "routed", "delivered"]
    stepped.grant(inbox, 10)
    assert journal.lines[-1]["runs"] == [[later[0].seq, 2, 1]]
    assert journal.steps == each(run + later, "produced", "routed", "delivered")


def test_after_a_restart_ids_are_those_that_messages_have(stepped: Stepped) -> None:
    foreign = text(Q, "b")
    foreign.message_id = "ID:elsewhere"
    run = [text(Q, "a"), foreign, text(Q, "c")]
    stepped.session(Mode.AUTO).send(run)
    stepped.run_until_idle()
    stepped.restart()
    journal = record(stepped)
    new = sent(stepped, Q, 1)
    inbox = stepped.receive(stepped.session(), Q)
    stepped.acknowledge_through(inbox, 4)
    assert list(journal.steps) == [new[0].message_id, *ids(run)]
    assert journal.steps[foreign.message_id] == ["routed", "delivered", "acknowledged", "deleted"]


def test_what_expires_is_told_with_its_reason(stepped: Stepped, journal: Recorded) -> None:
    messages = sent(stepped, Q, 2, expires=stepped.now_ms + 1000)
    stepped.run_until_idle()
    stepped.later(120)
    assert [event.id for event in journal.events if event.step == "expired"] == ids(messages)
    (line,) = [line for line in journal.lines if "expired" in line["steps"]]
    assert (line["reason"], line["comment"]) == ("EXPIRED", "expired while it waited")
    assert journal.steps[messages[0].message_id] == [
        "produced",
        "stored",
        "expired",
        "stored",
        "deleted",
    ]


def test_each_subscription_of_a_topic_has_its_own(stepped: Stepped, journal: Recorded) -> None:
    durable = stepped.connect("me").session(Mode.CLIENT)
    first = stepped.consume(durable, T, durable_name="d")
    stepped.consume(stepped.session(Mode.AUTO), T, name="n")
    messages = sent(stepped, T, 2)
    stepped.run_until_idle()
    mine = [event for event in journal.events if event.line.get("subscription") == "n"]
    assert journeys(mine) == each(messages, "routed", "delivered", "acknowledged", "deleted")
    stepped.acknowledge_through(first, 2)
    mine = [event for event in journal.events if event.line.get("subscription") == "d"]
    assert journeys(mine) == each(messages, "routed", "delivered", "acknowledged", "deleted")
    assert [event.id for event in journal.events if event.step == "stored"] == ids(messages)


def test_a_queue_routes_by_the_selector_of_the_consumer_it_chooses(
    stepped: Stepped, journal: Recorded
) -> None:
    kinds = {"a": "kind = 'a'", "b": "kind <> 'a'"}
    for kind, selector in kinds.items():
        stepped.consume(stepped.session(Mode.AUTO), Q, name=kind, selector=selector)
    plain = Queue("plain")
    stepped.consume(stepped.session(Mode.AUTO), plain, name="plain")
    messages = {kind: sent(stepped, Q, 2, properties={"kind": kind}) for kind in kinds}
    sent(stepped, plain, 1)
    stepped.run_until_idle()
    routed = [event for event in journal.events if event.step == "routed"]
    for kind, selector in kinds.items():
        mine = [event for event in routed if event.line["subscription"] == kind]
        assert [event.id for event in mine] == ids(messages[kind])
        assert {event.line["selector"] for event in mine} == {selector}
    (other,) = [event for event in routed if event.line["subscription"] == "plain"]
    assert "selector" not in other.line


def test_a_topic_routes_on_arrival_also_to_a_subscriber_that_is_away(
    stepped: Stepped, journal: Recorded
) -> None:
    session = stepped.connect("me").session(Mode.CLIENT)
    selected: dict[str, Any] = {"durable_name": "d", "selector": "n > 1"}
    stepped.consume(session, T, **selected).consumer.close()
    messages = [text(T, str(n), properties={"n": n}) for n in range(4)]
    stepped.session(Mode.AUTO).send(messages)
    stepped.run_until_idle()
    routed = [event for event in journal.events if event.step == "routed"]
    assert [event.id for event in routed] == ids(messages[2:])
    assert {(event.line["subscription"], event.line["selector"]) for event in routed} == {
        ("d", "n > 1")
    }
    assert "delivered" not in {event.step for event in journal.events}
    inbox = stepped.receive(session, T, **selected)
    inbox.consumer.acknowledge_through(2)
    stepped.complete(session)
    mine = [event for event in journal.events if event.line.get("subscription") == "d"]
    assert journeys(mine) == each(
        messages[2:], "routed", "delivered", "acknowledged", "deleted", "acknowledgement confirmed"
    )


def test_what_is_never_confirmed_takes_a_bounded_memory(
    stepped: Stepped, journal: Recorded
) -> None:
    messages = sent(stepped, Q, 40_000, persistent=False)
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.receive(session, Q, credit=40_000)
    # No two of a run are next to each other, so each has a name of its own.
    inbox.consumer.acknowledge(list(range(1, 40_000, 2)))
    for number in range(2, 40_000, 4):
        inbox.consumer.acknowledge([number])
    stepped.complete(session)
    confirmed = [e.id for e in journal.events if e.step == "acknowledgement confirmed"]
    newest = ids(messages[1::4])
    assert 8_000 <= len(confirmed) <= 16_384
    assert confirmed[-1] == newest[-1]


def test_a_pattern_has_messages_of_several_topics(stepped: Stepped, journal: Recorded) -> None:
    inbox = stepped.consume(stepped.session(), Topic("t.*"), name="w")
    for name in "aba":
        sent(stepped, Topic(f"t.{name}"), 1)
    stepped.run_until_idle()
    stepped.acknowledge_through(inbox, 3)
    truth = {message.message_id: str(message.headers.destination) for message in inbox.messages}
    assert {event.id: event.line["destination"] for event in journal.events} == truth
    assert all(
        steps == ["produced", "routed", "delivered", "acknowledged", "deleted"]
        for steps in journal.steps.values()
    )


def test_a_topic_without_subscriptions_keeps_nothing(stepped: Stepped, journal: Recorded) -> None:
    messages = sent(stepped, T, 2)
    stepped.run_until_idle()
    assert journal.steps == each(messages, "produced", "deleted")


def test_browsing_is_no_step(stepped: Stepped, journal: Recorded) -> None:
    sent(stepped, Q, 2, persistent=False)
    stepped.receive(stepped.session(Mode.AUTO), Q, browse=True)
    assert [line["steps"] for line in journal.lines] == [["produced"]]


def test_a_purge_is_told_also_of_what_is_in_the_store_only(stepped: Stepped) -> None:
    foreign = text(Q, "b")
    foreign.message_id = "ID:elsewhere"
    run = [text(Q, "a"), foreign]
    stepped.session(Mode.AUTO).send(run)
    stepped.run_until_idle()
    stepped.restart()
    journal = record(stepped)
    more = sent(stepped, Q, 2, persistent=False)
    stepped.run_until_idle()
    stepped.remove(stepped.broker.queue(Q))
    deleted = [event for event in journal.events if event.step == "deleted"]
    assert {event.id for event in deleted} == set(ids(run + more))
    assert {event.line["reason"] for event in deleted} == {"removed"}


@pytest.mark.parametrize("level", [Level.DEAD, Level.LINKS])
def test_below_all_only_the_dead_are_told(stepped: Stepped, level: Level) -> None:
    journal = record(stepped, level)
    inbox = stepped.consume(stepped.session(), Q)
    messages = sent(stepped, Q, 2)
    stepped.run_until_idle()
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    stepped.acknowledge(inbox, [2])
    assert journal.steps == {messages[0].message_id: ["dead"]}
    record(stepped, Level.OFF)
    sent(stepped, Q, 1)
    stepped.run_until_idle()
    assert stepped.broker.acceptance.journey is None
    assert stepped.broker.dead_letters.journal is None


def test_headers_and_bodies_where_they_are_wanted(stepped: Stepped) -> None:
    journal = record(stepped, headers=True, bodies=True)
    message = text(Q, "hé", persistent=False, type="greeting", properties={"n": 5, "yes": True})
    stepped.session(Mode.AUTO).send([message])
    stepped.run_until_idle()
    (line,) = journal.lines
    (headers,) = line["headers"]
    assert headers.pop(HEAD)
    assert headers == {
        "JMSDestination": "queue:q",
        "JMSDeliveryMode": "NON_PERSISTENT",
        "JMSPriority": "4",
        "JMSType": "greeting",
        "n": "5",
        "yes": "true",
    }
    assert (line["bodies"], line["body_types"]) == (["aMOp"], ["TEXT"])


def test_what_a_limit_gives_up_is_told(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0))
    journal = record(stepped)
    queue = stepped.broker.queue(Q)
    queue.properties = replace(
        queue.properties, max_num_msgs=1, limit_behavior=LimitBehavior.REMOVE_OLDEST
    )
    messages = sent(stepped, Q, 3, persistent=False)
    stepped.run_until_idle()
    dead = [event for event in journal.events if event.step == "dead"]
    assert [event.id for event in dead] == ids(messages[:2])
    assert {event.line["reason"] for event in dead} == {"OLDEST"}


def work(stepped: Stepped) -> Branching:
    """A branch that has acknowledged two of three messages, and sent two to another queue."""
    fill(stepped, 3)
    xa = Branching(stepped)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 2)
    xa.session.send(texts(OTHER, "ab"))
    xa.end(xid(1))
    return xa


def test_a_branch_that_is_committed_in_one_phase(tmp_path: Path) -> None:
    stepped = branched(tmp_path)
    journal = record(stepped)
    xa = work(stepped)
    journal.clear()
    xa.commit(xid(1), one_phase=True)
    sends, taken = (
        ["produced", "stored", "confirmed"],
        ["acknowledged", "deleted", "acknowledgement confirmed"],
    )
    assert [steps for steps in journal.steps.values() if steps in (sends, taken)] == [sends] * 2 + [
        taken
    ] * 2
    assert len(journal.steps) == 4


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_branch_that_was_prepared(tmp_path: Path, commit: bool, restart: bool) -> None:
    stepped = branched(tmp_path)
    journal = record(stepped)
    xa = work(stepped)
    journal.clear()
    xa.prepare(xid(1))
    held = list(journal.steps)
    assert [event.line["destination"] for event in journal.events] == ["queue:other"] * 4
    assert list(journal.steps.values()) == [["produced", "stored"]] * 2
    if restart:
        stepped.restart()
        journal = record(stepped)
        xa = Branching(stepped)
    journal.clear()
    if commit:
        xa.commit(xid(1))
    else:
        xa.rollback(xid(1))
    stepped.run_until_idle()
    others = journeys(
        event for event in journal.events if event.line["destination"] == "queue:other"
    )
    mine = journeys(event for event in journal.events if event.line["destination"] == "queue:q")
    if commit:
        assert others == {id: ["confirmed"] for id in held}
        assert list(mine.values()) == [["acknowledged", "deleted", "acknowledgement confirmed"]] * 2
    else:
        assert others == {id: ["deleted"] for id in held}
        assert all(steps[0] == "returned" for steps in mine.values())
        assert len(mine) in (2, 3)


def test_after_a_change_of_level_only_what_is_new_is_confirmed(
    stepped: Stepped, journal: Recorded
) -> None:
    session = stepped.session(Mode.AUTO)
    session.send([text(Q, "a", persistent=False)])
    record(stepped, Level.OFF)
    session.completion(Told())
    later = record(stepped)
    new = [text(Q, "b", persistent=False)]
    session.send(new)
    stepped.complete(session)
    assert later.steps == each(new, "produced", "confirmed")


def test_a_duplicate_is_no_message(stepped: Stepped, journal: Recorded) -> None:
    session = stepped.session(Mode.AUTO)
    first, second = (text(Q, "a", properties={DUPLICATE_ID: "x"}) for _ in range(2))
    stepped.send([first], session)
    session.send([second])
    stepped.complete(session)
    assert journal.steps == each([first], "produced", "stored", "confirmed")


def test_an_acknowledgement_is_confirmed_with_its_receipt_once_it_is_durable(
    stepped: Stepped, journal: Recorded
) -> None:
    messages = sent(stepped, Q, 3)
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.receive(session, Q, name="s1")
    journal.clear()
    inbox.consumer.acknowledge([1])
    stepped.acknowledge(inbox, [2])
    assert journal.steps == each(messages[:2], "acknowledged", "deleted")
    told = Told()
    inbox.consumer.acknowledge([3])
    session.completion(told)
    stepped.run_reactor()
    assert "acknowledgement confirmed" not in journal.steps[messages[2].message_id]
    stepped.run_until_idle()
    assert told.well
    assert journal.steps == each(messages, "acknowledged", "deleted", "acknowledgement confirmed")
    assert journal.lines[-1]["subscription"] == "s1"


def test_copies_of_a_virtual_topic_have_journeys_of_their_own(
    stepped: Stepped, journal: Recorded
) -> None:
    topic, queue = Topic("VirtualTopic.a"), Queue("Consumer.x.VirtualTopic.a")
    inbox = stepped.consume(stepped.session(), queue)
    originals = sent(stepped, topic, 2)
    stepped.run_until_idle()
    stepped.acknowledge_through(inbox, 2)
    copies = inbox.messages
    assert journal.steps == each(originals, "produced", "deleted", "routed") | each(
        copies, "produced", "routed", "delivered", "stored", "acknowledged", "deleted"
    )
    told = [line for line in journal.lines if "target_ids" in line]
    assert [(line["destination"], line["comment"], line["target_ids"]) for line in told] == [
        (str(topic), f"copied to {queue}", ids(copies))
    ]
    ended = [line for line in journal.lines if line.get("reason") == "copied"]
    assert [line["destination"] for line in ended] == [str(topic)]
