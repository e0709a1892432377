"""Delivers in XA transactions: a batch is one of source and target.

A transaction::

    start · receive · transform · start · send · bury · acknowledge · end · prepare · decide · commit · report

Whatever fails before the decision rolls everything back: the messages are at their source, in
order, and none of them is at the target. Only a dead message queue, which does not take part in the
transaction, may have a message twice.

After the decision nothing can be refused, so the next transaction begins while this one is
committed, on the same sessions. It is decided only when this one is committed on both sides; if
that fails it is rolled back.

Owns the order of the steps within a transaction and what is done when one of them fails; and what
must be true before a message is moved: what an earlier run of the link had begun is over, and both
resource managers have finished what they had prepared for this bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bridge.config.model import Link
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.link.balance_mark import Fate
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.delivery.poison import Buried, Poison
from bridge.link.delivery.unfinished import LostMessage, OpenTransactions
from bridge.link.errors import EndLost, NotDecided, Refused, SourceLost, TargetLost
from bridge.link.pump import Batch, Delivery, Pump
from bridge.link.source import XASource
from bridge.link.status import Doing, OnceBy
from bridge.link.target import XATarget
from bridge.link.transfer import CannotBeRead, Dead, Item, LinkEnds, ToSend
from bridge.xa.coordinator import Transaction
from bridge.xa.errors import Heuristic, LogFailed, RolledBack
from bridge.xa.status import BranchState, TransactionState
from bridge.xa.transaction_state import one_of_several
from gateway.instance import crashpoints
from gateway.messaging import xa
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, OutcomeUnknown, ProviderUnavailable, XAError
from gateway.messaging.message import Unreadable
from gateway.reactor.deferreds import timeout

#: Seconds that connecting waits for what an earlier run had begun; then it fails, and is tried
#: again.
EARLIER_S: Final = 10.0
#: States of a branch whose resource manager was asked something and has not answered.
_ASKED: Final = (
    BranchState.PREPARING.value,
    BranchState.COMMITTING.value,
    BranchState.ROLLING_BACK.value,
)


@dataclass(slots=True)
class _Work:
    """A transaction under way between these ends.

    :param before: the one before, if it may not be committed yet.
    :param ending: its end, whatever that is; never fails.
    :param batch: what was received; None until then.
    """

    pump: Pump
    transaction: Transaction
    before: Transaction | None
    ending: Deferred[None]
    source: XASource
    sides: LinkEnds
    batch: Batch | None = None

    @property
    def items(self) -> Sequence[Item]:
        """What has been transformed."""
        return () if self.batch is None else self.batch.items


class XADelivery(Delivery):
    """The delivery of one link.

    :param unfinished: what earlier runs of this link have left, too.
    :param lost: called if the target's connection ends.
    """

    once_by = OnceBy.XA
    rolls_back = True

    def __init__(
        self,
        reactor: Any,
        link: Link,
        source: AdministeredFactory,
        target: AdministeredFactory,
        connections: Connections,
        coordination: BackgroundRecovery,
        unfinished: OpenTransactions,
        lost: Callable[[EndLost], None],
    ) -> None:
        self._reactor: Final = reactor
        self._link: Final = link
        self._factories: Final = (source, target)
        #: The ref-names of the connection factories of source and target.
        self._names: Final = (source.config.ref_name, target.config.ref_name)
        self._coordination: Final = coordination
        self._coordinator: Final = coordination.coordinator()
        self._unfinished: Final = unfinished
        self._undecided: Final = unfinished.undecided
        stays = link.target.stay_connected
        lender = connections.for_sending(
            target, stays, link.target.clientid, f"link {link.name}, target"
        )
        self.target: XATarget = XATarget(lender, _rm(target, "target"), stays, lost)
        self._poison: Final = Poison(link.batch_size)
        self._buried: Final = Buried()
        self._was_connected = False
        #: The transaction that overlaps with the next, if any, and the end of the last.
        self._before: Transaction | None = None
        self._ending: Deferred[None] = succeed(None)
        #: Why the first that has failed in this run did.
        self._failed: BaseException | None = None

    # --- connecting

    @property
    def transaction(self) -> Transaction | None:
        return self._unfinished.latest

    def source(self, destination: Destination, lost: Callable[[SourceLost], None]) -> XASource:
        rm = _rm(self._factories[0], "source")
        return XASource(self._reactor, self._link, rm, destination, lost)

    async def connected(self, source: XASource) -> None:
        """Have both resource managers commit or roll back what earlier runs left.

        New messages would otherwise overtake those of unfinished transactions.
        """
        if self._was_connected:
            self._look_again()
        self._was_connected = True
        try:
            await self._earlier_over()
            await self._coordinator.recover(self._names[0], source.rm, source.resource)
            source.consume()
            await source.confirmed()
        except (SourceLost, TargetLost):
            raise
        except MessagingError as error:
            raise SourceLost(error) from error
        target = self.target
        try:
            await target.open()
            if target.rm == source.rm and await self._coordinator.have_one(
                target.resource, source.resource
            ):
                return
            await self._coordinator.recover(self._names[1], target.rm, target.resource)
        except TargetLost:
            raise
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error

    async def _earlier_over(self) -> None:
        """Wait until what is still under way is over: recovery leaves that alone.

        :raises SourceLost:
        :raises TargetLost: one is under way for too long; the end whose resource manager does not
            answer.
        """
        for transaction in self._unfinished.open:
            if not await timeout(self._reactor, EARLIER_S, self._unfinished.ended(transaction)):
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
        return silent == {self._names[1]}

    async def failed(self, source: XASource) -> bool:
        """Drop the target's session, and the source's unless it can be kept.

        They may hold anything then.
        """
        await self.target.let_go()
        return not source.keep()

    def _look_again(self) -> None:
        for name in self._names:
            self._coordination.look_again(name)

    # --- a run

    async def resume(self, pump: Pump, source: XASource) -> None:
        """Report what has ended since, and bury what earlier runs have left.

        :raises NotBuried:
        """
        self._before, self._ending, self._failed = None, succeed(None), None
        # Both resource managers have finished what was decided.
        pump.balance.recovered()
        lost = self._unfinished.look()
        if pump.halting:
            self._undecided.keep(lost)
        elif lost or self._undecided:
            pump.do(Doing.BURYING)
            try:
                await self._undecided.bury(lost, pump.count_dead)
            except NotBuried:
                self._look_again()
                raise

    async def deliver(self, pump: Pump, source: XASource, sides: LinkEnds) -> None:
        """Run one transaction until it is decided, or over.

        It must be over where the next may not overlap with it.
        """
        # No transaction is open meanwhile, but one that is decided.
        await pump.pace()
        if self._failed is not None:
            raise self._failed
        if pump.halting:
            return
        try:
            transaction = self._coordinator.begin()
        except LogFailed:
            self._look_again()
            raise
        self._unfinished.began(transaction)
        work = _Work(pump, transaction, self._before, self._ending, source, sides)
        over = Deferred.fromCoroutine(self._transact(work))
        over.addErrback(self._fail, pump)
        overlaps = await transaction.decided() and self.target.stays
        if transaction.state in (TransactionState.COMMITTING, TransactionState.COMMITTED):
            self._poison.transferred()
        await self._ending
        self._before, self._ending = transaction if overlaps else None, over
        if not overlaps:
            await over

    async def drain(self, pump: Pump, source: XASource) -> BaseException | None:
        await self._ending
        pump.under_way.clear()
        if isinstance(self._failed, MessagingError):
            # Whether or not this link ever runs again.
            self._look_again()
        return self._failed

    def check(self, pump: Pump) -> None:
        """:raises BaseException: why the transaction before is not committed."""
        if self._failed is not None:
            raise self._failed
        pump.check()

    def _fail(self, failure: Failure, pump: Pump) -> None:
        if self._failed is None:
            self._failed = failure.value
        # The next one may have begun, and may wait for messages.
        pump.interrupt()

    def _lost(self, ref_name: str, error: MessagingError) -> EndLost:
        return _target_lost(error) if ref_name == self._names[1] else SourceLost(error)

    # --- one transaction

    async def _transact(self, work: _Work) -> None:
        try:
            await self._move(work)
        except Heuristic as heuristic:
            # No broker delivers these again.
            work.pump.log.error(
                "link {link}: {count} messages of one transaction: {error}",
                link=work.pump.link,
                count=len(work.items),
                error=heuristic,
            )
            lost = self._ended_otherwise(work, heuristic)
            await self._undecided.bury(lost, work.pump.count_dead)
            raise SourceLost(heuristic) from heuristic
        except (Refused, RolledBack) as refused:
            await self._rolled_back(work, refused)
            if self._failed is not None:
                raise self._failed from refused
            await self._refused(work, refused)
        except BaseException as error:
            await self._rolled_back(work, error)
            raise

    async def _rolled_back(self, work: _Work, error: BaseException) -> None:
        await work.transaction.rollback()
        if work.batch is not None:
            if work.transaction.state is TransactionState.ROLLED_BACK:
                work.pump.returned(work.batch)
            else:
                # Or it may be committed, as one resource manager alone knows, or the log.
                work.pump.unconfirmed(work.batch)
        if work.transaction.state is TransactionState.ROLLED_BACK and work.batch is not None:
            work.batch.lines.rolled_back(None, error, str(error))
        await work.ending

    async def _move(self, work: _Work) -> None:
        pump, source = work.pump, work.source
        pump.do(Doing.RECEIVING)
        # What is asked of a session takes effect in the order asked, and a JMS provider does at one
        # go what is asked at once: so nothing waits here for what can be reported later.
        starting = self._enlisting(work, source, self._names[0])

        def not_started(failure: Failure) -> None:
            source.lose(_messaging_error(failure))

        starting.addErrback(not_started)
        received = await source.batch(self._poison.limit)
        await starting
        self.check(pump)
        if not received:
            await work.transaction.rollback()
            return
        work.batch = batch = pump.begin(source, received)
        try:
            await self._pass_on(work, batch)
        finally:
            pump.ended(batch)

    async def _pass_on(self, work: _Work, batch: Batch) -> None:
        pump = work.pump
        destination = work.sides.destination
        await pump.transform(
            batch, work.sides, lambda message: self._poison.verdict(message, destination)
        )
        for item in batch.items:
            message = item.received.message
            if isinstance(message, Unreadable) and not self._poison.is_dead(message):
                # As one that the target refuses. See Acknowledge for why it is tried again.
                raise Refused(CannotBeRead(message), None, sent=False)
        batch.lines.judged(batch.items)
        sending = [item for item in batch.items if item.to_be_sent]
        refusal: Deferred[BaseException | None] = succeed(None)
        if sending:
            pump.do(Doing.SENDING)
            refusal = await self._sent(work, batch, sending)
        await self._bury(pump, batch)
        pump.do(Doing.ACKNOWLEDGING)
        crashpoints.hit("link.before-acknowledge")
        work.source.acknowledge(batch.received)
        crashpoints.hit("link.after-acknowledge")
        waiting = await self._committed(work, batch, refusal)
        crashpoints.hit("link.after-settlement")
        done = partial(self._done, pump, batch, sending)
        if waiting:
            batch.held = False
            pump.balance.doubted(len(batch.received))
            self._unfinished.waits(
                work.transaction,
                done,
                lambda: self._ended_otherwise(work, work.transaction.ending),
            )
            unheard = ProviderUnavailable(
                f"the resource manager of connection-factory {waiting[0]} has yet to hear of a commit"
            )
            raise self._lost(waiting[0], unheard)
        done()
        await self.target.rest()

    def _enlisting(self, work: _Work, end: XASource | XATarget, ref_name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(work.transaction.enlist(ref_name, end.rm, end.resource))

    async def _sent(
        self, work: _Work, batch: Batch, sending: Sequence[Item]
    ) -> Deferred[BaseException | None]:
        """Send, and return why the target has not taken all.

        :returns: :class:`Refused` or :class:`TargetLost`; None where it has. Never fails, and need
            not be waited for before the commit, which fails where the target has not.
        """
        transaction, target = work.transaction, self.target
        await target.open()
        await transaction.meet(target.rm, target.resource)
        starting = self._enlisting(work, target, self._names[1])
        messages = [
            item.again(item.outcome.message) for item in sending if isinstance(item.outcome, ToSend)
        ]
        batch.lines.sent(sending, messages)
        # What is sent into no branch is refused for that alone. A session that cannot begin one is
        # of no use, whatever the reason.
        unbegun = starting.addErrback(lambda failure: _target_lost(_messaging_error(failure)))
        try:
            taken = await target.send(messages, work.pump.share)
        except MessagingError as error:
            raise await unbegun or error from None
        refusal = taken.addErrback(lambda failure: failure.value)
        self.check(work.pump)
        crashpoints.hit("link.after-send")
        why: Deferred[BaseException | None] = unbegun.addCallback(lambda lost: lost or refusal)
        return why

    async def _bury(self, pump: Pump, batch: Batch) -> None:
        """Bury before the commit. :raises NotBuried:

        Should the commit fail, a dead message queue has it twice, which is better than not at all.
        """
        for item in batch.items:
            id = item.received.message.message_id
            if item.dead is not None and id not in self._buried:
                await pump.bury(item.dead)
                batch.lines.buried([(item, item.dead)])
                self._buried.add(id)
                self.check(pump)

    async def _committed(
        self, work: _Work, batch: Batch, refusal: Deferred[BaseException | None]
    ) -> Sequence[str]:
        """Note the commit. :param refusal: of the target.

        :returns: the factories whose resource manager has yet to hear of the commit.

        :raises Refused:
        :raises TargetLost: why the target has not taken all.
        :raises RolledBack: for a reason other than a lost provider.
        """
        try:
            # What was received and sent is to be known before the decision.
            written = batch.lines.written()
            work.pump.asks(batch, Fate.OUT)
            return (await work.transaction.commit(work.before, written)).waiting
        except RolledBack as error:
            why = await refusal
            if why is not None:
                raise why from error
            if isinstance(error.cause, LogFailed):
                raise NotDecided(error.cause) from error
            if isinstance(error.cause, ProviderUnavailable | OutcomeUnknown) or (
                isinstance(error.cause, XAError) and error.cause.code == xa.XAER_RMFAIL
            ):
                # The resource manager is gone, rather than unwilling.
                raise self._lost(error.ref_name, error.cause) from error
            raise
        except OutcomeUnknown as error:
            # One resource manager has both sides, so what was not done at one was not done at the
            # other.
            raise SourceLost(error) from error

    # --- how it ends

    def _done(self, pump: Pump, batch: Batch, sending: Sequence[Item]) -> None:
        """All is committed everywhere."""
        counters = pump.counters
        batch.lines.committed(sending)
        for item in batch.items:
            pump.count(item.outcome)
            if item.dead is not None:
                self._buried.discard(item.received.message.message_id)
                pump.count_dead(item.dead)
        for item in sending:
            item.sent = True
            counters.octets += 0 if item.outgoing is None else len(item.outgoing.body)
        counters.sent += len(sending)
        counters.acknowledged += len(batch.items)
        if batch.held:
            pump.settled(batch)
        else:
            pump.balance.settled(batch.items, len(batch.received), batch.under_way, doubted=True)
        pump.report(batch)

    async def _refused(self, work: _Work, refused: Refused | RolledBack) -> None:
        """Find out which message the target or a resource manager refuses.

        :raises BatchRefused: it is one message alone, and is to be tried again later.
        :raises SourceLost:
        :raises TargetLost: a branch may still be held there. Nothing may overtake its messages, so
            recovery comes first.
        """
        pump, items = work.pump, work.items
        pump.counters.refused += len(items) == 1
        pump.log.debug(
            "link {link}: a transaction of {count} messages was rolled back: {error}",
            link=pump.link,
            count=len(items),
            error=refused.cause,
        )
        self._poison.blame(items, refused)
        left = work.transaction.left
        if left:
            held = ProviderUnavailable(
                f"the resource manager of connection-factory {left[0]} has not rolled a transaction back, and is asked again"
            )
            raise self._lost(left[0], held) from refused
        await work.source.renew()
        if self.target.ready:
            self.target.renew()

    def _ended_otherwise(self, work: _Work, heuristic: Heuristic) -> Sequence[LostMessage]:
        """Return the messages of a transaction that did not end as decided."""
        sent = [item for item in work.items if item.to_be_sent]
        batch, balance = work.batch, work.pump.balance
        doubted = False
        if batch is not None:
            doubted, batch.held = not batch.held, False
            others = [item for item in work.items if not item.to_be_sent]
            left = len(batch.received) - len(sent)
            balance.settled(others, left, batch.under_way, doubted=doubted)
        for item in sent:
            dead = Dead(BridgeDeadReason.COMMIT_FAILURE, str(heuristic), item.current)
            item.give_up(work.pump.link, dead, work.sides)
        return [
            LostMessage(item.dead, partial(_note_buried, work, item, item.dead, doubted))
            for item in sent
            if item.dead is not None
        ]


def _note_buried(work: _Work, item: Item, dead: DeadMessage, doubted: bool) -> None:
    work.pump.balance.settled([item], 1, doubted=doubted)
    if work.batch is not None:
        work.batch.lines.buried([(item, dead)])


def _rm(factory: AdministeredFactory, side: str) -> str:
    """Name one side's resource manager.

    Two connections of a ``multi-rm`` factory may have different ones: each has a branch of its own.
    """
    resource = factory.provider.resource
    return one_of_several(resource, side) if factory.config.multi_rm else resource


def _messaging_error(failure: Failure) -> MessagingError:
    error = failure.value
    if isinstance(error, MessagingError):
        return error
    return ProviderUnavailable(f"{type(error).__name__}: {error}")


def _target_lost(error: MessagingError) -> TargetLost:
    """It was the target, whatever it said; nothing has arrived there."""
    return error if isinstance(error, TargetLost) else TargetLost(error, sent=False)
