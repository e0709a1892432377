"""What the admin service needs of the embedded broker, as a protocol: the root brings the real one.

Answers are dataclasses; their fields are the names that
:mod:`gateway.admin.service.broker_resources` documents. Errors are those of
:mod:`gateway.messaging.errors`. What changes anything is durable when its Deferred fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


class BrokerAdministration(Protocol):
    """What an administrator may do to the embedded broker. ``type`` is ``queue`` or ``topic``,
    ``given`` the properties by the original's names.
    """

    def broker(self) -> Any: ...

    def list_destinations(
        self, show: Callable[[Any], None], type: str = "", temporary: bool = False
    ) -> Deferred[None]: ...

    def destination(self, type: str, name: str) -> Any: ...

    def measured(self, most: int) -> tuple[Sequence[Any], int]: ...

    def create(self, type: str, name: str, given: Mapping[str, str]) -> Deferred[Sequence[str]]: ...

    def update(self, type: str, name: str, given: Mapping[str, str]) -> Deferred[Sequence[str]]: ...

    def purge(
        self, type: str, name: str, selector: str = "", use_dmq: bool = False
    ) -> Deferred[int]: ...

    def destroy(self, type: str, name: str, use_dmq: bool = False) -> Deferred[None]: ...

    def durables(self, topic: str = "") -> Sequence[Any]: ...

    def destroy_durable(self, name: str, client_id: str) -> Deferred[None]: ...

    def connections(self, service: str = "") -> Sequence[Any]: ...

    def destroy_connection(self, number: int) -> None: ...


class BranchAdministration(Protocol):
    """What an administrator may do about prepared branches of XA transactions, which are named as
    ``FORMAT.GTRID.BQUAL``, each in hexadecimal.
    """

    def branches(self) -> Sequence[Any]: ...

    def commit(self, xid: str) -> Deferred[None]: ...

    def rollback(self, xid: str) -> Deferred[None]: ...

    def forget(self, xid: str) -> Deferred[None]: ...
