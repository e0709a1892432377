"""Frames, as the parser gives them and the serializer takes them.

STOMP 1.2, "STOMP Frames".

A frame is a :class:`Head` (command and headers) and a body. Heads of producers that repeat
themselves have more to them, see :mod:`gateway.stomp.wire.shapes`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Version(IntEnum):
    """Protocol versions; they differ in how header octets are escaped."""

    V1_0 = 10
    V1_1 = 11
    V1_2 = 12

    def __str__(self) -> str:
        return f"{self.value // 10}.{self.value % 10}"


class Head:
    """Command and headers of a frame.

    :param command: as it came, e.g. ``SEND``.
    :param headers: unescaped; of headers given twice the first (STOMP 1.2, "Repeated Header
        Entries"), in the order they came.
    :param content_length: the ``content-length`` header as a number, or -1 when absent.
    """

    __slots__ = ("_headers", "command", "content_length")

    def __init__(self, command: str, headers: dict[str, str], content_length: int = -1) -> None:
        self.command = command
        self._headers: dict[str, str] | None = headers
        self.content_length = content_length

    @property
    def headers(self) -> dict[str, str]:
        """As given."""
        headers = self._headers
        assert headers is not None, "whose headers are not read yet reads them itself"
        return headers

    def __repr__(self) -> str:
        shown = {
            name: "***" if name == "passcode" else value for name, value in self.headers.items()
        }
        return f"Head({self.command!r}, {shown!r})"


class Frame(NamedTuple):
    """A whole frame."""

    head: Head
    body: bytes = b""
