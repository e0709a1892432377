"""Transactions, row by row of Open MQ's Table 12-11."""

from __future__ import annotations

import pytest

from gateway.messaging.errors import OutcomeUnknown, TransactionTooLarge
from gateway.messaging.message import BodyType
from gateway.messaging.provider import Mode
from gateway.stomp.profiles import STANDARD
from gateway.stomp.settings import SessionOptions
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import RecordingSession, message

BEGIN = "BEGIN\ntransaction:t\n\n"
COMMIT = "COMMIT\ntransaction:t\n\n"
ABORT = "ABORT\ntransaction:t\n\n"
SUBSCRIBE = "SUBSCRIBE\nid:s\ndestination:/queue/a\ntransaction:t\n\n"


def in_transaction(options: SessionOptions | None = None, version: str = "1.2") -> Client:
    """A client with an open transaction and a transacted subscription in it."""
    client = Server(options).connected(version)
    client.say(BEGIN, SUBSCRIBE)
    return client


@pytest.fixture
def begun() -> Client:
    """A client with STOMP 1.2 in a transaction."""
    return in_transaction()


def transacted(client: Client) -> RecordingSession:
    [session] = [
        each for each in client.server.provider.connection.sessions if each.mode is Mode.TRANSACTED
    ]
    return session


def test_the_receipt_of_commit_waits_until_it_is_durable(server: Server, client: Client) -> None:
    server.provider.holds_completions = True
    assert (
        client.answers(
            BEGIN,
            "SEND\ndestination:/queue/a\ntransaction:t\n\n1",
            "COMMIT\ntransaction:t\nreceipt:c\n\n",
        )
        == []
    )
    server.provider.complete()
    server.clock.advance(0)
    assert client.commands() == ["RECEIPT"]


def test_the_receipt_of_a_durable_subscription_in_a_transaction_waits_until_it_is_durable(
    server: Server,
) -> None:
    client = server.connected(headers="client-id:me\n")
    server.provider.holds_completions = True
    client.say(BEGIN)
    assert (
        client.answers(
            "SUBSCRIBE\nid:s\ndestination:/topic/t\ntransaction:t\ndurable-subscriber-name:d\nreceipt:s\n\n"
        )
        == []
    )
    assert not client.consumer().running, "its RECEIPT comes before its first MESSAGE"
    server.provider.complete()
    server.clock.advance(0)
    assert [frame.head.headers["receipt-id"] for frame in client.heard()] == ["s"]
    assert client.consumer().running


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("lost"), TransactionTooLarge("imq.transaction.producer.maxNumMsgs", 2)]
)
def test_a_commit_that_fails_is_an_error(
    error: OutcomeUnknown | TransactionTooLarge, client: Client
) -> None:
    client.say(BEGIN)
    transacted(client).failures = [error]
    client.say("COMMIT\ntransaction:t\nreceipt:c\n\n")
    frame = client.error()
    assert (frame.head.headers["message"], frame.head.headers["receipt-id"]) == (str(error), "c")


def test_a_transacted_send_that_is_refused_is_an_error(client: Client) -> None:
    client.say(BEGIN)
    transacted(client).refuses[0] = TransactionTooLarge("limit", 0)
    client.say("SEND\ndestination:/queue/a\ntransaction:t\nreceipt:r\n\n1")
    assert client.error().head.headers["receipt-id"] == "r"


def test_delivery_happens_inside_a_transaction_only(begun: Client) -> None:
    consumer = begun.consumer()
    assert consumer.session.mode is Mode.TRANSACTED
    assert consumer.running
    begun.say(COMMIT)
    assert not consumer.running
    begun.say(BEGIN)
    assert consumer.running
    begun.say(ABORT)
    assert not consumer.running


def test_all_transacted_subscriptions_share_one_session_with_sends(begun: Client) -> None:
    begun.say(
        "SUBSCRIBE\nid:s2\ndestination:/queue/b\ntransaction:t\n\n",
        "SEND\ndestination:/queue/c\ntransaction:t\n\nx",
    )
    assert begun.consumer(0).session is begun.consumer(1).session is transacted(begun)
    assert begun.server.provider.calls("send")[0][1] is Mode.TRANSACTED


def test_an_ack_is_cumulative_and_takes_effect_with_commit(begun: Client) -> None:
    consumer = begun.consumer()
    consumer.push(*[message(identifier=f"ID-{number}") for number in range(4)])
    begun.read()
    credit = consumer.credit
    assert begun.answers("ACK\nid:1-3\ntransaction:t\nreceipt:r\n\n") == ["RECEIPT"]
    assert consumer.credit == credit
    begun.say(COMMIT)
    log = [call[0] for call in begun.server.provider.calls("acknowledge through", "commit")]
    assert (log, consumer.credit) == (["acknowledge through", "commit"], credit + 3)
    # Delivered and not acknowledged: still there for the next transaction.
    assert begun.answers(BEGIN, "ACK\nid:1-4\n\n", "COMMIT\ntransaction:t\nreceipt:r\n\n") == [
        "RECEIPT"
    ]
    assert consumer.outstanding == {}


def test_an_ack_without_transaction_joins_the_current_one(begun: Client) -> None:
    begun.consumer().push(message())
    begun.say("ACK\nid:1-1\n\n")
    assert begun.server.provider.calls("acknowledge through") == [
        ("acknowledge through", 1, 1, False)
    ]
    assert begun.consumer().pending.keys() == {1}


def test_and_is_an_error_where_there_is_none(begun: Client) -> None:
    begun.consumer().push(message())
    assert "no transaction is open" in begun.refusal(COMMIT, "ACK\nid:1-1\n\n")


def test_acknowledging_again_in_the_same_transaction_does_nothing(begun: Client) -> None:
    begun.consumer().push(message(identifier="ID-1"), message(identifier="ID-2"))
    begun.say(
        "ACK\nid:1-2\ntransaction:t\n\n",
        "ACK\nid:1-1\ntransaction:t\n\n",
        "ACK\nmessage-id:ID-2\nsubscription:s\n\n",
    )
    assert len(begun.server.provider.calls("acknowledge through")) == 1
    assert begun.transport.is_closed is False


def test_and_in_a_later_one_it_is_an_error(begun: Client) -> None:
    begun.consumer().push(message())
    begun.say("ACK\nid:1-1\ntransaction:t\n\n", COMMIT, BEGIN, "ACK\nid:1-1\ntransaction:t\n\n")
    begun.error()


def test_abort_stops_delivery_and_begin_starts_it_again_with_all_that_was_unconsumed(
    begun: Client,
) -> None:
    consumer = begun.consumer()
    consumer.push(
        message(identifier="ID-1"), message(identifier="ID-2"), message(identifier="ID-3")
    )
    begun.read()
    assert begun.answers("ACK\nid:1-1\n\n", "ABORT\ntransaction:t\nreceipt:r\n\n") == ["RECEIPT"]
    assert not consumer.running
    assert consumer.credit == 1000
    begun.say(BEGIN)
    assert consumer.running
    consumer.push(
        message(identifier="ID-1"),
        message(identifier="ID-2"),
        message(identifier="ID-3"),
        attempts=[2, 2, 2],
    )
    frames = begun.read()
    assert [frame.head.headers["message-id"] for frame in frames] == ["ID-1", "ID-2", "ID-3"]
    assert {frame.head.headers["redelivered"] for frame in frames} == {"true"}
    # What was given back has another number now.
    assert [frame.head.headers["ack"] for frame in frames] == ["1-4", "1-5", "1-6"]
    assert begun.answers("ACK\nid:1-6\n\n", "COMMIT\ntransaction:t\nreceipt:c\n\n") == ["RECEIPT"]


def test_a_number_that_abort_made_void_is_an_error(begun: Client) -> None:
    begun.consumer().push(message())
    begun.say(ABORT, BEGIN, "ACK\nid:1-1\n\n")
    begun.error()


@pytest.mark.parametrize(
    ("prefetch", "credit"), [("", 10), ("prefetch-count:3\n", 3), ("prefetch-count:500\n", 10)]
)
def test_consumer_flow_limit_is_a_hard_cap(prefetch: str, credit: int) -> None:
    client = Server(SessionOptions(consumer_flow_limit=10)).connected()
    client.say(BEGIN, f"SUBSCRIBE\nid:s\ndestination:/queue/a\n{prefetch}transaction:t\n\n")
    consumer = client.consumer()
    assert consumer.credit == credit
    consumer.push(*[message()] * credit)
    client.read()
    client.say(f"ACK\nid:1-{credit}\n\n")
    assert consumer.credit == 0
    client.say(COMMIT)
    assert consumer.credit == credit


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_transaction_header_for_a_subscription_that_is_not_transacted_is_an_error(
    command: str, ack: str, client: Client
) -> None:
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:{ack}\n\n", BEGIN)
    client.consumer().push(message())
    client.say(f"{command}\nid:1-1\ntransaction:t\nreceipt:r\n\n")
    error = client.error()
    assert b"imq.bridge.stomp.ack.transaction=join" in error.body
    assert error.head.headers["receipt-id"] == "r"


def test_where_the_operator_lets_them_join_they_take_effect_with_commit() -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client-individual\n\n", BEGIN)
    consumer = client.consumer()
    consumer.push(message(), message())
    client.read()
    credit = consumer.credit
    client.say("ACK\nid:1-2\ntransaction:t\n\n", "NACK\nid:1-1\ntransaction:t\n\n")
    assert client.server.provider.calls("acknowledge", "reject") == [
        ("acknowledge", 1, [2], True),
        ("reject", 1, [1], None, True),
    ]
    assert consumer.credit == credit + 2, (
        "they make room at once, or a transaction could acknowledge no more than the window"
    )
    assert client.answers("COMMIT\ntransaction:t\nreceipt:r\n\n") == ["RECEIPT"]
    assert consumer.credit == credit + 2


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_room_that_an_aborted_acknowledgement_made_is_not_made_again(ack: str) -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:{ack}\nprefetch-count:1\n\n", BEGIN)
    consumer = client.consumer()
    consumer.push(message())
    assert consumer.credit == 0
    client.say("ACK\nid:1-1\ntransaction:t\n\n")
    assert consumer.credit == 1
    consumer.push(message())
    client.say(ABORT)
    assert consumer.credit == 0
    client.say(BEGIN, "ACK\nid:1-1\ntransaction:t\n\n")
    assert consumer.credit == 0
    client.say(ABORT, "ACK\nid:1-1\n\n", BEGIN)
    assert consumer.credit == 0
    client.say("ACK\nid:1-2\ntransaction:t\n\n", COMMIT)
    assert consumer.credit == 1


@pytest.mark.parametrize("name", ["id:1-2", "message-id:ID-2\nsubscription:s"])
def test_what_a_later_acknowledgement_in_the_transaction_covers_may_be_acknowledged_too(
    name: str,
) -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n", BEGIN)
    client.consumer().push(*[message(identifier=f"ID-{number}") for number in (1, 2, 3, 4)])
    client.read()
    assert client.answers(
        "ACK\nid:1-3\ntransaction:t\n\n", f"ACK\n{name}\ntransaction:t\nreceipt:r\n\n"
    ) == ["RECEIPT"]
    assert client.server.provider.calls("acknowledge through") == [
        ("acknowledge through", 1, 3, True)
    ]
    assert client.answers("COMMIT\ntransaction:t\nreceipt:c\n\n") == ["RECEIPT"]
    assert list(client.consumer().outstanding) == [4]


@pytest.mark.parametrize(
    ("ack", "again"),
    [
        ("client", "ACK\nid:1-2\n\n"),
        ("client", "NACK\nid:1-2\ntransaction:t\n\n"),
        ("client", "ACK\nid:1-9\ntransaction:t\n\n"),
        ("client", "ACK\nmessage-id:ID-9\ntransaction:t\n\n"),
        ("client-individual", "ACK\nid:1-3\ntransaction:t\n\n"),
        ("client-individual", "ACK\nmessage-id:ID-3\ntransaction:t\n\n"),
    ],
)
def test_what_was_settled_otherwise_is_an_error_as_before(ack: str, again: str) -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:{ack}\n\n", BEGIN)
    client.consumer().push(*[message(identifier=f"ID-{number}") for number in (1, 2, 3)])
    client.read()
    client.say("ACK\nid:1-3\ntransaction:t\n\n", again)
    assert b"is not outstanding" in client.error().body


@pytest.mark.parametrize(("end", "answer"), [(COMMIT, "ERROR"), (ABORT, "RECEIPT")])
def test_what_was_covered_is_so_until_the_transaction_ends(end: str, answer: str) -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n", BEGIN)
    client.consumer().push(message(), message(), message())
    client.read()
    assert client.answers(
        "ACK\nid:1-3\ntransaction:t\n\n",
        end,
        BEGIN,
        "ACK\nid:1-2\ntransaction:t\nreceipt:r\n\n",
    ) == [answer]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_and_with_abort_they_are_outstanding_again(ack: str) -> None:
    client = Server(SessionOptions(profile=STANDARD)).connected()
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:{ack}\n\n", BEGIN)
    client.consumer().push(message(identifier="ID-1"), message(identifier="ID-2"))
    client.read()
    assert client.answers(
        "ACK\nid:1-2\ntransaction:t\n\n",
        ABORT,
        "ACK\nid:1-1\n\n",
        "ACK\nmessage-id:ID-2\nreceipt:r\n\n",
    ) == ["RECEIPT"]
    assert client.consumer().outstanding == {}


def test_nack_rejects_within_the_transaction(begun: Client) -> None:
    begun.consumer().push(message(), message(), message())
    begun.say("ACK\nid:1-1\n\n", "NACK\nid:1-3\n\n", COMMIT)
    assert begun.server.provider.calls("reject") == [("reject", 1, [2, 3], None, False)]


def test_unsubscribing_gives_back_what_was_not_acknowledged_and_keeps_the_rest(
    begun: Client,
) -> None:
    begun.consumer().push(message(), message())
    begun.say("ACK\nid:1-1\n\n", "UNSUBSCRIBE\nid:s\n\n", "COMMIT\ntransaction:t\nreceipt:r\n\n")
    assert begun.consumer().closed is True
    assert not transacted(begun).closed
    assert begun.commands()[-1] == "RECEIPT"
    assert begun.server.provider.calls("acknowledge through") == [
        ("acknowledge through", 1, 1, False)
    ]


def test_1_0_without_subscription_acknowledges_in_the_transacted_one() -> None:
    client = Server().connected("1.0")
    client.say(
        "SUBSCRIBE\nid:other\ndestination:/queue/a\nack:client\n\n",
        BEGIN,
        "SUBSCRIBE\ndestination:/queue/a\ntransaction:t\n\n",
    )
    client.consumer(0).push(message(identifier="ID-7"))
    client.consumer(1).push(message(identifier="ID-7"))
    client.say("ACK\nmessage-id:ID-7\ntransaction:t\n\n")
    assert client.server.provider.calls("acknowledge through") == [
        ("acknowledge through", 2, 1, False)
    ]


def test_a_body_that_cannot_be_sent_is_rejected_for_good_where_the_transaction_holds_nothing_else(
    begun: Client,
) -> None:
    begun.consumer().push(message(), message(body_type=BodyType.MAP))
    assert begun.commands()[-1] == "ERROR"
    assert [call[0] for call in begun.server.provider.calls("reject", "commit")] == [
        "reject",
        "commit",
    ]


def test_and_never_at_the_price_of_committing_what_the_client_did_not(begun: Client) -> None:
    begun.say("SEND\ndestination:/queue/b\ntransaction:t\n\nx")
    begun.consumer().push(message(body_type=BodyType.MAP))
    assert begun.commands()[-1] == "ERROR"
    assert begun.server.provider.calls("reject", "commit") == []
