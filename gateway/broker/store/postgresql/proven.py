"""A session of a broker's owner for what is beside its messages.

It has the name of the owner's sessions, so that a takeover ends it, too, and every change proves in
its transaction that the owner still is one. All of it blocks, and is called from one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from gateway.broker.store.interface import StoreError, StoreFailed
from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import Meaning, Session, meaning, words
from gateway.broker.store.postgresql.decisions import OwnerIdentity
from gateway.broker.store.postgresql.ownership import Backend

_T = TypeVar("_T")


class ProvenSession:
    """A session that is made when it is needed, and again when it was lost.

    Both calls raise StoreError where the database cannot be reached: whether something was changed
    is not known then. They raise StoreFailed where another attempt would not help: another process
    owns this broker now, or the user of the database may not do it.

    :param about: what it is for, for errors.
    :param prepare: called once, with the first session.
    """

    def __init__(
        self, owner: OwnerIdentity, about: str, prepare: Callable[[Session], object] = bool
    ) -> None:
        self._owner: Final = owner
        self._about: Final = about
        self._prepare: Final = prepare
        self._prepared = False
        self._session: Session | None = None
        #: The server's process that has the session, or had the last one.
        self._backend: Backend | None = None

    def change(self, change: Callable[[Session], _T]) -> _T:
        """Do it in a transaction which proves that this process owns the broker."""

        begun = False

        def proven(session: Session) -> _T:
            nonlocal begun
            session.execute("SELECT prove(%b)", (self._owner.epoch,))
            begun = True
            return change(session)

        return self._done(proven, lambda: not begun)

    def ask(self, ask: Callable[[Session], _T]) -> _T:
        """Do it in a transaction. It must change nothing: it may be done twice."""
        return self._done(ask, lambda: True)

    def _done(self, do: Callable[[Session], _T], may_repeat: Callable[[], bool]) -> _T:
        # A session that was not used for a while may have been lost with its server meanwhile.
        again = self._session is not None
        while True:
            try:
                session = self._connected()
                with session.transaction():
                    return do(session)
            except psycopg.Error as error:
                self.close()
                what = meaning(error)
                if again and what is Meaning.LOST and may_repeat():
                    again = False
                    continue
                where = self._owner.database.described
                told = f"{self._about} in the database {where}: {words(error)}"
                final = what in (Meaning.REFUSED, Meaning.OVER)
                raise StoreFailed(told) if final else StoreError(told) from error

    def close(self) -> None:
        """End the session. Idempotent; never fails."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> Session:
        if self._session is not None and self._session.closed:
            self._session = None
        if self._session is None:
            name = self._owner.session
            session = self._owner.database.connect(name)
            try:
                if self._backend is not None:
                    # Of what it has been sent, nothing is done after this.
                    ownership.end(session, name, self._backend)
                if not self._prepared:
                    self._prepare(session)
                    self._prepared = True
                backend = ownership.backend(session)
            except BaseException:
                session.close()
                raise
            self._session, self._backend = session, backend
        return self._session
