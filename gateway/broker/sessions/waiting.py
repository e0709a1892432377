"""How many messages wait at a queue or a durable subscription.

Also since when the oldest of them waits.

Owns reading that off without handing anything out: of each priority only the first message is
looked at, and read from the store at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, succeed

from gateway.broker.core.queue import PhysicalQueue
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import Message
from gateway.messaging.provider import Subscription, Waiting

if TYPE_CHECKING:
    from gateway.broker.core.dispatch import Dispatched
    from gateway.broker.core.subscription import TopicSubscription
    from gateway.broker.core.topic import PhysicalTopic

_NOTHING: Final = Waiting(0, 0)


def waiting(
    spec: Subscription,
    client_id: str | None,
    destinations: Mapping[Destination, PhysicalQueue | PhysicalTopic],
    durables: Mapping[tuple[str, str], TopicSubscription],
) -> Deferred[Waiting | None]:
    """Count what waits for a subscription. Creates nothing.

    The messages that its consumers have do not count.

    :param client_id: of whom a durable subscription is. :param durables: by client id and name.
    :returns: None for a selector on a queue, which only a browser can apply.
    """
    place: Dispatched | None = None
    if spec.destination.kind is Kind.QUEUE:
        found = destinations.get(spec.destination)
        place = found if isinstance(found, PhysicalQueue) else None
        if place is not None and spec.selector is not None:
            return succeed(None)
    elif spec.durable_name is not None:
        place = durables.get((client_id or "", spec.durable_name))
    return succeed(_NOTHING) if place is None else _of(place)


def without_consumer(place: Dispatched) -> int:
    """Count the messages that no consumer has."""
    dispatch = place.dispatch
    return dispatch.backlog.waiting + dispatch.backlog.pausing + dispatch.dying


def _of(place: Dispatched) -> Deferred[Waiting | None]:
    count = without_consumer(place) - place.dispatch.dying
    if not count:
        return succeed(_NOTHING)
    times = [message.timestamp for message in place.dispatch.backlog.delayed.values()]
    stored = [min(place.dispatch.backlog.resting)] if place.dispatch.backlog.resting else []
    for _, lane in place.dispatch.backlog.lanes():
        first, behind = lane.first(), lane.first_behind()
        if first is not None:
            times.append(first.timestamp)
        if behind and (first is None or behind < first.seq):
            stored.append(behind)
    if not stored:
        return succeed(Waiting(count, min(times, default=-1)))
    told: Deferred[Waiting | None] = Deferred()

    def read(messages: Sequence[Message]) -> None:
        every = [*times, *[message.timestamp for message in messages]]
        told.callback(Waiting(count, min(every, default=-1)))

    turn = place.changes.turn
    turn.begin()
    try:
        place.changes.fetch(stored, read)
    finally:
        turn.end()
    return told
