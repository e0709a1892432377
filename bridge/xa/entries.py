"""Transactions as the log has them, and as operators see them, made from those under way; and back.

Owns these conversions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.xa import xids
from bridge.xa.log.records import Entry, LoggedBranch
from bridge.xa.status import BranchState, BranchStatus, TransactionState, TransactionStatus
from bridge.xa.transaction import HEURISTIC, UNFINISHED, Branch, GlobalTransaction
from gateway.messaging import xa

if TYPE_CHECKING:
    from bridge.xa.course import Course

#: Before the second phase, and during it: what is to be done by the next start.
_LOGGED: Final = {
    BranchState.PREPARED: BranchState.WAITING,
    BranchState.COMMITTING: BranchState.WAITING,
}
#: Undecided states, in which a transaction has nothing to commit.
_DECISIONS: Final = {BranchState.COMMITTED: "COMMIT", BranchState.ROLLED_BACK: "ROLLBACK"}


def entry_of(course: Course) -> Entry:
    """What the log is to have of it: its decision, where it is to commit."""
    now = course.now
    decided = now.decided or now.state is TransactionState.DECIDING
    branches = tuple(
        LoggedBranch(
            branch.bqual,
            branch.ref_name,
            branch.rm,
            _LOGGED.get(branch.state, branch.state),
            branch.error,
        )
        for branch in now.branches
        if branch.state is not BranchState.READ_ONLY
    )
    return Entry(
        course.gtrid, course.since_ms, decided, now.state is TransactionState.FORGETTING, branches
    )


def transaction_of(entry: Entry) -> GlobalTransaction:
    """How it goes on after a start."""
    branches = tuple(
        Branch(one.bqual, one.ref_name, one.rm, one.state, associations=0, error=one.error)
        for one in entry.branches
    )
    states = {branch.state for branch in branches}
    if states & UNFINISHED or (entry.decided and not states & HEURISTIC and not entry.forgetting):
        state = TransactionState.WAITING
    else:
        state = TransactionState.FORGETTING if entry.forgetting else TransactionState.HEURISTIC
    return GlobalTransaction(state, branches, entry.decided, told=True)


def status_of(course: Course) -> TransactionStatus:
    """What operators see of it."""
    now = course.now
    branches = tuple(
        BranchStatus(
            branch.ref_name,
            branch.rm,
            xids.shown(course.xid(branch.bqual)),
            branch.state.value,
            _reason(branch),
        )
        for branch in now.branches
    )
    state = TransactionState.ROLLING_BACK if course.left else now.state
    decision = "COMMIT" if now.decided else ""
    parts = ", ".join(
        f"{branch.bqual.hex()}({_DECISIONS.get(branch.state, branch.state.value)})"
        for branch in now.branches
    )
    text = f"{course.gtrid.hex()}({decision or state.value})[{parts}]"
    return TransactionStatus(course.id, state.value, decision, course.since_ms, branches, text)


def _reason(branch: Branch) -> str:
    if branch.state is BranchState.WAITING and branch.error == xa.XAER_NOTA:
        return "not known at the broker asked last"
    return ""
