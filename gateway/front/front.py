"""The gateway in front of other brokers, as a provider.

Each client has a connection of the embedded broker, which knows its user, what that may do, and
when its token ends; and one of each broker that it uses. Owns which broker a destination is at,
that access rules hold there, and how a connection of several is one.

A transaction is one broker's. A message goes to one broker, and so does a subscription, by its own
text: wildcards do not reach from one broker to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, fail, gatherResults, succeed

from gateway.broker.security.access import Operation
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.front.consumer import FrontConsumer
from gateway.front.refusals import Unsupported, check_open, of_broker, of_sending
from gateway.front.routes import Routes, Way, check_gaps, check_name, needed
from gateway.front.settings import EMBEDDED
from gateway.messaging.completions import Completions
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AuthenticationFailed,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    UnknownSubscription,
)
from gateway.messaging.message import AddressedHeaders, Headers, Message
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    ConsumerSpec,
    Credentials,
    Deliver,
    Done,
    Mode,
    Session,
    XASession,
)
from gateway.messaging.scheduled import read as read_schedule
from gateway.reactor.deferreds import deferred

_T = TypeVar("_T")

#: Destinations of which a connection remembers where they are.
_KNOWN: Final = 1000


class FrontProvider:
    """The brokers behind the gateway, as one provider.

    :param embedded: knows the users, and has what is no other broker's.
    :param routes: asked for each connection; may change.
    """

    def __init__(self, embedded: EmbeddedProvider, routes: Callable[[], Routes]) -> None:
        self._embedded: Final = embedded
        self._routes: Final = routes

    @property
    def capabilities(self) -> Capabilities:
        main = self._routes().main
        if main is None:
            return self._embedded.capabilities
        # Rules of access are asked for each queue, and the gateway does not know what there are.
        return replace(main.provider.capabilities, queue_patterns=False)

    @property
    def resource(self) -> str:
        main = self._routes().main
        return self._embedded.resource if main is None else main.provider.resource

    @deferred
    async def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        """As the seam says; may be cancelled, and then there is no connection."""
        connection = FrontConnection(self._routes(), credentials, client_id or None, lost)
        try:
            await connection.open(self._embedded)
        except BaseException:
            connection.close()
            raise
        return connection


class FrontConnection:
    """One client's connection. Made by its provider."""

    def __init__(
        self,
        routes: Routes,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> None:
        self.routes: Final = routes
        self._credentials: Final = credentials
        self.client_id: Final = client_id
        self._lost: Final = lost
        #: That of the embedded broker, once it is open.
        self.identity: EmbeddedConnection
        self._ways: Final[dict[Way, Connection]] = {}
        self._error: MessagingError | None = None
        #: Where the user may send, and the standing that this holds for.
        self._producible: dict[Destination, Way | None] = {}
        self._standing: object = None
        #: Where durable subscriptions of this connection are.
        self._durables: Final[dict[str, tuple[Way | None]]] = {}

    async def open(self, embedded: EmbeddedProvider) -> None:
        """Fails as ``Provider.connect``."""
        main, given = self.routes.main, self._credentials
        if main is not None and main.credentials is None:
            # The broker knows its users.
            await self._connect_to_main(main)
            self.identity = embedded.admit(given.username, self.client_id, given.address, self.fail)
            return
        identity = await embedded.connect(given, self.client_id, self.fail)
        assert isinstance(identity, EmbeddedConnection)
        self.identity = identity
        if main is not None:
            await self._connect_to_main(main)

    async def _connect_to_main(self, main: Way) -> None:
        try:
            self._ways[main] = await main.provider.connect(
                self._credentials_for(main), self.client_id, self._failing(main)
            )
        except MessagingError as error:
            own_login = main.credentials is not None
            raise of_broker(main.name, error, own_login=own_login) from error

    def _failing(self, way: Way) -> Callable[[MessagingError], None]:
        own_login = way.credentials is not None
        return lambda error: self.fail(of_broker(way.name, error, own_login=own_login))

    def _credentials_for(self, way: Way) -> Credentials:
        if way.credentials is not None:
            return way.credentials
        given = self._credentials
        if given.certificate is not None or not given.passcode:
            raise AuthenticationFailed(
                given.username, f"the broker '{way.name}' wants login and passcode"
            )
        return Credentials(given.username, given.passcode, for_clients=True)

    def to(self, way: Way | None) -> Connection:
        """The connection to a broker, which may be being opened."""
        if way is None:
            return self.identity
        found = self._ways.get(way)
        if found is None:
            found = self._ways[way] = way.provider.later(
                self._credentials_for(way), self.client_id, self._failing(way)
            )
        return found

    def broker(self, way: Way | None) -> str:
        """What errors call it."""
        if way is None:
            return EMBEDDED
        return f"'{way.name}' ({self.to(way).product})"

    # --- what its user may do

    def way_to_send(self, destination: Destination) -> Way | None:
        """Where messages to a destination go. :raises AccessDenied:"""
        routing = self.identity.routing
        if self._standing != routing.standing:
            self._producible.clear()
            self._standing = routing.standing
        try:
            return self._producible[destination]
        except KeyError:
            pass
        way = self.routes.way(destination)
        if way is not None:
            check_name(destination)
            routing.check_allowed(Operation.PRODUCE, destination)
        if len(self._producible) >= _KNOWN:
            self._producible.clear()
        self._producible[destination] = way
        return way

    def way_to_receive(self, spec: ConsumerSpec) -> Way | None:
        """Where a consumer is. :raises AccessDenied, InvalidDestination:"""
        way = self.routes.way(spec.destination)
        if way is not None:
            check_name(spec.destination)
            check_gaps(spec)
            self._check_address(way, spec.destination, spec.address)
            if spec.shared and self.client_id is None:
                raise Unsupported(self.broker(way), "shared")
            for operation, destination in needed(spec, way.by_key):
                self.identity.routing.check_allowed(operation, destination)
        if spec.durable_name is not None:
            self._durables[spec.durable_name] = (way,)
        if spec.queue is not None and spec.queue.removable:
            self._durables[spec.queue.name] = (way,)
        return way

    def check_addressed(self, way: Way | None, headers: Headers) -> None:
        """Check that a message names no address of another broker.

        :raises Unsupported: it is.
        """
        given = headers.repeated or headers
        if way is not None and isinstance(given, AddressedHeaders):
            self._check_address(way, given.destination, given.address)

    def _check_address(self, way: Way, queue: Destination, address: str) -> None:
        """Check that a queue has no address but its own name.

        Another broker would have a queue of that name, to which nothing comes from the address.
        """
        if address not in ("", queue.name):
            raise Unsupported(self.broker(way), "addresses")

    # --- its end

    def fail(self, error: MessagingError) -> None:
        """One of its connections is lost, or cannot go on, and so is this."""
        if self._error is None:
            self._close(error)
            self._lost(error)

    def _close(self, error: MessagingError) -> Deferred[None]:
        self._error = error
        every: list[Connection] = list(self._ways.values())
        if hasattr(self, "identity"):
            every.append(self.identity)
        return gatherResults([each.close() for each in every]).addCallback(lambda _: None)

    # --- the seam

    @property
    def user(self) -> str:
        return self.identity.user

    @property
    def product(self) -> str:
        return self.to(self.routes.main).product

    @property
    def administers(self) -> bool:
        return self.routes.main is None and self.identity.administers

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is closed or lost."""
        check_open(self._error)

    def exists(self, destination: Destination) -> bool | None:
        # Brokers behind the gateway do not tell.
        way = self.routes.way(destination)
        return self.identity.exists(destination) if way is None else None

    def has_exchanges(self, destination: Destination) -> bool:
        way = self.routes.way(destination)
        if way is None:
            return False
        known = self._ways.get(way)
        if known is None:
            return way.provider.may_have_exchanges
        return known.has_exchanges(destination)

    def session(self, mode: Mode) -> FrontSession:
        self.check_open()
        session = FrontSession(self, mode)
        if self.routes.is_single:
            # What the only broker cannot do is told at once.
            session.at(self.routes.main)
        return session

    def xa_session(self) -> XASession:
        raise NotSupported("xa")

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        main = self.routes.main
        return self.asked(main, lambda: self.to(main).temporary(kind))

    def renew(self, credentials: Credentials) -> Deferred[None]:
        if any(way.credentials is None for way in self.routes.ways):
            return fail(
                NotSupported("new credentials where they are another broker's; CONNECT again")
            )
        return self.identity.renew(credentials)

    @deferred
    async def unsubscribe(self, durable_name: str) -> None:
        """At the broker that has the subscription.

        Where that is not known, each is asked, first those that there is a connection to.
        """
        self.check_open()
        known = self._durables.pop(durable_name, None)
        every = sorted(self.routes.every, key=lambda way: way is not None and way not in self._ways)
        failure: MessagingError | None = None
        for way in known or every:
            try:
                await self.to(way).unsubscribe(durable_name)
            except UnknownSubscription:
                continue
            except NotSupported as error:
                failure = failure or Unsupported(self.broker(way), error.capability)
            except MessagingError as error:
                failure = error if way is None else of_broker(way.name, error)
            else:
                return
        raise failure or UnknownSubscription(self.client_id or "", durable_name)

    def asked(self, way: Way | None, ask: Callable[[], _T]) -> _T:
        """Ask something of a broker. :raises Unsupported: it cannot do that."""
        try:
            return ask()
        except Unsupported:
            raise
        except NotSupported as error:
            raise Unsupported(self.broker(way), error.capability) from None

    def close(self) -> Deferred[None]:
        if self._error is not None:
            return succeed(None)
        return self._close(ProviderUnavailable("the connection is closed"))


class FrontSession:
    """One session: that of one broker, or of several. Made by its connection."""

    def __init__(self, connection: FrontConnection, mode: Mode) -> None:
        self.mode: Final = mode
        self._connection: Final = connection
        self._at: Final[dict[Way | None, Session]] = {}
        #: Where something was asked that no completion was asked behind.
        self._open: Final[dict[Way | None, None]] = {}
        #: Answers of several brokers, in the order in which they were asked for.
        self._answers: Final = Completions()
        #: The broker that the open transaction is at; empty for none yet.
        self._bound: tuple[Way | None, ...] = ()
        #: Where the last messages were sent.
        self._sent_to: list[Way | None] = []
        self._resume: list[Callable[[], None]] = []
        self._closed = False

    def at(self, way: Way | None) -> Session:
        """The session of a broker. :raises Unsupported: it has none of this mode."""
        self._check_open()
        found = self._at.get(way)
        if found is None:
            connection = self._connection
            found = self._at[way] = connection.asked(
                way, lambda: connection.to(way).session(self.mode)
            )
        return found

    def bind(self, way: Way | None, destination: Destination) -> None:
        """The open transaction, if this is one, is about something at a broker.

        :raises InvalidDestination: it is at another one already.
        """
        if self.mode is not Mode.TRANSACTED:
            return
        self._bound = self._bound or (way,)
        if self._bound[0] is not way:
            raise InvalidDestination(
                destination,
                f"it is at the broker {self._connection.broker(way)}, and the transaction at {self._connection.broker(self._bound[0])}; a transaction is one broker's",
            )

    def settles(self, way: Way | None, destination: Destination) -> None:
        """Something of a broker is settled in it.

        :raises InvalidDestination: as :meth:`bind`.
        """
        self.bind(way, destination)
        self._open[way] = None

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        runs: list[tuple[Way | None, list[Message]]] = []
        destination: Destination | None = None
        way: Way | None = None
        try:
            for message in messages:
                headers = message.headers
                if headers.destination is not destination:
                    destination = headers.destination
                    way = self._connection.way_to_send(destination)
                    self._connection.check_addressed(way, headers)
                    self.bind(way, destination)
                    if not runs or runs[-1][0] is not way:
                        runs.append((way, []))
                        # It may have no session of this mode.
                        self.at(way)
                if headers.scheduled:
                    read_schedule((headers.repeated or headers).properties)
                reply_to = headers.reply_to
                if reply_to is not None and reply_to.temporary:
                    self._check_reply_to(reply_to, way)
                runs[-1][1].append(message)
        except MessagingError as error:
            raise MessageRejected(sum(len(run) for _, run in runs), error) from error
        self._sent_to = [way for way, _ in runs]
        for place, (way, run) in enumerate(runs):
            session = self.at(way)
            self._open[way] = None
            try:
                session.send(run)
            except MessageRejected as rejected:
                refused = of_sending(self._connection.broker(way), rejected)
                if not place:
                    raise refused from rejected
                # What went to another broker cannot be taken back.
                self._connection.fail(refused.cause)
                return

    def _check_reply_to(self, reply_to: Destination, way: Way | None) -> None:
        """A temporary destination is known to its broker alone."""
        main = self._connection.routes.main
        if way is not main:
            raise InvalidDestination(
                reply_to,
                f"it is at the broker {self._connection.broker(main)}, and the message goes to {self._connection.broker(way)}, which does not know it",
            )

    def writable(self) -> bool:
        return all(session.writable() for session in self._senders())

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._resume.append(resume)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        sessions = self._senders() or [self.at(self._connection.routes.main)]
        full = (each for each in sessions if not each.writable())
        next(full, sessions[0]).on_writable(self._has_room)

    def _senders(self) -> list[Session]:
        """The sessions by which was sent last.

        A broker that is away holds nothing back that goes elsewhere.
        """
        return [self._at[way] for way in self._sent_to if way in self._at]

    def _has_room(self) -> None:
        if not self._resume:
            return
        if not self.writable():
            self._wait_for_room()
            return
        resume, self._resume = self._resume, []
        for each in resume:
            each()

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> FrontConsumer:
        self._check_open()
        connection = self._connection
        way = connection.way_to_receive(spec)
        session = self.at(way)
        self._open[way] = None

        def ended(error: MessagingError) -> None:
            failed(error if way is None else of_broker(way.name, error))

        consumer = FrontConsumer(connection, self, way, spec.destination, deliver, ended)
        consumer.inner = connection.asked(
            way, lambda: session.consumer(spec, consumer.delivered, ended)
        )
        return consumer

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        asked = tuple(self._open) or tuple(self._at)[-1:]
        self._open.clear()
        self._ask(asked, lambda session, answered: session.completion(answered), done)

    def commit(self, done: Done) -> None:
        self._check_open()
        # Those of other brokers' consumers have nothing settled in it.
        asked, self._bound = self._bound, ()
        self._ask(asked, lambda session, answered: session.commit(answered), done)

    def rollback(self, done: Done) -> None:
        self._check_open()
        self._bound = ()
        self._ask(tuple(self._at), lambda session, answered: session.rollback(answered), done)

    def _ask(
        self,
        ways: Sequence[Way | None],
        ask: Callable[[Session, Done], None],
        done: Done,
    ) -> None:
        """Ask some brokers of this session; the first failure counts.

        :param ways: to them; empty: to the one that has what is no other's.
        """
        sessions = [(way, self.at(way)) for way in ways or (self._connection.routes.main,)]
        answer = self._answers.ask(done)
        left = len(sessions)
        failure: MessagingError | None = None

        def answered(way: Way | None, error: MessagingError | None) -> None:
            nonlocal left, failure
            left -= 1
            if error is not None and failure is None:
                failure = error if way is None else of_broker(way.name, error)
            if not left:
                self._answers.finish(answer, failure)

        for way, session in sessions:
            ask(session, partial(answered, way))

    def recover(self) -> None:
        self._check_open()
        for session in self._at.values():
            session.recover()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for session in self._at.values():
                session.close()

    def _check_open(self) -> None:
        self._connection.check_open()
        if self._closed:
            raise ProviderUnavailable("the session is closed")
