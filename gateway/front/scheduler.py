"""Whether a broker delivers messages at a later time.

Some do where they are set up for it, and else deliver at once without a word. So one is tried: of
two messages to a topic the first is for later. If it comes first, the broker does not keep it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import uuid4

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessageRejected, MessagingError, NotSupported
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Provider,
)
from gateway.messaging.scheduled import DELAY
from gateway.reactor.deferreds import deferred, shield, timeout

#: What the messages that try it are sent to. No client receives from it.
TOPIC: Final = Destination(Kind.TOPIC, "stomp-gateway.scheduler")
#: Milliseconds after which the first may be delivered, and seconds to wait for one of them.
_LATER_MS: Final = 10_000
_WAIT_S: Final = 5.0

_log: Final = Logger(namespace="gateway.front")


class Scheduler:
    """The scheduler of one broker.

    :param provider: of connections to it.
    :param reactor: Twisted's, for time.
    :param name: of the broker.
    """

    def __init__(self, provider: Provider, reactor: Any, name: str) -> None:
        self._provider: Final = provider
        self._reactor: Final = reactor
        self._name: Final = name
        #: Whether it is on; None: it could not be tried.
        self._on: bool | None = None
        #: It is to be tried before the next connection is used.
        self._stale = True
        self._looking: Deferred[None] | None = None

    @property
    def _optional(self) -> bool:
        return self._provider.capabilities.scheduler_optional

    def lost(self) -> None:
        """The broker may come back with another configuration."""
        self._stale = True

    def check(self, messages: Sequence[Message]) -> None:
        """Check that messages which are for later can be sent.

        :raises MessageRejected: the broker would deliver one at once.
        """
        for index, message in enumerate(messages):
            if message.headers.scheduled and self._optional and not self._on:
                raise MessageRejected(index, NotSupported("scheduler"))

    @deferred
    async def look(self, credentials: Credentials) -> None:
        """Try whether it is on, where that is not known. Never fails.

        :param credentials: as whom to try it.
        """
        while self._stale and self._optional:
            if self._looking is not None:
                await shield(self._looking)
                continue
            self._looking = looked = Deferred[None]()
            self._stale, on, why = False, None, "it delivered nothing"
            try:
                on = await self._tried(credentials)
            except MessagingError as error:
                why = str(error)
            finally:
                if on is None:
                    # The next connection tries it again.
                    self._stale = True
                    _log.warn(
                        "{name}: whether it delivers messages at a later time cannot be tried, so such messages are refused: {why}",
                        name=self._name,
                        why=why,
                    )
                elif on is not self._on:
                    _log.info(
                        "{name}: it {does} messages at a later time",
                        name=self._name,
                        does="delivers" if on else "does not deliver",
                    )
                self._on, self._looking = on, None
                looked.callback(None)
            if on is None:
                return

    async def _tried(self, credentials: Credentials) -> bool | None:
        """Return what was seen; None: nothing in time."""
        first: Deferred[bool | MessagingError] = Deferred()

        def answer(seen: bool | MessagingError) -> None:
            if not first.called:
                first.callback(seen)

        connection = await self._provider.connect(credentials, None, answer)
        try:
            _send_two(connection, answer)
            if not await timeout(self._reactor, _WAIT_S, first):
                return None
            seen = first.result
            if isinstance(seen, MessagingError):
                raise seen
            return bool(seen)
        finally:
            connection.close()


def _send_two(connection: Connection, answer: Callable[[bool | MessagingError], None]) -> None:
    """Send one message for later and one for now.

    :param answer: told whether the second has come first, or what has failed.
    """
    session, mark = connection.session(Mode.AUTO), uuid4().hex

    def came(_: Consumer, __: int, messages: Sequence[Message], ___: object) -> None:
        for message in messages:
            # Another gateway may be trying it, too.
            if message.headers.correlation_id in (f"{mark} later", f"{mark} now"):
                answer(message.headers.correlation_id == f"{mark} now")

    def opened(error: MessagingError | None) -> None:
        if error is not None:
            answer(error)
            return
        later = Headers(
            TOPIC,
            persistent=False,
            correlation_id=f"{mark} later",
            properties={DELAY: str(_LATER_MS)},
        )
        now = Headers(TOPIC, persistent=False, correlation_id=f"{mark} now")
        try:
            session.send([Message(later)])
            session.send([Message(now)])
            session.completion(lambda error: None if error is None else answer(error))
        except MessagingError as refused:
            answer(refused)

    consumer = session.consumer(ConsumerSpec(TOPIC), came, answer)
    consumer.grant(1000)
    consumer.start()
    session.completion(opened)
