"""Traces of what one client or destination does, as resources.

===========================================================  ======================================
``POST /v1/traces`` ``{"connection": N, "seconds": S}``      follow a client, or with
``POST /v1/traces`` ``{"destination": D, "seconds": S}``     ``queue:NAME``, ``topic:NAME``
``GET /v1/traces``                                           those that are, and that were, the newest first
``GET /v1/traces/lines?id=ID``                               what one has seen, the latest first
``POST /v1/traces/stop`` ``{"id"}``                          end one
===========================================================  ======================================

A trace has the steps that the journal has with ``imq.journal.level=all``: messages that are sent,
stored, routed, delivered, acknowledged and so on. It has ids, sizes, users and destinations, and
never a header or a body. While one is under way the broker tells every step, which costs all clients
a little; the journal's files stay as their level says.

At most :data:`MOST_RUNNING` traces are under way, for :data:`MOST_SECONDS` seconds each. The latest
:data:`MOST_LINES` lines of a trace are kept in memory, and the latest :data:`MOST_KEPT` traces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, cast

from twisted.internet.interfaces import IDelayedCall

from gateway.admin.service.dead import destination_of
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.journal.journal import Journal
from gateway.reactor.clocks import wall_ms

MOST_RUNNING: Final = 4
MOST_SECONDS: Final = 300
MOST_LINES: Final = 500
MOST_KEPT: Final = 10
#: Ids of a line that are shown, and characters of a comment.
_IDS: Final = 3
_COMMENT: Final = 300
_DEFAULT_SECONDS: Final = 60
#: Fields of a line that are shown as they are; others may have headers and bodies.
_TOLD: Final = ("destination", "connection", "user", "subscription", "link", "reason")


@dataclass(eq=False)
class _Trace:
    """One trace.

    :param subject: of whom or what, in words.
    :param name: the field of a line to compare, with
    :param value: what it must be.
    :param seen: lines that there were, also those that are no longer kept.
    """

    id: int
    subject: str
    user: str
    name: str
    value: object
    began_ms: int
    until_ms: int
    seen: int = 0
    lines: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    timer: IDelayedCall | None = None
    end: Callable[[], None] = lambda: None

    @property
    def running(self) -> bool:
        return self.timer is not None

    def follow(self, fields: Mapping[str, object]) -> None:
        """Take a line, if it is one of these."""
        if fields.get(self.name) == self.value:
            self.seen += 1
            self.lines.append(_line(fields))

    def stop(self) -> None:
        """End it. Idempotent."""
        timer, self.timer = self.timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self.end()

    def shown(self) -> dict[str, object]:
        return {
            "id": self.id,
            "subject": self.subject,
            "user": self.user,
            "began_ms": self.began_ms,
            "until_ms": self.until_ms,
            "running": self.running,
            "seen": self.seen,
            "kept": len(self.lines),
        }


class TraceResources:
    """The traces as resources.

    :param reactor: the clock.
    :param connected: whether there is a connection of this number.
    """

    def __init__(self, reactor: Any, journal: Journal, connected: Callable[[int], bool]) -> None:
        self._reactor: Final = reactor
        self._journal: Final = journal
        self._connected: Final = connected
        #: The oldest first.
        self._traces: dict[int, _Trace] = {}
        self._last = 0

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/traces", self._list)
        routes.add("POST", "/v1/traces", self._start)
        routes.add("GET", "/v1/traces/lines", self._lines)
        routes.add("POST", "/v1/traces/stop", self._stop)

    def _list(self, request: AdminRequest) -> dict[str, object]:
        return {"traces": [each.shown() for each in reversed(self._traces.values())]}

    def _start(self, request: AdminRequest) -> dict[str, object]:
        subject, name, value = self._wanted(request)
        seconds = request.number("seconds", _DEFAULT_SECONDS, 1, MOST_SECONDS)
        if sum(each.running for each in self._traces.values()) >= MOST_RUNNING:
            raise Refused(
                f"{MOST_RUNNING} traces are under way: stop one, or wait",
                "busy",
                HTTPStatus.CONFLICT,
            )
        self._last += 1
        now_ms = wall_ms(self._reactor)
        until_ms = now_ms + seconds * 1000
        trace = _Trace(self._last, subject, request.user, name, value, now_ms, until_ms)
        trace.timer = self._reactor.callLater(seconds, trace.stop)
        trace.end = self._journal.follow(trace.follow)
        self._traces[trace.id] = trace
        for old in [each for each in self._traces.values() if not each.running]:
            if len(self._traces) <= MOST_KEPT:
                break
            del self._traces[old.id]
        return trace.shown()

    def _wanted(self, request: AdminRequest) -> tuple[str, str, object]:
        given = request.text("destination")
        if given:
            destination = destination_of(given)
            if destination is None:
                raise Refused(
                    f"destination is {given!r}; expected queue:NAME or topic:NAME", "bad_request"
                )
            return str(destination), "destination", str(destination)
        number = request.number("connection", 0, 0, 1 << 62)
        if not number:
            raise Refused("give a connection or a destination", "bad_request")
        if not self._connected(number):
            raise Refused(
                f"there is no connection {number}: it may have ended",
                "no_connection",
                HTTPStatus.NOT_FOUND,
            )
        return f"connection {number}", "connection", number

    def _lines(self, request: AdminRequest) -> dict[str, object]:
        trace = self._find(request)
        return {**trace.shown(), "lines": list(reversed(trace.lines))}

    def _stop(self, request: AdminRequest) -> dict[str, object]:
        trace = self._find(request)
        trace.stop()
        return trace.shown()

    def _find(self, request: AdminRequest) -> _Trace:
        number = request.number("id", 0, 0, 1 << 62)
        trace = self._traces.get(number)
        if trace is None:
            raise Refused(
                f"there is no trace {number}: only the latest {MOST_KEPT} are kept",
                "no_trace",
                HTTPStatus.NOT_FOUND,
            )
        return trace


def _line(fields: Mapping[str, object]) -> dict[str, object]:
    ids, count = _ids(fields)
    return {
        "time_ms": cast(int, fields.get("time", 0)) // 1000,
        "steps": list(cast(Sequence[str], fields.get("steps", ()))),
        "ids": ids,
        "count": count,
        "octets": _octets(fields, count),
        "comment": str(fields.get("comment") or "")[:_COMMENT],
        **{name: fields[name] for name in _TOLD if fields.get(name)},
    }


def _ids(fields: Mapping[str, object]) -> tuple[list[str], int]:
    """Return the first ids of a line, and how many messages it has."""
    numbers, ids = fields.get("numbers"), fields.get("ids")
    if isinstance(numbers, Sequence):
        return [f"{fields.get('prefix', '')}{each}" for each in islice(numbers, _IDS)], len(numbers)
    if isinstance(ids, Sequence):
        return [str(each) for each in islice(ids, _IDS)], len(ids)
    return [], 0


def _octets(fields: Mapping[str, object], count: int) -> int:
    """Return the bytes of all bodies; -1 where the line does not say."""
    size, sizes = fields.get("size"), fields.get("sizes")
    if isinstance(size, int):
        return size * count
    return sum(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else -1
