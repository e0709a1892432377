"""Dead message queues of destinations, in place of ``mq.sys.dmq``."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.administered_properties import PropertyRefused, check
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import DEAD_QUEUE_PROPERTIES, BrokerOptions
from gateway.messaging import dead
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, texts

Q, DEAD = Queue("orders"), Queue("ActiveMQ.DLQ.Queue.orders")
INDIVIDUAL = DestinationProperties(dead_letter_queue="ActiveMQ.DLQ.Queue.")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    """A broker whose queues and topics have dead queues of their own."""
    topics = DestinationProperties(dead_letter_queue="ActiveMQ.DLQ.Topic.")
    return Stepped(tmp_path, BrokerOptions(reap_time=10, auto_queue=INDIVIDUAL, auto_topic=topics))


def kill(stepped: Stepped, queue: Destination, body: str) -> None:
    """Have a consumer refuse a message for good."""
    stepped.send([text(queue, body)])
    refuse(stepped, queue)


def refuse(stepped: Stepped, queue: Destination) -> None:
    """Have a consumer refuse what waits, for good."""
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.receive(session, queue)
    stepped.reject(inbox, inbox.numbers, dead=DeadReason.UNDELIVERABLE)
    stepped.close(session)


def waiting(stepped: Stepped, queue: Destination) -> list[Message]:
    """What waits there; it stays."""
    session = stepped.session()
    found = stepped.receive(session, queue, browse=True).messages
    stepped.close(session)
    return found


def bodies(stepped: Stepped, queue: Destination) -> list[str]:
    return [message.text for message in waiting(stepped, queue)]


def test_a_dead_message_is_in_the_queue_of_its_destination_with_its_reason(
    stepped: Stepped,
) -> None:
    kill(stepped, Q, "m")
    kill(stepped, Queue("other"), "n")
    (copy,) = waiting(stepped, DEAD)
    assert copy.text == "m"
    assert copy.headers.destination == DEAD
    said = copy.headers.properties
    assert said[dead.ORIGINAL_DESTINATION] == "queue:orders"
    assert said[dead.UNDELIVERED_REASON] == "UNDELIVERABLE"
    assert bodies(stepped, Queue("ActiveMQ.DLQ.Queue.other")) == ["n"]
    assert bodies(stepped, DMQ) == []


def test_of_a_topic_it_is_a_queue_of_topics(stepped: Stepped) -> None:
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.consume(session, Topic("news"))
    stepped.send([text(Topic("news"), "m")])
    stepped.reject(inbox, [1], dead=DeadReason.UNDELIVERABLE)
    assert bodies(stepped, Queue("ActiveMQ.DLQ.Topic.news")) == ["m"]


def test_it_outlives_a_crash_with_its_properties_and_is_not_reaped(stepped: Stepped) -> None:
    kill(stepped, Q, "m")
    stepped.restart()
    stepped.later(60, 3)
    assert bodies(stepped, DEAD) == ["m"]
    queue = stepped.broker.find(DEAD)
    assert queue is not None
    assert queue.properties == DEAD_QUEUE_PROPERTIES
    dead = outcome(stepped, administration(stepped).dead_queues())
    assert [each.name for each in dead] == [DMQ.name, DEAD.name]
    # Neither settings nor an administrator have given it these.
    assert administration(stepped).destination("queue", DEAD.name).origin == "broker"


def test_what_dies_in_it_goes_nowhere(stepped: Stepped) -> None:
    kill(stepped, Q, "m")
    refuse(stepped, DEAD)
    assert stepped.empty
    assert stepped.broker.find(Queue(f"ActiveMQ.DLQ.Queue.{DEAD.name}")) is None


def test_one_that_its_consumers_have_made_becomes_a_dead_queue(stepped: Stepped) -> None:
    session = stepped.session()
    inbox = stepped.consume(session, DEAD)
    # A message that has not died elsewhere gives it a row before.
    stepped.send([text(DEAD, "sent")])
    kill(stepped, Q, "m")
    assert inbox.texts == ["sent", "m"]
    stepped.restart()
    queue = stepped.broker.find(DEAD)
    assert queue is not None
    assert queue.properties == DEAD_QUEUE_PROPERTIES


def test_one_that_an_administrator_has_made_keeps_its_properties(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(stepped, admin.create("queue", DEAD.name, {"maxNumMsgs": "7"}))
    kill(stepped, Q, "m")
    queue = stepped.broker.find(DEAD)
    assert queue is not None
    assert (queue.properties.max_num_msgs, queue.properties.is_dmq) == (7, False)
    # What dies in it goes on, as from any queue.
    refuse(stepped, DEAD)
    assert bodies(stepped, DMQ) == ["m"]


def test_an_administrator_gives_one_queue_another(
    tmp_path: Path,
) -> None:
    stepped = Stepped(tmp_path)
    admin = administration(stepped)
    outcome(stepped, admin.create("queue", "orders", {"deadLetterQueue": "DLQ.of.orders"}))
    stepped.restart()
    kill(stepped, Q, "m")
    kill(stepped, Queue("other"), "n")
    assert bodies(stepped, Queue("DLQ.of.orders")) == ["m"]
    assert bodies(stepped, DMQ) == ["n"]


def test_an_expired_message_and_a_purged_one_go_there(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    stepped.send([text(Q, "expires", expires=stepped.now_ms + 1000), text(Q, "stays")])
    stepped.later(60, 2)
    outcome(stepped, admin.purge("queue", "orders", use_dmq=True))
    assert bodies(stepped, DEAD) == ["expires", "stays"]


def test_it_loses_its_oldest_at_its_limit_as_the_dmq_does(stepped: Stepped) -> None:
    kill(stepped, Q, "0")
    queue = stepped.broker.find(DEAD)
    assert queue is not None
    assert queue.properties.limit_behavior is LimitBehavior.REMOVE_OLDEST
    assert queue.properties.max_total_msg_bytes == 1024**3


def test_two_that_have_the_dead_of_each_other_come_to_an_end(tmp_path: Path) -> None:
    one, other = (
        DestinationProperties(
            max_num_msgs=1, limit_behavior=LimitBehavior.REMOVE_OLDEST, dead_letter_queue=name
        )
        for name in ("other", "one")
    )
    names = Queue("one"), Queue("other")
    stepped = Stepped(
        tmp_path, BrokerOptions(destinations=tuple(zip(names, (one, other), strict=True)))
    )
    stepped.send(texts(names[0], "1234"))
    assert [bodies(stepped, each) for each in (*names, DMQ)] == [["4"], ["3"], ["1", "2"]]


def test_temporary_queues_and_names_that_are_too_long_have_the_broker_s(stepped: Stepped) -> None:
    long = Queue("q" * 1020)
    kill(stepped, long, "long")
    connection = stepped.connect()
    temporary = connection.temporary(Kind.QUEUE)
    session = connection.session(Mode.INDIVIDUAL)
    inbox = stepped.consume(session, temporary)
    stepped.send([text(temporary, "temporary")])
    stepped.reject(inbox, [1], dead=DeadReason.UNDELIVERABLE)
    assert bodies(stepped, DMQ) == ["long", "temporary"]


@pytest.mark.parametrize(
    "given",
    [
        {"deadLetterQueue": "orders"},
        {"deadLetterQueue": "a.*"},
        {"deadLetterQueue": "mq.other"},
        {"isDMQ": "perhaps"},
    ],
)
def test_properties_that_cannot_be(given: dict[str, str]) -> None:
    with pytest.raises(PropertyRefused):
        check(Q, given)
    with pytest.raises(PropertyRefused):
        check(DMQ, {"deadLetterQueue": "other"})
    with pytest.raises(PropertyRefused):
        check(Topic("t"), {"isDMQ": "true"})


def test_rows_of_other_destinations_are_as_earlier_versions_have_them() -> None:
    assert "deadLetterQueue" not in DestinationProperties().to_text()
    for properties in (INDIVIDUAL, DEAD_QUEUE_PROPERTIES):
        assert DestinationProperties.from_text(properties.to_text()) == properties
