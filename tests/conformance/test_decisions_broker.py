"""What was decided about the broker, access and the store.

As a STOMP client and an operator see it.

Starts that are refused, and what survives a crash, are proven elsewhere in ``tests/``.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.client import PATIENCE, Client, Frame
from tests.conformance.conftest import Connect
from tests.gateway_process import ROOT, GatewayProcess

DMQ = "/queue/mq.sys.dmq"


def bodies(messages: list[Frame]) -> list[str]:
    return [message.text for message in messages]


def _log(gateway: GatewayProcess) -> str:
    return "".join(path.read_text() for path in sorted((gateway.directory / "log").iterdir()))


def _limits(name: str, **properties: str) -> dict[str, str]:
    return {f"imq.destination.{name}.{key}": value for key, value in properties.items()}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = {
        "imq.message.max_size": "1m",
        **_limits("queue.newest", maxNumMsgs="3", limitBehavior="REJECT_NEWEST"),
        **_limits("queue.octets", maxTotalMsgBytes="10k", limitBehavior="REJECT_NEWEST"),
        **_limits("queue.oldest", maxNumMsgs="3", limitBehavior="REMOVE_OLDEST"),
        **_limits("queue.low", maxNumMsgs="3", limitBehavior="REMOVE_LOW_PRIORITY"),
        **_limits("queue.flow", maxNumMsgs="3", limitBehavior="FLOW_CONTROL"),
        **_limits("queue.small", maxBytesPerMsg="1k"),
        **_limits("queue.lonely", maxNumActiveConsumers="1"),
        **_limits("queue.hopeless", useDMQ="false"),
        **_limits("queue.mq.sys.dmq", maxNumMsgs="20"),
    }
    with GatewayProcess(tmp_path_factory.mktemp("limited"), settings=settings) as gateway:
        yield gateway


@pytest.fixture
def connect_limited(connect: Connect, limited: GatewayProcess) -> Connect:
    def connected(version: str | None = "1.2", **headers: str) -> Client:
        return connect(version, to=limited, **headers)

    return connected


# When an auto delivery counts as acknowledged.


def test_auto_what_never_reached_the_kernel_is_not_acknowledged(
    connect: Connect, queue: str
) -> None:
    """A client that stops reading loses no more than what the kernel held for it."""
    body = "x" * 256 * 1024
    client, deaf = connect(), connect()
    client.put(queue, *[body] * 100)
    deaf.send("SUBSCRIBE", destination=queue, id="s")
    assert len(deaf.message().body) == len(body)
    deaf.close()
    other = connect()
    other.put(queue, "marker")
    other.subscribe(queue)
    left = 0
    while (message := other.message()).text != "marker":
        assert len(message.body) == len(body)
        left += 1
    assert 0 < left < 100


# Limits.


def test_limits_of_auto_created_destinations_let_large_messages_through(
    connect: Connect, queue: str
) -> None:
    body = "x" * 8 * 1024 * 1024
    client = connect()
    client.put(queue, body)
    client.subscribe(queue)
    assert client.message().text == body


def test_limits_max_size_is_named_in_the_error(connect_limited: Connect, queue: str) -> None:
    client = connect_limited()
    client.put(queue, "x" * 900 * 1024)
    client.send("SEND", {"destination": queue}, "x" * 1200 * 1024, receipt="r")
    client.error("imq.message.max_size", receipt_id="r")


def test_limits_max_bytes_per_msg_is_named_in_the_error(connect_limited: Connect) -> None:
    client = connect_limited()
    client.put("/queue/small", "x" * 900)
    client.send("SEND", {"destination": "/queue/small"}, "x" * 1100)
    client.error("maxBytesPerMsg")


def test_limits_reject_newest_refuses_what_is_too_many_and_keeps_the_rest(
    connect_limited: Connect,
) -> None:
    client = connect_limited()
    client.put("/queue/newest", "1", "2", "3")
    client.send("SEND", {"destination": "/queue/newest"}, "4", receipt="r")
    client.error("maxNumMsgs", receipt_id="r")
    client = connect_limited()
    client.subscribe("/queue/newest")
    assert bodies(client.messages(3)) == ["1", "2", "3"]
    client.send("SEND", {"destination": "/queue/newest"}, "5")
    assert client.message().text == "5"


def test_limits_reject_newest_by_octets(connect_limited: Connect) -> None:
    client = connect_limited()
    client.put("/queue/octets", "x" * 6 * 1024)
    client.send("SEND", {"destination": "/queue/octets"}, "x" * 6 * 1024)
    client.error("maxTotalMsgBytes")


def test_limits_reject_newest_fails_a_transaction_as_a_whole(
    connect_limited: Connect, queue: str
) -> None:
    client = connect_limited()
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": queue, "transaction": "t"}, "never")
    for body in ("1", "2", "3", "4"):
        client.send("SEND", {"destination": "/queue/newest", "transaction": "t"}, body)
    client.send("COMMIT", transaction="t", receipt="r")
    client.error("maxNumMsgs")
    client = connect_limited()
    client.put(queue, "marker")
    client.put("/queue/newest", "marker")
    client.subscribe(queue, "q")
    assert client.message().text == "marker"
    client.subscribe("/queue/newest", "n")
    assert client.message().text == "marker"


def test_limits_remove_oldest_gives_up_the_oldest(connect_limited: Connect) -> None:
    client = connect_limited()
    client.put("/queue/oldest", "1", "2", "3", "4", "5")
    client.subscribe("/queue/oldest")
    assert bodies(client.messages(3)) == ["3", "4", "5"]
    client.subscribe(DMQ, "dead", selector="JMS_SUN_DMQ_DESTINATION = 'queue:oldest'")
    dead = client.messages(2)
    assert bodies(dead) == ["1", "2"]
    assert {message["JMS_SUN_DMQ_UNDELIVERED_REASON"] for message in dead} == {"OLDEST"}


def test_limits_remove_low_priority_gives_up_the_lowest(connect_limited: Connect) -> None:
    client = connect_limited()
    for body, priority in (("1", "9"), ("2", "1"), ("3", "5"), ("4", "7")):
        client.put("/queue/low", body, priority=priority)
    client.subscribe("/queue/low")
    assert bodies(client.messages(3)) == ["1", "4", "3"]
    client.subscribe(DMQ, "dead", selector="JMS_SUN_DMQ_DESTINATION = 'queue:low'")
    dead = client.message()
    assert (dead.text, dead["JMS_SUN_DMQ_UNDELIVERED_REASON"]) == ("2", "LOW_PRIORITY")


def test_limits_consumers_of_a_queue(connect_limited: Connect) -> None:
    first, second = connect_limited(), connect_limited()
    first.subscribe("/queue/lonely")
    second.send("SUBSCRIBE", destination="/queue/lonely", id="s", receipt="r")
    second.error("maxNumActiveConsumers")
    first.disconnect()
    connect_limited().subscribe("/queue/lonely")


def test_use_dmq_false_keeps_nothing_unless_the_message_asks_for_it(
    connect_limited: Connect,
) -> None:
    client = connect_limited()
    client.put("/queue/hopeless", "gone")
    client.put("/queue/hopeless", "kept", JMS_SUN_PRESERVE_UNDELIVERED="true")
    client.subscribe("/queue/hopeless", ack="client-individual")
    for message in client.messages(2):
        client.nack(message, requeue="false")
    client.subscribe(DMQ, "dead", selector="JMS_SUN_DMQ_DESTINATION = 'queue:hopeless'")
    assert client.message().text == "kept"
    assert client.sync() == []


def test_the_dead_message_queue_drops_its_oldest_and_the_log_says_so(
    connect_limited: Connect, limited: GatewayProcess, queue: str
) -> None:
    client = connect_limited()
    client.put(queue, *map(str, range(30)))
    client.subscribe(queue, ack="client-individual")
    for message in client.messages(30):
        client.nack(message, requeue="false")
    assert client.sync() == []
    client.subscribe(DMQ, "dead", browser="true")
    kept = []
    while "browser" not in (message := client.message()):
        kept.append(message)
    assert bodies(kept) == [*map(str, range(10, 30))]
    assert re.search(
        r"WARNING.*mq\.sys\.dmq is at its limit and begins to give up messages \(OLDEST\)",
        _log(limited),
    )


# FLOW_CONTROL.


def test_flow_control_withholds_receipts_and_still_reads_acks(
    connect_limited: Connect, queue: str
) -> None:
    client, consumer = connect_limited(), connect_limited()
    client.put(queue, "a", "b")
    client.subscribe(queue, ack="client", **{"prefetch-count": "1"})
    held = client.message()
    for number in range(1, 7):
        client.send("SEND", {"destination": "/queue/flow"}, str(number), receipt=str(number))
    receipts = []
    client.ack(held)  # behind SENDs that wait, on the same connection
    while (frame := client.frame()).command == "RECEIPT":
        receipts.append(frame["receipt-id"])
    assert frame.text == "b"
    assert receipts in (["1"], ["1", "2"], []), (
        "those that filled the destination wait until there is room"
    )
    consumer.subscribe("/queue/flow")
    assert bodies(consumer.messages(6)) == ["1", "2", "3", "4", "5", "6"]
    while len(receipts) < 6:
        receipts.append(client.expect("RECEIPT")["receipt-id"])
    assert receipts == ["1", "2", "3", "4", "5", "6"]


# A durable subscription asked for with another topic, selector or no-local.


@pytest.mark.parametrize("change", ["topic", "selector", "no-local"])
def test_a_durable_subscription_that_is_redefined_loses_its_backlog_to_the_dead_message_queue(
    connect: Connect, topic: str, change: str
) -> None:
    durable = {"durable-subscriber-name": "d"}
    client, publisher = connect(client_id=topic), connect()
    client.subscribe(topic, **durable)
    client.disconnect()
    publisher.put(topic, "backlog", which=topic)
    client = connect(client_id=topic)
    destination = f"{topic}.other" if change == "topic" else topic
    headers = {"selector": {"selector": "colour = 'red'"}, "no-local": {"no-local": "true"}}.get(
        change, {}
    )
    client.subscribe(destination, **durable, **headers)
    publisher.send("SEND", {"destination": destination, "colour": "red"}, "new")
    assert client.message().text == "new"
    client.subscribe(DMQ, "dead", selector=f"which = '{topic}'")
    assert client.message().text == "backlog"


def test_a_durable_subscription_asked_for_in_the_same_way_keeps_its_backlog(
    connect: Connect, topic: str
) -> None:
    durable = {"durable-subscriber-name": "d", "selector": "colour = 'red'", "no-local": "true"}
    client, publisher = connect(client_id=topic), connect()
    client.subscribe(topic, **durable)
    client.disconnect()
    publisher.put(topic, "backlog", colour="red")
    client = connect(client_id=topic)
    client.subscribe(topic, **durable)
    assert client.message().text == "backlog"


# Stores.


@pytest.mark.parametrize(
    ("store", "kept"), [("sqlite", ["persistent"]), ("file", ["persistent"]), ("memory", [])]
)
def test_a_store_keeps_what_is_persistent_or_nothing(
    start_gateway: Callable[..., GatewayProcess], connect: Connect, store: str, kept: list[str]
) -> None:
    gateway = start_gateway(store=store)
    client = connect(to=gateway)
    client.put("/queue/q", "fleeting", persistent="false")
    client.put("/queue/q", "persistent")
    gateway.restart(crash=True)
    client = connect(to=gateway)
    client.put("/queue/q", "marker")
    client.subscribe("/queue/q")
    assert bodies(client.messages(len(kept) + 1)) == [*kept, "marker"]


# Users and access rules.


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with the users alice and bob beside the guest."""
    varhome = tmp_path_factory.mktemp("guarded")
    gateway = GatewayProcess(varhome)
    with gateway:
        passfile = varhome / "passcodes"
        passfile.write_text("imq.imqusermgr.password=secret\n")
        passfile.chmod(0o600)
        for user in ("alice", "bob"):
            arguments = [
                "imqusermgr",
                "add",
                "-u",
                user,
                "-g",
                "staff",
                "-varhome",
                str(varhome),
                "-i",
                gateway.directory.name,
            ]
            program = f"import sys; from gateway.broker.security.usermgr import main; sys.argv = {[*arguments, '-passfile', str(passfile)]}; main()"
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=ROOT,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        _reload(gateway, "users")
        yield gateway


def _reload(gateway: GatewayProcess, what: str) -> None:
    """Send SIGHUP and wait until the log says that ``what`` was read again."""
    line = re.compile(rf"{what} (were read again|stay as they were)")
    before = len(line.findall(_log(gateway)))
    gateway.signal(signal.SIGHUP)
    until = time.monotonic() + PATIENCE
    while len(line.findall(_log(gateway))) == before:
        assert time.monotonic() < until, _log(gateway)
        os.sched_yield()


@pytest.fixture
def rules(guarded: GatewayProcess) -> Iterator[Callable[..., None]]:
    """Replaces access rules, line by line; afterwards they are as they were."""
    file: Path = guarded.directory / "etc" / "accesscontrol.properties"
    before = file.read_text()

    def replace(*lines: str) -> None:
        file.write_text("\n".join([before, *lines, ""]))
        _reload(guarded, "access rules")

    yield replace
    file.write_text(before)
    _reload(guarded, "access rules")


@pytest.fixture
def alice(connect: Connect, guarded: GatewayProcess) -> Client:
    return connect(to=guarded, login="alice", passcode="secret")


@pytest.fixture
def bob(connect: Connect, guarded: GatewayProcess) -> Client:
    return connect(to=guarded, login="bob", passcode="secret")


def test_access_to_connect(
    dial: Callable[..., Client], guarded: GatewayProcess, rules: Callable[..., None], alice: Client
) -> None:
    rules("connection.NORMAL.deny.user=bob")
    client = dial(guarded)
    client.send("CONNECT", {"accept-version": "1.2", "host": "h"}, login="bob", passcode="secret")
    client.error("bob")
    assert alice.sync() == []


def test_access_to_produce_holds_for_connections_that_exist(
    rules: Callable[..., None], alice: Client, bob: Client, queue: str
) -> None:
    for client in (alice, bob):
        client.put(queue, "1")
    rules(f"queue.{queue.removeprefix('/queue/')}.produce.deny.user=bob")
    alice.put(queue, "2")
    bob.send("SEND", {"destination": queue}, "3", receipt="r")
    bob.error("bob", receipt_id="r")


@pytest.mark.parametrize(
    ("operation", "headers"), [("consume", {}), ("browse", {"browser": "true"})]
)
def test_access_to_consume_and_to_browse(
    rules: Callable[..., None],
    alice: Client,
    bob: Client,
    queue: str,
    operation: str,
    headers: dict[str, str],
) -> None:
    alice.put(queue, "1")
    rules(f"queue.{queue.removeprefix('/queue/')}.{operation}.deny.user=bob")
    bob.send("SUBSCRIBE", {"destination": queue, **headers}, id="s", receipt="r")
    bob.error(receipt_id="r")
    alice.subscribe(queue, **headers)
    assert alice.message().text == "1"


def test_access_to_create(
    rules: Callable[..., None], alice: Client, bob: Client, queue: str
) -> None:
    rules("queue.create.deny.user=bob")
    bob.send("SEND", {"destination": queue}, "1", receipt="r")
    bob.error(receipt_id="r")
    alice.put(queue, "1")


def test_access_to_a_topic_through_wildcards(
    rules: Callable[..., None], alice: Client, bob: Client, topic: str
) -> None:
    """Who may not consume a topic does not get it by a pattern either."""
    name = topic.removeprefix("/topic/")
    rules(f"topic.{name}.secret.consume.deny.user=bob")
    for client in (alice, bob):
        client.subscribe(f"{topic}.>")
    alice.send("SEND", {"destination": f"{topic}.secret"}, "secret")
    alice.send("SEND", {"destination": f"{topic}.open"}, "open")
    assert bodies(alice.messages(2)) == ["secret", "open"]
    assert bob.message().text == "open"


def test_access_through_wildcards_is_asked_anew_when_a_durable_subscriber_returns(
    connect: Connect, guarded: GatewayProcess, rules: Callable[..., None], topic: str
) -> None:
    """After a restart it collects whatever its pattern covers, until then."""

    def durable() -> Client:
        client = connect(to=guarded, login="bob", passcode="secret", **{"client-id": "b"})
        client.subscribe(f"{topic}.>", **{"durable-subscriber-name": "d", "ack": "client"})
        return client

    def put(*levels: str) -> None:
        client = connect(to=guarded, login="alice", passcode="secret")
        for level in levels:
            client.put(f"{topic}.{level}", level)
        client.close()

    durable().close()
    put("secret", "first")
    rules(f"topic.{topic.removeprefix('/topic/')}.secret.consume.deny.user=bob")
    guarded.restart()
    put("secret", "open")
    client = durable()
    assert bodies(client.messages(2)) == ["first", "open"]
    put("secret", "again")
    assert client.message().text == "again"


def test_access_to_a_temporary_queue_is_what_the_rules_say_of_sending(
    rules: Callable[..., None], alice: Client, bob: Client, queue: str
) -> None:
    bob.subscribe(queue)
    alice.subscribe("/temp-queue/answers")
    alice.put(queue, "request", **{"reply-to": "/temp-queue/answers"})
    answers = bob.message()["reply-to"]
    bob.put(answers, "allowed")
    assert alice.message().text == "allowed"
    rules("queue.*.produce.deny.user=bob")
    bob.send("SEND", {"destination": answers}, "denied", receipt="r")
    bob.error(receipt_id="r")


def test_access_rules_with_a_mistake_are_refused_as_a_whole(
    rules: Callable[..., None], guarded: GatewayProcess, alice: Client, queue: str
) -> None:
    rules("queue.*.produce.deny.user=alice", "queue.nonsense")
    alice.put(queue, "1")
    assert "access rules stay as they were" in _log(guarded)


def _own_address() -> str | None:
    """An address of this machine that is not a loopback one; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_guest_comes_from_this_machine_only(
    start_gateway: Callable[..., GatewayProcess], dial: Callable[..., Client]
) -> None:
    """The guest may come over the loopback; over any other address the same passcode is refused,
    and the text says why.
    """
    address = _own_address()
    if address is None:
        pytest.skip("this machine has no address but its loopback")
    gateway = start_gateway(
        store="memory", settings={"imq.hostname": "", "imq.portmapper.hostname": "127.0.0.1"}
    )
    dial(gateway).connect()
    client = Client(gateway.port, host=address)
    client.send("CONNECT", {"accept-version": "1.2", "host": "h"}, login="guest", passcode="guest")
    client.error("guest")
    client.close()
