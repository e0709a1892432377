"""What an operator does with the tables of a broker in a database.

Owns what is said of it, and who is asked. Needs psycopg. What the tables hold, and when they may be
changed, is :mod:`gateway.broker.store.postgresql`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from gateway.broker.operator import logs
from gateway.broker.operator.log_states import LogState, listed
from gateway.broker.operator.logs import TransactionLogs
from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.store.integrity import copying as files
from gateway.broker.store.integrity.inspection import Work
from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import administration, inspection
from gateway.broker.store.postgresql.connecting import database_of
from gateway.broker.store.postgresql.decision_tables import StoredLog
from gateway.broker.store.postgresql.ownership import Owner
from gateway.instance.layout import make_directory
from gateway.instance.problems import counted

#: The name of a store's file in the folder of a copy.
_FILE = "messages.db"

#: Called with a question; raises where the answer is no.
Confirm = Callable[[str], None]


class Tables:
    """The tables of one broker.

    :param read: reads the octets of a decision log, whose encoding is the bridges'.

    Every method raises StoreError when the database cannot be used, or when a process owns the
    broker where that is not allowed.
    """

    def __init__(self, options: JdbcOptions, read: logs.Read) -> None:
        self._database = database_of(options)
        #: Where they are.
        self.described = f"the database {options.described}, schema {options.schema}"
        self._logs = TransactionLogs(read, self.described)
        self._lease_seconds = options.lease_seconds

    def create(self) -> str:
        """Make empty tables. Returns what was done."""
        with self._reached():
            administration.create(self._database)
        return f"{self._where} is an empty store."

    def delete(self, confirm: Confirm, force: bool) -> str:
        """Remove the tables. Returns what was done.

        :param force: also with transactions of bridges that are not finished.
        :raises StoreError: there are no tables, or there are such transactions.
        """
        with self._reached(), administration.held(self._database) as held:
            states = self._logs.states(held.logs())
            unfinished = [state for state in states if not state.over]
            if unfinished and not force:
                raise StoreError(
                    f"{self.described}, has transaction logs with unfinished transactions: {listed(unfinished)}. "
                    "Have the bridges finish them, or keep the logs with 'imqdbmgr backup'; "
                    "with -f the logs are removed, and their branches must be ended by hand"
                )
            named = f" and the transaction logs of the bridges {listed(states)}" if states else ""
            confirm(f"Remove {self.described}, with all messages{named}?")
            held.delete()
        gone = f"\nWith it went the transaction logs of the bridges: {listed(states)}."
        return f"{self._where} is removed.{gone if states else ''}"

    def recreate(self, confirm: Confirm) -> str:
        """Replace the tables by empty ones. Returns what was done.

        Transaction logs of bridges stay.
        """
        with self._reached(), administration.held(self._database) as held:
            if held.exists:
                confirm(f"Begin an empty store in {self.described}? All messages there are lost.")
            kept = self._logs.states(held.recreate())
        return f"{self._where} is an empty store.{_stay(kept)}"

    def remove_bridge(self, bridge: str, confirm: Confirm, force: bool) -> str:
        """Remove what a bridge keeps, and its row among the cluster's bridges.

        :param force: also with transactions that are not finished.
        :returns: what was done.
        :raises StoreError: there is nothing of it, or its log has such transactions.
        """
        with self._reached(), administration.held(self._database) as held:
            stored = next((log for log in held.logs() if log.bridge == bridge), None)
            if stored is None:
                if bridge not in held.bridges():
                    raise StoreError(f"{self.described}, has no transaction log of bridge {bridge}")
                confirm(f"Have bridge {bridge} be no broker's in its cluster?")
                held.remove_bridge(bridge)
                return f"Bridge {bridge} is no broker's in its cluster now."
            state = self._logs.state(stored)
            if not force:
                state.check_over(self.described)
            confirm(f"Remove the transaction log of bridge {bridge} from {self.described}?")
            held.remove_bridge(bridge)
        return f"The transaction log of bridge {state} is removed from {self.described}."

    def upgrade(self) -> str:
        """Upgrade tables of an earlier version. Returns what was done."""
        with self._reached():
            administration.upgrade(self._database)
        return f"{self._where} has the tables of this version; nothing was done."

    def query(self) -> list[str]:
        """Describe the tables in lines. A process may own the broker."""
        with self._reached():
            found = administration.describe(self._database)
        lines = [
            f"{'Place':<14}{self.described}",
            f"{'Version':<14}{found.version}",
            f"{'Store':<14}{found.store_id}",
            f"{'Next message':<14}{found.next_seq}",
            f"{'Owner':<14}{_owner(found.owner)}",
            f"{'Closed':<14}{'in order' if found.clean else 'no'}",
            "",
            f"{'Rows of':<14}{'Number':>14}{'Bytes':>18}{'Tables':>10}",
        ]
        lines += [
            f"{size.kind:<14}{size.rows:>14}{size.octets:>18}{size.count:>10}"
            for size in found.tables
        ]
        if found.logs:
            lines += ["", f"{'Transaction log':<22}{'Unfinished':>14}{'Bytes':>18}"]
        for size in found.logs:
            state = self._logs.state(size.log)
            unfinished = "damaged" if state.problem else state.unfinished
            lines.append(f"{state.bridge:<22}{unfinished:>14}{size.octets:>18}")
        return lines

    def check(self, work: Work) -> tuple[int, list[str]]:
        """Read all rows. A process may own the broker.

        :returns: the number of problems; and what was found, in lines.
        """
        with self._reached():
            report, found = inspection.inspect(self._database, work)
        states = self._logs.states(found)
        problems = [*report.problems, *(state.problem for state in states if state.problem)]
        if problems:
            end = f"{self._where} is damaged: {counted(len(problems), 'problem')}. Of its messages {report.messages} were looked at."
        else:
            end = f"{self._where} is whole: {counted(report.messages)}."
        return len(problems), [*problems, end]

    def backup(self, folder: Path, orders: Callable[[Mapping[str, str]], None]) -> str:
        """Copy everything to a store's file and files of logs in ``folder``.

        A process may own the broker. Returns what was done.

        :param orders: is given those of operators by bridge, in JSON.
        :raises StoreError: the folder has such a file, a row or a log is damaged, or there are rows
            that a file has no place for.
        :raises OSError: the folder or the file of a log cannot be made.
        """
        make_directory(folder)
        path = folder / _FILE
        with (
            self._reached(),
            administration.copied(self._database, self._lease_seconds) as (
                snapshot,
                ended,
            ),
        ):
            snapshot.check_complete()
            stored = snapshot.logs()
            with self._logs.written(folder, stored, ended):
                count = files.write(str(path), snapshot)
            orders(snapshot.orders())
        said = [f"{path} has all that {self.described}, had: {count} messages."]
        if stored:
            said.append(
                f"Beside it are the transaction logs of the bridges: {listed(self._logs.states(stored))}."
            )
            if not ended:
                said.append(
                    "A process owned the broker meanwhile: where these logs go on, they leave alone what it prepares, and do not know to be decided."
                )
        return "\n".join(said)

    def restore(
        self,
        folder: Path,
        own: Mapping[str, Path],
        orders: Mapping[str, str] | None,
        work: Work,
        confirm: Confirm,
    ) -> str:
        """Replace the tables by the contents of a store's file, or make them.

        Logs in files go on in the database; others stay. Returns what was done.

        :param folder: has the store's file, and may have files of logs.
        :param own: by bridge, more files of logs: of an instance that is stopped.
        :param orders: those of operators by bridge, in JSON; None has them stay.
        :raises StoreError: a file is not whole, or a process has it open; or a log in the database
            may have gone on since its copy was made.
        """
        path = folder / _FILE
        if not path.exists():
            raise StoreError(f"{path} does not exist")
        with self._reached(), administration.held(self._database) as held:
            if held.exists:
                confirm(f"Replace all that is in {self.described}, by what {path} has?")
            found = self._logs.read(folder, own)
            kept: list[StoredLog] = []

            def choose(there: list[StoredLog]) -> list[StoredLog]:
                kept[:] = self._logs.kept(there, found)
                names = {log.bridge for log in kept}
                return [*kept, *(log.stored for log in found if log.bridge not in names)]

            with files.read(str(path), work) as contents:
                count = held.restore(contents, choose=choose, orders=orders)
        names = {log.bridge for log in kept}
        come = self._logs.states([log.stored for log in found if log.bridge not in names])
        return (
            f"{self._where} has all that {path} has: {count} messages. "
            f"If {path} was in use, move it away: from now on it is out of date."
            f"{_come(come)}{_stay(self._logs.states(kept))}"
        )

    @property
    def _where(self) -> str:
        return f"{self.described[0].upper()}{self.described[1:]},"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._database.unusable(error) from error


def _come(come: Sequence[LogState]) -> str:
    return f"\nThe transaction logs of these bridges go on there: {listed(come)}." if come else ""


def _stay(kept: Sequence[LogState]) -> str:
    return (
        f"\nThe transaction logs of the bridges are as they were: {listed(kept)}." if kept else ""
    )


def _owner(owner: Owner) -> str:
    if owner.locked:
        return f"{owner.node}, since {owner.since}; {owner.silent:.1f} seconds since its last sign of life"
    if not owner.node:
        return "none yet"
    if owner.released:
        return f"none; {owner.node} has given it up"
    return f"none; {owner.node} has ended, and has not given it up"
