"""Small files that the processes of a broker share, as rows of its schema.

Any of the processes may change one, also one that stands by. A change names the version that it is
of, so that of two at once only one is made. All of it blocks, and is called from one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import psycopg

from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import NAME, Database, Session, words

_T = TypeVar("_T")


@dataclass(frozen=True)
class SharedFile:
    """A file at one moment.

    :param version: rises with each change, from 1.
    :param node: the process that made the last one.
    """

    version: int
    octets: bytes
    node: str


class SharedFileRows:
    """The files of a broker.

    Every method raises StoreError where the database cannot be asked.

    :param node: this process, as others are told of it.
    """

    def __init__(self, database: Database, node: str) -> None:
        self._database: Final = database
        self._node: Final = node
        self._session: Session | None = None

    def versions(self) -> dict[str, int]:
        """Return the versions of all files, by name."""
        return self._asked(
            lambda session: dict(
                session.execute("SELECT name, version FROM shared_file").fetchall()
            )
        )

    def read(self, name: str) -> SharedFile | None:
        """Return a file; None for one that there is not."""
        rows = self._asked(
            lambda session: session.execute(
                "SELECT version, octets, node FROM shared_file WHERE name = %b",
                (name,),
                binary=True,
            ).fetchall()
        )
        return SharedFile(*rows[0]) if rows else None

    def write(self, name: str, octets: bytes, known: int) -> int | None:
        """Replace a file, durably.

        :param known: the version that this is a change of; 0 makes a new file.
        :returns: the version it has now; None where there is another one than is known.
        """
        if known:
            text = "UPDATE shared_file SET version = version + 1, octets = %b, node = %b WHERE name = %b AND version = %b RETURNING version"
            values: tuple[object, ...] = (octets, self._node, name, known)
        else:
            text = "INSERT INTO shared_file VALUES (%b, 1, %b, %b) ON CONFLICT DO NOTHING RETURNING version"
            values = (name, octets, self._node)
        rows = self._asked(lambda session: session.execute(text, values).fetchall())
        return rows[0][0] if rows else None

    def close(self) -> None:
        """End the session. Idempotent; never fails."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _asked(self, ask: Callable[[Session], _T]) -> _T:
        try:
            if self._session is None:
                session = self._database.connect(f"{NAME} files {self._node}"[:60])
                try:
                    ownership.check_version(self._database, session)
                except BaseException:
                    session.close()
                    raise
                self._session = session
            return ask(self._session)
        except psycopg.Error as error:
            self.close()
            raise StoreError(f"the database {self._database.described}: {words(error)}") from error
