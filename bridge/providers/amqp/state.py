"""What the sessions and consumers of one connection share.

Owns who is connected to which broker, whether the connection is open, its durable subscriptions, and
which links are not read because too much waits. Knows neither sessions nor consumers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import uuid4

from twisted.internet.interfaces import IReactorTime

from bridge.providers.amqp.links import Channel
from bridge.providers.amqp.options import AmqpOptions
from bridge.providers.amqp.peers import Peer
from bridge.providers.amqp.receiver import ReceiverLink
from bridge.providers.amqp.temporary import Temporaries, TemporaryNode
from bridge.providers.amqp.wire import Wire
from bridge.providers.turns import EndOfTurn
from gateway.messaging.destination import Destination
from gateway.messaging.errors import ProviderUnavailable
from gateway.reactor.clocks import wall_ms


class ConnectionState:
    """What sessions and consumers know of their connection.

    :param clock: the reactor.
    :param temporaries: those of the provider.
    :param for_clients: see :class:`~gateway.messaging.provider.Credentials`.
    :param turn_ended: called at the end of each turn.
    """

    def __init__(
        self,
        wire: Wire,
        peer: Peer,
        options: AmqpOptions,
        clock: IReactorTime,
        username: str,
        client_id: str | None,
        temporaries: Temporaries,
        for_clients: bool,
        turn_ended: Callable[[], None],
    ) -> None:
        self.wire: Final = wire
        #: To links, topics that stand for exchanges are topics like others.
        self.peer: Final = peer if for_clients else replace(peer, has_exchanges=False)
        self.options: Final = options
        self.clock: Final = clock
        self.username: Final = username
        self.client_id: Final = client_id
        self.temporaries: Final = temporaries
        self.for_clients: Final = for_clients
        #: The temporary destinations of this connection.
        self.nodes: Final[dict[Destination, TemporaryNode]] = {}
        #: Tells this connection's messages from others', for brokers without no-local.
        self.origin: Final = uuid4().hex
        self.turn: Final = EndOfTurn(clock, wire, turn_ended)
        #: The open consumer of each durable subscription.
        self.durables: Final[dict[str, object]] = {}
        #: Links that were not read to the end, as too much waits.
        self.unread: Final[dict[ReceiverLink, None]] = {}
        #: Bytes of memory, estimated, of the messages of all consumers that wait for credit.
        self.buffered = 0
        #: It is being closed, or was.
        self.closing = False
        self._shared: Channel | None = None
        self._channels: list[Channel] = []
        self._names = itertools.count(1)
        self._message_ids = itertools.count(1)

    def channel(self) -> Channel:
        """Return the session of the engine for a new link.

        There is one for all links, so that a transaction can span them. Where the broker ends the
        session of a link that it refuses, each link has its own.
        """
        if self.peer.ends_sessions or self._shared is None or self._shared.closing:
            self._shared = Channel(self.wire, self.options.max_buffer)
            self._channels = [each for each in self._channels if each.alive]
            self._channels.append(self._shared)
        return self._shared

    def drop(self) -> None:
        """Forget all links: the connection has ended."""
        nodes = list(self.nodes)
        self.nodes.clear()
        for destination in nodes:
            self.temporaries.forget(destination)
        channels, self._channels = self._channels, []
        for channel in channels:
            channel.drop()
        self.unread.clear()

    def leave(self, channel: Channel) -> None:
        """End a session of the engine that only one link had."""
        if self.peer.ends_sessions:
            channel.close()

    @property
    def full(self) -> bool:
        """Whether as much waits for credit as should."""
        return self.buffered > self.options.max_buffer

    def read_on(self) -> None:
        """Read the links that were held back, now that less waits."""
        if self.unread and not self.full:
            links = list(self.unread)
            self.unread.clear()
            for link in links:
                link.read()
            self.turn.soon(_nothing)

    @property
    def ended(self) -> bool:
        """Whether nothing more can be asked of the broker."""
        return self.wire.ended is not None

    @property
    def ending(self) -> bool:
        """Whether nothing that is asked now would be carried out."""
        return self.closing or self.wire.ended is not None

    def check_open(self) -> None:
        """:raises ProviderUnavailable: the connection is closed or was lost."""
        ended = self.wire.ended
        if ended is not None:
            raise (
                ended if isinstance(ended, ProviderUnavailable) else ProviderUnavailable(str(ended))
            )
        if self.closing:
            raise ProviderUnavailable("the connection is closed")

    def closed_durable(self, name: str | None, consumer: object) -> None:
        """The consumer of a durable subscription is closed."""
        if name is not None and self.durables.get(name) is consumer:
            del self.durables[name]

    def now_ms(self) -> int:
        return wall_ms(self.clock)

    def new_name(self) -> str:
        """A name that no other link has."""
        return f"{self.origin}-{next(self._names)}"

    def new_message_id(self) -> str:
        """A message id that no other message has."""
        return f"ID:{self.origin}-{next(self._message_ids)}"


def _nothing() -> None:
    """What is called so that a turn follows."""
