"""The message transformer of a link whose class is in Java.

Owns at which end of a link it runs, and that there is one session for it on that end's connection,
whichever that is. What it is asked is :mod:`bridge.providers.jms.transforming`'s, what follows from
its answers :mod:`bridge.link.transfer`'s. Imports no Java provider: a link that has one has imported
it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import uuid4

from bridge.link.errors import SourceLost, TargetLost
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection
from gateway.messaging.transformer import Transformed, TransformFailed

if TYPE_CHECKING:
    from bridge.link.source import LinkSource
    from bridge.link.target import TargetSession
    from bridge.providers.jms.connection import JMSConnection
    from bridge.providers.jms.transformer_class import TransformerClass
    from bridge.providers.jms.transforming import TransformerSession

T = TypeVar("T")


class JavaTransformer:
    """A message transformer in Java.

    :param of: its class.
    :param at_source: whether the Java process of the source's provider runs it; else that of the
        target's does.
    """

    def __init__(self, of: TransformerClass, at_source: bool) -> None:
        self.name: Final = of.name
        self.at_source: Final = at_source
        self._class = of
        self._connection: Connection | None = None
        self._session: TransformerSession | None = None

    async def ready(self, source: LinkSource[Any], target: TargetSession[Any]) -> None:
        """Make it, if its end is connected.

        :raises SourceLost:
        :raises TargetLost: it was at this end, whose connection was lost.
        :raises TransformerUnusable: none can be made of its class.
        """
        if self.at_source or target.ready:
            await self._within(self._on(await self._connected(source, target)).ready())

    async def transform(
        self,
        messages: Sequence[Message],
        source: LinkSource[Any],
        target: TargetSession[Any],
        names: tuple[str, str],
        properties: Mapping[str, str],
    ) -> list[Transformed | TransformFailed]:
        """Transform messages of a batch, in order.

        :param names: what source and target call themselves.
        :param properties: for each.
        :returns: one for each.
        :raises SourceLost:
        :raises TargetLost: it was at this end, whose connection was lost or has been ended, as it
            did not return in time.
        :raises TransformerUnusable: none can be made of its class.
        """
        session = self._on(await self._connected(source, target))
        return await self._within(session.transform(messages, *names, properties))

    def close(self) -> None:
        """Let go of the connection; what is being asked fails. Idempotent."""
        session, self._session, self._connection = self._session, None, None
        if session is not None:
            if session.hangs:
                # That object is in its call still: the next session has another.
                self._class = self._class._replace(key=uuid4().hex)
            session.close()

    async def _within(self, asked: Awaitable[T]) -> T:
        """What was asked; the loss of a connection is that of its end."""
        try:
            return await asked
        except ProviderUnavailable as error:
            raise self._lost(error) from error

    async def _connected(self, source: LinkSource[Any], target: TargetSession[Any]) -> Connection:
        if not self.at_source:
            return await target.connection()
        connection = source.connection
        if connection is None:
            raise source.failed or SourceLost(ProviderUnavailable("its connection has ended"))
        return connection

    def _on(self, connection: Connection) -> TransformerSession:
        """Return its session on this connection.

        :raises SourceLost:
        :raises TargetLost: the connection was lost.
        """
        if self._session is None or self._connection is not connection:
            self.close()
            # That end's provider is a JMS provider.
            try:
                self._session = cast("JMSConnection", connection).transformer(self._class)
            except ProviderUnavailable as error:
                raise self._lost(error) from error
            self._connection = connection
        return self._session

    def _lost(self, error: ProviderUnavailable) -> SourceLost | TargetLost:
        return SourceLost(error) if self.at_source else TargetLost(error, sent=False)
