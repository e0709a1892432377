"""A connection to an AMQP 1.0 broker (``messaging.provider.Connection``).

Owns its sessions and its end. What sessions and consumers know of the connection is in
:mod:`bridge.providers.amqp.state`.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime

from bridge.providers.amqp.links import Probe
from bridge.providers.amqp.options import AmqpOptions
from bridge.providers.amqp.peers import Peer
from bridge.providers.amqp.refusals import Refusal, refusal
from bridge.providers.amqp.session import AmqpSession
from bridge.providers.amqp.state import ConnectionState
from bridge.providers.amqp.temporary import Temporaries, TemporaryNode
from bridge.providers.amqp.wire import Wire
from bridge.providers.asked import Asked, Operation
from bridge.providers.sessions import Sessions
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.provider import Credentials, Mode, XASession
from gateway.reactor.deferreds import outcome


class AmqpConnection:
    """One connection, made once the broker has opened it.

    :param clock: the reactor.
    :param product: what the broker calls itself.
    :param temporaries: those of the provider.
    :param for_clients: see :class:`~gateway.messaging.provider.Credentials`.
    :param lost: of ``Provider.connect``.
    :param ended: called once when it is closed or lost.
    """

    #: AMQP does not say it.
    administers = False

    def __init__(
        self,
        wire: Wire,
        peer: Peer,
        options: AmqpOptions,
        clock: IReactorTime,
        username: str,
        client_id: str | None,
        product: str,
        temporaries: Temporaries,
        for_clients: bool,
        lost: Callable[[MessagingError], None],
        ended: Callable[[], None],
    ) -> None:
        self.client_id = client_id
        self.product = product
        self.user = ""
        self._wire = wire
        self._peer = peer
        self.state = ConnectionState(
            wire,
            peer,
            options,
            clock,
            username,
            client_id,
            temporaries,
            for_clients,
            self._turn_ended,
        )
        self._sessions: Sessions[AmqpSession] = Sessions()
        self._lost = lost
        self._ended = ended
        self._relieve = wire.on_relief
        wire.on_relief = self._relieved
        wire.on_lost = self._lose

    # --- the seam

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return self.state.peer.has_exchanges

    def session(self, mode: Mode) -> AmqpSession:
        self.state.check_open()
        if mode is Mode.TRANSACTED and not self._peer.transactions:
            raise NotSupported("transacted")
        return AmqpSession(self.state, self._sessions, mode)

    def xa_session(self) -> XASession:
        raise NotSupported("xa")

    def temporary(self, kind: Kind) -> Destination:
        state = self.state
        state.check_open()
        if not self._peer.dynamic:
            raise NotSupported("temporary")
        destination = state.temporaries.make(kind)
        state.nodes[destination] = TemporaryNode(state.channel(), destination, state.temporaries)
        return destination

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return fail(NotSupported("new credentials"))

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        state = self.state
        try:
            state.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        if not self._peer.durable:
            return fail(NotSupported("durable"))
        client_id = self.client_id
        if client_id is None:
            return fail(ClientIdRequired(durable_name))
        if durable_name in state.durables:
            return fail(DurableInUse(client_id, durable_name))
        done, answered = outcome()
        asked = Asked(Operation.UNSUBSCRIBE, state.username, None, None, client_id, durable_name)
        channel = state.channel()

        def removed(told: Refusal | None) -> None:
            state.leave(channel)
            answered(None if told is None else refusal(asked, told))

        Probe(channel, durable_name, removed).attach()
        return done

    def close(self) -> Deferred[None]:
        state = self.state
        if not state.closing and not state.ended:
            state.turn.flush()
            state.closing = True
            # The broker takes back what is not settled when it is told to close, at once and in
            # order.
            for session in self._sessions.all():
                session.abandon()
            self._ended()
        return self._wire.close().addCallback(
            lambda _: self._end(ProviderUnavailable("the connection is closed"))
        )

    # --- what the wire says

    def _turn_ended(self) -> None:
        if not self.state.ending:
            self.state.read_on()
            self._push()

    def _relieved(self) -> None:
        self._push()
        self._relieve()

    def _push(self) -> None:
        for session in list(self._sessions.open):
            session.push()

    def _lose(self, error: MessagingError) -> None:
        self._ended()
        self._end(error)
        if not self.state.closing:
            self._lost(error)

    def _end(self, error: MessagingError) -> None:
        sessions = self._sessions.all()
        self._sessions.clear()
        self.state.turn.drop()
        self.state.drop()
        for session in sessions:
            session.lost(error)
