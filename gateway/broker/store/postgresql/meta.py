"""Reads what the table ``meta`` says of a store, and does not trust it.

Owns which values are sound, and the first seq that was never used. Knows nothing of who owns the
broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.broker.store.interface import StoreDamaged
from gateway.broker.store.postgresql.connecting import Session
from gateway.broker.store.postgresql.segments import Tables

_KEYS: Final = ("version", "id", "next_seq", "clean")


@dataclass(frozen=True)
class Meta:
    """What a store is.

    :param store_id: random, in every message id.
    :param next_seq: the first seq never used.
    :param clean: whether it was closed in order.
    :param wrong: what contradicts the ``next_seq`` that was written, "" for nothing.
    """

    version: str
    store_id: str
    next_seq: int
    clean: bool
    wrong: str


def read(session: Session, tables: Tables, described: str) -> Meta:
    """Read the table.

    A ``next_seq`` that is not above all rows is of an earlier time. Then rows of higher seqs may
    have come and gone, and all seqs of the newest segment are taken for used.

    :param tables: the segments there are.
    :param described: where the database is, for errors.
    :raises StoreDamaged: a value is missing, or is not one that a store writes.
    :raises psycopg.Error: as the database does.
    """
    found: dict[str, str] = dict(session.execute("SELECT key, value FROM meta").fetchall())
    for key in _KEYS:
        if key not in found:
            raise StoreDamaged(described, "table meta", f"it has no {key}")
    text, clean = found["next_seq"], found["clean"]
    if not (text.isascii() and text.isdecimal()) or clean not in ("0", "1") or not found["id"]:
        raise StoreDamaged(
            described,
            "table meta",
            f"it has a value that the store never writes: next_seq {text!r}, clean {clean!r}",
        )
    written = int(text)
    wrong = _above(session, tables, written)
    newest = max(segments.newest for segments in tables.all)
    next_seq = max(written, tables.end(newest)) if wrong else written
    return Meta(found["version"], found["id"], next_seq, clean == "1", wrong)


def _above(session: Session, tables: Tables, next_seq: int) -> str:
    """Say which row or table has seqs that are not below ``next_seq``."""
    for segments, what in ((tables.messages, "message"), (tables.duplicates, "duplicate id")):
        # The table of what is left may have rows of any seq.
        for place in dict.fromkeys((None, *segments.places()[-1:])):
            ((last,),) = session.execute(f"SELECT max(seq) FROM {segments.table(place)}").fetchall()
            if last is not None and last >= next_seq:
                return f"its next_seq is {next_seq}, and there is {what} {last}"
    for segments in tables.all:
        if segments.newest >= 0 and tables.end(segments.newest - 1) >= next_seq:
            return (
                f"its next_seq is {next_seq}, and there is table {segments.table(segments.newest)}"
            )
    return ""
