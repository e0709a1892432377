"""The message transformer of a dead message queue whose class is in Java.

Owns on which connection it runs, and that its one object is asked about one message at a time. A
dead message is kept whatever becomes of this: where it cannot be transformed, as it was.

Imports no Java provider: a queue that has such a transformer has imported it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from twisted.internet.defer import DeferredLock

from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import ConnectionLender, Connections
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.transformer import Transformed, TransformFailed

if TYPE_CHECKING:
    from bridge.providers.jms.connection import JMSConnection
    from bridge.providers.jms.transformer_class import TransformerClass


class JavaDeadTransformer:
    """A message transformer in Java, for dead messages.

    :param of: its class.
    :param factory: of a JMS provider, whose Java process runs it.
    :param connections: lend a connection for each message.
    """

    def __init__(
        self, of: TransformerClass, factory: AdministeredFactory, connections: Connections
    ) -> None:
        self.name: Final = of.name
        self.factory: Final = factory
        self._class = of
        self._connections: Final = connections
        self._lender: ConnectionLender | None = None
        self._turn: Final = DeferredLock()

    async def transform(
        self, message: Message, source: str, target: str, properties: Mapping[str, str]
    ) -> Transformed:
        """Transform a dead message.

        Makes one attempt: the provider may be the very reason why the message is dead.

        :param source: what the provider of its source calls itself, and
        :param target: the provider of the queue.
        :raises TransformFailed: it cannot be asked, or it failed.
        """
        await self._turn.acquire()
        try:
            (outcome,) = await self._asked(message, source, target, properties)
        except MessagingError as error:
            raise TransformFailed(self.name, source, target, str(error)) from error
        finally:
            self._turn.release()
        if isinstance(outcome, TransformFailed):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Return what was lent; what is being asked fails. Idempotent."""
        if self._lender is not None:
            await self._lender.close()

    async def _asked(
        self, message: Message, source: str, target: str, properties: Mapping[str, str]
    ) -> list[Transformed | TransformFailed]:
        if self._lender is None:
            self._lender = self._connections.for_sending(self.factory, False, None)
        lease = await self._lender.borrow(_session_tells)
        broken = True
        try:
            # That factory's provider is a JMS provider.
            session = cast("JMSConnection", lease.connection).transformer(self._class)
            try:
                outcomes = await session.transform([message], source, target, properties)
                broken = False
            finally:
                if session.hangs:
                    # That object is in its call still: the next message has another.
                    self._class = self._class._replace(key=uuid4().hex)
                session.close()
        finally:
            await lease.give_back(broken)
        return outcomes


def _session_tells(_: MessagingError) -> None:
    """A connection that was lost fails what was asked there."""
