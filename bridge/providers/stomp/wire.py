"""One socket to a broker: frames, RECEIPTs, heart-beats and timeouts.

Owns the socket from its opening to its end, and which frames wait for a RECEIPT. Knows neither
sessions nor messages nor dialects; it is told whether an ERROR leaves the connection open.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from bridge.providers.asked import Asked, Operation
from bridge.providers.exchanges import is_missing
from bridge.providers.stomp.frames import FrameReader, MalformedFrames, Received, write
from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.refusals import is_refusal, refusal, sentence
from gateway.messaging.errors import ClosedOverRefusal, MessagingError, ProviderUnavailable
from gateway.reactor.clocks import AWAY_S
from gateway.reactor.deferreds import outcome

#: Called once with the outcome of a frame that asked for a RECEIPT.
Answer: TypeAlias = Callable[[MessagingError | None], None]
Pairs: TypeAlias = list[tuple[str, str]]

#: STOMP 1.0 has neither single acknowledgements nor NACK. The best version comes first, because
#: Open MQ takes the first that it has.
_VERSIONS: Final = "1.2,1.1"
#: Bytes gathered in a turn from which on no more should be sent.
_CROWDED: Final = 262_144
#: Seconds between two checks of the clock; fewer where heart-beats are faster.
_TICK: Final = 0.5
#: Seconds that the broker may take to close the socket after its RECEIPT for DISCONNECT.
_LINGER: Final = 1.0

#: Linux has it; elsewhere the kernel decides when it acknowledges.
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


@dataclass(slots=True)
class _Waiting:
    """A frame whose RECEIPT is awaited."""

    asked: Asked
    answer: Answer
    due: float


class _HeartBeats:
    """When heart-beats are due in either direction.

    Times are the clock's, in seconds.

    :param ours_ms: the interval offered and asked for, in milliseconds; 0 means none.
    """

    def __init__(self, ours_ms: int, now: float) -> None:
        self.sent_at = self.heard_at = now
        #: Seconds between two checks.
        self.check_every = _TICK
        self._ours_ms = ours_ms
        self._sends_every = self._hears_every = 0.0

    def agree(self, text: str) -> None:
        """Follow the ``heart-beat`` of CONNECTED."""
        can, _, wants = text.replace(" ", "").partition(",")
        self._sends_every = self._interval(wants)
        self._hears_every = self._interval(can)

    def _interval(self, theirs_ms: str) -> float:
        if not self._ours_ms or not theirs_ms.isdecimal() or not int(theirs_ms):
            return 0.0
        every = max(self._ours_ms, int(theirs_ms)) / 1000
        self.check_every = min(self.check_every, every / 4)
        return every

    def due(self, now: float) -> bool:
        """Whether one must be sent before the next check."""
        every = self._sends_every
        return every > 0 and now - self.sent_at >= every / 2 - self.check_every

    def missed(self, now: float) -> bool:
        """Whether nothing was heard for twice the interval."""
        return 0 < 2 * self._hears_every < now - self.heard_at


@implementer(IPushProducer)
class Wire(Protocol):
    """A connection to a broker.

    :param clock: the reactor.
    :param where: the broker's address, for errors.
    :param asked: who connects.
    :param connect: the headers of CONNECT, without version and heart-beat.
    """

    def __init__(
        self, clock: IReactorTime, options: StompOptions, where: str, asked: Asked, connect: Pairs
    ) -> None:
        self._clock = clock
        self._options = options
        self._where = where
        self._asked = asked
        self._connect = connect
        self._reader = FrameReader(options.max_frame)
        #: Fires with the headers of CONNECTED; fails if the connection ends before.
        self.opened: Deferred[dict[str, str]] = Deferred()
        #: Called with each MESSAGE.
        self.on_message: Callable[[Received], None] = lambda frame: None
        #: Called when the frames that arrived together were passed on.
        self.on_run: Callable[[], None] = lambda: None
        #: Told once if the connection ends without being closed.
        self.on_lost: Callable[[MessagingError], None] = lambda error: None
        #: Called each time that more can be written after :attr:`crowded`.
        self.on_relief: Callable[[], None] = lambda: None
        #: An ERROR that answers a frame leaves the connection open.
        self.survives_errors = False
        #: Why it ended; None while it is open.
        self.ended: MessagingError | None = None
        self._open = False
        self._parts: list[bytes] = []
        self._gathered = 0
        self._flushing: IDelayedCall | None = None
        self._choked = False
        #: Bytes given to the transport while its buffer was full.
        self._unwritten = 0
        self._reading = True
        #: Of :meth:`hold_reading`.
        self._full = self._over = False
        self._receipts = 0
        self._waiting: dict[str, _Waiting] = {}
        self._closing: Deferred[None] | None = None
        self._deadline: IDelayedCall | None = None
        self._ticking: IDelayedCall | None = None
        self._beats = _HeartBeats(options.heart_beat_ms, clock.seconds())
        self._tick_due = 0.0
        self._socket: _PromptSocket | None = None

    # --- out

    def write(self, command: str, headers: Pairs, body: bytes = b"") -> None:
        """Write a frame, at the end of this turn.

        Nothing once the connection has ended.
        """
        if self.ended is None:
            octets = write(command, headers, body)
            self._parts.append(octets)
            self._gathered += len(octets)
            if self._flushing is None:
                self._flushing = self._clock.callLater(0, self.flush)

    def ask(self, command: str, headers: Pairs, body: bytes, asked: Asked, answer: Answer) -> None:
        """Write a frame with ``receipt``.

        :param answer: called with None when its RECEIPT has arrived; with the error if it was
            refused, or the connection ended before. Never called from inside this call, and not at
            all if the connection has ended already.
        """
        self._receipts += 1
        receipt = f"r{self._receipts}"
        self._waiting[receipt] = _Waiting(
            asked, answer, self._clock.seconds() + self._options.receipt_timeout
        )
        self.write(command, [*headers, ("receipt", receipt)], body)
        self._read_or_not()

    def request(self, command: str, headers: Pairs, asked: Asked) -> Deferred[None]:
        """Write a frame without a body, with ``receipt``.

        :returns: fires when its RECEIPT has arrived; fails with the errors of :meth:`ask`.
        """
        done, answered = outcome()
        self.ask(command, headers, b"", asked, answered)
        return done

    def flush(self) -> None:
        """Hand what was gathered to the transport."""
        if self._flushing is not None:
            if self._flushing.active():
                self._flushing.cancel()
            self._flushing = None
        parts, self._parts, self._gathered = self._parts, [], 0
        if parts and self.ended is None and self.transport is not None:
            self._beats.sent_at = self._clock.seconds()
            octets = b"".join(parts)
            choked = self._choked
            self.transport.write(octets)
            if choked:
                self._unwritten += len(octets)
                self._read_or_not()
        if not self.crowded:
            self.on_relief()

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
        self._unwritten = 0
        self._read_or_not()
        if not self.crowded:
            self.on_relief()

    def stopProducing(self) -> None:
        """The transport is gone; ``connectionLost`` follows."""

    # --- in

    def hold_reading(self, full: bool, over: bool) -> None:
        """Read no more for now, or read on.

        :param full: as much waits here as should. Reading goes on while a RECEIPT is awaited, which
            comes behind the messages that the broker has sent before.
        :param over: so much waits that nothing is read even then.
        """
        self._full, self._over = full, over
        self._read_or_not()

    @property
    def _drowned(self) -> bool:
        """Whether nothing is read although a RECEIPT may be awaited.

        A broker that does not read our answers sends none, either.
        """
        return self._over or self._unwritten > self._options.max_buffer

    def _read_or_not(self) -> None:
        reading = not self._drowned and (not self._full or bool(self._waiting))
        if reading != self._reading and self.ended is None and self.transport is not None:
            self._reading = reading
            if reading:
                self._beats.heard_at = self._clock.seconds()
                self.transport.resumeProducing()  # type: ignore[attr-defined]
            else:
                self.transport.pauseProducing()  # type: ignore[attr-defined]

    def connectionMade(self) -> None:
        assert self.transport is not None
        if self.ended is not None:
            self._abort()
            return
        self.transport.registerProducer(self, True)  # type: ignore[attr-defined]
        self._socket = _PromptSocket(self.transport)
        beat = self._options.heart_beat_ms
        headers = [("accept-version", _VERSIONS), *self._connect, ("heart-beat", f"{beat},{beat}")]
        try:
            self.write("CONNECT", headers)
        except ValueError as error:
            self.fail(ProviderUnavailable(str(error)))

    def dataReceived(self, data: bytes) -> None:
        if self.ended is not None:
            return
        self._beats.heard_at = self._clock.seconds()
        if self._socket is not None:
            self._socket.acknowledge()
        try:
            for frame in self._reader.read(data):
                self._frame(frame)
                if self.ended is not None:
                    return
        except MalformedFrames as error:
            self.fail(self._unavailable(str(error)))
            return
        self.on_run()

    def _frame(self, frame: Received) -> None:
        if not self._open:
            self._first(frame)
        elif frame.command == "MESSAGE":
            self.on_message(frame)
        elif frame.command == "RECEIPT":
            waiting = self._waiting.pop(frame.headers.get("receipt-id", ""), None)
            # Nobody may have asked for it: Open MQ sends one with CONNECTED.
            if waiting is not None:
                waiting.answer(None)
        elif frame.command == "ERROR":
            self._error(frame)
        else:
            self.fail(
                self._unavailable(f"it sent {frame.command[:40]}, which is not a frame of a broker")
            )

    def _first(self, frame: Received) -> None:
        if frame.command == "ERROR":
            self.fail(refusal(self._asked, sentence(frame.headers, frame.body)))
        elif frame.command != "CONNECTED":
            self.fail(self._unavailable(f"it answered CONNECT with {frame.command[:40]}"))
        elif frame.headers.get("version") not in ("1.1", "1.2"):
            version = frame.headers.get("version", "1.0")[:20]
            self.fail(
                self._unavailable(
                    f"it speaks STOMP {version}, and single acknowledgements need 1.1 or 1.2"
                )
            )
        else:
            self._open = True
            self._reader.escaped = True
            self._beats.agree(frame.headers.get("heart-beat", "0,0"))
            self._next_tick()
            self.opened.callback(frame.headers)

    def _error(self, frame: Received) -> None:
        text = sentence(frame.headers, frame.body)
        waiting = self._waiting.pop(frame.headers.get("receipt-id", ""), None)
        if waiting is None and self._waiting and "receipt-id" not in frame.headers:
            # It does not say what it answers. If it reads as a refusal, it most likely answers the
            # first frame that waits, or the first about what it names. Whether a COMMIT has failed
            # remains unknown.
            named = (
                each
                for each, one in self._waiting.items()
                if is_missing(one.asked.destination, text)
            )
            first = next(named, next(iter(self._waiting)))
            if is_refusal(text) and self._waiting[first].asked.operation is not Operation.COMMIT:
                waiting = self._waiting.pop(first)
        elif waiting is not None and self.survives_errors:
            waiting.answer(refusal(waiting.asked, text))
            return
        reason = f"it sent ERROR: {text}"
        if waiting is None:
            self.fail(self._unavailable(reason))
            return
        waiting.answer(refusal(waiting.asked, text))
        self.fail(ClosedOverRefusal(f"{self._where}: {reason}"))

    # --- time

    def _next_tick(self) -> None:
        every = self._beats.check_every
        self._tick_due = self._clock.seconds() + every
        self._ticking = self._clock.callLater(every, self._tick)

    def _tick(self) -> None:
        now = self._clock.seconds()
        late = now - self._tick_due
        if late >= AWAY_S:
            # This process did not run, which is not the broker's fault.
            self._beats.heard_at = min(self._beats.heard_at + late, now)
            for waiting in self._waiting.values():
                waiting.due += late
        if self._beats.due(now) and self.transport is not None:
            self._beats.sent_at = now
            self.transport.write(b"\n")
        # The reactor reads the sockets once more before the broker is judged by this moment.
        self._ticking = self._clock.callLater(0, self._judge, now)

    def _judge(self, now: float) -> None:
        self._next_tick()
        if self._reading and self._beats.missed(now):
            silence = now - self._beats.heard_at
            self.fail(
                self._unavailable(f"nothing was heard for {silence:.1f} s, twice its heart-beat")
            )
        elif self._waiting and next(iter(self._waiting.values())).due <= now:
            self.fail(
                self._unavailable(
                    f"a RECEIPT did not come within {self._options.receipt_timeout:g} s{self._why_unread()}"
                )
            )

    def _why_unread(self) -> str:
        """What to add to the error where the RECEIPT may not have been read."""
        options = self._options
        if self._over:
            most = options.max_buffer + options.max_frame
            return (
                f": before it, the broker sent more messages than it was asked to, and more than {most} bytes of them wait here, stomp.max-buffer and "
                "stomp.max-frame together; if it has no prefetch that a link can set, raise stomp.max-buffer"
            )
        if self._drowned:
            return f": the broker does not read the {self._unwritten} bytes that it was sent, more than stomp.max-buffer, {options.max_buffer}"
        return ""

    # --- the end

    def close(self) -> Deferred[None]:
        """Send DISCONNECT, wait for its RECEIPT, and close. Never fails.

        Waits at most ``close_timeout`` seconds.
        """
        done: Deferred[None] = Deferred()
        if self._closing is not None:
            self._closing.chainDeferred(done)
        elif self.ended is not None:
            done.callback(None)
        else:
            self._closing = done
            self.ask("DISCONNECT", [], b"", Asked(Operation.CONNECT), self._disconnected)
            self._deadline = self._clock.callLater(self._options.close_timeout, self._bye)
        return done

    def _disconnected(self, error: MessagingError | None) -> None:
        """Wait for the broker to close the socket.

        It does so when it has taken back what was not acknowledged.
        """
        if self._deadline is not None and self._deadline.active() and error is None:
            self._deadline.reset(min(_LINGER, self._options.close_timeout))

    def _bye(self) -> None:
        if self.ended is None:
            self._end(ProviderUnavailable("the connection was closed"))

    def fail(self, error: MessagingError) -> None:
        """End the connection.

        Everything that waits fails with the error, then :attr:`on_lost` is called. Idempotent.
        """
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
        self._parts = []
        # Wire, transport and connector are a reference cycle, which the collector may not visit for
        # long.
        self._reader.forget()
        self._abort()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.answer(error)
        if self._closing is not None:
            self._closing.callback(None)

    def _abort(self) -> None:
        # A broker that does not read would keep loseConnection waiting for ever.
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.ended is None:
            self.fail(self._unavailable(_reason(reason)))
        if self._socket is not None:
            self._socket.forget_output()

    def _unavailable(self, reason: str) -> ProviderUnavailable:
        return ProviderUnavailable(f"{self._where}: {reason}")


def _reason(reason: Failure) -> str:
    if isinstance(reason.value, ConnectionDone):
        return "it closed the connection"
    return f"the connection was lost: {reason.getErrorMessage() or reason.type}"


class _PromptSocket:
    """The TCP socket behind a transport, with or without TLS, if any."""

    def __init__(self, transport: Any) -> None:
        below = transport
        while not ITCPTransport.providedBy(below) or hasattr(below, "transport"):
            below = getattr(below, "transport", None)
            if below is None:
                break
        self._below: Any = below
        self._socket: Any = None if below is None else below.getHandle()
        if below is not None:
            below.setTcpNoDelay(True)

    def acknowledge(self) -> None:
        """Have the kernel acknowledge now what was read.

        Call it after each read, because the kernel forgets the option.

        A broker with Nagle's algorithm on, as ActiveMQ has by default, sends the second part of an
        answer only when the first was acknowledged, and a kernel delays that for 40 milliseconds.
        """
        if self._socket is not None and _QUICKACK is not None:
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:
                # The socket is gone, which the transport notices by itself.
                self._socket = None

    def forget_output(self) -> None:
        """Drop what was not written, once the transport is gone.

        Transport and connector are a reference cycle of Twisted's, which the collector may not
        visit for long: the body of each attempt to send a large message would stay until then.
        """
        if self._below is not None:
            self._below.dataBuffer, self._below._tempDataBuffer = b"", []
            self._below.offset = self._below._tempDataLen = 0
            self._below = None
