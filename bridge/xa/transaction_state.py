"""One global transaction as a value: its state, events and actions.

:mod:`bridge.xa.step` says which follow; :mod:`bridge.xa.transaction_run` performs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from bridge.xa.status import BranchState, TransactionState
from gateway.messaging.errors import MessagingError


class Call(Enum):
    """The calls of a resource manager about a branch."""

    END = "end"
    PREPARE = "prepare"
    COMMIT = "commit"
    COMMIT_ONE_PHASE = "commit in one phase"
    ROLLBACK = "rollback"
    FORGET = "forget"


class Order(Enum):
    """The orders of an operator."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    FORGET = "forget"


HEURISTIC: Final = frozenset(
    {
        BranchState.HEURISTIC_COMMIT,
        BranchState.HEURISTIC_ROLLBACK,
        BranchState.HEURISTIC_MIXED,
        BranchState.HEURISTIC_HAZARD,
    }
)
#: States of a decided branch that its resource manager's recovery has to complete.
UNFINISHED: Final = frozenset({BranchState.WAITING, BranchState.ROLLBACK_ORDERED})


_ONE_OF_SEVERAL: Final = re.compile(r" \((?:source|target|branch \d+)\)\Z")


class Branch(NamedTuple):
    """A branch.

    :param bqual: its qualifier.
    :param ref_name: of the factory by which it came.
    :param rm: its resource manager.
    :param associations: sessions that take part.
    :param ended: those of them that have answered ``end``.
    :param asking: the call about it that has no answer yet.
    :param error: the last code that was neither 0 nor 3.
    """

    bqual: bytes
    ref_name: str
    rm: str
    state: BranchState = BranchState.ACTIVE
    associations: int = 1
    ended: int = 0
    asking: Call | None = None
    error: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a transaction is to be rolled back.

    :param ref_name: where it went wrong, "" for here.
    :param error: for the caller.
    """

    code: int
    ref_name: str = ""
    error: MessagingError | None = field(default=None, compare=False)


class GlobalTransaction(NamedTuple):
    """Everything that decides how a transaction goes on.

    :param decided: the decision is to commit, and it is in the log; or there is one branch, which
        needs none.
    :param one_phase: its only branch was asked to commit without a vote.
    :param cause: the first thing that went wrong before the decision.
    :param told: the outcome is known to the caller.
    """

    state: TransactionState = TransactionState.ACTIVE
    branches: tuple[Branch, ...] = ()
    decided: bool = False
    one_phase: bool = False
    cause: Cause | None = None
    told: bool = False


def one_of_several(resource: str, which: str) -> str:
    """Return a name for one of several resource managers of the same name.

    :param resource: that name.
    :param which: ``source`` or ``target`` of a link, or ``branch`` and a number.
    """
    return f"{resource} ({which})"


def is_one_of_several(rm: str) -> bool:
    """Whether connections to this name may lead to different managers."""
    return _ONE_OF_SEVERAL.search(rm) is not None


# The events.


@dataclass(frozen=True, slots=True)
class Started:
    """A resource manager was asked to begin a branch.

    If it cannot, the session's later calls for the branch fail, too.
    """

    branch: Branch


@dataclass(frozen=True, slots=True)
class Joined:
    """One more session was asked to take part in a branch.

    If it cannot, the session's later calls for the branch fail, too.
    """

    branch: int


@dataclass(frozen=True, slots=True)
class Separated:
    """One name leads to several resource managers.

    :param rm: what it is called from now on.
    """

    branch: int
    rm: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A session could not take part.

    :param branch: in which it was thought to, None for in none.
    """

    cause: Cause
    branch: int | None = None


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """By the application."""


@dataclass(frozen=True, slots=True)
class RollbackAsked:
    """By the application."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A resource manager has answered to a call, or will never.

    :param code: 0, 3 for a read-only vote, or that of the error.
    """

    call: Call
    branch: int
    code: int = 0
    error: MessagingError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision is in the log for good."""


@dataclass(frozen=True, slots=True)
class NotDecided:
    """The decision is not in the log, for certain."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class DecisionLost:
    """It is not known whether the decision is in the log."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Reached:
    """The branch's resource manager is there again, and nothing is under way.

    :param holds: whether it says that it has the branch.
    """

    branch: int
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """The resource manager, or its namesake, does not know the branch."""

    branch: int


@dataclass(frozen=True, slots=True)
class Found:
    """A resource manager has a branch of an undecided, unknown transaction."""

    branch: Branch


@dataclass(frozen=True, slots=True)
class Ordered:
    """An operator has ordered something."""

    order: Order


Event: TypeAlias = (
    Started
    | Joined
    | Separated
    | StartFailed
    | CommitAsked
    | RollbackAsked
    | Answered
    | Decided
    | NotDecided
    | DecisionLost
    | Reached
    | Missing
    | Found
    | Ordered
)


# The actions, in the order in which they are to be done.


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the resource manager; of END, for every session that takes part.

    The next action does not wait for the answer.

    :param failed: of END: the work is not to be kept.
    """

    call: Call
    branch: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Decide:
    """Write the decision and sync it.

    Then tell Decided, NotDecided or DecisionLost.
    """


@dataclass(frozen=True, slots=True)
class Record:
    """Write the state to the log and sync it before the next action."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write the state to the log some time."""


@dataclass(frozen=True, slots=True)
class Remove:
    """The log need not have it any more.

    :param now: durably, before the next action; else some time.
    """

    now: bool = False


@dataclass(frozen=True, slots=True)
class Presume:
    """Remember a branch as committed without its resource manager's word.

    A branch that may not be over is remembered, too. If it is reported later, it is committed.

    :param at_first: the first commit that it was ever asked for was answered so.
    """

    branch: int
    at_first: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the outcome, which follows from the state.

    It is told once in the life of a transaction.
    """


Action: TypeAlias = Ask | Decide | Record | Note | Remove | Presume | Tell
