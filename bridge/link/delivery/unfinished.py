"""What one link has left unfinished by XA, from one run to the next.

A reload makes the link anew, and nothing may overtake what was begun before.

Owns which of its transactions are not over yet, how their end is waited for, what is to be reported
of them late, and the messages that exist nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bridge.dead.chain import DeadMessage, NotBuried
from bridge.dead.message import whole
from bridge.link.pump import Buries
from bridge.xa.coordinator import Transaction
from bridge.xa.status import TransactionState

#: Most characters of a message in one line of the log.
_LINE: Final = 12_000
#: States of a transaction that is a link's still: later ones are recovery's, or an operator's.
_OPEN: Final = (
    TransactionState.ACTIVE,
    TransactionState.PREPARING,
    TransactionState.DECIDING,
    TransactionState.COMMITTING,
    TransactionState.ROLLING_BACK,
)


@dataclass(frozen=True, slots=True, eq=False)
class LostMessage:
    """A message whose transaction ended otherwise than was decided.

    :param tell: called when a dead message queue has it.
    """

    dead: DeadMessage
    tell: Callable[[], None]


class LostMessages:
    """Messages whose transaction did not end as it was decided.

    They are kept until a dead message queue has each of them.

    No broker delivers them again, so what is here is all there is of them; what no queue takes is
    in the log, whole. The link decides when to try again. There is never more than one transaction
    of them, as a link moves nothing while it keeps any.

    :param link: its name.
    """

    def __init__(self, link: str, dead_queues: Buries, log: Logger) -> None:
        self._link: Final = link
        self._dead_queues: Final = dead_queues
        self._log: Final = log
        self._kept: Final[list[LostMessage]] = []

    def __len__(self) -> int:
        """How many are in no dead message queue."""
        return len(self._kept)

    def keep(self, lost: Sequence[LostMessage]) -> None:
        self._kept.extend(lost)

    async def bury(
        self, lost: Sequence[LostMessage], buried: Callable[[DeadMessage], None]
    ) -> None:
        """Have these in a dead message queue, and those that are kept from before.

        :param buried: called with each that is in one now, for the run that has it there.
        :raises NotBuried: some are in none. They are kept, and each that is new is in the log,
            whole.
        """
        known = len(self._kept)
        self._kept.extend(lost)
        failure: NotBuried | None = None
        for number, each in enumerate(list(self._kept)):
            try:
                await self._dead_queues.bury(each.dead)
            except NotBuried as error:
                failure = error
                if number >= known:
                    self._log_whole(each.dead, error)
            else:
                if each in self._kept:
                    self._kept.remove(each)
                    each.tell()
                    buried(each.dead)
        if failure is not None:
            raise failure

    def _log_whole(self, dead: DeadMessage, error: NotBuried) -> None:
        text = whole(dead.message).decode("utf-8")
        parts = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
        for number, part in enumerate(parts, 1):
            self._log.error(
                "link {link}: message {id} is at its source no more, and may be at its target or not; it is kept as long as this bridge runs, and this is "
                "part {number} of {parts} of it: {part}\n{error}",
                link=self._link,
                id=dead.message.message_id,
                number=number,
                parts=len(parts),
                part=part,
                error=error,
            )


class OpenTransactions:
    """The transactions of the links of one name, of which one runs at a time.

    :param undecided: the messages of transactions that ended otherwise than was decided.
    """

    def __init__(self, undecided: LostMessages) -> None:
        self.undecided: Final = undecided
        self._begun: Sequence[Transaction] = ()
        #: Those that are decided and not committed everywhere, and who is to know when they are.
        self._decided: Sequence[
            tuple[Transaction, Callable[[], None], Callable[[], Sequence[LostMessage]]]
        ] = ()
        self._waiting: Final[dict[Transaction, Deferred[None]]] = {}

    @property
    def open(self) -> Sequence[Transaction]:
        """The transactions whose outcome is open, the oldest first."""
        return [one for one in self._begun if not one.over and one.state in _OPEN]

    @property
    def latest(self) -> Transaction | None:
        """Return the oldest transaction with an open outcome, or the last begun.

        What is behind the oldest waits for it.
        """
        return next(iter(self.open), self._begun[-1] if self._begun else None)

    def began(self, transaction: Transaction) -> None:
        """The link has begun another."""
        self._begun = (*self.open, transaction)

    def ended(self, transaction: Transaction) -> Deferred[None]:
        """Roll back an abandoned transaction, or wait for its commit.

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
        otherwise: Callable[[], Sequence[LostMessage]],
    ) -> None:
        """One is decided, and a resource manager has yet to hear of it.

        :param committed: called by :meth:`look` when it is committed everywhere.
        :param otherwise: called by it when it ended otherwise, as an operator ordered or a resource
            manager decided; gives its messages.
        """
        self._decided = (*self._decided, (transaction, committed, otherwise))

    def look(self) -> Sequence[LostMessage]:
        """Report those that have been committed everywhere since.

        :returns: the messages of those that ended otherwise, for a dead message queue.
        """
        decided, self._decided = (
            self._decided,
            [one for one in self._decided if one[0].state is TransactionState.WAITING],
        )
        lost: list[LostMessage] = []
        for transaction, committed, otherwise in decided:
            if transaction.state is TransactionState.COMMITTED:
                committed()
            elif transaction.state is not TransactionState.WAITING:
                lost += otherwise()
        return lost
