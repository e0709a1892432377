"""A full disk and a failing one, by a preloaded library that fails a child's writes and fsyncs; and
by a real small disk where there may be one.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import QueueReactor
from tests.gateway.broker.store.processes import Process, build_faulty_disk

pytestmark = pytest.mark.process

MIB = 1 << 20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_faulty_disk(tmp_path_factory.mktemp("library"))


@pytest.fixture
def control(tmp_path: Path) -> Path:
    control = tmp_path / "control"
    control.write_text("")
    return control


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "messages.db"


def stored(path: Path) -> list[int]:
    """The seqs that are there when the store is opened again by a process whose disk is well."""
    reactor = QueueReactor()
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=0)
    store.open()
    found = [row.seq for block in store.scan() for row in block]
    assert len(reactor.fetch(store, found)) == len(found)  # type: ignore[arg-type]
    reactor.close(store)
    return found


@pytest.fixture(params=["preloaded", "tmpfs"])
def small_disk(
    request: pytest.FixtureRequest, library: Path, control: Path, path: Path
) -> Iterator[tuple[Path, Path] | None]:
    """A folder for the store with room for 8 MiB."""
    if request.param == "preloaded":
        control.write_text(f"space {8 * MIB}\n")
        yield library, control
        return
    folder = str(path.parent)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted; the preloaded disk stands in for it")
    try:
        yield None
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_takes_deletes_from_the_reserve_and_recovers(
    small_disk: tuple[Path, Path] | None, path: Path
) -> None:
    options = {"reserve_octets": 2 * MIB, "checkpoint_octets": MIB, "idle_seconds": 0.05}
    with Process(path, faulty=small_disk, **options) as process:
        assert process.ask("open")["full_now"] is False
        reserve = path.with_name("messages.reserve")
        assert reserve.stat().st_size == 2 * MIB
        seqs: list[int] = []
        while True:
            batch = list(range(len(seqs) + 1, len(seqs) + 11))
            answer = process.ask("insert", seqs=batch, octets=20_000)
            seqs += batch
            if answer["full_now"]:
                break
            assert answer["error"] is None
            assert len(seqs) < 1000, "the disk was never full"
        assert not reserve.exists()
        assert answer["error"] is None, "the reserve serves the batch that found no room"
        assert process.ask("fetch", seqs=list(range(1, 2000)))["seqs"] == seqs
        # With the reserve given up there is room to delete, one by one, as acknowledgements come.
        for _ in range(len(seqs) - 20):
            assert process.ask("delete", seqs=[seqs.pop(0)])["error"] is None
        assert process.ask("fetch", seqs=seqs)["seqs"] == seqs
        # The deletes made room, which is noticed within a second: inserts are well again.
        assert process.ask("until_room") == {"full_now": False}
        assert reserve.stat().st_size == 2 * MIB
        assert process.ask("insert", seqs=[5000], octets=20_000) == {
            "error": None,
            "text": "None",
            "full_now": False,
        }
        seqs.append(5000)
        assert process.ask("close") == {}
        assert stored(path) == seqs


def test_a_full_disk_that_gets_room_when_idle(library: Path, control: Path, path: Path) -> None:
    control.write_text(f"space {4 * MIB}\n")
    with Process(path, faulty=(library, control), reserve_octets=MIB, idle_seconds=0.01) as process:
        process.ask("open")
        answer = process.ask("insert", seqs=[1, 2, 3], octets=2 * MIB)
        assert (answer["error"], answer["full_now"]) == ("StoreFull", True)
        assert str(path) in answer["text"]
        assert process.ask("fetch", seqs=[1, 2, 3])["seqs"] == []
        control.write_text(f"space {64 * MIB}\n")
        assert process.ask("until_room") == {"full_now": False}
        assert process.ask("insert", seqs=[1], octets=6 * MIB)["error"] is None
        process.ask("close")
    assert stored(path) == [1]


@pytest.mark.parametrize("inserts", [False, True])
def test_a_batch_that_finds_no_room_is_written_with_the_reserve(
    library: Path, control: Path, path: Path, inserts: bool
) -> None:
    with Process(
        path, faulty=(library, control), reserve_octets=2 * MIB, idle_seconds=600
    ) as process:
        process.ask("open")
        assert process.ask("insert", seqs=[1, 2, 3], octets=30_000)["error"] is None
        # Less than the reserve and the files together have grown by, and more than the files.
        control.write_text(f"space {MIB}\n")
        answer = (
            process.ask("insert", seqs=[4], octets=30_000)
            if inserts
            else process.ask("delete", seqs=[1])
        )
        assert answer == {"error": None, "text": "None", "full_now": True}
        assert not path.with_name("messages.reserve").exists()
        process.ask("close")
    assert stored(path) == ([1, 2, 3, 4] if inserts else [2, 3])


def test_opening_on_a_full_disk_gives_the_reserve_up(
    library: Path, control: Path, path: Path
) -> None:
    with Process(path, faulty=(library, control), reserve_octets=MIB) as process:
        process.ask("open")
        assert process.ask("insert", seqs=[1, 2], octets=100_000)["error"] is None
    control.write_text("space 0\n")
    with Process(path, faulty=(library, control), reserve_octets=MIB, idle_seconds=600) as process:
        answer = process.ask("open")
        assert answer["full_now"] is True
        assert f"until {path.parent} has {2 * MIB} bytes free (" in answer["full"]
        assert not path.with_name("messages.reserve").exists()
        assert process.ask("delete", seqs=[1])["error"] is None
        process.ask("close")
    assert stored(path) == [2]


def test_a_quota_that_is_used_up_is_a_full_disk(library: Path, control: Path, path: Path) -> None:
    with Process(path, faulty=(library, control), reserve_octets=0, idle_seconds=600) as process:
        process.ask("open")
        control.write_text(f"write {errno.EDQUOT}\n")
        assert process.ask("insert", seqs=[1], octets=10)["error"] == "StoreFull"
        control.write_text("")
        assert process.ask("insert", seqs=[2], octets=10)["error"] is None
        process.ask("close")
    assert stored(path) == [2]


@pytest.mark.parametrize(
    "fault", [f"fsync {errno.EIO}", f"fsync {errno.ENOSPC}", f"write {errno.EIO}"]
)
def test_a_failed_write_or_fsync_is_final(
    fault: str, library: Path, control: Path, path: Path
) -> None:
    with Process(path, faulty=(library, control), reserve_octets=0, idle_seconds=600) as process:
        process.ask("open")
        assert process.ask("insert", seqs=[1], octets=10)["error"] is None
        control.write_text(f"{fault}\n")
        answer = process.ask("insert", seqs=[2], octets=10)
        assert (answer["error"], answer["full_now"]) == ("StoreFailed", False)
        assert str(path) in answer["text"]
        # The disk being well again changes nothing: what the kernel dropped is not known.
        control.write_text("")
        assert process.ask("insert", seqs=[3], octets=10)["error"] == "StoreFailed"
        assert process.ask("delete", seqs=[1])["error"] == "StoreFailed"
        assert process.ask("fetch", seqs=[1])["error"] == "StoreFailed"
        assert process.ask("close") == {}
    found = stored(path)
    # What was reported is there. Of the batch that failed nobody knows; those after it never were.
    assert found in ([1], [1, 2])


def test_a_failed_checkpoint_is_final_for_the_next_batch(
    library: Path, control: Path, path: Path
) -> None:
    with Process(
        path, faulty=(library, control), reserve_octets=0, checkpoint_octets=1, idle_seconds=600
    ) as process:
        process.ask("open")
        for seq in range(1, 8):
            assert process.ask("insert", seqs=[seq], octets=10)["error"] is None
        # The eighth commit is synced before the log is copied back; from then on every fsync fails.
        control.write_text(f"fsync {errno.EIO}\n")
        assert process.ask("insert", seqs=[8], octets=10)["error"] == "StoreFailed"
    assert stored(path)[:7] == list(range(1, 8))


def test_a_disk_that_fails_at_opening_is_named(library: Path, control: Path, path: Path) -> None:
    with Process(path, faulty=(library, control), reserve_octets=0) as process:
        process.ask("open")
        process.ask("close")
    control.write_text(f"fsync {errno.EIO}\n")
    with Process(path, faulty=(library, control), reserve_octets=0) as process:
        answer = process.ask("open")
        assert answer["error"] == "StoreError"
        assert str(path) in answer["text"]
