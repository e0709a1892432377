"""The message processing sequence, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bridge.config.model import (
    HOPS,
    MESSAGE_IDS,
    Bridge,
    ConnectionFactory,
    Link,
    QualityOfService,
    Rule,
    SetHeader,
    Source,
    Target,
)
from bridge.config.model import Destination as Configured
from bridge.link.transfer import (
    Dead,
    LinkEnds,
    LinkStops,
    NeedsJava,
    NeedsLookUp,
    NotTransferred,
    Outcome,
    ToSend,
    Transfer,
    UnknownRefName,
)
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.transformer import MessageTransformer

NOW = 1_800_000_000_000
TARGET = Queue("target")
TOLERANT = {"consume_no_transfer_on_transform_error": True}


def message(body: str = "hello", *, expires: int = 0, **headers: Any) -> Message:
    headers.setdefault("destination", Queue("source"))
    return Message(
        Headers(**headers), body.encode(), expires=expires, timestamp=NOW - 5, message_id="ID-1"
    )


def transfer(
    transformer: MessageTransformer | None = None,
    *,
    target: Mapping[str, Any] | None = None,
    bridge: Mapping[str, Any] | None = None,
    identity: str = "instance/bridge/link",
    **link: Any,
) -> Transfer:
    factory = ConnectionFactory("factory", lookup_name="stomp://host:1")
    configured = Link(
        "link",
        Source(factory, Configured("source", "source", Kind.QUEUE)),
        Target(factory, **(target or {})),
        quality_of_service=QualityOfService.DUPLICATES_OK,
        **link,
    )

    async def resolve(ref_name: str) -> Destination:
        if ref_name == "away":
            raise ProviderUnavailable("it is away")
        if ref_name != "known":
            raise UnknownRefName(ref_name)
        return Topic("found")

    return Transfer(
        configured, Bridge("bridge", **(bridge or {})), identity, transformer, resolve, lambda: NOW
    )


def outcome(
    of: Transfer,
    given: Message,
    destination: Destination | None = TARGET,
    *,
    source: str = "A",
    target: str = "B",
    embedded: bool = False,
) -> Outcome:
    """What the sequence makes of a message, at once: nothing of these tests waits."""
    sides = LinkEnds(destination, source, target, embedded)
    outcome = of.outcome_of(given, sides)
    assert not isinstance(outcome, NeedsJava)
    if not isinstance(outcome, NeedsLookUp):
        return outcome
    results: list[Outcome] = []
    failures: list[BaseException] = []
    running = Deferred.fromCoroutine(of.branch(outcome, sides))
    running.addCallbacks(results.append, lambda failure: failures.append(failure.value))
    if failures:
        raise failures[0]
    assert len(results) == 1, "it waits"
    return results[0]


def sent(
    of: Transfer, given: Message, destination: Destination | None = TARGET, **sides: Any
) -> Message:
    result = outcome(of, given, destination, **sides)
    assert isinstance(result, ToSend), result
    return result.message


def dead(of: Transfer, given: Message, reason: BridgeDeadReason) -> str:
    """What is said of a message that is given up for this reason."""
    result = outcome(of, given)
    assert isinstance(result, Dead), result
    assert result.reason is reason
    return result.exception


# --- 2: expiry


@pytest.mark.parametrize("expires", [NOW, NOW - 1, 1])
def test_an_expired_message_is_dead_and_so_is_one_with_no_time_left_at_all(expires: int) -> None:
    said = dead(transfer(), message(expires=expires), BridgeDeadReason.MESSAGE_EXPIRED)
    assert str(NOW - expires) in said


@pytest.mark.parametrize("expires", [0, NOW + 1])
def test_one_that_never_expires_or_later_is_sent_with_the_time_it_has_left(expires: int) -> None:
    assert sent(transfer(), message(expires=expires)).expires == expires


def test_an_expired_message_does_not_reach_the_transformer() -> None:
    class Fails(MessageTransformer):
        def transform(self, *_: Any) -> JMSMessage | None:
            raise AssertionError("it was called")

    dead(transfer(Fails()), message(expires=NOW), BridgeDeadReason.MESSAGE_EXPIRED)


# --- 3: JMSReplyTo


def test_reply_to_is_dropped() -> None:
    assert sent(transfer(), message(reply_to=Queue("answers"))).headers.reply_to is None


def test_reply_to_is_retained_where_the_target_says_so() -> None:
    assert sent(
        transfer(target={"retain_replyto": True}), message(reply_to=Topic("answers"))
    ).headers.reply_to == Topic("answers")


def test_reply_to_is_kept_where_both_sides_are_the_broker_of_this_instance() -> None:
    assert sent(
        transfer(), message(reply_to=Queue("answers")), embedded=True
    ).headers.reply_to == Queue("answers")


def test_a_temporary_reply_to_means_nothing_elsewhere() -> None:
    given = message(reply_to=Destination(Kind.QUEUE, "t", True))
    assert (
        sent(transfer(target={"retain_replyto": True}), given, embedded=True).headers.reply_to
        is None
    )


# --- 4: the transformer


class Shouts(MessageTransformer):
    """Upper case, and notes what it was given."""

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        self.given = (
            message.reply_to,
            read_only,
            charset_name,
            source,
            target,
            dict(properties or {}),
        )
        copy = message.copy()
        copy.text = str(message.text).upper()
        return copy


def test_the_transformer_is_given_what_the_guide_promises_and_its_message_is_sent() -> None:
    transformer = Shouts()
    of = transfer(transformer, target={"properties": {"colour": "red"}})
    result = sent(of, message(reply_to=Queue("answers")), source="ActiveMQ", target="RabbitMQ")
    assert result.text == "HELLO"
    assert transformer.given == (
        None,
        True,
        None,
        "ActiveMQ",
        "RabbitMQ",
        {"colour": "red", "JMS_SUN_JMSBRIDGE_NAME": "bridge"},
    )


class Does(MessageTransformer):
    """What it is told."""

    def __init__(self, what: Any) -> None:
        self._what = what

    def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
        return self._what(self, message)  # type: ignore[no-any-return]


def raising(error: Exception) -> Does:
    def what(_self: MessageTransformer, _message: JMSMessage) -> JMSMessage | None:
        raise error

    return Does(what)


@pytest.mark.parametrize(
    "transformer",
    [raising(ValueError("no")), Does(lambda self, message: None)],
    ids=["raises", "none"],
)
def test_where_a_failing_transformer_is_to_consume_the_message_is_dead(
    transformer: MessageTransformer,
) -> None:
    of = transfer(transformer, target=TOLERANT)
    said = dead(of, message(), BridgeDeadReason.TRANSFORM_FAILURE)
    assert "Does failed on a message from A to B" in said


def test_else_the_link_stops_and_says_what_was_raised() -> None:
    with pytest.raises(LinkStops, match="it raised ValueError: no"):
        outcome(transfer(raising(ValueError("no"))), message())


def branching(to: Destination | str) -> Does:
    def what(self: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        self.branch_to(to)
        return message

    return Does(what)


@pytest.mark.parametrize("configured", [TARGET, None], ids=["fixed", "AS_SOURCE"])
@pytest.mark.parametrize(
    ("to", "where"), [(Queue("aside"), Queue("aside")), ("known", Topic("found"))]
)
def test_branch_to_wins_over_the_targets_destination(
    to: Destination | str, where: Destination, configured: Destination | None
) -> None:
    assert sent(transfer(branching(to)), message(), configured).headers.destination == where


def test_the_branch_of_one_message_is_not_the_next_ones() -> None:
    first = True

    def what(self: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        nonlocal first
        if first:
            self.branch_to(Queue("aside"))
        first = False
        return message

    of = transfer(Does(what))
    assert [sent(of, message()).headers.destination for _ in range(2)] == [Queue("aside"), TARGET]


def test_branching_to_a_name_that_there_is_not_is_a_failure_of_the_transformer() -> None:
    with pytest.raises(LinkStops, match="branched to 'nowhere'"):
        outcome(transfer(branching("nowhere")), message())
    of = transfer(branching("nowhere"), target=TOLERANT)
    dead(of, message(), BridgeDeadReason.TRANSFORM_FAILURE)


def test_a_destination_that_cannot_be_looked_up_now_is_no_failure_of_the_transformer() -> None:
    with pytest.raises(ProviderUnavailable):
        outcome(
            transfer(branching("away"), target=TOLERANT),
            message(),
        )


@pytest.mark.parametrize("branch", [None, "nowhere"])
def test_no_transfer_sends_it_nowhere(branch: str | None) -> None:
    def what(self: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        if branch is not None:
            self.branch_to(branch)
        self.no_transfer()
        return message

    assert isinstance(outcome(transfer(Does(what)), message()), NotTransferred)


def test_a_reply_to_that_a_transformer_sets_is_kept() -> None:
    def what(_self: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        copy = message.copy()
        copy.reply_to = Queue("mine")
        return copy

    assert sent(transfer(Does(what)), message()).headers.reply_to == Queue("mine")


# --- AS_SOURCE


@pytest.mark.parametrize("own", [Queue("source"), Topic("a.b"), Destination(Kind.QUEUE, "t", True)])
def test_as_source_is_the_messages_own_destination_by_name_and_type(own: Destination) -> None:
    assert sent(transfer(), message(destination=own), None).headers.destination == Destination(
        own.kind, own.name
    )


# --- 5: tags


def test_the_tag_has_the_name_of_the_bridge() -> None:
    of = transfer(bridge={"message_transfer_tag_bridge_name": True})
    assert sent(of, message(properties={"n": 1})).headers.properties == {
        "n": 1,
        "JMS_SUN_JMSBRIDGE_NAME": "bridge",
    }
    assert sent(transfer(), message(properties={"n": 1})).headers.properties == {"n": 1}


def test_the_tag_can_be_switched_while_the_link_runs() -> None:
    of = transfer()
    given = message()
    assert sent(of, given).headers.properties == {}
    of.configure(Bridge("bridge", message_transfer_tag_bridge_name=True))
    assert sent(of, given).headers.properties == {"JMS_SUN_JMSBRIDGE_NAME": "bridge"}


def test_each_bridge_on_the_way_appends_the_id_that_it_saw() -> None:
    of = transfer(add_message_id_in_header=True)
    first = sent(of, message())
    assert first.headers.properties == {MESSAGE_IDS: "ID-1"}
    first.message_id = "ID-2"
    assert sent(of, first).headers.properties == {MESSAGE_IDS: "ID-1,ID-2"}


def test_a_message_that_returns_to_a_link_with_a_guard_is_dead() -> None:
    there, back = (
        transfer(loop_guard=True, identity="i/b/there"),
        transfer(loop_guard=True, identity="i/b/back"),
    )
    once = sent(there, message())
    assert once.headers.properties == {HOPS: "i/b/there"}
    returned = sent(back, once)
    assert "i/b/there, i/b/back" in dead(there, returned, BridgeDeadReason.SEND_FAILURE)


def test_a_transformer_that_makes_a_message_anew_ends_no_trail() -> None:
    def what(self: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        return self.create_message(BodyType.TEXT)

    of = transfer(Does(what), loop_guard=True, add_message_id_in_header=True)
    given = message(properties={HOPS: "elsewhere", MESSAGE_IDS: "ID-0"})
    assert sent(of, given).headers.properties == {
        HOPS: "elsewhere,instance/bridge/link",
        MESSAGE_IDS: "ID-0,ID-1",
    }


def test_a_guard_knows_itself_by_a_name_with_a_comma() -> None:
    of = transfer(loop_guard=True, identity="i/b,c/100%,d")
    assert isinstance(outcome(of, sent(of, message())), Dead)


# --- 6: what is sent


def test_the_rest_is_as_it_was_received() -> None:
    given = message(
        "body",
        body_type=BodyType.TEXT,
        persistent=False,
        priority=7,
        correlation_id="c",
        type="t",
        properties={"a": True, "b": "x"},
        extras=(("x-foo", "bar"),),
    )
    result = sent(transfer(), given)
    assert result is not given
    assert result.headers == given.headers.replace(destination=TARGET)
    assert (result.body, result.message_id, result.timestamp) == (b"body", "", 0)


def test_producers_repeat_themselves_and_then_headers_are_made_once() -> None:
    of = transfer(bridge={"message_transfer_tag_bridge_name": True})
    headers = Headers(Queue("source"), properties={"n": 1})
    first, second = (
        sent(of, Message(headers, b"x", message_id=str(number))) for number in range(2)
    )
    assert first.headers is second.headers
    assert sent(of, Message(headers, b"x"), Queue("other")).headers.destination == Queue("other")


# --- duplicate ids


def marking(**link: Any) -> Transfer:
    made = transfer(**link)
    made.marks_duplicates = True
    return made


def test_of_a_queues_message_the_duplicate_id_is_the_same_whichever_link_has_it() -> None:
    ids = {
        sent(marking(identity=name), message()).headers.properties[DUPLICATE_ID]
        for name in ("i/b/one", "i/b/two")
    }
    assert ids == {"queue:source/ID-1"}


def test_of_a_topics_message_each_link_moves_a_copy_with_an_id_of_its_own() -> None:
    given = message(destination=Topic("news"))
    ids = {
        sent(marking(identity=name), given).headers.properties[DUPLICATE_ID]
        for name in ("i/b/one", "i/b/two")
    }
    assert ids == {"i%2Fb%2Fone/ID-1", "i%2Fb%2Ftwo/ID-1"}


def test_a_message_without_an_id_cannot_be_known_again_and_is_dead() -> None:
    given = message()
    given.message_id = ""
    assert "message id" in dead(marking(), given, BridgeDeadReason.SEND_FAILURE)


def test_the_producers_own_duplicate_id_does_not_go_on() -> None:
    given = message(properties={DUPLICATE_ID: "mine", "colour": "red"})
    of = transfer()
    for _ in range(2):
        assert sent(of, given).headers.properties == {"colour": "red"}
    assert sent(marking(), given).headers.properties == {
        "colour": "red",
        DUPLICATE_ID: "queue:source/ID-1",
    }


ELSEWHERE = Configured("elsewhere", "elsewhere", Kind.QUEUE)
LOOKED_UP = Configured("known", lookup_name="cn=known")


def ruled(
    *rules: Rule, transformer: MessageTransformer | None = None, retain: bool = False
) -> Transfer:
    return transfer(transformer, target={"rules": rules, "retain_replyto": retain})


def test_a_rule_drops_a_message_before_the_transformer_sees_it() -> None:
    of = ruled(Rule("a = 1", drop=True), transformer=raising(ValueError("no")))
    assert isinstance(outcome(of, message(properties={"a": 1})), NotTransferred)
    with pytest.raises(LinkStops):
        outcome(of, message())


def test_a_rule_sends_elsewhere() -> None:
    rule = Rule("a = 1", destination=ELSEWHERE, sets=(SetHeader("b", "2"),))
    headers = sent(ruled(rule), message(properties={"a": 1})).headers
    assert headers.destination == Queue("elsewhere")
    assert headers.properties == {"a": 1, "b": "2"}
    assert sent(ruled(rule), message()).headers.destination == TARGET


def test_a_rule_sends_to_what_must_be_looked_up() -> None:
    made = sent(ruled(Rule(destination=LOOKED_UP)), message())
    assert made.headers.destination == Topic("found")


def test_a_transformer_has_the_last_word() -> None:
    class Elsewhere(MessageTransformer):
        def transform(self, message: JMSMessage, *others: Any) -> JMSMessage:
            changed = message.copy()
            changed.properties["seen"] = message.properties["a"]
            if message.properties["a"] == "branch":
                self.branch_to(Topic("chosen"))
            return changed

    rules = Rule(destination=ELSEWHERE, sets=(SetHeader("a", source="a"), SetHeader("b", "2")))
    of = ruled(rules, transformer=Elsewhere())
    made = sent(of, message(properties={"a": "branch"})).headers
    assert (made.destination, made.properties["seen"]) == (Topic("chosen"), "branch")
    made = sent(of, message(properties={"a": "stay"})).headers
    assert (made.destination, made.properties["b"]) == (Queue("elsewhere"), "2")


def test_rules_keep_what_the_link_says_of_reply_to_and_tags() -> None:
    rule = Rule(sets=(SetHeader("a", "1"),))
    given = message(reply_to=Queue("answers"))
    assert sent(ruled(rule), given).headers.reply_to is None
    assert sent(ruled(rule, retain=True), given).headers.reply_to == Queue("answers")
    of = transfer(target={"rules": (rule,)}, add_message_id_in_header=True)
    assert sent(of, given).headers.properties == {"a": "1", MESSAGE_IDS: "ID-1"}
