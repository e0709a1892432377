"""A catalogue of what can have happened to a write-ahead log, and whether it is a torn tail or
damage.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.store.integrity import opening, wal
from gateway.broker.store.interface import StoreDamaged
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import History, QueueReactor, contents

PAGE: Final = opening.PAGE_SIZE
FRAME: Final = wal.FRAME_HEADER + PAGE
BATCHES: Final = 12


class Written(NamedTuple):
    """A store as a killed process leaves it, its log not copied back."""

    folder: Path
    log: bytes
    history: History

    @property
    def commits(self) -> list[int]:
        """The last frame of each batch's commit, from 0; what follows it is its second writing."""
        return commits(self.log)


def frames(log: bytes) -> int:
    return (len(log) - wal.HEADER) // FRAME


def at(frame: int) -> int:
    """The offset of a frame."""
    return wal.HEADER + frame * FRAME


def whole(log: bytes, frame: int) -> bytes:
    return log[at(frame) : at(frame + 1)]


def mark(log: bytes, frame: int) -> int:
    """Pages in the database after this frame's commit; 0 when it does not commit."""
    return int.from_bytes(log[at(frame) + 4 : at(frame) + 8])


def commits(log: bytes) -> list[int]:
    """The last frame of each commit, from 0, in a log without remains."""
    found: list[int] = []
    number = 0
    while number < frames(log):
        if mark(log, number):
            found.append(number)
            if at(number + 1) % wal.SYNCED:
                number += 1
                assert whole(log, number)[:8] == whole(log, number - 1)[:8], "no second writing"
        number += 1
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    copy = tmp_path_factory.mktemp("killed")
    reactor = QueueReactor()
    store = SqliteStore(
        str(folder / "messages.db"), reactor.reactor, reserve_octets=0, idle_seconds=600
    )
    store.open()
    history = History(7)
    for _ in range(BATCHES):
        assert reactor.commit(store, history.next()) is None
    for name in ("messages.db", "messages.db-wal"):
        shutil.copy(folder / name, copy / name)
    reactor.close(store)
    log = (copy / "messages.db-wal").read_bytes()
    result = Written(copy, log, history)
    assert len(result.commits) == BATCHES
    assert frames(log) > 3 * BATCHES
    return result


@pytest.fixture
def opened_with(written: Written, tmp_path: Path) -> Callable[[bytes], dict[str, object]]:
    """Opens the store with another log, and gives what it then holds and its notes."""

    def open_with(log: bytes) -> dict[str, object]:
        shutil.copy(written.folder / "messages.db", tmp_path / "messages.db")
        (tmp_path / "messages.db-wal").write_bytes(log)
        reactor = QueueReactor()
        store = SqliteStore(
            str(tmp_path / "messages.db"), reactor.reactor, reserve_octets=0, idle_seconds=600
        )
        recovered = store.open()
        found = contents(reactor, store, recovered)
        reactor.close(store)
        return {"contents": found, "notes": recovered.notes, "clean": recovered.clean}

    return open_with


# What was done to the log. Each takes the log and its committing frames.


def flip(log: bytes, offset: int) -> bytes:
    return log[:offset] + bytes([log[offset] ^ 0x10]) + log[offset + 1 :]


def zero(log: bytes, start: int, end: int) -> bytes:
    return log[:start] + bytes(end - start) + log[end:]


Damage = Callable[[bytes, list[int]], bytes]

DAMAGED: dict[str, Damage] = {
    "bit flipped in the page of the first frame": lambda log, commits: flip(log, at(0) + 24 + 1000),
    "bit flipped in the page of a middle frame": lambda log, commits: flip(
        log, at(commits[5] - 1) + 3000
    ),
    "bit flipped in the checksum of a middle frame": lambda log, commits: flip(
        log, at(commits[5]) + 17
    ),
    "bit flipped in the page number of a middle frame": lambda log, commits: flip(
        log, at(commits[5]) + 3
    ),
    "bit flipped in the commit mark of a middle frame": lambda log, commits: flip(
        log, at(commits[5]) + 6
    ),
    "salt of a middle frame changed": lambda log, commits: flip(log, at(commits[5]) + 9),
    "first frame zeroed": lambda log, commits: zero(log, at(0), at(1)),
    "middle frame zeroed": lambda log, commits: zero(log, at(commits[5]), at(commits[5] + 1)),
    "middle sector zeroed": lambda log, commits: zero(
        log, at(commits[5] + 1) - 512, at(commits[5] + 1)
    ),
    "all but the last frame zeroed": lambda log, commits: zero(log, at(0), at(commits[-1])),
    "a frame of the last commit, but not its last": lambda log, commits: flip(
        log, at(commits[-1] - 1) + 100
    ),
    "bit flipped in the last frame of the last commit": lambda log, commits: flip(
        log, at(commits[-1]) + 2000
    ),
    "the commit mark of the last commit zeroed": lambda log, commits: zero(
        log, at(commits[-1]) + 4, at(commits[-1]) + 8
    ),
    "salt of the last commit changed": lambda log, commits: flip(log, at(commits[-1]) + 9),
    "last frame of the last commit zeroed": lambda log, commits: zero(
        log, at(commits[-1]), at(commits[-1] + 1)
    ),
    "the block in which the last commit ends zeroed": lambda log, commits: zero(
        log, at(commits[-1] + 1) // 4096 * 4096, at(commits[-1] + 1) // 4096 * 4096 + 4096
    ),
    "both writings of the last frame": lambda log, commits: flip(
        flip(log, at(commits[-1]) + 50), at(commits[-1] + 1) + 50
    ),
    "a frame taken out of the middle": lambda log, commits: (
        log[: at(commits[5])] + log[at(commits[5] + 1) :]
    ),
    "two frames exchanged": lambda log, commits: b"".join(
        (
            log[: at(commits[5])],
            whole(log, commits[5] + 1),
            whole(log, commits[5]),
            log[at(commits[5] + 2) :],
        )
    ),
}

#: name: (what is done, how many batches are there after opening, whether there is something to
#: note)
TORN: dict[str, tuple[Damage, int, bool]] = {
    "nothing": (lambda log, commits: log, BATCHES, False),
    "cut after a commit": (lambda log, commits: log[: at(commits[7] + 1)], 8, False),
    "cut after the second writing of a commit": (
        lambda log, commits: log[: at(commits[7] + 2)],
        8,
        False,
    ),
    "cut within the second writing": (lambda log, commits: log[:-1000], BATCHES, True),
    "cut within the last frame": (
        lambda log, commits: log[: at(commits[-1]) + 1000],
        BATCHES - 1,
        True,
    ),
    "cut within the header of the last frame": (
        lambda log, commits: log[: at(commits[-1]) + 10],
        BATCHES - 1,
        True,
    ),
    "cut before a commit": (lambda log, commits: log[: at(commits[7])], 7, True),
    "bit flipped in the second writing": (
        lambda log, commits: flip(log, at(commits[-1] + 1) + 2000),
        BATCHES,
        True,
    ),
    "second writing zeroed": (
        lambda log, commits: zero(log, at(commits[-1] + 1), len(log)),
        BATCHES,
        False,
    ),
    "last commit zeroed": (
        lambda log, commits: zero(log, at(commits[-2] + 2), len(log)),
        BATCHES - 1,
        False,
    ),
    "last frame bad and no second writing": (
        lambda log, commits: flip(log, at(commits[-1]) + 9000 % PAGE)[: at(commits[-1] + 1)],
        BATCHES - 1,
        True,
    ),
    "zeros behind": (lambda log, commits: log + bytes(5 * FRAME + 17), BATCHES, False),
    "cut to its header": (lambda log, commits: log[: wal.HEADER], 0, False),
    "cut within its header": (lambda log, commits: log[:20], 0, True),
    "of no length": (lambda log, commits: b"", 0, False),
    "nothing but zeros": (lambda log, commits: bytes(len(log)), 0, True),
    "a header that was not finished": (lambda log, commits: log[:16] + bytes(16), 0, True),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_by_file_and_offset(
    name: str, written: Written, opened_with: Callable[[bytes], object], tmp_path: Path
) -> None:
    log = DAMAGED[name](written.log, written.commits)
    first = next(
        frame for frame in range(frames(log)) if whole(log, frame) != whole(written.log, frame)
    )
    with pytest.raises(StoreDamaged) as refused:
        opened_with(log)
    assert refused.value.path == str(tmp_path / "messages.db-wal")
    assert refused.value.place == f"offset {at(first)}"
    assert (tmp_path / "messages.db-wal").read_bytes() == log
    assert (tmp_path / "messages.db").read_bytes() == (written.folder / "messages.db").read_bytes()


@pytest.mark.parametrize("offset", [0, 3, 5, 10, 14, 17, 22, 27, 31])
def test_a_damaged_header_before_frames_is_refused(
    offset: int, written: Written, opened_with: Callable[[bytes], object], tmp_path: Path
) -> None:
    with pytest.raises(StoreDamaged) as refused:
        opened_with(flip(written.log, offset))
    assert (refused.value.path, refused.value.place) == (
        str(tmp_path / "messages.db-wal"),
        "offset 0",
    )


@pytest.mark.parametrize("name", TORN)
def test_a_torn_tail_is_passed_over_and_noted(
    name: str, written: Written, opened_with: Callable[[bytes], dict[str, object]], tmp_path: Path
) -> None:
    tear, batches, noted = TORN[name]
    found = opened_with(tear(written.log, written.commits))
    assert found["contents"] == written.history.after_restart(batches)
    assert found["clean"] is False
    notes = found["notes"]
    assert isinstance(notes, list)
    assert len(notes) == noted
    assert all(str(tmp_path / "messages.db-wal") in note for note in notes)
    # What was torn off is gone for good: the next start has nothing to say.
    reactor = QueueReactor()
    store = SqliteStore(str(tmp_path / "messages.db"), reactor.reactor, reserve_octets=0)
    recovered = store.open()
    assert recovered.clean
    assert recovered.notes == []
    assert contents(reactor, store, recovered) == written.history.after_restart(batches)
    reactor.close(store)


def test_any_single_flipped_bit_is_refused_or_costs_nothing(
    written: Written, opened_with: Callable[[bytes], dict[str, object]]
) -> None:
    choose = random.Random(3)
    last = at(written.commits[-1])
    for offset in [
        *(choose.randrange(len(written.log)) for _ in range(15)),
        *(choose.randrange(last, last + 2 * FRAME) for _ in range(8)),
    ]:
        try:
            found = opened_with(flip(written.log, offset))
        except StoreDamaged:
            assert offset < last + FRAME
        else:
            assert offset >= last + FRAME
            assert found["contents"] == written.history.after_restart(BATCHES)


def test_a_log_that_began_again_has_remains_of_its_former_use(
    tmp_path: Path, reactor: QueueReactor
) -> None:
    path = tmp_path / "messages.db"
    # One octet: the log is copied back whenever its length is looked at.
    store = SqliteStore(
        str(path), reactor.reactor, reserve_octets=0, checkpoint_octets=1, idle_seconds=600
    )
    store.open()
    history = History(11)
    for _ in range(26):
        assert reactor.commit(store, history.next()) is None
    copy = tmp_path / "copy.db"
    log = Path(f"{path}-wal").read_bytes()
    shutil.copy(path, copy)
    Path(f"{copy}-wal").write_bytes(log)
    reactor.close(store)
    salts = {log[at(n) + 8 : at(n) + 16] for n in range(frames(log))}
    assert len(salts) > 1, "the log never began again, or was cut"
    again = SqliteStore(str(copy), reactor.reactor, reserve_octets=0)
    recovered = again.open()
    assert recovered.notes == []
    assert contents(reactor, again, recovered) == history.after_restart(26)
    reactor.close(again)


def in_other_order(log: bytes) -> bytes:
    """The same log with checksums over big-endian words, as a big-endian machine writes it."""
    header = (wal._MAGIC | 1).to_bytes(4) + log[4:24]
    a, b = wal.checksum(header, "big")
    result = [header, struct.pack(">2I", a, b)]
    for frame in range(frames(log)):
        head, page = log[at(frame) : at(frame) + 16], log[at(frame) + 24 : at(frame + 1)]
        a, b = wal.checksum(head[:8] + page, "big", a, b)
        result += [head, struct.pack(">2I", a, b), page]
    return b"".join(result)


def test_a_log_of_a_machine_of_the_other_octet_order(
    written: Written, opened_with: Callable[[bytes], dict[str, object]]
) -> None:
    log = in_other_order(written.log)
    found = opened_with(log)
    assert (found["contents"], found["notes"]) == (written.history.after_restart(BATCHES), [])
    with pytest.raises(StoreDamaged, match=f"offset {at(written.commits[4])}:"):
        opened_with(flip(log, at(written.commits[4]) + 50))


def test_a_log_of_another_page_size_is_refused(written: Written, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(written.log)
    with pytest.raises(StoreDamaged, match="pages have 4096 octets, the database's 8192"):
        wal.examine(str(log), 8192)


def test_no_log_at_all(tmp_path: Path) -> None:
    assert wal.examine(str(tmp_path / "none"), PAGE) == wal.Log(0, "")


@given(
    st.data(),
    st.sampled_from(["little", "big"]),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_sums_side_by_side_are_the_running_checksum(
    data: st.DataObject, order: Literal["little", "big"], count: int, a: int, b: int
) -> None:
    page = 512
    pages = [
        data.draw(
            st.sampled_from([bytes(page), b"\xff" * page, random.Random(count).randbytes(page)])
        )
        for _ in range(count)
    ]
    heads = [data.draw(st.binary(min_size=24, max_size=24)) for _ in range(count)]
    block = b"".join(head + body for head, body in zip(heads, pages, strict=True))
    for head, body, local in zip(
        heads, pages, wal._local_sums(block, count, 24 + page, order), strict=True
    ):
        expected = wal.checksum(head[:8] + body, order, a, b)
        assert wal._go_on((a, b), local, page) == expected
        a, b = expected


def test_passed_looks_at_the_current_use_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    salt, former = b"salt....", b"former.."
    frame = bytes(8) + salt + bytes(8 + PAGE)
    log.write_bytes(bytes(16) + salt + bytes(8) + 3 * frame + frame.replace(salt, former))
    with log.open("rb") as file:
        assert wal.passed(file.fileno(), 0, PAGE)
        assert wal.passed(file.fileno(), 2 * FRAME, PAGE)
        assert not wal.passed(file.fileno(), 3 * FRAME, PAGE)
        assert not wal.passed(file.fileno(), 4 * FRAME, PAGE)
