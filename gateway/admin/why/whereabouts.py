"""Where one message is: in which queue or subscription, or with whom.

A message of this broker is found by its number, which its id ends in: in each place by a bisection,
so that it does not matter how many wait. One that was moved, replayed or delayed has kept its id
and has another number: it is found by its id, among what clients have and in what a search has
found. Where many places are looked at, a generator does a few in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.admin.why.cause import quoted, spoken
from gateway.admin.why.facts import Facts
from gateway.broker.broker import Broker
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.operator.searching import PAUSING, SCHEDULED, WAITING, FoundMessage
from gateway.broker.properties.names import names_of
from gateway.broker.timing.schedule import Steps
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message
from gateway.messaging.xa import xid_text

#: Deliveries of consumers that are looked at in one step.
_STEP: Final = 5000


@dataclass(frozen=True, slots=True)
class Found:
    """A place where the message is.

    :param place: the queue or the subscription; where it is scheduled or sent, also the topic.
    :param name: the same in words.
    :param state: ``waiting``, ``pausing``, ``scheduled``, ``held``, ``acknowledged``, ``prepared``
        where a prepared transaction has acknowledged it, or ``sent`` where it has sent it.
    :param message: None where it is in the store only.
    :param ahead: messages that are delivered before it, and
    :param higher: those of them that have a higher priority.
    :param consumer: who has it.
    :param xid: the prepared transaction.
    :param due_ms: when it is to be delivered, epoch milliseconds, and
    :param job: what it is called until then.
    """

    place: Dispatched | PhysicalDestination
    name: str
    state: str
    message: Message | None = None
    ahead: int = 0
    higher: int = 0
    consumer: EmbeddedConsumer | None = None
    xid: str = ""
    due_ms: int = 0
    job: str = ""


def seq_of_id(broker: Broker, id: str) -> int:
    """Return the number in an id; 0 where it is not this broker's."""
    prefix = broker.numbering.prefix
    end = id.removeprefix(prefix)
    if end == id or not (end.isascii() and end.isdecimal()) or len(end) > 18:
        return 0
    return int(end)


def find_message(broker: Broker, facts: Facts, id: str, found: list[Found]) -> Steps[None]:
    """Find where a message is, in short steps.

    What waits is found by its number only, whatever waits: :func:`place_of` is for what a search
    has found.
    """
    seq = seq_of_id(broker, id)

    def is_it(message: Message) -> bool:
        return message.seq == seq or message.message_id == id

    yield from _in_transactions(broker, facts, id, is_it, found)
    for scheduled in list(broker.scheduled.places.values()):
        entry = scheduled.timetable.find(seq) if seq else None
        if entry is not None:
            physical, job = scheduled.physical, broker.scheduled.job_id(seq)
            name = spoken(physical.destination)
            found += [Found(physical, name, "scheduled", due_ms=entry.due_ms, job=job)]
        yield
    for place in _places(broker):
        yield
        if place is None:
            continue
        at = _waiting(place, seq) if seq else None
        if at is not None:
            found.append(at)
            continue
        for message in list(place.dispatch.backlog.delayed.values()):
            if message.message_id == id:
                found.append(Found(place, _name(place), "pausing", message))
        for consumer in list(place.dispatch.consumers):
            messages = consumer.unsettled_messages()
            for start in range(0, len(messages), _STEP):
                held = next(filter(is_it, messages[start : start + _STEP]), None)
                if held is not None:
                    found.append(Found(place, _name(place), "held", held, consumer=consumer))
                yield


def _in_transactions(
    broker: Broker, facts: Facts, id: str, is_it: Callable[[Message], bool], found: list[Found]
) -> Steps[None]:
    """Find it among what is acknowledged in transactions that have not ended."""
    seq = seq_of_id(broker, id)
    for branch in broker.branches.prepared():
        xid = xid_text(branch.xid)
        sources = [taken.source for taken in branch.taken if any(map(is_it, taken.messages))]
        # After a restart they are in the store only.
        sources += [source for source, row in branch.unread_taken if row.seq == seq]
        found += [Found(source, _name(source), "prepared", xid=xid) for source in sources]
        sent_to = [to for to, run in branch.sends if any(map(is_it, run))]
        sent_to += [to for to, row in branch.unread_sends if row.seq == seq]
        found += [Found(to, spoken(to.destination), "sent", xid=xid) for to in sent_to]
        yield
    yield
    for connection in list(facts.connections):
        for session in list(connection.sessions):
            for consumer, deliveries in list(session.transaction.acknowledged):
                source = consumer.source
                if any(is_it(message) for _, message in deliveries) and isinstance(
                    source, (PhysicalQueue, TopicSubscription)
                ):
                    found.append(Found(source, _name(source), "acknowledged", consumer=consumer))
        yield


def place_of(broker: Broker, seen: FoundMessage) -> Found:
    """Return where a message is that a search has seen a moment ago."""
    place, message = seen.place, seen.message
    if isinstance(place, PhysicalTopic) or seen.state == SCHEDULED:
        job = broker.scheduled.job_id(message.seq)
        destination = message.headers.destination
        return Found(place, spoken(destination), SCHEDULED, due_ms=seen.due_ms, job=job)
    state = PAUSING if seen.state == PAUSING else WAITING
    return _waiting(place, message.seq) or Found(place, _name(place), state, message)


def _places(broker: Broker) -> Iterator[Dispatched | None]:
    """Yield every place; None now and then, where others may go first."""
    for at, physical in enumerate(list(broker.destinations.values())):
        if isinstance(physical, PhysicalQueue):
            if physical.count:
                yield physical
        else:
            yield from list(physical.named)
        if at % 100 == 99:
            yield None
    yield from list(broker.wild.subscriptions)
    for durable in list(broker.durables.values()):
        if durable not in broker.wild.subscriptions and durable.named is None:
            yield durable


def _waiting(place: Dispatched, seq: int) -> Found | None:
    backlog = place.dispatch.backlog
    if seq in backlog.delayed:
        return Found(place, _name(place), "pausing", backlog.delayed[seq])
    if seq in backlog.resting:
        return Found(place, _name(place), "pausing")
    higher = 0
    for _, lane in backlog.lanes():
        message = lane.find(seq)
        if message is not None or lane.is_behind(seq):
            return Found(place, _name(place), "waiting", message, higher + lane.before(seq), higher)
        higher += lane.count
    return None


def _name(place: object) -> str:
    if isinstance(place, PhysicalQueue):
        return spoken(place.destination)
    if isinstance(place, TopicSubscription) and place.durable:
        return f"durable subscription {quoted(place.name)} of client-id {quoted(place.client_id)}"
    if isinstance(place, TopicSubscription) and place.name:
        return f"the shared subscription {quoted(place.name)} to {spoken(place.shown)}"
    if isinstance(place, TopicSubscription):
        return f"a subscription to {spoken(place.shown)}"
    return "a destination"


def destination_of(found: Found) -> Destination:
    """The destination to ask about next."""
    if isinstance(found.place, PhysicalDestination):
        return found.place.destination
    if found.message is not None:
        return found.message.headers.destination
    assert isinstance(found.place, TopicSubscription)
    pattern = found.place.pattern
    return pattern._replace(name=names_of(pattern.name)[0])
