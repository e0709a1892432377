"""The decision log of a bridge's coordinator, beside the broker's rows.

A log has a session of its own under the name of the owner's, so that a takeover ends it, too. Every
transaction proves that the owner is still one.

Owns how such logs are written, and what is done when the database cannot be reached. Knows nothing
of what the octets of a log mean. All of it blocks, and is called from one thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from gateway.broker.store.interface import StoreFailed, StoreFull
from gateway.broker.store.postgresql import decision_tables, ownership
from gateway.broker.store.postgresql.connecting import (
    Database,
    Meaning,
    Session,
    meaning,
    words,
)
from gateway.broker.store.postgresql.ownership import Backend
from gateway.instance import crashpoints

#: Seconds between two attempts to reach the database: at first, and at most.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
#: Seconds for which the database may be out of reach while the log is to be closed.
_CLOSING_SECONDS: Final = 10.0


@dataclass(frozen=True)
class OwnerIdentity:
    """By what an owner of the broker is known to the database.

    :param session: the name of its sessions.
    """

    database: Database
    epoch: int
    session: str


@dataclass(frozen=True)
class _State:
    """Where a log is.

    :param turn: how often it was written anew; -1 for a log that there is not.
    :param length: its octets.
    """

    turn: int
    length: int


_NOTHING: Final = _State(-1, 0)


class DecisionRows:
    """The octets of a coordinator's decision log, as rows.

    What was appended or replaced is durable when the call returns. A log has two tables, and is
    written anew into that which is not in use, emptied before: so nothing bloats.

    :param owner: who writes it.
    :param bridge: the log's name, and the bridge's.
    :param reconnect_seconds: for so long the database may be out of reach before a call fails.
    :ivar waits: whether calls wait for the database at all. Not at first, so that the start of a
        bridge does not.
    """

    def __init__(self, owner: OwnerIdentity, bridge: str, reconnect_seconds: float) -> None:
        self.waits = False
        self._reconnect_seconds: Final = reconnect_seconds
        self._owner: Final = owner
        self._bridge: Final = bridge
        self._key: Final = bridge.encode()
        self._session: Session | None = None
        #: The server's process that has the session; once that is lost, until it is ended.
        self._backend: Backend | None = None
        self._hurry: Final = threading.Event()
        self._id: int | None = None
        self._state = _NOTHING

    @property
    def name(self) -> str:
        """As errors call it."""
        database = self._owner.database
        return f"of {self._bridge} in the database {database.described}, schema {database.schema}"

    def exists(self) -> bool:
        """Whether there is such a log.

        :raises StoreError: the database cannot be asked.
        """
        try:
            return self._look(self._connected()) != _NOTHING
        except psycopg.Error as error:
            raise self._owner.database.unusable(error) from error

    def place(self) -> str:
        """What tells this log from a copy.

        It is where the log is; in a cluster of brokers, which has a bridge once, the cluster is the
        place, so that a bridge that goes from one broker to another stays there.

        It is "" where the server does not say.

        :raises StoreError: the database cannot be asked.
        """
        try:
            found = self._connected().execute(
                "SELECT system_identifier::text, current_database()::text FROM pg_control_system()"
            )
            database = self._owner.database
            return " ".join((*found.fetchall()[0], database.cluster or database.schema))
        except psycopg.errors.InsufficientPrivilege:
            return ""
        except psycopg.Error as error:
            raise self._owner.database.unusable(error) from error

    def read(self) -> bytes | None:
        """Return the octets; None for a log that there is not.

        :raises StoreError: the database cannot be asked, or octets are missing.
        """
        try:
            session = self._connected()
            self._state = self._look(session)
            if self._state == _NOTHING:
                return None
            assert self._id is not None, "the log was looked for"
            rows = decision_tables.parts(session, self._id, self._state.turn)
        except psycopg.Error as error:
            raise self._owner.database.unusable(error) from error
        return decision_tables.joined(rows, self.name)

    def append(self, data: bytes) -> None:
        """Append, completely or not at all.

        :raises StoreFull: there is no room; nothing was done.
        :raises StoreFailed: for good; it is not known whether it was done.
        """
        state = self._state

        def write(session: Session) -> None:
            session.execute(
                f"INSERT INTO {self._table(state.turn)} "
                "SELECT %b, %b, %b FROM (SELECT prove(%b) AS asker) AS proof WHERE asker IS NOT NULL",
                (state.turn, state.length, data, self._owner.epoch),
            )

        self._persisted(_State(state.turn, state.length + len(data)), write)

    def replace(self, data: bytes) -> None:
        """Replace the octets in one step. Makes the log if it does not exist.

        :raises StoreFull: there is no room; nothing was done.
        :raises StoreFailed: for good; it is not known whether it was done. Or there is no log, and
            another broker of the cluster owns the bridge.
        """
        turn = self._state.turn + 1

        def write(session: Session) -> None:
            with session.transaction():
                session.execute("SELECT prove(%b)", (self._owner.epoch,))
                if not turn:
                    self._prove_bridge(session)
                    self._id = decision_tables.make(session, self._bridge)
                table = self._table(turn)
                try:
                    with session.transaction():
                        # Somebody who reads it, such as a backup, must not hold this up. What is
                        # in it is of another turn, and goes the next time.
                        session.execute("SET LOCAL lock_timeout = '50ms'")
                        session.execute(f"TRUNCATE {table}")
                        session.execute("SET LOCAL lock_timeout = 0")
                except psycopg.errors.LockNotAvailable:
                    pass
                session.execute(f"INSERT INTO {table} VALUES (%b, 0, %b)", (turn, data))
                crashpoints.hit("store.mid-rewrite")

        self._persisted(_State(turn, len(data)), write)

    def _prove_bridge(self, session: Session) -> None:
        """Keep the bridge with this broker until the transaction ends.

        A log that there is goes along with its bridge. One that there is not yet must not be made
        by a broker whose bridge was taken.

        :raises StoreFailed: another broker of the cluster owns it.
        """
        schema = self._owner.database.cluster
        if not schema:
            return
        cluster = Identifier(schema)
        owner = session.execute(
            SQL("SELECT broker FROM {}.bridge WHERE name = %b FOR SHARE").format(cluster),
            (self._bridge,),
        ).fetchone()
        name = "no broker" if owner is None else f"broker {owner[0]}"
        found = session.execute(
            SQL("SELECT schema FROM {}.broker WHERE id = %b").format(cluster), owner or ("",)
        ).fetchone()
        if found != (self._owner.database.schema,):
            raise StoreFailed(f"{name} owns bridge {self._bridge}")

    def hurry(self) -> None:
        """Wait no longer for the database than closing may. From any thread."""
        self._hurry.set()

    def close(self) -> None:
        """End the session. Idempotent; never fails."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _table(self, turn: int) -> str:
        assert self._id is not None, "the log was looked for"
        return decision_tables.name(self._id, turn)

    def _look(self, session: Session) -> _State:
        rows = session.execute(
            "SELECT id FROM decision_log WHERE bridge = %b", (self._key,)
        ).fetchall()
        if not rows:
            return _NOTHING
        self._id = rows[0][0]
        turn = decision_tables.turn(session, rows[0][0])
        last = session.execute(
            f"SELECT at + length(octets) FROM {self._table(turn)} WHERE turn = %b ORDER BY at DESC LIMIT 1",
            (turn,),
        ).fetchall()
        return _State(turn, last[0][0] if last else 0)

    def _persisted(self, after: _State, write: Callable[[Session], None]) -> None:
        """Have the log be as ``after``, however often the database goes away.

        :param write: makes it so, in one transaction.
        """
        since: float | None = None
        pause = 0.0
        while True:
            known = self._session is not None
            try:
                session = self._connected()
                if not known and self._is(session, after):
                    break
                known = True
                crashpoints.hit("store.before-decision")
                write(session)
                crashpoints.hit("store.after-decision")
                break
            except psycopg.Error as error:
                what = meaning(error)
                if what is Meaning.FULL and known:
                    raise StoreFull(f"the database has no room: {words(error)}") from error
                if what is Meaning.OVER:
                    raise StoreFailed("another process owns this broker") from error
                if what is Meaning.REFUSED:
                    raise StoreFailed(words(error)) from error
                self.close()
                now = monotonic()
                since = now if since is None else since
                away = now - since
                most = self._reconnect_seconds if self.waits else 0.0
                if self._hurry.is_set():
                    most = min(most, _CLOSING_SECONDS)
                if away >= most:
                    raise StoreFailed(
                        f"the database could not be reached for {away:.0f} seconds: {words(error)}"
                    ) from error
                sleep(pause)
                pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._state = after

    def _is(self, session: Session, after: _State) -> bool:
        """Whether what was begun last is durable, after a session was lost.

        :raises StoreFailed: the log is not as it was, either.
        """
        found = self._look(session)
        if found not in (self._state, after):
            raise StoreFailed(
                f"the database had confirmed {self._state.length} octets of turn {self._state.turn}, "
                f"and has {found.length} of turn {found.turn}: it is another one now, or was restored"
            )
        if found != after:
            return False
        # The end of that session ended its waiting for a synchronous standby. This comes behind it:
        # when a standby has this, it has that.
        session.execute("SELECT prove(%b)", (self._owner.epoch,))
        return True

    def _connected(self) -> Session:
        """The session; a new one where the last was lost, which is over then.

        :raises psycopg.Error: as the database does.
        """
        if self._session is None:
            session = self._owner.database.connect(self._owner.session)
            try:
                if self._backend is not None:
                    # Of what it has been sent, nothing is done after this.
                    ownership.end(session, self._owner.session, self._backend)
                backend = ownership.backend(session)
            except BaseException:
                session.close()
                raise
            self._session, self._backend = session, backend
        return self._session
