"""Name, make, read and remove the tables of decision logs.

Owns the rows of logs that no owner writes to meanwhile. Writing a log that is in use is
:mod:`~gateway.broker.store.postgresql.decisions`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql.connecting import Session

_NAME: Final = re.compile(r"decision(_log|_\d+_[01])?")


def is_name(table: str) -> bool:
    """Whether a table of this name is of decision logs."""
    return _NAME.fullmatch(table) is not None


def name(id: int, turn: int) -> str:
    """Return the name of the table that a log is in.

    :param id: the log's.
    :param turn: how often it was written anew.
    """
    return f"decision_{id}_{turn % 2}"


def make(session: Session, bridge: str) -> int:
    """Make the two tables of a log, within a transaction.

    :returns: the log's id.
    :raises psycopg.Error: as the database does.
    """
    row = session.execute(
        "INSERT INTO decision_log (bridge, turn) VALUES (%b, 0) RETURNING id", (bridge.encode(),)
    ).fetchone()
    assert row is not None, "an insert returns its row"
    id: int = row[0]
    for turn in (0, 1):
        session.execute(f"CREATE TABLE {name(id, turn)} (LIKE decision INCLUDING ALL)")
    return id


def turn(session: Session, id: int) -> int:
    """Return how often a log was written anew.

    Its first row of a turn is what makes this the last: a number kept elsewhere would leave a dead
    row each time.

    :raises psycopg.Error: as the database does.
    """
    found: int = session.execute(
        f"SELECT greatest((SELECT max(turn) FROM {name(id, 0)}), (SELECT max(turn) FROM {name(id, 1)}), 0)"
    ).fetchall()[0][0]
    return found


def joined(parts: Sequence[tuple[int, bytes]], log: str) -> bytes:
    """Return the octets of a log.

    :param parts: each with where it begins, in order.
    :param log: as errors call it.
    :raises StoreError: octets are missing.
    """
    data = bytearray()
    for at, octets in parts:
        if at != len(data):
            raise StoreError(f"the transaction log {log} lacks octets {len(data)} to {at}")
        data += octets
    return bytes(data)


@dataclass(frozen=True)
class StoredLog:
    """A log at one moment, also one that is damaged.

    :param parts: its rows in order: where each begins, and its octets.
    """

    bridge: str
    parts: Sequence[tuple[int, bytes]]


def stored(session: Session) -> list[StoredLog]:
    """Return all logs by the names of their bridges.

    :raises psycopg.Error: as the database does.
    """
    if session.execute("SELECT to_regclass('decision_log')").fetchall()[0][0] is None:
        return []
    logs = session.execute("SELECT id, bridge FROM decision_log", binary=True).fetchall()
    found = [
        StoredLog(bridge.decode(), parts(session, id, turn(session, id))) for id, bridge in logs
    ]
    return sorted(found, key=lambda log: log.bridge)


def parts(session: Session, id: int, turn: int) -> list[tuple[int, bytes]]:
    """Return the rows of a log in order: where each begins, and its octets.

    :param turn: how often it was written anew.
    :raises psycopg.Error: as the database does.
    """
    return session.execute(
        f"SELECT at, octets FROM {name(id, turn)} WHERE turn = %b ORDER BY at", (turn,), binary=True
    ).fetchall()


def put(session: Session, log: StoredLog) -> None:
    """Make a log that does not exist, within a transaction.

    :raises psycopg.Error: as the database does.
    """
    table = name(make(session, log.bridge), 0)
    for at, octets in log.parts:
        session.execute(f"INSERT INTO {table} VALUES (0, %b, %b)", (at, octets))


def lock(session: Session, bridge: str) -> None:
    """Keep everybody from the log of a bridge until the transaction ends.

    What was being written is waited for.

    :raises psycopg.Error: as the database does.
    """
    for (id,) in session.execute(
        "SELECT id FROM decision_log WHERE bridge = %b", (bridge.encode(),)
    ).fetchall():
        session.execute(f"LOCK TABLE {name(id, 0)}, {name(id, 1)} IN ACCESS EXCLUSIVE MODE")


def remove(session: Session, bridge: str) -> None:
    """Remove the log of a bridge, if it has one, within a transaction.

    :raises psycopg.Error: as the database does.
    """
    for (id,) in session.execute(
        "DELETE FROM decision_log WHERE bridge = %b RETURNING id", (bridge.encode(),)
    ).fetchall():
        session.execute(f"DROP TABLE {name(id, 0)}, {name(id, 1)}")


def octets_on_disk(session: Session, bridge: str) -> int:
    """Return the bytes of a log on the disk, with indexes.

    :raises psycopg.Error: as the database does.
    """
    found: int = session.execute(
        "SELECT coalesce(sum(pg_total_relation_size(format('decision_%%s_%%s', id, turn)::regclass)), 0)::int8 "
        "FROM (SELECT id FROM decision_log WHERE bridge = %b) AS log, generate_series(0, 1) AS turns(turn)",
        (bridge.encode(),),
    ).fetchall()[0][0]
    return found
