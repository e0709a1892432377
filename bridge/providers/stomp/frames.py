"""Frames and octets, by ``stompest.protocol``.

Owns what is to be set right in it for peers that are not strict: brokers that leave colons in header values, and sequences after a backslash that no
version has, are read as they are meant. Knows neither sockets nor what a frame asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stompest.error import StompError
from stompest.protocol import StompFrame, StompParser, StompSpec

VERSION: Final = StompSpec.VERSION_1_2
_ESCAPES: Final = {"\\n": "\n", "\\c": ":", "\\\\": "\\", "\\r": "\r"}
_COMMANDS: Final = frozenset(command.encode() for command in StompSpec.COMMANDS[VERSION])
#: More octets than any command has.
_LONGEST: Final = 32
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)


class MalformedFrames(Exception):
    """What a broker sends is not STOMP. :param reason: what is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it does not speak STOMP: {reason}")
        self.reason = reason


class Received(NamedTuple):
    """A frame from the broker; of repeated headers the first counts."""

    command: str
    headers: dict[str, str]
    body: bytes


class _Parser(StompParser):  # type: ignore[misc]  # stompest has no types
    """stompest's parser for STOMP 1.0, which takes header values as they come, reading UTF-8 as later versions do."""

    def __init__(self) -> None:
        super().__init__(StompSpec.VERSION_1_0)
        self._codec = "utf-8"

    @property
    def waiting(self) -> int:
        """Octets that are no whole frame yet."""
        return len(self._data)

    @property
    def head(self) -> bytes:
        """The first octets of a frame whose headers are not complete; none where there is no such."""
        return b"" if self._frame is not None else bytes(self._data[self._start : self._start + _LONGEST])


class FrameReader:
    """Octets to frames. Line ends between frames, which are heart-beats, are passed over.

    :param most: octets that a frame may have.
    """

    def __init__(self, most: int) -> None:
        self._parser = _Parser()
        self._most = most
        #: CONNECTED is never escaped, and an ERROR in its place may not be.
        self.escaped = False

    def read(self, octets: bytes) -> Iterator[Received]:
        """The frames that are complete with these octets.

        :raises MalformedFrames: after the frames before the place where it is no STOMP, or a frame is larger than it may be.
        """
        wrong: str | None = None
        try:
            self._parser.add(octets)
        except (StompError, ValueError) as error:
            wrong = str(error) or type(error).__name__
        while self._parser.canRead():
            frame = self._parser.get()
            headers: dict[str, str] = frame.headers
            if self.escaped and frame.command != StompSpec.CONNECTED and "\\" in "".join([*headers, *headers.values()]):
                headers = {_unescape(name): _unescape(value) for name, value in headers.items()}
            yield Received(frame.command, headers, frame.body)
        if wrong is not None:
            raise MalformedFrames(wrong[:200])
        line, end, _ = self._parser.head.partition(b"\n")
        if (end or len(line) == _LONGEST) and line.strip(b"\r") not in _COMMANDS:
            # It is not to be waited for the end of headers that are none.
            raise MalformedFrames(f"{line!r} is no command")
        if self._parser.waiting > self._most:
            raise MalformedFrames(f"a frame has more than the {self._most} octets that it may have")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[0], found[0]), text)


def write(command: str, headers: Sequence[tuple[str, str]], body: bytes = b"") -> bytes:
    """The octets of a frame, escaped as STOMP 1.2 says; CONNECT is not.

    :raises ValueError: a header of CONNECT holds a line end.
    """
    if command == StompSpec.CONNECT and any("\n" in text or "\r" in text or "\0" in text for pair in headers for text in pair):
        raise ValueError("a header of CONNECT cannot hold a line end or NUL")
    text = "".join([f"{name}:{value}\n" for name, value in headers])
    if text.count(":") == len(headers) == text.count("\n") and "\\" not in text and "\r" not in text:
        # Nothing to escape, as nearly always, and that is found out faster for all headers at once.
        return b"%s\n%s\n%s\0" % (command.encode(), text.encode(), body)
    return bytes(StompFrame(command, rawHeaders=headers, body=body, version=VERSION))
