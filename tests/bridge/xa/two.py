"""A coordinator and two resource managers, between which a message is moved; and what is needed to
look at Deferreds at once.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from bridge.xa.coordinator import Recovered, Transaction
from tests.bridge.xa.machines import MemoryStorage, Process
from tests.bridge.xa.resource_managers import (
    ResourceManager,
    Session,
)


class Two:
    """A process, and two resource managers with a session each."""

    def __init__(self, at_once: bool = True) -> None:
        self.process = Process(MemoryStorage(), at_once=True)
        self.a = ResourceManager("rm:a", [1, 2, 3])
        self.b = ResourceManager("rm:b")
        self.source = Session(self.a, at_once)
        self.target = Session(self.b, at_once)

    @property
    def coordinator(self) -> Any:
        return self.process.coordinator

    def moved(self) -> Transaction:
        """A transaction in which a message was taken and put."""
        transaction: Transaction = self.coordinator.begin()
        done(transaction.enlist("source", "rm:a", self.source))
        done(transaction.enlist("target", "rm:b", self.target))
        message = result(self.source.take())
        result(self.target.put(message))
        return transaction

    def restart(self, kept: int = 0) -> None:
        """The process is killed and started again."""
        for session in (self.source, self.target):
            session.snap(0, told=False)
            session.hang_up()
        self.process = Process(self.process.storage.crash(kept), at_once=True)
        self.reconnect()

    def reconnect(self) -> None:
        self.source, self.target = Session(self.a), Session(self.b)

    def recover(self) -> tuple[Recovered, Recovered]:
        return (
            result(self.coordinator.recover("source", "rm:a", Session(self.a))),
            result(self.coordinator.recover("target", "rm:b", Session(self.b))),
        )


def begin(coroutine: Any) -> Deferred[Any]:
    """What is awaited later."""
    return Deferred.fromCoroutine(coroutine)


def result(deferred: Deferred[Any]) -> Any:
    """Of one that has fired."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    if hasattr(found[0], "raiseException"):
        found[0].raiseException()
    return found[0]


def done(coroutine: Any) -> Any:
    return result(begin(coroutine))
