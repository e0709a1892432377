"""What happens to an instance, for those who follow it.

An event of the log whose field ``event`` names a kind of :data:`KINDS` is kept here, whatever the
level of the log. Owns how many are kept, and their numbers. They are of this process only: what was
before is in the log.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twisted.logger import LogEvent

from gateway.instance.levels import Level
from gateway.instance.log_lines import EVENT, values_of
from gateway.instance.redaction import Redaction

#: The kinds, and what each means.
KINDS: Final[Mapping[str, str]] = {
    "connection.opened": "a client is CONNECTED",
    "connection.closed": "a connection has ended, and why",
    "connection.refused": "a client was not let in, and why",
    "destination.created": "by an administrator or by use",
    "destination.changed": "an administrator has changed properties",
    "destination.destroyed": "by an administrator, or because it was not used",
    "destination.paused": "an administrator has paused it",
    "destination.resumed": "an administrator has resumed it",
    "destination.full": "it is at its limit",
    "destination.room": "it has room again",
    "destination.damaged": "a message in the store is damaged",
    "message.dead": "messages are dead; more of a kind are counted",
    "bridge.changed": "a bridge has another state",
    "bridge.failed": "a bridge or link could not be started or stopped",
    "link.changed": "a link has another state",
    "link.failing": "a link cannot go on, and tries again",
    "link.refused": "the target refuses messages, which are dead",
    "link.stalled": "a provider lets a link wait",
    "store.full": "the disk or database has no room",
    "store.room": "it has room again",
    "store.unreachable": "the database cannot be reached",
    "store.reachable": "it is reached again",
    "store.failed": "the store has failed, and the process ends",
    "configuration.reloaded": "users, rules, certificates, levels or listeners were read again",
    "configuration.refused": "they could not be read, and stay as they were",
    "provider.away": "a broker behind the STOMP bridge cannot be reached",
    "provider.back": "it is reached again",
    "owner.changed": "another process owns the broker, or this one does",
    "process.started": "clients are served",
    "process.stopping": "the process ends in order",
}
#: How many are kept.
KEPT: Final = 4096
#: Characters of the text of one.
_LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class Happening:
    """One that is kept.

    :param number: it has; the first of the process is 1.
    :param time_ms: when, in epoch milliseconds.
    :param kind: one of :data:`KINDS`.
    :param values: a JSON object with ``time``, ``kind``, ``level``, ``logger``, ``message`` and, where
        there are any, ``fields``.
    """

    number: int
    time_ms: int
    kind: str
    values: Mapping[str, object]


class Events:
    """The last :data:`KEPT` events of the process.

    :param redaction: takes secrets out of them.
    """

    def __init__(self, redaction: Redaction, kept: int = KEPT) -> None:
        self._redaction: Final = redaction
        self._kept: Final[deque[Happening]] = deque(maxlen=kept)
        # Threads log, too.
        self._lock: Final = threading.Lock()
        self._followers: Final[dict[object, Callable[[], None]]] = {}
        #: Tells the numbers of this process from those of others.
        self.run: Final = secrets.token_hex(4)
        #: The number of the last one; 0 before the first.
        self.last = 0
        #: Those who follow are to leave.
        self.closed = False

    def observe(self, event: LogEvent, level: Level) -> None:
        """Keep an event of the log if it names a kind. On any thread."""
        kind = event.get(EVENT)
        if not isinstance(kind, str) or kind not in KINDS:
            return
        values = values_of(event, level, self._redaction)
        values["message"] = str(values["message"])[:_LONGEST]
        fields = values.pop("fields", None)
        values.pop("exception", None)
        values = {"time": values.pop("time"), "kind": kind, **values}
        if fields and len(str(fields)) <= _LONGEST:
            values["fields"] = fields
        time_ms = round(event.get("log_time", 0.0) * 1000)
        with self._lock:
            self.last += 1
            self._kept.append(Happening(self.last, time_ms, kind, values))
            followers = [*self._followers.values()]
        for tell in followers:
            tell()

    def after(self, number: int) -> tuple[int, list[Happening]]:
        """Return those behind a number, the oldest first.

        :returns: how many of them are not kept any more, and the others.
        """
        found: list[Happening] = []
        with self._lock:
            for each in reversed(self._kept):
                if each.number <= number:
                    break
                found.append(each)
            missed = self.last - number - len(found)
        found.reverse()
        return max(0, missed), found

    def before(self, time_ms: int) -> int:
        """Return the number of the last one that is kept from before a time."""
        with self._lock:
            for each in reversed(self._kept):
                if each.time_ms < time_ms:
                    return each.number
            return self.last - len(self._kept)

    def close(self) -> None:
        """Have those who follow leave when they have read the last one."""
        with self._lock:
            self.closed = True
            followers = [*self._followers.values()]
        for tell in followers:
            tell()

    def follow(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after each new one, on the thread that has logged it.

        :returns: what ends that.
        """
        key = object()
        with self._lock:
            self._followers[key] = tell

        def end() -> None:
            with self._lock:
                self._followers.pop(key, None)

        return end
