"""Log lines that remind of transactions which need an operator.

Owns which states those are, how long one may last before it is logged, and what is said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bridge.xa.status import BranchState, TransactionState, TransactionStatus
from bridge.xa.transaction_state import UNFINISHED
from gateway.reactor.clocks import wall_ms

#: Seconds between two looks.
LOOK_S: Final = 20.0
#: Seconds that a transaction may be in such a state before it is logged; most are over sooner.
PATIENCE_S: Final = 60.0
#: Seconds until it is logged again.
REPEAT_S: Final = 3600.0


class TransactionReminders:
    """Log which transactions need an operator, after a minute, then hourly.

    They are those that wait for a resource manager, or are rolled back and it does not answer; that
    are heuristic, or in doubt; and those whose resource managers take too long to answer. Looks at
    them until :meth:`stop`.

    :param reactor: Twisted's, or a clock.
    :param bridge: the name of the bridge whose they are.
    :param transactions: gives them as they are now.
    :param log: the bridge's.
    """

    def __init__(
        self,
        reactor: Any,
        bridge: str,
        transactions: Callable[[], Sequence[TransactionStatus]],
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self._bridge: Final = bridge
        self._transactions: Final = transactions
        self._log: Final = log
        #: When each was logged last, by its id.
        self._logged: dict[str, float] = {}
        #: Since when each is as it is, by its id and its time stamp.
        self._since: dict[tuple[str, int], float] = {}
        self._next: IDelayedCall = reactor.callLater(LOOK_S, self._look)

    def stop(self) -> None:
        """Log nothing more. Idempotent."""
        if self._next.active():
            self._next.cancel()

    def _look(self) -> None:
        now = self._reactor.seconds()
        logged, self._logged = self._logged, {}
        known, self._since = self._since, {}
        for transaction in self._transactions():
            # Only the wall clock outlives a process; once seen, its age is measured by the clock of
            # timers.
            key = transaction.id, transaction.since_ms
            since = self._since[key] = known.get(
                key, now - max(0, wall_ms(self._reactor) - transaction.since_ms) / 1000
            )
            words = _words(self._bridge, transaction)
            if not words or now - since < PATIENCE_S:
                continue
            at = logged.get(transaction.id)
            if at is None or now - at >= REPEAT_S:
                self._log.warn("Transaction {id} {words}", id=transaction.id, words=words)
                at = now
            self._logged[transaction.id] = at
        self._next = self._reactor.callLater(LOOK_S, self._look)


def _words(bridge: str, transaction: TransactionStatus) -> str:
    """Return what a transaction needs; "" for nothing."""
    match transaction.state:
        case TransactionState.WAITING:
            waiting = ", ".join(
                f"'{branch.ref_name}'"
                for branch in transaction.branches
                if branch.state in UNFINISHED
            )
            return (
                f"waits for {waiting}: it is decided, and is completed when that resource manager is back; for one that never will be there is "
                f"imqbridgemgr commit transaction -bn {bridge} -tid {transaction.id}"
            )
        case TransactionState.ROLLING_BACK:
            left = ", ".join(
                f"'{branch.ref_name}'"
                for branch in transaction.branches
                if branch.state == BranchState.LEFT
            )
            if not left:
                return _hangs(transaction, BranchState.ROLLING_BACK)
            return f"is to be rolled back, and {left} has not answered to that: it may hold the branch, and its messages, until it has"
        case TransactionState.HEURISTIC:
            branches = ", ".join(
                f"'{branch.ref_name}' {branch.state}" for branch in transaction.branches
            )
            return (
                f"is heuristic: {branches}; see what became of its messages, then have it forgotten: "
                f"imqbridgemgr forget transaction -bn {bridge} -tid {transaction.id}"
            )
        case TransactionState.IN_DOUBT:
            return "is in doubt: its decision could not be written to the log; a new start of the bridge reads how it goes on"
        case TransactionState.PREPARING:
            return _hangs(transaction, BranchState.PREPARING)
        case TransactionState.COMMITTING:
            return _hangs(transaction, BranchState.COMMITTING, "it is decided, and ")
        case TransactionState.DECIDING:
            return (
                f"is {transaction.state} for long: all have prepared it, and the decision waits for the log's disk, or for the transaction before "
                "to be committed"
            )
        case _:
            return ""


def _hangs(transaction: TransactionStatus, asked: BranchState, so_far: str = "") -> str:
    silent = ", ".join(
        f"'{branch.ref_name}'" for branch in transaction.branches if branch.state == asked
    )
    return f"is {transaction.state} for long: {so_far}{silent or 'a resource manager'} has not answered; what is behind its messages waits for it"
