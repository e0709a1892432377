"""RabbitMQ's names of destinations, as far as they have a meaning here.

Exchanges are topics: ``/exchange/amq.topic/KEY`` is the topic KEY, ``/exchange/amq.direct/KEY`` the
topic ``amq.direct.KEY``, and what is sent to ``/exchange/amq.fanout`` goes to all who subscribe to
it, whatever the key. Others are where a RabbitMQ has them, see :mod:`gateway.messaging.exchanges`. A
``#`` in a subscription's topic is ``>``, and none or more levels.

RabbitMQ's texts are here where clients compare them (RabbitMQ 3.10, measured).
"""

from __future__ import annotations

from typing import Final, NoReturn
from urllib.parse import quote, unquote

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.exchanges import DIRECT, FANNED, KEYLESS, exchange_of, topic_of
from gateway.stomp.destinations import ExchangeKey, LocalTemporary, Source, from_hash
from gateway.stomp.refusals import CommandRefused, Refusal

_FORMS: Final = "/temp-queue, /exchange, /topic, /queue, /amq/queue, /reply-queue/"
#: What RabbitMQ writes as it is in the names of MESSAGE.
_UNQUOTED: Final = " !\"#$&'()*+,:;<=>?@[\\]^`{|}~"


class RabbitMQNames:
    """See :class:`~gateway.stomp.destinations.Naming`."""

    dead = ""

    def parse(self, text: str, header: str) -> Destination | LocalTemporary | ExchangeKey:
        """See :meth:`~gateway.stomp.destinations.Naming.parse`."""
        if not text:
            raise CommandRefused(
                "Destination cannot be blank",
                refusal=Refusal.EMPTY_DESTINATION,
                summary="Invalid destination",
            )
        if not text.startswith("/"):
            return Destination(Kind.QUEUE, unquote(text))
        first, _, rest = text[1:].partition("/")
        rest = text[1 + len(first) :]
        if first == "queue":
            return Destination(Kind.QUEUE, _one(rest, "queue"))
        if first == "topic":
            return Destination(Kind.TOPIC, _wild(_one(rest, "topic")))
        if first == "exchange":
            return _exchange(rest)
        if first == "amq" and (rest == "/queue" or rest.startswith("/queue/")):
            return Destination(Kind.QUEUE, _one(rest[len("/queue") :], "amqqueue"))
        if first == "temp-queue":
            return LocalTemporary(Kind.QUEUE, _one(rest, "temp_queue"))
        if first == "reply-queue" and len(rest) > 1:
            return Destination(Kind.QUEUE, rest[1:], True)
        raise CommandRefused(
            f"'{text[:200]}' is not a valid destination.\nValid destination types are: {_FORMS}.\n",
            summary="Unknown destination",
        )

    def spell(self, destination: Destination) -> str:
        """Return what ``destination`` of MESSAGE says."""
        name = destination.name
        if destination.kind is Kind.QUEUE:
            return f"/queue/{_quoted(name)}"
        found = exchange_of(name)
        if found is None:
            return f"/topic/{_quoted(name)}"
        exchange, key = found
        keyless = not key or (exchange in FANNED and key == KEYLESS)
        return f"/exchange/{_quoted(exchange)}" + ("" if keyless else f"/{_quoted(key)}")

    def reply(self, destination: Destination) -> str:
        """Return what ``reply-to`` of MESSAGE says."""
        if destination.temporary and destination.kind is Kind.QUEUE:
            return f"/reply-queue/{destination.name}"
        return self.spell(destination)

    def source(self, destination: Destination) -> Source:
        """See :meth:`~gateway.stomp.destinations.Naming.source`.

        A subscription to an exchange that ignores the key receives whatever has any.

        :raises CommandRefused: a queue's name has wildcards, which RabbitMQ has for topics only.
        """
        if destination.kind is Kind.QUEUE and {"*", ">"} & set(destination.name.split(".")):
            raise CommandRefused(
                f"'{destination.name[:200]}' has wildcards, which are for topics: expected the name of one queue\n",
                summary="Invalid destination",
            )
        for fanned in FANNED:
            if destination.kind is Kind.TOPIC and destination.name.startswith(f"{fanned}."):
                return Source(Destination(Kind.TOPIC, f"{fanned}.>"))
        return from_hash(destination) if destination.kind is Kind.TOPIC else Source(destination)


def _exchange(rest: str) -> Destination | ExchangeKey:
    """The topic that stands for an exchange and its key, if there is one."""
    parts = rest.split("/")[1:]
    if not 1 <= len(parts) <= 2 or not parts[0]:
        _invalid(rest, "exchange")
    name, key = unquote(parts[0]), unquote(parts[1]) if len(parts) == 2 else ""
    if name in FANNED:
        # The key means nothing to them.
        key = "" if {"*", "#", ">"} & set(key.split(".")) else key
        return Destination(Kind.TOPIC, f"{name}.{key or KEYLESS}")
    if name == DIRECT and not {"*", "#", ">"} & set(key.split(".")):
        return Destination(Kind.TOPIC, f"{DIRECT}.{key or KEYLESS}")
    if name == "amq.topic" and key:
        return Destination(Kind.TOPIC, _wild(key))
    sentence = f"NOT_FOUND - no exchange '{name[:200]}' in vhost '/'"
    refused = CommandRefused(sentence, refusal=Refusal.NO_EXCHANGE, subject=sentence)
    if name in ("amq.topic", DIRECT):
        raise refused
    topic = topic_of(name, _wild(key))
    return ExchangeKey(None if topic is None else Destination(Kind.TOPIC, topic), refused)


def _one(rest: str, kind: str) -> str:
    """The name after a prefix, which has no slash."""
    if len(rest) < 2 or "/" in rest[1:]:
        _invalid(rest, kind)
    return unquote(rest[1:])


def _wild(name: str) -> str:
    """The broker's spelling, to which nothing can be sent."""
    return ".".join([">" if level == "#" else level for level in name.split(".")])


def _quoted(name: str) -> str:
    return quote(name, safe=_UNQUOTED)


def _invalid(rest: str, kind: str) -> NoReturn:
    raise CommandRefused(
        f"'{rest[:200]}' is not a valid {kind} destination\n", summary="Invalid destination"
    )
