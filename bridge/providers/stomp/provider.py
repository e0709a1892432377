"""A STOMP broker behind the seam: its Provider.

Owns opening connections, and what is known of the broker from one connection to the next: its
dialect, and which client identifiers are in use here.

:attr:`StompProvider.capabilities` are those of the broker's dialect. A declared dialect
(``stomp.dialect``) is known from the start. Otherwise the broker counts as unknown, without any
capability, until it has answered the first connection. If another broker answers a later
connection, the capabilities change; those of an open connection never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.asked import Asked, Operation
from bridge.providers.connection_options import InvalidOption
from bridge.providers.stomp.connection import BrokerConnection
from bridge.providers.stomp.options import (
    StompAddress,
    StompOptions,
    capabilities_of,
)
from bridge.providers.stomp.wire import Wire
from gateway.messaging.errors import ClientIdInUse, MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials
from gateway.reactor.clocks import TimeLimit
from gateway.reactor.deferreds import deferred
from gateway.stomp.brokers import GENERIC, product, recognise

_log: Final = Logger(namespace="bridge.stomp")


class StompProvider:
    """Connections to one broker.

    :param address: where it is; a ``lookup-name`` by :meth:`StompAddress.parse`.
    :param options: how to treat it.
    :param reactor: Twisted's, for sockets and time.
    """

    def __init__(self, address: StompAddress, options: StompOptions, reactor: Any) -> None:
        self.address = address
        self.options = options
        self._reactor = reactor
        self._dialect = options.declared
        #: Client identifiers of the connections that are open or being opened.
        self._client_ids: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._dialect or GENERIC)

    @property
    def resource(self) -> str:
        return str(self.address)

    @deferred
    async def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        client_id = client_id or None
        if client_id is not None:
            if client_id in self._client_ids:
                raise ClientIdInUse(client_id)
            self._client_ids.add(client_id)

        def ended() -> None:
            if client_id is not None:
                self._client_ids.discard(client_id)

        try:
            wire, headers = await self._open(credentials, client_id)
        except BaseException:
            ended()
            raise
        dialect = self.options.declared or recognise(headers.get("server", ""))
        if dialect is not self._dialect:
            self._dialect = dialect
            _log.info(
                "{address} calls itself '{server}': taken for {dialect}",
                address=str(self.address),
                server=headers.get("server", "")[:100],
                dialect=dialect.name,
            )

        async def another() -> Wire:
            return (await self._open(credentials, None))[0]

        name = product(headers.get("server", "")) or dialect.name
        connection = BrokerConnection(
            wire,
            dialect,
            self.options,
            self._reactor,
            credentials.username,
            client_id,
            name,
            lost,
            ended,
            another,
            credentials.for_clients,
        )
        return cast(Connection, connection)

    async def _open(
        self, credentials: Credentials, client_id: str | None
    ) -> tuple[Wire, dict[str, str]]:
        """Open a socket to the broker, and wait until it has answered CONNECT.

        The wait ends after ``connect_timeout`` seconds.
        """
        address, options = self.address, self.options
        connect = [("host", address.virtual_host)]
        if credentials.username or credentials.passcode:
            connect += (("login", credentials.username), ("passcode", credentials.passcode))
        if client_id is not None:
            connect.append(("client-id", client_id))
        asked = Asked(Operation.CONNECT, credentials.username, client_id=client_id)
        wire = Wire(self._reactor, options, str(address), asked, connect)
        endpoint: Any = HostnameEndpoint(
            self._reactor, address.host, address.port, timeout=options.connect_timeout
        )
        if address.tls:
            try:
                endpoint = wrapClientTLS(options.tls(address), endpoint)
            except (OSError, InvalidOption) as error:
                raise ProviderUnavailable(f"{address}: {error}") from error
        late = TimeLimit(self._reactor, options.connect_timeout, self._late, wire)
        connecting: Deferred[Any] = connectProtocol(endpoint, wire)  # type: ignore[no-untyped-call]
        connecting.addErrback(self._failed, wire)

        def given_up(failure: Failure) -> Any:
            connecting.cancel()
            return failure

        wire.opened.addErrback(given_up)
        try:
            headers = await wire.opened
        finally:
            if late.active():
                late.cancel()
        return wire, headers

    def _late(self, wire: Wire) -> None:
        wire.fail(
            ProviderUnavailable(
                f"{self.address}: it did not answer within {self.options.connect_timeout:g} s"
            )
        )

    def _failed(self, failure: Failure, wire: Wire) -> None:
        """No socket could be opened."""
        error = failure.value
        if isinstance(error, ConnectError) and not isinstance(error, ConnectingCancelledError):
            reason = str(error) or type(error).__name__
        else:
            reason = f"{type(error).__name__}: {error}"
        wire.fail(ProviderUnavailable(f"{self.address}: {reason}"))
