"""ActiveMQ through its JMS client by an XAConnectionFactory: for the tests of XA alone.

ActiveMQ's XAConnections have no sessions without XA, and the tests want both of one connection; so
one here is a pair, of which the XAConnection is under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    Credentials,
    Mode,
    Provider,
    Session,
    XASession,
)
from gateway.reactor.deferreds import deferred
from tests.contract.backends.jms import JMS, activemq_factory

_clock: Any = reactor


class _Pair:
    """Two connections of one client, of the same broker."""

    def __init__(self, plain: Connection, xa: Connection) -> None:
        self._plain = plain
        self._xa = xa
        self.client_id = plain.client_id
        self.product = xa.product
        self.user = ""
        self.administers = False

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return False

    def session(self, mode: Mode) -> Session:
        return self._plain.session(mode)

    def xa_session(self) -> XASession:
        return self._xa.xa_session()

    def temporary(self, kind: Kind) -> Destination:
        return self._plain.temporary(kind)

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return self._plain.renew(credentials)

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        return self._plain.unsubscribe(durable_name)

    def close(self) -> Deferred[None]:
        return self._xa.close().addCallback(lambda _: self._plain.close())


class _Both:
    """A provider of pairs."""

    def __init__(self, plain: JMSProvider, xa: JMSProvider) -> None:
        self._plain = plain
        self._xa = xa
        self.resource = xa.resource

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._plain.capabilities, xa=True)

    @deferred
    async def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        told: list[MessagingError] = []

        def once(error: MessagingError) -> None:
            told.append(error)
            if len(told) == 1:
                lost(error)

        plain = await self._plain.connect(credentials, client_id, once)
        return _Pair(plain, await self._xa.connect(credentials, None, once))


class JMSXA(JMS):
    """ActiveMQ by its XAConnectionFactory."""

    name = "jms-xa"
    only = ("test_xa",)

    def provider(self) -> Provider:
        plain = activemq_factory(self._relay.entrance)
        xa = replace(plain, lookup_name="XAConnectionFactory")
        return _Both(
            JMSProvider(_clock, plain, name="activemq"), JMSProvider(_clock, xa, name="activemq xa")
        )
