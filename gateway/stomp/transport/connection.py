"""One client's socket: bytes in and out, time limits, and its closing.

It reads in slices, so that no client has the reactor to itself, and writes once a turn. It closes so
that the last words arrive: once they are in the kernel it sends no more, reads on for a moment,
since closing over unread bytes would destroy them, and then closes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cryptography.x509 import Certificate
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IHandshakeListener,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.instance.memory.budget import MemoryBudget
from gateway.instance.memory.budget import State as MemoryState
from gateway.reactor.turn import Turn
from gateway.stomp.connection_log import CLOSED_BY_CLIENT
from gateway.stomp.counters import Counters
from gateway.stomp.output import Output, Wrapped
from gateway.stomp.refusals import CommandRefused, FrameTooSlow, MemoryShort, SilentTooLong
from gateway.stomp.session.peer import Subject
from gateway.stomp.session.session import Session
from gateway.stomp.session.states import State
from gateway.stomp.settings import TransportOptions
from gateway.stomp.transport import tls
from gateway.stomp.transport.admission import Admission
from gateway.stomp.transport.deadlines import (
    ABORT_MS,
    ENDING_MS,
    LINGER_MS,
    ClientSilent,
    HeartBeats,
    Pause,
    SlowFrame,
    SlowReader,
    Stage,
    Wheel,
)
from gateway.stomp.transport.rates import ConnectionRates
from gateway.stomp.wire import SHORTEST_FRAME, FrameParser, Limits, ProtocolError, Version

#: How long one turn may read, in seconds and in octets.
_SLICE_S: Final = 0.002
_SLICE_OCTETS: Final = 256 * 1024
#: How much is read from the socket at once from a client that sends little: Twisted's own measure.
_READ_OCTETS: Final = 64 * 1024
#: Unfinished frames and unread output count in the memory budget from these bytes on; smaller
#: ones come and go at each read.
_COUNTED_INPUT: Final = 8 * 1024
_COUNTED_OUTPUT: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of the STOMP bridge share.

    :param parser: makes one that reads CONNECT.
    :param limits: of frames from CONNECTED on.
    :param session_for: makes the session of a new connection; given the client's port, too.
    """

    clock: IReactorTime
    turn: Turn
    memory: MemoryBudget
    options: TransportOptions
    counters: Counters
    wheel: Wheel
    parser: Callable[[], FrameParser]
    limits: Limits
    admission: Admission[StompConnection]
    session_for: Callable[[StompConnection, int], Session]


@implementer(IHandshakeListener, IHalfCloseableProtocol)
class StompConnection(Protocol):
    """The protocol of one client.

    See :class:`~gateway.stomp.session.peer.Peer` for what the session uses of it.
    """

    def __init__(
        self,
        shared: Shared,
        address: str,
        port: int,
        service: str,
        wrapped: Wrapped | None = None,
    ) -> None:
        self._shared: Final = shared
        self.due_tick = 0
        #: The client's; the second is empty while only its proxy's is known.
        self.address = self.known_address = address
        self.port = port
        self.token: str | None = None
        #: What it came to: see :class:`gateway.stomp.listeners.Listener`.
        self.service: Final = service
        self._options: Final = shared.options
        self._turn: Final = shared.turn
        self._clock: Final = shared.clock
        self._counters: Final = shared.counters
        self._parser: Final = shared.parser()
        #: Frames on their way out.
        self.output: Final = Output(shared.turn, self._flushed, self._drained, wrapped)
        #: Until the connection is gone.
        self.session = shared.session_for(self, port)
        self._pauses = Pause(0)
        self._reading = self.is_gone = False
        self._most_read = _READ_OCTETS
        self._began = False
        #: The client sends no more, and may still read.
        self._input_closed = False
        #: Whether it speaks TLS.
        self.secure = False
        #: TLS is not agreed upon yet, so that nothing can be said.
        self._in_handshake = False
        self._stage = Stage.OPENED
        self._stage_due = self._wake_due = 0
        self.rates: Final = ConnectionRates(shared.clock, shared.turn, shared.counters)
        #: What this connection holds of the process's memory.
        self._memory: Final = shared.memory.account(self)
        self.beats: Final = HeartBeats(self._options.heartbeat_tolerance, self._now_ms())
        self._slow_frame: Final = SlowFrame(self._options.input_timeout_s, self._options.input_rate)
        self._slow_reader: Final = SlowReader(self._options.output_timeout_s, self.output)
        self._raw: Any

    # Twisted's side.

    def connectionMade(self) -> None:
        """The socket is open; with TLS the handshake is still to come."""
        transport: Any = self.transport
        self.secure = self._in_handshake = isinstance(transport, TLSMemoryBIOProtocol)
        self._raw = transport.transport if self.secure else transport
        if ITCPTransport.providedBy(self._raw):
            self._raw.setTcpNoDelay(True)
            self._raw.setTcpKeepAlive(True)
        self.output.begin(transport, self._raw)
        self.beats.heard = self.beats.spoke = self._now_ms()
        self._enter(Stage.OPENED, self._options.connect_timeout_s * 1000)
        try:
            self._shared.admission.admit(self, self.known_address)
        except CommandRefused as refused:
            self.session.fail(refused)

    def handshakeCompleted(self) -> None:
        """TLS is agreed upon, and a certificate that was shown is verified."""
        self._in_handshake = False
        self.session.log.transport = tls.description(self.transport, self.certificate)

    def dataReceived(self, data: bytes) -> None:
        """Octets from the client."""
        turn = self._turn
        turn.begin()
        try:
            self.beats.heard = turn.timer_ms
            octets = len(data)
            self._counters.octets_in += octets
            self.rates.came += octets
            if octets >= self._most_read:
                # Who sends much is read in larger pieces.
                self._raw.bufferSize = self._most_read = min(4 * octets, _SLICE_OCTETS)
            elif octets < self._most_read // 8 and self._most_read > _READ_OCTETS:
                self._raw.bufferSize = self._most_read = _READ_OCTETS
            if not self._began:
                self._began = True
                if not self.secure and tls.is_hello(data):
                    self.session.log.mismatched(
                        "a TLS client came to the port for plain connections"
                    )
                    self.transport.write(tls.PROTOCOL_VERSION_ALERT)  # type: ignore[union-attr]
                    self._enter(Stage.CLOSING, ABORT_MS)
                    self.output.end()
                    self.transport.loseConnection()  # type: ignore[union-attr]
                    return
            if self.session.is_reading or self._pauses:
                self._parser.receive(data)
                self._read()
        finally:
            turn.leave()

    def readConnectionLost(self) -> None:
        """The client has closed its side, or all of the connection.

        What it is owed goes out, then this side closes. Never with TLS.
        """
        if self._input_closed:
            return
        self._input_closed = True
        if self._stage in (Stage.RUNNING, Stage.ENDING, Stage.FINISHING):
            with self._turn:
                if self.session.input_closed(CLOSED_BY_CLIENT):
                    return
        # As Twisted does where half of a connection is not asked for.
        self._raw.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]

    def writeConnectionLost(self) -> None:
        """This side is closed; the client's is waited for."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The socket is gone."""
        self.is_gone = True
        self.output.gone()
        self._parser.close()
        self._memory.close()
        self._shared.wheel.remove(self)
        self.rates.end()
        try:
            with self._turn:
                if self._in_handshake and (refusal := tls.refusal(self.transport, reason)):
                    self.session.log.handshake_failed(*refusal)
                self.session.lost(
                    CLOSED_BY_CLIENT
                    if isinstance(reason.value, ConnectionDone)
                    else f"connection lost: {reason.getErrorMessage().rstrip('.')}"
                )
        finally:
            self._shared.admission.gone(self)
            # Connection and session refer to each other, and the collector may not visit them for
            # long.
            self.transport = self._raw = None
            del self.session

    # Reading.

    def _read(self) -> None:
        """Give the session what was read, for as long as a turn may last."""
        session = self.session
        parser = self._parser
        if self._reading or (self._pauses and self._pauses & ~Pause.CONNECTING):
            return
        if self._turn.suspended:
            self._wait_for_turn()
            return
        self._reading = True
        counters = self._counters
        until = self._turn.began + _SLICE_S
        start = parser.buffered
        taken = False
        try:
            while session.is_reading and not self._pauses:
                if frames := parser.frames(self.rates.allowance.sent.most_frames):
                    taken = True
                    counters.frames_in += len(frames)
                    session.receive(frames)
                if self.rates.allowance.sent.is_limited:
                    self._spend([frame.head.command for frame in frames].count("SEND"))
                if not frames or parser.wants_data:
                    break
                if self._clock.seconds() > until or start - parser.buffered > _SLICE_OCTETS:
                    if session.is_reading and not parser.wants_data:
                        self._pause(Pause.SLICE)
                        self._clock.callLater(0, self._go_on, Pause.SLICE)
                    break
        except ProtocolError as error:
            session.input_ended()
            session.fail(error, error.receipt_id)
        except Exception as error:  # noqa: BLE001
            # A defect; the client is told so by an incident, which the log has, too.
            session.fail(error)
        finally:
            self._reading = False
            session.input_ended()
        if session.state is State.CONNECTING:
            self._wait_for_answer()
        self._weigh(taken)

    def _spend(self, messages: int) -> None:
        """Count what came for the user, and read on when it may send more."""
        wait = self.rates.received(messages)
        if wait and self._stage is Stage.RUNNING:
            self._pause(Pause.RATE)
            self.rates.read_later(wait, partial(self._go_on, Pause.RATE))

    def _wait_for_turn(self) -> None:
        """Give the session nothing until the turn resumes.

        The socket is read until something may be a frame. Until then it tells whether the client
        has gone.
        """
        if self._parser.buffered >= SHORTEST_FRAME and not self.is_gone:
            self._pauses |= Pause.SUSPENDED
            self.transport.pauseProducing()  # type: ignore[union-attr]
            # Each connection in a turn of its own.
            self._turn.when_resumed(self._turn_resumed)

    def _turn_resumed(self) -> None:
        # Each connection in a turn of its own.
        self._clock.callLater(0, self._go_on, Pause.SUSPENDED)

    def _wait_for_answer(self) -> None:
        """Give the session nothing until CONNECT is answered.

        The socket is read on, since only that tells whether the client has gone, and its passcode
        need not be verified. What may be a frame ends this: the client's last frames count, even if
        it has gone since.
        """
        self._pauses |= Pause.CONNECTING
        if self._parser.buffered >= SHORTEST_FRAME and not self.is_gone:
            self.transport.pauseProducing()  # type: ignore[union-attr]

    def _weigh(self, taken: bool) -> None:
        """Count the unfinished frame in the memory budget, and time it.

        :param taken: frames were taken just now, so the bytes that are left begin another one.
        """
        if self.is_gone:
            return
        left = self._parser.buffered
        if at_ms := self._slow_frame.note(left, taken, self._turn.timer_ms):
            self._arm(at_ms)
        memory = self._memory
        held = memory.held[MemoryState.RECEIVING]
        needed = self._parser.needed if left > _COUNTED_INPUT else 0
        needed += self.session.held.all_octets
        if needed == held:
            return
        if needed < held:
            memory.hold(MemoryState.RECEIVING, needed)
        elif not self._shared.memory.fits(MemoryState.RECEIVING, needed):
            limit = self._shared.memory.limits[MemoryState.RECEIVING]
            self.session.fail(
                MemoryShort(
                    f"a frame of {needed} octets does not fit into the gateway's memory for frames, {limit} bytes (imq.memory.receiving)"
                )
            )
        elif not memory.reserve(MemoryState.RECEIVING, needed):
            self._wait_for_memory()

    def _wait_for_memory(self) -> None:
        """Read nothing until :meth:`memory_granted`."""
        if self._stage in (Stage.OPENED, Stage.RUNNING):
            self._pause(Pause.MEMORY)

    # The memory budget's side: Holder.

    @property
    def unacknowledged(self) -> int:
        return self.session.subscriptions.unacknowledged()

    def memory_granted(self) -> None:
        self._go_on(Pause.MEMORY)

    def end_for_memory(self, reason: str) -> bool:
        if self.is_gone or self._stage is not Stage.RUNNING:
            return False
        if self.output.unsent > _COUNTED_OUTPUT:
            self.drop(reason)
        else:
            self.session.fail(MemoryShort(reason))
        return True

    def _pause(self, reason: Pause) -> None:
        if not self._pauses and not self.is_gone:
            self.transport.pauseProducing()  # type: ignore[union-attr]
        self._pauses |= reason

    def _go_on(self, reason: Pause) -> None:
        paused = self._pauses & reason
        self._pauses &= ~reason
        if paused and not self._pauses and not self.is_gone:
            self.beats.heard = self._now_ms()
            self._slow_frame.restart(self._parser.buffered, self.beats.heard)
            self.transport.resumeProducing()  # type: ignore[union-attr]
            with self._turn:
                self._read()

    # Writing.

    def _flushed(self, octets: int, unsent: int) -> None:
        now_ms = self._turn.timer_ms
        self.beats.spoke = now_ms
        self._counters.octets_out += octets
        if unsent and (at_ms := self._slow_reader.begin(now_ms)):
            self._arm(at_ms)
        self.session.flushed(unsent)
        if self.rates.allowance.delivered.is_limited:
            self.rates.written(octets, self.session.subscriptions)
        if unsent > _COUNTED_OUTPUT and not self._memory.hold(MemoryState.OUTPUT, unsent):
            self.session.subscriptions.choke()
            self._wait_for_memory()
        if unsent > self._options.output_limit:
            self.drop(
                f"the client does not read: {unsent} octets wait for it, and {self._options.output_limit} is the limit"
            )

    def _drained(self) -> None:
        self._slow_reader.end()
        if self._memory.held[MemoryState.OUTPUT]:
            self._memory.hold(MemoryState.OUTPUT, 0)
        self.session.drained()

    # Time.

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _arm(self, at_ms: int) -> None:
        if not self.is_gone:
            self._shared.wheel.arm(self, at_ms)

    def was_away(self, late_ms: int, now_ms: int) -> None:
        """This process did not run for so long: that is not the client's time."""
        self._stage_due += late_ms
        self.beats.forgive(late_ms, now_ms)
        self._slow_reader.forgive(late_ms, now_ms)
        self._slow_frame.forgive(late_ms, now_ms)

    def expire(self, now_ms: int) -> int:
        """The wheel's turn: do what is due, and say when the next thing is."""
        if self.is_gone:
            return 0
        with self._turn:
            return self._look(now_ms)

    def _look(self, now_ms: int) -> int:
        if self._stage is Stage.RUNNING:
            due = self._look_at_client(now_ms)
            if self._wake_due and now_ms >= self._wake_due and not self._turn.suspended:
                self._wake_due = 0
                self.session.tick(now_ms)
            if self._wake_due:
                due.append(self._wake_due)
            return min(due, default=0)
        if now_ms < self._stage_due:
            return self._stage_due
        match self._stage:
            case Stage.OPENED if self._pauses & Pause.SUSPENDED:
                # Its CONNECT has come, and is not read.
                self._enter(Stage.OPENED, self._options.connect_timeout_s * 1000)
            case Stage.ENDING if self._turn.suspended and self.session.state is not State.CLOSED:
                # DISCONNECT waits for its RECEIPT.
                self._enter(Stage.ENDING, ENDING_MS)
            case Stage.OPENED:
                self.end(
                    CommandRefused(
                        f"not CONNECTED within {self._options.connect_timeout_s} seconds"
                    )
                )
                if self._in_handshake:
                    return 0
            case Stage.ENDING:
                self._enter(Stage.FINISHING, LINGER_MS)
                self.session.hurry()
            case Stage.LINGERING if not self.secure:
                self._enter(Stage.CLOSING, ABORT_MS)
                self.transport.loseConnection()  # type: ignore[union-attr]
            case _:
                self.abort()
                return 0
        return self._stage_due

    def _look_at_client(self, now_ms: int) -> list[int]:
        """Send a heart-beat, and end the connection if the client is too slow."""
        if self.beats.must_speak(now_ms):
            self.output.add(b"\n")
        paused = bool(self._pauses)  # it is not for the client that nothing is read
        due: list[int] = []
        try:
            due += self.beats.look(now_ms, paused)
            due += self._slow_reader.look(now_ms)
            due += self._slow_frame.look(self._parser.buffered, now_ms, paused)
        except ClientSilent as silent:
            self.drop(str(silent))
        except (FrameTooSlow, SilentTooLong) as slow:
            self.session.fail(slow)
        return due

    # Closing.

    def end(self, error: Exception) -> None:
        """End the session with an ERROR.

        During the TLS handshake the client could not read it: close at once.
        """
        if not self._in_handshake:
            self.session.fail(error)
        elif not self.is_gone:
            self._counters.dropped += 1
            self.session.log.handshake_failed(str(error), certificate=False)
            self.abort()

    def drop(self, reason: str) -> None:
        """Close without a word, which would not be read; log the reason."""
        if not self.is_gone:
            self._counters.dropped += 1
            self.session.log.dropped(reason)
            self.abort()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        self.output.end()
        self.transport.abortConnection()  # type: ignore[union-attr]

    def _enter(self, stage: Stage, limit_ms: int) -> None:
        """A stage begins that may last so long."""
        self._stage = stage
        self._stage_due = self._now_ms() + limit_ms
        self._arm(self._stage_due)

    def _close(self) -> None:
        if self.is_gone or self._stage is not Stage.FINISHING:
            return
        self._enter(Stage.LINGERING, LINGER_MS)
        self.output.end()
        if self.secure or self._input_closed:
            # TLS says goodbye and waits for the answer by itself; of a client that sends no more
            # nothing is waited for.
            self.transport.loseConnection()  # type: ignore[union-attr]
        else:
            self.transport.loseWriteConnection()  # type: ignore[union-attr]

    # The session's side: Peer.

    @property
    def peer_certificate(self) -> Certificate | None:
        """The client's verified certificate, if it has shown one."""
        found = self.transport.getPeerCertificate() if self.secure else None  # type: ignore[union-attr]
        return None if found is None else found.to_cryptography()

    @property
    def certificate(self) -> Subject | None:
        found = self.peer_certificate
        return None if found is None else tls.subject(found)

    @property
    def is_read(self) -> bool:
        """Whether the client can be heard."""
        return not self._pauses

    def accepted(self, version: Version, pause_ms: int, receive_ms: int, silence_ms: int) -> None:
        self._parser.change_rules(version, self._shared.limits)
        self._stage = Stage.RUNNING
        now_ms = self._now_ms()
        self.beats.agree(pause_ms, receive_ms, now_ms, silence_ms)
        if pause_ms or receive_ms or silence_ms:
            self._arm(now_ms + 1)
        if self._pauses & Pause.CONNECTING:
            self._clock.callLater(0, self._go_on, Pause.CONNECTING)

    def claim_user(self, username: str) -> None:
        allowance = self._shared.admission.claim_user(self, username)
        self.rates.claimed(allowance, self.session.subscriptions)

    def pause_input(self) -> None:
        self._pause(Pause.SESSION)

    def resume_input(self) -> None:
        self._clock.callLater(0, self._go_on, Pause.SESSION)

    def transaction_holds(self, octets: int) -> None:
        limit = self._shared.memory.limits[MemoryState.TRANSACTIONS]
        if not self._memory.hold(MemoryState.TRANSACTIONS, octets):
            if octets > limit:
                raise MemoryShort(
                    f"a transaction of {octets} bytes does not fit into the gateway's memory for transactions, {limit} bytes "
                    "(imq.memory.transactions)"
                )
            self._wait_for_memory()

    def held_fewer(self) -> None:
        self._weigh(taken=False)

    def finish(self) -> None:
        if not self.is_gone and self._stage not in (Stage.LINGERING, Stage.CLOSING):
            self._enter(Stage.FINISHING, LINGER_MS)
            self.output.when_drained(self._close)

    def ending(self, error: BaseException | None = None, text: str = "") -> None:
        if self.is_gone or self._stage not in (Stage.OPENED, Stage.RUNNING):
            return
        # What is behind RECEIPTs that cannot come now does not wait for them.
        futile = self._turn.suspended and self.session.state is State.CLOSED
        self._enter(Stage.ENDING, 0 if futile else ENDING_MS)
        self._parser.close()
        self._slow_frame.end()
        self._memory.withdraw()
        self._memory.hold(MemoryState.RECEIVING, 0)
        if self._pauses:
            # What comes now is read and dropped; unread octets would destroy the last words when
            # the socket closes.
            self._pauses = Pause(0)
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def wake(self, at_ms: int) -> None:
        self._wake_due = min(self._wake_due or at_ms, at_ms)
        self._arm(at_ms)
