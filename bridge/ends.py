"""Both ends of a link, from the first connection to the last: connecting what is missing, pumping between them, letting go.

Owns the connections of one run of a link, from its start to its stop, and which of them is missing. When to try again is :mod:`bridge.link`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.administered import AdministeredFactory, FactoryError
from bridge.config.model import Link
from bridge.connections import ConnectionKind, Connections
from bridge.providers.jms.failures import JPypeMissing
from bridge.pump import Pump
from bridge.source import Source, SourceLost, open_source
from bridge.target import Target, TargetLost
from bridge.together import shielded, together
from bridge.transfer import Sides
from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdRequired,
    InvalidDestination,
    InvalidSelector,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)

#: What cannot change before somebody does something about it, whether or not the link was connected before.
_FINAL: Final = (FactoryError, JPypeMissing)
#: What a provider says that is not likely to change by itself.
_LASTING: Final = (
    AuthenticationFailed,
    AccessDenied,
    InvalidDestination,
    InvalidSelector,
    ClientIdRequired,
    NotSupported,
)

Lost = SourceLost | TargetLost


class SourceNotConnected(SourceLost):
    """Connecting the source has failed; ``cause`` is why. The sentence names the end and its connection factory."""

    def __init__(self, ref_name: str, cause: MessagingError) -> None:
        MessagingError.__init__(self, _about("source", ref_name, cause))
        self.cause = cause


class TargetNotConnected(TargetLost):
    """Connecting the target has failed; ``cause`` is why. The sentence names the end and its connection factory."""

    def __init__(self, ref_name: str, cause: MessagingError) -> None:
        MessagingError.__init__(self, _about("target", ref_name, cause))
        self.cause = cause
        self.sent = False


class Ends:
    """The source and the target of one link.

    :param source: the source's factory. :param target: the target's. :param connections: the bridge's.
    :param pump: theirs alone: a batch that is abandoned when they are closed has nothing to do with the next.
    :param lost: called when a connection ends that is held; :meth:`connect` brings it back.
    :param handed_over: see :class:`~bridge.target.Target`.
    """

    def __init__(
        self,
        reactor: Any,
        link: Link,
        source: AdministeredFactory,
        target: AdministeredFactory,
        connections: Connections,
        pump: Pump,
        lost: Callable[[Lost], None],
        handed_over: Callable[[], None],
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self.pump: Final = pump
        self._link: Final = link
        self._factories: Final = (source, target)
        self._log: Final = log
        self._tell_lost: Final = lost
        self._source_way: Final = connections.dedicated(source, link.source.clientid)
        stays = link.target.stay_connected
        self._target: Final = Target(
            connections.for_sending(target, stays, link.target.clientid),
            target.provider,
            stays,
            # The embedded broker makes a run durable at once anyhow.
            link.max_batch_size > 1 and not target.embedded,
            lost,
            handed_over,
        )
        self._source: Source | None = None
        #: The target's destination once it is known, None for AS_SOURCE; in a tuple, empty before.
        self._destination: tuple[Destination | None, ...] = ()
        #: Those who wait for the connecting that is under way.
        self._waiters: list[Deferred[None]] = []
        self._pumping: Deferred[None] | None = None
        self._closed = False

    # --- what is known

    @property
    def kinds(self) -> tuple[ConnectionKind | None, ConnectionKind | None]:
        """How source and target are connected; None until that is known."""
        return None if self._source is None else self._source_way.kind, self._target.kind

    @property
    def in_flight(self) -> int:
        """Messages received and not acknowledged."""
        return self.pump.in_flight + (0 if self._source is None else self._source.ahead)

    # --- connecting

    def connect(self) -> Deferred[None]:
        """Connect what is not connected; one who asks while that is under way waits for the same.

        :returns: fails with :class:`SourceNotConnected` or :class:`TargetNotConnected`, or with :class:`~bridge.source.SourceLost` where the
            source was lost while the target was connected; what could be connected stays so.
        """
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        if len(self._waiters) == 1:
            Deferred.fromCoroutine(self._connect()).addBoth(self._connected)
        return waiter

    def _connected(self, result: Any) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(result)

    async def _connect(self) -> None:
        link, (source_factory, target_factory) = self._link, self._factories
        source = self._source
        if source is None:
            try:
                destination = await source_factory.destination(link.source.destination)
                source = await open_source(self._reactor, self._source_way, link, destination, self._source_lost)
            except MessagingError as error:
                raise SourceNotConnected(source_factory.config.ref_name, _cause(error)) from error
            if self._closed:
                await source.close()
                raise ProviderUnavailable("the link was stopped")
            self._source = source
        try:
            if not self._destination:
                wanted = link.target.destination
                self._destination = (None if wanted is None else await target_factory.destination(wanted),)
            if not self._target.ready:
                await self._target.open()
        except MessagingError as error:
            raise TargetNotConnected(target_factory.config.ref_name, _cause(error)) from error
        if self._closed:
            await self._target.close()
            raise ProviderUnavailable("the link was stopped")
        if source.failed is not None:
            raise source.failed

    def _source_lost(self, lost: SourceLost) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
            self._tell_lost(lost)

    # --- pumping

    async def run(self) -> None:
        """Have messages moved until the pump is halted. One at a time; nothing else uses the ends meanwhile.

        :raises MessagingError: of :meth:`Pump.run`.
        """
        source = self._source
        if source is None:
            raise SourceLost(ProviderUnavailable("its connection has ended"))
        factories = self._factories
        (destination,) = self._destination
        sides = Sides(destination, source.product, self._target.product, all(factory.embedded for factory in factories))
        self._pumping = Deferred()
        source.start()
        try:
            await self.pump.run(source, self._target, sides)
        finally:
            source.stop()
            pumping, self._pumping = self._pumping, None
            pumping.callback(None)

    # --- the end

    async def close(self, seconds: float) -> None:
        """Let the batch under way be finished, give back what is not begun, and close the connections.

        :param seconds: that either step may take; then the connections are closed over the batch, or abandoned.
        """
        self._closed = True
        self.pump.halt()
        if self._pumping is not None:
            await self._within(seconds, {"finishing the batch under way": shielded(self._pumping)})
        self.pump.forget()
        closing: dict[str, Deferred[Any]] = {"closing the target": Deferred.fromCoroutine(self._target.close())}
        if self._source is not None:
            closing["closing the source's session"] = self._source.close()
        closing["closing the source"] = self._source_way.close()
        if self._pumping is not None:
            # What it waited for has failed now.
            closing["ending the batch under way"] = shielded(self._pumping)
        await self._within(seconds, closing)

    async def _within(self, seconds: float, awaited: Mapping[str, Deferred[Any]]) -> None:
        ended = await together(self._reactor, awaited, seconds, self._failed)
        for name, failure in ended.failures.items():
            self._failed(name, failure)
        for name in ended.late:
            self._log.warn(
                "link {link}: {what} takes more than {seconds:g} seconds, and is waited for no longer",
                link=self._link.name,
                what=name,
                seconds=seconds,
            )

    def _failed(self, what: str, failure: Failure) -> None:
        self._log.warn("link {link}: {what} failed: {error}", link=self._link.name, what=what, error=failure.value)


def worth_a_retry(error: MessagingError, was_connected: bool) -> bool:
    """Whether trying again can help.

    A refusal of the link's very first connection is most likely a mistake in the configuration; a provider that comes back may refuse for a while what
    it will take again.
    """
    cause = _cause(error)
    return not isinstance(cause, _FINAL) and (was_connected or not isinstance(cause, _LASTING))


def _cause(error: MessagingError) -> MessagingError:
    return error.cause if isinstance(error, SourceLost | TargetLost) else error


def _about(end: str, ref_name: str, cause: MessagingError) -> str:
    """What went wrong where; some errors name the factory themselves."""
    text, factory = str(cause), f"connection-factory '{ref_name}'"
    return f"{end}, {text}" if text.startswith(factory) else f"{end}, {factory}: {text}"
