"""ActiveMQ's own client, for what no user of the seam can do (``activemq/Native.java``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination
from tests.bridge.providers.jms.lines import Program

#: Octets that no body has: as a number it is of more octets than follow, as a type it is none, and
#: it is not compressed.
DAMAGED: Final = b"\x7f\xff\xff\xf0\x99 no body"

_PROGRAM: Final = Program(
    "Native", "activemq", class_path=tuple(sorted(Path("/usr/share/activemq/lib").glob("*.jar")))
)


def send(there: JMSProvider, destination: Destination, bodies: Sequence[str]) -> list[str]:
    """Send a text message for each; for ``map``, ``stream``, ``object``, ``text`` and
    ``properties`` one in which that cannot be read.

    :returns: their ids. It may block.
    """
    return [
        str(one)
        for one in _PROGRAM.ask(
            _url(there), "send", destination.kind.name.lower(), destination.name, *bodies
        )
    ]


def types(there: JMSProvider, queue: str) -> dict[str, str]:
    """The classes of a message's properties, which is received. It may block."""
    found = list(map(str, _PROGRAM.ask(_url(there), "types", queue)))
    return dict(zip(found[::2], found[1::2], strict=True))


def passed(there: JMSProvider, queue: str, text: str) -> tuple[str, str]:
    """A text as it comes back as body and as property. It may block."""
    body, value = map(str, _PROGRAM.ask(_url(there), "pass", queue, text))
    return body, value


def _url(there: JMSProvider) -> str:
    return there.factory.environment["java.naming.provider.url"]
