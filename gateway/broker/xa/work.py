"""The work of a transaction branch: prepared, committed, rolled back.

A commit is in one phase or in two.

Owns how each of these becomes one batch of the store, and what follows in memory when that is
durable. When it may be asked for is :mod:`gateway.broker.xa.registry`'s
business.

A *prepared* branch holds what it has sent: the rows are in the store, with the branch's own, and
the messages are in no queue. They have their seqs, so when it commits they take the places they
would have, had they come when it was prepared, before all that waits and was sent later; those to a
topic go to the subscriptions that it has then. What it has acknowledged stays locked: it counts at
its source, and no consumer is given it. It does not expire meanwhile. Rolled back, it waits again as
what a session gives back does, tried once more. Messages that are not persistent are a prepared branch's
only as long as the process lives. Duplicate ids are remembered from the preparation on, and
forgotten by a rollback.

Where the source of what is locked ends meanwhile (a durable subscription is removed), that is
settled however the branch ends. The ends of a prepared branch store no message, so a full disk does
not delay them. It delays a commit in one phase that sends, and refuses to prepare such a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from twisted.logger import Logger

from gateway.broker.acceptance.acceptance import Acceptance
from gateway.broker.acceptance.one_phase import OnePhaseCommit, Sent, Told
from gateway.broker.arrivals.duplicates import Before
from gateway.broker.core.consumers.consumer import ConsumerOwner, EmbeddedConsumer
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.physical import Accepted, PhysicalDestination
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.rows import Rows
from gateway.broker.store.interface import BranchRow, StoreError
from gateway.broker.xa.branch import (
    Branch,
    BranchRouting,
    BranchSession,
    Part,
    Taken,
)
from gateway.messaging.errors import StorageFailed, TransactionTooLarge
from gateway.messaging.message import Message


def give_up(parts: Iterable[Part], sessions: Sequence[BranchSession] = ()) -> None:
    """Undo the work of a branch that was not prepared.

    What it has acknowledged goes back, and what its sessions have outstanding.

    :param sessions: those of the branch that are not at work in another one.
    """
    idle: set[object] = set(sessions)
    undone: dict[EmbeddedConsumer, list[Message]] = {
        consumer: [] for session in sessions for consumer in session.consumers
    }
    for part in parts:
        for consumer, deliveries in part.acknowledged:
            undone.setdefault(consumer, []).extend([message for _, message in deliveries])
    for consumer, messages in undone.items():
        _give_back(consumer, messages, consumer.session in idle)


def _give_back(consumer: EmbeddedConsumer, messages: Sequence[Message], whole: bool) -> None:
    """Return messages to their places, in order.

    :param whole: with what else the consumer has, which would come before them otherwise.
    """
    if whole and not consumer.gone:
        consumer.return_outstanding(messages)
    elif messages:
        consumer.source.redeliver(sorted(messages, key=lambda message: message.seq))


class BranchWork:
    """The work of the branches of one broker.

    :param soon: does something at the end of the turn.
    :param sent: seqs of the messages that prepared branches have sent; kept here.
    """

    _log: Final = Logger(namespace="gateway.broker")

    def __init__(
        self,
        rows: Rows,
        memory: Memory,
        acceptance: Acceptance,
        soon: Callable[[Callable[[], None]], None],
        sent: set[int],
    ) -> None:
        self._commits: Final = acceptance.commits
        self._rows: Final = rows
        self._memory: Final = memory
        self._acceptance: Final = acceptance
        self._soon: Final = soon
        self._sent: Final = sent

    def commit_one_phase(self, branch: Branch, done: Told) -> None:
        """Commit in one phase: all of it is one batch.

        :raises MessageRejected, TransactionTooLarge: it cannot be; nothing has happened.
        """
        commits = self._commits
        sent = self._route(branch.parts)
        taken = _acknowledged(branch.parts)
        commit = OnePhaseCommit(sent, taken, self._acceptance, done, held=True)
        commits.begin()
        try:
            if commit.gather():
                commits.wait(commit.ended, inserts=commit.inserts)
            else:
                self._soon(partial(commit.ended, None))
        finally:
            commits.end()

    def prepare(self, branch: Branch, done: Told) -> None:
        """Make the branch durable with all its work, in one batch.

        When that fails, only the parts are left of it.

        :raises MessageRejected, TransactionTooLarge: it cannot be; nothing has happened.
        """
        commits = self._commits
        sent = self._route(branch.parts, waits=False)
        seqs: list[int] = []
        inserted = commits.inserted
        commits.begin()
        try:
            for each in sent:
                each.accept(self._acceptance, held=True)
                for physical, run in each.arrivals:
                    branch.sends.append((physical, run))
                    branch.sent += len(run)
                    self._sent.update([message.seq for message in run])
                    for message in run:
                        if message.headers.persistent and not physical.destination.temporary:
                            message.stored = 1
                            self._rows.insert(physical, message, persistent=True)
                            seqs.append(message.seq)
                    each.sender.hold_back(physical)
            locked: list[tuple[int, int]] = []
            for consumer, messages in _acknowledged(branch.parts):
                source = consumer.source
                if isinstance(source, (PhysicalQueue, TopicSubscription)):
                    source.dispatch.locked += len(messages)
                    branch.taken.append(Taken(source, messages, consumer))
                    branch.acknowledged += len(messages)
                    locked += [
                        (source.owner, message.seq)
                        for message in messages
                        if source.keeps_count(message)
                    ]
            commits.branch(branch.row(0, seqs, locked))

            def outcome(error: StoreError | None) -> None:
                if error is not None:
                    self._let_go(branch)
                done(error)

            # The originals of repeats may not be durable yet.
            commits.wait(outcome, inserts=_has_repeats(sent) or commits.inserted != inserted)
        finally:
            commits.end()

    def _route(self, parts: Sequence[Part], *, waits: bool = True) -> list[Sent]:
        """Find where everything sent goes, if all of it may.

        Limits count it from now on.

        :param waits: what is to be stored may have to wait for room on the disk.
        """
        options = self._acceptance.options
        count = sum([len(part.sends) for part in parts])
        if count > options.transaction_messages:
            raise TransactionTooLarge(
                "imq.transaction.producer.maxNumMsgs", options.transaction_messages
            )
        if 0 <= options.transaction_octets < sum([_octets(part.sends) for part in parts]):
            raise TransactionTooLarge(
                "imq.transaction.producer.maxTotalMsgBytes", options.transaction_octets
            )
        if (
            sum([len(deliveries) for part in parts for _, deliveries in part.acknowledged])
            > options.transaction_acknowledgements
        ):
            raise TransactionTooLarge(
                "imq.transaction.consumer.maxNumMsgs", options.transaction_acknowledgements
            )
        # By connection, as each says what it may send.
        sends: dict[BranchRouting, tuple[BranchSession, list[Message]]] = {}
        for part in parts:
            if part.sends:
                sends.setdefault(part.session.routing, (part.session, []))[1].extend(part.sends)
        sent: list[Sent] = []
        before: Before = set()
        try:
            for routing, (session, messages) in sends.items():
                arrivals = routing.route(messages, before)
                sent.append(Sent(session, routing.origin, messages, arrivals, routing.repeats))
                for physical, run in arrivals:
                    physical.add_prepared(len(run), _octets(run))
            everything = [arrival for each in sent for arrival in each.arrivals]
            self._acceptance.check_fits(everything)
            if (
                not waits
                and self._commits.full
                and (
                    _has_repeats(sent)
                    or any(
                        message.headers.persistent
                        for physical, run in everything
                        if not physical.destination.temporary
                        for message in run
                    )
                )
            ):
                full = self._commits.trouble()
                raise StorageFailed(full, full)
        except BaseException:
            for each in sent:
                for physical, run in each.arrivals:
                    physical.remove_prepared(len(run), _octets(run))
            raise
        for each in sent:
            each.origin.sent += len(each.messages)
        return sent

    # --- prepared

    def commit_prepared(self, branch: Branch, row: BranchRow | None, done: Told) -> None:
        """Commit a prepared branch whose messages are in memory; see :meth:`read`.

        :param row: what the store is to have of it from now on; None for nothing.
        """
        commits = self._commits
        kept: list[tuple[PhysicalDestination, Accepted]] = []

        def outcome(error: StoreError | None) -> None:
            if error is None:
                sends, taken, unread = branch.sends, branch.taken, branch.unread_taken
                journey = self._acceptance.journey
                if journey is not None:
                    journey.confirmed(None, sends)
                    for each in taken:
                        journey.taken(each.consumer, each.source, each.messages)
                self._let_go(branch)
                for physical, places in kept:
                    if places:
                        physical.enqueue(places, held=True)
                        if physical.properties.bounded:
                            physical.make_room()
                for each in taken:
                    each.source.settled(each.messages)
                for source, index in unread:
                    source.stop_counting(1, index.size)
                self._log.debug(
                    "a branch is committed: {sent} sent, {taken} acknowledged",
                    sent=len(sends),
                    taken=len(taken),
                )
            done(error)

        commits.begin()
        try:
            for physical, run in branch.sends:
                kept.append((physical, physical.accept_prepared(run)))
            for each in branch.taken:
                each.source.release(each.messages)
            for source, index in branch.unread_taken:
                source.release_stored([index.seq])
            self._store(branch, row)
            commits.wait(outcome)
        finally:
            commits.end()

    def rollback_prepared(
        self,
        branch: Branch,
        row: BranchRow | None,
        done: Told,
        is_idle: Callable[[ConsumerOwner], bool],
    ) -> None:
        """Roll a prepared branch back; otherwise as :meth:`commit_prepared`.

        :param is_idle: whether a session is associated with no branch.
        """
        commits = self._commits

        def outcome(error: StoreError | None) -> None:
            if error is None:
                taken, unread = branch.taken, branch.unread_taken
                journey = self._acceptance.journey
                if journey is not None:
                    journey.refused(branch.sends, "its transaction was rolled back")
                self._let_go(branch)
                for each in taken:
                    consumer = each.consumer
                    if consumer is None:
                        each.source.redeliver(each.messages)
                    else:
                        _give_back(consumer, each.messages, is_idle(consumer.session))
                for source, index in unread:
                    source.dispatch.not_found(source, 1, index.size)
            done(error)

        commits.begin()
        try:
            # No sender has repeated what it sent: that is refused while its outcome is open.
            self._acceptance.duplicates.forget_messages(branch.sends)
            for _, run in branch.sends:
                for message in run:
                    if message.stored:
                        message.stored = 0
                        self._rows.release(message.seq)
            for _, index in branch.unread_sends:
                self._rows.release(index.seq)
            self._store(branch, row)
            commits.wait(outcome)
        finally:
            commits.end()

    def read(self, branch: Branch, done: Callable[[], None]) -> None:
        """Read the messages of a prepared branch into memory.

        Messages that cannot be read stay among the unread. ``done`` may be called at once.
        """
        seqs = [index.seq for _, index in (*branch.unread_sends, *branch.unread_taken)]
        if not seqs:
            done()
            return

        def found(messages: Sequence[Message]) -> None:
            by_seq = {message.seq: message for message in messages}
            sends, branch.unread_sends = branch.unread_sends, []
            for physical, index in sends:
                message = by_seq.get(index.seq)
                if message is None:
                    branch.unread_sends.append((physical, index))
                else:
                    branch.sends.append((physical, [message]))
            taken, branch.unread_taken = branch.unread_taken, []
            by_source: dict[Dispatched, list[Message]] = {}
            for source, index in taken:
                message = by_seq.get(index.seq)
                if message is None:
                    branch.unread_taken.append((source, index))
                else:
                    by_source.setdefault(source, []).append(message)
            branch.taken += [Taken(source, run, None) for source, run in by_source.items()]
            done()

        self._rows.read_back(seqs, found)

    def _store(self, branch: Branch, row: BranchRow | None) -> None:
        if row is None:
            self._commits.remove_branch(branch.id)
        else:
            self._commits.branch(row)

    def uncount(self, branch: Branch) -> None:
        """Its work is in memory no longer, or counts elsewhere. Idempotent."""
        self._memory.transactions -= branch.octets
        branch.octets = 0

    def _let_go(self, branch: Branch) -> None:
        """The branch holds nothing any more."""
        self.uncount(branch)
        sends, taken = branch.sends, branch.taken
        unread_sends, unread_taken = branch.unread_sends, branch.unread_taken
        branch.sends, branch.taken, branch.unread_sends, branch.unread_taken = [], [], [], []
        for each in taken:
            each.source.dispatch.locked -= len(each.messages)
        for source, _ in unread_taken:
            source.dispatch.locked -= 1
        for physical, run in sends:
            physical.remove_prepared(len(run), _octets(run))
            self._sent.difference_update([message.seq for message in run])
        for physical, index in unread_sends:
            physical.remove_prepared(1, index.size)
            self._sent.discard(index.seq)


def _has_repeats(sent: Sequence[Sent]) -> bool:
    """Whether any of these repeat a known duplicate id."""
    return any(each.repeats for each in sent)


def _acknowledged(parts: Sequence[Part]) -> list[tuple[EmbeddedConsumer, list[Message]]]:
    return [
        (consumer, [message for _, message in deliveries])
        for part in parts
        for consumer, deliveries in part.acknowledged
    ]


def _octets(run: Sequence[Message]) -> int:
    return sum([message.size for message in run])
