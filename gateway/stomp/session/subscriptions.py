"""SUBSCRIBE and UNSUBSCRIBE: a connection's subscriptions.

Open MQ's Table 12-11.

Owns which there are and what all of them do together: stop while the client does not read, be told
when it did, pause for the operator.

After UNSUBSCRIBE the deliveries that the client has not settled stay its own for a short while, so
that an ACK which follows still counts; then they go back to the destination, as JMS has it. They go
back at once where the client subscribes to that destination again, and those of transacted
subscriptions always do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twisted.python.failure import Failure

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError
from gateway.messaging.errors import ClientIdRequired, DurableInUse, MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, ConsumerSpec, Mode
from gateway.messaging.transformer import TransformFailed
from gateway.stomp import client_headers
from gateway.stomp.counters import Counters
from gateway.stomp.destinations import Source, split_composite, split_exclusive
from gateway.stomp.message_encoder import MessageEncoder, UnsendableBody
from gateway.stomp.output import Output
from gateway.stomp.queue_arguments import Share, declaration_of, share_of, shared_name
from gateway.stomp.refusals import CommandRefused, Refusal
from gateway.stomp.send_plan import Resolve
from gateway.stomp.session.outstanding import DeliveryOrder
from gateway.stomp.session.peer import Peer
from gateway.stomp.session.receipts import Fail, Receipts, Ticket, forget
from gateway.stomp.session.subscription import Ack, Hold, Subscription
from gateway.stomp.session.transactions import Transaction, Transactions
from gateway.stomp.session.wanted import ack_of, selector_of, source_of, windows_of
from gateway.stomp.settings import SessionOptions
from gateway.stomp.wire import Head, Version

_MODES: Final = {Ack.AUTO: Mode.CLIENT, Ack.CLIENT: Mode.CLIENT, Ack.INDIVIDUAL: Mode.INDIVIDUAL}


def _kept_as(spec: ConsumerSpec) -> str | None:
    queue = spec.queue
    return spec.durable_name if queue is None or not queue.removable else queue.name


class Subscriptions:
    """The subscriptions of one connection; none before :meth:`connected`.

    :param transform: what becomes of a message before it is sent, None for nothing.
    :param refuse: answers with an ERROR in the place of a RECEIPT, and says whether the connection
        goes on.
    :param now_ms: the time, by the clock of timers.
    """

    def __init__(
        self,
        peer: Peer,
        output: Output,
        receipts: Receipts,
        options: SessionOptions,
        transform: Callable[[Message], Message] | None,
        fail: Fail,
        refuse: Callable[[BaseException, str | None, Ticket], bool],
        now_ms: Callable[[], int],
        counters: Counters,
    ) -> None:
        self._peer: Final = peer
        self._output: Final = output
        self._receipts: Final = receipts
        self._options: Final = options
        self._profile: Final = options.profile
        self._transform: Final = transform
        self._fail: Fail = fail
        self._refuse: Callable[[BaseException, str | None, Ticket], bool] = refuse
        self._now_ms: Final = now_ms
        self._counters: Final = counters
        self._connection: Connection
        self._encoder: MessageEncoder
        self._client_id: str | None
        self._resolve: Resolve
        self._connected_as = ""
        self._own: Mapping[Destination, str]
        self._last = 0
        self._order = DeliveryOrder() if options.profile.acknowledges_across else None
        self._transactions: Transactions | None = None
        self._by_id: dict[str, Subscription] = {}
        #: The others of a SUBSCRIBE to several destinations, under the id of all.
        self._beside: dict[str, list[Subscription]] = {}
        #: Also those that are over and still have unsettled deliveries.
        self.by_number: dict[int, Subscription] = {}
        #: Those that are over, and when what they hold goes back.
        self._over: dict[Subscription, int] = {}
        self._fresh: Final[list[Subscription]] = []
        self._unread: list[Subscription] = []
        #: Messages that were written, and are not counted for the user.
        self._written = 0
        #: Messages of one subscription at a time; 0 for any number.
        self._most = 0
        #: Why none of them delivers.
        self._holds = Hold(0)

    def connected(
        self,
        connection: Connection,
        encoder: MessageEncoder,
        client_id: str | None,
        resolve: Resolve,
        session: str,
        own: Mapping[Destination, str],
    ) -> None:
        """The client is CONNECTED, and may subscribe.

        :param client_id: the connection's, which durable subscriptions need.
        :param session: what CONNECTED says of it.
        :param own: what the client calls temporary destinations of its own.
        """
        self._own = own
        self._connected_as = session
        self._connection = connection
        self._encoder = encoder
        self._client_id = client_id
        self._resolve = resolve

    def unacknowledged(self) -> int:
        """Bytes of messages that were delivered and are not acknowledged."""
        return sum(
            each.outstanding.octets()
            for each in self.by_number.values()
            if each.outstanding is not None
        )

    def transacted(self) -> list[Subscription]:
        """The transacted ones."""
        return [each for each in self._by_id.values() if each.transacted]

    def for_message_id(self, id: str | None, transaction: bool) -> list[Subscription]:
        """Where to look for a delivery that is named by its message, best first.

        :param id: the ``subscription`` header, None where it is missing: then subscriptions with a
            default id come first (Open MQ's Table 12-11).
        :param transaction: the transacted ones come before the others.
        """
        named = [each for each in self.by_number.values() if id is None or each.id == id]
        return sorted(
            named,
            key=lambda each: (
                each.closed,
                transaction and not each.transacted,
                not each.id.startswith(self._profile.default_id),
                each.number,
            ),
        )

    def subscribe(self, head: Head, transactions: Transactions) -> None:
        """Carry SUBSCRIBE out; its RECEIPT precedes the first MESSAGE.

        :raises CommandRefused: the frame cannot be understood.
        :raises MessagingError: the provider refuses.
        """
        given = head.headers
        text = given.get("destination")
        if text is None:
            raise CommandRefused(
                "SUBSCRIBE without destination",
                refusal=Refusal.NO_DESTINATION,
                subject="SUBSCRIBE",
            )
        id = self._id_of(given.get("id"), text)
        if len(self._by_id) >= self._options.max_subscriptions:
            raise CommandRefused(
                f"one subscription too many: {self._options.max_subscriptions} is the limit of a connection"
            )
        ack = ack_of(given, self._profile)
        self._transactions = transactions
        identifier = None if transactions.several else given.get("transaction")
        transaction = None if identifier is None else transactions.named(identifier, "SUBSCRIBE")
        texts = [text]
        if self._profile.composites:
            texts = split_composite(text) or texts
        specs = {
            each: self._spec(
                given,
                source_of(each, given, self._profile, self._resolve, self._connection.exists),
                id,
                exclusive,
            )
            for each, exclusive in map(split_exclusive, texts)
        }
        if len(specs) > 1 and (durable := next(iter(specs.values())).durable_name) is not None:
            raise CommandRefused(
                f"the durable subscription '{durable[:100]}' to several destinations: expected one"
            )
        named = "id" in given or self._profile.tells_default_id
        made: list[Subscription] = []
        try:
            for each, spec in specs.items():
                made.append(self._make(given, spec, id, each, named, ack, transaction))
        except MessagingError:
            for subscription in made:
                self._retire(subscription)
            raise
        self._begin(made[0], given.get("receipt"))
        if len(made) > 1:
            self._beside[id] = made[1:]
            for subscription in made[1:]:
                self._begin(subscription, None)

    def _make(
        self,
        given: dict[str, str],
        spec: ConsumerSpec,
        id: str,
        text: str,
        named: bool,
        ack: Ack,
        transaction: Transaction | None = None,
    ) -> Subscription:
        """Make a subscription that delivers nothing yet.

        :raises MessagingError: the provider refuses.
        """
        enveloped = client_headers.enveloped(given)
        transacted = transaction is not None and not spec.browse
        if spec.browse:
            ack = Ack.AUTO
        window, frames = windows_of(
            given, ack, transacted, enveloped, self._profile, self._options.consumer_flow_limit
        )
        self._give_back_of(spec.destination)
        self._last += 1
        if transaction is not None and transacted:
            session = transaction.session
        else:
            session = self._connection.session(Mode.AUTO if spec.browse else _MODES[ack])
        subscription = Subscription(
            self._last,
            id,
            named,
            spec,
            ack,
            transacted,
            session,
            self._encoder,
            self._output,
            self._counters,
            self._fresh,
            self._fail,
            self._unsendable,
            window,
            self._options.output_window,
            # An administrator's is what the broker has, as an envelope that one sends is what it
            # gets.
            None if enveloped and self._connection.administers else self._transform,
            enveloped,
            None if self._profile.layout is None else self._profile.layout.asked(given),
            text,
            self._connected_as,
            self._own,
            self._order,
            self._most,
            frames,
        )
        try:
            subscription.attach()
        except MessagingError:
            if not transacted:
                session.close()
            raise
        subscription.unused = client_headers.unused(given)
        return subscription

    def await_reply(self, id: str, destination: Destination) -> None:
        """Subscribe to a temporary queue that a SEND has named in ``reply-to``.

        RabbitMQ's clients do not SUBSCRIBE to it.

        :param id: what MESSAGE calls the subscription.
        """
        if self._profile.replies_come_unasked and id not in self._by_id:
            spec = ConsumerSpec(destination, name=id)
            self._begin(self._make({}, spec, id, id, True, Ack.AUTO), None)

    def _begin(self, subscription: Subscription, receipt: str | None) -> None:
        """Deliver to a new subscription, once its RECEIPT is on its way."""
        self._by_id.setdefault(subscription.id, subscription)
        self.by_number[subscription.number] = subscription
        if self._holds:
            subscription.hold(self._holds)
        ticket = self._receipts.open(receipt, subscription.begin)
        if receipt is None or (subscription.transacted and subscription.spec.durable_name is None):
            # Nothing of it is kept, and what the transaction holds is not this frame's.
            self._receipts.release(ticket)
        else:
            # A provider may refuse the subscription before it answers that.
            subscription.receipt = receipt
            subscription.session.completion(self._receipts.completing(ticket, receipt))

    def _id_of(self, id: str | None, destination: str) -> str:
        tag = f"T_{id}"
        if id is None:
            if self._needs_id:
                raise CommandRefused("SUBSCRIBE without id, which STOMP 1.1 and 1.2 require")
            id, tag = self._profile.default_id + destination, f"Q_{destination}"
            if self._profile.repeats_default_ids:
                id = self._last_of(id, more=True)
        if id in self._by_id:
            raise CommandRefused(
                f"SUBSCRIBE with id '{id[:100]}', which another subscription of this connection has",
                refusal=Refusal.DUPLICATE_SUBSCRIPTION,
                subject=tag,
            )
        return id

    def _last_of(self, id: str, *, more: bool) -> str:
        """Return a default id with a number, as several subscriptions may have it.

        :param more: the one behind that of the last of them.
        """
        last, behind, number = id, id, 1
        while behind in self._by_id:
            number += 1
            last, behind = behind, f"{id}\0{number}"
        return behind if more else last

    @property
    def _needs_id(self) -> bool:
        return self._encoder.version is not Version.V1_0 and not self._profile.default_ids

    def _spec(
        self, given: dict[str, str], source: Source, id: str, exclusive: bool | None
    ) -> ConsumerSpec:
        destination = source.destination
        queue = destination.kind is Kind.QUEUE
        share, declared = Share(), None
        if self._profile.queue_arguments and self._connection.has_exchanges(destination):
            declared = declaration_of(given, destination)
        elif self._profile.queue_arguments:
            share = share_of(given, destination)
        if source.queue:
            share = Share(source.queue, kept=True, named=True)
        durable = share.name if share.kept else None
        shared = share.kept
        if not share.name and declared is None and not (queue and self._profile.durable_queues):
            client_headers.check_durable(given, queue)
            durable = self._durable_name(given)
            shared = self._profile.shares_client_ids and durable is not None
        browse = client_headers.boolean(given.get("browser"))
        if browse and not queue:
            raise CommandRefused("browser:true on a topic: only queues can be browsed")
        if durable is not None and self._client_id is None and not share.kept:
            raise ClientIdRequired(durable)
        return ConsumerSpec(
            destination,
            selector=selector_of(given, source),
            no_local=client_headers.no_local(given) and not queue,
            durable_name=durable,
            browse=browse,
            redelivery=client_headers.redelivery(given, self._profile.keeps_unstored),
            name=id.partition("\0")[0],
            shared=shared,
            shared_name=share.name if share.name and not share.kept else None,
            redefines=not share.named,
            adds=share.named and not source.queue,
            # An envelope has the message as it was sent.
            tells_groups=queue and not browse and not client_headers.enveloped(given),
            exclusive=queue
            and not browse
            and (client_headers.exclusive(given) if exclusive is None else exclusive),
            priority=0 if browse else client_headers.consumer_priority(given),
            none_or_more=source.none_or_more,
            address=source.address,
            queue=declared,
        )

    def _durable_name(self, given: dict[str, str]) -> str | None:
        """Return the name of a durable subscription, None where none is named.

        One of a client identifier that connections share has it in its name.
        """
        name = client_headers.durable_name(given, self._profile.durable_names)
        if name is None or self._client_id is None or not self._profile.shares_client_ids:
            return name
        return f"{self._client_id}.{name}"

    def unsubscribe(self, head: Head, joined: Callable[[Subscription], bool]) -> None:
        """Carry UNSUBSCRIBE out.

        :param joined: whether the open transaction holds settlements of a subscription.
        :raises CommandRefused: there is no such subscription.
        :raises MessagingError: the provider refuses.
        """
        given = head.headers
        receipt = given.get("receipt")
        durable = self._durable_name(given)
        id = given.get("id")
        if durable is None and self._profile.queue_arguments and client_headers.flagged(given):
            durable = self._kept(given)
        if durable is not None:
            self._remove_durable(durable, receipt)
            return
        if id is None:
            text = given.get("destination")
            if self._needs_id:
                raise CommandRefused("UNSUBSCRIBE without id, which STOMP 1.1 and 1.2 require")
            if text is None:
                why = "UNSUBSCRIBE without id and without destination: one of them is required"
                raise CommandRefused(why)
            id = self._profile.default_id + text
            if self._profile.repeats_default_ids:
                id = self._last_of(id, more=False)
        subscription = self._by_id.get(id)
        if subscription is None:
            raise CommandRefused(
                f"UNSUBSCRIBE with id '{id[:100]}', which no subscription of this connection has",
                refusal=Refusal.NO_SUBSCRIPTION,
            )
        for each in (subscription, *self._beside.pop(id, ())):
            self._end(each, at_once=False, joined=joined(each))
        self._receipts.release(self._receipts.open(receipt))

    def _kept(self, given: dict[str, str]) -> str | None:
        """Return the durable subscription that a flag removes, None for none.

        One that has the name of a queue is removed where UNSUBSCRIBE has that, too.
        """
        known = self._by_id.get(given.get("id", ""))
        if known is None:
            return None
        named = shared_name(given, known.spec.destination)
        return named if named and named == _kept_as(known.spec) else None

    def _remove_durable(self, name: str, receipt: str | None) -> None:
        if self._client_id is None and not self._profile.queue_arguments:
            raise ClientIdRequired(name)
        for subscription in [*self.by_number.values()]:
            if _kept_as(subscription.spec) == name:
                if not self._profile.ends_durable_in_use and not subscription.closed:
                    raise DurableInUse(self._client_id or "", name)
                self._end(subscription, at_once=True, joined=False)
        ticket = self._receipts.open(receipt)

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            if not self._refuse(failure.value, receipt, ticket):
                self._receipts.drop(ticket)

        self._connection.unsubscribe(name).addCallbacks(
            lambda _: self._receipts.release(ticket), failed
        )

    def _end(self, subscription: Subscription, at_once: bool, joined: bool) -> None:
        if self._by_id.get(subscription.id) is subscription:
            del self._by_id[subscription.id]
        if subscription.transacted or at_once or not (subscription.outstanding_count or joined):
            self._retire(subscription)
            return
        subscription.close(requeue=False)
        due = self._now_ms() + self._options.unsubscribe_grace_ms
        self._over[subscription] = due
        self._peer.wake(due)

    def _retire(self, subscription: Subscription) -> None:
        """Have nothing more to do with it: what is unsettled goes back."""
        self.by_number.pop(subscription.number, None)
        self._over.pop(subscription, None)
        subscription.close(requeue=True)
        if subscription.outstanding is not None:
            subscription.outstanding.clear()
        if not subscription.transacted:
            subscription.session.close()

    def settled(self, subscription: Subscription) -> None:
        """A settlement was made.

        A subscription that is over and holds nothing more is forgotten.
        """
        if (
            subscription.closed
            and subscription in self._over
            and not subscription.outstanding_count
        ):
            self._retire(subscription)

    def _give_back_of(self, destination: Destination) -> None:
        for subscription in [each for each in self._over if each.spec.destination == destination]:
            self._retire(subscription)

    def tick(self, now_ms: int) -> None:
        """Give back what ended subscriptions have held for too long."""
        for subscription, due in [*self._over.items()]:
            if due <= now_ms:
                self._retire(subscription)

    # What subscriptions tell.

    def _unsendable(self, subscription: Subscription, number: int, error: Exception) -> None:
        """Reject what cannot be sent, and end the connection.

        The rejection counts against the redelivery policy.
        """
        if isinstance(error, (UnsendableBody, TransformFailed, EnvelopeError)):
            if not subscription.transacted:
                subscription.consumer.reject([number])
            elif self._transactions is not None:
                self._transactions.reject_alone(subscription, number)
            self._fail(
                error if isinstance(error, TransformFailed) else CommandRefused(str(error)), None
            )
        else:
            self._fail(error, None)

    # What the connection tells.

    def flushed(self) -> None:
        """Everything in the output is being written."""
        for subscription in self._fresh:
            self._written += subscription.flushed()
            if not subscription.is_unread:
                subscription.is_unread = True
                self._unread.append(subscription)
        self._fresh.clear()

    def drained(self) -> None:
        """Everything written is in the kernel."""
        unread, self._unread = self._unread, []
        for subscription in unread:
            subscription.is_unread = False
            if subscription.number in self.by_number:
                subscription.drained()
                self.settled(subscription)
        if self._holds:
            self.free(Hold.CHOKED)

    def choke(self) -> None:
        """The client is far behind: deliver nothing until it has read."""
        self.hold(Hold.CHOKED)

    def end(self) -> None:
        """The connection is ending: deliver nothing more."""
        self.hold(Hold.ENDING)

    def hold(self, reason: Hold) -> None:
        """Deliver nothing while this reason stands."""
        if not self._holds & reason:
            self._holds |= reason
            for subscription in self.by_number.values():
                subscription.hold(reason)

    def free(self, reason: Hold) -> None:
        """This reason stands no longer."""
        if self._holds & reason:
            self._holds &= ~reason
            for subscription in self.by_number.values():
                subscription.free(reason)

    def take_written(self) -> int:
        """Return how many messages were written since this was asked last."""
        written, self._written = self._written, 0
        return written

    def bound(self, most: int) -> None:
        """Bound the messages that each delivers at a time.

        :param most: by the rate of the user; 0 for any number.
        """
        self._most = most
        for subscription in self.by_number.values():
            subscription.bound(most)

    def clear(self) -> None:
        """Forget all: the client is gone; unsettled deliveries have gone back."""
        for subscription in self.by_number.values():
            if subscription.outstanding is not None:
                subscription.outstanding.clear()
        self._by_id, self._beside, self.by_number, self._over = {}, {}, {}, {}
        self._fresh.clear()
        self._unread = []
        self._transactions, self._fail, self._resolve = None, forget, _resolves_nothing
        self._refuse = _refuses


def _refuses(error: BaseException, receipt: str | None, ticket: Ticket) -> bool:
    """Stand for a client that is gone."""
    forget(error, receipt)
    return False


def _resolves_nothing(text: str, header: str) -> Destination:
    """Stand for a connection that is gone, which this would keep in memory."""
    raise CommandRefused(f"{header} '{text[:200]}' of a client that is gone")
