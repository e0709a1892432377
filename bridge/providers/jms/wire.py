"""Frames between the gateway and a Java process of its own.

Sans-I/O: bytes in, frames out, and the other way round.

A *frame* is u32 length of what follows (5 to :data:`LONGEST`), u8 type, u32 channel, payload. All
numbers are big-endian; a *text* is u32 its length in bytes and then UTF-8, as in
:mod:`bridge.providers.jms.batches`; *pairs* are u32 their number, and name and value of each as
texts. ``Wire.java`` has the same layout.

From the gateway:

==== ======== ======================================================================================================================
Type Frame    Payload
==== ======== ======================================================================================================================
1    hello    u16 version, pairs of system properties; the first frame, on channel 0
2    call     u32 tag, u8 verb, u32 number of a factory or connection, and what the verb needs; the first on a channel makes it a lane
3    open     u32 connection, u8 mode, i32 its argument; makes the channel a session
4    part     of a session's questions, which a later frame completes
5    ask      a session's questions, or the last part of them
6    window   u32 bytes of answers that were taken
7    end      nothing more will be asked on this channel
8    abandon  the same; answers are not waited for
9    beat     nothing; answered at once, whatever else goes on
==== ======== ======================================================================================================================

From Java:

==== ======== ======================================================================================================================
65   ready    u16 version, texts: digest of the sources of the classes, version of Java; i64 largest heap
66   result   u32 tag, what the verb gives
67   failure  u32 tag, i32 kind of failure, text
68   piece    of a turn's answers, which a later frame completes
69   answer   u32 number of *ask* frames that this turn has answered, then the turn's answers, or the last piece of them
70   taken    u32 bytes of questions that use their window no more
71   ended    the channel's thread has ended
72   broke    i32 kind of failure, text: the session could not be opened, or a turn failed; *ended* follows
73   lost     text, the reason; the channel is the connection's number
74   alive    i64 bytes of heap in use, i64 largest heap, u32 threads
==== ======== ======================================================================================================================

Each session has a window of :data:`WINDOW` bytes in each direction, so that one large body, or a
slow side, holds up no other session. A side may begin a frame as long as its window is not used up.
The other side tells what it has taken once that is a quarter of the window: each such frame wakes
its reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

VERSION: Final = 1
#: The longest that may follow a length, in bytes.
LONGEST: Final = 256 << 10
#: Bytes that may be on their way, in each direction of a session.
WINDOW: Final = 1 << 20

_HEAD: Final = struct.Struct(">IBI")
_PREFIX: Final = 5
LONGEST_PAYLOAD: Final = LONGEST - _PREFIX
_NUMBER: Final = struct.Struct(">I")
_VERSION: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">q")
_FAILURE: Final = struct.Struct(">i")
_CALL: Final = struct.Struct(">IBI")
_OPEN: Final = struct.Struct(">IBi")
_ALIVE: Final = struct.Struct(">qqI")


class WireError(Exception):
    """Java sent something that is not a frame of this version.

    The text says what was expected.
    """


class Type(IntEnum):
    """Types of frames."""

    HELLO = 1
    CALL = 2
    OPEN = 3
    PART = 4
    ASK = 5
    WINDOW = 6
    END = 7
    ABANDON = 8
    BEAT = 9
    READY = 65
    RESULT = 66
    FAILURE = 67
    PIECE = 68
    ANSWER = 69
    TAKEN = 70
    ENDED = 71
    BROKE = 72
    LOST = 73
    ALIVE = 74


class Verb(IntEnum):
    """The calls, and their arguments and results."""

    #: text lookup name, pairs of the environment: text class, u8 whether XA.
    FACTORY = 1
    #: u32 factory; optional texts user, passcode, client identifier: optional text client
    #: identifier, text product, u8 xa, u8 plain.
    CONNECT = 2
    #: text lookup name, pairs of the environment: texts ``queue`` or ``topic``, and the name.
    REMEMBER = 3
    #: u8 1 for a topic, text name.
    TEMPORARY = 4
    #: text name of the durable subscription.
    UNSUBSCRIBE = 5
    #: nothing.
    CLOSE = 6
    #: u8 1 for a topic, text name of a temporary destination.
    DROP = 7


class Frame(NamedTuple):
    """A frame that was read."""

    type: int
    channel: int
    payload: bytes


class Ready(NamedTuple):
    """A Java process introduces itself. :param heap: the largest, in bytes."""

    made_of: str
    java: str
    heap: int


class Alive(NamedTuple):
    """The state of a Java process.

    :param used: bytes of heap, garbage included.
    :param heap: the largest, in bytes.
    """

    used: int
    heap: int
    threads: int


class Frames:
    """Reads frames from bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now. The caller must iterate to the end.

        :raises WireError: a length is out of range.
        """
        buffer = self._buffer
        buffer += data
        position, end = 0, len(buffer)
        try:
            while end - position >= _HEAD.size:
                length, kind, channel = _HEAD.unpack_from(buffer, position)
                if not _PREFIX <= length <= LONGEST:
                    raise WireError(f"a frame of {length} bytes: expected {_PREFIX} to {LONGEST}")
                after = position + 4 + length
                if after > end:
                    break
                payload = bytes(buffer[position + _HEAD.size : after])
                position = after
                yield Frame(kind, channel, payload)
        finally:
            del buffer[:position]


def frame(kind: Type, channel: int, payload: bytes = b"") -> bytes:
    """A frame as bytes. :raises WireError: it is longer than a frame may be."""
    if len(payload) > LONGEST_PAYLOAD:
        raise WireError(f"{kind.name} of {len(payload)} bytes: expected at most {LONGEST_PAYLOAD}")
    return _HEAD.pack(_PREFIX + len(payload), kind, channel) + payload


def pieces(channel: int, questions: bytes) -> Iterator[bytes]:
    """A session's questions as frames: parts, then *ask*, the last one."""
    for start in range(0, max(1, len(questions)), LONGEST_PAYLOAD):
        piece = questions[start : start + LONGEST_PAYLOAD]
        last = start + LONGEST_PAYLOAD >= len(questions)
        yield _HEAD.pack(_PREFIX + len(piece), Type.ASK if last else Type.PART, channel) + piece


def size(piece: bytes) -> int:
    """The bytes of a window that a frame of :func:`pieces` uses."""
    return len(piece) - _HEAD.size


def hello(properties: Mapping[str, str]) -> bytes:
    """The first frame. :param properties: of the system."""
    return frame(Type.HELLO, 0, _VERSION.pack(VERSION) + pairs(properties))


def call(channel: int, tag: int, verb: Verb, number: int, arguments: bytes = b"") -> bytes:
    return frame(Type.CALL, channel, _CALL.pack(tag, verb, number) + arguments)


def opening(channel: int, connection: int, mode: int, argument: int) -> bytes:
    return frame(Type.OPEN, channel, _OPEN.pack(connection, mode, argument))


def window(channel: int, octets: int) -> bytes:
    """So many bytes of a session's answers were taken."""
    return frame(Type.WINDOW, channel, _NUMBER.pack(octets))


def number(value: int) -> bytes:
    """A u32."""
    return _NUMBER.pack(value)


def flag(value: bool) -> bytes:
    """A u8, 1 or 0."""
    return b"\x01" if value else b"\x00"


def text(value: str) -> bytes:
    octets = value.encode("utf-8", "surrogatepass")
    return _NUMBER.pack(len(octets)) + octets


def optional(value: str | None) -> bytes:
    """Whether there is a text, and the text."""
    return flag(value is not None) + text(value or "")


def pairs(values: Mapping[str, str]) -> bytes:
    """Names and values."""
    return number(len(values)) + b"".join([text(one) for pair in values.items() for one in pair])


class Payload:
    """Reads a payload to its end.

    A number is a u32, a kind an i32, a flag a u8 that is 1 or 0.

    :param position: where to begin.
    :raises WireError: by each method, if it is too short, or a text is not UTF-8.
    """

    def __init__(self, octets: bytes, position: int = 0) -> None:
        self._octets = octets
        self.position = position

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            found = layout.unpack_from(self._octets, self.position)
        except struct.error as error:
            raise WireError(
                f"a payload of {len(self._octets)} bytes is too short: {error}"
            ) from None
        self.position += layout.size
        return found

    def number(self) -> int:
        return self._take(_NUMBER)[0]

    def kind(self) -> int:
        return self._take(_FAILURE)[0]

    def flag(self) -> bool:
        return self.rest(1) == b"\x01"

    def text(self) -> str:
        octets = self.rest(self.number())
        try:
            return octets.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise WireError(f"a text is not UTF-8: {error}") from None

    def optional(self) -> str | None:
        """A text that may be missing."""
        given = self.flag()
        found = self.text()
        return found if given else None

    def rest(self, length: int | None = None) -> bytes:
        """So many bytes, or all the rest."""
        end = len(self._octets) if length is None else self.position + length
        if end > len(self._octets):
            raise WireError(f"a payload of {len(self._octets)} bytes is too short: expected {end}")
        start, self.position = self.position, end
        return self._octets[start:end]

    def ready(self) -> Ready:
        """All of a *ready*. :raises WireError: Java speaks another version."""
        version = self._take(_VERSION)[0]
        if version != VERSION:
            raise WireError(f"the classes in Java speak version {version}: expected {VERSION}")
        return Ready(self.text(), self.text(), self._take(_LONG)[0])

    def alive(self) -> Alive:
        """All of an *alive*."""
        used, heap, threads = self._take(_ALIVE)
        return Alive(used, heap, threads)
