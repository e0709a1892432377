"""Group commit: one synced commit for all changes of a busy period.

Changes that arrive while the store is busy become durable together. At the end of a turn the batch
that has gathered goes to the store if the store is idle, else it goes on gathering. Those who must not speak before a change is durable wait for the
batch that holds it, and are told in order. A batch without waiters lingers a little: its sync
would only delay that of a batch with waiters.

A message stored and settled within one batch that is still gathering never touches the disk: its
insert is taken out again. Where consumers have of late settled every message before it was durable,
a batch of few messages waits a moment for them to do so again: that takes less time than a sync.
One that has waited in vain goes to the disk, and those after it do not wait until as much has been
proven again. Where they have settled nothing of late, the batch goes to the store before the turn's
writes, which it need not wait for then.

On a full disk a second batch gathers what needs room: :mod:`gateway.broker.durability.full_disk`.
Everything else goes ahead in the usual batches. While the turn is suspended nothing is handed off.

Owns batches, their order and their bounds. Knows nothing of destinations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from gateway.broker.durability.batch import REMOVED, PendingBatch, Waiter, guard
from gateway.broker.durability.full_disk import DelayedInserts
from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    Row,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
    SubscriptionRow,
)
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn

#: Bounds of one commit; the second is that of a store that was idle.
MOST_OPERATIONS: Final = 2_000
MOST_OCTETS: Final = 4 * 1024 * 1024
#: What may wait before senders of persistent messages are held back; and the bound of a commit while
#: the store has others to write.
MOST_WAITING: Final = 16 * 1024 * 1024
#: Seconds that a batch without waiters may linger.
LINGER: Final = 0.01
#: Seconds for which a batch of fewer messages than this waits for them to be settled, after that many
#: batches in a row had been while they were stored.
SETTLING: Final = 0.0005
FEW: Final = 32
PROVEN: Final = 8
#: Seconds after which a batch that inserts nothing and found no room is tried again, and how often.
RETRY: Final = 1.0
CLOSING_TRIES: Final = 3


class GroupCommit:
    """Gathers changes and hands them to the store, one batch at a time.

    :param failed: called once when the store has failed for good.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, store: Store, turn: Turn, failed: Callable[[StoreError], None]) -> None:
        self._store = store
        self._turn = turn
        self._failed = failed
        self._gathering = PendingBatch(1)
        self._sealed: deque[PendingBatch] = deque()
        self._in_store: PendingBatch | None = None
        #: Those that the store has behind that one, when it is to be closed.
        self._behind: deque[PendingBatch] = deque()
        self._asked = False
        self._atomic = 0
        #: Something is inserted in what belongs together now.
        self._inserting = False
        #: The disk is full: what needs room waits for it.
        self.full = False
        self._delayed = DelayedInserts()
        #: Calls of :meth:`after` in what belongs together now, while the disk is full.
        self._after: list[Callable[[], None]] = []
        #: There is no room even for what inserts nothing.
        self._blocked = False
        self._closing = False
        self._tries = 0
        #: Changes gathered since the beginning, and how many of them need room.
        self.changes = 0
        self.inserted = 0
        #: Octets gathered and not yet durable.
        self.octets_waiting = 0
        #: Why nothing can be stored any more.
        self.broken: StoreError | None = None
        #: Told of the rows and the whole messages of a durable batch, before those who wait for it.
        self.on_stored: Callable[[dict[int, Row], dict[int, Message]], None] | None = None
        self._relief: list[Callable[[], None]] = []
        self._room: list[Callable[[], None]] = []
        #: Ends the lingering of the gathering batch, or its wait for its messages to be settled.
        self._lingering: IDelayedCall | None = None
        self._settling: IDelayedCall | None = None
        #: Batches in a row that had been settled when they were durable; and in which nothing was.
        self._proven = self._unsettled = 0

    # --- gathering

    @property
    def number(self) -> int:
        """The batch that gathers now."""
        return self._gathering.batch.number

    @property
    def durable(self) -> int:
        """The number up to which batches are durable, without delayed inserts."""
        oldest = self._in_store or (self._sealed[0] if self._sealed else self._gathering)
        return oldest.covers_from - 1

    @property
    def stored(self) -> int:
        """Every insert of the batches up to this number is durable."""
        return self._delayed.stored(self.durable)

    def waits_for_room(self, number: int) -> bool:
        """Whether inserts asked for in this batch wait for room on the disk."""
        return bool(self._delayed.batches) and self._delayed.has_inserts_of(number)

    def insert(self, message: Message, destination: int, persistent: bool) -> None:
        """Store a message, which has a seq."""
        self.inserted += 1
        if self._atomic:
            self._inserting = True
        if self.full:
            self.changes += 1
            delayed = self._delayed.for_insert(self._gathering.batch.number)
            self.octets_waiting += delayed.insert(message, destination, persistent)
            return
        self.octets_waiting += self._gathering.insert(message, destination, persistent)
        self._changed()

    def delete(self, seq: int) -> None:
        """A stored message is gone."""
        gathering = self._gathering
        octets = gathering.cancel_insert(seq)
        if octets >= 0:
            self._unsettled = 0
            self.octets_waiting -= octets
            if self._relief or (self._settling is not None and not gathering.batch.inserts):
                self._ask()
            return
        delayed = self._delayed.waiting
        if delayed is not None:
            octets = delayed.cancel_insert(seq)
            if octets >= 0:
                self.octets_waiting -= octets
                if delayed.tied_deletes or delayed.tied_settlements:
                    # It may be the copy of a dead message, whose original is still in the store.
                    self.inserted += 1
                if self._relief or not delayed.batch.inserts:
                    self._ask()
                return
        if self._inserting or (delayed is not None and seq in delayed.tied_deletes):
            self._delayed.tie(seq, gathering).batch.deletes[seq] = None
        else:
            gathering.batch.deletes[seq] = None
        self._changed()

    def tie_to(self, seq: int) -> None:
        """What belongs together now is durable no sooner than this insert."""
        if self.unstored(seq) is not None:
            self._inserting = True

    def owe(self, subscription: int, seq: int) -> None:
        """A durable subscription has yet to take a stored message."""
        self._delayed.of(seq, self._gathering).batch.owed[subscription, seq] = None
        self._changed()

    def settle(self, subscription: int, seq: int) -> None:
        """A durable subscription has taken it, and its count of attempts goes."""
        pair = (subscription, seq)
        for pending in (self._gathering, self._delayed.waiting):
            if pending is not None and pending.batch.owed.pop(pair, self) is None:
                pending.batch.redeliveries.pop(pair, None)
                return
        pending = self._gathering
        if self._inserting:
            pending = self._delayed.tie(seq, pending)
            pending.tied_settlements.add(pair)
        pending.batch.settled[pair] = None
        self._changed()

    def redelivery(self, owner: int, seq: int, attempts: int, not_before: int) -> None:
        """Store the number of delivery attempts of a stored message.

        :param owner: 0 for a queue's, else the subscription.
        """
        pending = self._delayed.of(seq, self._gathering)
        pending.batch.redeliveries[owner, seq] = RedeliveryRow(owner, seq, attempts, not_before)
        self._changed()

    def destination(self, row: DestinationRow) -> None:
        """A destination is new, or has new properties, or is being removed."""
        pending = self._gathering
        if row.administered == REMOVED:
            pending = self._delayed.of_removal(pending)
        pending.batch.destinations[row.id] = row
        self._changed()

    def remove_destination(self, number: int) -> None:
        batch = self._delayed.of_removal(self._gathering).batch
        if not batch.inserts:
            # Else one of them may be in it; what is removed is removed last.
            batch.destinations.pop(number, None)
        batch.removed_destinations[number] = None
        self._changed()

    def subscription(self, row: SubscriptionRow) -> None:
        """A durable subscription is new."""
        self._gathering.batch.subscriptions[row.id] = row
        self._changed()

    def remove_subscription(self, number: int) -> None:
        batch = self._delayed.of_removal(self._gathering).batch
        batch.subscriptions.pop(number, None)
        batch.removed_subscriptions[number] = None
        self._changed()

    def reserve(self, bound: int) -> None:
        """Every seq below ``bound`` may be in use."""
        self._gathering.batch.reserved = bound
        self._changed()

    def remember(self, row: DuplicateRow) -> None:
        """Remember the duplicate id of a message that is inserted or not owed."""
        self.inserted += 1
        if self._atomic:
            self._inserting = True
        pending = self._gathering
        if self.full:
            self.changes += 1
            pending = self._delayed.for_insert(pending.batch.number)
        pending.batch.duplicates[row.seq] = row
        self._changed()

    def forget(self, seq: int) -> None:
        """A duplicate id is not remembered any longer. :param seq: of its message."""
        for pending in (self._gathering, self._delayed.waiting):
            if pending is not None and pending.batch.duplicates.pop(seq, None) is not None:
                return
        self._gathering.batch.forgotten[seq] = None
        self._changed()

    def branch(self, row: BranchRow) -> None:
        """A transaction branch is prepared, or was ended by an administrator."""
        pending = self._gathering
        if self._inserting:
            pending = self._delayed.waiting or pending
            pending.tied_branches.add(row.id)
        pending.batch.branches[row.id] = row
        self._changed()

    def remove_branch(self, number: int) -> None:
        """A transaction branch is over."""
        self._gathering.batch.removed_branches[number] = None
        self._changed()

    def after(self, call: Callable[[], None]) -> None:
        """Run ``call`` once this section is durable. Does not force a flush."""
        if self.full and self._atomic:
            self._after.append(call)
        else:
            self._gathering.after.append(call)

    def is_inserting(self, seq: int) -> bool:
        """Whether its insert gathers: deleted now, it never touches the disk."""
        return seq in self._delayed.of(seq, self._gathering).batch.inserts

    def is_owing(self, subscription: int, seq: int) -> bool:
        """The same of a message that a durable subscription is owed."""
        pair = (subscription, seq)
        delayed = self._delayed.waiting
        return pair in self._gathering.batch.owed or (
            delayed is not None and pair in delayed.batch.owed
        )

    def wait(self, waiter: Waiter, *, inserts: bool = False, removals: bool = False) -> None:
        """Tell ``waiter`` when everything gathered so far is durable.

        Never from inside this call.

        :param inserts: it waits for inserts, too, which may have to wait for room.
        :param removals: it waits for the removal of a destination or a subscription.
        """
        delayed = self._delayed.waiting
        if delayed is not None and (inserts or (removals and delayed.removes_destinations)):
            delayed.waiters.append((waiter, True))
        else:
            self._gathering.waiters.append((waiter, inserts or removals))
        self._ask()

    def wait_for(self, number: int, waiter: Waiter, inserted: int = 0) -> None:
        """The same for batch ``number``, which is not durable yet.

        :param inserted: the last batch that gathered when something waited for was inserted.
        """
        for delayed in self._delayed.batches:
            if delayed.inserts_from <= inserted <= delayed.inserts_to:
                if delayed is self._delayed.waiting:
                    delayed.waiters.append((waiter, True))
                    self._ask()
                    return
                number = max(number, delayed.batch.number)
        # Inserts that are on their way may find no room yet, whichever batch is waited for.
        inserts = inserted > self.stored
        for pending in (self._in_store, *self._sealed):
            if pending is not None and pending.batch.number >= number:
                pending.waiters.append((waiter, inserts))
                return
        self._gathering.waiters.append((waiter, inserts))
        self._ask()

    def begin(self) -> None:
        """Begin changes that are not divided over two batches. Nests."""
        self._atomic += 1

    def end(self) -> None:
        self._atomic -= 1
        if not self._atomic:
            if self._after:
                delayed = self._delayed.waiting if self._inserting else None
                (delayed or self._gathering).after.extend(self._after)
                self._after.clear()
            self._inserting = False
        self._seal_if_large()

    def unstored(self, seq: int) -> Message | None:
        """A message whose insert is not in the store yet."""
        for pending in (self._gathering, self._delayed.waiting, *self._sealed, self._in_store):
            if pending is not None and seq in pending.messages:
                return pending.messages[seq]
        return None

    def trouble(self) -> str:
        """Why persistent messages are not stored now; "" when they are."""
        if self.broken is not None:
            return str(self.broken)
        return "the disk is full" if self.full else ""

    def crowded(self) -> bool:
        """More waits for the disk than should."""
        return self.octets_waiting > MOST_WAITING

    def fail(self, error: StoreError) -> None:
        """Nothing can be stored any more, although no commit has failed."""
        if self.broken is None:
            self.broken = error
            self._failed(error)
            # A hand-off that was asked for may wait until the turn resumes.
            self._asked = False
            self._ask()

    @property
    def octets_without_room(self) -> int:
        """Bytes of inserts that wait for room on the disk."""
        return 0 if self._delayed.waiting is None else self._delayed.waiting.batch.octets

    def backed_up(self) -> bool:
        """Whether full batches wait for the store; work that can wait should."""
        return bool(self._sealed)

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once, at the end of a turn, when no longer crowded."""
        self._relief.append(resume)

    def on_room(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once at a turn's end, when no insert waits for room."""
        self._room.append(resume)

    # --- a full disk

    def disk_full(self, full: bool) -> None:
        """The disk is full, or has room again."""
        if full == self.full:
            return
        self.full = full
        if full:
            self._delay(None)
        elif self._delayed.waiting is not None and not self._closing:
            self._write_delayed()
        self._unblock()

    def _delay(self, failed: PendingBatch | None) -> None:
        """Let inserts that are not durable wait for room; the rest goes ahead.

        :param failed: the batch that has found no room, whose inserts come first.
        """
        self._gathering, octets = self._delayed.divide(failed, self._sealed, self._gathering)
        self.octets_waiting -= octets
        self._sealed.clear()
        self._ask()

    def _write_delayed(self) -> None:
        """Queue what was delayed behind all that was asked."""
        gathering = self._gathering
        if not gathering.empty:
            self._sealed.append(gathering)
        number = gathering.batch.number + (not gathering.empty)
        self._sealed.append(self._delayed.release(number))
        self._gathering = PendingBatch(number + 1)

    def _no_room(self, failed: PendingBatch) -> None:
        """A batch has found no room on the disk."""
        if failed.batch.inserts:
            self._delay(failed)
            return
        self._sealed.appendleft(failed)
        if not self._closing:
            self._blocked = True
            self._turn.later(RETRY, self._unblock)
            return
        self._tries += 1
        if self._tries >= CLOSING_TRIES:
            lost = "the disk is full: what was acknowledged last could not be written, and is delivered again after the next start"
            self.fail(StoreFailed(lost))
        self._ask()

    def _unblock(self) -> None:
        self._blocked = False
        self._ask()

    def close(self, closed: Waiter) -> None:
        """Make durable what was asked, except what waits for room.

        Then call ``closed``, with an error if something that needs no room could not be written.
        """
        self._closing = True
        self._unblock()
        waiting = 0 if (delayed := self._delayed.waiting) is None else len(delayed.batch.inserts)
        if waiting:
            self._log.warn(
                "{count} messages waited for room on the disk and are not stored; their senders had no confirmation",
                count=waiting,
            )
        self.wait(closed)

    def submit_all(self) -> None:
        """Submit all that needs no room at once: the store is to be closed."""
        for pending in (*self._sealed, self._gathering):
            self._behind.append(pending)
            self._store.submit(pending.batch, self._committed)
        self._sealed.clear()
        self._gathering = PendingBatch(self._gathering.batch.number + 1)
        if self._in_store is None:
            self._in_store = self._behind.popleft()

    # --- handing off

    def _changed(self) -> None:
        self._gathering.batch.operations += 1
        self.changes += 1
        if not self._asked:
            self._ask()
        self._seal_if_large()

    def _seal_if_large(self) -> None:
        """Let a large batch wait for the store: its inserts are not cancelled.

        While the store has others to write, it goes on gathering: long messages that are settled by
        then are not written.
        """
        batch = self._gathering.batch
        if not self._atomic and (
            batch.operations >= MOST_OPERATIONS
            or batch.octets >= MOST_WAITING
            or (batch.octets >= MOST_OCTETS and self._in_store is None and not self._sealed)
        ):
            self._sealed.append(self._gathering)
            self._gathering = PendingBatch(batch.number + 1)
            self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            # While the turn is suspended, only a failure is told.
            early = self.broken is not None if self._turn.suspended else self._unsettled >= PROVEN
            (self._turn.write if early else self._turn.store)(self._hand_off)

    def _hand_off(self) -> None:
        self._asked = False
        if self._relief and not self.crowded():
            self._resume(self._relief)
        delayed = self._delayed.waiting
        if delayed is not None and (not delayed.batch.inserts or self.broken is not None):
            self._write_delayed()
        if self._in_store is not None or self._blocked:
            return
        gathering = self._gathering
        if self._sealed or self.broken is not None:
            self._submit()
        elif gathering.waiters:
            if self._proven >= PROVEN and 0 < len(gathering.batch.inserts) < FEW:
                if self._settling is None:
                    self._settling = self._turn.later(SETTLING, self._not_settled)
            else:
                self._submit()
        elif gathering.batch and self._lingering is None:
            self._lingering = self._turn.later(LINGER, self._lingered)

    def _not_settled(self) -> None:
        self._settling, self._proven = None, 0
        if self._in_store is None:
            self._submit()

    def _lingered(self) -> None:
        self._lingering = None
        if self._in_store is None:
            self._submit()

    def _submit(self) -> None:
        """Give the oldest batch to the store, which is idle."""
        if self._turn.suspended and self.broken is None:
            self._ask()
            return
        for call in (self._lingering, self._settling):
            if call is not None:
                call.cancel()
        self._lingering = self._settling = None
        if self._sealed:
            pending = self._sealed.popleft()
        elif self._gathering.batch or self._gathering.waiters:
            pending = self._gathering
            self._gathering = PendingBatch(pending.batch.number + 1)
        else:
            return
        self._in_store = pending
        if not pending.batch:
            # Everything in it was settled before it was written: there is nothing to wait for.
            self._finish(None)
        elif self.broken is not None:
            self._finish(self.broken)
        else:
            self._store.submit(pending.batch, self._committed)

    def _committed(self, error: StoreError | None) -> None:
        with self._turn:
            self._finish(error)

    def _finish(self, error: StoreError | None) -> None:
        pending = self._in_store
        assert pending is not None
        self._in_store = self._behind.popleft() if self._behind else None
        if isinstance(error, StoreFull):
            self._no_room(pending)
            return
        self.octets_waiting -= pending.batch.octets
        if error is not None:
            self.fail(error)
        inserts = pending.batch.inserts
        if self._delayed.batches:
            self._delayed.is_durable(pending)
        if error is None:
            if self.on_stored is not None and inserts:
                guard(self.on_stored, inserts, pending.messages)
            for call in pending.after:
                guard(call)
        if pending.waiters and inserts:
            self._learn(inserts)
        self._ask_if_any()
        for waiter, _ in pending.waiters:
            guard(waiter, error)
        if self._relief and not self.crowded():
            self._resume(self._relief)
        if self._room and not self._delayed.batches:
            self._resume(self._room)
        self._ask_if_any()

    def _ask_if_any(self) -> None:
        gathering, delayed = self._gathering, self._delayed.waiting
        if self._sealed or gathering.batch or gathering.waiters or delayed is not None:
            self._ask()

    def _learn(self, inserts: dict[int, Row]) -> None:
        """See how much of a durable batch had been settled meanwhile."""
        deletes = self._gathering.batch.deletes.keys()
        if len(inserts) < FEW:
            self._proven = self._proven + 1 if inserts.keys() <= deletes else 0
        self._unsettled = self._unsettled + 1 if inserts.keys().isdisjoint(deletes) else 0

    def _resume(self, waiting: list[Callable[[], None]]) -> None:
        """Let senders go on who were held back."""
        resumed = waiting.copy()
        waiting.clear()
        for resume in resumed:
            self._turn.deliver(resume)
