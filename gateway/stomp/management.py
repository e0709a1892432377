"""Requests to manage the broker that come as messages, as in Artemis.

A client sends to ``activemq.management``. Headers say what is asked: ``_AMQ_ResourceName``, and
``_AMQ_Attribute`` or ``_AMQ_OperationName``, whose parameters are the body, a JSON array. The reply
comes to ``reply-to`` with the ``correlation-id`` of the request, and ``_AMQ_OperationSucceeded`` says
whether its body is a result or the reason of a failure.

Owns the form of requests and replies. Who may ask, and what there is to ask, is the answerer's to
say. Facts of Artemis are from its documentation, "Management", and from its ``ManagementHelper`` and
``ManagementServiceImpl``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.messaging.destination import Destination
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection
from gateway.stomp.destinations import MANAGEMENT
from gateway.stomp.refusals import CommandRefused

RESOURCE: Final = "_AMQ_ResourceName"
ATTRIBUTE: Final = "_AMQ_Attribute"
OPERATION: Final = "_AMQ_OperationName"
SUCCEEDED: Final = "_AMQ_OperationSucceeded"

#: Characters of a name that is asked for; no resource's is longer.
_LONGEST: Final = 1000


class Asked(NamedTuple):
    """What a client asks.

    :param resource: such as ``queue.orders``; "" for none.
    :param attribute: of the resource; "" for none.
    :param operation: of the resource, which goes before an attribute; "" for none.
    :param parameters: of the operation, as they came.
    :param address: the client's.
    :param reply_to: where the reply is to go; None for nowhere.
    :param elsewhere: that is at another broker.
    """

    resource: str
    attribute: str
    operation: str
    parameters: bytes
    address: str
    reply_to: Destination | None
    elsewhere: bool = False


class Reply(NamedTuple):
    """What came of it.

    :param succeeded: whether the body has the result; else it says why.
    :param body: JSON; "" for no result.
    """

    succeeded: bool
    body: str


#: Carries out what the client of a connection asks. Raises MessagingError where it may not ask at
#: all, and nothing is done then; else its Deferred gives a reply, unless the connection has ended.
Answer = Callable[[Connection, Asked], Deferred[Reply]]


def asked_of(
    headers: Mapping[str, str], body: bytes, address: str, reply_to: Destination | None
) -> Asked:
    """Return what a SEND to the address asks.

    :param address: the client's.
    :raises CommandRefused: it asks nothing, or for a value and has no reply-to.
    """
    resource, attribute, operation = (
        headers.get(name, "").strip() for name in (RESOURCE, ATTRIBUTE, OPERATION)
    )
    for name, value in ((RESOURCE, resource), (ATTRIBUTE, attribute), (OPERATION, operation)):
        if len(value) > _LONGEST:
            raise CommandRefused(f"{name} has {len(value)} characters: {_LONGEST} is the limit")
    if not resource or not (attribute or operation):
        missing = RESOURCE if not resource else f"{ATTRIBUTE} or {OPERATION}"
        raise CommandRefused(
            f"SEND to {MANAGEMENT.name} without {missing}: expected such as {RESOURCE}:queue.orders and {ATTRIBUTE}:MessageCount"
        )
    if not operation and reply_to is None:
        raise CommandRefused(
            f"SEND to {MANAGEMENT.name} with {ATTRIBUTE} and without reply-to: the value has nowhere to go"
        )
    return Asked(resource, attribute, operation, body, address, reply_to)


class Requests:
    """The requests of one client.

    :param answer: carries them out.
    :param connection: the provider's, behind the client's.
    :param address: the client's.
    :param is_open: whether the client is still connected.
    """

    def __init__(
        self, answer: Answer, connection: Connection, address: str, is_open: Callable[[], bool]
    ) -> None:
        self._answer: Final = answer
        self._connection: Final = connection
        self._address: Final = address
        self._is_open: Final = is_open

    def ask(
        self, headers: Mapping[str, str], body: bytes, reply_to: Destination | None
    ) -> Deferred[Reply]:
        """Have a SEND to the address carried out.

        :returns: never fires where the client is gone meanwhile; what was asked is done anyway.
        :raises CommandRefused: it asks nothing, or for a value and has no reply-to.
        :raises MessagingError: the client may not ask. Nothing is done then, either.
        """
        told: Deferred[Reply] = Deferred()

        def tell(result: Reply | Failure) -> None:
            if self._is_open():
                told.callback(result)

        asked = asked_of(headers, body, self._address, reply_to)
        if reply_to is not None and self._connection.exists(reply_to) is None:
            asked = asked._replace(elsewhere=True)
        self._answer(self._connection, asked).addBoth(tell)
        return told


#: Makes what takes the requests of a client, for the provider's connection behind it, and what says
#: whether the client is still connected.
Manage = Callable[[Connection, Callable[[], bool]], Requests]


def reply_message(reply: Reply, to: Destination, text: str, correlation_id: str | None) -> Message:
    """Return the reply as a message.

    As Artemis's it is not persistent.

    :param text: what the request calls its destination.
    :param correlation_id: of the request.
    """
    headers = Headers(
        to,
        persistent=False,
        correlation_id=correlation_id,
        properties={SUCCEEDED: reply.succeeded},
        extras=(("destination", text),),
    )
    return Message(headers, reply.body.encode("utf-8", "replace"))
