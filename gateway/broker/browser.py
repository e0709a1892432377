"""Queue browsers: read what waits in a queue, and leave it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.broker.distribution import BLOCK
from gateway.broker.store.interface import Batch
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.consumer import EmbeddedConsumer
    from gateway.broker.queue import PhysicalQueue
    from gateway.messaging.redelivery import RedeliveryPolicy


class QueueBrowser:
    """Walks a queue for one consumer, in delivery order, as far as there is credit; an empty delivery is the end.

    What arrives behind the place reached is seen, what leaves before it is reached is not.
    """

    def __init__(self, queue: PhysicalQueue) -> None:
        self._queue = queue
        self._consumer: EmbeddedConsumer | None = None
        self._marked = False
        self._ended = False

    def join(self, consumer: EmbeddedConsumer) -> None:
        self._consumer = consumer

    def leave(self, consumer: EmbeddedConsumer) -> None:
        self._consumer = None

    def mark(self) -> None:
        if not self._marked and not self._ended:
            self._marked = True
            self._queue.broker.turn.dispatch(self._walk)

    def _walk(self) -> None:
        self._marked = False
        consumer = self._consumer
        if consumer is None or not consumer.ready() or consumer.reading:
            return
        backlog = self._queue.backlog
        # What is looked at is copied first: delivering may change the queue.
        here = [
            message for message in backlog.waiting_in_memory() if message.seq > consumer.examined.get(message.headers.priority, -1)
        ]
        self._show(here)
        if self._consumer is None or not consumer.ready():
            return
        stored = backlog.tail_beyond(consumer.examined, BLOCK)
        if stored:
            consumer.reading = True
            self._queue.broker.read_back(stored, self._read)
        elif not self._ended:
            self._ended = True
            consumer.end_of_browse()

    def _read(self, messages: Sequence[Message]) -> None:
        consumer = self._consumer
        if consumer is not None:
            consumer.reading = False
            self._show(messages)
            self.mark()

    def _show(self, messages: Sequence[Message]) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        run: list[Message] = []
        for message in messages:
            if len(run) >= consumer.credit:
                break
            consumer.examined[message.headers.priority] = message.seq
            if consumer.wants(message):
                run.append(message)
        if run:
            consumer.hand(run, None)

    # Nothing that a browser's user does with a delivery changes the queue.

    def settle(self, messages: Sequence[Message]) -> None: ...

    def release(self, messages: Sequence[Message]) -> None: ...

    def settled(self, messages: Sequence[Message]) -> None: ...

    def unrelease(self, messages: Sequence[Message], batch: Batch) -> None: ...

    def give_back(self, messages: Sequence[Message]) -> None: ...

    def reject(
        self, messages: Sequence[Message], delay_ms: int | None, dead: DeadReason | None, policy: RedeliveryPolicy | None
    ) -> None: ...
