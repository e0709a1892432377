"""Reads a write-ahead log of SQLite before SQLite does, and tells a torn tail from damage.

SQLite recovers a log up to the first frame whose checksum is wrong and silently passes over all that follows, be it the remains of a write
that never finished or a thousand commits behind one bad sector. Here the first is noted and the second refused.

The format (https://www.sqlite.org/fileformat2.html#walformat). All numbers are big-endian, 32 bits::

    header, 32 octets       magic 0x377f0682 or 0x377f0683, version 3007000, page size, checkpoint number, salt (2), checksum (2)
    frame, 24 + page size   page number, pages in the database after a commit (else 0), salt (2), checksum (2), the page

The checksum runs on from the header through every frame: over the first 24 octets of the header, then over the first 8 of each frame
and its page, in pairs of words (x, y) whose octet order is the magic's last bit (0: little-endian): ``a += x + b; b += y + a``, modulo 2**32.
A log that starts again from its beginning gets another salt, and frames with an older one are what is left of its former use.

Owns the format. Knows nothing of what is in the pages.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, NamedTuple

from gateway.broker.store.interface import StoreDamaged

HEADER: Final = 32
FRAME_HEADER: Final = 24
_MAGIC: Final = 0x377F0682
_VERSION: Final = 3007000
_WORD: Final = 0xFFFFFFFF
#: Frames that are summed at once.
_LANES: Final = 1024


class Log(NamedTuple):
    """What a log holds.

    :param frames: frames up to and with the last commit, which SQLite will take. :param note: a sentence on what it will not, or "".
    """

    frames: int
    note: str


def examine(path: str, page_size: int) -> Log:
    """Read the whole log at ``path``; it changes nothing.

    Damage is a frame that does not follow from those before it while a later one, written for the same use of the log, commits: SQLite
    writes a commit only after the one before is on disk. The remains of a write that had not finished are a torn tail.

    :param page_size: the database's, in octets.
    :raises StoreDamaged: at an offset of the log. :raises OSError: it cannot be read; not found counts as empty.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return Log(0, "")
    with file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(HEADER)
        damage = _header_damage(header, page_size)
        if damage:
            return _without_header(path, header, file, damage)
        if size == 0:
            return Log(0, "")
        return _examine_frames(path, header, file, size, page_size)


def passed(file: int, octets: int, page_size: int) -> bool:
    """Whether the current use of the log has come as far as ``octets``; the file alone may be longer, from a former use.

    :param file: the log's descriptor. :raises OSError: it cannot be read.
    """
    place = HEADER + octets // (page_size + FRAME_HEADER) * (page_size + FRAME_HEADER)
    salt = os.pread(file, 8, place + 8)
    return len(salt) == 8 and salt == os.pread(file, 8, 16)


def checksum(octets: bytes, order: Literal["little", "big"], a: int = 0, b: int = 0) -> tuple[int, int]:
    """The log's checksum over a multiple of 8 octets, going on from (a, b)."""
    words = struct.unpack(f"{'<' if order == 'little' else '>'}{len(octets) // 4}I", octets)
    for x, y in zip(words[::2], words[1::2], strict=True):
        a = (a + x + b) & _WORD
        b = (b + y + a) & _WORD
    return a, b


def _order(header: bytes) -> Literal["little", "big"]:
    return "big" if header[3] & 1 else "little"


def _header_damage(header: bytes, page_size: int) -> str:
    """What is wrong with the header, or "" when it is right or there is none."""
    if not header:
        return ""
    if len(header) < HEADER:
        return f"its header has {len(header)} octets of {HEADER}"
    magic, version, size, _, _, _, a, b = struct.unpack(">8I", header)
    if magic & ~1 != _MAGIC:
        return f"its header begins with {magic:#010x}, not {_MAGIC:#010x}"
    if checksum(header[:24], _order(header)) != (a, b):
        return "the checksum of its header is wrong"
    if version != _VERSION:
        return f"its format is {version}, not {_VERSION}"
    if size != page_size:
        return f"its pages have {size} octets, the database's {page_size}"
    return ""


def _without_header(path: str, header: bytes, file: BinaryIO, damage: str) -> Log:
    """A header that cannot be read, when nothing was written behind it, is a log that had only begun."""
    while block := file.read(1 << 20):
        if block.count(0) != len(block):
            raise StoreDamaged(path, "offset 0", f"{damage}, and frames follow it")
    return Log(0, f"{path}: a header that was never finished was passed over ({damage}); no commit had been written")


def _examine_frames(path: str, header: bytes, file: BinaryIO, size: int, page_size: int) -> Log:
    salt = header[16:24]
    sums = struct.unpack(">2I", header[24:])
    frame_size = FRAME_HEADER + page_size
    whole = (size - HEADER) // frame_size
    good = committed = index = 0
    later = 0
    for block in _blocks(file, frame_size):
        count = len(block) // frame_size
        starts = range(0, count * frame_size, frame_size)
        # The frames' own sums are made only while they count; behind the first bad one, salt and commit mark tell.
        local = iter(_local_sums(block, count, frame_size, _order(header)) if good == index else ())
        for start in starts:
            current = block[start + 8 : start + 16] == salt
            commits = block[start + 4 : start + 8] != b"\0\0\0\0"
            if good == index:
                stored = struct.unpack_from(">2I", block, start + 16)
                expected = _go_on(sums, next(local), page_size)
                if current and stored == expected and block[start : start + 4] != b"\0\0\0\0":
                    sums = stored
                    good += 1
                    if commits:
                        committed = good
            if good <= index and current:
                later += 1
                if commits and index > good:
                    raise StoreDamaged(
                        path,
                        f"offset {HEADER + good * frame_size}",
                        f"frame {good + 1} does not follow from those before it, but frame {index + 1} commits",
                    )
            index += 1
    cut = size - HEADER - whole * frame_size
    if good > committed or later or (cut and whole == good):
        place = HEADER + committed * frame_size
        return Log(committed, f"{path}: an unfinished write from offset {place} on was passed over ({size - place} octets)")
    return Log(committed, "")


def _blocks(file: BinaryIO, frame_size: int) -> Iterator[bytes]:
    """The frames that are whole, many at a time."""
    while block := file.read(_LANES * frame_size):
        yield block[: len(block) // frame_size * frame_size]


def _local_sums(block: bytes, count: int, frame_size: int, order: Literal["little", "big"]) -> Iterator[tuple[int, int]]:
    """The sum of each frame by itself, from (0, 0).

    All frames are summed side by side: each has a lane of 64 bits in two very large integers, and one addition adds a word to every lane.
    This reads a log of 64 MiB in a fifth of a second, where frame by frame takes 1.5.
    """
    words = memoryview(block).cast("Q")
    stride = frame_size // 8
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    a = b = 0
    for step, column in enumerate((0, *range(FRAME_HEADER // 8, stride))):
        pair = int.from_bytes(words[column::stride].tobytes(), order)
        x, y = pair & low, pair >> 32 & low
        if order == "big":
            x, y = y, x
        a += x + b
        b += y + a
        if step % 8 == 7:
            # A lane grows by less than two bits in a step; it has 32 to spare.
            a &= low
            b &= low
    lanes = struct.Struct(f"<{2 * count}I")
    sums_a = lanes.unpack((a & low).to_bytes(8 * count, "little"))[::2]
    sums_b = lanes.unpack((b & low).to_bytes(8 * count, "little"))[::2]
    pairs = zip(sums_a, sums_b, strict=True)
    # Read as one big-endian number, the first frame is in the highest lane.
    return iter(list(pairs)[::-1]) if order == "big" else pairs


def _carry(pairs: int) -> tuple[int, int, int, int]:
    """What becomes of a sum (a, b) over that many pairs of zeros: (a * first + b * second, a * third + b * fourth)."""
    zeros = bytes(8 * pairs)
    first, third = checksum(zeros, "big", 1, 0)
    second, fourth = checksum(zeros, "big", 0, 1)
    return first, second, third, fourth


_CARRY: Final[dict[int, tuple[int, int, int, int]]] = {}


def _go_on(sums: tuple[int, int], local: tuple[int, int], page_size: int) -> tuple[int, int]:
    """The running sum after a frame: the checksum is linear, so what came before and the frame's own add up."""
    carry = _CARRY.get(page_size)
    if carry is None:
        carry = _CARRY[page_size] = _carry(1 + page_size // 8)
    a, b = sums
    first, second, third, fourth = carry
    return (a * first + b * second + local[0]) & _WORD, (a * third + b * fourth + local[1]) & _WORD
