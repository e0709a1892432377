"""BEGIN, COMMIT and ABORT: one transaction at a time.

Open MQ's Table 12-11.

Owns the transaction's identifier, the provider's transacted session, which sends and transacted
subscriptions share, and what has to be undone in the records when a transaction is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


class Transaction:
    """The transaction of one connection, open or not.

    :param transacted: the transacted subscriptions, in the order they were made.
    :param holds: told of the bytes that are in memory for what was sent and acknowledged in it.
    """

    def __init__(
        self,
        connection: Connection,
        receipts: Receipts,
        transacted: Callable[[], Iterable[Subscription]],
        holds: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._holds = holds
        self._receipts = receipts
        self._transacted = transacted
        self._session: ProviderSession | None = None
        #: The identifier of the open transaction.
        self.current: str | None = None
        #: Something was sent or settled in the open transaction.
        self.touched = False
        #: Bytes of what was sent and acknowledged in it.
        self.octets = 0
        #: Deliveries of other sessions' subscriptions settled within this transaction.
        self._joined: list[tuple[Subscription, int, Message]] = []
        #: By subscription, the delivery through which it was acknowledged cumulatively within this
        #: transaction.
        self._covered: dict[Subscription, int] = {}
        #: The numbers of joined deliveries, for those who acknowledge by the message.
        self._numbers: dict[tuple[Subscription, str], int] = {}

    @property
    def session(self) -> ProviderSession:
        """The transacted session, made when it is first needed.

        :raises MessagingError: the provider has no transactions.
        """
        if self._session is None:
            self._session = self._connection.session(Mode.TRANSACTED)
        return self._session

    def sent(self, messages: Sequence[Message]) -> None:
        """These were sent in it, and are in memory until it ends."""
        self.octets += sum([message.weight for message in messages])
        self._holds(self.octets)

    def settled(self, messages: Sequence[Message]) -> None:
        """Count settled deliveries, which are in memory until it ends."""
        self.octets += sum([message.weight for message in messages]) + _ACKNOWLEDGEMENT * len(
            messages
        )
        self._holds(self.octets)

    def require(self, identifier: str, command: str) -> None:
        """Check that ``transaction`` of ``command`` names the open transaction.

        :raises CommandRefused: it does not.
        """
        if self.current is None:
            raise CommandRefused(
                f"{command} in transaction '{identifier[:100]}', and none is open on this connection"
            )
        if identifier != self.current:
            raise CommandRefused(
                f"{command} in transaction '{identifier[:100]}', and the open one is '{self.current[:100]}'"
            )

    def begin(self, head: Head) -> None:
        """Open it: transacted subscriptions are delivered to from now on.

        :raises MessagingError: the provider has no transactions.
        """
        identifier = _identifier(head)
        _ = self.session
        self.current = identifier
        self._receipts.release(self._receipts.open(head.headers.get("receipt")))
        for subscription in self._transacted():
            subscription.free(Hold.NO_TRANSACTION)

    def commit(self, head: Head) -> None:
        """Make all that was sent and acknowledged durable, together.

        The RECEIPT follows when it is.

        Deliveries not acknowledged stay outstanding for the next transaction.
        """
        self.session.commit(self._close(head))
        # Should the commit fail, the connection ends; so the records may run ahead of it.
        for subscription in self._transacted():
            outstanding = subscription.outstanding
            if outstanding is not None:
                subscription.settled(len(outstanding.take(outstanding.up_to(subscription.acked))))
        self._joined = []

    def abort(self, head: Head) -> None:
        """Forget all that was sent and acknowledged.

        What transacted subscriptions had received comes again after the next BEGIN.
        """
        self.session.rollback(self._close(head))
        for subscription in self._transacted():
            subscription.given_back()
        for subscription, number, message in self._joined:
            if subscription.outstanding is not None:
                subscription.outstanding.restore([(number, message)])
                subscription.unsettled(1)
        self._joined = []

    def reject_alone(self, subscription: Subscription, number: int) -> bool:
        """Reject a delivery for good, although the transaction is ending.

        The delivery is a transacted subscription's, and the connection is ending, too.

        That takes a commit, so it is possible only while the transaction holds nothing else.
        Otherwise all comes again, and sooner or later this delivery does so first.

        :returns: whether it was possible.
        """
        if self.touched:
            return False
        subscription.consumer.reject([number])
        self.session.commit(_ignore)
        return True

    def join(self, subscription: Subscription, number: int, message: Message) -> None:
        """Note a settlement of a subscription that is not transacted."""
        self.touched = True
        self._joined.append((subscription, number, message))
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

    def joined(self, subscription: Subscription) -> bool:
        """Whether the open transaction holds settlements of that subscription."""
        return any(each is subscription for each, _, _ in self._joined)

    def _close(self, head: Head) -> Done:
        """End the transaction that the frame names.

        :returns: sends the RECEIPT, when the provider has answered.
        """
        self.require(_identifier(head), head.command)
        self.current = None
        self.touched = False
        if self.octets:
            self.octets = 0
            self._holds(0)
        self._covered = {}
        self._numbers = {}
        for subscription in self._transacted():
            subscription.hold(Hold.NO_TRANSACTION)
        receipt = head.headers.get("receipt")
        return self._receipts.completing(self._receipts.open(receipt), receipt)


def _identifier(head: Head) -> str:
    identifier = head.headers.get("transaction")
    if not identifier:
        raise CommandRefused(f"{head.command} without transaction")
    return identifier


def _ignore(error: MessagingError | None) -> None:
    """The rejection was not stored: the message comes, and is rejected, again."""
