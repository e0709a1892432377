"""BEGIN, COMMIT and ABORT (STOMP 1.2, "BEGIN"; Open MQ's Table 12-11).

Owns which transactions a connection has open, the provider's transacted sessions behind them, which
sends and transacted subscriptions share, and what has to be undone in the records when a
transaction is aborted.

By Open MQ's table there is one at a time. Where a profile allows several there are no transacted
subscriptions: acknowledgements join a transaction one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Done, Mode
from gateway.messaging.provider import Session as ProviderSession
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.session.receipts import Receipts
from gateway.stomp.session.subscription import Hold, Subscription
from gateway.stomp.wire import Head

#: What an acknowledgement counts for besides its message: its records here and at the provider.
_ACKNOWLEDGEMENT: Final = 512
#: Transactions that a connection may have open. Bytes are counted besides.
MOST_OPEN: Final = 100


class Transaction:
    """An open transaction.

    :param identifier: that BEGIN gave it.
    :param session: the provider's, which has no other transaction.
    """

    __slots__ = (
        "_covered",
        "_numbers",
        "asked",
        "identifier",
        "joined",
        "octets",
        "receipts",
        "rejected",
        "session",
        "touched",
    )

    def __init__(self, identifier: str, session: ProviderSession) -> None:
        self.identifier: Final = identifier
        self.session: Final = session
        #: What the latest of its frames that asked for a receipt has asked it by.
        self.asked: str | None = None
        #: Something was sent or settled in it.
        self.touched = False
        #: Bytes of what was sent and acknowledged in it.
        self.octets = 0
        #: Receipts of its SENDs that follow its COMMIT.
        self.receipts: Final[list[str]] = []
        #: Deliveries of other sessions' subscriptions settled within it, and their places.
        self.joined: Final[list[tuple[Subscription, int, Message, int]]] = []
        #: Those of them that NACK named.
        self.rejected: Final[list[tuple[Subscription, int, Message]]] = []
        #: By subscription, the delivery through which it was acknowledged cumulatively.
        self._covered: Final[dict[Subscription, int]] = {}
        #: The numbers of joined deliveries, for those who acknowledge by the message.
        self._numbers: Final[dict[tuple[Subscription, str], int]] = {}

    def join(self, subscription: Subscription, number: int, message: Message, place: int) -> None:
        """Note a settlement of a subscription that is not transacted.

        :param place: of the delivery, see :class:`~gateway.stomp.session.outstanding.Outstanding`.
        """
        self.touched = True
        self.joined.append((subscription, number, message, place))
        self._numbers[subscription, message.message_id] = number

    def cover(self, subscription: Subscription, number: int) -> None:
        """Note a cumulative acknowledgement up to ``number``."""
        self._covered[subscription] = max(number, self._covered.get(subscription, 0))

    def covers(self, subscription: Subscription, number: int) -> bool:
        """Return whether this transaction has acknowledged it cumulatively.

        That delivery or a later one was acknowledged.
        """
        return 0 < number <= self._covered.get(subscription, 0)

    def covered(
        self, candidates: Iterable[Subscription], message_id: str
    ) -> tuple[Subscription, int] | None:
        """Return the latest delivery of a message that it :meth:`covers`."""
        for subscription in candidates:
            number = self._numbers.get((subscription, message_id), 0)
            if self.covers(subscription, number):
                return subscription, number
        return None


class Transactions:
    """The transactions of one connection.

    :param transacted: the transacted subscriptions, in the order they were made.
    :param holds: told of the bytes that are in memory for what was sent and acknowledged in all.
    :param several: more than one may be open.
    :param repeats: what NACK named in one that is aborted is sent again.
    """

    def __init__(
        self,
        connection: Connection,
        receipts: Receipts,
        transacted: Callable[[], Iterable[Subscription]],
        holds: Callable[[int], None],
        several: bool,
        repeats: bool,
    ) -> None:
        self._connection: Final = connection
        self._repeats: Final = repeats
        self._holds: Final = holds
        self._receipts: Final = receipts
        self._transacted: Final = transacted
        self.several: Final = several
        self._open: Final[dict[str, Transaction]] = {}
        #: Sessions without a transaction; transacted subscriptions are the first one's.
        self._idle: Final[list[ProviderSession]] = []
        self._octets = 0

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def __iter__(self) -> Iterator[Transaction]:
        """Those that are open."""
        return iter(self._open.values())

    @property
    def only(self) -> Transaction | None:
        """The open one, where there are not several."""
        return next(iter(self._open.values()), None)

    def named(self, identifier: str, command: str) -> Transaction:
        """Return the open transaction that ``transaction`` of ``command`` names.

        :raises CommandRefused: no open transaction has that name.
        """
        found = self._open.get(identifier)
        if found is not None:
            return found
        only = self.only
        if only is None:
            raise CommandRefused(
                f"{command} in transaction '{identifier[:100]}', and none is open on this connection"
            )
        if len(self._open) > 1:
            raise CommandRefused(
                f"{command} in transaction '{identifier[:100]}', which is not open on this connection"
            )
        raise CommandRefused(
            f"{command} in transaction '{identifier[:100]}', and the open one is '{only.identifier[:100]}'"
        )

    def sent(self, session: ProviderSession, messages: Sequence[Message]) -> None:
        """Count what was sent in a session's transaction, until that ends."""
        for transaction in self._open.values():
            if transaction.session is session:
                self._count(transaction, sum([message.weight for message in messages]))

    def settled(self, transaction: Transaction, messages: Sequence[Message]) -> None:
        """Count settled deliveries, which are in memory until it ends."""
        octets = sum([message.weight for message in messages])
        self._count(transaction, octets + _ACKNOWLEDGEMENT * len(messages))

    def owe(self, session: ProviderSession, receipts: Sequence[str]) -> None:
        """Have RECEIPTs of a transaction's SENDs follow that of COMMIT.

        :param session: the transaction's.
        """
        for transaction in self._open.values():
            if transaction.session is session:
                transaction.receipts.extend(receipts)
                self._count(transaction, sum(map(len, receipts)) + _ACKNOWLEDGEMENT * len(receipts))

    def asked(self, session: ProviderSession, receipt: str) -> None:
        """Note that a SEND in a session's transaction has a RECEIPT.

        It may be refused yet: a broker that is connected to late says only then what it cannot do.
        """
        for transaction in self._open.values():
            if transaction.session is session:
                transaction.asked = receipt

    @property
    def latest_asked(self) -> str | None:
        """The receipt of the latest frame of an open transaction; None for none."""
        found = [each.asked for each in self._open.values() if each.asked is not None]
        return found[-1] if found else None

    def _count(self, transaction: Transaction, octets: int) -> None:
        transaction.octets += octets
        self._octets += octets
        self._holds(self._octets)

    def begin(self, head: Head) -> None:
        """Open one: transacted subscriptions are delivered to from now on.

        :raises CommandRefused: it is open, or too many are.
        :raises MessagingError: the provider has no transactions.
        """
        identifier = _identifier(head)
        if identifier in self._open:
            raise CommandRefused(
                f"BEGIN of transaction '{identifier[:100]}', which is open already"
            )
        if len(self._open) >= MOST_OPEN:
            raise CommandRefused(
                f"one transaction too many: {MOST_OPEN} is the limit of a connection"
            )
        session = self._idle.pop() if self._idle else self._connection.session(Mode.TRANSACTED)
        transaction = self._open[identifier] = Transaction(identifier, session)
        transaction.asked = head.headers.get("receipt")
        self._receipts.release(self._receipts.open(transaction.asked))
        for subscription in self._transacted():
            subscription.free(Hold.NO_TRANSACTION)

    def end(self, head: Head, commit: bool) -> None:
        """Carry COMMIT or ABORT out. :raises CommandRefused: it is not open."""
        if commit:
            self.commit(head)
        else:
            self.abort(head)

    def commit(self, head: Head) -> None:
        """Make all that was sent and acknowledged in one durable, together.

        The RECEIPT follows when it is.

        Deliveries not acknowledged stay outstanding for the next transaction.
        """
        transaction = self._close(head)
        transaction.session.commit(self._answer(head, transaction.receipts))
        # Should the commit fail, the connection ends; so the records may run ahead of it.
        for subscription in self._transacted():
            outstanding = subscription.outstanding
            if outstanding is not None:
                subscription.settled(len(outstanding.take(outstanding.up_to(subscription.acked))))

    def abort(self, head: Head) -> None:
        """Forget all that was sent and acknowledged in one.

        What transacted subscriptions had received comes again after the next BEGIN.
        """
        transaction = self._close(head)
        transaction.session.rollback(self._answer(head))
        for subscription in self._transacted():
            subscription.given_back()
        for subscription, number, message, place in transaction.joined:
            if subscription.outstanding is not None:
                subscription.outstanding.restore_at(place, number, message)
                subscription.unsettled(1)
        if self._repeats:
            for subscription, number, message in transaction.rejected:
                subscription.repeat(number, message)

    def reject_alone(self, subscription: Subscription, number: int) -> bool:
        """Reject a delivery for good, although the transaction is ending.

        The delivery is a transacted subscription's, and the connection is ending, too.

        That takes a commit, so it is possible only while the transaction holds nothing else.
        Otherwise all comes again, and sooner or later this delivery does so first.

        :returns: whether it was possible.
        """
        only = self.only
        if only is not None and only.touched:
            return False
        subscription.consumer.reject([number])
        subscription.session.commit(_ignore)
        return True

    def joined(self, subscription: Subscription) -> bool:
        """Whether an open transaction holds settlements of that subscription."""
        return any(
            each is subscription
            for transaction in self._open.values()
            for each, _, _, _ in transaction.joined
        )

    def _close(self, head: Head) -> Transaction:
        """End the transaction that the frame names."""
        transaction = self.named(_identifier(head), head.command)
        del self._open[transaction.identifier]
        self._idle.append(transaction.session)
        if transaction.octets:
            self._octets -= transaction.octets
            self._holds(self._octets)
        for subscription in self._transacted():
            subscription.hold(Hold.NO_TRANSACTION)
        return transaction

    def _answer(self, head: Head, others: Sequence[str] = ()) -> Done:
        """Send the RECEIPT when the provider has answered, and others behind it.

        Where it has failed none of them is sent.
        """
        receipt = head.headers.get("receipt")
        receipts = self._receipts
        done = receipts.completing(receipts.open(receipt), receipt)
        behind = [receipts.open(other) for other in others]
        if not behind:
            return done

        def answered(error: MessagingError | None) -> None:
            done(error)
            for ticket in behind:
                if error is None:
                    receipts.release(ticket)
                else:
                    receipts.drop(ticket)

        return answered


def _identifier(head: Head) -> str:
    identifier = head.headers.get("transaction")
    if not identifier:
        raise CommandRefused(f"{head.command} without transaction")
    return identifier


def _ignore(error: MessagingError | None) -> None:
    """The rejection was not stored: the message comes, and is rejected, again."""
