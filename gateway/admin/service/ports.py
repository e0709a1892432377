"""What the admin service needs of those it tells of and drives, as protocols: the root and the
bridges bring the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bridge.manager import Bridge, Outcome

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bridge.config import model
    from bridge.config.changes import Changes
    from bridge.xa.status import TransactionCounts, TransactionStatus
    from gateway.instance.levels import Level


class Bridges(Protocol):
    """The bridges of an instance: :class:`bridge.manager.BridgeServiceManager`."""

    @property
    def bridges(self) -> tuple[Bridge, ...]: ...

    def find(self, name: str) -> Bridge: ...

    def matching(self, name: str | None = None, type: str | None = None) -> list[Bridge]: ...

    def start(
        self, name: str | None = None, type: str | None = None
    ) -> Deferred[list[Outcome]]: ...

    def stop(self, name: str | None = None, type: str | None = None) -> Deferred[list[Outcome]]: ...

    def pause(
        self, name: str | None = None, type: str | None = None
    ) -> Deferred[list[Outcome]]: ...

    def resume(
        self, name: str | None = None, type: str | None = None
    ) -> Deferred[list[Outcome]]: ...

    def reload(self, name: str) -> Deferred[Changes]: ...


class WithConnections(Protocol):
    """What a bridge of type JMS has besides: dataclasses of the names and figures of its pools,
    shared connections and dead message queues, and the warnings of its file when that was read
    last, whose ``str`` is a sentence.
    """

    warnings: Sequence[Any]

    def pools(self) -> Sequence[Any]: ...

    def shared(self) -> Sequence[Any]: ...

    def dmqs(self) -> Sequence[Any]: ...


class Coordinates(Protocol):
    """The coordinator of a bridge's transactions: :class:`bridge.xa.coordinator.Coordinator`."""

    @property
    def counts(self) -> TransactionCounts: ...

    def transactions(self) -> Sequence[TransactionStatus]: ...

    def commit(self, id: str) -> Deferred[None]: ...

    def rollback(self, id: str) -> Deferred[None]: ...

    def forget(self, id: str) -> Deferred[None]: ...


class WithTransactions(Protocol):
    """What a bridge of type JMS has besides: the configuration in force, None where it is
    stopped.
    """

    @property
    def config(self) -> model.Bridge | None: ...


class BridgeLog(Protocol):
    """The log of a bridge: :class:`gateway.instance.logs.Log`."""

    level: Level

    def set_level(self, level: Level) -> None: ...
