"""How a broker's dialect spells destinations.

Owns both directions. What is subscribed to may have wildcards; what is sent to may not.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from bridge.providers.stomp.dialect import Dialect, Wildcards
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination

_PREFIXES: Final = {Kind.QUEUE: "/queue/", Kind.TOPIC: "/topic/"}
_TEMPORARY: Final = (
    ("/remote-temp-queue/", Kind.QUEUE),
    ("/remote-temp-topic/", Kind.TOPIC),
    ("/temp-queue/temporary_destination://queue/", Kind.QUEUE),
    ("/temp-topic/temporary_destination://topic/", Kind.TOPIC),
    ("/temp-queue/", Kind.QUEUE),
    ("/temp-topic/", Kind.TOPIC),
    ("/reply-queue/", Kind.QUEUE),
)


def spell(dialect: Dialect, destination: Destination) -> str:
    """The ``destination`` or ``reply-to`` header for it.

    :raises InvalidDestination: STOMP has no spelling for such a name.
    """
    name = destination.name
    if not name or "\0" in name:
        raise InvalidDestination(destination, "a name is not empty and holds no NUL")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidDestination(destination, "the name holds half a surrogate pair") from None
    if destination.temporary:
        return dialect.temporary[destination.kind] + name
    if dialect.escapes_names:
        name = quote(name, safe=" !\"#$&'()*+,:;<=>?@[\\]^`{|}~")
    return _PREFIXES[destination.kind] + name if dialect.prefixes else name


def pattern(dialect: Dialect, destination: Destination) -> str:
    """The ``destination`` header of SUBSCRIBE; a topic's wildcards are spelt as the broker does.

    :raises InvalidDestination: as :func:`spell`.
    """
    if (
        destination.kind is Kind.TOPIC
        and dialect.wildcards is Wildcards.HASH
        and is_wild(destination.name)
    ):
        levels = destination.name.split(".")
        if levels[-1] == ">":
            # The rest is one level or more, and # stands for none, too.
            levels[-1:] = ["*", "#"]
        destination = destination._replace(name=".".join(levels))
    return spell(dialect, destination)


def is_wild(name: str) -> bool:
    """Whether the name of a topic is a pattern."""
    levels = name.split(".")
    return "*" in levels or levels[-1] == ">"


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern covers a topic's name. ``a.>`` covers ``a.b`` and ``a.b.c``, and not ``a``,
    which some brokers have it cover.
    """
    wanted, levels = pattern.split("."), name.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(levels) <= len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        one in ("*", other) for one, other in zip(wanted, levels, strict=True)
    )


def parse(dialect: Dialect, text: str, kind: Kind) -> Destination | None:
    """The destination that a header of MESSAGE means, None where it is none.

    :param kind: where the broker does not tell queues from topics: what it is.
    """
    for prefix, temporary_kind in _TEMPORARY:
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(temporary_kind, text[len(prefix) :], True)
    for plain_kind, prefix in _PREFIXES.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            name = text[len(prefix) :]
            return Destination(plain_kind, unquote(name) if dialect.escapes_names else name)
    if dialect.prefixes or not text:
        return None
    return Destination(kind, text)
