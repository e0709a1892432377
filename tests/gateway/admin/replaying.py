"""A child process that replays the dead messages of a store on disk, and kills itself at one of its
commits.

``python -m tests.gateway.admin.replaying FOLDER COMMITS before|after``: before the commit of that
number is asked for, or after it was told durable.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, cast

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway.admin.service import dead as module
from gateway.admin.service.dead import DeadMessages
from gateway.broker.sessions.connection import PRODUCT as BROKER
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Connection, Credentials, Done, Mode, Provider, Session
from tests.gateway.broker.brokers import Deployment

#: What the broker calls itself, for dead messages that came from it.
PRODUCT: Final = BROKER

reactor = cast(Any, global_reactor)


class Killing:
    """A provider around another, whose sessions kill the process."""

    def __init__(self, inner: Provider, commits: int, moment: str) -> None:
        self._inner = inner
        self._left = commits
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect(self, *arguments: Any) -> Deferred[Any]:
        return self._inner.connect(*arguments).addCallback(self._watched)

    def _watched(self, connection: Connection) -> Any:
        killing = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(connection, name)

            def session(self, mode: Mode) -> Any:
                session = connection.session(mode)
                return session if mode is not Mode.TRANSACTED else killing._session(session)

        return Watched()

    def _session(self, session: Session) -> Any:
        killing = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(session, name)

            def commit(self, done: Done) -> None:
                killing._left -= 1
                if not killing._left and killing._moment == "before":
                    os.kill(os.getpid(), signal.SIGKILL)

                def committed(error: MessagingError | None) -> None:
                    if not killing._left:
                        os.kill(os.getpid(), signal.SIGKILL)
                    done(error)

                session.commit(committed)

        return Watched()


def main(folder: str, commits: str, moment: str) -> None:
    module.BATCH = 5  # type: ignore[misc]
    deployment = Deployment(reactor, Path(folder), "sqlite")
    provider = Killing(deployment.provider, int(commits), moment)
    dead = DeadMessages(
        reactor, cast(Provider, provider), lambda: Credentials("admin", "right"), Logger()
    )

    def begin() -> None:
        Deferred.fromCoroutine(dead.replay()).addBoth(
            lambda result: (print(result, file=sys.stderr), reactor.stop())
        )

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
