"""What links leave is completed, whatever has become of them: when that is tried, and as whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.bridge_parts import Parts
from bridge.config.model import Bridge, ConnectionFactory
from bridge.connections.administered import AdministeredFactory
from bridge.connections.factories import Embedded
from bridge.jms_link import JMSLink
from bridge.link.delivery import background_recovery
from bridge.link.delivery.background_recovery import AGAIN_S, BackgroundRecovery
from bridge.link.journal import NO_JOURNAL
from bridge.link.status import LinkState
from bridge.xa.coordinator import Coordinator
from bridge.xa.errors import LogFailed
from bridge.xa.log.log import FileDecisionLog
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import started
from tests.bridge.link_pair import SOURCE, Rig, until
from tests.bridge.xa.coordinator_process import MemoryStorage, Process
from tests.on_reactor import on_reactor


@on_reactor
async def test_what_a_stopped_link_left_undecided_is_listed_until_it_is_rolled_back(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_recovery, "AGAIN_S", 0.2)
    links: list[JMSLink] = []

    def passed(at: str) -> None:
        if at == "xa.before-decision" and links:
            # Both are prepared. The source is away, and the disk takes no decision.
            brokers.source.provider.error = ProviderUnavailable("it is away")
            brokers.source.provider.cut()
            decisions = brokers.coordinator()._decisions
            assert isinstance(decisions, FileDecisionLog)
            decisions._file._storage.append = full  # type: ignore[method-assign]
            links.pop().stop()

    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    await brokers.source.send("a")
    link = transacted.link(brokers, passed=passed)
    links.append(link)
    await link.start()
    await brokers.reaches(link, LinkState.STOPPED)
    await until(lambda: brokers.coordinator().transactions()[0].state == "ROLLING_BACK")
    [left] = brokers.coordinator().transactions()
    assert [(branch.ref_name, branch.state) for branch in left.branches] == [
        ("source", "LEFT"),
        ("target", "ROLLED_BACK"),
    ]
    brokers.source.provider.error = None
    await until(lambda: brokers.coordinator().transactions() == [])
    assert await brokers.source.texts(1, SOURCE) == ["a"]


class Wary:
    """A provider of which nobody is to take a client identifier."""

    capabilities = Capabilities(xa=True)
    resource = "wary"

    def __init__(self, answers: Callable[[], Deferred[Connection]]) -> None:
        self.answers = answers
        self.asked: list[str | None] = []

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        self.asked.append(client_id)
        return self.answers()


class Asking:
    """A coordination with one factory, on a clock."""

    def __init__(self, answers: Callable[[], Deferred[Connection]], **config: Any) -> None:
        self.clock = Clock()
        self.process = Process(MemoryStorage(), at_once=True)
        self.events: list[Any] = []
        log = Logger(observer=self.events.append)  # type: ignore[arg-type]
        self.coordination = BackgroundRecovery(
            self.clock, lambda: self.process.coordinator, lambda: True, log
        )
        self.provider: Any = Wary(answers)
        configured = ConnectionFactory("wary", **config)
        self.factory = AdministeredFactory(
            configured, self.provider, Credentials("", ""), "wary", client_id="the link's"
        )
        self.coordination.configure([self.factory])

    def replaced(self, answers: Callable[[], Deferred[Connection]]) -> Wary:
        """The factory has become another. :returns: the provider behind it."""
        provider: Any = Wary(answers)
        self.coordination.configure(
            [AdministeredFactory(self.factory.config, provider, Credentials("", ""), "wary")]
        )
        return provider  # type: ignore[no-any-return]

    def wait(self, seconds: float) -> None:
        """A second at a time, as retries follow each other."""
        for _ in range(int(seconds)):
            self.clock.advance(1)


@on_reactor
async def test_where_nothing_can_be_begun_any_more_both_are_asked(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await started(brokers)
    await link.pause()
    asked: list[str] = []
    monkeypatch.setattr(brokers.coordination, "look_again", asked.append)
    decisions = brokers.coordinator()._decisions
    assert isinstance(decisions, FileDecisionLog)
    decisions.failed = LogFailed(decisions.path, "its disk has failed")
    link.resume().addErrback(lambda _: None)
    await brokers.reaches(link, LinkState.FAILED)
    # When it was connected anew, and when it could not begin.
    assert asked == ["source", "target"] * 2


def test_the_seconds_begin_anew_with_each_failure() -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("away")))
    asking.coordination.look_again("wary")
    asking.clock.advance(AGAIN_S - 1)
    asking.coordination.look_again("wary")
    asking.clock.advance(AGAIN_S - 1)
    assert asking.provider.asked == []
    asking.clock.advance(1)
    assert len(asking.provider.asked) == 1


def test_it_is_asked_with_nobodys_client_identifier() -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("away")))
    asking.coordination.start([asking.factory])
    assert asking.provider.asked == [None]


def test_what_is_no_failure_of_messaging_is_logged_and_nothing_is_kept() -> None:
    class Broken:
        product = "broken"
        client_id = ""

        def xa_session(self) -> None:
            raise ZeroDivisionError("broken")

        def close(self) -> None:
            pass

    def broken() -> Deferred[Any]:
        connecting: Deferred[Any] = Deferred()
        connecting.callback(Broken())
        return connecting

    asking = Asking(broken)
    asking.coordination.start([asking.factory])
    [event] = [event for event in asking.events if "log_failure" in event]
    assert event["log_failure"].type is ZeroDivisionError
    assert event["ref_name"] == "wary"
    assert not asking.coordination._recovering
    asking.coordination.look_again("wary")
    asking.clock.advance(AGAIN_S)
    assert len(asking.provider.asked) == 2


def test_one_is_asked_once_at_a_time_and_nobody_after_the_end() -> None:
    hanging: list[Deferred[Any]] = []

    def hangs() -> Deferred[Any]:
        hanging.append(Deferred())
        return hanging[-1]

    asking = Asking(hangs)
    asking.coordination.start([asking.factory])
    asking.coordination.look_again("wary")
    asking.clock.advance(AGAIN_S)
    assert len(hanging) == 1
    asking.coordination.stop()
    asking.coordination.look_again("wary")
    asking.clock.advance(10 * AGAIN_S)
    assert len(hanging) == 1


@pytest.mark.parametrize("hangs", [False, True])
def test_the_factory_that_has_taken_the_place_of_another_is_asked_in_its_stead(hangs: bool) -> None:
    asking = Asking(Deferred if hangs else lambda: fail(ProviderUnavailable("moved away")))
    asking.coordination.start([asking.factory])
    asking.wait(600)
    before = len(asking.provider.asked)
    now = asking.replaced(lambda: fail(ProviderUnavailable("not yet there")))
    asking.wait(600)
    assert len(asking.provider.asked) == before
    assert len(now.asked) > 5
    # One of them at a time.
    assert len(asking.coordination._recovering) == 1


def test_a_factory_that_is_replaced_while_its_time_has_not_come_is_asked_no_more() -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("moved away")))
    asking.coordination.look_again("wary")
    asking.wait(AGAIN_S / 2)
    now = asking.replaced(Deferred)
    asking.coordination.look_again("wary")
    asking.wait(AGAIN_S)
    assert (len(asking.provider.asked), len(now.asked)) == (0, 1)


def test_a_factory_that_the_file_has_no_more_is_not_asked_until_it_is_there_again() -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("away")))
    asking.coordination.start([asking.factory])
    asking.wait(600)
    before = len(asking.provider.asked)
    asking.coordination.configure([])
    # By the link that is gone, as its last transaction ends.
    asking.coordination.look_again("wary")
    asking.wait(600)
    assert len(asking.provider.asked) == before
    assert len(asking.replaced(Deferred).asked) == 1


def test_what_another_file_has_unchanged_is_not_asked_for_that() -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("away")))
    asking.coordination.open()
    asking.coordination.configure([asking.factory])
    assert asking.provider.asked == []


def test_the_parts_of_a_bridge_tell_which_factories_are_in_force() -> None:
    asking = Asking(Deferred)
    here, there = ConnectionFactory("here"), ConnectionFactory("there")
    log = Logger(observer=asking.events.append)  # type: ignore[arg-type]
    broker: Any = Wary(lambda: fail(ProviderUnavailable("away")))
    embedded = Embedded(broker, Credentials("", ""))
    nobody: Any = None
    bridge = Bridge("orders", connection_factories=(here,))
    parts = Parts(
        asking.clock,
        bridge,
        embedded,
        nobody,
        nobody,
        asking.coordination,
        "instance",
        log,
        NO_JOURNAL,
    )
    asking.coordination.start(parts.resource_managers())
    assert len(broker.asked) == 1
    # One is another, and one is new.
    changed = replace(bridge, connection_factories=(replace(here, connect_attempts=7), there))
    parts.replace(changed, (), ("here", "there"))
    assert len(broker.asked) == 3
    parts.replace(changed, (), ())
    assert len(broker.asked) == 3


@pytest.mark.parametrize(("several", "times"), [(False, 1), (True, 0)])
def test_what_the_coordinator_has_left_is_asked_for(several: bool, times: int) -> None:
    asking = Asking(lambda: fail(ProviderUnavailable("away")), multi_rm=several)
    asking.coordination._left = lambda: False  # type: ignore[misc]
    asking.coordination.start([asking.factory])
    asking.coordination.open()
    asking.coordination.coordinator().left("wary")
    asking.coordination.coordinator().left("another")
    asking.clock.advance(AGAIN_S)
    assert len(asking.provider.asked) == times


@on_reactor
async def test_two_brokers_of_one_name_are_not_taken_for_one(brokers: Rig) -> None:
    brokers.target.provider._resource = brokers.source.provider.resource
    await brokers.source.send("a", "b")
    link = await started(brokers)
    assert await brokers.target.texts(2) == ["a", "b"]
    await link.stop()
    assert brokers.coordinator().transactions() == []
    assert await brokers.source.rest(SOURCE) == []


class Late:
    """A coordination whose log is opened some time."""

    def __init__(self, left: bool = True) -> None:
        self.process = Process(MemoryStorage(), at_once=True)
        self.opening: Deferred[Coordinator] = Deferred()
        self.calls = 0
        self.asked = Deferred[bool]()
        log = Logger(observer=lambda event: None)  # type: ignore[arg-type]
        self.coordination = BackgroundRecovery(Clock(), self._open, lambda: self.asked, log)
        provider: Any = Wary(Deferred)
        self.provider = provider
        self.factory = AdministeredFactory(
            ConnectionFactory("wary"), provider, Credentials("", ""), "wary"
        )

    def _open(self) -> Deferred[Coordinator]:
        self.calls += 1
        return self.opening


def test_the_start_waits_until_the_log_is_open() -> None:
    late = Late()
    ends: list[Any] = []
    late.coordination.start([late.factory]).addBoth(ends.append)
    late.asked.callback(True)
    late.coordination.open().addBoth(ends.append)
    assert (ends, late.calls, late.provider.asked) == ([], 1, [])
    late.opening.callback(late.process.coordinator)
    assert ends == [None, late.process.coordinator]
    assert len(late.provider.asked) == 1
    late.coordination.open().addBoth(ends.append)
    assert (ends[2], late.calls) == (late.process.coordinator, 1)


def test_a_log_that_cannot_be_opened_is_tried_again_the_next_time() -> None:
    late = Late()
    failures: list[Failure] = []
    for _ in range(2):
        late.coordination.open().addErrback(failures.append)
    late.opening.errback(LogFailed("the log", "away"))
    assert [failure.type for failure in failures] == [LogFailed, LogFailed]
    late.opening = succeed(late.process.coordinator)
    opened: list[Coordinator] = []
    late.coordination.open().addCallback(opened.append)
    assert opened == [late.process.coordinator]


@pytest.mark.parametrize("fails", [False, True])
def test_a_log_that_is_open_after_the_stop_is_closed(fails: bool) -> None:
    late = Late()
    ends: list[Any] = []
    late.coordination.start([late.factory]).addErrback(ends.append)
    late.asked.callback(True)
    stopped: list[None] = []
    late.coordination.stop().addCallback(stopped.append)
    assert stopped == []
    if fails:
        late.opening.errback(LogFailed("the log", "away"))
        assert [failure.type for failure in ends] == [LogFailed]
    else:
        late.opening.callback(late.process.coordinator)
        assert ends == []
    assert stopped == [None]
    assert late.coordination.opened is None
    assert late.provider.asked == []
    late.coordination.open().addErrback(ends.append)
    assert ends[-1].type is ProviderUnavailable
    assert late.calls == 1
