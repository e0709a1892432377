"""What the sessions and consumers of one connection share.

Owns who is connected to which broker, whether the connection is open, and its durable
subscriptions. Knows neither sessions nor consumers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import uuid4

from twisted.internet.interfaces import IReactorTime

from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.subscriptions import WireSubscription
from bridge.providers.stomp.wire import Wire
from bridge.providers.turns import EndOfTurn
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.exchanges import QueueDeclaration
from gateway.reactor.clocks import wall_ms
from gateway.stomp.brokers import Dialect


class DurableSubscriptions:
    """The durable subscriptions of one connection, by name."""

    def __init__(self) -> None:
        #: The open consumer of each.
        self.in_use: dict[str, object] = {}
        #: Those that this connection removed. To ask for one again would cost the connection where
        #: an ERROR ends it.
        self.removed: set[str] = set()
        #: Ids of messages that the last consumer of each was given and did not settle. ActiveMQ
        #: does not mark those as redelivered.
        self.attempted: dict[str, set[str]] = {}
        #: Queues that clients have named, and may remove.
        self.queues: dict[str, QueueDeclaration] = {}

    def opened(self, name: str | None, consumer: object) -> None:
        if name is not None:
            self.in_use[name] = consumer
            self.removed.discard(name)

    def closed(self, name: str | None, consumer: object) -> None:
        if name is not None and self.in_use.get(name) is consumer:
            del self.in_use[name]


class ConnectionState:
    """What sessions and consumers know of their connection.

    :param clock: the reactor.
    :param for_clients: see :class:`~gateway.messaging.provider.Credentials`.
    :param turn_ended: called at the end of each turn.
    """

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect,
        options: StompOptions,
        clock: IReactorTime,
        username: str,
        client_id: str | None,
        for_clients: bool,
        turn_ended: Callable[[], None],
    ) -> None:
        self.wire: Final = wire
        #: To links, topics that stand for exchanges are topics like others.
        self.dialect: Final = dialect if for_clients else replace(dialect, has_exchanges=False)
        self.options: Final = options
        self.clock: Final = clock
        self.username: Final = username
        self.client_id: Final = client_id
        self.for_clients: Final = for_clients
        #: Tells this connection's messages from others', for brokers without no-local.
        self.origin: Final = uuid4().hex
        self.turn: Final = EndOfTurn(clock, wire, turn_ended)
        self.durables: Final = DurableSubscriptions()
        #: By id, those that something may arrive for.
        self.subscriptions: Final[dict[str, WireSubscription]] = {}
        #: Bytes of memory, estimated, of the messages of all consumers that wait for credit.
        self.buffered = 0
        #: It is being closed, or was.
        self.closing = False
        self._ids = itertools.count(1)
        self._message_ids = itertools.count(1)

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

    def now_ms(self) -> int:
        return wall_ms(self.clock)

    def new_id(self) -> str:
        return f"b{next(self._ids)}"

    def new_message_id(self) -> str:
        """A message id that no other message has."""
        return f"ID-{self.origin}-{next(self._message_ids)}"
