"""Decision logs at their two places, also in a process that is killed.

As a program: ``python -m tests.gateway.decision_logs PLACE SIZE`` opens a log, decides one
transaction after the other and prints the number of each once its decision is durable; of each
fifth only the decision stays, the others are over at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bridge.xa.decision_log import Entry, LoggedBranch, Presumed, Removed
from bridge.xa.log.file import LogFile
from bridge.xa.log.log import FileDecisionLog, log_thread
from bridge.xa.log.opening import TransactionProperties, open_file
from bridge.xa.status import BranchState
from gateway.instance import crashpoints
from tests.gateway.broker.store.databases import SCHEMA, create_tables, database_at

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Database
    from gateway.broker.store.postgresql.decisions import DecisionRows, OwnerIdentity
    from gateway.broker.store.postgresql.store import PostgresqlStore

BRIDGE: Final = "bridge"
NAME: Final = f"here:{BRIDGE}"
#: Of these numbers the decisions stay.
STAYS: Final = 5


def rows_of(store: PostgresqlStore, bridge: str) -> DecisionRows:
    """The rows of a bridge's log in the database of an open store."""
    from gateway.broker.store.postgresql.decisions import DecisionRows

    return DecisionRows(store.identity, bridge, reconnect_seconds=60.0)


def entry(number: int) -> Entry:
    branches = (
        LoggedBranch(b"\x06source\x01", "source", "rm:a", BranchState.WAITING, 4),
        LoggedBranch("\x06zwölf\x02".encode(), "zwölf", 'rm:"b"', BranchState.WAITING),
    )
    return Entry(b"gtrid\0%d" % number, 1000 + number, True, False, branches)


def presumed(number: int) -> Presumed:
    return Presumed(entry(number).gtrid, b"\x01b\x01", number)


class Place(Protocol):
    """Where a log is."""

    def open(self, size: int = 100_000) -> LogFile:
        """Open the log that is there, or a new one."""

    def octets(self) -> int:
        """How much of it there is."""

    def damage(self, at: int) -> None:
        """Flip a bit of its octet ``at``."""

    @property
    def argument(self) -> str:
        """For a process of its own."""


class InFile:
    """In a file of this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def argument(self) -> str:
        return str(self.folder)

    @property
    def path(self) -> Path:
        return self.folder / f"txlog.{BRIDGE}"

    def open(self, size: int = 100_000) -> LogFile:
        return open_file(self.folder, BRIDGE, NAME, TransactionProperties(size), os.urandom)

    def octets(self) -> int:
        return self.path.stat().st_size

    def damage(self, at: int) -> None:
        data = bytearray(self.path.read_bytes())
        data[at] ^= 4
        self.path.write_bytes(data)


class InDatabase:
    """In a database; to open a log there is to own the broker from then on.

    :param url: the database's.
    :param reconnect_seconds: as of the rows.
    :param options: of ``Database``.
    """

    def __init__(self, url: str, reconnect_seconds: float = 60.0, **options: Any) -> None:
        self.argument: Final = url
        self.database: Final[Database] = database_at(url, **options)
        self._reconnect_seconds = reconnect_seconds

    def create(self) -> InDatabase:
        create_tables(self.database)
        return self

    def owned(self) -> OwnerIdentity:
        """Become the owner, however alive the last one is."""
        from gateway.broker.store.postgresql.decisions import OwnerIdentity

        name = f"owner {os.urandom(4).hex()}"
        session = self.database.connect("the test")
        try:
            row = session.execute(
                "UPDATE owner SET epoch = epoch + 1, session = %b, released = false RETURNING epoch",
                (name,),
            ).fetchone()
            assert row is not None
            return OwnerIdentity(self.database, row[0], name)
        finally:
            session.close()

    def rows(self, owner: OwnerIdentity | None = None) -> DecisionRows:
        from gateway.broker.store.postgresql.decisions import DecisionRows

        return DecisionRows(owner or self.owned(), BRIDGE, self._reconnect_seconds)

    def open(self, size: int = 100_000, rows: DecisionRows | None = None) -> LogFile:
        from gateway.transaction_log import DatabaseStorage

        rows = rows or self.rows()
        file = LogFile(DatabaseStorage(rows), NAME, size, True, os.urandom, "here")
        rows.waits = True
        return file

    def ask(self, text: str, *parameters: object) -> Sequence[Any]:
        """What a statement finds, in which CURRENT is the table in use."""
        from gateway.broker.store.postgresql import decision_tables

        session = self.database.connect("the test")
        try:
            ((number,),) = session.execute("SELECT id FROM decision_log").fetchall()
            turn = decision_tables.turn(session, number)
            return session.execute(
                text.replace("CURRENT", decision_tables.name(number, turn)), parameters
            ).fetchall()
        finally:
            session.close()

    def octets(self) -> int:
        total: int = self.ask(
            "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE starts_with(relname, 'decision_') "
            f"AND relkind = 'r' AND relnamespace = '{SCHEMA}'::regnamespace"
        )[0][0]
        return total

    def damage(self, at: int) -> None:
        changed = self.ask(
            "UPDATE CURRENT SET octets = set_byte(octets, %b - at::int, get_byte(octets, %b - at::int) # 4) "
            "WHERE turn = (SELECT max(turn) FROM CURRENT) AND %b >= at AND %b < at + length(octets) RETURNING 1",
            *[at] * 4,
        )
        assert changed == [(1,)]


def decision_log(reactor: Any, file: LogFile) -> FileDecisionLog:
    return FileDecisionLog(reactor, file, log_thread("the test's log"))


def main() -> None:
    from twisted.internet import reactor

    crashpoints.arm_as_asked(crashpoints.STORE_VARIABLE)
    argument, size = sys.argv[1], int(sys.argv[2])
    place: Place = InDatabase(argument) if "://" in argument else InFile(Path(argument))
    log = decision_log(reactor, place.open(size))

    def decide(number: int) -> None:
        def decided(_: None) -> None:
            print(number, flush=True)
            if number % STAYS:
                log.note(Removed(entry(number).gtrid))
            log.note(presumed(number))
            decide(number + 1)

        log.write(entry(number)).addCallback(decided)

    running: Any = reactor
    running.callWhenRunning(decide, 1)
    running.run()


if __name__ == "__main__":
    main()
