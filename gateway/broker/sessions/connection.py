"""A connection of the embedded broker (``messaging.provider.Connection``).

Owns its sessions, its client identifier, what its consumers subscribe to and its temporary
destinations. What its user may do is :mod:`gateway.broker.sessions.routing`'s to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.broker import Broker
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.destinations.queue import PhysicalQueue, QueueBrowser
from gateway.broker.core.destinations.queue_pattern import PatternConsumer
from gateway.broker.core.destinations.subscription import SHARED_BY, TopicSubscription
from gateway.broker.core.waiting.memory import (
    MEMBER,
    of_consumer,
    of_destination,
    of_subscription,
)
from gateway.broker.properties.names import OWN, check_alone, is_wild
from gateway.broker.properties.settings import SELECTOR_COST, SELECTORS_COST
from gateway.broker.security.access import AccessRules, Operation
from gateway.broker.security.users import Principal
from gateway.broker.sessions.routing import Routing
from gateway.broker.sessions.session import EmbeddedSession, when_durable
from gateway.broker.sessions.xa_resource import EmbeddedXAResource
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AccessDenied,
    ClientIdRequired,
    DurableInUse,
    InvalidDestination,
    MessagingError,
    SelectorTooCostly,
    SubscriptionDiffers,
    UnknownSubscription,
)
from gateway.messaging.provider import ConsumerSpec, Credentials, Deliver, Mode, XASession
from gateway.messaging.selector.selector import Selector, parse

#: What the embedded broker calls itself.
PRODUCT: Final = "stomp-gateway"
#: Topics of which a durable subscription remembers whether its user may read them.
_TOPICS: Final = 100


class EmbeddedConnection:
    """One connection. Made by the provider, once the user is authenticated.

    :param number: of the connection, for ``no_local``; from 1.
    :param address: the client's; "" for a user inside this process, whose transactions count in the
        memory of the broker.
    :param random_name: makes a name that cannot be guessed.
    :param renewing: verifies other credentials of the user.
    :param ended: called when it has ended.
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
        renewing: Callable[[EmbeddedConnection, Credentials], Deferred[None]],
        ended: Callable[[EmbeddedConnection], None],
    ) -> None:
        self.broker = broker
        self.client_id = client_id
        self.number = number
        self.user = principal.name
        self.routing = Routing(
            broker,
            broker.acceptance,
            broker.memory,
            broker.limit_reports,
            broker.use_reports,
            principal,
            rules,
            Origin(number, principal.name, address),
            broker.refusals,
        )
        self._random_name = random_name
        self._renewing = renewing
        self._ended = ended
        self._lost: Callable[[MessagingError], None] | None = lost
        self._error: MessagingError | None = None
        self.sessions: dict[EmbeddedSession, None] = {}
        self._temporary: set[Destination] = set()
        #: Epoch milliseconds of its beginning.
        self.since_ms = broker.turn.refresh()

    @property
    def product(self) -> str:
        return PRODUCT

    @property
    def administers(self) -> bool:
        return self.routing.administers

    def exists(self, destination: Destination) -> bool:
        """As the seam says; the queue of an address with queues exists."""
        broker = self.broker
        addressed = destination.kind is Kind.QUEUE and destination.name in broker.addresses.by_name
        return addressed or broker.find(destination) is not None or destination in broker.configured

    def has_exchanges(self, destination: Destination) -> bool:
        return False

    # --- sessions

    def session(self, mode: Mode) -> EmbeddedSession:
        self.routing.check_open()
        broker = self.broker
        session = EmbeddedSession(
            self.routing,
            broker.acceptance,
            broker.memory,
            broker.unacknowledged,
            broker.turn,
            broker.schedule,
            broker.soon,
            mode,
            self.sessions,
            self._attach,
        )
        self.sessions[session] = None
        return session

    def xa_session(self) -> XASession:
        session = self.session(Mode.TRANSACTED)
        EmbeddedXAResource(session, self.broker.branches)
        return session

    # --- receiving

    def _attach(
        self,
        session: EmbeddedSession,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> EmbeddedConsumer | PatternConsumer:
        """Make a consumer of one of this connection's sessions.

        See ``Session.consumer``.
        """
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
        check_alone(destination)
        if destination.kind is Kind.QUEUE and is_wild(destination.name):
            return self._pattern(session, spec, selector, deliver, failed)
        weight = of_consumer("" if selector is None else selector.text)
        self.routing.check_room(destination, "consumer", weight)
        topic = destination.kind is Kind.TOPIC
        source = self._subscription(spec, selector) if topic else self._queue(spec)
        # A subscription asks its selector about what arrives.
        on_delivery = None if topic else selector
        consumer = EmbeddedConsumer(session, source, spec, on_delivery, deliver, failed)
        source.join(consumer)
        if selector is not None:
            consumer.cost = selector.cost
        if not consumer.closed:
            consumer.weight = weight
            self.broker.memory.count_object(weight)
        if topic or self.broker.advisories.listeners:
            self.broker.advisories.consuming(self, consumer)
        return consumer

    def _pattern(
        self,
        session: EmbeddedSession,
        spec: ConsumerSpec,
        selector: Selector | None,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> PatternConsumer:
        """Make a consumer of all queues that a pattern covers."""
        pattern, routing, broker = spec.destination, self.routing, self.broker
        if spec.durable_name is not None:
            raise InvalidDestination(pattern, "only topics have durable subscriptions")
        if spec.browse:
            raise InvalidDestination(
                pattern, "wildcards are for consumers; browse one queue after the other"
            )
        if pattern.name.startswith(OWN):
            raise InvalidDestination(
                pattern,
                "no wildcards cover the broker's own queues; consume from each by its name",
            )
        if ">" in pattern.name.split(".")[:-1] and not spec.none_or_more:
            raise InvalidDestination(pattern, "> stands for the rest, so it is the last level")
        if not routing.may_consume_any(pattern, spec.none_or_more):
            raise AccessDenied(self.user, Operation.CONSUME.value, pattern)
        consumer = PatternConsumer(
            session,
            spec,
            selector,
            routing.may_consume,
            deliver,
            failed,
            broker.turn,
            broker.queue_patterns,
        )
        covered = len(broker.queue_patterns.covered(spec))
        routing.check_room(pattern, "consumer", consumer.weight + covered * MEMBER)
        broker.memory.count_object(consumer.weight)
        broker.queue_patterns.add(consumer, self._make_copied)
        return consumer

    def _make_copied(self, queue: Destination) -> None:
        """Make a queue that gets copies, for a consumer of a pattern."""
        try:
            self.routing.usable(queue, Operation.CONSUME)
        except MessagingError as error:
            # The others of the pattern it may have.
            self.routing.refused(queue, error)

    def _queue(self, spec: ConsumerSpec) -> PhysicalQueue | QueueBrowser:
        destination = spec.destination
        if spec.durable_name is not None:
            raise InvalidDestination(destination, "only topics have durable subscriptions")
        queue = self.routing.usable(
            destination, Operation.BROWSE if spec.browse else Operation.CONSUME, spec.address
        )
        assert isinstance(queue, PhysicalQueue)
        return QueueBrowser(queue) if spec.browse else queue

    def _check_cost(self, selector: Selector) -> None:
        """Check that the connection's selectors do not cost too much together.

        :raises SelectorTooCostly: with this one, they would.
        """
        most = self.broker.options.selectors_cost
        if most < 0:
            return
        total = selector.cost
        for session in self.sessions:
            for consumer in session.consumers:
                total += consumer.cost
            for pattern in session.patterns:
                total += pattern.cost
        if total > most:
            remedy = "end other subscriptions first, use another connection, or have the operator raise that setting"
            raise SelectorTooCostly(selector.text, total, SELECTORS_COST.name, most, remedy)

    def _subscription(self, spec: ConsumerSpec, selector: Selector | None) -> TopicSubscription:
        pattern = spec.destination
        if spec.browse:
            raise InvalidDestination(pattern, "only queues can be browsed")
        if pattern.temporary and spec.durable_name is not None:
            raise InvalidDestination(pattern, "a temporary topic has no durable subscriptions")
        if spec.shared_name is not None and spec.no_local:
            raise InvalidDestination(pattern, "a shared subscription has no no-local")
        if is_wild(pattern.name):
            if not self.routing.reader()(pattern):
                raise AccessDenied(self.user, Operation.CONSUME.value, pattern)
        else:
            self.routing.usable(pattern, Operation.CONSUME)
        if spec.durable_name is not None:
            return self._durable(spec.durable_name, spec, selector)
        name = spec.shared_name or ""
        key = (self._sharing, name) if name else ("", "")
        if name and key in self.broker.durables:
            raise SubscriptionDiffers(
                name, self.broker.durables[key].shown, "and durable: expected a durable one"
            )
        existing = self.broker.shared.get(key)
        if existing is not None:
            if spec.adds and _is_alike(existing, spec, selector):
                self._add_topic(existing, spec)
            elif not _is_same(existing, spec, selector):
                raise _differs(existing)
            self._read_by_this(existing)
            return existing
        self.routing.check_room(
            pattern, "subscription", of_subscription("" if selector is None else selector.text)
        )
        subscription = TopicSubscription(
            self.broker.core,
            self.broker,
            pattern,
            selector,
            no_local=spec.no_local,
            origin=self.number if spec.no_local else 0,
            client_id=key[0],
            name=name,
            none_or_more=spec.none_or_more,
        )
        subscription.covers = self.routing.reader()
        if name:
            self.broker.shared[key] = subscription
        self.broker.subscribing.begin(subscription)
        return subscription

    def _read_by_this(self, subscription: TopicSubscription) -> None:
        """This connection's user takes what waits in a subscription."""
        # It is asked about each message that waits.
        subscription.read_by(lru_cache(_TOPICS)(self.routing.reader()))
        self.broker.wild.look_again(subscription)

    def _durable(
        self, name: str, spec: ConsumerSpec, selector: Selector | None
    ) -> TopicSubscription:
        """Find the durable subscription of that name.

        It is made or redefined as the consumer wants it.
        """
        client_id = self._sharing if spec.shared else self.client_id
        if client_id is None:
            raise ClientIdRequired(name)
        broker = self.broker
        key = (client_id, name)
        existing = broker.durables.get(key)
        if existing is not None:
            if existing.dispatch.consumers and not spec.shared:
                raise DurableInUse(client_id, name)
            if existing.dispatch.halted is not None:
                raise existing.dispatch.halted
            if spec.adds and _is_alike(existing, spec, selector):
                self._add_topic(existing, spec)
                self._read_by_this(existing)
                return existing
            if _is_same(existing, spec, selector, wider=True):
                if existing.none_or_more != spec.none_or_more:
                    if existing.dispatch.consumers:
                        raise DurableInUse(client_id, name)
                    broker.subscribing.widen(existing)
                self._read_by_this(existing)
                if spec.no_local:
                    existing.origin = self.number
                return existing
            if not spec.redefines:
                raise _differs(existing)
            if existing.dispatch.consumers:
                raise DurableInUse(client_id, name)
        if spec.shared and key in broker.shared:
            raise SubscriptionDiffers(
                name,
                broker.shared[key].shown,
                "and not durable: expected one that is not durable",
            )
        if existing is None:
            self.routing.check_room(
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
            client_id=client_id,
            name=name,
            none_or_more=spec.none_or_more,
        )
        subscription.covers = self.routing.reader()
        broker.durables[key] = subscription
        broker.subscribing.begin(subscription)
        broker.subscribing.store(subscription)
        self._log_durable("made", subscription)
        return subscription

    def _add_topic(self, subscription: TopicSubscription, spec: ConsumerSpec) -> None:
        """Add the topic of a consumer to the subscription that it shares."""
        topic, subscribing = spec.destination, self.broker.subscribing
        if subscribing.has(subscription, topic, spec.none_or_more):
            return
        subscribing.check_more(subscription, topic)
        self.routing.check_room(topic, "subscription", of_subscription("", topic.name))
        subscribing.add(subscription, topic, spec.none_or_more)
        if subscription.durable:
            self._log_durable("widened", subscription)

    @property
    def _sharing(self) -> str:
        """The client identifier of what the user's connections share.

        Others do not share it: they may have other rights.
        """
        return SHARED_BY + self.user

    def _log_durable(self, what: str, subscription: TopicSubscription) -> None:
        self.broker.log.info(
            "durable subscription '{name}' of client-id '{client_id}' to {pattern} is {what} by user '{user}'",
            name=subscription.name,
            client_id=subscription.client_id,
            pattern=str(subscription.shown),
            what=what,
            user=self.user,
        )

    # --- the rest of the seam

    def temporary(self, kind: Kind) -> Destination:
        self.routing.check_open()
        destination = Destination(kind, self._random_name(), True)
        self.routing.check_room(destination, "destination", of_destination(destination.name))
        self.broker.create(destination)
        self._temporary.add(destination)
        self.broker.log.debug(
            "{destination} is made for user '{user}'", destination=str(destination), user=self.user
        )
        return destination

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return self._renewing(self, credentials)

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        self.routing.check_open()
        durables = self.broker.durables
        client_id = self.client_id
        if client_id is None or (client_id, durable_name) not in durables:
            client_id = self._sharing
        subscription = durables.get((client_id, durable_name))
        if subscription is None:
            if self.client_id is None:
                return fail(ClientIdRequired(durable_name))
            return fail(UnknownSubscription(self.client_id, durable_name))
        if subscription.dispatch.consumers:
            return fail(DurableInUse(client_id, durable_name))
        if subscription.dispatch.halted is not None:
            return fail(subscription.dispatch.halted)
        done: Deferred[None] = Deferred()

        def ended() -> None:
            when_durable(self.broker.commits, removals=True).chainDeferred(done)

        self._log_durable("removed", subscription)
        self.broker.end_durable(subscription, "the durable subscription was removed", ended)
        return done

    def close(self) -> Deferred[None]:
        if self._lost is None and self._error is None:
            return succeed(None)
        self._lost = None
        self._end("the connection is closed")
        done: Deferred[None] = Deferred()
        turn = self.broker.turn
        # Whoever closes it does not wait for the store, not even while that is out of reach.
        (turn.write if turn.suspended else self.broker.soon)(lambda: done.callback(None))
        return done

    def fail(self, error: MessagingError) -> None:
        """End the connection because of the broker.

        Its user is told in another turn.
        """
        if self._error is None and self._lost is not None:
            self._error = error
            lost, self._lost = self._lost, None
            self._end(error.told(str))
            self.broker.soon(lambda: lost(error))

    def readmitted(self, principal: Principal) -> None:
        """The user is still one, maybe in other groups."""
        if principal != self.routing.principal:
            self.routing.principal = principal
            self.routing.producible.clear()

    def _end(self, why: str) -> None:
        self.routing.ended = self.routing.ended or why
        for session in list(self.sessions):
            session.close()
        for destination in self._temporary:
            physical = self.broker.find(destination)
            if physical is not None:
                self.broker.remove(physical)
        self._temporary.clear()
        # Users that still refer to this connection must not keep destinations that go.
        self.routing.producible.clear()
        self._ended(self)


def _is_same(
    subscription: TopicSubscription,
    spec: ConsumerSpec,
    selector: Selector | None,
    wider: bool = False,
) -> bool:
    """Whether a subscription receives what a consumer wants.

    :param wider: or less than that, only because its ``>`` does not stand for no level.
    """
    return (
        subscription.pattern == spec.destination
        and _is_alike(subscription, spec, selector)
        and (subscription.none_or_more == spec.none_or_more or (wider and spec.none_or_more))
    )


def _is_alike(
    subscription: TopicSubscription, spec: ConsumerSpec, selector: Selector | None
) -> bool:
    """Whether both leave out the same messages, whatever their topics."""
    text = "" if subscription.selector is None else subscription.selector.text
    return (
        text == ("" if selector is None else selector.text)
        and subscription.no_local == spec.no_local
    )


def _differs(subscription: TopicSubscription) -> SubscriptionDiffers:
    selector = subscription.selector
    asks = "without a selector" if selector is None else f"with the selector {selector.text[:100]}"
    return SubscriptionDiffers(
        subscription.name,
        subscription.shown,
        f"{asks}: expected the same, or another name for another subscription",
    )
