"""Last-value queues: what is replaced, what not, and what a crash leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.broker.core.destinations.last_values import ENTRY
from gateway.broker.core.destinations.purging import EXAMINED
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.message_administration import Chosen
from gateway.broker.properties.administered_properties import PropertyRefused, check
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DMQ, UNDELIVERED_COMMENT, UNDELIVERED_REASON
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import DestinationFull, MessageRejected
from gateway.messaging.message import Headers, Message, VariedHeaders
from gateway.messaging.provider import Mode, Session, Vote, Xid
from gateway.messaging.redelivery import RedeliveryPolicy
from gateway.messaging.values import Int, Value
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.journal.test_journey import record
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa.xa_branches import Branching

Q = Queue("q")
KEY = "_AMQ_LVQ_NAME"
#: Rejected messages come again after a second, however often.
PATIENT = RedeliveryPolicy(maximum_redeliveries=-1, initial_redelivery_delay=1000)
TIGHT = {"total": 20 * OVERHEAD, "share": 5 * OVERHEAD, "least": 2 * OVERHEAD}


def keeping(folder: Path, where: str = "in memory", key: str = KEY, **properties: Any) -> Stepped:
    """A broker with a last-value queue, most of it in memory or in the store."""
    kept = DestinationProperties(last_value_key=key, redelivery=PATIENT, **properties)
    options = BrokerOptions(reap_time=0, destinations=((Q, kept),))
    memory = Memory(**TIGHT) if where == "in the store" else None
    return Stepped(folder, options, memory=memory)


@pytest.fixture(params=["in memory", "in the store"])
def stepped(request: pytest.FixtureRequest, tmp_path: Path) -> Stepped:
    return keeping(tmp_path, request.param)


def keyed(key: Value, body: object, *, name: str = KEY, **more: Any) -> Message:
    return text(Q, str(body), properties={name: key}, **more)


def waiting(stepped: Stepped, **spec: Any) -> list[str]:
    """What waits; it stays, as far as nothing replaces it."""
    session = stepped.session()
    found = stepped.receive(session, Q, browse=True, **spec).texts
    stepped.close(session)
    return found


def held(stepped: Stepped, count: int, session: Session | None = None) -> Inbox:
    """A consumer that has so many and no room for more."""
    inbox = stepped.receive(session or stepped.session(), Q, credit=count)
    assert len(inbox.messages) == count
    return inbox


def standing(stepped: Stepped) -> tuple[int, int, int]:
    """Messages, unacknowledged ones, and those replaced since the start."""
    found = administration(stepped).destination("queue", "q")
    assert found.octets >= 0
    return found.messages, found.unacknowledged, found.replaced


# --- what waits


def test_the_newest_of_each_key_waits_at_its_own_place(stepped: Stepped) -> None:
    stepped.send_each([keyed("a", 1), keyed("b", 2), text(Q, "3"), keyed("a", 4), text(Q, "5")])
    assert waiting(stepped) == ["2", "3", "4", "5"]
    assert standing(stepped) == (4, 0, 1)
    assert stepped.bodies == ["2", "3", "4", "5"]


def test_those_of_one_send_replace_each_other_and_are_never_stored(stepped: Stepped) -> None:
    session = stepped.session()
    session.send([keyed("a", number) for number in range(50)])
    assert stepped.complete(session).well
    assert (waiting(stepped), stepped.bodies) == (["49"], ["49"])
    assert standing(stepped) == (1, 0, 49)


def test_a_number_and_its_text_are_one_key(stepped: Stepped) -> None:
    stepped.send_each([keyed("5", 1), keyed(5, 2), keyed(Int(5), 3), keyed("true", 4)])
    stepped.send_each([keyed(True, 5), keyed("", 6), keyed("", 7), keyed("05", 8)])
    assert waiting(stepped) == ["3", "5", "7", "8"]


@pytest.mark.parametrize("name", ["symbol", "JMSCorrelationID", "reuters-code"])
def test_any_property_or_header_may_be_the_key(tmp_path: Path, name: str) -> None:
    stepped = keeping(tmp_path, key=name)
    values: dict[str, dict[str, Any]] = {
        "symbol": {"properties": {"symbol": "a"}},
        "JMSCorrelationID": {"correlation_id": "a"},
        "reuters-code": {"extras": (("reuters-code", "a"),)},
    }
    stepped.send_each([text(Q, body, **values[name]) for body in "12"])
    stepped.send_each([keyed("a", 3), keyed("a", 4)])
    assert waiting(stepped) == ["2", "3", "4"]


def test_a_key_of_which_the_producer_repeats_the_rest(stepped: Stepped) -> None:
    repeated = Headers(Q, properties={"x": "1"})
    lines = [f"{KEY}:{key}\n".encode() for key in "aba"]
    stepped.send(
        [
            Message(VariedHeaders(repeated, line, 1, repeated.octets + len(line)), b"%d" % number)
            for number, line in enumerate(lines)
        ]
    )
    assert waiting(stepped) == ["1", "2"]


def test_long_keys_are_told_apart(stepped: Stepped) -> None:
    stepped.send_each([keyed("x" * 5000 + end, end) for end in "aba"])
    assert waiting(stepped) == ["b", "a"]


def test_a_message_of_another_priority_replaces_and_waits_among_its_own(stepped: Stepped) -> None:
    stepped.send_each([keyed("a", 1), text(Q, "2"), keyed("a", 3, priority=9)])
    stepped.send_each([keyed("b", 4, priority=9), keyed("b", 5, priority=0)])
    assert waiting(stepped) == ["3", "2", "5"]


def test_a_selector_sees_what_is_there(stepped: Stepped) -> None:
    colors = ("red", "blue", "red")
    stepped.send_each(
        [
            text(Q, color, properties={KEY: key, "color": color})
            for key, color in zip("aab", colors, strict=True)
        ]
    )
    session = stepped.session()
    inbox = stepped.receive(session, Q, selector="color = 'red'")
    assert inbox.texts == ["red"]
    # What it has passed by is replaced, and the newer one is looked at.
    stepped.send_each([text(Q, "new", properties={KEY: "a", "color": "red"})])
    assert inbox.texts == ["red", "new"]
    assert standing(stepped) == (2, 2, 2)


def test_what_expired_before_it_came_replaces_nothing(stepped: Stepped) -> None:
    stepped.send_each([keyed("a", 1), keyed("a", 2, expires=stepped.now_ms - 1)])
    assert waiting(stepped) == ["1"]
    # And of what expires while it waits, nothing is left.
    stepped.send_each([keyed("a", 3, expires=stepped.now_ms + 30_000)])
    stepped.later(61, 2)
    assert waiting(stepped) == []
    assert standing(stepped) == (0, 0, 1)
    stepped.send_each([keyed("a", 4), keyed("a", 5, expires=stepped.now_ms + 30_000)])
    assert waiting(stepped) == ["5"]


def test_what_expired_and_is_not_swept_yet_is_dead_and_not_replaced(stepped: Stepped) -> None:
    journal = record(stepped)
    stepped.send_each([keyed("a", 1, expires=stepped.now_ms + 1_000), keyed("b", 2)])
    stepped.clock.advance(2)
    assert standing(stepped)[0] == 2, "a sweep has come already"
    stepped.send_each([keyed("a", 3)])
    assert (waiting(stepped), stepped.bodies[:2]) == (["2", "3"], ["2", "3"])
    assert standing(stepped) == (2, 0, 0)
    dead = stepped.receive(stepped.session(), DMQ)
    assert dead.texts == ["1"]
    told = dead.messages[0].headers.properties
    assert (told[UNDELIVERED_REASON], told[UNDELIVERED_COMMENT]) == (
        "EXPIRED",
        "expired while it waited",
    )
    assert "replaced" not in [event.line.get("reason") for event in journal.events]


def test_what_expired_does_not_outdo_an_older_one_that_comes_back(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    session = stepped.session()
    held(stepped, 1, session)
    stepped.send([keyed("a", 2, expires=stepped.now_ms + 1_000)])
    stepped.clock.advance(2)
    stepped.close(session)
    assert (waiting(stepped), standing(stepped)) == (["1"], (1, 0, 0))
    assert stepped.receive(stepped.session(), DMQ).texts == ["2"]
    stepped.send([keyed("a", 3)])
    assert waiting(stepped) == ["3"]


def test_a_full_queue_takes_a_newer_one_of_what_expired(tmp_path: Path) -> None:
    stepped = keeping(tmp_path, max_num_msgs=2)
    stepped.send_each([keyed("a", 1, expires=stepped.now_ms + 1_000), keyed("b", 2)])
    stepped.clock.advance(2)
    stepped.send([keyed("a", 3)])
    assert waiting(stepped) == ["2", "3"]


def test_what_expired_while_it_paused_is_dead_at_the_end_of_its_pause(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1, expires=stepped.now_ms + 1_000)])
    inbox = held(stepped, 1)
    stepped.reject(inbox, inbox.numbers, delay_ms=5_000)
    stepped.clock.advance(2)
    stepped.send([keyed("a", 2)])
    assert standing(stepped) == (2, 0, 0)
    stepped.later(61, 2)
    assert (waiting(stepped), standing(stepped)) == (["2"], (1, 0, 0))
    assert stepped.receive(stepped.session(), DMQ).texts == ["1"]


def test_the_peak_does_not_count_what_is_replaced_at_once(stepped: Stepped) -> None:
    def peaks() -> tuple[int, int]:
        found = administration(stepped).destination("queue", "q")
        return found.peak_messages, found.peak_octets

    stepped.send_each([keyed("a", 1), keyed("a", 2)])
    (count, octets), size = peaks(), stepped.broker.queue(Q).octets
    assert (count, octets) == (1, size)
    stepped.send([keyed(key, 3) for key in "abababab"])
    assert peaks() == (2, 2 * size)
    xid, branching = Xid(1, b"g", b"b"), Branching(stepped)
    branching.start(xid)
    branching.session.send([keyed("a", 4), keyed("b", 4)])
    branching.end(xid)
    assert branching.prepare(xid) is Vote.OK
    branching.commit(xid)
    stepped.run_until_idle()
    assert (waiting(stepped), peaks()) == (["4", "4"], (2, 2 * size))
    held(stepped, 1)
    stepped.send([keyed("a", 5), text(Q, "6")])
    assert peaks()[0] == 4


def test_groups_go_on(stepped: Stepped) -> None:
    def grouped(key: str, body: str) -> Message:
        return text(Q, body, properties={KEY: key, "JMSXGroupID": "g"})

    first, second = stepped.session(), stepped.session()
    one = stepped.consume(first, Q, credit=1)
    other = stepped.consume(second, Q, credit=1)
    stepped.send([grouped("a", "1")])
    stepped.send_each([grouped("b", "2"), grouped("b", "3"), grouped("a", "4")])
    taker = one if one.texts else other
    for _ in range(2):
        stepped.acknowledge_through(taker, taker.numbers[-1])
        stepped.grant(taker, 1)
    assert one.texts + other.texts == taker.texts == ["1", "3", "4"]


# --- what consumers have


def test_what_a_consumer_has_is_not_replaced(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    inbox = held(stepped, 1)
    stepped.send_each([keyed("a", 2), keyed("a", 3)])
    assert (inbox.texts, waiting(stepped), standing(stepped)) == (["1"], ["3"], (2, 1, 1))
    stepped.acknowledge_through(inbox, inbox.numbers[0])
    assert (waiting(stepped), standing(stepped)) == (["3"], (1, 0, 1))
    assert stepped.bodies == ["3"]


def test_what_comes_back_is_replaced_if_a_newer_one_waits(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1), keyed("b", 2)])
    session = stepped.session()
    held(stepped, 2, session)
    stepped.send([keyed("a", 3)])
    stepped.close(session)
    assert waiting(stepped) == ["2", "3"]
    assert standing(stepped) == (2, 0, 1)
    assert stepped.bodies == ["2", "3"]
    assert not [owner for owner, seq in stepped.disk.redeliveries if seq not in stepped.disk.rows]


def test_what_comes_back_after_the_newer_one_was_taken_waits_again(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    session = stepped.session()
    held(stepped, 1, session)
    stepped.send([keyed("a", 2)])
    newer = held(stepped, 1)
    stepped.acknowledge_through(newer, newer.numbers[0])
    stepped.close(session)
    assert (newer.texts, waiting(stepped)) == (["2"], ["1"])


@pytest.mark.parametrize("older_first", [True, False])
def test_of_two_that_come_back_the_newer_stays(stepped: Stepped, older_first: bool) -> None:
    sessions = []
    for number in (1, 2):
        stepped.send([keyed("a", number)])
        sessions.append(stepped.session())
        held(stepped, 1, sessions[-1])
    for session in sessions if older_first else reversed(sessions):
        stepped.close(session)
    assert (waiting(stepped), standing(stepped)) == (["2"], (1, 0, 1))


def test_of_two_of_one_consumer_the_newer_stays(stepped: Stepped) -> None:
    session = stepped.session()
    inbox = stepped.consume(session, Q, credit=10)
    stepped.send([keyed("a", 1)])
    stepped.send([keyed("a", 2)])
    assert inbox.texts == ["1", "2"]
    stepped.close(session)
    assert (waiting(stepped), standing(stepped)) == (["2"], (1, 0, 1))


def test_a_rejected_message_that_pauses_is_replaced(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    inbox = held(stepped, 1)
    stepped.reject(inbox, inbox.numbers)
    stepped.send([keyed("a", 2)])
    stepped.later(2)
    assert (waiting(stepped), standing(stepped), stepped.bodies) == (["2"], (1, 0, 1), ["2"])
    # Whatever comes first.
    inbox = held(stepped, 1)
    stepped.send([keyed("a", 3)])
    stepped.reject(inbox, inbox.numbers)
    stepped.later(2)
    assert (waiting(stepped), standing(stepped), stepped.bodies) == (["3"], (1, 0, 2), ["3"])


def test_what_is_rejected_while_a_newer_one_waits_does_not_outlive_it(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    older = held(stepped, 1)
    stepped.send([keyed("a", 2)])
    stepped.reject(older, older.numbers)
    assert (standing(stepped), stepped.bodies) == ((1, 0, 1), ["2"])
    newer = held(stepped, 1)
    stepped.acknowledge_through(newer, newer.numbers[0])
    stepped.later(2)
    assert (waiting(stepped), standing(stepped), stepped.empty) == ([], (0, 0, 1), True)


def test_of_two_rejected_messages_that_pause_the_newer_stays(stepped: Stepped) -> None:
    inboxes = []
    for number in (1, 2):
        stepped.send([keyed("a", number)])
        inboxes.append(held(stepped, 1))
    for inbox in inboxes:
        stepped.reject(inbox, inbox.numbers)
    assert (standing(stepped), stepped.bodies) == ((1, 0, 1), ["2"])
    stepped.later(2)
    assert waiting(stepped) == ["2"]


def test_a_message_that_pauses_over_a_restart_is_replaced(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    inbox = held(stepped, 1)
    stepped.reject(inbox, inbox.numbers, delay_ms=50_000)
    stepped.restart()
    stepped.run_until_idle()
    stepped.send([keyed("a", 2)])
    stepped.later(60, 2)
    assert (waiting(stepped), standing(stepped), stepped.bodies) == (["2"], (1, 0, 1), ["2"])


# --- transactions


def test_a_transaction_replaces_at_its_commit(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    session = stepped.session(Mode.TRANSACTED)
    stepped.send([keyed("a", 2), keyed("b", 3), keyed("a", 4)], session)
    assert waiting(stepped) == ["1"]
    assert stepped.commit(session).well
    assert (waiting(stepped), stepped.bodies) == (["3", "4"], ["3", "4"])
    stepped.send([keyed("a", 5)], session)
    session.rollback(lambda error: None)
    stepped.run_until_idle()
    assert waiting(stepped) == ["3", "4"]


def test_what_a_transaction_has_acknowledged_comes_back_at_its_rollback(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1), keyed("b", 2)])
    session = stepped.session(Mode.TRANSACTED)
    inbox = held(stepped, 2, session)
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    stepped.send([keyed("b", 3)])
    stepped.close(session)
    assert (waiting(stepped), standing(stepped)) == (["1", "3"], (2, 0, 1))


def test_what_a_prepared_branch_sent_is_as_old_as_that(stepped: Stepped) -> None:
    xid = Xid(1, b"g", b"b")
    branching = Branching(stepped)
    branching.start(xid)
    branching.session.send([keyed("a", 1), keyed("b", 2)])
    branching.end(xid)
    assert branching.prepare(xid) is Vote.OK
    stepped.send([keyed("a", 3)])
    stepped.restart()
    branching = Branching(stepped)
    assert waiting(stepped) == ["3"]
    branching.commit(xid)
    stepped.run_until_idle()
    assert waiting(stepped) == ["2", "3"]
    assert stepped.bodies == ["2", "3"]


# --- the store


def test_after_a_restart_the_newest_of_each_key_is_there(stepped: Stepped) -> None:
    stepped.send_each([keyed(key, number) for number, key in enumerate("abcabcabd")])
    held(stepped, 2)
    stepped.send_each([keyed("c", 10), text(Q, "11"), keyed("d", 12, persistent=False)])
    stepped.restart()
    inbox = stepped.receive(stepped.session(), Q)
    assert inbox.texts == ["6", "7", "10", "11"]
    assert standing(stepped)[0] == 4
    assert stepped.bodies == ["6", "7", "10", "11"]


def test_what_consumers_had_is_replaced_after_a_restart(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1), keyed("b", 2)])
    held(stepped, 2)
    stepped.send([keyed("a", 3)])
    assert stepped.bodies == ["1", "2", "3"]
    stepped.restart()
    # Nothing is delivered before all that waits was looked at.
    inbox = stepped.consume(stepped.session(), Q)
    stepped.run_until_idle()
    assert (inbox.texts, standing(stepped)) == (["2", "3"], (2, 2, 1))
    assert stepped.bodies == ["2", "3"]


def test_what_is_not_persistent_replaces_what_is(stepped: Stepped) -> None:
    stepped.send_each([keyed("a", 1), keyed("a", 2, persistent=False)])
    assert waiting(stepped) == ["2"]
    stepped.restart()
    stepped.run_until_idle()
    assert (waiting(stepped), stepped.empty) == ([], True)


@pytest.mark.parametrize("steps", range(4))
def test_a_crash_leaves_the_older_or_the_newer(tmp_path: Path, steps: int) -> None:
    stepped = keeping(tmp_path)
    session = stepped.session()
    session.send([keyed("a", 1)])
    assert stepped.complete(session).well
    session.send([keyed("a", 2)])
    for _ in range(steps):
        stepped.run_reactor()
        if stepped.store.busy:
            stepped.store.step()
    stored = stepped.bodies
    assert stored in (["1"], ["2"])
    stepped.restart()
    stepped.run_until_idle()
    assert waiting(stepped) == stored


def test_a_full_disk_keeps_the_older_until_the_newer_is_stored(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    stepped.store.fill()
    session = stepped.session()
    session.send([keyed("a", 2)])
    stepped.run_until_idle()
    assert (waiting(stepped), stepped.bodies) == (["2"], ["1"])
    stepped.store.make_room()
    stepped.run_until_idle()
    assert stepped.bodies == ["2"]


def test_a_disk_that_is_found_full_keeps_the_older(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    stepped.session().send([keyed("a", 2)])
    stepped.run_reactor()
    stepped.store.step(full=True)
    stepped.run_until_idle()
    assert (waiting(stepped), stepped.bodies) == (["2"], ["1"])
    stepped.restart()
    stepped.run_until_idle()
    assert waiting(stepped) == ["1"]


def test_behind_a_transaction_a_full_disk_keeps_the_older(stepped: Stepped) -> None:
    """The newer one takes its place in another turn than it is stored in."""
    stepped.send([keyed("a", 1)])
    committing = stepped.session(Mode.TRANSACTED)
    committing.send([text(Q, "2")])
    committing.commit(lambda error: None)
    stepped.run_reactor()
    stepped.session().send([keyed("a", 3)])
    stepped.store.step()
    stepped.run_reactor()
    assert waiting_now(stepped) == ["2", "3"]
    stepped.store.step(full=True)
    stepped.run_until_idle()
    assert stepped.bodies == ["1", "2"]
    stepped.store.make_room()
    stepped.run_until_idle()
    assert stepped.bodies == ["2", "3"]


def waiting_now(stepped: Stepped) -> list[str]:
    """What waits in memory, without letting the disk do anything."""
    return [each.text for each in stepped.broker.queue(Q).dispatch.backlog.waiting_in_memory()]


def test_a_first_message_that_stays_does_not_keep_the_numbers_of_all_others(
    tmp_path: Path,
) -> None:
    stepped = keeping(tmp_path, "in the store")
    stepped.send_each([*texts(Q, range(12)), keyed("a", "first")])
    for number in range(30):
        stepped.send([keyed("a", f"{number} {each}") for each in range(100)])
    lane = stepped.broker.queue(Q).dispatch.backlog.lane(4)
    assert len(lane.seqs_behind()) < 13
    assert len(lane._seqs) < 1_500
    assert waiting(stepped) == [*map(str, range(12)), "29 99"]


# --- limits and memory


@pytest.mark.parametrize("octets", [False, True])
def test_a_full_queue_takes_what_replaces(tmp_path: Path, octets: bool) -> None:
    size = 2 * (1 + keyed("a", "1").headers.octets)
    limits: dict[str, Any] = {"max_total_msg_bytes": size} if octets else {"max_num_msgs": 2}
    stepped = keeping(tmp_path, **limits)
    session = stepped.session()
    stepped.send([keyed("a", 1), keyed("b", 2)], session)
    stepped.send_each([keyed("a", 3), keyed("b", 4), keyed("b", 5)], session)
    stepped.send([keyed("b", 6), keyed("a", 7), keyed("b", 8)], session)
    assert waiting(stepped) == ["7", "8"]
    with pytest.raises(MessageRejected) as rejected:
        session.send([keyed("a", 9), keyed("c", 0), keyed("b", 1)])
    assert rejected.value.index == 1
    assert isinstance(rejected.value.cause, DestinationFull)
    with pytest.raises(MessageRejected):
        session.send([text(Q, "1")])
    # What a consumer has cannot be replaced.
    held(stepped, 2)
    with pytest.raises(MessageRejected):
        session.send([keyed("a", 1)])
    assert standing(stepped)[0] == 2


def test_a_full_queue_looks_at_all_runs_of_a_send(tmp_path: Path) -> None:
    stepped = keeping(tmp_path, max_num_msgs=2)
    session, other = stepped.session(), Queue("other")
    stepped.send([keyed("a", 1), keyed("b", 2)], session)
    stepped.send([keyed("a", 3), text(other, "x"), keyed("a", 4), keyed("b", 5)], session)
    assert waiting(stepped) == ["4", "5"]
    runs = [keyed("a", 6), text(other, "x"), keyed("c", 7)]
    with pytest.raises(MessageRejected) as rejected:
        session.send(runs)
    assert rejected.value.index == 2


def test_the_oldest_make_room_only_where_messages_are_more(tmp_path: Path) -> None:
    stepped = keeping(tmp_path, max_num_msgs=2, limit_behavior=LimitBehavior.REMOVE_OLDEST)
    stepped.send_each([keyed("a", 1), keyed("b", 2), keyed("a", 3), keyed("b", 4)])
    assert waiting(stepped) == ["3", "4"]
    stepped.send([keyed("c", 5)])
    assert waiting(stepped) == ["4", "5"]


def test_keys_take_memory_and_are_forgotten_with_their_messages(stepped: Stepped) -> None:
    stepped.send_each([text(Q, "x")])
    admin = administration(stepped)
    before = stepped.broker.memory.object_octets
    stepped.send([keyed(str(number), number) for number in range(3000)])
    values = stepped.broker.queue(Q).last_values
    assert values is not None
    assert len(values) == 3000
    assert stepped.broker.memory.object_octets == before + 3000 * ENTRY
    outcome(stepped, admin.purge("queue", "q"))
    stepped.send([keyed(f"again {number}", number) for number in range(900)])
    assert len(values) < 3000
    assert stepped.broker.memory.object_octets == before + len(values) * ENTRY


# --- administration


def test_it_is_given_and_taken_away(tmp_path: Path) -> None:
    for where in ("in memory", "in the store"):
        stepped = Stepped(tmp_path, memory=Memory(**TIGHT) if where == "in the store" else None)
        admin = administration(stepped)
        stepped.send_each([keyed(key, number) for number, key in enumerate("aabbaab" * 5)])
        outcome(stepped, admin.update("queue", "q", {"lastValueKey": KEY}))
        stepped.run_until_idle()
        assert waiting(stepped) == ["33", "34"]
        stepped.send_each([keyed("a", 36)])
        assert (waiting(stepped), standing(stepped)) == (["34", "36"], (2, 0, 34))
        assert stepped.bodies == ["34", "36"]
        stepped.restart()
        stepped.run_until_idle()
        stepped.send_each([keyed("b", 37)])
        assert waiting(stepped) == ["36", "37"]
        admin = administration(stepped)
        assert admin.destination("queue", "q").properties["lastValueKey"] == KEY
        outcome(stepped, admin.update("queue", "q", {"lastValueKey": ""}))
        stepped.send_each([keyed("b", 38)])
        assert waiting(stepped) == ["36", "37", "38"]
        (count,) = (stepped.broker.memory.object_octets,)
        outcome(stepped, admin.destroy("queue", "q"))
        assert stepped.broker.memory.object_octets < count


def test_consumers_wait_while_all_is_looked_at(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    admin = administration(stepped)
    stepped.send_each([keyed(key, number) for number, key in enumerate("aab" * 400)])
    asked = admin.update("queue", "q", {"lastValueKey": KEY})
    inbox = stepped.consume(stepped.session(), Q)
    outcome(stepped, asked)
    stepped.run_until_idle()
    assert inbox.texts == ["1198", "1199"] == inbox.texts[-2:]


def test_what_comes_meanwhile_does_not_make_consumers_wait_longer(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    stepped.send_each([keyed(number, number) for number in range(EXAMINED)])
    administration(stepped).update("queue", "q", {"lastValueKey": KEY})
    inbox, sender = stepped.consume(stepped.session(), Q), stepped.session()
    turns = iter(range(50))

    def come() -> None:
        """More than one turn looks at, in each turn, until the consumer has any."""
        turn = next(turns, None)
        if turn is not None and not inbox.texts:
            sender.send([keyed(f"{turn}-{number}", "x") for number in range(2 * EXAMINED)])
            stepped.clock.callLater(0, come)

    come()
    stepped.clock.advance(0)
    assert inbox.texts
    assert next(turns, 50) < 20, "consumers wait for as long as messages come"


def test_a_pause_of_an_administrator_holds_on(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    admin = administration(stepped)
    stepped.send_each([keyed("a", 1), keyed("a", 2)])
    outcome(stepped, admin.pause("queue", "q", Pause.CONSUMERS))
    outcome(stepped, admin.update("queue", "q", {"lastValueKey": KEY}))
    inbox = stepped.receive(stepped.session(), Q)
    assert (inbox.texts, waiting(stepped)) == ([], ["2"])
    outcome(stepped, admin.pause("queue", "q", Pause.NONE))
    assert inbox.texts == ["2"]


def test_a_purge_forgets_what_waits_and_consumers_keep_theirs(stepped: Stepped) -> None:
    stepped.send([keyed("a", 1)])
    session = stepped.session()
    held(stepped, 1, session)
    stepped.send([keyed("a", 2)])
    assert outcome(stepped, administration(stepped).purge("queue", "q")) == 1
    stepped.close(session)
    # What was purged is no newer one.
    assert (waiting(stepped), standing(stepped)[2]) == (["1"], 0)
    assert outcome(stepped, administration(stepped).purge("queue", "q", f"{KEY} = 'a'")) == 1
    assert stepped.empty


def test_what_is_moved_there_replaces(stepped: Stepped) -> None:
    other = Queue("other")
    stepped.send_each([keyed("a", 1)])
    stepped.send_each([text(other, "2", properties={KEY: "a"})])
    moved = outcome(stepped, administration(stepped).messages.move("other", Chosen(), "q"))
    assert (moved.done, waiting(stepped), stepped.bodies) == (1, ["2"], ["2"])


@pytest.mark.parametrize(
    ("destination", "value", "said"),
    [
        (Topic("t"), KEY, "is a property of queues"),
        (DMQ, KEY, "cannot have that"),
        (Q, "two words", "expected the name of a property or header"),
        (Q, "a:b", "expected the name of a property or header"),
        (Q, "x" * 256, "expected the name of a property or header"),
    ],
)
def test_names_that_are_refused(destination: Any, value: str, said: str) -> None:
    with pytest.raises(PropertyRefused, match=said):
        check(destination, {"lastValueKey": value})


def test_the_properties_are_kept_as_text() -> None:
    properties = DestinationProperties(last_value_key="symbol")
    assert DestinationProperties.from_text(properties.to_text()) == properties
    assert "lastValueKey" not in DestinationProperties().to_text()


def test_an_unknown_queue_is_not_made(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    asked = administration(stepped).update("queue", "nowhere", {"lastValueKey": KEY})
    with pytest.raises(AdministrationRefused):
        outcome(stepped, asked)


# --- the journal


@pytest.mark.parametrize("persistent", [True, False])
def test_the_journal_says_by_which_message(stepped: Stepped, persistent: bool) -> None:
    journal = record(stepped)
    session = stepped.session()
    own = keyed("a", 2, persistent=persistent)
    own.message_id = "my own"
    messages = [keyed("a", 1, persistent=persistent), own, keyed("a", 3, persistent=persistent)]
    for message in messages:
        session.send([message])
        assert stepped.complete(session).well
    told = [event for event in journal.events if event.step == "deleted"]
    first, _, last = messages
    assert [(each.id, each.line["reason"], each.line["comment"]) for each in told] == [
        (first.message_id, "replaced", "by my own"),
        ("my own", "replaced", f"by {last.message_id}"),
    ]


def test_the_journal_is_told_when_the_end_is_durable(tmp_path: Path) -> None:
    stepped = keeping(tmp_path)
    journal = record(stepped)
    stepped.send([keyed("a", 1)])
    stepped.session().send([keyed("a", 2)])
    stepped.run_reactor()
    assert "deleted" not in [step for steps in journal.steps.values() for step in steps]
    stepped.run_until_idle()
    assert [steps[-1] for steps in journal.steps.values()] == ["deleted", "stored"]


# --- against a list


class Sent:
    """A message, as the model has it."""

    def __init__(self, number: int, key: str | None, priority: int, persistent: bool) -> None:
        self.number = number
        self.key = key
        self.priority = priority
        self.persistent = persistent


class LastOfEachKey(RuleBasedStateMachine):
    """A queue with little memory, its consumers and crashes, against a list."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.stepped = keeping(self.folder, "in the store")
        self.waiting: list[Sent] = []
        self.holding: list[tuple[Session, Inbox, list[Sent]]] = []
        self.sent = 0

    def wait(self, message: Sent) -> None:
        """It waits, again or for the first time."""
        same = [
            each for each in self.waiting if each.key == message.key and message.key is not None
        ]
        assert len(same) < 2
        if same and same[0].number > message.number:
            return
        self.waiting = [each for each in self.waiting if each not in same] + [message]
        self.waiting.sort(key=lambda each: (-each.priority, each.number))

    def make(self, keys: str, priority: int, persistent: bool) -> tuple[list[Message], list[Sent]]:
        made, sent = [], []
        for mark in keys:
            key = None if mark == "-" else mark
            sent.append(Sent(self.sent, key, priority, persistent))
            properties: dict[str, Value] = {} if key is None else {KEY: key}
            made.append(
                text(
                    Q,
                    str(self.sent),
                    properties=properties,
                    priority=priority,
                    persistent=persistent,
                )
            )
            self.sent += 1
        return made, sent

    @rule(
        keys=st.text("abcdefgh-", min_size=1, max_size=12),
        priority=st.sampled_from([4, 4, 4, 9]),
        persistent=st.booleans(),
        together=st.booleans(),
    )
    def send(self, keys: str, priority: int, persistent: bool, together: bool) -> None:
        messages, sent = self.make(keys, priority, persistent)
        (self.stepped.send if together else self.stepped.send_each)(messages)
        for each in sent:
            self.wait(each)

    @rule(keys=st.text("abcd-", min_size=1, max_size=6), commits=st.booleans())
    def transact(self, keys: str, commits: bool) -> None:
        messages, sent = self.make(keys, 4, True)
        session = self.stepped.session(Mode.TRANSACTED)
        self.stepped.send(messages, session)
        if commits:
            assert self.stepped.commit(session).well
            for each in sent:
                self.wait(each)
        self.stepped.close(session)

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        count = min(count, len(self.waiting))
        if count:
            session = self.stepped.session()
            inbox = self.stepped.receive(session, Q, credit=count)
            taken, self.waiting = self.waiting[:count], self.waiting[count:]
            assert inbox.texts == [str(each.number) for each in taken]
            self.holding.append((session, inbox, taken))

    @rule(which=st.integers(0, 5))
    def acknowledge(self, which: int) -> None:
        if self.holding:
            session, inbox, _ = self.holding.pop(which % len(self.holding))
            self.stepped.acknowledge_through(inbox, inbox.numbers[-1])
            self.stepped.close(session)

    @rule(which=st.integers(0, 5))
    def give_back(self, which: int) -> None:
        if self.holding:
            session, _, taken = self.holding.pop(which % len(self.holding))
            self.stepped.close(session)
            for each in taken:
                self.wait(each)

    @rule(which=st.integers(0, 5), keys=st.text("abcd", max_size=3))
    def reject(self, which: int, keys: str) -> None:
        """Reject, and send while these pause."""
        if self.holding:
            session, inbox, taken = self.holding.pop(which % len(self.holding))
            self.stepped.reject(inbox, inbox.numbers)
            messages, sent = self.make(keys, 4, True)
            if messages:
                self.stepped.send(messages)
            self.stepped.close(session)
            self.stepped.later(400, 2)
            for each in (*sent, *taken):
                self.wait(each)

    @rule()
    def purge(self) -> None:
        count = outcome(self.stepped, administration(self.stepped).purge("queue", "q"))
        assert count == len(self.waiting)
        self.waiting = []

    @rule()
    def crash(self) -> None:
        self.stepped.restart()
        self.stepped.run_until_idle()
        found = [*self.waiting, *(each for _, _, taken in self.holding for each in taken)]
        self.waiting, self.holding = [], []
        for each in found:
            if each.persistent:
                self.wait(each)

    @invariant()
    def agrees(self) -> None:
        held = [each for _, _, taken in self.holding for each in taken]
        queue = self.stepped.broker.queue(Q)
        assert waiting(self.stepped) == [str(each.number) for each in self.waiting]
        assert (queue.count, queue.dispatch.unclaimed) == (
            len(self.waiting) + len(held),
            len(self.waiting),
        )
        assert queue.come + queue.found - queue.count >= queue.replaced
        there = {str(each.number) for each in (*self.waiting, *held) if each.persistent}
        assert there <= set(self.stepped.bodies)
        assert len(self.stepped.bodies) <= queue.count
        if not queue.count:
            assert (queue.octets, self.stepped.empty) == (0, True)


def test_a_queue_has_the_last_of_each_key_whatever_happens(tmp_path: Path) -> None:
    machine: Any = type("InFolder", (LastOfEachKey,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=30))
