"""Polls of the reactor: what one finds is served as one turn.

Twisted gives each socket that is ready a logging context of its own, and a turn that is to end when
all have been served is a timed call. With one small message in each poll, as in request and reply
and with many slow clients, the two are a fifth of what a message costs.

Works with Twisted's epoll reactor as it is; every other reactor stays as it was.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, ClassVar, Final

from twisted.internet.tcp import Server
from twisted.logger import Logger
from twisted.python import log

#: Where a reactor has its :class:`Polls`.
_POLLS: Final = "polls"
#: What is used of Twisted's own besides its interfaces. A version that has it under other names is
#: left as it is, and only slower.
_USED: Final = (
    "_POLL_IN",
    "_disconnectSelectable",
    "_doReadOrWrite",
    "_poller",
    "_selectables",
    "threadCallQueue",
)
_logged: Final[Callable[..., Any]] = log.callWithLogger


class Polls:
    """The polls of one epoll reactor.

    :param reactor: a Twisted ``EPollReactor``.
    """

    # Named, because Logger finds no frame to take its name from where this is compiled.
    _log: ClassVar = Logger(namespace="gateway.reactor.polls")

    def __init__(self, reactor: Any) -> None:
        self._reactor: Final = reactor
        self._readable: Final[int] = reactor._POLL_IN
        self._afterwards: list[Callable[[], None]] = []
        #: What a poll has found is being served.
        self.under_way = False
        #: Seconds that it took to serve clients, with what that caused at once.
        self.served_s = 0.0

    def afterwards(self, work: Callable[[], None]) -> None:
        """Do ``work`` once all that this poll has found is served.

        It must not raise. For use while a poll is :attr:`under_way`. Where other threads have something for the
        reactor, that is taken first.
        """
        self._afterwards.append(work)

    def poll(self, timeout: float | None) -> None:
        """Serve the sockets that are ready: a reactor's ``doIteration``.

        Waits for them.

        :param timeout: seconds, None for no limit.
        """
        reactor = self._reactor
        selectables = reactor._selectables
        try:
            ready = reactor._poller.poll(-1 if timeout is None else timeout, len(selectables))
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
        if not ready:
            return
        seconds = reactor.seconds
        clients, began = 0.0, seconds()
        at = began
        self.under_way = True
        try:
            for descriptor, event in ready:
                # One that was served before may have closed it.
                selectable = selectables.get(descriptor)
                if selectable is None:
                    continue
                before = at
                if event == self._readable and type(selectable) is Server:
                    self._read(selectable)
                    at = seconds()
                    clients += at - before
                else:
                    _logged(selectable, reactor._doReadOrWrite, selectable, descriptor, event)
                    at = seconds()
        finally:
            self.under_way = False
            read = at - began
            if self._afterwards:
                self._finish()
            if clients:
                self.served_s += (seconds() - began) * clients / read

    def _read(self, selectable: Server) -> None:
        """Read from a client, as the reactor does it."""
        why: Any
        try:
            why = selectable.doRead()
        except BaseException as error:  # noqa: BLE001
            why = error
            self._log.failure("reading from {connection} failed", connection=selectable)
        if why:
            _logged(selectable, self._reactor._disconnectSelectable, selectable, why, True)

    def _finish(self) -> None:
        afterwards, self._afterwards = self._afterwards, []
        for work in afterwards:
            if self._reactor.threadCallQueue:
                self._reactor.callLater(0, work)
            else:
                work()


def serve_at_once(reactor: Any) -> None:
    """Have an epoll reactor serve sockets by :class:`Polls`.

    Any other is left alone. Idempotent. For before the reactor runs or while it does.
    """
    # Not isinstance: what derives from it may poll in its own way.
    if f"{type(reactor).__module__}.{type(reactor).__name__}" != (
        "twisted.internet.epollreactor.EPollReactor"
    ) or hasattr(reactor, _POLLS):
        return
    if not all(hasattr(reactor, name) for name in _USED):
        return
    polls = Polls(reactor)
    setattr(reactor, _POLLS, polls)
    reactor.doIteration = polls.poll


def polls_of(reactor: Any) -> Polls | None:
    """Return the :class:`Polls` of a reactor, or None."""
    polls: Polls | None = getattr(reactor, _POLLS, None)
    return polls
