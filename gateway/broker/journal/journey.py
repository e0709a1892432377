"""Tell the journal each step of messages at the embedded broker.

Owns which steps there are, whose each is, and when it is told: what the store is to do for it is
told when that is durable. The others have one line of code for a step, which does nothing where
``Acceptance.journey`` is None. How it becomes a line is :mod:`gateway.broker.journal.journal_lines`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from gateway.broker.arrivals.numbering import Numbering
from gateway.broker.core.consumers.consumer import EmbeddedConsumer, QueueOrSubscription
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import Copied
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.rows import Rows
from gateway.broker.journal.journal_lines import (
    JournalLines,
    Named,
    Steps,
    Values,
    names_of,
    sizes_of,
    timestamps_of,
)
from gateway.broker.properties.names import is_wild
from gateway.broker.store.interface import Row
from gateway.journal.journal import Journal
from gateway.journal.schema import Step
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode
from gateway.messaging.selector.selector import Selector
from gateway.reactor.turn import Turn

Arrivals = Iterable[tuple[PhysicalDestination, Sequence[Message]]]

#: Names, or ranges of names, that a session may keep until its next completion.
_MOST_NAMES: Final = 16_384

_PRODUCED: Final = (Step.PRODUCED.value,)
_STORED: Final = (Step.STORED.value,)
_CONFIRMED: Final = (Step.CONFIRMED.value,)
_ROUTED: Final = (Step.ROUTED.value,)
_DELIVERED: Final = (Step.DELIVERED.value,)
_REDELIVERED: Final = (Step.REDELIVERED.value,)
_RETURNED: Final = (Step.RETURNED.value,)
_ACKNOWLEDGED: Final = (Step.ACKNOWLEDGED.value,)
_ACKNOWLEDGEMENT_CONFIRMED: Final = (Step.ACKNOWLEDGEMENT_CONFIRMED.value,)
_DELETED: Final = (Step.DELETED.value,)
_EXPIRED: Final = (Step.EXPIRED.value,)
_DEAD: Final = (Step.DEAD.value,)
_NOT_COPIED: Final[dict[str, object]] = {
    "reason": "unsubscribed",
    "comment": "nobody subscribes to the topic",
}
_ONLY_COPIED: Final[dict[str, object]] = {
    "reason": "copied",
    "comment": "the topic has no subscription, and queues have copies",
}


class _Run:
    """Messages that one line may name.

    :param subscription: of those that were acknowledged.
    """

    __slots__ = ("named", "steps", "subscription")

    def __init__(self, steps: Steps, named: Named, subscription: str) -> None:
        self.steps = steps
        self.named = named
        self.subscription = subscription


class Unconfirmed:
    """What a session has sent and acknowledged since its last completion.

    Of a client that never asks for a RECEIPT nothing is confirmed, so the oldest are dropped above
    a bound: of them the journal has no such step. :param journey: the one that added them.
    """

    __slots__ = ("_last", "_weight", "journey", "runs")

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.runs: list[_Run] = []
        #: The newest run of each kind, which may go on.
        self._last: dict[tuple[Steps, Destination, str], _Run] = {}
        #: What the runs keep, in names; a range counts as one.
        self._weight = 0

    def add(self, steps: Steps, named: Named, subscription: str = "") -> None:
        """Note the steps of these messages for the next completion."""
        kind = (steps, named.destination, subscription)
        last = self._last.get(kind)
        both = None if last is None else last.named.continued(named)
        if last is not None and both is not None:
            last.named = both
            return
        self._last[kind] = run = _Run(steps, named, subscription)
        self.runs.append(run)
        self._weight += named.weight
        if self._weight > _MOST_NAMES:
            dropped = 0
            while self._weight > _MOST_NAMES // 2:
                self._weight -= self.runs[dropped].named.weight
                dropped += 1
            del self.runs[:dropped]
            self._last.clear()


class Confirmable(Protocol):
    """A session, whose user is told in completions what is safe."""

    #: What the journal is to be told of at the next one.
    unconfirmed: Unconfirmed | None


class Journey:
    """Tells the journal.

    :param everything: every step; else only what dies.
    :param find: the physical destination, if there is one.
    """

    def __init__(
        self,
        journal: Journal,
        everything: bool,
        turn: Turn,
        commits: GroupCommit,
        rows: Rows,
        numbering: Numbering,
        find: Callable[[Destination], PhysicalQueue | PhysicalTopic | None],
    ) -> None:
        self._everything: Final = everything
        self._commits: Final = commits
        self._rows: Final = rows
        self._numbering: Final = numbering
        self._find: Final = find
        self._lines: Final = JournalLines(journal, turn, numbering.prefix)
        self._tracer: Final = journal.tracer

    # --- producers

    def sent(self, session: Confirmable, origin: Origin, arrivals: Arrivals) -> None:
        """Note accepted messages that were sent outside of transactions.

        A session has sent them; see :meth:`confirming`.
        """
        self.produced(origin, arrivals)
        unconfirmed = self._unconfirmed(session)
        for physical, run in arrivals:
            unconfirmed.add(_CONFIRMED, names_of(physical.destination, run, physical.identified))

    def _unconfirmed(self, session: Confirmable) -> Unconfirmed:
        unconfirmed = session.unconfirmed
        if unconfirmed is None or unconfirmed.journey is not self:
            unconfirmed = session.unconfirmed = Unconfirmed(self)
        return unconfirmed

    def produced(self, origin: Origin, arrivals: Arrivals, *, held: bool = False) -> None:
        """Note accepted messages that a client has sent.

        :param held: who is owed them is not known yet.
        """
        tracer = self._tracer
        for physical, run in arrivals:
            values: dict[str, Values] = {"sizes": sizes_of(run), "timestamps": timestamps_of(run)}
            said: dict[str, object] = {}
            steps: Steps = _PRODUCED
            if isinstance(run, Copied):
                self._copied(physical, run)
                said = _copied_from(run)
            elif not held and isinstance(physical, PhysicalTopic) and not physical.subscriptions:
                steps, said = _PRODUCED + _DELETED, _NOT_COPIED
                if physical.copied_to:
                    said = _ONLY_COPIED
            self._lines.tell(
                steps,
                names_of(physical.destination, run, physical.identified),
                origin,
                "",
                values,
                said,
                run,
                None if tracer is None else tracer.contexts(run, True),
            )

    def copied(self, queue: PhysicalDestination, copies: Sequence[Message]) -> None:
        """Note copies of messages that no client has sent just now."""
        if isinstance(copies, Copied):
            self._copied(queue, copies)
            self._lines.tell(
                _PRODUCED,
                names_of(queue.destination, copies, queue.identified),
                None,
                "",
                {"sizes": sizes_of(copies), "timestamps": timestamps_of(copies)},
                _copied_from(copies),
                copies,
            )

    def _copied(self, queue: PhysicalDestination, copies: Copied) -> None:
        """Note on the originals which copies a queue gets."""
        originals = copies.originals
        topic = originals[0].headers.destination
        self._lines.tell(
            _ROUTED,
            names_of(topic, originals, self._numbering.topics_identified),
            None,
            "",
            {"target_ids": [message.message_id for message in copies]},
            {"comment": f"copied to {queue.destination}"},
        )

    def confirming(
        self, session: Confirmable, origin: Origin, done: Callable[..., None]
    ) -> Callable[..., None]:
        """The function to call in place of ``done``.

        It is called, with the error or None, when a session is told the outcome of what it has sent
        and acknowledged until now.
        """
        unconfirmed, session.unconfirmed = session.unconfirmed, None
        if unconfirmed is None or unconfirmed.journey is not self:
            # Nothing was sent; or the journal was told nothing of late, and does not know what is
            # new.
            return done
        return partial(self._told, origin, unconfirmed, done)

    def _told(
        self,
        origin: Origin,
        unconfirmed: Unconfirmed,
        done: Callable[..., None],
        error: Exception | None,
    ) -> None:
        if error is None:
            for run in unconfirmed.runs:
                self._lines.tell(run.steps, run.named, origin, run.subscription)
        done(error)

    def confirmed(self, origin: Origin | None, arrivals: Arrivals) -> None:
        """These were sent in a transaction, which is committed."""
        for physical, run in arrivals:
            self._lines.tell(
                _CONFIRMED, names_of(physical.destination, run, physical.identified), origin
            )

    def refused(self, arrivals: Arrivals, comment: str) -> None:
        """These were accepted, and are not there after all."""
        for physical, run in arrivals:
            if run:
                named = names_of(physical.destination, run, physical.identified)
                self._lines.tell(_DELETED, named, said={"reason": "refused", "comment": comment})

    def stored(self, rows: dict[int, Row], messages: dict[int, Message]) -> None:
        """Rows of these are in the store, durably."""
        runs: dict[Destination, list[Message]] = {}
        for seq, message in messages.items():
            row = rows.get(seq)
            if row is not None and row.persistent:
                runs.setdefault(message.headers.destination, []).append(message)
        for destination, run in runs.items():
            physical = self._find(destination)
            self._lines.tell(
                _STORED,
                names_of(
                    destination, run, run[-1].seq if physical is None else physical.identified
                ),
            )

    # --- consumers

    def routed(self, source: QueueOrSubscription, messages: Sequence[Message]) -> None:
        """A subscription of a topic has accepted these."""
        if not isinstance(source, TopicSubscription):
            return
        consumers = source.dispatch.consumers
        origin, subscription = None, source.name
        if len(consumers) == 1:
            origin, subscription = consumers[0].origin, _name(consumers[0])
        said = _matched(source.selector)
        for named in self._names(source, messages):
            self._lines.tell(_ROUTED, named, origin, subscription, said=said)

    def delivered(
        self,
        source: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None:
        """Note messages that are handed to a consumer.

        :param attempts: the delivery attempts, counted from 1; None where all are the first.
        """
        origin, subscription = consumer.origin, _name(consumer)
        routed: Steps = ()
        said: dict[str, object] = {}
        if isinstance(source, PhysicalQueue):
            # Which consumer of a queue has a message is decided when it is handed out.
            routed, said = _ROUTED, _matched(consumer.selector)
        if attempts is None:
            for named in self._names(source, run):
                self._lines.tell(routed + _DELIVERED, named, origin, subscription, None, said)
            return
        first = [message for message, attempt in zip(run, attempts, strict=True) if attempt == 1]
        for named in self._names(source, first):
            self._lines.tell(routed + _DELIVERED, named, origin, subscription, None, said)
        again = {
            message.seq: attempt
            for message, attempt in zip(run, attempts, strict=True)
            if attempt > 1
        }
        for part in _by_destination(source, [message for message in run if message.seq in again]):
            tries = [again[message.seq] for message in part]
            for named in self._names(source, part):
                self._lines.tell(
                    routed + _REDELIVERED,
                    named,
                    origin,
                    subscription,
                    {"attempts": tries},
                    said,
                )

    def acknowledged(
        self, session: Confirmable, consumer: EmbeddedConsumer, messages: Sequence[Message]
    ) -> None:
        """Note acknowledged messages, which are about to be settled.

        They are settled in the same section of the group commit.
        """
        source = consumer.source
        if not messages or not isinstance(source, (PhysicalQueue, TopicSubscription)):
            return
        gone = self._gone(_ACKNOWLEDGED, source, messages, consumer.origin, _name(consumer))
        if consumer.mode is not Mode.AUTO:
            unconfirmed = self._unconfirmed(session)
            for named in gone:
                unconfirmed.add(_ACKNOWLEDGEMENT_CONFIRMED, named, _name(consumer))

    def taken(
        self, consumer: EmbeddedConsumer | None, source: object, messages: Sequence[Message]
    ) -> None:
        """Note messages that a committed transaction acknowledged.

        Their removal is durable.
        """
        if isinstance(source, (PhysicalQueue, TopicSubscription)):
            origin = None if consumer is None else consumer.origin
            for named in self._names(source, messages):
                self._lines.tell(
                    _ACKNOWLEDGED + _DELETED + _ACKNOWLEDGEMENT_CONFIRMED,
                    named,
                    origin,
                    _subscription(source) if consumer is None else _name(consumer),
                )

    def returned(
        self, source: QueueOrSubscription, messages: Sequence[Message], reason: str
    ) -> None:
        """Note messages that come back from a consumer.

        :param reason: ``rejected``, or ``unsettled``: by a rollback, or because the consumer goes
            away.
        """
        said: dict[str, object] = {"reason": reason}
        for named in self._names(source, messages):
            self._lines.tell(_RETURNED, named, None, _subscription(source), said=said)

    def removed(
        self, source: object, messages: Sequence[Message], reason: str, comment: str
    ) -> None:
        """Note messages that are given up and not buried.

        They are being purged, their destination or subscription is being removed, or others take
        their places elsewhere. To be called before they are released.

        :param reason: ``removed``, ``moved`` or ``replayed``; ``comment`` says where to.
        """
        if messages and isinstance(source, (PhysicalQueue, TopicSubscription)):
            said: dict[str, object] = {"reason": reason}
            if comment:
                said["comment"] = comment
            self._gone((), source, messages, None, _subscription(source), said)

    def replaced(
        self, queue: QueueOrSubscription, seq: int, id: str, stored: bool, by: str
    ) -> None:
        """Note a message in place of which a newer one of its key waits.

        :param id: its JMSMessageID. :param stored: whether the store has to be told.
        :param by: the JMSMessageID of the newer one.
        """
        if not isinstance(queue, PhysicalQueue):
            return
        named = Named(queue.destination, None, [id])
        if seq > queue.identified:
            named = Named(queue.destination, [seq], None)
        said: dict[str, object] = {"reason": "replaced", "comment": f"by {by}"}
        tell = partial(self._lines.tell, _DELETED, named, None, "", None, said)
        if stored and not self._commits.is_inserting(seq):
            self._commits.after(tell)
        else:
            tell()

    def removed_stored(self, source: QueueOrSubscription, seqs: Sequence[int]) -> None:
        """The same for what is in the store only."""
        if not seqs:
            return
        if isinstance(source, PhysicalQueue) and min(seqs) > source.identified:
            named = Named(source.destination, list(seqs), None)
            self._commits.after(
                partial(self._lines.tell, _DELETED, named, None, "", None, {"reason": "removed"})
            )
        else:
            # Asked before they are deleted, and in order, therefore answered.
            self._rows.read_back(seqs, partial(self._removed_later, source), in_order=True)

    def _removed_later(self, source: QueueOrSubscription, messages: Sequence[Message]) -> None:
        for named in self._names(source, messages):
            self._lines.tell(
                _DELETED, named, None, _subscription(source), None, {"reason": "removed"}
            )

    def buried(
        self,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
    ) -> None:
        """These are dead. To be called before they are settled."""
        said: dict[str, object] = {"reason": reason.value, "comment": comment}
        steps = _EXPIRED if reason is DeadReason.EXPIRED else _DEAD
        subscription = _subscription(source)
        for part in _by_destination(source, messages):
            values: dict[str, Values] = {"sizes": sizes_of(part)}
            tries = [source.tries(message.seq) for message in part]
            if max(tries) > 1:
                values["attempts"] = tries
            for named in self._names(source, part):
                self._lines.tell(steps, named, None, subscription, values, said, part)
        if self._everything:
            self._gone((), source, messages, None, subscription)

    def flush(self) -> None:
        """Hand over what was told until now."""
        self._lines.flush()

    # --- whose they are

    def _gone(
        self,
        steps: Steps,
        source: QueueOrSubscription,
        messages: Sequence[Message],
        origin: Origin | None,
        subscription: str,
        said: dict[str, object] | None = None,
    ) -> list[Named]:
        """Note ``steps`` of messages about to be settled, and their removal.

        Those in the store are gone when that is durable, the others now. :returns: their names.
        """
        waiting = self._stored(source, messages)
        now: Sequence[Message] = messages
        if waiting:
            seqs = {message.seq for message in waiting}
            now = [message for message in messages if message.seq not in seqs]
        gone, going = self._names(source, now), self._names(source, waiting)
        for named in gone:
            self._lines.tell(steps + _DELETED, named, origin, subscription, None, said)
        for named in going:
            if steps:
                self._lines.tell(steps, named, origin, subscription, None, said)
            self._commits.after(
                partial(self._lines.tell, _DELETED, named, origin, subscription, None, said)
            )
        return gone + going

    def _stored(self, source: QueueOrSubscription, messages: Sequence[Message]) -> list[Message]:
        """Those of which the store has to be told that they are gone from here."""
        commits = self._commits
        if isinstance(source, PhysicalQueue):
            inserting = commits.is_inserting
            return [
                message for message in messages if message.stored and not inserting(message.seq)
            ]
        number = source.owner
        if not number:
            return []
        owing = commits.is_owing
        return [
            message
            for message in messages
            if message.headers.persistent and not owing(number, message.seq)
        ]

    def _names(self, source: QueueOrSubscription, messages: Sequence[Message]) -> list[Named]:
        """What messages of one source are called, by destination."""
        if isinstance(source, PhysicalQueue):
            return [names_of(source.destination, messages, source.identified)] if messages else []
        identified = self._numbering.topics_identified
        return [
            names_of(part[0].headers.destination, part, identified)
            for part in _by_destination(source, messages)
        ]


def _by_destination(
    source: QueueOrSubscription, messages: Sequence[Message]
) -> list[Sequence[Message]]:
    """Divide into parts of one destination each.

    A subscription of a pattern has messages of several destinations.
    """
    if not messages:
        return []
    if not isinstance(source, TopicSubscription) or not is_wild(source.pattern.name):
        return [messages]
    parts: dict[Destination, list[Message]] = {}
    for message in messages:
        parts.setdefault(message.headers.destination, []).append(message)
    return list(parts.values())


def _copied_from(copies: Copied) -> dict[str, object]:
    return {"comment": f"copied from {copies.originals[0].headers.destination}"}


def _name(consumer: EmbeddedConsumer) -> str:
    spec = consumer.spec
    return spec.durable_name or spec.name


def _subscription(source: QueueOrSubscription) -> str:
    return source.name if isinstance(source, TopicSubscription) else ""


def _matched(selector: Selector | None) -> dict[str, object]:
    """The field of a line that has the selector that its messages matched."""
    return {} if selector is None else {"selector": selector.text}
