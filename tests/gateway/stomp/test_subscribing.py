"""SUBSCRIBE, MESSAGE and UNSUBSCRIBE."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.message import BodyType
from gateway.messaging.provider import ConsumerSpec, Mode
from gateway.messaging.redelivery import RedeliveryChanges
from gateway.messaging.values import Float, Int
from gateway.stomp.settings import SessionOptions
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message, unavailable

SUBSCRIBE = "SUBSCRIBE\nid:s\ndestination:/queue/a\n"


def test_the_receipt_precedes_the_first_message(server: Server, client: Client) -> None:
    server.provider.holds_completions = True
    client.say(f"{SUBSCRIBE}receipt:r\n\n")
    assert not client.consumer().running
    server.provider.complete()
    assert client.consumer().running
    client.consumer().push(message())
    assert client.commands() == ["RECEIPT", "MESSAGE"]


def test_without_a_receipt_it_starts_at_once(client: Client) -> None:
    client.say(f"{SUBSCRIBE}\n")
    assert client.consumer().running
    assert client.heard() == []


def test_1_0_has_a_default_id_from_the_destination() -> None:
    client = Server().connected("1.0")
    client.say("SUBSCRIBE\ndestination:/queue/a\n\n")
    client.consumer().push(message())
    assert "subscription" not in client.read()[0].head.headers, (
        "no 1.0 client knows an id that it never gave"
    )
    assert client.answers("UNSUBSCRIBE\ndestination:/queue/a\nreceipt:r\n\n") == ["RECEIPT"]
    assert client.consumer().closed


def test_what_the_headers_ask_for_reaches_the_provider(server: Server) -> None:
    client = server.connected(headers="client-id:me\n")
    client.say(
        "SUBSCRIBE\nid:s\ndestination:/topic/t\nselector:a > 1\nno-local:TRUE\ndurable-subscriber-name:d\n"
        "activemq.maximumRedeliveries:2\nactivemq.useExponentialBackOff:false\n\n"
    )
    assert client.consumer().spec == ConsumerSpec(
        Topic("t"),
        selector="a > 1",
        no_local=True,
        durable_name="d",
        redelivery=RedeliveryChanges(maximum_redeliveries=2, use_exponential_back_off=False),
        name="s",
    )


def test_no_local_means_nothing_on_a_queue(client: Client) -> None:
    client.say(f"{SUBSCRIBE}no-local:true\n\n")
    assert client.consumer().spec == ConsumerSpec(Queue("a"), name="s", tells_groups=True)


@pytest.mark.parametrize(
    ("headers", "credit"),
    [
        ("ack:client", 1000),
        ("ack:client-individual", 1000),
        ("ack:client\nprefetch-count:5", 5),
        ("ack:client\nactivemq.prefetchSize:2000", 2000),
        ("ack:client-individual\ncredit:7,100", 7),
        ("ack:auto", 1000),
        ("ack:auto\nprefetch-count:3", 3),
    ],
)
def test_credit_is_the_prefetch_or_the_flow_limit(
    headers: str, credit: int, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}{headers}\n\n")
    assert client.consumer().credit == credit


def test_a_message_has_the_bindings_and_the_users_headers(client: Client) -> None:
    client.say(f"{SUBSCRIBE}\n")
    sent = message(
        b"caf\xc3\xa9",
        persistent=False,
        priority=7,
        reply_to=Topic("r"),
        correlation_id="c:1",
        type="t",
        properties={
            "colour": "a:b\nc",
            "whole": Int(3),
            "half": Float(0.5),
            "yes": True,
            "none": None,
            "subscription": "forged",
        },
        extras=(("content-type", "text/plain"), ("message-id", "forged")),
    )
    sent.expires = 99
    client.consumer().push(sent)
    [frame] = client.heard()
    assert frame.body == b"caf\xc3\xa9"
    assert frame.head.headers == {
        "subscription": "s",
        "redelivered": "false",
        "destination": "/queue/a",
        "reply-to": "/topic/r",
        "correlation-id": "c:1",
        "priority": "7",
        "type": "t",
        "colour": "a:b\nc",
        "whole": "3",
        "half": "0.5",
        "yes": "true",
        "none": "",
        "content-type": "text/plain",
        "message-id": "ID-1",
        "timestamp": "1234",
        "expires": "99",
        "content-length": "5",
    }


def test_values_are_escaped_as_the_version_has_it() -> None:
    expected = {
        "1.0": b"colour:a:b c\\\n",
        "1.1": b"colour:a\\cb\\nc\\\\\n",
        "1.2": b"colour:a\\cb\\nc\\\\\n",
    }
    shared = message(properties={"colour": "a:b\nc\\"})
    for version, line in expected.items():
        client = Server().connected(version)
        client.say(f"{SUBSCRIBE}\n")
        client.consumer().push(shared)
        assert line in client.transport.octets()


def test_a_redelivery_says_so_and_how_often(client: Client) -> None:
    client.say(f"{SUBSCRIBE}ack:client\n\n")
    client.consumer().push(message(), message(), attempts=[1, 3])
    first, third = client.heard()
    assert first.head.headers["redelivered"] == "false"
    assert "JMSXDeliveryCount" not in first.head.headers
    assert third.head.headers["redelivered"] == "true"
    assert third.head.headers["JMSXDeliveryCount"] == "3"
    assert (first.head.headers["ack"], third.head.headers["ack"]) == ("1-1", "1-2")


def test_a_topics_message_is_encoded_once_for_all(server: Server, client: Client) -> None:
    client.say(*[f"SUBSCRIBE\nid:{number}\ndestination:/topic/t\n\n" for number in range(3)])
    shared = message(destination=Topic("t"))
    server.turn.begin()
    for consumer in server.provider.connection.consumers:
        consumer.push(shared)
    tails = [part for part in client.connection.output.parts if part.startswith(b"message-id:")]
    server.turn.end()
    assert len(tails) == 3
    assert tails[0] is tails[1] is tails[2]
    assert [frame.head.headers["subscription"] for frame in client.heard()] == ["0", "1", "2"]


def test_all_of_a_turn_is_written_at_once_before_the_hand_off(
    server: Server, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}ack:client\n\n")
    writes: list[Iterable[bytes]] = []
    client.transport.writeSequence = writes.append  # type: ignore[method-assign]
    order: list[str] = []
    server.turn.begin()
    client.consumer().push(message())
    client.consumer().push(message())
    server.turn.store(lambda: order.append(f"hand off, {len(writes)} written"))
    server.turn.end()
    assert (order, len(writes)) == (["hand off, 1 written"], 1)


def test_an_auto_delivery_is_acknowledged_once_it_is_in_the_kernel(
    server: Server, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}\n")
    client.drain()
    consumer = client.consumer()
    consumer.push(message(b"12345"), message(b"67"))
    assert server.provider.calls("acknowledge through") == []
    credit, octets = consumer.credit, consumer.octets
    client.drain()
    assert server.provider.calls("acknowledge through") == [("acknowledge through", 1, 2, False)]
    assert (consumer.credit, consumer.octets) == (credit + 2, octets + 7)


def test_an_auto_delivery_that_was_not_flushed_yet_is_not_acknowledged(
    server: Server, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}\n")
    client.drain()
    consumer = client.consumer()
    consumer.push(message())
    server.turn.begin()
    consumer.push(message())
    client.drain()
    assert server.provider.calls("acknowledge through") == [("acknowledge through", 1, 1, False)]
    server.turn.end()
    client.drain()
    assert len(server.provider.calls("acknowledge through")) == 2


def test_a_client_that_does_not_read_gets_no_more_than_its_window() -> None:
    server = Server(SessionOptions(output_window=1000))
    client = server.connected()
    client.say(f"{SUBSCRIBE}ack:client\n\n")
    consumer = client.consumer()
    consumer.push(message(b"x" * 5000))
    assert consumer.octets < 0
    assert not consumer.running
    client.drain()
    assert consumer.running
    assert consumer.octets == 1000


def test_a_browser_reads_and_is_told_the_end(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}browser:true\nack:client\n\n")
    consumer = client.consumer()
    assert consumer.spec.browse
    assert consumer.session.mode is Mode.AUTO
    consumer.push(message())
    consumer.push_end()
    first, last = client.read()
    assert (first.body, last.head.headers["browser"]) == (b"hello", "end")
    assert last.head.headers["subscription"] == "s"
    assert (last.head.headers["content-length"], last.body) == ("0", b"")
    assert server.provider.calls("acknowledge through", "acknowledge") == []


@pytest.mark.parametrize(
    "body_type", [BodyType.MESSAGE, BodyType.MAP, BodyType.STREAM, BodyType.OBJECT]
)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_body_that_stomp_cannot_carry_is_rejected_and_ends_the_connection(
    body_type: BodyType, ack: str, server: Server, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}ack:{ack}\n\n")
    client.drain()
    client.consumer().push(message(b"1"), message(body_type=body_type), message(b"3"))
    frames = client.heard()
    assert [frame.head.command for frame in frames] == ["MESSAGE", "ERROR"]
    assert body_type.name in frames[-1].head.headers["message"]
    assert server.provider.calls("reject") == [("reject", 1, [2], None, False)]
    client.drain()
    assert server.provider.connection.closed
    expected = [("acknowledge through", 1, 1, False)] if ack == "auto" else []
    assert server.provider.calls("acknowledge through") == expected


def test_a_consumer_that_the_provider_ends_ends_the_connection(client: Client) -> None:
    client.say(f"{SUBSCRIBE}\n")
    client.consumer().failed(unavailable())
    client.server.clock.advance(0)
    assert "it is gone" in client.error().head.headers["message"]


def test_unsubscribe_without_anything_outstanding_closes_all(
    server: Server, client: Client
) -> None:
    assert client.answers(
        f"{SUBSCRIBE}ack:client\n\n", "UNSUBSCRIBE\nid:s\nreceipt:r\n\n", f"{SUBSCRIBE}\n"
    ) == ["RECEIPT"]
    assert ("close session", 1) in server.provider.log
    assert client.consumer().running


def test_after_unsubscribe_an_ack_still_counts_for_a_while(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}ack:client-individual\n\n")
    client.consumer().push(message(), message())
    client.say("UNSUBSCRIBE\nid:s\nreceipt:r\n\n")
    assert client.consumer().closed is False
    client.say("ACK\nid:1-2\n\n", "ACK\nid:1-1\n\n")
    assert server.provider.calls("acknowledge") == [("acknowledge", 1, [2, 1], False)]
    # Nothing is left, so nothing is waited for.
    assert ("close session", 1) in server.provider.log


def test_and_then_what_is_unacknowledged_goes_back(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}ack:client\n\n")
    client.consumer().push(message(), message())
    client.read()
    client.say("UNSUBSCRIBE\nid:s\n\n")
    client.advance(1.9)
    assert ("close session", 1) not in server.provider.log
    client.advance(0.3)
    assert ("close session", 1) in server.provider.log
    assert "not outstanding" in client.refusal("ACK\nid:1-1\nreceipt:r\n\n")


def test_subscribing_again_gives_it_back_at_once(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}ack:client\n\n")
    client.consumer().push(message())
    client.say("UNSUBSCRIBE\nid:s\n\n", f"{SUBSCRIBE}ack:client-individual\n\n")
    log = [call[0] for call in server.provider.log]
    assert log.index("close session") < len(log) - 1 - log[::-1].index("consumer")


def test_an_id_used_again_does_not_confuse_acknowledgements(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}ack:client-individual\n\n")
    client.consumer().push(message(), message(identifier="ID-2"))
    client.say("UNSUBSCRIBE\nid:s\n\n", "SUBSCRIBE\nid:s\ndestination:/queue/b\nack:client\n\n")
    client.consumer().push(message(identifier="ID-3"))
    client.say("ACK\nid:1-2\n\n", "ACK\nid:2-1\n\n")
    assert server.provider.calls("acknowledge", "acknowledge through") == [
        ("acknowledge", 1, [2], False),
        ("acknowledge through", 2, 1, False),
    ] or server.provider.calls("acknowledge", "acknowledge through") == [
        ("acknowledge through", 2, 1, False),
        ("acknowledge", 1, [2], False),
    ]


def test_an_auto_subscription_that_ends_is_acknowledged_when_its_octets_have_left(
    server: Server, client: Client
) -> None:
    client.say(f"{SUBSCRIBE}\n")
    client.drain()
    client.consumer().push(message())
    client.say("UNSUBSCRIBE\nid:s\n\n")
    assert server.provider.calls("acknowledge through", "close session") == []
    client.drain()
    assert [call[0] for call in server.provider.calls("acknowledge through", "close session")] == [
        "acknowledge through",
        "close session",
    ]


def test_pause_and_resume_stop_and_start_deliveries(server: Server, client: Client) -> None:
    client.say(f"{SUBSCRIBE}\n")
    server.factory.pause()
    assert not client.consumer().running
    client.say("SUBSCRIBE\nid:other\ndestination:/queue/b\n\n")
    assert not client.consumer().running
    late = server.connected()
    late.say(f"{SUBSCRIBE}\n")
    assert not late.consumer().running
    server.factory.resume()
    for connection in server.provider.connections:
        assert all(consumer.running for consumer in connection.consumers)
