"""What SUBSCRIBE and UNSUBSCRIBE mean: rows of ``docs/profiles.rst``."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.rows import answer, row

#: What SUBSCRIBE to ``a.>`` is to.
BELOW = "is to what is below ``a``"
ITSELF = "is to ``a``, too"


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


@row("SUBSCRIBE to ``a.>``", openmq=BELOW, standard=BELOW, others=ITSELF)
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_rest(join: Join, name: str, kind: str, profile: str, cell: str) -> None:
    client, sender = join(profile), join("openmq")
    if (profile, kind) == ("rabbitmq", "queue"):
        # Only topics have wildcards there.
        return
    wildcard = "#" if profile in ("artemis", "rabbitmq") else ">"
    client.ask("SUBSCRIBE", {"destination": f"/{kind}/{name}.{wildcard}", "id": "s"})
    for each in (name, f"{name}.a", f"{name}.a.b", f"{name}a"):
        sender.put(f"/{kind}/{each}", each)
    covered = [name] * (cell == ITSELF) + [f"{name}.a", f"{name}.a.b"]
    assert [each.text for each in client.messages(len(covered))] == covered
    assert client.sync() == []


@row(
    "SUBSCRIBE to ``/topic/a.#.b``",
    artemis="is to all that match",
    rabbitmq="is to all that match",
    others="is to one name",
)
def test_hash_between(join: Join, name: str, profile: str, cell: str) -> None:
    client, sender = join(profile), join("openmq")
    client.ask("SUBSCRIBE", {"destination": f"/topic/{name}.#.b", "id": "s"})
    for each in (f"{name}.b", f"{name}.x.y.b", f"{name}.b.c", f"{name}.#.b"):
        sender.put(f"/topic/{each}", each.removeprefix(name))
    expected = [".#.b"] if cell == "is to one name" else [".b", ".x.y.b", ".#.b"]
    assert [each.text for each in client.messages(len(expected))] == expected
    assert client.sync() == []


@row("an unknown value of ``ack``", activemq="is auto", artemis="is auto", others="ERROR")
def test_unknown_ack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.send(
        "SUBSCRIBE", {"destination": f"/queue/{name}", "id": "s", "ack": "x", "receipt": "r"}
    )
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row(
    "``durable:true`` and ``auto-delete:false`` of a topic, without client-id",
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


@row("``x-queue-name`` of a topic", rabbitmq="is shared", others="means nothing")
def test_names_of_queues(join: Join, name: str, profile: str, cell: str) -> None:
    one, other = join(profile), join(profile)
    for client in (one, other):
        headers = {"x-queue-name": name, "ack": "client-individual", "prefetch-count": "1"}
        client.subscribe(f"/topic/{name}", **headers)
    for body in "12":
        one.send("SEND", {"destination": f"/topic/{name}"}, body)
    first = [one.message(), other.message()]
    if cell == "is shared":
        assert {each.text for each in first} == {"1", "2"}
        return
    for client, message in zip((one, other), first, strict=True):
        client.ack(message)
        assert (message.text, client.message().text) == ("1", "2")


@row("UNSUBSCRIBE of a durable subscription in use", activemq="ERROR", others="removes it")
def test_durable_in_use(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, client_id=name)
    durable = {"id": "s", "durable-subscriber-name": "d"}
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.send("UNSUBSCRIBE", {**durable, "receipt": "r"})
    assert answer(client).command == ("ERROR" if cell == "ERROR" else "RECEIPT")


@row("``activemq.priority`` of SUBSCRIBE", others="comes before others")
def test_a_consumer_comes_before_others(join: Join, name: str, profile: str, cell: str) -> None:
    low, high, sender = join(profile), join(profile), join(profile)
    low.subscribe(f"/queue/{name}")
    high.subscribe(f"/queue/{name}", **{"activemq.priority": "9"})
    sender.put(f"/queue/{name}", *"123456")
    assert [each.text for each in high.messages(6)] == list("123456")
    assert low.sync() == []
    high.disconnect()
    sender.put(f"/queue/{name}", "7")
    assert low.message().text == "7"
