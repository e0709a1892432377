"""The journal's files: whole lines only, whatever happens."""

from __future__ import annotations

import os
import resource
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.lines import runs_of
from gateway.journal.schema import OPEN, run_name, segment_name, segment_of
from gateway.journal.segments import Bounds, CutShort, Segments
from tests.gateway.journal.reading import numbers_of

RUN = run_name("store", 1_700_000_000_000_000)
LINES = [b'{"line":%d}\n' % number for number in range(10)]


def whole(folder: Path) -> bytes:
    """What a reader sees."""
    return b"".join(
        path.read_bytes() for path in sorted(folder.iterdir()) if segment_of(path.name) is not None
    )


@given(st.lists(st.integers(-5, 40) | st.integers(0, 1 << 62), max_size=40))
def test_progressions_say_the_same_numbers(numbers: list[int]) -> None:
    assert numbers_of(runs_of(numbers)) == numbers


@given(st.integers(0, 1 << 62), st.integers(1, 3000), st.integers(1, 9))
def test_one_producer_is_one_progression(first: int, count: int, step: int) -> None:
    expected = [[first, count, step if count > 1 else 1]]
    assert runs_of(list(range(first, first + count * step, step))) == expected
    assert runs_of(range(first, first + count)) == [[first, count, 1]]


def test_a_segment_appears_whole_and_private(tmp_path: Path) -> None:
    segments = Segments(tmp_path, RUN, Bounds(1 << 20, 60))
    assert segments.due_in() is None
    segments.write(b"".join(LINES))
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(RUN, 1) + ".open"]
    assert next(tmp_path.iterdir()).read_bytes() == b"".join(LINES), (
        "what was written is with the kernel"
    )
    segments.roll()
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(RUN, 1)]
    assert stat.S_IMODE((tmp_path / segment_name(RUN, 1)).stat().st_mode) == 0o600
    segments.roll()
    assert len(list(tmp_path.iterdir())) == 1, "an empty one never appears"


def test_a_segment_that_somebody_has_removed_takes_no_more_lines(tmp_path: Path) -> None:
    segments = Segments(tmp_path, RUN, Bounds(1 << 20, 60))
    segments.write(LINES[0])
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(FileNotFoundError) as refused:
        segments.write(LINES[1])
    assert refused.value.filename == str(tmp_path / (segment_name(RUN, 1) + ".open"))
    segments.write(LINES[2])
    segments.roll()
    assert whole(tmp_path) == LINES[2]


def test_segments_roll_by_size_and_by_age(tmp_path: Path) -> None:
    now = [100.0]
    segments = Segments(tmp_path, RUN, Bounds(25, 60), lambda: now[0])
    segments.write(LINES[0])
    segments.write(LINES[1])
    assert whole(tmp_path) == b""
    segments.write(LINES[2])
    assert whole(tmp_path) == b"".join(LINES[:3])
    segments.write(LINES[3])
    now[0] += 59
    segments.roll_if_old()
    assert segments.due_in() == 1.0
    now[0] += 1
    segments.roll_if_old()
    assert whole(tmp_path) == b"".join(LINES[:4])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        segment_name(RUN, 1),
        segment_name(RUN, 2),
    ]


@given(st.binary(max_size=60), st.integers(0, 400))
def test_what_a_crash_has_cut_is_completed_with_its_whole_lines(tail: bytes, cut: int) -> None:
    data = (b"".join(LINES) + tail.replace(b"\n", b"\0"))[:cut]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / (segment_name(RUN, 7) + ".open")).write_bytes(data)
        segments = Segments(folder, run_name("store", 1_800_000_000_000_000), Bounds(1 << 20, 60))
        completed = segments.complete()
        expected = data[: data.rfind(b"\n") + 1]
        assert whole(folder) == expected
        assert completed == ([segment_name(RUN, 7)] if expected else [])
        assert not [path for path in folder.iterdir() if path.name.endswith(OPEN)]
        assert segments.complete() == []


def test_a_long_torn_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / (segment_name(RUN, 1) + ".open")).write_bytes(LINES[0] + b"x" * 300_000)
    Segments(tmp_path, RUN, Bounds(1, 1)).complete()
    assert whole(tmp_path) == LINES[0]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "x.jsonl.open", "run-12.jsonl"):
        (tmp_path / name).write_bytes(b"theirs")
    segments = Segments(tmp_path, RUN, Bounds(1, 1, kept_seconds=1, kept_octets=0))
    assert segments.complete() == []
    assert segments.remove_old(1e12) == []
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_too_old_or_too_much_is_removed(tmp_path: Path) -> None:
    for number in range(1, 6):
        path = tmp_path / segment_name(RUN, number)
        path.write_bytes(b"x" * 10)
        os.utime(path, (1000 * number, 1000 * number))
    (tmp_path / (segment_name(RUN, 6) + ".open")).write_bytes(b"x" * 1000)
    assert Segments(tmp_path, RUN, Bounds(1, 1)).remove_old(1e12) == [], "for ever"
    assert Segments(tmp_path, RUN, Bounds(1, 1, 3000)).remove_old(5500) == [
        segment_name(RUN, 1),
        segment_name(RUN, 2),
    ]
    assert Segments(tmp_path, RUN, Bounds(1, 1, 0, 20)).remove_old(5500) == [segment_name(RUN, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        segment_name(RUN, 4),
        segment_name(RUN, 5),
        segment_name(RUN, 6) + ".open",
    ]


@contextmanager
def files_no_longer_than(octets: int) -> Iterator[None]:
    """The kernel refuses what would make a file longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("room", range(20, 65, 3))
def test_a_write_that_fails_leaves_whole_lines(tmp_path: Path, room: int) -> None:
    segments = Segments(tmp_path, RUN, Bounds(1 << 20, 60))
    segments.write(LINES[0])
    with files_no_longer_than(room), pytest.raises(CutShort) as raised:
        segments.write(b"".join(LINES[1:6]))
    kept = raised.value.kept
    assert kept == (room - len(LINES[0])) // len(LINES[1]) * len(LINES[1])
    assert whole(tmp_path) == (b"".join(LINES[:6]))[: len(LINES[0]) + kept], "and they can be read"
    segments.write(LINES[9])
    segments.roll()
    assert whole(tmp_path).endswith(LINES[9])
    assert (tmp_path / segment_name(RUN, 2)).exists()
