"""The headers of SUBSCRIBE and SEND, under the names of all brokers.

Prefetch, durable subscriptions, expiry and redelivery.

Owns the reading of their values, so that clients written for ActiveMQ, Artemis, RabbitMQ or Apollo
need no change. Knows neither sessions nor messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.messaging.redelivery import RedeliveryChanges
from gateway.stomp.brokers import (
    DURABLE_NAMES,
    EXCLUSIVES,
    NO_LOCALS,
    PREFETCHES,
    RELATIVE_EXPIRIES,
)
from gateway.stomp.refusals import CommandRefused

#: RabbitMQ's durable subscriptions of topics. A queue is durable anyway.
_DURABLES: Final = ("durable", "persistent")
#: Of SUBSCRIBE, RabbitMQ's: the queue that a subscription of a topic has.
QUEUE_NAME: Final = "x-queue-name"
#: Of SUBSCRIBE, ours: deliver whole messages, each in an envelope; and of a MESSAGE that is one.
ENVELOPE: Final = "envelope"

#: Artemis reads ActiveMQ's header as bytes, too.
_BYTE_WINDOWS: Final = ("consumer-window-size", "activemq.prefetchSize")

#: From here on, about March 1973, a number of milliseconds is a point in time and not a duration.
ABSOLUTE: Final = 100_000_000_000

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SIGNED_WINDOW: Final = re.compile(r"-?[0-9]{1,10}")
_SIGNED: Final = re.compile(r"-?[0-9]{1,9}")
_FACTOR: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")

Headers = Mapping[str, str]


def boolean(text: str | None) -> bool:
    """``true`` in any case; everything else is false."""
    return text is not None and text.strip().lower() == "true"


def _first(headers: Headers, names: tuple[str, ...]) -> tuple[str, str] | None:
    for name in names:
        if name in headers:
            return name, headers[name].strip()
    return None


def durable_name(headers: Headers, names: tuple[str, ...] = DURABLE_NAMES) -> str | None:
    """The name of a durable subscription, None where none is named.

    :param names: of the headers that may name it, best first.
    :raises CommandRefused: it is empty.
    """
    found = _first(headers, names)
    if found is None:
        return None
    name, value = found
    if not value:
        raise CommandRefused(f"{name} is empty: expected the name of a durable subscription")
    return value


def flagged(headers: Headers) -> bool:
    """Whether a frame asks for a durable subscription in RabbitMQ's way."""
    return any(boolean(headers.get(name)) for name in _DURABLES)


def check_durable(headers: Headers, queue: bool) -> None:
    """Check that a SUBSCRIBE for a durable subscription will get one.

    :raises CommandRefused: it is for a queue, or asks in RabbitMQ's way, by ``durable:true``. The
        sentence has the remedy.
    """
    found = _first(headers, DURABLE_NAMES)
    if found is not None and queue:
        raise CommandRefused(
            f"{found[0]} on SUBSCRIBE to a queue: a queue keeps its messages for whoever comes, so SUBSCRIBE without {found[0]}; "
            "durable subscriptions are of topics"
        )
    if found is not None or queue:
        return
    for name in _DURABLES:
        if boolean(headers.get(name)):
            raise CommandRefused(
                f"{name}:true on SUBSCRIBE to a topic does not make the subscription durable here: give it a durable-subscriber-name, "
                "and CONNECT with a client-id"
            )


def unused(headers: Headers) -> tuple[str, ...]:
    """Return the names of SUBSCRIBE's headers that mean nothing here."""
    return tuple([name for name in headers if name not in _USED])


def selector(headers: Headers) -> str | None:
    """Return the selector of SUBSCRIBE, None where it has no selector.

    :raises CommandRefused: it is blank.
    """
    value = headers.get("selector")
    if value is not None and not value.strip():
        raise CommandRefused(
            "selector is blank: expected a JMS selector, such as colour = 'red'; to get every message leave the header out"
        )
    return value


def no_local(headers: Headers) -> bool:
    """Whether a subscription wants not to have what its own connection sent."""
    found = _first(headers, NO_LOCALS)
    return found is not None and boolean(found[1])


def exclusive(headers: Headers) -> bool:
    """Whether a subscription wants to have its queue for itself."""
    found = _first(headers, EXCLUSIVES)
    return found is not None and boolean(found[1])


def consumer_priority(headers: Headers) -> int:
    """Return the priority of a consumer among others; 0 unless given.

    :raises CommandRefused: ActiveMQ has no such priority.
    """
    priority = _signed(headers, "priority", -128)
    if priority is None:
        return 0
    if priority > 127:
        raise CommandRefused(
            f"activemq.priority {priority} is out of range: expected -128 to 127, the highest"
        )
    return priority


def enveloped(headers: Headers) -> bool:
    """Whether a subscription wants each message in an envelope.

    :raises CommandRefused: neither ``true`` nor ``false``.
    """
    value = headers.get(ENVELOPE)
    if value is None:
        return False
    small = value.strip().lower()
    if small not in ("true", "false"):
        raise CommandRefused(f"{ENVELOPE} '{value[:40]}' is neither true nor false")
    return small == "true"


def prefetch(headers: Headers) -> int | None:
    """Return how many messages may be unacknowledged, None if not given.

    Apollo's ``credit`` may have a second number, octets, which is not used. RabbitMQ's and
    ActiveMQ's 0 means no bound there; here it leaves the default, so that no client is flooded.

    :raises CommandRefused: no number, or above 1,000,000.
    """
    found = _first(headers, PREFETCHES)
    if found is None:
        return None
    name, value = found
    number = value.partition(",")[0].strip() if name == "credit" else value
    if _NUMBER.fullmatch(number) is None or int(number) > 1_000_000:
        raise CommandRefused(
            f"{name} '{value[:40]}' is no number of messages: expected 0 to 1000000"
        )
    return int(number) or None


def byte_window(headers: Headers) -> int | None:
    """Return how many bytes of frames may be unacknowledged.

    0 is one message at a time, -1 any number; None if not given.

    :raises CommandRefused: no number, or out of range.
    """
    found = _first(headers, _BYTE_WINDOWS)
    if found is None:
        return None
    name, value = found
    if _SIGNED_WINDOW.fullmatch(value) is None or not -1 <= int(value) < 1 << 31:
        raise CommandRefused(
            f"{name} '{value[:40]}' is no number of bytes: expected -1, 0 or a number below {1 << 31}"
        )
    return int(value)


def expiry(headers: Headers) -> tuple[int, int]:
    """Return when a message expires.

    A point in time and a duration in milliseconds, at least one of them 0; both 0 is never.

    ``expires`` is both: 0 never, from :data:`ABSOLUTE` a point in time (one in the past means
    expired), below it a duration.

    :raises CommandRefused: no number of milliseconds.
    """
    value = headers.get("expires")
    if value is not None:
        number = milliseconds("expires", value)
        return (number, 0) if number >= ABSOLUTE else (0, number)
    found = _first(headers, RELATIVE_EXPIRIES)
    return (0, 0) if found is None else (0, milliseconds(*found))


def timestamp(value: str) -> int:
    """Return when a client says that it has sent a message.

    :raises CommandRefused: no number of milliseconds.
    """
    return milliseconds("timestamp", value)


def milliseconds(name: str, value: str) -> int:
    """Return the number that a header has.

    :raises CommandRefused: no number of milliseconds.
    """
    value = value.strip()
    if _NUMBER.fullmatch(value) is None:
        raise CommandRefused(f"{name} '{value[:40]}' is no number of milliseconds")
    return int(value)


def redelivery(headers: Headers, keeps_unstored: bool = True) -> RedeliveryChanges | None:
    """Return what SUBSCRIBE wants of the redelivery policy.

    It says so in ActiveMQ's headers; None where it has none of them.

    What is not given is the destination's to say.

    :param keeps_unstored: see :class:`~gateway.messaging.redelivery.RedeliveryChanges`.
    :raises CommandRefused: a value is no number, or out of range.
    """
    if not any(f"activemq.{name}" in headers for name in _POLICY):
        return None if keeps_unstored else RedeliveryChanges(keeps_unstored=False)
    factor = headers.get("activemq.backOffMultiplier")
    if factor is not None and (
        _FACTOR.fullmatch(factor.strip()) is None or not 1 <= float(factor) <= 1000
    ):
        raise CommandRefused(
            f"activemq.backOffMultiplier '{factor[:40]}' is no factor: expected 1 to 1000"
        )
    exponential = headers.get("activemq.useExponentialBackOff")
    return RedeliveryChanges(
        maximum_redeliveries=_signed(headers, "maximumRedeliveries", -1),
        initial_redelivery_delay=_signed(headers, "initialRedeliveryDelay", 0),
        redelivery_delay=_signed(headers, "redeliveryDelay", 0),
        use_exponential_back_off=None if exponential is None else boolean(exponential),
        back_off_multiplier=None if factor is None else float(factor),
        maximum_redelivery_delay=_signed(headers, "maximumRedeliveryDelay", -1),
        keeps_unstored=keeps_unstored,
    )


_POLICY: Final = (
    "maximumRedeliveries",
    "initialRedeliveryDelay",
    "redeliveryDelay",
    "useExponentialBackOff",
    "backOffMultiplier",
    "maximumRedeliveryDelay",
)


#: Headers of SUBSCRIBE that are used, in one profile or in all.
_USED: Final = frozenset(
    (
        "ack",
        "auto-delete",
        "browser",
        "consumer-window-size",
        "content-length",
        "destination",
        ENVELOPE,
        "exclusive",
        "id",
        "receipt",
        "selector",
        "subscription-type",
        "transaction",
        *DURABLE_NAMES,
        *EXCLUSIVES,
        *NO_LOCALS,
        *PREFETCHES,
        *_DURABLES,
        QUEUE_NAME,
        *[f"activemq.{name}" for name in ("priority", *_POLICY)],
    )
)


def _signed(headers: Headers, name: str, least: int) -> int | None:
    value = headers.get(f"activemq.{name}")
    if value is None:
        return None
    value = value.strip()
    if _SIGNED.fullmatch(value) is None or int(value) < least:
        raise CommandRefused(f"activemq.{name} '{value[:40]}' is no number of at least {least}")
    return int(value)
