"""How many messages the broker may send to a consumer: the slices that it has together.

Owns when there is one slice more. What credit there is, and what is unsettled, the consumer says.

Where messages of two subscriptions may overtake each other, the first is made so large that there
is hardly ever a second; elsewhere the broker sends no more than credit asks for, and leaves the
rest to other consumers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.subscriptions import Delivery, Slice
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Mode

if TYPE_CHECKING:
    from bridge.providers.stomp.consumer import StompConsumer

#: Messages that the broker may send ahead of credit to a consumer that had better not have a second
#: subscription.
_AHEAD: Final = 1000
#: From so many messages on, slices grow by a quarter of them at least, so that there are not too
#: many.
_MANY: Final = 64
#: Octets of a body, as long as none was seen.
_ASSUMED_OCTETS: Final = 64 * 1024
#: A prefetch that is as good as none.
_UNBOUNDED: Final = 32_766


class Window:
    """The slices of one consumer."""

    def __init__(self, consumer: StompConsumer) -> None:
        self._consumer = consumer
        self._session = consumer.session
        self._connection = consumer.session.connection
        self._slices: list[Slice] = []
        self._opened = False
        #: Messages that were delivered, and their octets.
        self._seen = self._seen_octets = 0
        if consumer.spec.destination.kind is Kind.TOPIC:
            # What is sent before the subscription is there would be missed.
            self._grow(self._connection.options.topic_prefetch)

    def count(self, octets: int) -> None:
        """A message with a body of so many octets was delivered."""
        self._seen += 1
        self._seen_octets += octets

    def fit(self, unsettled: int, credit: int, octets: int | None) -> None:
        """Have the broker send as much as is wanted.

        :param unsettled: deliveries that the broker does not know the outcome of.
        :param credit: messages that may be delivered besides, and :param octets: octets, None where
            nobody counts them.
        """
        spec = self._consumer.spec
        if spec.browse:
            if not self._opened:
                self._grow(_UNBOUNDED)
        elif spec.destination.kind is Kind.QUEUE:
            have = sum([slice.prefetch for slice in self._slices])
            more = unsettled + self._wanted(credit, octets) - have
            if more > 0:
                keeps_order = (
                    self._connection.dialect.ordered_slices
                    and self._session.mode is not Mode.TRANSACTED
                )
                least = (have // 4 if have >= _MANY else 0) if keeps_order else _AHEAD
                self._grow(max(more, least))

    def _wanted(self, credit: int, octets: int | None) -> int:
        """How many messages credit lets come; where it is in octets, by the mean of what came."""
        if octets is None:
            return credit
        if not self._seen:
            # Too many cost no memory, as the socket is not read then; a second subscription costs
            # the order after a loss of the connection.
            return min(credit, max(1, octets // _ASSUMED_OCTETS))
        return max(0, min(credit, -(-octets * self._seen // max(self._seen_octets, 1))))

    def _grow(self, prefetch: int) -> None:
        connection, spec = self._connection, self._consumer.spec
        self._opened = True
        slice = Slice(self._consumer, self._session, connection.new_id(), prefetch)
        self._slices.append(slice)
        connection.add_slice(slice)
        asked = Asked(
            Operation.SUBSCRIBE,
            connection.username,
            spec.destination,
            spec.selector,
            connection.client_id,
            spec.durable_name,
        )
        slice.subscribe(asked, spec, self._session.wire_transaction(), self._subscribed)

    def _subscribed(self, error: MessagingError | None) -> None:
        if error is not None and not self._connection.ending:
            self._consumer.fail(error)

    def narrow(self, kept: Collection[Slice]) -> None:
        """Take no more, and keep what came of these slices as well as the broker lets that be."""
        if not self._connection.dialect.gives_back:
            for slice in self._slices:
                slice.park()
            return
        # UNSUBSCRIBE would give back all that a slice was sent, so only those go of which nothing
        # is outstanding.
        for slice in [each for each in self._slices if each not in kept]:
            self._slices.remove(slice)
            slice.release([])

    def release(self, held: Collection[Delivery]) -> None:
        """Take no more, and give these back."""
        slices, self._slices = self._slices, []
        for slice in slices:
            slice.release([delivery for delivery in held if delivery.slice is slice])

    def forget(self) -> None:
        """The connection is over."""
        self._slices.clear()
