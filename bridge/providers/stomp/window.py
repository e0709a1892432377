"""How many messages the broker may send to a consumer.

That is what its subscriptions may have together.

Owns when there is one more subscription. The consumer says what credit there is and what is
unsettled.

STOMP cannot raise the prefetch of a subscription. So a consumer of a queue has one subscription for
the credit it began with, and another for each time that it wants more at once; together they are as
much as it may have. All are of one connection, which keeps their messages in order.

Where messages of two subscriptions may overtake each other, the first is so large that there is
hardly ever a second. Elsewhere the broker sends no more than credit asks for, and leaves the rest
to other consumers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from bridge.providers.asked import Asked, Operation
from bridge.providers.credit import MeanSize
from bridge.providers.stomp.state import ConnectionState
from bridge.providers.stomp.subscriptions import Delivery, Line, Receiver, WireSubscription
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import ConsumerSpec, Mode

#: Messages that the broker may send ahead of credit to a consumer that should not have a second
#: subscription.
_AHEAD: Final = 1000
#: From this many messages on, subscriptions grow by a quarter of them at least, to keep them few.
_MANY: Final = 64
#: A prefetch that is as good as none.
_UNBOUNDED: Final = 32_766


class Window:
    """The subscriptions of one consumer."""

    def __init__(
        self,
        receiver: Receiver,
        spec: ConsumerSpec,
        session: Line,
        connection: ConnectionState,
    ) -> None:
        self._receiver = receiver
        self._spec = spec
        self._session = session
        self._connection = connection
        self._subscriptions: list[WireSubscription] = []
        self._opened = False
        # A second subscription costs the order after a loss of the connection, so the first
        # estimate is a generous one.
        self._sizes = MeanSize()
        queue, named = spec.destination.kind is Kind.QUEUE, spec.queue
        is_stream = named is not None and named.is_stream
        #: Each subscription gets other messages, and so do those of other consumers.
        self._divides = (
            (queue or (named is not None and named.name != ""))
            and not spec.exclusive
            and not is_stream
        )
        if not queue or is_stream:
            # What is sent before the subscription exists would be missed.
            self._grow(1 if self._divides else connection.options.topic_prefetch)
        elif spec.exclusive:
            # The first that asks has the queue, and a second subscription would have nothing.
            self._grow(_UNBOUNDED)

    def count(self, octets: int) -> None:
        """A message with a body of this many bytes was delivered."""
        self._sizes.count(octets)

    def fit(self, unsettled: int, credit: int, octets: int | None) -> None:
        """Have the broker send as much as is wanted.

        :param unsettled: deliveries whose outcome the broker does not know.
        :param credit: messages that may be delivered besides.
        :param octets: bytes of them; None where bytes do not count.
        """
        if self._spec.browse:
            if not self._opened:
                self._grow(_UNBOUNDED)
        elif self._divides:
            have = sum([each.prefetch for each in self._subscriptions])
            more = unsettled + self._sizes.allowed(credit, octets) - have
            if more > 0:
                keeps_order = (
                    self._connection.dialect.ordered_subscriptions
                    and self._session.mode is not Mode.TRANSACTED
                )
                least = (have // 4 if have >= _MANY else 0) if keeps_order else _AHEAD
                self._grow(max(more, least))

    def _grow(self, prefetch: int) -> None:
        connection, spec = self._connection, self._spec
        self._opened = True
        subscription = WireSubscription(
            self._receiver,
            spec,
            self._session,
            connection.subscriptions,
            connection.new_id(),
            prefetch,
        )
        self._subscriptions.append(subscription)
        asked = Asked(
            Operation.SUBSCRIBE,
            connection.username,
            spec.destination,
            spec.selector,
            connection.client_id,
            spec.durable_name,
        )
        subscription.subscribe(asked, self._session.wire_transaction(), self._subscribed)

    def _subscribed(self, error: MessagingError | None) -> None:
        if error is not None and not self._connection.ending:
            self._receiver.fail(error)

    def narrow(self, kept: Collection[WireSubscription]) -> None:
        """Accept no more, but keep what arrived for these if possible."""
        if not self._connection.dialect.gives_back:
            for subscription in self._subscriptions:
                subscription.park()
            return
        # UNSUBSCRIBE would give back everything that a subscription was sent, so only those end
        # that have nothing outstanding.
        for subscription in [each for each in self._subscriptions if each not in kept]:
            self._subscriptions.remove(subscription)
            subscription.release([])

    def release(self, held: Collection[Delivery]) -> None:
        """Accept no more, and give these back."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.release([each for each in held if each.subscription is subscription])

    def drop(self) -> None:
        """Forget all subscriptions: the connection has ended."""
        self._subscriptions.clear()
