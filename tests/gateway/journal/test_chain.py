"""The chain over the journal's segments sees a change, and only that."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.chain import BEGINNING, CHAIN, Chain, ChainDamaged, verify
from gateway.journal.schema import run_name, segment_name
from gateway.journal.segments import Bounds, CutShort, Segments

RUN = run_name("store", 1_700_000_000_000_000)
NEXT = run_name("store", 1_700_000_000_000_001)


def segments(folder: Path, run: str = RUN, size: int = 20, **bounds: float) -> Segments:
    """Segments of two lines, with a chain."""
    limits = Bounds(size, 3600, bounds.get("kept_seconds", 0), int(bounds.get("kept_octets", -1)))
    return Segments(folder, run, limits, chain=Chain(folder))


def filled(folder: Path, count: int = 4, run: str = RUN) -> Segments:
    written = segments(folder, run)
    written.complete()
    for number in range(count):
        written.write(b'{"line":%06d}\n' % number)
        written.write(b'{"line":%06d}\n' % number)
    return written


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / CHAIN).read_bytes().splitlines()]


def test_anybody_can_compute_it(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    before = BEGINNING
    for number, line in enumerate(lines(tmp_path), 1):
        name = segment_name(RUN, number)
        data = (tmp_path / name).read_bytes()
        digest = sha256(data).hexdigest()
        before = sha256(f"{before} {name} {digest} {len(data)}".encode()).hexdigest()
        assert line == {"segment": name, "octets": len(data), "sha256": digest, "chain": before}
    verified = verify(tmp_path)
    assert (verified.segments, verified.found, verified.problems) == (2, 0, ())
    assert verified.head == before
    assert (tmp_path / CHAIN).stat().st_mode & 0o777 == 0o600


def changed(folder: Path) -> str:
    path = folder / segment_name(RUN, 2)
    path.write_bytes(path.read_bytes().replace(b"000001", b"000009"))
    return f"{path.name} was changed: "


def removed(folder: Path) -> str:
    (folder / segment_name(RUN, 2)).unlink()
    return f"{segment_name(RUN, 2)} is missing; it had 32 octets"


def added(folder: Path) -> str:
    (folder / segment_name(RUN, 9)).write_bytes(b"{}\n")
    return f"{segment_name(RUN, 9)} is not in the chain"


def unchained(folder: Path) -> str:
    path = folder / CHAIN
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(every[:1] + every[2:]))
    (folder / segment_name(RUN, 2)).unlink()
    return f"line 2 of {CHAIN}, of {segment_name(RUN, 3)}, does not follow the line before it"


def reordered(folder: Path) -> str:
    path = folder / CHAIN
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([every[0], every[2], every[1], every[3]]))
    return "does not follow the line before it"


def said_to_be_open(folder: Path) -> str:
    path = folder / segment_name(RUN, 2)
    path.with_name(f"{path.name}.open").write_bytes(b"")
    return changed(folder)


def removed_and_open(folder: Path) -> str:
    path = folder / segment_name(RUN, 2)
    path.rename(path.with_name(f"{path.name}.open")).write_bytes(b"{}\n")
    return f"{path.name} was changed: it has 3 octets of SHA-256 "


def said_to_be_too_old(folder: Path) -> str:
    """The chain's end is made anew, as if the retention had been there."""
    Chain(folder).forget([segment_name(RUN, 2)])
    (folder / segment_name(RUN, 2)).unlink()
    return f"{segment_name(RUN, 2)} is said to be removed, and an older one is there"


def said_to_be_found(folder: Path) -> str:
    path = folder / CHAIN
    every = path.read_bytes().splitlines(keepends=True)
    every[1] = every[1].replace(b"}", b',"found":true}')
    path.write_bytes(b"".join(every))
    return f"line 2 of {CHAIN}, of {segment_name(RUN, 2)}, does not follow the line before it"


def said_to_be_gone(folder: Path) -> str:
    path = folder / CHAIN
    with path.open("ab") as file:
        line = {"removed": [segment_name(RUN, 1)], "chain": lines(folder)[-1]["chain"]}
        file.write(json.dumps(line).encode() + b"\n")
    (folder / segment_name(RUN, 1)).unlink()
    return f"line 5 of {CHAIN}, of what was removed, does not follow the line before it"


@pytest.mark.parametrize(
    "change",
    [
        changed,
        removed,
        added,
        unchained,
        reordered,
        said_to_be_open,
        removed_and_open,
        said_to_be_too_old,
        said_to_be_found,
        said_to_be_gone,
    ],
)
def test_a_change_is_seen(tmp_path: Path, change: Callable[[Path], str]) -> None:
    filled(tmp_path)
    assert verify(tmp_path).problems == ()
    problem = change(tmp_path)
    assert any(problem in each for each in verify(tmp_path).problems)


def test_a_chain_that_was_made_anew_has_another_head(tmp_path: Path) -> None:
    filled(tmp_path)
    head = verify(tmp_path).head
    (tmp_path / CHAIN).unlink()
    changed(tmp_path)
    Chain(tmp_path).complete()
    assert verify(tmp_path).problems == ()
    assert verify(tmp_path, head).problems == (f"the chain has never had the head {head}",)


def test_what_comes_later_keeps_a_head_that_was_told(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    head = verify(tmp_path).head
    filled(tmp_path, 2, NEXT)
    verified = verify(tmp_path, head)
    assert (verified.segments, verified.problems) == (4, ())
    assert verified.head != head


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    filled(tmp_path, 1).write(b'{"line":1}\n')
    [left] = tmp_path.glob("*.open")
    left.write_bytes(left.read_bytes() + b'{"li')
    assert verify(tmp_path).problems == ()
    filled(tmp_path, 1, NEXT)
    verified = verify(tmp_path)
    assert (verified.segments, verified.found, verified.problems) == (3, 1, ())


def test_killed_between_the_chain_and_the_name(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    whole = tmp_path / segment_name(RUN, 2)
    whole.rename(whole.with_name(whole.name + ".open"))
    assert verify(tmp_path).problems == ()
    filled(tmp_path, 1, NEXT)
    verified = verify(tmp_path)
    assert (verified.segments, verified.found, verified.problems) == (3, 0, ())


def test_a_line_of_the_chain_that_was_torn(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    path = tmp_path / CHAIN
    path.write_bytes(path.read_bytes()[:-7])
    filled(tmp_path, 1, NEXT)
    verified = verify(tmp_path)
    assert (verified.segments, verified.found, verified.problems) == (3, 1, ())


def test_what_was_there_before_the_chain_is_found(tmp_path: Path) -> None:
    plain = Segments(tmp_path, RUN, Bounds(1, 3600))
    plain.write(b"1\n")
    plain.write(b"2\n")
    filled(tmp_path, 1, NEXT)
    verified = verify(tmp_path)
    assert (verified.segments, verified.found, verified.problems) == (3, 2, ())


def test_what_retention_removes_is_not_missing(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    head = verify(tmp_path).head
    removed = segments(tmp_path, NEXT, kept_octets=32 * 2).remove_old(0)
    assert len(removed) == 3
    verified = verify(tmp_path, head)
    assert (verified.segments, verified.problems) == (2, ())
    assert len(lines(tmp_path)) == 4, "one says what the first that is left follows"
    assert lines(tmp_path)[-1]["removed"] == removed
    assert verified.head != head, "a removal is vouched for, too"
    filled(tmp_path, 1, NEXT)
    assert verify(tmp_path, head).problems == ()
    changed = tmp_path / segment_name(RUN, 4)
    changed.write_bytes(b"x" * 32)
    assert len(verify(tmp_path).problems) == 1


def test_all_that_was_removed_leaves_a_chain_to_follow(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    segments(tmp_path, NEXT, kept_octets=0).remove_old(0)
    verified = verify(tmp_path)
    assert (verified.segments, verified.problems) == (0, ())
    assert [list(line) for line in lines(tmp_path)] == [["removed", "chain"]]
    filled(tmp_path, 2, NEXT)
    assert verify(tmp_path, verified.head).problems == ()


def test_retention_that_goes_on_meanwhile(tmp_path: Path) -> None:
    written = segments(tmp_path, size=1, kept_octets=200)
    for number in range(20):
        written.write(b'{"line":%06d}\n' % number)
    ended = threading.Event()

    def go_on() -> None:
        number = 20
        while not ended.is_set():
            written.write(b'{"line":%06d}\n' % number)
            written.remove_old(0)
            number += 1

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        for _ in range(300):
            assert verify(tmp_path).problems == ()
    finally:
        ended.set()
        writing.join()


def test_retention_that_cannot_be_noted_removes_nevertheless(tmp_path: Path) -> None:
    """The disk may be full, and have room then."""
    filled(tmp_path, 5)
    (tmp_path / f"{CHAIN}.new").mkdir()
    with pytest.raises(IsADirectoryError):
        segments(tmp_path, NEXT, kept_octets=32 * 2).remove_old(0)
    assert not (tmp_path / segment_name(RUN, 1)).exists()
    assert len(verify(tmp_path).problems) == 3


def test_a_head_of_what_retention_has_removed_may_have_been(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    head = verify(tmp_path).head
    filled(tmp_path, 4, NEXT)
    segments(tmp_path, NEXT, kept_octets=32 * 2).remove_old(0)
    [problem] = verify(tmp_path, head).problems
    assert problem == (
        f"the chain does not have the head {head}: it never had, or the retention has removed what it is of"
    )


def test_a_write_that_was_cut_short(tmp_path: Path) -> None:
    written = segments(tmp_path, size=1 << 20)
    written.write(b'{"line":1}\n')
    real = os.write
    kept: list[int] = []

    def full(descriptor: int, data: bytes) -> int:
        if kept:
            raise OSError(28, "No space left on device")
        kept.append(real(descriptor, data[:15]))
        return kept[0]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(CutShort):
            written.write(b'{"line":2}\n{"line":3}\n')
    written.complete()
    assert verify(tmp_path).problems == ()


def test_no_chain_and_one_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ChainDamaged, match=r"there is no chain; see imq\.journal\.chain"):
        verify(tmp_path)
    (tmp_path / CHAIN).write_text("{}\n")
    with pytest.raises(ChainDamaged, match="line 1: expected a line of the chain"):
        verify(tmp_path)


@given(st.integers(1, 5), st.data())
def test_any_octet_of_any_segment(count: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled(folder, count)
        path = folder / segment_name(RUN, data.draw(st.integers(1, count)))
        octets = bytearray(path.read_bytes())
        octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(octets)
        assert len(verify(folder).problems) == 1
