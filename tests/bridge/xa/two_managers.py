"""A coordinator and two resource managers, between which a message is moved; and what is needed to
look at Deferreds at once.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from bridge.xa.coordinator import Recovered, Transaction
from tests.bridge.xa.coordinator_process import MemoryStorage, Process
from tests.bridge.xa.resource_managers import ResourceManager, Session


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

    @property
    def states(self) -> list[str]:
        return [one.state for one in self.coordinator.transactions()]

    def enlisted(self, source: str = "rm:a", target: str | None = "rm:b") -> Transaction:
        """A transaction that both take part in, or only the source."""
        transaction: Transaction = self.coordinator.begin()
        done(transaction.enlist("source", source, self.source))
        if target is not None:
            done(transaction.enlist("target", target, self.target))
        return transaction

    def moved(self, source: str = "rm:a", target: str = "rm:b") -> Transaction:
        """A transaction in which a message was taken and put."""
        transaction = self.enlisted(source, target)
        result(self.target.put(result(self.source.take())))
        return transaction

    def restart(self, kept: int = 0) -> None:
        """The process is killed and started again."""
        for session in (self.source, self.target):
            session.snap(0, told=False)
            session.hang_up()
        self.process = Process(self.process.storage.crash(kept), at_once=True)
        self.reconnect()

    def restart_later(self) -> None:
        """Restart with everything on the disk, also what has no waiter."""
        self.process.reactor.advance(1)
        self.restart(kept=10_000)

    def reconnect(self) -> None:
        self.source, self.target = Session(self.a), Session(self.b)

    def recover(self) -> tuple[Recovered, Recovered]:
        return self.recover_source(), self.recover_target()

    def recover_source(self, manager: ResourceManager | None = None, rm: str = "rm:a") -> Recovered:
        """Recover by the source, or by another that answers by its name."""
        found: Recovered = result(
            self.coordinator.recover("source", rm, Session(manager or self.a))
        )
        return found

    def recover_target(self, manager: ResourceManager | None = None, rm: str = "rm:b") -> Recovered:
        found: Recovered = result(
            self.coordinator.recover("target", rm, Session(manager or self.b))
        )
        return found


def begin(coroutine: Any) -> Deferred[Any]:
    return Deferred.fromCoroutine(coroutine)


def result(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred that has fired."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    if hasattr(found[0], "raiseException"):
        found[0].raiseException()
    return found[0]


def done(coroutine: Any) -> Any:
    return result(begin(coroutine))


def names(session: Session) -> list[str]:
    return [request.name for request in session.requests]


def go(*sessions: Session) -> None:
    """Everything that is asked arrives and is answered."""
    while any(session.requests for session in sessions):
        for session in sessions:
            if session.requests:
                session.go()
