"""Virtual topics: whose copies come where, and that all come or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.virtual_topics import ORIGINAL_DESTINATION, VirtualTopics
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import (
    DestinationFull,
    MessageRejected,
    MessageTooLarge,
    MessagingError,
    ProducersPaused,
)
from gateway.messaging.message import Headers, Message, VariedHeaders
from gateway.messaging.provider import DUPLICATE_ID, Connection, Credentials, Session, Xid
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa.xa_branches import Branching

T = Topic("VirtualTopic.orders")
A = Queue("Consumer.a.VirtualTopic.orders")
B = Queue("Consumer.b.VirtualTopic.orders")
XID = Xid(1, b"g", b"b")


def exist(stepped: Stepped, *queues: Destination) -> None:
    """Have consumers come to these queues, and go."""
    session = stepped.session()
    for queue in queues:
        stepped.consume(session, queue).consumer.close()
    stepped.close(session)


def waiting(stepped: Stepped, queue: Destination) -> list[str]:
    """What waits there; it stays."""
    session = stepped.session()
    found = [message.text for message in stepped.receive(session, queue).messages]
    stepped.close(session)
    return found


def first(stepped: Stepped, queue: Destination) -> Message:
    session = stepped.session()
    (message,) = stepped.receive(session, queue).messages
    stepped.close(session)
    return message


def refusal(session: Session, *messages: Message) -> tuple[int, MessagingError]:
    with pytest.raises(MessageRejected) as refused:
        session.send(messages)
    return refused.value.index, refused.value.cause


# --- which queues


@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        ("Consumer.a.VirtualTopic.orders", "VirtualTopic.orders"),
        ("Consumer.a.VirtualTopic.orders.eu.new", "VirtualTopic.orders.eu.new"),
        # The name of a consumer is one level, as in ActiveMQ.
        ("Consumer.a.b.VirtualTopic.orders", ""),
        ("Consumer.VirtualTopic.orders", ""),
        ("Consumer.a.VirtualTopic", ""),
        ("consumer.a.VirtualTopic.orders", ""),
        ("Consumer.a.orders", ""),
        ("Consumer.a.", ""),
        ("VirtualTopic.orders", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_queue_says_whose_copies_it_gets(queue: str, topic: str) -> None:
    assert VirtualTopics(["VirtualTopic.>"], "Consumer.*.").topic_of(queue) == topic


def test_other_names_and_prefixes() -> None:
    every = VirtualTopics([">"], "VirtualTopicConsumers.*.")
    assert every.topic_of("VirtualTopicConsumers.a.orders") == "orders"
    assert every.topic_of("VirtualTopicConsumers.a.orders.eu") == "orders.eu"
    two = VirtualTopics(["news.*", "orders"], "of.*.in.*.")
    assert two.topic_of("of.a.in.b.news.eu") == "news.eu"
    assert two.topic_of("of.a.in.b.orders") == "orders"
    assert two.topic_of("of.a.at.b.orders") == ""
    assert two.topic_of("of.a.in.b.news.eu.west") == ""
    assert VirtualTopics([], "Consumer.*.").topic_of("Consumer.a.VirtualTopic.orders") == ""


def test_subscribers_and_each_queue_get_what_is_sent(stepped: Stepped, session: Session) -> None:
    exist(stepped, A, B, Queue("Consumer.a.VirtualTopic.other"))
    subscriber = stepped.consume(session, T)
    stepped.send(texts(T, range(3)))
    assert subscriber.texts == ["0", "1", "2"]
    assert waiting(stepped, A) == waiting(stepped, B) == ["0", "1", "2"]
    assert waiting(stepped, Queue("Consumer.a.VirtualTopic.other")) == []


def test_two_consumers_share_the_copies_of_a_queue(stepped: Stepped, session: Session) -> None:
    one, other = stepped.consume(session, A, credit=2), stepped.consume(session, A, credit=2)
    stepped.send(texts(T, range(4)))
    assert sorted(one.texts + other.texts) == ["0", "1", "2", "3"]
    assert len(one.texts) == len(other.texts) == 2


def test_a_queue_gets_what_is_sent_after_it_was_made(stepped: Stepped) -> None:
    stepped.send(texts(T, ["before"]))
    exist(stepped, A)
    stepped.send(texts(T, ["after"]))
    assert waiting(stepped, A) == ["after"]


def test_an_empty_queue_stays_for_its_consumers_over_time_and_restarts(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    exist(stepped, A, Queue("plain"))
    stepped.later(60, 3)
    assert stepped.broker.find(Queue("plain")) is None
    stepped.restart()
    stepped.later(60, 3)
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == ["m"]


def test_an_administrator_makes_and_removes_the_queues(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(stepped, admin.create("queue", A.name, {}))
    stepped.restart()
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == ["m"]
    queue = stepped.broker.find(A)
    assert queue is not None
    stepped.remove(queue)
    stepped.send(texts(T, ["n"]))
    stepped.restart()
    assert stepped.broker.find(A) is None
    assert stepped.empty


def test_a_queue_with_the_name_of_the_topic_comes_and_goes(stepped: Stepped) -> None:
    stepped.send(texts(T, ["before"]))
    exist(stepped, Queue(T.name))
    stepped.remove(stepped.broker.queue(Queue(T.name)))
    exist(stepped, A)
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == ["m"]


@pytest.mark.parametrize("topic_first", [True, False])
def test_nothing_is_kept_of_a_topic_and_queues_that_are_gone(
    topic_first: bool, stepped: Stepped
) -> None:
    stepped.send(texts(T, ["m"]))
    exist(stepped, A, B)
    there: list[PhysicalQueue | PhysicalTopic] = [
        stepped.broker.topic(T),
        stepped.broker.queue(A),
        stepped.broker.queue(B),
    ]
    for physical in there if topic_first else there[::-1]:
        stepped.remove(physical)
    assert not stepped.broker.virtual._queues
    stepped.send(texts(T, ["n"]))
    exist(stepped, A)
    stepped.send(texts(T, ["o"]))
    assert waiting(stepped, A) == ["o"]


def test_a_queue_of_the_settings_exists_from_the_start(tmp_path: Path) -> None:
    options = BrokerOptions(destinations=((A, DestinationProperties()),))
    stepped = Stepped(tmp_path, options)
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == ["m"]


def test_none_is_virtual_where_the_settings_name_none(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(virtual_topics=()))
    exist(stepped, A)
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == []


# --- what a copy is


def test_a_copy_has_all_but_the_destination_and_the_id(stepped: Stepped, session: Session) -> None:
    exist(stepped, A)
    subscriber = stepped.consume(session, T)
    stepped.send(
        [
            text(
                T,
                "m",
                expires=stepped.now_ms + 60_000,
                priority=7,
                correlation_id="c",
                type="t",
                reply_to=Queue("r"),
                properties={"n": "1", DUPLICATE_ID: "d"},
                extras=(("x-y", "z"), (ORIGINAL_DESTINATION, "forged")),
            )
        ]
    )
    (original,), copy = subscriber.messages, first(stepped, A)
    said = original.headers.replace(
        destination=A, extras=(("x-y", "z"), (ORIGINAL_DESTINATION, f"/topic/{T.name}"))
    )
    assert copy.headers == said
    assert (copy.body, copy.expires, copy.timestamp, copy.user) == (
        original.body,
        original.expires,
        original.timestamp,
        original.user,
    )
    assert copy.message_id != original.message_id
    # As the broker makes ids.
    assert copy.message_id == f"{stepped.broker.numbering.prefix}{copy.seq}"


def test_what_a_producer_varies_is_copied_too(stepped: Stepped) -> None:
    exist(stepped, A)
    repeated = Headers(T, properties={"kind": "k"}, extras=(("x-a", "a"),))
    lines = b"n:%d\ncorrelation-id:c\nx-b:b\n"
    varied = [
        Message(VariedHeaders(repeated, lines % number, 3, repeated.octets + 20), b"m")
        for number in (1, 2)
    ]
    expected = [
        each.headers.replace(
            destination=A,
            extras=(("x-a", "a"), (ORIGINAL_DESTINATION, f"/topic/{T.name}"), ("x-b", "b")),
        )
        for each in varied
    ]
    stepped.send(varied)
    session = stepped.session()
    assert [message.headers for message in stepped.receive(session, A).messages] == expected


def test_persistent_copies_are_stored_with_the_original_and_others_are_not(
    stepped: Stepped,
) -> None:
    exist(stepped, A, B)
    stepped.send(texts(T, ["p"]))
    stepped.send(texts(T, ["n"], persistent=False))
    assert stepped.bodies == ["p", "p"]
    stepped.restart()
    assert waiting(stepped, A) == waiting(stepped, B) == ["p"]


def test_what_is_sent_to_topic_and_queue_comes_in_the_order_of_sending(
    stepped: Stepped, session: Session
) -> None:
    exist(stepped, A)
    mixed = [text(T, "0"), text(A, "1"), text(T, "2"), text(T, "3"), text(A, "4")]
    session.send(mixed)
    stepped.run_until_idle()
    assert waiting(stepped, A) == ["0", "1", "2", "3", "4"]
    stepped.restart()
    assert waiting(stepped, A) == ["0", "1", "2", "3", "4"]


# --- all or none


def full(folder: Path, behavior: LimitBehavior, **more: Any) -> Stepped:
    """A broker whose second queue holds two messages."""
    properties = DestinationProperties(max_num_msgs=2, limit_behavior=behavior, **more)
    stepped = Stepped(folder, BrokerOptions(reap_time=0, destinations=((B, properties),)))
    exist(stepped, A)
    return stepped


def test_a_full_queue_refuses_the_message_for_all(tmp_path: Path) -> None:
    stepped = full(tmp_path, LimitBehavior.REJECT_NEWEST)
    session = stepped.session()
    subscriber = stepped.consume(stepped.session(), T)
    stepped.send(texts(T, range(2)))
    index, error = refusal(session, text(Queue("q"), "q"), text(T, "2"))
    assert index == 1
    assert isinstance(error, DestinationFull)
    assert B.name in str(error)
    stepped.run_until_idle()
    assert waiting(stepped, A) == waiting(stepped, B) == subscriber.texts == ["0", "1"]
    assert waiting(stepped, Queue("q")) == []


def test_a_full_queue_holds_the_sender_back(tmp_path: Path) -> None:
    stepped = full(tmp_path, LimitBehavior.FLOW_CONTROL)
    sender, taker = stepped.session(), stepped.session()
    sender.send(texts(T, range(3)))
    told = stepped.complete(sender)
    assert not sender.writable()
    assert told.results == []
    inbox = stepped.receive(taker, B)
    assert inbox.texts == ["0", "1", "2"]
    stepped.acknowledge_through(inbox, inbox.numbers[-1])
    assert told.well
    assert sender.writable()


def test_a_queue_that_gives_up_its_oldest_refuses_nobody(tmp_path: Path) -> None:
    stepped = full(tmp_path, LimitBehavior.REMOVE_OLDEST)
    stepped.send(texts(T, range(4)))
    assert (waiting(stepped, A), waiting(stepped, B)) == (["0", "1", "2", "3"], ["2", "3"])


def test_a_message_too_large_for_one_queue_is_refused_for_all(tmp_path: Path) -> None:
    stepped = full(tmp_path, LimitBehavior.REJECT_NEWEST, max_bytes_per_msg=150)
    index, error = refusal(stepped.session(), text(T, "m"), text(T, "m" * 200))
    assert index == 1
    assert isinstance(error, MessageTooLarge)
    assert B.name in str(error)
    stepped.run_until_idle()
    assert waiting(stepped, A) == []


def test_a_queue_paused_for_producers_holds_the_topic_s_senders(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    exist(stepped, A)
    outcome(stepped, admin.pause("queue", A.name, Pause.PRODUCERS))
    session = stepped.session()
    index, error = refusal(session, text(Queue("q"), "q"), text(T, "m"))
    assert index == 1
    assert isinstance(error, ProducersPaused)
    outcome(stepped, admin.pause("queue", A.name, Pause.NONE))
    stepped.send(texts(T, ["m"]), session)
    assert waiting(stepped, A) == ["m"]


def test_a_right_to_the_topic_is_enough_for_senders(tmp_path: Path) -> None:
    rules = f"queue.{A.name}.produce.deny.user=*\n"
    stepped = Stepped(tmp_path, rules=rules)
    exist(stepped, A)
    with pytest.raises(MessageRejected):
        stepped.session().send(texts(A, ["direct"]))
    stepped.send(texts(T, ["m"]))
    assert waiting(stepped, A) == ["m"]


def test_a_transaction_copies_to_the_queues_there_are_when_it_commits(
    stepped: Stepped, transacted: Session
) -> None:
    exist(stepped, A)
    transacted.send(texts(T, ["m"]))
    exist(stepped, B)
    stepped.run_until_idle()
    assert waiting(stepped, A) == []
    assert stepped.commit(transacted).well
    assert waiting(stepped, A) == waiting(stepped, B) == ["m"]
    transacted.send(texts(T, ["n"]))
    transacted.rollback(lambda error: None)
    stepped.run_until_idle()
    assert waiting(stepped, A) == ["m"]


def test_a_prepared_branch_keeps_its_copies_over_a_restart(stepped: Stepped, xa: Branching) -> None:
    exist(stepped, A, B)
    xa.prepares(XID, T, ["m"])
    assert waiting(stepped, A) == []
    stepped.restart()
    assert waiting(stepped, A) == []
    Branching(stepped).commit(XID)
    assert waiting(stepped, A) == waiting(stepped, B) == ["m"]
    stepped.restart()
    assert waiting(stepped, A) == waiting(stepped, B) == ["m"]


def test_a_prepared_branch_that_is_rolled_back_leaves_no_copy(
    stepped: Stepped, xa: Branching
) -> None:
    exist(stepped, A)
    xa.prepares(XID, T, ["m"])
    stepped.restart()
    Branching(stepped).rollback(XID)
    assert waiting(stepped, A) == []
    assert stepped.empty


# --- what else a message can ask for


def test_a_repeated_duplicate_id_has_no_copies_and_one_at_a_queue_is_its_own(
    stepped: Stepped,
) -> None:
    exist(stepped, A)
    stepped.send([text(T, "0", properties={DUPLICATE_ID: "d"})])
    stepped.send(
        [text(T, "1"), text(T, "2", properties={DUPLICATE_ID: "d"}), text(T, "3")],
    )
    assert waiting(stepped, A) == ["0", "1", "3"]
    stepped.send([text(A, "4", properties={DUPLICATE_ID: "d"})])
    assert waiting(stepped, A) == ["0", "1", "3", "4"]


def test_an_expired_copy_dies_as_one_of_its_queue(stepped: Stepped) -> None:
    exist(stepped, A)
    stepped.send([text(T, "m", expires=stepped.now_ms + 1000)])
    stepped.later(61)
    assert waiting(stepped, A) == []
    dead = first(stepped, Queue("mq.sys.dmq"))
    assert dead.headers.properties["JMS_SUN_DMQ_DESTINATION"] == str(A)


def test_a_scheduled_message_is_copied_when_its_time_has_come(tmp_path: Path) -> None:
    class WithClients(Stepped):
        def connect(self, client_id: str | None = None) -> Connection:
            made: list[Connection] = []
            credentials = Credentials("guest", "guest", "192.0.2.1")
            self.provider.connect(credentials, client_id, self.losses.append).addCallback(
                made.append
            )
            return made[0]

    stepped = WithClients(tmp_path)
    exist(stepped, A)
    stepped.send([text(T, "m", properties={"AMQ_SCHEDULED_DELAY": "5000"})])
    exist(stepped, B)
    stepped.restart()
    assert waiting(stepped, A) == []
    stepped.later(5)
    assert waiting(stepped, A) == waiting(stepped, B) == ["m"]
    stepped.restart()
    assert waiting(stepped, A) == waiting(stepped, B) == ["m"]


def test_a_message_that_an_administrator_sends_again_is_copied(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    exist(stepped, A)
    stepped.broker.arrive(T, [text(T, "m")])
    stepped.run_until_idle()
    assert waiting(stepped, A) == ["m"]


def test_a_topic_with_queues_only_loses_nothing(stepped: Stepped) -> None:
    exist(stepped, A)
    stepped.send(texts(T, ["m"]))
    topic = stepped.broker.find(T)
    assert topic is not None
    assert topic.unheard == 0


def test_a_receipt_waits_for_all_copies(stepped: Stepped) -> None:
    exist(stepped, A, B)
    session = stepped.session()
    session.send(texts(T, ["m"]))
    results: list[object] = []
    session.completion(results.append)
    stepped.run_reactor()
    assert (results, stepped.bodies) == ([], [])
    stepped.run_until_idle()
    assert (results, stepped.bodies) == ([None], ["m", "m"])


def test_topics_that_come_and_go_find_their_queues_again(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    stepped.send(texts(T, ["before"]))
    stepped.later(60, 2)
    assert stepped.broker.find(T) is None
    exist(stepped, A)
    stepped.send(texts(T, ["m"]))
    topic = stepped.broker.find(T)
    assert topic is not None
    stepped.remove(topic)
    stepped.send(texts(T, ["n"]))
    assert waiting(stepped, A) == ["m", "n"]


# --- consumers of several queues


def test_a_pattern_has_queues_of_topics_that_come_later(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(), Queue("Consumer.a.VirtualTopic.>"))
    stepped.send(texts(T, ["1"]))
    stepped.send(texts(Topic("VirtualTopic.orders.eu"), ["2"]))
    stepped.send(texts(Topic("other"), ["3"]))
    assert inbox.texts == ["1", "2"]
    assert [each.headers.destination for each in inbox.messages] == [
        A,
        Queue("Consumer.a.VirtualTopic.orders.eu"),
    ]


def test_a_pattern_has_queues_of_topics_that_there_are(stepped: Stepped) -> None:
    stepped.send(texts(T, ["before"]))
    inbox = stepped.consume(stepped.session(), Queue("Consumer.a.VirtualTopic.*"))
    stepped.send(texts(T, ["after"]))
    assert inbox.texts == ["after"]


def test_what_a_pattern_has_made_stays_over_a_restart(stepped: Stepped) -> None:
    session = stepped.session()
    inbox = stepped.consume(session, Queue("Consumer.a.VirtualTopic.>"))
    stepped.send(texts(T, ["1"]))
    stepped.acknowledge_through(inbox, inbox.numbers[-1])
    stepped.close(session)
    stepped.send(texts(T, ["2"]))
    stepped.restart()
    stepped.send(texts(T, ["3"]))
    again = stepped.receive(stepped.session(), Queue("Consumer.a.VirtualTopic.>"))
    assert again.texts == ["2", "3"]


@pytest.mark.parametrize("pattern", ["Consumer.*.VirtualTopic.>", ">", "Consumer.>", "Other.a.>"])
def test_a_pattern_without_the_name_of_the_consumer_makes_no_queue(
    stepped: Stepped, pattern: str
) -> None:
    inbox = stepped.consume(stepped.session(), Queue(pattern))
    stepped.send(texts(T, ["1"]))
    assert inbox.texts == []
    assert not stepped.broker.virtual.queues


def test_a_consumer_that_has_left_wants_no_queues(stepped: Stepped) -> None:
    session = stepped.session()
    stepped.consume(session, Queue("Consumer.a.VirtualTopic.>"))
    stepped.close(session)
    stepped.send(texts(T, ["1"]))
    assert not stepped.broker.virtual.queues


def test_no_queue_is_made_that_the_user_may_not_have(tmp_path: Path) -> None:
    rules = "queue.Consumer.a.VirtualTopic.orders.consume.deny.user=guest\n"
    stepped = Stepped(tmp_path, rules=rules)
    inbox = stepped.consume(stepped.session(), Queue("Consumer.a.VirtualTopic.>"))
    stepped.send(texts(T, ["1"]))
    stepped.send(texts(Topic("VirtualTopic.x"), ["2"]))
    assert inbox.texts == ["2"]
    assert stepped.broker.find(A) is None
