"""Messages that tell of connections, consumers, destinations and the dead.

ActiveMQ calls them advisories: topics under ``ActiveMQ.Advisory.`` that clients cannot send to. They
are made only while somebody listens, and only for those who do: a subscription to ``>`` gets none.
Who may listen is the access rules' to say.

Owns who listens, and what they are told. Facts of ActiveMQ are from its documentation, "Advisory
Message", and from its ``AdvisoryBroker``; bodies are what its STOMP makes of its commands, of which
they have what there is here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from gateway.broker.arrivals.numbering import Numbering
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.dead_letters import DeadLetters
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.limit_reports import LimitReports
from gateway.broker.durability.rows import Destined
from gateway.broker.properties.names import ADVISORY, matcher
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind, Topic
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import Int, Value

#: How a consumer is told what the body is.
TRANSFORMATION: Final = "jms-advisory-json"
#: Headers that name a message and where it was, as ActiveMQ spells them.
_ID: Final = "orignalMessageId"
_WHERE: Final = "orignalDestination"
#: Milliseconds after which a topic that only patterns cover may go again.
_TIDY_MS: Final = 60_000
_CLASSES: Final = {
    (Kind.QUEUE, False): ("Queue", "ActiveMQQueue"),
    (Kind.TOPIC, False): ("Topic", "ActiveMQTopic"),
    (Kind.QUEUE, True): ("TempQueue", "ActiveMQTempQueue"),
    (Kind.TOPIC, True): ("TempTopic", "ActiveMQTempTopic"),
}
_MESSAGES: Final = {
    BodyType.MESSAGE: "ActiveMQMessage",
    BodyType.TEXT: "ActiveMQTextMessage",
    BodyType.BYTES: "ActiveMQBytesMessage",
    BodyType.MAP: "ActiveMQMapMessage",
    BodyType.STREAM: "ActiveMQStreamMessage",
    BodyType.OBJECT: "ActiveMQObjectMessage",
}
#: Messages that are given up to make room.
_DISCARDED: Final = frozenset((DeadReason.OLDEST, DeadReason.LOW_PRIORITY))

_Contents = dict[str, object]


class Consuming(Protocol):
    """A session, with its consumers."""

    @property
    def consumers(self) -> Sequence[EmbeddedConsumer]: ...


class Connected(Protocol):
    """A connection, with its sessions."""

    number: int
    user: str
    client_id: str | None

    @property
    def sessions(self) -> Iterable[Consuming]: ...


class Known(Protocol):
    """The destinations of one broker."""

    destinations: dict[Destination, PhysicalQueue | PhysicalTopic]
    schedule: Schedule
    numbering: Numbering
    store_id: str
    dead_letters: DeadLetters
    limit_reports: LimitReports

    def soon(self, work: Callable[[], None]) -> None: ...

    def topic(self, destination: Destination) -> PhysicalTopic: ...

    def remove(self, physical: PhysicalQueue | PhysicalTopic) -> None: ...


class Advisories:
    """Tells those who listen what comes and goes.

    :param name: of the broker.
    """

    def __init__(self, broker: Known, name: str) -> None:
        self._broker: Final = broker
        self._name: Final = name
        #: Gives those that are open, and their addresses.
        self.connections: Callable[[], Iterable[tuple[Connected, str]]] = tuple
        #: Who listens, and which topics each does.
        self.listeners: Final[dict[TopicSubscription, Callable[[str], bool]]] = {}
        #: Consumers that were told of, by their numbers.
        self._consumers: Final[dict[EmbeddedConsumer, tuple[int, int]]] = {}
        self._last = 0
        #: Topics that are looked at again.
        self._passing: Final[set[PhysicalTopic]] = set()

    # --- what comes and goes

    def connected(self, connection: Connected, address: str) -> None:
        """Tell of a connection that is open."""
        if self.listeners:
            self._tell_connection(connection, address, None)

    def disconnected(self, connection: Connected) -> None:
        """Tell of one that has ended."""
        if self.listeners:
            gone = {"@class": "ConnectionId", "value": self._id_of(connection.number)}
            self._tell("Connection", "RemoveInfo", {"objectId": gone})

    def created(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        """Tell of a destination that was made."""
        if self.listeners:
            self._tell_destination(physical.destination, 0, None)

    def removed(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        """Tell of one that is gone."""
        if self.listeners:
            self._tell_destination(physical.destination, 1, None)

    def consuming(self, connection: Connected, consumer: EmbeddedConsumer) -> None:
        """Tell of a consumer; or have it listen, if it asks for advisories.

        One that listens is told first what there is.
        """
        source = consumer.source
        if isinstance(source, TopicSubscription) and source.pattern.name.startswith(ADVISORY):
            self._listen(source, consumer)
        elif self.listeners:
            self._tell_consumer(connection.number, consumer, None)

    def _listen(self, source: TopicSubscription, consumer: EmbeddedConsumer) -> None:
        pattern = source.pattern.name
        # To ActiveMQ, whose names these are, "a.>" covers "a".
        self.listeners[source] = matcher(pattern, none_or_more=True)
        self._broker.dead_letters.listener = self._died
        self._broker.limit_reports.listener = self._is_full
        consumer.ending = partial(self._left, source)
        for connection, address in self.connections():
            self._tell_connection(connection, address, source)
            for session in connection.sessions:
                for each in session.consumers:
                    if each is not consumer:
                        self._tell_consumer(connection.number, each, source)
        for destination in self._broker.destinations:
            self._tell_destination(destination, 0, source)

    def _left(self, source: TopicSubscription, consumer: EmbeddedConsumer) -> None:
        if all(each is consumer for each in source.dispatch.consumers):
            self.listeners.pop(source, None)
        if not self.listeners:
            self._consumers.clear()
            self._broker.dead_letters.listener = None
            self._broker.limit_reports.listener = None

    def _consumer_left(self, consumer: EmbeddedConsumer) -> None:
        known = self._consumers.pop(consumer, None)
        if known is not None and self.listeners:
            gone = {"@class": "ConsumerId", **self._consumer_id(*known)}
            destination = consumer.spec.destination
            self._tell(
                _about("Consumer", destination), "RemoveInfo", {"objectId": gone}, destination
            )

    # --- single messages

    def _died(
        self, destination: Destination, message: Message, reason: DeadReason, kept: bool
    ) -> None:
        if destination.name.startswith(ADVISORY):
            return
        about: list[tuple[str, dict[str, Value]]] = []
        identity: dict[str, Value] = {_ID: message.message_id}
        if kept:
            about.append((_typed("MessageDLQd", destination), {}))
        if reason is DeadReason.EXPIRED:
            about.append((_about("Expired", destination), identity))
        elif reason in _DISCARDED:
            where = {**identity, _WHERE: _qualified(destination)}
            about.append((_typed("MessageDiscarded", destination), where))
        for topic, properties in about:
            if self._heard(topic, None):
                command = _MESSAGES[message.headers.body_type]
                self._tell(topic, command, _shown_message(message), properties=properties)

    def _is_full(self, physical: Destined) -> None:
        destination = physical.destination
        if not destination.name.startswith(ADVISORY):
            usage: dict[str, Value] = {
                "usageName": _qualified(destination),
                "usageCount": physical.octets,
            }
            self._tell(_typed("FULL", destination), "null", "", properties=usage)

    # --- what is told

    def _tell_connection(
        self, connection: Connected, address: str, only: TopicSubscription | None
    ) -> None:
        contents: _Contents = {"connectionId": {"value": self._id_of(connection.number)}}
        if connection.client_id is not None:
            contents["clientId"] = connection.client_id
        contents |= {"clientIp": address, "userName": connection.user, "password": ""}
        self._tell("Connection", "ConnectionInfo", contents, only=only)

    def _tell_destination(
        self, destination: Destination, operation: int, only: TopicSubscription | None
    ) -> None:
        if destination.name.startswith(ADVISORY):
            return
        contents: _Contents = {"destination": _shown(destination), "operationType": operation}
        self._tell(
            _CLASSES[destination.kind, destination.temporary][0],
            "DestinationInfo",
            contents,
            only=only,
        )

    def _tell_consumer(
        self, number: int, consumer: EmbeddedConsumer, only: TopicSubscription | None
    ) -> None:
        spec = consumer.spec
        if consumer.closed or spec.destination.name.startswith(ADVISORY):
            return
        known = self._consumers.get(consumer)
        if known is None:
            self._last += 1
            known = self._consumers[consumer] = (number, self._last)
            consumer.ending = self._consumer_left
        contents: _Contents = {
            "consumerId": self._consumer_id(*known),
            "browser": spec.browse,
            "destination": _shown(spec.destination),
        }
        if spec.selector is not None:
            contents["selector"] = spec.selector
        if spec.durable_name is not None:
            contents["subscriptionName"] = spec.durable_name
        contents |= {"noLocal": spec.no_local, "exclusive": spec.exclusive}
        contents["priority"] = spec.priority
        self._tell(
            _about("Consumer", spec.destination),
            "ConsumerInfo",
            contents,
            spec.destination,
            only,
        )

    def _id_of(self, number: int) -> str:
        return f"ID:{self._name}-{number}"

    def _consumer_id(self, connection: int, number: int) -> _Contents:
        return {"connectionId": self._id_of(connection), "sessionId": -1, "value": number}

    def _tell(
        self,
        topic: str,
        command: str,
        contents: _Contents | str,
        counted: Destination | None = None,
        only: TopicSubscription | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """Tell who listens, at the end of this turn.

        :param topic: its name, without what all have.
        :param command: ActiveMQ's name of what the body has.
        :param counted: of what the consumers are counted.
        :param only: who is told; None: all.
        :param properties: others that this advisory has.
        """
        heard = self._heard(topic, only)
        if heard:
            body = json.dumps({command: contents}, ensure_ascii=False, separators=(",", ":"))
            send = partial(self._send, heard, ADVISORY + topic, body, counted, properties or {})
            self._broker.soon(send)

    def _heard(self, topic: str, only: TopicSubscription | None) -> list[TopicSubscription]:
        """Return the subscriptions that are to hear of something."""
        name = ADVISORY + topic
        return [
            subscription
            for subscription, matches in self.listeners.items()
            if (only is None or subscription is only)
            and matches(name)
            and subscription.covers(Topic(name))
        ]

    def _send(
        self,
        heard: Sequence[TopicSubscription],
        name: str,
        body: str,
        counted: Destination | None,
        more: Mapping[str, Value],
    ) -> None:
        heard = [each for each in heard if each in self.listeners]
        if not heard:
            return
        properties: dict[str, Value] = {
            "originBrokerName": self._name,
            "originBrokerId": f"ID:{self._broker.store_id}",
            "transformation": TRANSFORMATION,
            **more,
        }
        if counted is not None:
            properties["consumerCount"] = Int(self._count(counted))
        headers = Headers(
            Topic(name), persistent=False, priority=0, type="Advisory", properties=properties
        )
        message = Message(headers, body.encode("utf-8", "replace"))
        message.size = len(message.body) + headers.octets
        topic = self._broker.topic(headers.destination)
        self._broker.numbering.give([message], "", 0)
        for subscription in heard:
            accepted, examined = subscription.wanted([message])
            if accepted:
                subscription.accept(topic, accepted)
                subscription.arrive(topic, accepted, examined)
        if topic not in self._passing and not topic.named:
            # There may be one for each queue that ever was.
            self._passing.add(topic)
            self._broker.schedule.after(_TIDY_MS, partial(self._tidy, topic))

    def _tidy(self, topic: PhysicalTopic) -> None:
        self._passing.discard(topic)
        if topic.removed or topic.named:
            return
        if topic.count:
            self._passing.add(topic)
            self._broker.schedule.after(_TIDY_MS, partial(self._tidy, topic))
        else:
            self._broker.remove(topic)

    def _count(self, destination: Destination) -> int:
        physical = self._broker.destinations.get(destination)
        if physical is None:
            return 0
        if isinstance(physical, PhysicalQueue):
            return len(physical.dispatch.consumers)
        return sum([len(each.dispatch.consumers) for each in physical.subscriptions])


def _about(what: str, destination: Destination) -> str:
    kind = "Queue" if destination.kind is Kind.QUEUE else "Topic"
    return f"{what}.{kind}.{destination.name}"


def _typed(what: str, destination: Destination) -> str:
    """As :func:`_about`, where temporary ones are told apart."""
    return f"{what}.{_CLASSES[destination.kind, destination.temporary][0]}.{destination.name}"


def _qualified(destination: Destination) -> str:
    kind = "queue" if destination.kind is Kind.QUEUE else "topic"
    return f"{'temp-' if destination.temporary else ''}{kind}://{destination.name}"


def _shown_message(message: Message) -> _Contents:
    """Return what there is of a message, without its body."""
    headers = message.headers
    contents: _Contents = {
        "destination": _shown(headers.destination),
        "messageId": {"textView": message.message_id},
        "expiration": message.expires,
        "timestamp": message.timestamp,
        "priority": headers.priority,
        "persistent": headers.persistent,
    }
    if headers.correlation_id is not None:
        contents["correlationId"] = headers.correlation_id
    if headers.type is not None:
        contents["type"] = headers.type
    if headers.group:
        contents["groupID"] = headers.group
    if message.user:
        contents["userID"] = message.user
    return contents


def _shown(destination: Destination) -> _Contents:
    shown = _CLASSES[destination.kind, destination.temporary][1]
    return {"@class": shown, "string": destination.name, "null": ""}
