"""One transaction after another from a link's source to its target: the transacted half of the
message processing sequence.

Owns the order of the steps within a transaction, and what is done when one of them fails. What is
done to one message is :mod:`bridge.link.transfer`'s, prepare and commit the coordinator's;
connections are :mod:`bridge.once.source`'s and :mod:`bridge.once.target`'s; when to try again is
the link's.

A transaction::

    start · receive · expiry · reply-to · transformer · tag · start · send · the dead to their queues · acknowledge · end · prepare · decide · commit · log

Whatever fails before the decision rolls everything back: the messages are at their source, in
order, and nothing of them is at the target. Only a dead message queue, which is no part of the
transaction, may have a message twice.

Behind the decision nothing can be refused, so the next transaction begins while this one is
committed, on the same sessions. It is decided only when this one is committed on both sides; where
that fails it is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.dead.chain import DeadMessage
from bridge.link.arrivals import Received
from bridge.link.batch import BatchObserver, Item, LinkObserver
from bridge.link.errors import NotDecided, Refused, SourceLost
from bridge.link.fair_share import FairShare
from bridge.link.pump import Buries, Journey
from bridge.link.source import XASource
from bridge.link.target import XATarget
from bridge.link.transfer import Branched, CannotBeRead, Dead, Outcome, Sides, ToSend, Transfer
from bridge.once import refusals
from bridge.once.buried import Buried
from bridge.once.errors import is_loss, not_begun, not_rolled_back, target_lost
from bridge.once.poison import Poison
from bridge.once.tally import Tally
from bridge.once.undecided import Lost
from bridge.once.under_way import UnderWay
from bridge.status import Doing, LinkCounters
from bridge.xa.coordinator import Coordinator, Transaction
from bridge.xa.errors import Heuristic, LogFailed, RolledBack
from bridge.xa.status import TransactionState
from gateway.instance import crashpoints
from gateway.messaging.clocks import wall_ms
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError, OutcomeUnknown, ProviderUnavailable
from gateway.messaging.message import Unreadable


@dataclass(frozen=True, slots=True)
class _One:
    """A transaction under way between these ends.

    :param before: the one before, if it may not be committed yet. :param ending: its end, whatever
        that is; never fails.
    :param items: what has been transformed. :param told: what the journal is told of them, once
        they are received.
    """

    transaction: Transaction
    before: Transaction | None
    ending: Deferred[None]
    source: XASource
    target: XATarget
    sides: Sides
    items: list[Item] = field(default_factory=list)
    told: list[BatchObserver] = field(default_factory=list)


class OncePump:
    """Moves the messages of one link, from its start to its stop.

    :param clock: the reactor. :param link: its name, for dead messages. :param size: messages of
        one transaction, at most.
    :param source: the ref-name of the source's connection factory. :param target: likewise.
    :param observer: is told each step of each batch.
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
        under_way: UnderWay,
        counters: LinkCounters,
        journey: Journey,
        log: Logger,
        observer: LinkObserver,
    ) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._names: Final = (source, target)
        self._coordinator: Final = coordinator
        self._transfer: Final = transfer
        self._dead_queues: Final = dead_queues
        self._under_way: Final = under_way
        self._undecided: Final = under_way.undecided
        self._counters: Final = counters
        self._tally: Final = Tally(counters, journey)
        self._log: Final = log
        self._observer: Final = observer
        self._share: Final = FairShare(clock)
        self._poison: Final = Poison(size)
        self._buried: Final = Buried()
        self._source: XASource | None = None
        self._halting = False
        self._forgotten = False
        #: Why the first that has failed did.
        self._failed: BaseException | None = None
        #: Messages taken from the source and not committed, by transaction.
        self._taken: list[Sequence[Received]] = []
        #: What it waits for, and since when.
        self.doing = Doing.NOTHING
        self.doing_since_ms = 0

    async def run(self, source: XASource, target: XATarget, sides: Sides) -> None:
        """Move messages until :meth:`halt`, which lets the transaction under way be finished; not
        at all as long as that holds.

        When this raises no transaction is under way, and both sessions may hold anything: the
        passage sees to that before it is called again.

        :raises SourceLost: :raises TargetLost: :raises NotBuried: :raises BatchRefused: :raises
            NotDecided: these may be over when it is called again.
        :raises LinkStops: that would fail again.
        :raises MessagingError: a destination could not be looked up; the coordinator's log cannot
            be written.
        """
        self._source = source
        self._failed = None
        before: Transaction | None = None
        ending: Deferred[None] = succeed(None)
        lost = self._under_way.look()
        try:
            if self._halting:
                self._undecided.keep(lost)
            elif lost or self._undecided:
                self._do(Doing.BURYING)
                await self._undecided.bury(lost, self._tally.dead)
            while not self._halting and self._failed is None:
                transaction = self._coordinator.begin()
                self._under_way.began(transaction)
                over = Deferred.fromCoroutine(
                    self._one(_One(transaction, before, ending, source, target, sides))
                )
                over.addErrback(self._fail)
                overlaps = await transaction.decided() and target.stays
                if transaction.state in (TransactionState.COMMITTING, TransactionState.COMMITTED):
                    self._poison.transferred()
                await ending
                before, ending = transaction if overlaps else None, over
                if not overlaps:
                    await over
        finally:
            await ending
            self._source = None
            self._taken.clear()
            self._do(Doing.NOTHING)
        if self._failed is not None:
            raise self._failed

    @property
    def in_flight(self) -> int:
        """Messages taken from the source and not committed."""
        return sum(map(len, self._taken))

    def times(self) -> list[int]:
        """The timestamps of those messages."""
        return [received.message.timestamp for taken in self._taken for received in taken]

    def release(self) -> None:
        """Transactions may be begun again, after :meth:`halt`."""
        self._halting = False

    def halt(self) -> None:
        """Begin no other transaction; :meth:`run` returns when the one under way is done with."""
        self._halting = True
        if self._source is not None:
            self._source.interrupt()

    def forget(self) -> None:
        """The transaction under way will not be finished, unless it is decided: its source is
        closed. Nothing else of it is begun.
        """
        self._forgotten = True

    def _do(self, doing: Doing) -> None:
        if doing is not self.doing:
            self.doing = doing
            self.doing_since_ms = wall_ms(self._clock)

    def _check(self) -> None:
        """:raises ProviderUnavailable: the link was stopped meanwhile. :raises BaseException: why
        the transaction before is not committed.
        """
        if self._failed is not None:
            raise self._failed
        if self._forgotten:
            raise ProviderUnavailable("the link was stopped")

    def _fail(self, failure: Failure) -> None:
        if self._failed is None:
            self._failed = failure.value
        if self._source is not None:
            # The next one may have begun, and may wait for messages.
            self._source.interrupt()

    def _lost(self, ref_name: str, error: MessagingError) -> MessagingError:
        return target_lost(error) if ref_name == self._names[1] else SourceLost(error)

    # --- one transaction

    async def _one(self, one: _One) -> None:
        try:
            await self._move(one)
        except Heuristic as heuristic:
            await self._bury_undecided(one, heuristic)
            raise SourceLost(heuristic) from heuristic
        except (Refused, RolledBack) as refused:
            await self._rolled_back(one, refused)
            if self._failed is not None:
                raise self._failed from refused
            await self._refused(one, refused)
        except BaseException as error:
            await self._rolled_back(one, error)
            raise

    async def _rolled_back(self, one: _One, error: BaseException) -> None:
        await one.transaction.rollback()
        if one.transaction.state is TransactionState.ROLLED_BACK:
            for transfers in one.told:
                transfers.rolled_back(None, error, str(error))
        await one.ending

    async def _move(self, one: _One) -> None:
        transaction, source = one.transaction, one.source
        self._do(Doing.RECEIVING)
        # What is asked of a session takes effect in the order asked, and a JMS provider does at one
        # go what is asked at once: so nothing waits here for what can be told later.
        starting = self._enlisting(transaction, source, self._names[0])

        def not_started(failure: Failure) -> None:
            error = failure.value
            source.lose(
                error
                if isinstance(error, MessagingError)
                else ProviderUnavailable(f"{type(error).__name__}: {error}")
            )

        starting.addErrback(not_started)
        received = await source.batch(self._poison.limit)
        await starting
        self._check()
        if not received:
            await transaction.rollback()
            return
        self._taken.append(received)
        try:
            await self._pass_on(one, received)
        finally:
            self._taken = [each for each in self._taken if each is not received]

    async def _pass_on(self, one: _One, received: Sequence[Received]) -> None:
        items, target, transfers = one.items, one.target, self._observer.received(received)
        one.told.append(transfers)
        self._counters.received += len(received)
        crashpoints.hit(crashpoints.AFTER_RECEIVE)
        self._do(Doing.TRANSFORMING)
        await self._transformed(received, one.sides, items)
        transfers.judged(items)
        sending = [item for item in items if item.to_be_sent]
        refusal: Deferred[BaseException | None] = succeed(None)
        if sending:
            self._do(Doing.SENDING)
            refusal = await self._sent(one, sending, transfers)
        await self._bury(items, transfers)
        self._do(Doing.ACKNOWLEDGING)
        crashpoints.hit(crashpoints.BEFORE_ACKNOWLEDGE)
        one.source.acknowledge(received)
        crashpoints.hit(crashpoints.AFTER_ACKNOWLEDGE)
        waiting = await self._committed(one, refusal, transfers)
        crashpoints.hit(crashpoints.AFTER_SETTLEMENT)
        done = partial(self._done, items, sending, transfers)
        if waiting:
            self._under_way.waits(
                one.transaction, done, lambda: self._ended_otherwise(one, one.transaction.ending)
            )
            unheard = ProviderUnavailable(
                f"the resource manager of connection-factory {waiting[0]} has yet to hear of a commit"
            )
            raise self._lost(waiting[0], unheard)
        done()
        await target.rest()

    def _enlisting(
        self, transaction: Transaction, end: XASource | XATarget, ref_name: str
    ) -> Deferred[None]:
        return Deferred.fromCoroutine(transaction.enlist(ref_name, end.rm, end.resource))

    async def _sent(
        self, one: _One, sending: Sequence[Item], transfers: BatchObserver
    ) -> Deferred[BaseException | None]:
        """:returns: why the target has not taken all: :class:`Refused` or :class:`TargetLost`; None
        where it has. Never fails, and need not be waited for before the commit, which fails
        where the target has not.
        """
        transaction, target = one.transaction, one.target
        await target.open()
        await transaction.meet(target.rm, target.resource)
        starting = self._enlisting(transaction, target, self._names[1])
        messages = [
            item.again(item.outcome.message) for item in sending if isinstance(item.outcome, ToSend)
        ]
        transfers.sent(sending, messages)
        # What is sent into no branch is refused for that alone. A session that cannot begin one is
        # of no use, whatever the reason.
        unbegun = starting.addErrback(not_begun)
        try:
            taken = await target.send(messages, self._share)
        except MessagingError as error:
            raise await unbegun or error from None
        refusal = taken.addErrback(lambda failure: failure.value)
        self._check()
        crashpoints.hit(crashpoints.AFTER_SEND)
        why: Deferred[BaseException | None] = unbegun.addCallback(lambda lost: lost or refusal)
        return why

    async def _committed(
        self, one: _One, refusal: Deferred[BaseException | None], transfers: BatchObserver
    ) -> Sequence[str]:
        """:param refusal: of the target. :param transfers: what is told of it, which is to be known
            before the decision. :returns: the factories whose resource manager has yet to hear of
            it.

        :raises Refused: :raises TargetLost: why the target has not. :raises RolledBack: for a
            reason other than a lost provider.
        """
        try:
            return (await one.transaction.commit(one.before, transfers.written())).waiting
        except RolledBack as error:
            why = await refusal
            if why is not None:
                raise why from error
            if isinstance(error.cause, LogFailed):
                raise NotDecided(error.cause) from error
            if is_loss(error.cause):
                raise self._lost(error.ref_name, error.cause) from error
            raise
        except OutcomeUnknown as error:
            # One resource manager has both sides, so what was not done at one was not done at the
            # other.
            raise SourceLost(error) from error

    async def _transformed(
        self, received: Sequence[Received], sides: Sides, items: list[Item]
    ) -> None:
        for arrived in received:
            began = self._clock.seconds()
            outcome: Outcome | Branched
            if self._poison.is_dead(arrived.message):
                outcome = Dead(*self._poison.cause(arrived.message), sides.destination)
            else:
                outcome = self._transfer.receive(arrived.message, sides)
            if isinstance(outcome, Branched):
                outcome = await self._transfer.branch(outcome, sides)
                self._check()
            item = Item(arrived, outcome, len(items))
            items.append(item)
            if isinstance(outcome, Dead):
                item.give_up(self._link, outcome, sides)
            self._share.worked_since(began)
            if self._share.due:
                await self._share.give()
        for item in items:
            message = item.received.message
            if isinstance(message, Unreadable) and not self._poison.is_dead(message):
                # As one that the target refuses. Why not at once: see bridge.link.pump.
                raise Refused(CannotBeRead(message), None, sent=False)

    async def _bury(self, items: Sequence[Item], transfers: BatchObserver) -> None:
        """Before the commit: should it fail, a dead message queue has it twice, which is better
        than not at all. :raises NotBuried:
        """
        for item in items:
            message = item.received.message
            if item.dead is not None and message.message_id not in self._buried:
                self._do(Doing.BURYING)
                crashpoints.hit(crashpoints.BEFORE_BURY)
                await self._dead_queues.bury(item.dead)
                crashpoints.hit(crashpoints.AFTER_BURY)
                transfers.buried([(item, item.dead)])
                self._buried.add(message.message_id)
                self._check()

    # --- what becomes of it

    def _done(
        self, items: Sequence[Item], sending: Sequence[Item], transfers: BatchObserver
    ) -> None:
        """All is committed everywhere."""
        transfers.committed(sending)
        for item in items:
            if item.dead is not None:
                self._buried.discard(item.received.message.message_id)
        self._tally.committed(items, sending)

    async def _refused(self, one: _One, refused: Refused | RolledBack) -> None:
        """The target is there and does not take it, or a resource manager would not prepare: find
        out which message it is.

        :raises BatchRefused: it is one message alone, and is to be tried again later.
        :raises SourceLost: :raises TargetLost: a branch may be held there yet. Nothing may overtake
            its messages, so recovery comes first.
        """
        self._counters.refused += len(one.items) == 1
        refusals.note(self._link, self._poison, one.items, refused, self._log)
        left = one.transaction.left
        if left:
            raise self._lost(left[0], not_rolled_back(left[0])) from refused
        await one.source.renew()
        if one.target.ready:
            one.target.renew()

    async def _bury_undecided(self, one: _One, heuristic: Heuristic) -> None:
        """The outcome is final and not clean: nobody will try these again, so each is told of.
        :raises NotBuried: of some; they are kept.
        """
        self._log.error(
            "link {link}: {count} messages of one transaction: {error}",
            link=self._link,
            count=len(one.items),
            error=heuristic,
        )
        await self._undecided.bury(self._ended_otherwise(one, heuristic), self._tally.dead)

    def _ended_otherwise(self, one: _One, heuristic: Heuristic) -> Sequence[Lost]:
        """The messages that were to be sent in a transaction that has not ended as was decided."""
        sent = [item for item in one.items if item.to_be_sent]
        for item in sent:
            item.give_up(
                self._link,
                Dead(BridgeDeadReason.COMMIT_FAILURE, str(heuristic), item.current),
                one.sides,
            )
        return [
            Lost(item.dead, partial(self._tell_buried, one, item, item.dead))
            for item in sent
            if item.dead is not None
        ]

    def _tell_buried(self, one: _One, item: Item, dead: DeadMessage) -> None:
        for transfers in one.told:
            transfers.buried([(item, dead)])
