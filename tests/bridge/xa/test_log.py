"""The log as the reactor sees it: what comes during a sync shares the next, and what nobody waits
for waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor as twisted_reactor
from twisted.internet.defer import DeferredList

from bridge.xa.decision_log import Removed
from bridge.xa.errors import LogFailed, NotWritten
from bridge.xa.log.file import LogFile
from bridge.xa.log.log import LAZY_S, FileDecisionLog, log_thread
from tests.bridge.xa.machines import MemoryStorage, Process
from tests.bridge.xa.test_log_file import entry


def test_group_commit() -> None:
    process = Process(MemoryStorage())
    fired: list[int] = []
    for number in range(5):
        process.decisions.write(entry(number)).addCallback(
            lambda _, which: fired.append(which), number
        )
    assert len(process.jobs.waiting) == 1
    process.work()
    assert fired == [0, 1, 2, 3, 4]
    assert process.storage.syncs == 2


def test_what_nobody_waits_for_goes_with_the_next_or_a_moment_later() -> None:
    process = Process(MemoryStorage())
    told: list[str] = []
    process.decisions.note(Removed(b"x"), lambda: told.append("x"))
    assert not process.jobs.waiting
    process.decisions.write(entry(1))
    process.work()
    assert told == ["x"]
    assert not process.reactor.getDelayedCalls()
    process.decisions.note(Removed(entry(1).gtrid), lambda: told.append("1"))
    process.reactor.advance(LAZY_S)
    process.work()
    assert told == ["x", "1"]
    assert process.storage.syncs == 1


def test_closing_writes_what_waits() -> None:
    process = Process(MemoryStorage())
    deciding = process.decisions.write(entry(1))
    process.decisions.note(entry(2))
    fired: list[str] = []
    for name in ("first", "second"):
        process.decisions.close().addCallback(lambda _, which: fired.append(which), name)
    late: list[object] = []
    process.decisions.write(entry(3)).addErrback(lambda failure: late.append(failure.value))
    process.decisions.note(entry(4))
    process.work()
    process.reactor.advance(0)
    assert deciding.called
    assert fired == ["first", "second"]
    assert isinstance(late[0], NotWritten)
    assert process.storage.closed
    assert Process(process.storage).file.entries() == (entry(1), entry(2))
    assert process.decisions.close().called


def test_those_that_share_a_failure_are_all_told_and_what_nobody_waits_for_is_kept() -> None:
    process = Process(MemoryStorage())
    process.storage.room = 10
    told: list[object] = []
    process.decisions.note(entry(1))
    for number in (2, 3):
        process.decisions.write(entry(number)).addErrback(
            lambda failure: told.append(type(failure.value))
        )
    process.work()
    process.work()
    assert told == [NotWritten, NotWritten]
    assert process.decisions.failed is None
    process.storage.room = None
    process.reactor.advance(LAZY_S)
    process.work()
    assert [one.gtrid for one in process.file.entries()] == [entry(1).gtrid]


def test_what_breaks_unexpectedly_is_taken_for_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(MemoryStorage())
    monkeypatch.setattr(process.file, "write", lambda *_: 1 / 0)
    told: list[object] = []
    process.decisions.write(entry(1)).addErrback(lambda failure: told.append(failure.value))
    process.work()
    assert isinstance(told[0], LogFailed)
    assert process.decisions.failed is told[0]


@pytest_twisted.ensureDeferred
async def test_the_disk_is_never_touched_on_the_reactors_thread() -> None:
    threads: set[int] = set()

    class Noted(MemoryStorage):
        def _here(self, of: Callable[[], None]) -> None:
            threads.add(threading.get_ident())
            of()

        def append(self, data: bytes) -> None:
            self._here(lambda: super(Noted, self).append(data))

        def sync(self) -> None:
            self._here(super().sync)

        def close(self) -> None:
            self._here(super().close)

    storage = Noted()
    file = LogFile(storage, "here:bridge", 1024, True, bytes)
    decisions = FileDecisionLog(twisted_reactor, file, log_thread("txlog.test"))
    await DeferredList(
        [decisions.write(entry(number)) for number in range(50)], fireOnOneErrback=True
    )
    await decisions.close()
    assert threads
    assert threading.get_ident() not in threads
    assert len(Process(storage).file.entries()) == 50
