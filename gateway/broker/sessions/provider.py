"""The embedded broker behind the seam (``messaging.provider.Provider``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import Final, Protocol

from twisted.internet.defer import Deferred, gatherResults, succeed

from gateway.broker.broker import Broker
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import SHARED_BY
from gateway.broker.properties.names import is_wild
from gateway.broker.security.access import AccessRules
from gateway.broker.security.users import ELSEWHERE, Principal
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    ClientIdInUse,
    CredentialsEnded,
    MessagingError,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import Capabilities, Connection, ConsumerSpec, Credentials, Waiting
from gateway.reactor.turn import Turn

#: Milliseconds between two looks at credentials that end.
_LOOK_MS: Final = 1000
#: Random octets in a temporary destination's name: a client that has the name may send to it.
_RANDOM_OCTETS: Final = 16
_NOTHING: Final = Waiting(0, 0)


class Authenticator(Protocol):
    """Who knows the users."""

    def authenticate(self, credentials: Credentials) -> Deferred[Principal]: ...

    def readmit(self, principal: Principal, address: str) -> Principal: ...


class EmbeddedProvider:
    """Connections to the broker of this instance.

    :param random: gives that many random octets, unpredictable.
    """

    capabilities: Final = Capabilities(
        transacted=True,
        joined=True,
        xa=True,
        durable=True,
        selectors=True,
        temporary=True,
        browse=True,
        individual=True,
        delivery_count=True,
        duplicate_ids=True,
        stable_ids=True,
        queue_patterns=True,
        delayed=True,
        recurring=True,
        groups=True,
        exclusive=True,
        shared=True,
    )

    def __init__(
        self,
        broker: Broker,
        users: Authenticator,
        rules: AccessRules,
        random: Callable[[int], bytes],
    ) -> None:
        self.broker = broker
        self._users = users
        self._rules = rules
        self._random = random
        #: Those that are open, and where each comes from.
        self.connections: dict[EmbeddedConnection, str] = {}
        broker.advisories.connections = self.connections.items
        self._client_ids: dict[str, EmbeddedConnection | None] = {}
        self._numbers = 0
        self._expiry: Final = Endings(broker.schedule, broker.turn, self._end)

    def numbered(self, number: int) -> EmbeddedConnection | None:
        """Return the open connection with this id; None without one."""
        return next((each for each in list(self.connections) if each.number == number), None)

    def readdressed(self, queue: Destination) -> None:
        """Ask again who may send to a queue, which has another address."""
        for connection in self.connections:
            connection.routing.producible.pop(queue, None)

    @property
    def resource(self) -> str:
        return f"embedded:{self.broker.store_id}"

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        """As the seam says; may be cancelled, and then there is no connection."""
        return Deferred.fromCoroutine(self._connect(credentials, client_id or None, lost))

    async def _connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        principal = await self._authenticated(credentials)
        return self._connected(principal, client_id, credentials.address, lost)

    def admit(
        self,
        username: str,
        client_id: str | None,
        address: str,
        lost: Callable[[MessagingError], None],
    ) -> EmbeddedConnection:
        """Open a connection of a user whom another broker has let in.

        It is in no group, and the access rules hold for it.

        :raises AccessDenied, ClientIdInUse:
        """
        principal = Principal(username, frozenset(), repository=ELSEWHERE)
        self._check_may_connect(principal)
        return self._connected(principal, client_id, address, lost)

    def _connected(
        self,
        principal: Principal,
        client_id: str | None,
        address: str,
        lost: Callable[[MessagingError], None],
    ) -> EmbeddedConnection:
        if client_id is not None and (
            client_id in self._client_ids or client_id.startswith(SHARED_BY)
        ):
            raise ClientIdInUse(client_id)
        self._numbers += 1
        connection = EmbeddedConnection(
            self.broker,
            principal,
            self._rules,
            client_id,
            self._numbers,
            lost,
            address,
            random_name=self._random_name,
            renewing=self._renewing,
            ended=self._disconnected,
        )
        if client_id is not None:
            self._client_ids[client_id] = connection
        self.connections[connection] = address
        self.broker.advisories.connected(connection, address)
        self._expiry.set(connection, principal.until)
        return connection

    async def _authenticated(self, credentials: Credentials) -> Principal:
        principal = await self._users.authenticate(credentials)
        self._check_may_connect(principal)
        return principal

    def _check_may_connect(self, principal: Principal) -> None:
        if not self._rules.may_connect(principal):
            raise AccessDenied(principal.name, "connect", "this broker")

    def _renewing(self, connection: EmbeddedConnection, credentials: Credentials) -> Deferred[None]:
        async def renew() -> None:
            principal = await self._authenticated(credentials)
            if principal.name != connection.user:
                raise AuthenticationFailed(connection.user, "what it shows anew is another user's")
            if connection in self.connections:
                connection.readmitted(principal)
                self._expiry.set(connection, principal.until)

        return Deferred.fromCoroutine(renew())

    def _end(self, connection: EmbeddedConnection) -> None:
        connection.fail(CredentialsEnded(connection.user))

    def waiting(self, spec: ConsumerSpec, client_id: str | None) -> Deferred[Waiting | None]:
        """See :class:`~gateway.messaging.provider.Waiting`.

        Only this process asks, so no access rule applies.
        """
        place: Dispatched | None = None
        if spec.destination.kind is Kind.QUEUE and is_wild(spec.destination.name):
            return self._waiting_for_pattern(spec)
        if spec.destination.kind is Kind.QUEUE:
            found = self.broker.find(spec.destination)
            place = found if isinstance(found, PhysicalQueue) else None
            if place is not None and spec.selector is not None:
                # Only a browser can apply it.
                return succeed(None)
        elif spec.durable_name is not None:
            place = self.broker.durables.get((client_id or "", spec.durable_name))
        return succeed(_NOTHING) if place is None else waiting_at(place)

    def _waiting_for_pattern(self, spec: ConsumerSpec) -> Deferred[Waiting | None]:
        """The sum over the queues that exist; with a selector it is not known."""
        if spec.selector is not None:
            return succeed(Waiting(-1, -1))
        every = [waiting_at(queue) for queue in self.broker.queue_patterns.covered(spec)]

        def add(found: list[Waiting | None]) -> Waiting:
            some = [each for each in found if each is not None and each.messages]
            times = [each.oldest_ms for each in some if each.oldest_ms > 0]
            return Waiting(sum([each.messages for each in some]), min(times, default=0))

        return gatherResults(every).addCallback(add)

    def _disconnected(self, connection: EmbeddedConnection) -> None:
        if self.connections.pop(connection, None) is not None:
            self.broker.advisories.disconnected(connection)
        self._expiry.set(connection, None)
        if connection.client_id is not None:
            self._client_ids.pop(connection.client_id, None)

    def _random_name(self) -> str:
        return self._random(_RANDOM_OCTETS).hex()

    def readmit(self) -> None:
        """Apply changed users or access rules to the open connections.

        Those of users who may no longer connect are lost; the others have their users' new groups.
        """
        with self.broker.turn:
            for connection, address in list(self.connections.items()):
                try:
                    principal = connection.routing.principal
                    if principal.repository != ELSEWHERE:
                        principal = self._users.readmit(principal, address)
                    self._check_may_connect(principal)
                except MessagingError as error:
                    connection.fail(error)
                else:
                    connection.readmitted(principal)

    def fail(self, error: MessagingError) -> None:
        """Every connection is lost."""
        for connection in list(self.connections):
            connection.fail(error)


class Endings:
    """When the credentials of connections end, by the time of day.

    :param end: ends a connection; called inside a turn.
    """

    def __init__(
        self, schedule: Schedule, turn: Turn, end: Callable[[EmbeddedConnection], None]
    ) -> None:
        self._schedule: Final = schedule
        self._turn: Final = turn
        self._end: Final = end
        #: In epoch milliseconds.
        self._ends: Final[dict[EmbeddedConnection, int]] = {}
        #: When they are looked at next, by the clock of timers; 0: not.
        self._next_ms = 0

    def set(self, connection: EmbeddedConnection, until: float | None) -> None:
        """Say when a connection's credentials end.

        :param until: in seconds since the epoch; None: never.
        """
        if until is None:
            self._ends.pop(connection, None)
        else:
            self._ends[connection] = end_ms = ceil(until * 1000)
            self._look_by(end_ms)

    def _look_by(self, end_ms: int) -> None:
        # Once a second anyway, since the time of day may jump.
        pause = min(max(end_ms - self._turn.refresh(), 0), _LOOK_MS)
        when = self._turn.refresh_timer() + pause
        if not self._next_ms or when < self._next_ms:
            self._next_ms = when
            self._schedule.at(when, partial(self._look, when))

    def _look(self, when: int) -> None:
        if when != self._next_ms:
            # An earlier look was asked for since, and has come.
            return
        self._next_ms = 0
        now_ms = self._turn.now_ms
        for connection in [each for each, end_ms in self._ends.items() if end_ms <= now_ms]:
            del self._ends[connection]
            self._end(connection)
        if self._ends:
            self._look_by(min(self._ends.values()))


def waiting_at(place: Dispatched) -> Deferred[Waiting | None]:
    """Count what no consumer has, and find the oldest.

    Of each priority only the first message is looked at, and read from the store at most.
    """
    backlog = place.dispatch.backlog
    count = backlog.waiting + backlog.pausing
    if not count:
        return succeed(_NOTHING)
    times = [message.timestamp for message in backlog.delayed.values()]
    stored = [min(backlog.resting)] if backlog.resting else []
    for _, lane in backlog.lanes():
        first, behind = lane.first(), lane.first_behind()
        if first is not None:
            times.append(first.timestamp)
        if behind and (first is None or behind < first.seq):
            stored.append(behind)
    if not stored:
        return succeed(Waiting(count, min(times, default=-1)))
    told: Deferred[Waiting | None] = Deferred()

    def read(messages: Sequence[Message]) -> None:
        every = [*times, *[message.timestamp for message in messages]]
        told.callback(Waiting(count, min(every, default=-1)))

    with place.changes.turn:
        place.changes.fetch(stored, read)
    return told
