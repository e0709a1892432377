"""A store that kills its own process at a named point, so that tests can prove what a crash there
leaves behind.

Owns the points and how they are asked for. Nothing here is part of a gateway that was not asked:
``gateway.app`` makes an ordinary
:class:`~gateway.broker.store.sqlite.SqliteStore` unless the environment names a point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.broker.store.interface import Batch, Committed, Recovered, StoreError
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance import killing

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorFromThreads

#: The variable of the environment that names a point: ``NAME`` or ``NAME:N``, for the N-th time
#: that it is passed.
VARIABLE: Final = "STOMP_GATEWAY_CRASH_POINT"

#: Every point, in the order of a process's life.
POINTS: Final = (
    # The store's file is made: on the thread that starts the gateway.
    "store.before-rename",
    "store.after-rename",
    # The store is open, and nothing has been read from it.
    "broker.opened",
    # A batch has been gathered, and the store does not have it yet: on the reactor's thread.
    "broker.before-submit",
    # It is being written: on the store's thread.
    "store.mid-batch",
    "store.before-commit",
    "store.after-commit",
    # It is durable, and nobody has been told: on the reactor's thread.
    "broker.before-receipts",
    # The RECEIPTs are written to the sockets' buffers, and not yet in the kernel.
    "broker.after-receipts",
    # The log is copied back into the database.
    "store.before-checkpoint",
    "store.after-checkpoint",
    # An orderly stop: the clients are gone.
    "broker.before-close",
    # The store is closed and marked as such.
    "broker.after-close",
)

#: Octets of log after which it is copied back here: little enough that a test gets there.
_CHECKPOINT_OCTETS: Final = 256 * 1024


def crash_point(text: str) -> Callable[[str], None]:
    """As :func:`gateway.instance.killing.crash_point`, of these points. :raises ValueError:"""
    return killing.crash_point(VARIABLE, POINTS, text)


class CrashingStore(SqliteStore):
    """The store with the broker's points beside its own, and a log that is copied back early.

    :param passed: called with the name of each point.
    """

    def __init__(
        self, path: str, reactor: IReactorFromThreads, passed: Callable[[str], None]
    ) -> None:
        super().__init__(path, reactor, checkpoint_octets=_CHECKPOINT_OCTETS, crash_point=passed)
        self._passed = passed

    def open(self) -> Recovered:
        recovered = super().open()
        self._passed("broker.opened")
        return recovered

    def submit(self, batch: Batch, committed: Committed) -> None:
        def told(error: StoreError | None) -> None:
            self._passed("broker.before-receipts")
            committed(error)
            self._passed("broker.after-receipts")

        self._passed("broker.before-submit")
        super().submit(batch, told)

    def close(self, closed: Callable[[], None]) -> None:
        def told() -> None:
            self._passed("broker.after-close")
            closed()

        self._passed("broker.before-close")
        super().close(told)
