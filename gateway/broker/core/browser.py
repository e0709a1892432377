"""Queue browsers: read what waits in a queue, and leave it there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from gateway.broker.core.cursor import Cursor
from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.core.queue import PhysicalQueue
    from gateway.broker.core.source import Receiver
    from gateway.messaging.redelivery import RedeliveryChanges


class QueueBrowser:
    """Walks a queue for one consumer, in delivery order, as far as there is credit; an empty
    delivery is the end.

    What arrives behind the place reached is seen, what leaves before it is reached is not.
    """

    def __init__(self, queue: PhysicalQueue) -> None:
        self._queue = queue
        self._cursor = Cursor(queue.dispatch.backlog)
        self._consumer: Receiver | None = None
        self._marked = False
        self._ended = False

    def join(self, consumer: Receiver) -> None:
        self._consumer = consumer

    def leave(self, consumer: Receiver) -> None:
        self._consumer = None

    def mark(self) -> None:
        if not self._marked and not self._ended:
            self._marked = True
            self._queue.changes.turn.dispatch(self._walk)

    def _walk(self) -> None:
        self._marked = False
        consumer, cursor = self._consumer, self._cursor
        if consumer is not None and self._queue.dispatch.halted is not None:
            consumer.stop_for_good(self._queue.dispatch.halted)
            return
        if consumer is None or self._ended or not consumer.ready() or cursor.reading:
            return
        messages = list(islice(cursor.ahead(), BLOCK))
        if messages:
            if self._show(messages):
                self._marked = True
                self._queue.changes.slices.wait(self._walk)
            else:
                self.mark()
            return
        seqs = cursor.stored_ahead(BLOCK)
        if seqs:
            cursor.reading = True
            self._queue.changes.fetch(seqs, partial(self._read, seqs))
        elif seqs is None:
            # The queue is reading them for its consumers.
            self._queue.dispatch.after_reading(self.mark)
        else:
            self._ended = True
            consumer.end_of_browse()

    def _read(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        self._cursor.reading = False
        self._queue.dispatch.drop_missing(self._queue, seqs, messages)
        ahead = self._cursor.still_ahead(messages)
        left = self._show(ahead)
        if left:
            # Reading them once more would take longer than keeping them.
            self._cursor.reading = True
            self._queue.changes.slices.wait(partial(self._read, (), ahead[-left:]))
        self.mark()

    def _show(self, messages: Sequence[Message]) -> int:
        """Deliver what the consumer wants of these, as far as it has credit. :returns: how many
        there was no time to look at.
        """
        consumer = self._consumer
        if consumer is None or not consumer.ready() or self._queue.dispatch.halted is not None:
            return 0
        left = 0
        stride = 0 if consumer.selector is None else consumer.selector.stride
        spent = self._queue.changes.slices.spent
        now_ms = self._queue.changes.turn.now_ms
        octets = 1 << 62 if consumer.octets is None else consumer.octets
        run: list[Message] = []
        for index, message in enumerate(messages):
            if len(run) >= consumer.credit or octets <= 0:
                break
            if stride and index % stride == 0 and spent():
                left = len(messages) - index
                break
            self._cursor.looked_at(message)
            if not 0 < message.expires <= now_ms and consumer.wants(message):
                run.append(message)
                octets -= len(message.body)
        if run:
            consumer.hand(run, None)
        return left

    # Nothing that a browser's user does with a delivery changes the queue.

    def settle(self, messages: Sequence[Message]) -> None: ...

    def release(self, messages: Sequence[Message]) -> None: ...

    def settled(self, messages: Sequence[Message]) -> None: ...

    def give_up(self, messages: Sequence[Message]) -> None: ...

    def give_back(self, messages: Sequence[Message]) -> None: ...

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None: ...
