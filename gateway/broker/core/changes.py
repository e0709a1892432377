"""What queues, topics and subscriptions share with the rest of the broker.

They change themselves and report here what they did, in runs of messages: to the store, to the
journal, to the operator's reports, and to those who wait. Owns the verbs, and who is told of each.
Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.broker.durability.rows import Destined

if TYPE_CHECKING:
    from collections.abc import Sized

    from gateway.broker.core.memory import Memory
    from gateway.broker.core.slices import Slices
    from gateway.broker.core.source import Place, Receiver
    from gateway.broker.durability.commit import GroupCommit
    from gateway.broker.durability.rows import Rows
    from gateway.broker.schedule import Schedule
    from gateway.messaging.dead import DeadReason
    from gateway.messaging.message import Message
    from gateway.messaging.turn import Turn


class AnyDestination(Destined, Protocol):
    """A queue or a topic, as those know it who are told of its changes."""

    #: See :class:`gateway.broker.core.physical.Physical`.
    count: int
    coming: int
    clearing: int
    idle_since: int
    removed: bool
    purged: bool

    @property
    def arrivals(self) -> Sized: ...


class Upkeep(Protocol):
    """Sees to destinations that nobody uses, and to what is left of those that were removed."""

    def idle(self, physical: AnyDestination) -> None:
        """Nobody uses an auto-created destination."""

    def removal_over(self, physical: AnyDestination) -> None:
        """Something left a destination that was removed."""


class Reports(Protocol):
    """Tells the operator of limits."""

    def holding_back(self, physical: AnyDestination) -> None: ...

    def has_room(self, physical: AnyDestination) -> None: ...

    def evicting(self, physical: AnyDestination, reason: DeadReason) -> None: ...


class Journal(Protocol):
    """Is told of each step of a message."""

    def delivered(
        self,
        source: Place,
        consumer: Receiver,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None: ...

    def returned(self, source: Place, messages: Sequence[Message], reason: str) -> None: ...

    def removed(self, source: Place, messages: Sequence[Message]) -> None: ...

    def removed_stored(self, source: Place, seqs: Sequence[int]) -> None: ...


class Graves(Protocol):
    """Keeps the dead."""

    def tell(
        self, source: Place, messages: Sequence[Message], reason: DeadReason, comment: str
    ) -> None: ...

    def bury(
        self,
        physical: AnyDestination,
        source: Place,
        message: Message,
        reason: DeadReason,
        comment: str,
    ) -> None: ...


class Changes:
    """The one collaborator of the core's objects.

    :param spills: whether messages that memory has no room for can live in the store only.
    :param most_rollbacks: tries after which a message is dead; 0 for no bound.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        turn: Turn,
        memory: Memory,
        schedule: Schedule,
        slices: Slices,
        commits: GroupCommit,
        rows: Rows,
        *,
        spills: bool,
        most_rollbacks: int,
    ) -> None:
        self.upkeep: Upkeep = upkeep
        self.turn = turn
        self.memory = memory
        self.schedule = schedule
        self.slices = slices
        self.commits = commits
        self.rows = rows
        self.spills = spills
        self.most_rollbacks = most_rollbacks
        #: Told of every step; None where nothing is.
        self.journal: Journal | None = None
        self.graves: Graves
        self.reports: Reports

    # --- deliveries

    def delivered(
        self,
        source: Place,
        consumer: Receiver,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None:
        """A run is about to be handed to a consumer. :param attempts: the delivery attempts,
        counted from 1; None where all are the first.
        """
        if self.journal is not None:
            self.journal.delivered(source, consumer, run, attempts)

    def returned(self, source: Place, messages: Sequence[Message], reason: str) -> None:
        """A consumer did not settle these."""
        if self.journal is not None:
            self.journal.returned(source, messages, reason)

    # --- ends

    def removed(self, source: Place, messages: Sequence[Message]) -> None:
        """These are about to be given up without a grave."""
        if self.journal is not None:
            self.journal.removed(source, messages)

    def removed_stored(self, source: Place, seqs: Sequence[int]) -> None:
        """The same of messages that are in the store only."""
        if self.journal is not None:
            self.journal.removed_stored(source, seqs)

    def buried(
        self,
        source: Place,
        messages: Sequence[Message],
        place_of: Callable[[Message], AnyDestination | None],
        reason: DeadReason,
        comment: str,
    ) -> None:
        """These are dead: settle them, together with the storing of their copies.

        :param place_of: the destination of each; of one that is gone, nothing is kept.
        """
        self.commits.begin()
        try:
            self.graves.tell(source, messages, reason, comment)
            for message in messages:
                place = place_of(message)
                if place is not None:
                    self.graves.bury(place, source, message, reason, comment)
            source.settle(messages)
        finally:
            self.commits.end()
