"""A session of the embedded broker (``messaging.provider.Session``).

It keeps order, completions, and local transactions.

Owns what one session was asked and has not finished. Consumers own their deliveries, the connection
what its user may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred

from gateway.broker.acceptance.acceptance import Acceptance
from gateway.broker.acceptance.one_phase import OnePhaseCommit, Sent
from gateway.broker.arrivals.duplicates import Arrivals
from gateway.broker.core.consumers.consumer import EmbeddedConsumer, Rejected, Transaction
from gateway.broker.core.consumers.unacknowledged import Unacknowledged
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.queue_pattern import PatternConsumer, PatternOwner
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import originals_of
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.journal.journey import Unconfirmed
from gateway.broker.sessions.flow import Backpressure
from gateway.broker.sessions.routing import Routing, place_of
from gateway.broker.store.interface import StoreError
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.completions import Completion, Completions
from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    MessageRejected,
    MessagingError,
    NotSupported,
    ProducersPaused,
    ProviderUnavailable,
    StorageFailed,
    TransactionTooLarge,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Deliver, Done, Mode, Session, XAResource
from gateway.reactor.turn import Turn


class SessionCompletions(Completions):
    """The completions of one session.

    They are given in the order in which they were asked for, each when what it speaks for is
    durable or has failed.

    :param soon: does something at the end of this turn.
    """

    __slots__ = ("_commits", "_soon", "_withheld", "last_batch", "last_insert")

    def __init__(self, commits: GroupCommit, soon: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._commits: Final = commits
        self._soon: Final = soon
        #: Numbers of the latest batch with a change of this session, and of the latest with an
        #: insert of it.
        self.last_batch = 0
        self.last_insert = 0
        #: Those that wait until no destination holds the sender back.
        self._withheld: list[Completion] = []

    def touch(self, *, inserts: bool = False) -> None:
        """Note that the batch that gathers may hold changes of the session.

        :param inserts: the changes may need room on the disk.
        """
        self.last_batch = self._commits.number
        if inserts:
            self.last_insert = self.last_batch

    def touch_since(self, changes: int) -> None:
        """The same, if anything was gathered since there were that many changes."""
        if self._commits.changes != changes:
            self.last_batch = self._commits.number

    def wait_for_room(self) -> bool:
        """Whether something that it was asked for waits for room on the disk."""
        return self._commits.waits_for_room(self.last_insert)

    def give_when_durable(self, completion: Completion) -> None:
        """Give it when all that the session asked for so far is durable.

        Never from inside this call.
        """
        if self.last_batch > self._commits.durable or self.wait_for_room():
            self._commits.wait_for(
                self.last_batch, partial(self._durable, completion), self.last_insert
            )
        else:
            self.give_soon(completion, None)

    def give_soon(self, completion: Completion, error: MessagingError | None) -> None:
        """Finish it at the end of this turn."""
        self._soon(partial(self.finish, completion, error))

    def withhold(self, completion: Completion) -> None:
        """Do not give it while the sender is held back."""
        self._withheld.append(completion)

    def release_withheld(self) -> None:
        """The sender is held back no longer."""
        self._withheld, released = [], self._withheld
        for completion in released:
            self.give_when_durable(completion)

    def break_withheld(self, error: MessagingError) -> None:
        """Fail what is withheld, as the session is closed.

        No caller can say any more when it could be given.
        """
        self._withheld, broken = [], self._withheld
        for completion in broken:
            self.give_soon(completion, error)

    def _durable(self, completion: Completion, error: StoreError | None) -> None:
        self.finish(completion, storage_failed(error))


def storage_failed(error: StoreError | None) -> StorageFailed | None:
    """What a failed batch is to the users of the seam."""
    return None if error is None else StorageFailed(str(error))


def when_durable(
    commits: GroupCommit, *, inserts: bool = False, removals: bool = False
) -> Deferred[None]:
    """Fires when all that was asked is durable; fails with StorageFailed.

    :param inserts: with what waits for room on the disk.
    :param removals: with the removal of a destination or a subscription.
    """
    done: Deferred[None] = Deferred()

    def stored(error: StoreError | None) -> None:
        failure = storage_failed(error)
        if failure is None:
            done.callback(None)
        else:
            done.errback(failure)

    commits.wait(stored, inserts=inserts, removals=removals)
    return done


class EmbeddedSession(PatternOwner):
    """One session. Made by its connection.

    :param soon: does something at the end of this turn.
    :param siblings: the open sessions of the connection; it removes itself when it closes.
    :param attach: makes a consumer of this session.
    """

    def __init__(
        self,
        routing: Routing,
        acceptance: Acceptance,
        memory: Memory,
        unacknowledged: Unacknowledged,
        turn: Turn,
        schedule: Schedule,
        soon: Callable[[Callable[[], None]], None],
        mode: Mode,
        siblings: dict[EmbeddedSession, None],
        attach: Callable[
            [EmbeddedSession, ConsumerSpec, Deliver, Callable[[MessagingError], None]],
            EmbeddedConsumer | PatternConsumer,
        ],
    ) -> None:
        self.routing = routing
        self.origin = routing.origin
        self.memory = memory
        self.mode = mode
        self._acceptance: Final = acceptance
        self._unacknowledged: Final = unacknowledged
        self._soon: Final = soon
        self._siblings = siblings
        self._attach = attach
        self._commits: Final = acceptance.commits
        self._consumers: dict[EmbeddedConsumer, None] = {}
        #: Those of patterns, whose members are among the others.
        self._patterns: dict[PatternConsumer, None] = {}
        self._closed = False
        self._completions = SessionCompletions(self._commits, soon)
        self._backpressure = Backpressure(
            turn,
            schedule,
            self._commits,
            memory,
            self._completions.wait_for_room,
            self._completions.release_withheld,
        )
        #: What the journal is to be told of once it is safe.
        self.unconfirmed: Unconfirmed | None = None
        self.transaction = self._begin()
        #: The resource of a session whose transactions are branches, and what it must not do
        #: outside of one; see :class:`gateway.broker.core.consumers.consumer.ConsumerOwner`.
        self.xa_resource: XAResource | None = None
        self.gate = None
        #: For a session whose transactions are branches: called when it closes.
        self.closing: Callable[[], None] | None = None

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self.check_open()
        if not messages:
            return
        if self.mode is Mode.TRANSACTED:
            self._send_in_transaction(messages)
            return
        arrivals = self.routing.route(messages)
        if self.routing.paused:
            self._check_paused(messages, arrivals)
        repeats = self.routing.repeats
        self.origin.sent += len(messages)
        commits = self._commits
        before, inserted = commits.changes, commits.inserted
        commits.begin()
        try:
            self._acceptance.number(self.origin, messages, arrivals, repeats)
            if self._acceptance.journey is not None:
                self._acceptance.journey.sent(self, self.origin, arrivals)
            for physical, run in arrivals:
                physical.arrive(run, physical.accept(run))
                self._backpressure.fast = physical if isinstance(physical, PhysicalQueue) else None
                self._backpressure.look(physical)
            self._backpressure.stores = commits.inserted != inserted
            if repeats:
                # Their originals may not be durable yet.
                self._completions.touch(inserts=True)
            elif commits.changes != before:
                self._completions.touch(inserts=self._backpressure.stores)
        finally:
            commits.end()
        for physical, _ in arrivals:
            if physical.properties.bounded:
                physical.make_room()

    def _send_in_transaction(self, messages: Sequence[Message]) -> None:
        if self.gate is not None:
            self.gate("send")
        arrivals = self.routing.route(messages)
        if self.routing.paused:
            self._check_paused(messages, arrivals)
        transaction = self.transaction
        octets = sum([message.size for message in messages])
        self._check_transaction(messages, octets)
        transaction.sends += messages
        transaction.sends_octets += octets
        transaction.count_octets(sum([message.weight for message in messages]))

    def _check_transaction(self, messages: Sequence[Message], octets: int) -> None:
        """Check that the transaction may send these, too.

        :param octets: of all of them.
        :raises MessageRejected: for the first that is too much, and none was taken.
        """
        options, transaction = self._acceptance.options, self.transaction
        most, most_octets = options.transaction_messages, options.transaction_octets
        room = most - len(transaction.sends)
        before = transaction.sends_octets
        if 0 <= most_octets < before + octets:
            for index, message in enumerate(messages[: max(room, 0)]):
                before += message.size
                if before > most_octets:
                    raise MessageRejected(
                        index,
                        TransactionTooLarge(
                            "imq.transaction.producer.maxTotalMsgBytes", most_octets
                        ),
                    )
        if room < len(messages):
            raise MessageRejected(
                max(room, 0), TransactionTooLarge("imq.transaction.producer.maxNumMsgs", most)
            )

    def _check_paused(self, messages: Sequence[Message], arrivals: Arrivals) -> None:
        """Hold the sender back where a destination is paused for it.

        :raises MessageRejected: for the first message that is held, and none was taken.
        """
        for physical, run in arrivals:
            if physical in self.routing.paused:
                self._backpressure.look(physical)
                index = place_of(originals_of(run)[0], messages)
                raise MessageRejected(index, ProducersPaused(physical.destination))

    def writable(self) -> bool:
        return self._backpressure.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._backpressure.on_writable(resume)

    def held_back(self) -> list[str]:
        """Return what holds the sender back now, in words; nothing if it may send."""
        return self._backpressure.reasons()

    def blocked_by(self) -> list[Destination]:
        """Return the destinations at their limits that hold the sender back."""
        return [physical.destination for physical in self._backpressure.blocked]

    def hold_back(self, physical: PhysicalDestination) -> None:
        """Hold the sender back if the destination is at its limit.

        What its transaction or branch has sent there counts by now.
        """
        self._backpressure.look(physical)

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> EmbeddedConsumer | PatternConsumer:
        self.check_open()
        before = self._commits.changes
        try:
            consumer = self._attach(self, spec, deliver, failed)
        except MessagingError as error:
            self.routing.refused(spec.destination, error)
            raise
        self._completions.touch_since(before)
        if isinstance(consumer, PatternConsumer):
            self._patterns[consumer] = None
        else:
            self._consumers[consumer] = None
        return consumer

    @property
    def consumers(self) -> Sequence[EmbeddedConsumer]:
        """Those that are not closed, members of patterns' among them."""
        return [consumer for consumer in self._consumers if not consumer.closed]

    @property
    def patterns(self) -> Sequence[PatternConsumer]:
        """Consumers of patterns that are not closed."""
        return [pattern for pattern in self._patterns if not pattern.closed]

    def remember(self, consumer: EmbeddedConsumer) -> None:
        self._consumers[consumer] = None

    def forget(self, consumer: EmbeddedConsumer) -> None:
        self._consumers.pop(consumer, None)

    def remember_pattern(self, consumer: PatternConsumer) -> None:
        self._patterns[consumer] = None

    def forget_pattern(self, consumer: PatternConsumer) -> None:
        self._patterns.pop(consumer, None)

    def has(self, consumer: EmbeddedConsumer) -> bool:
        return consumer in self._consumers

    def may_have_more(self, consumer: EmbeddedConsumer) -> bool:
        return self._unacknowledged.may_have_more(consumer)

    def settle(self, consumer: EmbeddedConsumer, messages: Sequence[Message]) -> None:
        commits, journey = self._commits, self._acceptance.journey
        inserted = commits.inserted
        if journey is None:
            consumer.source.settle(messages)
        else:
            commits.begin()
            try:
                journey.acknowledged(self, consumer, messages)
                consumer.source.settle(messages)
            finally:
                commits.end()
        self._completions.touch(inserts=commits.inserted != inserted)

    def touch_after(self, work: Callable[[], None]) -> None:
        before = self._commits.changes
        work()
        self._completions.touch_since(before)

    # --- completions

    def completion(self, done: Done) -> None:
        self.check_open()
        if self._acceptance.journey is not None:
            done = self._acceptance.journey.confirming(self, self.origin, done)
        completion = self._completions.ask(done)
        if self._backpressure.blocked and self._backpressure.withholds():
            self._completions.withhold(completion)
        else:
            self._completions.give_when_durable(completion)

    # --- transactions

    def _begin(self) -> Transaction:
        """Make a transaction. Clients' count where their frames are read."""
        most = self._acceptance.options.transaction_acknowledgements
        return Transaction(None if self.origin.address else self.memory, most)

    def resource(self) -> XAResource:
        assert self.xa_resource is not None, "the connection was asked for an XA session"
        return self.xa_resource

    def commit(self, done: Done) -> None:
        if self.gate is not None:
            # JTA 1.1, section 3.2.3.
            raise NotSupported("commit of an XA session, whose resource commits branches")
        self.check_open()
        if self.mode is not Mode.TRANSACTED:
            raise NotSupported("commit outside of a transacted session")
        completion = self._completions.ask(done)
        most = self._acceptance.options.transaction_acknowledgements
        try:
            if self.transaction.acknowledged_count > most:
                raise TransactionTooLarge("imq.transaction.consumer.maxNumMsgs", most)
            sends = self.transaction.sends
            arrivals = self.routing.route(sends) if sends else []
            self._acceptance.check_fits(arrivals)
        except MessagingError as error:
            self._undo()
            cause = error.cause if isinstance(error, MessageRejected) else error
            self._completions.give_soon(completion, cause)
            return
        sent: list[Sent] = []
        if sends:
            sent.append(Sent(self, self.origin, sends, arrivals, self.routing.repeats))
        transaction = self._end()
        self.origin.sent += len(sends)
        taken = [
            (consumer, [message for _, message in deliveries])
            for consumer, deliveries in transaction.acknowledged
        ]
        told = partial(self._committed, completion, transaction.rejected)
        commit = OnePhaseCommit(sent, taken, self._acceptance, told, held=False)
        commits, completions = self._commits, self._completions
        commits.begin()
        try:
            if commit.gather():
                completions.touch(inserts=commit.inserts)
                commits.wait(commit.ended, inserts=commit.inserts)
            elif completions.last_batch > commits.durable or completions.wait_for_room():
                # Nothing of it is stored.
                commits.wait_for(completions.last_batch, commit.ended, completions.last_insert)
            else:
                self._soon(partial(commit.ended, None))
        finally:
            commits.end()

    def _committed(
        self, completion: Completion, rejected: list[Rejected], error: StoreError | None
    ) -> None:
        if error is None:
            for refusal in rejected:
                messages = [message for _, message in refusal.deliveries]
                refusal.consumer.source.reject(
                    messages, refusal.delay_ms, refusal.dead, refusal.consumer.spec.redelivery
                )
        self._completions.finish(completion, storage_failed(error))

    def rollback(self, done: Done) -> None:
        if self.gate is not None:
            raise NotSupported("rollback of an XA session, whose resource rolls branches back")
        self.check_open()
        if self.mode is not Mode.TRANSACTED:
            raise NotSupported("rollback outside of a transacted session")
        completion = self._completions.ask(done)
        self.touch_after(self._undo)
        self._completions.give_soon(completion, None)

    def recover(self) -> None:
        self.check_open()
        if self.gate is not None:
            # What is acknowledged in branches stays theirs.
            self.touch_after(lambda: self._give_back([], []))
            return
        if self.mode is Mode.TRANSACTED:
            raise NotSupported("recover in a transacted session")
        self.touch_after(self._undo)

    @property
    def at_work(self) -> bool:
        """Whether anything was done in the open transaction."""
        return bool(self.transaction.sends or self.transaction.acknowledged)

    def hand_over(self) -> Transaction:
        """Hand over the open transaction.

        It belongs to the caller then, with the octets that count in memory.
        """
        handed_over, self.transaction = self.transaction, self._begin()
        return handed_over

    def _end(self) -> Transaction:
        ended = self.hand_over()
        ended.stop_counting()
        return ended

    def _undo(self) -> None:
        """Roll back, and give everything outstanding back."""
        undone = self._end()
        self._give_back(undone.acknowledged, undone.rejected)

    def _give_back(
        self,
        acknowledged: list[tuple[EmbeddedConsumer, list[tuple[int, Message]]]],
        rejected: list[Rejected],
    ) -> None:
        undone = acknowledged + [(refusal.consumer, refusal.deliveries) for refusal in rejected]
        mine: dict[EmbeddedConsumer, list[Message]] = {consumer: [] for consumer in self._consumers}
        for consumer, deliveries in undone:
            if consumer.session is self:
                mine.setdefault(consumer, []).extend([message for _, message in deliveries])
            elif consumer.gone:
                consumer.source.redeliver([message for _, message in deliveries])
            else:
                consumer.restore(deliveries)
        for consumer, messages in mine.items():
            consumer.return_outstanding(messages)
        for pattern in list(self._patterns):
            pattern.recovered()
        for consumer in list(self._consumers):
            if consumer.closed:
                del self._consumers[consumer]

    # --- the end

    def close(self) -> None:
        if self._closed:
            return
        if self.closing is not None:
            self.closing()
        self._undo()
        for pattern in list(self._patterns):
            pattern.close()
        for consumer in list(self._consumers):
            consumer.close()
        self._consumers.clear()
        self._backpressure.close()
        self._closed = True
        self._completions.break_withheld(ProviderUnavailable("the session was closed"))
        self._siblings.pop(self, None)

    def sibling(self, session: Session) -> EmbeddedSession | None:
        for own in self._siblings:
            if own is session and own.gate is None:
                return own
        return None

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is closed, or its connection is."""
        if self._closed:
            raise ProviderUnavailable("the session is closed")
        self.routing.check_open()
