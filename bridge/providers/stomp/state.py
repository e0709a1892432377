"""What the sessions and consumers of one connection share.

Owns who is connected to which broker, whether the connection is open, its durable subscriptions,
the work that is left for the end of a turn, and back-pressure. Knows neither sessions nor
consumers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from twisted.internet.interfaces import IReactorTime

from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.subscriptions import WireSubscription
from bridge.providers.stomp.wire import Wire
from gateway.messaging.errors import ProviderUnavailable
from gateway.reactor.clocks import wall_ms
from gateway.stomp.brokers import Dialect

#: Bytes of bodies that wait for the end of the turn from which on a session is not writable.
_MOST_GATHERED: Final = 1_048_576


class EndOfTurn:
    """The end of a turn of the reactor.

    First due calls, then deliveries, then the frames of sessions, then the socket.

    :param ended: called after each.
    """

    def __init__(self, clock: IReactorTime, wire: Wire, ended: Callable[[], None]) -> None:
        self._clock = clock
        self._wire = wire
        self._ended = ended
        #: Bytes of bodies that wait for the end of the turn.
        self.gathered = 0
        #: What pumps a consumer, and what flushes a session, in the order asked for.
        self._touched: dict[Callable[[], None], None] = {}
        self._to_flush: dict[Callable[[], None], None] = {}
        self._due: list[Callable[[], None]] = []
        self._scheduled = False
        self._resumes: list[Callable[[], None]] = []
        wire.on_run = self.finish
        wire.on_relief = self._relieved

    def touched(self, pump: Callable[[], None]) -> None:
        """Pump a consumer at the end of the run of frames that is being read."""
        self._touched[pump] = None

    def touch(self, pump: Callable[[], None]) -> None:
        """Pump a consumer at the end of this turn."""
        self._touched[pump] = None
        self._schedule()

    def flush_later(self, flush: Callable[[], None]) -> None:
        """Flush a session at the end of this turn."""
        self._to_flush[flush] = None
        self._schedule()

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a later turn."""
        self._due.append(call)
        self._schedule()

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be written as should."""
        return self._wire.crowded or self.gathered > _MOST_GATHERED

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when :attr:`crowded` is over."""
        self._resumes.append(resume)

    def finish(self) -> None:
        """Deliver until nothing more can be delivered, then write."""
        while self._touched:
            touched, self._touched = self._touched, {}
            for pump in touched:
                pump()
        self.flush()
        self._ended()

    def flush(self) -> None:
        """Write the gathered frames of all sessions."""
        to_flush, self._to_flush = self._to_flush, {}
        self.gathered = 0
        for flush in to_flush:
            flush()
        self._wire.flush()

    def drop(self) -> None:
        """Forget deliveries and waiting senders: the connection has ended."""
        self._touched.clear()
        self._resumes.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        due, self._due = self._due, []
        for call in due:
            call()
        self.finish()

    def _relieved(self) -> None:
        if self._resumes:
            resumes, self._resumes = self._resumes, []
            for resume in resumes:
                self.soon(lambda resume=resume: self._resume(resume))  # type: ignore[misc]

    def _resume(self, resume: Callable[[], None]) -> None:
        if self.crowded:
            self._resumes.append(resume)
        else:
            resume()


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
        turn_ended: Callable[[], None],
    ) -> None:
        self.wire: Final = wire
        self.dialect: Final = dialect
        self.options: Final = options
        self.clock: Final = clock
        self.username: Final = username
        self.client_id: Final = client_id
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
