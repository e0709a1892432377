"""What is shown of answers, character by character, where a live gateway would not show every
case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rich.console import Console

from bridge.config.changes import Changes
from bridge.connections.connections import PoolStatus, SharedStatus
from gateway.admin.cli.render import broker_table, moment, table
from gateway.admin.cli.render_bridges import (
    changes_lines,
    dead_messages,
    dmqs_table,
    lag,
    pools_table,
    shared_table,
    tally_lines,
    transactions_table,
)
from gateway.admin.cli.watch import view
from gateway.admin.service.requests import plain
from tests.documented_blocks import shown


def as_answered(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], plain(value))


def test_table_d() -> None:
    pools = [
        PoolStatus("theFactory", False, 2, 10, 1800, -1, 5),
        PoolStatus("b", True, 0, 1, 0, 3, 5),
    ]
    assert pools_table([as_answered(pool) for pool in pools]) == (
        "------------------------------------------------------------------------\n"
        "     Pooled          XA     In-Use   Idle    Idle       Max      Retry\n"
        "ConnectionFactory                           Timeout   Retries   Interval\n"
        "------------------------------------------------------------------------\n"
        "   theFactory       false     2       10     1800       -1         5\n"
        "        b           true      0       1        0         3         5\n"
    )


def test_table_e() -> None:
    assert shared_table([as_answered(SharedStatus("theFactory", True, 3, 0, 10, 5))]) == (
        "---------------------------------------------------------------\n"
        "     Shared          XA     Ref     Idle       Max      Retry\n"
        "ConnectionFactory          Count   Timeout   Retries   Interval\n"
        "---------------------------------------------------------------\n"
        "   theFactory       true     3        0        10         5\n"
    )


def test_dead_message_queues() -> None:
    queue = {
        "name": "dmq1",
        "destination": "queue:x",
        "enabled": False,
        "failed": False,
        "kind": None,
        "sent": 1,
        "not_taken": 2,
        "failed_attempts": 6,
        "last_error": "no\nroute",
    }
    assert dmqs_table([queue]) == (
        "------------------------------------------------------------------------------------\n"
        "Dead Message   Destination          Connection   Sent   Not     Failed     Last\n"
        "Queue                               Kind                Taken   Attempts   Error\n"
        "------------------------------------------------------------------------------------\n"
        "dmq1           queue:x (disabled)                1      2       6          no\\nroute\n"
    )


def test_changes() -> None:
    changes = Changes(
        added=("a", "b"),
        removed=("c",),
        connection_factories=("cf",),
        dmqs=True,
        log_message_transfer=True,
    )
    assert changes_lines({"changed": True, "changes": as_answered(changes)}) == [
        "Links added: a, b",
        "Links removed: c",
        "Connection factories that differ: cf",
        "The dead message queues changed.",
        "log-message-transfer changed.",
        "",
    ]
    assert changes_lines({"changed": False, "changes": as_answered(Changes(unchanged=("a",)))}) == [
        "Nothing has changed.",
        "",
    ]


def test_what_became_of_dead_messages() -> None:
    answer = {
        "matched": 9,
        "done": 4,
        "left": 3,
        "gone": 2,
        "reasons": {"no envelope": 3},
        "dry_run": False,
    }
    assert tally_lines(answer, "replayed") == [
        "Messages matched: 9",
        "Messages replayed: 4",
        "Messages left in the queue: 3",
        "    3 times: no envelope",
        "Messages that somebody else took meanwhile: 2",
        "",
    ]


def test_a_message_that_is_no_envelope() -> None:
    message = {
        "message_id": "ID:1",
        "reason": None,
        "dead_since_ms": None,
        "timestamp_ms": 1_700_000_000_000,
        "source": None,
        "source_message_id": None,
        "target": None,
        "original": None,
        "exception": None,
        "problem": "its body is no envelope",
        "properties": {"colour": "red\nblue", "bell": "\x07\x1b[2J"},
    }
    assert dead_messages([message], True) == (
        "-----------------------------------------------------------------------------------------------------\n"
        "Message ID   Reason    Dead Since             Source   Target   Original          Original Message ID\n"
        "-----------------------------------------------------------------------------------------------------\n"
        "ID:1         unknown   2023-11-14 22:13:20Z                     not an envelope\n"
        "\n"
        "ID:1\n"
        "    problem: its body is no envelope\n"
        "    colour: red blue\n"
        "    bell: \\x07\\x1b[2J\n"
    )


def test_watch_shows_the_last_error_of_a_link_only_while_it_is_not_started() -> None:
    link = {
        "name": "one",
        "state": "STARTED",
        "received_rate": 0.0,
        "sent_rate": 0.0,
        "in_flight": 0,
        "lag_ms": -1,
        "next_try_ms": 0,
        "last_error": "it was gone",
        "last_error_ms": 1_700_000_000_000,
        "counters": {"received": 0, "sent": 0, "dead": {}},
    }

    def seen(**more: object) -> str:
        console = Console(width=120)
        with console.capture() as captured:
            console.print(
                view(
                    {"type": "JMS", "name": "pump", "state": "STARTED", "links": [{**link, **more}]}
                )
            )
        return captured.get()

    assert "it was gone" not in seen()
    assert "one, 2023-11-14 22:13:20Z: it was gone\n" in seen(state="RETRYING")


def test_the_lag_is_an_age_or_else_how_many_wait_or_else_unknown() -> None:
    assert lag({"lag_ms": 604_321, "waiting": 10}) == "604.321 s"
    assert lag({"lag_ms": 0, "waiting": 0}) == "0.000 s"
    assert lag({"lag_ms": -1, "waiting": 10}) == "unknown (10 wait)"
    assert lag({"lag_ms": -1, "waiting": -1}) == ""


def test_moments() -> None:
    assert (moment(0), moment(0, ""), moment(1_700_000_000_000)) == (
        "never",
        "",
        "2023-11-14 22:13:20Z",
    )
    assert moment(10**18) == "1000000000000000000 ms"


def test_the_broker_table_is_that_of_open_mq() -> None:
    assert broker_table("localhost", 7676) == (
        "-------------------------\nHost         Primary Port\n-------------------------\nlocalhost    7676\n"
    )


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(("A", "Long title", "C"), [("wider", 1, ""), ("", "", "x")], 3) == (
        "----------------------\nA       Long title   C\n----------------------\nwider   1\n                     x\n"
    )


def test_centred_with_titles_of_two_lines() -> None:
    assert table((("Pooled", "ConnectionFactory"), "XA"), [("cf", "false")], 3, centred=True) == (
        "-------------------------\n"
        "     Pooled          XA\n"
        "ConnectionFactory\n"
        "-------------------------\n"
        "       cf           false\n"
    )


def test_what_is_not_printable_is_escaped() -> None:
    assert table(("Name",), [("a\x1b[31m\nb",)]).splitlines()[-1] == r"a\x1b[31m\nb"


def test_why_a_branch_waits_is_said_where_it_is_known() -> None:
    branch = {
        "ref_name": "there",
        "configured": True,
        "state": "WAITING",
        "reason": "not known at the broker asked last",
    }
    shown = transactions_table(
        [
            {
                "id": "1",
                "state": "WAITING",
                "age_ms": 1000,
                "decision": "COMMIT",
                "branches": [branch, branch | {"reason": ""}],
            }
        ]
    )
    assert "there: WAITING (not known at the broker asked last), there: WAITING\n" in shown


def test_the_page_has_transactions_as_they_are_shown() -> None:
    minute = 60_000

    def branch(name: str, state: str, configured: bool = True) -> dict[str, object]:
        return {"ref_name": name, "configured": configured, "state": state, "reason": ""}

    given = [
        (
            "10000000031aa",
            "HEURISTIC",
            (26 * 60 + 23) * minute + 20_000,
            [branch("here", "COMMITTED"), branch("old", "HEURISTIC_ROLLBACK", configured=False)],
        ),
        (
            "2000000002c51",
            "WAITING",
            72 * minute + 1_000,
            [branch("here", "COMMITTED"), branch("activemq", "WAITING")],
        ),
        ("3000000000017", "ACTIVE", 12_000, [branch("here", "ACTIVE")]),
    ]
    transactions = [
        {
            "id": number,
            "state": state,
            "age_ms": age,
            "decision": "" if state == "ACTIVE" else "COMMIT",
            "branches": branches,
        }
        for number, state, age, branches in given
    ]
    assert transactions_table(transactions).rstrip("\n") == shown("exactly_once", "-----")
