"""Local transactions: what was sent and settled in one, and how it is told to the broker.

Owns the frames from BEGIN to COMMIT. They are written together when the user commits, so that
nothing of a transaction is at the broker before, transactions of different sessions never mix, and
a rollback is forgetting. COMMIT waits for the RECEIPT of the last frame before it where the broker
would carry on after an ERROR; else a part of the transaction could be committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.subscriptions import Delivery
from bridge.providers.stomp.wire import Pairs
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import MessagingError, OutcomeUnknown

if TYPE_CHECKING:
    from bridge.providers.stomp.consumer import StompConsumer
    from bridge.providers.stomp.session import StompSession
    from bridge.providers.stomp.wire import Wire


class Outgoing(NamedTuple):
    """A SEND to be written. :param alike: sends with the same are vouched for by one RECEIPT, where
    the dialect has it so.
    """

    headers: Pairs
    body: bytes
    asked: Asked
    alike: object


class _Settlement(NamedTuple):
    """Deliveries acknowledged, or rejected with the arguments of ``Consumer.reject``."""

    consumer: StompConsumer
    deliveries: list[tuple[int, Delivery]]
    rejected: bool = False
    delay_ms: int | None = None
    dead: DeadReason | None = None


class Transaction:
    """One transaction of one session, from its first send or settlement to its outcome."""

    def __init__(self, session: StompSession) -> None:
        self._session = session
        self.sends: list[Outgoing] = []
        self._settlements: list[_Settlement] = []

    @property
    def empty(self) -> bool:
        return not self.sends and not self._settlements

    def acknowledge(self, consumer: StompConsumer, deliveries: list[tuple[int, Delivery]]) -> None:
        """Deliveries are acknowledged in it."""
        self._settlements.append(_Settlement(consumer, deliveries))

    def reject(
        self,
        consumer: StompConsumer,
        deliveries: list[tuple[int, Delivery]],
        delay_ms: int | None,
        dead: DeadReason | None,
    ) -> None:
        """Deliveries are rejected in it."""
        self._settlements.append(_Settlement(consumer, deliveries, True, delay_ms, dead))

    def write(self, wire: Wire, name: str, done: Callable[[MessagingError | None], None]) -> None:
        """Have the broker carry it out.

        :param name: of the transaction at the broker, which is open already where subscriptions are
            born in one.
        :param done: told the outcome, never from inside this call.
        """
        frames = self._frames(name)
        if not frames:
            self._written(wire, name, done, None)
            return
        asked = Asked(Operation.TRANSACT)
        for command, headers, body in frames[:-1]:
            wire.write(command, headers, body)
        command, headers, body = frames[-1]
        if not self._session.connection.dialect.ends_at_error:
            wire.ask(
                command, headers, body, asked, lambda error: self._written(wire, name, done, error)
            )
        else:
            wire.write(command, headers, body)
            self._written(wire, name, done, None)

    def _frames(self, name: str) -> list[tuple[str, Pairs, bytes]]:
        dialect = self._session.connection.dialect
        transaction = ("transaction", name)
        frames: list[tuple[str, Pairs, bytes]] = []
        if self._session.wire_transaction() is None:
            frames.append(("BEGIN", [transaction], b""))
        frames += [("SEND", [*send.headers, transaction], send.body) for send in self.sends]
        for settlement in self._settlements:
            named = [delivery for _, delivery in settlement.deliveries]
            if not dialect.acknowledges_within:
                # Cumulative, so the last of each subscription is enough.
                named = list({delivery.slice: delivery for delivery in named}.values())
            if not settlement.rejected:
                frames += [("ACK", _settling(delivery, transaction), b"") for delivery in named]
            elif settlement.dead is not None or not dialect.acknowledges_within:
                more = [] if settlement.dead is None else list(dialect.dead_headers)
                frames += [
                    ("NACK", _settling(delivery, transaction) + more, b"") for delivery in named
                ]
        return frames

    def _written(
        self,
        wire: Wire,
        name: str,
        done: Callable[[MessagingError | None], None],
        error: MessagingError | None,
    ) -> None:
        if error is not None:
            if wire.ended is None:
                wire.write("ABORT", [("transaction", name)])
            done(error)
            return

        def told(error: MessagingError | None) -> None:
            if error is not None and wire.ended is not None:
                error = OutcomeUnknown(str(wire.ended))
            done(error)

        wire.ask("COMMIT", [("transaction", name)], b"", Asked(Operation.COMMIT), told)

    def committed(self) -> None:
        """The broker has carried it out."""
        within = self._session.connection.dialect.acknowledges_within
        for settlement in self._settlements:
            deliveries = [delivery for _, delivery in settlement.deliveries]
            if settlement.rejected and settlement.dead is None and within:
                settlement.consumer.rejected(deliveries, settlement.delay_ms, None)
            settlement.consumer.settled(len(deliveries))

    def undo(self) -> None:
        """Forget it. What was settled is outstanding again, or, of the session's own consumers, is
        delivered again with all else that is.
        """
        mine: dict[StompConsumer, list[tuple[int, Delivery]]] = {
            consumer: [] for consumer in self._session.consumers
        }
        undone, self.sends, self._settlements = self._settlements, [], []
        for consumer, deliveries, *_ in undone:
            if consumer.session is self._session:
                mine.setdefault(consumer, []).extend(deliveries)
            else:
                consumer.restore(deliveries)
        for consumer, own in mine.items():
            own.sort(key=lambda each: each[0])
            consumer.given_up(own)


def _settling(delivery: Delivery, transaction: tuple[str, str]) -> Pairs:
    return [
        ("id", delivery.name),
        ("message-id", delivery.name),
        ("subscription", delivery.slice.id),
        transaction,
    ]
