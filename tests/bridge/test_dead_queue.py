"""One dead message queue, on the embedded broker: attempts, time to live, connections, and its
transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from bridge.config import model
from bridge.config.model import BUILT_IN_DMQ_NAME, Dmq
from bridge.connections.connections import ConnectionKind
from bridge.connections.factories import GROUP
from bridge.dead.chain import NotBuried
from bridge.providers.jms.failures import JavaMissing
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.messaging import dead
from gateway.messaging.destination import Kind, Queue
from gateway.messaging.envelope import decode
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Unreadable
from gateway.messaging.provider import Capabilities, Connection
from gateway.messaging.transformer import MessageTransformer
from tests.bridge.dead_queues import BUILT_IN, Graveyard, died, dmq, original

A = Queue("a")
DENIED = "queue.a.produce.deny.user=*\n"


def allow(graveyard: Graveyard) -> None:
    graveyard.stepped.access.path.write_text(
        graveyard.stepped.access.path.read_text().replace(DENIED, "")
    )
    graveyard.stepped.access.load()


@pytest.mark.parametrize(("attempts", "interval"), [(1, 5), (3, 5), (4, 1)])
def test_it_is_tried_exactly_as_often_as_configured_with_the_interval_between(
    tmp_path: Path, attempts: int, interval: int
) -> None:
    graveyard = Graveyard(
        tmp_path,
        built_in=Dmq(BUILT_IN_DMQ_NAME, send_attempts=attempts, send_attempt_interval_s=interval),
        denied=[BUILT_IN],
    )
    burying = graveyard.bury()
    for attempt in range(1, attempts):
        assert (graveyard.queues.status()[0].failed_attempts, burying.results) == (attempt, [])
        graveyard.later(interval - 0.5)
        assert graveyard.queues.status()[0].failed_attempts == attempt
        graveyard.later(0.5)
    assert isinstance(burying.error, NotBuried)
    graveyard.later(60)
    (status,) = graveyard.queues.status()
    assert (status.failed_attempts, status.not_taken) == (attempts, 1)
    told = [line for line in graveyard.lines("warn") if line.startswith("dead message queue")]
    assert [line.split(" to send")[0] for line in told] == [
        f"dead message queue built-in-dmq: attempt {attempt} of {attempts}"
        for attempt in range(1, attempts + 1)
    ]


def test_an_attempt_that_succeeds_is_the_last(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", send_attempts=5), denied=[A])
    burying = graveyard.bury()
    graveyard.later(5)
    allow(graveyard)
    assert burying.results == []
    graveyard.later(5)
    assert burying.results == [True]
    status = graveyard.queues.status()[1]
    assert (status.sent, status.failed_attempts) == (1, 2)
    assert len(graveyard.messages(A)) == 1


def test_one_that_waits_keeps_no_other_waiting(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", send_attempts=2), denied=[A])
    first = graveyard.bury()
    allow(graveyard)
    second = graveyard.bury()
    assert (first.results, second.results) == ([], [True])
    graveyard.later(5)
    assert first.results == [True]


def test_its_time_to_live_counts_from_the_attempt(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", time_to_live_ms=60_000, send_attempts=3), denied=[A])
    graveyard.bury()
    graveyard.later(5)
    allow(graveyard)
    graveyard.later(5)
    (found,) = graveyard.messages(A)
    assert 0 <= graveyard.stepped.now_ms + 60_000 - found.expires < 1000


def test_that_the_original_has_expired_makes_no_difference(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path)
    message = original()
    message.expires = 5
    graveyard.bury(died(message))
    (found,) = graveyard.messages()
    assert (found.expires, decode(found.body).expires) == (0, 5)


# Connections.


def test_a_lost_connection_is_taken_anew_and_what_was_under_way_is_tried_again(
    tmp_path: Path,
) -> None:
    holding_back = DestinationProperties(max_num_msgs=1, limit_behavior=LimitBehavior.FLOW_CONTROL)
    graveyard = Graveyard(tmp_path, destinations=[(BUILT_IN, holding_back)])
    burying = graveyard.bury()
    graveyard.stepped.provider.fail(ProviderUnavailable("gone"))
    graveyard.stepped.run_until_idle()
    assert graveyard.queues.status()[0].failed_attempts == 1
    graveyard.later(5)
    assert burying.results == []
    found = graveyard.messages()
    assert [message.headers.properties[dead.BRIDGE_SOURCE_MESSAGE_ID] for message in found] == [
        "ID:there:1"
    ] * 2
    assert burying.results == [True]
    graveyard.stepped.provider.fail(ProviderUnavailable("gone while nobody used it"))
    graveyard.stepped.run_until_idle()
    again = graveyard.bury()
    graveyard.messages()
    assert again.results == [True]
    assert graveyard.queues.status()[0].failed_attempts == 1


def test_a_connection_that_a_client_id_makes_its_own_is_closed_between_messages(
    tmp_path: Path,
) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", stay_connected=False, clientid="mine"))
    for _ in range(3):
        assert graveyard.bury().results == [True]
    assert not graveyard.has("mine")
    assert graveyard.queues.status()[1].kind is ConnectionKind.DEDICATED


def test_without_client_id_it_is_one_of_a_pool_that_a_refusal_does_not_empty(
    tmp_path: Path,
) -> None:
    graveyard = Graveyard(
        tmp_path, dmq("a", stay_connected=False), dmq("b", stay_connected=False), denied=[A]
    )
    burying = graveyard.bury()
    for _ in range(2):
        assert [(pool.in_use, pool.idle) for pool in graveyard.connections.pools()] == [(0, 1)]
        graveyard.later(5)
    assert burying.results == [True]
    assert [(pool.in_use, pool.idle) for pool in graveyard.connections.pools()] == [(0, 1)]
    assert graveyard.queues.status()[1].kind is ConnectionKind.POOLED


def test_after_a_stop_no_connection_is_left(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", clientid="mine"))
    graveyard.start()
    graveyard.bury()
    graveyard.stop()
    assert not graveyard.has("mine")


def test_what_cannot_work_is_not_tried_again(tmp_path: Path) -> None:
    looked_up = model.Destination("x", lookup_name="jms/x")
    nowhere = Dmq(
        "nowhere",
        model.ConnectionFactory("n", properties={"provider": "none"}),
        looked_up,
        send_attempts=9,
    )
    unknown = Dmq("unknown", model.ConnectionFactory("u"), looked_up, send_attempts=9)
    graveyard = Graveyard(tmp_path, nowhere, unknown, dmq("a"))
    graveyard.start()
    assert graveyard.bury().results == [True]
    assert graveyard.bury().results == [True]
    found = graveyard.queues.status()
    works, failed = (0, 0, False), (1, 2, True)
    assert [(status.failed_attempts, status.not_taken, status.failed) for status in found] == [
        *(works, failed, failed, works)
    ]
    assert "no provider 'none' is installed" in found[1].last_error
    assert "looks nothing up" in found[2].last_error


class Lacking:
    """A provider that needs Java, where there is nothing to reach it with."""

    capabilities = Capabilities()
    resource = "lacking"

    def connect(self, *_: object) -> Deferred[Connection]:
        return fail(JavaMissing("no java command was found"))


def lacking(_config: object, _reactor: object) -> Lacking:
    return Lacking()


@pytest.mark.parametrize("stay_connected", [True, False])
def test_one_whose_package_is_not_installed_has_failed_and_says_so_once(
    tmp_path: Path, stay_connected: bool
) -> None:
    factory = model.ConnectionFactory("far", properties={"provider": "lacking"})
    point = EntryPoint("lacking", f"{__name__}:lacking", GROUP)
    far = Dmq(
        "far", factory, model.Destination("x", "x", Kind.QUEUE), stay_connected=stay_connected
    )
    graveyard = Graveyard(tmp_path, far, entry_points={"lacking": point})
    graveyard.start()
    # Nobody waits for attempts that cannot succeed.
    for _ in range(3):
        assert graveyard.bury().results == [True]
    (line,) = [line for line in graveyard.lines() if "far" in line]
    why = "the provider is unavailable: no java command was found"
    assert (
        line
        == f"dead message queue far has failed, and takes no message until its bridge is started anew: {why}"
    )
    status = graveyard.queues.status()[1]
    assert (status.failed, status.failed_attempts, status.not_taken, status.last_error) == (
        True,
        1,
        3,
        why,
    )


# The transformer.


class Recorder(MessageTransformer):
    """Does what a test says, and remembers what it was given."""

    def __init__(self, change: Callable[[Recorder, JMSMessage], JMSMessage | None]) -> None:
        self.change = change
        self.given: list[dict[str, Any]] = []

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        self.given.append(
            {
                "read_only": read_only,
                "charset": charset_name,
                "source": source,
                "target": target,
                "properties": properties,
            }
        )
        return self.change(self, message)


def spelled(_: Recorder, message: JMSMessage) -> JMSMessage:
    copy = message.copy()
    copy.octets = message.octets.hex().encode()
    copy.properties["spelled"] = True
    return copy


def with_transformer(
    tmp_path: Path,
    transformer: MessageTransformer,
    denied: Sequence[Queue] = (),  # type: ignore[valid-type]
    **changes: Any,
) -> Graveyard:
    asked: list[tuple[str, str]] = []

    def load(name: str, setting: str) -> MessageTransformer:
        asked.append((name, setting))
        return transformer

    graveyard = Graveyard(
        tmp_path,
        dmq("a", message_transformer_class="pack:Class", **changes),
        denied=denied,
        load=load,
    )
    assert asked == [("pack:Class", "dmq a, message-transformer-class")]
    return graveyard


def test_the_transformed_message_is_in_the_envelope_and_the_properties_stay_the_originals(
    tmp_path: Path,
) -> None:
    transformer = Recorder(spelled)
    graveyard = with_transformer(tmp_path, transformer, properties={"mode": "x"})
    graveyard.start()
    assert graveyard.bury().results == [True]
    (found,) = graveyard.messages(A)
    inside = decode(found.body)
    assert (inside.body, inside.headers.properties["spelled"], inside.message_id) == (
        b"00ff",
        True,
        "ID:there:1",
    )
    assert inside.headers.destination == Queue("source")
    assert "spelled" not in found.headers.properties
    (built_in,) = graveyard.messages()
    assert decode(built_in.body).body == b"\0\xff", "the built-in queue has no transformer"
    assert transformer.given == [
        {
            "read_only": True,
            "charset": None,
            "source": "ActiveMQ",
            "target": "stomp-gateway",
            "properties": {"mode": "x"},
        }
    ]


def test_without_properties_it_is_given_none(tmp_path: Path) -> None:
    transformer = Recorder(spelled)
    graveyard = with_transformer(tmp_path, transformer)
    graveyard.bury()
    assert transformer.given[0]["properties"] is None


def test_it_is_not_given_what_cannot_be_read(tmp_path: Path) -> None:
    transformer = Recorder(spelled)
    graveyard = with_transformer(tmp_path, transformer)
    assert graveyard.bury(died(Unreadable(original(), "it is damaged"))).results == [True]
    (found,) = graveyard.messages(A)
    assert "it cannot be read: it is damaged" in found.text
    assert transformer.given == []
    (line,) = [line for line in graveyard.lines("error") if "message ID:there:1 is dead" in line]
    assert "colour='red'" in line
    assert "JMSCorrelationID='c-1'" in line


def test_it_is_called_once_for_all_attempts(tmp_path: Path) -> None:
    transformer = Recorder(spelled)
    graveyard = with_transformer(tmp_path, transformer, [A], send_attempts=3)
    burying = graveyard.bury()
    graveyard.later(5)
    allow(graveyard)
    graveyard.later(5)
    assert burying.results == [True]
    assert len(transformer.given) == 1


def broken(_: Recorder, message: JMSMessage) -> JMSMessage:
    raise RuntimeError("cannot spell")


def nothing(_: Recorder, message: JMSMessage) -> None:
    return None


def overwriting(_: Recorder, message: JMSMessage) -> JMSMessage:
    message.properties["colour"] = "blue"
    return message


@pytest.mark.parametrize("change", [broken, nothing, overwriting])
def test_where_it_fails_the_original_is_kept_with_a_warning(
    tmp_path: Path, change: Callable[[Recorder, JMSMessage], JMSMessage | None]
) -> None:
    graveyard = with_transformer(tmp_path, Recorder(change))
    assert graveyard.bury().results == [True]
    (found,) = graveyard.messages(A)
    inside = decode(found.body)
    assert (inside.headers, inside.body) == (original().headers, original().body)
    (line,) = [line for line in graveyard.lines("warn") if "transformer" in line]
    assert line.startswith("dead message queue a: the message transformer ")
    assert line.endswith("message ID:there:1 of link orders is kept as it was")


def unsayable(_: Recorder, message: JMSMessage) -> JMSMessage:
    copy = message.copy()
    copy._extras = (("x", Decimal(1)),)  # type: ignore[assignment]
    return copy


def test_what_it_gives_that_cannot_be_put_into_an_envelope_makes_the_body_the_originals_text(
    tmp_path: Path,
) -> None:
    graveyard = with_transformer(tmp_path, Recorder(unsayable))
    properties: Any = {"price": Decimal("1.5")}
    graveyard.bury(died(original(properties=properties)))
    (found,) = graveyard.messages(A)
    assert found.headers.body_type is BodyType.BYTES
    assert found.headers.properties[dead.BRIDGE_BODY_TRUNCATED] == "true"
    assert "price (Decimal): 1.5" in found.body.decode()
    assert any("is kept as text" in line for line in graveyard.lines("warn"))


def dropping(transformer: Recorder, message: JMSMessage) -> JMSMessage:
    transformer.no_transfer()
    return message


def branching(transformer: Recorder, message: JMSMessage) -> JMSMessage:
    transformer.branch_to(Queue("elsewhere"))
    return message


@pytest.mark.parametrize(
    ("change", "what"), [(dropping, "no_transfer()"), (branching, "branch_to()")]
)
def test_it_can_neither_drop_what_is_dead_nor_send_it_elsewhere(
    tmp_path: Path, change: Callable[[Recorder, JMSMessage], JMSMessage], what: str
) -> None:
    graveyard = with_transformer(tmp_path, Recorder(change))
    graveyard.bury()
    assert len(graveyard.messages(A)) == 1
    assert graveyard.messages(Queue("elsewhere")) == []
    assert any(what in line for line in graveyard.lines("warn"))


def test_a_class_that_cannot_be_found_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    def load(name: str, setting: str) -> MessageTransformer:
        raise LookupError(f"{setting}={name}: there is none")

    with pytest.raises(LookupError, match="dmq a, message-transformer-class=pack:Class"):
        Graveyard(tmp_path, dmq("a", message_transformer_class="pack:Class"), load=load)


def test_the_class_of_a_disabled_queue_is_not_looked_for(tmp_path: Path) -> None:
    graveyard = Graveyard(tmp_path, dmq("a", message_transformer_class="pack:Class", enabled=False))
    assert graveyard.bury().results == [True]


def test_a_topic_can_be_one(tmp_path: Path) -> None:
    topic = model.Destination("t", "dead.ones", Kind.TOPIC)
    graveyard = Graveyard(tmp_path, Dmq("t", model.ConnectionFactory("cf"), topic))
    session = graveyard.stepped.session()
    assert topic.by_name is not None
    inbox = graveyard.stepped.consume(session, topic.by_name)
    assert graveyard.bury().results == [True]
    assert [decode(message.body).message_id for message in inbox.messages] == ["ID:there:1"]
    assert graveyard.queues.status()[1].destination == "topic:dead.ones"
