"""When freed memory is given back to the system: once, after much was let go, and not while more
goes.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from itertools import pairwise

from twisted.internet.task import Clock

from gateway.instance.memory.freed import Trimming, malloc_trim, own_bytes

_MIB = 1024 * 1024


class Reactor(Clock):
    """A clock whose threads do their work at once."""

    def callInThread(self, work: Callable[[], object]) -> None:
        work()


class Process:
    """What a process holds, and when it was trimmed."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.held = 0
        #: What it has of the system, besides what is held.
        self.beyond = 0
        self.trims: list[float] = []
        self.trimming = Trimming(
            self.reactor,
            lambda: self.held,
            lambda: self.trims.append(self.reactor.seconds()),
            lambda: self.held + self.beyond,
        )
        self.trimming.start()
        self.hold(0, seconds=10)

    def hold(self, mebibytes: int, seconds: int = 1) -> None:
        self.held = mebibytes * _MIB
        self.reactor.pump([1.0] * seconds)


def test_it_trims_once_when_all_that_goes_has_gone() -> None:
    process = Process()
    for held in (340, 260, 180, 100):
        process.hold(held)
    assert not process.trims
    process.hold(100)
    assert len(process.trims) == 1
    process.hold(100, seconds=60)
    assert len(process.trims) == 1
    process.hold(93, seconds=60)
    assert len(process.trims) == 1


def test_what_goes_bit_by_bit_counts_together() -> None:
    process = Process()
    for held in range(100, 30, -1):
        process.hold(held)
    assert not process.trims
    process.hold(31)
    assert len(process.trims) == 1


def test_what_is_left_over_goes_when_nothing_has_gone_for_a_while() -> None:
    process = Process()
    process.hold(100)
    process.hold(60, seconds=10)
    assert not process.trims
    process.hold(60)
    assert len(process.trims) == 1


def test_it_does_not_wait_for_the_end_of_a_long_fall() -> None:
    process = Process()
    for held in range(2000, 0, -100):
        process.hold(held)
    process.hold(0, seconds=10)
    assert len(process.trims) == 2000 // 300 + 1


def test_what_comes_and_goes_is_trimmed_every_other_second_at_most() -> None:
    process = Process()
    for _ in range(30):
        process.hold(100)
        process.hold(0)
        process.hold(0)
    assert 10 < len(process.trims) <= 90 / 2


def test_what_is_not_counted_is_trimmed_once_it_stands_still() -> None:
    process = Process()
    for mebibytes in range(10, 110, 10):
        process.beyond = mebibytes * _MIB
        process.hold(0)
    assert not process.trims
    process.hold(0, seconds=3)
    assert len(process.trims) == 1
    # Now it has been given back.
    process.beyond = 5 * _MIB
    process.hold(0, seconds=600)
    assert len(process.trims) == 1


def test_what_is_in_use_is_trimmed_ever_more_rarely() -> None:
    process = Process()
    process.beyond = 100 * _MIB
    process.hold(0, seconds=7200)
    pauses = [after - before for before, after in pairwise(process.trims)]
    assert pauses[:8] == [4, 8, 16, 32, 64, 128, 256, 512]
    assert set(pauses[8:]) == {600}


def test_little_that_is_not_counted_is_not_trimmed() -> None:
    process = Process()
    process.beyond = 60 * _MIB
    process.hold(0, seconds=600)
    process.hold(1000, seconds=600)
    assert not process.trims


def test_it_stops() -> None:
    process = Process()
    process.trimming.stop()
    process.trimming.stop()
    assert not process.reactor.getDelayedCalls()


def test_without_such_a_function_nothing_is_done() -> None:
    reactor = Reactor()
    trimming = Trimming(reactor, lambda: 0, None)
    trimming.start()
    assert not reactor.getDelayedCalls()
    trimming.stop()


def test_the_c_library_is_asked() -> None:
    """glibc, with which the tests run, has the function; other C libraries have none."""
    trim = malloc_trim()
    assert trim is not None or "glibc" not in platform.libc_ver()[0]
    if trim is not None:
        assert trim() in (0, 1)


def test_the_system_is_asked_what_the_process_has() -> None:
    before = own_bytes()
    octets = b"x" * (50 * _MIB)
    assert own_bytes() - before > 40 * _MIB or sys.platform != "linux"
    del octets
