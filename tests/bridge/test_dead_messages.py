"""The chain of dead message queues, on the embedded broker: order, success, the last resort, and
stopping.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import model
from bridge.config.model import BUILT_IN_DMQ_NAME, Dmq
from bridge.connections.connections import ConnectionKind
from bridge.dead.chain import NotBuried
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.messaging import dead
from gateway.messaging.dead import DMQ as BROKERS_DMQ
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Kind, Queue
from gateway.messaging.envelope import decode
from gateway.messaging.message import Headers, Message
from tests.bridge.dead_queues import BUILT_IN, FACTORY, Doing, Graveyard, died, dmq, original
from tests.documented_blocks import shown
from tests.pages import printed

A, B = Queue("a"), Queue("b")


def test_without_others_the_built_in_queue_is_enough(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    assert graveyard.bury().results == [True]
    (found,) = graveyard.messages()
    assert decode(found.body).message_id == "ID:there:1"
    assert (
        abs(int(str(found.headers.properties[dead.BRIDGE_TIMESTAMP])) - graveyard.stepped.now_ms)
        < 1000
    )
    assert found.expires == 0
    assert found.message_id != "ID:there:1"


def test_it_is_buried_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.start()
    burying = graveyard.burying()
    graveyard.stepped.run_reactor()
    assert graveyard.stepped.store.busy
    assert burying.results == []
    graveyard.stepped.run_until_idle()
    assert burying.results == [True]


def test_the_built_in_queue_comes_first_and_then_the_first_other_that_takes_it(
    tmp_path: Path,
) -> None:
    graveyard = Graveyard(
        tmp_path,
        dmq("full", send_attempts=1),
        dmq("off", enabled=False),
        dmq("a"),
        dmq("b"),
        full=[Queue("full")],
    )
    assert graveyard.bury().results == [True]
    assert [
        len(graveyard.messages(queue)) for queue in (BUILT_IN, Queue("full"), Queue("off"), A, B)
    ] == [1, 0, 0, 1, 0]


def test_the_copies_are_alike_but_for_their_identity(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a"))
    graveyard.bury()
    (built_in,), (other,) = graveyard.messages(), graveyard.messages(A)
    assert built_in.headers.properties == other.headers.properties
    assert built_in.body == other.body
    assert built_in.message_id != other.message_id


@pytest.mark.parametrize("others", [(), (dmq("full", send_attempts=1),)])
def test_it_is_buried_where_only_the_built_in_queue_takes_it(
    tmp_path: Path, others: tuple[Dmq, ...]
) -> None:
    graveyard = Graveyard(tmp_path, *others, full=[Queue("full")])
    assert graveyard.bury().results == [True]
    assert len(graveyard.messages()) == 1
    assert graveyard.lines("error") == []


def test_it_is_buried_where_only_another_queue_takes_it(tmp_path: Path) -> None:
    graveyard = Graveyard(
        tmp_path, dmq("a"), built_in=Dmq(BUILT_IN_DMQ_NAME, send_attempts=1), denied=[BUILT_IN]
    )
    assert graveyard.bury().results == [True]
    assert (graveyard.messages(), len(graveyard.messages(A))) == ([], 1)
    assert [status.last_error for status in graveyard.queues.status()] == [
        "user 'admin' may not produce on queue:imq.bridge.jms.dmq",
        "",
    ]


def test_the_built_in_queue_can_be_neither_disabled_nor_moved_nor_left(tmp_path: Path) -> None:
    moved = Dmq(
        BUILT_IN_DMQ_NAME,
        model.ConnectionFactory("elsewhere", lookup_name="stomp://127.0.0.1:1"),
        model.Destination("x", "x", Kind.QUEUE),
        enabled=False,
        stay_connected=False,
    )
    graveyard = Graveyard(tmp_path, built_in=moved)
    graveyard.start()
    assert graveyard.bury().results == [True]
    assert len(graveyard.messages()) == 1
    (status,) = graveyard.queues.status()
    assert (status.destination, status.connection_factory, status.enabled, status.kind) == (
        "queue:imq.bridge.jms.dmq",
        "",
        True,
        ConnectionKind.DEDICATED,
    )


def test_where_no_queue_takes_it_everything_is_in_the_log_and_it_is_not_buried(
    tmp_path: Path,
) -> None:
    graveyard = Graveyard(
        tmp_path,
        dmq("a", send_attempts=2, send_attempt_interval_s=1),
        built_in=Dmq(BUILT_IN_DMQ_NAME, send_attempts=1),
        full=[A],
        denied=[BUILT_IN],
    )
    burying = graveyard.bury()
    assert burying.results == []
    graveyard.later(1)
    error = burying.error
    assert isinstance(error, NotBuried)
    assert [(failure.queue, failure.attempts) for failure in error.failures] == [
        ("built-in-dmq", 1),
        ("a", 2),
    ]
    assert "may not produce" in error.failures[0].cause
    assert "maxNumMsgs is 0" in error.failures[1].cause
    (line,) = graveyard.lines("error")
    for part in (
        "link orders: message ID:there:1",
        "JMS_SUN_JMSBRIDGE_DMQ_REASON='SEND_FAILURE'",
        "JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION='the target does not take it'",
        "JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID='ID:there:1'",
        "JMS_SUN_JMSBRIDGE_TARGET_DESTINATION='queue:target'",
        "JMSDestination=queue:source",
        "JMSReplyTo=queue:answers",
        "content-type='image/png'",
        "colour='red', weight=12",
        "a, after 2 attempts: queue:a is full",
    ):
        assert part in line
    assert "\\xff" not in line
    page = shown("jmsbridge", "link orders: message ID1")
    page = page.replace("ID1", "ID:there:1").replace("3 attempts", "1 attempt")
    assert printed.has(line, f"...{page}"), line


def test_what_is_too_long_for_a_line_has_several(tmp_path: Path) -> None:
    graveyard = Graveyard(
        tmp_path, built_in=Dmq(BUILT_IN_DMQ_NAME, send_attempts=1), denied=[BUILT_IN]
    )
    message = Message(
        Headers(Queue("source"), properties={f"p{number}": "x" * 100 for number in range(300)}),
        b"",
        message_id="ID-9",
    )
    burying = graveyard.bury(died(message))
    assert isinstance(burying.error, NotBuried)
    lines = graveyard.lines("error")
    assert len(lines) == 3
    assert all(len(line) < 16_000 and "ID-9" in line for line in lines)
    whole = "".join(
        event["message"] for event in graveyard.events if event["log_level"].name == "error"
    )
    assert all(f"p{number}='{'x' * 100}'" in whole for number in range(300))


@pytest.mark.parametrize(
    ("reason", "level"),
    [(BridgeDeadReason.MESSAGE_EXPIRED, "info"), (BridgeDeadReason.TRANSFORM_FAILURE, "warn")],
)
def test_each_dead_message_is_a_line_in_the_log_before_anything_else(
    tmp_path: Path, reason: BridgeDeadReason, level: str
) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.bury(died(reason=reason))
    (line,) = graveyard.lines(level)
    assert line == graveyard.lines()[0]
    assert line.startswith(
        f"link orders: message ID:there:1 is dead, {reason.value}: the target does not take it; headers: JMSMessageID="
    )
    assert line.endswith("properties: colour='red', weight=12")
    event = graveyard.events[0]
    assert (event["link"], event["message_id"], event["reason"]) == (
        "orders",
        "ID:there:1",
        reason.value,
    )


def test_those_of_one_link_keep_their_order_and_links_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.start()
    made = [
        died(Message(Headers(Queue("source")), b"", message_id=f"ID-{link}-{number}"), link=link)
        for number in range(20)
        for link in "xy"
    ]
    results = [graveyard.bury(each).results for each in made]
    assert results == [[True]] * 40
    found = [
        str(message.headers.properties[dead.BRIDGE_SOURCE_MESSAGE_ID])
        for message in graveyard.messages()
    ]
    for link in "xy":
        assert [name for name in found if f"-{link}-" in name] == [
            f"ID-{link}-{number}" for number in range(20)
        ]


def test_burying_again_gives_a_copy_with_the_same_source_message_id(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.bury()
    graveyard.bury()
    found = graveyard.messages()
    assert [message.headers.properties[dead.BRIDGE_SOURCE_MESSAGE_ID] for message in found] == [
        "ID:there:1"
    ] * 2
    assert len({message.message_id for message in found}) == 2


# Starting and stopping.


def test_a_start_connects_what_stays_connected_and_is_enabled(tmp_path: Path) -> None:
    graveyard = Graveyard(
        tmp_path,
        dmq("a"),
        dmq("b", stay_connected=False),
        dmq("off", enabled=False, clientid="never"),
        dmq("own", clientid="mine"),
    )
    graveyard.start()
    assert [status.kind for status in graveyard.queues.status()] == [
        ConnectionKind.DEDICATED,
        ConnectionKind.DEDICATED,
        None,
        None,
        ConnectionKind.DEDICATED,
    ]
    assert [graveyard.has(client_id) for client_id in ("mine", "never")] == [True, False]


def test_what_cannot_be_connected_at_the_start_is_a_line_in_the_log(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", clientid="mine"))
    graveyard.stepped.connect("mine")
    starting = Doing(graveyard.queues.start())
    graveyard.later(60)
    assert starting.results == [True]
    assert graveyard.lines("warn") == [
        "dead message queue a cannot be connected: client-id 'mine' is in use by another connection"
    ]


def test_a_stop_ends_the_wait_between_attempts_at_once(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", send_attempts=100), full=[A])
    burying = graveyard.bury()
    assert burying.results == []
    graveyard.stop()
    error = burying.error
    assert isinstance(error, NotBuried)
    assert [(failure.queue, failure.attempts) for failure in error.failures] == [("a", 1)]
    assert "stopping" in error.failures[0].cause
    assert error.taken_by == ("built-in-dmq",)
    assert "in built-in-dmq only" in graveyard.lines("error")[0]
    graveyard.later(600)
    assert graveyard.queues.status()[1].failed_attempts == 1


def test_what_is_being_sent_at_a_stop_ends_well(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.start()
    burying = graveyard.burying()
    graveyard.stepped.run_reactor()
    stopping = Doing(graveyard.queues.stop())
    graveyard.stepped.run_reactor()
    assert (burying.results, stopping.results) == ([], [])
    graveyard.stepped.run_until_idle()
    assert (burying.results, stopping.results) == ([True], [True])


def test_a_queue_that_holds_its_senders_back_holds_the_link_back_until_a_stop(
    tmp_path: Path,
) -> None:
    limit = DestinationProperties(max_num_msgs=1, limit_behavior=LimitBehavior.FLOW_CONTROL)
    graveyard = Graveyard(tmp_path, destinations=[(BUILT_IN, limit)])
    first = graveyard.bury()
    assert first.results == [], "it has come to the limit"
    graveyard.later(600)
    assert len(graveyard.messages()) == 1
    assert first.results == [True]
    second = graveyard.bury()
    stopping = Doing(graveyard.queues.stop())
    graveyard.later(4)
    assert (second.results, stopping.results) == ([], [])
    graveyard.later(1)
    assert isinstance(second.error, NotBuried)
    assert stopping.results == [True]


def test_after_a_stop_nothing_is_tried(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    graveyard.stop()
    assert isinstance(graveyard.bury().error, NotBuried)
    assert graveyard.messages() == []


# The broker's own dead message queue.


@pytest.mark.parametrize("persistent", [True, False])
def test_the_recipe_hands_each_message_over_to_the_brokers_dead_message_queue(
    tmp_path: Path, persistent: bool
) -> None:
    """Open MQ's: ``useDMQ=true limitBehavior=REMOVE_OLDEST maxNumMsgs=0``."""
    recipe = DestinationProperties(
        use_dmq=True, limit_behavior=LimitBehavior.REMOVE_OLDEST, max_num_msgs=0
    )
    graveyard = Graveyard(tmp_path, destinations=[(BUILT_IN, recipe)])
    dying = [
        died(Message(original(persistent=persistent).headers, b"x", message_id=f"ID-{number}"))
        for number in range(5)
    ]
    assert [graveyard.bury(each).results for each in dying] == [[True]] * 5
    assert graveyard.messages() == []
    if persistent:
        # What got its receipt is there after a crash, too.
        graveyard.stepped.restart()
    found = graveyard.messages(BROKERS_DMQ)
    assert [decode(message.body).message_id for message in found] == [
        f"ID-{number}" for number in range(5)
    ]
    for message in found:
        properties = message.headers.properties
        assert (properties[dead.UNDELIVERED_REASON], properties[dead.BRIDGE_REASON]) == (
            "OLDEST",
            "SEND_FAILURE",
        )
        assert message.headers.extras == (
            ("content-type", "application/vnd.stomp-gateway.envelope"),
        )
    assert graveyard.stepped.empty or not persistent


def test_how_each_queue_is_can_be_asked(tmp_path: Path) -> None:
    graveyard = Graveyard(
        tmp_path,
        Dmq("looked-up", FACTORY, model.Destination("x", lookup_name="jms/x"), enabled=False),
        dmq("a", send_attempts=2, send_attempt_interval_s=1),
        full=[A],
    )
    graveyard.bury()
    graveyard.later(1)
    built_in, looked_up, a = graveyard.queues.status()
    assert (built_in.name, built_in.built_in, built_in.sent, built_in.not_taken) == (
        "built-in-dmq",
        True,
        1,
        0,
    )
    assert (looked_up.name, looked_up.destination, looked_up.enabled, looked_up.kind) == (
        "looked-up",
        "jms/x",
        False,
        None,
    )
    assert (a.destination, a.connection_factory, a.sent, a.not_taken, a.failed_attempts) == (
        "queue:a",
        "cf",
        0,
        1,
        2,
    )
    assert a.last_error == "queue:a is full: maxNumMsgs is 0"
    assert 0 <= graveyard.stepped.now_ms - a.last_error_ms < 1000
