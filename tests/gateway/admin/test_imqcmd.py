"""``imqcmd`` against a running broker, admin service, port mapper and STOMP bridge: every command
and option, and its output character by character.

All of it is in this process, on real sockets; the command runs on a thread.
"""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor as global_reactor
from twisted.internet.threads import deferToThread

from gateway import __version__
from gateway.admin.cli import imqcmd
from gateway.admin.cli.help_texts import INSTEAD
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.provider import Mode, Session
from tests.gateway.admin.administered import HOST, Live, running
from tests.gateway.admin.asking import ADMIN, ask, basic, post
from tests.gateway.broker.brokers import Client, completed, settled_down, text, with_properties
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)
Q = Queue("orders")
T = Topic("quotes")


@pytest_twisted.async_yield_fixture
async def client(imq: Live) -> AsyncIterator[Client]:
    client = await imq.deployment.connect()
    yield client
    await client.close()


@pytest.fixture
def session(client: Client) -> Session:
    return client.session()


# --- destinations


@on_reactor
async def test_a_destination_s_life(imq: Live, session: Session) -> None:
    made = await imq(
        "create",
        "dst",
        "-t",
        "q",
        "-n",
        "orders",
        "-o",
        "maxNumMsgs=10",
        "-o",
        "limitBehavior=REMOVE_OLDEST",
    )
    assert made == (
        "Creating a destination with the following attributes:\n"
        "\n"
        "Destination Name    orders\n"
        "Destination Type    Queue\n"
        "maxNumMsgs          10\n"
        "limitBehavior       REMOVE_OLDEST\n"
        "\n"
        "On the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        "Successfully created the destination.\n"
    )
    assert await imq("update", "dst", "-t", "q", "-n", "orders", "-o", "useDMQ=false", "-f") == (
        "Updating the destination where:\n"
        "\n"
        "------------------------------------\n"
        "Destination Name    Destination Type\n"
        "------------------------------------\n"
        "orders              Queue\n"
        "\n"
        "useDMQ    false\n"
        "\n"
        "On the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        "\n"
        "Successfully updated the destination.\n"
    )
    session.send([text(Q, str(number)) for number in range(12)])
    await completed(session)
    assert await imq("purge", "dst", "-t", "q", "-n", "orders", "-f") == (
        "Purging the destination where:\n"
        "\n"
        "------------------------------------\n"
        "Destination Name    Destination Type\n"
        "------------------------------------\n"
        "orders              Queue\n"
        "\n"
        "On the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        "\n"
        "Messages purged: 10\n"
        "Successfully purged the destination.\n"
    )
    assert (await imq("destroy", "dst", "-t", "q", "-n", "orders", "-f")).endswith(
        f"{imq.broker_table}\nSuccessfully destroyed the destination.\n"
    )
    assert "there is no queue 'orders'" in await imq(
        "query", "dst", "-t", "q", "-n", "orders", code=1
    )


@on_reactor
async def test_the_list_of_destinations(imq: Live, client: Client, session: Session) -> None:
    session.send([text(Q, "12345"), text(Q, "123456789")])
    client.consumer(session, T, credit=1)
    client.consumer(session, Topic(">"))
    session.send([text(T, "x"), text(T, "y")])
    await completed(session)
    await settled_down(reactor)
    temporary = client.connection.temporary(Q.kind)
    size = (await imq.json("query", "dst", "-t", "t", "-n", "quotes"))["octets"] / 4
    total = (await imq.json("query", "dst", "-t", "q", "-n", "orders"))["octets"] / 2
    dashes = "-" * 121
    assert await imq("list", "dst") == (
        "Listing all the destinations on the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        f"{dashes}\n"
        "Name         Type    State     Producers              Consumers              Msgs\n"
        "                               Total       Wildcard   Total       Wildcard   Count   Remote   UnAck   Avg Size   Oldest\n"
        f"{dashes}\n"
        "mq.sys.dmq   Queue   RUNNING   0           -          0           -          0       0        0       0.0        -\n"
        f"orders       Queue   RUNNING   1           -          0           -          2       0        0       {total:<8.1f}   00:00:00\n"
        f"quotes       Topic   RUNNING   1           0          2           1          4       0        1       {size:<8.1f}   00:00:00\n"
        "\n"
        "Successfully listed destinations.\n"
    )
    queues = await imq("list", "dst", "-t", "q", "-tmp")
    assert queues.startswith("Listing the queue destinations on the broker specified by:\n")
    assert re.search(
        rf"^{temporary.name}   Queue \(temporary\)   RUNNING   0 ", queues, re.MULTILINE
    )
    assert "quotes" not in queues
    assert [
        each["name"] for each in (await imq.json("list", "dst", "-t", "topic"))["destinations"]
    ] == ["quotes"]


@on_reactor
async def test_everything_of_a_queue(imq: Live) -> None:
    await imq("create", "dst", "-t", "q", "-n", "orders", "-o", "maxTotalMsgBytes=10m")
    assert await imq("query", "dst", "-t", "q", "-n", "orders") == (
        "Querying the destination where:\n"
        "\n"
        "------------------------------------\n"
        "Destination Name    Destination Type\n"
        "------------------------------------\n"
        "orders              Queue\n"
        "\n"
        "On the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        "Destination Name                      orders\n"
        "Destination Type                      Queue\n"
        "Destination State                     RUNNING\n"
        "Created Administratively              true\n"
        "Properties Given by                   an administrator\n"
        "\n"
        "Current Number of Messages\n"
        "   Actual                             0\n"
        "   Remote                             0\n"
        "   Held in Transaction                0\n"
        "   Unacknowledged                     0\n"
        "   Scheduled                          0\n"
        "Current Message Bytes\n"
        "   Actual                             0\n"
        "   Remote                             0\n"
        "   Held in Transaction                0\n"
        "Age of the Oldest Message             -\n"
        "Current Number of Producers           0\n"
        "Current Number of Active Consumers    0\n"
        "Current Number of Backup Consumers    0\n"
        "\n"
        "Since the Start of the Broker\n"
        "   Messages In                        0\n"
        "   Messages Out                       0\n"
        "   Message Bytes In                   0\n"
        "   Message Bytes Out                  0\n"
        "   Peak Number of Messages            0\n"
        "   Peak Message Bytes                 0\n"
        "\n"
        "Max Number of Messages                unlimited (-1)\n"
        "Max Total Message Bytes               10485760\n"
        "Max Bytes per Message                 unlimited (-1)\n"
        "Max Number of Producers               unlimited (-1)\n"
        "Max Number of Active Consumers        unlimited (-1)\n"
        "Max Number of Backup Consumers        0\n"
        "\n"
        "Limit Behavior                        REJECT_NEWEST\n"
        "Use Dead Message Queue                true\n"
        "\n"
        "Redelivery of Rejected Messages\n"
        "   maximumRedeliveries                5\n"
        "   initialRedeliveryDelay             1000\n"
        "   redeliveryDelay                    1000\n"
        "   useExponentialBackOff              true\n"
        "   backOffMultiplier                  2.0\n"
        "   maximumRedeliveryDelay             60000\n"
        "\n"
        "Given by an Administrator\n"
        "   maxTotalMsgBytes                   10m\n"
        "\n"
        "Successfully queried the destination.\n"
    )


@on_reactor
async def test_everything_of_a_topic_with_wildcards(
    imq: Live, client: Client, session: Session
) -> None:
    client.consumer(session, Topic("large.*.circle"))
    session.send([text(Topic("large.green.circle"), "x")])
    await completed(session)
    shown = await imq("query", "dst", "-t", "t", "-n", "large.green.circle")
    assert (
        "Created Administratively                false\nProperties Given by                     the settings imq.autocreate.*\n"
    ) in shown
    assert (
        "Current Number of Producers             1\n"
        "Current Number of Producer Wildcards    0\n"
        "Current Number of Consumers             1\n"
        "Current Number of Consumer Wildcards    1\n"
        "   large.*.circle  (1)\n"
        "\n"
    ) in shown
    assert "Active Consumers" not in shown


@on_reactor
async def test_a_purge_by_a_selector(imq: Live, session: Session) -> None:
    session.send(
        [
            with_properties(Q, str(number), {"colour": ("red", "blue")[number % 2]})
            for number in range(10)
        ]
    )
    await completed(session)
    selector = "colour = 'red'"
    shown = await imq("purge", "dst", "-t", "q", "-n", "orders", "-selector", selector, "-f")
    assert (
        f"orders              Queue\n\nSelector    {selector}\n\nOn the broker specified by:\n"
        in shown
    )
    assert "Messages purged: 5\n" in shown
    assert (await imq.json("purge", "dst", "-t", "q", "-n", "orders", "-f")) == {
        "type": "queue",
        "name": "orders",
        "purged": 5,
    }
    assert "selector 'colour ==' is invalid" in await imq(
        "purge", "dst", "-t", "q", "-n", "orders", "-selector", "colour ==", "-f", code=1
    )


@on_reactor
async def test_the_messages_of_a_queue(imq: Live, session: Session) -> None:
    session.send(
        [
            with_properties(Q, "x" * number, {"colour": ("red", "blue")[number % 2]})
            for number in range(5)
        ]
    )
    await completed(session)
    answer = await imq.json("list", "msg", "-t", "q", "-n", "orders", "-selector", "colour = 'red'")
    assert [each["octets"] for each in answer["messages"]] == [0, 2, 4]
    assert all(0 <= each["age_ms"] < 60_000 for each in answer["messages"])
    shown = await imq("list", "msg", "-t", "q", "-n", "orders", "-maxNumMsgsRetrieved", "2")
    assert shown.count("TEXT") == 2
    assert "There are more; these are the first 2." in shown
    assert shown.endswith("\nSuccessfully listed messages.\n")
    wanted = answer["messages"][1]["message_id"]
    told = await imq("query", "msg", "-t", "q", "-n", "orders", "-msgID", wanted)
    assert re.search(r"Body Size +2\n", told)
    assert re.search(r"   colour +red\n", told)
    gone = await imq("query", "msg", "-t", "q", "-n", "orders", "-msgID", "none", code=1)
    assert "no message none waits in queue 'orders'" in gone
    assert "there is no queue 'nowhere'" in await imq(
        "list", "msg", "-t", "q", "-n", "nowhere", code=1
    )
    assert "selector 'colour ==' is invalid" in await imq(
        "list", "msg", "-t", "q", "-n", "orders", "-selector", "colour ==", code=1
    )
    # They are left where they are.
    assert (await imq.json("query", "dst", "-t", "q", "-n", "orders"))["messages"] == 5


@on_reactor
async def test_what_is_dead_is_listed_with_its_reason_and_where_it_was(
    imq: Live, client: Client
) -> None:
    session = client.session(Mode.INDIVIDUAL)
    session.send([text(Q, "poison")])
    inbox = client.consumer(session, Q)
    await inbox.count(1)
    inbox.consumer.reject([1], dead=DeadReason.UNDELIVERABLE)
    await completed(session)
    (found,) = (await imq.json("list", "msg", "-t", "q", "-n", "mq.sys.dmq"))["messages"]
    assert (found["reason"], found["source"], found["octets"]) == (
        "UNDELIVERABLE",
        "queue:orders",
        6,
    )
    assert found["dead_since_ms"] >= found["timestamp_ms"]
    shown = await imq("list", "msg", "-t", "q", "-n", "mq.sys.dmq")
    assert re.search(r"UNDELIVERABLE +queue:orders", shown)
    told = await imq("query", "msg", "-t", "q", "-n", "mq.sys.dmq", "-msgID", found["message_id"])
    assert re.search(r"Source +queue:orders\n", told)


@on_reactor
async def test_properties_without_effect_are_a_warning(imq: Live) -> None:
    why = "how many messages a consumer gets ahead is its own choice, or imq.bridge.stomp.consumerFlowLimit"
    warning = f"imqcmd: Warning: consumerFlowLimit has no effect: {why}\n"
    await imq(
        "create",
        "dst",
        "-t",
        "t",
        "-n",
        "quotes",
        "-o",
        "consumerFlowLimit=5",
        "-s",
        err=warning,
    )
    assert (await imq.json("query", "dst", "-t", "t", "-n", "quotes"))["origin"] == "administrator"


@on_reactor
async def test_what_is_given_up_can_go_to_the_dead_message_queue(
    imq: Live, session: Session
) -> None:
    for subcommand, value, dead in (
        ("purge", "true", 3),
        ("purge", "false", 3),
        ("destroy", "True", 6),
        ("destroy", "false", 6),
    ):
        session.send([text(Q, str(number)) for number in range(3)])
        await completed(session)
        shown = await imq(
            subcommand, "dst", "-t", "q", "-n", "orders", "-o", f"useDMQ={value}", "-f"
        )
        assert (
            f"orders              Queue\n\nuseDMQ    {value}\n\nOn the broker specified by:\n"
            in shown
        )
        assert (await imq.json("query", "dst", "-t", "q", "-n", "mq.sys.dmq"))["messages"] == dead


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            ("purge", "dst", "-t", "q", "-n", "mq.sys.dmq", "-o", "useDMQ=true", "-f"),
            "what is purged from mq.sys.dmq has no other dead message queue to go to",
        ),
        (("create", "dst", "-t", "q", "-n", "mq.sys.dmq"), "queue:mq.sys.dmq exists already"),
        (
            ("destroy", "dst", "-t", "q", "-n", "mq.sys.dmq", "-f"),
            "the dead message queue cannot be destroyed; 'purge dst' empties it",
        ),
        (
            ("create", "dst", "-t", "q", "-n", "a", "-o", "maxNumMsg=1"),
            "there is no property maxNumMsg; maxNumMsgs may be meant",
        ),
        (
            ("create", "dst", "-t", "q", "-n", "a", "-o", "maxNumMsgs=x"),
            "maxNumMsgs=x: expected a whole number of at least -1",
        ),
        (
            ("update", "dst", "-t", "q", "-n", "a", "-o", "maxNumMsgs=1", "-f"),
            "there is no queue 'a'",
        ),
        (
            ("destroy", "dur", "-n", "d", "-c", "me", "-f"),
            "client-id 'me' has no durable subscription 'd'",
        ),
        (("destroy", "cxn", "-n", "4711", "-f"), "there is no connection 4711"),
        (("query", "cxn", "-n", "4711"), "there is no connection 4711"),
        (("destroy", "cxn", "-n", "x", "-f"), "id is 'x'; expected a whole number"),
    ],
)
@on_reactor
async def test_what_the_broker_refuses(imq: Live, command: tuple[str, ...], error: str) -> None:
    said = await imq(*command, code=1)
    assert said.startswith("imqcmd: Error: ")
    assert error in said
    refused = json.loads(await imq(*command, "--json", code=1))
    assert error in refused["error"]["text"]


# --- durable subscriptions and connections


@on_reactor
async def test_durable_subscriptions(imq: Live) -> None:
    client = await imq.deployment.connect(client_id="myClientID")
    session = client.session()
    client.consumer(session, T, durable_name="myDurable").consumer.close()
    client.consumer(session, Topic("other"), durable_name="used")
    session.send([text(T, "x")])
    await completed(session)
    assert await imq("list", "dur", "-d", "quotes") == (
        "Listing all the durable subscriptions on the topic quotes on the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        f"{'-' * 75}\n"
        "Durable Sub. Name    Client ID     Number of Messages    Durable Sub. State\n"
        f"{'-' * 75}\n"
        "myDurable            myClientID    1                     INACTIVE\n"
        "\n"
        "Successfully listed durable subscriptions.\n"
    )
    listed = await imq("list", "dur")
    assert listed.startswith(
        "Listing all the durable subscriptions of all topics on the broker specified by:\n"
    )
    assert (
        "used                 myClientID    0                     ACTIVE                other\n"
        in listed
    )
    assert "'used' of client-id 'myClientID' has an active consumer" in await imq(
        "destroy", "dur", "-n", "used", "-c", "myClientID", "-f", code=1
    )
    assert await imq("destroy", "dur", "-n", "myDurable", "-c", "myClientID", "-f") == (
        "Destroying the durable subscription where:\n"
        "\n"
        "---------------------------------------\n"
        "Durable Subscription Name    Client ID\n"
        "---------------------------------------\n"
        "myDurable                    myClientID\n"
        "\n"
        "On the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        "\n"
        "Successfully destroyed the durable subscription.\n"
    )
    assert [each["name"] for each in (await imq.json("list", "dur"))["durables"]] == ["used"]

    for name, none_or_more in (("below", False), ("with", True)):
        pattern = Topic("quotes.>")
        client.consumer(session, pattern, durable_name=name, none_or_more=none_or_more)
    told = await imq("list", "dur", "-d", "quotes.>")
    topics = [line.split(maxsplit=4)[-1] for line in told.splitlines() if "quotes.> " in f"{line} "]
    assert topics[-2:] == ["quotes.>", "quotes.> (none or more levels)"]
    await client.close()


@on_reactor
async def test_connections(imq: Live) -> None:
    inner = await imq.deployment.connect("link")
    inner.session(Mode.AUTO).send([text(Q, "x")])

    def connect() -> socket.socket:
        client = socket.create_connection((HOST, imq.stomp.ports["tcp"]), timeout=20)
        client.sendall(
            b"STOMP\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\nclient-id:me\n\n\0"
        )
        client.sendall(
            b"SUBSCRIBE\nid:1\nack:client\nselector:colour IS NULL\ndestination:/queue/orders\n\n\0"
        )
        answer = b""
        while b"MESSAGE" not in answer:
            answer += client.recv(4096)
        return client

    client = await deferToThread(connect)
    first, second = (await imq.json("list", "cxn"))["connections"]
    assert (first["user"], first["service"], first["sent"]) == ("link", "bridge", 1)
    assert (second["user"], second["service"], second["protocol"]) == (
        "guest",
        "stomp",
        "STOMP 1.2",
    )
    assert second["port"] == client.getsockname()[1]
    listed = await imq("list", "cxn")
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    moments = re.findall(moment, listed)
    # How long ago the client was heard is a matter of the machine's load.
    [heard] = re.findall(r"\d+ s ago", listed)
    dashes = "-" * 176
    assert listed == (
        "Listing all the connections on the broker specified by:\n"
        "\n"
        f"{imq.broker_table}"
        f"{dashes}\n"
        "Connection ID   User    Service   Producers   Consumers   Host        Client ID   Since                  Msgs In   "
        "Msgs Out   UnAck   Last Heard   Held By\n"
        f"{dashes}\n"
        f"1               link    bridge    1           0                                   {moments[0]}   1         0          0                    bridge shop, link one, source\n"
        f"2               guest   stomp     0           1           127.0.0.1   me          {moments[1]}   0         1          1       {heard}\n"
        "\n"
        "Successfully listed connections.\n"
    )
    only = await imq("list", "cxn", "-svn", "stomp")
    assert only.startswith(
        "Listing the connections of the service stomp on the broker specified by:\n"
    )
    assert "link" not in only
    queried = await imq("query", "cxn", "-n", "2")
    assert (
        "Connection ID         2\n"
        "User                  guest\n"
        "Service               stomp\n"
        "Producers             0\n"
        "Consumers             1\n"
        "Host                  127.0.0.1\n"
        f"Port                  {client.getsockname()[1]}\n"
        "Client ID             me\n"
        "Client Platform       STOMP 1.2\n"
        "\n"
        f"Session in the Log    {second['session']}\n"
        "Held by\n"
        f"Connected Since       {moments[1]}\n"
        "Messages In           0\n"
        "Messages Out          1\n"
        "Unacknowledged        1\n"
        f"Held Since            {re.findall(moment, queried)[1]}\n"
        f"Credit                {second['credit']}\n"
        f"Last Heard            {re.findall('[0-9]+ s ago', queried)[0]}\n"
        "Heart-Beat            none\n"
        "\n"
        "Subscriptions:\n"
    ) in queried
    assert re.search(
        r"^Destination +ID +Durable or Shared +Selector +Ack +Credit +UnAck +Held Since +Oldest\n"
        r"-+\n"
        rf"queue:orders +1 +colour IS NULL +client +[0-9]+ +1 +{moment} +{moment}\n"
        r"\n"
        r"Successfully queried the connection\.\n",
        queried,
        re.MULTILINE,
    )
    [subscription] = (await imq.json("query", "cxn", "-n", "2"))["subscriptions"]
    assert (subscription["id"], subscription["unacknowledged"]) == ("1", 1)
    assert (await imq("destroy", "cxn", "-n", "2", "-f")).endswith(
        "\nSuccessfully destroyed the connection.\n"
    )

    def read_to_the_end() -> bytes:
        with client:
            return b"".join(iter(lambda: client.recv(4096), b""))

    said = await deferToThread(read_to_the_end)
    assert said.startswith(b"ERROR\n")
    assert b"an administrator has ended the connection" in said
    assert [each["id"] for each in (await imq.json("list", "cxn"))["connections"]] == [1]
    assert (await imq.json("query", "dst", "-t", "q", "-n", "orders"))["messages"] == 1
    await inner.close()


# --- the broker


@on_reactor
async def test_a_broker_whose_database_cannot_be_reached_says_so_and_since_when(imq: Live) -> None:
    reachable = imq.deployment.store.on_reachable
    assert reachable is not None
    reachable(False)
    [line] = [line for line in (await imq("query", "bkr")).splitlines() if "can be Reached" in line]
    assert re.fullmatch(
        r"Message Store can be Reached +false since \d{4}-.*Z: nothing is confirmed or delivered",
        line,
    )
    assert await imq.json("list", "dst")
    reachable(True)
    assert (await imq.json("query", "bkr"))["unreachable_since_ms"] == 0


@pytest.mark.process
@on_reactor
async def test_the_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, capsys, BrokerOptions(name="myBroker", log_dead=True)) as imq:
        client = await imq.deployment.connect()
        client.session(Mode.AUTO).send([text(Q, "x"), text(Queue("mq.sys.dmq"), "y")])
        await settled_down(reactor)
        facts = await imq.json("query", "bkr")
        shown = await imq("query", "bkr")
        since = re.search(r"Running Since .* (\d{4}-.*Z \(\d\d:\d\d:\d\d\))", shown)
        assert since is not None
        assert shown == (
            "Querying the broker specified by:\n"
            "\n"
            f"{imq.broker_table}"
            f"Version                                              {__version__}\n"
            "Instance Name                                        myBroker\n"
            f"Broker ID                                            {imq.deployment.broker.store_id}\n"
            f"Primary Port                                         {imq.port}\n"
            "Broker is Embedded                                   false\n"
            "Instance Configuration/Data Root Directory           /var/imq\n"
            "Message Store                                        sqlite\n"
            f"Running Since                                        {since[1]}\n"
            "\n"
            "Current Number of Messages in System                 2\n"
            f"Current Total Message Bytes in System                {facts['octets']}\n"
            "Current Number of Destinations                       2\n"
            "Current Number of Durable Subscriptions              0\n"
            "Current Number of Connections                        1\n"
            "Messages Accepted Since the Start                    2\n"
            f"Memory of Waiting Messages                           {facts['memory_used']} of 67108864 bytes\n"
            "Persistent Messages are Refused                      false\n"
            "Message Store can be Reached                         true\n"
            "\n"
            "Current Number of Messages in Dead Message Queue     1\n"
            f"Current Total Message Bytes in Dead Message Queue    {facts['dead_octets']}\n"
            "Log Dead Messages                                    true\n"
            "Truncate Message Body in Dead Message Queue          false\n"
            "\n"
            "Max Number of Messages in System                     unlimited (-1)\n"
            "Max Total Message Bytes in System                    unlimited (-1)\n"
            "Max Message Size                                     70m\n"
            "\n"
            "Auto Create Queues                                   true\n"
            "Auto Create Topics                                   true\n"
            "Auto Created Queue Max Number of Active Consumers    unlimited (-1)\n"
            "Auto Created Queue Max Number of Backup Consumers    0\n"
            "\n"
            "Journal Level                                        links\n"
            "Journal Written Since the Start                      12 lines, 3456 bytes\n"
            "Journal Lines Lost                                   2\n"
            "Journal is Stopped                                   true: the disk takes nothing\n"
            "\n"
            "Successfully queried the broker.\n"
        )
        await client.close()


@on_reactor
async def test_names_that_clients_have_given_may_begin_with_a_dash(
    imq: Live, session: Session
) -> None:
    for name in ("-x", "--tmp-", "-5"):
        session.send([text(Queue(name), "a"), text(Queue(name), "b")])
        await completed(session)
        of_queue = ("-t", "q", "-n", name)
        assert (await imq.json("query", "dst", *of_queue))["messages"] == 2
        await imq("move", "msg", *of_queue, "-limit", "1", "-to", f"{name}2", "-f")
        assert (await imq.json("query", "dst", "-t", "q", "-n", f"{name}2"))["messages"] == 1
        await imq("purge", "dst", *of_queue, "-f")
        assert (await imq.json("query", "dst", *of_queue))["messages"] == 0
    # One that is an option needs the other form.
    session.send([text(Queue("-f"), "a")])
    await completed(session)
    await imq("destroy", "dst", "-t", "q", "-n=-f", "-f")
    assert "-n: expected one argument" in await imq("purge", "dst", "-n", "-t", "q", code=1)


# --- confirmation, silence, help


@pytest.mark.parametrize(
    ("command", "otherwise"),
    [
        (
            ("update", "dst", "-t", "q", "-n", "orders", "-o", "maxNumMsgs=1"),
            "The destination was not updated.",
        ),
        (("purge", "dst", "-t", "q", "-n", "orders"), "The destination was not purged."),
        (("destroy", "dst", "-t", "q", "-n", "orders"), "The destination was not destroyed."),
        (("destroy", "dur", "-n", "d", "-c", "me"), "The durable subscription was not destroyed."),
        (("destroy", "cxn", "-n", "1"), "The connection was not destroyed."),
    ],
)
@on_reactor
async def test_without_f_it_asks(
    imq: Live,
    command: tuple[str, ...],
    otherwise: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = await imq.deployment.connect(client_id="me")
    session = client.session()
    client.consumer(session, T, durable_name="d").consumer.close()
    session.send([text(Q, "x")])
    await completed(session)
    before = await imq.json("query", "bkr")
    for answer in ("n\n", "NO\n", "\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        assert (await imq(*command)).endswith(f"\n{otherwise}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("perhaps\n"))
    assert "the answer 'perhaps' is neither y nor n" in await imq(*command, code=1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "-f does it without asking" in await imq(*command, code=1)
    after = await imq.json("query", "bkr")
    assert {**after, "uptime_ms": 0} == {**before, "uptime_ms": 0}
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert "Successfully" in await imq(*command)
    await client.close()


@on_reactor
async def test_silence(imq: Live) -> None:
    assert await imq("create", "dst", "-t", "q", "-n", "orders", "-s") == ""
    assert await imq("list", "dst", "-s") == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "a subcommand is missing"),
        (
            ("make", "dst"),
            "there is no subcommand make; expected one of apply, bench, commit, completion, context, copy, create, delete, destroy, doctor, events, export, forget, list, move, pause, plan, purge, query, quiesce, reload, replay, resume, rollback, shutdown, takeover, update",
        ),
        (
            ("list",),
            "there is no list; expected list dst or msg or scheduled or dur or cxn or svc or txn or bkr",
        ),
        (
            ("list", "things"),
            "there is no list things; expected list dst or msg or scheduled or dur or cxn or svc or txn or bkr",
        ),
        (("create", "dst", "-n", "x"), "-t is missing: create dst needs -t and -n"),
        (("create", "dst", "-t", "q"), "-n is missing: create dst needs -t and -n"),
        (
            ("update", "dst", "-t", "q", "-n", "x"),
            "-o is missing: update dst needs -t and -n and -o",
        ),
        (("destroy", "dur", "-n", "x"), "-c is missing: destroy dur needs -n and -c"),
        (("query", "dst", "-t", "x", "-n", "y"), "-t x: expected q for a queue or t for a topic"),
        (
            ("create", "dst", "-t", "q", "-n", "x", "-o", "maxNumMsgs"),
            "-o maxNumMsgs: expected NAME=VALUE",
        ),
        (
            ("create", "dst", "-t", "q", "-n", "x", "-o", "a=1", "-o", "a=2"),
            "-o a=2: a is given twice",
        ),
        (
            ("purge", "dst", "-t", "q", "-n", "x", "-o", "a=1"),
            "-o a: purge dst and destroy dst have useDMQ only",
        ),
        (
            ("destroy", "dst", "-t", "q", "-n", "x", "-o", "useDMQ=maybe"),
            "-o useDMQ=maybe: expected true or false",
        ),
        (
            ("list", "msg", "-t", "t", "-n", "x"),
            "-t t: only the messages of queues can be looked at",
        ),
        (
            ("query", "msg", "-t", "q", "-n", "x"),
            "-msgID is missing: query msg needs -t and -n and -msgID",
        ),
        (("query", "bkr", "-n", "x"), "-n is not for query bkr"),
        (("takeover", "bkr"), "-n is missing: takeover bkr needs -n"),
        (("restart", "bkr"), "there is no restart bkr: restart its service"),
        (("list", "cxn", "-tmp"), "-tmp is not for list cxn"),
        (("list", "dst", "-x"), "there is no option -x"),
        (("query", "dst", "-t", "q", "-n", "\udcff"), "'\\udcff': expected text in UTF-8"),
        (("list", "dst", "-rtm", "soon"), "-rtm soon: expected a whole number, -1 or more"),
        (("list", "dst", "-p", "secret"), "-p is refused"),
        *(
            (tuple(command.split()), f"there is no {command}: {instead}")
            for command, instead in INSTEAD.items()
        ),
    ],
)
def test_a_wrong_command_line(
    arguments: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imqcmd.run(arguments) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith(f"imqcmd: Error: {error}")
    assert said.endswith("\nimqcmd -h says how it is used.\n")


@pytest.mark.parametrize("option", ["-h", "-help", "--help", "-H", "-Help", "-v", "-version"])
def test_help_and_version_win_over_everything(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imqcmd.run(["no", "sense", "-x", option]) == 0
    out, said = capsys.readouterr()
    assert said == ""
    if option.startswith("-v"):
        assert out == f"imqcmd {__version__} (stomp-gateway)\n"
    else:
        assert out.startswith("usage: imqcmd SUBCOMMAND ARGUMENT [options]\n")
        assert ("Examples:" in out) == (option in ("-H", "-Help"))
        for subcommand, argument in imqcmd._COMMANDS:
            words = rf"{subcommand} +{argument}" if argument else subcommand
            assert re.search(rf"^  {words}(?!\w)", out, re.MULTILINE)


@on_reactor
async def test_a_passfile_without_the_password(imq: Live, tmp_path: Path) -> None:
    (tmp_path / "passfile").write_text("imq.imqbridgemgr.password=x\n")
    said = await imq("list", "dst", code=1)
    assert said == f"imqcmd: Error: passfile {tmp_path / 'passfile'} has no imq.imqcmd.password\n"
    (tmp_path / "passfile").write_text("imq.imqcmd.password=wrong\n")
    assert await imq("list", "dst", code=1) == "imqcmd: Error: wrong user or password\n"


# --- the resources, as others may ask them


@on_reactor
async def test_names_with_slashes_and_blanks(imq: Live) -> None:
    for name in ("a//b c", "ä/../ö?x=1&y#z", "%2F"):
        await imq("create", "dst", "-t", "q", "-n", name)
        assert (await imq.json("query", "dst", "-t", "q", "-n", name))["name"] == name
        await imq("destroy", "dst", "-t", "q", "-n", name, "-f")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        (
            "GET",
            "/v1/destinations?type=x",
            {},
            409,
            "'x' is no type of a destination; expected queue or topic",
        ),
        (
            "GET",
            "/v1/destinations?temporary=maybe",
            {},
            400,
            "temporary is 'maybe'; expected true or false",
        ),
        ("GET", "/v1/destination?type=q", {}, 400, "name is missing"),
        (
            "POST",
            "/v1/destinations",
            {"type": "q", "name": "a", "properties": ["x"]},
            400,
            "properties are no texts by name",
        ),
        (
            "POST",
            "/v1/destinations",
            {"type": "q", "name": "a", "properties": {"maxNumMsgs": 1}},
            400,
            "properties are no texts",
        ),
        (
            "PUT",
            "/v1/destination",
            {"type": "queue", "name": "mq.sys.dmq"},
            409,
            "no property is given",
        ),
        ("DELETE", "/v1/connection", {}, 400, "id is 0; expected a whole number"),
        ("DELETE", "/v1/durable", {"name": "d"}, 400, "client_id is missing"),
    ],
)
@on_reactor
async def test_what_is_asked_wrongly(
    imq: Live, method: str, path: str, body: dict[str, Any], status: int, text: str
) -> None:
    port = imq.service.port
    reply = await (
        ask(port, method, path) if method == "GET" else post(port, path, method=method, **body)
    )
    assert reply.status == status
    assert text in reply.error[1]


@on_reactor
async def test_a_long_list_of_destinations_is_the_same_json_as_a_short_one(imq: Live) -> None:
    port = imq.service.port
    empty = await ask(port, "GET", "/v1/destinations?type=topic")
    assert empty.body == b'{"destinations": []}\n'
    broker = imq.deployment.broker
    for number in range(3000):
        broker.create(Topic(f"tö.{number}"))
    reply = await ask(port, "GET", "/v1/destinations?type=t")
    listed = reply.json["destinations"]
    assert [each["name"] for each in listed] == sorted(f"tö.{number}" for number in range(3000))
    assert reply.body == json.dumps({"destinations": listed}, ensure_ascii=False).encode() + b"\n"
    assert reply.headers["content-length"] == str(len(reply.body))
    assert reply.headers["content-type"] == "application/json"
    [one] = [each for each in listed if each["name"] == "tö.7"]
    assert one == (await ask(port, "GET", "/v1/destination?type=t&name=t%C3%B6.7")).json


@on_reactor
async def test_who_goes_away_while_a_long_list_is_written_harms_nobody(imq: Live) -> None:
    for number in range(3000):
        imq.deployment.broker.create(Topic(f"t.{number}"))
    port = imq.service.port

    def leave() -> bytes:
        with socket.create_connection((HOST, port), 20) as impatient:
            who = "".join(f"{name}: {value}\r\n" for name, value in basic(*ADMIN).items())
            impatient.sendall(f"GET /v1/destinations HTTP/1.1\r\nHost: x\r\n{who}\r\n".encode())
            return impatient.recv(100)

    assert (await deferToThread(leave)).startswith(b"HTTP/1.1 200 ")
    assert len((await ask(port, "GET", "/v1/destinations?type=t")).json["destinations"]) == 3000


@pytest.mark.process
@pytest.mark.parametrize("words", [["-H"], ["events", "-h"], ["completion", "bash"]])
def test_output_that_cannot_be_written_is_an_error_and_no_traceback(words: list[str]) -> None:
    program = "from gateway.admin.cli.imqcmd import main; main()"
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "-c: Error: cannot write the output: No space left on device\n"
