"""Calls on a thread, of which one runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.python.threadpool import ThreadPool

from gateway.reactor.deferreds import alone_on_thread


class Reactor:
    """Threads, and what they hand over."""

    def __init__(self) -> None:
        self._pool = ThreadPool(0, 4)
        self._pool.start()
        self._handed: SimpleQueue[Callable[[], Any]] = SimpleQueue()

    def getThreadPool(self) -> ThreadPool:
        return self._pool

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._handed.put(lambda: call(*arguments))

    def take_one(self) -> None:
        self._handed.get(timeout=60.0)()

    def stop(self) -> None:
        self._pool.stop()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.stop()


def test_a_call_that_is_waited_for_no_longer_keeps_its_turn(reactor: Reactor) -> None:
    turn, go, order = DeferredLock(), threading.Event(), []

    def first() -> None:
        assert go.wait(60.0)
        order.append("first")

    one = Deferred.fromCoroutine(alone_on_thread(reactor, turn, first))
    two = Deferred.fromCoroutine(alone_on_thread(reactor, turn, order.append, "second"))
    ended: list[Any] = []
    one.addErrback(ended.append)
    one.cancel()
    assert ended[0].check(CancelledError)
    # The thread is still busy with the first.
    assert turn.locked
    assert order == []
    go.set()
    reactor.take_one()
    reactor.take_one()
    assert order == ["first", "second"]
    assert two.called
    assert not turn.locked
