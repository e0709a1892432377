"""A session's thread: the turns in which it asks Java and is answered.

JMS wants a session's calls on one thread. What is asked while a turn is under way gathers, and goes with the next one: the busier it is, the
more goes in one call. A turn that waits for messages ends as soon as there is something to ask, because it watches an octet that is set here.

Owns the thread and the time that an answer may take. Knows nothing of what is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bridge.providers.jms import jvm
from bridge.providers.jms.threads import Hung, Reactor, forget_thread, start_thread

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall


class TurnThread:
    """A session's thread: what it is asked goes into Java as octets, with whatever else has gathered, and answers come back as octets.

    :param open: on the thread, makes what takes the turns, with ``turn(asked, wake)``; may raise.
    :param answered: on the reactor thread, given the answers.
    :param failed: on the reactor thread, called at most once: a call has raised, or is abandoned; nothing more comes.
    :param seconds: how long what was asked may take.
    """

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        hung: Hung,
        open: Callable[[], Any],
        answered: Callable[[bytes], None],
        failed: Callable[[BaseException], None],
        seconds: float,
    ) -> None:
        self._reactor = reactor
        self._name = name
        self._hung = hung
        self._open = open
        self._answered = answered
        self._failed = failed
        self._seconds = seconds
        self._asked: list[bytes] = []
        self._lock = threading.Lock()
        self._wake = bytearray(1)
        self._more = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        # On the reactor thread: questions that are not answered, and the clock that watches them.
        self._pending = 0
        self._timer: IDelayedCall | None = None
        self._over = False
        self._abandoned = False
        #: Fires when the thread has ended or was abandoned.
        self.ended: Deferred[None] = Deferred()
        #: Whether anything may come without being asked for. If not, no turn is taken but for questions.
        self.listens = True

    def ask(self, question: bytes) -> None:
        """Ask something. It is answered in the order asked."""
        if self._over or self._ending:
            return
        if self._thread is None:
            self._thread = start_thread(self._name, self._run, self._rouse)
        with self._lock:
            self._asked.append(question)
            self._wake[0] = 1
            self._more.set()
        self._pending += 1
        if self._timer is None:
            self._watch()

    @property
    def ending(self) -> bool:
        """Whether nothing more can be asked of it."""
        return self._ending

    def end(self) -> None:
        """The thread ends when what was asked is answered."""
        if self._ending or self._over:
            return
        self._ending = True
        if self._thread is None:
            self._end()
            return
        self._rouse()
        if self._timer is None:
            self._watch()

    def _rouse(self) -> None:
        with self._lock:
            self._ending = True
            self._wake[0] = 1
            self._more.set()

    def _watch(self) -> None:
        self._timer = self._reactor.callLater(self._seconds, self._abandon)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abandon(self) -> None:
        self._timer = None
        self._abandoned = True
        self._over = True
        error = self._hung.abandoned(f"a call of {self._name}", self._seconds)
        forget_thread(self._thread)
        # It may have come back just now, and wait for a question.
        self._rouse()
        self._failed(error)
        self.ended.callback(None)

    def _run(self) -> None:
        try:
            self._turns()
        except BaseException as error:  # noqa: BLE001
            self._reactor.callFromThread(self._broke, error)
        else:
            self._reactor.callFromThread(self._end)

    def _turns(self) -> None:
        turn = self._open().turn
        wake = jvm.buffer(self._wake)
        nothing = jvm.buffer(b"\0")
        nothing.limit(0)
        idle = True
        while True:
            if idle:
                self._more.wait()
            with self._lock:
                self._more.clear()
                self._wake[0] = 0
                asked, self._asked = self._asked, []
                ending = self._ending
            if self._abandoned:
                return
            if asked:
                octets = jvm.octets_of(jvm.called(lambda: turn(jvm.buffer(b"".join(asked)), wake)))  # noqa: B023
            elif ending:
                return
            else:
                octets = jvm.octets_of(jvm.called(lambda: turn(nothing, wake)))
            if asked or octets:
                self._reactor.callFromThread(self._turned, len(asked), octets)
            # Nothing was asked and nothing came, so that nobody is ready to receive; or somebody has something to ask.
            idle = not ending and not (asked or octets) if self.listens else not ending

    def _turned(self, questions: int, octets: bytes) -> None:
        if self._over:
            return
        self._pending -= questions
        if questions:
            self._unwatch()
            if self._pending or self._ending:
                self._watch()
        if octets:
            self._answered(octets)

    def _broke(self, error: BaseException) -> None:
        if not self._over:
            self._failed(error)
        self._end()

    def _end(self) -> None:
        if self._abandoned:
            self._hung.returned(f"a call of {self._name}")
            return
        self._unwatch()
        if not self._over:
            self._over = True
            self.ended.callback(None)
