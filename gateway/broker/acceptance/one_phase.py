"""The commit in one phase: a whole transaction is one batch.

Owns what goes into the batch, and what follows in memory once that is durable, for local
transactions of sessions as for branches. Whether it may be, and what it waits for, its caller
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.broker.acceptance.acceptance import Acceptance
from gateway.broker.arrivals.duplicates import Arrivals
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.physical import Accepted, PhysicalDestination, Reservation
from gateway.broker.store.interface import StoreError
from gateway.messaging.message import Message

#: Told once: None when it is durable.
Told = Callable[[StoreError | None], None]


class Sender(Protocol):
    """A session that has sent something in the transaction."""

    def hold_back(self, physical: PhysicalDestination) -> None:
        """Hold the sender back if the destination is at its limit.

        What it has sent there counts by now.
        """


class Sent:
    """What one connection has sent in a transaction.

    :ivar messages: all of it.
    :ivar arrivals: where it goes, in runs, without messages whose duplicate ids are known.
    :ivar repeats: how many those are; None where no message has an id.
    """

    __slots__ = ("arrivals", "messages", "origin", "repeats", "sender")

    def __init__(
        self,
        sender: Sender,
        origin: Origin,
        messages: Sequence[Message],
        arrivals: Arrivals,
        repeats: int | None,
    ) -> None:
        self.sender: Final = sender
        self.origin: Final = origin
        self.messages: Final = messages
        self.arrivals: Final = arrivals
        self.repeats: Final = repeats

    def accept(self, acceptance: Acceptance, *, held: bool) -> None:
        """Number it, with the batch that gathers.

        :param held: a branch has sent it.
        """
        acceptance.number(self.origin, self.messages, self.arrivals, self.repeats)
        if acceptance.journey is not None:
            acceptance.journey.produced(self.origin, self.arrivals, held=held)


class OnePhaseCommit:
    """One commit in one phase.

    :param taken: what it has acknowledged.
    :param held: a branch has sent this, so that limits count it until now.
    :param done: called when the outcome is known and everything in memory follows it.
    :ivar inserts: whether it may need room on the disk.
    """

    __slots__ = (
        "_acceptance",
        "_done",
        "_held",
        "_journey",
        "_places",
        "_sent",
        "_taken",
        "inserts",
    )

    def __init__(
        self,
        sent: Sequence[Sent],
        taken: Sequence[tuple[EmbeddedConsumer, list[Message]]],
        acceptance: Acceptance,
        done: Told,
        *,
        held: bool,
    ) -> None:
        self._acceptance: Final = acceptance
        self._sent: Final = sent
        self._taken: Final = taken
        self._journey: Final = acceptance.journey
        self._done: Final = done
        self._held: Final = held
        self._places: Final[list[tuple[Sender, PhysicalDestination, Reservation, Accepted]]] = []
        self.inserts = False

    def gather(self) -> bool:
        """Put all of it into the batch that gathers, which the caller keeps whole.

        :returns: whether there is anything to store, and so to wait for.
        """
        acceptance, commits = self._acceptance, self._acceptance.commits
        before, inserted = commits.changes, commits.inserted
        repeats = False
        for each in self._sent:
            each.accept(acceptance, held=self._held)
            # The originals may not be durable yet.
            repeats = repeats or bool(each.repeats)
            for physical, run in each.arrivals:
                place = physical.hold_place(run)
                self._places.append((each.sender, physical, place, physical.accept(run)))
                if self._held:
                    physical.remove_prepared(len(run), sum([message.size for message in run]))
        for consumer, messages in self._taken:
            consumer.source.release(messages)
        self.inserts = repeats or commits.inserted != inserted
        return repeats or commits.changes != before

    def ended(self, error: StoreError | None) -> None:
        """Give what was sent its places, or after an error give them up."""
        if error is None and self._journey is not None:
            for each in self._sent:
                self._journey.confirmed(each.origin, each.arrivals)
            for consumer, messages in self._taken:
                self._journey.taken(consumer, consumer.source, messages)
        for sender, physical, place, kept in self._places:
            physical.fill_place(place, kept if error is None else ())
            sender.hold_back(physical)
        if error is None:
            for consumer, messages in self._taken:
                consumer.source.settled(messages)
        self._done(error)
