"""What an administrator may do to the embedded broker.

Owns the order of each operation and when it is done: a change is durable when its Deferred fires.
What an administrator sees, :mod:`gateway.broker.operator.views` knows; how messages are given up,
:mod:`gateway.broker.core.destinations.purging`; what a property may be,
:mod:`gateway.broker.properties.administered_properties`.

The properties that an administrator gives override those of the settings. Where neither says
anything, a created destination has no limits, REJECT_NEWEST, and uses the dead message queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred

from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations import subscription_end
from gateway.broker.core.destinations.purging import fail_consumers, purged
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.operator import views
from gateway.broker.operator.ages import Ages
from gateway.broker.operator.message_administration import MessageAdministration
from gateway.broker.operator.scheduled_administration import ScheduledAdministration
from gateway.broker.operator.views import (
    BrokerView,
    Client,
    ConnectionView,
    DestinationView,
    DurableView,
    Totals,
)
from gateway.broker.properties import administered_properties
from gateway.broker.properties.administered_properties import PropertyRefused
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.names import check_administered, is_wild
from gateway.broker.properties.pause import Pause
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.sessions.session import when_durable
from gateway.broker.timing.schedule import Steps
from gateway.instance.problems import counted
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ConnectionEnded,
    DurableInUse,
    InvalidDestination,
    MessagingError,
    UnknownSubscription,
)
from gateway.messaging.message import Message
from gateway.messaging.selector.selector import parse
from gateway.reactor.deferreds import deferred

_KINDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}


class AdministrationRefused(MessagingError):
    """The request of an administrator cannot be done; ``str`` says why."""


class BrokerAdministration:
    """The operations. Called on the reactor's thread.

    Made when the broker is open; from then on ``mq.sys.dmq`` and the destinations that settings
    name are there.

    :param clients: those who are behind connections of the provider.
    :param holders: what in this process has the others, by the ``id`` of each.
    :param varhome: of the instance.
    :param store: its kind.
    """

    def __init__(
        self,
        provider: EmbeddedProvider,
        clients: Callable[[], Sequence[Client]],
        *,
        holders: Callable[[], Mapping[int, str]] = dict,
        varhome: str = "",
        store: str = "sqlite",
    ) -> None:
        self._provider = provider
        self._broker = provider.broker
        self._clients = clients
        self._ages = Ages(self._broker.turn)
        self._holders = holders
        self._varhome = varhome
        self._store = store
        self._started_ms = self._broker.turn.refresh()
        self._began_ms = self._broker.turn.refresh_timer()
        #: Messages that are to be delivered later.
        self.scheduled = ScheduledAdministration(self._broker, self._find, AdministrationRefused)
        #: Messages that wait in queues.
        self.messages = MessageAdministration(self._broker, self._find, AdministrationRefused)
        for destination in self._broker.configured:
            self._broker.create(destination)

    # --- looking

    @deferred
    async def broker(self) -> BrokerView:
        """Return the broker as a whole."""
        return self.broker_of(await self._broker.schedule.looked(views.totals(self._broker)))

    def broker_of(self, totals: Totals) -> BrokerView:
        """Return the broker as a whole, whose destinations were looked at."""
        return views.broker(
            self._provider,
            varhome=self._varhome,
            store=self._store,
            started_ms=self._started_ms,
            uptime_ms=self._broker.turn.refresh_timer() - self._began_ms,
            totals=totals,
        )

    @deferred
    async def dead_queues(self) -> Sequence[DestinationView]:
        """Return the dead message queues, the broker's own first."""
        totals = await self._broker.schedule.looked(views.totals(self._broker))
        await self._ages.known(totals.dead)
        there = [each for each in totals.dead if self._broker.find(each.destination) is each]
        return [self.destination("queue", each.destination.name) for each in there]

    def list_destinations(
        self, show: Callable[[DestinationView], None], type: str = "", temporary: bool = False
    ) -> Deferred[None]:
        """Show the destinations by name, queues first.

        There may be very many: a few are shown in each turn, each as it is then.

        :param type: ``queue`` or ``topic``, "" for both.
        :param temporary: temporary ones, too.
        :returns: fires when all were shown.
        :raises AdministrationRefused: there is no such type.
        """
        kind = _kind(type) if type else None
        looked = self._broker.schedule.looked
        shown = views.show_destinations(self._provider, show, kind, temporary, self._ages)
        asked = looked(self._ages.ask(views.parts(self._broker)))
        return asked.addCallback(lambda _: self._ages.read()).addCallback(lambda _: looked(shown))

    def destination(self, type: str, name: str) -> DestinationView:
        """Return one destination. :raises AdministrationRefused: it is unknown."""
        physical = self._find(type, name)
        return views.destination(physical, views.producers(self._provider, physical), self._ages)

    @deferred
    async def look(self, type: str, name: str) -> DestinationView:
        """As :meth:`destination`, and wait for its age where that is read."""
        await self._ages.known([self._find(type, name)])
        return self.destination(type, name)

    def measured(self, most: int) -> Deferred[tuple[list[DestinationView], int]]:
        """As :func:`gateway.broker.operator.views.measured`."""
        return self._broker.schedule.looked(views.measured(self._provider, most, self._ages))

    def durables(self, topic: str = "") -> Sequence[DurableView]:
        """Return durable subscriptions by client identifier and name.

        :param topic: only those to this topic, or with this pattern.
        """
        return views.durables(self._broker, topic)

    def list_connections(
        self, show: Callable[[ConnectionView], None], service: str = ""
    ) -> Deferred[None]:
        """Show the connections, the oldest first, a few in each turn.

        :param service: only those that came by this service.
        :returns: fires when all were shown.
        """
        return self._broker.schedule.looked(
            views.show_connections(self._provider, self._clients(), self._holders(), show, service)
        )

    # --- destinations

    @deferred
    async def create(self, type: str, name: str, given: Mapping[str, str]) -> Sequence[str]:
        """Make a destination; it stays until an administrator destroys it.

        :returns: sentences about properties that have no effect here; fails with
            AdministrationRefused, InvalidDestination, StorageFailed.
        """
        destination = Destination(_kind(type), name)
        physical = self._broker.find(destination)
        if physical is not None:
            more = (
                ", made by its use; 'update dst' makes it an administrator's"
                if physical.auto_created
                else ""
            )
            raise AdministrationRefused(f"{destination} exists already{more}")
        check_administered(destination)
        kept, notes = _checked(destination, given)
        physical = self._broker.create(
            destination, administered_properties.over(DestinationProperties(), kept)
        )
        physical.auto_created = False
        physical.administered = kept
        self._broker.rows.store_destination(physical)
        await when_durable(self._broker.commits)
        self._broker.log.info(
            "{destination} is made by an administrator",
            destination=str(destination),
            event="destination.created",
        )
        return notes

    @deferred
    async def update(
        self, type: str, name: str, given: Mapping[str, str], reset: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Change these properties of a destination, at once.

        A destination that its use has made becomes an administrator's. Messages that are there stay
        where the new limits would refuse them; REMOVE_OLDEST and REMOVE_LOW_PRIORITY apply to them.

        :param reset: properties that get their own values back; ``given`` may be empty then.
        :returns: sentences about properties that have no effect here; fails with
            AdministrationRefused, StorageFailed.
        """
        physical = self._changeable(type, name)
        destination = physical.destination
        if not given and reset is None:
            raise AdministrationRefused("no property is given; expected -o NAME=VALUE")
        kept, notes = _checked(destination, given)
        if kept or reset is not None:
            base = self._broker.configured.get(destination)
            physical.administered = administered_properties.changed(
                physical.administered, physical.properties, base, kept, reset or ()
            )
            self._broker.addresses.remove(physical)
            address = physical.properties.address
            physical.properties = administered_properties.over(
                base or DestinationProperties(), physical.administered
            )
            self._broker.addresses.register(physical)
            if physical.properties.address != address:
                self._provider.readdressed(destination)
            physical.auto_created = False
            self._broker.rows.store_destination(physical)
            physical.let_senders_go()
            physical.make_room()
            if isinstance(physical, PhysicalQueue):
                physical.changed()
            await when_durable(self._broker.commits)
            self._broker.log.info(
                "{destination} has new properties from an administrator: {properties}",
                destination=str(destination),
                properties=", ".join(
                    [
                        *(f"{name}={text}" for name, text in kept.items()),
                        *(f"{name} as by itself" for name in reset or ()),
                    ]
                ),
                event="destination.changed",
            )
        return notes

    @deferred
    async def pause(self, type: str, name: str, pause: Pause) -> int:
        """Pause destinations so, whatever they are paused for now, or resume them.

        :param type: of the destination; of all, where no name is given, "" for both.
        :param name: "" for all that exist but temporary ones and the dead message queue.
        :param pause: :attr:`Pause.NONE` resumes.
        :returns: how many destinations; fails with AdministrationRefused, StorageFailed.
        """
        if name:
            physical = self._changeable(type, name)
            if physical.destination == DMQ:
                raise AdministrationRefused("the dead message queue cannot be paused")
            chosen = [physical]
        else:
            kind = _kind(type) if type else None
            chosen = [
                each
                for each in self._broker.destinations.values()
                if kind in (None, each.destination.kind) and each.destination != DMQ
            ]

        def steps() -> Steps[int]:
            count = 0
            for each in chosen:
                if not (each.removed or each.destination.temporary):
                    count += 1
                    if each.pause != pause:
                        self._broker.pauses.set(each, pause)
                        self._broker.rows.store_destination(each)
                yield
            return count

        count = await self._broker.schedule.finished(steps())
        await when_durable(self._broker.commits)
        self._broker.log.info(
            "{what} set {state} by an administrator",
            what=f"{chosen[0].destination} is" if name else f"{count} destinations are",
            state=pause.state,
            event="destination.paused" if pause is not Pause.NONE else "destination.resumed",
        )
        return count

    @deferred
    async def purge(self, type: str, name: str, selector: str = "", use_dmq: bool = False) -> int:
        """Give up what waits in a destination.

        What consumers have not settled stays theirs, and so does what prepared branches have sent
        or acknowledged.

        :param selector: only messages that it matches; "" for all.
        :param use_dmq: move them to the dead message queue; else they are gone.
        :returns: how many messages, on a topic each for each subscription that had it.
        """
        physical = self._find(type, name)
        wanted = parse(selector).matches if selector.strip() else None
        comment = _dmq_comment(physical, "purged") if use_dmq else None
        if wanted is not None or comment is not None:
            _check_readable(physical)
        count = await self._emptied(physical, wanted, comment)
        await when_durable(self._broker.commits, inserts=use_dmq)
        if wanted is not None or comment is not None:
            _check_readable(physical, f"; until then {count} messages were purged")
        self._broker.log.info(
            "{destination} was purged by an administrator: {count} messages{selector}{to}",
            destination=str(physical.destination),
            count=count,
            selector=f" with {selector}" if wanted else "",
            to=f", to {physical.dead_queue.name}" if use_dmq else "",
        )
        return count

    @deferred
    async def destroy(self, type: str, name: str, use_dmq: bool = False) -> None:
        """Remove a destination, with its messages.

        Its consumers end with an error, durable subscriptions of a topic go with it; those with
        wildcards lose its messages only.

        :param use_dmq: move the messages to the dead message queue first, those that consumers have
            included; else they are gone.
        :returns: fails with AdministrationRefused, also where a prepared branch has sent to it or
            acknowledged a message of it; with StorageFailed.
        """
        physical, broker = self.destroyable(type, name), self._broker
        destination = physical.destination
        removed: Deferred[None] = Deferred()
        if use_dmq and physical.scheduled:
            raise AdministrationRefused(
                f"{destination} has {counted(physical.scheduled)} to be delivered later, which do not go to {physical.dead_queue.name}; "
                "'destroy scheduled' removes them one by one, destroy dst without useDMQ all of them"
            )
        if use_dmq:
            _check_readable(physical)
            physical.dmq_comment = _dmq_comment(physical, "destroyed")
        if use_dmq or not isinstance(physical, PhysicalQueue):
            # No client sends to it or receives from it any more, until it is gone as a whole.
            physical.removed = True
        if use_dmq:
            # What is being committed arrives before this fires.
            await when_durable(self._broker.commits, inserts=True)
        if not isinstance(physical, PhysicalQueue):
            await self._topic_emptied(physical)
        elif use_dmq:
            await self._queue_buried(physical)
        if use_dmq or not isinstance(physical, PhysicalQueue):
            # A restart is to find what it was until nothing more can go wrong with that. Where the
            # store fails, this says so.
            await when_durable(self._broker.commits, inserts=True)
            cleared: Deferred[None] = Deferred()
            physical.on_clear(partial(cleared.callback, None))
            await cleared
        if use_dmq:
            try:
                _check_readable(
                    physical, f"; what was read until then is in {physical.dead_queue.name}"
                )
            except AdministrationRefused:
                physical.removed, physical.dmq_comment = False, None
                raise
        broker.remove(physical, lambda: removed.callback(None))
        await removed
        await when_durable(self._broker.commits, inserts=True)
        broker.log.info(
            "{destination} is destroyed by an administrator{to}",
            destination=str(destination),
            to=f", its messages are in {physical.dead_queue.name}" if use_dmq else "",
            event="destination.destroyed",
        )

    async def _queue_buried(self, queue: PhysicalQueue) -> None:
        fail_consumers(queue, InvalidDestination(queue.destination, "the destination was removed"))
        # A pause may end while the search goes on, behind the place that it has reached.
        while await purged(queue, None, self._broker.last_seq, queue.dmq_comment):
            pass

    async def _topic_emptied(self, topic: PhysicalTopic) -> None:
        error = InvalidDestination(topic.destination, "an administrator has destroyed it")
        gone: list[Deferred[None]] = []
        for subscription in [
            each for each in topic.subscriptions if each.pattern == topic.destination
        ]:
            subscription.dmq_comment = topic.dmq_comment
            ended: Deferred[None] = Deferred()
            gone.append(ended)
            if subscription.durable:
                fail_consumers(subscription, error)
                self._broker.end_durable(
                    subscription, topic.dmq_comment, partial(ended.callback, None)
                )
            else:
                self._broker.end_subscription(subscription, partial(ended.callback, None))
                fail_consumers(subscription, error)
        for subscription in topic.subscriptions:
            if subscription.dispatch.halted is not None and is_wild(subscription.pattern.name):
                gone_on: Deferred[None] = Deferred()
                gone.append(gone_on)
                subscription_end.resume_without(
                    subscription, topic, partial(gone_on.callback, None)
                )
        for each in gone:
            await each
        await self._emptied(topic, None, topic.dmq_comment)

    async def _emptied(
        self,
        physical: PhysicalQueue | PhysicalTopic,
        wanted: Callable[[Message], bool] | None,
        comment: str | None,
    ) -> int:
        """Give up the wanted messages that wait, as :func:`purged`.

        :returns: how many messages.
        """
        if isinstance(physical, PhysicalQueue):
            return await purged(physical, wanted, self._broker.last_seq, comment)

        def mine(message: Message) -> bool:
            return message.headers.destination == physical.destination and (
                wanted is None or wanted(message)
            )

        count, last = 0, self._broker.last_seq
        for subscription in list(physical.subscriptions):
            # One with wildcards has messages of other topics, too.
            count += await purged(
                subscription, mine if is_wild(subscription.pattern.name) else wanted, last, comment
            )
        return count

    def _find(self, type: str, name: str) -> PhysicalQueue | PhysicalTopic:
        kind = _kind(type)
        for temporary in (False, True):
            physical = self._broker.find(Destination(kind, name, temporary))
            if physical is not None:
                return physical
        address = self._broker.addresses.told(name) if kind is Kind.QUEUE else ""
        raise AdministrationRefused(f"there is no {type} '{name}'{address}")

    def _changeable(self, type: str, name: str) -> PhysicalQueue | PhysicalTopic:
        physical = self._find(type, name)
        if physical.destination.temporary:
            raise AdministrationRefused(
                f"{physical.destination} is temporary, and goes with the connection that made it"
            )
        if physical.removed:
            raise AdministrationRefused(f"{physical.destination} is being destroyed")
        return physical

    def destroyable(self, type: str, name: str) -> PhysicalQueue | PhysicalTopic:
        """Return the destination, if :meth:`destroy` would take it.

        :raises AdministrationRefused: it would not.
        """
        physical = self._changeable(type, name)
        destination = physical.destination
        if destination == DMQ:
            raise AdministrationRefused(
                "the dead message queue cannot be destroyed; 'purge dst' empties it"
            )
        if destination in self._broker.configured:
            setting = f"imq.destination.{destination.kind.name.lower()}.{name}"
            raise AdministrationRefused(
                f"{destination} is defined by settings and would come again: take {setting}.* out of them, and restart"
            )
        if views.in_doubt(physical):
            raise AdministrationRefused(
                f"{destination} has messages of prepared transactions; commit them or roll them back first"
            )
        return physical

    # --- durable subscriptions and connections

    @deferred
    async def destroy_durable(self, name: str, client_id: str) -> None:
        """Remove a durable subscription, and what it has yet to take.

        Its messages go to the dead message queue where its topic uses that. What a prepared branch
        has acknowledged of it is settled with that, whatever becomes of the branch.

        :returns: fails with UnknownSubscription, DurableInUse, StorageFailed.
        """
        subscription = self._broker.durables.get((client_id, name))
        if subscription is None:
            raise UnknownSubscription(client_id, name)
        if subscription.dispatch.consumers:
            raise DurableInUse(client_id, name)
        if subscription.dispatch.halted is not None:
            raise subscription.dispatch.halted
        ended: Deferred[None] = Deferred()
        self._broker.end_durable(
            subscription,
            "an administrator destroyed the durable subscription",
            lambda: ended.callback(None),
        )
        await ended
        await when_durable(self._broker.commits, removals=True)
        self._broker.log.info(
            "durable subscription '{name}' of client-id '{client_id}' is destroyed by an administrator",
            name=name,
            client_id=client_id,
        )

    def destroy_connection(self, number: int) -> None:
        """End a connection, with an error for its client.

        Its transactions roll back; what it has not settled goes back.

        :param number: its id.
        :raises AdministrationRefused: no connection has it.
        """
        connection = self._provider.numbered(number)
        if connection is None:
            raise AdministrationRefused(f"there is no connection {number}")
        with self._broker.turn:
            connection.fail(ConnectionEnded())
        self._broker.log.info(
            "connection {number} of user '{user}' is ended by an administrator",
            number=number,
            user=connection.user,
        )


def _check_readable(physical: PhysicalQueue | PhysicalTopic, more: str = "") -> None:
    """Check that all messages that wait can be read.

    :raises AdministrationRefused: one is damaged, so that it is not known what it is.
    """
    places: Sequence[Dispatched] = (
        [physical] if isinstance(physical, PhysicalQueue) else physical.subscriptions
    )
    stopped = next(
        (place.dispatch.halted for place in places if place.dispatch.halted is not None), None
    )
    if stopped is not None or physical.damaged:
        about = stopped.destination if stopped is not None else physical.destination
        raise AdministrationRefused(
            f"{physical.destination} has messages that cannot be looked at or moved, as {about} is stopped: a message of it in the store is "
            f"damaged{more}. Restore a backup, or give up the messages of {about}: destroy it without useDMQ"
        )


def _dmq_comment(physical: PhysicalQueue | PhysicalTopic, what: str) -> str:
    """Return the comment for its messages in the dead message queue.

    :raises AdministrationRefused: they would not be kept there.
    """
    destination = physical.destination
    if destination == DMQ or physical.properties.is_dmq:
        raise AdministrationRefused(
            f"what is {what} from {destination.name} has no other dead message queue to go to"
        )
    if not physical.properties.use_dmq:
        raise AdministrationRefused(
            f"{destination} has useDMQ=false, so none of its messages would be kept; 'update dst' with -o useDMQ=true first"
        )
    return f"an administrator {what} {destination}"


def _kind(type: str) -> Kind:
    kind = _KINDS.get(type)
    if kind is None:
        raise AdministrationRefused(
            f"'{type}' is no type of a destination; expected queue or topic"
        )
    return kind


def _checked(
    destination: Destination, given: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    try:
        return administered_properties.check(destination, given)
    except PropertyRefused as error:
        raise AdministrationRefused(str(error)) from None
