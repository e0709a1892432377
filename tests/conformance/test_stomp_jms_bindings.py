"""The STOMP JMS bindings: which header is which JMS header.

Both ways; what other brokers call them; what producers cannot forge.
"""

from __future__ import annotations

import time

import pytest

from tests.conformance.client import Client, Frame
from tests.conformance.conftest import Connect

DMQ = "/queue/mq.sys.dmq"


def bodies(messages: list[Frame]) -> list[str]:
    return [message.text for message in messages]


def now_ms() -> int:
    return int(time.time() * 1000)


# SEND to MESSAGE.


def test_the_bound_headers_go_through(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.subscribe(queue)
    headers = {
        "correlation-id": "c 1",
        "type": "order",
        "priority": "7",
        "reply-to": "/topic/answers",
        "JMSXGroupID": "g",
        "JMSXGroupSeq": "3",
    }
    before = now_ms()
    client.send("SEND", {"destination": queue, "expires": "3600000", **headers}, "1")
    message = client.message()
    assert headers.items() <= message.headers.items()
    assert (message["persistent"], message["redelivered"]) == ("true", "false")
    assert before - 1000 <= int(message["timestamp"]) <= now_ms() + 1000
    assert (
        int(message["timestamp"]) + 3600000 - 1000
        <= int(message["expires"])
        <= now_ms() + 3600000 + 1000
    )


def test_what_was_not_given_is_not_there(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue}, "1")
    message = client.message()
    assert not {
        "correlation-id",
        "type",
        "reply-to",
        "ack",
        "JMSXDeliveryCount",
        "JMSXUserID",
        "transaction",
    } & set(message.headers)


@pytest.mark.parametrize(
    ("value", "persistent"),
    [("true", True), ("TRUE", True), ("True", True), ("false", False), ("no", False)],
)
def test_persistent_is_true_in_any_case(
    connect: Connect, queue: str, value: str, persistent: bool
) -> None:
    client = connect()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "persistent": value})
    assert client.message().headers.get("persistent") == ("true" if persistent else None)


@pytest.mark.parametrize(
    "header",
    [
        "priority:10",
        "priority:-1",
        "priority:high",
        "priority:",
        "expires:soon",
        "expires:-5",
        "ttl:1.5",
    ],
)
def test_a_bound_header_that_is_none_is_an_error_that_names_it(
    connect: Connect, queue: str, header: str
) -> None:
    name, _, value = header.partition(":")
    client = connect()
    client.send("SEND", {"destination": queue, name: value}, receipt="r")
    client.error(name, receipt_id="r")


def test_spent_headers_are_no_properties(connect: Connect, queue: str, version: str) -> None:
    """``receipt`` and ``transaction`` are for the gateway; no consumer sees them."""
    client = connect(version)
    client.subscribe(queue)
    client.send("BEGIN", transaction="t")
    client.put(queue, "1", transaction="t")
    client.send("COMMIT", transaction="t")
    assert not {"receipt", "transaction"} & set(client.message().headers)


def test_headers_that_are_no_jms_names_come_as_they_went_and_selectors_do_not_see_them(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    headers = {
        "content-type": "application/json",
        "x-foo": "bar",
        "7up": "1",
        "a b": "c",
        "select": "me",
        "NULL": "null",
        "like": "x",
    }
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, **headers}, "{}")
    assert headers.items() <= client.message().headers.items()


def test_a_body_without_content_length_is_text_and_with_it_bytes(
    connect: Connect, queue: str, version: str
) -> None:
    """Text must be UTF-8; octets may be any.

    Both come with ``content-length``.
    """
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue}, "grün")
    client.send("SEND", {"destination": queue, "content-length": "3"}, b"\xff\x00\xfe")
    assert [(message.body, message["content-length"]) for message in client.messages(2)] == [
        ("grün".encode(), "5"),
        (b"\xff\0\xfe", "3"),
    ]
    client.send("SEND", {"destination": queue}, b"\xff\xfe", receipt="r")
    client.error("UTF-8", receipt_id="r")


@pytest.mark.parametrize(
    "name",
    [
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "receipt-id",
        "JMSXDeliveryCount",
        "JMSXUserID",
        "JMSXRcvTimestamp",
        "timestamp",
    ],
)
def test_what_only_the_gateway_may_say_cannot_be_forged(
    connect: Connect, queue: str, version: str, name: str
) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, name: "forged"}, "1")
    assert "forged" not in client.message().headers.values()


def test_forged_names_do_not_come_in_by_escapes_either(connect: Connect, queue: str) -> None:
    """A line end in a value would make a header of the gateway's out of a user's, for a 1.0
    client.
    """
    old, new = connect("1.0"), connect("1.2")
    old.subscribe(queue, ack="client")
    new.send(
        "SEND",
        {"destination": queue, "colour": "red\nmessage-id:forged\n\nbody", "a:b\nack": "forged"},
        "1",
    )
    message = old.message()
    assert message["message-id"] != "forged"
    assert message["ack"] != "forged"
    assert message.text == "1"


# MESSAGE.


def test_message_id_is_the_messages_and_ack_is_the_deliverys(connect: Connect, topic: str) -> None:
    first, second = connect(), connect("1.1")
    for client in (first, second):
        client.subscribe(topic, ack="client")
    first.subscribe(topic, "again", ack="client")
    second.send("SEND", {"destination": topic}, "1")
    messages = [*first.messages(2), second.message()]
    assert len({message["message-id"] for message in messages}) == 1
    assert ":" not in messages[0]["message-id"]
    assert len({message["ack"] for message in messages[:2]}) == 2


def test_a_redelivery_says_so_and_counts(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.put(queue, "1")
    identifiers = set()
    for attempt in range(1, 4):
        client = connect(version)
        client.subscribe(queue, ack="client")
        message = client.message()
        identifiers.add(message["message-id"])
        assert message["redelivered"] == ("false" if attempt == 1 else "true")
        assert message.headers.get("JMSXDeliveryCount", "1") == str(attempt)
        client.disconnect()
    assert len(identifiers) == 1


def test_higher_priorities_come_first_and_equal_ones_in_order(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    for body, priority in (("1", "4"), ("2", "9"), ("3", "0"), ("4", "9"), ("5", "4")):
        client.send("SEND", {"destination": queue, "priority": priority}, body)
    client.subscribe(queue)
    assert bodies(client.messages(5)) == ["2", "4", "1", "5", "3"]


# Expiry.


@pytest.mark.parametrize(
    ("name", "late"),
    [("expires", "1"), ("ttl", "1"), ("expiration", "1"), ("expires", "100000000000")],
)
def test_what_has_expired_is_not_delivered_but_dead(
    connect: Connect, queue: str, name: str, late: str
) -> None:
    """Relative milliseconds, or a point in time that is in the past (March 1973)."""
    client, dead = connect(), connect()
    client.send("SEND", {"destination": queue, name: late}, "late")
    client.put(queue, "marker")
    time_is_up = connect()  # a handshake takes more than the millisecond
    time_is_up.subscribe(queue)
    assert time_is_up.message().text == "marker"
    dead.subscribe(
        DMQ, selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{queue.removeprefix('/queue/')}'"
    )
    buried = dead.message()
    assert (buried.text, buried["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("late", "EXPIRED")


@pytest.mark.parametrize("value", ["0", "60000"])
def test_expires_is_told_as_a_point_in_time_or_0(connect: Connect, queue: str, value: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "expires": value})
    told = int(client.message()["expires"])
    assert told == 0 if value == "0" else abs(told - 60000 - now_ms()) < 10_000


def test_expires_as_a_point_in_time_is_kept(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    at = str(now_ms() + 3_600_000)
    client.send("SEND", {"destination": queue, "expires": at})
    assert client.message()["expires"] == at


@pytest.mark.parametrize("name", ["ttl", "expiration"])
def test_the_other_names_of_expiry_are_relative(connect: Connect, queue: str, name: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, name: "60000"})
    message = client.message()
    assert abs(int(message["expires"]) - 60000 - now_ms()) < 10_000
    assert name not in message


# The dead message queue, as a STOMP client reads it.


def test_the_dead_message_queue_tells_what_died_and_why(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    headers = {"colour": "red", "x-foo": "bar", "correlation-id": "c", "content-type": "text/plain"}
    client.put(queue, "poison", **headers)
    client.subscribe(queue, ack="client")
    message = client.message()
    client.nack(message, requeue="false")
    name = queue.removeprefix("/queue/")
    client.subscribe(DMQ, "dead", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'")
    dead = client.message()
    assert (dead.text, dead["destination"]) == ("poison", DMQ)
    assert dead["message-id"] == message["message-id"]
    assert headers.items() <= dead.headers.items()
    assert dead["JMS_SUN_DMQ_UNDELIVERED_REASON"] == "UNDELIVERABLE"
    assert abs(int(dead["JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"]) - now_ms()) < 60_000
    assert dead["JMS_SUN_DMQ_UNDELIVERED_COMMENT"]
    assert dead["JMS_SUN_DMQ_DELIVERY_COUNT"] == "1"
    assert dead["JMS_SUN_DMQ_BODY_TRUNCATED"] == "false"
    assert (dead["JMS_SUN_DMQ_DEAD_BROKER"], dead["expires"]) == ("test", "0")


@pytest.mark.parametrize(
    ("name", "value", "kept", "body"),
    [
        ("JMS_SUN_PRESERVE_UNDELIVERED", "false", False, ""),
        ("JMS_SUN_TRUNCATE_MSG_BODY", "TRUE", True, ""),
    ],
)
def test_a_producer_may_say_what_becomes_of_it_when_dead(
    connect: Connect, queue: str, name: str, value: str, kept: bool, body: str
) -> None:
    client = connect()
    client.put(queue, "poison", **{name: value, "which": queue})
    client.put(queue, "another", which=queue)
    client.subscribe(queue, ack="client-individual")
    for message in client.messages(2):
        client.nack(message, requeue="false")
    client.subscribe(DMQ, "dead", selector=f"which = '{queue}'")
    assert bodies(client.messages(1 + kept)) == [*([body] if kept else []), "another"]


# Browsing.


def test_a_browser_reads_all_takes_nothing_and_is_told_the_end(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.put(queue, "1", "2", "3")
    for id in ("a", "b"):
        client.subscribe(queue, id, browser="true")
        browsed = client.messages(4)
        assert bodies(browsed) == ["1", "2", "3", ""]
        assert [message["subscription"] for message in browsed] == [id] * 4
        assert [message.headers.get("browser") for message in browsed] == [None, None, None, "end"]
    client.subscribe(queue, "c")
    taken = client.messages(3)
    assert bodies(taken) == ["1", "2", "3"]
    assert {message["redelivered"] for message in taken} == {"false"}


def test_a_browser_of_an_empty_queue_is_told_the_end(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue, browser="true")
    end = client.message()
    assert (end["browser"], end["subscription"], end.body) == ("end", "s", b"")


def test_a_browser_sees_what_waits_and_not_what_a_consumer_has(
    connect: Connect, queue: str
) -> None:
    client, other = connect(), connect()
    client.put(queue, "1", "2", "3")
    other.subscribe(queue, ack="client", **{"prefetch-count": "1"})
    assert other.message().text == "1"
    client.subscribe(queue, browser="true", ack="client")
    browsed = client.messages(3)
    assert bodies(browsed) == ["2", "3", ""]
    assert [message.headers.get("ack") for message in browsed] == [None, None, None]


def test_a_browser_takes_a_selector(connect: Connect, queue: str) -> None:
    client = connect()
    client.put(queue, "1", colour="red")
    client.put(queue, "2", colour="blue")
    client.subscribe(queue, browser="true", selector="colour = 'blue'")
    assert bodies(client.messages(2)) == ["2", ""]


def test_topics_cannot_be_browsed(connect: Connect, topic: str) -> None:
    client = connect()
    client.send("SUBSCRIBE", destination=topic, id="1", browser="true")
    client.error("browse")


# Wildcards.


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", ["a"]),
        ("a.*", ["a.b", "a.c"]),
        ("*.b", ["a.b"]),
        ("a.>", ["a.b", "a.c", "a.b.c"]),
        ("a.*.c", ["a.b.c"]),
        (">", ["a", "a.b", "a.c", "a.b.c"]),
    ],
)
def test_a_subscription_to_a_topic_may_have_wildcards(
    connect: Connect, topic: str, version: str, pattern: str, matched: list[str]
) -> None:
    """``*`` is one level, a last ``>`` all that follow, at least one."""
    client = connect(version)
    client.subscribe(f"{topic}.{pattern}")
    names = ["a", "a.b", "a.c", "a.b.c"]
    for name in names:
        client.send("SEND", {"destination": f"{topic}.{name}"}, name)
    received = [client.message() for _ in matched]
    assert bodies(received) == matched
    assert [message["destination"] for message in received] == [
        f"{topic}.{name}" for name in matched
    ]
    assert client.sync() == []


def test_a_message_cannot_be_sent_to_a_wildcard(connect: Connect, topic: str) -> None:
    client = connect()
    client.send("SEND", {"destination": f"{topic}.*"}, receipt="r")
    client.error(receipt_id="r")


@pytest.mark.parametrize("name", ["*", ">", "wild.*", "wild.>", "*.wild", "a.*.b"])
def test_a_queues_name_has_no_wildcards(connect: Connect, queue: str, name: str) -> None:
    client = connect()
    client.send("SEND", {"destination": f"{queue}.{name}"}, receipt="r")
    error = client.error()
    assert error["receipt-id"] == "r"
    assert error["message"].startswith(f"{queue}.{name}: a queue's name cannot have wildcards")


@pytest.mark.parametrize("name", ["x*", "**", "x>", "what?", "?"])
def test_what_is_no_wildcard_is_a_name(connect: Connect, queue: str, name: str) -> None:
    client = connect()
    client.send("SEND", {"destination": f"{queue}.{name}"}, "x")
    client.subscribe(f"{queue}.{name}")
    assert client.message()["destination"] == f"{queue}.{name}"


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(
    "options", ["?prefetch=1", "?consumer.prefetchSize=10&consumer.priority=1"]
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_options_of_other_brokers_are_no_part_of_a_name(
    connect: Connect, kind: str, command: str, options: str
) -> None:
    client = connect()
    headers = {"destination": f"/{kind}/x{options}"}
    client.send(command, headers if command == "SEND" else {**headers, "id": "1"})
    assert client.error()["message"].startswith(
        f"destination '/{kind}/x{options}' has options, which are headers here"
    )


# Durable subscriptions, no-local, prefetch, and their other names.


@pytest.mark.parametrize(
    "name",
    [
        "durable-subscriber-name",
        "durable-subscription-name",
        "activemq.subscriptionName",
        "activemq.subcriptionName",
    ],
)
def test_a_durable_subscription_keeps_what_comes_while_its_subscriber_is_away(
    connect: Connect, topic: str, name: str
) -> None:
    client, publisher = connect(client_id=topic), connect()
    client.subscribe(topic, **{name: "d"})
    client.disconnect()
    publisher.put(topic, "1", "2")
    client = connect("1.1", client_id=topic)
    client.subscribe(topic, **{name: "d"})
    assert bodies(client.messages(2)) == ["1", "2"]
    assert client.ask("UNSUBSCRIBE", {name: "d"}) == []
    publisher.put(topic, "for nobody")
    client.subscribe(topic, **{name: "d"})
    assert client.sync() == []


def test_a_durable_subscription_made_in_a_transaction_is_kept_from_its_receipt_on(
    connect: Connect, topic: str
) -> None:
    client = connect(**{"client-id": topic.removeprefix("/topic/")})
    client.ask("BEGIN", transaction="t")
    durable = {"destination": topic, "durable-subscriber-name": "d", "transaction": "t"}
    assert client.ask("SUBSCRIBE", durable, id="s") == []
    client.ask("ABORT", transaction="t")
    client.disconnect()
    connect().put(topic, "meanwhile")
    again = connect(**{"client-id": topic.removeprefix("/topic/")})
    again.send("SUBSCRIBE", {"destination": topic, "durable-subscriber-name": "d"}, id="s")
    assert again.message().text == "meanwhile"


def test_a_durable_subscription_has_one_subscriber_at_a_time(connect: Connect, topic: str) -> None:
    client = connect(client_id=topic)
    client.subscribe(topic, **{"durable-subscriber-name": "d"})
    client.send("SUBSCRIBE", {"destination": topic, "durable-subscriber-name": "d"}, id="2")
    client.error("active")


def test_a_durable_subscription_needs_a_client_id(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", {"destination": topic, "durable-subscriber-name": "d"}, id="1")
    client.error("client-id")


@pytest.mark.parametrize("name", ["no-local", "activemq.noLocal"])
@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_no_local_leaves_out_ones_own(connect: Connect, topic: str, name: str, value: str) -> None:
    client, other = connect(), connect()
    client.subscribe(topic, **{name: value})
    client.put(topic, "own")
    other.put(topic, "another's")
    assert client.message().text == "another's"


@pytest.mark.parametrize("name", ["prefetch-count", "activemq.prefetchSize", "credit"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_prefetch_bounds_what_is_unacknowledged(
    connect: Connect, queue: str, version: str, name: str, ack: str
) -> None:
    client = connect(version)
    client.put(queue, *"123456")
    client.subscribe(queue, **{name: "2", "ack": ack})
    held = client.messages(2)
    assert bodies(held) == ["1", "2"]
    assert client.sync() == []
    client.ack(held[0])
    assert client.message().text == "3"
    assert client.sync() == []


@pytest.mark.parametrize("name", ["prefetch-count", "activemq.prefetchSize", "credit"])
@pytest.mark.parametrize("value", ["many", "-1", "1.5", ""])
def test_a_prefetch_that_is_none_is_an_error(
    connect: Connect, queue: str, name: str, value: str
) -> None:
    client = connect()
    client.send("SUBSCRIBE", {"destination": queue, name: value}, id="1")
    client.error(name)


def test_a_prefetch_of_0_is_the_default(connect: Connect, queue: str) -> None:
    client = connect()
    client.put(queue, *map(str, range(20)))
    client.subscribe(queue, **{"prefetch-count": "0", "ack": "client"})
    assert len(client.messages(20)) == 20


# Selectors on what came in as headers.


def test_headers_are_strings_that_count_as_numbers_where_numbers_are_wanted(
    connect: Connect, queue: str
) -> None:
    client = connect()
    for body, size in (("1", "5"), ("2", "five"), ("3", "5.0"), ("4", "1e1"), ("5", "")):
        client.put(queue, body, size=size)
    client.subscribe(queue, "n", selector="size = 5", ack="client")
    assert bodies(client.messages(2)) == ["1", "3"]
    client.subscribe(queue, "s", selector="size = 'five' OR size > 9", ack="client")
    assert bodies(client.messages(2)) == ["2", "4"]
    assert client.sync() == []


def _alone(client: Client, queue: str, selector: str) -> list[str]:
    client.subscribe(queue, "probe", selector=selector, browser="true")
    found = []
    while "browser" not in (message := client.message()):
        found.append(message.text)
    client.ask("UNSUBSCRIBE", id="probe")
    return found


def test_a_selector_sees_no_header_that_is_not_a_jms_name(connect: Connect, queue: str) -> None:
    """``content-type`` reads as a difference in SQL, so it is null or an error, and never the
    header.
    """
    client = connect()
    client.put(queue, "1", **{"content-type": "7", "content": "9"})
    assert _alone(client, queue, "content = '9'") == ["1"]
    assert _alone(client, queue, "content - type = 7") == []
