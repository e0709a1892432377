"""What one link has under way by XA, from one run to the next, whichever object is the link: a
reload makes it anew, and nothing may overtake what was begun before.

Owns which of its transactions are not over yet, how their end is waited for, and what is to be told
of it late; and it has the messages that nobody else has any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from bridge.once.undecided import Lost, Undecided
from bridge.xa.coordinator import Transaction
from bridge.xa.status import TransactionState

#: States of a transaction that is a link's still: later ones are recovery's, or an operator's.
_OPEN: Final = (
    TransactionState.ACTIVE,
    TransactionState.PREPARING,
    TransactionState.DECIDING,
    TransactionState.COMMITTING,
    TransactionState.ROLLING_BACK,
)


class UnderWay:
    """That of the links of one name, of which one runs at a time.

    :param undecided: the messages of transactions that ended otherwise than was decided.
    """

    def __init__(self, undecided: Undecided) -> None:
        self.undecided: Final = undecided
        self._begun: Sequence[Transaction] = ()
        #: Those that are decided and not committed everywhere, and who is to know when they are.
        self._decided: Sequence[
            tuple[Transaction, Callable[[], None], Callable[[], Sequence[Lost]]]
        ] = ()
        self._waiting: Final[dict[Transaction, Deferred[None]]] = {}

    @property
    def open(self) -> Sequence[Transaction]:
        """The transactions whose outcome is open, the oldest first."""
        return [one for one in self._begun if not one.over and one.state in _OPEN]

    @property
    def shown(self) -> Transaction | None:
        """The one to be seen: the oldest whose outcome is open, as what is behind it waits for it;
        or else the last that was begun.
        """
        return next(iter(self.open), self._begun[-1] if self._begun else None)

    def began(self, transaction: Transaction) -> None:
        """The link has begun another."""
        self._begun = (*self.open, transaction)

    def ended(self, transaction: Transaction) -> Deferred[None]:
        """Have one rolled back that nobody works on any more, or wait for its commit, if that is
        under way.

        :returns: fires when its outcome is known. Only the one that was returned last does.
        """
        is_waited_for = transaction in self._waiting
        waiter: Deferred[None] = Deferred()
        self._waiting[transaction] = waiter
        if not is_waited_for:
            Deferred.fromCoroutine(transaction.rollback()).addCallback(
                lambda _: self._waiting.pop(transaction).callback(None)
            )
        return waiter

    def waits(
        self,
        transaction: Transaction,
        committed: Callable[[], None],
        otherwise: Callable[[], Sequence[Lost]],
    ) -> None:
        """One is decided, and a resource manager has yet to hear of it.

        :param committed: called by :meth:`look` when it is committed everywhere. :param otherwise:
            called by it when it ended otherwise, as an operator ordered or a resource manager
            decided; gives its messages.
        """
        self._decided = (*self._decided, (transaction, committed, otherwise))

    def look(self) -> Sequence[Lost]:
        """Tell of those that have been committed everywhere since. :returns: the messages of those
        that ended otherwise, for a dead message queue.
        """
        decided, self._decided = (
            self._decided,
            [one for one in self._decided if one[0].state is TransactionState.WAITING],
        )
        lost: list[Lost] = []
        for transaction, committed, otherwise in decided:
            if transaction.state is TransactionState.COMMITTED:
                committed()
            elif transaction.state is not TransactionState.WAITING:
                lost += otherwise()
        return lost
