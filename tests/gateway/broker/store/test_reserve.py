"""Space kept on the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gateway.broker.store import reserve
from gateway.broker.store.interface import StoreError
from gateway.broker.store.reserve import Reserve, is_lack_of_space, lacks_space

SIZE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.reserve"


@pytest.mark.parametrize("allocate", [True, False])
def test_held_space_is_really_taken(
    path: Path, allocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not allocate:
        monkeypatch.delattr(os, "posix_fallocate")
    kept = Reserve(str(path), SIZE)
    assert not kept.held
    assert kept.hold()
    assert kept.held
    found = path.stat()
    assert (found.st_size, found.st_mode & 0o777) == (SIZE, 0o600)
    assert found.st_blocks * 512 >= SIZE
    kept.release()
    assert not kept.held
    assert not path.exists()
    kept.release()


@pytest.mark.parametrize("left", ["short", "hole"])
def test_what_is_not_whole_is_made_anew(path: Path, left: str) -> None:
    path.write_bytes(b"x" * 1000)
    if left == "hole":
        os.truncate(path, SIZE)
    kept = Reserve(str(path), SIZE)
    assert not kept.held
    assert kept.hold()
    assert path.stat().st_blocks * 512 >= SIZE


def test_it_is_not_made_where_the_margin_would_not_stay_free(path: Path) -> None:
    kept = Reserve(str(path), SIZE)
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    assert not kept.hold(margin=2 * free)
    assert not path.exists()
    assert kept.hold()
    assert not kept.hold(margin=2 * free)
    assert kept.held


def test_a_disk_that_fills_up_meanwhile_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, size: int) -> None:
        os.write(file, b"some of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reserve, "_allocate", full)
    assert not Reserve(str(path), SIZE).hold()
    assert not path.exists()


def test_no_reserve_is_always_held(path: Path) -> None:
    kept = Reserve(str(path), 0)
    assert kept.held
    assert kept.hold()
    assert not path.exists()


def test_another_failure_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Reserve(str(tmp_path / "missing" / "messages.reserve"), SIZE).hold()


def test_what_is_no_file_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=f"{path} is not a file"):
        Reserve(str(path), SIZE).hold()


@pytest.mark.parametrize(
    ("code", "lack"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_which_errors_are_lack_of_space(code: int, lack: bool) -> None:
    assert is_lack_of_space(OSError(code, "")) is lack


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not lacks_space(str(tmp_path / "probe"))
    assert list(tmp_path.iterdir()) == []
    assert not lacks_space(str(tmp_path / "none" / "probe"))
