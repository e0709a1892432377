"""Removing a durable subscription of RabbitMQ, which has none: there it is a queue that is bound to
the topic.

Owns what that takes over STOMP. RabbitMQ removes the queue of a subscription that a connection has,
when UNSUBSCRIBE names it, and answers a subscription to a queue that is not there with an ERROR
that ends the connection. So it is done on a connection for the purpose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.providers.stomp.dialect import RABBITMQ
from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.slices import durable_headers, parking
from bridge.providers.stomp.wire import Pairs, Wire


async def remove_durable(
    open: Callable[[], Awaitable[Wire]], username: str, client_id: str, name: str
) -> None:
    """Remove it; durable when this returns.

    :param open: opens a connection to the broker, of the same user.
    :raises UnknownSubscription: there is none. :raises MessagingError: the broker cannot be
        reached, or refuses.
    """
    asked = Asked(Operation.UNSUBSCRIBE, username, None, None, client_id, name)
    durable = durable_headers(RABBITMQ, client_id, name)
    queue = dict(durable)[RABBITMQ.durable]
    wire = await open()
    try:
        one = ("prefetch-count", "1")
        looking: Pairs = [
            ("id", "look"),
            ("destination", f"/amq/queue/{queue}"),
            ("ack", "client-individual"),
            one,
        ]
        await wire.request("SUBSCRIBE", looking, asked)
        # Which topic the queue is bound to is all one to the removal, and the binding goes with the
        # queue.
        wire.write("SUBSCRIBE", [*parking("remove"), one, *durable])
        removed = wire.request("UNSUBSCRIBE", [("id", "remove"), *durable], asked)
        wire.write("SUBSCRIBE", parking("remove"))
        await removed
    finally:
        await wire.close()
