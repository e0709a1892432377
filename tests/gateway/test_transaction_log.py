"""What decision logs promise, in real files and a real database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import DeferredList

from bridge.xa.decision_log import Removed
from bridge.xa.errors import LogDamaged, NotWritten
from bridge.xa.log.file import LogFile
from gateway.instance.crashpoints import STORE_VARIABLE
from tests.gateway.decision_logs import (
    NAME,
    STAYS,
    InDatabase,
    InFile,
    Place,
    decision_log,
    entry,
    presumed,
)

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return InFile(tmp_path / "log")
    return InDatabase(request.getfixturevalue("postgresql_database")).create()


def gtrids(file: LogFile) -> set[bytes]:
    return {one.gtrid for one in file.entries()}


# --- wherever it is


@pytest_twisted.ensureDeferred
async def test_what_was_decided_is_there_the_next_time(place: Place) -> None:
    file = place.open()
    assert (file.entries(), file.header.generation, file.header.name) == ((), 1, NAME)
    log = decision_log(reactor, file)
    await log.write(entry(1))
    log.note(presumed(7))
    await log.write(entry(2))
    log.note(Removed(entry(1).gtrid))
    await log.close()
    again = place.open()
    assert (again.entries(), again.presumed()) == ((entry(2),), (presumed(7),))
    assert (again.header.generation, again.cut, again.moved) == (2, 0, False)
    assert [run.identity for run in again.header.earlier] == [file.header.identity]
    again.close()


@pytest_twisted.ensureDeferred
async def test_what_comes_together_is_answered_in_order(place: Place) -> None:
    log = decision_log(reactor, place.open())
    fired: list[int] = []
    writes = []
    for number in range(200):
        done = log.write(entry(number))
        assert not done.called
        writes.append(done.addCallback(lambda _, number: fired.append(number), number))
    await DeferredList(writes, fireOnOneErrback=True)
    assert fired == list(range(200))
    await log.close()
    late = log.write(entry(300))
    with pytest.raises(NotWritten):
        await late
    file = place.open()
    assert file.entries() == tuple(map(entry, range(200)))
    file.close()


def test_a_log_that_is_used_for_long_stays_small(place: Place) -> None:
    file = place.open(size=20_000)
    for number in range(3000):
        file.write([entry(number)], sync=True)
        if number >= 3:
            file.write([Removed(entry(number - 3).gtrid)], sync=False)
        if number % 500 == 0:
            assert place.octets() < 150_000
    file.close()
    again = place.open()
    assert again.entries() == tuple(map(entry, range(2997, 3000)))
    again.close()


@pytest.mark.parametrize("part", [0.05, 0.5, 0.9])
def test_damage_is_refused_and_left(place: Place, part: float) -> None:
    file = place.open()
    for number in range(5):
        file.write([entry(number)], sync=True)
    length = file._length
    file.close()
    place.damage(int(part * length))
    for _ in range(2):
        with pytest.raises(LogDamaged) as caught:
            place.open()
        assert file.path in str(caught.value)


@pytest.mark.parametrize("after", [1, 40, 333])
@pytest.mark.parametrize("size", [2_000, 100_000])
def test_what_was_told_outlives_a_process_that_is_killed(
    place: Place, after: int, size: int
) -> None:
    place.open().close()
    told = 0
    with subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.decision_logs", place.argument, str(size)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = int(line)
            if told == after:
                process.kill()
    assert told >= after
    file = place.open()
    found = gtrids(file)
    assert {entry(number).gtrid for number in range(STAYS, told + 1, STAYS)} <= found
    # Of the others the notes of the last moment may be lost, that they are over.
    numbers = sorted(int(one.partition(b"\0")[2]) for one in found)
    assert max(numbers, default=0) <= told + 1
    assert len([number for number in numbers if number % STAYS]) < 30
    assert file.header.generation == 3
    file.close()


@pytest.mark.parametrize(
    "point",
    [
        "store.before-decision:1",
        "store.before-decision:40",
        # The log is written anew when it is opened.
        "store.mid-rewrite:1",
        "store.mid-rewrite:2",
        "store.mid-rewrite:5",
        "store.after-decision:1",
        "store.after-decision:40",
    ],
)
def test_what_was_told_outlives_a_process_that_is_killed_while_it_writes(
    postgresql_database: str, point: str
) -> None:
    place = InDatabase(postgresql_database).create()
    place.open().close()
    process = subprocess.run(
        [sys.executable, "-m", "tests.gateway.decision_logs", place.argument, "2000"],
        check=False,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env={**os.environ, STORE_VARIABLE: point},
        timeout=60,
    )
    assert process.returncode == -signal.SIGKILL
    told = int((process.stdout.split() or ["0"])[-1])
    file = place.open()
    found = gtrids(file)
    assert {entry(number).gtrid for number in range(STAYS, told + 1, STAYS)} <= found
    numbers = [int(one.partition(b"\0")[2]) for one in found]
    assert max(numbers, default=0) <= told + 1
    file.close()
