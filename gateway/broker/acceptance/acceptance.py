"""Accept what the sessions and branches of one broker send.

Owns what is done with each message that is accepted, from any sender, before it takes a place
at its destination. Where it goes is :mod:`gateway.broker.sessions.routing`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.broker.arrivals.duplicates import Arrivals, DuplicateIds
from gateway.broker.arrivals.numbering import Numbering
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import Copied
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.journal.journey import Journey
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import Store
from gateway.messaging.errors import StorageFailed
from gateway.messaging.message import Message


class Acceptance:
    """What all sessions and branches of one broker share to accept messages.

    :ivar journey: tells the journal of every step; None where nothing does.
    """

    __slots__ = ("_numbering", "_store", "commits", "duplicates", "journey", "options")

    def __init__(
        self,
        commits: GroupCommit,
        store: Store,
        options: BrokerOptions,
        numbering: Numbering,
        duplicates: DuplicateIds,
    ) -> None:
        self.commits: Final = commits
        self.options: Final = options
        self.duplicates: Final = duplicates
        self._store: Final = store
        self._numbering: Final = numbering
        self.journey: Journey | None = None

    def largest(self) -> int:
        """Octets that, as known without looking, the disk has room for.

        What waits for room is taken off already.
        """
        return self._store.largest - self.commits.octets_without_room

    def check_fits(self, arrivals: Iterable[tuple[PhysicalDestination, Sequence[Message]]]) -> None:
        """Check that the disk could ever store these together.

        :raises StorageFailed: it could not, even if the store were empty.
        """
        octets = sum(
            [
                message.size
                for physical, run in arrivals
                if not physical.destination.temporary
                for message in run
                if message.headers.persistent
            ]
        )
        if octets > self.largest():
            # What waits for room is stored together.
            waiting = self.commits.octets_without_room
            most = self._store.measure()
            if octets + waiting > most:
                beside = f" beside {waiting} that wait for room" if waiting else ""
                why = f"{octets} bytes{beside} are more than the disk can hold, which is {most}"
                raise StorageFailed(why, why)

    def number(
        self, origin: Origin, messages: Sequence[Message], arrivals: Arrivals, repeats: int | None
    ) -> None:
        """Give messages their seqs, and remember their ids.

        Both are stored with the batch that gathers.

        :param arrivals: where they go, with copies for the queues of virtual topics, and without
            those whose duplicate ids are known.
        :param repeats: how many those are; None where no message has an id.
        """
        if len(arrivals) > 1 and any(isinstance(run, Copied) for _, run in arrivals):
            # In the order in which they come to the queues.
            self._numbering.give(
                [message for _, run in arrivals for message in run], origin.user, origin.number
            )
            messages = [message for message in messages if not message.seq] if repeats else ()
        if messages:
            self._numbering.give(messages, origin.user, origin.number)
        if repeats is not None:
            self.duplicates.remember(arrivals)
