"""A connection of the embedded broker (``messaging.provider.Connection``): who the user is and what
that user may do.

Owns access decisions, the connection's sessions, its client identifier and its temporary
destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.core.limits import LimitBehavior
from gateway.broker.core.memory import of_consumer, of_destination, of_subscription
from gateway.broker.core.names import is_wild
from gateway.broker.core.queue import PhysicalQueue, QueueBrowser
from gateway.broker.core.subscription import TopicSubscription
from gateway.broker.durability.duplicates import Sifted, check_id
from gateway.broker.journal_lines import Origin
from gateway.broker.security.access import AccessRules, Operation
from gateway.broker.security.users import ADMIN_GROUP, Principal
from gateway.broker.sessions.consumer import EmbeddedConsumer
from gateway.broker.sessions.session import EmbeddedSession
from gateway.broker.settings import SELECTOR_COST, SELECTORS_COST
from gateway.broker.store.interface import StoreError
from gateway.broker.xa.resource import EmbeddedXASession
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AccessDenied,
    ClientIdRequired,
    DestinationFull,
    DestinationStopped,
    DurableInUse,
    InvalidDestination,
    MessageRejected,
    MessageTooLarge,
    MessagingError,
    NoRoom,
    ProviderUnavailable,
    SelectorTooCostly,
    StorageFailed,
    UnknownSubscription,
)
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import DUPLICATE_ID, Deliver, Mode, Session, Subscription, XASession
from gateway.messaging.selector.selector import Selector, parse

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.core.topic import PhysicalTopic
    from gateway.broker.durability.duplicates import Arrivals, Before
    from gateway.broker.operator.limit_reports import LimitReports

#: What the embedded broker calls itself.
PRODUCT: Final = "stomp-gateway"

#: Destinations that a connection knows before those that went are looked for.
_SWEEP: Final = 1000


def admit(arrivals: Arrivals, messages: Sequence[Message], reports: LimitReports) -> None:
    """Whether there is room for all of these.

    :param messages: those that were asked about, in order: the arrivals, and maybe others between.
    :param reports: told of a destination that refuses. :raises MessageRejected: for the first that
        there is no room for; its place is the one in ``messages``.
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
            count -= len(run)
            octets -= sum([message.size for message in run])
            for message in run:
                count += 1
                octets += message.size
                try:
                    physical.admit(count, octets)
                except DestinationFull as error:
                    reports.refusing(physical, error)
                    place = next(index for index, asked in enumerate(messages) if asked is message)
                    raise MessageRejected(place, error) from error
        sums[physical.destination] = (count, octets)


class EmbeddedConnection:
    """One connection. Made by the provider, once the user is authenticated.

    :param number: of the connection, for ``no_local``; from 1.
    :param address: the client's; "" for a user inside this process, whose transactions count in the
        memory of the broker.
    :param random_name: makes a name nobody can guess. :param ended: called when it has ended.
    """

    def __init__(
        self,
        broker: Broker,
        principal: Principal,
        rules: AccessRules,
        client_id: str | None,
        number: int,
        lost: Callable[[MessagingError], None],
        address: str,
        *,
        random_name: Callable[[], str],
        ended: Callable[[EmbeddedConnection], None],
    ) -> None:
        self.broker = broker
        self.address = address
        self.principal = principal
        self.user = principal.name
        self.client_id = client_id
        self.number = number
        self.origin = Origin(number, principal.name, address)
        self._random_name = random_name
        self._ended = ended
        self._rules = rules
        self._lost: Callable[[MessagingError], None] | None = lost
        self._error: MessagingError | None = None
        self.sessions: dict[EmbeddedSession, None] = {}
        self._temporary: set[Destination] = set()
        #: Destinations this user may send to, as long as neither they nor the rules change.
        self.producible: dict[Destination, PhysicalQueue | PhysicalTopic] = {}
        self._sweep_at = _SWEEP
        #: Of the messages that were routed last: what was found about their duplicate ids; None
        #: when none has one.
        self.sifted: Sifted | None = None
        self._epoch = rules.epoch
        #: Epoch milliseconds of its beginning; messages it has sent, and those delivered to it.
        self.since_ms = broker.turn.refresh()
        self.sent = 0
        self.delivered = 0

    @property
    def product(self) -> str:
        return PRODUCT

    @property
    def administers(self) -> bool:
        return ADMIN_GROUP in self.principal.groups

    # --- sessions

    def session(self, mode: Mode) -> EmbeddedSession:
        self.check_open()
        session = EmbeddedSession(self, mode)
        self.sessions[session] = None
        return session

    def xa_session(self) -> XASession:
        return EmbeddedXASession(self.session(Mode.TRANSACTED))

    def own_session(self, session: Session) -> EmbeddedSession | None:
        """The session, if it is one of this connection's."""
        for own in self.sessions:
            if own is session:
                return own
        return None

    def forget(self, session: EmbeddedSession) -> None:
        self.sessions.pop(session, None)

    # --- sending

    def route(self, messages: Sequence[Message], before: Before | None = None) -> Arrivals:
        """Where messages go, in runs of one destination, if all of them may; without those whose
        duplicate ids are known, see :attr:`sifted`.

        :param before: see :meth:`~gateway.broker.durability.duplicates.DuplicateIds.sift`.
        :raises MessageRejected: for the first that may not.
        """
        if self._epoch != self._rules.epoch:
            self.producible.clear()
            self._epoch = self._rules.epoch
        broken = self.broker.commits.broken
        fits = self.broker.store.largest - self.broker.commits.octets_without_room
        identified = False
        checked: Headers | None = None
        arrivals: Arrivals = []
        most = self.broker.options.max_size
        start = 0
        index = 0
        destination = messages[0].headers.destination
        physical: PhysicalQueue | PhysicalTopic | None = None
        try:
            for index, message in enumerate(messages):
                headers = message.headers
                if headers.destination is not destination and headers.destination != destination:
                    assert physical is not None
                    arrivals.append((physical, messages[start:index]))
                    start = index
                    destination = headers.destination
                    physical = None
                if physical is None:
                    physical = self.producible.get(destination)
                    if physical is None or physical.removed or physical.damaged:
                        physical = self._find_producible(destination)
                    limit = physical.properties.max_bytes_per_msg
                if headers is not checked:
                    checked = headers
                    if DUPLICATE_ID in headers.properties:
                        check_id(headers.properties[DUPLICATE_ID])
                        identified = True
                message.size = size = len(message.body) + headers.octets
                if size > most >= 0:
                    raise MessageTooLarge(destination, size, "imq.message.max_size", most)
                if size > limit >= 0:
                    raise MessageTooLarge(destination, size, "maxBytesPerMsg", limit)
                if (
                    (size > fits or broken is not None)
                    and headers.persistent
                    and not self.broker.duplicates.repeats(physical, headers)
                ):
                    if broken is not None:
                        raise StorageFailed(str(broken))
                    self.broker.check_fits([(physical, (message,))])
        except MessagingError as error:
            raise MessageRejected(index, error) from error
        assert physical is not None
        arrivals.append((physical, messages[start:] if start else messages))
        self.sifted = None
        if identified:
            arrivals, self.sifted = self.broker.duplicates.sift(arrivals, before)
        for physical, _ in arrivals:
            if physical.properties.bounded:
                admit(arrivals, messages, self.broker.limit_reports)
                break
        return arrivals

    def _find_producible(self, destination: Destination) -> PhysicalQueue | PhysicalTopic:
        if is_wild(destination.name) and destination.kind is Kind.TOPIC:
            raise InvalidDestination(
                destination, "a message cannot be sent to a name with wildcards"
            )
        physical = self._usable(destination, Operation.PRODUCE)
        if len(self.producible) >= self._sweep_at:
            # It must not keep destinations that went long ago.
            for gone in [each for each, there in self.producible.items() if there.removed]:
                del self.producible[gone]
            self._sweep_at = max(_SWEEP, 2 * len(self.producible))
        self.producible[destination] = physical
        return physical

    def _usable(
        self, destination: Destination, operation: Operation
    ) -> PhysicalQueue | PhysicalTopic:
        """The physical destination, made if need be and the user may.

        :raises AccessDenied, InvalidDestination:
        """
        physical = self.broker.find(destination)
        auto_created = physical.auto_created if physical is not None else not destination.temporary
        if physical is None and destination in self.broker.configured:
            auto_created = False
        if not self._rules.allows(self.principal, operation, destination, auto_created):
            raise AccessDenied(self.user, operation.value, destination)
        if physical is not None and physical.removed:
            raise InvalidDestination(destination, "an administrator is removing it")
        if physical is not None and physical.damaged:
            raise DestinationStopped(destination)
        if physical is None:
            if destination.temporary:
                raise InvalidDestination(
                    destination, "the temporary destination is gone, or never was"
                )
            if not self.broker.creatable(destination):
                raise InvalidDestination(
                    destination, "there is no such destination, and none is created automatically"
                )
            self._check_room(destination, "destination", of_destination(destination.name))
            physical = self.broker.create(destination)
            self.broker.use_reports.made(destination, self.user)
        return physical

    # --- receiving

    def attach(
        self,
        session: EmbeddedSession,
        spec: Subscription,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> EmbeddedConsumer:
        """A new consumer of one of this connection's sessions; see ``Session.consumer``."""
        destination = spec.destination
        selector: Selector | None = None
        if spec.selector is not None and spec.selector.strip():
            selector = parse(spec.selector, self.broker.options.selector_cost, SELECTOR_COST.name)
            self._check_cost(selector)
        if destination.temporary and destination not in self._temporary:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )
        weight = of_consumer("" if selector is None else selector.text)
        self._check_room(destination, "consumer", weight)
        if destination.kind is Kind.TOPIC:
            consumer = self._attach_topic(session, spec, selector, deliver, failed)
        else:
            consumer = self._attach_queue(session, spec, selector, deliver, failed)
        if selector is not None:
            consumer.cost = selector.cost
        if not consumer.closed:
            consumer.weight = weight
            self.broker.memory.stand(weight)
        return consumer

    def _check_room(self, destination: Destination, what: str, octets: int) -> None:
        """:raises NoRoom: a client is to make something of so many octets for which there is no
        memory; administrators and links may.
        """
        memory = self.broker.memory
        if not memory.has_room_for(octets) and self.address and not self.administers:
            self.broker.limit_reports.no_room(memory.standing, memory.standing_most)
            raise NoRoom(destination, what, memory.standing, memory.standing_most)

    def _attach_queue(
        self,
        session: EmbeddedSession,
        spec: Subscription,
        selector: Selector | None,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> EmbeddedConsumer:
        destination = spec.destination
        if spec.durable_name is not None:
            raise InvalidDestination(destination, "only topics have durable subscriptions")
        queue = self._usable(destination, Operation.BROWSE if spec.browse else Operation.CONSUME)
        assert isinstance(queue, PhysicalQueue)
        if spec.browse:
            browser = QueueBrowser(queue)
            consumer = EmbeddedConsumer(session, browser, spec, selector, deliver, failed)
            browser.join(consumer)
        else:
            consumer = EmbeddedConsumer(session, queue, spec, selector, deliver, failed)
            queue.join(consumer)
        return consumer

    def _check_cost(self, selector: Selector) -> None:
        """:raises SelectorTooCostly: with this one, the selectors of the connection would cost too
        much together.
        """
        most = self.broker.options.selectors_cost
        if most < 0:
            return
        total = selector.cost
        for session in self.sessions:
            for consumer in session.consumers:
                total += consumer.cost
        if total > most:
            remedy = "end other subscriptions first, use another connection, or have the operator raise that setting"
            raise SelectorTooCostly(selector.text, total, SELECTORS_COST.name, most, remedy)

    def _attach_topic(
        self,
        session: EmbeddedSession,
        spec: Subscription,
        selector: Selector | None,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> EmbeddedConsumer:
        pattern = spec.destination
        if spec.browse:
            raise InvalidDestination(pattern, "only queues can be browsed")
        if pattern.temporary and spec.durable_name is not None:
            raise InvalidDestination(pattern, "a temporary topic has no durable subscriptions")
        if is_wild(pattern.name):
            if not self._rules.allows(self.principal, Operation.CONSUME, pattern, False):
                raise AccessDenied(self.user, Operation.CONSUME.value, pattern)
        else:
            self._usable(pattern, Operation.CONSUME)
        if spec.durable_name is None:
            self._check_room(
                pattern, "subscription", of_subscription("" if selector is None else selector.text)
            )
            subscription = TopicSubscription(
                self.broker.core,
                self.broker,
                pattern,
                selector,
                no_local=spec.no_local,
                origin=self.number if spec.no_local else 0,
            )
            subscription.covers = self._may_consume
            self.broker.subscribe(subscription)
        else:
            subscription = self._durable(spec.durable_name, spec, selector)
        consumer = EmbeddedConsumer(session, subscription, spec, None, deliver, failed)
        subscription.join(consumer)
        return consumer

    def _durable(
        self, name: str, spec: Subscription, selector: Selector | None
    ) -> TopicSubscription:
        """The durable subscription of that name, made or redefined as the consumer wants it."""
        if self.client_id is None:
            raise ClientIdRequired(name)
        broker = self.broker
        key = (self.client_id, name)
        existing = broker.durables.get(key)
        if existing is not None:
            if existing.dispatch.consumers:
                raise DurableInUse(self.client_id, name)
            if existing.dispatch.halted is not None:
                raise existing.dispatch.halted
            same_text = (existing.selector.text if existing.selector else "") == (
                selector.text if selector else ""
            )
            if (
                existing.pattern == spec.destination
                and same_text
                and existing.no_local == spec.no_local
            ):
                existing.covers = self._may_consume
                if spec.no_local:
                    existing.origin = self.number
                return existing
        if existing is None:
            self._check_room(
                spec.destination,
                "subscription",
                of_subscription("" if selector is None else selector.text),
            )
        else:
            # JMS 1.1, section 6.11.1: that is the same as unsubscribing and creating a new one.
            self._log_durable("redefined", existing)
            broker.end_durable(existing, "the durable subscription was redefined", lambda: None)
        number = broker.new_number()
        subscription = TopicSubscription(
            broker.core,
            broker,
            spec.destination,
            selector,
            no_local=spec.no_local,
            origin=self.number if spec.no_local else 0,
            number=number,
            client_id=self.client_id,
            name=name,
        )
        subscription.covers = self._may_consume
        broker.durables[key] = subscription
        broker.subscribe(subscription)
        broker.store_subscription(subscription)
        self._log_durable("made", subscription)
        return subscription

    def _log_durable(self, what: str, subscription: TopicSubscription) -> None:
        self.broker.log.info(
            "durable subscription '{name}' of client-id '{client_id}' to {pattern} is {what} by user '{user}'",
            name=subscription.name,
            client_id=subscription.client_id,
            pattern=str(subscription.pattern),
            what=what,
            user=self.user,
        )

    def _may_consume(self, topic: Destination) -> bool:
        return self._rules.allows(self.principal, Operation.CONSUME, topic, False)

    # --- the rest of the seam

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        destination = Destination(kind, self._random_name(), True)
        self._check_room(destination, "destination", of_destination(destination.name))
        self.broker.create(destination)
        self._temporary.add(destination)
        self.broker.log.debug(
            "{destination} is made for user '{user}'", destination=str(destination), user=self.user
        )
        return destination

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        self.check_open()
        if self.client_id is None:
            return fail(ClientIdRequired(durable_name))
        subscription = self.broker.durables.get((self.client_id, durable_name))
        if subscription is None:
            return fail(UnknownSubscription(self.client_id, durable_name))
        if subscription.dispatch.consumers:
            return fail(DurableInUse(self.client_id, durable_name))
        if subscription.dispatch.halted is not None:
            return fail(subscription.dispatch.halted)
        done: Deferred[None] = Deferred()

        commits = self.broker.commits

        def stored(error: StoreError | None) -> None:
            if error is None:
                done.callback(None)
            else:
                done.errback(StorageFailed(str(error)))

        self._log_durable("removed", subscription)
        self.broker.end_durable(
            subscription,
            "the durable subscription was removed",
            lambda: commits.wait(stored, removals=True),
        )
        return done

    def close(self) -> Deferred[None]:
        if self._lost is None and self._error is None:
            return succeed(None)
        self._lost = None
        self._end()
        done: Deferred[None] = Deferred()
        self.broker.soon(lambda: done.callback(None))
        return done

    def fail(self, error: MessagingError) -> None:
        """The connection ends because of the broker: its user is told in another turn."""
        if self._error is None and self._lost is not None:
            self._error = error
            lost, self._lost = self._lost, None
            self._end()
            self.broker.soon(lambda: lost(error))

    def readmitted(self, principal: Principal) -> None:
        """The user is still one, maybe in other groups."""
        if principal != self.principal:
            self.principal = principal
            self.producible.clear()

    def check_open(self) -> None:
        """:raises ProviderUnavailable: the connection is closed or was lost."""
        if self._lost is None:
            raise ProviderUnavailable(
                self._error.told(str) if self._error else "the connection is closed"
            )

    def _end(self) -> None:
        for session in list(self.sessions):
            session.close()
        for destination in self._temporary:
            physical = self.broker.find(destination)
            if physical is not None:
                self.broker.remove(physical)
        self._temporary.clear()
        # Whoever still refers to this connection must not keep destinations that go.
        self.producible.clear()
        self._ended(self)
