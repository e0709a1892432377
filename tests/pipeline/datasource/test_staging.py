"""The staging folder keeps its promise whatever ends when: each message is given to the query
once.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stomp.brokers import GATEWAY
from gateway.stomp.wire import Frame, Head
from pipeline.datasource import remembered, staged
from pipeline.datasource import staging as module
from pipeline.datasource.errors import StagingError
from pipeline.datasource.remembered import Remembered
from pipeline.datasource.rows import record_batch
from pipeline.datasource.staged import End, Staged
from pipeline.datasource.staging import Staging
from pipeline.durable import sync

SOURCE = "queue:orders"


def messages(ids: Sequence[str]) -> Staged:
    frames = [
        Frame(
            Head("MESSAGE", {"message-id": one, "timestamp": "1700000000000"}),
            f"body of {one}".encode(),
        )
        for one in ids
    ]
    return Staged([record_batch(frames, GATEWAY)] if frames else [], len(ids), End.FULL)


def ids(staged: Staged) -> list[str]:
    return [one for batch in staged.batches for one in batch.column("message_id").to_pylist()]


def opened(folder: Path) -> tuple[Staging, int]:
    """The folder of a run that has begun, and its epoch."""
    staging = Staging(folder, SOURCE)
    return staging, staging.begin().epoch


def begun(folder: Path, partitions: int = 1) -> tuple[Staging, int]:
    """The folder of a run whose first micro-batch is planned, and the run's epoch."""
    staging, epoch = opened(folder)
    assert staging.plan(epoch, 1, partitions) == partitions
    return staging, epoch


def test_the_first_to_publish_counts(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path / "s", 2)
    first = staging.publish(1, 0, 0, epoch, messages(["a", "b"]), True)
    assert first.mine
    second = Staging(tmp_path / "s", SOURCE).publish(1, 0, 0, epoch, messages(["c"]), True)
    assert (second.mine, ids(second)) == (False, ["a", "b"])
    found = staging.find(1, 0)
    assert found is not None
    assert (found.batches, found.received, found.ended) == (list(first.batches), 2, End.FULL)
    assert staging.plan(epoch, 1, 5) == 2
    assert list((tmp_path / "s").glob("*.tmp")) == []


def test_what_comes_again_is_dropped_also_by_another_partition_and_another_worker(
    tmp_path: Path,
) -> None:
    staging, epoch = begun(tmp_path, 2)
    staging.publish(1, 0, 0, epoch, messages(["a", "b"]), True)
    again = staging.publish(1, 1, 0, epoch, messages(["b", "c", "c"]), True)
    assert (ids(again), again.received) == (["c"], 3)
    staging.commit(1)
    assert list(tmp_path.glob("*.arrow")) == []
    assert sorted(path.name.split(".", 1)[1] for path in (tmp_path / "ids").iterdir()) == [
        "1.unsettled",
        "2.unsettled",
    ]
    Remembered._all.clear()  # as in a worker that has just begun
    other = Staging(tmp_path, SOURCE)
    other.plan(epoch, 2, 2)
    assert ids(other.publish(2, 0, 0, epoch, messages(["a", "b", "c"]), True)) == []
    assert ids(other.publish(2, 1, 0, epoch, messages(["a", "d"]), False)) == ["a", "d"]


def test_a_worker_of_an_older_run_publishes_nothing(tmp_path: Path) -> None:
    staging, old = begun(tmp_path, 2)
    new = staging.begin().epoch
    with pytest.raises(StagingError, match="another run of the query"):
        staging.publish(1, 0, 0, old, messages(["a"]), True)
    with pytest.raises(StagingError, match="another run of the query"):
        staging.plan(old, 2, 2)
    assert staging.find(1, 0) is None
    assert staging.plan(new, 1, 1) == 2
    assert staging.publish(1, 0, 0, new, messages(["a"]), True).mine


def test_a_micro_batch_that_is_over_takes_no_more(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path, 2)
    staging.publish(1, 0, 0, epoch, messages(["a"]), True)
    staging.commit(1)
    with pytest.raises(StagingError, match="is over"):
        staging.publish(1, 0, 0, epoch, messages(["b"]), True)


def test_a_folder_of_another_query_is_refused(tmp_path: Path) -> None:
    staging, epoch = opened(tmp_path)
    with pytest.raises(StagingError, match=r"queue:orders.*reads queue:other"):
        Staging(tmp_path, "queue:other").begin()
    with pytest.raises(StagingError, match="lost files"):
        staging.plan(epoch, 57, 2)
    staging.plan(epoch, 1, 2)
    staging.commit(1)
    with pytest.raises(StagingError, match="checkpoint is older"):
        staging.plan(epoch, 1, 2)
    for state, said in (('{"version": 9}', "another version"), ("{", "cannot be read")):
        (tmp_path / "state.json").write_text(state)
        with pytest.raises(StagingError, match=said):
            staging.state()
    (tmp_path / "file").touch()
    with pytest.raises(StagingError, match="stagingPath"):
        Staging(tmp_path / "file", SOURCE).begin()
    with pytest.raises(StagingError, match="stagingPath"):
        Staging(tmp_path / "nowhere", SOURCE).publish(1, 0, 0, 1, messages(["a"]), True)


def test_most_messages_say_how_old_a_micro_batch_is(tmp_path: Path) -> None:
    """One sender whose clock is ahead, or behind, does not."""
    staging, epoch = opened(tmp_path)
    for batch, times in enumerate(([1, 1, 9], [1, 9, 9], [], [0, 9]), 1):
        staging.plan(epoch, batch, 1)
        frames = [
            Frame(Head("MESSAGE", {"message-id": f"{batch}-{n}", "timestamp": str(time)}), b"")
            for n, time in enumerate(times)
        ]
        rows = [record_batch(frames, GATEWAY)] if frames else []
        staging.publish(batch, 0, 0, epoch, Staged(rows, len(times), End.FULL), True)
    assert [staging.younger(batch, 5_000) for batch in range(1, 5)] == [False, True, False, False]


def test_a_new_folder_is_on_the_disk_with_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def noting(path: Path) -> None:
        sync(path)
        synced.append(path)

    monkeypatch.setattr(module, "sync", noting)
    Staging(tmp_path / "a" / "b", SOURCE).begin()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_ids_that_are_in_no_file_leave_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "_MANY", 50)
    monkeypatch.setattr(module, "SETTLED_IDS", 20)
    staging, epoch = opened(tmp_path)
    most = 0
    for batch in range(1, 60):
        staging.plan(epoch, batch, 1)
        known = [f"{batch - 1}-{one}" for one in range(10)]
        found = staging.publish(
            batch, 0, 0, epoch, messages([*known, *[f"{batch}-{one}" for one in range(10)]]), True
        )
        assert ids(found)[-10:] == [f"{batch}-{one}" for one in range(10)]
        assert len(ids(found)) == (20 if batch == 1 else 10)
        staging.settled(batch, 0, 0)
        staging.commit(batch)
        most = max(most, len(Remembered.of(tmp_path)._ids))
    # 50 and twice what the files have, and the batch with which it is too many.
    assert 50 <= most <= 50 + 2 * 30 + 20


def test_ids_are_forgotten_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLED_IDS", 25)
    staging, epoch = opened(tmp_path)
    for batch in range(1, 11):
        staging.plan(epoch, batch, 2)
        staging.publish(batch, 0, 0, epoch, messages([f"{batch}-{one}" for one in range(10)]), True)
        if batch != 2:
            staging.settled(batch, 0, 0)
        staging.commit(batch)
    kept = sorted(path.name.lstrip("0") for path in (tmp_path / "ids").iterdir())
    assert kept == [
        f"{name}-0000-000000.10.{end}"
        for name, end in ((10, "settled"), (2, "unsettled"), (8, "settled"), (9, "settled"))
    ]


def test_a_folder_that_was_removed_and_made_again_remembers_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        staging, epoch = begun(tmp_path / "s", 2)
        assert ids(staging.publish(1, 0, 0, epoch, messages(["a"]), True)) == ["a"]
        shutil.rmtree(tmp_path / "s")


def test_a_file_that_is_damaged_anywhere_ends_no_process(tmp_path: Path) -> None:
    """A worker that a signal ends names neither file nor reason."""
    path = tmp_path / "000000000001-0000-000000.arrow"
    staged.write(path, messages(["a", "b"]))
    whole = path.read_bytes()
    refused: list[str] = []
    for place in range(0, len(whole), 16):
        path.write_bytes(whole[:place] + b"\x7f" * 4 + whole[place + 4 :])
        try:
            for one in staged.read(path).batches:
                one.validate(full=True)
            staged.ids_of(path)
        except StagingError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert all(error.startswith(f"{path} cannot be read: ") for error in refused)


def test_a_damaged_file_is_told_by_its_name(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path, 2)
    staging.publish(1, 0, 0, epoch, messages(["a"]), True)
    path = tmp_path / "000000000001-0000-000000.arrow"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StagingError, match=r"000000000001-0000-000000\.arrow cannot be read"):
        staging.find(1, 0)


def pieces(count: int, *, over: bool) -> list[Staged]:
    found = [
        replace(messages([f"{number}a", f"{number}b"]), ended=End.MORE) for number in range(count)
    ]
    return [*found[:-1], replace(found[-1], ended=End.QUIET)] if over else found


def test_a_partition_in_pieces_is_one(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path, 2)
    for number, piece in enumerate(pieces(3, over=True)):
        assert staging.publish(1, 0, number, epoch, piece, True).mine
        staging.settled(1, 0, number)
    staging.publish(1, 1, 0, epoch, messages(["c"]), True)
    found = staging.find(1, 0)
    assert found is not None
    assert (ids(found), found.received, found.ended) == (
        ["0a", "0b", "1a", "1b", "2a", "2b"],
        6,
        End.QUIET,
    )
    assert [(part.received, part.ended) for part in staging.counts(1)] == [
        (6, End.QUIET),
        (1, End.FULL),
    ]
    staging.commit(1)
    assert sorted(path.name.split("-", 1)[1] for path in (tmp_path / "ids").iterdir()) == [
        "0000-000002.6.settled",
        "0001-000000.1.unsettled",
    ]
    assert list(tmp_path.glob("*.arrow")) == []
    # Who knows them as pieces, and who has seen none of them.
    for _ in range(2):
        staging.plan(epoch, 2, 1)
        assert ids(
            Staging(tmp_path, SOURCE).publish(2, 0, 0, epoch, messages(["1b", "c", "d"]), True)
        ) == ["d"]
        for path in tmp_path.glob("*.arrow"):
            path.unlink()
        Remembered._all.clear()


def test_a_partition_that_its_task_has_left_ends_where_it_is(tmp_path: Path) -> None:
    """Whoever reads it has ended it, so that two never read different rows."""
    staging, epoch = begun(tmp_path)
    for number, piece in enumerate(pieces(2, over=False)):
        staging.publish(1, 0, number, epoch, piece, True)
    found = Staging(tmp_path, SOURCE).find(1, 0)
    assert found is not None
    assert (ids(found), found.ended) == (["0a", "0b", "1a", "1b"], End.LEFT)
    late = staging.publish(1, 0, 2, epoch, messages(["x"]), True)
    assert (late.mine, ids(late)) == (False, ids(found))
    staging.commit(1)
    assert [path.name.split(".", 1)[1] for path in (tmp_path / "ids").iterdir()] == ["4.unsettled"]


def test_a_second_task_ends_the_partition_of_the_first(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path)
    first, second = pieces(2, over=False)
    staging.publish(1, 0, 0, epoch, first, True)
    other = Staging(tmp_path, SOURCE).publish(1, 0, 0, epoch, messages(["x"]), True)
    assert (other.mine, ids(other)) == (False, ["0a", "0b"])
    again = staging.publish(1, 0, 1, epoch, second, True)
    assert (again.mine, ids(again)) == (False, ["0a", "0b"])


def test_pieces_that_are_gone_are_told(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path)
    first, second = pieces(2, over=False)
    staging.publish(1, 0, 0, epoch, first, True)
    next(tmp_path.glob("*.arrow")).unlink()
    with pytest.raises(StagingError, match="has lost files of micro-batch 1 while it ran"):
        staging.publish(1, 0, 1, epoch, second, True)


def test_a_commit_that_ends_halfway_forgets_no_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the driver had removed when it ended: nobody takes a partition for known because of
    those pieces of it that are left.
    """
    files = [
        f"000000000001-0000-{number:06}.{end}"
        for number in range(3)
        for end in ("arrow", "settled")
    ]
    unlink = Path.unlink

    def die(path: Path, missing_ok: bool = False) -> None:
        if path.name in files:
            raise Died
        unlink(path, missing_ok)

    for left in range(1 << len(files)):
        for again in (False, True):
            folder = tmp_path / f"{left}-{again}"
            staging, epoch = begun(folder)
            for number, piece in enumerate(pieces(2, over=False)):
                staging.publish(1, 0, number, epoch, piece, True)
            staging.settled(1, 0, 0)
            assert staging.find(1, 0)
            with monkeypatch.context() as patched:
                patched.setattr(Path, "unlink", die)
                with pytest.raises(Died):
                    staging.commit(1)
            for number, name in enumerate(files):
                if not left >> number & 1:
                    (folder / name).unlink(missing_ok=True)
            Remembered._all.clear()
            staging, epoch = opened(folder)
            staging.plan(epoch, 2, 1)
            if again:
                staging.commit(2)
                staging.plan(epoch, 3, 1)
            found = staging.publish(
                3 if again else 2, 0, 0, epoch, messages(["0a", "0b", "1a", "1b", "x"]), True
            )
            assert (ids(found), found.mine) == (["x"], True), (left, again)


def test_who_reads_what_another_has_published_has_it_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task may have ended between the rename and the sync."""
    staging, epoch = begun(tmp_path)
    staging.publish(1, 0, 0, epoch, messages(["a"]), True)
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync", synced.append)
    assert staging.find(1, 0)
    assert synced == [tmp_path]


def test_a_partition_that_cannot_be_ended_is_told(tmp_path: Path) -> None:
    """As on a disk that is full."""
    staging, epoch = begun(tmp_path)
    (piece,) = pieces(1, over=False)
    staging.publish(1, 0, 0, epoch, piece, True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StagingError, match="cannot be written to"):
            staging.find(1, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.glob("*.tmp")) == []
    assert staging.find(1, 0)


def test_a_full_disk_is_told_by_the_folder_s_name(tmp_path: Path) -> None:
    staging, epoch = begun(tmp_path)
    publish = staging.publish(1, 0, 0, epoch, messages(["a"]), True)
    assert publish.mine
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for done in (staging.begin, lambda: staging.commit(1), lambda: staging.skip(5)):
            with pytest.raises(StagingError, match=f"stagingPath {tmp_path} cannot be used: "):
                done()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    staging.commit(1)


# --- everything ends at any moment


class Died(Exception):
    """The driver has ended."""


@dataclass
class Broker:
    waiting: deque[str]
    held: dict[int, list[str]] = field(default_factory=dict)

    def deliver(self, connection: int, most: int) -> list[str]:
        got = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        self.held[connection] = got
        return got

    def lose(self, connection: int) -> None:
        self.waiting.extendleft(reversed(self.held.pop(connection, [])))

    def acknowledge(self, connection: int) -> bool:
        return self.held.pop(connection, None) is not None


@dataclass
class Attempt:
    """A task that has received, and may go on at any time later, whether anybody waits for it or
    not.

    :ivar given: the ids of the pieces that it has published.
    """

    batch: int
    partition: int
    epoch: int
    connection: int
    received: list[str]
    more: bool
    pieces: int = 0
    given: list[str] = field(default_factory=list)


@given(st.data())
def test_no_message_is_lost_or_repeated_whatever_ends_when(data: st.DataObject) -> None:
    """Tasks, their zombies and the driver end at any point; the folder is the real one, on a disk
    that needs no fsync.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "sync", lambda path: None)
        run_queries(data)


def run_queries(data: st.DataObject) -> None:
    total = 15
    broker = Broker(deque(f"m{number}" for number in range(total)))
    sink: dict[int, list[str]] = {}
    zombies: list[Attempt] = []
    connection = 0
    folder = Path(tempfile.mkdtemp(prefix="staging-"))
    staging = Staging(folder, SOURCE)

    def rarely() -> bool:
        return data.draw(st.integers(0, 4)) == 0

    def proceed(attempt: Attempt) -> list[str] | None:
        """From received to the rows; None if it dies, hangs once more, or may not go on."""
        if rarely():
            Remembered._all.clear()
        received = replace(messages(attempt.received), ended=End.MORE if attempt.more else End.FULL)
        try:
            staged = Staging(folder, SOURCE).publish(
                attempt.batch, attempt.partition, attempt.pieces, attempt.epoch, received, True
            )
        except StagingError:
            broker.lose(attempt.connection)
            return None
        if not staged.mine or rarely():
            # It gives its messages back; or dies after it has staged them.
            broker.lose(attempt.connection)
            return ids(staged) if not staged.mine else None
        attempt.given += ids(staged)
        if broker.acknowledge(attempt.connection):
            staging.settled(attempt.batch, attempt.partition, attempt.pieces)
        elif attempt.more:
            # Its connection is gone, and no more comes.
            found = Staging(folder, SOURCE).find(attempt.batch, attempt.partition)
            return None if found is None else ids(found)
        if rarely():
            return None
        if not attempt.more:
            return attempt.given
        attempt.pieces += 1
        return receive(attempt)

    def receive(attempt: Attempt) -> list[str] | None:
        attempt.received = broker.deliver(attempt.connection, data.draw(st.integers(1, 5)))
        attempt.more = bool(attempt.received) and rarely()
        if rarely():
            # It hangs. Perhaps its connection is lost meanwhile.
            zombies.append(attempt)
            if rarely():
                broker.lose(attempt.connection)
            return None
        return proceed(attempt)

    def task(batch: int, partition: int, epoch: int) -> list[str] | None:
        nonlocal connection
        found = Staging(folder, SOURCE).find(batch, partition)
        if found is not None:
            return ids(found)
        connection += 1
        return receive(Attempt(batch, partition, epoch, connection, [], False))

    def commit(batch: int) -> None:
        """Perhaps the driver ends while it removes files."""
        left = data.draw(st.integers(0, 5)) if rarely() else 1000
        unlink = Path.unlink

        def end(path: Path, missing_ok: bool = False) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            unlink(path, missing_ok)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Path, "unlink", end)
            staging.commit(batch)

    try:
        done = 0
        rounds = 0
        while sum(len(rows) for rows in sink.values()) < total:
            rounds += 1
            # A run of the query, which ends when a task fails or when it is killed between two
            # steps.
            epoch = staging.begin().epoch
            partitions = data.draw(st.integers(1, 3))
            alive = True
            while alive and sum(len(rows) for rows in sink.values()) < total and rounds < 200:
                batch = done + 1
                asked = range(staging.plan(epoch, batch, partitions))
                rows: list[str] = []
                for partition in asked:
                    while zombies and rarely():
                        proceed(zombies.pop(0))
                    got = task(batch, partition, epoch)
                    if got is None:
                        alive = False
                        break
                    rows += got
                if not alive:
                    break
                # The sink knows a micro-batch by its number, and takes it once.
                assert sink.setdefault(batch, rows) == rows
                if rarely():
                    break
                done = batch
                if not rarely():
                    try:
                        commit(done)
                    except Died:
                        break
                rounds += 1
            if rounds >= 200:
                break
            if rounds > 100:
                # What hangs for ever keeps its messages for ever; in the end brokers take them
                # away.
                for zombie in zombies:
                    broker.lose(zombie.connection)
                zombies.clear()
            for zombie in zombies:
                if rarely():
                    broker.lose(zombie.connection)
        given_away = [one for batch in sorted(sink) for one in sink[batch]]
        assert len(given_away) == len(set(given_away)), "repeated"
        staged = [one for path in folder.glob("*.arrow") for one in _staged_ids(path)]
        known = (
            set(given_away)
            | set(broker.waiting)
            | {one for held in broker.held.values() for one in held}
            | set(staged)
        )
        assert known == {f"m{number}" for number in range(total)}, "lost"
    finally:
        shutil.rmtree(folder)


def _staged_ids(path: Path) -> list[str]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
        return [
            one
            for number in range(reader.num_record_batches)
            for one in reader.get_batch(number).column("message_id").to_pylist()
        ]
