"""``imqcmd pause dst`` and ``resume dst`` as clients see them.

The gateway is a process, which is also killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.admin.cli.imqcmd import run
from tests.conformance.client import Client, encode
from tests.gateway.admin.test_imqcmd_live import imqcmd
from tests.gateway_process import GatewayProcess

Connect = Callable[[], Client]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def orders(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return f"orders.{request.node.name}"


@pytest.fixture
def other(orders: str) -> str:
    return f"/queue/other.{orders}"


def pause(gateway: GatewayProcess, queue: str, *how: str) -> str:
    """Pause a queue. :returns: its state."""
    return str(imqcmd(gateway, "pause", "dst", "-t", "q", "-n", queue, *how)["state"])


def resume(gateway: GatewayProcess, queue: str) -> None:
    imqcmd(gateway, "resume", "dst", "-t", "q", "-n", queue)


def counts(gateway: GatewayProcess) -> dict[str, int]:
    return {
        each["name"]: each["messages"] for each in imqcmd(gateway, "list", "dst")["destinations"]
    }


@pytest.fixture
def connect(gateway: GatewayProcess) -> Iterator[Connect]:
    clients: list[Client] = []

    def connected() -> Client:
        clients.append(Client(gateway.port))
        clients[-1].connect()
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


def states(gateway: GatewayProcess) -> dict[str, str]:
    return {each["name"]: each["state"] for each in imqcmd(gateway, "list", "dst")["destinations"]}


def receipt(client: Client) -> str:
    return client.expect("RECEIPT")["receipt-id"]


def test_nothing_is_delivered_while_it_is_paused_for_consumers(
    gateway: GatewayProcess, connect: Connect, orders: str, other: str
) -> None:
    client = connect()
    client.put(other, "before")
    client.put(f"/queue/{orders}", "0")
    assert pause(gateway, orders, "-pst", "consumers") == "CONSUMERS_PAUSED"
    client.subscribe(f"/queue/{orders}", "1")
    client.put(f"/queue/{orders}", "1", "2")
    # Were anything delivered, it would come before this one.
    client.send("SUBSCRIBE", id="2", destination=other)
    assert client.message().text == "before"
    gateway.restart(crash=True)
    assert states(gateway)[orders] == "CONSUMERS_PAUSED"
    client = connect()
    client.subscribe(f"/queue/{orders}", "1")
    client.put(other, "after")
    client.send("SUBSCRIBE", id="2", destination=other)
    while (found := client.message().text) != "after":
        assert found == "before", "its acknowledgement may have been lost with the process"
    assert counts(gateway)[orders] == 3
    resume(gateway, orders)
    assert [each.text for each in client.messages(3)] == ["0", "1", "2"]


def test_senders_are_held_while_it_is_paused_for_producers(
    gateway: GatewayProcess, connect: Connect, orders: str, other: str
) -> None:
    client, queue = connect(), f"/queue/{orders}"
    taken = client.hold(queue, "taken", ack="client")[0]
    assert pause(gateway, orders, "-pst", "PRODUCERS") == "PRODUCERS_PAUSED"
    # What comes before in the same octets is taken; what comes behind must not overtake.
    client.send("SEND", {"destination": other, "receipt": "other"}, "1")
    client.send("SEND", {"destination": queue, "receipt": "held"}, "2")
    assert receipt(client) == "other"
    # An acknowledgement of the same connection is read.
    client.send("ACK", id=taken["ack"], receipt="ack")
    assert receipt(client) == "ack"
    client.send("BEGIN", transaction="t", receipt="begin")
    client.send("SEND", {"destination": other, "transaction": "t", "receipt": "in t"}, "3")
    client.send("SEND", {"destination": queue, "transaction": "t"}, "4")
    client.send("COMMIT", transaction="t", receipt="commit")
    client.send("SEND", {"destination": f"{other},{queue}", "receipt": "both"}, "5")
    found = counts(gateway)
    assert (found[orders], found[other.removeprefix("/queue/")]) == (0, 1)
    resume(gateway, orders)
    frames = [client.frame() for _ in range(8)]
    receipts = [each["receipt-id"] for each in frames if each.command == "RECEIPT"]
    assert receipts == ["held", "begin", "in t", "commit", "both"]
    assert [each.text for each in frames if each.command == "MESSAGE"] == ["2", "4", "5"]


def test_a_run_that_is_held_in_a_transaction_is_committed_whole(
    gateway: GatewayProcess, connect: Connect, orders: str, other: str
) -> None:
    client, queue = connect(), f"/queue/{orders}"
    client.put(queue, "0")
    pause(gateway, orders)
    client.ask("BEGIN", transaction="t")
    client.write(
        b"".join(
            encode(command, headers, body, "1.2")
            for command, headers, body in (
                ("SEND", {"destination": other, "transaction": "t"}, b"1"),
                ("SEND", {"destination": queue, "transaction": "t"}, b"2"),
                ("SEND", {"destination": other}, b"behind"),
                ("COMMIT", {"transaction": "t", "receipt": "commit"}, b""),
            )
        )
    )
    assert states(gateway)[orders] == "PAUSED"
    assert counts(gateway)[orders] == 1
    resume(gateway, orders)
    assert receipt(client) == "commit"
    found = counts(gateway)
    assert (found[orders], found[other.removeprefix("/queue/")]) == (2, 2)


def test_what_is_held_goes_with_a_client_that_leaves(
    gateway: GatewayProcess, connect: Connect, orders: str
) -> None:
    client, queue = connect(), f"/queue/{orders}"
    client.put(queue, "0")
    pause(gateway, orders, "-pst", "PRODUCERS")
    client.send("SEND", {"destination": queue, "receipt": "held"}, "1")
    client.close()
    resume(gateway, orders)
    another = connect()
    another.put(queue, "2")
    another.subscribe(queue)
    assert [each.text for each in another.messages(2)] == ["0", "2"]


def test_all_are_paused(gateway: GatewayProcess, connect: Connect, orders: str) -> None:
    client = connect()
    client.put(f"/queue/{orders}", "1")
    client.subscribe("/topic/quotes")
    assert imqcmd(gateway, "pause", "dst")["destinations"] >= 2
    found = states(gateway)
    assert (found[orders], found["quotes"], found["mq.sys.dmq"]) == ("PAUSED", "PAUSED", "RUNNING")
    assert imqcmd(gateway, "resume", "dst", "-t", "t")["destinations"] == 1
    found = states(gateway)
    assert (found[orders], found["quotes"]) == ("PAUSED", "RUNNING")
    imqcmd(gateway, "resume", "dst")
    refused = imqcmd(gateway, "pause", "dst", "-t", "q", "-n", "mq.sys.dmq", code=1)["error"]
    assert "cannot be paused" in refused["text"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pause", "dst", "-n", "orders"), "-t is missing"),
        (("pause", "dst", "-pst", "BOTH"), "-pst BOTH: expected ALL, CONSUMERS, PRODUCERS"),
        (("resume", "dst", "-pst", "ALL"), "-pst is not for resume dst"),
    ],
)
def test_a_wrong_command_is_refused(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "-f", "-u", "admin"]) == 1
    assert sentence in capsys.readouterr().err
