"""One Java process, from its start to its end.

A Java virtual machine inside the gateway's own process would take it down with its heap, and there
can be only one. So each is a child, which the gateway asks by a socket
(:mod:`bridge.providers.jms.wire`). It may run out of memory, hang or be killed: its connections are
lost, and their links try again, as with any lost connection.

Owns the child, its socket, its beat, its output and the frames of its channels. Which processes
there are, and when one is started again, is :mod:`bridge.providers.jms.supervisor`'s.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory, ProcessProtocol, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.jms import build, wire
from bridge.providers.jms.channels import Channel, Hung, Lane, SessionChannel
from bridge.providers.jms.java_command import MIB, Command
from bridge.providers.jms.wire import Alive, Frame, Frames, Payload, Ready, Type, WireError
from gateway.messaging.errors import ProviderUnavailable
from gateway.reactor.clocks import TimeLimit

#: Lines of a client's output that are logged between two beats.
_MOST_LINES: Final = 100
_LONGEST_LINE: Final = 4096
#: Exit status, as in ``Heap.java``.
_EXHAUSTED: Final = 71

_MORE_HEAP: Final = "give it more by -Xmx in imq.jms.jvmOptions, or have the client fetch fewer messages ahead (ActiveMQ: jms.prefetchPolicy.all=N in its URL)"

_log: Final = Logger(namespace="bridge.jms")


class Times(NamedTuple):
    """Time limits of a process, in seconds.

    :param beat: between two beats; as many as ``beats`` may be unanswered. Together they are longer
        than a full collection of a large heap on a busy machine.
    :param starting: from the start of a process to its first frame.
    :param idle: until an unused process is ended.
    :param ending: from the close of its socket to the end of the process.
    """

    beat: float = 5.0
    beats: int = 6
    starting: float = 120.0
    idle: float = 30.0
    ending: float = 2.0


@cache
def _made_of() -> str:
    return build.made_of(build.JARS / build.JAR)[0]


class JavaProcess:
    """One process, from its start to its end. Made by its supervisor.

    :param ended: called once, when the process cannot be used any more; :attr:`error` says why.
    """

    def __init__(
        self, reactor: Any, command: Command, times: Times, ended: Callable[[JavaProcess], None]
    ) -> None:
        self.reactor = reactor
        self._times = times
        self.heap: Final = command.heap
        #: Why nothing can be asked of it any more.
        self.error: ProviderUnavailable | None = None
        #: Whether it was ended because it was unused.
        self.orderly = False
        #: Whether its heap was full.
        self.exhausted = False
        self.started: Final[float] = reactor.seconds()
        #: Its last word about its memory.
        self.alive: Alive | None = None
        self.pid = 0
        self._ended = ended
        self._ready: Ready | None = None
        self._waiting: list[Deferred[None]] = []
        self._numbers = 0
        self._channels: dict[int, Channel] = {}
        self._links: dict[int, tuple[object, Callable[[str], None]]] = {}
        self._to_flush: dict[SessionChannel, None] = {}
        self._unanswered = 0
        self._timer: IDelayedCall | TimeLimit | None = None
        self._idle: IDelayedCall | None = None
        self._output = _Output()
        self._start(command)

    def __repr__(self) -> str:
        return f"JavaProcess({self.pid})"

    # --- its life

    def _start(self, command: Command) -> None:
        hello = wire.hello(command.properties)
        self._stream = stream = _Stream(self._received, self._closed)
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            # The process is started last: if anything fails, no process must be ended.
            self.reactor.adoptStreamConnection(
                ours.fileno(), socket.AF_UNIX, Factory.forProtocol(lambda: stream)
            )
            child = _Child(self._exited, self._output.feed)
            self._child: Any = self.reactor.spawnProcess(
                child,
                command.arguments[0],
                command.arguments,
                None,
                childFDs={0: theirs.fileno(), 1: "r", 2: "r"},
            )
            self.pid = self._child.pid
        except OSError:
            stream.close()
            raise
        finally:
            ours.close()
            theirs.close()
        self.write(hello)
        self._timer = TimeLimit(
            self.reactor,
            self._times.starting,
            self.kill,
            f"Java did not start within {self._times.starting:g} s",
        )

    def ready(self) -> Deferred[None]:
        """Wait until it has introduced itself.

        :returns: fails with ProviderUnavailable.
        """
        if self.error is not None:
            return fail(self.error)
        if self._ready is not None:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def kill(self, reason: str) -> None:
        """End it now; its users fail with the reason. Idempotent."""
        self._signal()
        self._died(reason)

    def close(self) -> None:
        """End it because it is unused."""
        self.orderly = True
        self.reactor.callLater(self._times.ending, self._signal)
        self._died("the Java process was unused")

    def _signal(self) -> None:
        try:
            self._child.signalProcess("KILL")
        except ProcessExitedAlready:
            return

    def _exited(self, status: Any) -> None:
        code, by = status.exitCode, status.signal
        self._output.finish()
        if code == _EXHAUSTED:
            self.exhausted = True
            self._died(
                f"Java has run out of memory, as its heap of {self.heap // MIB} MiB was full: {_MORE_HEAP}"
            )
        elif by is not None:
            self._died(f"the Java process was killed by {signal.Signals(by).name}")
        else:
            last = self._output.last
            self._died(
                f"Java ended with exit status {code}{': ' + last if last else ', without any output'}"
            )

    def _closed(self) -> None:
        """Its socket is closed. Wait for its exit, which says why."""
        if self.error is None and self._timer is not None:
            self._timer.cancel()
            self._timer = self.reactor.callLater(
                self._times.ending, self.kill, "Java has closed its connection"
            )

    def _died(self, reason: str) -> None:
        if self.error is not None:
            return
        self.error = error = ProviderUnavailable(reason)
        for timer in (self._timer, self._idle):
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = self._idle = None
        self._stream.close()
        self._ended(self)
        links, self._links = self._links, {}
        channels, self._channels = self._channels, {}
        tell: list[Callable[[], None]] = [partial(lost, reason) for _, lost in links.values()]
        tell += [partial(channel.over, error) for channel in channels.values()]
        for one in tell:
            _tell(one)
        waiting, self._waiting = self._waiting, []
        for waits in waiting:
            waits.errback(error)

    # --- what is asked

    def lane(self, hung: Hung) -> Lane:
        """Make a channel for single calls, which the caller must end."""
        lane = Lane(self, self.number(), hung)
        self._add(self._numbers, lane)
        return lane

    def session(
        self,
        name: str,
        hung: Hung,
        opening: tuple[int, int, int],
        answered: Callable[[bytes], None],
        failed: Callable[[BaseException], None],
        seconds: float,
    ) -> SessionChannel:
        """Make a channel for a session, which the caller must end.

        :param opening: connection, mode, and the mode's argument.
        """
        number = self.number()
        channel = SessionChannel(
            self, number, name, hung, wire.opening(number, *opening), answered, failed, seconds
        )
        self._add(number, channel)
        return channel

    def link(self, user: object, lost: Callable[[str], None]) -> int:
        """Make a number for a connection.

        :param user: whose it is.
        :param lost: called with the reason when the connection or the process is lost.
        """
        number = self.number()
        self._links[number] = user, lost
        self._busy()
        return number

    def unlink(self, number: int) -> None:
        """The connection of this number is closed, or was not opened."""
        self._links.pop(number, None)
        self.perhaps_idle()

    def serves_others(self, user: object) -> bool:
        """Whether others have connections in this process."""
        return any(one is not user for one, _ in self._links.values())

    def number(self) -> int:
        """Make a number, for a connection factory or inside."""
        self._numbers += 1
        return self._numbers

    def _add(self, number: int, channel: Channel) -> None:
        if self.error is not None:
            self.reactor.callLater(0, channel.over, self.error)
            return
        self._channels[number] = channel
        self._busy()

    # --- for the channels

    def write(self, octets: bytes) -> None:
        """Send frames; nothing once it has ended."""
        if self.error is None:
            self._stream.write(octets)

    def flush_soon(self, channel: SessionChannel) -> None:
        """Flush it at the end of this pass of the reactor."""
        if not self._to_flush:
            self.reactor.callLater(0, self._flush)
        self._to_flush[channel] = None

    def _flush(self) -> None:
        channels, self._to_flush = self._to_flush, {}
        for channel in channels:
            channel.flush()

    def drop(self, number: int) -> None:
        """Forget a channel that Java was never told of."""
        self._channels.pop(number, None)
        self.perhaps_idle()

    def _received(self, data: bytes) -> None:
        try:
            for frame in self._stream.frames.feed(data):
                self._listened_to(frame)
        except WireError as error:
            self.kill(f"the Java process sent a frame that is not understood: {error}")

    def _listened_to(self, frame: Frame) -> None:
        """Pass a frame on.

        A listener that raises an error loses its own connection only.

        :raises WireError: the frame is wrong.
        """
        try:
            self._frame(frame)
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001
            _log.failure("a connection or session failed over a frame of the Java process")
            channel = self._channels.get(frame.channel)
            if channel is not None:
                _tell(partial(channel.defective, error))

    def _frame(self, frame: Frame) -> None:
        kind = frame.type
        if self.error is not None:
            return
        if kind == Type.LOST:
            found = self._links.get(frame.channel)
            if found is not None:
                found[1](Payload(frame.payload).text())
        elif kind == Type.ENDED:
            channel = self._channels.pop(frame.channel, None)
            if channel is not None:
                channel.over(None)
                self.perhaps_idle()
        elif kind == Type.ALIVE:
            self.alive = Payload(frame.payload).alive()
            self._unanswered = 0
        elif kind == Type.READY and self._ready is None:
            self._greeted(Payload(frame.payload).ready())
        else:
            channel = self._channels.get(frame.channel)
            # None if both sides dropped it at the same time.
            if channel is not None:
                channel.frame(frame)

    def _greeted(self, ready: Ready) -> None:
        if ready.made_of != _made_of():
            raise WireError(
                "another stomp-gateway-jms.jar stands before the gateway's own on the class path; remove it there"
            )
        self._ready = ready
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.reactor.callLater(self._times.beat, self._beat)
        _log.info(
            "Java {java} runs as process {pid}, with a heap of {heap} MiB",
            java=ready.java,
            pid=self.pid,
            heap=ready.heap // MIB,
        )
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)
        self.perhaps_idle()

    def _beat(self) -> None:
        self._output.beat()
        if self._unanswered >= self._times.beats:
            alive = self.alive
            self.exhausted = alive is not None and alive.used > alive.heap * 9 // 10
            self.kill(self._why_silent())
            return
        self._unanswered += 1
        self.write(wire.frame(Type.BEAT, 0))
        self._timer = self.reactor.callLater(self._times.beat, self._beat)

    def _why_silent(self) -> str:
        silent = f"Java (process {self.pid}) has not answered for {self._times.beat * self._times.beats:g} s and was ended"
        alive = self.alive
        if self.exhausted and alive is not None:
            return f"{silent}; {alive.used // MIB} of {alive.heap // MIB} MiB of its heap were in use: {_MORE_HEAP}"
        return f"{silent}; it was stopped, or the machine has too little processor time or memory for it"

    # --- whether it is used

    def _busy(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def perhaps_idle(self) -> None:
        # Abandoned calls do not keep the process in use.
        waited_for = any(not channel.abandoned for channel in self._channels.values())
        if self._idle is None and self.error is None and not self._links and not waited_for:
            self._idle = self.reactor.callLater(self._times.idle, self._rest)

    @property
    def unused_until(self) -> float | None:
        """When an unused process will be ended; None while it is used."""
        return None if self._idle is None else self._idle.getTime()

    def _rest(self) -> None:
        self._idle = None
        self.close()


def _tell(listener: Callable[[], None]) -> None:
    """Call a listener. If it raises an error, the others must still be called."""
    try:
        listener()
    except Exception:  # noqa: BLE001
        _log.failure("a connection or session failed over the news of its loss")


class _Stream(Protocol):
    """The gateway's end of the socket."""

    def __init__(self, received: Callable[[bytes], None], closed: Callable[[], None]) -> None:
        self.frames = Frames()
        self._received = received
        self._closed = closed
        self._socket: Any = None
        #: Whether the transport has something that it could not send yet.
        self._held = False

    def connectionMade(self) -> None:
        transport: Any = self.transport
        if isinstance(transport, Connection):
            self._socket = transport.getHandle()
            transport.registerProducer(self, False)  # type: ignore[no-untyped-call]

    def dataReceived(self, data: bytes) -> None:
        self._received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._socket = None
        self._closed()

    def write(self, octets: bytes) -> None:
        """Send at once, as far as the kernel takes it: Java waits for it."""
        assert self.transport is not None
        if self._socket is not None and not self._held:
            # It may be full. Whatever else fails, the transport meets it, too, and tells.
            with suppress(OSError):
                octets = octets[self._socket.send(octets) :]
            if not octets:
                return
            self._held = True
        self.transport.write(octets)

    def resumeProducing(self) -> None:
        """All that the transport had is in the kernel."""
        self._held = False

    def stopProducing(self) -> None: ...

    def close(self) -> None:
        """Java ends when it sees that."""
        transport: Any = self.transport
        if transport is not None:
            if self._socket is not None:
                self._socket = None
                transport.unregisterProducer()
            transport.loseConnection()


class _Child(ProcessProtocol):
    def __init__(self, exited: Callable[[Any], None], printed: Callable[[bytes], None]) -> None:
        self._exited = exited
        self._printed = printed

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        self._printed(data)

    def processEnded(self, reason: Failure) -> None:
        self._exited(reason.value)


class _Output:
    """Logs the lines that the provider's client prints, a number per beat."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines = 0
        self._left_out = 0
        self._last: deque[str] = deque(maxlen=5)

    @property
    def last(self) -> str:
        return "; ".join(self._last)

    def feed(self, data: bytes) -> None:
        """Log further output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:_LONGEST_LINE]
        for line in lines:
            self._log(line)

    def _log(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].decode("utf-8", "replace").strip()
        if not text:
            return
        self._last.append(text)
        self._lines += 1
        if self._lines <= _MOST_LINES:
            _log.info("Java: {text}", text=text)
        else:
            self._left_out += 1

    def beat(self) -> None:
        """Report lines that were left out, and start counting anew."""
        if self._left_out:
            _log.warn(
                "Java: {left_out} more lines are left out of this log", left_out=self._left_out
            )
        self._lines = self._left_out = 0

    def finish(self) -> None:
        """Log the rest: the output has ended."""
        self._log(self._rest)
        self._rest = b""
        self.beat()
