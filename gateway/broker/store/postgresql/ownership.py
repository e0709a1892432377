"""Who owns the broker in the database.

An owner holds an advisory lock with its session, which says to others that it lives, and the epoch
in the table ``owner``, which every one of its transactions proves. The lock alone would be worth
nothing after a lost session, and the epoch alone would not tell others that its owner is gone.

Owns taking and giving up ownership, and taking it again after a session was lost. Knows nothing of
batches or threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from time import monotonic, sleep
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from gateway.broker.store.interface import StoreError, StoreFailed, StoreHeld, StoreVersionUnknown
from gateway.broker.store.postgresql.connecting import (
    NAME,
    Database,
    Meaning,
    Session,
    meaning,
    words,
)
from gateway.broker.store.postgresql.writer import Transactions

SCHEMA_VERSION: Final = 1

#: Milliseconds for which the end of a session is waited for.
_ENDING_MS: Final = 5_000

#: Seconds between two attempts to get the lock.
_POLL_SECONDS: Final = 0.05

#: The lock's number: 63 bits that are the same in every process. Of the session's schema, and of
#: one that need not exist.
_LOCK_IN: Final = "hashtextextended('stomp-gateway ' || {}, 0)"
_LOCK: Final = _LOCK_IN.format("current_schema")
_LOCK_OF: Final = _LOCK_IN.format("%b")

#: That of those who stand by, which they share.
_STANDBY_LOCK: Final = "hashtextextended('stomp-gateway standby ' || current_schema, 0)"

#: The sessions that hold the lock of this number.
_HOLDERS: Final = (
    "pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid::bigint << 32 | objid::bigint) = {}"
)
#: What the sessions of one that stands by are called, before its name.
_STANDBY: Final = f"{NAME} standby "

#: When a process of the server began, as a text.
_START: Final = "extract(epoch FROM backend_start)::text"

#: Sessions of an owner by their name; that of one's own is left out.
_SESSIONS: Final = "FROM pg_stat_activity WHERE application_name = %b AND pid <> pg_backend_pid()"


@dataclass(frozen=True)
class Owner:
    """Who owns the broker now, or did last.

    :param session: the name of its sessions.
    :param since: when it became the owner, as the database writes a time.
    :param released: whether it has given it up in order.
    :param wanted: the node that has asked for it, "" for none.
    :param silent: seconds since its last commit, or since it became the owner, by the database's
        clock. That clock may be set: a difference of two looks is no time.
    :param sign: its last sign of life, which differs from all earlier ones.
    :param locked: whether a session holds its lock.
    """

    epoch: int
    node: str
    session: str
    since: str
    released: bool
    wanted: str
    silent: float
    sign: str
    locked: bool


def check_version(database: Database, session: Session) -> None:
    """Make sure that the tables are there and are those of this program.

    :raises StoreVersionUnknown: they are of another version.
    :raises StoreError: there are no tables.
    :raises psycopg.Error: as the database does.
    """
    place = f"the database {database.described}, schema {database.schema}"
    found = session.execute(
        "SELECT to_regclass(quote_ident(%s) || '.meta')", (database.schema,)
    ).fetchall()
    if found[0][0] is None:
        raise StoreError(f"{place}, has no tables of this broker: 'imqdbmgr create tbl' makes them")
    version = session.execute("SELECT value FROM meta WHERE key = 'version'").fetchall()
    if version != [(str(SCHEMA_VERSION),)]:
        raise StoreVersionUnknown(place, version[0][0] if version else "none", SCHEMA_VERSION)


def look(session: Session) -> Owner:
    """See who owns the broker.

    :raises psycopg.Error: as the database does.
    """
    row = session.execute(
        f"""
        SELECT epoch, node, session, date_trunc('second', since)::text, released, wanted,
            extract(epoch FROM clock_timestamp() - coalesce(at, since))::float8, concat_ws(' ', epoch, number),
            {is_locked("current_schema")}
        FROM owner LEFT JOIN LATERAL (
            SELECT number, at FROM commits_0 WHERE epoch = owner.epoch UNION ALL
            SELECT number, at FROM commits_1 WHERE epoch = owner.epoch ORDER BY number DESC LIMIT 1) AS last ON true
        """
    ).fetchone()
    assert row is not None, "the table has one row from the beginning"
    return Owner(*row)


def take(database: Database, session: Session, node: str, name: str, seconds: float) -> int:
    """Become the owner, unless a living session says that another process is.

    :param node: what others are to be told.
    :param name: of this process's sessions.
    :param seconds: for so long the other is waited for: the session of a process that was killed a
        moment ago may not have ended.
    :returns: the epoch.
    :raises StoreHeld: another process is the owner.
    :raises psycopg.Error: as the database does.
    """
    if not _lock(database, session, seconds):
        raise _held(database, look(session))
    row = session.execute(
        "UPDATE owner SET epoch = epoch + 1, node = %b, session = %b, since = clock_timestamp(), released = false, wanted = '' RETURNING epoch",
        (node, name),
    ).fetchone()
    assert row is not None, "the table has one row from the beginning"
    epoch: int = row[0]
    # Those of earlier owners are of no use.
    for table in ("commits_0", "commits_1"):
        session.execute(f"DELETE FROM {table} WHERE epoch < %b", (epoch,))
    return epoch


def hold(database: Database, session: Session, seconds: float) -> Owner | None:
    """Keep every process from becoming the owner while this session lives.

    :param seconds: as for :func:`take`.
    :returns: who was the owner last; None where there are no tables of this version.
    :raises StoreHeld: a process is the owner.
    :raises psycopg.Error: as the database does.
    """
    free = _lock(database, session, seconds)
    try:
        check_version(database, session)
    except StoreError as error:
        if free:
            return None
        raise StoreHeld(f"{error}; another process holds it") from error
    owner = look(session)
    if not free:
        raise _held(database, owner)
    if not owner.released:
        # Its process may be there and only have lost the session that held the lock.
        end(session, owner.session)
    return owner


def end_for_good(
    database: Database, session: Session, seconds: float, lease_seconds: float
) -> bool:
    """Keep the last owner from going on, if it is certain to have ended.

    An owner that did not give the broker up may only have lost its session, and is waited for until
    it could have been replaced. While this session lives after that, no process becomes the owner.

    :param seconds: for so long an owner is waited for.
    :param lease_seconds: after so long without a sign of life an owner may be replaced.
    :returns: whether the last owner has ended; False for one that may be alive, which is left
        alone.
    :raises psycopg.Error: as the database does.
    """
    while _lock(database, session, seconds):
        owner = look(session)
        if owner.released:
            return True
        if owner.silent >= lease_seconds:
            session.execute("UPDATE owner SET epoch = epoch + 1")
            end(session, owner.session)
            return True
        session.execute("SELECT pg_advisory_unlock_all()")
        sleep(_POLL_SECONDS)
    return False


def keep(session: Session, schema: str) -> bool:
    """Let no process become a broker's owner before the transaction ends.

    :param schema: the broker's.
    :returns: False where one is.
    :raises psycopg.Error: as the database does.
    """
    rows = session.execute(f"SELECT pg_try_advisory_xact_lock({_LOCK_OF})", (schema,)).fetchall()
    free: bool = rows[0][0]
    return free


def is_locked(schema: str) -> str:
    """Return SQL that says whether a process owns the broker of a schema.

    :param schema: an expression of SQL for its name.
    """
    return f"EXISTS (SELECT 1 FROM {_HOLDERS.format(_LOCK_IN.format(schema))})"


def _lock(database: Database, session: Session, seconds: float) -> bool:
    until = monotonic() + seconds
    text = f"SELECT pg_try_advisory_lock({_LOCK_OF})"
    while not session.execute(text, (database.schema,)).fetchall()[0][0]:
        if monotonic() >= until:
            return False
        sleep(_POLL_SECONDS)
    return True


def _held(database: Database, owner: Owner) -> StoreHeld:
    place = f"the database {database.described}, schema {database.schema}"
    if owner.released:
        return StoreHeld(
            f"{place}: 'imqdbmgr' holds this broker, or a process that begins to own it"
        )
    return StoreHeld(
        f"{place}: {owner.node} owns this broker since {owner.since}; "
        f"its last sign of life is {owner.silent:.1f} seconds old"
    )


@dataclass(frozen=True)
class Backend:
    """A process of a server that has a session.

    :param pid: another one may have it after this has ended, and on another server.
    :param start: when it began, epoch seconds with six decimals.
    """

    pid: int
    start: str


def backend(session: Session) -> Backend:
    """Return the process that has this session.

    :raises psycopg.Error: as the database does.
    """
    ((pid, start),) = session.execute(
        f"SELECT pid, {_START} FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    ).fetchall()
    return Backend(pid, start)


def end(session: Session, name: str, only: Backend | None = None) -> None:
    """End the present sessions of this name, and wait until they are gone.

    :param only: end only the one of this process, if it is one of this server.
    :raises psycopg.Error: as the database does.
    :raises psycopg.OperationalError: one of them does not end.
    """
    if not name:
        # Nothing has owned the broker yet. Others' sessions may have no name.
        return
    ended = session.execute(
        f"SELECT pid, pg_terminate_backend(pid, {_ENDING_MS}) {_SESSIONS}"
        f" AND (%b::int4 IS NULL OR (pid = %b::int4 AND {_START} = %b::text))",
        (name, only and only.pid, only and only.pid, only and only.start),
    ).fetchall()
    # It is false, too, of one that had ended by itself.
    late = [pid for pid, gone in ended if not gone]
    if late:
        # Otherwise a transaction sees again what it has seen of sessions before.
        session.execute("SELECT pg_stat_clear_snapshot()")
    left = (
        session.execute(f"SELECT pid {_SESSIONS} AND pid = ANY(%b)", (name, late)) if late else ()
    )
    for (pid,) in left:
        raise psycopg.OperationalError(f"session {pid} of {name} does not end")


def take_again(
    database: Database, session: Session, transactions: Transactions, name: str, lost: int
) -> bool:
    """Go on as the owner over a new session, after the old one was lost.

    :param transactions: what is known of those over the old one.
    :param name: of this process's sessions.
    :param lost: the number of a transaction whose answer was lost.
    :returns: whether this server has that. A synchronous standby may not have it before this
        session has committed something.
    :raises StoreFailed: another process is the owner now; or what was confirmed is gone, because
        this is another server, which had not been given it.
    :raises psycopg.Error: as the database does; try again.
    """
    end(session, name)
    locked = session.execute(f"SELECT pg_try_advisory_lock({_LOCK})").fetchall()[0][0]
    owner = look(session)
    epoch, durable = transactions.epoch, transactions.durable
    if owner.epoch > epoch:
        raise over(database, owner)
    if not locked:
        raise psycopg.OperationalError("the owner's lock is held")
    last, has = session.execute(
        "SELECT coalesce(max(number), 0), coalesce(bool_or(number = %b), false) FROM ("
        "SELECT number FROM commits_0 WHERE epoch = %b AND number >= %b UNION ALL "
        "SELECT number FROM commits_1 WHERE epoch = %b AND number >= %b) AS numbers",
        (lost, epoch, durable, epoch, durable),
    ).fetchall()[0]
    if last < durable:
        raise StoreFailed(
            f"the database {database.described} has lost commits that it had confirmed: it has none of this owner from number {durable} on. "
            "It is another server now, or one that was restored; the one that was promoted must be a synchronous standby"
        )
    return bool(has)


def over(database: Database, owner: Owner) -> StoreFailed:
    """For a process that was the owner."""
    return StoreFailed(
        f"the database {database.described}, schema {database.schema}: {owner.node} owns this broker since {owner.since}; this process no longer does"
    )


def final(database: Database, session: Session, error: psycopg.Error) -> StoreFailed:
    """For an error of the database after which nothing may be written."""
    if meaning(error) is Meaning.OVER:
        try:
            return over(database, look(session))
        except psycopg.Error:
            return StoreFailed(
                f"the database {database.described}: another process owns this broker"
            )
    return StoreFailed(
        f"the database {database.described} cannot be written: {words(error)}; "
        "nothing more is written until the store is opened anew"
    )


def standing_by(database: Database, node: str) -> Session:
    """Make a session of a process that stands by, which others can see.

    :param node: the process.
    :raises StoreError: the database has no tables of this broker, or those of another version.
    :raises psycopg.Error: as the database does.
    """
    session = database.connect(f"{_STANDBY}{node}")
    try:
        check_version(database, session)
        session.execute(f"SELECT pg_advisory_lock_shared({_STANDBY_LOCK})")
    except BaseException:
        session.close()
        raise
    return session


def standbys(session: Session) -> list[str]:
    """Return the processes that stand by, sorted.

    :raises psycopg.Error: as the database does.
    """
    found = session.execute(
        f"""
        SELECT substr(application_name, {len(_STANDBY) + 1}) FROM pg_stat_activity
        WHERE pid IN (SELECT pid FROM {_HOLDERS.format(_STANDBY_LOCK)})
        ORDER BY 1
        """
    ).fetchall()
    return [node for (node,) in found]


def want(session: Session, node: str) -> None:
    """Ask the owner to give the ownership up to this node.

    :raises psycopg.Error: as the database does.
    """
    session.execute("UPDATE owner SET wanted = %b", (node,))


def wanted(session: Session) -> str:
    """Return the node that has asked for the ownership, "" for none.

    :raises psycopg.Error: as the database does.
    """
    found: str = session.execute("SELECT wanted FROM owner").fetchall()[0][0]
    return found


def give_up(session: Session) -> None:
    """Mark the store clean and give the ownership up, within a transaction."""
    session.execute("UPDATE meta SET value = '1' WHERE key = 'clean'")
    session.execute("UPDATE owner SET released = true")
    # Now, and not some time after the session has ended.
    session.execute("SELECT pg_advisory_unlock_all()")


def create(database: Database, session: Session, store_id: str, epoch: int = 0) -> None:
    """Make the tables of this broker, completely or not at all.

    :param store_id: goes into every message id.
    :param epoch: below which no owner will be: above that of all owners of former tables.
    :raises StoreError: there are such tables.
    :raises psycopg.Error: as the database does.
    """
    schema = Identifier(database.schema)
    text = resources.files("gateway.broker.store").joinpath(
        f"schema/postgresql-{SCHEMA_VERSION}.sql"
    )
    try:
        with session.transaction():
            session.execute(SQL("CREATE SCHEMA {}").format(schema))
            session.execute(text.read_text("utf-8"))
            session.execute(
                "INSERT INTO owner VALUES (%b, '', '', clock_timestamp(), true, '')", (epoch,)
            )
            session.execute(
                "INSERT INTO meta VALUES ('version', %s), ('id', %s), ('next_seq', '1'), ('clean', '1')",
                (str(SCHEMA_VERSION), store_id),
            )
    except psycopg.errors.DuplicateSchema as error:
        raise StoreError(
            f"the database {database.described} has a schema {database.schema} already: 'imqdbmgr recreate tbl' makes it anew, 'imqdbmgr delete tbl' removes it"
        ) from error
