"""A process that moves messages from one queue to another in XA branches over a real store, until
it is killed or has nothing more to move.

Run with the store's folder, a crash point, "" for none, and the name of a user. It says on its standard output, line by
line, what a coordinator would have in its log: ``decided N`` before it commits branch N in two
phases, ``committed N`` after a commit of either kind, ``moved all`` at the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from traceback import print_exception
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance import crashpoints
from gateway.messaging.destination import Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Flags,
    Mode,
    Session,
    Xid,
)
from gateway.reactor.turn import Turn
from tests.gateway.broker.brokers import EveryoneIn, text

SOURCE, TARGET = Queue("source"), Queue("target")
MESSAGES = 120
BATCH = 5
FORMAT = 0x5354

reactor: Any = installed


def say(line: str) -> None:
    print(line, flush=True)


def lost(error: MessagingError) -> None:
    raise AssertionError(str(error))


async def completed(session: Session) -> None:
    done: Deferred[None] = Deferred()
    session.completion(lambda error: done.callback(None) if error is None else done.errback(error))
    await done


class Mover:
    """Two connections, as a link has them."""

    def __init__(self, source: Connection, target: Connection) -> None:
        self._receiving, self._sending = source.xa_session(), target.xa_session()
        self._batch: list[Message] = []
        self._full: Deferred[None] = Deferred()
        self._consumer = self._receiving.consumer(ConsumerSpec(SOURCE), self._deliver, lost)
        self._last = 0

    def _deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        self._batch += messages
        self._last = first + len(messages) - 1
        if len(self._batch) == BATCH:
            self._full.callback(None)

    async def move(self, number: int) -> None:
        """One batch; every other one in one phase."""
        xid = Xid(FORMAT, b"%d" % number, b"move")
        here, there = self._receiving.resource(), self._sending.resource()
        await here.start(xid, Flags.NOFLAGS)
        await there.start(xid, Flags.JOIN)
        self._batch, self._full = [], Deferred()
        self._consumer.grant(BATCH)
        self._consumer.start()
        await self._full
        self._consumer.stop()
        self._sending.send([text(TARGET, message.text) for message in self._batch])
        self._consumer.acknowledge_through(self._last)
        await there.end(xid, Flags.SUCCESS)
        await here.end(xid, Flags.SUCCESS)
        if number % 2:
            await here.commit(xid, True)
        else:
            await here.prepare(xid)
            say(f"decided {number}")
            await here.commit(xid, False)
        say(f"committed {number}")


async def run(folder: Path, point: str, user: str) -> None:
    path = str(folder / "messages.db")
    store = SqliteStore(path, reactor)
    if point:
        act = crashpoints.asked(crashpoints.STORE_VARIABLE, point)
        crashpoints.arm(crashpoints.STORE_POINTS, act)
        early = crashpoints.EARLY_CHECKPOINT_OCTETS
        store = SqliteStore(path, reactor, checkpoint_octets=early)
    broker = open_broker(
        reactor, Turn(reactor), store, BrokerOptions(), lambda error: say(f"failed {error}")
    )
    rules = AccessRules(folder / "accesscontrol.properties")
    rules.path.write_text(DEFAULT_RULES)
    rules.load()
    provider = EmbeddedProvider(broker, EveryoneIn(), rules, os.urandom)
    connections = [await provider.connect(Credentials(user, user), None, lost) for _ in range(3)]
    filling = connections[2].session(Mode.CLIENT)
    for start in range(0, MESSAGES, 10):
        filling.send([text(SOURCE, str(number)) for number in range(start, start + 10)])
    await completed(filling)
    say("filled")
    mover = Mover(connections[0], connections[1])
    for number in range(MESSAGES // BATCH):
        await mover.move(number)
    say("moved all")


def main() -> None:
    def ended(result: object) -> None:
        if isinstance(result, Failure):
            print_exception(result.value)
        reactor.stop()

    reactor.callWhenRunning(
        lambda: ensureDeferred(run(Path(sys.argv[1]), *sys.argv[2:])).addBoth(ended)
    )
    reactor.run()


if __name__ == "__main__":
    main()
