"""The load's STOMP 1.2 frames: built once, patched, cut in bulk.

Knows octets only, no sockets and no servers. A message carries its number twelve digits long at the
end of its body: two for the producer, ten for the count within that producer. Bodies contain no
NUL, so frames are cut at NULs (STOMP 1.2, "STOMP Frames").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

DIGITS = 12
#: Numbers of one producer lie in ``[producer * SPAN, (producer + 1) * SPAN)``.
SPAN = 10**10
_ACK = re.compile(rb"\nack:([^\n\r]*)")
# What stands in a block for the digits that differ from one block to the next.
_NUMBER, _CREATED, _TRACE = b"@", b"#", b"$"
# The first message's ``created``, in milliseconds; each later message has one more, whatever the
# rate, so that no server meets the same value twice.
_EPOCH = 1_764_000_000_000
_ODD = 0x9E3779B97F4A7C15


class Confirm(Enum):
    """When a producer asks the server to confirm."""

    NONE = "no receipts"
    EACH = "a receipt each"
    EACH_100 = "a receipt each 100"
    TRANSACTIONS_OF_100 = "transactions of 100"


@dataclass(frozen=True)
class Shape:
    """What one producer's messages look like.

    :param destination: as in the frame, e.g. ``/queue/a``.
    :param producer: 0 to 99, the first two digits of its numbers.
    :param body: octets of the body, at least :data:`DIGITS`.
    :param persistent: the ``persistent`` header, always sent.
    :param confirm: where receipts are asked for.
    :param varying: three more headers, whose values differ in every message: ``correlation-id``,
        ``created`` and ``trace``.
    :param headers: further headers, the same in every message.
    """

    destination: str
    producer: int = 0
    body: int = 100
    persistent: bool = False
    confirm: Confirm = Confirm.NONE
    varying: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class Block:
    """A run of SEND frames in one buffer, refilled with other numbers.

    :ivar messages: how many messages the block has: 1, or 100.
    :ivar confirmed: whether the last frame asks for a receipt.
    """

    def __init__(self, shape: Shape, messages: int = 100) -> None:
        if messages not in (1, 100):
            raise ValueError(f"a block has 1 or 100 messages, not {messages}")
        if shape.confirm is Confirm.EACH and messages != 1:
            raise ValueError("with a receipt each, a block has one message")
        self.messages = messages
        self.confirmed = shape.confirm is not Confirm.NONE
        low = len(str(messages)) - 1
        self._width = DIGITS - 2 - low
        self._producer = shape.producer
        mark = _NUMBER * self._width
        frames = [
            _send(shape, b"%02d" % shape.producer + mark, b"%0*d" % (low, i) if low else b"")
            for i in range(messages)
        ]
        name = b"%02d-" % shape.producer + mark
        if shape.confirm is Confirm.TRANSACTIONS_OF_100:
            frames = [frame.replace(b"\n", b"\ntransaction:" + name + b"\n", 1) for frame in frames]
            frames.insert(0, b"BEGIN\ntransaction:" + name + b"\n\n\0")
            frames.append(b"COMMIT\ntransaction:" + name + b"\nreceipt:" + name + b"-r\n\n\0")
        elif self.confirmed:
            frames[-1] = frames[-1].replace(b"\n", b"\nreceipt:" + name + b"-r\n", 1)
        self._octets = bytearray(b"".join(frames))
        self._view = memoryview(self._octets)
        self._fields = {
            mark: _Field(self._octets, frames, mark) for mark in (_NUMBER, _CREATED, _TRACE)
        }

    def fill(self, number: int) -> memoryview:
        """Return the frames of messages ``number * messages`` and on.

        Valid until the next call.
        """
        fields = self._fields
        fields[_NUMBER].put(b"%0*d" % (self._width, number))
        fields[_CREATED].put(b"%d" % (_EPOCH // self.messages + number))
        # A multiple of an odd number: no two are the same, and most digits differ from one to the
        # next.
        fields[_TRACE].put(b"%016x" % ((self._producer * SPAN + number) * _ODD % 2**64))
        return self._view


class _Field:
    """Characters at the same place in all frames of a block, and the same.

    Frames of one length lie at equal distances, so a changed character is written into all of them
    at once.

    :param octets: the frames in one buffer.
    :param mark: the character that stands for the field in them.
    """

    def __init__(self, octets: bytearray, frames: Sequence[bytes], mark: bytes) -> None:
        self._octets = octets
        places: dict[tuple[int, int], list[int]] = {}
        pattern = re.compile(re.escape(mark) + b"{8,}")
        start = 0
        for item in frames:
            for match in pattern.finditer(item):
                places.setdefault((len(item), match.start()), []).append(start + match.start())
            start += len(item)
        #: First place, place after the last, distance, number.
        self._runs = [
            (starts[0], starts[-1] + 1, length, len(starts))
            for (length, _), starts in places.items()
        ]
        self._value = mark * 16

    def put(self, value: bytes) -> None:
        """Write the characters that differ from those written before."""
        if not self._runs:
            return
        octets, before = self._octets, self._value
        for at, character in enumerate(value):
            if character != before[at]:
                for first, end, distance, count in self._runs:
                    octets[first + at : end + at : distance] = bytes((character,)) * count
        self._value = value


class Cutter:
    """Cuts a stream of octets into frames at NULs.

    Long frames come without the middle of their bodies: copying each of 64 KiB twice would cost ten
    times what the kernel asks for it.
    """

    # Above this a frame is clipped. Its head, with all headers a server adds, is far shorter than
    # what is kept of it.
    _LONG = 8192
    _HEAD = 2048
    _TAIL = 16

    def __init__(self) -> None:
        #: The beginning of the frame that is not complete.
        self.rest = b""

    def cut(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, without their NULs.

        Their headers and their last bytes are always there.
        """
        if len(data) <= self._LONG * (data.count(0) + 1):
            frames = (self.rest + data).split(b"\0")
            self.rest = self._clipped(frames.pop(), 0)
            return frames
        frames = []
        start = 0
        while (end := data.find(0, start)) >= 0:
            frames.append(self.rest + self._clipped(data, start, end))
            self.rest = b""
            start = end + 1
        self.rest = self._clipped(self.rest + self._clipped(data, start), 0)
        return frames

    def _clipped(self, data: bytes, start: int, end: int | None = None) -> bytes:
        end = len(data) if end is None else end
        if end - start <= self._LONG:
            return data[start:end]
        return data[start : start + self._HEAD] + data[end - self._TAIL : end]


def _send(shape: Shape, high: bytes, low: bytes) -> bytes:
    """Return one frame.

    :param high, low: parts of its number; ``low`` is the place in the block.
    """
    headers = [
        b"destination:" + shape.destination.encode(),
        b"persistent:true" if shape.persistent else b"persistent:false",
        b"content-length:%d" % shape.body,
    ]
    headers += [f"{name}:{value}".encode() for name, value in shape.headers]
    number = high + low
    if shape.varying:
        created = _CREATED * (len(str(_EPOCH)) - len(low)) + low
        trace = _TRACE * 16 + b"%016x" % ((int(low or b"0") + 1) * _ODD % 2**64)
        headers += [b"correlation-id:order-" + number, b"created:" + created, b"trace:" + trace]
    return b"SEND\n" + b"\n".join(headers) + b"\n\n" + b"x" * (shape.body - DIGITS) + number + b"\0"


def frame(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """One frame from headers that need no escaping."""
    return (
        "\n".join([command, *(f"{name}:{value}" for name, value in headers.items()), "\n"]).encode()
        + body
        + b"\0"
    )


def numbers(frames: Sequence[bytes]) -> list[int]:
    """The numbers at the ends of MESSAGE bodies.

    :raises ValueError: when a frame does not end in :data:`DIGITS` digits, as no RECEIPT of ours
        and no ERROR does.
    """
    return list(map(int, [item[-DIGITS:] for item in frames]))


def ack_id(message: bytes) -> bytes:
    """Return the bytes of the ``ack`` header, still escaped, for an ACK.

    An ACK must repeat them (STOMP 1.2, "ACK").

    :raises ValueError: when the frame has none.
    """
    match = _ACK.search(message, 0, 4096)
    if match is None:
        raise ValueError(f"a frame without an ack header: {message[:300]!r}")
    return match[1]


def acks(identifiers: Sequence[bytes]) -> bytes:
    """One ACK frame for each identifier, concatenated."""
    return b"ACK\nid:" + b"\n\n\0ACK\nid:".join(identifiers) + b"\n\n\0"


def header(message: bytes, name: bytes) -> bytes | None:
    """The first value of a header, still escaped, or None."""
    start = message.find(b"\n" + name + b":", 0, 4096)
    if start < 0:
        return None
    start += len(name) + 2
    return message[start : message.index(b"\n", start)].rstrip(b"\r")


def command(octets: bytes) -> bytes:
    """The command of a frame, ends of line and heart-beats before it left out."""
    return octets.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r")
