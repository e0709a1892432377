"""A consumer of a client, at the broker that has its destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from gateway.front.refusals import Unsupported, unreadable
from gateway.front.routes import Way
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, NotSupported
from gateway.messaging.message import Message, Unreadable
from gateway.messaging.provider import Consumer, Deliver, Session

_T = TypeVar("_T")


class Asking(Protocol):
    """The connection of a consumer."""

    def asked(self, way: Way | None, ask: Callable[[], _T]) -> _T:
        """Ask something of a broker. :raises Unsupported: it cannot do that."""

    def broker(self, way: Way | None) -> str:
        """What errors call it."""


class Settling(Protocol):
    """The session of a consumer."""

    def settles(self, way: Way | None, destination: Destination) -> None:
        """Something of a broker is settled in it."""

    def at(self, way: Way | None) -> Session:
        """The session of a broker."""


class FrontConsumer:
    """One consumer, at one broker. Made by its session."""

    def __init__(
        self,
        connection: Asking,
        session: Settling,
        way: Way | None,
        destination: Destination,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.inner: Consumer
        self._connection: Final = connection
        self._session: Final = session
        self._way: Final = way
        self._destination: Final = destination
        self._deliver: Final = deliver
        self._failed: Final = failed

    def delivered(
        self,
        inner: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        """What the broker's consumer calls."""
        if Unreadable not in map(type, messages):
            self._deliver(self, first, messages, attempts)
            return
        count, error = unreadable(self._destination, messages)
        if count:
            self._deliver(self, first, messages[:count], attempts and attempts[:count])
        self._failed(error)

    def start(self) -> None:
        self.inner.start()

    def stop(self) -> None:
        self.inner.stop()

    def grant(self, messages: int, octets: int = 0) -> None:
        self.inner.grant(messages, octets)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        session = self._within(within)
        return self._connection.asked(
            self._way, lambda: self.inner.acknowledge_through(number, session)
        )

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        session = self._within(within)
        self._connection.asked(self._way, lambda: self.inner.acknowledge(numbers, session))

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        session = self._within(within)
        try:
            self.inner.reject(numbers, delay_ms, dead, session)
        except NotSupported as error:
            what = error.capability if dead is not None else "rejection"
            raise Unsupported(self._connection.broker(self._way), what) from None

    def _within(self, within: Session | None) -> Session | None:
        """The broker's session in which a settlement takes effect."""
        if within is None:
            self._session.settles(self._way, self._destination)
            return None
        assert isinstance(within, type(self._session))
        within.settles(self._way, self._destination)
        return within.at(self._way)

    def close(self, requeue: bool = True) -> None:
        self.inner.close(requeue)
