"""Both ends of a link: connecting what is missing, pumping, letting go.

Owns the connections of one run of a link, from its start to its stop, and which of them is missing.
When to try again is :mod:`bridge.jms_link`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.config.model import Link
from bridge.connections.administered import AdministeredFactory, FactoryError
from bridge.connections.connections import ConnectionKind, Connections
from bridge.link.errors import EndLost, NotOnce, SourceLost, TargetLost
from bridge.link.pump import Pump
from bridge.link.source import LinkSource
from bridge.link.status import Doing, OnceBy
from bridge.link.transfer import LinkEnds
from bridge.providers.jms.failures import JavaMissing, TransformerUnusable
from bridge.xa.errors import LogFailed
from gateway.messaging.destination import Destination, Kind
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
from gateway.messaging.provider import Connection
from gateway.reactor.deferreds import gather, shield

#: What cannot change before somebody does something about it, whether or not the link was connected
#: before.
_FINAL: Final = (
    FactoryError,
    JavaMissing,
    NotOnce,
    LogFailed,
    ClientIdRequired,
    TransformerUnusable,
)
#: What a provider says that is not likely to change by itself.
_LASTING: Final = (
    AuthenticationFailed,
    AccessDenied,
    InvalidDestination,
    InvalidSelector,
    NotSupported,
)


class LinkEndpoints:
    """The source and the target of one link.

    :param source: the source's factory.
    :param target: the target's.
    :param connections: the bridge's.
    :param make_pump: makes the pump between them, once it is known what both can do; asked until it
        does. The pump is theirs alone: a batch that is abandoned when they are closed has nothing
        to do with the next.
    :param lost: called when the source's connection ends; :meth:`connect` brings it back.
    """

    def __init__(
        self,
        reactor: Any,
        link: Link,
        source: AdministeredFactory,
        target: AdministeredFactory,
        connections: Connections,
        make_pump: Callable[[], Coroutine[Any, Any, Pump]],
        lost: Callable[[EndLost], None],
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self._link: Final = link
        self._factories: Final = (source, target)
        self._log: Final = log
        self._on_lost: Final = lost
        self._source_connections: Final = connections.dedicated(
            source, link.source.clientid, f"link {link.name}, source"
        )
        self._make_pump: Final = make_pump
        self._pump: Pump | None = None
        self._warned = False
        self._source: LinkSource[Any] | None = None
        #: Why the last source was lost.
        self._source_loss: SourceLost | None = None
        #: Whether the source's provider has ever accepted what the link asks for.
        self._accepted = False
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
        pump = self._pump
        return (
            None if self._source is None else self._source_connections.kind,
            None if pump is None else pump.delivery.target.kind,
        )

    @property
    def in_flight(self) -> int:
        """Messages received and not acknowledged."""
        taken = 0 if self._pump is None else self._pump.in_flight
        return taken + (0 if self._source is None else self._source.ahead)

    @property
    def held_ms(self) -> int:
        """Return when the oldest message in flight was sent, in epoch ms.

        The result is 0 when no message is in flight, and -1 when the timestamp is unknown.
        """
        times = [] if self._pump is None else self._pump.times()
        if self._source is not None:
            times += self._source.times()
        return min([each for each in times if each], default=-1 if times else 0)

    @property
    def source_connection(self) -> Connection | None:
        """The connection to the source; None while not connected."""
        return None if self._source is None else self._source.connection

    @property
    def source_accepted(self) -> bool:
        """Whether the source has ever accepted what the link asks for."""
        return self._accepted or (self._source is not None and self._source.accepted)

    @property
    def doing(self) -> tuple[Doing, int]:
        """Return what the batch waits for, and since when, epoch milliseconds."""
        return (
            (Doing.NOTHING, 0)
            if self._pump is None
            else (self._pump.doing, self._pump.doing_since_ms)
        )

    @property
    def once_by(self) -> OnceBy | None:
        """Return what makes each message be transferred once.

        The result is None if nothing does, or if it is not known yet.
        """
        return None if self._pump is None else self._pump.delivery.once_by

    @property
    def transaction(self) -> tuple[str, str]:
        """Return id and state of the transaction under way; empty without one."""
        transaction = None if self._pump is None else self._pump.delivery.transaction
        return (
            ("", "")
            if transaction is None or transaction.over
            else (transaction.id, transaction.state.value)
        )

    # --- connecting

    def connect(self) -> Deferred[None]:
        """Connect what is not connected; concurrent callers share the attempt.

        :returns: fails with :class:`SourceLost` or :class:`TargetLost`, or with
            :class:`~bridge.link.errors.SourceLost` where the source was lost while the target was
            connected; what could be connected stays so.
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
        if self._pump is None:
            await self._find(source_factory, self._source_not_connected)
            await self._find(target_factory, self._target_not_connected)
            self._pump = await self._make_pump()
        delivery = self._pump.delivery
        source = self._source
        if source is None:
            try:
                destination = await source_factory.destination(link.source.destination)
                self._warn_of(destination)
                source = delivery.source(destination, self._source_lost)
                await source.open(self._source_connections)
            except MessagingError as error:
                raise self._source_not_connected(error) from error
            if self._closed:
                await source.close()
                raise ProviderUnavailable("the link was stopped")
            self._source, self._source_loss = source, None
        try:
            if not self._destination or not delivery.target.ready:
                # Its provider may be another process by now, which is to find it before anything is
                # sent there.
                wanted = link.target.destination
                self._destination = (
                    None if wanted is None else await target_factory.destination(wanted),
                )
            if not delivery.target.ready:
                await delivery.target.open()
        except MessagingError as error:
            raise self._target_not_connected(error) from error
        try:
            await delivery.connected(source)
        except SourceLost as error:
            raise self._source_not_connected(error) from error
        except TargetLost as error:
            raise self._target_not_connected(error) from error
        if self._closed:
            await delivery.target.close()
            raise ProviderUnavailable("the link was stopped")
        if source.failed is not None:
            raise source.failed

    def _warn_of(self, source: Destination) -> None:
        """What a transacted link cannot do is told at its start."""
        if (
            self._link.transacted
            and source.kind is Kind.TOPIC
            and self._link.source.durable_sub is None
            and not self._warned
        ):
            self._warned = True
            self._log.warn(
                "link {link}: its source, {source}, has no durable-sub: what is published while it is not connected does not come to this link, "
                "and what is under way when the source's connection is lost does not come again",
                link=self._link.name,
                source=source,
            )

    async def _find(
        self, factory: AdministeredFactory, failed: Callable[[MessagingError], EndLost]
    ) -> None:
        try:
            await factory.find()
        except MessagingError as error:
            raise failed(error) from error

    def _source_not_connected(self, error: MessagingError) -> SourceLost:
        cause = _cause(error)
        return SourceLost(cause, _about("source", self._factories[0].config.ref_name, cause))

    def _target_not_connected(self, error: MessagingError) -> TargetLost:
        cause = _cause(error)
        ref_name = self._factories[1].config.ref_name
        return TargetLost(cause, sent=False, text=_about("target", ref_name, cause))

    def _source_lost(self, lost: SourceLost) -> None:
        self._accepted = self.source_accepted
        source, self._source = self._source, None
        if source is not None:
            self._source_loss = lost
            source.close()
            self._on_lost(lost)

    # --- pumping

    async def run(self) -> None:
        """Move messages until the pump is halted.

        One at a time; nothing else uses the ends meanwhile.

        :raises MessagingError: of :meth:`Pump.run`.
        """
        source, pump = self._source, self._pump
        if source is None or pump is None:
            raise self._source_loss or SourceLost(ProviderUnavailable("its connection has ended"))
        factories = self._factories
        (destination,) = self._destination
        here = factories[0].provider.resource if factories[0].embedded else ""
        both = all(factory.embedded for factory in factories)
        sides = LinkEnds(destination, source.product, pump.delivery.target.product, both, here)
        self._pumping = Deferred()
        try:
            await pump.run(source, sides)
        except BaseException:
            if not self._closed and await pump.delivery.failed(source) and self._source is source:
                self._accepted = self.source_accepted
                self._source = None
                await source.close()
            raise
        finally:
            pumping, self._pumping = self._pumping, None
            pumping.callback(None)

    def release(self) -> None:
        """Batches may be begun again, after :meth:`halt`."""
        if self._pump is not None:
            self._pump.release()

    def halt(self) -> None:
        """Begin no other batch; :meth:`run` returns after the one under way."""
        if self._pump is not None:
            self._pump.halt()

    # --- the end

    async def close(self, seconds: float) -> None:
        """Finish the batch under way, and close the connections.

        What is not begun goes back.

        :param seconds: that either step may take; then the connections are closed over the batch,
            or abandoned.
        """
        self._closed = True
        self.halt()
        if self._pumping is not None:
            await self._within(seconds, {"finishing the batch under way": shield(self._pumping)})
        closing: dict[str, Deferred[Any]] = {}
        if self._pump is not None:
            self._pump.stop()
            target = self._pump.delivery.target
            closing["closing the target"] = Deferred.fromCoroutine(target.close())
        if self._source is not None:
            closing["closing the source's session"] = self._source.close()
        closing["closing the source"] = self._source_connections.close()
        if self._pumping is not None:
            # What it waited for has failed now.
            closing["ending the batch under way"] = shield(self._pumping)
        await self._within(seconds, closing)

    async def _within(self, seconds: float, awaited: Mapping[str, Deferred[Any]]) -> None:
        ended = await gather(self._reactor, awaited, seconds, self._failed)
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
        self._log.warn(
            "link {link}: {what} failed: {error}",
            link=self._link.name,
            what=what,
            error=failure.value,
        )


def worth_a_retry(error: MessagingError, was_connected: bool) -> bool:
    """Whether trying again can help.

    :param was_connected: the end that has failed was connected before, and accepted what the link
        asks for.

    A refusal of the link's very first connection is most likely a mistake in the configuration; a
    provider that comes back may refuse for a while what it will take again.
    """
    cause = _cause(error)
    return not isinstance(cause, _FINAL) and (was_connected or not isinstance(cause, _LASTING))


def _cause(error: MessagingError) -> MessagingError:
    return error.cause if isinstance(error, SourceLost | TargetLost) else error


def _about(end: str, ref_name: str, cause: MessagingError) -> str:
    """What went wrong where; some errors name the factory themselves."""
    text, factory = str(cause), f"connection-factory '{ref_name}'"
    if isinstance(cause, ClientIdRequired):
        text = (
            f"durable subscription '{cause.durable_name}' needs a client identifier, and the connection has none: "
            f"set the attribute clientid of the {end}, or a client identifier of the connection factory"
        )
    return f"{end}, {text}" if text.startswith(factory) else f"{end}, {factory}: {text}"
