"""What a provider asks of a broker, for the error if it is refused."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gateway.messaging.destination import Destination


class Operation(Enum):
    """What was asked; the values are parts of error messages."""

    CONNECT = "connect"
    SEND = "send"
    SUBSCRIBE = "consume"
    UNSUBSCRIBE = "unsubscribe"
    SETTLE = "acknowledge"
    TRANSACT = "carry out a part of a transaction"
    COMMIT = "commit"


class Asked(NamedTuple):
    """A request that may be refused.

    :param username: of the connection.
    :param destination: of the request.
    :param selector: of a consumer.
    :param client_id: the connection's.
    :param durable_name: of a durable subscription.
    """

    operation: Operation
    username: str = ""
    destination: Destination | None = None
    selector: str | None = None
    client_id: str | None = None
    durable_name: str | None = None
