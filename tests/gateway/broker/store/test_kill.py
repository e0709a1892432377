"""A process is killed while it writes.

What it reported durable is there, whole; of the rest every batch is there or not.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from gateway.broker.store.interface import Store
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.child import IN_FLIGHT
from tests.gateway.broker.store.harness import History, QueueReactor, contents
from tests.gateway.broker.store.processes import Process, build_faulty_disk

pytestmark = pytest.mark.process


def check(path: Path, seed: int, reported: int) -> int:
    reactor = QueueReactor()
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=0)
    return batches_there(reactor, store, seed, reported)


def batches_there(reactor: QueueReactor, store: Store, seed: int, reported: int) -> int:
    """Open what is left and compare it with what the seed's history says.

    :param store: not opened; closed then.
    :returns: how many batches are there.
    """
    recovered = store.open()
    found = contents(reactor, store, recovered)
    reactor.close(store)
    history = History(seed)
    # The child may have been told of the last ones and died before it could say so, or submit more.
    for number in range(reported + 2 * IN_FLIGHT + 1):
        if number and number >= len(history.states):
            history.next()
        if number >= reported and history.after_restart(number) == found:
            return number
    raise AssertionError(
        f"what is there is neither batch {reported}, which was reported, nor a later one"
    )


POINTS = [
    ("store.mid-batch", 1),
    ("store.mid-batch", 30),
    ("store.before-commit", 1),
    ("store.before-commit", 17),
    ("store.after-commit", 1),
    ("store.after-commit", 25),
    ("store.before-checkpoint", 1),
    ("store.before-checkpoint", 3),
    ("store.after-checkpoint", 1),
    ("store.after-checkpoint", 4),
]


@pytest.mark.parametrize(("point", "times"), POINTS)
def test_killed_at(point: str, times: int, tmp_path: Path) -> None:
    seed = times
    path = tmp_path / "messages.db"
    with Process(path, kill=[point, times], reserve_octets=0, checkpoint_octets=1) as process:
        assert process.ask("open")["next_seq"] == 1
        process.say("stream", seed=seed)
        reported = process.numbers()
        assert process.status == -signal.SIGKILL
    there = check(path, seed, reported)
    if point == "store.after-commit":
        assert there >= times
    if point in ("store.mid-batch", "store.before-commit"):
        assert there == times - 1


@pytest.mark.parametrize("point", ["store.before-rename", "store.after-rename"])
def test_killed_while_the_store_is_made(point: str, tmp_path: Path) -> None:
    path = tmp_path / "messages.db"
    with Process(path, kill=[point, 1], reserve_octets=0) as process:
        process.say("open")
        assert process.line() == ""
        assert process.status == -signal.SIGKILL
    assert path.exists() == (point == "store.after-rename")
    assert check(path, 0, 0) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["messages.db"]


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment(seed: int, tmp_path: Path) -> None:
    """The moment is that of some report, which has no relation to what the store's thread is at."""
    path = tmp_path / "messages.db"
    checkpoint_octets = (1, 64 << 20)[seed % 2]
    with Process(
        path, reserve_octets=0, checkpoint_octets=checkpoint_octets, idle_seconds=0.01
    ) as process:
        process.ask("open")
        process.say("stream", seed=seed)
        reported = process.numbers(random.Random(seed).randrange(1, 80))
        reported = max(reported, process.kill())
    assert check(path, seed, reported) >= reported


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_killed_at_any_moment_again_and_again(seed: int, tmp_path: Path) -> None:
    test_killed_at_any_moment(seed, tmp_path)


@pytest.mark.parametrize("checkpoint_octets", [1, 64 << 20])
def test_the_power_fails(
    checkpoint_octets: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Everything that was never synced is lost: what was reported had been synced before."""
    path, shadow, control = (
        tmp_path / "store" / "messages.db",
        tmp_path / "shadow",
        tmp_path / "control",
    )
    path.parent.mkdir()
    shadow.mkdir()
    control.write_text(f"shadow {shadow}\n")
    library = build_faulty_disk(tmp_path_factory.mktemp("library"))
    with Process(
        path, faulty=(library, control), reserve_octets=0, checkpoint_octets=checkpoint_octets
    ) as process:
        process.ask("open")
        process.say("stream", seed=3)
        reported = process.numbers(60)
        reported = max(reported, process.kill())
    if not (shadow / "messages.db").exists():
        # Synced under the name it had while it was made; the folder was synced after the renaming.
        (shadow / "messages.db.tmp").rename(shadow / "messages.db")
    assert check(shadow / "messages.db", 3, reported) >= reported >= 60
