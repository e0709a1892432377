"""The time limits of connections, and the wheel that looks at them.

The limits of one connection are those of its stages, heart-beats, slow readers and slow frames.
They do nothing by themselves: each is told what happened and when, judges by the time it is given,
and says when to look again. Times are milliseconds of the clock of timers.

There is one wheel for all connections, also for what a session wants to be woken for. A connection
is in one slot, that of the first thing it has to look at. Looking is cheap and being early does no
harm, so what moves a deadline further away (octets that arrive) touches the wheel not at all. The
wheel owns when to look; what is due is the connection's to know.

A client is not blamed for time in which this process did not run. The wheel sees to that in two
ways:

1. Between the moment that a look is judged by and the look, the reactor serves all sockets once.
   What came before that moment is then read.
2. A turn that comes late tells all things on the wheel by how much, and they move their deadlines.
"""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.reactor.clocks import AWAY_S
from gateway.stomp.output import Output
from gateway.stomp.refusals import FrameTooSlow, SilentTooLong

#: Time limits: to write the last frames, for the client to close, and for the kernel to close.
ENDING_MS: Final = 5000
LINGER_MS: Final = 2000
ABORT_MS: Final = 1000
#: A slow reader has a second for this many bytes, where the system does not tell how much it has
#: read.
_SLOWEST: Final = 16 * 1024
#: How often a slow reader is looked at within its time-out: how late it is found out at most.
_LOOKS: Final = 4


class Stage(Enum):
    """Where a connection is between its opening and its end.

    Each but ``RUNNING`` has a time limit.
    """

    OPENED = "opened"
    RUNNING = "running"
    #: The session has its last words under way.
    ENDING = "ending"
    #: All has been said, and is not yet in the kernel.
    FINISHING = "finishing"
    #: Nothing more is sent; what the client still sends is read and dropped.
    LINGERING = "lingering"
    #: Closed, as far as it is for this side to do.
    CLOSING = "closing"


class Pause(IntFlag):
    """Why nothing is given to the session, and so nothing is read."""

    #: The session asked for it.
    SESSION = 1
    #: This turn has read enough.
    SLICE = 2
    #: The credentials are being checked.
    CONNECTING = 4
    #: There is no memory for more.
    MEMORY = 8
    #: The turn is suspended, so that nothing could be answered.
    SUSPENDED = 16
    #: Its user has sent as much as it may.
    RATE = 32
    #: More frames of WebSocket have come than a turn may read.
    FRAMES = 64


class ClientSilent(Exception):
    """The client does not send or does not read in time.

    The text says so for the log.
    """


class HeartBeats:
    """The heart-beats of both sides (STOMP 1.2, "Heart-beating").

    :param tolerance: how many times its own interval the client may be silent.
    :ivar heard: when the client sent something last. :ivar spoke: when something was sent to it.
    """

    __slots__ = ("_pause", "_receive_ms", "_silence", "_tolerance", "heard", "spoke")

    def __init__(self, tolerance: float, now_ms: int) -> None:
        self._tolerance: Final = tolerance
        self._pause = self._receive_ms = self._silence = 0
        self.heard = self.spoke = now_ms

    def agree(self, pause_ms: int, receive_ms: int, now_ms: int, silence_ms: int = 0) -> None:
        """Begin with what CONNECT and CONNECTED agreed upon; 0 is no heart-beat.

        :param pause_ms: a heart-beat goes out after so long a silence.
        :param silence_ms: how long the client may be silent by its listener's rules; 0: these do not
            say it.
        """
        self._pause = pause_ms
        self._receive_ms = receive_ms
        self._silence = silence_ms
        self.heard = self.spoke = now_ms

    def forgive(self, late_ms: int, now_ms: int) -> None:
        """This process did not run for so long: that is not the client's time."""
        self.heard = min(self.heard + late_ms, now_ms)

    @property
    def promised_ms(self) -> int:
        """How often the client has promised to send; 0 for no promise."""
        return self._receive_ms

    def must_speak(self, now_ms: int) -> bool:
        """Return whether a heart-beat is to be sent now, and take it for sent."""
        if not self._pause or now_ms - self.spoke < self._pause:
            return False
        self.spoke = now_ms
        return True

    def look(self, now_ms: int, paused: bool) -> list[int]:
        """Return when to look again.

        :param paused: the socket is not read, so the client cannot be heard.
        :raises ClientSilent: it has been silent for too long, against its promise.
        :raises SilentTooLong: or against the rules of its listener.
        """
        due = [self.spoke + self._pause] if self._pause else []
        if allowed := self._silence or int(self._receive_ms * self._tolerance):
            if paused:
                self.heard = now_ms
            silent = now_ms - self.heard
            if silent >= allowed and self._silence:
                raise SilentTooLong(
                    f"no octet for {silent} ms from the client, and {allowed} ms is the limit here (connectionTtl)"
                )
            if silent >= allowed:
                raise ClientSilent(
                    f"no octet for {silent} ms from a client that promised one each {self._receive_ms} ms"
                )
            due.append(self.heard + allowed)
        return due


class SlowReader:
    """The time in which a client must read something of what was sent to it."""

    __slots__ = ("_allowed", "_output", "_since", "_taken")

    def __init__(self, timeout_s: int, output: Output) -> None:
        self._allowed: Final = timeout_s * 1000
        self._output: Final = output
        #: 0 while nothing is unread.
        self._since = 0
        #: Bytes that the client had read then, and ever since; -1 where the system does not tell.
        self._taken = 0

    def begin(self, now_ms: int) -> int:
        """Something is unread.

        :returns: when to look, 0 where that is arranged already.
        """
        if self._since:
            return 0
        self._since = now_ms
        self._taken = self._output.taken()
        return now_ms + self._allowed // _LOOKS

    def end(self) -> None:
        """All is in the kernel."""
        self._since = 0

    def forgive(self, late_ms: int, now_ms: int) -> None:
        """This process did not run for so long: that is not the client's time."""
        if self._since:
            self._since = min(self._since + late_ms, now_ms)

    def look(self, now_ms: int) -> list[int]:
        """Return when to look again.

        :raises ClientSilent: the client has read nothing for too long.
        """
        if not self._since:
            return []
        allowed = self._allowed
        if self._taken < 0:
            allowed += self._output.unsent * 1000 // _SLOWEST
        elif (taken := self._output.taken()) > self._taken:
            self._taken, self._since = taken, now_ms
        if now_ms - self._since >= allowed:
            raise ClientSilent(
                f"the client has read nothing for {(now_ms - self._since) // 1000} seconds"
            )
        return [min(now_ms + max(self._allowed // _LOOKS, 1), self._since + allowed)]


class SlowFrame:
    """The periods in which so much must come of a frame that has begun.

    :param rate: bytes a second.
    """

    __slots__ = ("_begun", "_octets", "_quota", "_timeout_s", "_watching")

    def __init__(self, timeout_s: int, rate: int) -> None:
        self._timeout_s: Final = timeout_s
        #: What must come of a frame in one period.
        self._quota: Final = rate * timeout_s
        #: When the period has begun, and what had come of the frame then; 0 for no frame.
        self._begun = 0
        self._octets = 0
        #: A look is arranged.
        self._watching = False

    def note(self, left: int, is_new: bool, now_ms: int) -> int:
        """``left`` bytes of an unfinished frame wait; 0 for no frame.

        :param is_new: frames were taken just now, so the bytes are another frame's.
        :returns: when to look, 0 where that is arranged already.
        """
        if not left:
            self._begun = 0
        elif is_new or not self._begun or left - self._octets >= self._quota:
            self._begun, self._octets = now_ms, left
            if not self._watching:
                self._watching = True
                return now_ms + self._timeout_s * 1000
        return 0

    def restart(self, left: int, now_ms: int) -> None:
        """Begin a new period for a frame that is not whole."""
        if self._begun:
            self._begun, self._octets = now_ms, left

    def end(self) -> None:
        """No frame is waited for."""
        self._begun = 0

    def forgive(self, late_ms: int, now_ms: int) -> None:
        """This process did not run for so long: that is not the client's time."""
        if self._begun:
            self._begun = min(self._begun + late_ms, now_ms)

    def look(self, left: int, now_ms: int, paused: bool) -> list[int]:
        """Return when to look again.

        :param paused: the socket is not read, so nothing can come.
        :raises FrameTooSlow: too little has come in one period.
        """
        if not self._begun:
            self._watching = False
            return []
        if paused:
            self.restart(left, now_ms)
        elif now_ms - self._begun >= self._timeout_s * 1000:
            self._watching = False
            raise FrameTooSlow(
                f"a frame has begun and does not go on: {left - self._octets} octets of it came in {self._timeout_s} seconds, and at least "
                f"{self._quota} are expected (imq.bridge.stomp.input.rate)"
            )
        return [self._begun + self._timeout_s * 1000]


#: How exact it is, in milliseconds: a connection is looked at so much late at most.
TICK_MS: Final = 50
#: A turn that comes this many milliseconds late tells that the process did not run.
AWAY_MS: Final = int(AWAY_S * 1000)
#: Slots; what is due later than a turn of the wheel is looked at once a turn.
_SLOTS: Final = 1024


class Timed(Protocol):
    """What is on the wheel."""

    #: The wheel's own; 0 to begin with, when the thing is not on the wheel.
    due_tick: int

    def expire(self, now_ms: int) -> int:
        """Do what is due at ``now_ms``.

        :returns: when to look next, in milliseconds of the same clock, or 0 for not at all.
        """

    def was_away(self, late_ms: int, now_ms: int) -> None:
        """The process did not run for ``late_ms``, until ``now_ms``.

        That time counts for no deadline of a client.
        """


class Wheel:
    """The wheel; it stands still while nothing is on it.

    :param clock: the reactor, whose clock does not jump.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock: Final = clock
        self._slots: Final[list[dict[Timed, None]]] = [{} for _ in range(_SLOTS)]
        self._tick = 0
        self._count = 0
        self._call: IDelayedCall | None = None
        #: When the next turn should come.
        self._due_ms = 0

    def __len__(self) -> int:
        """How many things are on it."""
        return self._count

    def arm(self, thing: Timed, at_ms: int) -> None:
        """Look at ``thing`` at ``at_ms``, or earlier if that was arranged before."""
        if self._call is None:
            # It stood still: begin at the present.
            now_ms = self._now_ms()
            self._tick = now_ms // TICK_MS
            self._next_turn(now_ms)
        self._place(thing, at_ms, self._tick)

    def remove(self, thing: Timed) -> None:
        """Look at ``thing`` no more."""
        if thing.due_tick:
            del self._slots[thing.due_tick % _SLOTS][thing]
            thing.due_tick = 0
            self._count -= 1

    def stop(self) -> None:
        """Stand still; whatever is on it is not looked at again."""
        for slot in self._slots:
            for thing in [*slot]:
                self.remove(thing)
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _next_turn(self, after_ms: int) -> None:
        self._due_ms = after_ms + TICK_MS
        self._call = self._clock.callLater(max(self._due_ms - self._now_ms(), 0) / 1000, self._turn)

    def _turn(self) -> None:
        """A tick has passed.

        What is due is looked at after the reactor has served the sockets once more, and judged by
        the time now.
        """
        now_ms = self._now_ms()
        late_ms = now_ms - self._due_ms
        if late_ms >= AWAY_MS:
            for slot in self._slots:
                for thing in slot:
                    thing.was_away(late_ms, now_ms)
        ticks = range(self._tick + 1, min(now_ms // TICK_MS, self._tick + _SLOTS) + 1)
        if any(self._slots[tick % _SLOTS] for tick in ticks):
            self._call = self._clock.callLater(0, self._look, now_ms)
        else:
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        target = now_ms // TICK_MS
        # A process that was stopped for long costs one round, not all that it has missed.
        first = self._tick + 1 if 0 <= target - self._tick < _SLOTS else target - _SLOTS + 1
        for tick in range(first, target + 1):
            self._tick = tick
            slot = self._slots[tick % _SLOTS]
            for thing in [*slot]:
                # One that was looked at just now may have taken another with it.
                if thing not in slot:
                    continue
                self.remove(thing)
                try:
                    following = thing.expire(now_ms)
                except Exception:  # noqa: BLE001
                    # One connection's defect must not stop the others' time; it is logged, never
                    # silent.
                    self._log.failure("looking at {thing} failed", thing=thing)
                    continue
                if following:
                    self._place(thing, following, target)
        self._tick = target
        self._call = None
        if self._count:
            self._next_turn(now_ms)

    def _place(self, thing: Timed, at_ms: int, present: int) -> None:
        due = max(-(-at_ms // TICK_MS), present + 1)
        if thing.due_tick:
            if thing.due_tick <= due:
                return
            self.remove(thing)
        due = min(due, present + _SLOTS - 1)
        thing.due_tick = due
        self._slots[due % _SLOTS][thing] = None
        self._count += 1
