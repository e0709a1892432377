"""A consumer over AMQP 1.0 (``messaging.provider.Consumer``).

Owns what the broker has sent for one consumer until it is settled, and how much it may send.

The credit of the link is what is left of the consumer's, so the broker keeps the rest for others.
A consumer that is stopped takes it back by *drain* (section 2.6.7). Recovered and rejected messages
are redelivered here, by the redelivery policy, as JMS clients do it: so they come first and in
order, after their pause, which AMQP does not have. When the consumer is closed, the broker gets
back what was not settled: *released*, or *modified* with ``delivery-failed`` where its user had it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import proton
from twisted.logger import Logger

from bridge.providers.amqp.links import RoundTrip
from bridge.providers.amqp.mapping import from_bytes, too_large
from bridge.providers.amqp.receiver import ACCEPTED, FAILED, REJECTED, RELEASED, ReceiverLink
from bridge.providers.amqp.refusals import Refusal, refusal
from bridge.providers.amqp.state import ConnectionState
from bridge.providers.amqp.temporary import capability
from bridge.providers.amqp.transaction import Delivery, Transaction
from bridge.providers.answers import SessionAnswers
from bridge.providers.asked import Asked, Operation
from bridge.providers.credit import Credit, MeanSize, reported
from bridge.providers.exchanges import is_bound, received_from, unnamed
from bridge.providers.local_transactions import Settlement
from bridge.providers.redelivery import Redelivery
from bridge.providers.wildcards import covers, is_wild, with_hash
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Kind
from gateway.messaging.errors import (
    InvalidDestination,
    MessagingError,
    ProviderUnavailable,
    UnknownDelivery,
)
from gateway.messaging.exchanges import exchange_of
from gateway.messaging.inflight import InFlight
from gateway.messaging.provider import ConsumerSpec, Deliver, Mode, Session
from gateway.stomp.brokers import Wildcards

#: Bytes of memory of a message's objects, besides its own.
_MESSAGE_BYTES: Final = 1500
#: Milliseconds between attempts of messages that the policy would declare dead and the broker would
#: lose, unless the policy's longest pause is longer.
_SHORTEST_PAUSE_MS: Final = 1000
_SELECTOR: Final = "apache.org:selector-filter:string"
_NO_LOCAL: Final = "apache.org:no-local-filter:list"


class ConsumerSession(Protocol):
    """The session of a consumer."""

    @property
    def mode(self) -> Mode: ...

    @property
    def closed(self) -> bool: ...

    @property
    def answers(self) -> SessionAnswers: ...

    def transaction_for(self, within: Session | None) -> Transaction | None:
        """The transaction of a settlement; None if it takes effect at once."""

    def forget(self, consumer: AmqpConsumer) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""


class AmqpConsumer:
    """One consumer. Made by its session.

    :param failed: of ``Session.consumer``.
    """

    _log: ClassVar = Logger(namespace="bridge.amqp")

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
        self._peer = connection.peer
        queue = spec.destination.kind is Kind.QUEUE
        #: Others may get what it does not.
        self._shared = queue and not spec.browse
        self._wild = not queue and is_wild(spec.destination.name)
        #: What the broker may send more than. If ``a`` is covered by ``a.>``, it sends no more.
        self._pattern = spec.destination.name if self._wild and not spec.none_or_more else None
        #: Where messages are from that do not say it.
        self._from = spec.destination
        if self._peer.has_exchanges and not queue and exchange_of(spec.destination.name):
            # Others may be bound to it, so that messages of any come.
            self._pattern, self._from = None, unnamed(spec.destination)
        self._filters_own = spec.no_local and not self._peer.no_local
        self._redelivery: Redelivery[Delivery] = Redelivery(
            connection.clock.callLater,
            self._again,
            spec.redelivery,
            self._peer.keeps_dead,
            _SHORTEST_PAUSE_MS,
        )
        self._buffer: deque[Delivery] = deque()
        self._in_flight: InFlight[Delivery] = InFlight()
        #: Settlements in transactions that are not over.
        self._held = 0
        self._credit = Credit()
        self._sizes = MeanSize()
        self._running = False
        #: The broker has told that nothing is left for a browser, and its user knows it.
        self._browsed = self._browsed_told = False
        #: Bytes of memory, estimated, of the messages that wait here.
        self._buffered = 0
        #: The broker was sent outcomes that it does not confirm.
        self._unconfirmed = False
        self._attaching = session.answers.number()
        self._closing = 0
        self._link = ReceiverLink(
            connection.channel(),
            spec.durable_name or connection.new_name(),
            self,
            settled=spec.browse,
            second=not self._peer.settles_first,
            confirms=not self._peer.probe,
            drains=self._peer.drains,
            most=connection.options.max_message,
        )
        if not connection.temporaries.wait_for(spec.destination, self._named):
            self._link.begin(self._fill)

    def _named(self) -> None:
        """The broker has named the temporary destination, or will not."""
        if self.closed or self._connection.ending:
            return
        try:
            self._connection.temporaries.there(self.spec.destination)
        except InvalidDestination as error:
            self._link.drop()
            self.fail(error)
            return
        self._link.begin(self._fill)

    def _fill(self, source: Any) -> None:
        """Make the source of the link (section 3.5.3)."""
        spec, peer = self.spec, self._peer
        destination = spec.destination
        if peer.has_exchanges:
            destination = received_from(destination)
        wild = self._wild or spec.none_or_more
        if wild and peer.wildcards is Wildcards.HASH:
            destination = destination._replace(name=with_hash(destination.name, spec.none_or_more))
        source.address = peer.pattern(self._connection.temporaries.there(destination))
        if peer.has_exchanges and spec.queue is not None and spec.queue.exists:
            source.address = f"/amq{source.address}"
        queue = destination.kind is Kind.QUEUE
        if spec.durable_name is not None:
            source.durability = proton.Terminus.DELIVERIES
            source.expiry_policy = proton.Terminus.EXPIRE_NEVER
        elif queue and not destination.temporary and not peer.node_capabilities:
            # The broker makes a missing queue, and a durable one.
            source.durability = proton.Terminus.DELIVERIES
        if spec.browse:
            source.distribution_mode = proton.Terminus.DIST_MODE_COPY
        elif queue:
            source.distribution_mode = proton.Terminus.DIST_MODE_MOVE
        if peer.node_capabilities:
            source.capabilities.put_object(proton.symbol(capability(spec.destination)))
        filters: dict[Any, Any] = {}
        if spec.selector is not None:
            filters[proton.symbol("jms-selector")] = proton.Described(
                proton.symbol(_SELECTOR), spec.selector
            )
        if spec.no_local and peer.no_local:
            filters[proton.symbol("no-local")] = proton.Described(proton.symbol(_NO_LOCAL), [])
        if filters:
            source.filter.put_object(filters)

    # --- the seam

    def start(self) -> None:
        if not self.closed:
            self._running = True
            self._connection.turn.touch(self.pump)

    def stop(self) -> None:
        self._running = False
        if not self.closed:
            self._connection.turn.touch(self.pump)

    def grant(self, messages: int, octets: int = 0) -> None:
        self._credit.grant(messages, octets)
        if not self.closed:
            self._connection.turn.touch(self.pump)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        transaction = self.session.transaction_for(within)
        if number not in self._in_flight:
            raise UnknownDelivery(number)
        return self._acknowledge(self._in_flight.up_to(number), transaction)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        self._acknowledge(numbers, self.session.transaction_for(within))

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        if delay_ms is not None and delay_ms < 0:
            raise ValueError(f"a delay is not negative: {delay_ms} ms")
        transaction = self.session.transaction_for(within)
        taken = self._in_flight.take(numbers)
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
            self._connection.closed_durable(self.spec.durable_name, self)
            if not requeue:
                # Outstanding deliveries may still be settled: accept no more.
                self._link.drain()
        if requeue:
            for delivery in self._redelivery.take():
                self._buffer.append(delivery)
            for delivery in self._in_flight.clear():
                delivery.again = True
                self._buffer.append(delivery)
        self._retire()

    # --- for its link

    @property
    def full(self) -> bool:
        if self._connection.full and not self.closed:
            self._connection.unread[self._link] = None
            return True
        return False

    def arrived(self, data: bytes, size: int, delivery: Any) -> None:
        options = self._connection.options
        own = False
        if size > options.max_message:
            message, attempts = too_large(size, options.max_message, self._from), 1
        else:
            received = from_bytes(data, self._peer, self._from)
            message = self._connection.temporaries.received(received.message)
            attempts = received.attempts
            own = self._filters_own and received.origin == self._connection.origin
        arrived = Delivery(delivery, self._link, message, size + _MESSAGE_BYTES, attempts)
        if self.closed:
            self._outcome(arrived, RELEASED)
            return
        to = message.headers.destination
        wanted = (
            self._pattern is None
            or covers(self._pattern, to.name)
            or (self._peer.has_exchanges and is_bound(to))
        )
        if own or not wanted:
            self._drop(arrived)
            return
        self._buffer.append(arrived)
        self._count(arrived.size)
        self._connection.turn.touched(self.pump)

    def drained(self, left: bool) -> None:
        if self.spec.browse and left:
            self._browsed = True
        self._connection.turn.touched(self.pump)

    def ready(self) -> None:
        self._answer_attach(None)
        self._connection.turn.touched(self.pump)

    def refused(self, told: Refusal) -> None:
        spec, connection = self.spec, self._connection
        asked = Asked(
            Operation.SUBSCRIBE,
            connection.username,
            spec.destination,
            spec.selector,
            connection.client_id,
            spec.durable_name,
        )
        self.fail(refusal(asked, told))

    def gone(self) -> None:
        self._answer_attach(None)
        self._connection.leave(self._link.channel)
        if self._closing:
            self.session.answers.arrived(self._closing, None)
            self._closing = 0

    # --- for the connection

    def pump(self) -> None:
        """Deliver what may be delivered, then let the broker send more.

        Never called from inside a call.
        """
        while self._running and self._buffer and self._credit.left:
            run = self._run()
            if not run:
                continue
            first = self._in_flight.next
            attempts = reported(run, self._peer.delivery_count)
            self._in_flight.add(first, run)
            self._hand(first, run, attempts)
        if self._running and self._browsed and not self._browsed_told and not self._buffer:
            self._browsed_told = True
            self._deliver(self, self._in_flight.next, [], None)
        if not self.closed and not self._connection.ending:
            self._fit()

    def fail(self, error: MessagingError) -> None:
        """The broker refused or ended it."""
        self._answer_attach(error)
        self._connection.leave(self._link.channel)
        if self._closing:
            self.session.answers.arrived(self._closing, None)
            self._closing = 0
        if not self.closed:
            self.closed = True
            self._running = False
            self._connection.closed_durable(self.spec.durable_name, self)
            self._buffer.clear()
            self._count(-self._buffered)
            self._redelivery.take()
            self.session.forget(self)
            self._failed(error)

    def confirm(self) -> None:
        """Have completions wait until the broker has all outcomes."""
        connection, link = self._connection, self._link
        if self._unconfirmed and self._peer.probe and link.alive and not link.channel.closing:
            self._unconfirmed = False
            number = self.session.answers.number()

            def answered(told: Refusal | None) -> None:
                error = None if told is None else ProviderUnavailable(str(told))
                self.session.answers.arrived(number, error)

            RoundTrip(link.channel, connection.new_name(), self._peer.probe, answered)

    def _answer_attach(self, error: MessagingError | None) -> None:
        if self._attaching:
            number, self._attaching = self._attaching, 0
            self.session.answers.arrived(number, error)

    def abandon(self) -> None:
        """The connection has ended: the broker gives whatever this has to others."""
        self.closed = True
        self._running = False
        self._redelivery.take()
        self._in_flight.clear()
        self._buffer.clear()
        self._count(-self._buffered)

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
        if self.closed:
            for _, delivery in deliveries:
                delivery.again = True
                self._buffer.append(delivery)
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
            self._outcome(delivery, REJECTED)
        for pause, group in pauses.items():
            if self.closed:
                for delivery in group:
                    delivery.again = True
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
            for delivery in self._in_flight.clear():
                delivery.link.forget(delivery.engine)
        elif self.session.mode is Mode.AUTO and not self.closed and not self._connection.ending:
            for number in range(first, first + len(run)):
                if number in self._in_flight:
                    self._outcome(self._in_flight.pop(number), ACCEPTED)

    def _run(self) -> list[Delivery]:
        """Take as many waiting messages as credit allows.

        Accept those that have expired.
        """
        now = self._connection.now_ms()
        run: list[Delivery] = []
        credit = self._credit
        most, octets = credit.messages, credit.octets
        while self._buffer and len(run) < most and (octets is None or octets > 0):
            delivery = self._buffer.popleft()
            size = len(delivery.message.body)
            self._count(-delivery.size)
            if 0 < delivery.message.expires <= now:
                self._drop(delivery)
                continue
            delivery.again = False
            run.append(delivery)
            self._sizes.count(size)
            if octets is not None:
                octets -= size
        credit.messages, credit.octets = most - len(run), octets
        return run

    def _fit(self) -> None:
        """Let the broker send what credit allows, and give back the rest."""
        link = self._link
        wanted = 0
        if self._running:
            wanted = self._sizes.allowed(self._credit.messages, self._credit.octets)
            wanted -= len(self._buffer) + link.unread
        if wanted > 0 and self.spec.browse:
            if not self._browsed and not link.credit:
                link.drain(wanted)
        elif wanted > 0:
            link.fit(wanted)
        elif not self._running or self._credit.messages == 0:
            link.drain()
            if self._shared and not link.credit and not len(self._in_flight) and not self._held:
                again = any(delivery.again for delivery in self._buffer)
                if not self._running or again:
                    self._give_back()

    def _acknowledge(self, numbers: Sequence[int], transaction: Transaction | None) -> int:
        taken = self._in_flight.take(numbers)
        if transaction is None:
            for delivery in taken:
                self._outcome(delivery, ACCEPTED)
            self._retire()
        else:
            self._held += len(taken)
            numbered = list(zip(numbers, taken, strict=True))
            transaction.settlements.append(Settlement(self, numbered))
        return len(taken)

    def _outcome(self, delivery: Delivery, state: Any) -> None:
        """Give a delivery its outcome; completions wait for the broker."""
        if self._connection.ending:
            return
        answers, turn = self.session.answers, self._connection.turn
        number = answers.number()

        def confirmed(told: Refusal | None) -> None:
            error = None if told is None else ProviderUnavailable(str(told))
            answers.arrived(number, error)

        if not delivery.link.alive:
            gone = Refusal(text="the link of the delivery has ended")
            turn.soon(lambda: confirmed(gone))
        elif not delivery.link.settle(delivery.engine, state, confirmed):
            self._unconfirmed = True
            turn.soon(lambda: confirmed(None))

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
        """Close the link if it is closed and nothing can be settled."""
        if self.closed and not self._in_flight and not self._held and not self._connection.ending:
            self._buffer.extend(self._redelivery.take())
            if not self._link.over:
                self._closing = self.session.answers.number()
                if not self._link.begun:
                    self._link.drop()
                    self._connection.turn.soon(self.gone)
                elif self._peer.ends_sessions:
                    self._buffer.clear()
                    self._count(-self._buffered)
                    self._link.channel.close()
                else:
                    self._link.take_back()
                    self._give_back()
                    self._link.close(detach=self.spec.durable_name is not None)
            self.session.forget(self)

    def _give_back(self) -> None:
        held, self._buffer = self._buffer, deque()
        self._count(-self._buffered)
        for delivery in held:
            failed = delivery.again and self._peer.modifies
            self._outcome(delivery, FAILED if failed else RELEASED)

    def _drop(self, delivery: Delivery) -> None:
        if self.spec.browse:
            delivery.link.forget(delivery.engine)
        else:
            self._outcome(delivery, ACCEPTED)

    def _count(self, octets: int) -> None:
        self._buffered += octets
        self._connection.buffered += octets
