"""What SEND does and MESSAGE has: rows of ``docs/profiles.rst``."""

from __future__ import annotations

import time

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.rows import answer, row


@row(
    "a name alone, ``orders``",
    openmq="ERROR",
    standard="ERROR",
    artemis="is a queue if there is one, else a topic",
    others="is a queue",
)
def test_bare_names(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    if profile == "artemis":
        hearer = join("openmq")
        hearer.subscribe(f"/topic/{name}")
        client.ask("SEND", {"destination": name}, "heard")
        assert hearer.message().text == "heard"
        hearer.put(f"/queue/{name}", "first")
    client.send("SEND", {"destination": name, "receipt": "r"}, "body")
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")
    if cell != "ERROR":
        with_prefix = join("openmq")
        with_prefix.subscribe(f"/queue/{name}")
        expected = ["first"] * (profile == "artemis") + ["body"]
        assert [each.text for each in with_prefix.messages(len(expected))] == expected


@row(
    "SUBSCRIBE to a name alone",
    openmq="ERROR",
    standard="ERROR",
    artemis="is to a queue if there is one, else to a topic",
    others="is to a queue",
)
def test_bare_sources(join: Join, name: str, profile: str, cell: str) -> None:
    client, sender = join(profile), join("openmq")
    client.send("SUBSCRIBE", {"destination": name, "id": "s", "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")
    if cell == "ERROR":
        return
    if profile == "artemis":
        sender.put(f"/topic/{name}", "heard")
        assert client.message().text == "heard"
    sender.put(f"/queue/{name}", "waits")
    if profile == "artemis":
        client.ask("SUBSCRIBE", {"destination": name, "id": "t"})
    assert client.message().text == "waits"


@row("``reply-to`` that is no destination", openmq="ERROR", standard="ERROR", others="goes through")
def test_reply_to(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send(
        "SEND", {"destination": f"/queue/{name}", "reply-to": "some text", "receipt": "r"}, "body"
    )
    if cell == "ERROR":
        client.error("reply-to")
        return
    assert answer(client).command == "RECEIPT"
    client.subscribe(f"/queue/{name}")
    assert client.message()["reply-to"] == "some text"


@row("SEND without ``persistent``", openmq="persistent", standard="persistent", others="not")
def test_persistence(join: Join, name: str, profile: str, cell: str) -> None:
    join(profile).put(f"/queue/{name}", "body")
    receiver = join("openmq")
    receiver.subscribe(f"/queue/{name}")
    assert receiver.message().headers.get("persistent") == (
        "true" if cell == "persistent" else None
    )


@row("SEND with ``message-id``", rabbitmq="ERROR", others="is ignored")
def test_message_id(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send("SEND", {"destination": f"/queue/{name}", "message-id": "m", "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row(
    "SEND with ``priority:20``",
    openmq="ERROR",
    standard="ERROR",
    activemq="counts as 9",
    artemis="ERROR",
    rabbitmq="counts as 9",
)
def test_priorities_beyond_those_of_jms(join: Join, name: str, profile: str, cell: str) -> None:
    client, destination = join(profile), f"/queue/{name}"
    if cell == "ERROR":
        client.send("SEND", {"destination": destination, "priority": "20", "receipt": "r"})
        client.error("priority '20'")
        return
    texts = {"-3": "0", "8": "8", "+9": "9", "20": "9", "2147483647": "9"}
    for each in texts:
        client.send("SEND", {"destination": destination, "priority": each}, each)
    client.subscribe(destination)
    assert {each.text: each["priority"] for each in client.messages(len(texts))} == texts
    # What is no number stays refused.
    client.send("SEND", {"destination": destination, "priority": "high", "receipt": "r"})
    assert "priority 'high'" in answer(client).text


@row(
    "a body that is not UTF-8, without ``content-length``",
    openmq="ERROR",
    standard="ERROR",
    others="is bytes",
)
def test_bodies_of_other_encodings(join: Join, name: str, profile: str, cell: str) -> None:
    client, body = join(profile), "Bücher".encode("latin-1")
    if cell == "ERROR":
        client.send("SEND", {"destination": f"/queue/{name}", "receipt": "r"}, body)
        assert "not UTF-8" in answer(client).text
        return
    sent = ["Bücher".encode(), body] * 10
    # The gateway learns what a producer repeats.
    for each in sent:
        client.send("SEND", {"destination": f"/queue/{name}", "kind": "list"}, each)
    client.subscribe(f"/queue/{name}")
    assert [each.body for each in client.messages(20)] == sent


@row("``timestamp`` of SEND", activemq="is the message's", others="is ignored")
def test_timestamps(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    # The gateway learns what a producer repeats.
    for number in range(20):
        sent = {"destination": f"/queue/{name}", "timestamp": str(1234 + number)}
        client.send("SEND", sent, "body")
    receiver = join("openmq")
    receiver.subscribe(f"/queue/{name}")
    kept = [int(each["timestamp"]) for each in receiver.messages(20)]
    if cell == "is the message's":
        assert kept == list(range(1234, 1254))
    else:
        assert min(kept) > 1_700_000_000_000


@row("``AMQ_SCHEDULED_DELAY``, ``AMQ_SCHEDULED_TIME``", others="come later")
@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"])
def test_schedules(join: Join, name: str, header: str, profile: str, cell: str) -> None:
    assert cell == "come later"
    check_later(join(profile), name, header)


@row("``_AMQ_SCHED_DELIVERY``", others="comes later")
def test_artemis_schedules(join: Join, name: str, profile: str, cell: str) -> None:
    assert cell == "comes later"
    check_later(join(profile), name, "_AMQ_SCHED_DELIVERY")


def check_later(client: Client, name: str, header: str) -> None:
    """Check that a message with that header comes when it is due."""
    client.subscribe(f"/queue/{name}")
    due = time.time_ns() // 1_000_000 + 300
    value = "300" if header.endswith("DELAY") else str(due)
    client.send("SEND", {"destination": f"/queue/{name}", header: value}, "later")
    client.send("SEND", {"destination": f"/queue/{name}"}, "at once")
    first, second = client.messages(2)
    assert (first.text, second.text) == ("at once", "later")
    assert time.time_ns() // 1_000_000 >= due
    assert header not in second


@row("``AMQ_SCHEDULED_REPEAT``, with ``_PERIOD``", others="comes again")
def test_repeats(join: Join, name: str, profile: str, cell: str) -> None:
    assert cell == "comes again"
    client = join(profile)
    client.subscribe(f"/queue/{name}")
    again = {"AMQ_SCHEDULED_REPEAT": "2", "AMQ_SCHEDULED_PERIOD": "100"}
    client.send("SEND", {"destination": f"/queue/{name}", **again}, "body")
    messages = client.messages(3)
    assert [each.text for each in messages] == ["body"] * 3
    assert len({each["message-id"] for each in messages}) == 3


@row("``AMQ_SCHEDULED_CRON:every day``", others="ERROR")
def test_cron(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    sent = {"destination": f"/queue/{name}", "AMQ_SCHEDULED_CRON": "every day"}
    client.send("SEND", sent, "body", receipt="r")
    assert client.expect(cell)["receipt-id"] == "r"


@row("``x-delay``", others="is a header like any other")
def test_x_delay(join: Join, name: str, profile: str, cell: str) -> None:
    assert cell == "is a header like any other"
    client = join(profile)
    client.subscribe(f"/queue/{name}")
    client.send("SEND", {"destination": f"/queue/{name}", "x-delay": "3600000"}, "first")
    client.send("SEND", {"destination": f"/queue/{name}"}, "second")
    first, second = client.messages(2)
    assert (first.text, first["x-delay"], second.text) == ("first", "3600000", "second")


@row("blanks at the edges of header names, in MESSAGE", artemis="stay", others="are ``_``")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_padding(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    sent = {"destination": f"/queue/{name}", " odd  ": " value ", " subscription": "forged"}
    client.send("SEND", sent, "body")
    client.subscribe(f"/queue/{name}")
    message = client.message()
    assert message[" odd  " if cell == "stay" else "_odd__"] == " value "
    assert "forged" not in message.headers.values()


@row(
    "``/queue/a?consumer.priority=1``",
    activemq="is ``/queue/a``",
    rabbitmq="is one name",
    others="ERROR",
)
def test_options(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    text = f"/queue/{name}?consumer.priority=1"
    client.send("SUBSCRIBE", {"id": "1", "destination": text, "receipt": "r"})
    if cell == "ERROR":
        assert client.expect("ERROR")["receipt-id"] == "r"
        return
    client.expect("RECEIPT")
    named = text if cell == "is one name" else f"/queue/{name}"
    client.send("SEND", {"destination": named}, "1")
    client.send("SEND", {"destination": text}, "2")
    assert [each["destination"] for each in client.messages(2)] == [named] * 2
