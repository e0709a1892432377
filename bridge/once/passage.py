"""The way of a link's messages that is one transaction of source and target.

Owns what must be before a message may be moved: that what an earlier run of the link had begun is
over, and that both resource managers have finished what they had prepared for this bridge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bridge.config.model import Link
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections, Way
from bridge.link.errors import SourceLost, TargetLost
from bridge.link.source import XASource
from bridge.link.target import XATarget
from bridge.link.transfer import Sides
from bridge.once.coordination import Coordination
from bridge.once.pump import OncePump
from bridge.once.under_way import UnderWay
from bridge.status import OnceBy
from bridge.together import within
from bridge.xa.coordinator import Transaction
from bridge.xa.status import BranchState
from bridge.xa.transaction import one_of_several
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, ProviderUnavailable

#: Seconds that connecting waits for what an earlier run had begun; then it fails, and is tried
#: again.
EARLIER_S: Final = 10.0
#: States of a branch whose resource manager was asked something and has not answered.
_ASKED: Final = (
    BranchState.PREPARING.value,
    BranchState.COMMITTING.value,
    BranchState.ROLLING_BACK.value,
)


class OncePassage:
    """Both sides in one transaction.

    :param under_way: what earlier runs of this link have left under way, too. :param lost: called
        if the target's connection ends.
    """

    once_by: Final = OnceBy.XA

    def __init__(
        self,
        reactor: Any,
        link: Link,
        source: AdministeredFactory,
        target: AdministeredFactory,
        connections: Connections,
        coordination: Coordination,
        pump: OncePump,
        under_way: UnderWay,
        lost: Callable[[TargetLost], None],
    ) -> None:
        self._reactor: Final = reactor
        self._link: Final = link
        self._factories: Final = (source, target)
        self._coordination: Final = coordination
        self._coordinator: Final = coordination.coordinator()
        self._was_connected = False
        self.pump: Final = pump
        self._under_way: Final = under_way
        stays = link.target.stay_connected
        way = connections.for_sending(
            target, stays, link.target.clientid, f"link {link.name}, target"
        )
        self.target: Final = XATarget(way, _rm(target, "target"), stays, lost)

    @property
    def transaction(self) -> Transaction | None:
        return self._under_way.shown

    async def open_source(
        self, way: Way, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> XASource:
        rm = _rm(self._factories[0], "source")
        source = XASource(self._reactor, self._link, rm, destination, lost)
        await source.open(way)
        return source

    async def connected(self, source: XASource) -> None:
        """Have both resource managers commit what was decided and roll back what was not: else
        messages would overtake those that wait for that.
        """
        names = [factory.config.ref_name for factory in self._factories]
        if self._was_connected:
            self._look_again()
        self._was_connected = True
        try:
            await self._earlier_over()
            await self._coordinator.recover(names[0], source.rm, source.resource)
            source.consume()
            await source.confirmed()
        except (SourceLost, TargetLost):
            raise
        except MessagingError as error:
            raise SourceLost(error) from error
        try:
            await self.target.open()
            if self.target.rm == source.rm and await self._coordinator.have_one(
                self.target.resource, source.resource
            ):
                return
            await self._coordinator.recover(names[1], self.target.rm, self.target.resource)
        except TargetLost:
            raise
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error

    async def _earlier_over(self) -> None:
        """No recovery touches those that are under way, and what is behind their messages must not
        overtake these.

        :raises SourceLost: :raises TargetLost: one is under way for too long; the end whose
            resource manager does not answer.
        """
        for transaction in self._under_way.open:
            if not await within(self._reactor, EARLIER_S, self._under_way.ended(transaction)):
                error = ProviderUnavailable(
                    f"transaction {transaction.id}, over which the link was stopped, is {transaction.state.value}, and nothing may overtake its messages"
                )
                raise (
                    TargetLost(error, sent=False)
                    if self._waits_for_target(transaction)
                    else SourceLost(error)
                )

    def _waits_for_target(self, transaction: Transaction) -> bool:
        """Whether only the target's resource manager has yet to answer."""
        silent = {
            branch.ref_name
            for known in self._coordinator.transactions()
            if known.id == transaction.id
            for branch in known.branches
            if branch.state in _ASKED
        }
        return silent == {self._factories[1].config.ref_name}

    async def run(self, source: XASource, sides: Sides) -> None:
        try:
            await self.pump.run(source, self.target, sides)
        except MessagingError:
            # Whether or not this link ever runs again.
            self._look_again()
            raise

    async def failed(self, source: XASource) -> bool:
        """The target's session may hold anything then, and the source's too, but for one that can
        be kept.
        """
        await self.target.let_go()
        return not source.keep()

    def _look_again(self) -> None:
        for factory in self._factories:
            self._coordination.look_again(factory.config.ref_name)


def _rm(factory: AdministeredFactory, side: str) -> str:
    """Names the resource manager of one side. Of a ``multi-rm`` factory nobody knows whether two
    connections have the same: each has a branch of its own.
    """
    resource = factory.provider.resource
    return one_of_several(resource, side) if factory.config.multi_rm else resource
