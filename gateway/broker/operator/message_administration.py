"""What an administrator does with messages that wait in a queue.

They are moved, copied, deleted, or sent again as others.

Owns which messages that concerns and how none is lost or doubled: what leaves the queue and what
takes its place are in one batch of the store, so that the end of the process leaves the one or the
other. Only messages that wait are touched. What consumers have, what prepared transactions have
acknowledged or sent, and what is to be delivered later stays, and is counted in the outcome.

What comes keeps the headers, the priority, the expiration, the time and whether it is persistent. It
is counted by the limits of where it comes to: a message that they have no room for stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.defer import Deferred

from gateway.broker.broker import Broker
from gateway.broker.core.destinations.purging import SelectivePurge
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.properties.names import check_name, is_wild
from gateway.broker.sessions.session import when_durable
from gateway.broker.timing.schedule import Steps
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import DestinationFull, InvalidDestination, MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.selector.selector import parse
from gateway.messaging.values import Value
from gateway.messaging.xa import xid_text
from gateway.reactor.deferreds import deferred

#: Reasons that are told of messages left alone; there may be as many as there are messages.
_MOST_REASONS: Final = 10
#: Deliveries of consumers that are looked at in one step.
_STEP: Final = 5000


class LeftAlone(Exception):
    """A message stays where it is; ``str`` says why."""


#: Makes of a message the one that takes its place; None for nothing. May raise LeftAlone.
Replacement = Callable[[Message], Message | None]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which messages of a queue.

    :param message_id: only those with this JMSMessageID, "" for any.
    :param selector: only those that it matches, "" for any.
    :param limit: how many at most; 0 for no limit.
    """

    message_id: str = ""
    selector: str = ""
    limit: int = 0

    def matches(self) -> Callable[[Message], bool]:
        """Return what chooses. :raises InvalidSelector: the selector is wrong."""
        wanted = parse(self.selector).matches if self.selector.strip() else None
        id = self.message_id

        def match(message: Message) -> bool:
            return (not id or message.message_id == id) and (wanted is None or wanted(message))

        return match


@dataclass(slots=True)
class Outcome:
    """What became of the messages.

    :param matched: those that wait and were chosen.
    :param done: those that it was done to; in a dry run, would be.
    :param left: those that stay, and
    :param reasons: why, each with how often, the first few.
    :param unacknowledged: messages of the queue that consumers or transactions have, chosen or not,
    :param in_transaction: that transactions are yet to send there, and
    :param scheduled: that are to be delivered later: none of them is touched.
    """

    matched: int = 0
    done: int = 0
    left: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    unacknowledged: int = 0
    in_transaction: int = 0
    scheduled: int = 0

    def leave(self, reason: str) -> None:
        self.left += 1
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


class MessageAdministration:
    """The operations. Called on the reactor's thread.

    Deferreds fail with what ``find`` and ``refused`` make, InvalidSelector, StorageFailed.

    :param find: the destination of a type and name; raises an error for the administrator.
    :param refused: makes the error for what cannot be done.
    """

    def __init__(
        self,
        broker: Broker,
        find: Callable[[str, str], PhysicalDestination],
        refused: Callable[[str], Exception],
    ) -> None:
        self._broker: Final = broker
        self._find: Final = find
        self._refused: Final = refused

    def move(
        self, name: str, chosen: Chosen, to: str, *, dry_run: bool = False
    ) -> Deferred[Outcome]:
        """Move messages to another queue; they keep their JMSMessageIDs.

        :param to: the other queue's name.
        """
        return self._to_queue("moved", name, chosen, to, dry_run, keeps=False)

    def copy(
        self, name: str, chosen: Chosen, to: str, *, dry_run: bool = False
    ) -> Deferred[Outcome]:
        """Send copies of messages to another queue; they have new ids."""
        return self._to_queue("copied", name, chosen, to, dry_run, keeps=True)

    def delete(self, name: str, chosen: Chosen, *, dry_run: bool = False) -> Deferred[Outcome]:
        """Throw messages away; they do not go to the dead message queue."""
        return self._done("deleted", name, chosen, lambda message: None, dry_run)

    def replace(
        self, name: str, chosen: Chosen, replacement: Replacement, *, dry_run: bool = False
    ) -> Deferred[Outcome]:
        """Have another message take the place of each.

        Where it goes, its own headers say.
        """
        return self._done("replayed", name, chosen, replacement, dry_run)

    @deferred
    async def _to_queue(
        self, word: str, name: str, chosen: Chosen, to: str, dry_run: bool, *, keeps: bool
    ) -> Outcome:
        destination = Destination(Kind.QUEUE, to)
        if to == name:
            raise self._refused(f"queue '{name}' is where the messages are")
        if is_wild(to):
            raise self._refused(f"queue '{to}' has wildcards: name one queue")
        if self._broker.find(destination) is None:
            check_name(destination)

        def moved(message: Message) -> Message:
            return (_copied if keeps else relocated)(message, destination)

        return await self._done(word, name, chosen, moved, dry_run, keeps=keeps)

    @deferred
    async def _done(
        self,
        word: str,
        name: str,
        chosen: Chosen,
        replacement: Replacement,
        dry_run: bool,
        *,
        keeps: bool = False,
    ) -> Outcome:
        queue = self._find("queue", name)
        assert isinstance(queue, PhysicalQueue)
        self._check(queue)
        work = _Exchange(self._broker, queue, chosen, replacement, dry_run, word, keeps=keeps)
        done: Deferred[int] = Deferred()
        SelectivePurge(
            queue,
            self._broker.last_seq,
            work.wants,
            done.callback,
            remove=work.exchange,
            enough=work.enough,
        ).start()
        await done
        if work.failed is not None:
            raise work.failed
        if not dry_run:
            await when_durable(self._broker.commits, inserts=True)
        self._check(queue, f"; until then {work.outcome.done} messages were {word}")
        outcome = work.outcome
        dispatch = queue.dispatch
        outcome.unacknowledged = queue.count - dispatch.unclaimed - queue.scheduled
        outcome.in_transaction, outcome.scheduled = queue.coming, queue.scheduled
        if chosen.message_id and not outcome.matched:
            raise self._refused(await self._where(queue, chosen.message_id))
        if not dry_run:
            self._broker.log.info(
                "{done} messages of {queue} were {word} by an administrator, {left} of those chosen stay",
                done=outcome.done,
                queue=str(queue.destination),
                word=word,
                left=outcome.left,
            )
        return outcome

    def _check(self, queue: PhysicalQueue, more: str = "") -> None:
        """:raises Exception: not all of its messages can be read, or it is going."""
        if queue.removed:
            raise self._refused(f"{queue.destination} is being destroyed{more}")
        if queue.dispatch.halted is not None or queue.damaged:
            raise self._refused(
                f"{queue.destination} is stopped, as a message of it in the store is damaged: what is chosen is not known{more}"
            )

    async def _where(self, queue: PhysicalQueue, id: str) -> str:
        """Say why no message with this id waits."""
        found = await self._broker.schedule.finished(self._holders(queue, id))
        return f"message {id} of queue '{queue.destination.name}' {found}"

    def _holders(self, queue: PhysicalQueue, id: str) -> Steps[str]:
        for branch in self._broker.branches.prepared():
            for taken in branch.taken:
                if taken.source is queue and any(each.message_id == id for each in taken.messages):
                    return (
                        f"stays: the prepared transaction {xid_text(branch.xid)} has acknowledged it; "
                        "'imqcmd query txn' says whose that is"
                    )
        yield
        for consumer in list(queue.dispatch.consumers):
            messages = consumer.unsettled_messages()
            for start in range(0, len(messages), _STEP):
                if any(each.message_id == id for each in messages[start : start + _STEP]):
                    return (
                        f"stays: connection {consumer.origin.number} of user '{consumer.origin.user}' has it, "
                        "and has not acknowledged it"
                    )
                yield
        if queue.count > queue.dispatch.unclaimed + queue.scheduled:
            return "does not wait: it is not there, or a transaction has it"
        return "is not there"


class _Exchange:
    """Chooses the messages of one request, and has others take their places.

    :param word: what is done to them, as the journal says it of what is elsewhere then.
    """

    def __init__(
        self,
        broker: Broker,
        queue: PhysicalQueue,
        chosen: Chosen,
        replacement: Replacement,
        dry_run: bool,
        word: str,
        *,
        keeps: bool,
    ) -> None:
        self.outcome: Final = Outcome()
        self._word: Final = word
        self._broker: Final = broker
        self._queue: Final = queue
        self._matches: Final = chosen.matches()
        self._limit: Final = chosen.limit
        self._replacement: Final = replacement
        self._dry_run: Final = dry_run
        self._keeps: Final = keeps
        #: What takes the places of messages that were chosen and are there still, by their seqs.
        self._coming: Final[dict[int, Message | None]] = {}
        #: How many of these limits are to leave room for, and their octets, by destination.
        self._planned: Final[dict[Destination, tuple[int, int]]] = {}
        #: What making a replacement has failed with.
        self.failed: Exception | None = None

    def enough(self) -> bool:
        """Whether no more messages are wanted."""
        if self.failed is not None:
            return True
        return bool(self._limit) and self.outcome.done + len(self._coming) >= self._limit

    def wants(self, message: Message) -> bool:
        """Choose a message that waits. :returns: whether it is to go."""
        if self.enough() or not self._matches(message):
            return False
        outcome = self.outcome
        outcome.matched += 1
        try:
            if 0 < message.expires <= self._broker.turn.now_ms:
                raise LeftAlone("they have expired, and go to the dead message queue soon")
            new = self._replacement(message)
            if new is not None:
                self._admit(new)
        except LeftAlone as left:
            outcome.leave(str(left))
            return False
        except (MessagingError, ValueError) as error:
            # Raised here, it would end the search without an answer.
            self.failed = error
            return False
        if self._dry_run:
            outcome.done += 1
            return False
        if self._keeps:
            outcome.done += 1
            if new is not None:
                self._broker.arrive(new.headers.destination, [new])
            return False
        self._coming[message.seq] = new
        return True

    def _admit(self, message: Message) -> None:
        """:raises LeftAlone: the message may not come to its destination."""
        destination = message.headers.destination
        if destination == self._queue.destination:
            raise LeftAlone(f"they would go to {destination}, where they are")
        physical = self._broker.find(destination)
        if self._broker.commits.full:
            raise LeftAlone("the disk is full")
        if physical is None:
            try:
                check_name(destination)
            except InvalidDestination as error:
                raise LeftAlone(str(error)) from None
            if destination.temporary or not self._broker.creatable(destination):
                raise LeftAlone(f"there is no {destination}, and it is not made by its use")
            if destination.kind is Kind.TOPIC:
                raise LeftAlone(f"{destination} has no subscription, and would lose them")
            return
        if physical.removed or physical.damaged:
            raise LeftAlone(f"{destination} is stopped or being destroyed")
        if isinstance(physical, PhysicalTopic) and not physical.subscribed:
            raise LeftAlone(f"{destination} has no subscription, and would lose them")
        most = physical.properties.max_bytes_per_msg
        size = len(message.body) + message.headers.octets
        if size > most >= 0:
            raise LeftAlone(f"they are larger than {destination} takes (maxBytesPerMsg={most})")
        if physical.holds_senders:
            raise LeftAlone(f"{destination} is at a limit or paused, and holds senders back")
        count, octets = self._planned.get(destination, (0, 0))
        count, octets = count + 1, octets + size
        try:
            physical.admit(count, octets)
        except DestinationFull as full:
            raise LeftAlone(str(full)) from None
        if self._dry_run or not self._keeps:
            self._planned[destination] = count, octets

    def exchange(self, messages: Sequence[Message]) -> None:
        """Settle messages, in one batch with what takes their places."""
        coming = [(message, self._coming.pop(message.seq)) for message in messages]
        # What somebody else has taken since it was chosen.
        self._coming.clear()
        self._planned.clear()
        commits, changes = self._broker.commits, self._queue.changes
        commits.begin()
        try:
            gone: dict[Destination | None, list[Message]] = {}
            for message, new in coming:
                to = None if new is None else new.headers.destination
                if new is not None:
                    self._broker.arrive(new.headers.destination, [new])
                gone.setdefault(to, []).append(message)
            for to, run in gone.items():
                if to is None:
                    changes.journal_removed(self._queue, run)
                else:
                    changes.journal_removed(self._queue, run, self._word, f"to {to}")
            self._queue.settle(messages)
        finally:
            commits.end()
        self.outcome.done += len(messages)


def relocated(
    message: Message, to: Destination, properties: Mapping[str, Value] | None = None
) -> Message:
    """Return a message as it is to be at another destination.

    :param properties: those that it is to have; None keeps them.
    """
    headers = message.headers.replace(
        destination=to, properties=message.headers.properties if properties is None else properties
    )
    # It has had its time.
    headers.scheduled = False
    return message.replaced(headers)


def _copied(message: Message, to: Destination) -> Message:
    """Return a copy, which is another message: the broker makes its id.

    It has no duplicate id, by which it might be dropped.
    """
    properties = message.headers.properties
    made = relocated(
        message, to, {name: value for name, value in properties.items() if name != DUPLICATE_ID}
    )
    made.message_id = ""
    return made
