"""Databases for tests of the store in PostgreSQL, and stores over them.

Imports psycopg only where a database is used, because the quick tier needs none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IReactorFromThreads

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Database, Session
    from gateway.broker.store.postgresql.store import PostgresqlStore

SCHEMA: Final = "mq_test"
#: Seqs of a segment, as bits: so few that tests have many segments.
SHIFT: Final = 5


def database_at(url: str, **options: Any) -> Database:
    """The database of a URL. :param options: of ``Database``."""
    from psycopg.conninfo import conninfo_to_dict

    from gateway.broker.store.postgresql.connecting import Database

    keywords = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    return Database(keywords, "the test's", SCHEMA, **options)


def create_tables(database: Database) -> None:
    """Make the tables of a broker that has no owner."""
    from gateway.broker.store.postgresql import ownership

    session = database.connect("the test")
    ownership.create(database, session, random.Random(1).randbytes(8).hex())
    session.close()


def postgresql_store(
    database: Database, reactor: IReactorFromThreads, node: str = "first", **options: Any
) -> PostgresqlStore:
    """A store over the database, not opened. :param options: of the store."""
    from gateway.broker.store.postgresql.store import PostgresqlStore

    return PostgresqlStore(
        database, node, reactor, **{"shift": SHIFT, "reserve_octets": 0, **options}
    )


@contextmanager
def looking(database: Database) -> Iterator[Session]:
    """Give a session in the broker's schema that is no owner's."""
    session = database.connect("the test")
    try:
        yield session
    finally:
        session.close()


def session_of_others(database: Database, *, held: bool) -> Session:
    """A session that is not the store's.

    :param held: it holds a snapshot.
    """
    session = database.connect("somebody else")
    if held:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1")
        session.execute("SET idle_in_transaction_session_timeout = 0")
    return session


def end_sessions(database: Database) -> None:
    """End the owner's sessions, as an administrator may, or a fault."""
    from gateway.broker.store.postgresql import ownership

    session = database.connect("the test")
    ownership.end(session, ownership.look(session).session)
    session.close()
