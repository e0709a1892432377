"""A process that prepares an XA branch in a store, and is killed.

Run with the folder of the store, and the names of two queues. It sends two messages to the first,
acknowledges one of them, and sends two to the second, in a branch that is prepared when it dies. Its
coordinator never decides. It says the ids of the
message that was acknowledged, and of the first that was sent.
"""

from __future__ import annotations

import os
import signal
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
from gateway.messaging.destination import Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Credentials, Flags, Mode, Xid
from gateway.reactor.turn import Turn
from tests.crash.xa_child import completed, lost
from tests.gateway.broker.brokers import EveryoneIn, text

reactor: Any = installed
XID = Xid(0x5354, b"in doubt", b"why")


async def run(folder: Path, source: str, target: str) -> None:
    broker = open_broker(
        reactor,
        Turn(reactor),
        SqliteStore(str(folder / "messages.db"), reactor),
        BrokerOptions(),
        lambda error: print(f"failed {error}"),
    )
    rules = AccessRules(folder / "rules")
    rules.path.write_text(DEFAULT_RULES)
    rules.load()
    provider = EmbeddedProvider(broker, EveryoneIn(), rules, os.urandom)
    connection = await provider.connect(Credentials("guest", "guest"), None, lost)
    filling = connection.session(Mode.CLIENT)
    filling.send([text(Queue(source), str(number)) for number in range(2)])
    await completed(filling)
    session = connection.xa_session()
    resource = session.resource()
    await resource.start(XID, Flags.NOFLAGS)
    came: Deferred[tuple[int, Sequence[Message]]] = Deferred()
    consumer = session.consumer(
        ConsumerSpec(Queue(source)),
        lambda consumer, first, messages, *rest: came.callback((first, messages)),
        lost,
    )
    consumer.grant(1)
    consumer.start()
    number, (message,) = await came
    print(message.message_id, flush=True)
    consumer.acknowledge_through(number)
    sent = [text(Queue(target), str(number)) for number in range(2)]
    session.send(sent)
    await resource.end(XID, Flags.SUCCESS)
    await resource.prepare(XID)
    print(sent[0].message_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    def failed(failure: Failure) -> None:
        print_exception(failure.value)
        reactor.stop()

    reactor.callWhenRunning(
        lambda: ensureDeferred(run(Path(sys.argv[1]), *sys.argv[2:])).addErrback(failed)
    )
    reactor.run()


if __name__ == "__main__":
    main()
