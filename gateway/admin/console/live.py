"""Open pages that follow what happens, by server-sent events.

Owns the streams: how many there may be, when each looks again, and its end, which is at once when its
session ends, and within a second when its user has another role or none. A look is sent when it differs from the last one. A client that does not read is not
looked for, and an open page does not keep its session alive.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.defer import ensureDeferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.admin.console.sessions import Session, Sessions
from gateway.admin.console.view import View
from gateway.admin.service.requests import AdminRequest, Refused, refusal

#: Pages that follow at once; the commands' connections are to find room beside them.
MOST_STREAMS: Final = 32
#: Of these, those of one session, so that one user leaves room for others.
MOST_OF_SESSION: Final = 12
#: Seconds after which a page that may not follow may ask again.
AGAIN_S: Final = 30
#: Seconds after which a stream says something, so that a client that has gone is noticed.
SIGN_S: Final = 15.0
#: Seconds between two looks at what the user of a stream may do; a page may look much more rarely.
ROLE_S: Final = 1.0
#: How many times as long as a look took, a stream waits at least for the next.
_PAUSES: Final = 20

_log: Final = Logger(namespace="gateway.admin")

#: Returns the part of a page that follows, as it is now.
Fragment = Callable[[Session, View, AdminRequest], Awaitable[str]]


class Streams:
    """The open pages that follow.

    :param reactor: the clock.
    """

    def __init__(self, reactor: Any, sessions: Sessions, fragment: Fragment) -> None:
        self._reactor: Final = reactor
        self._sessions: Final = sessions
        self._fragment: Final = fragment
        self._open: set[_Stream] = set()
        sessions.when_ended(self._ended)

    def open(self, request: Any, session: Session, view: View, asked: AdminRequest) -> None:
        """Have a page follow until its client goes.

        :raises Refused: too many do.
        """
        mine = sum([each.session is session for each in self._open])
        if len(self._open) >= MOST_STREAMS or mine >= MOST_OF_SESSION:
            raise Refused(
                "too many open pages follow what happens",
                "busy",
                HTTPStatus.SERVICE_UNAVAILABLE,
                {"Retry-After": str(AGAIN_S)},
            )
        stream = _Stream(
            self._reactor, self._sessions, self._fragment, request, session, view, asked
        )
        self._open.add(stream)
        request.notifyFinish().addBoth(lambda _: self._closed(stream))
        stream.start()

    def _closed(self, stream: _Stream) -> None:
        self._open.discard(stream)
        stream.stop()

    def close(self) -> None:
        """End them all. Idempotent."""
        for stream in list(self._open):
            stream.end()

    def _ended(self, session: Session) -> None:
        for stream in list(self._open):
            if stream.session is session:
                stream.send_away()


@implementer(IPushProducer)
class _Stream:
    """One page that follows."""

    def __init__(
        self,
        reactor: Any,
        sessions: Sessions,
        fragment: Fragment,
        request: Any,
        session: Session,
        view: View,
        asked: AdminRequest,
    ) -> None:
        self._reactor = reactor
        self._sessions = sessions
        self._fragment = fragment
        self._request = request
        self.session: Final = session
        self._view = view
        self._asked = asked
        self._next: IDelayedCall | None = None
        self._watching: IDelayedCall | None = None
        self._over = False
        self._paused = False
        self._sent = ""
        self._took_s = 0.0
        self._said_s = reactor.seconds()

    def start(self) -> None:
        """Begin to write."""
        request = self._request
        request.setHeader("Content-Type", "text/event-stream; charset=utf-8")
        # Proxies must not wait for more.
        request.setHeader("X-Accel-Buffering", "no")
        request.registerProducer(self, True)
        self._write("retry: 3000\n\n")
        self._watching = self._reactor.callLater(ROLE_S, self._watch)
        self._later()

    def stop(self) -> None:
        """Look no more: the client has gone."""
        self._over = True
        for call in (self._next, self._watching):
            if call is not None and call.active():
                call.cancel()

    def end(self) -> None:
        """End the answer."""
        if not self._over:
            self.stop()
            self._request.unregisterProducer()
            self._request.finish()

    def send_away(self) -> None:
        """Have the page loaded again, and end the answer.

        That leads to the log-in, or shows what may be done now.
        """
        if not self._over:
            self._write("event: ended\ndata: {}\n\n")
            self.end()

    # --- what the transport calls

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False

    def stopProducing(self) -> None:
        self.stop()

    # --- looking

    def _watch(self) -> None:
        """End when the user may do something else than when the page was opened."""
        if self._sessions.role(self.session) is not self._asked.role:
            self.send_away()
        else:
            self._watching = self._reactor.callLater(ROLE_S, self._watch)

    def _later(self) -> None:
        pause_s = max(self._view.every_s, _PAUSES * self._took_s)
        self._next = self._reactor.callLater(pause_s, self._look)

    def _look(self) -> None:
        ensureDeferred(self._looked()).addErrback(self._failed)

    async def _looked(self) -> None:
        if not self._paused:
            began_s = self._reactor.seconds()
            text = await self._fragment(self.session, self._view, self._asked)
            self._took_s = self._reactor.seconds() - began_s
            if self._over:
                return
            if self._sessions.role(self.session) is not self._asked.role:
                self.send_away()
                return
            if text != self._sent:
                self._sent = text
                self._write(f"data: {json.dumps({'html': text})}\n\n")
            elif self._reactor.seconds() >= self._said_s + SIGN_S:
                self._write(": still here\n\n")
        self._later()

    def _failed(self, failure: Failure) -> None:
        if self._over:
            return
        refused = refusal(failure.value)
        if refused is None:
            _log.failure("a page that follows failed", failure)
            # The page says what is wrong.
            self.send_away()
            return
        self._write(f"event: refused\ndata: {json.dumps({'text': refused.text})}\n\n")
        self._later()

    def _write(self, text: str) -> None:
        self._said_s = self._reactor.seconds()
        self._request.write(text.encode())
