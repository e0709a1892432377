"""Make, remove and describe the tables of a broker, for its operator.

Owns what may be done while a process owns the broker, and what may not. Knows nothing of command
lines.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from psycopg.sql import SQL, Identifier

from gateway.broker.store.contents import Contents
from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import cluster, copying, decision_tables, ownership
from gateway.broker.store.postgresql.connecting import NAME, Database, Session
from gateway.broker.store.postgresql.copying import Snapshot
from gateway.broker.store.postgresql.decision_tables import StoredLog
from gateway.broker.store.postgresql.ownership import Owner
from gateway.broker.store.postgresql.segments import SHIFT

#: Seconds for which the session of a process that has just ended may go on.
_HOLDING_SECONDS: Final = 3.0
#: Seconds for which the session of an owner may go on that a copy is made of.
_ENDING_SECONDS: Final = 1.0
#: Bytes of a store's id.
_ID_BYTES: Final = 8


@dataclass(frozen=True)
class TableSize:
    """The tables of one kind.

    :param count: how many there are.
    :param octets: on the database's disk, with indexes.
    """

    kind: str
    rows: int
    count: int
    octets: int


@dataclass(frozen=True)
class LogSize:
    """A decision log of a bridge.

    :param octets: on the database's disk, with indexes.
    """

    log: StoredLog
    octets: int


@dataclass(frozen=True)
class Description:
    """What there is in the schema of a broker.

    :param next_seq: the first seq never used.
    :param clean: whether its last owner closed it in order.
    :param logs: the decision logs of bridges.
    """

    version: str
    store_id: str
    next_seq: int
    clean: bool
    owner: Owner
    tables: tuple[TableSize, ...]
    logs: tuple[LogSize, ...]


def describe(database: Database) -> Description:
    """Describe the schema as it is now. A process may own the broker.

    :raises StoreError: it has no tables of this broker.
    :raises psycopg.Error: as the database does.
    """
    with copying.read(database) as snapshot:
        session, sizes = snapshot.session, []
        owner = ownership.look(session)
        for segments in snapshot.tables.all:
            names = [segments.table(place) for place in {None, *segments.places()}]
            sizes.append(_size(session, segments.kind, names))
        sizes += [_size(session, kind, [kind]) for kind in (*copying.ROWS, *snapshot.others())]
        return Description(
            version=snapshot.meta.version,
            store_id=snapshot.store_id,
            next_seq=snapshot.next_seq,
            clean=snapshot.meta.clean,
            owner=owner,
            tables=tuple(sizes),
            logs=tuple(
                LogSize(log, decision_tables.octets_on_disk(session, log.bridge))
                for log in snapshot.logs()
            ),
        )


def _size(session: Session, kind: str, names: list[str]) -> TableSize:
    rows = octets = 0
    for name in names:
        found = session.execute(
            SQL("SELECT count(*), pg_total_relation_size({}::regclass) FROM {}").format(
                name, Identifier(name)
            )
        ).fetchall()[0]
        rows += found[0]
        octets += found[1]
    return TableSize(kind, rows, len(names), octets)


class Held:
    """The broker, which no process owns and none becomes the owner of.

    :ivar exists: whether there is a schema of its name.
    """

    def __init__(self, database: Database, session: Session, owner: Owner | None) -> None:
        self._database = database
        self._session = session
        self._epoch = _epoch(owner)
        self._owned = owner is not None
        self._orders: Mapping[str, str] = {}
        found = session.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %b", (database.schema,)
        ).fetchall()
        self.exists = bool(found)

    def delete(self) -> None:
        """Remove the schema with all that is in it, completely or not at all.

        :raises StoreError: the schema does not exist.
        :raises psycopg.Error: as the database does.
        """
        if not self.exists:
            raise StoreError(
                f"the database {self._database.described} has no schema {self._database.schema}"
            )
        with self._session.transaction():
            self._drop()
            cluster.leave(self._database, self._session)

    def bridges(self) -> list[str]:
        """Return the bridges that this broker owns in its cluster.

        :raises psycopg.Error: as the database does.
        """
        return cluster.owned_bridges(self._database, self._session)

    def logs(self) -> list[StoredLog]:
        """Return the decision logs of bridges by the names of those.

        :raises psycopg.Error: as the database does.
        """
        return decision_tables.stored(self._session) if self.exists else []

    def recreate(self) -> list[StoredLog]:
        """Replace the tables by empty ones, completely or not at all.

        Decision logs stay as they are: what was decided must be done elsewhere.

        :returns: the decision logs.
        :raises psycopg.Error: as the database does.
        """
        with self._session.transaction():
            logs = self._drop()
            ownership.create(self._database, self._session, new_id(), self._epoch)
            self._put_back(logs)
        return logs

    def remove_bridge(self, bridge: str) -> None:
        """Remove what a bridge keeps, and that this broker owns it, or nothing.

        :raises psycopg.Error: as the database does.
        """
        with self._session.transaction():
            self._end_owner()
            decision_tables.remove(self._session, bridge)
            self._session.execute("DELETE FROM bridge_orders WHERE bridge = %b", (bridge.encode(),))
            cluster.disown(self._database, self._session, bridge)

    def restore(
        self,
        contents: Contents,
        shift: int = SHIFT,
        choose: Callable[[list[StoredLog]], list[StoredLog]] = lambda logs: logs,
        orders: Mapping[str, str] | None = None,
    ) -> int:
        """Put a copy in the place of what there is, completely or not at all.

        :param shift: seqs of a segment, as bits.
        :param choose: is given the decision logs that there are, and returns those that are to be;
            without it they stay.
        :param orders: those of operators by bridge, in JSON; without them they stay.
        :returns: how many messages it has.
        :raises StoreError: whatever ``contents`` or ``choose`` raises.
        :raises psycopg.Error: as the database does.
        """
        with self._session.transaction():
            logs = choose(self._drop())
            if orders is not None:
                self._orders = orders
            count = copying.write(self._database, self._session, contents, self._epoch, shift)
            self._put_back(logs)
        return count

    def _put_back(self, logs: Sequence[StoredLog]) -> None:
        """Have the new tables the logs, and the orders of operators."""
        for log in logs:
            decision_tables.put(self._session, log)
        for bridge, orders in self._orders.items():
            self._session.execute(
                "INSERT INTO bridge_orders VALUES (%b, %b)", (bridge.encode(), orders)
            )

    def _end_owner(self) -> None:
        """Keep lost owners and other brokers from changing a log."""
        if self._owned:
            self._session.execute("UPDATE owner SET epoch = epoch + 1")
            self._session.execute("LOCK TABLE decision_log IN ACCESS EXCLUSIVE MODE")

    def _drop(self) -> list[StoredLog]:
        """Drop the schema. Returns the decision logs that it had."""
        self._end_owner()
        logs = self.logs()
        self._orders = copying.bridge_orders(self._session) if self.exists else {}
        self._session.execute(
            SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(self._database.schema))
        )
        return logs


def create(database: Database) -> None:
    """Make the tables of a broker, completely or not at all.

    :raises StoreError: there are such tables.
    :raises psycopg.Error: as the database does.
    """
    with database.connect(f"{NAME} imqdbmgr") as session:
        session.answer_seconds = copying.WORKING_SECONDS
        ownership.create(database, session, new_id(), _epoch(None))


@contextmanager
def held(database: Database, seconds: float = _HOLDING_SECONDS) -> Iterator[Held]:
    """Keep every process from becoming the owner within the block.

    :param seconds: for so long an owner is waited for.
    :raises StoreHeld: a process owns the broker; names it.
    :raises psycopg.Error: as the database does.
    """
    with database.connect(f"{NAME} imqdbmgr") as session:
        session.answer_seconds = copying.WORKING_SECONDS
        session.execute("SET idle_in_transaction_session_timeout = '1h'")
        yield Held(database, session, ownership.hold(database, session, seconds))


@contextmanager
def copied(
    database: Database, lease_seconds: float, seconds: float = _ENDING_SECONDS
) -> Iterator[tuple[Snapshot, bool]]:
    """Read the schema as it is now. A process may own the broker.

    Gives what there is, and whether the last owner has ended: then it writes nothing more.

    :param lease_seconds: after so long without a sign of life an owner may be replaced.
    :param seconds: for so long an owner is waited for.
    :raises StoreError: as for :func:`copying.read`.
    :raises psycopg.Error: as the database does.
    """
    with database.connect(f"{NAME} imqdbmgr") as session:
        ownership.check_version(database, session)
        ended = ownership.end_for_good(database, session, seconds, lease_seconds)
        with copying.read(database) as snapshot:
            # The next owner need not wait for the copy, which does not see what it does.
            session.close()
            yield snapshot, ended


def upgrade(database: Database) -> bool:
    """Make tables of an earlier version those of this one.

    :returns: whether anything had to be done.
    :raises StoreVersionUnknown: they are of a version that this program does not know.
    :raises StoreError: the schema has no tables.
    :raises psycopg.Error: as the database does.
    """
    # There is no earlier version yet: what is not this one is refused.
    with database.connect(f"{NAME} imqdbmgr") as session:
        ownership.check_version(database, session)
    return False


def _epoch(owner: Owner | None) -> int:
    """An epoch for new tables, above those of all owners of former ones.

    A process that owned former tables, and has not noticed that they are gone, must not take
    itself for the owner of the new ones. If they are gone, so are their epochs; those began with
    milliseconds of the clock, and rose by one with each owner.
    """
    now = time.time_ns() // 1_000_000
    return now if owner is None else max(now, owner.epoch + 1)


def new_id() -> str:
    """Return an id for a new store."""
    return secrets.token_hex(_ID_BYTES)
