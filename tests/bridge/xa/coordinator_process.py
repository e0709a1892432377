"""A process with a coordinator, taken apart: its disk, its log's thread and its reactor, each moved
by the test.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent

from bridge.xa.coordinator import Coordinator
from bridge.xa.log.file import LogFile, SyncFailed
from bridge.xa.log.log import FileDecisionLog
from bridge.xa.xids import Xids
from gateway.instance import crashpoints
from tests.logged import recording

#: Identities that are drawn are never the same.
_DRAWN = count(1)


def drawn(octets: int) -> bytes:
    """Octets that nobody was given before."""
    return next(_DRAWN).to_bytes(octets, "big")


class MemoryStorage:
    """A file that knows what of it is on the disk."""

    whole = False

    def __init__(self) -> None:
        self.data: bytearray | None = None
        self.synced = 0
        #: The next so many octets fit; None is no limit.
        self.room: int | None = None
        self.sync_fails = False
        self.syncs = 0
        self.replacements = 0
        self.closed = self.hurried = False

    @property
    def name(self) -> str:
        return "/var/txlog.test"

    def read(self) -> bytes | None:
        return None if self.data is None else bytes(self.data)

    def replace(self, data: bytes) -> None:
        if self.room is not None and len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data, self.synced = bytearray(data), len(data)
        self.replacements += 1

    def append(self, data: bytes) -> None:
        assert self.data is not None
        if self.room is not None and len(data) > self.room:
            self.data += data[: self.room]
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += data

    def truncate(self, length: int) -> None:
        assert self.data is not None
        del self.data[length:]
        self.synced = min(self.synced, length)

    def sync(self) -> None:
        assert self.data is not None
        if self.sync_fails:
            raise SyncFailed(errno.EIO, "Input/output error")
        self.synced = len(self.data)
        self.syncs += 1

    def hurry(self) -> None:
        self.hurried = True

    def close(self) -> None:
        self.closed = True

    def crash(self, kept: int) -> MemoryStorage:
        """What a loss of power leaves.

        :param kept: octets of those that were not synced.
        """
        after = MemoryStorage()
        if self.data is not None:
            after.data = self.data[: self.synced + kept]
            after.synced = len(after.data)
        return after


class Jobs:
    """The log's thread, at a standstill until :meth:`run`."""

    def __init__(self, at_once: bool = False) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self._at_once = at_once

    def __call__(self, job: Callable[[], None] | None) -> None:
        if job is not None:
            self.waiting.append(job)
            if self._at_once:
                self.run()

    def run(self) -> None:
        self.waiting.popleft()()


class Reactor(Clock):
    """A clock, and calls from threads, which :meth:`take` makes; or at once."""

    def __init__(self, at_once: bool = False) -> None:
        super().__init__()
        self.called: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._at_once = at_once

    def callFromThread(self, callable: Callable[..., Any], *args: Any) -> None:
        self.called.append((callable, args))
        if self._at_once:
            self.take()

    def take(self) -> None:
        callable, args = self.called.popleft()
        callable(*args)


class Process:
    """A coordinator on a storage.

    :param at_once: its log is written inside of the calls.
    """

    def __init__(self, storage: MemoryStorage, at_once: bool = False, size: int = 100_000) -> None:
        self.storage = storage
        self.reactor = Reactor(at_once)
        self.jobs = Jobs(at_once)
        self.passed: list[str] = []
        log, self.events = recording()
        self.file = LogFile(storage, "here:bridge", size, True, drawn)
        self.decisions = FileDecisionLog(self.reactor, self.file, self.jobs)
        header = self.file.header
        ids = Xids("here:bridge", header.identity, header.generation, header.earlier, header.former)
        crashpoints.arm(crashpoints.POINTS[crashpoints.LINK_VARIABLE], self.passed.append)
        self.coordinator = Coordinator(self.reactor, "here:bridge", self.decisions, ids, log)

    def work(self) -> None:
        """Everything that the log's thread and the reactor have to do now."""
        while self.jobs.waiting or self.reactor.called:
            if self.jobs.waiting:
                self.jobs.run()
            if self.reactor.called:
                self.reactor.take()

    def failures(self) -> list[LogEvent]:
        return [event for event in self.events if "log_failure" in event]
