"""A transaction branch: its name, its state, and its work.

Owns these values, and how the work is written in the store. What is done with the work is
:mod:`gateway.broker.xa.work`'s, which call is in order when :mod:`gateway.broker.xa.registry`'s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from gateway.broker.acceptance.one_phase import Sender
from gateway.broker.arrivals.duplicates import Arrivals, Before
from gateway.broker.core.consumers.consumer import EmbeddedConsumer, Transaction
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.journal.journey import Confirmable
from gateway.broker.store.interface import BranchRow, IndexRow, StoreError
from gateway.messaging.message import Message
from gateway.messaging.provider import Xid


class BranchRouting(Protocol):
    """Where the messages of one connection go."""

    origin: Origin
    #: How many messages the last :meth:`route` left out as duplicates; None where none has an id.
    repeats: int | None

    def route(self, messages: Sequence[Message], before: Before | None = None) -> Arrivals:
        """Find where messages go, if all of them may.

        :raises MessageRejected: for the first that may not.
        """


class BranchSession(Sender, Confirmable, Protocol):
    """A session that takes part in branches."""

    @property
    def routing(self) -> BranchRouting: ...

    @property
    def consumers(self) -> Sequence[EmbeddedConsumer]:
        """Those that are not closed."""

    @property
    def at_work(self) -> bool:
        """Whether anything was done in the open transaction."""

    def hand_over(self) -> Transaction:
        """Hand over the open transaction.

        It belongs to the branch then, with the bytes that count in memory.
        """


class Participant(Protocol):
    """The XA calls of one session."""

    #: Branches that it has begun or joined, and that are neither prepared nor over.
    branches: dict[Branch, None]

    @property
    def session(self) -> BranchSession: ...


class State(Enum):
    """How a branch stands."""

    #: It was started, and is neither prepared nor over.
    ACTIVE = "ACTIVE"
    #: Its preparation, or its commit in one phase, is on its way to the disk: it does not end with
    #: its sessions any more.
    ENDING = "ENDING"
    #: Its outcome is the coordinator's to say; also while that is on its way to the disk.
    PREPARED = "PREPARED"
    #: An administrator has ended it, and its coordinator has not heard of that.
    HEURISTIC = "HEURISTIC"


class Association(Enum):
    """How a session stands to its branch (X/Open XA, ``xa_start``)."""

    #: What it does is the branch's.
    ASSOCIATED = "ASSOCIATED"
    #: It may resume.
    SUSPENDED = "SUSPENDED"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Part:
    """What one session did in one association with the branch."""

    session: BranchSession
    sends: Sequence[Message]
    acknowledged: Sequence[tuple[EmbeddedConsumer, Sequence[tuple[int, Message]]]]


class Taken(NamedTuple):
    """Messages that a prepared branch has acknowledged and keeps locked.

    :param consumer: who had them; None after a restart.
    """

    source: Dispatched
    messages: Sequence[Message]
    consumer: EmbeddedConsumer | None


class Branch:
    """One branch, from its start until it is forgotten."""

    def __init__(self, xid: Xid, since_ms: int) -> None:
        self.xid = xid
        self.state = State.ACTIVE
        #: Epoch milliseconds of its start; of its preparation once it is prepared.
        self.since_ms = since_ms
        #: Its number in the store; 0 until it is prepared.
        self.id = 0
        #: Who has prepared it.
        self.user = ""
        #: X/Open's code of why it can only be rolled back; 0: it need not be.
        self.rollback_code = 0
        #: X/Open's code of what an administrator has done; 0 until it is HEURISTIC.
        self.heuristic_code = 0
        #: Sessions that took part.
        self.resources: dict[Participant, Association] = {}
        #: The work, until it is prepared.
        self.parts: list[Part] = []
        #: Octets of the work that count in the broker's memory.
        self.octets = 0
        #: Looks at the clock since there has been work.
        self.ticks = 0
        #: The work of a prepared branch. What it has sent counts as coming at its destinations,
        #: what it has acknowledged is locked at its sources.
        self.sends: list[tuple[PhysicalQueue | PhysicalTopic, Sequence[Message]]] = []
        self.taken: list[Taken] = []
        #: The same as far as it is in the store only, since a restart.
        self.unread_sends: list[tuple[PhysicalQueue | PhysicalTopic, IndexRow]] = []
        self.unread_taken: list[tuple[Dispatched, IndexRow]] = []
        #: How many messages a prepared branch has sent, and acknowledged.
        self.sent = self.acknowledged = 0
        #: While a call for it is on its way to the disk: those behind it.
        self.waiting: list[Callable[[], None]] | None = None

    @property
    def associated(self) -> bool:
        """Whether a session is associated with it, or has suspended that."""
        return any(how is not Association.ENDED for how in self.resources.values())

    @property
    def at_work(self) -> bool:
        """Whether anything was done in it that is not prepared."""
        return bool(self.parts) or any(
            how is Association.ASSOCIATED and resource.session.at_work
            for resource, how in self.resources.items()
        )

    def row(self, state: int, sent: Sequence[int], taken: Sequence[tuple[int, int]]) -> BranchRow:
        """Its row in the store.

        :param state: 0 when it is prepared, else the code of the heuristic outcome.
        :param sent: seqs.
        :param taken: owner (0 for a queue, else the durable subscription) and seq.
        """
        work = struct.pack(
            f"<2I{len(sent) + 2 * len(taken)}q",
            len(sent),
            len(taken),
            *sent,
            *[n for pair in taken for n in pair],
        )
        xid = self.xid
        return BranchRow(
            self.id, xid.format_id, xid.gtrid, xid.bqual, state, self.since_ms, self.user, work
        )


def restored(row: BranchRow) -> tuple[Branch, Sequence[int], Sequence[tuple[int, int]]]:
    """Restore a branch from its row in the store.

    :returns: the branch, seqs of what it has sent, and owner and seq of what it has acknowledged.

    :raises StoreError: its work cannot be decoded.
    """
    branch = Branch(Xid(row.format_id, row.gtrid, row.bqual), row.since)
    branch.id, branch.user, branch.heuristic_code = row.id, row.user, row.state
    branch.state = State.HEURISTIC if row.state else State.PREPARED
    try:
        sends, taken = struct.unpack_from("<2I", row.work)
        numbers = struct.unpack(f"<{sends + 2 * taken}q", row.work[8:])
    except struct.error as error:
        raise StoreError(
            f"the store holds a branch (row {row.id}) whose work cannot be read: {error}"
        ) from error
    return (
        branch,
        numbers[:sends],
        list(zip(numbers[sends::2], numbers[sends + 1 :: 2], strict=True)),
    )
