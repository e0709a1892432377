"""What is meant by a name that no destination has.

Senders and receivers that spell a name differently do not meet, and neither is told. Owns which
names are near each other. Looks at each name once, in short steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    listing,
    quoted,
    some,
    spoken,
    why_destination,
)
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.timing.schedule import Steps
from gateway.front.reach import Behind
from gateway.messaging.destination import Destination, Kind
from gateway.stomp.destinations import ExchangeKey
from gateway.stomp.rabbitmq_names import RabbitMQNames
from gateway.stomp.refusals import CommandRefused

#: Names that are compared in one step.
_STEP: Final = 200
#: Names of the same length, or nearly, that are compared letter by letter.
_MOST_COMPARED: Final = 5000
#: How much of two names must be alike.
_ALIKE: Final = 0.8
#: What clients write before names, by mistake or for another broker.
_PREFIX: Final = re.compile(
    r"^(?:/?(?:queue|topic|dsub|temp-queue|temp-topic|amq/queue|exchange/amq\.topic)/|(?:queue|topic):(?://)?|jms\.(?:queue|topic)\.|jms/|java:)+",
    re.IGNORECASE,
)
_PUNCTUATION: Final = re.compile(r"[\W_]+")
_GENERATED: Final = re.compile(r"(?:.*temporary_destination://(?:queue|topic)/)?([0-9a-f]{32})")


def temporary_name(name: str) -> str:
    """Return the name of a temporary destination; "" for another."""
    found = _GENERATED.fullmatch(name)
    return found[1] if found else ""


def by_exchange(wanted: Destination) -> tuple[Destination, str]:
    """Return the topic that stands for an exchange by RabbitMQ's name.

    :returns: that topic, or the destination itself where no topic stands for it; and the name as it
        was asked about where only a RabbitMQ has that exchange, "" elsewhere.
    """
    if not wanted.name.startswith("/exchange/"):
        return wanted, ""
    try:
        found = RabbitMQNames().parse(wanted.name, "destination")
    except CommandRefused:
        return wanted, wanted.name
    if isinstance(found, ExchangeKey):
        return found.topic or wanted, wanted.name
    return (found if isinstance(found, Destination) else wanted), ""


def exchange_cause(exchange: str, wanted: Destination) -> Cause:
    """Return that there is no such exchange.

    :param exchange: as :func:`by_exchange` names it.
    :param wanted: the topic that would stand for it.
    """
    stands = (
        "no topic stands for it"
        if wanted.name == exchange
        else f"{spoken(wanted)} would stand for it where a RabbitMQ behind this gateway has it"
    )
    return Cause(
        CauseKind.NO_DESTINATION,
        f"There is no {quoted(exchange)}: of exchanges, this broker has amq.topic, amq.direct, amq.fanout and amq.headers. A SEND or SUBSCRIBE to another one is refused, and {stands}.",
        {},
        "Have clients name a topic, or one of these exchanges with a key.",
    )


def _plain(name: str) -> str:
    return _PUNCTUATION.sub("", _PREFIX.sub("", name).casefold())


def nearness(wanted: str, other: str) -> float:
    """Say how near two names are, from 0 to 1.

    It is 1 where they differ in prefix, or in the case of letters, only.
    """
    if _PREFIX.sub("", wanted).casefold() == _PREFIX.sub("", other).casefold():
        return 1.0
    first, second = _plain(wanted), _plain(other)
    if first and first == second:
        return 0.95
    if abs(len(first) - len(second)) > 2 or min(len(first), len(second)) < 3:
        return 0.0
    matcher = SequenceMatcher(None, first[:100], second[:100])
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0


def find_near(
    wanted: Destination,
    destinations: Mapping[Destination, PhysicalQueue | PhysicalTopic],
    found: list[tuple[float, PhysicalQueue | PhysicalTopic]],
) -> Steps[None]:
    """Find destinations with nearly that name, in short steps."""
    compared = 0
    for at, physical in enumerate(list(destinations.values())):
        if at % _STEP == _STEP - 1:
            yield
        destination = physical.destination
        if destination.temporary or physical.removed or destination == wanted:
            continue
        other_kind = destination.name == wanted.name
        if not other_kind and abs(len(destination.name) - len(wanted.name)) > 40:
            continue
        compared += 1
        if compared > _MOST_COMPARED:
            break
        near = 1.0 if other_kind else nearness(wanted.name, destination.name)
        if near >= _ALIKE:
            found.append((near, physical))
    found.sort(key=lambda pair: (-pair[0], -pair[1].count, pair[1].destination.name))


def near_cause(
    wanted: Destination,
    exists: bool,
    near: Sequence[tuple[float, PhysicalQueue | PhysicalTopic]],
) -> Cause | None:
    """Return that messages may have been sent to another name.

    :param exists: whether there is a destination of the name that was asked about, too.
    """
    chosen = [physical for _, physical in near if physical.count or not exists][:3]
    if not chosen:
        return None
    texts = []
    for physical in chosen:
        consumers = (
            len(physical.dispatch.consumers)
            if isinstance(physical, PhysicalQueue)
            else len(physical.subscriptions)
        )
        texts.append(
            f"{spoken(physical.destination)} with {counted(physical.count)} and {counted(consumers, 'consumer')}"
        )
    first = chosen[0].destination
    asked = spoken(wanted)
    begin = f"{asked[0].upper()}{asked[1:]} {'is empty' if exists else 'does not exist'}"
    twice = (
        "; a client that SENDs to /queue/queue/NAME names the queue 'queue/NAME'"
        if _PREFIX.match(first.name) or _PREFIX.match(wanted.name)
        else ""
    )
    return Cause(
        CauseKind.OTHER_NAME,
        f"{begin}, and {some(len(chosen), 'a name is', 'names are')} near it: {listing(texts)}{twice}.",
        {"names": len(chosen), "messages": sum([each.count for each in chosen])},
        "Have sender and receiver use one name; ask about the other:",
        why_destination(first),
        0,
        sum([each.count for each in chosen]),
    )


def behind_cause(wanted: Destination, behind: Behind) -> Cause:
    """Return that another broker has a destination of STOMP clients."""
    away = f", and {behind.detail}" if behind.away else ""
    return Cause(
        CauseKind.BROKER_BEHIND,
        f"STOMP clients have {spoken(wanted)} at the broker {quoted(behind.name)} behind this gateway{away}.",
        {"broker": behind.name, "reached": int(behind.away is None)},
        "See why it cannot be reached:"
        if behind.away
        else "Ask that broker: what waits there is not known here.",
        command("imqcmd", "doctor") if behind.away else "",
    )


def absent_cause(wanted: Destination, auto_created: bool) -> Cause:
    """Return that there is no such destination."""
    temporary = temporary_name(wanted.name)
    if temporary:
        return Cause(
            CauseKind.TEMPORARY_GONE,
            f"The temporary {wanted.kind.name.lower()} {temporary} is gone: it went with the connection that made it, and its messages with it.",
            {},
            "Have the client that waits for replies stay connected until they have come; the connections of now:",
            command("imqcmd", "list", "cxn"),
        )
    kind = wanted.kind.name.lower()
    made = (
        "it is made when it is first used"
        if auto_created
        else f"none is made automatically (imq.autocreate.{kind} is false)"
    )
    return Cause(
        CauseKind.NO_DESTINATION,
        f"There is no {spoken(wanted)}: {made}, and one that use has made is gone once it is empty and unused for a while.",
        {},
        "Create it, so that it stays:",
        command(
            "imqcmd",
            "create",
            "dst",
            "-t",
            "q" if wanted.kind is Kind.QUEUE else "t",
            "-n",
            wanted.name,
        ),
    )
