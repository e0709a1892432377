"""ACK and NACK (STOMP 1.2, "ACK" and "NACK"; Open MQ's Table 12-11).

Owns how a frame finds the delivery it speaks of, and what settling it means to each kind of
subscription. The delivery's own record decides, not the table of subscriptions: the first half of
an ``ack`` value names a subscription by number, and numbers are not used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import MessagingError, UnknownDelivery
from gateway.messaging.provider import Session as ProviderSession
from gateway.stomp.profiles import Nack, Profile
from gateway.stomp.refusals import CommandRefused, PartlySettled, Refusal
from gateway.stomp.session.receipts import Receipts
from gateway.stomp.session.subscription import Ack, Subscription
from gateway.stomp.session.subscriptions import Subscriptions
from gateway.stomp.session.transactions import Transaction, Transactions
from gateway.stomp.settings import ACK_TRANSACTION
from gateway.stomp.wire import Head, Version


class Settlement:
    """The acknowledgements of one connection.

    :param version: the connection's.
    :param profile: whether acknowledgements of subscriptions that are not transacted may be made
        within a transaction, and what NACK does.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        transactions: Transactions,
        receipts: Receipts,
        profile: Profile,
        version: Version,
    ) -> None:
        self._subscriptions: Final = subscriptions
        self._transactions: Final = transactions
        self._receipts: Final = receipts
        self._join: Final = profile.join_acknowledgements
        self._nack: Final = profile.nack
        self._nacks_one: Final = profile.nacks_one
        self._across: Final = profile.acknowledges_across
        #: ``id`` names the delivery, and nothing else does.
        self._strict: Final = profile.strict_acknowledgements and version is Version.V1_2
        #: ``subscription`` must be there, and be that of the delivery.
        self._compares: Final = (
            profile.strict_acknowledgements
            and version is Version.V1_1
            and version not in profile.ignores_subscription
        )
        self._tagged: Final = profile.tagged_ids
        self._uses_subscription: Final = version not in profile.ignores_subscription
        #: Individual acknowledgements of one subscription, which reach the provider together.
        self._gathered: list[int] = []
        self._of: Subscription | None = None

    def ack(self, head: Head) -> None:
        """Carry ACK out.

        :raises CommandRefused: no such delivery is outstanding, or not in this transaction.
        :raises MessagingError: the provider refuses.
        """
        given = head.headers
        subscription, number = self._find("ACK", given)
        transaction = given.get("transaction")
        receipt = given.get("receipt")
        if (
            transaction is None
            and not subscription.transacted
            and subscription.ack is Ack.INDIVIDUAL
        ):
            assert subscription.outstanding is not None
            try:
                subscription.outstanding.pop(number)
            except UnknownDelivery:
                raise _gone("ACK", given) from None
            if self._of is not subscription:
                self.flush()
                self._of = subscription
            self._gathered.append(number)
            if receipt is not None:
                self._give()
                self._confirm(subscription, receipt, in_transaction=False)
                self._subscriptions.settled(subscription)
            return
        self._carry_out("ACK", given, subscription, number)

    def nack(self, head: Head) -> None:
        """Carry NACK out: the redelivery policy decides what follows.

        With ``requeue:false`` the message is dead.

        For ``ack:client`` and transacted subscriptions it rejects all that ACK would acknowledge.

        :raises CommandRefused: as :meth:`ack`.
        :raises MessagingError: the provider refuses.
        """
        given = head.headers
        subscription, number = self._find("NACK", given)
        self._carry_out("NACK", given, subscription, number)

    def flush(self) -> None:
        """Give the provider what has gathered. :raises MessagingError: it refuses."""
        subscription = self._give()
        if subscription is not None:
            self._subscriptions.settled(subscription)

    def _give(self) -> Subscription | None:
        """As :meth:`flush`, but the caller tells the subscriptions.

        That may end the session that a receipt waits on.
        """
        subscription = self._of
        if subscription is not None:
            numbers, self._gathered, self._of = self._gathered, [], None
            subscription.consumer.acknowledge(numbers)
            subscription.settled(len(numbers))
        return subscription

    def _carry_out(
        self, command: str, given: dict[str, str], subscription: Subscription, number: int
    ) -> None:
        others: Sequence[Subscription] = ()
        if subscription.transacted:
            self._in_transaction(command, given, subscription, number)
        else:
            others = self._settle(command, given, subscription, number)
        receipt = given.get("receipt")
        in_transaction = subscription.transacted or "transaction" in given
        if receipt is not None:
            if others and not in_transaction:
                self._await(others, receipt)
            self._confirm(subscription, receipt, in_transaction)
        if not in_transaction:
            self._subscriptions.settled(subscription)
            for other in others:
                self._subscriptions.settled(other)

    def _find(self, command: str, given: dict[str, str]) -> tuple[Subscription, int]:
        value = given.get("id") or given.get("message-id") or given.get("ack")
        if not value or (self._strict and not given.get("id")):
            name = "id" if self._strict else "message-id"
            raise CommandRefused(
                f"{command} without id or message-id: one of them names the delivery",
                refusal=Refusal.NO_DELIVERY,
                subject=f'"{command}" must include the "{name}" header',
            )
        if self._tagged:
            value = value.rpartition("@@")[2]
        first, dash, second = value.partition("-")
        if dash and first.isdecimal() and second.isdecimal() and len(value) < 40:
            subscription = self._subscriptions.by_number.get(int(first))
            if (
                subscription is not None
                and self._compares
                and given.get("subscription") != subscription.id
            ):
                raise _gone(command, given)
            if subscription is not None and subscription.outstanding is not None:
                return subscription, int(second)
        return self._find_by_message(command, given, value)

    def _find_by_message(
        self, command: str, given: dict[str, str], value: str
    ) -> tuple[Subscription, int]:
        id = given.get("subscription") if self._uses_subscription else None
        if id is None and self._compares:
            raise CommandRefused(f"{command} without subscription, which STOMP 1.1 requires")
        candidates = self._subscriptions.for_message_id(id, "transaction" in given)
        if id is not None:
            if not candidates:
                raise CommandRefused(
                    f"{command} with subscription '{id[:100]}', which no subscription of this connection has"
                )
            if all(each.outstanding is None for each in candidates):
                raise CommandRefused(
                    f"{command} with subscription '{id[:100]}', which has ack:auto and acknowledges by itself"
                )
        # Some 1.0 clients escape what 1.0 does not.
        for name in (value, value.replace("\\c", ":")):
            for subscription in candidates:
                if subscription.outstanding is not None:
                    number = subscription.outstanding.number_of(name)
                    if number is not None:
                        return subscription, number
            for transaction in self._transactions:
                covered = transaction.covered(candidates, name)
                if covered is not None:
                    return covered
        raise _gone(command, given)

    def _settle(
        self, command: str, given: dict[str, str], subscription: Subscription, number: int
    ) -> Sequence[Subscription]:
        """For a subscription that is not transacted.

        :returns: the other subscriptions of which something was settled.
        """
        outstanding = subscription.outstanding
        assert outstanding is not None
        self.flush()
        identifier = given.get("transaction")
        transaction = None
        if identifier is not None:
            if not self._join:
                raise CommandRefused(
                    f"{command} with transaction '{identifier[:100]}' for subscription '{subscription.id[:100]}', which is not transacted: "
                    f"SUBSCRIBE in a transaction, or let the operator set {ACK_TRANSACTION.name}=join"
                )
            transaction = self._transactions.named(identifier, command)
        if number not in outstanding:
            if (
                command == "ACK"
                and transaction is not None
                and transaction.covers(subscription, number)
            ):
                return ()
            raise _gone(command, given)
        cumulative = subscription.ack is Ack.CLIENT
        if command == "NACK" and self._nacks_one:
            cumulative = False
        numbers = outstanding.up_to(number) if cumulative else [number]
        if not (cumulative and self._across):
            self._settle_these(command, given, subscription, numbers, cumulative, transaction)
            return ()
        others = self._before(subscription, outstanding.place_of(number))
        self._settle_these(command, given, subscription, numbers, True, transaction)
        for other, numbers in others:
            try:
                self._settle_these(command, given, other, numbers, True, transaction)
            except MessagingError as error:
                raise PartlySettled(command, str(error)) from error
        return [other for other, _ in others]

    def _before(
        self, subscription: Subscription, place: int
    ) -> list[tuple[Subscription, list[int]]]:
        """Return what other subscriptions have that was delivered before a place."""
        found: list[tuple[Subscription, list[int]]] = []
        for other in self._subscriptions.by_number.values():
            if other is not subscription and other.outstanding is not None:
                numbers = other.outstanding.before(place)
                if numbers:
                    found.append((other, numbers))
        return found

    def _settle_these(
        self,
        command: str,
        given: dict[str, str],
        subscription: Subscription,
        numbers: list[int],
        cumulative: bool,
        transaction: Transaction | None,
    ) -> None:
        """Settle deliveries of one subscription.

        :param cumulative: they are all up to the last of them.
        """
        outstanding = subscription.outstanding
        assert outstanding is not None
        within = None if transaction is None else transaction.session
        if command == "NACK":
            self._reject(subscription, numbers, given, within)
        elif cumulative and subscription.ack is Ack.CLIENT:
            subscription.consumer.acknowledge_through(numbers[-1], within)
        else:
            subscription.consumer.acknowledge(numbers, within)
        if transaction is not None:
            messages = [outstanding[each] for each in numbers]
            for each, message in zip(numbers, messages, strict=True):
                place = outstanding.place_of(each) if self._across else 0
                transaction.join(subscription, each, message, place)
                if command == "NACK":
                    transaction.rejected.append((subscription, each, message))
            self._transactions.settled(transaction, messages)
        for each in numbers:
            outstanding.pop(each)
        if transaction is not None and cumulative and command == "ACK":
            transaction.cover(subscription, numbers[-1])
        # Also within a transaction, or one could not settle more than the window holds.
        subscription.settled(len(numbers))

    def _in_transaction(
        self, command: str, given: dict[str, str], subscription: Subscription, number: int
    ) -> None:
        """For a transacted subscription: cumulative, in force with COMMIT."""
        outstanding = subscription.outstanding
        assert outstanding is not None
        self.flush()
        identifier = given.get("transaction")
        transaction = (
            self._transactions.only
            if identifier is None
            else self._transactions.named(identifier, command)
        )
        if transaction is None:
            raise CommandRefused(
                f"{command} for the transacted subscription '{subscription.id[:100]}', and no transaction is open"
            )
        if number not in outstanding:
            raise _gone(command, given)
        if number <= subscription.acked:
            return  # in this transaction already
        numbers = [
            each for each in range(subscription.acked + 1, number + 1) if each in outstanding
        ]
        if command == "NACK":
            self._reject(subscription, numbers, given, None)
        else:
            subscription.consumer.acknowledge_through(number)
        subscription.acked = number
        transaction.touched = True
        self._transactions.settled(transaction, [outstanding[each] for each in numbers])

    def _reject(
        self,
        subscription: Subscription,
        numbers: list[int],
        given: dict[str, str],
        within: ProviderSession | None,
    ) -> None:
        """Carry out what NACK, or its ``requeue``, means."""
        nack = self._nack
        requeue = given.get("requeue", "").strip().lower()
        if requeue == "false":
            nack = Nack.DEAD
        elif requeue == "true" and nack is Nack.DEAD:
            nack = Nack.POLICY
        subscription.consumer.reject(
            numbers,
            0 if nack is Nack.AGAIN else None,
            DeadReason.UNDELIVERABLE if nack is Nack.DEAD else None,
            within,
        )

    def _await(self, subscriptions: Sequence[Subscription], receipt: str) -> None:
        """Have the next RECEIPT wait for other subscriptions.

        Until what was asked of them is durable.
        """
        for subscription in subscriptions:
            ticket = self._receipts.open(None)
            subscription.session.completion(self._receipts.completing(ticket, receipt))

    def _confirm(self, subscription: Subscription, receipt: str, in_transaction: bool) -> None:
        ticket = self._receipts.open(receipt)
        if in_transaction:
            # In a transaction it becomes durable with COMMIT, whose own RECEIPT says so.
            self._receipts.release(ticket)
        else:
            subscription.session.completion(self._receipts.completing(ticket, receipt))


def _gone(command: str, given: dict[str, str]) -> CommandRefused:
    value = given.get("id") or given.get("message-id") or given.get("ack") or ""
    return CommandRefused(
        f"{command} for '{value[:100]}', which is not outstanding on this connection: it was settled or given back before, or never delivered"
    )
