"""What operators are told of a link's trouble.

Owns the remedies, when a refusal is reported again, and when a wait is called a stall. When a link
tries again is said in :mod:`bridge.link.attempts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bridge.link.status import Doing
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdInUse,
    DestinationFull,
    DurableInUse,
    MessagingError,
    TooManyConsumers,
)

#: Seconds until the log is told again of what goes on.
TELL_S: Final = 60.0
#: Seconds without any progress after which a wait is a stall, and between two looks at it. Together
#: less than the 30 seconds after which a call of a JMS provider is given up, so that the stall is
#: told of first.
STALLED_S: Final = 15.0
LOOK_S: Final = 5.0

_MAKE_ROOM: Final = "make room there: consume from it, purge it, or raise its limit"
#: Words by which a broker says that it is full where it ends the connection or the transaction over
#: that.
_FULL: Final = re.compile(
    r"ResourceAllocationException|Usage Manager|\bis full\b|\bno space left\b", re.IGNORECASE
)
#: Words for a call that has no answer: some brokers let senders wait as long as they are full.
_NO_ANSWER: Final = re.compile(r"did not return within|has yet to hear of a commit")
_IF_FULL: Final = "if its destination or its broker is full, make room there (consume, purge, or raise the limit or the disk space); if the broker hangs, restart it"
_REMEDIES: Final[tuple[tuple[type[MessagingError], str], ...]] = (
    (DestinationFull, _MAKE_ROOM),
    (
        AuthenticationFailed,
        "correct the username and the password of the connection factory, or let the user in there",
    ),
    (AccessDenied, "give the user that right there, or connect as another user"),
    (
        ClientIdInUse,
        "give each connection a client identifier of its own, or end the other connection",
    ),
    (DurableInUse, "end the other consumer, or give this link a durable-sub of its own"),
    (TooManyConsumers, "raise that limit, or end another consumer"),
)
_STALLS: Final = {
    Doing.SENDING: "target, connection-factory '{target}', has not taken what is being sent to {destination} for {seconds} seconds: if that destination or "
    "its broker is full, make room there (consume, purge, or raise the limit or the disk space); if the broker hangs, restart it",
    Doing.ACKNOWLEDGING: "source, connection-factory '{source}', has not confirmed an acknowledgement for {seconds} seconds: if the disk of its "
    "broker is full, make room there; if the broker hangs, restart it",
    Doing.BURYING: "no dead message queue has taken a message for {seconds} seconds: if the queue or its broker is full, make room there; if it hangs, "
    "restart it",
}


def remedy(error: BaseException) -> str:
    """Return what to do about an error or its cause.

    The result is "" if no remedy is known, or if the error itself names it.
    """
    cause: BaseException | None = error
    while cause is not None:
        for kind, text in _REMEDIES:
            if isinstance(cause, kind):
                return text
        cause = getattr(cause, "cause", None)
    text = str(error)
    if _FULL.search(text):
        return _MAKE_ROOM
    return _IF_FULL if _NO_ANSWER.search(text) else ""


def with_remedy(error: BaseException) -> str:
    """The sentence of an error, and what to do about it."""
    text, to_do = str(error), remedy(error)
    return f"{text}; {to_do}" if to_do else text


class Refusals:
    """Log dead messages that the target refuses, once a minute by reason.

    :param record: is given each one as the link's last error.
    """

    def __init__(
        self,
        link: str,
        target: str,
        log: Logger,
        seconds: Callable[[], float],
        record: Callable[[str], None],
    ) -> None:
        self._link: Final = link
        self._target: Final = target
        self._log: Final = log
        self._seconds: Final = seconds
        self._record: Final = record
        self._logged = ("", 0.0)
        self._since = 0

    def __call__(self, cause: MessagingError, count: int) -> None:
        """So many messages were refused for this."""
        text = (
            f"target, connection-factory '{self._target}', refuses messages: {with_remedy(cause)}"
        )
        self._record(text)
        self._since += count
        logged, at = self._logged
        now = self._seconds()
        if text == logged and now - at < TELL_S:
            return
        self._logged = text, now
        self._log.warn(
            "link {link}: {text}; {count} since the last such line, which go to the dead message queues ('imqbridgemgr replay dead' sends them again)",
            link=self._link,
            text=text,
            count=self._since,
            event="link.refused",
        )
        self._since = 0


class Progress(NamedTuple):
    """How far a link is: while this stays the same it gets nothing done.

    :param doing: what it waits for.
    :param numbers: whatever grows when it gets on.
    """

    doing: Doing
    numbers: tuple[object, ...]


class Stall:
    """Logs when a link has waited long for a provider, and when it goes on.

    Long is :data:`STALLED_S` seconds without any progress.

    :param names: what the sentences name: ``source``, ``target`` and ``destination``.
    :param progress: how far the link is now.
    :param record: is given the stall as the link's last error.
    """

    def __init__(
        self,
        clock: Any,
        link: str,
        names: dict[str, str],
        log: Logger,
        progress: Callable[[], Progress],
        record: Callable[[str], None],
    ) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._names: Final = names
        self._log: Final = log
        self._progress: Final = progress
        self._record: Final = record
        self._call: IDelayedCall | None = None
        self._seen: Progress | None = None
        self._since = 0.0
        self._logged = False

    def watch(self) -> None:
        """Look from now on, every :data:`LOOK_S` seconds. Idempotent."""
        if self._call is None:
            self._seen, self._logged = None, False
            self._look()

    def stop(self) -> None:
        """Look no more. Idempotent."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def _look(self) -> None:
        self._call = self._clock.callLater(LOOK_S, self._look)
        progress, now = self._progress(), self._clock.seconds()
        if progress != self._seen:
            if self._logged:
                self._log.info(
                    "link {link}: goes on after {seconds:.0f} seconds",
                    link=self._link,
                    seconds=now - self._since,
                    event="link.changed",
                )
            self._seen, self._since, self._logged = progress, now, False
        elif progress.doing in _STALLS and not self._logged and now - self._since >= STALLED_S:
            self._logged = True
            text = _STALLS[progress.doing].format(seconds=f"{now - self._since:.0f}", **self._names)
            self._record(text)
            self._log.warn(
                "link {link}: {text}. Nothing is lost meanwhile",
                link=self._link,
                text=text,
                event="link.stalled",
            )
