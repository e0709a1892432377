"""Numbered messages: put where a link fetches them, and counted where it puts them. Speaks STOMP to
whatever broker.
"""

from __future__ import annotations

import re
from typing import Final

from tests.crash.client import PATIENCE, Client, Frame, Gone, encode

_NUMBERED: Final = re.compile(rb"number (\d{6})\.")
#: What RabbitMQ wants of a queue that several connections share; ignored elsewhere.
SHARED: Final = {"durable": "true", "auto-delete": "false", "exclusive": "false"}
#: The ``host`` that RabbitMQ knows.
_ANYWHERE: Final = {"host": "/"}


def body(number: int) -> bytes:
    return b"number %06d." % number


def number_of(frame: Frame) -> int:
    found = _NUMBERED.search(frame.body)
    assert found is not None, frame
    return int(found[1])


def produce(port: int, destination: str, first: int, last: int, **headers: str) -> None:
    """Send messages ``first`` to ``last``, persistent, and wait until they are stored."""
    with Client(port, headers=_ANYWHERE) as client:
        given = {"destination": destination, "persistent": "true", **SHARED, **headers}
        frames = [encode("SEND", given, body(number)) for number in range(first, last)]
        client.write(b"".join(frames))
        client.ask("SEND", given, body(last))


def declare(port: int, destination: str) -> None:
    """Make the destination exist where brokers make them on SUBSCRIBE."""
    with Client(port, headers=_ANYWHERE) as client:
        client.ask("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "client", **SHARED})


class LenientClient(Client):
    """A client for RabbitMQ, some of whose header values are no UTF-8."""

    undecodable = "replace"


def drain(port: int, destination: str, last: int, client_class: type[Client] = Client) -> list[int]:
    """The numbers of a destination's messages in the order of their coming, up to the first
    ``last``, which is not among them.

    :raises AssertionError: it does not come.
    """
    numbers: list[int] = []
    with client_class(port, headers=_ANYWHERE) as client:
        client.write(
            encode("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "auto", **SHARED})
        )
        while True:
            try:
                number = number_of(client.message())
            except (TimeoutError, Gone) as error:
                raise AssertionError(
                    f"{destination}: after {len(numbers)} messages, {numbers[-3:]} the last, no more came within {PATIENCE} s: {error!r}"
                ) from None
            if number == last:
                # Its receipt says that none of them comes back after a crash.
                client.ask("DISCONNECT", {})
                return numbers
            numbers.append(number)
