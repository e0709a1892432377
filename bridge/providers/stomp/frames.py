"""Frames to bytes and bytes to frames, by ``stompest.protocol``.

Owns the corrections for peers that are not strict: colons in header values, and escape sequences
that no version has, are read as they are meant. Owns also the limits of a frame, and refuses a
larger one as soon as that is known. Knows neither sockets nor the meaning of frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stompest.error import StompError, StompFrameError
from stompest.protocol import StompFrame, StompParser, StompSpec

VERSION: Final = StompSpec.VERSION_1_2
_ESCAPES: Final = {"\\n": "\n", "\\c": ":", "\\\\": "\\", "\\r": "\r"}
_COMMANDS: Final = frozenset(command.encode() for command in StompSpec.COMMANDS[VERSION])
#: More bytes than any command has.
_LONGEST: Final = 32
#: Bytes that the command and headers of a frame may have, and its header lines; much more than
#: brokers let their own clients send.
LARGEST_HEADERS: Final = 1_048_576
MOST_HEADERS: Final = 1000
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_LINE_ENDS: Final = re.compile(rb"\n*")


class MalformedFrames(Exception):
    """The broker sends something that is not STOMP.

    :param reason: what is wrong with it.
    """

    _ABOUT = "it does not speak STOMP"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{self._ABOUT}: {reason}")
        self.reason = reason


class FrameTooLarge(MalformedFrames):
    """A frame is larger than it may be.

    :param reason: its size, the limit, and what sets that.
    """

    _ABOUT = "it sent a frame that is too large"


class Received(NamedTuple):
    """A frame from the broker; of repeated headers the first counts.

    :param head: bytes of its command and headers, as they arrived.
    """

    command: str
    headers: dict[str, str]
    body: bytes
    head: int


class _Parser(StompParser):  # type: ignore[misc]  # stompest has no types
    """stompest's parser for STOMP 1.0, but with UTF-8.

    It leaves header values as they are.

    It looks at each byte a bounded number of times, however the bytes were cut. :param most: bytes
    that a frame may have.
    """

    def __init__(self, most: int) -> None:
        super().__init__(StompSpec.VERSION_1_0)
        self._codec = "utf-8"
        self._most = most
        #: Up to here there is no end of the headers.
        self._looked = 0

    @property
    def waiting(self) -> int:
        """Bytes that are not a whole frame yet."""
        return len(self._data)

    @property
    def head(self) -> bytes:
        """The first bytes of a frame whose headers are not complete.

        Empty if there is no such frame.
        """
        return (
            b""
            if self._frame is not None
            else bytes(self._data[self._start : self._start + _LONGEST])
        )

    def check(self) -> None:
        """:raises FrameTooLarge: the incomplete frame is too large already."""
        if self._frame is None and self.waiting - self._start > LARGEST_HEADERS:
            raise _too_many_octets(self.waiting - self._start, "of headers so far")
        if self.waiting > self._most:
            raise FrameTooLarge(
                f"{self.waiting} octets so far, and stomp.max-frame is {self._most}"
            )

    def _parseHeartBeat(self) -> bool:
        if self._data[self._start] != self._LINE_DELIMITER:
            return False
        # All at once, and nothing of them is kept: only they may arrive for days.
        end = _LINE_ENDS.match(self._data, self._start).end()  # type: ignore[union-attr]
        self._truncate(end)
        return True

    def _parseHead(self) -> bool:
        end = self._data.find(b"\n\n", max(self._start, self._looked - 1))
        if end < 0:
            self._looked = len(self._data)
            return False
        start, self._looked = self._start, 0
        if end - start > LARGEST_HEADERS:
            raise _too_many_octets(end - start, "of headers")
        lines = self._data.count(b"\n", start, end)
        if lines > MOST_HEADERS:
            raise FrameTooLarge(f"{lines} headers, and a frame may have {MOST_HEADERS}")
        if not super()._parseHead():
            return False
        self._frame.head = self._start - start
        announced = 0 if self._eof is None else self._eof - self._start
        if announced < 0:
            raise StompFrameError(f"content-length is {announced}")
        if self._start + announced >= self._most:
            raise FrameTooLarge(
                f"content-length is {announced}, and stomp.max-frame is {self._most} octets with the headers"
            )
        return True


def _too_many_octets(octets: int, of: str) -> FrameTooLarge:
    return FrameTooLarge(
        f"{octets} octets {of}, and the headers of a frame may have {LARGEST_HEADERS}"
    )


class FrameReader:
    """Bytes to frames.

    Line ends between frames, which are heart-beats, are skipped.

    :param most: bytes that a frame may have.
    """

    def __init__(self, most: int) -> None:
        self._parser = _Parser(most)
        #: CONNECTED is never escaped, and an ERROR in its place may not be.
        self.escaped = False

    def read(self, octets: bytes) -> Iterator[Received]:
        """The frames that are complete with these bytes.

        :raises MalformedFrames: after the last good frame, if the bytes behind it are not STOMP or
            a frame is too large.
        """
        wrong: MalformedFrames | None = None
        try:
            self._parser.add(octets)
        except MalformedFrames as error:
            wrong = error
        except (StompError, ValueError) as error:
            wrong = MalformedFrames((str(error) or type(error).__name__)[:200])
        while self._parser.canRead():
            frame = self._parser.get()
            headers: dict[str, str] = frame.headers
            if (
                self.escaped
                and frame.command != StompSpec.CONNECTED
                and "\\" in "".join([*headers, *headers.values()])
            ):
                headers = {_unescape(name): _unescape(value) for name, value in headers.items()}
            yield Received(frame.command, headers, frame.body, frame.head)
        if wrong is not None:
            try:
                raise wrong
            finally:
                # Its traceback has this call, with the last frame: a reference cycle, which the
                # collector may not visit for long.
                del wrong
        line, end, _ = self._parser.head.partition(b"\n")
        if (end or len(line) == _LONGEST) and line.strip(b"\r") not in _COMMANDS:
            # Do not wait for a header block that cannot complete.
            raise MalformedFrames(f"{line!r} is not a command")
        self._parser.check()

    def forget(self) -> None:
        """Drop the frames that were not read, and what is no whole frame yet."""
        self._parser.reset()


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[0], found[0]), text)


def write(command: str, headers: Sequence[tuple[str, str]], body: bytes = b"") -> bytes:
    """Return a frame as bytes, escaped as in STOMP 1.2, except CONNECT.

    :raises ValueError: a header of CONNECT holds a line end.
    """
    if command == StompSpec.CONNECT and any(
        "\n" in text or "\r" in text or "\0" in text for pair in headers for text in pair
    ):
        raise ValueError("a header of CONNECT cannot hold a line end or NUL")
    text = "".join([f"{name}:{value}\n" for name, value in headers])
    if (
        text.count(":") == len(headers) == text.count("\n")
        and "\\" not in text
        and "\r" not in text
    ):
        # Nothing to escape, as nearly always. Checking all headers at once is faster.
        return b"%s\n%s\n%s\0" % (command.encode(), text.encode(), body)
    return bytes(StompFrame(command, rawHeaders=headers, body=body, version=VERSION))
