"""A connection to a STOMP broker (``messaging.provider.Connection``).

Owns which subscription a MESSAGE is for, and when the socket is not read because too much waits for
credit. What sessions and consumers know of the connection is in
:mod:`bridge.providers.stomp.state`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime

from bridge.providers.asked import Asked, Operation
from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.session import StompSession, StompSessions
from bridge.providers.stomp.state import ConnectionState
from bridge.providers.stomp.subscriptions import declaring, durable_headers, remove_durable_queue
from bridge.providers.stomp.wire import Wire
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    UnknownSubscription,
)
from gateway.messaging.exchanges import QueueDeclaration
from gateway.messaging.provider import Credentials, Mode, XASession
from gateway.stomp.brokers import Dialect


class BrokerConnection:
    """One connection, made once the broker has answered CONNECT.

    :param clock: the reactor.
    :param product: what the broker calls itself.
    :param lost: of ``Provider.connect``.
    :param ended: called once when it is closed or lost.
    :param another: opens a further socket to the broker for the same user.
    :param for_clients: see :class:`~gateway.messaging.provider.Credentials`.
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
        for_clients: bool,
    ) -> None:
        self.client_id = client_id
        self.product = product
        self.user = ""
        self._wire = wire
        self._dialect = dialect
        self.state = ConnectionState(
            wire, dialect, options, clock, username, client_id, for_clients, self._hold_or_read
        )
        self._sessions = StompSessions()
        self._lost = lost
        self._ended = ended
        self._another = another
        self._full = self._over = False
        wire.on_message = self._message
        wire.on_lost = self._lose
        wire.survives_errors = dialect.survives_errors

    # --- the seam

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return self._dialect.has_exchanges

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

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return fail(NotSupported("new credentials"))

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        try:
            self.state.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        if not self._dialect.durable:
            return fail(NotSupported("durable"))
        client_id, durables = self.client_id, self.state.durables
        if durable_name in durables.queues:
            for session in self._sessions.open:
                session.flush()
            return self._remove_queue("", durable_name, durables.queues.pop(durable_name))
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
            return self._remove_queue(client_id, durable_name, None)
        asked = Asked(Operation.UNSUBSCRIBE, username, None, None, client_id, durable_name)
        headers = [
            ("id", self.state.new_id()),
            *durable_headers(self._dialect, client_id, durable_name),
        ]
        return self._wire.request("UNSUBSCRIBE", headers, asked)

    def _remove_queue(
        self, client_id: str, durable_name: str, queue: QueueDeclaration | None
    ) -> Deferred[None]:
        dialect = self._dialect
        declared = (
            durable_headers(dialect, client_id, durable_name)
            if queue is None
            else declaring(dialect, queue)
        )
        asked = Asked(
            Operation.UNSUBSCRIBE, self.state.username, None, None, client_id, durable_name
        )
        return Deferred.fromCoroutine(remove_durable_queue(self._another, asked, declared))

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
