"""One transaction after another from a link's source to its target: the transacted half of the message processing sequence.

Owns the order of the steps within a transaction, and what is done when one of them fails. What is done to one message is :mod:`bridge.transfer`'s,
prepare and commit the coordinator's; connections are :mod:`bridge.once.source`'s and :mod:`bridge.once.target`'s; when to try again is the link's.

A transaction::

    start · receive · expiry · reply-to · transformer · tag · start · send · the dead to their queues · acknowledge · end · prepare · decide · commit · log

Whatever fails before the decision rolls everything back: the messages are at their source, in order, and nothing of them is at the target. Only a dead
message queue, which is no part of the transaction, may have a message twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge import crash_points
from bridge.arrivals import Received
from bridge.batch import Item
from bridge.dead_messages import DeadMessage
from bridge.fair_share import FairShare
from bridge.once.errors import BatchRefused, NotDecided
from bridge.once.poison import MOST, Poison
from bridge.once.source import OnceSource
from bridge.once.target import OnceTarget
from bridge.pump import Buries, Journey
from bridge.source import SourceLost
from bridge.status import Doing, LinkCounters
from bridge.target import Refused, TargetLost
from bridge.transfer import Branched, Dead, NotTransferred, Outcome, Sides, ToSend, Transfer
from bridge.xa import codes
from bridge.xa.coordinator import Coordinator, Transaction
from bridge.xa.errors import Heuristic, LogFailed, RolledBack
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError, OutcomeUnknown, ProviderUnavailable, XAError


class OncePump:
    """Moves the messages of one link, from its start to its stop.

    :param clock: the reactor. :param link: its name, for dead messages. :param size: messages of one transaction, at most.
    :param source: the ref-name of the source's connection factory. :param target: likewise.
    :param passed: called at the points of :mod:`bridge.crash_points`.
    """

    def __init__(
        self,
        clock: Any,
        link: str,
        size: int,
        source: str,
        target: str,
        coordinator: Coordinator,
        transfer: Transfer,
        dead_queues: Buries,
        counters: LinkCounters,
        journey: Journey,
        log: Logger,
        passed: Callable[[str], None],
    ) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._names: Final = (source, target)
        self._coordinator: Final = coordinator
        self._transfer: Final = transfer
        self._dead_queues: Final = dead_queues
        self._counters: Final = counters
        self._journey: Final = journey
        self._log: Final = log
        self._passed: Final = passed
        self._share: Final = FairShare(clock)
        self._poison: Final = Poison(size)
        #: The ids of dead messages that a dead message queue has, and that are at the source still: nothing has been committed since.
        self._buried: Final[set[str]] = set()
        self._source: OnceSource | None = None
        self._halting = False
        self._forgotten = False
        #: Messages taken from the source and not committed.
        self.in_flight = 0
        #: What it waits for, and since when.
        self.doing = Doing.NOTHING
        self.doing_since_ms = 0
        #: The last that was begun.
        self.transaction: Transaction | None = None

    async def run(self, source: OnceSource, target: OnceTarget, sides: Sides) -> None:
        """Move messages until :meth:`halt`, which lets the transaction under way be finished; not at all as long as that holds.

        When this raises no transaction is under way, and both sessions may hold anything: they are to be closed before it is called again.

        :raises SourceLost: :raises TargetLost: :raises NotBuried: :raises BatchRefused: :raises NotDecided: these may be over when it is called again.
        :raises LinkStops: that would fail again.
        :raises MessagingError: a destination could not be looked up; the coordinator's log cannot be written.
        """
        self._source = source
        try:
            while not self._halting:
                await self._one(source, target, sides)
        finally:
            self._source = None
            self.in_flight = 0
            self._do(Doing.NOTHING)

    def release(self) -> None:
        """Transactions may be begun again, after :meth:`halt`."""
        self._halting = False

    def halt(self) -> None:
        """Begin no other transaction; :meth:`run` returns when the one under way is done with."""
        self._halting = True
        if self._source is not None:
            self._source.interrupt()

    def forget(self) -> None:
        """The transaction under way will not be finished, unless it is decided: its source is closed. Nothing else of it is begun."""
        self._forgotten = True

    def _do(self, doing: Doing) -> None:
        if doing is not self.doing:
            self.doing = doing
            self.doing_since_ms = int(self._clock.seconds() * 1000)

    def _check(self) -> None:
        """:raises ProviderUnavailable: the link was stopped meanwhile."""
        if self._forgotten:
            raise ProviderUnavailable("the link was stopped")

    # --- one transaction

    async def _one(self, source: OnceSource, target: OnceTarget, sides: Sides) -> None:
        self.transaction = transaction = self._coordinator.begin()
        items: list[Item] = []
        try:
            await self._move(transaction, source, target, sides, items)
        except Heuristic as heuristic:
            await self._bury_undecided(items, heuristic, sides)
            raise SourceLost(heuristic) from heuristic
        except (Refused, RolledBack) as refused:
            await transaction.rollback()
            await self._refused(items, refused, source, target)
        except BaseException:
            await transaction.rollback()
            raise

    async def _move(
        self, transaction: Transaction, source: OnceSource, target: OnceTarget, sides: Sides, items: list[Item]
    ) -> None:
        self._do(Doing.RECEIVING)
        # What is asked of a session takes effect in the order asked, and a JMS provider does at one go what is asked at once: so nothing waits here for what
        # can be told later.
        starting = self._enlisting(transaction, source, self._names[0])

        def not_started(failure: Failure) -> None:
            error = failure.value
            source.lose(error if isinstance(error, MessagingError) else ProviderUnavailable(f"{type(error).__name__}: {error}"))

        starting.addErrback(not_started)
        received = await source.batch(self._poison.limit)
        await starting
        self._check()
        if not received:
            await transaction.rollback()
            return
        self.in_flight = len(received)
        self._counters.received += len(received)
        self._passed(crash_points.AFTER_RECEIVE)
        self._do(Doing.TRANSFORMING)
        await self._transformed(received, sides, items)
        sending = [item for item in items if item.to_be_sent]
        taken = succeed(None)
        if sending:
            self._do(Doing.SENDING)
            taken = await self._sent(transaction, target, sending)
        await self._bury(items)
        self._do(Doing.ACKNOWLEDGING)
        self._passed(crash_points.BEFORE_ACKNOWLEDGE)
        source.acknowledge(received)
        self._passed(crash_points.AFTER_ACKNOWLEDGE)
        waiting = await self._committed(transaction, taken)
        self._passed(crash_points.AFTER_SETTLEMENT)
        self._done(items, sending)
        await target.rest()
        if waiting:
            raise SourceLost(
                ProviderUnavailable(f"the resource manager of connection-factory {waiting[0]} has yet to hear of a commit")
            )

    def _enlisting(self, transaction: Transaction, end: OnceSource | OnceTarget, ref_name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(transaction.enlist(ref_name, end.rm, end.resource))

    async def _sent(self, transaction: Transaction, target: OnceTarget, sending: Sequence[Item]) -> Deferred[None]:
        """:returns: that the target has taken all; fails with :class:`Refused` or :class:`TargetLost`. It need not be waited for before the commit, which
        fails where the target has not.
        """
        await target.open()
        starting = self._enlisting(transaction, target, self._names[1])
        messages = [item.again(item.outcome.message) for item in sending if isinstance(item.outcome, ToSend)]
        try:
            taken = await target.send(messages, self._share)
        finally:
            try:
                await starting
            except MessagingError as error:
                # A session that cannot begin a branch is of no use, whatever the reason.
                raise error if isinstance(error, TargetLost) else _target_lost(error) from error
        self._check()
        self._passed(crash_points.AFTER_SEND)
        return taken

    async def _committed(self, transaction: Transaction, taken: Deferred[None]) -> Sequence[str]:
        """:param taken: by the target. :returns: the factories whose resource manager has yet to hear of it.

        :raises Refused: :raises TargetLost: why the target has not. :raises RolledBack: for a reason other than a lost provider.
        """
        refusals: list[BaseException | None] = []
        taken.addErrback(lambda failure: refusals.append(failure.value))
        try:
            return (await transaction.commit()).waiting
        except RolledBack as error:
            await taken
            for refusal in filter(None, refusals):
                raise refusal from error
            if isinstance(error.cause, LogFailed):
                raise NotDecided(error.cause) from error
            if _is_loss(error.cause):
                raise (_target_lost if error.ref_name == self._names[1] else SourceLost)(error.cause) from error
            raise
        except OutcomeUnknown as error:
            # One resource manager has both sides, so what was not done at one was not done at the other.
            raise SourceLost(error) from error

    async def _transformed(self, received: Sequence[Received], sides: Sides, items: list[Item]) -> None:
        for arrived in received:
            began = self._clock.seconds()
            outcome: Outcome | Branched
            if self._poison.is_dead(arrived.message):
                outcome = Dead(self._poison.reason, self._poison.exception, sides.destination)
            else:
                outcome = self._transfer.receive(arrived.message, sides)
            if isinstance(outcome, Branched):
                outcome = await self._transfer.branch(outcome, sides)
                self._check()
            item = Item(arrived, outcome)
            items.append(item)
            if isinstance(outcome, Dead):
                item.give_up(self._link, outcome, sides)
            self._share.worked_since(began)
            if self._share.due:
                await self._share.give()

    async def _bury(self, items: Sequence[Item]) -> None:
        """Before the commit: should it fail, a dead message queue has it twice, which is better than not at all. :raises NotBuried:"""
        for item in items:
            message = item.received.message
            if item.dead is not None and message.message_id not in self._buried:
                self._do(Doing.BURYING)
                self._passed(crash_points.BEFORE_BURY)
                await self._dead_queues.bury(item.dead)
                self._passed(crash_points.AFTER_BURY)
                if message.message_id:
                    self._buried.add(message.message_id)
                self._check()

    # --- what becomes of it

    def _done(self, items: Sequence[Item], sending: Sequence[Item]) -> None:
        counters = self._counters
        for item in items:
            if item.dead is not None:
                self._buried.discard(item.received.message.message_id)
                self._count_dead(item.dead)
            elif isinstance(item.outcome, NotTransferred):
                counters.not_transferred += 1
        counters.sent += len(sending)
        counters.octets += sum([len(item.outgoing.body) for item in sending if item.outgoing is not None])
        counters.acknowledged += len(items)
        counters.batches += 1
        self.in_flight = 0
        self._poison.transferred()
        # 8
        self._journey.transferred([(item.received.message, item.outgoing) for item in sending if item.outgoing is not None])

    def _count_dead(self, dead: DeadMessage) -> None:
        reason = dead.reason
        self._counters.dead[reason] = self._counters.dead.get(reason, 0) + 1
        if reason is BridgeDeadReason.MESSAGE_EXPIRED:
            self._counters.expired += 1
        elif reason is BridgeDeadReason.TRANSFORM_FAILURE:
            self._counters.transform_failures += 1

    async def _refused(self, items: Sequence[Item], refused: Refused | RolledBack, source: OnceSource, target: OnceTarget) -> None:
        """The target is there and does not take it, or a resource manager would not prepare: find out which message it is.

        :raises BatchRefused: it is one message alone, and is to be tried again later.
        """
        self._counters.refused += len(items) == 1
        reason = BridgeDeadReason.SEND_FAILURE if isinstance(refused, Refused) else BridgeDeadReason.COMMIT_FAILURE
        times = self._poison.refused([item.received.message for item in items], reason, str(refused.cause))
        self._log.debug(
            "link {link}: a transaction of {count} messages was rolled back: {error}",
            link=self._link,
            count=len(items),
            error=refused.cause,
        )
        if 0 < times < MOST:
            raise BatchRefused(refused.cause, times, MOST)
        await source.renew()
        if target.ready:
            target.renew()

    async def _bury_undecided(self, items: Sequence[Item], heuristic: Heuristic, sides: Sides) -> None:
        """The outcome is final and not clean: nobody will try these again, so each is told of."""
        self._log.error(
            "link {link}: {count} messages of one transaction: {error}", link=self._link, count=len(items), error=heuristic
        )
        for item in items:
            if item.to_be_sent:
                item.give_up(self._link, Dead(BridgeDeadReason.COMMIT_FAILURE, str(heuristic), item.current), sides)
                assert item.dead is not None
                await self._dead_queues.bury(item.dead)
                self._count_dead(item.dead)


def _target_lost(error: MessagingError) -> TargetLost:
    return TargetLost(error, sent=False)


def _is_loss(error: MessagingError) -> bool:
    """Whether the resource manager is gone, rather than unwilling."""
    return isinstance(error, ProviderUnavailable | OutcomeUnknown) or (
        isinstance(error, XAError) and error.code == codes.XAER_RMFAIL
    )
