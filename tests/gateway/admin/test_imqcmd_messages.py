"""What an administrator does with messages, as clients see it.

The gateway is a process, which is also killed.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.provider import Flags, Vote, Xid
from gateway.messaging.xa import xid_text
from tests.conformance.client import Client
from tests.gateway.admin.administered import Live
from tests.gateway.admin.asking import basic
from tests.gateway.admin.console.serving import Served
from tests.gateway.admin.test_imqcmd_live import imqcmd, told
from tests.gateway.broker.brokers import text
from tests.gateway_process import HOST, GatewayProcess
from tests.on_reactor import on_reactor

Connect = Callable[[], Client]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as running:
        yield running


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


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a queue of the test's own."""
    return str(request.node.name)


def ordered(gateway: GatewayProcess, word: str, name: str, code: int = 200, **body: object) -> Any:
    """What an order over HTTP answers, or the text of its error."""
    served = Served(gateway)
    answer = json.loads(
        asked(
            served.port,
            "POST",
            f"/v1/message/{word}",
            served.passcode,
            {"name": name, **body},
            code,
        )
    )
    return answer if code == 200 else answer["error"]["text"]


def asked(
    port: int, method: str, path: str, passcode: str, body: object = None, code: int = 200
) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        headers = {**basic("admin", passcode), "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        response = connection.getresponse()
        octets = response.read()
        assert response.status == code, octets
        return octets
    finally:
        connection.close()


def listed(gateway: GatewayProcess, name: str) -> list[dict[str, Any]]:
    served = Served(gateway)
    found = json.loads(asked(served.port, "GET", f"/v1/messages?name={name}", served.passcode))
    return list(found["messages"])


def test_messages_are_moved_with_all_that_they_have(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect()
    client.put(
        f"/queue/{name}", "red", colour="red", priority="7", persistent="true", **{"x-a": "b"}
    )
    client.put(f"/queue/{name}", "blue", colour="blue", persistent="true")
    client.put(f"/queue/{name}", "gone", colour="red", persistent="false")
    ids = [each["message_id"] for each in listed(gateway, name)]
    selector = ("-sel", "colour = 'red'", "-to", f"queue:{name}.red")
    moved = imqcmd(gateway, "move", "msg", "-t", "q", "-n", name, *selector)
    assert (moved["matched"], moved["done"], moved["left"]) == (2, 2, 0)
    client.subscribe(f"/queue/{name}.red", ack="client-individual")
    red, gone = client.messages(2)
    assert (red.text, red["colour"], red["priority"], red["x-a"]) == ("red", "red", "7", "b")
    assert (red["message-id"], gone["message-id"]) == (ids[0], ids[2])
    assert gone.text == "gone"
    gateway.restart(crash=True)
    # What is persistent is there, and once.
    client = connect()
    assert connect().left(f"/queue/{name}.red") == ["red"]
    assert connect().left(f"/queue/{name}") == ["blue"]


def test_copies_are_others_and_what_is_deleted_is_gone(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect()
    client.put(f"/queue/{name}", *"abcde")
    first = listed(gateway, name)[0]["message_id"]
    copied = ordered(gateway, "copy", name, limit=2, to=f"{name}.copies")
    assert (copied["matched"], copied["done"]) == (2, 2)
    assert first not in [each["message_id"] for each in listed(gateway, f"{name}.copies")]
    assert connect().left(f"/queue/{name}.copies") == ["a", "b"]
    deleted = ordered(gateway, "delete", name, id=first)
    assert deleted["done"] == 1
    assert connect().left(f"/queue/{name}") == ["b", "c", "d", "e"]
    assert "purge dst" in ordered(gateway, "delete", name, code=400)
    assert "is not there" in ordered(gateway, "delete", name, id=first, code=409)


def test_what_somebody_has_stays_and_is_told(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client, consumer = connect(), connect()
    client.put(f"/queue/{name}", "held")
    held = listed(gateway, name)[0]["message_id"]
    consumer.subscribe(f"/queue/{name}", ack="client-individual", **{"prefetch-count": "1"})
    consumer.message()
    client.put(f"/queue/{name}", "waits")
    client.put(f"/queue/{name}", "later", AMQ_SCHEDULED_DELAY="10000000")
    told = ordered(gateway, "move", name, id=held, to=f"{name}.to", code=409)
    assert "has not acknowledged it" in told
    moved = ordered(gateway, "move", name, limit=10, to=f"{name}.to")
    assert (moved["done"], moved["unacknowledged"], moved["scheduled"]) == (1, 1, 1)
    assert connect().left(f"/queue/{name}.to") == ["waits"]


@on_reactor
async def test_what_a_prepared_transaction_has_stays(imq: Live) -> None:
    client = await imq.deployment.connect()
    plain = client.session()
    plain.send([text(Queue("doubtful"), body) for body in ("taken", "waits")])
    session = client.connection.xa_session()
    resource, inbox = session.resource(), client.consumer(session, Queue("doubtful"), credit=1)
    xid = Xid(1, b"global", b"branch")
    await resource.start(xid, Flags.NOFLAGS)
    await inbox.count(1)
    [message] = inbox.messages
    inbox.consumer.acknowledge(inbox.numbers)
    session.send([text(Queue("doubtful"), "comes")])
    await resource.end(xid, Flags.SUCCESS)
    assert await resource.prepare(xid) is Vote.OK
    await client.close()
    options = ("-t", "q", "-n", "doubtful", "-to", "elsewhere", "-f")
    told = await imq("move", "msg", *options, "-msgID", message.message_id, code=1)
    assert f"the prepared transaction {xid_text(xid)} has acknowledged it" in told
    moved = await imq.json("move", "msg", *options, "-limit", "9")
    assert (moved["done"], moved["unacknowledged"], moved["in_transaction"]) == (1, 1, 1)
    await imq("rollback", "txn", "-n", xid_text(xid), "-f")
    again = await imq.json("move", "msg", *options, "-limit", "9")
    assert (again["done"], again["unacknowledged"], again["in_transaction"]) == (1, 0, 0)
    there = await imq.json("list", "msg", "-t", "q", "-n", "elsewhere")
    assert len(there["messages"]) == 2


def test_the_limits_of_the_other_queue_count(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect()
    small = ("-n", f"{name}.small", "-o", "maxNumMsgs=3", "-o", "limitBehavior=REJECT_NEWEST")
    imqcmd(gateway, "create", "dst", "-t", "q", *small)
    client.put(f"/queue/{name}", *"abcde")
    planned = ordered(gateway, "move", name, limit=100, to=f"{name}.small", dry_run=True)
    assert (planned["done"], planned["left"], len(listed(gateway, name))) == (3, 2, 5)
    moved = ordered(gateway, "move", name, limit=100, to=f"{name}.small")
    assert (moved["matched"], moved["done"], moved["left"]) == (5, 3, 2)
    [reason] = moved["reasons"]
    assert "maxNumMsgs" in reason
    # A script sees that messages stay; that none is chosen is no error.
    options = ("-t", "q", "-n", name, "-to", f"{name}.small")
    done = told(gateway, "move", "msg", *options, "-limit", "9")
    assert (done.returncode, "Done: 0 of 2 messages" in done.stdout) == (1, True)
    assert f"Error: 2 of 2 messages stay: {reason}\n" in done.stderr
    assert told(gateway, "move", "msg", *options, "-selector", "a = 1").returncode == 0
    client.subscribe(f"/queue/{name}.small")
    assert [each.text for each in client.messages(3)] == ["a", "b", "c"]
    assert len(listed(gateway, name)) == 2
    for wrong in ("mq.sys.none", f"{name}.*", name):
        ordered(gateway, "move", name, limit=1, to=wrong, code=409)
    for word in ("move", "copy"):
        # It would be the queue of that name.
        assert "is a topic" in ordered(gateway, word, name, limit=1, to=f"topic:{name}", code=400)
    assert "colour" in ordered(gateway, "delete", name, selector="colour =", code=400)
    assert connect().left(f"/queue/{name}") == ["d", "e"]


def died(client: Client, name: str, body: str, **headers: str) -> None:
    """Have a message die at a queue."""
    client.put(f"/queue/{name}", body, **headers)
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.settle("NACK", client.message(), requeue="false")
    client.ask("UNSUBSCRIBE", id="s")


def test_the_dead_go_back_as_they_were_or_edited(
    gateway: GatewayProcess, connect: Connect, name: str, tmp_path: Any
) -> None:
    client = connect()
    died(client, name, "whole", colour="red")
    died(client, name, '{"a": 1}', colour="red", size="1")
    whole, wrong = [
        each["message_id"]
        for each in listed(gateway, "mq.sys.dmq")
        if each["source"] == f"queue:{name}"
    ]
    replayed = ordered(gateway, "replay", "mq.sys.dmq", id=whole)
    assert (replayed["done"], replayed["difference"]) == (1, [])
    (tmp_path / "body").write_text('{"a": 2}')
    options = ("-msgID", wrong, "-body", str(tmp_path / "body"), "-o", "colour=blue")
    headers = ("-priority", "2", "-type", "order", "-expires", "2099-12-31T23:59:58Z")
    edited = imqcmd(gateway, "replay", "msg", "-t", "q", "-n", "mq.sys.dmq", *options, *headers)
    assert edited["done"] == 1
    lines = {*edited["difference"]}
    assert {'-{"a": 1}', '+{"a": 2}', "-colour = red", "+colour = blue", "+type order"} <= lines
    assert {"-priority 4", "+priority 2", "+expires 2099-12-31T23:59:58.000Z"} <= lines
    gateway.restart(crash=True)
    client = connect()
    client.subscribe(f"/queue/{name}")
    first, second = client.messages(2)
    assert (first.text, first["message-id"], first["colour"]) == ("whole", whole, "red")
    assert (second.text, second["colour"], second["size"]) == ('{"a": 2}', "blue", "1")
    assert (second["priority"], second["type"], second["expires"]) == (
        "2",
        "order",
        "4102444798000",
    )
    assert not [header for header in (*first.headers, *second.headers) if "DMQ" in header]
    died(connect(), f"{name}.more", "x")
    elsewhere = ordered(gateway, "replay", "mq.sys.dmq", limit=1, to="queue:other")
    assert elsewhere["done"] == 1
    [reason] = ordered(gateway, "replay", "other", limit=1)["reasons"]
    assert "not dead" in reason


def test_an_empty_body_and_an_empty_type_are_edits_too(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    died(connect(), name, "whole", type="order")
    [id] = [
        each["message_id"]
        for each in listed(gateway, "mq.sys.dmq")
        if each["source"] == f"queue:{name}"
    ]
    edit = ("-msgID", id, "-body", "/dev/null", "-type", "")
    edited = imqcmd(gateway, "replay", "msg", "-t", "q", "-n", "mq.sys.dmq", *edit)
    assert {"-whole", "-type order", "+no type"} <= {*edited["difference"]}
    client = connect()
    client.subscribe(f"/queue/{name}")
    message = client.message()
    assert (message.text, "type" in message.headers) == ("", False)


def test_many_expired_ones_get_a_new_life_by_one_order(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client = connect()
    client.put(f"/queue/{name}", *map(str, range(20)), expires="1", colour="red")
    # What a consumer would get is looked at, and has expired.
    assert connect().left(f"/queue/{name}") == []
    chosen = ("-selector", f"JMS_SUN_DMQ_DESTINATION = 'queue:{name}'")
    options = ("-t", "q", "-n", "mq.sys.dmq", *chosen)
    for wrong, why in (
        (("-body", "/dev/null"), "only one message can have another body: give its id"),
        (("-expires", "2020-01-01"), "which is in the past"),
    ):
        refused = told(gateway, "replay", "msg", *options, *wrong)
        assert (refused.returncode, why in refused.stderr) == (1, True)
    edit = ("-expires", "2099-12-31T23:59:58Z", "-priority", "7", "-o", "colour=blue")
    replayed = imqcmd(gateway, "replay", "msg", *options, *edit)
    assert (replayed["matched"], replayed["done"], replayed["difference"]) == (20, 20, [])
    client.subscribe(f"/queue/{name}")
    got = client.messages(20)
    assert sorted(int(each.text) for each in got) == [*range(20)]
    assert {(each["expires"], each["priority"], each["colour"]) for each in got} == {
        ("4102444798000", "7", "blue")
    }


def test_a_kill_in_a_move_loses_none_and_doubles_none(
    gateway: GatewayProcess, connect: Connect, name: str
) -> None:
    client, count = connect(), 6000
    client.put(f"/queue/{name}", *map(str, range(count)), persistent="true")
    served = Served(gateway)
    order = {"name": name, "limit": count, "to": f"{name}.to"}
    request = ("POST", "/v1/message/move", json.dumps(order))
    headers = {**basic("admin", served.passcode), "Content-Type": "application/json"}
    watcher = connect()
    watcher.subscribe(f"/queue/{name}.to", ack="client-individual", **{"prefetch-count": "1"})
    moving = http.client.HTTPConnection(HOST, served.port, timeout=30)
    moving.request(*request, headers)
    # The move has begun, and the end comes somewhere in it.
    watcher.message()
    gateway.restart(crash=True)
    moving.close()
    here, there = connect().left(f"/queue/{name}"), connect().left(f"/queue/{name}.to")
    assert Counter([*here, *there]) == Counter(map(str, range(count)))
