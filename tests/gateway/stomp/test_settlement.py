"""ACK and NACK outside of transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.dead import DeadReason
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message

ACKS = ("acknowledge", "acknowledge through")


def subscribed(ack: str, version: str = "1.2", count: int = 4) -> Client:
    """A client that has received the messages ID-1 and so on."""
    client = Server().connected(version)
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:{ack}\n\n")
    client.consumer().push(*[message(identifier=f"ID-{number}") for number in range(1, count + 1)])
    client.read()
    return client


def calls(client: Client, *names: str) -> list[tuple[object, ...]]:
    return client.server.provider.calls(*names)


def test_client_is_cumulative() -> None:
    client = subscribed("client")
    credit = client.consumer().credit
    client.say("ACK\nid:1-3\n\n")
    assert calls(client, *ACKS) == [("acknowledge through", 1, 3, False)]
    assert client.consumer().credit == credit + 3


def test_client_individual_is_one_by_one_in_one_call_a_turn() -> None:
    client = subscribed("client-individual")
    credit = client.consumer().credit
    client.say("ACK\nid:1-3\n\n", "ACK\nid:1-1\n\n")
    assert calls(client, *ACKS) == [("acknowledge", 1, [3, 1], False)]
    assert client.consumer().credit == credit + 2
    assert client.heard() == []


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_the_receipt_waits_for_the_store(ack: str) -> None:
    client = subscribed(ack)
    client.server.provider.holds_completions = True
    assert client.answers("ACK\nid:1-1\nreceipt:r\n\n") == []
    client.server.provider.complete()
    client.server.clock.advance(0)
    assert client.commands() == ["RECEIPT"]


@pytest.mark.parametrize(
    "headers",
    [
        "id:1-2",
        "id:ID-2",
        "message-id:ID-2",
        "message-id:1-2",
        "message-id:ID-2\nsubscription:s",
        "id:1-2\nsubscription:s",
        "ack:1-2",
        "message-id:1-2\nsubscription:s",
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_ack_and_message_id_values_are_taken_for_each_other(
    headers: str, version: str, ack: str
) -> None:
    client = subscribed(ack, version)
    assert client.answers(f"ACK\n{headers}\nreceipt:r\n\n") == ["RECEIPT"]
    [call] = calls(client, *ACKS)
    assert call[2] in (2, [2])


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize(
    "headers",
    [
        "id:1-9",
        "id:2-1",
        "id:ID-9",
        "id:x",
        "message-id:ID-1\nsubscription:other",
        "id:",
        "other:1",
    ],
)
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_what_is_not_outstanding_is_an_error(command: str, headers: str, ack: str) -> None:
    client = subscribed(ack)
    client.say(f"{command}\n{headers}\nreceipt:r\n\n")
    assert client.error().head.headers["receipt-id"] == "r"
    assert calls(client, *ACKS, "reject") == []


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("again", ["ACK", "NACK"])
def test_settling_twice_is_an_error(ack: str, again: str) -> None:
    client = subscribed(ack)
    client.say("ACK\nid:1-2\n\n", f"{again}\nid:1-2\n\n")
    client.error()
    assert len(calls(client, *ACKS)) == 1


def test_what_was_acknowledged_before_an_error_in_the_same_read_stays_so() -> None:
    client = subscribed("client-individual")
    client.say("ACK\nid:1-1\n\n", "ACK\nid:1-2\n\n", "ACK\nid:1-2\n\n", "ACK\nid:1-3\n\n")
    client.error()
    assert calls(client, *ACKS) == [("acknowledge", 1, [1, 2], False)]


def test_a_subscription_with_ack_auto_acknowledges_by_itself() -> None:
    client = subscribed("auto")
    assert "auto" in client.refusal("ACK\nmessage-id:ID-1\nsubscription:s\n\n")


def test_a_message_that_came_twice_is_found_by_its_latest_delivery() -> None:
    client = subscribed("client-individual")
    client.say("NACK\nid:1-2\n\n")
    client.consumer().push(message(identifier="ID-2"), attempts=[2])
    client.say("ACK\nmessage-id:ID-2\n\n")
    assert calls(client, *ACKS) == [("acknowledge", 1, [5], False)]


def test_nack_leaves_it_to_the_redelivery_policy() -> None:
    client = subscribed("client-individual")
    credit = client.consumer().credit
    assert client.answers("NACK\nid:1-2\nreceipt:r\n\n") == ["RECEIPT"]
    assert calls(client, "reject") == [("reject", 1, [2], None, False)]
    assert client.consumer().credit == credit + 1


@pytest.mark.parametrize("value", ["false", "False", "FALSE"])
def test_nack_without_requeue_is_death_at_once(value: str) -> None:
    client = subscribed("client-individual")
    client.say(f"NACK\nid:1-2\nrequeue:{value}\n\n")
    assert calls(client, "reject") == [("reject", 1, [2], DeadReason.UNDELIVERABLE, False)]


def test_nack_in_client_mode_is_cumulative() -> None:
    client = subscribed("client")
    client.say("ACK\nid:1-1\n\n", "NACK\nid:1-3\n\n", "ACK\nid:1-4\n\n")
    assert calls(client, "reject") == [("reject", 1, [2, 3], None, False)]
    assert client.consumer().outstanding == {}


def test_nack_comes_after_the_acks_before_it() -> None:
    client = subscribed("client-individual")
    client.say("ACK\nid:1-1\n\n", "NACK\nid:1-2\n\n", "ACK\nid:1-3\n\n")
    assert [call[0] for call in calls(client, *ACKS, "reject")] == [
        "acknowledge",
        "reject",
        "acknowledge",
    ]


def test_acks_and_sends_in_turns_stay_runs() -> None:
    client = subscribed("client-individual")
    client.say(
        *[
            "ACK\nid:1-1\n\n",
            "SEND\ndestination:/queue/b\n\nx",
            "ACK\nid:1-2\n\n",
            "SEND\ndestination:/queue/b\n\ny",
        ]
    )
    assert calls(client, *ACKS) == [("acknowledge", 1, [1, 2], False)]
    assert [len(call[2]) for call in client.server.provider.calls("send")] == [2]


@given(st.data())
def test_whatever_is_settled_in_whatever_order_both_records_agree(data: st.DataObject) -> None:
    ack = data.draw(st.sampled_from(["client", "client-individual"]))
    client = subscribed(ack, count=0)
    consumer = client.consumer()
    for _ in range(data.draw(st.integers(1, 12))):
        if not consumer.outstanding or data.draw(st.booleans()):
            count = data.draw(st.integers(1, 3))
            consumer.push(
                *[
                    message(identifier=f"ID-{consumer.delivered + each + 1}")
                    for each in range(count)
                ]
            )
            client.read()
            continue
        number = data.draw(st.sampled_from(sorted(consumer.outstanding)))
        command = data.draw(st.sampled_from(["ACK", "NACK"]))
        name = data.draw(st.sampled_from([f"id:1-{number}", f"message-id:ID-{number}"]))
        assert client.answers(f"{command}\n{name}\nreceipt:r\n\n") == ["RECEIPT"]
        subscription = client.connection.session.subscriptions.by_number[1]
        assert subscription.outstanding is not None
        assert len(subscription.outstanding) == len(consumer.outstanding)
        assert all(each in subscription.outstanding for each in consumer.outstanding)
        assert consumer.credit + len(consumer.outstanding) == 1000
