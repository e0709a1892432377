"""Topics whose messages also go to queues that are named after them.

ActiveMQ calls them virtual topics: what is sent to the topic ``VirtualTopic.orders`` goes to its
subscriptions as ever, and a copy goes to each queue ``Consumer.NAME.VirtualTopic.orders`` that
exists. So several consumers can share what is in effect one subscription.

Owns which queues a topic has, and what a copy is. A copy is a message of its queue: it has a seq, an
id and a row of its own, and shares with its original only the body. Copies are made where the
original is accepted, and take their places in the same batch of the store, so that all of them are
there or none.

Facts of ActiveMQ are from its documentation, "Virtual Destinations", and from its
``VirtualTopicInterceptor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.properties.names import Pattern, is_wild, matcher
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.message import EACH, Headers, Message, VariedHeaders

#: The header of a copy that has the topic, in STOMP's spelling, as ActiveMQ gives it to clients.
ORIGINAL_DESTINATION: Final = "original-destination"


class Copied(list[Message]):
    """A run of copies, for one queue.

    :ivar originals: for each copy, in the same order, what was sent to the topic.
    """

    __slots__ = ("originals",)

    def __init__(self, copies: Sequence[Message], originals: Sequence[Message]) -> None:
        super().__init__(copies)
        self.originals: Final = originals


def originals_of(run: Sequence[Message]) -> Sequence[Message]:
    """What a client has sent of a run: of copies, the originals."""
    return run.originals if isinstance(run, Copied) else run


def copies_of(
    physical: PhysicalDestination, run: Sequence[Message]
) -> list[tuple[PhysicalDestination, Copied]]:
    """Make the copies, by queue, of messages that a destination accepts.

    Of a message that is to be delivered later the copies are made when its time has come.
    """
    if not physical.copied_to:
        return []
    originals = [message for message in run if not message.headers.scheduled]
    if not originals:
        return []
    return [
        (queue, Copied([_copy(queue, message) for message in originals], originals))
        for queue in physical.copied_to
        if not queue.removed
    ]


def arrive(
    physical: PhysicalDestination,
    run: Sequence[Message],
    give: Callable[[Sequence[Message]], None],
) -> None:
    """Let messages of the broker's own arrive, and their copies.

    No limit refuses them. The caller keeps it in one batch of the store, and lets the destinations
    :meth:`~gateway.broker.core.physical.PhysicalDestination.make_room` after that.

    :param give: gives messages their identity.
    """
    for message in run:
        message.size = len(message.body) + message.headers.octets
    give(run)
    physical.arrive(run, physical.accept(run))
    for queue, copies in copies_of(physical, run):
        give(copies)
        physical.changes.journal_copied(queue, copies)
        queue.arrive(copies, queue.accept(copies))


def make_room(physical: PhysicalDestination) -> None:
    """Do what the properties say about limits, here and at copies' queues."""
    for each in (physical, *physical.copied_to):
        if each.properties.bounded:
            each.make_room()


def _copy(queue: PhysicalDestination, message: Message) -> Message:
    headers = _headers(queue, message.headers)
    copy = Message(headers, message.body, expires=message.expires, timestamp=message.timestamp)
    copy.size = len(copy.body) + headers.octets
    return copy


def _headers(queue: PhysicalDestination, original: Headers) -> Headers:
    """Return the headers of a copy.

    What a producer repeats is shared between copies as between originals: the last is kept.
    """
    repeated = original.repeated
    whole = original if repeated is None else repeated
    last = queue.copied_headers
    if last is None or last[0] is not whole:
        queue.copied_headers = last = (whole, _for_queue(queue, whole))
    if repeated is None:
        return last[1]
    if ORIGINAL_DESTINATION.encode() in original.lines:
        # A client cannot say it.
        return _for_queue(queue, original)
    return with_repeated(original, last[1])


def with_repeated(original: Headers, repeated: Headers) -> Headers:
    """Return headers with the same lines behind other repeated ones."""
    before = original.repeated
    assert before is not None
    octets = original.octets - before.octets
    count = (original.weight - before.weight - 3 * octets) // EACH
    return VariedHeaders(repeated, original.lines, count, repeated.octets + octets)


def _for_queue(queue: PhysicalDestination, original: Headers) -> Headers:
    extras = [each for each in original.extras if each[0] != ORIGINAL_DESTINATION]
    headers = original.replace(
        destination=queue.destination,
        extras=(*extras, (ORIGINAL_DESTINATION, f"/topic/{original.destination.name}")),
    )
    # Its time has come, or a link has brought it.
    headers.scheduled = False
    return headers


class Wanted(NamedTuple):
    """Queues that a consumer would have, one for each topic of a pattern."""

    beginning: str
    matches: Callable[[str], bool]
    make: Callable[[Destination], None]

    def look_at(self, topic: str) -> None:
        """Make the queue of a topic, if the pattern covers it."""
        if self.matches(topic):
            self.make(Queue(self.beginning + topic))


class VirtualTopics:
    """Which queues get copies of which topics' messages, in one broker.

    :param patterns: the names of topics that are virtual, with or without wildcards; none: no topic
        is.
    :param prefix: what the names of queues have before the name of the topic; a level ``*`` is any
        one. It ends with a dot.
    """

    def __init__(self, patterns: Sequence[str], prefix: str) -> None:
        self._patterns: Final = [Pattern(pattern) for pattern in patterns]
        self._prefix: Final = prefix.split(".")[:-1]
        #: All that there are.
        self.queues: Final[dict[PhysicalDestination, None]] = {}
        #: By the name of the topic; a topic that exists has this very list.
        self._queues: Final[dict[str, list[PhysicalDestination]]] = {}
        #: The names of those topics.
        self._topics: Final[set[str]] = set()
        #: Consumers of several queues that would have one for each topic of a pattern: the beginning
        #: of its name, which topics these are, and what makes it.
        self._wanting: Final[dict[object, Wanted]] = {}

    def topic_of(self, queue: str) -> str:
        """Return the topic whose messages a queue of that name gets; "" for none."""
        levels = queue.split(".", len(self._prefix))
        name = levels.pop()
        if len(levels) < len(self._prefix) or not self._is_virtual(name):
            return ""
        same = [level in ("*", given) for level, given in zip(self._prefix, levels, strict=True)]
        return name if all(same) else ""

    def _is_virtual(self, topic: str) -> bool:
        return any(pattern.matches(topic) for pattern in self._patterns)

    def want(
        self,
        consumer: object,
        pattern: str,
        none_or_more: bool,
        make: Callable[[Destination], None],
    ) -> None:
        """A consumer would have the queues that its pattern covers.

        They are made for the topics that there are, and later for those that come. That needs the
        name of the consumer, so a pattern with a wildcard there makes none.

        :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
        :param make: makes one of them, unless it is there.
        """
        levels = pattern.split(".")
        count = len(self._prefix)
        named, below = levels[:count], levels[count:]
        if len(named) < count or not below or is_wild(".".join(named)):
            return
        if any(level not in ("*", given) for level, given in zip(self._prefix, named, strict=True)):
            return
        wanted = Wanted(".".join([*named, ""]), matcher(".".join(below), none_or_more), make)
        self._wanting[consumer] = wanted
        for topic in list(self._topics):
            wanted.look_at(topic)

    def want_no_more(self, consumer: object) -> None:
        """The consumer is gone. Idempotent."""
        self._wanting.pop(consumer, None)

    def make_queues(self, topic: str) -> None:
        """A topic was made: make the queues that consumers would have."""
        if topic in self._topics:
            for wanted in list(self._wanting.values()):
                wanted.look_at(topic)

    def register(self, physical: PhysicalDestination) -> None:
        """A destination is made. From now on copies go to it or from it."""
        destination = physical.destination
        if destination.temporary:
            return
        if destination.kind is Kind.QUEUE:
            topic = self.topic_of(destination.name)
            if topic:
                physical.copied_from = Topic(topic)
                self._queues.setdefault(topic, []).append(physical)
                self.queues[physical] = None
        elif self._is_virtual(destination.name):
            physical.copied_to = self._queues.setdefault(destination.name, [])
            self._topics.add(destination.name)

    def remove(self, physical: PhysicalDestination) -> None:
        """A destination is removed, which was made."""
        destination = physical.destination
        if physical.copied_from is not None:
            name = physical.copied_from.name
            self._queues[name].remove(physical)
            del self.queues[physical]
        elif destination.kind is Kind.TOPIC and destination.name in self._topics:
            name = destination.name
            self._topics.remove(name)
        else:
            # A queue may have the same name as the topic, which goes on with its list.
            return
        if not self._queues[name] and name not in self._topics:
            del self._queues[name]
