"""A connection over JMS (``messaging.provider.Connection``): its sessions, its temporary
destinations, its end.

Owns what is open on one JMS connection, and that the loss of it is told once. Calls that are no
session's are made on a thread of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twisted.internet.defer import Deferred, DeferredList, fail, succeed
from twisted.python.failure import Failure

from bridge.providers.jms import wire
from bridge.providers.jms.channels import JavaFailure, Lane, Reactor, SessionChannel
from bridge.providers.jms.failures import missing_or_unavailable, of_unsubscribing
from bridge.providers.jms.process import JavaProcess
from bridge.providers.jms.session import JMSSession
from bridge.providers.jms.wire import Payload, Verb
from bridge.providers.jms.xa_session import JMSXASession
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    InvalidDestination,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.provider import Mode

if TYPE_CHECKING:
    from bridge.providers.jms.provider import JMSProvider

#: How names of temporary destinations begin that are given here; ``Destinations.java`` knows it,
#: too.
_PREFIX: Final = "stompgateway-"

# How a session settles, with the constants of Link.java.
_TRANSACTED: Final = 0
_BATCH: Final = 1
_ONE_BY_ONE: Final = 2
_INDIVIDUAL: Final = 3
_XA: Final = 4
#: Of XA sessions, by which they are told of each other.
_numbers: Final = count(1)


class Opened(NamedTuple):
    """A connection of Java's, and what it says of itself.

    :param client_id: None if it has none. :param product: "" if it does not say.
    :param xa: whether it has XA sessions. :param plain: whether it has others.
    """

    client_id: str | None
    product: str
    xa: bool
    plain: bool

    @classmethod
    def read(cls, payload: Payload) -> Opened:
        """As ``Calls.java`` writes it."""
        return cls(payload.optional(), payload.text(), payload.flag(), payload.flag())


class JMSConnection:
    """One connection. Made by its provider.

    :param process: in which it was opened, :param lane: by which, :param link: and under which
        number.
    """

    def __init__(
        self,
        provider: JMSProvider,
        process: JavaProcess,
        lane: Lane,
        link: int,
        number: int,
        username: str,
        opened: Opened,
        lost: Callable[[MessagingError], None],
    ) -> None:
        self.username = username
        #: The one asked for, else the connection factory's own.
        self.client_id = opened.client_id
        #: What the provider calls itself, else the class of its connection factory.
        self.product = opened.product or provider.class_name
        #: JMS does not say it.
        self.administers = False
        self.reactor: Reactor = provider.reactor
        self._provider = provider
        self._process = process
        self._lane = lane
        self._link = link
        self._xa = opened.xa
        self._plain = opened.plain
        self._number = number
        self._lost: Callable[[MessagingError], None] | None = lost
        self._error: MessagingError | None = None
        self._sessions: dict[JMSSession, None] = {}
        #: Channels of sessions that have not ended.
        self._channels: dict[SessionChannel, None] = {}
        self._made = 0
        self._temporary: set[Destination] = set()

    # --- the seam

    def session(self, mode: Mode) -> JMSSession:
        self.check_open()
        if not self._plain:
            raise self._provider.xa_factory_only()
        individual = self._provider.individual
        if mode is Mode.INDIVIDUAL and individual is None:
            raise NotSupported("acknowledgement one by one")
        how = {
            Mode.TRANSACTED: _TRANSACTED,
            Mode.AUTO: _BATCH,
            Mode.CLIENT: _ONE_BY_ONE if individual is None else _INDIVIDUAL,
            Mode.INDIVIDUAL: _INDIVIDUAL,
        }[mode]
        session = JMSSession(self, mode, self._channel_maker(how, individual or 0))
        self._opened(session)
        return session

    def xa_session(self) -> JMSXASession:
        self.check_open()
        if not self._xa:
            raise self._provider.no_xa_factory()
        number = next(_numbers)
        session = JMSXASession(self, self._channel_maker(_XA, number), number)
        self._opened(session)
        return session

    def _channel_maker(
        self, how: int, individual: int
    ) -> Callable[[Callable[[bytes], None], Callable[[BaseException], None]], SessionChannel]:
        self._made += 1

        def channel(
            answered: Callable[[bytes], None], failed: Callable[[BaseException], None]
        ) -> SessionChannel:
            name = f"{self._provider.name} connection {self._number} session {self._made}"
            opening = self._link, how, individual
            return self._process.session(
                name,
                self._provider.hung,
                opening,
                answered,
                failed,
                self._provider.factory.send_timeout_s,
            )

        return channel

    def _opened(self, session: JMSSession) -> None:
        channel = session.channel
        self._sessions[session] = None
        self._channels[channel] = None
        channel.ended.addCallback(lambda _: self._channels.pop(channel, None) and None)

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        destination = Destination(kind, _PREFIX + secrets.token_hex(16), True)
        self._temporary.add(destination)
        self._provider.temporary.add(destination)
        made = self._call(
            "making a temporary destination",
            self._provider.factory.send_timeout_s,
            Verb.TEMPORARY,
            wire.flag(kind is Kind.TOPIC) + wire.text(destination.name),
        )

        def not_made(failure: Failure) -> None:
            self.fail(_translated(failure.value))

        made.addErrback(not_made)
        return destination

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        try:
            self.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        client_id = self.client_id
        if client_id is None:
            return fail(ClientIdRequired(durable_name))
        if self.has_durable(durable_name):
            return fail(DurableInUse(client_id, durable_name))
        # A subscriber whose session is closed has gone only when the session's thread has closed
        # it.
        ending = [channel.ended for channel in self._channels if channel.ending]
        gone: Deferred[None] = succeed(None) if not ending else _all(ending)
        gone.addCallback(
            lambda _: self._call(
                "removing a durable subscription",
                self._provider.factory.send_timeout_s,
                Verb.UNSUBSCRIBE,
                wire.text(durable_name),
            )
        )

        def translate(failure: Failure) -> Failure:
            error = failure.value
            if isinstance(error, JavaFailure):
                raise of_unsubscribing(error.kind, error.reason, client_id, durable_name) from None
            return failure

        gone.addErrback(translate)
        return gone

    def close(self) -> Deferred[None]:
        if self._lost is None:
            return succeed(None)
        self._lost = None
        for session in list(self._sessions):
            session.close()
        done = _all([channel.ended for channel in self._channels])
        done.addCallback(lambda _: self._close_link())
        return done

    # --- its end

    def fail(self, error: MessagingError) -> None:
        """The connection is lost, or not to be used any more."""
        if self._lost is None:
            return
        lost, self._lost = self._lost, None
        self._error = error
        for session in list(self._sessions):
            session.lost(error)
        self._sessions.clear()
        self._close_link()
        lost(error)

    def _close_link(self) -> Deferred[None]:
        """Close the JMS connection; that it failed or hangs is logged, and changes nothing."""
        self._provider.temporary -= self._temporary
        if self._process.error is not None:
            # It has gone with its process.
            self._provider.disconnected(self)
            return succeed(None)
        self._process.unlink(self._link)
        if self._lane.error is not None:
            # A call hangs on its own.
            self._lane = self._process.lane(self._provider.hung)
        closed = self._call(
            "closing a connection", self._provider.factory.close_timeout_s, Verb.CLOSE
        )
        self._lane.end()

        def failed(failure: Failure) -> None:
            self._provider.close_failed(failure.value)

        closed.addErrback(failed)
        closed.addCallback(lambda _: self._provider.disconnected(self))
        return closed

    def _call(
        self, what: str, seconds: float, verb: Verb, arguments: bytes = b""
    ) -> Deferred[None]:
        return self._lane.call(what, seconds, verb, self._link, arguments).addCallback(
            lambda _: None
        )

    # --- for the sessions

    def forget(self, session: JMSSession) -> None:
        """A session is closed."""
        self._sessions.pop(session, None)

    def check_open(self) -> None:
        """:raises ProviderUnavailable: the connection is closed or was lost."""
        if self._lost is None:
            raise ProviderUnavailable(
                str(self._error) if self._error else "the connection is closed"
            )

    def check_sendable(self, destination: Destination) -> None:
        """:raises InvalidDestination: nothing can be sent there."""
        if not destination.name:
            raise InvalidDestination(destination, "it has no name")
        if (
            destination.temporary
            and destination.name.startswith(_PREFIX)
            and destination not in self._provider.temporary
        ):
            raise InvalidDestination(destination, "the temporary destination is gone, or never was")

    def check_consumable(self, destination: Destination) -> None:
        """:raises InvalidDestination: this connection may not consume from it."""
        if destination.temporary and destination not in self._temporary:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )

    def has_durable(self, name: str) -> bool:
        """Whether an open consumer has this durable subscription."""
        return any(session.has_durable(name) for session in self._sessions)

    @property
    def individual(self) -> bool:
        """Whether deliveries can be settled one by one."""
        return self._provider.individual is not None

    @property
    def dead_queue(self) -> Destination | None:
        """Where dead messages go."""
        return self._provider.dead_queue

    @property
    def provider_name(self) -> str:
        """For the log."""
        return self._provider.name


def _all(ends: list[Deferred[None]]) -> Deferred[None]:
    """When all of these have fired; they may be waited for by others, too."""
    waits = []
    for end in ends:
        wait: Deferred[None] = Deferred()

        def passed(result: Any, wait: Deferred[None] = wait) -> Any:
            wait.callback(None)
            return result

        end.addBoth(passed)
        waits.append(wait)
    return DeferredList(waits).addCallback(lambda _: None)


def _translated(error: BaseException | None) -> MessagingError:
    if isinstance(error, MessagingError):
        return error
    if isinstance(error, JavaFailure):
        return missing_or_unavailable(error.kind, error.reason)
    return ProviderUnavailable(str(error))
