"""The bridges of an instance, as their manager has them: the STOMP bridge among the others, and
those that cannot be made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.link.status import BridgeState, WrongState
from bridge.manager import BridgeServiceManager, NotReloadable, Outcome
from gateway.bridges import (
    BridgeFailed,
    BridgeLoader,
    StompBridge,
    StompParts,
    UnusableBridge,
    announcements,
    idle_because,
    listed,
    refusals,
    unlisted,
)
from gateway.configuration import configure
from gateway.exit_codes import StartRefused
from gateway.instance import crashpoints
from gateway.instance.logs import open_logs
from gateway.reactor.turn import Turn
from gateway.tls import ServerContexts
from tests.bridge.link_pair import clock
from tests.contract.backends.embedded import EmbeddedMemory
from tests.on_reactor import on_reactor

STOMP = (
    "imq.hostname=127.0.0.1",
    "imq.bridge.stomp.tcp.port=0",
    "imq.bridge.stomp.tls.enabled=false",
    "imq.bridge.stomp.logfile.count=2",
)


class Instance:
    """A new instance whose bridges are loaded."""

    def __init__(self, varhome: Path, *overrides: str) -> None:
        self.configuration = configure(varhome, "test", None, [*STOMP, *overrides])
        self.logs = open_logs(self.configuration.layout, self.configuration.settings)
        self.registered: list[str] = []
        provider: Any = EmbeddedMemory()
        loader = BridgeLoader(
            clock,
            self.configuration,
            self.logs,
            provider,
            StompParts(
                Turn(clock),
                ServerContexts(self.configuration.layout, self.configuration.settings),
                None,
                self._register,
            ),
        )
        self.manager: BridgeServiceManager = loader.load_all(listed(self.configuration))

    def bridge(self, name: str) -> Any:
        return self.manager.find(name)

    def _register(self, name: str, protocol: str, type: str, port: int) -> Callable[[], None]:
        self.registered.append(name)
        return lambda: self.registered.remove(name)

    def close(self) -> None:
        for log in self.logs.bridges():
            self.logs.close_bridge(log)
        self.logs.instance.close()


@pytest.mark.process
@on_reactor
async def test_the_stomp_bridge_is_one_of_the_bridges(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    bridge: StompBridge = instance.bridge("stomp")

    def state() -> BridgeState:
        return bridge.state

    assert (bridge.type, bridge.links(), state()) == ("STOMP", (), BridgeState.STOPPED)
    for operation in (bridge.pause, bridge.resume):
        with pytest.raises(WrongState) as refused:
            await operation()
        assert (refused.value.what, refused.value.state) == ("bridge stomp", "STOPPED")
    await bridge.start()
    await bridge.start()
    await bridge.resume()
    assert state() is BridgeState.STARTED
    assert announcements(bridge) == [f"STOMP over TCP on 127.0.0.1:{bridge.service.ports['tcp']}"]
    assert instance.registered == ["stomp[bridge]"]
    await bridge.pause()
    await bridge.pause()
    assert state() is BridgeState.PAUSED
    await bridge.start()
    assert state() is BridgeState.STARTED
    with pytest.raises(NotReloadable, match="SIGHUP"):
        await bridge.reload()
    await bridge.stop()
    await bridge.stop()
    assert state() is BridgeState.STOPPED
    assert (instance.registered, bridge.problem) == ([], "")
    instance.close()


@pytest.mark.process
@on_reactor
async def test_a_port_that_is_taken_is_the_stomp_bridges_problem_until_it_is_free(
    tmp_path: Path,
) -> None:
    first = Instance(tmp_path / "first")
    await first.bridge("stomp").start()
    port = first.bridge("stomp").service.ports["tcp"]
    second = Instance(tmp_path / "second", f"imq.bridge.stomp.tcp.port={port}")
    bridge = second.bridge("stomp")
    with pytest.raises(BridgeFailed, match=f"bridge stomp cannot listen on 127.0.0.1:{port}:"):
        await bridge.start()
    assert "cannot listen" in bridge.problem
    assert bridge.state is BridgeState.STOPPED
    await first.bridge("stomp").stop()
    await bridge.start()
    assert bridge.problem == ""
    await bridge.stop()
    first.close()
    second.close()


@on_reactor
async def test_those_that_cannot_be_made_say_why_when_they_are_started(tmp_path: Path) -> None:
    instance = Instance(
        tmp_path,
        "imq.bridge.activelist=untyped,stomp,strange,bad,good",
        "imq.bridge.strange.type=amqp",
        "imq.bridge.bad.type=jms",
        "imq.bridge.bad.autostart=maybe",
        "imq.bridge.bad.logfile.count=many",
        "imq.bridge.good.type=Jms",
        "imq.bridge.good.autostart=false",
        "imq.bridge.stomp.autostart=false",
    )
    made = {
        bridge.name: (bridge.type, isinstance(bridge, UnusableBridge))
        for bridge in instance.manager.bridges
    }
    assert made == {
        "untyped": ("", True),
        "stomp": ("STOMP", False),
        "strange": ("", True),
        "bad": ("JMS", True),
        "good": ("JMS", False),
    }
    assert list(instance.logs.bridges()) == ["stomp", "good"]
    outcomes = {
        outcome.bridge.name: outcome.lines for outcome in await instance.manager.autostart()
    }
    assert list(outcomes) == ["untyped", "strange", "bad"]
    assert outcomes["untyped"] == ["imq.bridge.untyped.type is missing: expected JMS"]
    assert "imq.bridge.strange.type=amqp" in outcomes["strange"][0]
    assert ["autostart=maybe" in line for line in outcomes["bad"]] == [True, False]
    assert "imq.bridge.bad.logfile.count=many" in outcomes["bad"][1]
    bad = instance.bridge("bad")
    await bad.stop()
    for operation in (bad.pause, bad.resume):
        with pytest.raises(WrongState):
            await operation()
    with pytest.raises(NotReloadable):
        await bad.reload()
    assert bad.links() == ()
    instance.close()


@on_reactor
async def test_a_log_that_cannot_be_opened_is_its_bridges_problem(tmp_path: Path) -> None:
    configuration = configure(tmp_path, "test", None, [])
    in_the_way = configuration.layout.bridges / "orders"
    in_the_way.write_text("")
    instance = Instance(
        tmp_path, "imq.bridge.activelist=orders,stomp", "imq.bridge.orders.type=jms"
    )
    with pytest.raises(BridgeFailed, match="orders"):
        await instance.bridge("orders").start()
    assert not isinstance(instance.bridge("stomp"), UnusableBridge)
    instance.close()


def test_why_no_bridge_runs(tmp_path: Path) -> None:
    def because(number: int, *overrides: str) -> str:
        instance = Instance(tmp_path / str(number), *overrides)
        instance.close()
        return idle_because(instance.configuration.settings, instance.manager.bridges)

    assert because(1, "imq.bridge.enabled=false") == ": imq.bridge.enabled is false"
    assert because(2, "imq.bridge.activelist=") == ": imq.bridge.activelist has none"
    assert because(3, "imq.bridge.stomp.autostart=false") == ": imq.bridge.stomp.autostart is false"
    names = "imq.bridge.stomp.autostart, imq.bridge.orders.autostart"
    both = ("imq.bridge.activelist=stomp,orders", "imq.bridge.orders.type=jms")
    assert (
        because(4, *both, *(f"{name}=false" for name in names.split(", ")))
        == f": {names} are false"
    )
    # It has been told.
    assert because(5, "imq.bridge.activelist=orders") == ""


def test_a_bridge_that_is_not_started_is_told_with_its_name_and_the_verb() -> None:
    def lines(error: Exception) -> list[str]:
        return refusals(Outcome(UnusableBridge("shop", "JMS", ""), "start", error))

    assert lines(
        BridgeFailed("shop.xml: expected a file\nimq.bridge.shop.type is missing: expected JMS")
    ) == [
        "bridge shop is not started: shop.xml: expected a file",
        "bridge shop is not started: imq.bridge.shop.type is missing: expected JMS",
    ]
    wrong = Problem(
        "shop.xml", 1, "link", "max-retries", "many", "a number", severity=Severity.BRIDGE
    )
    odd = Problem(
        "shop.xml",
        2,
        "link",
        "max-batch-time",
        "5",
        "max-batch-size, too",
        severity=Severity.WARNING,
    )
    assert lines(ConfigurationError([odd, wrong])) == [f"bridge shop is not started: {wrong}"]
    # What says so already.
    assert lines(BridgeFailed("bridge shop cannot listen on *:1: in use")) == [
        "bridge shop cannot listen on *:1: in use"
    ]
    stopped = WrongState("bridge shop", "start", "STOPPED")
    assert lines(stopped) == [str(stopped)]


def test_settings_of_a_bridge_that_is_not_listed_are_told_once_a_bridge(tmp_path: Path) -> None:
    more = (
        "imq.bridge.store.type=jms",
        "imq.bridge.store.xmlurl=store.xml",
        "imq.bridge.shop.type=jms",
        "imq.bridge.old.level=FINE",
    )

    def told(number: int, *given: str) -> list[str]:
        instance = Instance(tmp_path / str(number), *more, *given)
        instance.close()
        return unlisted(instance.configuration)

    has = "imq.bridge.activelist has no"
    assert told(1, "imq.bridge.activelist=stomp,shop") == [
        f"-D: imq.bridge.store.type has no effect: {has} store, but stomp, shop",
        f"-D: imq.bridge.old.level has no effect: {has} old, but stomp, shop",
    ]
    # A new instance has settings of the STOMP bridge, whether or not there is one.
    assert told(2, "imq.bridge.activelist=shop,store,old") == []
    assert told(3, "imq.bridge.enabled=false") == []


def test_disabled_bridges_are_none(tmp_path: Path) -> None:
    instance = Instance(tmp_path, "imq.bridge.enabled=false")
    assert instance.manager.bridges == ()
    instance.close()


def test_a_crash_point_that_there_is_not_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, crashpoints.LINK_VARIABLE, "link.nowhere")
    with pytest.raises(StartRefused, match="expected one of"):
        Instance(tmp_path)
