"""RabbitMQ's exchanges as topics, and the queues of its subscriptions.

A RabbitMQ client sends to an exchange with a key. Each such pair has one name here, that of a topic,
and no two pairs have the same: access rules, which know names, hold for the pair.

============================  =======================================================
``amq.topic`` and KEY         the topic KEY
``amq.direct`` and KEY        ``amq.direct.KEY``; the same for ``amq.fanout``, ``amq.headers``
any other NAME and KEY        ``amq.exchange.NAME.KEY``, where a dot in NAME is ``%2E``
any other NAME without a key  ``amq.exchange.NAME``
============================  =======================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The exchange that has the topics.
TOPICS: Final = "amq.topic"
#: Exchanges of RabbitMQ's besides: one that goes by the key, and those that ignore it.
DIRECT: Final = "amq.direct"
FANNED: Final = ("amq.fanout", "amq.headers")
#: Stands for no key of these, as a name has at least one level.
KEYLESS: Final = "none"

#: Before the name of any other exchange.
_OTHERS: Final = "amq.exchange."
_RESERVED: Final = "amq."
#: Of those that RabbitMQ has from the start, the one without a special meaning.
_ORDINARY: Final = "amq.match"
_WILD: Final = ("*", "#", ">")

#: Arguments of a queue by which its dead messages are sent on.
DEAD_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_KEY: Final = "x-dead-letter-routing-key"


#: What RabbitMQ gives anyway.
_PLAIN: Final = (
    ("durable", "true"),
    ("persistent", "true"),
    ("auto-delete", "false"),
    ("exclusive", "false"),
    ("x-queue-type", "classic"),
)


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """The queue of RabbitMQ's that a subscription has.

    :param name: of the queue of a topic; "" where RabbitMQ gives it one, or it is the destination.
    :param headers: how the queue is made, as RabbitMQ's clients say it.
    :param exists: it is a queue that is there, however it was made, and is not to be declared.
    :param removable: it can be removed by its name, see :meth:`Connection.unsubscribe
        <gateway.messaging.provider.Connection.unsubscribe>`.
    """

    name: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    exists: bool = False
    removable: bool = False

    def header(self, name: str) -> str | None:
        """Return what a header says; None where there is no such header."""
        return next((value for each, value in self.headers if each == name), None)

    @property
    def is_plain(self) -> bool:
        """Whether a subscription has that queue in any case."""
        return not self.name and all(each in _PLAIN for each in self.headers)

    @property
    def is_stream(self) -> bool:
        """Whether each subscription gets all messages, by the headers."""
        return (self.header("x-queue-type") or "").strip() == "stream" or any(
            name.startswith("x-stream-") for name, _ in self.headers
        )


def exchange_of(topic: str) -> tuple[str, str] | None:
    """Return the exchange and the key that a topic stands for.

    The key is :data:`KEYLESS` for none of :data:`DIRECT` and :data:`FANNED`, and "" for none of
    others.

    :returns: None for a topic of ``amq.topic``.
    """
    if not topic.startswith(_RESERVED):
        return None
    if topic.startswith(_OTHERS):
        level, _, key = topic[len(_OTHERS) :].partition(".")
        name = level.replace("%2E", ".").replace("%25", "%")
        return (name, key) if topic_of(name, key) == topic else None
    for exchange in (DIRECT, *FANNED):
        if topic.startswith(f"{exchange}."):
            return exchange, topic[len(exchange) + 1 :]
    return None


def topic_of(exchange: str, key: str) -> str | None:
    """Return the topic that stands for an exchange and a key.

    :param key: "" for none.
    :returns: None for what has no name: a key is missing, the exchange is one of those by which
        RabbitMQ tells what others do, or it would be a wildcard.
    """
    if exchange in FANNED:
        return f"{exchange}.{key or KEYLESS}"
    if exchange == TOPICS:
        # That of another exchange it cannot be.
        return key if key and exchange_of(key) is None else None
    if exchange == DIRECT:
        return f"{exchange}.{key}" if key else None
    name = _level(exchange)
    return name and (f"{name}.{key}" if key else name)


def whole_exchange(exchange: str) -> str | None:
    """Return the pattern of an exchange's topics, those of all its keys.

    :returns: None where :func:`topic_of` has no name for any.
    """
    if exchange == TOPICS:
        return ">"
    if exchange == DIRECT or exchange in FANNED:
        return f"{exchange}.>"
    name = _level(exchange)
    return name and f"{name}.>"


def is_declared(topic: str) -> bool:
    """Whether a topic stands for an exchange that somebody has to declare."""
    return topic.startswith(_OTHERS) and exchange_of(topic) is not None


def _level(exchange: str) -> str | None:
    """Return the topic of an exchange without a key; None for none."""
    reserved = exchange.startswith(_RESERVED) and exchange != _ORDINARY
    if not exchange or reserved or exchange in _WILD:
        return None
    return _OTHERS + exchange.replace("%", "%25").replace(".", "%2E")
