"""The commands of ``imqbridgemgr`` about transactions: what each asks the admin service, and what
it prints.

Each returns the exit code, and raises AdminError for what cannot be done. How they are spelled is
:mod:`gateway.admin.cli.imqbridgemgr`'s to know.
"""

from __future__ import annotations

from typing import Final

from gateway.admin.cli.bridge_commands import Command, not_done
from gateway.admin.cli.client import path_of
from gateway.admin.cli.tables import table
from gateway.admin.cli.transaction_shown import ordered_line, transaction_lines, transactions_table

#: What is ordered, and the words for it: doing, done, and what it comes to.
ORDERS: Final = {
    "commit": (
        "Committing",
        "committed",
        "Its branches that wait are taken for committed, and are waited for no longer.",
    ),
    "rollback": (
        "Rolling back",
        "rolled back",
        "Its branches that wait are rolled back, against the decision: what it moved is lost or doubled.",
    ),
    "forget": (
        "Forgetting",
        "forgotten",
        "Nobody will know any more that it did not end as it was decided.",
    ),
}


def list_transactions(command: Command) -> int:
    common, client = command.common, command.client()
    command.show_what("Listing the transactions of the bridge:")
    answer = client.get(path_of("v1", "transactions", command.bridge))
    found = answer["transactions"]
    if found:
        common.show(transactions_table(found))
        if command.options.debug:
            common.show(transaction_lines(found))
    else:
        stopped = answer["state"] == "STOPPED"
        common.say(
            f"Bridge {command.bridge} is STOPPED, and its transaction log is read when it starts."
            if stopped
            else f"Bridge {command.bridge} has no transactions: none is under way, waits or is heuristic."
        )
        common.say()
    common.show_json(answer)
    common.say("Successfully listed transactions.")
    return 0


def order_transaction(command: Command) -> int:
    operation, id = command.options.subcommand, command.options.transaction
    doing, done, meaning = ORDERS[operation]
    common, client = command.common, command.client()
    common.say(f"{doing} the transaction:")
    common.say()
    common.show(table(("Bridge Name", "Transaction ID"), [(command.bridge, id)]))
    common.say("On the broker specified by:")
    common.say()
    common.show_broker()
    common.say(meaning)
    common.say()
    verb = "roll back" if operation == "rollback" else operation
    if not common.confirmed(f"Are you sure you want to {verb} this transaction?"):
        return not_done(command, f"The transaction was not {done}.")
    answer = client.post(path_of("v1", "transactions", command.bridge, operation), id=id)
    common.show_json(answer)
    common.say(ordered_line(answer) or f"Successfully {done} the transaction.")
    return 0
