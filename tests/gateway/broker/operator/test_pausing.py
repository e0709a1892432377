"""What paused destinations deliver and take, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import AdministrationRefused, BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import MessageRejected, ProducersPaused
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import administration, outcome, with_messages
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.stepped_broker import Stepped, Told, all_of, texts

Q = Queue("q")
T = Topic("t")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, BrokerOptions(reap_time=10))


@pytest.fixture
def admin(stepped: Stepped) -> BrokerAdministration:
    return administration(stepped)


def pause(
    stepped: Stepped, destination: Destination | None, how: Pause = Pause.ALL, kind: str = ""
) -> int:
    """Pause it, or all; :attr:`Pause.NONE` resumes."""
    if destination is not None:
        kind = destination.kind.name.lower()
    name = "" if destination is None else destination.name
    return outcome(stepped, administration(stepped).pause(kind, name, how))


def state(stepped: Stepped, destination: Destination) -> str:
    kind = destination.kind.name.lower()
    return administration(stepped).destination(kind, destination.name).state


# --- consumers


@pytest.mark.parametrize("where", ["in memory", "in the store"])
@pytest.mark.parametrize("selector", [None, "a IS NULL"])
def test_nothing_is_delivered_of_a_queue_until_it_is_resumed(
    tmp_path: Path, where: str, selector: str | None
) -> None:
    stepped = with_messages(where, tmp_path)
    inbox = stepped.receive(stepped.session(Mode.CLIENT), Q, selector=selector)
    stepped.send(texts(Q, ["before"]))
    pause(stepped, Q, Pause.CONSUMERS)
    assert state(stepped, Q) == "CONSUMERS_PAUSED"
    sent = [str(number) for number in range(100)]
    stepped.send_each(texts(Q, sent))
    late = stepped.receive(stepped.session(Mode.CLIENT), Q)
    assert (inbox.texts, late.texts) == (["before"], [])
    # What they have is theirs, and what comes back waits.
    late.consumer.close()
    stepped.reject(inbox, [1], delay_ms=0)
    browsed = stepped.receive(stepped.session(Mode.CLIENT), Q, browse=True)
    assert browsed.texts == ["before", *sent], "who looks sees what waits"
    inbox.clear()
    pause(stepped, Q, Pause.NONE)
    assert inbox.texts == ["before", *sent]
    assert state(stepped, Q) == "RUNNING"


def test_a_pause_survives_a_restart(stepped: Stepped, admin: BrokerAdministration) -> None:
    outcome(stepped, admin.create("topic", "t", {"maxNumMsgs": "9"}))
    stepped.receive(stepped.session(client_id="c"), T, durable_name="d").consumer.close()
    stepped.send(texts(Q, ["1"]))
    stepped.send(texts(T, ["2"]))
    pause(stepped, Q, Pause.ALL)
    pause(stepped, T, Pause.CONSUMERS)
    stepped.restart()
    assert (state(stepped, Q), state(stepped, T)) == ("PAUSED", "CONSUMERS_PAUSED")
    again = administration(stepped)
    assert (again.destination("queue", "q").origin, again.destination("topic", "t").origin) == (
        "client",
        "administrator",
    )
    assert again.destination("topic", "t").administered == {"maxNumMsgs": "9"}
    session = stepped.session(client_id="c")
    inboxes = [stepped.receive(session, Q), stepped.receive(session, T, durable_name="d")]
    assert [inbox.texts for inbox in inboxes] == [[], []]
    for destination in (Q, T):
        pause(stepped, destination, Pause.NONE)
    assert [inbox.texts for inbox in inboxes] == [["1"], ["2"]]
    stepped.restart()
    assert (state(stepped, Q), state(stepped, T)) == ("RUNNING", "RUNNING")


def test_a_destination_of_settings_keeps_its_pause_and_its_properties(tmp_path: Path) -> None:
    configured = ((Q, DestinationProperties(max_num_msgs=7)),)
    stepped = Stepped(tmp_path, BrokerOptions(destinations=configured))
    administration(stepped)
    pause(stepped, Q, Pause.CONSUMERS)
    stepped.restart()
    found = administration(stepped).destination("queue", "q")
    assert (found.state, found.origin) == ("CONSUMERS_PAUSED", "settings")
    # The settings name it no longer: the store has what it was.
    stepped.options = BrokerOptions()
    stepped.restart()
    found = administration(stepped).destination("queue", "q")
    assert (found.state, found.properties["maxNumMsgs"]) == ("CONSUMERS_PAUSED", 7)


def test_a_destination_made_by_its_use_stays_while_it_is_paused(stepped: Stepped) -> None:
    stepped.receive(stepped.session(Mode.AUTO), Q).consumer.close()
    pause(stepped, Q, Pause.CONSUMERS)
    stepped.later(11, 3)
    assert state(stepped, Q) == "CONSUMERS_PAUSED"
    stepped.restart()
    stepped.later(11, 3)
    assert state(stepped, Q) == "CONSUMERS_PAUSED"
    pause(stepped, Q, Pause.NONE)
    stepped.later(11, 3)
    assert stepped.broker.find(Q) is None
    assert not stepped.disk.destinations


def test_subscriptions_keep_what_a_paused_topic_sends(stepped: Stepped) -> None:
    topic = Topic("shop.a")
    session = stepped.session(Mode.AUTO, client_id="c")
    plain = stepped.receive(session, topic)
    durable = stepped.receive(session, topic, durable_name="d")
    pause(stepped, topic, Pause.CONSUMERS)
    late = stepped.receive(session, topic)
    stepped.send(texts(topic, ["x", "y"]))
    assert (plain.texts, durable.texts, late.texts) == ([], [], [])
    assert administration(stepped).destination("topic", "shop.a").messages == 6
    pause(stepped, topic, Pause.NONE)
    assert [inbox.texts for inbox in (plain, durable, late)] == [["x", "y"]] * 3


@pytest.mark.parametrize("where", ["in memory", "in the store"])
def test_a_subscription_with_wildcards_goes_on_with_other_topics(
    tmp_path: Path, where: str
) -> None:
    stepped = with_messages(where, tmp_path)
    held, free = Topic("shop.held"), Topic("shop.free")
    stepped.send(texts(held, ["made"]))
    early = stepped.receive(stepped.session(Mode.AUTO), Topic("shop.>"))
    pause(stepped, held, Pause.CONSUMERS)
    late = stepped.receive(stepped.session(Mode.AUTO), Topic("shop.*"))
    stepped.send_each([each for n in range(60) for each in (*texts(held, [n]), *texts(free, [n]))])
    numbers = [str(number) for number in range(60)]
    assert (all_of(early), all_of(late)) == (numbers, numbers)
    pause(stepped, held, Pause.NONE)
    assert (all_of(early), all_of(late)) == (numbers, numbers)
    stepped.send(texts(held, ["z"]))
    assert (early.texts, late.texts) == (["z"], ["z"])


def test_what_wildcards_have_of_a_paused_topic_is_delivered_when_it_goes(stepped: Stepped) -> None:
    held = Topic("shop.held")
    outcome(stepped, administration(stepped).create("topic", "shop.held", {}))
    inbox = stepped.receive(stepped.session(Mode.AUTO), Topic("shop.>"))
    pause(stepped, held, Pause.CONSUMERS)
    stepped.send(texts(held, ["x"]))
    outcome(stepped, administration(stepped).destroy("topic", "shop.held"))
    assert inbox.texts == []
    stepped.send(texts(held, ["y"]))
    assert inbox.texts == ["y"], "the next topic of that name is not paused"


# --- producers


def test_a_sender_is_held_before_anything_is_taken(stepped: Stepped) -> None:
    sender, other = stepped.session(), stepped.session()
    stepped.send(texts(Q, ["first"]), sender)
    pause(stepped, Q, Pause.PRODUCERS)
    assert state(stepped, Q) == "PRODUCERS_PAUSED"
    inbox = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert inbox.texts == ["first"], "what is there is delivered"
    assert sender.writable(), "until it sends there"
    with pytest.raises(MessageRejected) as held:
        sender.send([*texts(Queue("other"), ["1"]), *texts(Q, ["2", "3"])])
    assert (held.value.index, type(held.value.cause)) == (1, ProducersPaused)
    assert not sender.writable()
    assert stepped.complete(sender).well, "nothing that is held was taken"
    assert other.writable()
    resumed: list[str] = []
    sender.on_writable(lambda: resumed.append("sender"))
    stepped.run_until_idle()
    assert resumed == []
    pause(stepped, Q, Pause.NONE)
    assert resumed == ["sender"]
    stepped.send(texts(Q, ["2"]), sender)
    assert inbox.texts == ["first", "2"]


def test_what_a_transaction_had_sent_before_is_committed(stepped: Stepped) -> None:
    session = stepped.session(Mode.TRANSACTED)
    session.send(texts(Q, ["1"]))
    pause(stepped, Q, Pause.PRODUCERS)
    with pytest.raises(MessageRejected, match="paused for producers"):
        session.send(texts(Q, ["2"]))
    assert stepped.commit(session).well
    assert stepped.broker.queue(Q).count == 1


def test_the_brokers_own_messages_still_come(stepped: Stepped) -> None:
    stepped.broker.arrive(Q, texts(Q, ["own"]))
    pause(stepped, Q, Pause.PRODUCERS)
    stepped.broker.arrive(Q, texts(Q, ["own"]))
    stepped.run_until_idle()
    assert stepped.broker.queue(Q).count == 2


def test_a_limit_and_a_pause_hold_a_sender_until_both_end(stepped: Stepped) -> None:
    given = {"maxNumMsgs": "1", "limitBehavior": "FLOW_CONTROL"}
    outcome(stepped, administration(stepped).create("queue", "q", given))
    sender = stepped.session()
    sender.send(texts(Q, ["1"]))
    told = Told()
    sender.completion(told)
    pause(stepped, Q, Pause.PRODUCERS)
    inbox = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert inbox.texts == ["1"]
    assert told.well, "it was taken, and there is room again"
    with pytest.raises(MessageRejected):
        sender.send(texts(Q, ["2"]))
    assert not sender.writable()
    pause(stepped, Q, Pause.NONE)
    assert sender.writable()


def test_a_pause_that_is_given_replaces_the_one_before(stepped: Stepped) -> None:
    sender = stepped.session()
    stepped.send(texts(Q, ["1"]))
    pause(stepped, Q, Pause.ALL)
    with pytest.raises(MessageRejected):
        sender.send(texts(Q, ["2"]))
    pause(stepped, Q, Pause.CONSUMERS)
    assert sender.writable()
    sender.send(texts(Q, ["2"]))
    inbox = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert inbox.texts == []
    pause(stepped, Q, Pause.PRODUCERS)
    assert inbox.texts == ["1", "2"]


def test_senders_go_on_when_the_paused_destination_is_destroyed(stepped: Stepped) -> None:
    outcome(stepped, administration(stepped).create("queue", "q", {}))
    pause(stepped, Q, Pause.ALL)
    sender = stepped.session()
    with pytest.raises(MessageRejected):
        sender.send(texts(Q, ["1"]))
    outcome(stepped, administration(stepped).destroy("queue", "q"))
    assert sender.writable()
    sender.send(texts(Q, ["1"]))


# --- all of them


def test_all_are_paused_but_temporary_ones_and_the_dead_message_queue(stepped: Stepped) -> None:
    temporary = stepped.connect().temporary(Q.kind)
    for destination in (Q, T, Queue("r"), temporary):
        stepped.broker.create(destination)
    assert pause(stepped, None, Pause.ALL, kind="topic") == 1
    assert (state(stepped, Q), state(stepped, T)) == ("RUNNING", "PAUSED")
    assert pause(stepped, None, Pause.CONSUMERS) == 3
    states = [state(stepped, each) for each in (Q, T, Queue("r"), temporary, Queue("mq.sys.dmq"))]
    assert states == ["CONSUMERS_PAUSED"] * 3 + ["RUNNING"] * 2
    assert pause(stepped, None, Pause.NONE) == 3


@pytest.mark.parametrize(
    ("type", "name", "sentence"),
    [
        ("queue", "mq.sys.dmq", "the dead message queue cannot be paused"),
        ("queue", "none", "there is no queue 'none'"),
        ("basket", "q", "'basket' is no type"),
        ("basket", "", "'basket' is no type"),
    ],
)
def test_what_cannot_be_paused_is_refused(
    stepped: Stepped, admin: BrokerAdministration, type: str, name: str, sentence: str
) -> None:
    with pytest.raises(AdministrationRefused, match=sentence):
        outcome(stepped, admin.pause(type, name, Pause.ALL))


# --- the model

QUEUES = [Queue("q1"), Queue("q2")]
TOPICS = [Topic("t.1"), Topic("t.2")]


class Pausing(RuleBasedStateMachine):
    """Two queues, and two topics with durable subscriptions.

    One of these has wildcards. Each place keeps what was sent; consumers get it once, in order, and nothing while it is paused.
    """

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        memory = Memory(total=20 * OVERHEAD, share=5 * OVERHEAD, least=2 * OVERHEAD)
        self.stepped = Stepped(self.folder, BrokerOptions(reap_time=0), memory=memory)
        self.paused: dict[Destination, Pause] = dict.fromkeys([*QUEUES, *TOPICS], Pause.NONE)
        #: By place, what it is owed: destination and body.
        self.owed: dict[str, list[tuple[Destination, str]]] = {
            name: [] for name in ("q1", "q2", "t.1", "t.>")
        }
        self.inboxes: dict[str, Inbox] = {}
        self.sent = 0

    @initialize()
    def begin(self) -> None:
        admin = administration(self.stepped)
        for each in self.paused:
            outcome(self.stepped, admin.create(each.kind.name.lower(), each.name, {}))
        self.join()
        self.leave()

    @rule()
    def join(self) -> None:
        if not self.inboxes:
            self.connection = self.stepped.connect("c")
            session = self.connection.session(Mode.AUTO)
            for queue in QUEUES:
                self.inboxes[queue.name] = self.stepped.consume(session, queue)
            for name in ("t.1", "t.>"):
                self.inboxes[name] = self.stepped.consume(session, Topic(name), durable_name=name)

    @rule()
    def leave(self) -> None:
        if self.inboxes:
            self.settle()
            self.stepped.close(self.connection)
            self.inboxes.clear()

    @rule(destination=st.sampled_from([*QUEUES, *TOPICS]), count=st.integers(1, 12))
    def send(self, destination: Destination, count: int) -> None:
        bodies = [str(self.sent + number) for number in range(count)]
        self.sent += count
        if self.paused[destination] & Pause.PRODUCERS:
            with pytest.raises(MessageRejected, match="paused for producers"):
                self.stepped.send(texts(destination, bodies))
            return
        self.stepped.send(texts(destination, bodies))
        for place in ([destination.name] if destination.name != "t.2" else []) + (
            ["t.>"] if destination in TOPICS else []
        ):
            self.owed[place] += [(destination, body) for body in bodies]

    @rule(
        destination=st.sampled_from([*QUEUES, *TOPICS, None]),
        how=st.sampled_from([*Pause]) | st.just(Pause.NONE),
    )
    def pause(self, destination: Destination | None, how: Pause) -> None:
        pause(self.stepped, destination, how)
        for each in [*self.paused] if destination is None else [destination]:
            self.paused[each] = how

    @rule(seconds=st.sampled_from([0, 1, 100]))
    def wait(self, seconds: float) -> None:
        self.stepped.later(seconds)

    @rule()
    def restart(self) -> None:
        self.settle()
        self.inboxes.clear()
        self.stepped.restart()

    def settle(self) -> None:
        """Consumers that there are have got all that may be delivered."""
        self.stepped.run_until_idle()
        for place, inbox in self.inboxes.items():
            due = [
                entry for entry in self.owed[place] if not self.paused[entry[0]] & Pause.CONSUMERS
            ]
            got = all_of(inbox)
            if place == "t.>":
                # Between topics of which one was paused the order is that of their resumption.
                assert sorted(got) == sorted(body for _, body in due)
                for topic in TOPICS:
                    mine = [body for where, body in due if where == topic]
                    assert [body for body in got if body in mine] == mine
            else:
                assert got == [body for _, body in due]
            self.owed[place] = [entry for entry in self.owed[place] if entry not in due]

    @invariant()
    def nothing_else_is_delivered(self) -> None:
        self.settle()

    def teardown(self) -> None:
        pause(self.stepped, None, Pause.NONE)
        self.paused = dict.fromkeys(self.paused, Pause.NONE)
        self.join()
        self.settle()
        assert not any(self.owed.values())
        assert not self.stepped.disk.rows


def test_paused_places_keep_what_they_are_owed(tmp_path: Path) -> None:
    machine: Any = type("InFolder", (Pausing,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=25))
