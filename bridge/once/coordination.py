"""The coordinator of a bridge's transactions: opened when it is needed, and what an earlier run left is completed when its resource managers are there.

Owns when that is, and who is asked: each connection factory that can take part in XA transactions, whether or not a link uses it now, but those of
``multi-rm``, which have no one resource manager to ask. A link completes what it finds at its own two sides before it moves anything; this is for all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bridge.administered import AdministeredFactory
from bridge.retrying import FOR_EVER, Retries
from bridge.together import shielded
from bridge.xa.coordinator import Coordinator
from bridge.xa.reminders import Reminders
from gateway.messaging.errors import MessagingError, ProviderUnavailable

#: Seconds before the second attempt to reach a resource manager; doubled for each that follows, up to a minute.
RETRY_S: Final = 2.0
#: Seconds after a failure in which a resource manager is asked what is left there.
AGAIN_S: Final = 60.0


class Coordination:
    """The coordinator of one bridge.

    :param open: opens the coordinator. :param left: says whether an earlier run has left a log.
    :param log: the bridge's.
    """

    def __init__(self, reactor: Any, open: Callable[[], Coordinator], left: Callable[[], bool], log: Logger) -> None:
        self._reactor: Final = reactor
        self._open: Final = open
        self._left: Final = left
        self._log: Final = log
        self._coordinator: Coordinator | None = None
        self._reminders: Reminders | None = None
        self._recovering: list[Deferred[None]] = []
        self._again: dict[str, IDelayedCall] = {}

    @property
    def opened(self) -> Coordinator | None:
        """The coordinator, if it was needed."""
        return self._coordinator

    def coordinator(self) -> Coordinator:
        """The coordinator, opened. :raises TransactionError: its log cannot be."""
        if self._coordinator is None:
            self._coordinator = self._open()
            bridge = self._coordinator.name.rpartition(":")[2]
            self._reminders = Reminders(self._reactor, bridge, self._coordinator.transactions, self._log)
        return self._coordinator

    def start(self, factories: Sequence[AdministeredFactory]) -> None:
        """If there was a run before this, complete what it left at the resource managers of these.

        :raises TransactionError: the log cannot be opened.
        """
        if not self._left():
            return
        coordinator = self.coordinator()
        for factory in factories:
            if not factory.config.multi_rm:
                self._recovering.append(Deferred.fromCoroutine(self._recover(coordinator, factory)))

    def look_again(self, factory: AdministeredFactory) -> None:
        """A transaction has failed in which this one's resource manager took part: it is asked in :data:`AGAIN_S` seconds, and until it can be.

        The link may be stopped by then, and nobody else would. And what was asked over a connection that was lost may yet arrive, after the recovery that
        was made over the next.
        """
        ref_name = factory.config.ref_name

        def ask() -> None:
            del self._again[ref_name]
            self._recovering.append(Deferred.fromCoroutine(self._recover(self.coordinator(), factory)))

        if ref_name not in self._again and not factory.config.multi_rm:
            self._again[ref_name] = self._reactor.callLater(AGAIN_S, ask)

    def stop(self) -> Deferred[None]:
        """Complete nothing more, and let go of the log."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        again, self._again = self._again, {}
        for call in again.values():
            call.cancel()
        recovering, self._recovering = self._recovering, []
        for each in recovering:
            each.cancel()
        if self._reminders is not None:
            self._reminders.stop()
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            await coordinator.close()

    async def _recover(self, coordinator: Coordinator, factory: AdministeredFactory) -> None:
        retries = Retries(FOR_EVER, RETRY_S, grows=True)
        failed = 0
        try:
            while True:
                try:
                    await factory.find()
                    if factory.provider.capabilities.xa:
                        await self._recover_once(coordinator, factory)
                    return
                except MessagingError as error:
                    failed += 1
                    # One that stays away is told of once; what waits for it is listed.
                    level = self._log.warn if failed == 1 else self._log.debug
                    level(
                        "connection-factory {ref_name}: its resource manager cannot be asked for what is in doubt: {error}; it is asked again",
                        ref_name=factory.config.ref_name,
                        error=error,
                    )
                    await deferLater(self._reactor, retries.wait_s(failed) or RETRY_S)
        except CancelledError:
            return

    async def _recover_once(self, coordinator: Coordinator, factory: AdministeredFactory) -> None:
        lost: list[MessagingError] = []
        # Not to be cancelled: see connect.
        connecting = factory.connect(None, lost.append)
        try:
            connection = await shielded(connecting)
        except CancelledError:
            connecting.addCallbacks(lambda late: late.close(), lambda failure: None)
            raise
        try:
            session = connection.xa_session()
            recovered = await coordinator.recover(factory.config.ref_name, factory.provider.resource, session.resource())
        finally:
            connection.close()
        if recovered.committed or recovered.rolled_back or recovered.heuristic:
            self._log.info(
                "connection-factory {ref_name}: what an earlier run left there was completed: {committed} branches committed, "
                "{rolled_back} rolled back, {heuristic} found completed otherwise",
                ref_name=factory.config.ref_name,
                committed=recovered.committed,
                rolled_back=recovered.rolled_back,
                heuristic=recovered.heuristic,
            )
        if lost:
            raise ProviderUnavailable(str(lost[0]))
