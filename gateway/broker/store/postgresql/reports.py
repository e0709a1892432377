"""What the store in PostgreSQL says by itself.

Owns the callbacks that no call waits for, and their lines in the log. All of it is on the reactor's thread. Knows nothing of
the database.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from twisted.logger import Logger

from gateway.broker.store.interface import StoreDamaged, StoreFailed


class Reports:
    """Callbacks of a store, and their log lines.

    Those of :class:`~gateway.broker.store.interface.Store`, and ``on_wanted``.

    :param described: where the database is.
    :param answers_seconds: for so long after a sign of life the owner may answer.
    """

    _log = Logger()

    def __init__(self, described: str, answers_seconds: float) -> None:
        self.on_damaged: Callable[[StoreDamaged], None] | None = None
        self.on_failed: Callable[[StoreFailed], None] | None = None
        self.on_full: Callable[[bool], None] | None = None
        self.on_reachable: Callable[[bool], None] | None = None
        self.on_owned: Callable[[float], None] | None = None
        #: Called once on the reactor thread with the node that wants to be the owner.
        self.on_wanted: Callable[[str], None] | None = None
        self._described = described
        self._answers_seconds = answers_seconds

    def _lost(self, why: str, seconds: float) -> None:
        self._log.error(
            "the database {where} cannot be reached: {why}; it is tried for {seconds} seconds",
            where=self._described,
            why=why,
            seconds=round(seconds),
            event="store.unreachable",
        )
        if self.on_reachable is not None:
            self.on_reachable(False)

    def _reached(self, seconds: float) -> None:
        self._log.info(
            "the database {where} is reached again, after {seconds} seconds",
            where=self._described,
            seconds=f"{seconds:.1f}",
            event="store.reachable",
        )
        if self.on_reachable is not None:
            self.on_reachable(True)

    def _owned(self, owned_at: float) -> None:
        if self.on_owned is not None:
            self.on_owned(owned_at + self._answers_seconds - monotonic())

    def _is_wanted(self, node: str) -> None:
        if self.on_wanted is not None:
            self.on_wanted(node)

    def _full_changed(self, full: bool, why: str) -> None:
        if full:
            self._log.error(
                "the database {where} has no room: persistent messages wait until it has ({why}); acknowledgements are taken",
                where=self._described,
                why=why,
                event="store.full",
            )
        else:
            self._log.info(
                "the database has room again: persistent messages are stored", event="store.room"
            )
        if self.on_full is not None:
            self.on_full(full)

    def _failed(self, failure: StoreFailed) -> None:
        if self.on_failed is not None:
            self.on_failed(failure)

    def _is_damaged(self, error: StoreDamaged) -> None:
        if self.on_damaged is not None:
            self.on_damaged(error)
