"""A JMS provider behind the seam (``messaging.provider.Provider``).

Any provider of JMS 1.1, JMS 2.0 or Jakarta Messaging 3, through its client jars.

Proven against ActiveMQ. ``jakarta.jms`` is supported but not proven against a server: no provider
of it was at hand, so it is tested with classes of our own.

A header that is not a JMS property (``Headers.extras``), such as ``content-type``, becomes a String
property of its own name if the provider accepts the name. Otherwise the property is named
``STOMP_`` and the escaped name of the header: ASCII letters and digits as they are, an underscore
doubled, and each other UTF-16 unit as an underscore and four hexadecimal digits; ``content-type``
is ``STOMP_content_002dtype``. The log says so once for each connection. A received property of such
a name is the header again, from any sender; a name that escaping does not give exactly is a
property like any other (``Names.java``).

Owns looking up the connection factory and destinations by JNDI, and opening connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bridge.providers.jms import wire
from bridge.providers.jms.channels import Hung, JavaFailure, Lane
from bridge.providers.jms.connection import (
    JMSConnection,
    JMSFactory,
    Opened,
    log_close_failure,
    vendor_of,
)
from bridge.providers.jms.failures import Kind as FailureKind
from bridge.providers.jms.failures import (
    missing_or_unavailable,
    of_connecting,
)
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.process import JavaProcess
from bridge.providers.jms.supervisor import supervisor_of
from bridge.providers.jms.wire import Verb
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Capabilities, Connection, Credentials
from gateway.reactor.deferreds import deferred

_INITIAL_CONTEXT_FACTORY: Final = "java.naming.factory.initial"
_PROVIDER_URL: Final = "java.naming.provider.url"
#: The user of JNDI, and credentials.
_SECURITY: Final = "java.naming.security."


#: A name in JNDI, and the environment in which it is looked up.
_Asked = tuple[str, tuple[tuple[str, str], ...]]


class JMSProvider:
    """Connections of one connection factory.

    :param name: for errors and the log, such as the factory's ``ref-name``.
    :param options: of the Java processes of all factories.
    """

    _log: Final = Logger(namespace="bridge.jms")

    def __init__(
        self,
        reactor: IReactorTime,
        factory: JMSFactory,
        options: JavaOptions = JavaOptions(),  # noqa: B008
        name: str = "jms",
    ) -> None:
        self.reactor = reactor
        self.factory = factory
        self.name = name
        self.hung = Hung(name)
        #: Temporary destinations of all its connections.
        self.temporary: set[Destination] = set()
        self._options = options
        own = options.of_factory(factory.class_path, factory.java_options, factory.process)
        #: The class path of its Java process.
        self.class_path = own.class_path
        self._supervisor = supervisor_of(reactor, own)
        #: The process that knows the connection factory, and its number there.
        self._found: tuple[JavaProcess, int] | None = None
        self._looking: Deferred[None] | None = None
        #: The destinations that JNDI has found; another process must look them up, too.
        self._remembered: dict[_Asked, Destination] = {}
        #: Those of them that the present process did not find.
        self._gone: set[_Asked] = set()
        self._class_name = ""
        self._xa = self._delays = False
        self._numbers = 0

    # --- what is known of it

    @property
    def class_name(self) -> str:
        """The class of the connection factory, or of its JNDI context.

        It is that of the context until the factory has been looked up.
        """
        return self._class_name or self.factory.environment.get(_INITIAL_CONTEXT_FACTORY, "")

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of every JMS provider, and those of this one's vendor.

        If the environment names another vendor's JNDI, they are known from the first look-up on.

        ``xa`` is whether the connection factory is an XAConnectionFactory. It is False until the
        factory was looked up, by the first connection or :meth:`look_up_factory`. ``delayed`` is
        known of the last connection, unless the vendor is.
        """
        vendor = vendor_of(self.class_name)
        by_property = vendor is not None and vendor.schedules
        return Capabilities(
            transacted=True,
            xa=self._xa,
            durable=True,
            selectors=True,
            temporary=True,
            browse=True,
            individual=self.factory.individual_mode(self.class_name) is not None,
            delivery_count=vendor is not None,
            stable_ids=True,
            exclusive=vendor is not None and bool(vendor.exclusive),
            delayed=by_property or self._delays,
            recurring=by_property,
            scheduler_optional=by_property,
        )

    @property
    def resource(self) -> str:
        """The URL and name in JNDI, and the environment without credentials.

        One resource manager under two names costs a second phase. Two under one name would be taken
        for one, so nothing else is left out.
        """
        environment = self.factory.environment
        named = f"jms:{environment.get(_PROVIDER_URL, '')}:{self.factory.lookup_name}"
        others = sorted(
            (name, value)
            for name, value in environment.items()
            if name != _PROVIDER_URL and not name.startswith(_SECURITY)
        )
        return f"{named}:{sha256(repr(others).encode()).hexdigest()[:16]}" if others else named

    # --- the seam

    @deferred
    async def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        self._numbers += 1
        client_id = client_id or None
        connection: JMSConnection | None = None
        # Why it was lost while it was being opened.
        reasons: list[str] = []

        def lose(reason: str) -> None:
            if connection is None:
                reasons.append(reason)
            else:
                connection.fail(ProviderUnavailable(reason))

        try:
            process, factory = await self._look_up_factory()
            lane = process.lane(self.hung)
            link = process.link(self, lose)
            try:
                opened = await lane.call(
                    "connecting",
                    self.factory.connect_timeout_s,
                    Verb.CONNECT,
                    link,
                    _connecting(factory, credentials, client_id),
                    Opened.read,
                    late=lambda _: self._dispose(process, link),
                )
            except (JavaFailure, MessagingError):
                process.unlink(link)
                lane.end()
                raise
        except JavaFailure as error:
            raise of_connecting(error.kind, self._reason(error), credentials, client_id) from None
        self._delays = opened.delays
        label = f"{self.name} connection {self._numbers}"
        connection = JMSConnection(
            self.reactor,
            self.name,
            self.factory,
            self.class_name,
            self.temporary,
            process,
            lane,
            link,
            self.hung,
            label,
            credentials.username,
            opened,
            self.capabilities if credentials.for_clients else None,
            lost,
        )
        if reasons:
            self.reactor.callLater(0, lose, reasons[0])
        return connection

    def _dispose(self, process: JavaProcess, link: int) -> None:
        """Close a connection that was opened after its timeout."""
        lane = process.lane(self.hung)
        lane.call(
            "closing a connection", self.factory.close_timeout_s, Verb.CLOSE, link
        ).addErrback(lambda failure: log_close_failure(self.name, failure.value))
        lane.end()

    @deferred
    async def look_up_factory(self) -> None:
        """Find the connection factory by JNDI, once; connecting does that, too.

        Afterwards ``capabilities`` are final.

        :returns: fails with ProviderUnavailable, or its ClientMissing.
        """
        if self._class_name:
            return
        try:
            await self._look_up_factory()
        except JavaFailure as error:
            raise missing_or_unavailable(error.kind, self._reason(error)) from None

    async def _look_up_factory(self) -> tuple[JavaProcess, int]:
        """Return the process and the connection factory's number there.

        It is looked up once in each process.
        """
        while True:
            self._check_hanging()
            process = await self._supervisor.running(self.factory.lookup_timeout_s)
            if self._found is not None and self._found[0] is process:
                return self._found
            if self._looking is None:
                break
            # Callers at the same time must all use one look-up, which knows the temporary
            # destinations.
            await self._looking
        looked: Deferred[None] = Deferred()
        self._looking = looked
        try:
            self._found = process, await self._look_up_in(process)
        finally:
            self._looking = None
            looked.callback(None)
        return self._found

    async def _look_up_in(self, process: JavaProcess) -> int:
        factory, number = self.factory, process.number()
        lane = process.lane(self.hung)
        try:
            self._class_name, self._xa = await lane.call(
                f"looking up '{factory.lookup_name}'",
                factory.lookup_timeout_s,
                Verb.FACTORY,
                number,
                wire.text(factory.lookup_name) + wire.pairs(factory.environment),
                lambda payload: (payload.text(), payload.flag()),
            )
            gone: set[_Asked] = set()
            for asked, before in list(self._remembered.items()):
                name, environment = asked
                try:
                    found = await self._remember(lane, number, name, environment)
                except JavaFailure as error:
                    # Only its users may fail.
                    gone.add(asked)
                    self._log.warn(
                        "{provider}: '{name}', which JNDI had before Java was restarted, is not found now: {reason}; links that use it "
                        "look it up again whenever they try to connect",
                        provider=self.name,
                        name=name,
                        reason=error.reason,
                    )
                    continue
                if found != before:
                    self._log.warn(
                        "{provider}: '{name}' in JNDI was {before} and is {found} now; links that use it keep the former until they are restarted",
                        provider=self.name,
                        name=name,
                        before=before,
                        found=found,
                    )
            self._gone = gone
        finally:
            lane.end()
        return number

    def _check_hanging(self) -> None:
        """End the process if too many calls hang and it has no other users.

        :raises ProviderUnavailable: too many hang, and others use the process.
        """
        hung, process = self.hung, self._supervisor.process
        if hung.count < hung.most:
            return
        if process is not None and not process.serves_others(self):
            process.kill(f"{hung.count} calls to {self.name} hang, so its Java process was ended")
        if hung.count >= hung.most:
            raise ProviderUnavailable(
                f"{hung.count} calls to it hang, and more are refused until some return; its Java process has other connections and cannot be "
                "restarted: give the connection factory a property imq.jms.process of its own"
            )

    def look_up(self, lookup_name: str, environment: Mapping[str, str]) -> Deferred[Destination]:
        """Find a destination by JNDI.

        From then on, messages and subscriptions to the returned destination use what JNDI has
        found. Its kind and name are the provider's own, whatever the configuration says. A found
        destination is not looked up again, except by a new Java process. If that does not find it,
        it is looked up as if it had never been found.

        :param environment: JNDI's, that of the ``destination`` element.
        :returns: fails with ProviderUnavailable, or its ClientMissing.
        """
        asked = lookup_name, tuple(environment.items())
        known = self._known(asked)
        if known is not None and self._found is not None and self._found[0].error is None:
            return succeed(known)
        return Deferred.fromCoroutine(self._look_up(asked))

    def _known(self, asked: _Asked) -> Destination | None:
        """The destination, if the present process has found it."""
        return None if asked in self._gone else self._remembered.get(asked)

    async def _look_up(self, asked: _Asked) -> Destination:
        try:
            process, factory = await self._look_up_factory()
            known = self._known(asked)
            if known is not None:
                return known
            lane = process.lane(self.hung)
            try:
                found = await self._remember(lane, factory, *asked)
            finally:
                lane.end()
        except JavaFailure as error:
            raise missing_or_unavailable(error.kind, self._reason(error)) from None
        self._gone.discard(asked)
        self._remembered[asked] = found
        return found

    async def _remember(
        self, lane: Lane, factory: int, lookup_name: str, environment: tuple[tuple[str, str], ...]
    ) -> Destination:
        kind, name = await lane.call(
            f"looking up '{lookup_name}'",
            self.factory.lookup_timeout_s,
            Verb.REMEMBER,
            factory,
            wire.text(lookup_name) + wire.pairs(dict(environment)),
            lambda payload: (payload.text(), payload.text()),
        )
        return Destination(Kind.TOPIC if kind == "topic" else Kind.QUEUE, name)

    def _reason(self, error: JavaFailure) -> str:
        """Java's reason; for a missing class also where it was looked for."""
        if error.kind != FailureKind.MISSING:
            return error.reason
        own, common = self.factory.class_path.strip(), self._options.class_path.strip()
        if not own:
            where = f"imq.jms.classpath is {common or 'empty'}, and the connection factory has no property imq.jms.classpath"
        else:
            where = f"property imq.jms.classpath of the connection factory is {own}, and the setting imq.jms.classpath is {common or 'empty'}"
        return f"{error.reason}; {where}"


def _connecting(factory: int, credentials: Credentials, client_id: str | None) -> bytes:
    user, passcode = (
        (credentials.username, credentials.passcode) if credentials.username else (None, None)
    )
    return wire.number(factory) + b"".join(map(wire.optional, (user, passcode, client_id)))
