"""How a session comes by its connection to the provider.

Owns what becomes of a client identifier that another connection has.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.messaging.errors import ClientIdInUse, MessagingError
from gateway.messaging.provider import Connection, Credentials, Provider


def connect(
    provider: Provider,
    who: Credentials,
    client_id: str | None,
    lost: Callable[[MessagingError], None],
    shares: bool,
) -> Deferred[Connection]:
    """Return a new connection of the provider's. May be cancelled.

    :param lost: called when the provider ends it.
    :param shares: where another connection has the client identifier, connect without it.
    """
    connecting = provider.connect(who, client_id, lost)
    if client_id is None or not shares:
        return connecting

    def without(failure: Failure) -> Deferred[Connection]:
        failure.trap(ClientIdInUse)  # type: ignore[no-untyped-call]
        return provider.connect(who, None, lost)

    return connecting.addErrback(without)
