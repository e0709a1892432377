"""A consumer over STOMP (``messaging.provider.Consumer``).

Owns what the broker has sent for one consumer until it is settled. Its subscriptions write the
frames, its session says when a settlement takes effect.

STOMP cannot give a message back while its subscription lasts. So the consumer itself redelivers
recovered and rejected messages, by the redelivery policy, as JMS clients do. It releases the
subscriptions of a queue, so that the broker gives the messages to others, only when it has no
credit and nothing outstanding. Attempts are counted from what the broker said of the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol

from twisted.logger import Logger

from bridge.providers.credit import Credit, reported
from bridge.providers.exchanges import is_bound, unnamed
from bridge.providers.local_transactions import Settlement
from bridge.providers.redelivery import Redelivery
from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.mapping import from_headers
from bridge.providers.stomp.state import ConnectionState
from bridge.providers.stomp.subscriptions import Delivery, Line, WireSubscription
from bridge.providers.stomp.transaction import Transaction
from bridge.providers.stomp.window import Window
from bridge.providers.wildcards import covers, is_wild
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, NotSupported, UnknownDelivery
from gateway.messaging.exchanges import exchange_of
from gateway.messaging.inflight import InFlight
from gateway.messaging.provider import ConsumerSpec, Deliver, Mode, Session

#: Bytes of memory of a message's objects, and of those of one of its headers, besides the bytes of
#: both.
_MESSAGE_BYTES: Final = 500
_HEADER_BYTES: Final = 100
#: Milliseconds between attempts of messages that the policy would declare dead and the broker would
#: lose, unless the policy's longest pause is longer.
_SHORTEST_PAUSE_MS: Final = 1000


class ConsumerSession(Line, Protocol):
    """The session of a consumer."""

    @property
    def closed(self) -> bool: ...

    def transaction_for(self, within: Session | None) -> Transaction | None:
        """The transaction of a settlement; None if it takes effect at once."""

    def forget(self, consumer: StompConsumer) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""


class StompConsumer:
    """One consumer. Made by its session.

    :param failed: of ``Session.consumer``.
    """

    _log: ClassVar = Logger(namespace="bridge.stomp")

    def __init__(
        self,
        session: ConsumerSession,
        connection: ConnectionState,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.session = session
        self.spec = spec
        self.closed = False
        self._deliver = deliver
        self._failed = failed
        self._connection = connection
        self._dialect = connection.dialect
        queue, name = spec.destination.kind is Kind.QUEUE, spec.destination.name
        #: Others may get what it does not.
        self._shared = queue and not spec.browse and not spec.exclusive
        if spec.queue is not None:
            # One that is declared may go with its last subscription.
            self._shared = self._shared and spec.queue.exists and not spec.queue.is_stream
        exchange = exchange_of(name) if self._dialect.has_exchanges and not queue else None
        #: What the broker may send more than. If ``a`` is covered by ``a.>``, it sends no more. To an
        #: exchange others may be bound, so that messages of any come.
        exact = not queue and is_wild(name) and not spec.none_or_more and exchange is None
        self._pattern = name if exact else None
        #: Where messages are from whose own destination has no name here.
        self._named = unnamed(spec.destination) if exchange is not None else spec.destination
        self._filters_own = spec.no_local and not self._dialect.no_local
        self._redelivery: Redelivery[Delivery] = Redelivery(
            connection.clock.callLater,
            self._again,
            spec.redelivery,
            self._dialect.keeps_dead,
            _SHORTEST_PAUSE_MS,
        )
        self._buffer: deque[Delivery] = deque()
        self._in_flight: InFlight[Delivery] = InFlight()
        #: Settlements in transactions that are not over.
        self._held = 0
        self._credit = Credit()
        self._running = False
        #: It is subscribed although it has not been started yet, as somebody waits to hear whether
        #: the broker takes it.
        self._early = False
        #: It was neither started nor stopped.
        self._new = True
        self._browsed = False
        #: Ids of messages that an earlier consumer of the durable subscription was given and did
        #: not settle.
        self._attempted = connection.durables.attempted.pop(spec.durable_name or "", set())
        #: Bytes of memory, estimated, of the messages that wait here.
        self._buffered = 0
        self._window = Window(self, spec, session, connection)

    # --- the seam

    def start(self) -> None:
        if not self.closed:
            self._running = True
            self._new = self._early = False
            self._connection.turn.touch(self.pump)

    def stop(self) -> None:
        self._running = self._new = self._early = False
        if not self.closed:
            self._connection.turn.touch(self.pump)

    def grant(self, messages: int, octets: int = 0) -> None:
        self._credit.grant(messages, octets)
        if not self.closed:
            self._connection.turn.touch(self.pump)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        transaction = self.session.transaction_for(within)
        if transaction is None:
            return self._acknowledge(self._in_flight.through(number))
        if number not in self._in_flight:
            raise UnknownDelivery(number)
        return self._settle(self._in_flight.up_to(number), transaction)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        if not self._dialect.individual:
            raise NotSupported("acknowledgement one by one")
        self._settle(numbers, self.session.transaction_for(within))

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        if not self._dialect.individual:
            raise NotSupported("rejection")
        if delay_ms is not None and delay_ms < 0:
            raise ValueError(f"a delay is not negative: {delay_ms} ms")
        transaction = self.session.transaction_for(within)
        cumulative = transaction is not None and not self._dialect.acknowledges_within
        if cumulative and delay_ms is not None:
            raise NotSupported("rejection with a delay in a transaction")
        taken = self._take(numbers, transaction)
        if transaction is None:
            self.rejected(taken, delay_ms, dead)
        else:
            self._held += len(taken)
            numbered = list(zip(numbers, taken, strict=True))
            transaction.settlements.append(Settlement(self, numbered, True, delay_ms, dead))

    def close(self, requeue: bool = True) -> None:
        if not self.closed:
            self.closed = True
            self._running = False
            self._connection.durables.closed(self.spec.durable_name, self)
            if not requeue and not self._held and not self._redelivery:
                # Outstanding deliveries may still be settled: accept no more.
                self._window.narrow(
                    {delivery.subscription for _, delivery in self._in_flight.items()}
                )
        if requeue:
            self._buffer.extend(self._redelivery.take())
            for delivery in self._in_flight.clear():
                delivery.again = True
                self._buffer.append(delivery)
        self._retire()

    # --- for the connection

    def arrived(self, subscription: WireSubscription, frame: Received) -> None:
        """A MESSAGE arrived for one of its subscriptions."""
        headers = frame.headers
        name = headers.get("ack") or headers.get("message-id", "")
        if subscription.over:
            subscription.arrived_late(name)
            return
        if headers.get("browser") == "end":
            self._browsed = True
        else:
            message, attempts, origin = from_headers(
                headers, frame.body, self._dialect, self._named.kind, self._named
            )
            if self._attempted and message.message_id in self._attempted:
                attempts = max(attempts, 2)
            delivery = Delivery(subscription, name, message, attempts, _memory(frame))
            own = self._filters_own and origin == self._connection.origin
            if own or not self._wants(message.headers.destination):
                self._drop(delivery)
                return
            self._buffer.append(delivery)
            self._count(delivery.size)
        self._connection.turn.touched(self.pump)

    def _wants(self, destination: Destination) -> bool:
        """Whether a message to there is one of those that it asked for.

        What was sent to another exchange or a queue has come by a binding.
        """
        return (
            self._pattern is None
            or covers(self._pattern, destination.name)
            or (self._dialect.has_exchanges and is_bound(destination))
        )

    @property
    def waiting(self) -> int:
        """Messages that have arrived and were not delivered."""
        return len(self._buffer)

    def pump(self) -> None:
        """Deliver what may be delivered, then ask the broker for more.

        Never called from inside a call.
        """
        while self._running and self._buffer and self._credit.left:
            run = self._run()
            if not run:
                continue
            first = self._in_flight.next
            attempts = reported(run, self._dialect.delivery_count)
            self._in_flight.add(first, run)
            self._hand(first, run, attempts)
        if self._running and self._browsed and not self._buffer:
            self._browsed = False
            self._deliver(self, self._in_flight.next, [], None)
        if not self.closed and not self._connection.ending:
            self._fit()

    def subscribe(self) -> None:
        """Ask the broker now for what the end of the turn would ask.

        Delivers nothing. A client's consumer is subscribed before it is started, as its RECEIPT
        says that the broker has taken it.
        """
        if self.closed or self._connection.ending:
            return
        self._early = self._new and self._connection.for_clients
        if self._credit.messages > 0 and (self._running or self._early):
            self._fit()

    def fail(self, error: MessagingError) -> None:
        """The broker refused or ended it."""
        if not self.closed:
            self.closed = True
            self._running = False
            self._connection.durables.closed(self.spec.durable_name, self)
            self.session.forget(self)
            self._failed(error)

    def abandon(self) -> None:
        """The connection has ended: the broker gives whatever this has to others."""
        self.closed = True
        self._running = False
        self._redelivery.take()
        self._in_flight.clear()
        self._buffer.clear()
        self._count(-self._buffered)
        self._window.drop()

    # --- for sessions and transactions

    def given_up(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """Redeliver these and everything outstanding.

        The transaction of the consumer's session was undone.
        """
        self._held -= len(deliveries)
        self._in_flight.restore(deliveries)
        self._again(self._in_flight.clear())

    def restore(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """Make these outstanding again.

        Their settlements in another session's transaction were undone.
        """
        self._held -= len(deliveries)
        if self.closed and self.session.closed:
            self._buffer.extend([delivery for _, delivery in deliveries])
            self._retire()
            return
        self._in_flight.restore(deliveries)

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
            delivery.bury()
        for pause, group in pauses.items():
            if self.closed:
                self._buffer.extend(group)
            else:
                self._redelivery.delay(pause, group)
        self._retire()

    # --- within

    def _hand(self, first: int, run: list[Delivery], attempts: list[int] | None) -> None:
        try:
            self._deliver(self, first, [delivery.message for delivery in run], attempts)
        except Exception:  # noqa: BLE001
            # Its user broke the contract. The deliveries stay outstanding, and other consumers get
            # theirs.
            self._log.failure(
                "a consumer of {destination} failed on delivery",
                destination=str(self.spec.destination),
            )
            return
        if self.spec.browse:
            self._in_flight.clear()
        elif self.session.mode is Mode.AUTO and not self.closed and not self._connection.ending:
            for number in range(first, first + len(run)):
                if number in self._in_flight:
                    self._in_flight.pop(number).acknowledge()

    def _run(self) -> list[Delivery]:
        """Take as many waiting messages as credit allows.

        Acknowledge those that have expired.
        """
        now = self._connection.now_ms()
        run: list[Delivery] = []
        credit = self._credit
        most, octets = credit.messages, credit.octets
        while self._buffer and len(run) < most and (octets is None or octets > 0):
            delivery = self._buffer.popleft()
            size = len(delivery.message.body)
            self._count(-delivery.size)
            # ACK of a transacted subscription would settle everything before it, too.
            if 0 < delivery.message.expires <= now and self.session.wire_transaction() is None:
                self._drop(delivery)
                continue
            delivery.again = False
            run.append(delivery)
            self._window.count(size)
            if octets is not None:
                octets -= size
        credit.messages, credit.octets = most - len(run), octets
        return run

    def _fit(self) -> None:
        """Have as many subscriptions as credit and unsettled deliveries need.

        Have none when the waiting messages should go to others.
        """
        wanted = self._running or self._early
        if self._credit.messages > 0 and wanted:
            self._window.fit(self._unsettled, self._credit.messages, self._credit.octets)
        elif (
            self._shared
            and not self._unsettled
            and (not wanted or any(delivery.again for delivery in self._buffer))
        ):
            self._release()

    @property
    def _unsettled(self) -> int:
        """Deliveries whose outcome the broker does not know.

        Those that wait for credit are not counted.
        """
        return len(self._in_flight) + len(self._redelivery) + self._held

    def _take(self, numbers: Sequence[int], transaction: Transaction | None) -> list[Delivery]:
        """Take deliveries out, to settle them.

        Transacted subscriptions of some brokers acknowledge cumulatively and not otherwise.
        """
        taken = self._in_flight.take(numbers)
        cumulative = transaction is not None and not self._dialect.acknowledges_within
        if cumulative and self._in_flight.up_to(max(numbers, default=0)):
            self._in_flight.restore(list(zip(numbers, taken, strict=True)))
            raise NotSupported("acknowledgement one by one in a transaction, except in order")
        return taken

    def _settle(self, numbers: Sequence[int], transaction: Transaction | None) -> int:
        taken = self._take(numbers, transaction)
        if transaction is None:
            return self._acknowledge(taken)
        self._held += len(taken)
        numbered = list(zip(numbers, taken, strict=True))
        transaction.settlements.append(Settlement(self, numbered))
        return len(taken)

    def _acknowledge(self, deliveries: list[Delivery]) -> int:
        for delivery in deliveries:
            delivery.acknowledge()
        self._retire()
        return len(deliveries)

    def _again(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.attempts += 1
            delivery.again = True
            self._count(delivery.size)
        self._buffer.extendleft(reversed(deliveries))
        if self.closed:
            self._retire()
        else:
            self._connection.turn.touch(self.pump)

    def _retire(self) -> None:
        """Release the subscriptions if it is closed and nothing can be settled."""
        if self.closed and not self._in_flight and not self._held and not self._connection.ending:
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
            self._connection.durables.attempted[self.spec.durable_name] = attempted
        held, self._buffer = self._buffer, deque()
        self._count(-self._buffered)
        self._window.release(held)

    def _drop(self, delivery: Delivery) -> None:
        if not self.spec.browse:
            delivery.acknowledge()

    def _count(self, octets: int) -> None:
        self._buffered += octets
        self._connection.buffered += octets


def _memory(frame: Received) -> int:
    """Estimate the bytes of memory of a message."""
    return len(frame.body) + frame.head + _MESSAGE_BYTES + _HEADER_BYTES * len(frame.headers)
