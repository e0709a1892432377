"""Queues and topics as options, columns and each broker write them.

Knows neither sockets nor rows. The table of brokers is :mod:`gateway.stomp.brokers`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.messaging.destination import Kind
from gateway.stomp.brokers import Dialect, with_slashes_escaped
from pipeline.errors import PipelineError

_WORDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}


class Place(NamedTuple):
    """A queue or topic by name, or a broker's other kind of destination.

    :param own: the broker's own spelling, "" where kind and name say all.
    """

    kind: Kind
    name: str
    own: str = ""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse ``queue:NAME``, ``/queue/NAME`` and the same for topics.

        Another text with a leading slash is kept as the broker's own spelling.

        :raises ValueError: for any other text; the error says what was expected.
        """
        word, colon, name = text.partition(":")
        if "\0" not in text:
            if colon and word in _WORDS and name.strip():
                return cls(_WORDS[word], name)
            for word, kind in _WORDS.items():
                if text.startswith(f"/{word}/") and len(text) > len(word) + 2:
                    return cls(kind, text[len(word) + 2 :])
            if text.startswith("/") and text.count("/") > 1 and not text.endswith("/"):
                return cls(Kind.TOPIC if "topic" in text.split("/")[1] else Kind.QUEUE, text, text)
        raise ValueError(
            "expected queue:NAME, topic:NAME, or the broker's own spelling, which begins with a slash, as /queue/NAME"
        )

    @property
    def wild(self) -> bool:
        """Whether it is a pattern of topics."""
        levels = self.name.split(".")
        return self.kind is Kind.TOPIC and not self.own and ("*" in levels or levels[-1] == ">")

    def __str__(self) -> str:
        return self.own or f"{'queue' if self.kind is Kind.QUEUE else 'topic'}:{self.name}"


def spelled(dialect: Dialect, place: Place) -> str:
    """Return the ``destination`` header for a place.

    :raises PipelineError: the broker cannot be told the name.
    """
    if place.own:
        return place.own
    try:
        name = with_slashes_escaped(place.name) if dialect.escapes_names else place.name
    except ValueError as error:
        raise PipelineError(f"{place}: {error}") from None
    if not dialect.prefixes:
        return name
    return f"/{'queue' if place.kind is Kind.QUEUE else 'topic'}/{name}"


def kind_headers(dialect: Dialect, place: Place, header: str) -> tuple[tuple[str, str], ...]:
    """Return the headers besides ``destination`` that give its kind.

    :param header: ``destination-type`` of SEND, or ``subscription-type`` of SUBSCRIBE.
    """
    if not dialect.prefixes and not place.own:
        return ((header, "ANYCAST" if place.kind is Kind.QUEUE else "MULTICAST"),)
    # What the broker spells its own way, as /exchange/..., is not necessarily a queue.
    return dialect.queue_headers if place.kind is Kind.QUEUE and not place.own else ()
