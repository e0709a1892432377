"""The work is linear in the octets, whatever they are and however slowly they come. Counted, not
timed.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import pytest

from gateway.stomp.wire import FrameParser, Limits, ProtocolError, Version, parser


class Work:
    """Octets that searches have looked at and that joins have copied."""

    def __init__(self) -> None:
        self.searched = 0
        self.copied = 0


WORK = Work()


def _find(position: int, size: int, start: SupportsIndex | None, end: SupportsIndex | None) -> None:
    first = 0 if start is None else start.__index__()
    last = size if end is None else min(end.__index__(), size)
    WORK.searched += max(0, (position + 1 if position >= 0 else last) - first)


class CountedBytes(bytes):
    """Octets received, whose searches count."""

    def find(
        self, sub: object, start: SupportsIndex | None = None, end: SupportsIndex | None = None
    ) -> int:
        assert isinstance(sub, (bytes, int))
        position = super().find(sub, start, end)
        _find(position, len(self), start, end)
        return position

    def __add__(self, other: object) -> bytes:
        assert isinstance(other, bytes)
        WORK.copied += len(self) + len(other)
        return CountedBytes(bytes(self) + bytes(other))

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytes):
            WORK.copied += len(found)
            return CountedBytes(found)
        return found


class CountedBytearray(bytearray):
    """The octets of a large frame, whose searches and additions count."""

    def __init__(self, source: bytes) -> None:
        super().__init__(source)
        WORK.copied += len(source)

    def find(
        self, sub: object, start: SupportsIndex | None = None, end: SupportsIndex | None = None
    ) -> int:
        assert isinstance(sub, (bytes, int))
        position = super().find(sub, start, end)
        _find(position, len(self), start, end)
        return position

    def __iadd__(self, other: object) -> CountedBytearray:
        assert isinstance(other, bytes)
        WORK.copied += len(other)
        self.extend(other)
        return self

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytearray):
            WORK.copied += len(found)
        return found


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "bytearray", CountedBytearray, raising=False)


def work_of(
    octets: bytes, size: int, version: Version, most: int = 100
) -> tuple[int, float, float]:
    """Frames found, and how often each octet was searched and copied on average, when `size` octets
    come at a time.
    """
    WORK.searched = WORK.copied = 0
    wire = FrameParser(Limits(), version)
    frames = 0
    for at in range(0, len(octets), size):
        wire.receive(CountedBytes(octets[at : at + size]))
        try:
            while found := wire.frames(most):
                frames += len(found)
        except ProtocolError:
            break
    return frames, WORK.searched / len(octets), WORK.copied / len(octets)


STREAMS = {
    "a body without length": (b"SEND\na:b\n\n" + b"x" * 10_000 + b"\0", 1),
    "a body with length": (b"SEND\ncontent-length:10000\n\n" + b"\0" * 10_000 + b"\0", 1),
    "a body of blank lines": (b"SEND\ncontent-length:10000\n\n" + b"\n" * 10_000 + b"\0", 1),
    "a long header line": (b"SEND\na:" + b"x" * 10_000 + b"\n\n\0", 1),
    "many header lines": (b"SEND\n" + b"a:b\n" * 900 + b"\n\0", 1),
    "constant frames": (b"SEND\na:b\n\nxyz\0" * 500, 500),
    "varying frames": (b"".join([b"SEND\na:%d\n\nxyz\0" % number for number in range(500)]), 500),
    "frames of CR LF": (b"BEGIN\r\na:1\r\n\r\n\0" * 500, 500),
    "frames of CR LF with blank lines far behind": (b"BEGIN\r\n\r\n\0" * 500 + b"BEGIN\n\n\0", 501),
    "frames of CR LF and of LF": (b"BEGIN\r\n\r\n\0BEGIN\n\n\0" * 250, 500),
    "acknowledgements": (b"ACK\nid:1-234\n\n\0" * 500, 500),
    "acknowledgements with odd ids": (b"ACK\nid:a b\n\n\0" * 500, 500),
    "repeated NULs and line ends": (b"\0\n\r\n" * 2000 + b"BEGIN\n\n\0", 1),
    "no blank line, then too long": (b"SEND\n" + b"a:b\n" * 20_000, 0),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("size", [1, 10, 1000, 65536])
@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_2])
def test_work_is_linear(name: str, size: int, version: Version) -> None:
    octets, frames = STREAMS[name]
    found, searched, copied = work_of(octets, size, version)
    assert found == frames
    # An octet is looked for as NUL, as LF and as blank line, by the fast reader and by the careful
    # one; a quadratic search gives thousands. Ids are looked through 128 octets ahead, however
    # short the frame is.
    assert searched < (30 if name.startswith("acknowledgements") else 9)
    assert copied < 9


def test_a_caller_that_takes_frames_one_by_one_pays_no_more() -> None:
    octets, frames = STREAMS["frames of CR LF with blank lines far behind"]
    found, searched, copied = work_of(octets, 65536, Version.V1_2, most=1)
    assert found == frames
    assert searched < 9
    assert copied < 9


def test_a_backlog_is_not_copied_again_with_each_read() -> None:
    WORK.searched = WORK.copied = 0
    wire = FrameParser(Limits(), Version.V1_2)
    octets = b"SEND\na:b\n\nxyz\0" * 100
    frames = 0
    for _ in range(200):
        wire.receive(CountedBytes(octets))
        frames += len(wire.frames(10))
    while found := wire.frames(10):
        frames += len(found)
    assert frames == 20_000
    assert WORK.copied < 4 * 200 * len(octets)


def test_asking_again_without_new_octets_does_no_work() -> None:
    wire = FrameParser(Limits(), Version.V1_2)
    wire.receive(CountedBytes(b"SEND\na:b\n\n" + b"x" * 1000))
    assert wire.next() is None
    WORK.searched = WORK.copied = 0
    for _ in range(100):
        assert wire.next() is None
    assert (WORK.searched, WORK.copied) == (0, 0)
