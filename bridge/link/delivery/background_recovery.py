"""A bridge's transaction coordinator, opened when it is needed.

Completes what an earlier run left once its resource managers are there.

Owns when that is, and who is asked: each connection factory that can take part in XA transactions,
whether or not a link uses it now, but those of ``multi-rm``, which have no one resource manager to
ask. A link completes what it finds at its own two sides before it moves anything; this is for all
else: for what earlier runs left, and for what a link could not finish, whatever has become of the
link. And it keeps what each link has under way, by the link's name, as a reload may make the link
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.connections.administered import AdministeredFactory
from bridge.link.attempts import FOR_EVER, Retries
from bridge.link.delivery.unfinished import LostMessages, OpenTransactions
from bridge.xa.coordinator import Coordinator
from bridge.xa.errors import TransactionError
from bridge.xa.reminders import TransactionReminders
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.reactor.deferreds import deferred, shield

#: Seconds before the second attempt to reach a resource manager; doubled for each that follows, up
#: to a minute.
RETRY_S: Final = 2.0
#: Seconds after the last failure in which a resource manager is asked what is left there.
AGAIN_S: Final = 60.0


class BackgroundRecovery:
    """The coordinator of one bridge.

    :param open: opens the coordinator, at once or later.
    :param left: says whether an earlier run has left a log, at once or later.
    :param log: the bridge's.
    """

    def __init__(
        self,
        reactor: Any,
        open: Callable[[], Coordinator | Deferred[Coordinator]],
        left: Callable[[], bool | Deferred[bool]],
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self._open: Final = open
        self._left: Final = left
        #: Those that wait for the coordinator to be opened.
        self._waiting: list[Deferred[Coordinator]] = []
        self._log: Final = log
        self._coordinator: Coordinator | None = None
        self._reminders: TransactionReminders | None = None
        self._stopped = False
        #: By ``ref-name``: the factories of the file, who is being asked, and who is to be.
        self._factories: Final[dict[str, AdministeredFactory]] = {}
        self._recovering: Final[dict[str, Deferred[None]]] = {}
        self._again: Final[dict[str, IDelayedCall]] = {}
        #: By the name of the link.
        self._unfinished: Final[dict[str, OpenTransactions]] = {}

    @property
    def opened(self) -> Coordinator | None:
        """The coordinator, if it was needed."""
        return self._coordinator

    def coordinator(self) -> Coordinator:
        """The coordinator, which was opened."""
        assert self._coordinator is not None, "it is opened first"
        return self._coordinator

    def open(self) -> Deferred[Coordinator]:
        """Open the coordinator once; concurrent callers share the attempt.

        :returns: fails with TransactionError if its log cannot be opened, with ProviderUnavailable
            after :meth:`stop`.
        """
        if self._coordinator is not None:
            return succeed(self._coordinator)
        if self._stopped:
            return fail(ProviderUnavailable("the bridge was stopped"))
        waiter: Deferred[Coordinator] = Deferred()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._opened()).addBoth(self._answer)
        return waiter

    async def _opened(self) -> Coordinator:
        opening = self._open()
        coordinator = await opening if isinstance(opening, Deferred) else opening
        self._coordinator = coordinator
        coordinator.left = self._left_something
        self._reminders = TransactionReminders(
            self._reactor,
            coordinator.name.rpartition(":")[2],
            coordinator.transactions,
            self._log,
        )
        return coordinator

    def _answer(self, result: Any) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(result)

    @deferred
    async def start(self, factories: Sequence[AdministeredFactory]) -> None:
        """Complete what runs left at these resource managers, now and later.

        This covers an earlier run's transactions and those that links leave from now on.

        :raises TransactionError: the log cannot be opened.
        """
        self._factories.update({factory.config.ref_name: factory for factory in factories})
        left = self._left()
        if not (await left if isinstance(left, Deferred) else left):
            return
        await self.open()
        if self._stopped:
            return
        for factory in factories:
            self._begin(factory.config.ref_name)

    def configure(self, factories: Sequence[AdministeredFactory]) -> None:
        """The file was read again, and these are its connection factories now.

        Those that it has no more are asked no more. One that has become another is asked in its
        stead, and one that is new as well: something may have waited for it.
        """
        before = dict(self._factories)
        self._factories.clear()
        self._factories.update({factory.config.ref_name: factory for factory in factories})
        for ref_name, factory in before.items():
            if self._factories.get(ref_name) is not factory and ref_name in self._recovering:
                self._recovering.pop(ref_name).cancel()
        if self._coordinator is None:
            return
        for ref_name, factory in self._factories.items():
            if before.get(ref_name) is not factory:
                self._begin(ref_name)

    def unfinished(self, link: str, undecided: Callable[[], LostMessages]) -> OpenTransactions:
        """Return what the link of this name has left unfinished.

        :param undecided: makes the place for its messages.
        """
        if link not in self._unfinished:
            self._unfinished[link] = OpenTransactions(undecided())
        return self._unfinished[link]

    def look_again(self, ref_name: str) -> None:
        """Ask a resource manager again :data:`AGAIN_S` seconds after a failure.

        It is asked until it answers, by the factory that has this name then. Nothing is asked if
        the file has no such factory.

        The link may be stopped by then, and no other object would. And what was asked over a connection
        that was lost may yet arrive, after the recovery that was made over the next. So the seconds
        begin anew with each failure.
        """
        factory = self._factories.get(ref_name)
        if self._stopped or factory is None or factory.config.multi_rm:
            return
        waiting = self._again.get(ref_name)
        if waiting is not None:
            waiting.reset(AGAIN_S)
        else:
            self._again[ref_name] = self._reactor.callLater(AGAIN_S, self._ask, ref_name)

    def _left_something(self, ref_name: str) -> None:
        # Not in no time, as it may have been tried just now; nor later, if it is tried often.
        if ref_name not in self._again:
            self.look_again(ref_name)

    def _ask(self, ref_name: str) -> None:
        del self._again[ref_name]
        if ref_name in self._recovering:
            # What that one has asked for may be older than the failure.
            self.look_again(ref_name)
        else:
            self._begin(ref_name)

    def _begin(self, ref_name: str) -> None:
        factory = self._factories.get(ref_name)
        if factory is None or factory.config.multi_rm or ref_name in self._recovering:
            return
        self._recovering[ref_name] = recovering = Deferred.fromCoroutine(self._recover(factory))

        def asked(_: None) -> None:
            # Another may be asked in its stead by now.
            if self._recovering.get(ref_name) is recovering:
                del self._recovering[ref_name]

        recovering.addErrback(self._broken, ref_name).addCallback(asked)

    def _broken(self, failure: Failure, ref_name: str) -> None:
        self._log.failure(
            "connection-factory {ref_name}: its resource manager cannot be asked for what is in doubt, as this gateway or its provider is broken; "
            "what waits for it does so until a link connects to it, or the bridge is started anew",
            failure,
            ref_name=ref_name,
        )

    @deferred
    async def stop(self) -> None:
        """Complete nothing more, and let go of the log."""
        self._stopped = True
        for call in self._again.values():
            call.cancel()
        self._again.clear()
        for each in list(self._recovering.values()):
            each.cancel()
        if self._waiting:
            # What comes late has a log to let go of.
            await self._late()
        if self._reminders is not None:
            self._reminders.stop()
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            await coordinator.close()

    async def _late(self) -> None:
        waiter: Deferred[Coordinator] = Deferred()
        self._waiting.append(waiter)
        with suppress(TransactionError):
            await waiter

    async def _recover(self, factory: AdministeredFactory) -> None:
        retries = Retries(FOR_EVER, RETRY_S, grows=True)
        failed = 0
        try:
            coordinator = await self.open()
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
        # Not to be cancelled: see connect. A client identifier is a link's.
        connecting = factory.connect_without_client_id(lost.append)
        try:
            connection = await shield(connecting)
        except CancelledError:
            connecting.addCallbacks(lambda late: late.close(), lambda failure: None)
            raise
        try:
            session = connection.xa_session()
            recovered = await coordinator.recover(
                factory.config.ref_name, factory.provider.resource, session.resource()
            )
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
