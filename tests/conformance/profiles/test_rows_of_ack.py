"""ACK, NACK and transactions: rows of ``docs/profiles.rst``."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.rows import answer, is_closed, row


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


@row("``ack`` of MESSAGE in 1.0 and 1.1", artemis="none", rabbitmq="none", others="is there")
def test_ack_of_message(join: Join, name: str, profile: str, cell: str) -> None:
    for version in ("1.0", "1.1"):
        client = join(profile, version)
        client.counted = False
        (message,) = client.hold(f"/queue/{name}", version, ack="client")
        assert ("ack" in message) is (cell == "is there"), message.headers
        client.ack(message)
        client.disconnect()


@row(
    "NACK of a message that is not persistent",
    activemq="is dropped",
    artemis="dead",
    rabbitmq="comes again at once",
    others="as the redelivery policy says",
)
def test_nack_of_what_is_not_persistent(join: Join, name: str, profile: str, cell: str) -> None:
    dead = join("openmq")
    dead.subscribe(
        "/queue/mq.sys.dmq", id="d", selector=f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'"
    )
    client = join(profile)
    for body, persistent in (("unstored", "false"), ("stored", "true")):
        client.put(f"/queue/{name}", body, persistent=persistent)
    client.subscribe(f"/queue/{name}", ack="client-individual")
    first, second = client.messages(2)
    client.nack(first)
    if cell in ("comes again at once", "as the redelivery policy says"):
        again = client.message()
        assert (again.text, again["redelivered"]) == ("unstored", "true")
        return
    client.nack(second)
    died = ["stored"] if cell == "is dropped" else ["unstored", "stored"]
    assert [each.text for each in dead.messages(len(died))] == died
    assert client.left(f"/queue/{name}") == []


@row(
    "NACK in a transaction, and ABORT",
    openmq="ERROR",
    artemis="comes again at once",
    others="stays unacknowledged",
)
def test_nack_in_a_transaction_that_is_aborted(
    join: Join, name: str, profile: str, cell: str
) -> None:
    client = join(profile)
    kept, message = client.hold(f"/queue/{name}", "kept", "body", ack="client-individual")
    client.send("BEGIN", transaction="t")
    client.nack(message, transaction="t", receipt="a")
    if cell == "ERROR":
        client.error("ack.transaction")
        return
    client.ack(kept, transaction="t")
    assert answer(client).command == "RECEIPT"
    came = client.ask("ABORT", transaction="t") + client.sync()
    if cell == "comes again at once":
        assert [each.text for each in came] == ["body"]
        assert came[0]["message-id"] == message["message-id"]
        assert came[0]["redelivered"] == "true"
    else:
        assert came == []
    client.ack(message, receipt="b")
    assert answer(client)["receipt-id"] == "b"
    assert client.left(f"/queue/{name}") == ["kept"]


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
    client.put(f"/queue/{name}", name, persistent="true")
    client.subscribe(f"/queue/{name}", ack="client-individual")
    message = client.message()
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


@row(
    "ACK with ``ack:client``",
    rabbitmq="is of the whole connection",
    others="is of its subscription",
)
def test_ack_of_many(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.hold(f"/queue/{name}.a", "1", ack="client", id="a")
    (second,) = client.hold(f"/queue/{name}.b", "2", ack="client", id="b")
    client.ack(second, receipt="r")
    assert answer(client)["receipt-id"] == "r"
    left = [] if cell == "is of the whole connection" else ["1"]
    assert client.left(f"/queue/{name}.a") == left
    assert join(profile).left(f"/queue/{name}.b") == []


@row(
    "NACK with ``ack:client``",
    activemq="is of one message",
    rabbitmq="is of all before of the connection",
    others="is of all before",
)
def test_nack_of_many(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    client.hold(f"/queue/{name}.other", "0", ack="client", id="other")
    _, second = client.hold(f"/queue/{name}", "1", "2", ack="client")
    client.nack(second, requeue="false", receipt="n")
    assert answer(client).command == "RECEIPT"
    assert client.left(f"/queue/{name}") == (["1"] if cell == "is of one message" else [])
    other = [] if cell == "is of all before of the connection" else ["0"]
    assert join(profile).left(f"/queue/{name}.other") == other


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
