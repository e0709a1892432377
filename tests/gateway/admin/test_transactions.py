"""Transactions of bridges by ``imqbridgemgr`` against a live gateway that finds some in the logs of
earlier runs: tables whole, orders, errors, metrics.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.xa.decision_log import Entry, LoggedBranch
from bridge.xa.log.file import FileStorage, LogFile
from bridge.xa.status import BranchState
from bridge.xa.xids import Xids, bqual
from gateway.admin.cli.client import find
from gateway.instance import passfile
from tests.gateway.admin.live import Live, send, take, wait
from tests.gateway_process import HOST, INSTANCE

pytestmark = pytest.mark.process

#: Its transactions are of an earlier run, whose file had a factory ``gone`` besides.
DOUBT = """\
<jmsbridge name="doubt">
  <connection-factory ref-name="here"/>
</jmsbridge>
"""
WHOLE = """\
<jmsbridge name="whole">
  <link name="by-xa">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <link name="by-memory">
    <source connection-factory-ref="by-stomp" destination-ref="in2"/>
    <target connection-factory-ref="here" destination-ref="out2"/>
  </link>
  <link name="plain" transacted="false">
    <source connection-factory-ref="here" destination-ref="in3"/>
    <target connection-factory-ref="here" destination-ref="out3"/>
  </link>
  <link name="away">
    <source connection-factory-ref="there" destination-ref="in4"/>
    <target connection-factory-ref="here" destination-ref="out4"/>
  </link>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="by-stomp" lookup-name="stomp://127.0.0.1:{stomp}" username="guest" password="guest"/>
  <connection-factory ref-name="there" lookup-name="stomp://127.0.0.1:{port}"/>
  <destination ref-name="in" name="in"/>
  <destination ref-name="out" name="out"/>
  <destination ref-name="in2" name="in2"/>
  <destination ref-name="out2" name="out2"/>
  <destination ref-name="in3" name="in3"/>
  <destination ref-name="out3" name="out3"/>
  <destination ref-name="in4" name="in4"/>
  <destination ref-name="out4" name="out4"/>
</jmsbridge>
"""
FILES = {"doubt": DOUBT, "more": DOUBT.replace("doubt", "more"), "whole": WHOLE}

HOUR_MS = 3_600_000
#: The ids of what :func:`prepare` writes.
WAITING, HEURISTIC, SECOND = "1000000000001", "1000000000002", "1000000000003"


def prepare(instance: Path) -> None:
    """Leave what earlier runs left: two decided transactions that wait for a factory that is
    configured no more, and one that is heuristic.
    """
    for bridge, age_ms in (("doubt", 2 * HOUR_MS), ("more", 26 * HOUR_MS)):
        folder = instance / "bridges" / bridge
        folder.mkdir(parents=True)
        log = LogFile(
            FileStorage(folder / f"txlog.{bridge}"),
            f"{INSTANCE}:{bridge}",
            1_024_000,
            True,
            os.urandom,
        )
        xids = Xids(f"{INSTANCE}:{bridge}", log.header.identity, log.header.generation)
        since_ms = int(time.time() * 1000) - age_ms
        entries = [
            _entry(xids, since_ms, ("here", BranchState.COMMITTED), ("gone", BranchState.WAITING)),
            _entry(
                xids,
                since_ms,
                ("here", BranchState.COMMITTED),
                ("gone", BranchState.HEURISTIC_ROLLBACK),
            ),
            _entry(xids, since_ms, ("gone", BranchState.WAITING), ("lost", BranchState.WAITING)),
        ]
        log.write(entries, True)
        log.close()


def _entry(xids: Xids, since_ms: int, *branches: tuple[str, BranchState]) -> Entry:
    _, gtrid = xids.next()
    logged = [
        LoggedBranch(bqual(name, number + 1), name, f"rm:{name}", state)
        for number, (name, state) in enumerate(branches)
    ]
    return Entry(gtrid, since_ms, True, False, tuple(logged))


def which(bridge: str, live: Live) -> str:
    return (
        f"{'-' * 11}\nBridge Name\n{'-' * 11}\n{bridge}\n\nOn the broker specified by:\n\n"
        + live.broker_table
    )


def masked(text: str) -> str:
    """Ages come and go."""
    return re.sub(r"\b(2:00|1 d 02:00|02:00):\d\d\b", r"\1:00", text)


def transactions(live: Live, bridge: str) -> list[Any]:
    found: list[Any] = live.json("list", "transactions", "-bn", bridge)["transactions"]
    return found


TABLE = """\
-----------------------------------------------------------------------------------------------------------------
Transaction ID   State       Age        Decision   Branches
-----------------------------------------------------------------------------------------------------------------
1000000000001    WAITING     02:00:00   COMMIT     here: COMMITTED, gone (not configured): WAITING
1000000000002    HEURISTIC   02:00:00   COMMIT     here: COMMITTED, gone (not configured): HEURISTIC_ROLLBACK
1000000000003    WAITING     02:00:00   COMMIT     gone (not configured): WAITING, lost (not configured): WAITING
"""


def test_list_transactions(live: Live) -> None:
    shown = masked(live("list", "transactions", "-bn", "doubt"))
    head = "Listing the transactions of the bridge:\n\n" + which("doubt", live)
    assert shown.startswith(head)
    rows = shown.removeprefix(head)
    assert rows == TABLE + "\nSuccessfully listed transactions.\n", rows


def test_debug_shows_ids_and_the_original_s_one_line(live: Live) -> None:
    shown = live("list", "transactions", "-bn", "doubt", "-debug")
    lines = shown.split("\n\n")[-2].splitlines()
    [first, *_] = transactions(live, "doubt")
    (gtrid,) = {branch["xid"].split(":")[1] for branch in first["branches"]}
    assert re.fullmatch(rf"{WAITING} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ", lines[0])
    assert lines[1:4] == [
        f"    {gtrid}(COMMIT)[0468657265" + "01(COMMIT), 04676f6e6502(WAITING)]",
        f"    here, rm:here: 1246580992:{gtrid}:046865726501",
        f"    gone (not configured), rm:gone: 1246580992:{gtrid}:04676f6e6502",
    ]


def test_json_has_every_field(live: Live) -> None:
    answer = live.json("list", "transactions", "-bn", "doubt")
    assert (answer["bridge"], answer["state"]) == ("doubt", "STARTED")
    [first, second, third] = answer["transactions"]
    assert [each["id"] for each in (first, second, third)] == [WAITING, HEURISTIC, SECOND]
    assert set(first) == {"id", "state", "decision", "since_ms", "age_ms", "branches", "text"}
    assert 2 * HOUR_MS <= first["age_ms"] < 2 * HOUR_MS + 600_000
    assert [
        (each["ref_name"], each["rm"], each["state"], each["configured"])
        for each in first["branches"]
    ] == [
        ("here", "rm:here", "COMMITTED", True),
        ("gone", "rm:gone", "WAITING", False),
    ]


def test_a_bridge_says_that_some_call_for_somebody(live: Live) -> None:
    line = "Transactions of bridge doubt: 2 waiting, 1 heuristic. See: imqbridgemgr list transactions -bn doubt\n"
    for arguments in (
        ["list", "bridge"],
        ["list", "bridge", "-bn", "doubt"],
        ["list", "link", "-bn", "doubt"],
        ["query", "link", "-bn", "doubt"],
    ):
        assert line in live(*arguments), arguments
    assert live.json("list", "bridge", "-bn", "doubt")["transactions"] == {
        "waiting": 2,
        "heuristic": 1,
    }
    assert f"{line}\nSuccessfully listed" in live("list", "bridge", "-bn", "doubt")
    assert "Transactions of" not in live("list", "bridge", "-bn", "whole")


def test_the_log_warns_of_them(live: Live) -> None:
    log = live.gateway.directory / "bridges" / "doubt"

    def text() -> str:
        return "".join(path.read_text() for path in log.glob("*.log"))

    wait(lambda: f"Transaction {SECOND} waits for 'gone', 'lost': it is decided" in text())
    assert f"Transaction {WAITING} waits for 'gone': it is decided" in text()
    assert (
        f"Transaction {HEURISTIC} is heuristic: 'here' COMMITTED, 'gone' HEURISTIC_ROLLBACK; "
        in text()
    )
    assert f"imqbridgemgr commit transaction -bn doubt -tid {WAITING}\n" in text()
    # The heuristic one, too.
    assert "3 transactions of an earlier run wait for 'gone'" in text()


def test_metrics(live: Live) -> None:
    families = scraped(live)
    states = {
        sample.labels["state"]: sample.value
        for sample in families["stomp_gateway_bridge_transactions"].samples
        if sample.labels["bridge"] == "doubt"
    }
    assert states == {
        "ACTIVE": 0,
        "PREPARING": 0,
        "DECIDING": 0,
        "COMMITTING": 0,
        "ROLLING_BACK": 0,
        "WAITING": 2,
        "IN_DOUBT": 0,
        "HEURISTIC": 1,
        "FORGETTING": 0,
    }
    assert (
        value(families, "stomp_gateway_bridge_transactions_oldest_waiting_seconds", bridge="doubt")
        >= 7200
    )
    assert (
        value(families, "stomp_gateway_bridge_transactions_oldest_waiting_seconds", bridge="whole")
        == 0
    )
    # That of an earlier run was counted then.
    assert value(families, "stomp_gateway_bridge_transactions_heuristic", bridge="doubt") == 0
    assert value(families, "stomp_gateway_bridge_transactions_rolled_back", bridge="doubt") == 0
    assert value(families, "stomp_gateway_bridge_transactions_outcome_unknown", bridge="doubt") == 0
    before = value(families, "stomp_gateway_bridge_transactions_committed", bridge="whole")
    send(live, "in", "counted")
    assert take(live, "out") == ["counted"]
    wait(
        lambda: (
            value(scraped(live), "stomp_gateway_bridge_transactions_committed", bridge="whole")
            == before + 1
        )
    )


def scraped(live: Live) -> dict[str, Any]:
    address = find(HOST, live.gateway.port_mapper_port)
    password = passfile.read(live.gateway.directory / "etc" / "passfile")[
        "imq.imqbridgemgr.password"
    ]
    request = urllib.request.Request(
        f"http://{address.host}:{address.port}/metrics",
        headers={"Authorization": "Basic " + b64encode(f"admin:{password}".encode()).decode()},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return {
            family.name: family
            for family in text_string_to_metric_families(response.read().decode())
        }


def value(families: dict[str, Any], family: str, **labels: str) -> float:
    [found] = [sample.value for sample in families[family].samples if sample.labels == labels]
    return float(found)


# --- links


def test_a_transacted_link_says_by_what_and_what_is_under_way(live: Live) -> None:
    wait(
        lambda: (
            live.json("query", "link", "-bn", "whole", "-ln", "by-xa")["transaction_state"]
            == "ACTIVE"
        )
    )
    [active] = transactions(live, "whole")
    assert (active["state"], active["decision"]) == ("ACTIVE", "")
    assert [
        (branch["ref_name"], branch["state"], branch["configured"]) for branch in active["branches"]
    ] == [("here", "ACTIVE", True)]
    shown = live("query", "link", "-bn", "whole", "-ln", "by-xa")
    assert (
        "Quality of Service       ONCE_AND_ONLY_ONCE\n"
        "Once and Only Once       by an XA transaction of source and target\n"
        f"Transaction              {active['id']} is ACTIVE\n"
        "\n"
    ) in shown
    by_memory = live.json("query", "link", "-bn", "whole", "-ln", "by-memory")
    assert (by_memory["state"], by_memory["once_by"], by_memory["transaction"]) == (
        "STARTED",
        "DUPLICATE_IDS",
        "",
    )
    shown = live("query", "link", "-bn", "whole", "-ln", "by-memory")
    assert "Once and Only Once       by duplicate ids, which the target remembers\n\n" in shown
    plain = live.json("query", "link", "-bn", "whole", "-ln", "plain")
    assert (plain["once_by"], plain["transaction"], plain["transaction_state"]) == (None, "", "")
    assert "Once and Only Once" not in live("query", "link", "-bn", "whole", "-ln", "plain")
    live("stop", "link", "-bn", "whole", "-ln", "by-xa", "-f")
    try:
        assert live.json("query", "link", "-bn", "whole", "-ln", "by-xa")["once_by"] is None
        assert transactions(live, "whole") == []
        shown = live("list", "transactions", "-bn", "whole")
        none = "Bridge whole has no transactions: none is under way, waits or is heuristic.\n\nSuccessfully listed transactions.\n"
        assert shown == "Listing the transactions of the bridge:\n\n" + which("whole", live) + none
        assert "Once and Only Once       known when it has connected\n\n" in live(
            "query", "link", "-bn", "whole", "-ln", "by-xa"
        )
    finally:
        live("start", "link", "-bn", "whole", "-ln", "by-xa", "-f")


def test_debug_of_a_transacted_link_shows_the_original_s_table(live: Live) -> None:
    wait(
        lambda: (
            live.json("query", "link", "-bn", "whole", "-ln", "by-xa")["transaction_state"]
            == "ACTIVE"
        )
    )
    shown = live("list", "link", "-bn", "whole", "-ln", "by-xa", "-debug")
    [active] = transactions(live, "whole")
    assert re.fullmatch(r"[0-9a-f]+\(ACTIVE\)\[046865726501\(ACTIVE\)\]", active["text"])
    dashes = "-" * len(active["text"])
    assert (
        f"{dashes}\nTRANSACTIONS\n{dashes}\n{active['text']}\n\nSuccessfully listed links.\n"
        in shown
    )
    records = live.json("list", "link", "-bn", "whole", "-ln", "by-xa", "-debug")[
        "transaction_records"
    ]
    assert [each["text"] for each in records] == [active["text"]]
    assert "TRANSACTIONS" not in live("list", "link", "-bn", "whole", "-ln", "plain", "-debug")


# --- orders


def ordering(doing: str, id: str, live: Live) -> str:
    return (
        f"{doing} the transaction:\n"
        "\n"
        "-----------------------------\n"
        "Bridge Name    Transaction ID\n"
        "-----------------------------\n"
        f"more           {id}\n"
        "\n"
        "On the broker specified by:\n"
        "\n" + live.broker_table
    )


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_orders_are_confirmed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [each["id"] for each in transactions(live, "doubt")]
    for order, doing, done, meaning in (
        (
            "commit",
            "Committing",
            "committed",
            "Its branches that wait are taken for committed, and are waited for no longer.",
        ),
        (
            "rollback",
            "Rolling back",
            "rolled back",
            "Its branches that wait are rolled back, against the decision: what it moved is lost or doubled.",
        ),
        (
            "forget",
            "Forgetting",
            "forgotten",
            "Nobody will know any more that it did not end as it was decided.",
        ),
    ):
        answering(monkeypatch, "n\n")
        shown = live(order, "transaction", "-bn", "more", "-tid", WAITING)
        assert (
            shown
            == ordering(doing, WAITING, live) + f"{meaning}\n\n\nThe transaction was not {done}.\n"
        )
        answering(monkeypatch, "")
        assert "-f does it without asking" in live(
            order, "transaction", "-bn", "more", "-tid", WAITING, code=1
        )
    assert [each["id"] for each in transactions(live, "doubt")] == before


def test_a_waiting_one_is_taken_for_committed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "y\n")
    shown = live("commit", "transaction", "-bn", "more", "-tid", WAITING)
    meaning = "Its branches that wait are taken for committed, and are waited for no longer."
    assert (
        shown
        == ordering("Committing", WAITING, live)
        + f"{meaning}\n\n\nSuccessfully committed the transaction.\n"
    )
    assert WAITING not in [each["id"] for each in transactions(live, "more")]
    told = live("commit", "transaction", "-bn", "more", "-tid", WAITING, "-f", code=1)
    assert told == f"imqbridgemgr: Error: there is no transaction '{WAITING}'\n"
    families = scraped(live)
    assert value(families, "stomp_gateway_bridge_transactions_committed", bridge="more") == 1


def test_a_heuristic_one_is_forgotten(live: Live) -> None:
    told = live("commit", "transaction", "-bn", "more", "-tid", HEURISTIC, "-f", code=1)
    assert told == (
        f"imqbridgemgr: Error: cannot commit transaction {HEURISTIC}, which is HEURISTIC: only one that is WAITING can be taken for committed\n"
    )
    shown = live("forget", "transaction", "-bn", "more", "-tid", HEURISTIC, "-f")
    waits = (
        f"Transaction {HEURISTIC} is FORGETTING (here: COMMITTED, gone (not configured): HEURISTIC_ROLLBACK); "
        "it is forgotten here as soon as its resource managers have been told; ordered once more, at once.\n"
    )
    assert shown.endswith(waits), shown
    answer = live.json("forget", "transaction", "-bn", "more", "-tid", HEURISTIC, "-f")
    assert answer == {"bridge": "more", "id": HEURISTIC, "operation": "forget", "transaction": None}


def test_a_waiting_one_is_ordered_to_roll_back(live: Live) -> None:
    told = live("forget", "transaction", "-bn", "more", "-tid", SECOND, "-f", code=1)
    assert told == (
        f"imqbridgemgr: Error: cannot forget transaction {SECOND}, which is WAITING: only one that is HEURISTIC can be forgotten; "
        "for one that is WAITING there are commit and rollback\n"
    )
    shown = live("rollback", "transaction", "-bn", "more", "-tid", SECOND.upper().zfill(16), "-f")
    waits = (
        f"Transaction {SECOND} is WAITING (gone (not configured): ROLLBACK_ORDERED, lost (not configured): ROLLBACK_ORDERED); "
        "it is completed as soon as these resource managers are there.\n"
    )
    assert shown.endswith(waits), shown
    error = json.loads(
        live("rollback", "transaction", "-bn", "more", "-tid", SECOND, "-f", "--json", code=1)
    )["error"]
    assert error == {
        "text": f"cannot rollback transaction {SECOND}, which is WAITING: its branches are ordered to roll back already",
        "code": "wrong_state",
    }


def test_what_was_ordered_survives_a_stop_of_the_bridge(live: Live) -> None:
    before = [(each["id"], each["state"]) for each in transactions(live, "more")]
    live("stop", "bridge", "-bn", "more", "-f")
    try:
        shown = live("list", "transactions", "-bn", "more")
        assert shown.endswith(
            "Bridge more is STOPPED, and its transaction log is read when it starts.\n\nSuccessfully listed transactions.\n"
        )
        assert live.json("list", "transactions", "-bn", "more")["state"] == "STOPPED"
        told = live("commit", "transaction", "-bn", "more", "-tid", SECOND, "-f", code=1)
        assert told == (
            f"imqbridgemgr: Error: cannot commit transaction {SECOND}: bridge more is STOPPED, and its transaction log is read when it starts\n"
        )
    finally:
        live("start", "bridge", "-bn", "more", "-f")
    assert [(each["id"], each["state"]) for each in transactions(live, "more")] == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["list", "transactions", "-bn", "nope"],
            "Error [BB4006]: there is no bridge nope; those that there are: stomp, doubt, more, whole",
        ),
        (
            ["list", "transactions", "-bn", "stomp"],
            "Error [BSS4000]: bridge stomp is of type STOMP, which has no transactions to list",
        ),
        (
            ["commit", "transaction", "-bn", "doubt", "-tid", "42", "-f"],
            "Error: there is no transaction '42'",
        ),
        (
            ["list", "transactions"],
            "Error [BA3000]: the name of the bridge is missing: give -bn for list transactions",
        ),
        (
            ["forget", "transaction", "-tid", "1"],
            "Error [BA3000]: the name of the bridge is missing: give -bn for forget transaction",
        ),
        (
            ["rollback", "transaction", "-bn", "doubt"],
            "Error: the transaction is missing: give -tid for rollback transaction; list transactions has the ids",
        ),
        (
            ["list", "bridge", "-tid", "1"],
            "Error: -tid is not for list bridge, but for commit transaction, rollback transaction, forget transaction",
        ),
        (["commit", "link"], "Error: there is no commit link; expected commit transaction"),
        (
            ["list", "transaction"],
            "Error: there is no list transaction; expected list bridge or link or dead or transactions",
        ),
    ],
)
def test_errors(live: Live, arguments: Sequence[str], text: str) -> None:
    told = live(*arguments, code=1)
    assert told.splitlines()[0].startswith(f"imqbridgemgr: {text}"), told


def test_silent_says_nothing(live: Live) -> None:
    assert live("list", "transactions", "-bn", "doubt", "-s") == ""
