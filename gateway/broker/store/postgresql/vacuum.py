"""Frees the space of dead rows over a session of its own.

A vacuum takes as long as there are dead rows: seconds for a GB. The owner commits meanwhile, and
gives signs of life. A vacuum changes no data, so it need not prove the epoch.

Owns that session, and whether the vacuum has ended. Knows nothing of when one is due.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

import psycopg
from psycopg.pq import ExecStatus

from gateway.broker.store.postgresql.connecting import Database, Session

#: Seconds until another is begun after one has failed.
_PAUSE: Final = 10.0


class Vacuum:
    """At most one vacuum at a time, which is not waited for.

    One that fails says nothing about the owner's session, and only costs space: the database may
    allow no further session, or an administrator has ended it.

    :param database: where.
    :param name: of the owner's sessions, so that a new owner ends it with them.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._session: Session | None = None
        self._has_failed = False
        self._not_before = 0.0

    @property
    def runs(self) -> bool:
        """Whether one has begun, and is not known to have ended."""
        return self._session is not None

    @property
    def can_begin(self) -> bool:
        """Whether none runs, and none has failed a moment ago."""
        return self._session is None and monotonic() >= self._not_before

    def begin(self, table: str) -> None:
        """Begin to vacuum a table. :attr:`can_begin` is true."""
        self._has_failed = False
        try:
            self._session = self._database.connect(self._name)
            self._session.pgconn.send_query(
                f"VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, PARALLEL 0) {table}".encode()
            )
        except psycopg.Error:
            self._fail()

    def has_failed(self) -> bool:
        """See whether the last one has failed. Returns that once."""
        if self._session is not None:
            self._look(self._session)
        failed, self._has_failed = self._has_failed, False
        return failed

    def _look(self, session: Session) -> None:
        try:
            session.pgconn.consume_input()
            if session.pgconn.is_busy():
                return
            result = session.pgconn.get_result()
        except psycopg.Error:
            result = None
        if result is None or result.status != ExecStatus.COMMAND_OK:
            self._fail()
        else:
            self.leave()

    def _fail(self) -> None:
        self._has_failed = True
        self._not_before = monotonic() + _PAUSE
        self.leave()

    def leave(self) -> None:
        """Close its session. The database goes on with a vacuum until it notices."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def end(self, session: Session) -> None:
        """End the vacuum, if one runs.

        :param session: another one of the owner's.
        :raises psycopg.Error: as the database does.
        """
        if self._session is not None:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid = %b AND application_name = %b",
                (self._session.pgconn.backend_pid, self._name),
            )
            self.leave()
