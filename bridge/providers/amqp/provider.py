"""An AMQP 1.0 broker behind the seam: its Provider.

Owns opening connections, and what is known of the broker from one connection to the next: which
peer it is, and which client identifiers are in use here.

:attr:`AmqpProvider.capabilities` are those of the peer. A declared peer (``amqp.peer``) is known
from the start. Otherwise the broker counts as unknown, and can do little, until it has opened the
first connection. If another broker answers a later connection, the capabilities change; those of an
open connection never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.amqp.connection import AmqpConnection
from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.peers import GENERIC, recognise
from bridge.providers.amqp.temporary import Temporaries
from bridge.providers.amqp.wire import Opened, Opening, Wire
from bridge.providers.asked import Asked, Operation
from bridge.providers.connection_options import InvalidOption
from gateway.messaging.errors import ClientIdInUse, MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials
from gateway.reactor.clocks import TimeLimit
from gateway.reactor.deferreds import deferred

_log: Final = Logger(namespace="bridge.amqp")


class AmqpProvider:
    """Connections to one broker.

    :param address: where it is; a ``lookup-name`` by :meth:`AmqpAddress.parse`.
    :param options: how to treat it.
    :param reactor: Twisted's, for sockets and time.
    """

    def __init__(self, address: AmqpAddress, options: AmqpOptions, reactor: Any) -> None:
        self.address = address
        self.options = options
        self._reactor = reactor
        self._peer = options.declared
        #: Client identifiers of the connections that are open or being opened.
        self._client_ids: set[str] = set()
        self._temporaries: Final = Temporaries()

    @property
    def capabilities(self) -> Capabilities:
        return (self._peer or GENERIC).capabilities

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
            wire, opened = await self._open(credentials, client_id)
        except BaseException:
            ended()
            raise
        peer = self.options.declared or recognise(opened.product, opened.version, self.address.host)
        if peer is not self._peer:
            self._peer = peer
            _log.info(
                "{address} calls itself '{product}' '{version}': taken for {peer}",
                address=str(self.address),
                product=opened.product[:100],
                version=opened.version[:100],
                peer=peer.name,
            )
        connection = AmqpConnection(
            wire,
            peer,
            self.options,
            self._reactor,
            credentials.username,
            client_id,
            opened.product[:100] or peer.name,
            self._temporaries,
            credentials.for_clients,
            lost,
            ended,
        )
        return cast(Connection, connection)

    async def _open(self, credentials: Credentials, client_id: str | None) -> tuple[Wire, Opened]:
        """Open a socket, and wait until the broker has opened the connection.

        The wait ends after ``connect_timeout`` seconds.
        """
        address, options = self.address, self.options
        prefix = self._peer.host_prefix if self._peer is not None else ""
        opening = Opening(
            credentials.username,
            credentials.passcode,
            client_id or f"stomp-gateway-{uuid4().hex}",
            prefix + address.virtual_host if address.virtual_host else address.host,
            client_id is not None,
            address.tls and options.certificate is not None,
        )
        asked = Asked(Operation.CONNECT, credentials.username, client_id=client_id)
        wire = Wire(self._reactor, options, str(address), asked, opening)
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
            opened = await wire.opened
        finally:
            if late.active():
                late.cancel()
        return wire, opened

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
