"""The numbers and ids of messages.

Owns which seq is next, which are reserved in the store ahead of their use, and which messages have
ids that are not made of their seqs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.durability.commit import GroupCommit
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn

#: Seqs are reserved in the store by that many at once, ahead of their use.
RESERVE: Final = 10_000_000


class Numbering:
    """Gives messages that are accepted their identity.

    :param store_id: in every id that is given.
    :param find: the physical destination, if there is one.
    """

    def __init__(
        self,
        store_id: str,
        commits: GroupCommit,
        turn: Turn,
        find: Callable[[Destination], PhysicalDestination | None],
    ) -> None:
        #: What an id that is given begins with; the seq follows.
        self.prefix: Final = f"ID-{store_id}-"
        self._commits: Final = commits
        self._turn: Final = turn
        self._find: Final = find
        #: That of the message accepted last.
        self.last = 0
        self._reserved = 0
        #: Messages accepted since the start.
        self.accepted = 0
        #: No message of a topic with a seq above this one has an id that is not made of its seq;
        #: for one queue see ``PhysicalDestination.identified``.
        self.topics_identified = 0

    def give(self, messages: Sequence[Message], user: str, origin: int) -> None:
        """Give accepted messages their seqs and time, and ids if they lack any."""
        now_ms = self._turn.refresh()
        prefix = self.prefix
        seq = self.last
        identified: list[Message] = []
        for message in messages:
            seq += 1
            message.seq = seq
            if not message.message_id:
                message.message_id = f"{prefix}{seq}"
            else:
                identified.append(message)
            if not message.timestamp:
                message.timestamp = now_ms
            message.user = user
            message.origin = origin
        self.last = seq
        self.accepted += len(messages)
        if identified:
            self._note(identified)
        if seq > self._reserved - RESERVE // 2:
            self._reserve()

    def _note(self, messages: Sequence[Message]) -> None:
        for message in messages:
            destination = message.headers.destination
            physical = self._find(destination)
            if physical is not None:
                physical.identified = message.seq
            if destination.kind is Kind.TOPIC:
                self.topics_identified = message.seq

    def start(self, next_seq: int) -> None:
        """Continue after the seqs of an earlier run.

        How that run named its messages is not known.
        """
        self.last = next_seq - 1
        self._reserved = next_seq - 1
        self.topics_identified = next_seq - 1
        self._reserve()

    def _reserve(self) -> None:
        self._reserved = max(self._reserved, self.last) + RESERVE
        self._commits.reserve(self._reserved)
