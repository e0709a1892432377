"""What queues, topics and subscriptions write to store and journal.

They change themselves, and call this for the rest, in runs of messages. ``store_...``,
``delete_...`` and ``release_...`` are commands to the store, which writes them with the batch that
gathers. ``journal_...`` write lines of the journal and change nothing. Owns these verbs, and who is
told of each. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gateway.broker.core.consumers.consumer import EmbeddedConsumer, QueueOrSubscription
from gateway.broker.core.dead_letters import DeadLetters
from gateway.broker.core.limit_reports import LimitReports
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.core.waiting.spilled import Spilled
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.rows import Destined, Rows
from gateway.broker.timing.schedule import Schedule
from gateway.broker.timing.selector_time import SelectorTime
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn


class Journal(Protocol):
    """Is told of each step of a message."""

    def routed(self, source: QueueOrSubscription, messages: Sequence[Message]) -> None: ...

    def copied(self, queue: Any, copies: Sequence[Message]) -> None: ...

    def delivered(
        self,
        source: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None: ...

    def returned(
        self, source: QueueOrSubscription, messages: Sequence[Message], reason: str
    ) -> None: ...

    def removed(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        reason: str,
        comment: str,
        /,
    ) -> None: ...

    def removed_stored(self, source: QueueOrSubscription, seqs: Sequence[int]) -> None: ...

    def replaced(
        self, queue: QueueOrSubscription, seq: int, id: str, stored: bool, by: str, /
    ) -> None: ...


class Identified(Protocol):
    """A message by its number and its JMSMessageID."""

    @property
    def seq(self) -> int: ...

    @property
    def id(self) -> str: ...


class Later(Protocol):
    """Has messages that are delivered later."""

    def store(self, physical: Any, run: Sequence[Message]) -> None:
        """Store accepted messages, with their times."""

    def hold(self, physical: Any, run: Sequence[Message]) -> None:
        """Have accepted messages, which were stored, wait for their times."""

    def forget(self, run: Sequence[Message]) -> None:
        """Accepted messages do not come."""


class Changes:
    """The one collaborator of the core's objects.

    :param idle: told of an auto-created destination that is not in use.
    :param removal_over: told when something has left a destination that was removed.
    :param spills: whether messages that memory has no room for can live in the store only.
    :param most_rollbacks: tries after which a message is dead; 0 for no bound.
    :param moves_groups: whether groups of messages may go to a consumer that comes later.
    """

    def __init__(
        self,
        idle: Callable[[Destined], None],
        removal_over: Callable[[Destined], None],
        dead_letters: DeadLetters,
        reports: LimitReports,
        turn: Turn,
        memory: Memory,
        schedule: Schedule,
        selector_time: SelectorTime,
        commits: GroupCommit,
        rows: Rows,
        *,
        spills: bool,
        most_rollbacks: int,
        moves_groups: bool,
    ) -> None:
        self.idle: Callable[[Destined], None] = idle
        self.removal_over: Callable[[Destined], None] = removal_over
        self._dead_letters = dead_letters
        self.reports = reports
        self.turn = turn
        self.memory = memory
        self.schedule = schedule
        self.selector_time = selector_time
        self._commits = commits
        self._rows = rows
        self.spills = spills
        self.most_rollbacks = most_rollbacks
        self.moves_groups = moves_groups
        #: For messages that ask to be delivered later; set by the broker.
        self.later: Later | None = None
        #: Some message has asked for that since the start. Until then none is looked at for it.
        self.schedules = False
        #: Told of every step; None where nothing is.
        self.journal: Journal | None = None

    # --- commands to the store

    def store_destination(self, physical: Destined) -> None:
        """Store a destination's properties, which have changed."""
        self._rows.store_destination(physical)

    def store_arrivals(self, queue: Destined, run: Sequence[Message]) -> None:
        """Store what is persistent of a run that a queue accepts."""
        insert = self._rows.insert
        for message in run:
            if message.headers.persistent:
                message.stored = 1
                insert(queue, message, persistent=True)

    def store_scheduled(self, physical: Destined, run: Sequence[Message]) -> Sequence[Message]:
        """Store what is to be delivered later of a run that a destination accepts.

        :returns: the rest.
        """
        scheduled = [message for message in run if message.headers.scheduled]
        if not scheduled:
            return run
        assert self.later is not None, "the broker is open"
        self.later.store(physical, scheduled)
        return [message for message in run if not message.headers.scheduled]

    def hold_scheduled(
        self, physical: Destined, run: Sequence[Message], dropped: bool = False
    ) -> Sequence[Message]:
        """Have what is to be delivered later of a run wait for its time.

        :param dropped: the destination has gone, so nothing of it comes.
        :returns: the rest.
        """
        scheduled = [message for message in run if message.headers.scheduled]
        if not scheduled:
            return run
        assert self.later is not None, "the broker is open"
        if dropped:
            self.later.forget(scheduled)
            return run
        self.later.hold(physical, scheduled)
        return [message for message in run if not message.headers.scheduled]

    def store_owed(self, subscription: int, topic: Destined, run: Sequence[Message]) -> None:
        """Store what is persistent of a run as owed to a subscription."""
        rows, commits = self._rows, self._commits
        for message in run:
            if message.headers.persistent:
                rows.hold(topic, message, persistent=True)
                commits.owe(subscription, message.seq)

    def store_spilled(self, queue: Destined, run: Sequence[Message]) -> None:
        """Store messages for which memory has no room.

        Those that are not persistent are in the store, too, until they are read back.
        """
        insert = self._rows.insert
        for message in run:
            if not message.stored:
                message.stored = 1
                insert(queue, message, persistent=False)

    def store_spilled_for_subscription(self, topic: Destined, run: Sequence[Message]) -> None:
        """The same for one subscription, to which they are not owed."""
        hold = self._rows.hold
        for message in run:
            hold(topic, message, persistent=False)

    def store_attempts(self, owner: int, tries: Sequence[tuple[int, int, int]]) -> None:
        """Store how often messages were tried.

        :param owner: see :attr:`QueueOrSubscription.owner`.
        :param tries: for each its seq, the count, and when it may be delivered again in epoch
            milliseconds, 0 for at once.
        """
        redelivery = self._commits.redelivery
        for seq, count, due_ms in tries:
            redelivery(owner, seq, count, due_ms)

    def delete_rows(self, run: Sequence[Message]) -> None:
        """Delete what the store has of these: they have left their queue for good."""
        delete = self._commits.delete
        for message in run:
            if message.stored:
                message.stored = 0
                delete(message.seq)

    def delete_rows_by_seq(self, seqs: Sequence[int]) -> None:
        """Delete messages of a queue that are in the store only.

        Quick for seqs in order.
        """
        delete = self._commits.delete
        for seq in seqs:
            delete(seq)

    def replace(
        self, queue: QueueOrSubscription, older: Identified, newer: Identified, stored: bool
    ) -> None:
        """A message has left a queue, as a newer one of its key waits there.

        It does not leave the store before the newer one is there, if that is stored at all.

        :param stored: whether the store has its row.
        """
        commits = self._commits
        commits.begin()
        try:
            if stored:
                commits.tie_to(newer.seq)
            if self.journal is not None:
                self.journal.replaced(queue, older.seq, older.id, stored, newer.id)
            if stored:
                commits.delete(older.seq)
        finally:
            commits.end()

    def release_for_subscription(
        self, subscription: int, run: Sequence[Message], spilled: Spilled[Any]
    ) -> None:
        """Release the rows of messages that have left one subscription for good.

        Others may need the rows still.

        :param subscription: its number; 0 when it is not durable.
        :param spilled: what the store has for its sake only; they are taken out.
        """
        rows, commits = self._rows, self._commits
        for message in run:
            if subscription and message.headers.persistent:
                commits.settle(subscription, message.seq)
                rows.release(message.seq)
            elif spilled.discard(message.seq):
                rows.release(message.seq)

    def release_for_subscription_by_seq(
        self, subscription: int, seqs: Sequence[int], owed: Sequence[int]
    ) -> None:
        """The same of messages that are in the store only.

        :param owed: those of them that were owed to it.
        """
        self.delete_owed(subscription, owed)
        release = self._rows.release
        for seq in seqs:
            release(seq)

    def delete_owed(self, subscription: int, seqs: Iterable[int]) -> None:
        """Store that a durable subscription is no longer owed these.

        Leaves their rows alone.
        """
        settle = self._commits.settle
        for seq in seqs:
            settle(subscription, seq)

    def release_for_branch(self, seqs: Sequence[int]) -> None:
        """Release the rows of messages for a branch that has sent them."""
        release = self._rows.release
        for seq in seqs:
            release(seq)

    def delete_slowly(self, steps: Iterator[None]) -> None:
        """Run steps that delete many rows, while no commits are backed up."""
        self.schedule.one_step_of_all_a_turn(steps, self._commits.backed_up)

    def bury(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        destination_of: Callable[[Message], Destined | None],
        reason: DeadReason,
        comment: str,
        keeps_unstored: bool = True,
    ) -> None:
        """Settle dead messages, in one batch with the storing of their copies.

        :param destination_of: that of each; of one that is gone, nothing is kept.
        :param keeps_unstored: else nothing is kept of those that are not persistent.
        """
        self._commits.begin()
        try:
            self._dead_letters.tell(source, messages, reason, comment)
            for message in messages:
                destination = destination_of(message)
                if destination is not None:
                    keeps = keeps_unstored or message.headers.persistent
                    self._dead_letters.bury(destination, source, message, reason, comment, keeps)
            source.settle(messages)
        finally:
            self._commits.end()

    # --- reading from the store

    def fetch(self, seqs: Sequence[int], done: Callable[[Sequence[Message]], None]) -> None:
        """Read messages that are in the store only; see :meth:`Rows.read_back`."""
        self._rows.read_back(seqs, done)

    @property
    def damaged(self) -> Mapping[int, int | None]:
        """Seqs of unreadable messages, with the numbers of destinations."""
        return self._rows.damaged

    # --- lines of the journal

    def journal_routed(self, source: QueueOrSubscription, run: Sequence[Message]) -> None:
        """A subscription of a topic has accepted a run."""
        if self.journal is not None:
            self.journal.routed(source, run)

    def journal_copied(self, queue: Destined, copies: Sequence[Message]) -> None:
        """Copies of a virtual topic's messages are about to come to a queue.

        No client has sent the originals just now.
        """
        if self.journal is not None:
            self.journal.copied(queue, copies)

    def journal_delivered(
        self,
        source: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None:
        """A run is about to be handed to a consumer.

        :param attempts: the delivery attempts, counted from 1; None where all are the first.
        """
        if self.journal is not None:
            self.journal.delivered(source, consumer, run, attempts)

    def journal_returned(
        self, source: QueueOrSubscription, messages: Sequence[Message], reason: str
    ) -> None:
        """A consumer did not settle these."""
        if self.journal is not None:
            self.journal.returned(source, messages, reason)

    def journal_removed(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        reason: str = "removed",
        comment: str = "",
    ) -> None:
        """These are about to be removed without going to the dead message queue.

        :param reason: a word, such as ``moved`` for what is at another destination then.
        """
        if self.journal is not None:
            self.journal.removed(source, messages, reason, comment)

    def journal_removed_stored(self, source: QueueOrSubscription, seqs: Sequence[int]) -> None:
        """The same of messages that are in the store only."""
        if self.journal is not None:
            self.journal.removed_stored(source, seqs)
