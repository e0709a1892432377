"""How much memory the messages of a broker may take.

Counted over all destinations, consumers and links.

Owns the sums, and the bounds on messages that wait and on the destinations, subscriptions and
consumers that clients make. Each backlog reports what it holds; beyond the bound, or beyond its own
share, whole messages live in the store only. The bounds on the other sums are the process's, which
are asked for by :attr:`Memory.octets_left`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from gateway.messaging.message import OVERHEAD as OVERHEAD

#: Octets that a backlog takes for a message that is in the store only: its seq and its size.
ENTRY: Final = 16
#: Octets that a destination takes, one message in it included; that a topic's subscription takes;
#: and that a consumer takes, with its session and its connection's records of it.
DESTINATION: Final = 5 * 1024
SUBSCRIPTION: Final = 2 * 1024
CONSUMER: Final = 3 * 1024
#: And what a consumer of a pattern takes for each queue that it covers.
MEMBER: Final = 768
#: What a character of a name takes, and one of a selector, whose tree is larger than its text.
_NAMED: Final = 4
_SELECTING: Final = 32

_TOTAL: Final = 64 * 1024 * 1024
_SHARE: Final = 32 * 1024 * 1024
_LEAST: Final = 256 * 1024


class Memory:
    """The window of all backlogs together.

    :param total: octets for all of them.
    :param share: octets for one.
    :param least: octets that each may have beyond that.
    :param most: octets from which on not even that much: then what comes goes to the store, and is
        not read back before somebody wants it; where the store does not take what memory has no
        room for, senders are held back.
    """

    __slots__ = (
        "behind",
        "least",
        "most",
        "most_object_octets",
        "object_octets",
        "octets_left",
        "report_excess",
        "share",
        "spilling",
        "spills",
        "total",
        "transactions",
        "unacknowledged",
        "used",
    )

    def __init__(
        self, total: int = _TOTAL, share: int = _SHARE, least: int = _LEAST, most: int = sys.maxsize
    ) -> None:
        self.total = total
        self.most = most
        self.share = share
        self.least = least
        #: Octets in all windows now.
        self.used = 0
        #: Octets of destinations, subscriptions and consumers, and how many there may be before
        #: clients can make no more.
        self.object_octets = 0
        self.most_object_octets = sys.maxsize
        #: Messages in all backlogs that are in the store only.
        self.behind = 0
        #: The store takes messages; while its disk is full, memory must do.
        self.spilling = True
        #: There is a store that could.
        self.spills = True
        #: Octets of messages that consumers have and have not settled.
        self.unacknowledged = 0
        #: Octets of the open transactions and branches of users inside this process. Those of
        #: clients are counted where their frames are read.
        self.transactions = 0
        #: Returns how many octets more consumers may have; and is told that one was given its only
        #: message although there was nothing left.
        self.octets_left: Callable[[], int] = lambda: sys.maxsize
        self.report_excess: Callable[[], None] = lambda: None

    @property
    def octets(self) -> int:
        """What all backlogs, destinations, subscriptions and consumers take.

        For a backlog, these are its window and its entries for messages in the store only.
        """
        return self.used + ENTRY * self.behind + self.object_octets

    @classmethod
    def within(cls, limit: int) -> Memory:
        """Return the usual window, or a smaller one that fits the limit.

        :param limit: octets that waiting messages may have. Clients may make destinations,
            subscriptions and consumers up to half of that.
        """
        total = min(_TOTAL, limit // 2)
        window = cls(total, min(_SHARE, total // 2), min(_LEAST, total // 4), limit)
        window.most_object_octets = limit // 2
        return window

    def count_object(self, octets: int) -> None:
        """Count the octets of a destination, subscription or consumer.

        Positive when it was made, negative when it has gone. Messages have what is left.
        """
        self.object_octets += octets
        self.most -= octets

    def has_room_for(self, octets: int) -> bool:
        """Whether there is room for another object that a client makes.

        :param octets: of the destination, subscription or consumer.
        """
        return self.object_octets + octets <= self.most_object_octets

    def senders_must_wait(self) -> bool:
        """Whether senders should wait: memory is full and cannot spill."""
        return self.used > self.most and not (self.spills and self.spilling)

    def full(self, own: int) -> bool:
        """Whether a backlog must not take more into memory.

        :param own: octets that it holds there.
        """
        return self.spilling and (
            own >= self.share
            or (self.used >= self.total and own >= self.least)
            or self.used >= self.most
        )

    def room(self, own: int) -> int:
        """How many octets a backlog should read back now; 0 if it has enough.

        :param own: octets that it holds in memory.
        """
        if self.used >= self.total:
            return self.least - own if own < self.least // 2 else 0
        return (
            min(self.share - own, max(self.total - self.used, self.least))
            if own < self.share // 2
            else 0
        )


def of_destination(name: str) -> int:
    """The octets that a destination of that name takes."""
    return DESTINATION + _NAMED * len(name)


def of_subscription(selector: str, topics: str = "") -> int:
    """The octets that a topic's subscription takes.

    :param selector: its text, "" for none.
    :param topics: their names, where it has several.
    """
    return SUBSCRIPTION + _SELECTING * (len(selector) + len(topics))


def of_consumer(selector: str) -> int:
    """The octets that a consumer takes.

    :param selector: its text, "" for none.
    """
    return CONSUMER + _SELECTING * len(selector)
