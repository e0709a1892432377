"""How STOMP spells destinations (Open MQ's Table 12-11).

``/queue/NAME``, ``/topic/NAME`` and the two forms of temporary ones; and several in one text.

Owns the spelling, and the temporary destinations that a connection names. Whether a name is any
good is the provider's to say.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.provider import Connection
from gateway.stomp.refusals import CommandRefused

#: What follows the prefix in the form that other connections may reply to, with the name that the
#: provider generated after it.
_GENERATED: Final = {
    Kind.QUEUE: "temporary_destination://queue/",
    Kind.TOPIC: "temporary_destination://topic/",
}
#: By kind, and whether it is temporary, how a destination begins.
_BEGINNINGS: Final = {
    (Kind.QUEUE, False): "/queue/",
    (Kind.TOPIC, False): "/topic/",
    (Kind.QUEUE, True): "/temp-queue/",
    (Kind.TOPIC, True): "/temp-topic/",
}


#: What ActiveMQ and Artemis read as options of a destination, such as
#: ``?consumer.prefetchSize=10``. Any other question mark is one.
_OPTIONS: Final = re.compile(r"\?[\w.-]+=.*", re.DOTALL)

#: Between the destinations of a composite one, ``/queue/a,/queue/b``, as ActiveMQ has it. A comma
#: that no slash follows is part of a name.
_BETWEEN: Final = re.compile(r"\s*,\s*(?=/)")
#: The most destinations of one SEND: each is a copy of its body to be stored.
_MOST_TOGETHER: Final = 100

#: Destinations that were parsed, and their spellings: producers repeat them. No temporary ones,
#: whose names come and go.
_parsed: Final[dict[str, Destination]] = {}
_spelt: Final[dict[Destination, str]] = {}
_MOST_KNOWN: Final = 4096


class LocalTemporary(NamedTuple):
    """A temporary destination by the name that this connection gave it.

    ``/temp-queue/NAME`` or ``/temp-topic/NAME``.
    """

    kind: Kind
    name: str


def split(text: str) -> list[str]:
    """Return the destinations that a SEND names, each as a text.

    There are several where it is ``/queue/a,/queue/b``.

    :raises CommandRefused: they are too many.
    """
    parts = _BETWEEN.split(text)
    if len(parts) > _MOST_TOGETHER:
        raise CommandRefused(
            f"destination names {len(parts)} destinations: {_MOST_TOGETHER} is the limit of one SEND"
        )
    return parts


def parse(text: str, header: str) -> Destination | LocalTemporary:
    """What a header value of a client means.

    :param header: the header's name, for the error.
    :raises CommandRefused: it is no destination.
    """
    known = _parsed.get(text)
    if known is not None:
        return known
    if "," in text and _BETWEEN.search(text) is not None:
        raise CommandRefused(
            f"{header} '{text[:200]}' names several destinations, which only the destination of a SEND may: expected one; "
            "SUBSCRIBE to each of them with an id of its own"
        )
    for (kind, temporary), prefix in _BEGINNINGS.items():
        if not text.startswith(prefix):
            continue
        name = text[len(prefix) :].strip()
        if temporary:
            generated = _GENERATED[kind]
            if not name.startswith(generated):
                if name:
                    return LocalTemporary(kind, name)
                break
            name = name[len(generated) :]
        if not temporary and (options := _OPTIONS.search(name)) is not None:
            raise CommandRefused(
                f"{header} '{text[:200]}' has options, which are headers here, such as prefetch-count on SUBSCRIBE: "
                f"expected {text[: text.index(options[0])][:200]}"
            )
        if name:
            destination = Destination(kind, name, temporary)
            if not temporary and len(_parsed) < _MOST_KNOWN:
                _parsed[text] = destination
            return destination
        break
    raise CommandRefused(
        f"{header} '{text[:200]}' is no destination: expected /queue/NAME, /topic/NAME, /temp-queue/NAME or /temp-topic/NAME"
    )


def spell(destination: Destination) -> str:
    """Return how clients are told of ``destination``.

    Any of them may send to that string.
    """
    known = _spelt.get(destination)
    if known is not None:
        return known
    kind, name, temporary = destination
    generated = _GENERATED[kind] if temporary else ""
    spelling = f"{_BEGINNINGS[kind, temporary]}{generated}{name}"
    if not destination.temporary and len(_spelt) < _MOST_KNOWN:
        _spelt[destination] = spelling
    return spelling


class Temporaries:
    """The destinations that one client names, temporary ones included.

    Open MQ's Table 12-11, ``destination`` and ``reply-to``.

    ``/temp-queue/NAME`` is made when it is first named, wherever that is, and means the same in
    every frame of the connection. Other connections see the string that the provider's random name
    makes, and so does this one in MESSAGE; both may send to it. The provider sees to it that only
    this connection consumes, and that all are gone with it.

    :param most: how many temporary ones the client may make.
    """

    def __init__(self, connection: Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._named: dict[LocalTemporary, Destination] = {}

    def resolve(self, text: str, header: str) -> Destination:
        """The destination that ``text`` means.

        :param header: the header's name, for errors.
        :raises CommandRefused: no destination, or one temporary too many.
        :raises MessagingError: the provider makes none.
        """
        found = parse(text, header)
        if isinstance(found, Destination):
            return found
        known = self._named.get(found)
        if known is not None:
            return known
        if len(self._named) >= self._most:
            raise CommandRefused(
                f"{header} '{text[:200]}' is one temporary destination too many: {self._most} is the limit"
            )
        made = self._named[found] = self._connection.temporary(found.kind)
        return made
