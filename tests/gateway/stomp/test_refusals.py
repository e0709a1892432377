"""What is refused of a client that is connected, and what its ERROR names."""

from __future__ import annotations

import pytest

from gateway.stomp.settings import SessionOptions
from tests.gateway.stomp.client import Client, Server

BEGIN = "BEGIN\ntransaction:t\n\n"
SEND = "SEND\ndestination:/queue/a\n"
SUBSCRIBE = "SUBSCRIBE\nid:s\ndestination:/queue/a\n"

#: Words of the ERROR's message, and the frames of which the last is refused.
REFUSED: list[tuple[str, list[str]]] = [
    ("already connected", ["CONNECT\nlogin:guest\npasscode:secret\n\n"]),
    ("nested", [BEGIN, "BEGIN\ntransaction:other\n\n"]),
    ("transaction", ["BEGIN\n\n"]),
    ("transaction", [BEGIN, "COMMIT\n\n"]),
    ("transaction", [BEGIN, "ABORT\n\n"]),
    *[
        ("'other'", [BEGIN, f"{frame}transaction:other\n\n"])
        for frame in ("COMMIT\n", "ABORT\n", SEND, SUBSCRIBE)
    ],
    *[("none is open", [f"{frame}transaction:t\n\n"]) for frame in (SEND, SUBSCRIBE)],
    ("destination", ["SEND\n\nx"]),
    *[
        (header.partition(":")[0], [f"SEND\n{header}\ndestination:/queue/a\n\n"])
        for header in (
            "expires:soon",
            "ttl:-1",
            "priority:10",
            "priority:high",
            "reply-to:nowhere",
            "destination:a",
        )
    ],
    *[
        (header.partition(":")[0], [f"SUBSCRIBE\n{header}\nid:s\ndestination:/queue/a\n\n"])
        for header in (
            "ack:sometimes",
            "prefetch-count:many",
            "activemq.redeliveryDelay:x",
            "destination:nowhere",
        )
    ],
    ("id", ["SUBSCRIBE\ndestination:/queue/a\n\n"]),
    ("'s'", [f"{SUBSCRIBE}\n", "SUBSCRIBE\nid:s\ndestination:/queue/b\n\n"]),
    (
        "client-id",
        ["SUBSCRIBE\nid:s\ndestination:/topic/t\ndurable-subscriber-name:d\n\n"],
    ),
    ("browse", ["SUBSCRIBE\nid:s\ndestination:/topic/a\nbrowser:true\n\n"]),
    ("'other'", [f"{SUBSCRIBE}\n", "UNSUBSCRIBE\nid:other\n\n"]),
    ("id", [f"{SUBSCRIBE}\n", "UNSUBSCRIBE\ndestination:/queue/a\n\n"]),
    ("id", [f"{SUBSCRIBE}\n", "UNSUBSCRIBE\n\n"]),
    ("client-id", ["UNSUBSCRIBE\nid:s\ndurable-subscriber-name:d\n\n"]),
]


@pytest.mark.parametrize(("words", "frames"), REFUSED)
def test_the_error_names_what_is_wrong_and_the_receipt(
    words: str, frames: list[str], client: Client
) -> None:
    *before, last = frames
    client.say(*before, last.replace("\n", "\nreceipt:r\n", 1))
    headers = client.error().head.headers
    assert words in headers["message"]
    assert headers["receipt-id"] == "r"


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (SessionOptions(max_subscriptions=2), "/queue/"),
        (SessionOptions(max_temporaries=2), "/temp-queue/"),
    ],
)
def test_subscriptions_and_temporary_destinations_are_limited(
    options: SessionOptions, prefix: str
) -> None:
    client = Server(options).connected()
    assert "2 is the limit" in client.refusal(
        *[f"SUBSCRIBE\nid:{number}\ndestination:{prefix}{number}\n\n" for number in range(3)]
    )
