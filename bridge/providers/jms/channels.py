"""Channels to a Java process: for single calls, and for sessions.

Each has a thread of its own in Java.

A Java call cannot be ended from outside. A call that does not return in time is abandoned: it fails
here, its thread in Java is left behind, and nothing waits for it. Each provider counts its hanging
threads.

Owns timeouts, pending questions, and windows. Knows neither what is asked nor how a process lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bridge.providers.jms import wire
from bridge.providers.jms.wire import Frame, Payload, Type, Verb, WireError
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.reactor.clocks import TimeLimit

T = TypeVar("T")

_log: Final = Logger(namespace="bridge.jms")


class JavaFailure(Exception):
    """A call in Java failed.

    :param kind: see :class:`~bridge.providers.jms.failures.Kind`.
    :param reason: in words.
    """

    def __init__(self, kind: int, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Channels(Protocol):
    """The process that channels belong to."""

    reactor: IReactorTime

    def write(self, octets: bytes) -> None:
        """Send frames."""

    def flush_soon(self, channel: SessionChannel) -> None:
        """Flush the channel at the end of this pass of the reactor."""

    def drop(self, number: int) -> None:
        """Forget a channel that Java was never told of."""

    def perhaps_idle(self) -> None:
        """A call was abandoned. It does not keep the process in use."""


class Channel(Protocol):
    """A channel, as the process sees it."""

    #: Whether its call hangs and was abandoned.
    abandoned: bool

    def frame(self, frame: Frame) -> None:
        """A frame arrived. :raises WireError: it is wrong."""

    def defective(self, error: Exception) -> None:
        """Its user raised an error over a frame: fail, without ending the process."""

    def over(self, error: MessagingError | None) -> None:
        """Nothing more arrives. Called once, last.

        Its thread in Java has ended, or with ``error`` the whole process.
        """


class Hung:
    """The calls of one provider that were abandoned and have not returned.

    :param provider: its name, for the log.
    :param most: with that many, calls are refused.
    """

    def __init__(self, provider: str, most: int = 8) -> None:
        self.provider = provider
        self.most = most
        #: Threads that are still in their call.
        self.count = 0
        #: All abandoned calls so far.
        self.total = 0

    def abandoned(self, what: str, seconds: float) -> ProviderUnavailable:
        """Count and log an abandoned call. :returns: the error of the call."""
        self.count += 1
        self.total += 1
        _log.warn(
            "{provider}: {what} did not return within {seconds:g} s; its thread in Java is left behind, one of {count} now",
            provider=self.provider,
            what=what,
            seconds=seconds,
            count=self.count,
        )
        return ProviderUnavailable(
            f"{what} did not return within {seconds:g} s; the provider does not answer"
        )

    def returned(self, what: str) -> None:
        """An abandoned call returned after all, or ended with its process."""
        self.count -= 1
        _log.info(
            "{provider}: {what}, which was abandoned, has returned",
            provider=self.provider,
            what=what,
        )


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    what: str
    parse: Callable[[Payload], T]
    late: Callable[[T], None] | None
    result: Deferred[T] = field(default_factory=Deferred)
    timer: TimeLimit | None = None


class Lane:
    """Single calls, one after the other. Made by a process."""

    def __init__(self, process: Channels, number: int, hung: Hung) -> None:
        self._process = process
        self._number = number
        self._hung = hung
        self._tags = 0
        self._pending: dict[int, _Call[Any]] = {}
        #: Abandoned calls, whose late results must be disposed of.
        self._given_up: dict[int, _Call[Any]] = {}
        self._ending = False
        self._used = False
        self.abandoned = False
        #: Why nothing more can be asked: a call hangs, or the process has ended.
        self.error: MessagingError | None = None
        self._hangs = ""

    def call(
        self,
        what: str,
        seconds: float,
        verb: Verb,
        number: int,
        arguments: bytes = b"",
        parse: Callable[[Payload], T] = lambda payload: None,  # type: ignore[assignment,return-value]
        late: Callable[[T], None] | None = None,
    ) -> Deferred[T]:
        """Make a call, after those asked before.

        :param what: for errors and the log, where "did not return" follows.
        :param seconds: the timeout, from now on.
        :param number: of the factory or connection that is asked.
        :param parse: reads the result of the verb.
        :param late: disposes of a result that arrives after the call was abandoned.
        :returns: fails with JavaFailure, or with ProviderUnavailable if the call timed out or the
            process has ended.
        """
        call = _Call(what, parse, late)
        if self.error is not None or self._ending:
            call.result.errback(self.error or ProviderUnavailable("the connection is closed"))
            return call.result
        self._tags += 1
        try:
            asked = wire.call(self._number, self._tags, verb, number, arguments)
        except WireError as error:
            call.result.errback(ProviderUnavailable(f"{what}: the request is too long: {error}"))
            return call.result
        self._used = True
        self._pending[self._tags] = call
        call.timer = TimeLimit(self._process.reactor, seconds, self._abandon, seconds)
        self._process.write(asked)
        return call.result

    def end(self) -> None:
        """Ask no more.

        Its thread in Java ends when everything asked is done. Idempotent.
        """
        if not self._ending:
            self._ending = True
            if self._used:
                self._process.write(wire.frame(Type.END, self._number))
            else:
                self._process.drop(self._number)

    def _abandon(self, seconds: float) -> None:
        self._given_up = self._pending
        self._pending = {}
        self._hangs = next(iter(self._given_up.values())).what
        self._ending = self.abandoned = True
        self._process.write(wire.frame(Type.ABANDON, self._number))
        self._fail(list(self._given_up.values()), self._hung.abandoned(self._hangs, seconds))
        self._process.perhaps_idle()

    def _fail(self, calls: list[_Call[Any]], error: MessagingError) -> None:
        self.error = error
        for one in calls:
            if one.timer is not None and one.timer.active():
                one.timer.cancel()
        for one in calls:
            one.result.errback(error)

    # --- for the process

    def frame(self, frame: Frame) -> None:
        payload = Payload(frame.payload)
        tag = payload.number()
        call = self._pending.get(tag)
        if call is None:
            late = self._given_up.pop(tag, None)
            if late is not None and late.late is not None and frame.type == Type.RESULT:
                late.late(late.parse(payload))
            return
        # An answer that cannot be read leaves the call pending. The process is killed for it, which
        # fails the call.
        if frame.type == Type.RESULT:
            result = call.parse(payload)
        elif frame.type == Type.FAILURE:
            result = JavaFailure(payload.kind(), payload.text())
        else:
            raise WireError(f"frame {frame.type} on the channel of a call")
        del self._pending[tag]
        if call.timer is not None:
            call.timer.cancel()
        if frame.type == Type.RESULT:
            call.result.callback(result)
        else:
            call.result.errback(result)

    def defective(self, error: Exception) -> None:
        if self.error is None:
            self._ending = True
            self._process.write(wire.frame(Type.ABANDON, self._number))
            waiting, self._pending = list(self._pending.values()), {}
            self._fail(waiting, ProviderUnavailable(f"a call failed over its answer: {error}"))

    def over(self, error: MessagingError | None) -> None:
        if self._hangs:
            self._hung.returned(self._hangs)
        if self.error is None:
            waiting, self._pending = list(self._pending.values()), {}
            self._fail(waiting, error or ProviderUnavailable("the call was abandoned"))


class SessionChannel:
    """A session's channel.

    Questions of one pass of the reactor go to Java together.

    :param opening: the frame that opens the session, sent before the first question.
    :param answered: called with a turn's answers.
    :param failed: called when a turn has failed or was abandoned, when ``answered`` has raised, or
        when the process has ended.
    :param seconds: the timeout of each question.
    """

    def __init__(
        self,
        process: Channels,
        number: int,
        name: str,
        hung: Hung,
        opening: bytes,
        answered: Callable[[bytes], None],
        failed: Callable[[BaseException], None],
        seconds: float,
    ) -> None:
        self._process = process
        self._number = number
        self._name = name
        self._hung = hung
        self._opening = opening
        self._answered = answered
        self._failed = failed
        self._seconds = seconds
        self._gathered: list[bytes] = []
        self._outgoing: deque[bytes] = deque()
        self._window = wire.WINDOW
        self._pieces: list[bytes] = []
        self._taken = 0
        #: *ask* frames that are not answered, including those that wait for their window.
        self._pending = 0
        self._timer: TimeLimit | None = None
        self._opened = False
        #: Whether nothing more can be asked of it.
        self.ending = False
        self._end_sent = False
        self._over = False
        self.abandoned = False
        #: Fires when its thread in Java has ended or was abandoned.
        self.ended: Deferred[None] = Deferred()

    def ask(self, question: bytes) -> None:
        """Ask something; nothing once it is ending.

        Answers come in the order asked.
        """
        if self._over or self.ending:
            return
        if not self._gathered:
            self._process.flush_soon(self)
        self._gathered.append(question)
        if self._timer is None:
            self._watch()

    def end(self) -> None:
        """Ask no more.

        Its thread in Java ends when everything asked is answered. Idempotent.
        """
        if self.ending or self._over:
            return
        self.ending = True
        if not self._gathered:
            self._process.flush_soon(self)
        if self._timer is None and (self._opened or self._gathered):
            self._watch()

    def flush(self) -> None:
        """Send the questions, as far as the window allows."""
        if self._over:
            return
        if not self._opened:
            if not self._gathered:
                self._process.drop(self._number)
                self._stop()
                return
            self._opened = True
            self._process.write(self._opening)
        for together in _together(self._gathered):
            self._pending += 1
            self._outgoing += wire.pieces(self._number, together)
        self._gathered.clear()
        self._send()

    def _send(self) -> None:
        while self._outgoing and self._window > 0:
            piece = self._outgoing.popleft()
            self._window -= wire.size(piece)
            self._process.write(piece)
        # Questions that still gather belong before the end; flush sends both.
        if self.ending and not self._end_sent and not self._outgoing and not self._gathered:
            self._end_sent = True
            self._process.write(wire.frame(Type.END, self._number))

    def _watch(self) -> None:
        self._timer = TimeLimit(self._process.reactor, self._seconds, self._abandon)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abandon(self) -> None:
        self._timer = None
        self.abandoned = True
        self._process.write(wire.frame(Type.ABANDON, self._number))
        self._stop(self._hung.abandoned(f"a call of {self._name}", self._seconds))
        self._process.perhaps_idle()

    def _stop(self, error: BaseException | None = None) -> None:
        self._over = True
        self._unwatch()
        self._gathered.clear()
        self._outgoing.clear()
        self._pieces.clear()
        if error is not None:
            self._failed(error)
        self.ended.callback(None)

    # --- for the process

    def frame(self, frame: Frame) -> None:
        kind = frame.type
        if kind == Type.TAKEN:
            self._window += Payload(frame.payload).number()
            if not self._over and self._outgoing:
                self._send()
        elif kind == Type.PIECE or kind == Type.ANSWER:
            self._take(len(frame.payload) - (4 if kind == Type.ANSWER else 0))
            if self._over:
                return
            if kind == Type.PIECE:
                self._pieces.append(frame.payload)
                return
            count = Payload(frame.payload).number()
            answers = frame.payload[4:]
            if self._pieces:
                answers = b"".join((*self._pieces, answers))
                self._pieces.clear()
            self._pending -= count
            if count:
                self._unwatch()
                if self._pending or self._gathered or self.ending:
                    self._watch()
            if answers:
                self._answered(answers)
        elif kind == Type.BROKE:
            payload = Payload(frame.payload)
            if not self._over:
                self._stop(JavaFailure(payload.kind(), payload.text()))
        else:
            raise WireError(f"frame {kind} on the channel of a session")

    def _take(self, octets: int) -> None:
        """Give Java its window back, but not for each small answer."""
        self._taken += octets
        if self._taken >= wire.WINDOW // 4:
            self._process.write(wire.window(self._number, self._taken))
            self._taken = 0

    def defective(self, error: Exception) -> None:
        # Java still works: the listener can still close the session.
        if not self._over:
            self._failed(error)

    def over(self, error: MessagingError | None) -> None:
        if self.abandoned:
            self._hung.returned(f"a call of {self._name}")
        if not self._over:
            self._stop(error)


def _together(questions: list[bytes]) -> Iterator[bytes]:
    """Join questions into groups of about a window's size, one for each turn."""
    group: list[bytes] = []
    octets = 0
    for question in questions:
        if group and octets + len(question) > wire.WINDOW:
            yield b"".join(group)
            group, octets = [], 0
        group.append(question)
        octets += len(question)
    if group:
        yield b"".join(group)
