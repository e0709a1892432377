"""The broker's dead message queue, ``mq.sys.dmq``.

Owns what a dead message looks like and whether it is kept. Its name, the reasons and property names
are ``messaging.dead``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gateway.broker.store.interface import Batch, StoreError
from gateway.messaging import dead
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import Int, Value

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.core.distribution import Distribution
    from gateway.broker.core.physical import Physical
    from gateway.broker.journey import Journey


#: Before the disk is tried again that had no room for a dead message.
_PAUSE_MS: Final = 1_000


class DeadLetters:
    """Puts dead messages where an administrator finds them.

    :param truncate: keep headers only (``imq.destination.DMQ.truncateBody``).
    :param log_all: log each dead message (``imq.destination.logDeadMsgs``).
    """

    def __init__(self, broker: Broker, *, truncate: bool, log_all: bool) -> None:
        self._broker = broker
        self._truncate = truncate
        self._log_all = log_all
        #: What tells the journal of the dead; None where nothing does.
        self.journey: Journey | None = None

    def tell(
        self, source: Distribution, messages: Sequence[Message], reason: DeadReason, comment: str
    ) -> None:
        """These are dead, and about to be settled: the journal hears of it."""
        if self.journey is not None:
            self.journey.buried(source, messages, reason, comment)

    def bury(
        self,
        physical: Physical,
        source: Distribution,
        message: Message,
        reason: DeadReason,
        comment: str,
    ) -> None:
        """Keep a dead message of ``physical``, where its properties or the message's own say so.

        The caller settles the message at ``source`` in the same batch, so that it is in one place
        or the other.
        """
        broker = self._broker
        headers = message.headers
        properties = headers.properties
        lost = physical.destination == DMQ and reason not in (
            DeadReason.OLDEST,
            DeadReason.LOW_PRIORITY,
        )
        if lost or _wish(properties, dead.LOG_DEAD_MESSAGES, self._log_all):
            broker.log.info(
                "message {id} of {destination} is dead: {reason}, {comment}",
                id=message.message_id,
                destination=str(physical.destination),
                reason=reason.value,
                comment=comment,
            )
        if not self._keeps(physical, message):
            return
        truncate = _wish(properties, dead.TRUNCATE_MSG_BODY, self._truncate) and bool(message.body)
        added: dict[str, Value] = {
            dead.UNDELIVERED_TIMESTAMP: broker.turn.refresh(),
            dead.UNDELIVERED_REASON: reason.value,
            dead.UNDELIVERED_COMMENT: comment,
            dead.DELIVERY_COUNT: Int(source.tried.get(message.seq, 0)),
            dead.BODY_TRUNCATED: truncate,
            dead.DEAD_BROKER: broker.options.name,
            dead.ORIGINAL_DESTINATION: str(physical.destination),
        }
        copy = Message(
            # Without its duplicate id: who sends the copy back to where it came from means it.
            headers.replace(
                destination=DMQ,
                properties={
                    name: value
                    for name, value in (*properties.items(), *added.items())
                    if name != DUPLICATE_ID
                },
            ),
            b"" if truncate else message.body,
            timestamp=message.timestamp,
            message_id=message.message_id,
        )
        copy.user = message.user
        broker.arrive(DMQ, [copy])
        if copy.stored:
            _Burial(physical, source, message, copy)

    def _keeps(self, physical: Physical, message: Message) -> bool:
        wish = _wish(
            message.headers.properties, dead.PRESERVE_UNDELIVERED, physical.properties.use_dmq
        )
        return wish and physical.destination != DMQ

    def prepare(self, physical: Physical, messages: Sequence[Message]) -> None:
        """These are about to be buried. One that is not in the store yet is to come there all the
        same.

        For what is promised to its sender is the message, and it is kept by its copy, which a full
        disk may refuse.
        """
        self._broker.commits.seal_if_inserted(
            [message.seq for message in messages if self._keeps(physical, message)]
        )


class _Burial:
    """A dead message whose copy is to be stored. The disk may be full, and what is dead is not its
    sender's to send again: until there is a row of the copy, that of the message stands in for it,
    and goes when the copy does.

    Until one of them is durably gone, the message's place in the store stays: the rows of its
    destination, and of its durable subscription.
    """

    __slots__ = ("_broker", "_copy", "_kept", "_message", "_open", "_physical", "_source")

    def __init__(
        self, physical: Physical, source: Distribution, message: Message, copy: Message
    ) -> None:
        self._broker = physical.broker
        self._physical = physical
        self._source = source
        self._message = message
        self._copy = copy
        #: What stands in.
        self._kept: Sequence[Message] = ()
        #: Batches that are not durable and may put the message back.
        self._open = 0
        physical.clearing += 1
        physical.unburied += 1
        if source.owner:
            source.unburied += 1
        self._watch(self._undone)

    def _watch(self, undone: Callable[[Batch, StoreError], None]) -> None:
        """The message's row goes with the batch that gathers, unless that is undone."""
        self._open += 1
        self._broker.commits.on_failure(undone)
        self._broker.commits.after(self._over)

    def _over(self) -> None:
        """A batch is durable, at its first attempt or with the one that followed."""
        self._open -= 1
        if self._open or self._kept:
            return
        physical, source = self._physical, self._source
        physical.unburied -= 1
        if source.owner:
            source.unburied -= 1
            if not source.unburied and source.on_dead is not None:
                source.on_dead()
        physical.cleared()

    def _undone(self, batch: Batch, error: StoreError) -> None:
        copy = self._copy
        if copy.seq in batch.inserts:
            self._broker.queue(DMQ).in_memory_again([copy])
            # Had the copy been taken since, its message would go too.
            if copy.stored:
                self._stand_in(batch)

    def _stand_in(self, batch: Batch) -> None:
        kept = self._source.unrelease([self._message], batch)
        if kept:
            self._kept = kept
            self._wait()

    def _wait(self) -> None:
        self._broker.commits.stand_ins[self._copy.seq] = self._taken
        self._broker.schedule.after(_PAUSE_MS, self._again)

    def _release(self, undone: Callable[[Batch, StoreError], None]) -> None:
        kept, self._kept = self._kept, ()
        self._source.release(kept)
        self._watch(undone)

    def _taken(self) -> None:
        self._release(self._untaken)

    def _untaken(self, batch: Batch, error: StoreError) -> None:
        if self._copy.seq not in batch.deletes:
            # A transaction had taken the copy, and was undone.
            self._stand_in(batch)

    def _again(self) -> None:
        commits = self._broker.commits
        if commits.stand_ins.pop(self._copy.seq, None) is None:
            return
        if commits.refusing() is not None:
            self._wait()
            return
        commits.begin()
        try:
            self._broker.rows.insert(
                self._broker.queue(DMQ), self._copy, persistent=self._copy.headers.persistent
            )
            self._release(self._not_stored)
        finally:
            commits.end()

    def _not_stored(self, batch: Batch, error: StoreError) -> None:
        if self._copy.seq in batch.inserts:
            self._stand_in(batch)


def _wish(properties: object, name: str, default: bool) -> bool:
    """What the message says of itself; STOMP clients can only say it as a String."""
    value = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return default
