"""When a Java process is started anew, and with which prefetch, over hours and days: the clock and
the operating system are replaced.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import pytest
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from bridge.providers.jms import process, supervisor, wire
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.process import JavaProcess, Times
from bridge.providers.jms.supervisor import Supervisor
from bridge.providers.jms.wire import Frames, Type
from gateway.messaging.errors import ProviderUnavailable

#: Any command that is there; nothing runs it.
OPTIONS: Final = JavaOptions(java="/bin/sh", options=("-Xmx64m",))
#: Neither beat nor rest, so that whole days can pass without an answer.
TIMES: Final = Times(beat=1e6, starting=1e6, idle=1e6)
EXHAUSTED: Final = 71
FULL: Final = 1000


class Child:
    """A process that was asked for, and ends when a test says so."""

    pid = 4711

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self.told: Any = StringTransport()  # type: ignore[no-untyped-call]
        self.socket: Any = None
        self.killed = False

    def signalProcess(self, signal: str) -> None:
        self.killed = True

    def greet(self) -> None:
        texts = wire.text(process._made_of()) + wire.text("17")
        self.say(
            Type.READY, wire.VERSION.to_bytes(2, "big") + texts + (64 << 20).to_bytes(8, "big")
        )

    def say(self, kind: Type, payload: bytes) -> None:
        self.socket.dataReceived(wire.frame(kind, 0, payload))

    def exit(self, status: int) -> None:
        ended = ProcessTerminated(status, None, status << 8)  # type: ignore[no-untyped-call]
        self._protocol.processEnded(Failure(ended))  # type: ignore[no-untyped-call]

    @property
    def ahead(self) -> int:
        """How many messages it may fetch ahead, by its hello."""
        hello = next(iter(Frames().feed(self.told.value()))).payload
        found = re.search(rb"stompgateway\.ahead\0\0\0.(\d+)", hello, re.DOTALL)
        assert found is not None, hello
        return int(found[1])


class Machine(Clock):
    """A reactor whose processes are children of the test's making."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Child] = []
        self._streams: list[Any] = []

    def spawnProcess(self, protocol: Any, *arguments: Any, **options: Any) -> Child:
        child = Child(protocol)
        self.children.append(child)
        self._connect()
        return child

    def adoptStreamConnection(self, number: int, family: int, factory: Any) -> None:
        assert os.fstat(number)
        self._streams.append(factory.buildProtocol(None))
        self._connect()

    def _connect(self) -> None:
        """Give the newest child its socket once there are both."""
        if len(self._streams) == len(self.children):
            child, child.socket = self.children[-1], self._streams[-1]
            child.socket.makeConnection(child.told)


class Place:
    """The place of a Java process on such a machine."""

    def __init__(
        self, options: JavaOptions = OPTIONS, machine: Machine | None = None, times: Times = TIMES
    ) -> None:
        self.machine = Machine() if machine is None else machine
        self.java = Supervisor(self.machine, options, times)

    def start(self) -> Child:
        asked = self.java.running(1e6)
        child = self.machine.children[-1]
        child.greet()
        assert isinstance(found(asked), JavaProcess)
        return child

    def refused(self) -> str:
        """Why it is not started now."""
        with pytest.raises(ProviderUnavailable) as refused:
            found(self.java.running(1e6))
        return str(refused.value)

    def pause(self) -> float:
        """How long it is not started after it has died."""
        before = self.machine.seconds()
        while self.java._not_before > self.machine.seconds():
            assert "it is started again in" in self.refused()
            self.machine.advance(self.java._not_before - self.machine.seconds())
        return self.machine.seconds() - before


def found(asked: Any) -> Any:
    """What a Deferred has now."""
    results: list[Any] = []
    asked.addBoth(results.append)
    [result] = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


def test_the_pause_grows_to_half_a_minute_and_stays_there_however_long_java_fails() -> None:
    place = Place()
    pauses = []
    # For nine hours.
    for _ in range(1100):
        place.start().exit(1)
        pauses.append(place.pause())
    assert pauses[:8] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert set(pauses[7:]) == {30}


def test_the_pauses_begin_anew_after_a_process_that_has_lasted() -> None:
    place = Place()
    for _ in range(4):
        place.start().exit(1)
        assert place.pause() <= 4
    child = place.start()
    place.machine.advance(supervisor._LASTING)
    child.exit(1)
    assert place.pause() == 0
    place.start().exit(1)
    assert place.pause() == 1


def test_a_process_fetches_less_ahead_after_each_heap_that_was_full_until_one_has_run_for_a_day() -> (
    None
):
    place = Place()

    def run(seconds: float, status: int) -> int:
        child = place.start()
        place.machine.advance(seconds)
        child.exit(status)
        place.pause()
        return child.ahead

    assert [run(60, EXHAUSTED) for _ in range(5)] == [FULL, FULL // 8, FULL // 64, 1, 1]
    assert run(supervisor._FORGIVEN - 1, 1) == 1, "not yet"
    assert run(supervisor._FORGIVEN, 1) == 1
    assert run(supervisor._FORGIVEN, EXHAUSTED) == FULL
    assert run(60, 1) == FULL // 8, "the last one was full, long ago as the one before was"


# --- the memory of all


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which no Java process of another test runs."""
    monkeypatch.setattr(supervisor, "_supervisors", {})
    return Machine()


def sharing(machine: Machine, name: str, *options: str) -> Supervisor:
    """The place of a process whose heap is of what all may have together, 1000 MiB."""
    java = supervisor.supervisor_of(
        machine, JavaOptions(java="/bin/sh", options=options, heaps=1000 << 20, apart=name)
    )
    java._times = TIMES._replace(idle=30.0)
    return java


def run(machine: Machine, java: Supervisor) -> Child:
    asked = java.running(1e6)
    child = machine.children[-1]
    child.greet()
    assert found(asked) is java.process
    return child


def use(java: Supervisor) -> int:
    assert java.process is not None
    return java.process.link(java, lambda reason: None)


def test_unused_processes_give_their_heaps_to_one_that_is_needed_the_longest_unused_first(
    together: Machine,
) -> None:
    first, second, third, fourth = [sharing(together, name) for name in "abcd"]
    run(together, first)
    together.advance(5)
    run(together, second)
    assert [one.process and one.process.heap >> 20 for one in (first, second)] == [500, 500]
    run(together, third)
    use(third)
    assert first.process is None, "it was unused for 5 s"
    assert second.process is not None
    assert third.process is not None
    assert third.process.heap >> 20 == 500
    number = use(second)
    with pytest.raises(
        ProviderUnavailable, match="no memory for a Java process: 2 of them have heaps of 1000 MiB"
    ):
        found(fourth.running(1e6))
    second.process.unlink(number)
    run(together, fourth)
    assert second.process is None
    # It has ended in order: as soon as there is room it may start at once.
    assert second._not_before == 0


def test_unused_processes_stay_where_their_heaps_are_not_enough(together: Machine) -> None:
    unused, used, needed = (
        sharing(together, "a", "-Xmx40m"),
        sharing(together, "b", "-Xmx960m"),
        sharing(together, "c"),
    )
    run(together, unused)
    run(together, used)
    use(used)
    with pytest.raises(ProviderUnavailable, match="no memory for a Java process"):
        found(needed.running(1e6))
    assert unused.process is not None
