"""What the brokers of a cluster share: who owns which JMS bridge.

The rows of each broker are in a schema of its own; these are in one of the cluster. A change of
them is made by the owner of a broker alone, and proves in its transaction that it still is.

Owns these tables, and the move of a bridge's decision log from one broker's schema to another's: so
a bridge takes its decisions along in the transaction that gives it another owner, and the former
owner can decide no more. Knows nothing of bridges' files. All of it blocks, and is called from one
thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from gateway.broker.store.interface import StoreError, StoreFailed, StoreVersionUnknown
from gateway.broker.store.postgresql import decision_tables, ownership
from gateway.broker.store.postgresql.connecting import Database, Session
from gateway.broker.store.postgresql.decisions import OwnerIdentity
from gateway.broker.store.postgresql.proven import ProvenSession

CLUSTER_VERSION: Final = 1

#: So long a move waits for somebody who reads the decision log, such as a backup.
_LOCK_WAIT: Final = "5s"
#: Those who make the cluster's tables at the same time take turns.
_MAKING: Final = "hashtextextended('stomp-gateway cluster ' || %b, 0)"


@dataclass(frozen=True)
class OwnedBridge:
    """A bridge of the cluster.

    :param broker: the id of its owner.
    :param since: when that became the owner, as the database writes a time.
    :param state: what its owner said of it last; "" where that has not begun to run it.
    :param problem: why it could not be started, "" if it could.
    :param wanted: the state in which its owner is to have it, "" for that of a start.
    """

    name: str
    broker: str
    since: str
    state: str
    problem: str
    wanted: str


@dataclass(frozen=True)
class OtherBroker:
    """Another broker of the cluster.

    :param owned: whether a process owns it now.
    :param node: that process, or the last.
    :param sign: its last sign of life, which differs from all earlier ones.
    :param settings: those that may not differ between brokers.
    """

    id: str
    schema: str
    owned: bool
    node: str
    sign: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class View:
    """The cluster as it is now.

    :param bridges: all, by name.
    :param brokers: those besides this one, by id.
    :param reading: the number of the last call to read configurations again.
    """

    bridges: Mapping[str, OwnedBridge]
    brokers: Mapping[str, OtherBroker]
    reading: int


@dataclass(frozen=True)
class Described:
    """How another broker, which a process owns now, has a bridge configured.

    :param values: what there is to say, by what it is called.
    :param reading: the number of the call to read configurations that it has heard last.
    """

    broker: str
    values: Mapping[str, str]
    reading: int


class ClusterRows:
    """What the brokers of a cluster share, as the owner of one has it.

    Every method raises StoreError where the database cannot be reached; whether something was
    changed, :meth:`look` tells. It raises StoreFailed where that would not help: another process
    owns this broker now, or the user of the database may not do it.

    :param owner: of this broker.
    :param broker: its id.
    :param cluster: the cluster's id.
    """

    def __init__(self, owner: OwnerIdentity, broker: str, cluster: str) -> None:
        self._database: Final = owner.database
        self._broker: Final = broker
        self._cluster: Final = cluster
        self._session: Final = ProvenSession(
            owner, f"cluster {cluster}", lambda session: ensure(self._database, session, cluster)
        )

    def enter(self, settings: Mapping[str, str], listed: Collection[str]) -> View:
        """Tell the cluster of this broker and its bridges.

        A bridge of ``listed`` that has no owner is this broker's from now on. What this broker said
        of bridges' configurations before is forgotten.

        :param settings: those that may not differ between brokers.
        """

        def enter(session: Session) -> None:
            session.execute(
                self._sql(
                    "INSERT INTO {}.broker VALUES (%b, %b, %b) ON CONFLICT (id) DO UPDATE SET schema = excluded.schema, settings = excluded.settings"
                ),
                (self._broker, self._database.schema, _json(settings)),
            )
            session.execute(
                self._sql("DELETE FROM {}.configuration WHERE broker = %b"), (self._broker,)
            )
            for name in sorted(listed):
                session.execute(
                    self._sql(
                        "INSERT INTO {}.bridge VALUES (%b, %b, clock_timestamp(), '', '', '') ON CONFLICT DO NOTHING"
                    ),
                    (name, self._broker),
                )

        self._session.change(enter)
        return self.look()

    def look(self) -> View:
        """Return the cluster as it is now."""
        return self._session.ask(self._look)

    def describe(self, bridge: str, values: Mapping[str, str], reading: int) -> None:
        """Tell the others how this broker has a bridge configured.

        :param values: what there is to say, by what it is called.
        :param reading: the call to read configurations that was heard before it was read.
        """
        self._session.change(
            lambda session: session.execute(
                self._sql(
                    "INSERT INTO {}.configuration VALUES (%b, %b, %b, %b) "
                    "ON CONFLICT (bridge, broker) DO UPDATE SET described = excluded.described, reading = excluded.reading"
                ),
                (bridge, self._broker, _json(values), reading),
            )
        )

    def call_to_read(self) -> int:
        """Have the others read their configurations again.

        :returns: the number of this call.
        """

        def call(session: Session) -> int:
            found = session.execute(
                self._sql("UPDATE {}.reading SET number = number + 1 RETURNING number")
            ).fetchall()
            number: int = found[0][0]
            return number

        return self._session.change(call)

    def descriptions(self, bridge: str) -> list[Described]:
        """Return how others, which processes own now, have a bridge configured."""

        def read(session: Session) -> list[Described]:
            rows = session.execute(
                self._sql(
                    "SELECT broker, described, reading FROM {0}.configuration JOIN {0}.broker ON id = broker "
                    f"WHERE bridge = %b AND broker <> %b AND {ownership.is_locked('schema')} ORDER BY broker"
                ),
                (bridge, self._broker),
            ).fetchall()
            return [Described(broker, json.loads(text), number) for broker, text, number in rows]

        return self._session.ask(read)

    def told(self, bridge: str, state: str, problem: str) -> None:
        """Say what a bridge of this broker is now.

        :param problem: why it could not be started, "" if it could.
        """
        self._session.change(
            lambda session: session.execute(
                self._sql(
                    "UPDATE {}.bridge SET state = %b, problem = %b, wanted = '' WHERE name = %b AND broker = %b"
                ),
                (state, problem, bridge, self._broker),
            )
        )

    def give(self, bridge: str, to: str, wanted: str) -> None:
        """Give a bridge of this broker, with its decision log, to another broker.

        Nothing of it may run here, and its log must be closed.

        :param wanted: the state in which that is to have it, "" for that of a start.
        """

        def give(session: Session) -> None:
            row = self._locked_row(session, bridge)
            if row[0] != self._broker:
                raise StoreError(f"broker {row[0]} owns bridge {bridge}")
            found = session.execute(
                self._sql("SELECT schema FROM {}.broker WHERE id = %b"), (to,)
            ).fetchall()
            if not found:
                raise StoreError(f"there is no broker {to} in cluster {self._cluster}")
            self._move(session, bridge, self._database.schema, found[0][0])
            self._set_owner(session, bridge, to, wanted)

        self._session.change(give)

    def take(self, bridge: str, other: OtherBroker) -> bool:
        """Take a bridge, with its decision log, from a broker that is dead.

        What is left of that broker's sessions is ended first, and no process becomes its owner
        meanwhile.

        :param other: as it was seen dead.
        :returns: False where it lives, or the bridge is another's by now.
        """

        def take(session: Session) -> bool:
            row = self._locked_row(session, bridge)
            if row[0] != other.id:
                return False
            _enter(session, other.schema)
            owner = ownership.look(session)
            if owner.sign != other.sign:
                return False
            ownership.end(session, owner.session)
            if not ownership.keep(session, other.schema):
                return False
            self._move(session, bridge, other.schema, self._database.schema)
            self._set_owner(session, bridge, self._broker, "")
            return True

        return self._session.change(take)

    def close(self) -> None:
        """End the session. Idempotent; never fails."""
        self._session.close()

    # --- steps, each within a transaction

    def _look(self, session: Session) -> View:
        rows = session.execute(
            self._sql(
                "SELECT name, broker, date_trunc('second', since)::text, state, problem, wanted FROM {}.bridge ORDER BY name"
            )
        ).fetchall()
        bridges = {row[0]: OwnedBridge(*row) for row in rows}
        reading: int = session.execute(self._sql("SELECT number FROM {}.reading")).fetchall()[0][0]
        brokers = {}
        for id, schema, settings in session.execute(
            self._sql("SELECT id, schema, settings FROM {}.broker WHERE id <> %b"),
            (self._broker,),
        ).fetchall():
            _enter(session, schema)
            if session.execute("SELECT to_regclass('owner')").fetchall()[0][0] is None:
                # Its tables were deleted.
                brokers[id] = OtherBroker(id, schema, False, "", "", json.loads(settings))
                continue
            owner = ownership.look(session)
            brokers[id] = OtherBroker(
                id, schema, owner.locked, owner.node, owner.sign, json.loads(settings)
            )
        _enter(session, self._database.schema)
        return View(bridges, brokers, reading)

    def _locked_row(self, session: Session, bridge: str) -> tuple[str]:
        rows = session.execute(
            self._sql("SELECT broker FROM {}.bridge WHERE name = %b FOR UPDATE"), (bridge,)
        ).fetchall()
        if not rows:
            raise StoreError(f"there is no bridge {bridge} in cluster {self._cluster}")
        return (rows[0][0],)

    def _set_owner(self, session: Session, bridge: str, broker: str, wanted: str) -> None:
        session.execute(
            self._sql(
                "UPDATE {}.bridge SET broker = %b, since = clock_timestamp(), state = '', problem = '', wanted = %b WHERE name = %b"
            ),
            (broker, wanted, bridge),
        )

    def _move(self, session: Session, bridge: str, source: str, target: str) -> None:
        """Move what a bridge keeps from one broker's schema to another's."""
        name = bridge.encode()
        session.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")
        _enter(session, source)
        # The former owner may have a session that we have not seen. What it has decided goes along,
        # and after that it can decide no more.
        decision_tables.lock(session, bridge)
        logs = [log for log in decision_tables.stored(session) if log.bridge == bridge]
        decision_tables.remove(session, bridge)
        orders = session.execute(
            "DELETE FROM bridge_orders WHERE bridge = %b RETURNING orders", (name,)
        ).fetchall()
        _enter(session, target)
        decision_tables.remove(session, bridge)
        for log in logs:
            decision_tables.put(session, log)
        session.execute("DELETE FROM bridge_orders WHERE bridge = %b", (name,))
        for (text,) in orders:
            session.execute("INSERT INTO bridge_orders VALUES (%b, %b)", (name, text))
        _enter(session, self._database.schema)

    def _sql(self, text: str) -> Composed:
        return _in_cluster(text, self._database)


def ensure(database: Database, session: Session, cluster: str) -> None:
    """Make the cluster's tables if they are missing.

    :raises StoreVersionUnknown: they are of another version.
    :raises StoreFailed: the database's user may not make a schema.
    :raises psycopg.Error: as the database does.
    """
    schema = Identifier(database.cluster)
    place = f"the database {database.described}, schema {database.cluster}"
    text = resources.files("gateway.broker.store").joinpath(f"schema/cluster-{CLUSTER_VERSION}.sql")
    with session.transaction():
        session.execute(f"SELECT pg_advisory_xact_lock({_MAKING})", (cluster,))
        if not _has_tables(session, database.cluster):
            try:
                session.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
            except psycopg.errors.InsufficientPrivilege as error:
                raise StoreFailed(
                    f"{place}, is missing, and this user may not make it: have one made that this user owns"
                ) from error
            _enter(session, database.cluster)
            session.execute(text.read_text("utf-8"))
            session.execute("INSERT INTO meta VALUES ('version', %b)", (str(CLUSTER_VERSION),))
            _enter(session, database.schema)
    version = session.execute(
        SQL("SELECT value FROM {}.meta WHERE key = 'version'").format(schema)
    ).fetchall()
    if version != [(str(CLUSTER_VERSION),)]:
        raise StoreVersionUnknown(place, version[0][0] if version else "none", CLUSTER_VERSION)


def _has_tables(session: Session, schema: str) -> bool:
    found = session.execute("SELECT to_regclass(quote_ident(%b) || '.meta')", (schema,)).fetchall()
    return found[0][0] is not None


def owned_bridges(database: Database, session: Session) -> list[str]:
    """Return the bridges that this broker owns in its cluster.

    :raises psycopg.Error: as the database does.
    """
    if not database.cluster or not _has_tables(session, database.cluster):
        return []
    rows = session.execute(
        _in_cluster(
            "SELECT name FROM {0}.bridge JOIN {0}.broker ON id = broker WHERE schema = %b ORDER BY 1",
            database,
        ),
        (database.schema,),
    ).fetchall()
    return [name for (name,) in rows]


def disown(database: Database, session: Session, bridge: str) -> None:
    """Have a bridge of this broker be no broker's, within a transaction.

    :raises psycopg.Error: as the database does.
    """
    if bridge in owned_bridges(database, session):
        session.execute(_in_cluster("DELETE FROM {}.bridge WHERE name = %b", database), (bridge,))


def leave(database: Database, session: Session) -> None:
    """Have the cluster forget this broker, within a transaction.

    :raises psycopg.Error: as the database does.
    """
    for bridge in owned_bridges(database, session):
        disown(database, session, bridge)
    if database.cluster and _has_tables(session, database.cluster):
        for text in (
            "DELETE FROM {0}.configuration USING {0}.broker WHERE broker = id AND schema = %b",
            "DELETE FROM {0}.broker WHERE schema = %b",
        ):
            session.execute(_in_cluster(text, database), (database.schema,))


def _in_cluster(text: str, database: Database) -> Composed:
    return SQL(text).format(Identifier(database.cluster))


def _enter(session: Session, schema: str) -> None:
    """Look for tables in this schema until the transaction ends."""
    session.execute(SQL("SET LOCAL search_path = {}").format(Identifier(schema)))


def _json(values: Mapping[str, str]) -> str:
    # A NUL is no text of the database.
    return json.dumps({key: value.replace("\0", "�") for key, value in values.items()})
