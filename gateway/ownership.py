"""The owner of a broker, and processes that stand by.

Part of the composition: it joins the watch over the database with the admin service. What is built
once a process has become the owner, :mod:`gateway.app` knows.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bridge.manager import BridgeServiceManager
from gateway.admin.service.ownership_resources import Member
from gateway.admin.service.requests import Refused
from gateway.bridges import StompBridge
from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.store.interface import StoreError
from gateway.configuration import Configuration

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.ownership import Owner

#: Seconds between the answer to an operator and what was asked for, which ends the connection.
_ANSWER_SECONDS: Final = 0.05
#: Seconds that clients may take to read what is left for them when the broker is handed over.
_HAND_OVER_SECONDS: Final = 0.3


class Owning:
    """The owner of a broker.

    Implements :class:`~gateway.admin.service.ownership_resources.Ownership`.

    :param end: ends the process in order.
    """

    def __init__(self, reactor: Any, configuration: Configuration, end: Callable[[], None]) -> None:
        self._reactor = reactor
        self._configuration = configuration
        self._options = configuration.jdbc
        self._end = end

    async def members(self) -> Sequence[Member]:
        if self._options is None:
            name = self._configuration.layout.instance
            return [Member(name, "", socket.gethostname(), "OWNER", "", here=True)]
        return await _members(self._reactor, self._options, owner_here=True)

    async def take_over(self, broker: str) -> None:
        raise Refused("this process owns its broker already", "wrong_state", HTTPStatus.CONFLICT)

    async def quiesce(self) -> None:
        members = await self.members()
        if all(member.state != "STANDBY" for member in members):
            raise Refused(
                "no process stands by that could own this broker; 'shutdown bkr' ends this one",
                "wrong_state",
                HTTPStatus.CONFLICT,
            )
        await self.shut_down()

    async def shut_down(self) -> None:
        self._reactor.callLater(_ANSWER_SECONDS, self._end)


class StandingBy:
    """A process that stands by while another one owns its broker.

    Implements :class:`~gateway.admin.service.ownership_resources.Ownership`.

    :param free: called when this process may become the owner; then this no longer watches until
        :meth:`watch` is called again.
    :param say: tells the operator a sentence, and the log the facts that are given by name.
    :param end: ends the process in order.
    """

    _log = Logger(namespace="gateway.ownership")

    def __init__(
        self,
        reactor: Any,
        options: JdbcOptions,
        free: Callable[[], None],
        say: Callable[..., None],
        end: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._options = options
        self._free = free
        self._say = say
        self._end = end
        self._standby: Any = None
        #: Why this process is not the owner, a sentence.
        self.why = "it is not known yet who owns this broker"

    def watch(self) -> None:
        """Watch the owner from now on."""
        # psycopg is an extra.
        from gateway.broker.store.postgresql.connecting import database_of
        from gateway.broker.store.postgresql.standby import Standby

        options = self._options
        self._standby = Standby(
            database_of(options),
            options.node,
            self._reactor,
            options.lease_seconds,
            self._free,
            self._told,
        )
        self._standby.watch()

    def stop(self) -> None:
        """Watch no more. Idempotent."""
        if self._standby is not None:
            self._standby.stop()
            self._standby = None

    def _told(self, owner: Owner | None, why: str) -> None:
        if self._standby is None:
            return
        broker = self._options.broker
        if owner is None:
            self.why = f"the owner of broker {broker} cannot be seen: {why}"
            self._log.error("{why}", why=self.why)
            return
        if owner.released or not owner.epoch:
            self.why = f"broker {broker} has no owner; the last was {owner.node or 'none'}"
        else:
            self.why = f"{owner.node} owns broker {broker} since {owner.since}"
        self._say(f"standing by: {self.why}", event="owner.changed")

    async def members(self) -> Sequence[Member]:
        return await _members(self._reactor, self._options, owner_here=False)

    async def take_over(self, broker: str) -> None:
        if broker != self._options.broker:
            raise Refused(
                f"this process stands by for broker {self._options.broker}, not for {broker}",
                "wrong_state",
                HTTPStatus.CONFLICT,
            )
        if self._standby is not None:
            self._standby.ask()

    async def quiesce(self) -> None:
        raise Refused(
            f"this process does not own its broker: {self.why}",
            "wrong_state",
            HTTPStatus.CONFLICT,
        )

    async def shut_down(self) -> None:
        self._reactor.callLater(_ANSWER_SECONDS, self._end)


def hurry_clients(reactor: Any, options: JdbcOptions | None, bridges: BridgeServiceManager) -> None:
    """Wait little for slow clients where another process may wait.

    To be called when the bridges begin to stop.
    """
    if options is None or not options.stands_by:
        return
    for bridge in bridges.bridges:
        if isinstance(bridge, StompBridge):
            reactor.callLater(_HAND_OVER_SECONDS, bridge.service.drop_all)


async def _members(reactor: Any, options: JdbcOptions, *, owner_here: bool) -> list[Member]:
    """:raises Refused: the database cannot be asked."""
    from gateway.broker.store.postgresql import standby
    from gateway.broker.store.postgresql.connecting import database_of

    try:
        owner, others = await deferToThreadPool(
            reactor, reactor.getThreadPool(), standby.nodes, database_of(options)
        )
    except StoreError as error:
        raise Refused(str(error), "database", HTTPStatus.SERVICE_UNAVAILABLE) from error
    broker, cluster = options.broker, options.cluster
    state = "OWNER" if owner.locked and not owner.released else "ENDED"
    found = [Member(broker, cluster, owner.node, state, owner.since, here=owner_here)]
    found += [
        Member(broker, cluster, node, "STANDBY", "", here=not owner_here and node == options.node)
        for node in others
    ]
    return found if owner.epoch else found[1:]
