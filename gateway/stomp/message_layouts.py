"""MESSAGE frames in the layouts of other servers.

Owns which headers they have and in which order, for clients that compare whole frames or depend on
what is missing. This gateway's own layout, which is faster, is that of
:mod:`gateway.stomp.message_encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from gateway.messaging.dead import (
    DMQ,
    ORIGINAL_ADDRESS,
    ORIGINAL_DESTINATION,
    ORIGINAL_EXPIRATION,
    UNDELIVERED_COMMENT,
    UNDELIVERED_REASON,
    DeadReason,
)
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import DEFAULT_PRIORITY, BodyType, Message
from gateway.messaging.values import Value, decode_map, text_of
from gateway.stomp import destinations
from gateway.stomp.header_roles import ARTEMIS_GROUP, TRANSFORMATION_ERROR, shown_as
from gateway.stomp.map_texts import WANTED_FORMS, write_map
from gateway.stomp.message_encoder import UnsendableBody
from gateway.stomp.object_texts import TOLD_OBJECT_FORMS, WANTED_OBJECT_FORMS, convert_object
from gateway.stomp.rabbitmq_names import RabbitMQNames
from gateway.stomp.wire import Version, serialize

#: Artemis: whether a message is a queue's (ANYCAST) or a topic's (MULTICAST).
_ROUTING: Final = "destination-type"
#: ActiveMQ: what is to be made of a body.
_TRANSFORMATION: Final = "transformation"
#: What STOMP carries as it is.
_CARRIED: Final = frozenset((BodyType.TEXT, BodyType.BYTES))


class Delivered(NamedTuple):
    """One delivery to one subscription.

    :param subscription: the ``id`` that the client gave; None where it gave none.
    :param subscribed: the text of the destination that it subscribed to.
    :param session: of the connection, as CONNECTED has it.
    :param token: what ``ack`` says; "" where nothing is to be acknowledged.
    :param number: tells deliveries of the connection apart.
    :param attempt: the delivery attempt, counted from 1.
    :param own: what the connection calls temporary destinations of its own.
    :param user: who sent it, "" where that is not told.
    """

    version: Version
    subscription: str | None
    subscribed: str
    session: str
    token: str
    number: str
    attempt: int
    message: Message
    own: Mapping[Destination, str]
    user: str = ""


class Layout(Protocol):
    """Makes MESSAGE frames."""

    def asked(self, given: Mapping[str, str]) -> Layout:
        """Return the layout for a SUBSCRIBE with these headers."""

    def frame(self, delivered: Delivered) -> bytes:
        """Return the frame, with a line end behind it.

        :raises UnsendableBody: the message is neither text nor bytes.
        """


@dataclass(frozen=True, slots=True)
class ClassicLayout:
    """That of ActiveMQ Classic: a text has no ``content-length``.

    A map comes as a text where SUBSCRIBE or its SEND ask for one, an object in the form that
    SUBSCRIBE asks for, and what STOMP cannot carry comes without a body.

    :param dead: what the dead message queue is called.
    :param transformation: what SUBSCRIBE asks for, before what the SEND did; "" for nothing.
    """

    dead: str
    transformation: str = ""

    def asked(self, given: Mapping[str, str]) -> Layout:
        """See :meth:`Layout.asked`."""
        wanted = given.get("transformation", "").strip().lower()
        return replace(self, transformation=wanted) if wanted else self

    def frame(self, delivered: Delivered) -> bytes:
        """See :meth:`Layout.frame`."""
        message = delivered.message
        headers = message.headers
        pairs: list[tuple[str, str]] = []
        if delivered.subscription is not None:
            pairs.append(("subscription", delivered.subscription))
        if delivered.attempt > 1:
            pairs.append(("redelivered", "true"))
        if delivered.token:
            pairs.append(("ack", delivered.token))
        pairs += [
            ("message-id", message.message_id),
            ("destination", self._named(headers.destination, delivered.own)),
            ("timestamp", str(message.timestamp)),
            ("expires", str(message.expires)),
            ("priority", str(headers.priority)),
        ]
        pairs += _user(delivered)
        # Before what its producer has given, as the first of repeated headers counts.
        origin = headers.properties.get(ORIGINAL_DESTINATION)
        if isinstance(origin, str):
            kind, _, name = origin.partition(":")
            pairs.append(("original-destination", f"/{kind}/{name}"))
            pairs += _told_of_death(headers.properties)
        given = _given(message, partial(_spelt, own=delivered.own))
        body = None
        if headers.body_type is BodyType.MAP:
            form, body = self._map(message)
            if form:
                pairs.append((_TRANSFORMATION, f"jms-map-{form}"))
                given = [pair for pair in given if pair[0] != _TRANSFORMATION]
        elif headers.body_type not in _CARRIED:
            body = b""
        failed = dict(headers.extras).get(TRANSFORMATION_ERROR) if headers.extras else None
        if self.transformation and headers.body_type is BodyType.TEXT and failed is None:
            try:
                form, body = self._object(message)
            except ValueError as error:
                failed = str(error)
            else:
                if form:
                    pairs.append((_TRANSFORMATION, form))
                    given = [pair for pair in given if pair[0] != _TRANSFORMATION]
        if failed is not None:
            pairs.append((TRANSFORMATION_ERROR, failed))
        pairs += given
        if headers.persistent:
            pairs.append(("persistent", "true"))
        return _frame(pairs, delivered, counted=False, body=body)

    def _map(self, message: Message) -> tuple[str, bytes]:
        """Return the form in which a map goes out, and its text.

        Both are empty where it goes out in none.
        """
        asked = self.transformation or message.headers.properties.get(_TRANSFORMATION)
        form = WANTED_FORMS.get(asked, "") if isinstance(asked, str) else ""
        if not form:
            return "", b""
        return form, write_map(decode_map(message.body), form).encode("utf-8", "replace")

    def _object(self, message: Message) -> tuple[str, bytes | None]:
        """Return the transformation by which an object goes out, and its text.

        :returns: "" and None for what is no object, or is not asked for in a form.
        :raises ValueError: it does not have the form that its SEND has told.
        """
        told = message.headers.properties.get(_TRANSFORMATION)
        told = told.strip().lower() if isinstance(told, str) else ""
        form = TOLD_OBJECT_FORMS.get(told, "")
        wanted = WANTED_OBJECT_FORMS.get(self.transformation, "")
        if not form or not wanted:
            return "", None
        converted = convert_object(message.body.decode(), form, wanted)
        kind = told.rpartition("-")[0]
        return f"{kind}-{wanted}", converted.encode("utf-8", "replace")

    def _named(self, destination: Destination, own: Mapping[Destination, str]) -> str:
        return self.dead if destination == DMQ else _spelt(destination, own)


@dataclass(frozen=True, slots=True)
class ArtemisLayout:
    """That of Artemis: destinations as senders wrote them, ids of deliveries.

    :param dead: what the dead message queue is called.
    """

    dead: str

    def asked(self, given: Mapping[str, str]) -> Layout:
        """See :meth:`Layout.asked`."""
        return self

    def frame(self, delivered: Delivered) -> bytes:
        """See :meth:`Layout.frame`."""
        message = delivered.message
        headers = message.headers
        given = dict(headers.extras).get("destination")
        pairs: list[tuple[str, str]] = []
        if delivered.subscription is not None:
            pairs.append(("subscription", delivered.subscription))
        if delivered.token and delivered.version is Version.V1_2:
            pairs.append(("ack", delivered.number))
        kind = "ANYCAST" if headers.destination.kind is Kind.QUEUE else "MULTICAST"
        origin = headers.properties.get(ORIGINAL_DESTINATION)
        died = isinstance(origin, str) and origin != str(headers.destination)
        if headers.destination == DMQ:
            given = self.dead
        elif died:
            # It is where it is, and not where its sender sent it.
            given = headers.destination.name
        pairs += [
            ("message-id", delivered.number),
            ("destination", given or destinations.spell(headers.destination)),
            (_ROUTING, kind),
            ("expires", str(message.expires)),
            ("redelivered", "true" if delivered.attempt > 1 else "false"),
            ("priority", str(headers.priority)),
            ("persistent", "true" if headers.persistent else "false"),
            ("timestamp", str(message.timestamp)),
        ]
        pairs += _user(delivered)
        if died and isinstance(origin, str):
            # Before what its producer has given, as the first of repeated headers counts.
            routed, _, name = origin.partition(":")
            address = headers.properties.get(ORIGINAL_ADDRESS)
            pairs.append(("_AMQ_ORIG_ADDRESS", address if isinstance(address, str) else name))
            if routed == "queue":
                pairs.append(("_AMQ_ORIG_QUEUE", name))
            pairs.append(("_AMQ_ORIG_MESSAGE_ID", message.message_id))
        # What it is routed as is not for its sender to say.
        given_pairs = _given(message, destinations.spell, padded=True)
        pairs += [pair for pair in given_pairs if pair[0] != _ROUTING]
        if headers.group and ARTEMIS_GROUP not in headers.properties:
            pairs.append((ARTEMIS_GROUP, headers.group))
        return _frame(pairs, delivered, delivered.version is not Version.V1_0, padded=True)


def _spelt(destination: Destination, own: Mapping[Destination, str]) -> str:
    """Return ActiveMQ's name of a destination: own temporary ones differ."""
    return own.get(destination) or destinations.spell_remote(destination)


@dataclass(frozen=True, slots=True)
class RabbitMQLayout:
    """That of RabbitMQ: only what the SEND had, and the length last."""

    names: RabbitMQNames

    def asked(self, given: Mapping[str, str]) -> Layout:
        """See :meth:`Layout.asked`."""
        return self

    def frame(self, delivered: Delivered) -> bytes:
        """See :meth:`Layout.frame`."""
        message = delivered.message
        headers = message.headers
        tag = (
            f"Q_{delivered.subscribed}"
            if delivered.subscription is None
            else f"T_{delivered.subscription}"
        )
        identifier = f"{tag}@@{delivered.session}@@{delivered.number}"
        pairs: list[tuple[str, str]] = []
        if delivered.subscription is not None:
            pairs.append(("subscription", delivered.subscription))
        pairs += [
            ("destination", self.names.spell(headers.destination)),
            ("message-id", identifier),
            ("redelivered", "true" if delivered.attempt > 1 else "false"),
        ]
        if delivered.token and delivered.version is Version.V1_2:
            pairs.append(("ack", identifier))
        pairs += _given(message, self.names.reply)
        if headers.persistent:
            pairs.append(("persistent", "true"))
        if headers.priority != DEFAULT_PRIORITY:
            pairs.append(("priority", str(headers.priority)))
        return _frame(pairs, delivered, counted=True)


def _told_of_death(properties: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Return ActiveMQ's headers of a dead message.

    They are when it was to expire, and why it died. ActiveMQ tells why of what has expired, and of what JMS clients have rejected.
    """
    when = properties.get(ORIGINAL_EXPIRATION)
    expiration = str(when) if isinstance(when, int) else "0"
    told = [("originalExpiration", expiration)]
    why = properties.get(UNDELIVERED_COMMENT)
    if properties.get(UNDELIVERED_REASON) == DeadReason.EXPIRED.value:
        why = f"java.lang.Throwable: Message Expired. Expiration:{expiration}"
    if isinstance(why, str):
        told.append(("dlqDeliveryFailureCause", why))
    return told


class _Spell(Protocol):
    def __call__(self, destination: Destination, /) -> str: ...


def _user(delivered: Delivered) -> list[tuple[str, str]]:
    return [("JMSXUserID", delivered.user)] if delivered.user else []


def _given(message: Message, spell: _Spell, padded: bool = False) -> list[tuple[str, str]]:
    """The headers that the producer has given.

    :param padded: names keep the blanks at their edges.
    """
    headers = message.headers
    pairs: list[tuple[str, str]] = []
    properties = headers.properties
    for name, value in properties.items():
        if shown := shown_as(name):
            told = name if padded else shown
            pairs.append((told, value if isinstance(value, str) else text_of(value)))
    answer = None if headers.reply_to is None else spell(headers.reply_to)
    for name, text in headers.extras:
        if name == "reply-to":
            answer = text
        elif (shown := shown_as(name)) and name not in properties:
            pairs.append((name if padded else shown, text))
    if headers.type is not None:
        pairs.append(("type", headers.type))
    if answer is not None:
        pairs.append(("reply-to", answer))
    if headers.correlation_id is not None:
        pairs.append(("correlation-id", headers.correlation_id))
    return pairs


#: As those of the gateway's own layout, its frames are followed by a line end.
_END: Final = b"\n"


def _frame(
    pairs: list[tuple[str, str]],
    delivered: Delivered,
    counted: bool,
    padded: bool = False,
    body: bytes | None = None,
) -> bytes:
    """Return the frame; ``body`` is in place of the message's own."""
    message = delivered.message
    kind = message.headers.body_type
    if body is None:
        if kind not in _CARRIED:
            raise UnsendableBody(kind, message.headers.destination)
        body = message.body
    # Without a length the body ends at the first NUL.
    if counted or kind is BodyType.BYTES or b"\0" in body:
        pairs.append(("content-length", str(len(body))))
    return serialize("MESSAGE", pairs, body, delivered.version, padded) + _END
