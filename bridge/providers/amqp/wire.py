"""One socket to a broker: the protocol engine, its events, SASL, time.

Owns the socket from its opening to its end, the connection endpoint of the engine, and which answers
are awaited. Knows neither messages nor what links are for; the owner of a session or a link is told
what becomes of it.

The engine is Qpid Proton without its own I/O: bytes from the socket are pushed into its transport,
its events are read and passed on, and the bytes that it has for the broker are written at the end
of the turn. TLS is Twisted's, and SASL (section 5.3) the engine's own ``PLAIN``, ``EXTERNAL`` and
``ANONYMOUS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import proton
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from bridge.providers.amqp.options import AmqpOptions
from bridge.providers.amqp.refusals import UNAUTHORIZED, Refusal, refusal
from bridge.providers.asked import Asked
from gateway.messaging.errors import AuthenticationFailed, MessagingError, ProviderUnavailable
from gateway.reactor.clocks import AWAY_S

T = TypeVar("T")

#: Bytes of the largest frame that the broker may send. It bounds what the engine buffers of one.
MAX_FRAME: Final = 65_536
#: Bytes gathered in a turn from which on no more should be sent.
_CROWDED: Final = 262_144
#: Seconds between two checks of the clock.
_TICK: Final = 0.5
#: What is offered with a client certificate and without a user name.
_EXTERNAL: Final = "EXTERNAL ANONYMOUS"


class MalformedFrame(Exception):
    """The engine cannot read a part of what the broker has sent."""


def heard(read: Callable[[], T]) -> T:
    """Read something that the broker has said.

    :raises MalformedFrame: the engine cannot read it; it raises all kinds of errors.
    """
    try:
        return read()
    except Exception as error:
        raise MalformedFrame(f"{type(error).__name__}: {error}") from error


class Opening(NamedTuple):
    """What a connection says of itself.

    :param container: the container-id, which no other connection has (section 2.7.1).
    :param host: the hostname of the open frame.
    :param sole: no other connection may have the same container-id.
    :param certificate: the client shows one.
    """

    username: str
    passcode: str
    container: str
    host: str
    sole: bool
    certificate: bool


class Opened(NamedTuple):
    """What the broker says of itself in its open frame."""

    product: str
    version: str


class ChannelOwner(Protocol):
    """What has opened a session of the engine, as its attribute ``owner``."""

    def begun(self) -> None:
        """The broker has begun it."""

    def ended_by_peer(self, told: Refusal) -> None:
        """The broker has ended it."""

    def ended(self) -> None:
        """The broker has confirmed that it has ended."""


class LinkOwner(Protocol):
    """What has opened a link of the engine, as its attribute ``owner``."""

    def attached(self) -> None:
        """The broker has answered the attach."""

    def flowed(self) -> None:
        """The broker has told the state of the link's credit."""

    def updated(self, delivery: Any) -> None:
        """Bytes of a delivery have come, or its state has changed."""

    def detached_by_peer(self, told: Refusal) -> None:
        """The broker has closed or detached it."""

    def detached(self) -> None:
        """The broker has confirmed that it is closed."""


@implementer(IPushProducer)
class Wire(TwistedProtocol):
    """A connection to a broker.

    :param clock: the reactor.
    :param where: the broker's address, for errors.
    :param asked: who connects.
    """

    def __init__(
        self,
        clock: IReactorTime,
        options: AmqpOptions,
        where: str,
        asked: Asked,
        opening: Opening,
    ) -> None:
        self._clock = clock
        self._options = options
        self._where = where
        self._asked = asked
        #: Fires when the broker has opened the connection; fails if it ends before.
        self.opened: Deferred[Opened] = Deferred()
        #: Called when what arrived together was passed on.
        self.on_run: Callable[[], None] = lambda: None
        #: Told once if the connection ends without being closed.
        self.on_lost: Callable[[MessagingError], None] = lambda error: None
        #: Called each time that more can be written after :attr:`crowded`.
        self.on_relief: Callable[[], None] = lambda: None
        #: Why it ended; None while it is open.
        self.ended: MessagingError | None = None
        self._open = False
        self._choked = False
        self._gathered = 0
        self._flushing: IDelayedCall | None = None
        self._ticking: IDelayedCall | None = None
        self._deadline: IDelayedCall | None = None
        self._tick_due = 0.0
        #: Seconds that this process did not run, which are not the broker's.
        self._away = 0.0
        self._answers = 0
        #: When each answer that is awaited is due.
        self._awaited: dict[int, float] = {}
        self._closing: Deferred[None] | None = None
        self._began = clock.seconds()

        self._collector: Any = proton.Collector()
        self.connection: Any = proton.Connection()
        self.connection.collect(self._collector)
        self._engine: Any = proton.Transport()
        self._set_up(opening)

    def _set_up(self, opening: Opening) -> None:
        connection, engine = self.connection, self._engine
        sasl = engine.sasl()
        # Whether there is TLS is known to Twisted alone.
        sasl.allow_insecure_mechs = True
        if opening.username or opening.passcode:
            sasl.allowed_mechs("PLAIN")
            connection.user = opening.username
            connection.password = opening.passcode
        else:
            sasl.allowed_mechs(_EXTERNAL if opening.certificate else "ANONYMOUS")
        engine.max_frame_size = MAX_FRAME
        engine.idle_timeout = self._options.idle_timeout
        connection.container = opening.container
        connection.hostname = opening.host
        connection.properties = {proton.symbol("product"): "stomp-gateway"}
        if opening.sole:
            connection.desired_capabilities = [proton.symbol("sole-connection-for-container")]
        engine.bind(connection)
        connection.open()

    # --- out

    def wake(self, size: int = 0) -> None:
        """Have what the engine was told written at the end of this turn.

        :param size: bytes of messages that it was given.
        """
        self._gathered += size
        if self._flushing is None and self.ended is None:
            self._flushing = self._clock.callLater(0, self._flush_late)

    def produce(self) -> None:
        """Have the engine make frames of all that it was told so far.

        Otherwise it writes what it is told next in an order of its own: attaching comes first.
        """
        if self.ended is not None:
            return
        try:
            self._engine.pending()
        except proton.ProtonException as error:
            self.fail(self._unavailable(str(error)))

    def _flush_late(self) -> None:
        self._flushing = None
        self.flush()

    def flush(self) -> None:
        """Write what the engine has for the broker."""
        if self._flushing is not None:
            if self._flushing.active():
                self._flushing.cancel()
            self._flushing = None
        self._write()
        if not self.crowded:
            self.on_relief()

    def _write(self) -> None:
        if self.ended is not None or self.transport is None:
            return
        engine = self._engine
        while not self._choked:
            try:
                size = engine.pending()
                octets = engine.peek(size) if size > 0 else None
                if not octets:
                    break
                engine.pop(len(octets))
            except proton.ProtonException as error:
                self.fail(self._unavailable(str(error)))
                return
            self.transport.write(bytes(octets))
        if not self._choked:
            self._gathered = 0

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be written as should."""
        return self._choked or self._gathered > _CROWDED

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self._choked = True

    def resumeProducing(self) -> None:
        """The transport's buffer is empty."""
        self._choked = False
        self.flush()

    def stopProducing(self) -> None:
        """The transport is gone; ``connectionLost`` follows."""

    # --- answers

    def ask(self) -> int:
        """Await an answer, at most ``answer_timeout`` seconds.

        :returns: the number for :meth:`answered`.
        """
        self._answers += 1
        self._awaited[self._answers] = self._now() + self._options.answer_timeout
        return self._answers

    def answered(self, number: int) -> None:
        """It has come, or comes no more. Idempotent."""
        self._awaited.pop(number, None)

    # --- in

    def connectionMade(self) -> None:
        assert self.transport is not None
        if self.ended is not None:
            self._abort()
            return
        self.transport.registerProducer(self, True)  # type: ignore[attr-defined]
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self._next_tick()
        self._read_events()
        self._write()

    def dataReceived(self, data: bytes) -> None:
        engine = self._engine
        position = 0
        while position < len(data) and self.ended is None:
            try:
                capacity = engine.capacity()
                if capacity <= 0:
                    break
                engine.push(data[position : position + capacity])
            except (proton.ProtonException, OverflowError) as error:
                self._read_events()
                if self.ended is None:
                    self.fail(self._unavailable(f"it sent what is not AMQP 1.0: {error}"))
                return
            position += capacity
            self._read_events()
        if self.ended is None:
            self.on_run()
            # Such as an answer of the engine's own, after which no turn may come.
            self._write()

    def _read_events(self) -> None:
        collector = self._collector
        while self.ended is None:
            event = collector.peek()
            if event is None:
                return
            try:
                self._event(event)
            except MalformedFrame as error:
                self.fail(self._unavailable(f"it sent what cannot be read: {error}"))
                return
            collector.pop()

    def _event(self, event: Any) -> None:
        kind = event.type
        if kind is _DELIVERY:
            delivery = event.delivery
            owner = getattr(delivery.link, "owner", None)
            if owner is not None:
                owner.updated(delivery)
        elif kind in _OF_LINKS:
            self._link_event(kind, event.link)
        elif kind in _OF_SESSIONS:
            self._session_event(kind, event.session)
        elif kind is proton.Event.CONNECTION_REMOTE_OPEN:
            self._opened()
        elif kind is proton.Event.CONNECTION_REMOTE_CLOSE:
            self._closed(Refusal.of(heard(lambda: self.connection.remote_condition)))
        elif kind is proton.Event.TRANSPORT_ERROR:
            self._broken(Refusal.of(heard(lambda: self._engine.condition)))

    def _link_event(self, kind: Any, link: Any) -> None:
        owner: LinkOwner | None = getattr(link, "owner", None)
        if owner is None:
            if kind is proton.Event.LINK_REMOTE_OPEN:
                self.fail(self._unavailable("it opened a link that it was not asked for"))
        elif kind is proton.Event.LINK_REMOTE_OPEN:
            owner.attached()
        elif kind is proton.Event.LINK_FLOW:
            owner.flowed()
        elif link.state & proton.Endpoint.LOCAL_ACTIVE:
            owner.detached_by_peer(Refusal.of(heard(lambda: link.remote_condition)))
        else:
            owner.detached()

    def _session_event(self, kind: Any, session: Any) -> None:
        owner: ChannelOwner | None = getattr(session, "owner", None)
        if owner is None:
            if kind is proton.Event.SESSION_REMOTE_OPEN:
                self.fail(self._unavailable("it opened a session that it was not asked for"))
        elif kind is proton.Event.SESSION_REMOTE_OPEN:
            owner.begun()
        elif kind is proton.Event.SESSION_REMOTE_CLOSE:
            if session.state & proton.Endpoint.LOCAL_ACTIVE:
                owner.ended_by_peer(Refusal.of(heard(lambda: session.remote_condition)))
            else:
                owner.ended()

    def _opened(self) -> None:
        properties = heard(lambda: self.connection.remote_properties)
        said = properties if isinstance(properties, dict) else {}
        # A broker that refuses the connection opens it first, and closes it at once
        # (section 2.4.1). It says so by this property, or by what comes in the same bytes.
        if not self._open and not said.get(proton.symbol("amqp:connection-establishment-failed")):
            self._open = True
            product = str(said.get(proton.symbol("product"), ""))
            version = str(said.get(proton.symbol("version"), ""))
            self.opened.callback(Opened(product, version))

    def _closed(self, told: Refusal) -> None:
        """The broker has sent close, in answer or on its own."""
        if self._closing is not None:
            self._end(ProviderUnavailable("the connection was closed"))
        elif self._open:
            self.fail(self._unavailable(f"it closed the connection: {told}"))
        else:
            self.fail(refusal(self._asked, told))

    def _broken(self, told: Refusal) -> None:
        """The engine cannot go on."""
        if told.condition == UNAUTHORIZED and not self._open:
            self.fail(AuthenticationFailed(self._asked.username, told.text or told.condition))
        elif "idle-timeout" in told.text or told.condition == "amqp:resource-limit-exceeded":
            silence = self._options.idle_timeout
            self.fail(self._unavailable(f"nothing was heard for {silence:g} s ({told})"))
        else:
            self.fail(self._unavailable(f"it sent what is not AMQP 1.0: {told}"))

    # --- time

    def _now(self) -> float:
        """Seconds since the start, and one, without those when it did not run."""
        return self._clock.seconds() - self._began - self._away + 1.0

    def _next_tick(self) -> None:
        self._tick_due = self._clock.seconds() + _TICK
        self._ticking = self._clock.callLater(_TICK, self._tick)

    def _tick(self) -> None:
        late = self._clock.seconds() - self._tick_due
        if late >= AWAY_S:
            self._away += late
        # The reactor reads the sockets once more before the broker is judged by this moment.
        self._ticking = self._clock.callLater(0, self._judge, self._now())

    def _judge(self, now: float) -> None:
        self._next_tick()
        self._engine.tick(now)
        self._read_events()
        if self.ended is not None:
            return
        self._write()
        due = next(iter(self._awaited.values()), None)
        if due is not None and due <= now:
            timeout = self._options.answer_timeout
            self.fail(self._unavailable(f"an answer did not come within {timeout:g} s"))

    # --- the end

    def close(self) -> Deferred[None]:
        """Send close, wait for the broker's, and close the socket. Never fails.

        Waits at most ``close_timeout`` seconds.
        """
        done: Deferred[None] = Deferred()
        if self._closing is not None:
            self._closing.chainDeferred(done)
        elif self.ended is not None:
            done.callback(None)
        else:
            self._closing = done
            self.connection.close()
            self._deadline = self._clock.callLater(self._options.close_timeout, self._bye)
            self.wake()
        return done

    def _bye(self) -> None:
        if self.ended is None:
            self._end(ProviderUnavailable("the connection was closed"))

    def fail(self, error: MessagingError) -> None:
        """End the connection, then call :attr:`on_lost`. Idempotent."""
        if self.ended is None:
            closing = self._closing is not None
            self._end(error)
            if not closing:
                if self._open:
                    self.on_lost(error)
                else:
                    self.opened.errback(error)

    def _end(self, error: MessagingError) -> None:
        for call in (self._ticking, self._deadline, self._flushing):
            if call is not None and call.active():
                call.cancel()
        self.ended = error
        self._awaited.clear()
        self._abort()
        if self._closing is not None:
            self._closing.callback(None)

    def _abort(self) -> None:
        # A broker that does not read would keep loseConnection waiting for ever.
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.ended is None:
            self.fail(self._unavailable(_reason(reason)))
        self._release()

    def _release(self) -> None:
        """Have the engine free its objects, which refer to each other.

        Twisted keeps the last hundred endpoints, and with them this.
        """
        if self._engine is not None:
            self._engine.unbind()
            self.connection.free()
            self._collector.release()
            self._engine = self.connection = self._collector = None

    def _unavailable(self, reason: str) -> ProviderUnavailable:
        return ProviderUnavailable(f"{self._where}: {reason}")


def _reason(reason: Failure) -> str:
    if isinstance(reason.value, ConnectionDone):
        return "it closed the connection"
    return f"the connection was lost: {reason.getErrorMessage() or reason.type}"


_DELIVERY: Final[Any] = proton.Event.DELIVERY
_OF_LINKS: Final = (
    proton.Event.LINK_REMOTE_OPEN,
    proton.Event.LINK_FLOW,
    proton.Event.LINK_REMOTE_CLOSE,
    proton.Event.LINK_REMOTE_DETACH,
)
_OF_SESSIONS: Final = (proton.Event.SESSION_REMOTE_OPEN, proton.Event.SESSION_REMOTE_CLOSE)
