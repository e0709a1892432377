"""What the log says of destinations at their limits, and of those that come and go: what begins at
once, what goes on as a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.logger import formatEvent

from gateway.broker.core.limit_reports import NAMED
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import MessageRejected
from gateway.messaging.provider import Mode, Session
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped
from tests.logged import logged_lines

Q = Queue("q")
BEGINS = "queue:q is at its limit and begins to hold its senders back: maxNumMsgs is 2"
ROOM = "queue:q has room again, and its senders go on"


def logged(*words: str) -> Iterator[list[str]]:
    """Lines of the log with one of these words, from now on."""
    with logged_lines(lambda event: any(word in formatEvent(event) for word in words)) as lines:
        yield lines


@pytest.fixture(name="lines")
def lines_about_limits() -> Iterator[list[str]]:
    """What the log is told of limits."""
    yield from logged("limit", "room", "more messages")


@pytest.fixture(name="uses")
def lines_about_use() -> Iterator[list[str]]:
    """What the log is told of destinations that come and go."""
    yield from logged(" is made", " is removed", "more destinations")


def limited(
    folder: Path, behavior: LimitBehavior, destination: Destination = Q, most: int = 2
) -> Stepped:
    properties = DestinationProperties(max_num_msgs=most, limit_behavior=behavior)
    return Stepped(folder, BrokerOptions(destinations=((destination, properties),), reap_time=0))


def taken(lines: list[str]) -> list[str]:
    """The lines until now, forgotten here."""
    found = [*lines]
    lines.clear()
    return found


def consumer(stepped: Stepped, destination: Destination = Q) -> Inbox:
    return stepped.consume(stepped.session(Mode.INDIVIDUAL), destination)


def take(stepped: Stepped, inbox: Inbox) -> None:
    """Acknowledge all that was delivered."""
    stepped.run_until_idle()
    inbox.consumer.acknowledge(inbox.numbers)
    inbox.clear()
    stepped.run_until_idle()


def fill(stepped: Stepped, session: Session, destination: Destination = Q) -> None:
    stepped.send_each([text(destination, "x") for _ in range(2)], session)


def test_holding_back_and_room_are_said_when_they_come(tmp_path: Path, lines: list[str]) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    session, inbox = stepped.session(), consumer(stepped)
    stepped.send([text(Q, "x")], session)
    assert taken(lines) == []
    stepped.send([text(Q, "x")], session)
    assert taken(lines) == [BEGINS]
    # It stays so for long, with nothing to say.
    stepped.later(200)
    assert taken(lines) == []
    take(stepped, inbox)
    assert taken(lines) == [ROOM]
    stepped.later(200)
    fill(stepped, session)
    take(stepped, inbox)
    assert taken(lines) == [BEGINS, ROOM]
    stepped.later(200)
    assert taken(lines) == []


def test_what_changes_all_the_time_is_said_once_a_minute(tmp_path: Path, lines: list[str]) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    session, inbox = stepped.session(), consumer(stepped)
    for _ in range(5):
        fill(stepped, session)
        take(stepped, inbox)
    assert taken(lines) == [BEGINS, ROOM]
    stepped.later(61)
    assert taken(lines) == [
        "queue:q was at its limit and held its senders back 4 more times in a minute, and has room now"
    ]
    for _ in range(3):
        fill(stepped, session)
        take(stepped, inbox)
    fill(stepped, session)
    assert taken(lines) == []
    stepped.later(61)
    assert taken(lines) == [
        "queue:q was at its limit and held its senders back 4 more times in a minute, and does so now"
    ]
    take(stepped, inbox)
    assert taken(lines) == [ROOM]
    stepped.later(200)
    fill(stepped, session)
    assert taken(lines) == [BEGINS]


def test_room_is_said_though_the_sender_who_waited_is_gone(
    tmp_path: Path, lines: list[str]
) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    session, inbox = stepped.session(), consumer(stepped)
    fill(stepped, session)
    session.close()
    take(stepped, inbox)
    assert taken(lines) == [BEGINS, ROOM]


def test_a_topic_is_spoken_of_as_a_queue_is(tmp_path: Path, lines: list[str]) -> None:
    topic = Topic("t")
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL, topic)
    session, inbox = stepped.session(), consumer(stepped, topic)
    fill(stepped, session, topic)
    take(stepped, inbox)
    assert taken(lines) == [line.replace("queue:q", "topic:t") for line in (BEGINS, ROOM)]


def test_a_destination_that_is_removed_and_made_again_is_a_new_one(
    tmp_path: Path, lines: list[str]
) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    fill(stepped, stepped.session())
    stepped.later(100)
    stepped.remove(stepped.broker.queue(Q))
    fill(stepped, stepped.session())
    assert taken(lines) == [BEGINS, ROOM, BEGINS]


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.TRANSACTED])
def test_refusals_are_said_at_once_and_then_counted(
    tmp_path: Path, lines: list[str], mode: Mode
) -> None:
    stepped = limited(tmp_path, LimitBehavior.REJECT_NEWEST, most=1)
    stepped.session().send([text(Q, "x")])
    session = stepped.session(mode)
    for _ in range(4):
        with pytest.raises(MessageRejected):
            session.send([text(Q, "x")])
    assert taken(lines) == [
        "queue:q is at its limit and begins to refuse messages: maxNumMsgs is 1"
    ]
    stepped.later(61)
    assert taken(lines) == ["queue:q refused 3 more messages in a minute"]
    stepped.later(200)
    assert taken(lines) == []


def test_of_many_destinations_that_come_and_go_at_once_the_log_has_the_first_and_a_number(
    tmp_path: Path, uses: list[str]
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    session = stepped.session()
    for number in range(NAMED + 30):
        stepped.consume(session, Queue(f"q{number}")).consumer.close()
    stepped.run_until_idle()
    assert taken(uses) == [
        f"queue:q{number} is made, because user 'guest' uses it" for number in range(NAMED)
    ]
    stepped.later(1)
    assert taken(uses) == ["30 more destinations are made in a second, because clients use them"]
    stepped.later(10)
    removed = "removed: nobody has used it for 10 seconds"
    assert taken(uses) == [f"queue:q{number} is {removed}" for number in range(NAMED)]
    stepped.later(1)
    assert taken(uses) == [
        "30 more destinations are removed in a second: nobody has used them for 10 seconds"
    ]
    stepped.consume(session, Q).consumer.close()
    stepped.later(1)
    stepped.later(1)
    assert taken(uses) == ["queue:q is made, because user 'guest' uses it"], (
        "few are told by name, and no number follows"
    )


def test_the_number_of_those_that_came_last_is_told_before_the_end(
    tmp_path: Path, uses: list[str]
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    session = stepped.session()
    for number in range(NAMED + 3):
        stepped.consume(session, Queue(f"q{number}"))
    stepped.broker.close(lambda: None)
    stepped.run_reactor()
    assert taken(uses)[NAMED:] == [
        "3 more destinations are made in a second, because clients use them"
    ]
