"""A connection (``messaging.provider.Connection``): its sessions, its subscriptions on the wire,
and its end.

Owns which subscription a MESSAGE is for, the work that is left for the end of a turn, and when the
socket is not read because too much waits for credit.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime

from bridge.providers.stomp.consumer import StompConsumer
from bridge.providers.stomp.dialect import Dialect
from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.mapping import spell
from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.session import StompSession
from bridge.providers.stomp.subscriptions import Slice, durable_headers, remove_durable
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
from gateway.messaging.provider import Mode, Session, XASession

if TYPE_CHECKING:
    from bridge.providers.stomp.provider import StompProvider

#: Octets of bodies given to the wire from which on a session is not writable.
_MOST_GATHERED: Final = 1_048_576


class StompConnection:
    """One connection. Made by its provider when the broker has answered CONNECT.

    :param product: what the broker calls itself. :param another: opens a further socket to the
        broker for the same user.
    """

    def __init__(
        self,
        provider: StompProvider,
        wire: Wire,
        dialect: Dialect,
        product: str,
        username: str,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
        another: Callable[[], Awaitable[Wire]],
        clock: IReactorTime,
        options: StompOptions,
    ) -> None:
        self.wire = wire
        self.dialect = dialect
        self.product = product
        #: STOMP does not say it.
        self.administers = False
        self.username = username
        self.client_id = client_id
        self.clock = clock
        self.options = options
        #: Tells this connection's messages from others', for brokers without no-local.
        self.origin = uuid4().hex
        #: It is being closed, or was.
        self.closing = False
        #: Octets of memory, about, of the messages that wait for credit, of all consumers.
        self.buffered = 0
        self._full = self._over = False
        #: Octets of bodies that wait for the end of the turn.
        self.gathered = 0
        self._provider = provider
        self._lost = lost
        self._another = another
        self._ids = itertools.count(1)
        self._message_ids = itertools.count(1)
        self._sessions: dict[StompSession, None] = {}
        #: Those that are closed and may have completions to tell.
        self._closed_sessions: dict[StompSession, None] = {}
        self._slices: dict[str, Slice] = {}
        self._durables: dict[str, StompConsumer] = {}
        #: Durable subscriptions that it removed. Asking for one again would cost the connection,
        #: where an ERROR ends it.
        self._removed: set[str] = set()
        self._given: dict[str, set[str]] = {}
        self._touched: dict[StompConsumer, None] = {}
        self._to_flush: dict[StompSession, None] = {}
        self._due: list[Callable[[], None]] = []
        self._turn_asked = False
        self._resumes: list[Callable[[], None]] = []
        self._transacted: StompSession | None = None
        wire.on_message = self._message
        wire.on_run = self._pump
        wire.on_lost = self._lose
        wire.on_relief = self._relieved
        wire.survives_errors = dialect.survives_errors

    # --- the seam

    def session(self, mode: Mode) -> StompSession:
        self.check_open()
        capabilities = self.dialect.capabilities
        if mode is Mode.TRANSACTED and not capabilities.transacted:
            raise NotSupported("transacted")
        if mode is Mode.INDIVIDUAL and not capabilities.individual:
            raise NotSupported("individual")
        session = StompSession(self, mode)
        self._sessions[session] = None
        return session

    def xa_session(self) -> XASession:
        raise NotSupported("xa")

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        raise NotSupported("temporary")

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        try:
            self.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        if not self.dialect.capabilities.durable:
            return fail(NotSupported("durable"))
        client_id = self.client_id
        if client_id is None:
            return fail(ClientIdRequired(durable_name))
        if self.durable_in_use(durable_name):
            return fail(DurableInUse(client_id, durable_name))
        if durable_name in self._removed:
            return fail(UnknownSubscription(client_id, durable_name))
        for session in self._sessions:
            session.flush()
        removing = self._remove_durable(client_id, durable_name)
        removing.addCallback(lambda _: self._removed.add(durable_name))
        return removing

    def _remove_durable(self, client_id: str, durable_name: str) -> Deferred[None]:
        if not self.dialect.gives_back:
            return Deferred.fromCoroutine(
                remove_durable(self._another, self.username, client_id, durable_name)
            )
        asked = Asked(Operation.UNSUBSCRIBE, self.username, None, None, client_id, durable_name)
        headers = [("id", self.new_id()), *durable_headers(self.dialect, client_id, durable_name)]
        return self.wire.request("UNSUBSCRIBE", headers, asked)

    def close(self) -> Deferred[None]:
        if not self.closing and not self.ended:
            self._flush()
            self.closing = True
            self._hold_or_read()
            # With DISCONNECT the broker takes back what is not acknowledged, at once and in order.
            for session in [*self._sessions, *self._closed_sessions]:
                session.abandon()
            self._provider.disconnected(self)
        return self.wire.close().addCallback(lambda _: self._closed())

    # --- state

    @property
    def ended(self) -> bool:
        """Whether nothing more can be asked of the broker."""
        return self.wire.ended is not None

    @property
    def ending(self) -> bool:
        """Whether nothing that is asked now would be carried out."""
        return self.closing or self.wire.ended is not None

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is not open any more."""
        if self.wire.ended is not None:
            raise (
                self.wire.ended
                if isinstance(self.wire.ended, ProviderUnavailable)
                else ProviderUnavailable(str(self.wire.ended))
            )
        if self.closing:
            raise ProviderUnavailable("the connection is closed")

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be written as should."""
        return self.wire.crowded or self.gathered > _MOST_GATHERED

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when :attr:`crowded` is over."""
        self._resumes.append(resume)

    def check_name(self, destination: Destination) -> None:
        """:raises InvalidDestination: STOMP has no spelling for it."""
        spell(self.dialect, destination)

    def now_ms(self) -> int:
        """The time in epoch milliseconds."""
        return self._provider.now_ms()

    def new_id(self) -> str:
        """An identifier for a subscription or transaction."""
        return f"b{next(self._ids)}"

    def new_message_id(self) -> str:
        """A message id that no other message has."""
        return f"ID-{self.origin}-{next(self._message_ids)}"

    def own_session(self, session: Session) -> StompSession | None:
        """The session, if it is one of this connection's and open."""
        return next((each for each in self._sessions if each is session and not each.closed), None)

    def durable_in_use(self, name: str) -> bool:
        """Whether a consumer of this connection has that durable subscription."""
        return name in self._durables

    def take_transaction(self, session: StompSession) -> bool:
        """Have the broker's one transaction of this connection to itself. :returns: whether that is
        possible.
        """
        others = [
            each
            for each in self._sessions
            if each is not session and each.mode is Mode.TRANSACTED and not each.closed
        ]
        if self._transacted is not None or others:
            return self._transacted is session
        self._transacted = session
        return True

    def release_transaction(self, session: StompSession) -> None:
        """It needs no transaction of its own any more."""
        if self._transacted is session:
            self._transacted = None

    # --- what sessions and consumers tell

    def add_slice(self, slice: Slice) -> None:
        self._slices[slice.id] = slice

    def forget_slice(self, slice: Slice) -> None:
        self._slices.pop(slice.id, None)

    def consumer_made(self, consumer: StompConsumer) -> None:
        if consumer.spec.durable_name is not None:
            self._durables[consumer.spec.durable_name] = consumer
            self._removed.discard(consumer.spec.durable_name)

    def gave(self, durable_name: str, message_ids: set[str]) -> None:
        """A consumer of a durable subscription ended, and these messages go back that it was
        given.
        """
        self._given[durable_name] = message_ids

    def given(self, durable_name: str | None) -> set[str]:
        """Those of :meth:`gave` for the next consumer."""
        return set() if durable_name is None else self._given.pop(durable_name, set())

    def consumer_closed(self, consumer: StompConsumer) -> None:
        name = consumer.spec.durable_name
        if name is not None and self._durables.get(name) is consumer:
            del self._durables[name]

    def forget(self, session: StompSession) -> None:
        """A session is closed, and nothing of it is under way but completions, which are told all
        the same.
        """
        self._sessions.pop(session, None)
        self._closed_sessions = {
            each: None for each in [*self._closed_sessions, session] if each.waiting
        }

    def touched(self, consumer: StompConsumer) -> None:
        """It has something to deliver; the run that is being read will see to it."""
        self._touched[consumer] = None

    def touch(self, consumer: StompConsumer) -> None:
        """Something may be deliverable, or the broker may be to send more; to be seen to at the end
        of the turn.
        """
        self._touched[consumer] = None
        self._ask_turn()

    def flush_later(self, session: StompSession) -> None:
        """It has frames to write, at the end of the turn."""
        self._to_flush[session] = None
        self._ask_turn()

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a later turn."""
        self._due.append(call)
        self._ask_turn()

    # --- turns

    def _ask_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            self.clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._turn_asked = False
        due, self._due = self._due, []
        for call in due:
            call()
        self._pump()

    def _pump(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for consumer in touched:
                consumer.pump()
        self._flush()
        self._hold_or_read()

    def _hold_or_read(self) -> None:
        """Read no more from the socket as long as too much waits for credit."""
        most, more = self.options.max_buffer, self.options.max_frame
        buffered = 0 if self.closing else self.buffered
        self._full = buffered > (most // 2 if self._full else most)
        # A broker writes the messages that it has for a subscription before the RECEIPT. One that
        # does not keep to the prefetch may send one frame more.
        self._over = buffered > more + (most // 2 if self._over else most) and self._sent_unasked()
        self.wire.hold_reading(self._full, self._over)

    def _sent_unasked(self) -> bool:
        """Whether more messages wait here than the broker was asked to send ahead, or it knows no
        prefetch.
        """
        slices = self._slices.values()
        waiting = sum(consumer.waiting for consumer in {slice.consumer for slice in slices})
        return not self.dialect.prefetch or waiting > sum(slice.prefetch for slice in slices)

    def _flush(self) -> None:
        to_flush, self._to_flush = self._to_flush, {}
        self.gathered = 0
        for session in to_flush:
            session.flush()
        self.wire.flush()

    def _relieved(self) -> None:
        if self._resumes:
            resumes, self._resumes = self._resumes, []
            for resume in resumes:
                self.soon(lambda resume=resume: self._resume(resume))  # type: ignore[misc]

    def _resume(self, resume: Callable[[], None]) -> None:
        if self.crowded:
            self._resumes.append(resume)
        else:
            resume()

    # --- what the wire tells

    def _message(self, frame: Received) -> None:
        slice = self._slices.get(frame.headers.get("subscription", ""))
        # One for a subscription that is over goes back when the connection does, if the broker has
        # not taken it back already.
        if slice is not None and not self.closing:
            slice.consumer.arrived(slice, frame)

    def _lose(self, error: MessagingError) -> None:
        self._provider.disconnected(self)
        self._end(error)
        if not self.closing:
            self._lost(error)

    def _closed(self) -> None:
        self._end(ProviderUnavailable("the connection is closed"))

    def _end(self, error: MessagingError) -> None:
        sessions = [*self._sessions, *self._closed_sessions]
        self._sessions.clear()
        self._closed_sessions.clear()
        self._slices.clear()
        self._touched.clear()
        self._resumes.clear()
        for session in sessions:
            session.lost(error)
