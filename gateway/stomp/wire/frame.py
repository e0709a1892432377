"""Frames, as the parser gives them and the serializer takes them.

STOMP 1.2, "STOMP Frames".

A frame is a :class:`Head` (command and headers) and a body. Producers repeat their header blocks,
so the parser gives the *same* head object again for the same octets; the interpreter of heads may
keep what it made of one in ``Head.plan``.
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

    __slots__ = ("base", "command", "content_length", "headers", "plan", "repeats")

    def __init__(
        self, command: str, headers: dict[str, str], content_length: int = -1, repeats: bool = False
    ) -> None:
        self.command = command
        self.headers = headers
        self.content_length = content_length
        #: The parser keeps this head and will give it again, so that a plan made from it is worth
        #: keeping.
        self.repeats = repeats
        #: The same head without its ``receipt``, where the parser has read it apart: receipts
        #: differ from frame to frame, the rest may come again.
        self.base: Head | None = None
        #: Whatever the interpreter of this head wants to find again the next time it sees it.
        self.plan: object | None = None

    def __repr__(self) -> str:
        shown = {
            name: "***" if name == "passcode" else value for name, value in self.headers.items()
        }
        return f"Head({self.command!r}, {shown!r})"


class Frame(NamedTuple):
    """A whole frame."""

    head: Head
    body: bytes = b""
