"""A connection over JMS, and the factory it is of.

Owns what the configuration says of a connection factory, the table of vendors, what is open on one
JMS connection (``messaging.provider.Connection``), and tells its loss once. Calls that belong to no session
are made on a thread of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.jms import wire
from bridge.providers.jms.channels import Hung, JavaFailure, Lane, SessionChannel
from bridge.providers.jms.failures import (
    NoXAFactory,
    XAFactoryOnly,
    missing_or_unavailable,
    of_unsubscribing,
)
from bridge.providers.jms.process import JavaProcess
from bridge.providers.jms.session import (
    TEMPORARY_PREFIX,
    ChannelMaker,
    ConnectionScope,
    JMSSession,
)
from bridge.providers.jms.transformer_class import TransformerClass
from bridge.providers.jms.transforming import TransformerSession
from bridge.providers.jms.wire import Payload, Verb
from bridge.providers.jms.xa_session import JMSXASession
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import (
    ClientIdRequired,
    DurableInUse,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.provider import Capabilities, Credentials, Mode
from gateway.reactor.deferreds import shield

# How a session settles, with the constants of Link.java.
_TRANSACTED: Final = 0
_BATCH: Final = 1
_ONE_BY_ONE: Final = 2
_INDIVIDUAL: Final = 3
_XA: Final = 4
#: A session that neither sends nor receives.
_TRANSFORMER: Final = 5
#: Numbers of XA sessions. A session refers to another one by its number.
_numbers: Final = count(1)

_log: Final = Logger(namespace="bridge.jms")


class Vendor(NamedTuple):
    """Facts about a provider that JMS has no words for.

    :param prefix: of the classes of its client.
    :param individual: its acknowledge mode for acknowledgement one by one.
    :param dead_queue: where it puts dead messages by default.
    :param schedules: a message is delivered later by its properties of
        :mod:`gateway.messaging.scheduled`, where the broker's scheduler is on.
    :param exclusive: what follows the name of a queue that a consumer has for itself; "" where
        there is no such consumer.
    """

    prefix: str
    individual: int
    dead_queue: str
    schedules: bool = False
    exclusive: str = ""


#: The first prefix that fits counts.
VENDORS: Final = (
    Vendor("org.apache.activemq.artemis.", 101, "DLQ"),
    Vendor(
        "org.apache.activemq.",
        4,
        "ActiveMQ.DLQ",
        schedules=True,
        exclusive="?consumer.exclusive=true",
    ),
    Vendor("org.hornetq.", 101, "DLQ"),
)


def vendor_of(class_name: str) -> Vendor | None:
    """The vendor of a class of a JMS client; None if it is unknown."""
    return next((vendor for vendor in VENDORS if class_name.startswith(vendor.prefix)), None)


@dataclass(frozen=True, slots=True)
class JMSFactory:
    """A ``connection-factory`` of a bridge that has a ``lookup-name``.

    :param lookup_name: its name in JNDI.
    :param environment: its properties, JNDI's environment.
    :param class_path: its own, searched before that of ``imq.jms.classpath``.
    :param java_options: of its Java process, in place of those of ``imq.jms.jvmOptions``; None
        keeps those.
    :param process: factories with different names never share a Java process.
    :param individual_acknowledge: the provider's acknowledge mode for acknowledgement one by one;
        None is the vendor's.
    :param dead_queue: the name of the queue for dead messages; None is the vendor's, "" means no
        queue.
    :param lookup_timeout_s: seconds for starting Java and for looking up a name.
    :param connect_timeout_s: seconds for connecting.
    :param send_timeout_s: seconds for each thing that a session is asked.
    :param close_timeout_s: seconds for closing a connection.
    """

    lookup_name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    class_path: str = ""
    java_options: tuple[str, ...] | None = None
    process: str = ""
    individual_acknowledge: int | None = None
    dead_queue: str | None = None
    lookup_timeout_s: float = 30.0
    connect_timeout_s: float = 30.0
    send_timeout_s: float = 30.0
    close_timeout_s: float = 10.0

    def individual_mode(self, class_name: str) -> int | None:
        """The acknowledge mode for acknowledgement one by one, if there is one.

        :param class_name: of the connection factory.
        """
        if self.individual_acknowledge is not None:
            return self.individual_acknowledge
        vendor = vendor_of(class_name)
        return None if vendor is None else vendor.individual

    def dead_destination(self, class_name: str) -> Destination | None:
        """The queue for dead messages, if there is one.

        :param class_name: of the factory.
        """
        vendor, name = vendor_of(class_name), self.dead_queue
        if name is None and vendor is not None:
            name = vendor.dead_queue
        return Queue(name) if name else None


class Opened(NamedTuple):
    """A connection in Java, as it describes itself.

    :param client_id: None if it has none.
    :param product: "" if it does not say.
    :param xa: whether it has XA sessions.
    :param plain: whether it has others.
    :param delays: whether it can have a message delivered later.
    """

    client_id: str | None
    product: str
    xa: bool
    plain: bool
    delays: bool

    @classmethod
    def read(cls, payload: Payload) -> Opened:
        """As ``Calls.java`` writes it."""
        return cls(
            payload.optional(), payload.text(), payload.flag(), payload.flag(), payload.flag()
        )


class JMSConnection:
    """One connection. Made by its provider.

    :param provider: its name, for the log.
    :param class_name: of the connection factory.
    :param temporary: the temporary destinations of all connections of the provider.
    :param lane: for calls.
    :param number: the connection's number in the process.
    :param label: of the connection, for errors and the log.
    :param schedules: of the provider, where the messages are clients' own.
    """

    #: JMS does not say it.
    administers = False

    def __init__(
        self,
        reactor: IReactorTime,
        provider: str,
        factory: JMSFactory,
        class_name: str,
        temporary: set[Destination],
        process: JavaProcess,
        lane: Lane,
        number: int,
        hung: Hung,
        label: str,
        username: str,
        opened: Opened,
        schedules: Capabilities | None,
        lost: Callable[[MessagingError], None],
    ) -> None:
        #: The one asked for, else the connection factory's own.
        self.client_id = opened.client_id
        #: What the provider calls itself, else the class of its connection factory.
        self.product = opened.product or class_name
        self.user = ""
        self._factory = factory
        self._class_name = class_name
        self._individual = factory.individual_mode(class_name)
        vendor = vendor_of(class_name)
        self._process = process
        self._lane = lane
        self._number = number
        self._hung = hung
        self._label = label
        self._sessions = 0
        self._opened = opened
        self._lost = lost
        self._scope = ConnectionScope(
            reactor,
            provider,
            username,
            opened.client_id,
            self._individual is not None,
            factory.dead_destination(class_name),
            temporary,
            self.fail,
            schedules,
            vendor.exclusive if vendor is not None else "",
        )
        #: Channels of sessions that have not ended.
        self._channels: dict[SessionChannel, None] = {}
        self._transformers: list[TransformerSession] = []

    # --- the seam

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return False

    def session(self, mode: Mode) -> JMSSession:
        self._scope.check_open()
        if not self._opened.plain:
            raise XAFactoryOnly(self._factory.lookup_name, self._class_name)
        individual = self._individual
        if mode is Mode.INDIVIDUAL and individual is None:
            raise NotSupported("acknowledgement one by one")
        how = {
            Mode.TRANSACTED: _TRANSACTED,
            Mode.AUTO: _BATCH,
            Mode.CLIENT: _ONE_BY_ONE if individual is None else _INDIVIDUAL,
            Mode.INDIVIDUAL: _INDIVIDUAL,
        }[mode]
        session = JMSSession(self._scope, mode, self._channel_maker(how, individual or 0))
        self._keep_channel(session.channel)
        return session

    def xa_session(self) -> JMSXASession:
        self._scope.check_open()
        if not self._opened.xa:
            raise NoXAFactory(self._factory.lookup_name, self._class_name)
        number = next(_numbers)
        session = JMSXASession(self._scope, self._channel_maker(_XA, number), number)
        self._keep_channel(session.channel)
        return session

    def transformer(self, of: TransformerClass) -> TransformerSession:
        """Make a session that has a message transformer.

        Not of the seam. A transformer that hangs ends the connection.

        :raises ProviderUnavailable: the connection is closed or was lost.
        """
        self._scope.check_open()
        session = TransformerSession(
            of, self._channel_maker(_TRANSFORMER, 0), self.fail, self._scope.provider
        )
        self._transformers.append(session)
        session.channel.ended.addCallback(lambda _: self._transformers.remove(session))
        self._keep_channel(session.channel)
        return session

    def _channel_maker(self, how: int, argument: int) -> ChannelMaker:
        """Return what makes the channel of a new session.

        :param how: the session settles.
        :param argument: of that.
        """
        self._sessions += 1
        name = f"{self._label} session {self._sessions}"
        opening = self._number, how, argument
        seconds = self._factory.send_timeout_s

        def channel(
            answered: Callable[[bytes], None], failed: Callable[[BaseException], None]
        ) -> SessionChannel:
            return self._process.session(name, self._hung, opening, answered, failed, seconds)

        return channel

    def _call(
        self, what: str, seconds: float, verb: Verb, arguments: bytes = b""
    ) -> Deferred[None]:
        return self._lane.call(what, seconds, verb, self._number, arguments)

    def _keep_channel(self, channel: SessionChannel) -> None:
        self._channels[channel] = None
        channel.ended.addCallback(lambda _: self._channels.pop(channel, None) and None)

    def temporary(self, kind: Kind) -> Destination:
        self._scope.check_open()
        destination = Destination(kind, TEMPORARY_PREFIX + secrets.token_hex(16), True)
        self._scope.temporary.add(destination)
        self._scope.all_temporary.add(destination)
        made = self._call(
            "making a temporary destination",
            self._factory.send_timeout_s,
            Verb.TEMPORARY,
            wire.flag(kind is Kind.TOPIC) + wire.text(destination.name),
        )

        made.addErrback(lambda failure: self.fail(_translated(failure.value)))
        return destination

    def drop_temporary(self, destination: Destination) -> None:
        """Drop a temporary destination before the connection is closed.

        It is of this connection, and has no consumers. For those who share the connection; not of
        the seam.
        """
        if not self._scope.open or destination not in self._scope.temporary:
            return
        self._scope.temporary.discard(destination)
        self._scope.all_temporary.discard(destination)
        self._call(
            "dropping a temporary destination",
            self._factory.send_timeout_s,
            Verb.DROP,
            wire.flag(destination.kind is Kind.TOPIC) + wire.text(destination.name),
        ).addErrback(self._not_dropped, destination)

    def _not_dropped(self, failure: Failure, destination: Destination) -> None:
        # It goes with the connection.
        _log.info(
            "{provider}: {destination} is still there: {error}",
            provider=self._scope.provider,
            destination=destination,
            error=failure.value,
        )

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return fail(NotSupported("new credentials"))

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        try:
            self._scope.check_open()
        except ProviderUnavailable as error:
            return fail(error)
        client_id = self.client_id
        if client_id is None:
            return fail(ClientIdRequired(durable_name))
        if self._scope.has_durable(durable_name):
            return fail(DurableInUse(client_id, durable_name))
        # The subscriber of a closed session has gone only when the session's thread has closed it.
        ending = [channel.ended for channel in self._channels if channel.ending]
        gone: Deferred[None] = succeed(None) if not ending else _all(ending)
        gone.addCallback(
            lambda _: self._call(
                "removing a durable subscription",
                self._factory.send_timeout_s,
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
        if not self._scope.open:
            return succeed(None)
        self._scope.open = False
        for session in list(self._scope.sessions):
            session.close()
        for transformer in list(self._transformers):
            transformer.close()
        done = _all([channel.ended for channel in self._channels])
        done.addCallback(lambda _: self._close_link())
        return done

    # --- its end

    def fail(self, error: MessagingError) -> None:
        """Lose the connection: fail what is pending and call ``lost``.

        Does nothing once it is closed or lost.
        """
        scope = self._scope
        if not scope.open:
            return
        scope.open, scope.error = False, error
        for session in list(scope.sessions):
            session.lost(error)
        scope.sessions.clear()
        for transformer in list(self._transformers):
            transformer.lost(error)
        self._close_link()
        self._lost(error)

    def _close_link(self) -> Deferred[None]:
        """Close the connection in Java. Failures and timeouts are only logged."""
        self._scope.all_temporary.difference_update(self._scope.temporary)
        if self._process.error is not None:
            return succeed(None)
        self._process.unlink(self._number)
        if self._lane.error is not None:
            # A call hangs on its own.
            self._lane = self._process.lane(self._hung)
        closed = self._call("closing a connection", self._factory.close_timeout_s, Verb.CLOSE)
        self._lane.end()
        closed.addErrback(lambda failure: log_close_failure(self._scope.provider, failure.value))
        return closed


def log_close_failure(provider: str, error: BaseException | None) -> None:
    """Log that closing a connection failed.

    The provider clears up what the connection had.
    """
    _log.info("{provider}: closing a connection failed: {error}", provider=provider, error=error)


def _all(ends: list[Deferred[None]]) -> Deferred[None]:
    # Others may wait for them, too.
    return gatherResults([shield(end) for end in ends]).addCallback(lambda _: None)


def _translated(error: BaseException | None) -> MessagingError:
    if isinstance(error, MessagingError):
        return error
    if isinstance(error, JavaFailure):
        return missing_or_unavailable(error.kind, error.reason)
    return ProviderUnavailable(str(error))
