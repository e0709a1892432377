"""A consumer over JMS (``messaging.provider.Consumer``).

JMS cannot refuse one message. A rejected message stays here, unacknowledged, and this consumer
redelivers it after its pause. A dead message is sent to the dead message queue, if the provider has
one, and then acknowledged.

Owns what arrived for one consumer. Its session says when a settlement takes effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall

from bridge.providers.jms import batches
from bridge.providers.redelivery import Redelivery
from gateway.messaging import dead as words
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, NotSupported
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Message, Unreadable
from gateway.messaging.provider import ConsumerSpec, Deliver, Mode, Session
from gateway.messaging.values import Value


class Delivery(NamedTuple):
    """A message that Java received.

    :param key: by which Java knows it.
    :param attempts: the delivery attempt, counted from 1.
    """

    key: int
    message: Message
    attempts: int


class ConsumerSession(Protocol):
    """The session of a consumer."""

    @property
    def mode(self) -> Mode: ...

    @property
    def dead_queue(self) -> Destination | None:
        """Where dead messages go; None where the provider has no such queue."""

    def ask(self, question: bytes) -> None:
        """Ask something of Java; nothing once it is closed."""

    def send(self, messages: Sequence[Message]) -> None: ...

    def later(self, seconds: float, work: Callable[[], None]) -> IDelayedCall:
        """Do something after a number of seconds."""

    def check_within(self, within: Session | None) -> None:
        """:raises NotSupported: this session cannot make an acknowledgement."""

    def check_individual(self, within: Session | None) -> None:
        """:raises NotSupported: deliveries cannot be settled one by one."""

    def forget(self, number: int) -> None:
        """Drop a consumer that is closed and has nothing outstanding."""


class JMSConsumer:
    """One consumer. Made by its session."""

    def __init__(
        self,
        session: ConsumerSession,
        number: int,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.spec = spec
        self.closed = False
        self._session = session
        self._number = number
        self._deliver = deliver
        self._failed = failed
        self._in_flight: InFlight[Delivery] = InFlight()
        self._redelivery: Redelivery[Delivery] = Redelivery(
            session.later, self._again, spec.redelivery, session.dead_queue is not None
        )
        self._running = False
        self._credit = 0
        self._counts_octets = False
        #: Received and not delivered: it was stopped, or a redelivery used the credit.
        self._waiting: deque[Delivery] = deque()
        self._due: deque[Delivery] = deque()
        self._shown = False
        #: Keys of automatic deliveries that can be settled once everything received was delivered.
        self._automatic: list[int] = []

    # --- for the session

    def arrived(self, deliveries: list[Delivery]) -> None:
        """Deliver messages that Java has received, as far as credit allows."""
        if not self.closed:
            self._waiting += deliveries
            self._hand()

    def shown(self) -> None:
        """The browser has reached its end."""
        self._shown = True
        self._hand()

    def ended(self, error: MessagingError) -> None:
        """It could not be opened, or has failed."""
        if not self.closed:
            self.closed = True
            self._clear()
            self._failed(error)

    def void(self) -> None:
        """Everything outstanding was given back."""
        self.discarded(list(self._waiting))
        self._clear()

    def discarded(self, deliveries: Sequence[Delivery]) -> None:
        """These were received and will not be delivered: return their credit."""
        if deliveries and not self.closed:
            octets = (
                sum([len(delivery.message.body) for delivery in deliveries])
                if self._counts_octets
                else 0
            )
            self._session.ask(batches.credit(self._number, len(deliveries), octets))

    def abandon(self) -> None:
        self.closed = True
        self._clear()

    def _clear(self) -> None:
        self._in_flight.clear()
        self._waiting.clear()
        self._due.clear()
        self._automatic.clear()
        self._redelivery.take()

    def _hand(self, stopped: bool = False) -> None:
        """Deliver as much as credit allows.

        :param stopped: also while it is stopped.
        """
        while (self._running or stopped) and self._credit > 0 and (self._due or self._waiting):
            if self._due:
                run = [self._due.popleft() for _ in range(min(self._credit, len(self._due)))]
                # Java still has this credit.
                self._session.ask(batches.credit(self._number, -len(run), 0))
            else:
                run = [
                    self._waiting.popleft() for _ in range(min(self._credit, len(self._waiting)))
                ]
            self._credit -= len(run)
            first = self._in_flight.next
            self._in_flight.add(first, run)
            attempts = [delivery.attempts for delivery in run]
            again = attempts if any(attempt > 1 for attempt in attempts) else None
            self._deliver(self, first, [delivery.message for delivery in run], again)
            self._settle_automatic()
        if self._shown and self._running and not self._waiting:
            self._shown = self._running = False
            self._deliver(self, self._in_flight.next, [], None)

    def _settle_automatic(self) -> None:
        if self._session.mode is Mode.AUTO and not self.closed:
            self._automatic += [delivery.key for delivery in self._in_flight.clear()]
            if not self._waiting and self._automatic:
                # JMS acknowledges everything that was received.
                self._settle(self._automatic)
                self._automatic = []

    # --- the seam

    def start(self) -> None:
        if not self.closed and not self._running:
            self._running = True
            self._session.ask(batches.switch(self._number, True))
            if self._waiting or self._due or self._shown:
                self._session.later(0, self._hand)

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._session.ask(batches.switch(self._number, False))

    def grant(self, messages: int, octets: int = 0) -> None:
        if messages < 0 or octets < 0:
            raise ValueError(f"credit is not negative: {messages} messages, {octets} octets")
        if self.closed:
            return
        self._credit += messages
        self._counts_octets |= octets > 0
        self._session.ask(batches.credit(self._number, messages, octets))
        if self._running and (self._waiting or self._due):
            self._session.later(0, self._hand)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        self._session.check_within(within)
        deliveries = self._in_flight.through(number)
        self._settle([delivery.key for delivery in deliveries])
        return len(deliveries)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        self._session.check_individual(within)
        self._settle([delivery.key for delivery in self._in_flight.take(numbers)])

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        self._session.check_individual(within)
        if dead is not None and self._session.dead_queue is None:
            raise NotSupported("dead messages")
        rejected = self._in_flight.take(numbers)
        pauses, buried = (
            self._redelivery.sort(rejected, delay_ms) if dead is None else ({}, rejected)
        )
        for delivery in buried:
            self._bury(delivery, dead or DeadReason.UNDELIVERABLE)
        for pause, deliveries in pauses.items():
            self._redelivery.delay(pause, deliveries)

    def close(self, requeue: bool = True) -> None:
        if not self.closed:
            self.closed = True
            self._running = False
            self._waiting.clear()
            self._session.ask(batches.shut(self._number, requeue))
        if requeue:
            if self._in_flight:
                self._session.ask(batches.shut(self._number, True))
            self._clear()
        if requeue or not self._in_flight:
            self._session.forget(self._number)

    def _settle(self, keys: Sequence[int]) -> None:
        if keys:
            self._session.ask(batches.settle(self._number, keys))

    def _again(self, deliveries: Sequence[Delivery]) -> None:
        self._due += [each._replace(attempts=each.attempts + 1) for each in deliveries]
        self._hand()

    def _bury(self, delivery: Delivery, reason: DeadReason) -> None:
        queue = self._session.dead_queue
        assert queue is not None, "reject has checked it"
        message = delivery.message
        told: dict[str, Value] = {
            words.UNDELIVERED_REASON: reason.value,
            words.DELIVERY_COUNT: delivery.attempts,
        }
        if isinstance(message, Unreadable):
            told |= {words.BODY_TRUNCATED: True, words.UNDELIVERED_EXCEPTION: message.reason}
        headers = message.headers.replace(
            destination=queue, properties={**message.headers.properties, **told}
        )
        self._session.send([Message(headers, message.body)])
        self._settle([delivery.key])
