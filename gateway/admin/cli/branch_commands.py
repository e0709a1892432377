"""The commands of ``imqcmd`` about transactions: the branches of XA transactions that the broker
has prepared.

Each returns the exit code, and raises AdminError for what cannot be done. How they are spelled is
:mod:`gateway.admin.cli.imqcmd`'s to know.
"""

from __future__ import annotations

from typing import Any

from gateway.admin.cli.broker_commands import Command, carry_out, change, shown
from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.options import Common
from gateway.admin.cli.tables import table
from gateway.admin.cli.transaction_shown import branch_details, branches_table


def list_txn(command: Command) -> int:
    def show(common: Common, answer: Any) -> None:
        if answer["branches"]:
            common.show(branches_table(answer["branches"]))
        else:
            common.say("There are no prepared transactions.")
            common.say()

    return carry_out(
        command,
        ("Listing all the prepared transactions on the broker specified by:",),
        lambda client: client.get("/v1/branches"),
        "Successfully listed transactions.",
        show,
    )


def query_txn(command: Command) -> int:
    def ask(client: AdminClient) -> Any:
        found = next(
            (
                each
                for each in client.get("/v1/branches")["branches"]
                if each["xid"] == command.name
            ),
            None,
        )
        if found is None:
            raise AdminError(f"there is no prepared transaction {command.name}")
        return found

    introduction = ("Querying the transaction where:", _which(command))
    return carry_out(
        command, introduction, ask, "Successfully queried the transaction.", shown(branch_details)
    )


def commit_txn(command: Command) -> int:
    return _order(command, "commit", "committed", "Committing")


def rollback_txn(command: Command) -> int:
    return _order(command, "rollback", "rolled back", "Rolling back", "roll back")


def forget_txn(command: Command) -> int:
    return _order(command, "forget", "forgotten", "Forgetting")


def _order(command: Command, operation: str, done: str, doing: str, verb: str = "") -> int:
    return change(
        command,
        (verb or operation, done, "transaction"),
        (_which(command),),
        lambda client: client.post(f"/v1/branches/{operation}", xid=command.name),
        doing=doing,
    )


def _which(command: Command) -> str:
    return table(("Transaction ID",), [(command.name,)])
