"""What a bridge and a transformer owe each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.jms_message import JMSMessage, MessageNotWriteable
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.transformer import (
    BridgeType,
    MessageTransformer,
    Transformed,
    TransformFailed,
    UnsupportedOperation,
    transformed,
)

Body = Callable[["Scripted", JMSMessage], JMSMessage | None]


class Scripted(MessageTransformer):
    """Does what the test says, and notes what it was given."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.given: list[object] = []

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        self.given = [read_only, message.read_only, charset_name, source, target, properties]
        return self.body(self, message)


def a_message() -> Message:
    return Message(Headers(Queue("q"), properties={"a": "b"}), b"text", message_id="ID-1")


def run(
    body: Body,
    bridge: BridgeType = BridgeType.JMS,
    *,
    read_only: bool = True,
    message: Message | None = None,
) -> Transformed:
    return transformed(
        Scripted(body),
        bridge,
        message or a_message(),
        read_only=read_only,
        charset_name=None,
        source="one",
        target="other",
        properties=None,
    )


def test_the_transformer_is_given_what_the_bridge_says() -> None:
    transformer = Scripted(lambda self, message: message)
    extras = {"content-type": "text/plain"}
    message = a_message()
    outcome = transformed(
        transformer,
        BridgeType.STOMP,
        message,
        read_only=False,
        charset_name="UTF-8",
        source=MessageTransformer.STOMP,
        target=MessageTransformer.SUN_MQ,
        properties=extras,
    )
    assert transformer.given == [False, False, "UTF-8", "STOMP", "SUN_MQ", extras]
    assert transformer.given[-1] is not extras
    assert outcome == Transformed(message, None, False)
    assert outcome.message is message


def test_a_message_that_may_be_written_is_changed_in_the_outcome_only() -> None:
    def shout(self: Scripted, message: JMSMessage) -> JMSMessage:
        message.text = message.text.upper()
        message.properties["a"] = 1
        return message

    message = a_message()
    outcome = run(shout, BridgeType.STOMP, read_only=False, message=message)
    assert (outcome.message.text, outcome.message.headers.properties) == ("TEXT", {"a": 1})
    assert (message.text, message.headers.properties) == ("text", {"a": "b"})


def test_changing_a_read_only_message_is_a_failure() -> None:
    def shout(self: Scripted, message: JMSMessage) -> JMSMessage:
        message.text = "X"
        return message

    with pytest.raises(TransformFailed, match="it raised MessageNotWriteable") as caught:
        run(shout)
    assert isinstance(caught.value.__cause__, MessageNotWriteable)


def test_a_transformer_may_make_a_message_of_another_type() -> None:
    def to_text(self: Scripted, message: JMSMessage) -> JMSMessage:
        new = self.create_message(BodyType.BYTES)
        new.octets = message.text.encode("utf-16-be")
        new.reply_to = self.create_topic("answers")
        return new

    message = run(to_text, BridgeType.STOMP).message
    assert (message.headers.body_type, message.body, message.headers.reply_to) == (
        BodyType.BYTES,
        "text".encode("utf-16-be"),
        Topic("answers"),
    )
    assert (message.headers.destination, message.message_id) == (Queue("q"), "ID-1")


@pytest.mark.parametrize("target", [Queue("elsewhere"), Topic("elsewhere"), "ref-name"])
def test_a_link_may_be_told_where_to_send(target: Destination | str) -> None:
    def branch(self: Scripted, message: JMSMessage) -> JMSMessage:
        self.branch_to(self.create_queue("elsewhere") if target == Queue("elsewhere") else target)
        return message

    assert run(branch).branch_to == target
    assert not run(branch).no_transfer


def test_a_link_may_be_told_to_send_nothing() -> None:
    def drop(self: Scripted, message: JMSMessage) -> JMSMessage:
        self.no_transfer()
        return message

    assert run(drop).no_transfer
    assert run(drop).branch_to is None


def test_what_was_asked_for_one_message_is_forgotten_for_the_next() -> None:
    def both(self: Scripted, message: JMSMessage) -> JMSMessage:
        if message.properties.get("first"):
            self.branch_to("ref-name")
            self.no_transfer()
        return message

    transformer = Scripted(both)

    def outcome(**properties: str) -> Transformed:
        message = Message(Headers(Queue("q"), properties=properties))
        return transformed(
            transformer,
            BridgeType.JMS,
            message,
            read_only=True,
            charset_name=None,
            source="a",
            target="b",
            properties=None,
        )

    first, second = outcome(first="yes"), outcome()
    assert (first.branch_to, first.no_transfer) == ("ref-name", True)
    assert (second.branch_to, second.no_transfer) == (None, False)
    assert (transformer.get_branch_to(), transformer.is_no_transfer()) == (None, False)


@pytest.mark.parametrize("target", [None, "", 5], ids=repr)
def test_a_branch_to_nowhere_is_a_failure(target: object) -> None:
    def branch(self: Scripted, message: JMSMessage) -> JMSMessage:
        self.branch_to(target)  # type: ignore[arg-type]
        return message

    with pytest.raises(TransformFailed, match="it raised TypeError") as caught:
        run(branch)
    assert "takes a destination" in str(caught.value.__cause__)


@pytest.mark.parametrize("operation", ["branch_to", "no_transfer"])
def test_the_stomp_bridge_neither_branches_nor_drops(operation: str) -> None:
    def ask(self: Scripted, message: JMSMessage) -> JMSMessage:
        if operation == "branch_to":
            self.branch_to(Queue("x"))
        else:
            self.no_transfer()
        return message

    with pytest.raises(TransformFailed) as caught:
        run(ask, BridgeType.STOMP)
    assert isinstance(caught.value.__cause__, UnsupportedOperation)
    assert caught.value.__cause__.operation == operation
    with pytest.raises(UnsupportedOperation, match=operation):
        ask(Scripted(ask), JMSMessage(BodyType.TEXT))


def test_a_failure_says_who_and_what_and_keeps_the_rest_for_the_log() -> None:
    def fail(self: Scripted, message: JMSMessage) -> JMSMessage:
        raise KeyError("secret")

    with pytest.raises(TransformFailed) as caught:
        run(fail)
    error = caught.value
    assert isinstance(error.__cause__, KeyError)
    assert (error.source, error.target, error.reason) == ("one", "other", "it raised KeyError")
    assert error.transformer == f"{__name__}.Scripted"
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("result", "said"), [(None, "None"), ("text", "str"), (a_message(), "Message")]
)
def test_what_is_no_message_is_a_failure(result: JMSMessage | None, said: str) -> None:
    with pytest.raises(TransformFailed, match=f"it returned {said}, not a message") as caught:
        run(lambda self, message: result)
    assert caught.value.__cause__ is None


def test_a_body_that_cannot_be_read_is_a_failure() -> None:
    message = Message(Headers(Queue("q"), body_type=BodyType.MAP), b"damaged")
    with pytest.raises(TransformFailed, match="it raised MalformedValues"):
        run(lambda self, view: view if view.entries else None, message=message)


def test_an_abstract_transformer_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="transform"):
        MessageTransformer()  # type: ignore[abstract]
