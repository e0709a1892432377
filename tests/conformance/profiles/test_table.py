"""The table of ``docs/profiles.rst``, cell by cell."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import Client, Closed, Frame
from tests.conformance.profiles.conftest import PROFILES, Join

DOCUMENT = Path(__file__).parents[3] / "docs" / "profiles.rst"

#: The rows that have a test: the cells by profile.
ROWS: dict[str, dict[str, str]] = {}

Check = Callable[..., None]


def row(title: str, **cells: str) -> Callable[[Check], Any]:
    """A test for a row of the table, for each of its cells.

    :param cells: by profile; ``others`` stands for those that are not named.
    """
    filled = {profile: cells.get(profile, cells.get("others", "")) for profile in PROFILES}
    ROWS[title] = filled
    return pytest.mark.parametrize(("profile", "cell"), list(filled.items()))


def answer(client: Client) -> Frame:
    """The next frame that is no MESSAGE."""
    while (frame := client.frame()).command == "MESSAGE":
        pass
    return frame


def is_closed(client: Client) -> bool:
    """Whether the gateway has closed the connection, rather than go on."""
    try:
        client.ask("SEND", {"destination": "/topic/unheard"})
    except (Closed, BrokenPipeError, ConnectionResetError):
        return True
    return False


@row(
    "``server`` of CONNECTED begins with",
    openmq="stomp-gateway/",
    standard="stomp-gateway/",
    activemq="ActiveMQ/",
    artemis="ActiveMQ-Artemis/",
    rabbitmq="RabbitMQ/",
)
def test_server(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected["server"].startswith(cell)
    assert "stomp-gateway/" in connected["server"]


@row(
    "``session`` of CONNECTED begins with",
    activemq="ID:",
    rabbitmq="session-",
    others="anything",
)
def test_session(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected["session"].startswith("" if cell == "anything" else cell)


@row("``version`` without ``accept-version``", artemis="none", others="1.0")
def test_version(dial: Callable[[str], Client], profile: str, cell: str) -> None:
    client = dial(profile)
    connected = client.connect(None)
    assert connected.headers.get("version", "none") == cell


@row("``heart-beat`` of CONNECTED without one of CONNECT", artemis="none", others="0,0")
def test_heart_beat(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected.headers.get("heart-beat", "none") == cell


@row("``heart-beat`` of CONNECTED to ``heart-beat:0,0``", artemis="0,30000", others="0,0")
def test_heart_beat_wanted(join: Join, profile: str, cell: str) -> None:
    client = join(profile, heart_beat="0,0")
    assert client.connected is not None
    assert client.connected["heart-beat"] == cell
    client.sync()


@row("heart-beats go out after", activemq="nearly the interval", others="half the interval")
def test_heart_beats(join: Join, profile: str, cell: str) -> None:
    client = join(profile, heart_beat="0,800")
    beats = client.wait_for_beats(4)
    least = min(later - earlier for earlier, later in itertools.pairwise(beats))
    assert (least > 0.7) is (cell == "nearly the interval")


@row("a ``client-id`` that another connection has", artemis="is shared", others="ERROR")
def test_client_ids(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, client_id=name)
    if cell == "ERROR":
        with pytest.raises(AssertionError, match="in use by another connection"):
            join(profile, client_id=name)
        return
    other = join(profile, client_id=name)
    durable = {"id": "s", "durable-subscription-name": "d", "subscription-type": "MULTICAST"}
    durable |= {"destination": name, "ack": "client-individual", "activemq.prefetchSize": "1"}
    for each in (client, other):
        each.ask("SUBSCRIBE", durable)
    sent = {"destination": name, "destination-type": "MULTICAST", "persistent": "true"}
    for body in ("1", "2"):
        join(profile).ask("SEND", sent, body)
    assert {client.message().text, other.message().text} == {"1", "2"}
    for each in (client, other):
        each.disconnect()
    again = join(profile, client_id=name)
    again.ask("SUBSCRIBE", durable)
    first = again.message()
    again.ack(first)
    assert {first.text, again.message().text} == {"1", "2"}
    again.ask("UNSUBSCRIBE", {"durable-subscription-name": "d"})
    join(profile).ask("SEND", sent, "lost")
    again.ask("SUBSCRIBE", durable)
    again.send("SEND", sent, "later")
    assert again.message().text == "later"


@row("CONNECT without login", openmq="ERROR", standard="ERROR", others="is guest")
def test_login(dial: Callable[[str], Client], profile: str, cell: str) -> None:
    client = dial(profile)
    client.send("CONNECT", {"accept-version": "1.2"})
    assert client.frame().command == ("ERROR" if cell == "ERROR" else "CONNECTED")


@row("a name alone, ``orders``", openmq="ERROR", standard="ERROR", others="is a queue")
def test_bare_names(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send("SEND", {"destination": name, "receipt": "r"}, "body")
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")
    if cell != "ERROR":
        with_prefix = join("openmq")
        with_prefix.subscribe(f"/queue/{name}")
        assert with_prefix.message().text == "body"


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


@row("SUBSCRIBE twice to a destination, without ``id`` in 1.0", activemq="taken", others="ERROR")
def test_twice_without_id(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, "1.0")
    client.ask("SUBSCRIBE", {"destination": f"/topic/{name}"})
    client.send("SUBSCRIBE", {"destination": f"/topic/{name}", "receipt": "r"})
    if cell == "ERROR":
        assert client.expect("ERROR")["receipt-id"] == "r"
        return
    assert client.expect("RECEIPT")["receipt-id"] == "r"
    for left in (2, 1, 0):
        client.send("SEND", {"destination": f"/topic/{name}"}, "body")
        assert len(client.messages(left)) == left
        assert client.sync() == []
        if left:
            client.ask("UNSUBSCRIBE", {"destination": f"/topic/{name}"})
    client.send("UNSUBSCRIBE", {"destination": f"/topic/{name}", "receipt": "none"})
    assert client.expect("ERROR")["receipt-id"] == "none"


@row("SUBSCRIBE without ``id`` in 1.1 and 1.2", artemis="taken", rabbitmq="taken", others="ERROR")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_no_id(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")
    if cell == "taken":
        client.put(f"/queue/{name}2", "body")
        client.ask("UNSUBSCRIBE", {"destination": f"/queue/{name}"})


@row("a prefetch of 0", artemis="is 1", others="is the default")
def test_prefetch_of_none(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.put(f"/queue/{name}", "1", "2")
    client.subscribe(f"/queue/{name}", ack="client", **{"activemq.prefetchSize": "0"})
    first = client.message()
    if cell == "is 1":
        # Nothing comes before the answer to this.
        assert client.sync() == []
        client.ack(first)
    assert client.message().text == "2"


@row("a durable name on SUBSCRIBE to a queue", artemis="is ignored", others="ERROR")
def test_durable_queues(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, client_id=name)
    client.send(
        "SUBSCRIBE",
        {
            "destination": f"/queue/{name}",
            "id": "s",
            "durable-subscriber-name": "d",
            "receipt": "r",
        },
    )
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row("SUBSCRIBE to ``/queue/a,b``", activemq="is to both", others="is to one name")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_composites(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    names = [f"{name}.{each}" for each in "ab"]
    headers = {"destination": f"/queue/{names[0]},{names[1]}", "id": "s", "ack": "client"}
    if cell == "is to one name":
        client.ask("SUBSCRIBE", headers)
        client.send("SEND", {"destination": headers["destination"]}, "one name")
        assert client.message().text == "one name"
        return
    client.ask("SUBSCRIBE", headers)
    for each in names:
        client.send("SEND", {"destination": f"/queue/{each}"}, each)
    messages = client.messages(2)
    assert {each.text for each in messages} == set(names)
    assert {each["subscription"] for each in messages} == {"s"}
    for message in messages:
        client.ack(message, receipt="a")
        assert answer(client)["receipt-id"] == "a"
    client.ask("UNSUBSCRIBE", id="s")
    for each in names:
        client.put(f"/queue/{each}", "later")
    for each in names:
        client.subscribe(f"/queue/{each}")
        assert client.message().text == "later"
        client.ask("UNSUBSCRIBE", id="s")


@row("SUBSCRIBE to ``/queue/a.*``", rabbitmq="ERROR", others="is to all that match")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_queue_patterns(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client, sender = join(profile, version), join(profile)
    sender.put(f"/queue/{name}.a", "before")
    headers = {"destination": f"/queue/{name}.*", "id": "s", "ack": "client-individual"}
    if cell == "ERROR":
        client.send("SUBSCRIBE", {**headers, "receipt": "r"})
        assert answer(client).command == "ERROR"
        return
    client.ask("SUBSCRIBE", headers)
    sender.put(f"/queue/{name}.b.c", "deeper")
    sender.put(f"/queue/{name}.b", "after")
    messages = client.messages(2)
    assert [(each["destination"], each.text) for each in messages] == [
        (f"/queue/{name}.a", "before"),
        (f"/queue/{name}.b", "after"),
    ]
    assert {each["subscription"] for each in messages} == {"s"}
    for message in messages:
        client.ack(message, receipt="a")
        assert answer(client)["receipt-id"] == "a"
    client.ask("UNSUBSCRIBE", id="s")
    sender.put(f"/queue/{name}.a", "later")
    client.subscribe(f"/queue/{name}.a")
    assert client.message().text == "later"


@row("SUBSCRIBE to ``/queue/a.#``", artemis="is to all that match", others="is to one name")
def test_hash(join: Join, name: str, profile: str, cell: str) -> None:
    client, sender = join(profile), join("openmq")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}.#", "id": "s"})
    sender.put(f"/queue/{name}.a.b", "a.b")
    sender.put(f"/queue/{name}.#", "#")
    assert client.message().text == ("#" if cell == "is to one name" else "a.b")


@row("an unknown value of ``ack``", activemq="is auto", artemis="is auto", others="ERROR")
def test_unknown_ack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send(
        "SUBSCRIBE", {"destination": f"/queue/{name}", "id": "s", "ack": "x", "receipt": "r"}
    )
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row("ACK in a transaction", openmq="ERROR", others="joins it")
def test_ack_joins(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    (message,) = client.hold(f"/queue/{name}", "body", ack="client")
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t", receipt="a")
    if cell == "ERROR":
        client.error("ack.transaction")
        return
    assert answer(client).command == "RECEIPT"
    client.ask("ABORT", transaction="t")
    client.ack(message, receipt="b")
    assert answer(client)["receipt-id"] == "b"
    assert client.left(f"/queue/{name}") == []


@row("transactions at once", openmq="1", others="100")
def test_several_transactions(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    most = int(cell)
    for number in range(most):
        client.ask("BEGIN", transaction=f"t{number}")
    for number in (0, most - 1):
        client.send(
            "SEND", {"destination": f"/queue/{name}", "transaction": f"t{number}"}, f"t{number}"
        )
    client.ask("COMMIT", transaction=f"t{most - 1}")
    receiver = join("openmq")
    receiver.subscribe(f"/queue/{name}")
    assert receiver.message().text == f"t{most - 1}"
    if most > 1:
        client.ask("BEGIN", transaction="one more")
        client.send("BEGIN", transaction="too many", receipt="r")
        assert client.expect("ERROR")["receipt-id"] == "r"


@row("RECEIPT of a SEND in a transaction", rabbitmq="after COMMIT", others="at once")
def test_receipts_in_transactions(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send("BEGIN", transaction="t")
    destination = {"destination": f"/queue/{name}", "transaction": "t"}
    client.send("SEND", destination, "body", receipt="sent")
    client.send("SEND", {"destination": f"/queue/{name}"}, "outside", receipt="outside")
    client.send("COMMIT", transaction="t", receipt="committed")
    order = [client.expect("RECEIPT")["receipt-id"] for _ in range(3)]
    if cell == "at once":
        assert order == ["sent", "outside", "committed"]
    else:
        assert order == ["outside", "committed", "sent"]


@row(
    "NACK",
    openmq="as the redelivery policy says",
    standard="as the redelivery policy says",
    activemq="dead",
    artemis="dead",
    rabbitmq="comes again at once",
)
def test_nack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    (message,) = client.hold(f"/queue/{name}", name, ack="client-individual")
    client.nack(message)
    if cell == "dead":
        dead = join("openmq")
        dead.subscribe("/queue/mq.sys.dmq")
        while dead.message().text != name:
            pass
        assert client.left(f"/queue/{name}") == []
        return
    again = client.message()
    assert (again.text, again["redelivered"]) == (name, "true")
    pause = again.came - message.came
    assert pause < 0.9 if cell == "comes again at once" else pause > 0.9


@row("NACK with ``ack:client``", activemq="is of one message", others="is of all before")
def test_nack_of_many(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    first, second = client.hold(f"/queue/{name}", "1", "2", ack="client")
    client.nack(second, requeue="false", receipt="n")
    assert answer(client).command == "RECEIPT"
    assert client.left(f"/queue/{name}") == (["1"] if cell == "is of one message" else [])
    assert first.text == "1"


@row("ACK in 1.2 by ``message-id`` alone", openmq="taken", standard="taken", others="ERROR")
def test_strict_ack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    (message,) = client.hold(f"/queue/{name}", "body", ack="client")
    client.send("ACK", {"message-id": message["message-id"], "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row("a wrong ``subscription`` of ACK in 1.1", rabbitmq="is ignored", others="ERROR")
def test_wrong_subscription(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, "1.1")
    (message,) = client.hold(f"/queue/{name}", "body", ack="client")
    client.send(
        "ACK", {"message-id": message["message-id"], "subscription": "wrong", "receipt": "r"}
    )
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row(
    "``durable:true`` of a topic, without client-id",
    rabbitmq="durable, and shared",
    others="ERROR",
)
def test_durable_by_flag(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    durable = {
        "destination": f"/topic/{name}",
        "id": "d",
        "durable": "true",
        "auto-delete": "false",
    }
    client.send("SUBSCRIBE", {**durable, "receipt": "r"})
    if cell == "ERROR":
        assert answer(client).command == "ERROR"
        return
    assert answer(client).command == "RECEIPT"
    other = join(profile)
    client.ask("UNSUBSCRIBE", id="d")
    single = {**durable, "ack": "client-individual", "prefetch-count": "1"}
    for each in (client, other):
        each.ask("SUBSCRIBE", single)
    for body in ("1", "2"):
        client.send("SEND", {"destination": f"/topic/{name}", "persistent": "true"}, body)
    assert {client.message().text, other.message().text} == {"1", "2"}
    for each in (client, other):
        each.disconnect()
    client = join(profile)
    client.ask("SUBSCRIBE", durable)
    assert {each.text for each in client.messages(2)} == {"1", "2"}
    client.ask("UNSUBSCRIBE", id="d")
    client.put(f"/topic/{name}", "kept", persistent="true")
    client.ask("SUBSCRIBE", durable)
    assert client.message().text == "kept"
    client.ask("UNSUBSCRIBE", id="d", durable="true")
    client.put(f"/topic/{name}", "lost", persistent="true")
    client.ask("SUBSCRIBE", durable)
    client.send("SEND", {"destination": f"/topic/{name}"}, "later")
    assert client.message().text == "later"


@row("UNSUBSCRIBE of a durable subscription in use", activemq="ERROR", others="removes it")
def test_durable_in_use(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, client_id=name)
    durable = {"id": "s", "durable-subscriber-name": "d"}
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.send("UNSUBSCRIBE", {**durable, "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row("a header line without a colon", activemq="has no value", others="ERROR")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_no_colon(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    client.write(f"SEND\nodd\ndestination:/queue/{name}\n\nbody\0".encode())
    if cell == "ERROR":
        assert "no colon" in client.expect("ERROR").text
        return
    message = client.message()
    assert (message["odd"], message.text) == ("", "body")


@row("a body of SUBSCRIBE in 1.1 and 1.2", openmq="ERROR", standard="ERROR", others="is ignored")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_bodies(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.put(f"/queue/{name}", "body")
    client.write(f"SUBSCRIBE\nid:s\ndestination:/queue/{name}\n\nsome text\0".encode())
    if cell == "ERROR":
        client.error("must not have a body")
        return
    assert client.message().text == "body"


@row(
    "``content-length:5`` of ACK, and no body",
    openmq="ERROR",
    standard="ERROR",
    activemq="is ignored",
    others="counts",
)
def test_length_of_ack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    (message,) = client.hold(f"/queue/{name}", "body", ack="client")
    client.ack(message, content_length="5", receipt="a")
    if cell == "ERROR":
        client.error("content-length")
        return
    if cell == "counts":
        client.write(b"1234\0")
    assert answer(client)["receipt-id"] == "a"
    assert client.left(f"/queue/{name}") == []


@row("bytes behind those of ``content-length``", artemis="are dropped", others="ERROR")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_rest(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    for body in ("first", "second"):
        sent = f"SEND\ndestination:/queue/{name}\ncontent-length:{len(body)}\n\n{body}"
        client.write(f"{sent} and more\0".encode())
    if cell == "ERROR":
        assert "content-length" in client.expect("ERROR").text
        return
    assert [each.text for each in client.messages(2)] == ["first", "second"]


@row("the escapes ``\\n`` and ``\\c`` in 1.0", activemq="are read", others="stay")
def test_escapes_of_the_first_version(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, "1.0")
    client.write(f"SEND\ndestination:/queue/{name}\nsaid:a\\cb\\nc\n\nbody\0".encode())
    receiver = join("openmq")
    receiver.subscribe(f"/queue/{name}")
    assert receiver.message()["said"] == ("a:b\nc" if cell == "are read" else "a\\cb\\nc")


@row("an undefined escape in 1.1 and 1.2", activemq="stays", others="ERROR")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_undefined_escapes(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    client.write(f"SEND\ndestination:/queue/{name}\nsaid:a\\tb\\cc\n\nbody\0".encode())
    if cell == "ERROR":
        assert "does not define" in client.expect("ERROR").text
        return
    assert client.message()["said"] == "a\\tb:c"


@row("after an unknown command", rabbitmq="goes on", others="ends")
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_unknown_commands(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("WRONG", {"receipt": "r"}, "a body")
    assert client.expect("ERROR").command == "ERROR"
    assert is_closed(client) is (cell == "ends")


@row(
    "after an ERROR over a frame that asks for what cannot be the connection",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_after_an_error(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("ACK", {"id": "1-1", "message-id": "1-1", "subscription": "s", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"
    goes_on = cell == "goes on" or (cell != "ends" and version == "1.1")
    assert is_closed(client) is not goes_on


@row(
    "after COMMIT or ABORT of an unknown transaction",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_unknown_transactions(
    join: Join, command: str, version: str, profile: str, cell: str
) -> None:
    client = join(profile, version)
    client.send(command, transaction="unknown", receipt="r")
    assert client.expect("ERROR")["receipt-id"] == "r"
    goes_on = cell == "goes on" or (cell != "ends" and version == "1.1")
    assert is_closed(client) is not goes_on


@row(
    "after ACK of an unknown message in a transaction",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_unknown_messages(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("BEGIN", transaction="t")
    sent = {"destination": f"/queue/{name}", "transaction": "t"}
    client.send("SEND", sent, "body")
    client.send("ACK", {"id": "9-9", "message-id": "9-9", "subscription": "s", "transaction": "t"})
    client.expect("ERROR")
    left = []
    if cell == "goes on" or (cell != "ends" and version == "1.1"):
        client.ask("COMMIT", transaction="t")
        left = ["body"]
    else:
        assert is_closed(client)
    assert join(profile).left(f"/queue/{name}") == left


@row(
    "after an ERROR over a SEND that the broker refuses",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_refused_sends(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    full = f"profiles.full.{profile}{version.replace('.', '')}"
    client.put(f"/queue/{full}", "1")
    client.send("SEND", {"destination": f"/queue/{full}", "receipt": "r"}, "2")
    assert client.expect("ERROR")["receipt-id"] == "r"
    assert is_closed(client) is (cell == "ends")


def cells_of_the_document() -> dict[str, dict[str, str]]:
    """The rows of the table as the page has them."""
    text = DOCUMENT.read_text()
    table = text[text.index(".. list-table::") :].split("\n\n\n")[0]
    rows = [
        [cell.strip() for cell in re.split(r"\n {5}- ?", "\n     - " + block)[1:]]
        for block in re.split(r"\n {3}\* - ", table)[1:]
    ]
    profiles = [cell.strip("`") for cell in rows[0][1:]]
    return {cells[0]: dict(zip(profiles, cells[1:], strict=True)) for cells in rows[1:] if cells}


def test_the_page_says_what_is_tested() -> None:
    assert cells_of_the_document() == ROWS
