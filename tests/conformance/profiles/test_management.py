"""Artemis's management messages: who asks, for what, and the replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.broker.security import usermgr
from gateway.broker.security.access import DEFAULT_RULES
from tests.conformance.client import Client, Frame
from tests.crash.waiting import reload, until
from tests.gateway_process import GatewayProcess

MANAGEMENT: Final = "activemq.management"
#: Users beside the administrator, and their groups; each is the own password.
USERS: Final = {
    "vera": "viewer",
    "otto": "operator",
    "ida": "operator",
    "oscar": "operator",
    "ivan": "operator",
    "nora": "user",
}
RULES: Final = (
    "queue.secret.produce.deny.user=*\nqueue.activemq.management.produce.deny.user=oscar\n"
    "queue.create.deny.user=ivan\n"
)


@pytest.fixture(scope="module")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with Artemis's habits, and users of each role."""
    gateway = GatewayProcess(
        tmp_path_factory.mktemp("management"),
        settings={
            "imq.bridge.stomp.profile": "artemis",
            "imq.bridge.stomp.limit.body": "1000000",
            "imq.destination.queue.full.maxNumMsgs": "1",
            "imq.destination.queue.full.limitBehavior": "FLOW_CONTROL",
        },
    )
    etc = gateway.directory / "etc"
    etc.mkdir(parents=True)
    (etc / "passfile").write_text("imq.imqcmd.password=admin\n")
    (etc / "passfile").chmod(0o600)
    (etc / "accesscontrol.properties").write_text(f"{DEFAULT_RULES}\n{RULES}")
    for user, group in USERS.items():
        secret = _secret(etc.parent / user, user)
        manage(gateway, "add", "-u", user, "-g", group, "-passfile", str(secret))
    with gateway:
        yield gateway


def manage(gateway: GatewayProcess, *words: str) -> None:
    """Run ``imqusermgr``."""
    place = ["-varhome", str(gateway.varhome), "--instance", gateway.instance]
    assert usermgr.run([*words, *place]) == 0


def _secret(path: Path, password: str) -> Path:
    path.write_text(f"imq.imqusermgr.password={password}\n")
    path.chmod(0o600)
    return path


class Asker:
    """A client that asks, and gets the replies to a temporary queue."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.subscribe("/temp-queue/replies", "replies")

    def send(self, resource: str, body: str | bytes = "", **headers: str) -> None:
        asked = {"destination": MANAGEMENT, "reply-to": "/temp-queue/replies"}
        self.client.send("SEND", {**asked, "_AMQ_ResourceName": resource, **headers}, body)

    def reply(self) -> Frame:
        message = self.client.message()
        assert message["subscription"] == "replies"
        return message

    def get(self, resource: str, attribute: str) -> Any:
        """The value of an attribute."""
        self.send(resource, _AMQ_Attribute=attribute)
        return value_of(self.reply())

    def do(self, resource: str, operation: str, *parameters: object) -> Any:
        """The result of an operation; None for no result."""
        self.send(resource, json.dumps(parameters), _AMQ_OperationName=operation)
        return value_of(self.reply())

    def refused(self, resource: str, operation: str, *parameters: object) -> str:
        """Why an operation fails."""
        self.send(resource, json.dumps(parameters), _AMQ_OperationName=operation)
        return reason_of(self.reply())


def value_of(reply: Frame) -> Any:
    assert reply["_AMQ_OperationSucceeded"] == "true", reply
    if not reply.body:
        return None
    values = json.loads(reply.body)
    assert len(values) == 1
    return values[0]


def reason_of(reply: Frame) -> str:
    assert reply["_AMQ_OperationSucceeded"] == "false", reply
    (reason,) = json.loads(reply.body)
    assert isinstance(reason, str)
    return reason


Join = Callable[..., Client]


@pytest.fixture
def join(artemis: GatewayProcess) -> Iterator[Join]:
    with ExitStack() as opened:

        def joined(user: str = "admin", version: str = "1.1") -> Client:
            client = opened.enter_context(closing(Client(artemis.port)))
            client.connect(version, login=user, passcode=user)
            client.counted = version != "1.0"
            return client

        yield joined


@pytest.fixture
def admin(join: Join) -> Asker:
    return Asker(join())


@pytest.fixture
def otto(join: Join) -> Asker:
    return Asker(join("otto"))


@pytest.fixture
def vera(join: Join) -> Asker:
    return Asker(join("vera"))


def fill(join: Join, name: str, *bodies: str, **headers: str) -> None:
    """Put messages in a queue."""
    client = join("otto")
    for body in bodies:
        client.ask("SEND", {"destination": f"/queue/{name}", **headers}, body)


# --- what Artemis's own tests of it ask


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_attribute_of_a_queue(join: Join, name: str, version: str) -> None:
    client = join("vera", version)
    client.ask("SUBSCRIBE", {"destination": name, "id": "1", "subscription-type": "ANYCAST"})
    asked = {
        "destination": MANAGEMENT,
        "reply-to": name,
        "correlation-id": "7",
        "_AMQ_ResourceName": f"queue.{name}",
        "_AMQ_Attribute": "Address",
    }
    (reply,) = client.ask("SEND", asked)
    assert (reply["_AMQ_OperationSucceeded"], reply.text) == ("true", f'["{name}"]')
    assert reply["correlation-id"] == "7"
    assert reply["persistent"] == "false"


def test_an_operation_of_a_queue(join: Join, name: str) -> None:
    client = join("vera")
    client.ask("SUBSCRIBE", {"destination": name, "id": "1", "subscription-type": "ANYCAST"})
    asked = {
        "destination": MANAGEMENT,
        "reply-to": name,
        "_AMQ_ResourceName": f"queue.{name}",
        "_AMQ_OperationName": "countMessages",
    }
    (reply,) = client.ask("SEND", asked, "[\"color = 'blue'\"]")
    assert (reply["_AMQ_OperationSucceeded"], reply.text) == ("true", "[0]")


# --- attributes


def test_a_queue_says_what_it_has(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, "1", "2", "3", persistent="true")
    holder = join("otto")
    held = {"destination": f"/queue/{name}", "id": "h", "ack": "client-individual"}
    holder.ask("SUBSCRIBE", {**held, "consumer-window-size": "0"})
    holder.message()
    expected = {
        "Name": name,
        "name": name,
        "RoutingType": "ANYCAST",
        "Durable": True,
        "Temporary": False,
        "Filter": None,
        "MessageCount": 3,
        "DeliveringCount": 1,
        "ScheduledCount": 0,
        "MessagesAdded": 3,
        "ConsumerCount": 1,
        "MaxConsumers": -1,
        "Paused": False,
        "DeadLetterAddress": "DLQ",
        "ExpiryAddress": "ExpiryQueue",
    }
    assert {each: vera.get(f"queue.{name}", each) for each in expected} == expected
    assert vera.get(f"queue./queue/{name}", "PersistentSize") > 0
    assert vera.get(f"queue.{name}", "FirstMessageAge") > 0
    # An attribute's getter is an operation.
    assert vera.do(f"queue.{name}", "getMessageCount") == 3
    assert vera.do(f"queue.{name}", "isDurable") is True


def test_a_queue_counts_what_has_expired_and_what_is_dead(join: Join, name: str) -> None:
    client = join("otto", "1.2")
    fill(join, name, "1", "2", "3", persistent="true")
    fill(join, name, "4", persistent="true", expires="1000000000000")
    client.subscribe(f"/queue/{name}", ack="client-individual")
    first, second, third = client.messages(3)
    client.nack(first)
    client.nack(second)
    client.ack(third)
    client.sync()
    vera = Asker(join("vera"))
    expected = {"MessagesAdded": 4, "MessagesExpired": 1, "MessagesKilled": 2, "MessageCount": 0}
    assert {each: vera.get(f"queue.{name}", each) for each in expected} == expected


def test_an_address_says_what_it_has(join: Join, otto: Asker, name: str) -> None:
    address = f"address.{name}"
    otto.do("broker", "createQueue", name, f"{name}.east", "ANYCAST")
    assert otto.get(f"queue.{name}.east", "Address") == name
    assert otto.get(address, "QueueNames") == [f"{name}.east"]
    fill(join, f"{name}.east", "1")
    fill(join, name, "2")
    assert otto.get(address, "RoutingTypes") == ["ANYCAST"]
    join("otto").ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "t"})
    assert otto.get(address, "RoutingTypes") == ["ANYCAST", "MULTICAST"]
    assert json.loads(otto.get(address, "RoutingTypesAsJSON")) == ["ANYCAST", "MULTICAST"]
    expected = {
        "Address": name,
        "QueueCount": 1,
        "MessageCount": 2,
        "NumberOfMessages": 2,
        "Paused": False,
        "Temporary": False,
    }
    assert {each: otto.get(address, each) for each in expected} == expected
    assert otto.get(address, "AddressSize") > 0
    assert name in otto.get("broker", "AddressNames")
    assert f"{name}.east" not in otto.get("broker", "AddressNames")
    assert otto.do(address, "purge") == 2


def test_a_durable_subscription_is_a_queue_of_its_topic(
    artemis: GatewayProcess, vera: Asker, name: str
) -> None:
    with closing(Client(artemis.port)) as client:
        client.connect("1.1", client_id=name)
        named = {"durable-subscriber-name": "all", "selector": "color = 'blue'"}
        client.ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "d", **named})
        client.ask("UNSUBSCRIBE", id="d")
        client.ask("SEND", {"destination": f"/topic/{name}", "color": "blue"}, "1")
        client.ask("SEND", {"destination": f"/topic/{name}", "color": "red"}, "2")
    (queue,) = vera.get(f"address.{name}", "QueueNames")
    assert queue in vera.get("broker", "QueueNames")
    assert queue not in vera.do("broker", "getQueueNames", "ANYCAST")
    values = {each: vera.get(f"queue.{queue}", each) for each in ("Address", "RoutingType")}
    assert values == {"Address": name, "RoutingType": "MULTICAST"}
    assert vera.get(f"queue.{queue}", "Filter") == "color = 'blue'"
    assert vera.get(f"queue.{queue}", "MessageCount") == 1


def test_the_broker_says_what_it_has(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, "1")
    assert vera.get("broker", "Started") is True
    assert vera.get("broker", "Version")
    assert vera.get("broker", "ConnectionCount") >= 1
    assert vera.get("broker", "UptimeMillis") > 0
    assert re.search(r"seconds$", vera.get("broker", "Uptime"))
    assert vera.get("broker", "TotalMessagesAdded") >= 1
    assert vera.get("broker", "TotalConsumerCount") >= 1
    assert vera.get("broker", "ManagementAddress") == MANAGEMENT
    assert name in vera.get("broker", "QueueNames")
    assert name in vera.do("broker", "getQueueNames")
    assert name in vera.get("broker", "AddressNames")
    assert len(vera.do("broker", "listConnectionIDs")) >= 1
    rows = json.loads(vera.do("broker", "listConnectionsAsJSON"))
    assert "vera" in [row["users"] for row in rows]
    options = json.dumps({"field": "users", "operation": "EQUALS", "value": "vera"})
    page = json.loads(vera.do("broker", "listConnections", options, 1, 50))
    assert [row["protocol"] for row in page["data"]] == ["STOMP 1.1"]
    options = json.dumps({"field": "name", "operation": "CONTAINS", "value": name})
    page = json.loads(vera.do("broker", "listQueues", options, 1, 1))
    assert (page["count"], page["data"][0]["messageCount"]) == (1, 1)
    assert all(each.startswith("127.0.0.1:") for each in vera.do("broker", "listRemoteAddresses"))


# --- operations


def test_messages_are_counted_and_listed(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, "1", "2", color="blue", priority="7")
    fill(join, name, "3", color="red")
    queue = f"queue.{name}"
    assert vera.do(queue, "countMessages") == 3
    assert vera.do(queue, "countMessages", None) == 3
    assert vera.do(queue, "countMessages", "") == 3
    assert vera.do(queue, "countMessages", "color = 'blue'") == 2
    listed = vera.do(queue, "listMessages", "color = 'blue'")
    assert [(each["color"], each["priority"], each["type"]) for each in listed] == [
        ("blue", 7, 3)
    ] * 2
    assert json.loads(vera.do(queue, "listMessagesAsJSON", "color = 'blue'")) == listed
    assert "body" not in listed[0]
    assert "color = " in vera.refused(queue, "countMessages", "color = ")


def test_no_more_messages_are_listed_than_a_bound(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, *["x"] * 205)
    assert len(vera.do(f"queue.{name}", "listMessages", "")) == 200
    assert vera.do(f"queue.{name}", "countMessages") == 205


def test_messages_are_removed_and_moved(join: Join, otto: Asker, name: str) -> None:
    fill(join, name, "1", "2", "3", "4", color="blue", persistent="true")
    fill(join, name, "5", "6", color="red", persistent="true")
    queue = f"queue.{name}"
    first = otto.do(queue, "listMessages", None)[0]["messageID"]
    assert otto.do(queue, "removeMessage", first) is True
    assert "is not there" in otto.refused(queue, "removeMessage", first)
    assert otto.do(queue, "removeMessages", "color = 'red'") == 2
    second = otto.do(queue, "listMessages", None)[0]["messageID"]
    assert otto.do(queue, "moveMessage", second, f"{name}.other") is True
    assert otto.do(queue, "moveMessages", "", f"{name}.other") == 2
    assert otto.do(queue, "countMessages") == 0
    other = f"queue.{name}.other"
    assert otto.do(other, "sendMessageToDeadLetterAddress", second) is True
    assert otto.do(other, "sendMessagesToDeadLetterAddress", "color = 'blue'") == 2
    assert otto.do("queue.DLQ", "countMessages", f"_AMQ_ORIG_QUEUE = '{name}.other'") == 3
    assert otto.do("queue.DLQ", "retryMessages", f"_AMQ_ORIG_QUEUE = '{name}.other'") == 3
    assert otto.do(other, "removeAllMessages") == 3


@pytest.mark.parametrize(
    "operation", ["removeMessage", "retryMessage", "sendMessageToDeadLetterAddress"]
)
@pytest.mark.parametrize("id", [None, ""])
def test_no_message_is_meant_by_no_identifier(
    join: Join, otto: Asker, name: str, operation: str, id: str | None
) -> None:
    fill(join, name, "1", "2")
    assert "messageID is missing" in otto.refused(f"queue.{name}", operation, id)
    assert otto.do(f"queue.{name}", "countMessages") == 2


def test_a_queue_is_paused_and_resumed(join: Join, otto: Asker, name: str) -> None:
    fill(join, name, "1")
    assert otto.do(f"queue.{name}", "pause") is None
    assert otto.get(f"queue.{name}", "Paused") is True
    consumer = join("otto")
    consumer.subscribe(f"/queue/{name}")
    assert consumer.sync() == []
    assert otto.do(f"queue.{name}", "resume") is None
    assert consumer.message().text == "1"
    assert otto.do(f"address.{name}", "pause") is None
    assert otto.get(f"address.{name}", "Paused") is True


def test_queues_and_addresses_are_made_and_destroyed(otto: Asker, name: str) -> None:
    said = {"name": name, "routing-type": "ANYCAST", "durable": True, "max-consumers": 2}
    assert otto.do("broker", "createQueue", json.dumps(said)) is None
    assert otto.get(f"queue.{name}", "MaxConsumers") == 2
    assert "exists already" in otto.refused("broker", "createQueue", name, name, "ANYCAST")
    assert otto.do("broker", "createQueue", json.dumps(said), True) is None
    assert otto.do("broker", "deployQueue", name, name) is None
    assert "MULTICAST" in otto.refused("broker", "createQueue", name, f"{name}.m", "MULTICAST")
    otto.client.subscribe(f"/queue/{name}", "c")
    assert "1 consumers" in otto.refused("broker", "destroyQueue", name)
    otto.client.ask("UNSUBSCRIBE", id="c")
    assert otto.do("broker", "destroyQueue", name) is None
    assert name not in otto.get("broker", "QueueNames")
    assert otto.do("broker", "createAddress", name, "MULTICAST")
    assert otto.get(f"address.{name}", "RoutingTypes") == ["MULTICAST"]
    assert otto.do("broker", "deleteAddress", name) is None
    assert "createQueue" in otto.refused("broker", "createAddress", name, "ANYCAST")


@pytest.mark.parametrize(
    ("given", "key"),
    [({"last-value": True}, "_AMQ_LVQ_NAME"), ({"last-value-key": "symbol"}, "symbol"), ({}, None)],
)
def test_last_value_queues_are_made(
    otto: Asker, name: str, given: dict[str, object], key: str | None
) -> None:
    assert otto.do("broker", "createQueue", json.dumps({"name": name, **given})) is None
    resource = f"queue.{name}"
    assert otto.get(resource, "LastValueKey") == key
    assert otto.get(resource, "LastValue") is (key is not None)
    otto.client.put(f"/queue/{name}", "1", "2", **{key or "symbol": "a"})
    assert otto.get(resource, "MessageCount") == (2 if key is None else 1)
    refused = otto.refused("broker", "createQueue", json.dumps({"name": "x", "last-value": "yes"}))
    assert "last-value" in refused


def test_a_connection_is_ended(join: Join, otto: Asker) -> None:
    victim = join("nora")
    rows = json.loads(otto.do("broker", "listConnectionsAsJSON"))
    (id,) = [row["connectionID"] for row in rows if row["users"] == "nora"]
    assert otto.do("broker", "closeConnectionWithID", id) is True
    assert "administrator" in victim.expect("ERROR")["message"]
    assert "there is no connection" in otto.refused("broker", "closeConnectionWithID", id)


def test_a_client_may_end_its_own_connection(join: Join, otto: Asker) -> None:
    victim = Asker(join("otto"))
    rows = json.loads(victim.do("broker", "listConnectionsAsJSON"))
    # The latest one of this user.
    id = max((row["connectionID"] for row in rows if row["users"] == "otto"), key=int)
    victim.send("broker", json.dumps([id]), _AMQ_OperationName="closeConnectionWithID")
    assert "administrator" in victim.client.expect("ERROR")["message"]
    assert id not in otto.do("broker", "listConnectionIDs")


def test_others_have_their_turn_between_two_requests(
    artemis: GatewayProcess, join: Join, vera: Asker, name: str
) -> None:
    """Another client sees how many replies are in a queue meanwhile."""
    asked = (
        f"SEND\ndestination:{MANAGEMENT}\nreply-to:/queue/{name}\n"
        "_AMQ_ResourceName:broker\n_AMQ_OperationName:getVersion\n\n\0"
    )
    fill(join, name, "first")
    join("otto").write(asked.encode() * 500)
    seen = {0}
    while max(seen) < 501:
        seen.add(vera.get(f"queue.{name}", "MessagesAdded"))
    assert len(seen) > 20


# --- who may ask


def test_nothing_is_done_where_the_queue_of_the_reply_may_not_be_made(
    join: Join, otto: Asker, name: str
) -> None:
    fill(join, name, "1")
    ivan = join("ivan", "1.2")
    asked = {"_AMQ_ResourceName": f"queue.{name}", "_AMQ_OperationName": "removeAllMessages"}
    ivan.send("SEND", {"destination": MANAGEMENT, "reply-to": f"/queue/{name}.new", **asked})
    assert "user 'ivan' may not produce" in ivan.expect("ERROR")["message"]
    assert otto.do(f"queue.{name}", "countMessages") == 1
    # One that is there has not to be made.
    otto.do("broker", "createQueue", f"{name}.there", f"{name}.there", "ANYCAST")
    ivan = join("ivan", "1.2")
    ivan.send("SEND", {"destination": MANAGEMENT, "reply-to": f"/queue/{name}.there", **asked})
    assert ivan.sync() == []
    assert otto.do(f"queue.{name}", "countMessages") == 0
    assert otto.do(f"queue.{name}.there", "countMessages") == 1


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_others_get_an_error_and_nothing_is_done(join: Join, name: str, version: str) -> None:
    fill(join, name, "1")
    nora = join("nora", version)
    nora.subscribe("/temp-queue/r")
    asked = {"destination": MANAGEMENT, "reply-to": "/temp-queue/r", "receipt": "r"}
    for more in ({"_AMQ_OperationName": "removeAllMessages"}, {"_AMQ_Attribute": "MessageCount"}):
        nora.send("SEND", {**asked, **more, "_AMQ_ResourceName": f"queue.{name}"})
        error = nora.expect("ERROR")
        assert "user 'nora' may not manage" in error["message"]
        assert error["receipt-id"] == "r"
        if version == "1.2":
            assert nora.rest() == []
            break
    assert Asker(join("vera")).get(f"queue.{name}", "MessageCount") == 1


def test_viewers_only_look(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, "1", persistent="true")
    queue = f"queue.{name}"
    id = vera.do(queue, "listMessages", "")[0]["messageID"]
    needs = "needs the role operator, and yours is viewer"
    for operation, *parameters in (
        ("removeAllMessages",),
        ("removeMessages", ""),
        ("removeMessage", id),
        ("moveMessage", id, "other"),
        ("moveMessages", "", "other"),
        ("copyMessage", id, "other"),
        ("retryMessage", id),
        ("retryMessages",),
        ("sendMessageToDeadLetterAddress", id),
        ("sendMessagesToDeadLetterAddress", ""),
        ("pause",),
        ("resume",),
    ):
        assert needs in vera.refused(queue, operation, *parameters), operation
    for operation in ("pause", "resume", "purge"):
        assert needs in vera.refused(f"address.{name}", operation), operation
    for operation, *parameters in (
        ("createQueue", "new", "new"),
        ("deployQueue", "new", "new"),
        ("destroyQueue", name),
        ("createAddress", "new", "MULTICAST"),
        ("closeConnectionWithID", "1"),
    ):
        assert needs in vera.refused("broker", operation, *parameters), operation
    assert vera.get(queue, "MessageCount") == 1
    assert vera.get(queue, "Paused") is False


def test_a_rule_turns_it_off(join: Join) -> None:
    client = join("oscar")
    asked = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getQueueNames"}
    client.send("SEND", {"destination": MANAGEMENT, **asked})
    assert "user 'oscar' may not produce" in client.expect("ERROR")["message"]


def test_a_user_who_loses_the_role_is_refused_at_once(artemis: GatewayProcess, join: Join) -> None:
    ida = Asker(join("ida"))
    assert ida.get("broker", "Started") is True
    manage(artemis, "update", "-u", "ida", "-g", "user")
    reload(artemis, "log files were reopened")
    ida.send("broker", _AMQ_Attribute="Started")
    assert "may not manage" in ida.client.expect("ERROR")["message"]


def test_the_audit_has_who_did_what(
    artemis: GatewayProcess, join: Join, otto: Asker, vera: Asker, name: str
) -> None:
    fill(join, name, "1", "2")
    vera.refused(f"queue.{name}", "removeAllMessages")
    otto.do(f"queue.{name}", "removeAllMessages")
    nora = join("nora")
    asked = {"_AMQ_ResourceName": f"queue.{name}", "_AMQ_OperationName": "pause", "receipt": "r"}
    nora.send("SEND", {"destination": MANAGEMENT, **asked})
    nora.expect("ERROR")
    lines = [line for line in artemis.log.splitlines() if name in line and "audit: " in line]
    purge = f"POST /v1/destination/purge type=queue name={name}"
    told = [line.partition("audit: ")[2] for line in lines]
    assert [line for line in told if line.startswith("vera")] == [
        f"vera from 127.0.0.1 was refused by message: {purge}: that needs the role operator, and yours is viewer"
    ]
    assert [line for line in told if line.startswith("otto")] == [
        f"otto from 127.0.0.1 did by message: {purge}: purged 2"
    ]
    (refused,) = [line for line in told if line.startswith("nora")]
    assert refused.startswith(f"nora from 127.0.0.1 was refused by message: queue.{name} pause: ")


def test_a_reply_goes_only_where_the_user_may_send(join: Join, otto: Asker, name: str) -> None:
    fill(join, name, "1")
    # By its name alone it is no topic, then.
    otto.do("broker", "deployQueue", "secret", "secret")
    client = join("otto")
    asked = {"_AMQ_ResourceName": f"queue.{name}", "_AMQ_OperationName": "removeAllMessages"}
    for reply_to in ("/queue/secret", "secret"):
        client.send("SEND", {"destination": MANAGEMENT, "reply-to": reply_to, **asked})
        assert "may not produce" in client.expect("ERROR")["message"]
    # Nor was anything done.
    assert otto.get(f"queue.{name}", "MessageCount") == 1


# --- order, transactions, receipts


def test_what_comes_behind_waits_for_the_reply(join: Join, otto: Asker, name: str) -> None:
    client = otto.client
    headers = {"destination": f"/queue/{name}", "persistent": "true"}
    for number in range(20):
        client.send("SEND", headers, str(number))
        otto.send(f"queue.{name}", "[]", _AMQ_OperationName="countMessages")
    assert [value_of(otto.reply()) for _ in range(20)] == list(range(1, 21))
    otto.send(f"queue.{name}", "[]", _AMQ_OperationName="removeAllMessages", receipt="removed")
    client.send("SEND", headers, "after")
    client.send("SEND", {**headers, "receipt": "sent"}, "after")
    receipts = []
    for _ in range(3):
        frame = client.frame()
        receipts.append(frame.headers.get("receipt-id") or value_of(frame))
    assert sorted(map(str, receipts)) == ["20", "removed", "sent"]
    assert receipts.index("removed") < receipts.index("sent")
    assert otto.do(f"queue.{name}", "countMessages") == 2


def test_the_reply_is_part_of_a_transaction(join: Join, otto: Asker, name: str) -> None:
    client = otto.client
    asked = {"_AMQ_OperationName": "removeAllMessages", "transaction": "t"}
    for end in ("COMMIT", "ABORT"):
        fill(join, name, "1", "2")
        client.ask("BEGIN", transaction="t")
        otto.send(f"queue.{name}", "[]", **asked)
        assert client.sync() == []
        client.send(end, transaction="t")
        if end == "COMMIT":
            assert value_of(otto.reply()) == 2
        # What was asked is done in any case, and no other reply comes.
        assert otto.do(f"queue.{name}", "countMessages") == 0
    client.send("SEND", {"destination": MANAGEMENT, "transaction": "other"})
    assert "other" in client.expect("ERROR")["message"]


def test_without_reply_to_it_is_done_and_a_failure_is_an_error(
    join: Join, otto: Asker, name: str
) -> None:
    fill(join, name, "1")
    client = join("otto")
    asked = {"destination": MANAGEMENT, "_AMQ_ResourceName": f"queue.{name}"}
    assert client.ask("SEND", {**asked, "_AMQ_OperationName": "removeAllMessages"}) == []
    assert otto.do(f"queue.{name}", "countMessages") == 0
    client.send("SEND", {**asked, "_AMQ_OperationName": "nonsense", "receipt": "r"})
    error = client.expect("ERROR")
    assert "nonsense" in error["message"]
    assert error["receipt-id"] == "r"
    client.send("SEND", {**asked, "_AMQ_Attribute": "MessageCount"})
    assert "reply-to" in client.expect("ERROR")["message"]


def test_a_reply_waits_where_senders_are_held_back(join: Join, otto: Asker) -> None:
    # Neither gets a RECEIPT before there is room.
    join("otto").send("SEND", {"destination": "/queue/full"}, "the only one")
    until(lambda: "full" in otto.get("broker", "QueueNames"), "nothing came")
    client = join("otto")
    asked = {"destination": MANAGEMENT, "reply-to": "/queue/full", "receipt": "replied"}
    named = {"_AMQ_ResourceName": "queue.full", "_AMQ_OperationName": "countMessages"}
    for body in ("[]", '["x = 1"]'):
        client.send("SEND", {**asked, **named}, body)
    reader = join("otto")
    reader.subscribe("/queue/full", ack="client-individual")
    came = []
    for _ in range(3):
        came.append(reader.message())
        reader.ack(came[-1])
    assert [each.text for each in came] == ["the only one", "[1]", "[0]"]
    assert [client.expect("RECEIPT")["receipt-id"] for _ in range(2)] == ["replied"] * 2


def test_a_client_that_goes_at_once_has_it_done(join: Join, otto: Asker, name: str) -> None:
    fill(join, name, "1", "2")
    client = join("otto")
    asked = {"destination": MANAGEMENT, "reply-to": "/temp-queue/r"}
    named = {"_AMQ_ResourceName": f"queue.{name}", "_AMQ_OperationName": "removeAllMessages"}
    client.send("SEND", {**asked, **named})
    client.disconnect()
    assert otto.do(f"queue.{name}", "countMessages") == 0


# --- hostile and odd


@pytest.mark.parametrize(
    ("resource", "operation", "body", "words"),
    [
        ("queue.none", "countMessages", "[]", "there is no queue 'none'"),
        ("address.none", "pause", "[]", "there is no address 'none'"),
        ("server", "getVersion", "[]", "expected broker, queue.NAME or address.NAME"),
        ("queue.", "countMessages", "[]", "expected broker, queue.NAME or address.NAME"),
        ("broker", "forceFailover", "[]", "it has closeConnectionWithID, "),
        ("broker", "__class__", "[]", "it has closeConnectionWithID, "),
        ("broker", "createQueue", "[]", "expected createQueue(queueConfiguration:text)"),
        ("broker", "createQueue", "[1, 2]", "has other parameters than (int, int)"),
        ("broker", "createQueue", "[true]", "has other parameters than (bool)"),
        ("broker", "createQueue", '[{"a": 1}, []]', "has other parameters than (dict, list)"),
        ("broker", "createQueue", '["[]"]', "no JSON object"),
        ("broker", "createQueue", '["{"]', "no JSON"),
        ("broker", "createQueue", '["{\\"name\\": 1}"]', "name is no text"),
        ("broker", "createQueue", '["{\\"ring-size\\": 5}"]', "ring-size"),
        ("broker", "createQueue", '["", ""]', "no name"),
        ("broker", "createQueue", '["a.>", "a.>"]', "a.>"),
        ("broker", "createQueue", '["\\ud800", "\\ud800"]', "no JSON"),
        ("broker", "listQueues", '["[", 1, 1]', "no JSON"),
        ("broker", "listQueues", '["", 1.5, 1]', "other parameters"),
        ("broker", "getQueueNames", "{}", "no JSON array"),
        ("broker", "getQueueNames", "[", "no JSON"),
        ("broker", "getQueueNames", "[" * 60_000, "no JSON"),
        ("broker", "getQueueNames", "[" + "9" * 10_000 + "]", "no JSON"),
        ("broker", "getQueueNames", b"\xff\xfe", "no JSON"),
        ("broker", "getQueueNames", "[" + " " * 900_000 + "]", "65536 is the limit"),
        ("queue.DLQ", "removeMessage", "[null]", "messageID is missing"),
        ("queue.DLQ", "moveMessages", '["", null]', "to is missing"),
        ("queue.DLQ", "countMessages", '["' + "(" * 5000 + '"]', ""),
        ("queue.DLQ", "pause", "[]", "cannot be paused"),
    ],
)
def test_what_cannot_be_done_is_said(
    otto: Asker, resource: str, operation: str, body: str | bytes, words: str
) -> None:
    octets = body.encode() if isinstance(body, str) else body
    sent = {"_AMQ_OperationName": operation, "content-length": str(len(octets))}
    otto.send(resource, octets, **sent)
    assert words in reason_of(otto.reply())
    # Nothing else has happened to the connection.
    assert otto.get("broker", "Started") is True


def test_an_unknown_attribute_names_those_there_are(otto: Asker) -> None:
    otto.send("queue.DLQ", _AMQ_Attribute="MessagesAcknowledged")
    reason = reason_of(otto.reply())
    assert "no attribute 'MessagesAcknowledged' here" in reason
    assert "MessageCount, MessagesAdded, " in reason


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "without _AMQ_ResourceName"),
        ({"_AMQ_ResourceName": "broker"}, "without _AMQ_Attribute or _AMQ_OperationName"),
        ({"_AMQ_ResourceName": "q" * 1001, "_AMQ_Attribute": "x"}, "1000 is the limit"),
        ({"destination": f"{MANAGEMENT},/queue/a"}, ""),
        ({"destination": f"/queue/a,/queue/{MANAGEMENT}"}, "it must be the only one"),
        ({"destination": f"/queue/{MANAGEMENT},/queue/a"}, "it must be the only one"),
        ({"destination": f"a::{MANAGEMENT}"}, "as the destination of a SEND"),
    ],
)
def test_a_frame_that_asks_nothing_is_refused(
    join: Join, headers: dict[str, str], words: str
) -> None:
    client = join("otto")
    client.send("SEND", {"destination": MANAGEMENT, "receipt": "r", **headers})
    frame = client.frame()
    if words:
        assert frame.command == "ERROR"
        assert words in frame["message"]


@pytest.mark.parametrize(
    "destination", [MANAGEMENT, f"/queue/{MANAGEMENT}", f"/topic/{MANAGEMENT}"]
)
def test_no_client_receives_from_the_address(join: Join, destination: str) -> None:
    client = join("admin")
    client.send("SUBSCRIBE", {"destination": destination, "id": "s", "receipt": "r"})
    assert "the replies come to the reply-to" in client.expect("ERROR")["message"]
    client.send("SEND", {"destination": destination, "_AMQ_ResourceName": "x", "receipt": "r"})
    assert "without _AMQ_Attribute" in client.expect("ERROR")["message"]


def test_a_reply_to_the_address_itself_is_refused(join: Join) -> None:
    client = join("otto")
    asked = {"_AMQ_ResourceName": "broker", "_AMQ_Attribute": "Version"}
    client.send("SEND", {"destination": MANAGEMENT, "reply-to": MANAGEMENT, **asked})
    assert "as the destination of a SEND" in client.expect("ERROR")["message"]


def test_a_flood_of_requests_is_answered_in_order(join: Join, vera: Asker, name: str) -> None:
    fill(join, name, *map(str, range(50)), color="blue")
    parameters = "[\"color = 'blue'\"]"
    for number in range(500):
        vera.send(
            f"queue.{name}",
            parameters,
            _AMQ_OperationName="countMessages",
            **{"correlation-id": str(number)},
        )
    other = Asker(join("otto"))
    assert other.get("broker", "Started") is True
    replies = [vera.reply() for _ in range(500)]
    assert [reply["correlation-id"] for reply in replies] == list(map(str, range(500)))
    assert {value_of(reply) for reply in replies} == {50}
