"""Watches the owner of a broker, for a process that stands by.

Owns when the owner may be replaced. The replacing is :meth:`PostgresqlStore.open`'s, of which only
one process succeeds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import psycopg
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import NAME, Database, Session, words
from gateway.broker.store.postgresql.ownership import Owner

#: Seconds between two looks at the owner.
_LOOK_SECONDS: Final = 0.1
#: Seconds between two attempts to reach the database.
_REACH_SECONDS: Final = 1.0
#: For so long an owner may be without its session, and others leave the broker to the one that has
#: asked for it.
_WITHOUT_SESSION_SECONDS: Final = 1.0
_LEFT_TO_ANOTHER_SECONDS: Final = 2.0


def nodes(database: Database) -> tuple[Owner, list[str]]:
    """Return who owns the broker, or did last, and who stands by. Blocks.

    :raises StoreError: the database cannot be used, or has no tables of this broker.
    """
    try:
        session = database.connect(f"{NAME} look")
        try:
            ownership.check_version(database, session)
            return ownership.look(session), ownership.standbys(session)
        finally:
            session.close()
    except psycopg.Error as error:
        raise database.unusable(error) from error


class Standby:
    """Calls ``free`` once when this process may become the owner.

    That is when the owner has given the broker up; when it has had no session for a second, because
    its process has ended; or when it has given no sign of life for the lease, because its machine
    or the network is gone. Then its sessions are ended first.

    Time is measured by this process's clock between two looks: how the clocks of machines differ,
    or are set, does not matter.

    :param database: where the broker is.
    :param node: this process, as others are told of it.
    :param reactor: where the callbacks are called.
    :param lease_seconds: as the owner has it.
    :param free: called once; then this watches no more.
    :param told: called with the owner whenever another process, or none, owns the broker; and with
        None and the reason while the database cannot be reached.
    """

    _log = Logger()

    def __init__(
        self,
        database: Database,
        node: str,
        reactor: IReactorFromThreads,
        lease_seconds: float,
        free: Callable[[], None],
        told: Callable[[Owner | None, str], None],
    ) -> None:
        self._database = database
        self._node = node
        self._reactor = reactor
        self._lease_seconds = lease_seconds
        self._free = free
        self._told = told
        self._stopped = threading.Event()
        #: The owner is to be asked to give the broker up.
        self._asking = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
        # From here on the thread's own.
        self._shown: tuple[int, bool] | str | None = None
        self._sign = ""
        self._signed_at = 0.0
        self._locked_at = 0.0
        self._released_at: float | None = None

    def watch(self) -> None:
        """Begin. To be called once."""
        self._thread.start()

    def ask(self) -> None:
        """Ask the owner to give the broker up to this process. Idempotent."""
        self._asking.set()

    def stop(self) -> None:
        """Watch no more. Idempotent; ``free`` may be on its way."""
        self._stopped.set()

    # On the thread.

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    free = self._watched()
                except psycopg.Error as error:
                    self._tell(None, f"the database {self._database.described}: {words(error)}")
                    self._stopped.wait(_REACH_SECONDS)
                except StoreError as error:
                    self._tell(None, str(error))
                    self._stopped.wait(_REACH_SECONDS)
                else:
                    if free:
                        self._reactor.callFromThread(self._is_free)
                    return
        except Exception:  # noqa: BLE001
            # A defect; the process must not seem to stand by.
            failure = Failure()  # type: ignore[no-untyped-call]
            self._reactor.callFromThread(self._log.failure, "the standby has failed", failure)

    def _watched(self) -> bool:
        """Watch over one session until the broker is free.

        Returns False when this was stopped.
        """
        session = ownership.standing_by(self._database, self._node)
        try:
            # While the database was out of reach nothing was seen of the owner.
            self._sign, self._released_at = "", None
            while not self._stopped.wait(_LOOK_SECONDS):
                if self._asking.is_set():
                    self._asking.clear()
                    ownership.want(session, self._node)
                if self._may_take(session, ownership.look(session)):
                    return True
            return False
        finally:
            session.close()

    def _may_take(self, session: Session, owner: Owner) -> bool:
        now = monotonic()
        self._tell(owner, "")
        if not self._sign:
            self._locked_at = now
        if owner.sign != self._sign:
            self._sign, self._signed_at = owner.sign, now
        if owner.locked:
            self._locked_at = now
        if owner.released and not owner.locked:
            if self._released_at is None:
                self._released_at = now
            mine = owner.wanted in ("", self._node)
            return mine or now - self._released_at >= _LEFT_TO_ANOTHER_SECONDS
        self._released_at = None
        if now - self._locked_at >= _WITHOUT_SESSION_SECONDS:
            return True
        if now - self._signed_at < self._lease_seconds:
            return False
        ownership.end(session, owner.session)
        return True

    def _tell(self, owner: Owner | None, why: str) -> None:
        shown = why if owner is None else (owner.epoch, owner.released)
        if shown != self._shown:
            self._shown = shown
            self._reactor.callFromThread(self._told, owner, why)

    # Back on the reactor's thread.

    def _is_free(self) -> None:
        if not self._stopped.is_set():
            self._free()
