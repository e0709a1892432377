"""A STOMP broker behind the seam: its Provider and its Connections.

Owns opening connections, and what is known of the broker from one connection to the next: its
dialect, and which client identifiers are in use here.

:attr:`StompProvider.capabilities` are those of the broker's dialect. A declared dialect
(``stomp.dialect``) is known from the start. Otherwise the broker counts as unknown, without any
capability, until it has answered the first connection. If another broker answers a later
connection, the capabilities change; those of an open connection never do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.options import (
    InvalidOption,
    StompAddress,
    StompOptions,
    capabilities_of,
)
from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.session import Sessions, StompSession
from bridge.providers.stomp.state import ConnectionState
from bridge.providers.stomp.subscriptions import durable_headers, remove_durable_queue
from bridge.providers.stomp.wire import Wire
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdInUse,
    ClientIdRequired,
    DurableInUse,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    UnknownSubscription,
)
from gateway.messaging.provider import Capabilities, Connection, Credentials, Mode, XASession
from gateway.reactor.clocks import TimeLimit
from gateway.reactor.deferreds import deferred
from gateway.stomp.brokers import GENERIC, Dialect, product, recognise

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
        connection = StompConnection(
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


class StompConnection:
    """A connection over STOMP (``messaging.provider.Connection``).

    Made by its provider when the broker has answered CONNECT. Owns which subscription a MESSAGE is
    for, and when the socket is not read because too much waits for credit. What sessions and
    consumers know of the connection is in :mod:`bridge.providers.stomp.state`.

    :param clock: the reactor.
    :param product: what the broker calls itself.
    :param lost: of ``Provider.connect``.
    :param ended: called once when it is closed or lost.
    :param another: opens a further socket to the broker for the same user.
    """

    #: STOMP does not say it.
    administers = False

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect,
        options: StompOptions,
        clock: IReactorTime,
        username: str,
        client_id: str | None,
        product: str,
        lost: Callable[[MessagingError], None],
        ended: Callable[[], None],
        another: Callable[[], Awaitable[Wire]],
    ) -> None:
        self.client_id = client_id
        self.product = product
        self._wire = wire
        self._dialect = dialect
        self.state = ConnectionState(
            wire, dialect, options, clock, username, client_id, self._hold_or_read
        )
        self._sessions = Sessions()
        self._lost = lost
        self._ended = ended
        self._another = another
        self._full = self._over = False
        wire.on_message = self._message
        wire.on_lost = self._lose
        wire.survives_errors = dialect.survives_errors

    # --- the seam

    def session(self, mode: Mode) -> StompSession:
        self.state.check_open()
        dialect = self._dialect
        if mode is Mode.TRANSACTED and not dialect.transacted:
            raise NotSupported("transacted")
        if mode is Mode.INDIVIDUAL and not dialect.individual:
            raise NotSupported("individual")
        return StompSession(self.state, self._sessions, mode)

    def xa_session(self) -> XASession:
        raise NotSupported("xa")

    def temporary(self, kind: Kind) -> Destination:
        self.state.check_open()
        raise NotSupported("temporary")

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        try:
            self.state.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        if not self._dialect.durable:
            return fail(NotSupported("durable"))
        client_id, durables = self.client_id, self.state.durables
        if client_id is None:
            return fail(ClientIdRequired(durable_name))
        if durable_name in durables.in_use:
            return fail(DurableInUse(client_id, durable_name))
        if durable_name in durables.removed:
            return fail(UnknownSubscription(client_id, durable_name))
        for session in self._sessions.open:
            session.flush()
        removing = self._remove_durable(client_id, durable_name)
        removing.addCallback(lambda _: durables.removed.add(durable_name))
        return removing

    def _remove_durable(self, client_id: str, durable_name: str) -> Deferred[None]:
        username = self.state.username
        if not self._dialect.gives_back:
            return Deferred.fromCoroutine(
                remove_durable_queue(self._another, username, client_id, durable_name)
            )
        asked = Asked(Operation.UNSUBSCRIBE, username, None, None, client_id, durable_name)
        headers = [
            ("id", self.state.new_id()),
            *durable_headers(self._dialect, client_id, durable_name),
        ]
        return self._wire.request("UNSUBSCRIBE", headers, asked)

    def close(self) -> Deferred[None]:
        state = self.state
        if not state.closing and not state.ended:
            state.turn.flush()
            state.closing = True
            self._hold_or_read()
            # At DISCONNECT the broker takes back what is not acknowledged, at once and in order.
            for session in self._sessions.all():
                session.abandon()
            self._ended()
        return self._wire.close().addCallback(
            lambda _: self._end(ProviderUnavailable("the connection is closed"))
        )

    # --- what the wire says

    def _message(self, frame: Received) -> None:
        subscription = self.state.subscriptions.get(frame.headers.get("subscription", ""))
        # The broker returns a message for a subscription that is over, at the latest when the
        # connection ends.
        if subscription is not None and not self.state.closing:
            subscription.receiver.arrived(subscription, frame)

    def _hold_or_read(self) -> None:
        """Read no more from the socket as long as too much waits for credit."""
        options, state = self.state.options, self.state
        most, more = options.max_buffer, options.max_frame
        buffered = 0 if state.closing else state.buffered
        self._full = buffered > (most // 2 if self._full else most)
        # A broker writes the messages that it has for a subscription before the RECEIPT. One that
        # does not keep to the prefetch may send one frame more.
        self._over = buffered > more + (most // 2 if self._over else most) and self._sent_unasked()
        self._wire.hold_reading(self._full, self._over)

    def _sent_unasked(self) -> bool:
        """Whether the broker has sent more messages ahead than it was asked to.

        A broker without a prefetch is taken to have done so.
        """
        subscriptions = self.state.subscriptions.values()
        waiting = sum(receiver.waiting for receiver in {each.receiver for each in subscriptions})
        return not self._dialect.prefetch or waiting > sum(each.prefetch for each in subscriptions)

    def _lose(self, error: MessagingError) -> None:
        self._ended()
        self._end(error)
        if not self.state.closing:
            self._lost(error)

    def _end(self, error: MessagingError) -> None:
        sessions = self._sessions.all()
        self._sessions.clear()
        self.state.subscriptions.clear()
        self.state.turn.drop()
        for session in sessions:
            session.lost(error)
