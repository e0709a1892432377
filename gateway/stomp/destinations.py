"""How STOMP spells destinations (Open MQ's Table 12-11).

``/queue/NAME``, ``/topic/NAME`` and the two forms of temporary ones; and several in one text.

Owns the spelling, and the temporary destinations that a connection names. Whether a name is any
good is the provider's to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from gateway.messaging.dead import DMQ, UNDELIVERED_REASON, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue, subscription_of
from gateway.messaging.provider import Connection
from gateway.stomp.refusals import CommandRefused, OneTooMany, Refusal

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

#: How ActiveMQ writes them among several in one text.
_SCHEMES: Final = {Kind.QUEUE: "queue://", Kind.TOPIC: "topic://"}

#: What ActiveMQ and Artemis read as options of a destination, such as
#: ``?consumer.prefetchSize=10``. Any other question mark is one.
_OPTIONS: Final = re.compile(r"\?[\w.-]+=.*", re.DOTALL)

#: The one of them that SUBSCRIBE takes where it stands alone.
_EXCLUSIVE: Final = re.compile(r"\?consumer\.exclusive=(true|false)\s*\Z")

#: Between the destinations of a composite one, ``/queue/a,/queue/b``, as ActiveMQ has it. A comma
#: that no slash follows is part of a name.
_BETWEEN: Final = re.compile(r"\s*,\s*(?=/)")
#: The most destinations of one SEND: each is a copy of its body to be stored.
_MOST_TOGETHER: Final = 100

#: The spellings of destinations: consumers repeat them. None of temporary ones.
_spelt: Final[dict[Destination, str]] = {}
_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN: Final = 256


#: What ActiveMQ calls the temporary destinations of other connections.
_REMOTE: Final = {Kind.QUEUE: "/remote-temp-queue/", Kind.TOPIC: "/remote-temp-topic/"}


#: What a scheme behind ``/queue/`` or ``/topic/`` makes of it: a temporary one by its own name is
#: another connection's.
_NAMED_SCHEMES: Final = {
    "queue://": _BEGINNINGS[Kind.QUEUE, False],
    "topic://": _BEGINNINGS[Kind.TOPIC, False],
    "temp-queue://": _REMOTE[Kind.QUEUE],
    "temp-topic://": _REMOTE[Kind.TOPIC],
}


class LocalTemporary(NamedTuple):
    """A temporary destination by the name that this connection gave it.

    ``/temp-queue/NAME`` or ``/temp-topic/NAME``.
    """

    kind: Kind
    name: str


class Unrouted(NamedTuple):
    """A name alone: whether it is a queue's is for what there is to say.

    :param queue: it is this where there is this.
    """

    queue: Destination
    topic: Destination


class Qualified(NamedTuple):
    """``ADDRESS::NAME``, of a queue or of a topic.

    Unless a type says which, what there is does.

    :param queue: the queue of that name, whatever its address.
    :param topic: the topic that the address is, and
    :param name: its durable subscription.
    :param typed: the client says that it is of a topic.
    """

    queue: Destination
    topic: Destination
    name: str
    typed: bool

    def is_of_topic(self, exists: Callable[[Destination], bool | None]) -> bool:
        """Whether it is a subscription of the topic.

        Without a type it is the queue. Where there is no such queue, it may be a topic's.
        """
        return self.typed or (exists(self.queue) is False and bool(exists(self.topic)))


class ExchangeKey(NamedTuple):
    """An exchange that RabbitMQ has where it was declared, and a key.

    :param topic: that stands for both; None where none does.
    :param refused: what is answered where the broker has no exchanges.
    """

    topic: Destination | None
    refused: CommandRefused


def is_unrouted(text: str) -> bool:
    """Whether a destination of Artemis' clients is a name alone."""
    return bool(text) and not text.startswith("/") and "::" not in text


def address_of(text: str) -> tuple[str, bool]:
    """Return the address of ``ADDRESS::NAME``.

    :returns: the address, "" for none; and whether it is of no kind but what there is.
    """
    address, separator, queue = text.partition("::")
    if not separator or not queue or "::" in queue:
        return "", False
    if not address.startswith("/"):
        return address.strip(), True
    prefix = _BEGINNINGS[Kind.QUEUE, False]
    return (address.removeprefix(prefix).strip() if address.startswith(prefix) else ""), False


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


def split_composite(text: str) -> list[str]:
    """As :func:`split`, with any comma between destinations, as in ActiveMQ.

    A part without a prefix has that of the first; ``queue://`` and ``topic://`` are prefixes, too.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > _MOST_TOGETHER:
        raise CommandRefused(
            f"destination names {len(parts)} destinations: {_MOST_TOGETHER} is the limit of one frame"
        )
    if len(parts) < 2:
        # As of SEND: alone, queue:// and topic:// are part of a name.
        return parts
    first = parts[0] = without_scheme(parts[0])
    prefix = next((each for each in _BEGINNINGS.values() if first.startswith(each)), "")
    return [_prefixed(part, prefix) for part in parts]


def without_scheme(text: str) -> str:
    """Return ``/topic/a`` for ``/queue/topic://a``.

    Of two kinds, the second counts. In ActiveMQ, alone ``topic://a`` is the name of a queue.
    """
    if "://" in text:
        for prefix in (_BEGINNINGS[Kind.QUEUE, False], _BEGINNINGS[Kind.TOPIC, False]):
            name = text[len(prefix) :]
            if text.startswith(prefix) and name.startswith(tuple(_NAMED_SCHEMES)):
                scheme, _, rest = name.partition("://")
                return _NAMED_SCHEMES[f"{scheme}://"] + rest
    return text


def _prefixed(part: str, prefix: str) -> str:
    for kind, scheme in _SCHEMES.items():
        if part.startswith(scheme):
            return _BEGINNINGS[kind, False] + part[len(scheme) :]
    return part if part.startswith("/") else prefix + part


def split_exclusive(text: str) -> tuple[str, bool | None]:
    """Return a destination without ActiveMQ's ``?consumer.exclusive=``.

    And its value; None where it has not that option, or others too.
    """
    found = _EXCLUSIVE.search(text)
    return (text, None) if found is None else (text[: found.start()], found[1] == "true")


class Source(NamedTuple):
    """What a subscription receives from.

    :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
    :param selector: of the messages there, those that the client means by that name; "" for all.
    :param unless: where there is this, the client means it instead.
    :param queue: of a topic: the name of a durable subscription that consumers share; "" for none.
    :param address: of a queue: see :class:`~gateway.messaging.provider.ConsumerSpec`.
    """

    destination: Destination
    none_or_more: bool = False
    selector: str = ""
    unless: Destination | None = None
    queue: str = ""
    address: str = ""


class Naming(Protocol):
    """What clients call destinations."""

    @property
    def dead(self) -> str:
        """Another name of the dead message queue; "" for nothing.

        At another broker it is a queue of that name.
        """

    def parse(
        self, text: str, header: str
    ) -> Destination | LocalTemporary | Unrouted | Qualified | ExchangeKey:
        """Return what a header value of a client means.

        :param header: the header's name, for the error.
        :raises CommandRefused: it is no destination.
        """

    def source(self, destination: Destination) -> Source:
        """Return what a subscription to a destination receives from.

        :raises CommandRefused: it cannot be subscribed to.
        """


class PlainNames:
    """The names of this module.

    :param bare: a name alone is a queue's.
    :param dead: what the dead message queue is called besides its own name; "" for nothing.
    :param remote: temporary destinations of others begin with ``/remote-temp-queue/`` and
        ``/remote-temp-topic/``.
    :param trims: blanks around a destination do not count.
    :param none_or_more: ``a.>`` of a subscription covers ``a``, too.
    :param options: what follows a question mark is no part of a name, and means nothing.
    :param schemes: ``/queue/topic://a`` is the topic ``a``.
    """

    def __init__(
        self,
        bare: bool = False,
        dead: str = "",
        remote: bool = False,
        trims: bool = False,
        none_or_more: bool = False,
        options: bool = False,
        schemes: bool = False,
    ) -> None:
        self._schemes: Final = schemes
        self._options: Final = options
        self._none_or_more: Final = none_or_more
        self._trims: Final = trims
        self._bare: Final = bare
        self.dead: Final = dead
        self._remote: Final = remote
        #: Destinations that were parsed: producers repeat them. No temporary ones, whose names come
        #: and go.
        self._parsed: Final[dict[str, Destination]] = {}

    def parse(self, text: str, header: str) -> Destination | LocalTemporary | Unrouted | Qualified:
        """See :meth:`Naming.parse`."""
        known = self._parsed.get(text)
        if known is not None:
            return known
        asked = text.strip() if self._trims else text
        found = self._found(without_scheme(asked) if self._schemes else asked, header)
        keep = len(self._parsed) < _MOST_KNOWN and len(text) <= _LONGEST_KNOWN
        if keep and isinstance(found, Destination) and not found.temporary:
            self._parsed[text] = found
        return found

    def source(self, destination: Destination) -> Source:
        """See :meth:`Naming.source`."""
        *before, last = destination.name.split(".")
        # To ActiveMQ it is a wildcard as the last level only.
        return Source(destination, self._none_or_more and last == ">" and ">" not in before)

    def _found(self, text: str, header: str) -> Destination | LocalTemporary:
        if "," in text and _BETWEEN.search(text) is not None:
            raise CommandRefused(
                f"{header} '{text[:200]}' names several destinations, which only the destination of a SEND may: expected one; "
                "SUBSCRIBE to each of them with an id of its own"
            )
        for (kind, temporary), prefix in _BEGINNINGS.items():
            if not text.startswith(prefix):
                continue
            name = text[len(prefix) :].strip()
            if self._options:
                name = name.partition("?")[0]
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
                if self.dead and name == self.dead and kind is Kind.QUEUE:
                    return DMQ
                return Destination(kind, name, temporary)
            break
        for kind, prefix in _REMOTE.items():
            if self._remote and text.startswith(prefix) and len(text) > len(prefix):
                return Destination(kind, text[len(prefix) :], True)
        if not text:
            raise CommandRefused(
                f"{header} is empty: expected /queue/NAME, /topic/NAME, /temp-queue/NAME or /temp-topic/NAME",
                refusal=Refusal.EMPTY_DESTINATION,
            )
        if self._bare and not text.startswith("/"):
            return self._found(f"/queue/{text}", header)
        raise CommandRefused(
            f"{header} '{text[:200]}' is no destination: expected /queue/NAME, /topic/NAME, /temp-queue/NAME or /temp-topic/NAME"
        )


#: Where Artemis' clients look for what has expired; here it is with the other dead messages.
_EXPIRED: Final = Destination(Kind.QUEUE, "ExpiryQueue")
_HAS_EXPIRED: Final = f"{UNDELIVERED_REASON} = '{DeadReason.EXPIRED.value}'"
#: The address that takes Artemis' management messages, see :mod:`gateway.stomp.management`. It is no
#: queue: what is sent there is carried out, and nothing waits there.
MANAGEMENT: Final = Destination(Kind.QUEUE, "activemq.management")
_MANAGED: Final = frozenset(
    (MANAGEMENT.name, *[f"{beginning}{MANAGEMENT.name}" for beginning in ("/queue/", "/topic/")])
)
#: Addresses of Artemis' own, and what is to be known about them.
_ADDRESSES: Final = {
    MANAGEMENT.name: "it takes requests to manage the broker, as the destination of a SEND: the replies come to the reply-to of each",
    "activemq.notifications": "nothing answers there; 'imqcmd events -follow' tells what happens",
}


class ArtemisNames(PlainNames):
    """Plain names, and addresses alone; ``#`` is a wildcard."""

    def __init__(self) -> None:
        super().__init__(bare=True, dead="DLQ")

    def parse(self, text: str, header: str) -> Destination | LocalTemporary | Unrouted | Qualified:
        """See :meth:`Naming.parse`."""
        if text in _MANAGED and header == "destination":
            return MANAGEMENT
        if "::" in text:
            return self._qualified(text, header)
        if not is_unrouted(text):
            return super().parse(text, header)
        if text == _EXPIRED.name:
            return _EXPIRED
        queue = super().parse(f"/queue/{text}", header)
        topic = super().parse(f"/topic/{text}", header)
        assert isinstance(queue, Destination)
        assert isinstance(topic, Destination)
        return Unrouted(queue, topic)

    def _qualified(self, text: str, header: str) -> Destination | LocalTemporary | Qualified:
        address, _, name = text.partition("::")
        kind = next((each for each in Kind if address.startswith(_BEGINNINGS[each, False])), None)
        if kind is None and address.startswith("/"):
            return super()._found(text, header)
        if kind is not None:
            address = address.removeprefix(_BEGINNINGS[kind, False])
        address, name = address.strip(), name.strip()
        if not name or "::" in name:
            raise CommandRefused(f"{header} is invalid. Invalid queue name: {text[:200]}")
        queue = self._found(f"/queue/{name}", header)
        assert isinstance(queue, Destination)
        if kind is Kind.QUEUE or not address:
            return queue
        topic = self._found(f"/topic/{address}", header)
        assert isinstance(topic, Destination)
        return Qualified(queue, topic, name, kind is Kind.TOPIC)

    def source(self, destination: Destination) -> Source:
        """See :meth:`Naming.source`."""
        if destination == _EXPIRED:
            return Source(DMQ, selector=_HAS_EXPIRED, unless=_EXPIRED)
        if destination is MANAGEMENT:
            raise _not_there(destination.name, "destination", destination.name)
        return from_hash(destination)

    def _found(self, text: str, header: str) -> Destination | LocalTemporary:
        found = super()._found(text, header)
        if isinstance(found, Destination) and found.name in _ADDRESSES:
            raise _not_there(text, header, found.name)
        return found


def _not_there(text: str, header: str, name: str) -> CommandRefused:
    """Refuse an address of Artemis' own.

    :param name: the address that ``text`` is.
    """
    return CommandRefused(f"{header} '{text[:200]}': {_ADDRESSES[name]}")


def split_queue(
    text: str, naming: Naming, exists: Callable[[Destination], bool | None]
) -> tuple[str, str, str]:
    """Return what ``ADDRESS::NAME`` is to a subscription.

    :param text: with the prefix that its routing type stands for, if there is one.
    :returns: what is subscribed to, the name of the durable subscription of that topic, and the
        address of that queue; both names are "" where the text names something else.
    """
    found = naming.parse(text, "destination") if "::" in text else None
    if isinstance(found, Qualified) and found.is_of_topic(exists):
        return _BEGINNINGS[Kind.TOPIC, False] + found.topic.name, found.name, ""
    return text, "", address_of(text)[0]


def from_hash(destination: Destination) -> Source:
    """Return what a name with the wildcard ``#`` means.

    It stands for none or more levels, wherever it is.
    """
    levels = [">" if level == "#" else level for level in destination.name.split(".")]
    return Source(destination._replace(name=".".join(levels)), ">" in levels)


#: As Open MQ's Table 12-11 has it.
PLAIN: Final = PlainNames()


def spell_remote(destination: Destination) -> str:
    """As :func:`spell`, with ActiveMQ's prefixes for temporary ones."""
    if destination.temporary:
        return _REMOTE[destination.kind] + destination.name
    return spell(destination)


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

    :param naming: what the client calls them.
    :param most: how many temporary ones the client may make.
    :param replies: called with each that is made for ``reply-to``, and what the client calls it.
    """

    def __init__(
        self,
        connection: Connection,
        naming: Naming,
        most: int,
        replies: Callable[[str, Destination], None] | None = None,
    ) -> None:
        self._connection = connection
        self._naming = naming
        self._replies = replies
        self._most = most
        self._named: dict[LocalTemporary, Destination] = {}
        #: What the client called each first.
        self.texts: Final[dict[Destination, str]] = {}

    def resolve(self, text: str, header: str) -> Destination:
        """The destination that ``text`` means.

        :param header: the header's name, for errors.
        :raises CommandRefused: no destination, or one temporary too many.
        :raises MessagingError: the provider makes none.
        """
        found = self._naming.parse(text, header)
        if isinstance(found, Destination):
            dead = self._naming.dead
            if found is DMQ and dead and self._connection.exists(Queue(dead)) is None:
                return Queue(dead)
            return found
        if isinstance(found, Qualified):
            return self._qualified(found, text, header)
        if isinstance(found, ExchangeKey):
            if found.topic is None or not self._connection.has_exchanges(found.topic):
                raise found.refused
            return found.topic
        if isinstance(found, Unrouted):
            # Where the provider does not tell, it is a queue.
            return found.topic if self._connection.exists(found.queue) is False else found.queue
        known = self._named.get(found)
        if known is not None:
            return known
        if len(self._named) >= self._most:
            raise OneTooMany(
                f"{header} '{text[:200]}' is one temporary destination too many: {self._most} is the limit"
            )
        made = self._named[found] = self._connection.temporary(found.kind)
        self.texts[made] = text
        if self._replies is not None and header == "reply-to":
            self._replies(text, made)
        return made

    def _qualified(self, found: Qualified, text: str, header: str) -> Destination:
        """The destination that ``ADDRESS::NAME`` means where it is sent to.

        :raises CommandRefused: it is of a topic, which the provider cannot send to one
            subscription of, or which it is no destination of in that header.
        """
        exists = self._connection.exists
        if not found.is_of_topic(exists):
            return found.queue
        if header != "destination" or exists(found.topic) is None:
            raise CommandRefused(
                f"{header} '{text[:200]}' names a queue of the topic {found.topic.name[:200]}, which is a durable subscription here: "
                f"SUBSCRIBE to it, and SEND to {found.topic.name[:200]}, for all that subscribe"
            )
        return subscription_of(found.topic, found.name)
