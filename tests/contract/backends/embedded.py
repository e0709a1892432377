"""The broker of this instance, over both of its stores, on the real reactor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.security.users import Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.interface import Store, StoreError
from gateway.broker.store.memory import MemoryStore
from gateway.broker.store.sqlite import SqliteStore
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import AuthenticationFailed, ProviderUnavailable
from gateway.messaging.provider import Credentials, Provider
from gateway.reactor.turn import Turn
from tests.contract.backends.backend import Backend

_DENIED: Final = Queue("denied")
_FULL: Final = Queue("full")
_SMALL: Final = Queue("small")
_EXCLUSIVE: Final = Queue("exclusive")
_FLOW: Final = Queue("flow")
_MOST: Final = 3

_PROPERTIES: Final[tuple[tuple[Destination, DestinationProperties], ...]] = (
    (_FULL, DestinationProperties(max_num_msgs=_MOST, limit_behavior=LimitBehavior.REJECT_NEWEST)),
    (_SMALL, DestinationProperties(max_bytes_per_msg=100)),
    (_EXCLUSIVE, DestinationProperties(max_num_active_consumers=1)),
    (_FLOW, DestinationProperties(max_num_msgs=_MOST, limit_behavior=LimitBehavior.FLOW_CONTROL)),
)
_RULES: Final = "".join(
    f"queue.denied.{operation}.deny.user=*\n" for operation in ("produce", "consume", "browse")
)

clock: Any = reactor


class _OneUser:
    """Lets one user in."""

    def __init__(self, user: Credentials) -> None:
        self._user = user

    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        if (credentials.username, credentials.passcode) != (
            self._user.username,
            self._user.passcode,
        ):
            return fail(AuthenticationFailed(credentials.username))
        return succeed(Principal(credentials.username, frozenset()))

    def readmit(self, principal: Principal, address: str) -> Principal:
        return principal


class Embedded(Backend):
    """The embedded broker; what differs between its stores is theirs."""

    product = "stomp-gateway"
    wrong = Credentials("guest", "letmein")
    denied = _DENIED
    full = (_FULL, _MOST)
    small = (_SMALL, 100)
    exclusive = (_EXCLUSIVE, 1)
    flow = (_FLOW, _MOST)
    transaction = 100
    acknowledgements = 50
    shares = True
    dead = Queue("mq.sys.dmq")

    #: Whether the store keeps what memory has no room for.
    spills: ClassVar[bool]

    def store(self) -> Store:
        """The store, not yet opened."""
        raise AssertionError("a backend is over one store")

    async def start(self, folder: Path) -> None:
        self._folder = folder
        self._failures: list[StoreError] = []
        self._access = AccessRules(folder / "accesscontrol.properties")
        self._access.path.write_text(f"{DEFAULT_RULES}\n{_RULES}")
        self._access.load()
        self._open()

    def _open(self) -> None:
        options = BrokerOptions(
            transaction_messages=self.transaction,
            transaction_acknowledgements=self.acknowledgements,
            destinations=_PROPERTIES,
        )
        self._broker = open_broker(
            clock, Turn(clock), self.store(), options, self._failures.append, spills=self.spills
        )
        self._provider = EmbeddedProvider(
            self._broker, _OneUser(self.credentials), self._access, os.urandom
        )

    async def stop(self) -> None:
        done: Deferred[None] = Deferred()
        self._broker.close(lambda: done.callback(None))
        await done
        assert self._failures == []

    def provider(self) -> Provider:
        # A broker has one, which knows who has which client identifier.
        return self._provider

    async def lose(self) -> None:
        self._provider.fail(ProviderUnavailable("the broker is stopping"))

    async def remove(self, destination: Destination) -> None:
        physical = self._broker.find(destination)
        assert physical is not None
        self._broker.remove(physical)


class EmbeddedSqlite(Embedded):
    """Over the durable store."""

    name = "embedded-sqlite"
    spills = True

    def store(self) -> Store:
        return SqliteStore(str(self._folder / "messages.db"), clock, reserve_octets=0)

    async def restart(self) -> None:
        await self.lose()
        await self.stop()
        self._open()


class EmbeddedMemory(Embedded):
    """Over the store that forgets with the process."""

    name = "embedded-memory"
    spills = False

    def store(self) -> Store:
        return MemoryStore(clock)
