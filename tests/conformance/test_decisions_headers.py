"""Which names of headers get from a sender to a consumer, and how.

What readers that trim would take for the gateway's own does not.
"""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Connect

OWN = (
    *(
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "destination",
        "content-length",
        "timestamp",
        "browser",
    ),
    *(
        "reply-to",
        "correlation-id",
        "type",
        "expires",
        "priority",
        "persistent",
        "receipt-id",
        "JMSXUserID",
        "JMSXDeliveryCount",
    ),
)
#: Spaces and tabs, which STOMP 1.0 trims, and what trim functions of languages take besides.
BLANKS = (" ", "\t", "\u00a0", "\u2003", "\x01", "\x1f", "\x85", "\u2028", "\ufeff", "\u200b", "\r")


def padded(name: str) -> list[str]:
    return [
        variant
        for blank in BLANKS
        for variant in (blank + name, name + blank, f"{blank} {name}{blank}")
    ]


def trimmed(name: str) -> str:
    return name.strip("".join(BLANKS) + "".join(map(chr, range(33))))


def test_edge_blanks_do_not_make_a_header_of_the_gateways(
    connect: Connect, queue: str, version: str
) -> None:
    """Readers that trim take the first of repeated headers, or the last: there must be one."""
    consumer, sender = connect(version), connect()
    consumer.subscribe(queue)
    for name in OWN:
        sender.send("SEND", {"destination": queue, **dict.fromkeys(padded(name), "0")}, name)
        message = consumer.message()
        names = [trimmed(each) for each, _ in message.lines]
        assert len(names) == len(set(names)), names
        assert message.text == name


def test_edge_blanks_are_underscores_in_every_version(
    connect: Connect, queue: str, version: str
) -> None:
    consumer, sender = connect(version), connect()
    consumer.subscribe(queue)
    sender.send(
        "SEND",
        {
            "destination": queue,
            " x-a": "1",
            "x-b\u00a0\t": "2",
            "x c": "3",
            "\t": "4",
            "\u200bx-d": "5",
        },
    )
    found = consumer.message().headers
    assert {name: value for name, value in found.items() if name.startswith(("x", "_"))} == {
        "_x-a": "1",
        "x-b__": "2",
        "x c": "3",
        "_": "4",
        "_x-d": "5",
    }


def test_edge_blanks_do_not_smuggle_a_frame_to_a_reader_of_1_0(
    connect: Connect, queue: str
) -> None:
    """``content-length :0`` before the gateway's own would end the frame early for a reader that
    trims.
    """
    consumer, sender = connect("1.0"), connect()
    consumer.subscribe(queue)
    inner = b"\0MESSAGE\nmessage-id:smuggled\ncontent-length:0\n\n\0"
    for name in ("content-length ", "content-length\t", " content-length"):
        sender.send(
            "SEND", {"destination": queue, "content-length": str(len(inner)), name: "0"}, inner
        )
        message = consumer.message()
        assert [each.strip() for each, _ in message.lines].count("content-length") == 1
        assert message.body == inner


def test_headers_of_the_gateway_come_before_those_of_the_sender(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(queue, ack="client")
    client.send(
        "SEND", {"a": "1", "destination": queue, "x-b": "2", "reply-to": queue, "type": "t"}
    )
    names = [name for name, _ in client.message().lines]
    assert set(names[-2:]) == {"a", "x-b"}
    assert {
        "subscription",
        "message-id",
        "ack",
        "content-length",
        "destination",
        "reply-to",
        "type",
    } <= set(names[:-2])


@pytest.mark.parametrize(
    "name",
    [
        *("JMSMessageID", "JMSRedelivered", "JMSDestination", "JMSPriority", "JMSFoo", "JMS"),
        *(
            "JMS_SUN_DMQ_UNDELIVERED_REASON",
            "JMS_SUN_DMQ_DESTINATION",
            "JMS_SUN_JMSBRIDGE_DMQ_REASON",
            "JMS_OTHER_thing",
        ),
        *("JMSMessageID ", " JMS_SUN_DMQ_DESTINATION", "JMSXUserID\t"),
    ],
)
def test_forged_names_of_jms_never_reach_a_consumer(
    connect: Connect, queue: str, version: str, name: str
) -> None:
    consumer, sender = connect(version), connect()
    consumer.subscribe(queue)
    sender.send(
        "SEND", {"destination": queue, name: "forged", "JMSXGroupID": "g", "JMSXGroupSeq": "1"}, "1"
    )
    message = consumer.message()
    assert "forged" not in message.headers.values()
    assert (message["JMSXGroupID"], message["JMSXGroupSeq"]) == ("g", "1")


def test_forged_names_of_jms_are_nothing_to_selectors(connect: Connect, queue: str) -> None:
    client = connect()
    client.put(queue, "1", JMS_SUN_DMQ_DESTINATION="forged")
    client.subscribe(queue, selector="JMS_SUN_DMQ_DESTINATION IS NOT NULL")
    client.send("UNSUBSCRIBE", id="s")
    client.subscribe(queue)
    assert client.message().text == "1"
