"""A coordinator on a real file, with a real thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent

from bridge.xa.coordinator import Committed, Coordinator, Recovered
from bridge.xa.errors import LogDamaged
from bridge.xa.opening import open_coordinator
from bridge.xa.properties import TransactionProperties
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.xa.resource_managers import ResourceManager, Session


def opened(folder: Path, events: list[LogEvent], points: list[str] | None = None) -> Coordinator:
    log = Logger(namespace="test", observer=cast(ILogObserver, events.append))
    passed = (points if points is not None else []).append
    return open_coordinator(reactor, folder, "bridge", "here", TransactionProperties(), passed, log, os.urandom)


async def moved(coordinator: Coordinator, a: ResourceManager, b: ResourceManager) -> Committed:
    transaction = coordinator.begin()
    source, target = Session(a), Session(b)
    await transaction.enlist("source", "rm:a", source)
    await transaction.enlist("target", "rm:b", target)
    message = await source.take()
    assert message is not None
    await target.put(message)
    return await transaction.commit()


@pytest_twisted.ensureDeferred
async def test_what_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    coordinator = opened(tmp_path / "mq", events)
    assert coordinator.name == "here:bridge"
    assert await moved(coordinator, a, b) == Committed()
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert await moved(coordinator, a, b) == Committed(("target",))
    await coordinator.close()
    events.clear()

    again = opened(tmp_path / "mq", events)
    assert [one.state for one in again.transactions()] == ["WAITING"]
    assert [formatEvent(event) for event in events] == ["1 transactions of an earlier run wait for 'target'"]
    assert await again.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
    await again.close()
    assert (a.messages, b.messages) == ([], [1, 2])

    last = opened(tmp_path / "mq", events)
    assert last.transactions() == []
    await last.close()


@pytest_twisted.ensureDeferred
async def test_damage_is_refused_with_its_place(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    coordinator = opened(tmp_path, events)
    await moved(coordinator, a, b)
    await moved(coordinator, a, b)
    await coordinator.close()
    file = tmp_path / "txlog.bridge"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(LogDamaged) as caught:
        opened(tmp_path, events)
    assert str(file) in str(caught.value)
    assert 0 < caught.value.offset <= len(data) // 2
    assert file.read_bytes() == data


@pytest_twisted.ensureDeferred
async def test_a_torn_tail_is_told(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    await opened(tmp_path, events).close()
    with (tmp_path / "txlog.bridge").open("ab") as file:
        file.write(b"\xa7\xf4\0\0")
    await opened(tmp_path, events).close()
    assert "4 octets" in formatEvent(events[-1])
