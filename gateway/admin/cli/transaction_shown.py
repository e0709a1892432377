"""What the commands show of transactions: those of a bridge's coordinator, and the prepared
branches of the broker.

Owns titles, order and units. Asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.admin.cli.broker_shown import listed
from gateway.admin.cli.shown import lasting, moment
from gateway.admin.cli.tables import table

Json = Mapping[str, Any]

#: What a branch is marked with whose connection factory the bridge's file has no more.
NOT_CONFIGURED: Final = "not configured"


def transactions_table(transactions: Sequence[Json]) -> str:
    """``list transactions``."""
    rows = [
        (
            each["id"],
            each["state"],
            lasting(each["age_ms"]),
            each["decision"],
            ", ".join(f"{_named(branch)}: {_standing(branch)}" for branch in each["branches"]),
        )
        for each in transactions
    ]
    return table(("Transaction ID", "State", "Age", "Decision", "Branches"), rows, 3)


def transaction_lines(transactions: Sequence[Json]) -> str:
    """The ids of each transaction's branches, and its one line in Open MQ's form."""
    lines: list[str] = []
    for each in transactions:
        lines += [f"{each['id']} since {moment(each['since_ms'])}", f"    {each['text']}"]
        lines += [
            f"    {_named(branch)}, {branch['rm']}: {branch['xid']}" for branch in each["branches"]
        ]
    return "".join(f"{line}\n" for line in lines)


def records_table(transactions: Sequence[Json]) -> str:
    """Table F: a row for each transaction of the bridge."""
    return table(("TRANSACTIONS",), [(each["text"],) for each in transactions])


def waiting_line(bridge: Json) -> str:
    """What is to be said of a bridge whose transactions call for somebody; empty where none
    does.
    """
    counts = bridge["transactions"]
    words = [f"{counts[word]} {word}" for word in ("waiting", "heuristic") if counts[word]]
    if not words:
        return ""
    return f"Transactions of bridge {bridge['name']}: {', '.join(words)}. See: imqbridgemgr list transactions -bn {bridge['name']}"


def ordered_line(answer: Json) -> str:
    """How a transaction goes on after an operator's order; empty where it is over."""
    transaction = answer["transaction"]
    if transaction is None:
        return ""
    said = {
        "WAITING": "it is completed as soon as these resource managers are there",
        "HEURISTIC": "it is listed until it is forgotten",
        "FORGETTING": "it is forgotten here as soon as its resource managers have been told; ordered once more, at once",
    }
    branches = ", ".join(
        f"{_named(branch)}: {branch['state']}" for branch in transaction["branches"]
    )
    then = said.get(transaction["state"], "list transactions says how it goes on")
    return f"Transaction {transaction['id']} is {transaction['state']} ({branches}); {then}."


def branches_table(branches: Sequence[Json]) -> str:
    """``imqcmd list txn``."""
    titles = ("Transaction ID", "State", "User name", "# Msgs/# Acks", "Creation time", "Age")
    rows = [
        (
            each["xid"],
            each["state"],
            each["user"],
            f"{each['sent']}/{each['acknowledged']}",
            moment(each["since_ms"]),
            lasting(each["age_ms"]),
        )
        for each in branches
    ]
    return table(titles, rows, 3)


def branch_details(each: Json) -> str:
    """``imqcmd query txn``."""
    lines: list[tuple[str, object]] = [
        ("Transaction ID", each["xid"]),
        ("State", each["state"]),
        ("User name", each["user"]),
        ("Creation time", moment(each["since_ms"])),
        ("Age", lasting(each["age_ms"])),
        ("Number of messages", each["sent"]),
        ("Number of acknowledgments", each["acknowledged"]),
    ]
    if each["coordinator"]:
        lines += [
            ("", ""),
            ("Coordinator", each["coordinator"]),
            ("Transaction of the Coordinator", each["transaction"]),
            ("Connection Factory", each["ref_name"]),
        ]
    return listed(lines)


def _standing(branch: Json) -> str:
    state: str = branch["state"]
    return f"{state} ({branch['reason']})" if branch["reason"] else state


def _named(branch: Json) -> str:
    name: str = branch["ref_name"]
    return name if branch["configured"] else f"{name} ({NOT_CONFIGURED})"
