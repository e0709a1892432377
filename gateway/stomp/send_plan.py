"""SEND frames to messages (Open MQ's Table 12-11, STOMP JMS bindings).

Owns what the values of headers mean to JMS. What a producer repeats is worked out once for all its
messages, in a :class:`SendPlan` for each shape of header blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.envelope import CONTENT_TYPE, EnvelopeError, decode
from gateway.messaging.message import (
    DEFAULT_PRIORITY,
    GROUP_ID,
    AddressedHeaders,
    BodyType,
    Headers,
    Message,
    VariedHeaders,
)
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import Value, encode_map
from gateway.stomp import client_headers, destinations
from gateway.stomp.header_roles import (
    ARTEMIS_GROUP,
    BOOLEAN,
    EXPIRY,
    EXTRA,
    PROPERTY,
    TRANSFORMATION_ERROR,
    TRUSTED,
    role_of,
)
from gateway.stomp.map_texts import FORMS, read_map
from gateway.stomp.map_texts import REFUSED as REFUSED_FORMS
from gateway.stomp.object_texts import OBJECT_FORMS, check_object
from gateway.stomp.profiles import ANYCAST, MULTICAST, OPENMQ, Profile
from gateway.stomp.queue_arguments import existing_queue, most_ttl
from gateway.stomp.refusals import CommandRefused, OneTooMany, Refusal
from gateway.stomp.wire import Head, ShapedHead

#: From the text of a header and the header's name to the destination it means; raises
#: CommandRefused.
Resolve = Callable[[str, str], Destination]

_BEGINNINGS: Final = {ANYCAST: "/queue/", MULTICAST: "/topic/"}


class SendPlan:
    """What SEND frames of one shape have in common, or what a single one says.

    Transactions and receipts are not in it.

    :ivar expires: JMSExpiration where the client gave a point in time, else 0.
    :ivar ttl: milliseconds to live where it gave a duration, else 0.
    :ivar text: the body must be UTF-8.
    :ivar expiring: there is a header about the time to live, even if it says that it is unlimited.
    :ivar envelope: the body claims to be a message in an envelope.
    :ivar copies: the headers for the other destinations, where SEND names several.
    :ivar form: the ``transformation`` by which the body is a map or an object; "" for another body.
    :ivar unrouted: the destination, where it is a name alone, and what there is decides what it is
        of; "" for another.
    :ivar managing: it is a request to manage the broker, and no message.
    :ivar personal: what it is depends on who sends it, so it holds for one frame only.
    :ivar nearly_plain: it would be, if its destination was not a name alone.
    :ivar plain: one destination, and neither expiry nor envelope: nothing to do but to make the
        message and send it.
    """

    __slots__ = (
        "copies",
        "envelope",
        "expires",
        "expiring",
        "form",
        "headers",
        "managing",
        "nearly_plain",
        "personal",
        "plain",
        "text",
        "ttl",
        "unrouted",
    )

    def __init__(
        self,
        headers: Headers,
        copies: tuple[Headers, ...],
        expires: int,
        ttl: int,
        expiring: bool,
        envelope: bool,
        personal: bool,
        form: str = "",
        unrouted: str = "",
        managing: bool = False,
    ) -> None:
        self.headers: Final = headers
        self.copies: Final = copies
        self.expires: Final = expires
        self.ttl: Final = ttl
        self.expiring: Final = expiring
        self.envelope: Final = envelope
        self.personal: Final = personal
        self.form: Final = form
        self.text: Final = headers.body_type is BodyType.TEXT
        self.unrouted: Final = unrouted
        self.managing: Final = managing
        simple = not (copies or expires or ttl or envelope or form or managing)
        self.plain: Final = simple and not unrouted
        self.nearly_plain: Final = simple and unrouted != ""


def plan_send(
    head: Head,
    resolve: Resolve,
    administers: bool,
    profile: Profile = OPENMQ,
    has_exchanges: Callable[[Destination], bool] = lambda _: False,
) -> SendPlan:
    """Work out what a SEND's headers mean.

    :param resolve: finds destinations, making a temporary one that the client names for the first
        time.
    :param administers: an administrator sends it, as a link from another gateway may: its ``JMS_``
        properties are kept.
    :param profile: the client's habits.
    :param has_exchanges: of the connection to the provider.
    :raises CommandRefused: a header is missing or cannot be understood.
    """
    given = head.headers
    if profile.refuses_message_id and "message-id" in given:
        raise CommandRefused(
            "message-id on SEND: it is the server's to give",
            refusal=Refusal.HEADER,
            subject="message-id",
        )
    destination = given.get("destination")
    if destination is None:
        raise CommandRefused(
            "SEND without destination", refusal=Refusal.NO_DESTINATION, subject="SEND"
        )
    properties: dict[str, Value] = {}
    extras: list[tuple[str, str]] = []
    expiring = personal = False
    octets = 0
    for name, value in given.items():
        role = role_of(name)
        if name != "receipt":
            octets += len(name) + len(value)
        if role == PROPERTY:
            properties[name] = value
        elif role == EXTRA:
            extras.append((name, value))
        elif role == BOOLEAN:
            properties[name] = client_headers.boolean(value)
        elif role == EXPIRY:
            expiring = True
        elif role == TRUSTED:
            personal = True
            if administers:
                properties[name] = value
    if ARTEMIS_GROUP in properties:
        properties.setdefault(GROUP_ID, properties[ARTEMIS_GROUP])
    expires, ttl = client_headers.expiry(given) if expiring else (0, 0)
    persistent = given.get("persistent")
    reply_to = given.get("reply-to")
    priority = given.get("priority")
    form = ""
    if profile.maps and head.content_length < 0 and "transformation" in given:
        asked = given["transformation"].strip().lower()
        form = asked if asked in FORMS or asked in OBJECT_FORMS else ""
        if asked in REFUSED_FORMS:
            extras.append((TRANSFORMATION_ERROR, f"{asked} is not supported"))
    answer, text = _reply_to(reply_to, resolve, profile)
    if text is not None:
        extras.append(("reply-to", text))
    if profile.routing_types:
        # MESSAGE names it as its sender did.
        extras.append(("destination", destination))
    texts: list[str] = []
    if "," in destination:
        split = destinations.split_composite if profile.composites else destinations.split
        texts = split(destination) or [destination]
        destination = texts[0]
    destination = routed(destination, given, "destination-type", profile)
    unrouted = address = ""
    if profile.routing_types:
        address, untyped = destinations.address_of(destination)
        if untyped or any(map(destinations.is_unrouted, texts)):
            personal = True
        elif destinations.is_unrouted(destination):
            unrouted = destination
    target = resolve(destination, "destination")
    if target is destinations.MANAGEMENT:
        if len(texts) > 1:
            raise _managing_among(texts)
        return SendPlan(Headers(target), (), 0, 0, False, False, True, managing=True)
    declares = profile.queue_arguments and not has_exchanges(target)
    if profile.queue_arguments and not declares and (existing := existing_queue(given, target)):
        extras.append(("destination", existing))
    headers = (AddressedHeaders if address else Headers)(
        target,
        body_type=_body_type(head, profile),
        persistent=profile.persistent if persistent is None else client_headers.boolean(persistent),
        priority=DEFAULT_PRIORITY if priority is None else _priority(priority, profile),
        reply_to=answer,
        correlation_id=given.get("correlation-id"),
        type=given.get("type"),
        properties=properties,
        extras=tuple(extras),
        octets=octets,
    )
    if isinstance(headers, AddressedHeaders):
        headers.address = address
    if declares:
        most = most_ttl(given, headers.destination)
        if most and not expires:
            ttl, expiring = min(ttl or most, most), True
    content_type = given.get("content-type")
    # Nearly every other one is shorter, and this is done for each message of a producer whose
    # headers vary.
    envelope = (
        content_type is not None
        and len(content_type) >= _SHORTEST_ENVELOPE
        and _is_envelope(content_type)
    )
    copies = _copies(headers, texts, resolve) if len(texts) > 1 else ()
    form = "" if envelope else form
    return SendPlan(headers, copies, expires, ttl, expiring, envelope, personal, form, unrouted)


def routed(text: str, given: Mapping[str, str], header: str, profile: Profile) -> str:
    """Return a destination with the prefix that its routing type stands for.

    :param header: that says the type; without it a prefix of Artemis' says it, if there is one.
    """
    if not profile.routing_types:
        return text
    kind, name = given.get(header, ""), ""
    for prefix, stands_for in profile.prefixes:
        if text.startswith(prefix) and text != prefix:
            name = text.removeprefix(prefix)
            kind = kind if kind in _BEGINNINGS else stands_for
            break
    if not name and not text.startswith("/"):
        name = text
    beginning = _BEGINNINGS.get(kind)
    return text if beginning is None or not name else beginning + name


def _body_type(head: Head, profile: Profile) -> BodyType:
    named = head.headers.get("amq-msg-type", "") if profile.message_types else ""
    if named:
        if named.lower() not in ("text", "bytes"):
            raise CommandRefused(f"Unsupported message type '{named[:40]}': expected text or bytes")
        return BodyType.TEXT if named.lower() == "text" else BodyType.BYTES
    return BodyType.TEXT if head.content_length < 0 else BodyType.BYTES


def _reply_to(
    text: str | None, resolve: Resolve, profile: Profile
) -> tuple[Destination | None, str | None]:
    """Return the destination of ``reply-to``, or a text that goes through."""
    if text is None:
        return None, None
    if profile.reply_to_as_text and not text.startswith("/"):
        return None, text
    if not profile.reply_to_as_text:
        return resolve(text, "reply-to"), None
    try:
        return resolve(text, "reply-to"), None
    except OneTooMany:
        raise
    except CommandRefused:
        return None, text


def headers_of(head: ShapedHead, plan: SendPlan, receipt: str | None = None) -> Headers:
    """Return the headers of a message whose SEND has the plan's shape."""
    octets = head.octets
    if receipt is not None:
        octets -= len("receipt") + len(receipt)
    return VariedHeaders(plan.headers, head.lines, head.meaning.shape.count, octets)


def all_headers_of(head: Head, plan: SendPlan, receipt: str | None) -> list[Headers]:
    """Return a message's headers, for each destination that its SEND names."""
    if not isinstance(head, ShapedHead):
        return [plan.headers, *plan.copies]
    lines, count = head.lines, head.meaning.shape.count
    octets = len(lines) - 2 * count
    return [
        headers_of(head, plan, receipt),
        *[VariedHeaders(copy, lines, count, copy.octets + octets) for copy in plan.copies],
    ]


def _copies(headers: Headers, texts: list[str], resolve: Resolve) -> tuple[Headers, ...]:
    """The headers of a message for its other destinations, each of them once."""
    others = dict.fromkeys([resolve(text, "destination") for text in texts[1:]])
    if any(each is destinations.MANAGEMENT for each in others):
        raise _managing_among(texts)
    return tuple(
        [headers.replace(destination=other) for other in others if other != headers.destination]
    )


def _managing_among(texts: list[str]) -> CommandRefused:
    """Refuse a request to manage the broker that is a message for others, too."""
    return CommandRefused(
        f"destination names {len(texts)} destinations, and {destinations.MANAGEMENT.name} among them: it must be the only one"
    )


#: A priority of brokers that take any; Java reads no more digits.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_SHORTEST_ENVELOPE: Final = len(CONTENT_TYPE)


def _is_envelope(content_type: str) -> bool:
    """Return whether this is the media type of envelopes.

    Case and parameters do not matter (RFC 9110, section 8.3.1).
    """
    return content_type.partition(";")[0].strip().lower() == CONTENT_TYPE


def mapped(form: str, each_headers: list[Headers], body: bytes) -> tuple[list[Headers], bytes]:
    """Return headers and body of the MapMessage that a text is.

    An object stays the text that it is. So does what is no map or object, and its headers say why.

    :param form: the ``transformation`` of the SEND.
    :param each_headers: for each destination.
    """
    try:
        if form in OBJECT_FORMS:
            check_object(body.decode(), OBJECT_FORMS[form])
            return each_headers, body
        encoded = encode_map(read_map(body.decode(), FORMS[form]))
    except ValueError as error:
        why = (TRANSFORMATION_ERROR, str(error))
        return [each.replace(extras=(*each.extras, why)) for each in each_headers], body
    return [each.replace(body_type=BodyType.MAP) for each in each_headers], encoded


def restore(plan: SendPlan, headers: Headers, body: bytes, expires: int | None) -> Message:
    """Return the message in an envelope, for a destination of its SEND.

    Identity, times, headers, properties and body are as they were.

    Only its duplicate id is gone: there it may have come before it died, and who sends it again
    means it. That of the SEND takes its place.

    :param headers: those of the plan for that destination.
    :param expires: JMSExpiration by the SEND; None where that says nothing about it.
    :raises CommandRefused: the body is no envelope, or a damaged one.
    """
    try:
        message = decode(body)
    except EnvelopeError as error:
        raise CommandRefused(
            f"the body is to be restored, as content-type is {CONTENT_TYPE}, and cannot be: {error}"
        ) from None
    properties = {
        name: value for name, value in message.headers.properties.items() if name != DUPLICATE_ID
    }
    if DUPLICATE_ID in plan.headers.properties:
        properties[DUPLICATE_ID] = plan.headers.properties[DUPLICATE_ID]
    restored = Message(
        message.headers.replace(destination=headers.destination, properties=properties),
        message.body,
        expires=message.expires if expires is None else expires,
        timestamp=message.timestamp,
        message_id=message.message_id,
    )
    restored.user = message.user
    return restored


def _priority(text: str, profile: Profile) -> int:
    text = text.strip()
    if len(text) == 1 and text in "0123456789":
        return int(text)
    if profile.any_priority and _INTEGER.fullmatch(text) is not None:
        return min(max(int(text), 0), 9)
    raise CommandRefused(f"priority '{text[:40]}': expected a number from 0 to 9")


def is_text(body: bytes) -> bool:
    """Whether a body is UTF-8."""
    try:
        check_text(body)
    except CommandRefused:
        return False
    return True


def check_text(body: bytes) -> None:
    """Check that a body without ``content-length`` is UTF-8.

    It becomes a TextMessage.

    :raises CommandRefused: it is not.
    """
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        raise CommandRefused(
            f"the body is not UTF-8 at octet {wrong.start}: give content-length to send octets as they are"
        ) from None


def of_bytes(headers: Headers) -> Headers:
    """Return the headers of a BytesMessage for what was to be a text."""
    made = headers.replace(body_type=BodyType.BYTES)
    given = headers.repeated or headers
    if not isinstance(given, AddressedHeaders):
        return made
    addressed = AddressedHeaders(**made._fields())  # type: ignore[arg-type]
    addressed.address = given.address
    return addressed
