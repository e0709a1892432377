"""A consumer (``messaging.provider.Consumer``): credit, delivery numbers, what is outstanding, and
what is delivered again.

Owns what the broker has sent for one consumer until it is settled. The frames are its slices'
business, when a settlement takes effect its session's.

STOMP has no way to give a message back while its subscription lasts. What is recovered or rejected
is therefore delivered again from here, by the redelivery policy, as JMS clients do it. Only when
nobody could be given it, because the consumer has no credit and nothing outstanding, the slices of
a queue are released, so that the broker gives it to others. Attempts are counted from what the
broker said of the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from twisted.logger import Logger

from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.mapping import covers, from_headers, is_wild
from bridge.providers.stomp.redelivery import Redelivery
from bridge.providers.stomp.subscriptions import Delivery, Slice
from bridge.providers.stomp.window import Window
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError, NotSupported, UnknownDelivery
from gateway.messaging.provider import Deliver, Mode, Session, Subscription

if TYPE_CHECKING:
    from bridge.providers.stomp.session import StompSession
    from bridge.providers.stomp.transaction import Transaction

#: Octets of memory of a message's objects, and of those of one of its headers, besides the octets
#: of both.
_MESSAGE_OCTETS: Final = 500
_HEADER_OCTETS: Final = 100


class StompConsumer:
    """One consumer. Made by its session.

    :param failed: of ``Session.consumer``.
    """

    _log: ClassVar = Logger(namespace="bridge.stomp")

    def __init__(
        self,
        session: StompSession,
        spec: Subscription,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.session = session
        self.spec = spec
        self.closed = False
        self._deliver = deliver
        self._failed = failed
        self._connection = session.connection
        self._dialect = session.connection.dialect
        queue = spec.destination.kind is Kind.QUEUE
        #: Others may get what it does not.
        self._shared = queue and not spec.browse
        self._pattern = (
            spec.destination.name if not queue and is_wild(spec.destination.name) else None
        )
        self._redelivery = Redelivery(
            self._connection.clock, spec.redelivery, self._dialect.keeps_dead, self._again
        )
        self._buffer: deque[Delivery] = deque()
        self._outstanding: dict[int, Delivery] = {}
        #: Settlements in transactions that are not over.
        self._held = 0
        self._next = 1
        self._credit = 0
        self._octets: int | None = None
        self._running = False
        self._browsed = False
        #: What an earlier consumer of the durable subscription was given and did not settle, which
        #: ActiveMQ does not tell.
        self._given = session.connection.given(spec.durable_name)
        #: Octets of memory, about, of the messages that wait here.
        self.buffered = 0
        self._window = Window(self)

    # --- the seam

    def start(self) -> None:
        if not self.closed:
            self._running = True
            self._connection.touch(self)

    def stop(self) -> None:
        self._running = False
        if not self.closed:
            self._connection.touch(self)

    def grant(self, messages: int, octets: int = 0) -> None:
        if messages < 0 or octets < 0:
            raise ValueError(f"credit is not negative: {messages} messages, {octets} octets")
        self._credit += messages
        if octets:
            self._octets = octets + (self._octets or 0)
        if not self.closed:
            self._connection.touch(self)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        transaction = self._transaction(within)
        if number not in self._outstanding:
            raise UnknownDelivery(number)
        numbers = []
        for each in self._outstanding:
            if each > number:
                break
            numbers.append(each)
        self._settle(numbers, transaction)
        return len(numbers)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        if not self._dialect.capabilities.individual:
            raise NotSupported("acknowledgement one by one")
        transaction = self._transaction(within)
        self._check(numbers)
        self._settle(numbers, transaction)

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        if not self._dialect.capabilities.individual:
            raise NotSupported("rejection")
        if delay_ms is not None and delay_ms < 0:
            raise ValueError(f"a delay is not negative: {delay_ms} ms")
        transaction = self._transaction(within)
        self._check(numbers)
        if transaction is not None and not self._dialect.acknowledges_within:
            if delay_ms is not None:
                raise NotSupported("rejection with a delay in a transaction")
            self._check_prefix(numbers)
        taken = self._take(numbers)
        if transaction is None:
            self.rejected(taken, delay_ms, dead)
        else:
            self._held += len(taken)
            transaction.reject(self, list(zip(numbers, taken, strict=True)), delay_ms, dead)

    def close(self, requeue: bool = True) -> None:
        if not self.closed:
            self.closed = True
            self._running = False
            self._connection.consumer_closed(self)
            if not requeue:
                self._keep()
        if requeue:
            self._buffer.extend(self._redelivery.take())
            for delivery in self._outstanding.values():
                delivery.again = True
                self._buffer.append(delivery)
            self._outstanding.clear()
        self._retire()

    # --- for the connection

    def arrived(self, slice: Slice, frame: Received) -> None:
        """A MESSAGE came for one of the slices."""
        _, headers, body, head = frame
        name = headers.get("ack") or headers.get("message-id", "")
        if slice.over:
            slice.arrived_late(name)
            return
        if headers.get("browser") == "end":
            self._browsed = True
        else:
            received = from_headers(
                headers, body, self._dialect, self.spec.destination.kind, self.spec.destination
            )
            attempts = received.attempts
            if self._given and received.message.message_id in self._given:
                attempts = max(attempts, 2)
            size = len(body) + head + _MESSAGE_OCTETS + _HEADER_OCTETS * len(headers)
            delivery = Delivery(slice, name, received.message, attempts, size)
            own = (
                self.spec.no_local
                and not self._dialect.no_local
                and received.origin == self._connection.origin
            )
            covered = self._pattern is None or covers(
                self._pattern, received.message.headers.destination.name
            )
            if own or not covered:
                self._drop(delivery)
                return
            self._buffer.append(delivery)
            self._count(size)
        self._connection.touched(self)

    def gone(self, slice: Slice) -> None:
        """Nothing arrives for a slice any more."""
        self._connection.forget_slice(slice)

    @property
    def waiting(self) -> int:
        """Messages that have come and were not delivered."""
        return len(self._buffer)

    def pump(self) -> None:
        """Deliver what may be delivered; then see to it that the broker sends as much as may be,
        and no more. Never called from inside a call.
        """
        while (
            self._running
            and self._credit > 0
            and self._buffer
            and (self._octets is None or self._octets > 0)
        ):
            run = self._run()
            if not run:
                continue
            first = self._next
            self._next += len(run)
            attempts = self._attempts(run)
            self._outstanding.update(zip(range(first, self._next), run, strict=True))
            self._hand(first, run, attempts)
        if self._running and self._browsed and not self._buffer:
            self._browsed = False
            self._deliver(self, self._next, [], None)
        if not self.closed and not self._connection.ending:
            self._fit()

    def subscribe(self) -> None:
        """Ask the broker now for what would be asked at the end of the turn. Delivers nothing."""
        if self._running and self._credit > 0 and not self._connection.ending:
            self._fit()

    def fail(self, error: MessagingError) -> None:
        """The broker refused or ended it."""
        if not self.closed:
            self.closed = True
            self._running = False
            self._connection.consumer_closed(self)
            self.session.forget(self)
            self._failed(error)

    def abandon(self) -> None:
        """The connection is over: whatever it has, the broker gives to others."""
        self.closed = True
        self._running = False
        self._redelivery.take()
        self._outstanding.clear()
        self._buffer.clear()
        self._count(-self.buffered)
        self._window.forget()

    # --- for sessions and transactions

    def recover(self) -> None:
        """Everything outstanding is to be delivered again; its numbers are void."""
        self.given_up([])

    def given_up(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """A transaction gave these settlements up: they are delivered again, with everything
        outstanding.
        """
        self._held -= len(deliveries)
        again = dict(sorted([*deliveries, *self._outstanding.items()]))
        self._outstanding.clear()
        self._again(list(again.values()))

    def restore(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """Settlements of these, in another session's transaction, were undone: they are outstanding
        again.
        """
        self._held -= len(deliveries)
        if self.closed and self.session.closed:
            self._buffer.extend([delivery for _, delivery in deliveries])
            self._retire()
            return
        self._outstanding.update(deliveries)
        self._outstanding = dict(sorted(self._outstanding.items()))

    def settled(self, count: int) -> None:
        """So many settlements in a transaction are no longer pending."""
        self._held -= count
        self._retire()

    def rejected(
        self, deliveries: Sequence[Delivery], delay_ms: int | None, dead: DeadReason | None
    ) -> None:
        """Carry a rejection out."""
        pauses, buried = (
            self._redelivery.sort(deliveries, delay_ms) if dead is None else ({}, deliveries)
        )
        for delivery in buried:
            delivery.slice.bury(delivery)
        for pause, group in pauses.items():
            if self.closed:
                self._buffer.extend(group)
            else:
                self._redelivery.delay(pause, group)
        self._retire()

    # --- within

    def _attempts(self, run: list[Delivery]) -> list[int] | None:
        """What is told of them: a number of which only the part on this side is known is told as
        2.
        """
        if all(delivery.attempts == 1 for delivery in run):
            return None
        most = 0x7FFF_FFFF if self._dialect.capabilities.delivery_count else 2
        return [min(delivery.attempts, most) for delivery in run]

    def _hand(self, first: int, run: list[Delivery], attempts: list[int] | None) -> None:
        try:
            self._deliver(self, first, [delivery.message for delivery in run], attempts)
        except Exception:  # noqa: BLE001
            # Its user broke the contract. What it was given stays outstanding, and others get
            # theirs.
            self._log.failure(
                "a consumer of {destination} failed on delivery",
                destination=str(self.spec.destination),
            )
            return
        if self.spec.browse:
            self._outstanding.clear()
        elif self.session.mode is Mode.AUTO and not self.closed and not self._connection.ending:
            for number in range(first, first + len(run)):
                delivery = self._outstanding.pop(number, None)
                if delivery is not None:
                    delivery.slice.acknowledge(delivery)

    def _run(self) -> list[Delivery]:
        """As many as credit allows of what waits, without those that have expired; those are
        acknowledged.
        """
        now = self._connection.now_ms()
        run: list[Delivery] = []
        while (
            self._buffer and len(run) < self._credit and (self._octets is None or self._octets > 0)
        ):
            delivery = self._buffer.popleft()
            size = len(delivery.message.body)
            self._count(-delivery.size)
            # Of a transacted subscription, ACK would settle what came before, too.
            if 0 < delivery.message.expires <= now and self.session.wire_transaction() is None:
                self._drop(delivery)
                continue
            delivery.again = False
            run.append(delivery)
            self._window.count(size)
            if self._octets is not None:
                self._octets -= size
        self._credit -= len(run)
        return run

    def _fit(self) -> None:
        """Have as many slices as credit and unsettled deliveries need, and none when what waits had
        better go to others.
        """
        if self._credit > 0 and self._running:
            self._window.fit(self._unsettled, self._credit, self._octets)
        elif (
            self._shared
            and not self._unsettled
            and (not self._running or any(delivery.again for delivery in self._buffer))
        ):
            self._release()

    @property
    def _unsettled(self) -> int:
        """How many deliveries the broker has not been told the outcome of, besides those that wait
        for credit.
        """
        return len(self._outstanding) + len(self._redelivery) + self._held

    def _transaction(self, within: Session | None) -> Transaction | None:
        """The transaction in which a settlement takes effect."""
        return self.session.transaction_for(within)

    def _check(self, numbers: Sequence[int]) -> None:
        seen: set[int] = set()
        for number in numbers:
            if number in seen or number not in self._outstanding:
                raise UnknownDelivery(number)
            seen.add(number)

    def _check_prefix(self, numbers: Sequence[int]) -> None:
        """Brokers whose transacted subscriptions acknowledge cumulatively know nothing else."""
        first = list(self._outstanding)[: len(numbers)]
        if sorted(numbers) != first:
            raise NotSupported("acknowledgement one by one in a transaction, except in order")

    def _take(self, numbers: Sequence[int]) -> list[Delivery]:
        return [self._outstanding.pop(number) for number in numbers]

    def _settle(self, numbers: Sequence[int], transaction: Transaction | None) -> None:
        if transaction is None:
            for delivery in self._take(numbers):
                delivery.slice.acknowledge(delivery)
            self._retire()
            return
        if not self._dialect.acknowledges_within:
            self._check_prefix(numbers)
        taken = self._take(numbers)
        self._held += len(taken)
        transaction.acknowledge(self, list(zip(numbers, taken, strict=True)))

    def _again(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.attempts += 1
            delivery.again = True
            self._count(delivery.size)
        self._buffer.extendleft(reversed(deliveries))
        if self.closed:
            self._retire()
        else:
            self._connection.touch(self)

    def _keep(self) -> None:
        """Closed, and what is outstanding may still be settled: take no more."""
        if not self._held and not self._redelivery:
            self._window.narrow({delivery.slice for delivery in self._outstanding.values()})

    def _retire(self) -> None:
        """Have nothing more to do with the broker, once it is closed and nothing can be settled any
        more.
        """
        if self.closed and not self._outstanding and not self._held and not self._connection.ending:
            self._buffer.extend(self._redelivery.take())
            self._release()
            self.session.forget(self)

    def _release(self) -> None:
        if self.spec.durable_name is not None:
            attempted = {
                delivery.message.message_id
                for delivery in self._buffer
                if delivery.again or delivery.attempts > 1
            }
            self._connection.gave(self.spec.durable_name, attempted)
        held, self._buffer = self._buffer, deque()
        self._count(-self.buffered)
        self._window.release(held)

    def _drop(self, delivery: Delivery) -> None:
        if not self.spec.browse:
            delivery.slice.acknowledge(delivery)

    def _count(self, octets: int) -> None:
        self.buffered += octets
        self._connection.buffered += octets
