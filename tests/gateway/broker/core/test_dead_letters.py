"""Dead messages: what is known of them, who may keep or drop them, and that a full disk loses
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.broker.core.waiting.memory import Memory
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import DMQ_PROPERTIES, BrokerOptions
from gateway.messaging import dead
from gateway.messaging.dead import DMQ, ORIGINAL_DESTINATION, DeadReason
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.message import OVERHEAD, Message
from gateway.messaging.provider import Mode, Session
from gateway.messaging.values import Value
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.logged import logged_lines

Q = Queue("q")


@pytest.fixture(name="lines")
def what_the_broker_says() -> Iterator[list[str]]:
    """What the broker says to the log."""
    with logged_lines(lambda event: event["log_namespace"].startswith("gateway.broker")) as lines:
        yield lines


def kill(stepped: Stepped, message: Message, reason: DeadReason = DeadReason.UNDELIVERABLE) -> None:
    """Have a consumer refuse it for good."""
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.consume(session, message.headers.destination)
    stepped.send([message], session)
    inbox.consumer.reject([1], dead=reason)
    stepped.close(session)


def the_dead(stepped: Stepped) -> Inbox:
    inbox = stepped.receive(stepped.session(Mode.INDIVIDUAL), DMQ)
    return inbox


def with_properties(destination: Destination, body: str, **properties: Value) -> Message:
    return text(destination, body, properties=properties)


def test_a_dead_message_says_where_it_was_and_why(stepped: Stepped) -> None:
    message = text(
        Q,
        "body",
        priority=7,
        reply_to=Topic("answers"),
        correlation_id="c",
        type="t",
        properties={"mine": "x"},
        extras=(("x-extra", "e"),),
        expires=stepped.now_ms + 10**6,
    )
    kill(stepped, message)
    (found,) = the_dead(stepped).messages
    headers = found.headers
    assert headers.properties == {
        "mine": "x",
        dead.UNDELIVERED_TIMESTAMP: headers.properties[dead.UNDELIVERED_TIMESTAMP],
        dead.UNDELIVERED_REASON: "UNDELIVERABLE",
        dead.UNDELIVERED_COMMENT: "refused by its consumer once",
        dead.DELIVERY_COUNT: 1,
        dead.BODY_TRUNCATED: False,
        dead.DEAD_BROKER: "imqbroker",
        ORIGINAL_DESTINATION: "queue:q",
        dead.ORIGINAL_EXPIRATION: message.expires,
    }
    assert abs(cast("int", headers.properties[dead.UNDELIVERED_TIMESTAMP]) - stepped.now_ms) < 1000
    assert (found.text, found.message_id, found.timestamp, found.user) == (
        "body",
        message.message_id,
        message.timestamp,
        "guest",
    )
    assert (
        headers.priority,
        headers.reply_to,
        headers.correlation_id,
        headers.type,
        headers.extras,
        headers.persistent,
    ) == (
        7,
        Topic("answers"),
        "c",
        "t",
        (("x-extra", "e"),),
        True,
    )
    assert found.expires == 0, "what is dead does not die again"


@pytest.mark.parametrize("reason", list(DeadReason))
def test_each_reason_is_named(stepped: Stepped, reason: DeadReason) -> None:
    kill(stepped, text(Q, "x"), reason)
    assert [
        message.headers.properties[dead.UNDELIVERED_REASON]
        for message in the_dead(stepped).messages
    ] == [reason.value]


def test_how_often_it_was_tried_is_counted(stepped: Stepped, individual: Session) -> None:
    inbox = stepped.consume(individual, Q)
    individual.send(texts(Q, ["x"]))
    for attempt in range(1, 7):
        stepped.later(100)
        assert inbox.attempts[-1] == attempt
        inbox.consumer.reject([inbox.numbers[-1]])
    stepped.run_until_idle()
    (found,) = the_dead(stepped).messages
    assert found.headers.properties[dead.DELIVERY_COUNT] == 6


@pytest.mark.parametrize("wish", [True, "true", "True"])
@pytest.mark.parametrize("use_dmq", [True, False])
def test_its_producer_may_have_it_kept_or_not_whatever_the_destination_says(
    tmp_path: Path, wish: Value, use_dmq: bool
) -> None:
    options = BrokerOptions(destinations=((Q, DestinationProperties(use_dmq=use_dmq)),))
    stepped = Stepped(tmp_path, options)
    kill(stepped, with_properties(Q, "kept", **{dead.PRESERVE_UNDELIVERED: wish}))
    kill(stepped, with_properties(Q, "dropped", **{dead.PRESERVE_UNDELIVERED: "false"}))
    kill(stepped, with_properties(Q, "other"))
    kill(stepped, with_properties(Q, "nonsense", **{dead.PRESERVE_UNDELIVERED: "perhaps"}))
    found = the_dead(stepped)
    assert found.texts == (["kept", "other", "nonsense"] if use_dmq else ["kept"])
    stepped.acknowledge(found, found.numbers)
    assert stepped.empty


@pytest.mark.parametrize("truncate", [True, False])
def test_its_producer_may_have_the_body_dropped_or_not_whatever_the_settings_say(
    tmp_path: Path, truncate: bool
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(truncate_dead=truncate))
    kill(stepped, with_properties(Q, "default"))
    kill(stepped, with_properties(Q, "dropped", **{dead.TRUNCATE_MSG_BODY: True}))
    kill(stepped, with_properties(Q, "kept", **{dead.TRUNCATE_MSG_BODY: "false"}))
    kill(stepped, with_properties(Q, "", **{dead.TRUNCATE_MSG_BODY: True}))
    found = [
        (message.text, message.headers.properties[dead.BODY_TRUNCATED])
        for message in the_dead(stepped).messages
    ]
    assert found == [
        ("", True) if truncate else ("default", False),
        ("", True),
        ("kept", False),
        ("", False),
    ]


@pytest.mark.parametrize("log_all", [True, False])
def test_its_producer_may_have_it_logged_or_not_whatever_the_settings_say(
    tmp_path: Path, lines: list[str], log_all: bool
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(log_dead=log_all))
    for body, wish in (
        ("default", {}),
        ("logged", {dead.LOG_DEAD_MESSAGES: True}),
        ("silent", {dead.LOG_DEAD_MESSAGES: "false"}),
    ):
        kill(stepped, with_properties(Q, body, **cast("dict[str, Any]", wish)))
    default, logged, silent = the_dead(stepped).messages

    def said(message: Message) -> bool:
        return any(
            f"message {message.message_id} of queue:q is dead: UNDELIVERABLE" in line
            for line in lines
        )

    assert (said(default), said(logged), said(silent)) == (log_all, True, False)


def test_the_dead_of_the_dead_message_queue_are_dropped_with_a_line(
    stepped: Stepped, lines: list[str]
) -> None:
    kill(stepped, text(Q, "x"))
    found = the_dead(stepped)
    lines.clear()
    stepped.reject(found, [1], dead=DeadReason.ERROR)
    assert (stepped.broker.queue(DMQ).count, stepped.empty) == (0, True)
    assert [
        line
        for line in lines
        if f"message {found.messages[0].message_id} of queue:mq.sys.dmq is dead: ERROR" in line
    ]


def test_the_dead_message_queue_gives_up_its_oldest_at_its_limit_and_says_so_once(
    tmp_path: Path, lines: list[str]
) -> None:
    properties = DestinationProperties(
        max_num_msgs=3, limit_behavior=LimitBehavior.REMOVE_OLDEST, use_dmq=False
    )
    stepped = Stepped(tmp_path, BrokerOptions(destinations=((DMQ, properties),)))
    for number in range(8):
        kill(stepped, text(Q, str(number)))
    said = [line for line in lines if "queue:mq.sys.dmq is at its limit" in line]
    assert said == ["queue:mq.sys.dmq is at its limit and begins to give up messages (OLDEST)"]
    stepped.later(61)
    assert "queue:mq.sys.dmq gave up 4 more messages in a minute" in lines
    assert the_dead(stepped).texts == ["5", "6", "7"]
    assert stepped.bodies == ["5", "6", "7"]


def test_the_dead_message_queue_is_bounded_where_nothing_is_set(stepped: Stepped) -> None:
    kill(stepped, text(Q, "x"))
    assert stepped.broker.queue(DMQ).properties == DMQ_PROPERTIES
    assert (DMQ_PROPERTIES.max_total_msg_bytes, DMQ_PROPERTIES.limit_behavior) == (
        1024**3,
        LimitBehavior.REMOVE_OLDEST,
    )


def test_dead_or_not_it_is_on_the_disk_once(stepped: Stepped, individual: Session) -> None:
    inbox = stepped.consume(individual, Q)
    stepped.send(texts(Q, ["x"]), individual)
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    assert stepped.bodies == ["x"]
    stepped.run_until_idle()
    assert stepped.bodies == ["x"]
    stepped.restart()
    assert (stepped.broker.queue(DMQ).count, stepped.broker.queue(Q).count) == (1, 0)


def test_a_message_that_is_evicted_before_it_is_stored_comes_to_the_disk_as_its_copy(
    tmp_path: Path,
) -> None:
    properties = DestinationProperties(max_num_msgs=1, limit_behavior=LimitBehavior.REMOVE_OLDEST)
    stepped = Stepped(tmp_path, BrokerOptions(destinations=((Q, properties),)))
    session = stepped.session()
    told = Told()
    session.send(texts(Q, ["1", "2", "3"]))
    session.completion(told)
    stepped.run_until_idle()
    assert (told.well, sorted(stepped.bodies)) == (True, ["1", "2", "3"])
    stepped.restart()
    assert (stepped.broker.queue(Q).count, stepped.broker.queue(DMQ).count) == (1, 2)


# --- what has expired when it comes


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("room", [1000, 2], ids=["in-memory", "in-the-store"])
def test_what_has_expired_when_it_comes_is_dead_at_once(
    tmp_path: Path, room: int, persistent: bool
) -> None:
    share = room * OVERHEAD
    stepped = Stepped(tmp_path, memory=Memory(total=10 * share, share=share, least=OVERHEAD))
    late = {"expires": stepped.now_ms - 1, "persistent": persistent}
    stepped.send_each(texts(Q, ["x" * 2000] * 5, persistent=persistent))
    queue = stepped.broker.queue(Q)
    octets = queue.octets
    assert bool(queue.dispatch.backlog.behind) == (room == 2)
    stepped.send([text(Q, "late", **late), text(Q, "later", **late, priority=7)])
    inbox = the_dead(stepped)
    assert sorted(inbox.texts) == ["late", "later"]
    assert {message.headers.properties[dead.UNDELIVERED_COMMENT] for message in inbox.messages} == {
        "expired before it came"
    }
    assert (queue.count, queue.octets, queue.dispatch.being_buried) == (5, octets, 0)


def test_what_expires_later_stays_until_then(stepped: Stepped) -> None:
    stepped.send([text(Q, "x", expires=stepped.now_ms + 1000)])
    assert the_dead(stepped).texts == []
    assert stepped.broker.queue(Q).count == 1


def test_what_has_expired_is_dead_at_once_in_a_durable_subscription(stepped: Stepped) -> None:
    topic = Topic("t")
    session = stepped.session(client_id="c")
    stepped.consume(session, topic, durable_name="d")
    stepped.close(session)
    stepped.send([text(topic, "late", expires=stepped.now_ms - 1), text(topic, "fresh")])
    (found,) = the_dead(stepped).messages
    assert (found.text, found.headers.properties[ORIGINAL_DESTINATION]) == ("late", "topic:t")


def test_what_has_expired_is_no_delivery_even_to_a_consumer_that_waits(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(), Q)
    stepped.send([text(Q, "late", expires=stepped.now_ms - 1), text(Q, "fresh")])
    assert inbox.texts == ["fresh"]
    assert the_dead(stepped).texts == ["late"]
