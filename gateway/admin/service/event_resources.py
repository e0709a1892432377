"""What happens to the instance, as a resource of the admin service.

``GET /v1/events`` answers with server-sent events that go on until the client leaves, or with JSON
where the request accepts ``application/json`` only: ``events``, and ``last``, the id of the last one.

===========  =======================================================================================
``kind``     only kinds that are, or begin with, one of these words, separated by commas
``since``    events of the last ``90s``, ``10m``, ``2h``, ``1d``, or since a time in ISO 8601; without it
             a stream begins now, and JSON has all that are kept
===========  =======================================================================================

The id of an event is ``RUN-NUMBER``; a client that gives it as ``Last-Event-ID`` goes on behind it. Where
events are not kept any more, or are of an earlier run of the process, the stream has one named ``gap``,
whose data has ``missed``: their number, or null.

A client that does not read is not written to, and nothing is gathered for it: when it reads again it
goes on where it was, with a gap where it must. The role is looked at every :data:`SIGN_S` seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from gateway.admin.service.requests import JSON, AdminRequest, Refused, Routes, Written
from gateway.instance.events import KINDS, Events, Happening
from gateway.reactor.clocks import wall_ms

#: Those who follow at once; beside the console's pages and commands.
MOST_FOLLOWERS: Final = 16
#: Seconds after which a stream says something, so that a client that has gone is noticed.
SIGN_S: Final = 15.0
#: Events that are written at once.
_WRITTEN: Final = 100
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class EventResources:
    """The events of the instance as a resource.

    :param reactor: the clock; its thread writes.
    :param sign_s: seconds between two looks at those who follow.
    """

    def __init__(self, reactor: Any, events: Events, sign_s: float = SIGN_S) -> None:
        self._sign_s: Final = sign_s
        self._reactor: Final = reactor
        self._events: Final = events
        self._run: Final = events.run
        self._followers: Final[set[_Follower]] = set()

    def __call__(self, routes: Routes) -> None:
        """Add it."""
        routes.add("GET", "/v1/events", self._asked)

    def _asked(self, request: AdminRequest) -> Written:
        kinds = _kinds(request.text("kind"))
        since = request.text("since")
        since_ms = _since(since, wall_ms(self._reactor)) if since else None
        return _Answer(kinds, since_ms, self._list, self._follow)

    def _list(self, kinds: tuple[str, ...], since_ms: int | None) -> bytes:
        begin = 0 if since_ms is None else self._events.before(since_ms)
        missed, found = self._events.after(begin)
        shown = [
            {"id": f"{self._run}-{each.number}", **each.values}
            for each in found
            if each.kind.startswith(kinds)
        ]
        last = f"{self._run}-{self._events.last}"
        return json.dumps({"events": shown, "last": last, "missed": missed}).encode() + b"\n"

    def _follow(
        self, request: Any, kinds: tuple[str, ...], since_ms: int | None
    ) -> Deferred[bytes]:
        """:raises Refused: too many do."""
        if len(self._followers) >= MOST_FOLLOWERS:
            raise Refused(
                "too many clients follow the events", "busy", HTTPStatus.SERVICE_UNAVAILABLE
            )
        given = request.getHeader("Last-Event-ID") or ""
        run, _, number = given.rpartition("-")
        unknown = False
        if run == self._run and number.isdecimal():
            begin = min(int(number), self._events.last)
        elif given:
            # All of this run: those of an earlier one are not kept.
            begin, unknown = 0, True
        else:
            begin = self._events.last if since_ms is None else self._events.before(since_ms)
        follower = _Follower(self._reactor, self._events, request, kinds, begin, self._sign_s)
        self._followers.add(follower)
        follower.done.addBoth(self._left, follower)
        follower.start(unknown)
        return follower.done

    def _left(self, result: Any, follower: _Follower) -> Any:
        self._followers.discard(follower)
        return result


class _Answer(Written):
    """The answer, whose form the request's headers choose."""

    def __init__(
        self,
        kinds: tuple[str, ...],
        since_ms: int | None,
        listed: Callable[[tuple[str, ...], int | None], bytes],
        follow: Callable[[Any, tuple[str, ...], int | None], Deferred[bytes]],
    ) -> None:
        self._kinds = kinds
        self._since_ms = since_ms
        self._listed = listed
        self._follow = follow

    def write(self, request: Any) -> Deferred[bytes] | bytes:
        if (request.getHeader("Accept") or "").strip() != JSON:
            return self._follow(request, self._kinds, self._since_ms)
        request.setHeader("Content-Type", JSON)
        return self._listed(self._kinds, self._since_ms)


@implementer(IPushProducer)
class _Follower:
    """One stream.

    :param number: of the last event that is not sent.
    """

    def __init__(
        self,
        reactor: Any,
        events: Events,
        request: Any,
        kinds: tuple[str, ...],
        number: int,
        sign_s: float,
    ) -> None:
        self._sign_s = sign_s
        self._reactor = reactor
        self._events = events
        self._run: Final = events.run
        self._request = request
        self._kinds = kinds
        self._number = number
        self._paused = False
        self._over = False
        self._asked = False
        self._sign: IDelayedCall | None = None
        self._forget: Callable[[], None] = lambda: None
        #: Fires when it is over.
        self.done: Final[Deferred[bytes]] = Deferred()

    def start(self, unknown: bool) -> None:
        """Begin to write.

        :param unknown: the client knows events of an earlier run.
        """
        request = self._request
        request.setHeader("Content-Type", "text/event-stream; charset=utf-8")
        request.setHeader("Cache-Control", "no-store")
        # Proxies must not wait for more.
        request.setHeader("X-Accel-Buffering", "no")
        request.notifyFinish().addBoth(self._gone)
        request.registerProducer(self, True)
        # The id, so that a client that has heard of no event yet goes on behind those before.
        request.write(f"retry: 3000\nid: {self._run}-{self._number}\n\n".encode())
        if unknown:
            request.write(b'event: gap\ndata: {"missed": null}\n\n')
        self._forget = self._events.follow(self._wake)
        self._look_later()
        self._write()

    def end(self) -> None:
        """End the answer. Idempotent."""
        if not self._over:
            self._stop()
            self._request.unregisterProducer()
            self.done.callback(b"")

    def _gone(self, _: object) -> None:
        """The answer is written, or the client has gone."""
        if not self.done.called:
            self._stop()
            self.done.callback(b"")

    def _stop(self) -> None:
        self._over = True
        self._forget()
        if self._sign is not None and self._sign.active():
            self._sign.cancel()

    # --- what the transport calls

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._write()

    def stopProducing(self) -> None:
        if not self._over:
            self._stop()

    # --- writing

    def _wake(self) -> None:
        """There are new ones; maybe on another thread."""
        if not self._asked:
            self._asked = True
            self._reactor.callFromThread(self._write)

    def _write(self) -> None:
        self._asked = False
        while not (self._paused or self._over):
            missed, found = self._events.after(self._number)
            if not found:
                if self._events.closed:
                    self.end()
                return
            parts = [f'event: gap\ndata: {{"missed": {missed}}}\n\n'] if missed else []
            now = found[:_WRITTEN]
            self._number = now[-1].number
            parts += [self._form(each) for each in now if each.kind.startswith(self._kinds)]
            if parts:
                self._request.write("".join(parts).encode())

    def _form(self, event: Happening) -> str:
        return f"id: {self._run}-{event.number}\ndata: {json.dumps(event.values)}\n\n"

    def _look_later(self) -> None:
        self._sign = self._reactor.callLater(self._sign_s, self._look)

    def _look(self) -> None:
        if self._request.now() is None:
            self.end()
            return
        if not self._paused:
            # With an id, so that a client resumes behind events that it does not want.
            self._request.write(f"id: {self._run}-{self._number}\n: still here\n\n".encode())
        self._look_later()


def _kinds(text: str) -> tuple[str, ...]:
    """:raises Refused: there is no such kind."""
    kinds = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in kinds:
        if not any(kind.startswith(each) for kind in KINDS):
            known = ", ".join(_first_words(tuple(KINDS)))
            raise Refused(f"there is no kind {each}; expected some of {known}", "bad_request")
    return kinds or ("",)


def _first_words(kinds: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(kind.partition(".")[0] for kind in kinds))


def _since(text: str, now_ms: int) -> int:
    """:raises Refused: it is no time."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(ago[1]) * _UNITS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"since is {text!r}; expected such as 90s, 10m, 2h, 1d or 2026-01-31T12:00:00Z",
            "bad_request",
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
