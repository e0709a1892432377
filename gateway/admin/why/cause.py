"""A cause: what holds messages back, as a value.

Owns the kinds of causes and their order, the likeliest first, and how a cause names users, moments
and commands. Finds no cause: modules beside this one do, each for one kind of thing that is asked
about, as plain functions from what is known to lists of causes.

All causes that hold are told, not only the first: what is mended first may not be the last.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from gateway.instance.problems import counted as counted
from gateway.messaging.destination import Destination, Kind
from gateway.stomp.connection_log import quoted as quoted

#: Holders, names and the like that one sentence names.
NAMED: Final = 3
#: Characters of a selector in a sentence.
_SELECTOR: Final = 200


class CauseKind(Enum):
    """Kinds of causes, in the order in which they are told.

    What stops everything comes before what stops one destination, that before what stops one
    consumer, and what is over comes last.
    """

    STANDBY = "STANDBY"
    STORE_UNREACHABLE = "STORE_UNREACHABLE"
    STORE_FAILED = "STORE_FAILED"
    DISK_FULL = "DISK_FULL"
    DESTINATION_DAMAGED = "DESTINATION_DAMAGED"
    DESTINATION_GOING = "DESTINATION_GOING"
    DESTINATION_PAUSED = "DESTINATION_PAUSED"
    TEMPORARY_GONE = "TEMPORARY_GONE"
    BROKER_BEHIND = "BROKER_BEHIND"
    OTHER_NAME = "OTHER_NAME"
    NO_DESTINATION = "NO_DESTINATION"
    OWNED_ELSEWHERE = "OWNED_ELSEWHERE"
    BRIDGE_STOPPED = "BRIDGE_STOPPED"
    BRIDGE_PAUSED = "BRIDGE_PAUSED"
    LINK_DISABLED = "LINK_DISABLED"
    LINK_FAILED = "LINK_FAILED"
    LINK_STOPPED = "LINK_STOPPED"
    LINK_PAUSED = "LINK_PAUSED"
    LINK_WAITING = "LINK_WAITING"
    LINK_STALLED = "LINK_STALLED"
    NO_ANSWER = "NO_ANSWER"
    LINK_PACED = "LINK_PACED"
    UNBALANCED = "UNBALANCED"
    SERVICE_PAUSED = "SERVICE_PAUSED"
    LISTENER_CLOSED = "LISTENER_CLOSED"
    ACCESS_DENIED = "ACCESS_DENIED"
    USER_RATE = "USER_RATE"
    MAX_CONSUMERS = "MAX_CONSUMERS"
    NO_CONSUMER = "NO_CONSUMER"
    NO_SUBSCRIPTION = "NO_SUBSCRIPTION"
    DURABLE_INACTIVE = "DURABLE_INACTIVE"
    READER_CHOKED = "READER_CHOKED"
    CONSUMER_STOPPED = "CONSUMER_STOPPED"
    NO_CREDIT = "NO_CREDIT"
    EXCLUSIVE_CONSUMER = "EXCLUSIVE_CONSUMER"
    MESSAGE_GROUP = "MESSAGE_GROUP"
    UNACKNOWLEDGED_MEMORY = "UNACKNOWLEDGED_MEMORY"
    SELECTOR = "SELECTOR"
    NO_LOCAL = "NO_LOCAL"
    SELECTOR_TIME = "SELECTOR_TIME"
    PREFETCH = "PREFETCH"
    PREPARED_TRANSACTION = "PREPARED_TRANSACTION"
    OPEN_TRANSACTION = "OPEN_TRANSACTION"
    REDELIVERY_PAUSE = "REDELIVERY_PAUSE"
    SCHEDULED = "SCHEDULED"
    FLOW_CONTROL = "FLOW_CONTROL"
    LIMIT_REACHED = "LIMIT_REACHED"
    MEMORY_FULL = "MEMORY_FULL"
    TOO_LARGE = "TOO_LARGE"
    REFUSED = "REFUSED"
    BEHIND_OTHERS = "BEHIND_OTHERS"
    UNACKNOWLEDGED = "UNACKNOWLEDGED"
    DEAD = "DEAD"
    EXPIRED = "EXPIRED"
    REMOVED = "REMOVED"
    REPLACED = "REPLACED"
    DUPLICATE_ID = "DUPLICATE_ID"
    COPIED = "COPIED"
    TAKES_TURNS = "TAKES_TURNS"
    MOVED_ON = "MOVED_ON"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    HEADER_UNUSED = "HEADER_UNUSED"
    POSSIBLY_TWICE = "POSSIBLY_TWICE"
    OTHER_BROKER = "OTHER_BROKER"
    NOT_SENT_YET = "NOT_SENT_YET"
    NOTHING_WAITS = "NOTHING_WAITS"
    OF_BRIDGE = "OF_BRIDGE"


_ORDER: Final = {kind: place for place, kind in enumerate(CauseKind)}


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that holds messages back, or has ended their way.

    :param sentence: the cause, with its figure; one sentence.
    :param figures: the same for programs, by name.
    :param advice: what mends it, in words; ends in a colon where a command follows.
    :param command: the command that mends it, as one types it; "" where no command can.
    :param since_ms: since when, epoch milliseconds; 0 where that is not known.
    :param weight: causes of one kind are told by it, the heaviest first: usually messages.
    """

    kind: CauseKind
    sentence: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    advice: str = ""
    command: str = ""
    since_ms: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about why something is not delivered.

    :param subject: what was asked about, in words.
    :param causes: the likeliest first.
    :param unknown: sentences: what cannot be known, and how it would be.
    :param looked_at: messages that were looked at, of
    :param waiting: those that wait.
    """

    subject: str
    causes: Sequence[Cause] = ()
    unknown: Sequence[str] = ()
    looked_at: int = 0
    waiting: int = 0


def ranked(causes: Iterable[Cause]) -> list[Cause]:
    """Sort causes, the likeliest and heaviest first. Drops repetitions."""
    kept = {(cause.kind, cause.sentence): cause for cause in causes}
    return sorted(kept.values(), key=lambda cause: (_ORDER[cause.kind], -cause.weight))


# --- words

#: Options of ``imqcmd`` and ``imqbridgemgr`` whose values others choose.
_CHOSEN: Final = ("-n", "-c", "-to", "-o", "-id", "-msgID", "-tid", "-bn", "-ln")


def command(*words: object) -> str:
    """Return a command line, quoted for a shell.

    A name that begins with a dash stands behind ``=``: it may be an option, too.
    """
    spelled: list[str] = []
    chosen = _CHOSEN if words[0] in ("imqcmd", "imqbridgemgr") else ()
    for word in map(str, words):
        if word.startswith("-") and spelled and spelled[-1] in chosen:
            spelled[-1] += f"={word}"
        else:
            spelled.append(word)
    return shlex.join(spelled)


def destination_options(destination: Destination) -> tuple[str, ...]:
    """Return the options that name a destination to ``imqcmd``."""
    return "-t", "q" if destination.kind is Kind.QUEUE else "t", "-n", destination.name


def why_destination(destination: Destination) -> str:
    """Return the command that asks about a destination."""
    return command("imqcmd", "why", "dst", *destination_options(destination))


def why_link(bridge: str, link: str) -> str:
    """Return the command that asks about a link."""
    return command("imqcmd", "why", "link", "-bn", bridge, "-ln", link)


def spoken(destination: Destination) -> str:
    """Return a destination as sentences name it: ``queue 'orders'``."""
    return f"{destination.kind.name.lower()} {quoted(destination.name)}"


def selecting(text: str) -> str:
    """Return a selector as sentences have it: it has quotes of its own."""
    return f'"{text[:_SELECTOR]}..."' if len(text) > _SELECTOR else f'"{text}"'


def some(count: int, one: str, several: str) -> str:
    """Return the form of a verb for this number."""
    return one if count == 1 else several


def moment(ms: int) -> str:
    """Return a moment in UTC, as sentences have it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def span(ms: int) -> str:
    """Return a span of time in its largest two units."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{max(0, ms) / 1000:.1f} s" if seconds < 10 else f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def listing(texts: Sequence[str], more: str = "others") -> str:
    """Return the first few of some texts, and how many there are besides."""
    shown = ", ".join(texts[:NAMED])
    left = len(texts) - NAMED
    return f"{shown}, and {left} {more}" if left > 0 else shown


def parts(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the values in runs of that size."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
