"""Where the messages of one connection go, and what its user may do there.

Owns access decisions, the destinations that the user may send to, and what a message is checked for
before it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.broker.acceptance.acceptance import Acceptance
from gateway.broker.arrivals.duplicates import Arrivals, Before, check_id
from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.destinations.addresses import Addresses, ForSubscription, to_queue
from gateway.broker.core.destinations.last_values import Growth
from gateway.broker.core.destinations.pauses import Pauses
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.limit_reports import LimitReports, UseReports
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.refusals import Refusals
from gateway.broker.core.virtual_topics import (
    VirtualTopics,
    copies_of,
    originals_of,
)
from gateway.broker.core.waiting.memory import Memory, of_destination
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.names import check_name, is_wild
from gateway.broker.security.access import AccessRules, Operation
from gateway.broker.security.users import ADMIN_GROUP, Principal
from gateway.messaging.destination import Destination, Kind, Queue, split_subscription
from gateway.messaging.errors import (
    AccessDenied,
    DestinationFull,
    DestinationStopped,
    InvalidDestination,
    MessageRejected,
    MessageTooLarge,
    MessagingError,
    NoRoom,
    ProviderUnavailable,
    StorageFailed,
)
from gateway.messaging.message import AddressedHeaders, ChosenHeaders, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.scheduled import read as read_schedule

#: Destinations that a connection knows before those that went are looked for.
_SWEEP: Final = 1000


class Destinations(Protocol):
    """The destinations of one broker."""

    core: Changes
    pauses: Pauses
    virtual: VirtualTopics
    addresses: Addresses
    #: Properties that the settings give, by destination.
    configured: dict[Destination, DestinationProperties]

    def find(self, destination: Destination) -> PhysicalQueue | PhysicalTopic | None:
        """The physical destination, if there is one."""

    def creatable(self, destination: Destination) -> bool:
        """Whether using the destination would create it."""

    def create(self, destination: Destination) -> PhysicalQueue | PhysicalTopic:
        """The physical destination, made if it does not exist.

        :raises InvalidDestination: the name is not one.
        """


class Routing:
    """The routing of one connection, which its sessions share."""

    def __init__(
        self,
        destinations: Destinations,
        acceptance: Acceptance,
        memory: Memory,
        limit_reports: LimitReports,
        use_reports: UseReports,
        principal: Principal,
        rules: AccessRules,
        origin: Origin,
        refusals: Refusals,
    ) -> None:
        self._destinations: Final = destinations
        #: Destinations that are paused for producers.
        self.paused: Final = destinations.pauses.producers
        #: The queues that get copies of what is sent to virtual topics.
        self._copied_to: Final = destinations.virtual.queues
        #: The addresses that have queues of other names.
        self._addresses: Final = destinations.addresses.by_name
        self._acceptance: Final = acceptance
        self._memory: Final = memory
        self._limit_reports: Final = limit_reports
        self._use_reports: Final = use_reports
        self.principal = principal
        self.origin = origin
        self._refusals: Final = refusals
        self._rules = rules
        #: Why the connection has ended; None while it is open.
        self.ended: str | None = None
        #: Destinations this user may send to, as long as neither they nor the rules change.
        self.producible: dict[Destination, PhysicalQueue | PhysicalTopic] = {}
        self._sweep_at = _SWEEP
        #: How many of the messages that were routed last repeat a known duplicate id; None when none
        #: has one.
        self.repeats: int | None = None
        #: Some of these are for one subscription of a topic.
        self._some_for_one = False
        self._epoch = rules.epoch

    def check_open(self) -> None:
        """:raises ProviderUnavailable: the connection is closed or was lost."""
        if self.ended is not None:
            raise ProviderUnavailable(self.ended)

    @property
    def administers(self) -> bool:
        return ADMIN_GROUP in self.principal.groups

    def route(self, messages: Sequence[Message], before: Before | None = None) -> Arrivals:
        """Find where messages go, in runs of one destination.

        Messages whose duplicate ids are known are left out, see :attr:`repeats`. Copies for the
        queues of virtual topics are added: all of it can be accepted, or nothing is. Messages to an
        address of several queues become messages of one of these.

        :param before: see :meth:`~gateway.broker.arrivals.duplicates.DuplicateIds.sift`.
        :raises MessageRejected: for the first that may not be sent.
        """
        if self._epoch != self._rules.epoch:
            self.producible.clear()
            self._epoch = self._rules.epoch
        if self._addresses:
            self._take_turns(messages)
        self._some_for_one = False
        acceptance = self._acceptance
        broken = acceptance.commits.broken
        fits = acceptance.largest()
        identified = False
        checked: Headers | None = None
        arrivals: Arrivals = []
        most = acceptance.options.max_size
        start = 0
        index = 0
        destination = messages[0].headers.destination
        physical: PhysicalQueue | PhysicalTopic | None = None
        try:
            for index, message in enumerate(messages):
                headers = message.headers
                if headers.destination is not destination and (
                    headers.destination != destination or _is_addressed(headers)
                ):
                    assert physical is not None
                    arrivals.append((physical, messages[start:index]))
                    start = index
                    destination = headers.destination
                    physical = None
                if physical is None:
                    physical = self.producible.get(destination)
                    if (
                        physical is None
                        or physical.removed
                        or physical.damaged
                        # It may not be one of the address yet.
                        or _is_addressed(headers)
                    ):
                        physical = self._find_producible(destination, headers)
                    limit = physical.properties.max_bytes_per_msg
                if headers is not checked:
                    checked = headers
                    # No duplicate id is among the lines of headers that vary.
                    given = (headers.repeated or headers).properties
                    if DUPLICATE_ID in given:
                        check_id(given[DUPLICATE_ID])
                        identified = True
                    if headers.scheduled:
                        if self.origin.address:
                            read_schedule(given)
                            self._destinations.core.schedules = True
                        else:
                            # It has had its time where it comes from.
                            headers.scheduled = False
                message.size = size = len(message.body) + headers.octets
                if size > most >= 0:
                    raise MessageTooLarge(destination, size, "imq.message.max_size", most)
                if size > limit >= 0:
                    raise MessageTooLarge(destination, size, "maxBytesPerMsg", limit)
                if (
                    (size > fits or broken is not None)
                    and headers.persistent
                    and not acceptance.duplicates.repeats(physical, headers)
                ):
                    if broken is not None:
                        raise StorageFailed(str(broken))
                    acceptance.check_fits([(physical, (message,))])
        except MessagingError as error:
            self.refused(split_subscription(destination)[0], error)
            raise MessageRejected(index, error) from error
        assert physical is not None
        arrivals.append((physical, messages[start:] if start else messages))
        self.repeats = None
        if identified:
            arrivals, self.repeats = acceptance.duplicates.sift(arrivals, before)
        if self._some_for_one:
            arrivals = self._to_subscriptions(arrivals, messages)
        if self._copied_to:
            arrivals = self._with_copies(arrivals, messages)
        for physical, _ in arrivals:
            if physical.properties.bounded:
                try:
                    _admit(arrivals, messages, self._limit_reports)
                except MessageRejected as full:
                    self.refused(messages[full.index].headers.destination, full.cause)
                    raise
                break
        return arrivals

    def _take_turns(self, messages: Sequence[Message]) -> None:
        """Make messages to addresses of several queues messages of one of these.

        That holds whatever becomes of them: sent again, or committed, they go there.

        :raises MessageRejected: for the first that may not be sent, or that no queue takes.
        """
        allowed: dict[Destination, None] = {}
        for index, message in enumerate(messages):
            destination = message.headers.destination
            address = self._addresses.get(destination.name)
            if address is None or destination.kind is not Kind.QUEUE or destination.temporary:
                continue
            if isinstance(message.headers.repeated or message.headers, AddressedHeaders):
                continue
            error: MessagingError | None = None
            queue: PhysicalQueue | None = None
            if destination not in allowed and not self._may_send_by(destination):
                error = AccessDenied(self.origin.user, Operation.PRODUCE.value, destination)
            else:
                allowed[destination] = None
                queue = address.choose(message)
                if queue is None:
                    error = DestinationStopped(destination)
            if error is not None or queue is None:
                assert error is not None
                self.refused(destination, error)
                raise MessageRejected(index, error)
            # Also where that is the queue of its name: it is not to have another turn.
            message.headers = to_queue(queue, message.headers)

    def _may_send_by(self, address: Destination) -> bool:
        """Whether the user may send to a queue, or to the address of that name.

        No queue of its name is made for that, so where an administrator has made one of its queues
        the right to make some is not needed.
        """
        there = self._addresses.get(address.name)
        if there is None or self._destinations.find(address) is not None:
            return self._may(Operation.PRODUCE, address)
        by_use = all(queue.auto_created for queue in there.queues)
        return self._rules.allows(self.principal, Operation.PRODUCE, address, by_use)

    def _may(self, operation: Operation, destination: Destination) -> bool:
        """Whether the user may do that, and have the destination made if need be."""
        physical = self._destinations.find(destination)
        auto_created = physical.auto_created if physical is not None else not destination.temporary
        if physical is None and destination in self._destinations.configured:
            auto_created = False
        return self._rules.allows(self.principal, operation, destination, auto_created)

    def _with_copies(self, arrivals: Arrivals, messages: Sequence[Message]) -> Arrivals:
        """Add what goes to the queues of virtual topics.

        The user needs no right there: it is the consumers' to say what they want.

        :raises MessageRejected: for the first message of which a copy cannot come to a queue.
        """
        expanded: Arrivals = []
        for physical, run in arrivals:
            expanded.append((physical, run))
            if isinstance(run, ForSubscription):
                continue
            for queue, copies in copies_of(physical, run):
                assert isinstance(queue, PhysicalQueue)
                most = queue.properties.max_bytes_per_msg
                for at, copy in enumerate(copies):
                    error: MessagingError | None = None
                    if queue.damaged:
                        error = DestinationStopped(queue.destination)
                    elif copy.size > most >= 0:
                        error = MessageTooLarge(
                            queue.destination, copy.size, "maxBytesPerMsg", most
                        )
                    if error is not None:
                        self.refused(physical.destination, error)
                        raise MessageRejected(place_of(copies.originals[at], messages), error)
                expanded.append((queue, copies))
        if len(expanded) > len(arrivals):
            try:
                self._acceptance.check_fits(expanded)
            except StorageFailed as failed:
                raise MessageRejected(0, failed) from failed
        return expanded

    def refused(self, destination: Destination, error: MessagingError) -> None:
        """Remember for operators that the user was refused something there."""
        self._refusals.note(destination, self.origin, error)

    def _find_producible(
        self, destination: Destination, headers: Headers
    ) -> PhysicalQueue | PhysicalTopic:
        topic, subscription = split_subscription(destination)
        if is_wild(topic.name) and topic.kind is Kind.TOPIC:
            raise InvalidDestination(topic, "a message cannot be sent to a name with wildcards")
        if subscription:
            return self._find_subscribed(topic, subscription)
        given = headers.repeated or headers
        address = given.address if isinstance(given, AddressedHeaders) else ""
        chosen = isinstance(given, ChosenHeaders)
        physical = self.usable(destination, Operation.PRODUCE, address, chosen=chosen)
        if len(self.producible) >= self._sweep_at:
            # It must not keep destinations that went long ago.
            for gone in [each for each, there in self.producible.items() if there.removed]:
                del self.producible[gone]
            self._sweep_at = max(_SWEEP, 2 * len(self.producible))
        self.producible[destination] = physical
        return physical

    def _find_subscribed(self, topic: Destination, name: str) -> PhysicalTopic:
        """Find a topic that has a durable subscription of that name.

        The next step is :meth:`_to_subscriptions`.
        """
        physical = self.usable(topic, Operation.PRODUCE)
        assert isinstance(physical, PhysicalTopic)
        if not physical.shared_as(name):
            raise InvalidDestination(
                topic,
                f"it has no queue '{name}', which is a durable subscription here: SUBSCRIBE to it first",
            )
        self._some_for_one = True
        return physical

    def _to_subscriptions(self, arrivals: Arrivals, messages: Sequence[Message]) -> Arrivals:
        """Say of messages that are for one subscription that they are.

        :raises MessageRejected: for the first that asks for delivery at a later time.
        """
        said: Arrivals = []
        for physical, run in arrivals:
            topic, name = split_subscription(run[0].headers.destination)
            if name:
                for message in run:
                    if message.headers.scheduled:
                        error = InvalidDestination(
                            topic, "a message for one of its queues cannot be delivered later"
                        )
                        self.refused(topic, error)
                        raise MessageRejected(place_of(message, messages), error)
                run = ForSubscription(run, name)
            said.append((physical, run))
        return said

    def usable(
        self,
        destination: Destination,
        operation: Operation,
        address: str = "",
        *,
        chosen: bool = False,
    ) -> PhysicalQueue | PhysicalTopic:
        """The physical destination, made if need be and the user may.

        Who may send to an address may send to each of its queues.

        :param address: of a queue: it is to have this if it has none, see
            :class:`~gateway.messaging.message.AddressedHeaders`.
        :param chosen: it was one of that address when the message was sent, and is again if it has
            gone since.
        :raises AccessDenied, InvalidDestination:
        """
        physical = self._destinations.find(destination)
        allowed = self._may(operation, destination)
        gone = chosen and physical is None
        if not allowed and operation is Operation.PRODUCE and (physical is not None or gone):
            own = address if physical is None else physical.properties.address
            allowed = own != "" and self._may_send_by(Queue(own))
        if not allowed:
            raise AccessDenied(self.origin.user, operation.value, destination)
        binds = gone or (
            address != "" and not chosen and self._may_bind(physical, destination, address)
        )
        if physical is not None and physical.removed:
            raise InvalidDestination(destination, "an administrator is removing it")
        if physical is not None and physical.damaged:
            raise DestinationStopped(destination)
        if physical is None:
            if destination.temporary:
                raise InvalidDestination(
                    destination, "the temporary destination is gone, or never was"
                )
            if not self._destinations.creatable(destination):
                raise InvalidDestination(
                    destination, "there is no such destination, and none is created automatically"
                )
            self.check_room(destination, "destination", of_destination(destination.name))
            physical = self._destinations.create(destination)
            self._use_reports.made(destination, self.origin.user)
        if binds:
            self._destinations.addresses.bind(physical, address)
        return physical

    def _may_bind(
        self,
        physical: PhysicalQueue | PhysicalTopic | None,
        destination: Destination,
        address: str,
    ) -> bool:
        """Whether a queue is to have an address.

        What is sent to the address comes to the queue then. So its user must be one who may have
        that, and one who may send something to those who receive from the queue.

        :raises AccessDenied, InvalidDestination: it is to have it, and must not.
        """
        if address == destination.name:
            return False
        if physical is not None and (
            not physical.auto_created or physical.properties.address != ""
        ):
            return False
        if not self._may(Operation.PRODUCE, destination):
            if physical is not None:
                return False
            # It would wait for ever for what never comes.
            raise AccessDenied(self.origin.user, Operation.PRODUCE.value, destination)
        whole = Queue(address)
        check_name(whole)
        if not self._may(Operation.CONSUME, whole):
            raise AccessDenied(self.origin.user, Operation.CONSUME.value, whole)
        return True

    @property
    def standing(self) -> tuple[int, Principal]:
        """What its user may do is the same as long as this is equal."""
        return self._rules.epoch, self.principal

    def check_allowed(self, operation: Operation, destination: Destination) -> None:
        """Check what the user may do with a destination of another broker.

        :raises AccessDenied: not that.
        """
        if not self._rules.allows_elsewhere(self.principal, operation, destination):
            raise AccessDenied(self.origin.user, operation.value, destination)

    def check_producible(self, destination: Destination) -> None:
        """Check that the user may send, and have the destination made if need be.

        :raises AccessDenied: not that.
        """
        topic, _ = split_subscription(destination)
        is_queue = topic.kind is Kind.QUEUE
        may = self._may_send_by(topic) if is_queue else self._may(Operation.PRODUCE, topic)
        if not may:
            raise AccessDenied(self.origin.user, Operation.PRODUCE.value, destination)

    def check_room(self, destination: Destination, what: str, octets: int) -> None:
        """Check that there is memory for what a client is to make.

        Administrators and links may make it in any case.

        :raises NoRoom: there is not.
        """
        memory = self._memory
        if not memory.has_room_for(octets) and self.origin.address and not self.administers:
            self._limit_reports.no_room(memory.object_octets, memory.most_object_octets)
            raise NoRoom(destination, what, memory.object_octets, memory.most_object_octets)

    def may_consume_any(self, pattern: Destination, none_or_more: bool) -> bool:
        """Whether this user may consume from any queue that a pattern covers.

        The rules are asked, and not what queues there are.

        :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
        """
        return self._rules.allows_any(self.principal, Operation.CONSUME, pattern, none_or_more)

    def may_consume(self, queue: PhysicalQueue) -> bool:
        """Whether this user may consume from a queue that exists."""
        return self.ended is None and self._rules.allows(
            self.principal, Operation.CONSUME, queue.destination, queue.auto_created
        )

    def reader(self) -> Callable[[Destination], bool]:
        """Whether this user may read a topic. It may outlive the connection."""
        rules, principal = self._rules, self.principal
        return lambda topic: rules.allows(principal, Operation.CONSUME, topic)


def _is_addressed(headers: Headers) -> bool:
    """Whether it is an address, of whose queues none is chosen yet."""
    return type(headers.repeated or headers) is AddressedHeaders


def place_of(message: Message, messages: Sequence[Message]) -> int:
    """Return which of these, from 0, this very message is."""
    return next(index for index, asked in enumerate(messages) if asked is message)


def _admit(arrivals: Arrivals, messages: Sequence[Message], reports: LimitReports) -> None:
    """Whether there is room for all of these.

    :param messages: those that were asked about, in order: the arrivals without copies, and maybe
        others between.
    :param reports: told of a destination that refuses.
    :raises MessageRejected: for the first that there is no room for; its place is the one in
        ``messages``.
    """
    sums: dict[Destination, tuple[int, int]] = {}
    for physical, run in arrivals:
        if (
            not physical.properties.bounded
            or physical.properties.limit_behavior is not LimitBehavior.REJECT_NEWEST
        ):
            continue
        count, octets = sums.get(physical.destination, (0, 0))
        octets += sum([message.size for message in run])
        count += len(run)
        try:
            physical.admit(count, octets)
        except DestinationFull:
            growth = physical.growth() if isinstance(physical, PhysicalQueue) else None
            if growth is not None:
                _admit_keyed(growth, physical, arrivals, run, messages, reports)
            else:
                count -= len(run)
                octets -= sum([message.size for message in run])
                for message, sent in zip(run, originals_of(run), strict=True):
                    count += 1
                    octets += message.size
                    try:
                        physical.admit(count, octets)
                    except DestinationFull as error:
                        reports.refusing(physical, error)
                        raise MessageRejected(place_of(sent, messages), error) from error
        sums[physical.destination] = (count, octets)


def _admit_keyed(
    growth: Growth,
    queue: PhysicalDestination,
    arrivals: Arrivals,
    last: Sequence[Message],
    messages: Sequence[Message],
    reports: LimitReports,
) -> None:
    """Whether there is room in a queue that replaces messages.

    What has the key of one that waits, or of one before it, only takes its place.

    :param growth: of the queue, by none of the messages yet.
    :param last: the run up to which to look.
    :raises MessageRejected: as :func:`_admit`.
    """
    for physical, run in arrivals:
        if physical is not queue:
            continue
        for message, sent in zip(run, originals_of(run), strict=True):
            count, octets = growth.count, growth.octets
            growth.add(message)
            if growth.count <= count and growth.octets <= octets:
                continue
            try:
                queue.admit(growth.count, growth.octets)
            except DestinationFull as error:
                reports.refusing(queue, error)
                raise MessageRejected(place_of(sent, messages), error) from error
        if run is last:
            return
