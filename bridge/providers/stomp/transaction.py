"""Local transactions: what was sent and settled in one, and its frames.

Owns the frames from BEGIN to COMMIT. They are written together when the user commits. So the broker
has nothing of a transaction before, transactions of different sessions never mix, and a rollback
only forgets. Where the broker goes on after an ERROR, COMMIT waits for the RECEIPT of the frame
before it; otherwise a part of the transaction could be committed.
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.providers.asked import Asked, Operation
from bridge.providers.local_transactions import LocalTransaction
from bridge.providers.stomp.subscriptions import Delivery
from bridge.providers.stomp.wire import Answer, Pairs, Wire
from gateway.messaging.errors import MessagingError, OutcomeUnknown
from gateway.stomp.brokers import Dialect


class Outgoing(NamedTuple):
    """A frame to be written.

    :param alike: its RECEIPT confirms all earlier frames with an equal value; None needs no
        RECEIPT.
    """

    command: str
    headers: Pairs
    body: bytes
    asked: Asked
    alike: object


class Transaction(LocalTransaction[Delivery, Outgoing]):
    """One transaction of one session, until its outcome."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def write(self, wire: Wire, name: str, opened: bool, done: Answer) -> None:
        """Have the broker carry it out.

        :param name: of the transaction at the broker.
        :param opened: its BEGIN was written already, as subscriptions begin in it.
        :param done: called with the outcome, never from inside this call.
        """
        frames = self._frames(name, opened)
        if not frames:
            self._written(wire, name, done, None)
            return
        asked = Asked(Operation.TRANSACT)
        for command, headers, body in frames[:-1]:
            wire.write(command, headers, body)
        command, headers, body = frames[-1]
        if not self._dialect.ends_at_error:
            wire.ask(
                command, headers, body, asked, lambda error: self._written(wire, name, done, error)
            )
        else:
            wire.write(command, headers, body)
            self._written(wire, name, done, None)

    def _frames(self, name: str, opened: bool) -> list[tuple[str, Pairs, bytes]]:
        dialect = self._dialect
        transaction = ("transaction", name)
        frames: list[tuple[str, Pairs, bytes]] = []
        if not opened:
            frames.append(("BEGIN", [transaction], b""))
        frames += [("SEND", [*send.headers, transaction], send.body) for send in self.sends]
        for settlement in self.settlements:
            deliveries = [delivery for _, delivery in settlement.deliveries]
            if not dialect.acknowledges_within:
                # Cumulative, so the last of each subscription is enough.
                deliveries = list({each.subscription: each for each in deliveries}.values())
            if not settlement.rejected:
                frames += [("ACK", each.settling(name), b"") for each in deliveries]
            elif settlement.dead is not None or not dialect.acknowledges_within:
                more = [] if settlement.dead is None else list(dialect.dead_headers)
                frames += [("NACK", each.settling(name) + more, b"") for each in deliveries]
        return frames

    def _written(
        self,
        wire: Wire,
        name: str,
        done: Answer,
        error: MessagingError | None,
    ) -> None:
        if error is not None:
            if wire.ended is None:
                wire.write("ABORT", [("transaction", name)])
            done(error)
            return

        def committed(error: MessagingError | None) -> None:
            if error is not None and wire.ended is not None:
                error = OutcomeUnknown(str(wire.ended))
            done(error)

        wire.ask("COMMIT", [("transaction", name)], b"", Asked(Operation.COMMIT), committed)

    def committed(self) -> None:
        """The broker has carried it out."""
        for settlement in self.settlements:
            deliveries = [delivery for _, delivery in settlement.deliveries]
            redeliver = settlement.rejected and settlement.dead is None
            if redeliver and self._dialect.acknowledges_within:
                settlement.consumer.rejected(deliveries, settlement.delay_ms, None)
            settlement.consumer.settled(len(deliveries))
