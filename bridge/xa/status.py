"""States of transactions and branches, for operators and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TransactionState(StrEnum):
    """Where a global transaction stands."""

    #: A link is at work in it.
    ACTIVE = "ACTIVE"
    #: Its branches are asked to prepare.
    PREPARING = "PREPARING"
    #: All are prepared, and the decision is on its way to the disk.
    DECIDING = "DECIDING"
    #: Its branches are asked to commit.
    COMMITTING = "COMMITTING"
    #: Its branches are asked to roll back.
    ROLLING_BACK = "ROLLING_BACK"
    #: Decided; branches wait for the recovery of their resource managers.
    WAITING = "WAITING"
    #: The log failed while the decision was written: prepared everywhere, and the next start reads
    #: how it goes on.
    IN_DOUBT = "IN_DOUBT"
    #: A resource manager decided otherwise. Stays until an operator has it forgotten.
    HEURISTIC = "HEURISTIC"
    #: An operator has it forgotten, and its resource managers have not all been told.
    FORGETTING = "FORGETTING"
    #: Over, and no longer listed.
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    UNKNOWN = "UNKNOWN"


class BranchState(StrEnum):
    """Where a branch stands, as far as its coordinator knows."""

    ACTIVE = "ACTIVE"
    #: Its work has ended: all associations with sessions are dissolved.
    IDLE = "IDLE"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    #: It voted read-only: it is gone, and has no second phase.
    READ_ONLY = "READ_ONLY"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    #: To be rolled back, and not reached: its recovery will, by presumed abort.
    LEFT = "LEFT"
    #: To be committed, and not reached: its recovery will.
    WAITING = "WAITING"
    #: Decided to commit, but an operator has ordered to roll it back when its resource manager is
    #: there.
    ROLLBACK_ORDERED = "ROLLBACK_ORDERED"
    #: One-phase, and the answer was lost.
    UNKNOWN = "UNKNOWN"
    HEURISTIC_COMMIT = "HEURISTIC_COMMIT"
    HEURISTIC_ROLLBACK = "HEURISTIC_ROLLBACK"
    HEURISTIC_MIXED = "HEURISTIC_MIXED"
    HEURISTIC_HAZARD = "HEURISTIC_HAZARD"
    #: It was heuristic, and its resource manager has forgotten it.
    FORGOTTEN = "FORGOTTEN"


@dataclass(frozen=True, slots=True)
class BranchStatus:
    """A branch.

    :param ref_name: of the connection factory.
    :param rm: what names the resource manager.
    :param xid: ``FORMAT:GTRID:BQUAL``, the last two in hex.
    :param state: a word of :class:`BranchState`.
    :param reason: why it waits, in words; "" where there is nothing to say.
    """

    ref_name: str
    rm: str
    xid: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """A transaction that is not over, or heuristic.

    It is live, decided and waiting, to be rolled back where a resource manager does not answer, or
    heuristic.

    :param id: what operators type.
    :param state: a word of :class:`TransactionState`.
    :param decision: "COMMIT" or "".
    :param since_ms: when it began; once its commit was asked for, when that was. Milliseconds since
        1970.
    :param text: the original's one line: ``gxid(COMMIT)[bxid(COMMIT), ...]``.
    """

    id: str
    state: str
    decision: str
    since_ms: int
    branches: tuple[BranchStatus, ...]
    text: str


@dataclass(slots=True)
class TransactionCounts:
    """How transactions ended since their coordinator was opened.

    Those that had no branch are not counted. They only grow.

    :param heuristic: they ended so, whatever became of them afterwards.
    :param unknown: there was one branch, and the answer to its commit was lost.
    """

    committed: int = 0
    rolled_back: int = 0
    heuristic: int = 0
    unknown: int = 0
