"""What an answer of a resource manager means for its branch, by its code.

Owns the reading of codes, where the specification leaves it open as much as where it does not. What
then happens to the transaction is
:mod:`bridge.xa.step`'s.
"""

from __future__ import annotations

from bridge.xa.status import BranchState
from gateway.messaging import xa

#: A state, and whether the resource manager keeps a record of the branch that it is to forget now.
Meaning = tuple[BranchState, bool]

_HEURISTICS = {
    xa.XA_HEURMIX: BranchState.HEURISTIC_MIXED,
    xa.XA_HEURRB: BranchState.HEURISTIC_ROLLBACK,
    xa.XA_HEURCOM: BranchState.HEURISTIC_COMMIT,
    xa.XA_HEURHAZ: BranchState.HEURISTIC_HAZARD,
}


def to_prepare(code: int) -> BranchState:
    """IDLE is a branch that is to be rolled back."""
    if code == xa.XA_OK:
        return BranchState.PREPARED
    if code == xa.XA_RDONLY:
        return BranchState.READ_ONLY
    gone = code == xa.XAER_NOTA or xa.is_rolled_back(code)
    return BranchState.ROLLED_BACK if gone else BranchState.IDLE


def to_commit(code: int, before: int, several: bool) -> Meaning:
    """In the second phase.

    :param before: the code of the failure before this, or 0. :param several: whether it may be
        another resource manager that has answered.
    """
    if code in (xa.XA_OK, xa.XA_HEURCOM):
        return BranchState.COMMITTED, code == xa.XA_HEURCOM
    if code == xa.XAER_NOTA:
        if several:
            return BranchState.WAITING, False
        # It was committed before, and the answer was lost; also where the first commit is answered
        # so, as client libraries connect and ask again on their own. A hazard would have the
        # messages in a dead message queue as well as at their target. But after an XAER_RMERR the
        # specification has it rolled back, while some providers say XAER_RMERR for anything.
        return (
            BranchState.HEURISTIC_HAZARD if before == xa.XAER_RMERR else BranchState.COMMITTED,
            False,
        )
    if xa.is_rolled_back(code):
        return BranchState.HEURISTIC_ROLLBACK, False
    return _HEURISTICS.get(code, BranchState.WAITING), False


def to_commit_in_one_phase(code: int) -> Meaning:
    """Without a vote before. IDLE is a branch that is to be rolled back."""
    if code in (xa.XA_OK, xa.XA_HEURCOM):
        return BranchState.COMMITTED, code == xa.XA_HEURCOM
    if code in (xa.XAER_RMFAIL, xa.XAER_NOTA):
        # Not known to it: rolled back, or committed before by a client library that asked twice on
        # its own.
        return BranchState.UNKNOWN, False
    if code == xa.XA_HEURRB or xa.is_rolled_back(code):
        return BranchState.ROLLED_BACK, code == xa.XA_HEURRB
    return _HEURISTICS.get(code, BranchState.IDLE), False


def to_rollback(code: int) -> Meaning:
    """Of a branch that was not decided."""
    if code == xa.XA_HEURRB:
        return BranchState.ROLLED_BACK, True
    if code in (xa.XA_OK, xa.XAER_NOTA) or xa.is_rolled_back(code):
        return BranchState.ROLLED_BACK, False
    return _HEURISTICS.get(code, BranchState.LEFT), False


def to_ordered_rollback(code: int) -> Meaning:
    """Of a branch that was decided to commit, by an operator's order."""
    if code == xa.XA_HEURCOM:
        return BranchState.COMMITTED, True
    if code == xa.XA_OK or xa.is_rolled_back(code):
        return BranchState.HEURISTIC_ROLLBACK, False
    if code == xa.XAER_NOTA:
        # It may have been committed before.
        return BranchState.HEURISTIC_HAZARD, False
    return _HEURISTICS.get(code, BranchState.ROLLBACK_ORDERED), False
