"""Group commit: what changes while the store is busy becomes durable with one synced commit.

Changes are gathered in a batch. At the end of a turn the batch goes to the store if the store is
idle, else it goes on gathering. Those who must not speak before a change is durable wait for the
batch that holds it, and are told in order. A batch that nobody waits for lingers a little: its sync
would only delay that of somebody who does.

A message stored and settled within one batch that is still gathering never touches the disk: its
insert is taken out again. Where consumers have of late settled every message before it was durable,
a batch of few messages waits a moment for them to do so again: that takes less time than a sync.
One that has waited in vain goes to the disk, and those after it do not wait until as much has been
proven again.

Owns batches, their order and their bounds. Knows nothing of destinations: the owner of a message is
told by callbacks when a commit failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from twisted.logger import Logger

from gateway.broker.durability.gathered import Gathered, Waiter, try_again
from gateway.broker.store.interface import (
    Batch,
    DestinationRow,
    RedeliveryRow,
    Row,
    Store,
    StoreError,
    StoreFull,
    SubscriptionRow,
)
from gateway.messaging.message import Message
from gateway.messaging.turn import Turn

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall

#: Bounds of one commit, and of what may wait before senders of persistent messages are held back.
MOST_OPERATIONS: Final = 2_000
MOST_OCTETS: Final = 4 * 1024 * 1024
MOST_WAITING: Final = 16 * 1024 * 1024
#: Seconds that a batch may linger which nobody waits for.
LINGER: Final = 0.01
#: Seconds for which a batch of fewer messages than this waits for them to be settled, after so many
#: batches in a row had been while they were stored.
SETTLING: Final = 0.0005
FEW: Final = 32
PROVEN: Final = 8


class GroupCommit:
    """Gathers changes and hands them to the store, one batch at a time.

    :param failed: called once when the store has failed for good.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, store: Store, turn: Turn, failed: Callable[[StoreError], None]) -> None:
        self._store = store
        self._turn = turn
        self._failed = failed
        self._gathering = Gathered(1)
        self._sealed: deque[Gathered] = deque()
        self._in_store: Gathered | None = None
        self._asked = False
        self._atomic = 0
        #: Changes gathered since the beginning.
        self.changes = 0
        #: Octets gathered and not yet durable.
        self.octets_waiting = 0
        #: Why nothing can be stored any more.
        self.broken: StoreError | None = None
        #: Told of a batch that the store has undone, and of the whole messages in it, before
        #: everyone else.
        self.on_undone: Callable[[Batch, dict[int, Message]], None] = _ignore
        #: Told of the rows of a batch that is durable, and of the whole messages in it, before
        #: those who wait for it.
        self.on_stored: Callable[[dict[int, Row], dict[int, Message]], None] | None = None
        #: Messages whose row is another's until they have their own: what to do when they are
        #: deleted.
        self.stand_ins: dict[int, Callable[[], None]] = {}
        self._relief: list[Callable[[], None]] = []
        #: Ends the lingering of the gathering batch, or its wait for its messages to be settled.
        self._lingering: IDelayedCall | None = None
        self._settling: IDelayedCall | None = None
        #: Batches in a row that had been settled when they were durable.
        self._proven = 0

    # --- gathering

    @property
    def number(self) -> int:
        """The batch that gathers now."""
        return self._gathering.batch.number

    @property
    def durable(self) -> int:
        """Every batch up to this number is durable, or has failed and said so."""
        if self._in_store is not None:
            return self._in_store.batch.number - 1
        if self._sealed:
            return self._sealed[0].batch.number - 1
        return self._gathering.batch.number - 1

    def insert(self, message: Message, destination: int, persistent: bool) -> None:
        """Store a message, which has a seq."""
        self.octets_waiting += self._gathering.insert(message, destination, persistent)
        self._changed()

    def delete(self, seq: int) -> None:
        """A stored message is gone."""
        batch = self._gathering.batch
        octets = self._gathering.take_back(seq)
        if octets >= 0:
            self.octets_waiting -= octets
            if self._settling is not None and not batch.inserts:
                self._ask()
            return
        batch.deletes[seq] = None
        if self.stand_ins:
            self.stand_ins.pop(seq, _nothing)()
        self._changed()

    def owe(self, subscription: int, seq: int) -> None:
        """A durable subscription has yet to take a stored message."""
        self._gathering.batch.owed[subscription, seq] = None
        self._changed()

    def settle(self, subscription: int, seq: int) -> None:
        """A durable subscription has taken it."""
        batch = self._gathering.batch
        batch.redeliveries.pop((subscription, seq), None)
        if batch.owed.pop((subscription, seq), self) is None:
            return
        batch.settled[subscription, seq] = None
        self._changed()

    def redelivery(self, owner: int, seq: int, attempts: int, not_before: int) -> None:
        """How often a stored message was tried. :param owner: 0 for a queue's, else the
        subscription.
        """
        self._gathering.batch.redeliveries[owner, seq] = RedeliveryRow(
            owner, seq, attempts, not_before
        )
        self._changed()

    def forget_redelivery(self, owner: int, seq: int) -> None:
        """A count that belongs to nothing any more."""
        self._gathering.batch.redeliveries.pop((owner, seq), None)
        self._gathering.batch.settled[owner, seq] = None
        self._changed()

    def destination(self, row: DestinationRow) -> None:
        """A destination is new, or has new properties."""
        self._gathering.batch.destinations[row.id] = row
        self._changed()

    def remove_destination(self, number: int) -> None:
        batch = self._gathering.batch
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
        batch = self._gathering.batch
        batch.subscriptions.pop(number, None)
        batch.removed_subscriptions[number] = None
        self._changed()

    def reserve(self, bound: int) -> None:
        """Every seq below ``bound`` may be in use."""
        self._gathering.batch.reserved = bound
        self._changed()

    def changing(self) -> Batch:
        """The batch that gathers now, for a change that its caller makes at once."""
        batch = self._gathering.batch
        self._changed()
        return batch

    def on_failure(self, undo: Callable[[Batch, StoreError], None]) -> None:
        """Call ``undo`` with the batch if the one that gathers now was undone by the store, before
        those who wait for it are told.

        What ``undo`` takes out of ``deletes`` and ``settled`` is not tried again with the next
        batch, as everything else is but messages and what is owed.
        """
        self._gathering.undo.append(undo)

    def after(self, call: Callable[[], None]) -> None:
        """Call ``call`` when what the batch asks that gathers now is durable. That makes it no more
        urgent: nobody waits.
        """
        self._gathering.after.append(call)

    @property
    def inserts(self) -> Container[int]:
        """Seqs of the messages that are to be stored with the batch that gathers now: one that is
        deleted meanwhile never touches the disk.
        """
        return self._gathering.batch.inserts

    @property
    def owed(self) -> Container[tuple[int, int]]:
        """The same of messages that durable subscriptions are owed: subscription and seq."""
        return self._gathering.batch.owed

    def wait(self, waiter: Waiter) -> None:
        """Tell ``waiter`` when everything gathered so far is durable. Never from inside this
        call.
        """
        self._gathering.waiters.append(waiter)
        self._ask()

    def wait_for(self, number: int, waiter: Waiter) -> None:
        """The same for batch ``number``, which is not durable yet."""
        for gathered in (self._in_store, *self._sealed):
            if gathered is not None and gathered.batch.number >= number:
                gathered.waiters.append(waiter)
                return
        self.wait(waiter)

    def retract(
        self,
        number: int,
        sent: Sequence[Message],
        undo: Callable[[Batch, StoreError], None],
        error: StoreError,
    ) -> None:
        """Before the store gets batch ``number``: undo a part of it, as :meth:`on_failure` does,
        and take these messages out.
        """
        for gathered in (*self._sealed, self._gathering):
            if gathered.batch.number == number:
                undo(gathered.batch, error)
                gathered.take_out(sent)

    def keep_row(self, seq: int) -> bool:
        """After a batch was undone: do not delete a message after all. :returns: False when no
        batch that waits would have.
        """
        return any(
            gathered.batch.deletes.pop(seq, self) is None
            for gathered in (*self._sealed, self._gathering)
        )

    def begin(self) -> None:
        """What follows belongs together: it is not divided over two batches. Nests."""
        self._atomic += 1

    def end(self) -> None:
        self._atomic -= 1
        self._seal_if_large()

    def seal_if_inserted(self, seqs: Iterable[int]) -> None:
        """Begin a new batch if the insert of one of these is still gathering, so that what follows
        is no reason to leave it out.

        Not between :meth:`begin` and :meth:`end`.
        """
        inserts = self._gathering.batch.inserts
        if inserts and not self._atomic and any(seq in inserts for seq in seqs):
            self._seal()

    def unstored(self, seq: int) -> Message | None:
        """A message whose insert is not in the store yet."""
        found = self._gathering.messages.get(seq)
        if found is None:
            for gathered in self._sealed:
                found = gathered.messages.get(seq)
                if found is not None:
                    return found
            if self._in_store is not None:
                found = self._in_store.messages.get(seq)
        return found

    def refusing(self) -> str | None:
        """Why persistent messages are refused now; None when they are not. Acknowledgements go on
        while the disk is full.
        """
        if self.broken is not None:
            return str(self.broken)
        return "the disk is full" if self._store.draining else None

    def crowded(self) -> bool:
        """More waits for the disk than should."""
        return self.octets_waiting > MOST_WAITING

    def give_up(self, error: StoreError) -> None:
        """Nothing can be stored any more, although no commit has failed."""
        if self.broken is None:
            self.broken = error
            self._failed(error)

    def backed_up(self) -> bool:
        """Whether full batches wait for the store: what can wait should not add to them."""
        return bool(self._sealed)

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once, at the end of a turn, when it is no longer crowded."""
        self._relief.append(resume)

    # --- handing off

    def _changed(self) -> None:
        self._gathering.batch.operations += 1
        self.changes += 1
        if not self._asked:
            self._ask()
        self._seal_if_large()

    def _seal_if_large(self) -> None:
        batch = self._gathering.batch
        if not self._atomic and (
            batch.operations >= MOST_OPERATIONS or batch.octets >= MOST_OCTETS
        ):
            self._seal()

    def _seal(self) -> None:
        """The gathering batch waits for the store. Elision looks only at the one that gathers, so
        it goes to the disk as it is.
        """
        self._sealed.append(self._gathering)
        self._gathering = Gathered(self._gathering.batch.number + 1)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._turn.hand_off(self._hand_off)

    def _hand_off(self) -> None:
        self._asked = False
        if self._in_store is not None:
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
        self._settling = None
        self._proven = 0
        if self._in_store is None:
            self._submit()

    def _lingered(self) -> None:
        self._lingering = None
        if self._in_store is None:
            self._submit()

    def _submit(self) -> None:
        """Give the oldest batch to the store, which is idle."""
        for call in (self._lingering, self._settling):
            if call is not None:
                call.cancel()
        self._lingering = self._settling = None
        if self._sealed:
            gathered = self._sealed.popleft()
        elif self._gathering.batch or self._gathering.waiters:
            gathered = self._gathering
            self._gathering = Gathered(gathered.batch.number + 1)
        else:
            return
        self._in_store = gathered
        if not gathered.batch:
            # Everything in it was settled before it was written: there is nothing to wait for.
            self._finish(None)
        elif self.broken is not None:
            self._finish(self.broken)
        else:
            self._store.submit(gathered.batch, self._committed)

    def _committed(self, error: StoreError | None) -> None:
        self._turn.begin()
        try:
            self._finish(error)
        finally:
            self._turn.end()

    def _finish(self, error: StoreError | None) -> None:
        gathered = self._in_store
        assert gathered is not None
        self._in_store = None
        self.octets_waiting -= gathered.batch.octets
        if isinstance(error, StoreFull):
            self.guard(self.on_undone, gathered.batch, gathered.messages)
            for undo in reversed(gathered.undo):
                self.guard(undo, gathered.batch, error)
            try_again(
                gathered.batch, [waiting.batch for waiting in (*self._sealed, self._gathering)]
            )
            following = self._sealed[0] if self._sealed else self._gathering
            following.after = gathered.after + following.after
        elif error is not None and self.broken is None:
            self.broken = error
            self._failed(error)
        inserts = gathered.batch.inserts
        if error is None:
            if self.on_stored is not None and inserts:
                self.guard(self.on_stored, inserts, gathered.messages)
            for call in gathered.after:
                self.guard(call)
        if gathered.waiters and 0 < len(inserts) < FEW:
            self._proven = (
                self._proven + 1 if inserts.keys() <= self._gathering.batch.deletes.keys() else 0
            )
        for waiter in gathered.waiters:
            self.guard(waiter, error)
        if self._relief and not self.crowded():
            self._relief, resumed = [], self._relief
            for resume in resumed:
                self._turn.dispatch(resume)
        if self._sealed or self._gathering.batch or self._gathering.waiters:
            self._ask()

    def guard(self, call: Callable[..., None], *arguments: object) -> None:
        """One who is told must not take the others' turn away; it is logged, never silent."""
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001
            self._log.failure("what followed a commit failed: {call}", call=call)


def _nothing() -> None:
    """Nothing stands in."""


def _ignore(batch: Batch, messages: dict[int, Message]) -> None:
    """Nobody keeps messages."""
