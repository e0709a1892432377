"""Temporary destinations and replies (Open MQ's Table 12-11)."""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.stomp import destinations
from gateway.stomp.refusals import CommandRefused
from tests.gateway.stomp.client import Client, Server


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/queue/a", Queue("a")),
        ("/topic/a.b.>", Topic("a.b.>")),
        ("/queue//queue/a", Queue("/queue/a")),
        ("/queue/ a ", Queue("a")),
        ("/temp-queue/temporary_destination://queue/X1", Destination(Kind.QUEUE, "X1", True)),
        ("/temp-topic/temporary_destination://topic/X1", Destination(Kind.TOPIC, "X1", True)),
        ("/temp-queue/n", destinations.LocalTemporary(Kind.QUEUE, "n")),
        ("/temp-topic/n", destinations.LocalTemporary(Kind.TOPIC, "n")),
    ],
)
def test_prefixes_mean_what_the_table_says(text: str, meant: object) -> None:
    assert destinations.PLAIN.parse(text, "destination") == meant
    if isinstance(meant, Destination):
        assert destinations.PLAIN.parse(destinations.spell(meant), "destination") == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "/a",
        "/queue",
        "/queue/",
        "/queue/ ",
        "/temp-queue/",
        "/temp-queue/temporary_destination://queue/",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CommandRefused, match="reply-to"):
        destinations.PLAIN.parse(text, "reply-to")


def test_one_name_is_one_destination_in_every_frame_of_a_connection(
    server: Server, client: Client
) -> None:
    client.say(
        "SUBSCRIBE\nid:s\ndestination:/temp-queue/answers\n\n",
        "SEND\ndestination:/queue/work\nreply-to:/temp-queue/answers\n\n",
        "SEND\ndestination:/temp-queue/answers\n\n",
        "SEND\ndestination:/temp-topic/answers\n\n",
    )
    assert client.consumer().spec.destination == Destination(Kind.QUEUE, "generated1", True)
    ask, own, topic = server.provider.sent
    assert ask.headers.reply_to == Destination(Kind.QUEUE, "generated1", True)
    assert own.headers.destination == Destination(Kind.QUEUE, "generated1", True)
    assert topic.headers.destination == Destination(Kind.TOPIC, "generated2", True)
    assert len(server.provider.calls("temporary")) == 2


def test_unsubscribe_may_name_a_durable_subscription(server: Server) -> None:
    client = server.connected(headers="client-id:me\n")
    assert client.answers(
        "SUBSCRIBE\nid:s\ndestination:/topic/t\ndurable-subscriber-name:d\n\n",
        "UNSUBSCRIBE\ndurable-subscription-name:d\ndestination:/queue/ignored\nid:ignored\nreceipt:r\n\n",
    ) == ["RECEIPT"]
    assert [call[0] for call in server.provider.calls("close", "close session", "unsubscribe")] == [
        "close",
        "close session",
        "unsubscribe",
    ]
    assert client.answers("SUBSCRIBE\nid:s\ndestination:/topic/t\n\n") == []
