"""What one connection has subscribed to, as a resource of the service.

Owns how a consumer of the broker and the STOMP subscription before it become one row.

=============================================  =========================================================
``GET /v1/connection/subscriptions?id=NUMBER``  ``subscriptions``, the first 200, and ``count``, of all
=============================================  =========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.destinations.queue_pattern import Member, PatternConsumer
from gateway.broker.operator.views import held_since_ms
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.stomp.session.session import Session
from gateway.stomp.session.subscription import Subscription

#: Subscriptions of one connection that are told of.
MOST_SUBSCRIPTIONS: Final = 200


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription of a connection.

    :param id: the client's own; "" inside the process.
    :param destination: ``queue:NAME`` or ``topic:NAME``, which may be a pattern.
    :param name: the durable or shared subscription's; "" for none.
    :param ack: how it acknowledges: STOMP's word, inside the process that of its session.
    :param credit: messages that it would take now.
    :param unacknowledged: messages that it has, and has not settled.
    :param held_since_ms: since when at the latest, epoch milliseconds; 0 for none.
    :param oldest_ms: when the oldest of those was sent, epoch milliseconds; 0 for none.
    :param running: whether it has been started, and is not held back.
    """

    id: str
    destination: str
    name: str
    selector: str
    ack: str
    credit: int
    unacknowledged: int
    held_since_ms: int
    oldest_ms: int
    running: bool


class SubscriptionResources:
    """Subscriptions of connections as a resource.

    :param sessions: those of STOMP clients, by the ``id`` of the connection behind each.
    """

    def __init__(
        self, provider: EmbeddedProvider, sessions: Callable[[], Mapping[int, Session]]
    ) -> None:
        self._provider: Final = provider
        self._sessions: Final = sessions

    def __call__(self, routes: Routes) -> None:
        """Add it."""
        routes.add("GET", "/v1/connection/subscriptions", self._list)

    def _list(self, request: AdminRequest) -> dict[str, object]:
        number = request.number("id", 0, 1, 1 << 62)
        connection = self._provider.numbered(number)
        if connection is None:
            raise Refused(
                f"there is no connection {number}: it may have ended",
                "no_connection",
                HTTPStatus.NOT_FOUND,
            )
        session = self._sessions().get(id(connection))
        stomp = {} if session is None else session.subscriptions.by_number
        found = _subscriptions(connection, {id(each.consumer): each for each in stomp.values()})
        return {"subscriptions": found[:MOST_SUBSCRIPTIONS], "count": len(found)}


def _subscriptions(
    connection: EmbeddedConnection, stomp: Mapping[int, Subscription]
) -> list[SubscriptionView]:
    found: list[SubscriptionView] = []
    for session in connection.sessions:
        consumers = session.consumers
        for pattern in session.patterns:
            members = [
                each for each in consumers if isinstance(each, Member) and each.pattern is pattern
            ]
            found.append(_view(pattern, members, session.mode.value, stomp.get(id(pattern))))
        found += [
            _view(each, [each], session.mode.value, stomp.get(id(each)))
            for each in consumers
            if not each.of_pattern
        ]
    return found


def _view(
    consumer: EmbeddedConsumer | PatternConsumer,
    having: Sequence[EmbeddedConsumer],
    mode: str,
    subscription: Subscription | None,
) -> SubscriptionView:
    """Return a subscription. :param having: those that have its messages."""
    spec = consumer.spec
    oldest = [message.timestamp for each in having if (message := each.oldest) is not None]
    return SubscriptionView(
        id="" if subscription is None else subscription.id,
        destination=str(spec.destination),
        name=spec.durable_name or spec.shared_name or "",
        selector=spec.selector or "",
        ack=mode if subscription is None else subscription.ack.value,
        credit=consumer.credit,
        unacknowledged=sum([each.outstanding for each in having]),
        held_since_ms=held_since_ms(having),
        oldest_ms=min(oldest, default=0),
        running=consumer.running,
    )
