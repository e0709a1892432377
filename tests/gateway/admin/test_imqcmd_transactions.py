"""``imqcmd`` about prepared branches of XA transactions: against a broker that has some, and
against a gateway as a process.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bridge.xa.xids import Xids, bqual
from gateway.admin.cli import imqcmd
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Flags, Vote, Xid
from tests.gateway.admin.administered import Live
from tests.gateway.broker.brokers import text
from tests.gateway_process import HOST, GatewayProcess
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

Q = Queue("orders")
#: Of nobody that we know.
FOREIGN = Xid(0x5354, b"global 1", b"branch")
FOREIGN_ID = "5354.676c6f62616c2031.6272616e6368"
#: Of the coordinator of the bridge ``shop``.
_UNIQUE, _GTRID = Xids("imqbroker:shop", b"identity", 1).next()
OURS = Xid(1246580992, _GTRID, bqual("here", 1))
OURS_ID = f"4a4d5100.{_GTRID.hex()}.{OURS.bqual.hex()}"


async def prepared(imq: Live, xid: Xid, *bodies: str) -> None:
    """A branch that has sent these, and waits for its coordinator."""
    client = await imq.deployment.connect()
    session = client.connection.xa_session()
    resource = session.resource()
    await resource.start(xid, Flags.NOFLAGS)
    session.send([text(Q, body) for body in bodies])
    await resource.end(xid, Flags.SUCCESS)
    assert await resource.prepare(xid) is Vote.OK
    client.connection.close()


def masked(text: str) -> str:
    return re.sub(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ",
        "WHEN                ",
        re.sub(r"\b00:00:\d\d\b", "00:00:00", text),
    )


def which(imq: Live, id: str) -> str:
    dashes = "-" * max(len(id), len("Transaction ID"))
    return f"{dashes}\nTransaction ID\n{dashes}\n{id}\n\nOn the broker specified by:\n\n{imq.broker_table}"


@on_reactor
async def test_a_branch_is_listed_queried_committed_and_forgotten(imq: Live) -> None:
    head = (
        "Listing all the prepared transactions on the broker specified by:\n\n" + imq.broker_table
    )
    assert (
        await imq("list", "txn")
        == f"{head}There are no prepared transactions.\n\nSuccessfully listed transactions.\n"
    )
    await prepared(imq, FOREIGN, "1", "2")
    assert masked(await imq("list", "txn")) == (
        f"{head}"
        "-----------------------------------------------------------------------------------------------------------\n"
        "Transaction ID                       State      User name   # Msgs/# Acks   Creation time          Age\n"
        "-----------------------------------------------------------------------------------------------------------\n"
        f"{FOREIGN_ID}   PREPARED   guest       2/0             WHEN                   00:00:00\n"
        "\n"
        "Successfully listed transactions.\n"
    )
    assert masked(await imq("query", "txn", "-n", FOREIGN_ID)) == (
        f"Querying the transaction where:\n\n{which(imq, FOREIGN_ID)}"
        f"Transaction ID               {FOREIGN_ID}\n"
        "State                        PREPARED\n"
        "User name                    guest\n"
        "Creation time                WHEN                \n"
        "Age                          00:00:00\n"
        "Number of messages           2\n"
        "Number of acknowledgments    0\n"
        "\n"
        "Successfully queried the transaction.\n"
    )
    told = await imq("forget", "txn", "-n", FOREIGN_ID, "-f", code=1)
    assert told == (
        f"imqcmd: Error: branch {FOREIGN_ID} is prepared: its coordinator may still end it; commit it or roll it back first\n"
    )
    assert await imq("commit", "txn", "-n", FOREIGN_ID, "-f") == (
        f"Committing the transaction where:\n\n{which(imq, FOREIGN_ID)}\nSuccessfully committed the transaction.\n"
    )
    assert (await imq.json("query", "dst", "-t", "q", "-n", "orders"))["messages"] == 2
    [left] = (await imq.json("list", "txn"))["branches"]
    assert (left["xid"], left["state"], left["coordinator"], left["transaction"]) == (
        FOREIGN_ID,
        "HEURISTIC_COMMIT",
        "",
        "",
    )
    told = await imq("rollback", "txn", "-n", FOREIGN_ID, "-f", code=1)
    assert (
        told
        == f"imqcmd: Error: branch {FOREIGN_ID} is completed already; it waits to be forgotten\n"
    )
    assert await imq("forget", "txn", "-n", FOREIGN_ID, "-f") == (
        f"Forgetting the transaction where:\n\n{which(imq, FOREIGN_ID)}\nSuccessfully forgotten the transaction.\n"
    )
    assert (await imq.json("list", "txn"))["branches"] == []


@on_reactor
async def test_a_bridge_s_branch_says_which_transaction_it_is_of(imq: Live) -> None:
    await prepared(imq, OURS, "1")
    found = await imq.json("query", "txn", "-n", OURS_ID)
    assert (found["coordinator"], found["transaction"], found["ref_name"]) == (
        "imqbroker:shop",
        _UNIQUE.id,
        "here",
    )
    shown = await imq("query", "txn", "-n", OURS_ID)
    assert (
        "Coordinator                       imqbroker:shop\n"
        "Transaction of the Coordinator    1000000000001\n"
        "Connection Factory                here\n"
    ) in shown
    assert await imq("rollback", "txn", "-n", OURS_ID, "-f") == (
        f"Rolling back the transaction where:\n\n{which(imq, OURS_ID)}\nSuccessfully rolled back the transaction.\n"
    )
    assert (await imq.json("query", "txn", "-n", OURS_ID))["state"] == "HEURISTIC_ROLLBACK"


@on_reactor
async def test_errors(imq: Live) -> None:
    for arguments, told in (
        (("query", "txn", "-n", "1.2.3"), "Error: there is no prepared transaction 1.2.3"),
        (("commit", "txn", "-n", "1.2.3", "-f"), "Error: there is no prepared branch 1.2.3"),
        (("rollback", "txn"), "Error: -n is missing: rollback txn needs -n"),
        (("list", "txn", "-n", "1"), "Error: -n is not for list txn"),
        (("commit", "dst"), "Error: there is no commit dst; expected commit txn"),
    ):
        assert (await imq(*arguments, code=1)).splitlines()[0] == f"imqcmd: {told}"


def test_a_gateway_tells_of_its_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with GatewayProcess(tmp_path) as gateway:
        passfile = str(gateway.directory / "etc" / "passfile")
        options = ["-b", f"{HOST}:{gateway.port_mapper_port}", "-u", "admin", "-passfile", passfile]
        assert imqcmd.run(["list", "txn", "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out) == {"branches": []}
        assert imqcmd.run(["commit", "txn", "-n", "1.2.3", "-f", *options]) == 1
        assert capsys.readouterr().err == "imqcmd: Error: there is no prepared branch 1.2.3\n"
