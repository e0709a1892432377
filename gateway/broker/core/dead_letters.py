"""The dead message queues: ``mq.sys.dmq``, and those of destinations.

A destination may have a dead message queue of its own (``deadLetterQueue``), under ActiveMQ's names or
others. It is a queue as others are for its consumers. It is made by its first dead message, with the
limits of ``mq.sys.dmq``; one that its consumers have made before gets these then. One that settings or
an administrator have made keeps what they say. As from ``mq.sys.dmq``, what dies in it goes nowhere.

Owns what a dead message looks like and whether it is kept. The name of the broker's own, the reasons
and property names are ``messaging.dead``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

from twisted.logger import Logger

from gateway.broker.core.consumers.consumer import QueueOrSubscription
from gateway.broker.core.limit_reports import DeadReports
from gateway.broker.durability.rows import Destined
from gateway.broker.properties.settings import DEAD_QUEUE_PROPERTIES, BrokerOptions
from gateway.messaging import dead
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.scheduled import SCHEDULES
from gateway.messaging.values import Int, Value
from gateway.reactor.turn import Turn


class DeadJournal(Protocol):
    """Is told of the dead."""

    def buried(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
    ) -> None: ...

    def flush(self) -> None:
        """Hand over what was told until now."""


class DeadQueue(Destined, Protocol):
    """A queue for dead messages."""

    @property
    def changes(self) -> Storing: ...


class Storing(Protocol):
    """Writes destinations to the store."""

    def store_destination(self, physical: Destined) -> None: ...


class DeadLetters:
    """Puts dead messages where an administrator finds them.

    :param arrive: gives a destination messages of the broker's own.
    :param create: makes a destination, unless it is there.
    :param options: ``name`` is in every dead message (``imq.instancename``); ``truncate_dead`` keeps
        headers only, ``log_dead`` logs each dead message.
    :param reports: counts them.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(
        self,
        arrive: Callable[[Destination, Sequence[Message]], None],
        create: Callable[[Destination], DeadQueue],
        turn: Turn,
        options: BrokerOptions,
        reports: DeadReports,
    ) -> None:
        self._arrive = arrive
        self._create = create
        self._reports = reports
        self._turn = turn
        self._options = options
        #: What tells the journal of the dead; None where nothing does.
        self.journal: DeadJournal | None = None
        #: Told of each dead message, and whether it was kept; None where no client listens.
        self.listener: Callable[[Destination, Message, DeadReason, bool], None] | None = None

    def tell(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
    ) -> None:
        """These are dead, and about to be settled: the journal hears of it."""
        if self.journal is not None:
            self.journal.buried(source, messages, reason, comment)

    def bury(
        self,
        physical: Destined,
        source: QueueOrSubscription,
        message: Message,
        reason: DeadReason,
        comment: str,
        keeps: bool = True,
    ) -> None:
        """Keep a dead message if its destination or the message says so.

        ``physical`` is its destination; the message can say it in its own properties.

        :param keeps: whether who has rejected it wants it kept: else only the message can say so.

        The caller settles the message at ``source`` in the same batch, so that it is in one place
        or the other.
        """
        headers = message.headers
        properties = headers.properties
        physical.died[reason] = physical.died.get(reason, 0) + 1
        physical.last_death, physical.last_death_ms = comment, self._turn.now_ms
        self._reports.died(physical.destination, reason, comment)
        is_dmq = physical.destination == DMQ or physical.properties.is_dmq
        for_room = reason in (DeadReason.OLDEST, DeadReason.LOW_PRIORITY)
        lost = is_dmq and not for_room
        if lost or _wish(properties, dead.LOG_DEAD_MESSAGES, self._options.log_dead):
            self._log.info(
                "message {id} of {destination} is dead: {reason}, {comment}",
                id=message.message_id,
                destination=str(physical.destination),
                reason=reason.value,
                comment=comment,
            )
        useful = keeps and physical.properties.use_dmq
        kept = _wish(properties, dead.PRESERVE_UNDELIVERED, useful) and not is_dmq
        if self.listener is not None:
            self.listener(physical.destination, message, reason, kept)
        if not kept:
            physical.dropped += not (keeps or is_dmq)
            return
        # Queues may have each other's dead messages. Where those make room for each other, it ends.
        again = for_room and dead.ORIGINAL_DESTINATION in properties
        to = DMQ if again else self._dead_queue(physical.dead_queue)
        truncate = _wish(properties, dead.TRUNCATE_MSG_BODY, self._options.truncate_dead) and bool(
            message.body
        )
        added: dict[str, Value] = {
            dead.UNDELIVERED_TIMESTAMP: self._turn.refresh(),
            dead.UNDELIVERED_REASON: reason.value,
            dead.UNDELIVERED_COMMENT: comment,
            dead.DELIVERY_COUNT: Int(source.tries(message.seq)),
            dead.BODY_TRUNCATED: truncate,
            dead.DEAD_BROKER: self._options.name,
            dead.ORIGINAL_DESTINATION: str(physical.destination),
        }
        if physical.properties.address:
            added[dead.ORIGINAL_ADDRESS] = physical.properties.address
        if message.expires:
            added[dead.ORIGINAL_EXPIRATION] = message.expires
        copy = Message(
            # Without its duplicate id: who sends the copy back to where it came from means it. And
            # what is dead is not delivered later.
            headers.replace(
                destination=to,
                properties={
                    name: value
                    for name, value in (*properties.items(), *added.items())
                    if name != DUPLICATE_ID and name not in SCHEDULES
                },
            ),
            b"" if truncate else message.body,
            timestamp=message.timestamp,
            message_id=message.message_id,
        )
        copy.user = message.user
        self._arrive(to, [copy])

    def _dead_queue(self, wanted: Destination) -> Destination:
        """Make the queue; the broker's own where that cannot be."""
        if wanted == DMQ:
            return wanted
        try:
            queue = self._create(wanted)
        except InvalidDestination as error:
            self._log.warn(
                "dead messages go to {dmq}, as there can be no {queue}: {error}",
                dmq=DMQ.name,
                queue=str(wanted),
                error=str(error),
            )
            return DMQ
        if queue.removed or queue.damaged:
            return DMQ
        if queue.auto_created:
            queue.auto_created = False
            queue.properties = replace(DEAD_QUEUE_PROPERTIES, address=queue.properties.address)
            if queue.stored:
                queue.changes.store_destination(queue)
        return wanted


def _wish(properties: object, name: str, default: bool) -> bool:
    """What the message itself asks for.

    STOMP clients can only give it as a String.
    """
    value = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return default
