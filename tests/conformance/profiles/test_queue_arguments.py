"""What SUBSCRIBE says of RabbitMQ's queues, as the page has it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.test_table import DOCUMENT

Check = Callable[..., None]

#: The lines that have a test, as the page has them.
LINES: set[str] = set()

PLACES = ("/topic/{}", "/exchange/amq.topic/{}", "/exchange/amq.direct/{}", "/exchange/amq.fanout")
KEPT = {"durable": "true", "auto-delete": "false"}


def refused(client: Client, destination: str, headers: dict[str, str]) -> str:
    """Have a SUBSCRIBE refused, and return what the ERROR says.

    The connection goes on.
    """
    client.send("SUBSCRIBE", {"destination": destination, "id": "s", "receipt": "r"}, **headers)
    error = client.expect("ERROR")
    assert error["receipt-id"] == "r"
    client.ask("SEND", {"destination": destination}, "unheard")
    return error.text


def line(title: str) -> Callable[[Check], Check]:
    """A test for a line of the table."""
    LINES.add(title)
    return lambda check: check


@line("``x-queue-name``")
@pytest.mark.parametrize("place", PLACES)
def test_connections_share_what_has_the_name_of_a_queue(join: Join, name: str, place: str) -> None:
    destination = place.format(name)
    one, other, alone = join("rabbitmq"), join("rabbitmq"), join("rabbitmq")
    shared = {"x-queue-name": f"{name}.q", "ack": "client-individual", "prefetch-count": "2"}
    for client in (one, other):
        client.subscribe(destination, **shared)
    alone.subscribe(destination)
    for body in "1234":
        one.send("SEND", {"destination": destination}, body)
    taken = [client.messages(2) for client in (one, other)]
    assert sorted(each.text for messages in taken for each in messages) == list("1234")
    assert [each.text for each in alone.messages(4)] == list("1234")
    # What one has not acknowledged comes to the other, and the last takes the rest with it.
    one.ask("ACK", {"id": taken[0][0]["ack"]})
    one.close()
    for each in taken[1]:
        other.ack(each)
    again = other.message()
    assert (again.text, again["redelivered"]) == (taken[0][1].text, "true")
    other.ask("UNSUBSCRIBE", id="s")
    other.ask("SEND", {"destination": destination}, "lost")
    other.subscribe(destination, **shared)
    other.send("SEND", {"destination": destination}, "later")
    assert other.message().text == "later"


@line("``x-queue-name`` of another key")
def test_a_name_has_all_keys_that_it_was_given(join: Join, name: str) -> None:
    one, other, sender = join("rabbitmq"), join("rabbitmq"), join("rabbitmq")
    shared = {"x-queue-name": name}
    direct = f"/exchange/amq.direct/{name}"
    one.subscribe(f"/topic/{name}.a", **shared)
    other.subscribe(direct, **shared)
    # What two of them cover comes once, to either client.
    one.subscribe(f"/topic/{name}.#", id="more", **shared)
    sent = [f"/topic/{name}.a", direct, f"/topic/{name}", f"/topic/{name}.b.c"]
    for destination in (*sent, f"/topic/{name}x"):
        sender.ask("SEND", {"destination": destination}, destination)
    came: list[str] = []
    for client in (one, other):
        client.send("DISCONNECT", receipt="over")
        came += [frame.text for frame in client.rest() if frame.command == "MESSAGE"]
    assert sorted(came) == sorted(sent)


def test_a_key_stays_when_the_one_that_brought_it_leaves(join: Join, name: str) -> None:
    client = join("rabbitmq")
    keys = [f"/topic/{name}.a", f"/topic/{name}.b"]
    for key in keys:
        client.subscribe(key, id=key, **{"x-queue-name": name})
    client.ask("UNSUBSCRIBE", id=keys[1])
    client.send("SEND", {"destination": keys[1]}, "b")
    message = client.message()
    assert (message.text, message["subscription"]) == ("b", keys[0])


def test_a_kept_one_takes_another_key_and_loses_nothing(join: Join, name: str) -> None:
    kept = {**KEPT, "x-queue-name": name, "ack": "client-individual"}
    keys = [f"/topic/{name}", f"/topic/{name}.other", f"/exchange/amq.direct/{name}"]
    sender = join("rabbitmq")
    for key in keys:
        client = join("rabbitmq")
        client.subscribe(key, **kept)
        client.disconnect()
        sender.ask("SEND", {"destination": key, "persistent": "true"}, key)
    # One that has no new key consumes what is there.
    client = join("rabbitmq")
    client.subscribe(keys[1], **kept)
    came = client.messages(3)
    assert [message.text for message in came] == keys
    assert [message["destination"] for message in came] == keys


def test_a_name_with_another_selector_is_refused(join: Join, name: str) -> None:
    client = join("rabbitmq")
    named = {"x-queue-name": name}
    client.subscribe(f"/topic/{name}.a", **named)
    client.subscribe(f"/topic/{name}.b", id="b", **named)
    selecting = {**named, "selector": "n = 1"}
    text = refused(join("rabbitmq"), f"/topic/{name}", selecting)
    assert f"'{name}' is shared, and is to /topic/{name}.a, {name}.b without a selector" in text


@line("``x-queue-name:amq.…``")
def test_a_name_of_rabbitmqs_own_is_refused(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.send("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "s", "x-queue-name": "amq.x"})
    error = client.expect("ERROR")
    reserved = "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"
    assert (error["message"], error.text) == ("access_refused", reserved)
    assert client.rest() == []


@line("``x-queue-name`` and ``auto-delete:false``")
@pytest.mark.parametrize("durable", [{}, {"durable": "true"}])
def test_auto_delete_false_keeps_it(join: Join, name: str, durable: dict[str, str]) -> None:
    client = join("rabbitmq")
    kept = {**durable, "auto-delete": "false", "x-queue-name": name}
    topic = {"destination": f"/topic/{name}"}
    client.ask("SUBSCRIBE", {**topic, "id": "s"}, **kept)
    client.disconnect()
    client = join("rabbitmq")
    client.ask("SEND", {**topic, "persistent": "true"}, "kept")
    client.ask("SUBSCRIBE", {**topic, "id": "another"}, **kept)
    assert client.message().text == "kept"
    assert "expected a durable one" in refused(
        join("rabbitmq"), f"/topic/{name}", {"x-queue-name": name}
    )
    # The flag alone does not remove it.
    client.ask("UNSUBSCRIBE", id="another", durable="true")
    client.ask("SEND", {**topic, "persistent": "true"}, "kept, too")
    client.ask("SUBSCRIBE", {**topic, "id": "s"}, **kept)
    assert client.message().text == "kept, too"
    client.ask("UNSUBSCRIBE", {"id": "s", "durable": "true", "x-queue-name": name})
    client.ask("SEND", {**topic, "persistent": "true"}, "lost")
    client.ask("SUBSCRIBE", {**topic, "id": "s"}, **kept)
    client.send("SEND", topic, "later")
    assert client.message().text == "later"


@line("``durable:true`` without ``auto-delete:false``")
def test_a_durable_one_that_is_not_kept_ends_with_its_last_consumer(join: Join, name: str) -> None:
    one, other = join("rabbitmq"), join("rabbitmq")
    single = {"durable": "true", "ack": "client-individual", "prefetch-count": "1"}
    for client in (one, other):
        client.subscribe(f"/topic/{name}", **single)
    for body in "12":
        one.send("SEND", {"destination": f"/topic/{name}", "persistent": "true"}, body)
    assert {one.message().text, other.message().text} == {"1", "2"}
    for client in (one, other):
        client.disconnect()
    client = join("rabbitmq")
    client.ask("SEND", {"destination": f"/topic/{name}", "persistent": "true"}, "lost")
    client.subscribe(f"/topic/{name}", **single)
    client.send("SEND", {"destination": f"/topic/{name}"}, "later")
    assert client.message().text == "later"


@line("``auto-delete:false`` alone, of a topic")
def test_auto_delete_false_without_a_name(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.subscribe(f"/topic/{name}", **{"auto-delete": "false", "x-expires": "60000"})
    client.send("SEND", {"destination": f"/topic/{name}"}, "body")
    assert client.message().text == "body"


TAKEN = {
    "``durable:false``, ``auto-delete:true`` or ``exclusive:true``, of a topic": {
        "durable": "false",
        "auto-delete": "true",
        "exclusive": "true",
    },
    "``x-expires``, of a topic": {"x-expires": "60000"},
    "``x-max-priority``": {"x-max-priority": "9"},
}


@pytest.mark.parametrize("title", TAKEN)
def test_what_a_subscription_has_anyway_is_taken(join: Join, name: str, title: str) -> None:
    client = join("rabbitmq")
    client.subscribe(f"/topic/{name}", **TAKEN[title])
    client.send("SEND", {"destination": f"/topic/{name}"}, "body")
    assert client.message().text == "body"


QUEUES = {
    "``durable:true``, ``auto-delete:false`` or ``exclusive:false``, of a queue": {
        **KEPT,
        "exclusive": "false",
    },
    "``durable:false``, ``auto-delete:false`` and ``exclusive:false``, of a queue": {
        "durable": "false",
        "auto-delete": "false",
        "exclusive": "false",
    },
    "``x-queue-type``": {"x-queue-type": "quorum"},
    "``x-queue-name``, of a queue": {"x-queue-name": "another"},
}


@pytest.mark.parametrize("title", QUEUES)
def test_what_a_queue_has_anyway_is_taken(join: Join, name: str, title: str) -> None:
    client = join("rabbitmq")
    client.subscribe(f"/queue/{name}", **QUEUES[title])
    client.send("SEND", {"destination": f"/queue/{name}"}, "body")
    assert client.message().text == "body"


NEVER = {
    "``x-message-ttl``": "expiration",
    "``x-max-length``": "maxNumMsgs",
    "``x-max-length-bytes``": "maxTotalMsgBytes",
    "``x-dead-letter-exchange``": "mq.sys.dmq",
    "``x-dead-letter-routing-key``": "mq.sys.dmq",
    "``x-overflow``": "limitBehavior",
    "``x-max-age``": "streams",
    "``x-stream-max-segment-size-bytes``": "streams",
    "``x-stream-filter-size-bytes``": "streams",
    "``x-queue-type:stream``": "quorum",
}
#: What RabbitMQ reads where it declares no queue, too.
OF_CONSUMERS = {
    "``x-stream-offset``": "streams",
    "``x-stream-filter``": "SUBSCRIBE with a selector",
    "``x-stream-match-unfiltered``": "SUBSCRIBE with a selector",
}


@pytest.mark.parametrize("place", ["/topic/{}", "/queue/{}"])
@pytest.mark.parametrize("title", NEVER)
def test_what_no_subscription_has_is_refused_by_its_name(
    join: Join, name: str, title: str, place: str
) -> None:
    header, _, value = title.strip("`").partition(":")
    text = refused(join("rabbitmq"), place.format(name), {header: value or "1000"})
    assert text.startswith(f"'{header}' is not allowed on 'SUBSCRIBE'")
    assert NEVER[title] in text


@pytest.mark.parametrize("place", ["/topic/{}", "/queue/{}", "/amq/queue/{}"])
@pytest.mark.parametrize("title", OF_CONSUMERS)
def test_what_no_consumer_has_is_refused_by_its_name(
    join: Join, name: str, title: str, place: str
) -> None:
    header = title.strip("`")
    text = refused(join("rabbitmq"), place.format(name), {header: "first"})
    assert text.startswith(f"'{header}' is not allowed on 'SUBSCRIBE'")
    assert OF_CONSUMERS[title] in text


@line("``x-expires``, with a name and ``auto-delete:false``")
def test_an_expiry_of_what_is_kept_is_refused(join: Join, name: str) -> None:
    kept = {**KEPT, "x-expires": "1000"}
    assert "'x-expires'" in refused(join("rabbitmq"), f"/topic/{name}", kept)


@line("``exclusive:true``, with a name")
@pytest.mark.parametrize("named", [{"durable": "true"}, {"x-queue-name": "q"}])
def test_what_is_shared_is_not_exclusive(join: Join, name: str, named: dict[str, str]) -> None:
    exclusive = {**named, "exclusive": "true"}
    assert "'exclusive'" in refused(join("rabbitmq"), f"/topic/{name}", exclusive)


OF_QUEUES = {
    "``auto-delete:true``, of a queue": ("auto-delete", {"auto-delete": "true"}),
    "``exclusive:true``, of a queue": ("exclusive", {"exclusive": "true"}),
    "``durable:false`` alone, of a queue": ("durable", {"durable": "false"}),
    "``x-expires``, of a queue": ("x-expires", {"x-expires": "1000"}),
}


@pytest.mark.parametrize("title", OF_QUEUES)
def test_what_no_queue_has_is_refused_by_its_name(join: Join, name: str, title: str) -> None:
    header, headers = OF_QUEUES[title]
    text = refused(join("rabbitmq"), f"/queue/{name}", headers)
    assert text.startswith(f"'{header}' is not allowed on 'SUBSCRIBE'")


@line("anything else, of ``/amq/queue/NAME``")
def test_queues_that_are_not_declared_have_no_arguments(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.subscribe(f"/amq/queue/{name}", **{"x-message-ttl": "1", "auto-delete": "true"})
    client.send("SEND", {"destination": f"/amq/queue/{name}"}, "body")
    assert client.message().text == "body"


def test_a_name_and_another_name_are_refused(join: Join, name: str) -> None:
    both = {"x-queue-name": name, "durable-subscriber-name": name}
    client = join("rabbitmq", client_id=name)
    assert "'x-queue-name'" in refused(client, f"/topic/{name}", both)


OF_SENDS = {
    "x-max-length": "maxNumMsgs",
    "x-max-length-bytes": "maxTotalMsgBytes",
    "x-overflow": "limitBehavior",
    "x-dead-letter-exchange": "mq.sys.dmq",
    "x-dead-letter-routing-key": "mq.sys.dmq",
    "x-expires": "reaptime",
    "x-max-age": "streams",
    "x-stream-max-segment-size-bytes": "streams",
    "x-stream-filter-size-bytes": "streams",
    "x-queue-type": "neither classic nor quorum",
}


@pytest.mark.parametrize("header", OF_SENDS)
def test_a_send_that_asks_for_another_queue_is_refused(join: Join, name: str, header: str) -> None:
    client = join("rabbitmq")
    asked = {header: "1000", "receipt": "r"}
    client.send("SEND", {"destination": f"/queue/{name}", **asked}, "body")
    error = client.expect("ERROR")
    assert error["receipt-id"] == "r"
    assert error.text.startswith(f"'{header}' is not allowed on 'SEND'")
    assert OF_SENDS[header] in error.text
    # RabbitMQ declares no queue for these.
    for place in ("/topic/{}", "/exchange/amq.direct/{}", "/amq/queue/{}"):
        client.put(place.format(name), "body", **{header: "1000"})
    # Nor do others have queues that are declared.
    join("activemq").put(f"/queue/{name}", "body", **{header: "1000"})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_send_may_say_what_kind_its_queue_is(join: Join, name: str, kind: str) -> None:
    client = join("rabbitmq")
    client.put(f"/queue/{name}", "body", **{"x-queue-type": kind, "x-max-priority": "5"})
    assert client.left(f"/queue/{name}") == ["body"]


@pytest.mark.parametrize(
    ("headers", "shortest"),
    [
        ({"x-message-ttl": "60000"}, 60_000),
        ({"x-message-ttl": "60000", "expiration": "30000"}, 30_000),
        ({"x-message-ttl": "60000", "expiration": "90000"}, 60_000),
    ],
)
def test_messages_live_as_long_as_their_queue_keeps_them(
    join: Join, name: str, headers: dict[str, str], shortest: int
) -> None:
    sender, reader = join("rabbitmq"), join("openmq")
    for at, body in enumerate(("first", "second")):
        before = time.time() * 1000
        sender.put(f"/queue/{name}", body, **headers, number=str(at))
        after = time.time() * 1000
        reader.subscribe(f"/queue/{name}", id=body)
        ends = int(reader.message()["expires"]) - shortest
        assert before - 1 <= ends <= after + 1
        reader.ask("UNSUBSCRIBE", id=body)


def test_a_queue_that_keeps_nothing_has_nothing_later(join: Join, name: str) -> None:
    sender = join("rabbitmq")
    sender.put(f"/queue/{name}", "gone", **{"x-message-ttl": "0"})
    sender.put(f"/queue/{name}", "kept")
    sender.send("SEND", {"destination": f"/queue/{name}", "x-message-ttl": "soon"}, "body")
    assert "x-message-ttl" in sender.expect("ERROR").text
    assert sender.left(f"/queue/{name}") == ["kept"]


def test_other_profiles_do_not_read_them(join: Join, name: str) -> None:
    client = join("activemq")
    client.subscribe(f"/topic/{name}", **{"x-queue-name": name, "x-message-ttl": "1"})
    client.send("SEND", {"destination": f"/topic/{name}"}, "body")
    assert client.message().text == "body"


def test_the_page_has_these_lines() -> None:
    lines = LINES.union(TAKEN, QUEUES, NEVER, OF_CONSUMERS, OF_QUEUES)
    text = DOCUMENT.read_text()
    table = text[text.index("   * - SUBSCRIBE has") :].split("\n\n")[0]
    titles = re.findall(r"\n {3}\* - (.*)", table)
    assert sorted(titles) == sorted(lines)
