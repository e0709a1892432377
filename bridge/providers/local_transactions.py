"""Local transactions that the broker carries out at the commit.

Owns what was sent and settled in one, and what a rollback gives back. The steps of a commit are each
protocol's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from gateway.messaging.dead import DeadReason

#: What the protocol knows of a delivery, and of what is to be sent.
D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)
S = TypeVar("S")


class SettlingConsumer(Protocol[D_contra]):
    """A consumer whose deliveries are settled in transactions.

    It hears what becomes of them.
    """

    @property
    def session(self) -> object: ...

    def rejected(
        self, deliveries: Sequence[D_contra], delay_ms: int | None, dead: DeadReason | None
    ) -> None:
        """Carry a rejection out."""

    def settled(self, count: int) -> None:
        """So many settlements in a transaction are no longer pending."""

    def restore(self, deliveries: Sequence[tuple[int, D_contra]]) -> None:
        """Make these outstanding again.

        Their settlements in another session's transaction were undone.
        """

    def given_up(self, deliveries: Sequence[tuple[int, D_contra]]) -> None:
        """Redeliver these and everything outstanding.

        The transaction of the consumer's session was undone.
        """


class Settlement(NamedTuple, Generic[D]):
    """Deliveries acknowledged, or rejected as by ``Consumer.reject``."""

    consumer: SettlingConsumer[D]
    deliveries: list[tuple[int, D]]
    rejected: bool = False
    delay_ms: int | None = None
    dead: DeadReason | None = None


class LocalTransaction(Generic[D, S]):
    """One transaction of one session, until its outcome."""

    def __init__(self) -> None:
        self.sends: list[S] = []
        self.settlements: list[Settlement[D]] = []

    @property
    def empty(self) -> bool:
        return not self.sends and not self.settlements

    def undo(self, session: object, consumers: Iterable[SettlingConsumer[D]]) -> None:
        """Forget it.

        The session's own consumers redeliver what was settled and everything outstanding; to other
        consumers it is outstanding again.

        :param consumers: of the session.
        """
        own: dict[SettlingConsumer[D], list[tuple[int, D]]] = {each: [] for each in consumers}
        undone, self.sends, self.settlements = self.settlements, [], []
        for consumer, deliveries, *_ in undone:
            if consumer.session is session:
                own.setdefault(consumer, []).extend(deliveries)
            else:
                consumer.restore(deliveries)
        for consumer, given_up in own.items():
            given_up.sort(key=lambda each: each[0])
            consumer.given_up(given_up)
