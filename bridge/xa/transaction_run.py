"""Run one global transaction: take events in order, perform actions.

It calls resource managers, writes the log, and makes the status that operators see. Which calls are
made is decided in :mod:`bridge.xa.step`. Events come from a link's transaction, from recovery and
from operators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.xa import xids
from bridge.xa.decision_log import DecisionLog, Entry, LoggedBranch, Presumed, Removed
from bridge.xa.errors import LogFailed, NotWritten
from bridge.xa.status import (
    BranchState,
    BranchStatus,
    TransactionCounts,
    TransactionState,
    TransactionStatus,
)
from bridge.xa.step import is_unheard_of, step
from bridge.xa.transaction_state import (
    HEURISTIC,
    UNFINISHED,
    Action,
    Answered,
    Ask,
    Branch,
    Call,
    Cause,
    CommitAsked,
    Decide,
    Decided,
    DecisionLost,
    Event,
    GlobalTransaction,
    NotDecided,
    Note,
    Order,
    Ordered,
    Presume,
    Reached,
    Record,
    Remove,
    Tell,
)
from gateway.instance import crashpoints
from gateway.messaging import xa
from gateway.messaging.errors import MessagingError, ProviderUnavailable, XAError
from gateway.messaging.provider import Flags, Vote, XAResource, Xid
from gateway.reactor.deferreds import outcome, shield

#: States of one that recovery and operators may go on with.
SETTLED: Final = (TransactionState.WAITING, TransactionState.HEURISTIC, TransactionState.FORGETTING)
#: Of a branch of a transaction that is over: its resource manager has not answered.
_NOT_ROLLED_BACK: Final = (BranchState.LEFT, BranchState.ROLLING_BACK)
_OVER: Final = (TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.UNKNOWN)
#: What the log has of a branch that is being committed: what the next start has to do with it.
_LOGGED: Final = {
    BranchState.PREPARED: BranchState.WAITING,
    BranchState.COMMITTING: BranchState.WAITING,
}
#: In the one-line form, what was decided of a branch that is over.
_DECISIONS: Final = {BranchState.COMMITTED: "COMMIT", BranchState.ROLLED_BACK: "ROLLBACK"}
#: The crash points of the first answer and of the second.
_POINTS: Final[Mapping[Call, tuple[crashpoints.Point, ...]]] = {
    Call.PREPARE: ("xa.after-prepare-1", "xa.after-prepare-2"),
    Call.COMMIT: ("xa.after-commit-1", "xa.after-commit-2"),
    Call.COMMIT_ONE_PHASE: ("xa.after-commit-1", "xa.after-commit-2"),
}


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all transactions of a coordinator share.

    :param over: called with one that is complete.
    :param left: called with one that a resource manager has yet to complete.
    :param presume: called with a branch that is presumed committed.
    :param now_ms: the time.
    :param counts: of those that ended.
    """

    decisions: DecisionLog
    log: Logger
    over: Callable[[TransactionRun], None]
    left: Callable[[TransactionRun], None]
    presume: Callable[[Presumed], None]
    now_ms: Callable[[], int]
    counts: TransactionCounts


class TransactionRun:
    """One global transaction, from its first event until nothing is left.

    :param now: its state.
    :param at_points: whether it passes crash points, as those of links do.
    """

    def __init__(
        self,
        context: RunContext,
        unique: xids.Unique,
        gtrid: bytes,
        since_ms: int,
        now: GlobalTransaction,
        at_points: bool,
    ) -> None:
        self.unique: Final = unique
        self.gtrid: Final = gtrid
        #: When it began; once its commit was asked for, when that was.
        self.since_ms = since_ms
        self.now = now
        #: Of each branch, the resources of the sessions that take part.
        self.resources: Final[dict[int, list[XAResource]]] = {}
        #: Fires when the outcome is known.
        self.told: Final[Deferred[None]] = Deferred()
        #: Fires with the decision, once all branches were asked to commit; or else when the outcome
        #: is known.
        self.decided: Final[Deferred[None]] = Deferred()
        #: The one before this, where its messages are before these: unless that is committed clean,
        #: this one is not decided.
        self.after: TransactionRun | None = None
        #: Must fire before this one is decided; never fails.
        self.first: Deferred[None] | None = None
        self._context: Final = context
        self._hit: Final = crashpoints.hit if at_points else (lambda point: None)
        self._counts: Final[dict[tuple[str, ...], int]] = {}
        self._ends = 0
        self._events: Final[deque[tuple[Event, Callable[[LogFailed | None], None] | None]]] = (
            deque()
        )
        self._busy = False
        self._reached: Final[dict[int, tuple[XAResource, Xid, Deferred[Answered]]]] = {}
        self._last: Final[dict[int, Answered]] = {}
        self._counted = now.state in (TransactionState.HEURISTIC, TransactionState.FORGETTING)

    @property
    def id(self) -> str:
        """As operators see and type it."""
        return self.unique.id

    @property
    def settled(self) -> bool:
        """Whether its link has done with it, and it is not over."""
        return self.now.state in SETTLED or (
            self.now.state is TransactionState.ROLLED_BACK and self.now.told
        )

    @property
    def over(self) -> bool:
        """Whether its outcome is told and final."""
        return self.now.told and self.now.state in _OVER

    @property
    def left(self) -> bool:
        """Whether a rolled back transaction has a manager that has not answered.

        It may hold a branch.
        """
        return self.over and any(branch.state in _NOT_ROLLED_BACK for branch in self.now.branches)

    @property
    def listed(self) -> bool:
        """Whether operators see it."""
        return not self.over or self.left

    @property
    def status(self) -> TransactionStatus:
        """What operators see."""
        now = self.now
        branches = tuple(
            BranchStatus(
                branch.ref_name,
                branch.rm,
                xids.rendered(self.xid(branch.bqual)),
                branch.state.value,
                _reason(branch),
            )
            for branch in now.branches
        )
        state = TransactionState.ROLLING_BACK if self.left else now.state
        decision = "COMMIT" if now.decided else ""
        parts = ", ".join(
            f"{branch.bqual.hex()}({_DECISIONS.get(branch.state, branch.state.value)})"
            for branch in now.branches
        )
        text = f"{self.gtrid.hex()}({decision or state.value})[{parts}]"
        return TransactionStatus(self.id, state.value, decision, self.since_ms, branches, text)

    def xid(self, bqual: bytes) -> Xid:
        return Xid(xids.FORMAT_ID, self.gtrid, bqual)

    def tell(
        self, event: Event, recorded: Callable[[LogFailed | None], None] | None = None
    ) -> None:
        """Take an event, and begin what follows from it before this returns.

        An event that comes from inside of that is taken afterwards.

        :param recorded: called when the log has what must be in it before anything else follows;
            with the error, if that failed.
        :raises Misuse: the event is not possible now.
        """
        self._events.append((event, recorded))
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                event, recorded = self._events.popleft()
                if isinstance(event, CommitAsked):
                    # Until then it may have waited for messages.
                    self.since_ms = self._context.now_ms()
                self.now, actions = step(self.now, event)
                self._perform(actions, recorded)
        finally:
            self._busy = False
        self._look_round()

    def reach(
        self, index: int, resource: XAResource, xid: Xid, holds: bool = False
    ) -> Deferred[Answered]:
        """Go on with a branch through a session that reaches its resource manager.

        No call about the branch may be under way.

        :param xid: as the resource manager writes it.
        :param holds: whether it says that it has the branch.
        :returns: the last answer; never fails.
        :raises Misuse: there is nothing to do.
        """
        done: Deferred[Answered] = Deferred()
        self._reached[index] = resource, xid, done
        try:
            self.tell(Reached(index, holds))
        except Exception:
            self._reached.pop(index, None)
            raise
        return done

    def order(self, order: Order) -> Deferred[None]:
        """Do what an operator orders.

        Fails with LogFailed where it is in force but a restart would forget it.

        :raises Misuse: it is not possible now.
        """
        done, recorded = outcome()
        self.tell(Ordered(order), recorded)
        return done

    def needs(self, index: int) -> bool:
        """Return whether a branch is to be completed, and no call is under way."""
        branch = self.now.branches[index]
        if branch.asking is not None or not self.settled:
            return False
        if branch.state in (BranchState.WAITING, BranchState.ROLLBACK_ORDERED, BranchState.LEFT):
            return True
        return self.now.state is TransactionState.FORGETTING and branch.state in HEURISTIC

    def unheard_of(self, index: int) -> bool:
        """Return whether a branch is a hazard unknown to its resource manager.

        It did not know it when it was to commit it, and no call is under way.
        """
        branch = self.now.branches[index]
        return (
            branch.asking is None
            and self.settled
            and branch.state is BranchState.HEURISTIC_HAZARD
            and is_unheard_of(self.now, branch)
        )

    def _entry(self) -> Entry:
        """Return its entry for the log."""
        now = self.now
        decided = now.decided or now.state is TransactionState.DECIDING
        branches = tuple(
            LoggedBranch(
                branch.bqual,
                branch.ref_name,
                branch.rm,
                _LOGGED.get(branch.state, branch.state),
                branch.error,
            )
            for branch in now.branches
            if branch.state is not BranchState.READ_ONLY
        )
        forgetting = now.state is TransactionState.FORGETTING
        return Entry(self.gtrid, self.since_ms, decided, forgetting, branches)

    def _perform(
        self, actions: Sequence[Action], recorded: Callable[[LogFailed | None], None] | None
    ) -> None:
        for number, action in enumerate(actions):
            match action:
                case Ask():
                    self._ask(action)
                case Decide():
                    Deferred.fromCoroutine(self._decide()).addErrback(self._broken)
                case Note():
                    self._context.decisions.note(self._entry())
                case Remove(now=False):
                    self._context.decisions.note(
                        Removed(self.gtrid), partial(self._hit, "xa.after-forget")
                    )
                case Record() | Remove():
                    change = self._entry() if isinstance(action, Record) else Removed(self.gtrid)
                    rest = actions[number + 1 :]
                    self._context.decisions.write(change).addCallbacks(
                        lambda _, rest=rest: self._perform(rest, recorded),
                        lambda failure, rest=rest: self._unrecorded(failure, rest, recorded),
                    ).addErrback(self._broken)
                    return
                case Presume():
                    self._presume(action)
                case Tell():
                    self.told.callback(None)
                    self._fire_decided()
        if recorded is not None:
            recorded(None)

    def _unrecorded(
        self,
        failure: Failure,
        rest: Sequence[Action],
        recorded: Callable[[LogFailed | None], None] | None,
    ) -> None:
        failed = failure.value
        if not isinstance(failed, LogFailed):
            failure.raiseException()
        self._context.log.error(
            "Transaction {id}, {state}, could not be recorded, and a restart would not know it: {error}",
            id=self.id,
            state=self.now.state.value,
            error=str(failed),
        )
        self._perform(rest, None)
        if recorded is not None:
            recorded(failed)

    def _presume(self, action: Presume) -> None:
        branch = self.now.branches[action.branch]
        self._context.presume(Presumed(self.gtrid, branch.bqual, self._context.now_ms()))
        if action.at_first:
            self._context.log.warn(
                "Transaction {id}: '{ref_name}' does not know branch {xid}, which it has prepared and was asked to commit for the first time. It is taken for "
                "committed, as its client may have asked before on its own. But if its administrator has ended the branch, or the connection has gone to "
                "another broker, the messages of this transaction may be missing or double: see there",
                id=self.id,
                ref_name=branch.ref_name,
                xid=xids.rendered(self.xid(branch.bqual)),
            )

    async def _decide(self) -> None:
        first, self.first = self.first, None
        before, self.after = self.after, None
        if first is not None:
            await shield(first)
        if before is not None:
            await shield(before.told)
            if before.now.state is not TransactionState.COMMITTED:
                error = ProviderUnavailable(
                    f"transaction {before.id}, which comes before, is {before.now.state.value}"
                )
                self.tell(NotDecided(Cause(xa.XAER_RMFAIL, "", error)))
                return
        self._hit("xa.before-decision")
        try:
            await self._context.decisions.write(self._entry())
        except LogFailed as failed:
            cause = Cause(xa.XAER_RMFAIL, "", failed)
            self.tell(NotDecided(cause) if isinstance(failed, NotWritten) else DecisionLost(cause))
            return
        self._hit("xa.after-decision")
        self.tell(Decided())
        self._fire_decided()

    def _fire_decided(self) -> None:
        if not self.decided.called:
            self.decided.callback(None)

    def _ask(self, ask: Ask) -> None:
        xid = self.xid(self.now.branches[ask.branch].bqual)
        if ask.call is Call.END:
            flags = Flags.FAIL if ask.failed else Flags.SUCCESS
            for resource in self.resources[ask.branch]:
                self._await(ask, maybeDeferred(resource.end, xid, flags))
            return
        if ask.branch in self._reached:
            resource, xid, _ = self._reached[ask.branch]
        else:
            resource = self.resources[ask.branch][0]
        match ask.call:
            case Call.PREPARE:
                self._await(ask, maybeDeferred(resource.prepare, xid))
            case Call.COMMIT | Call.COMMIT_ONE_PHASE:
                self._await(
                    ask, maybeDeferred(resource.commit, xid, ask.call is Call.COMMIT_ONE_PHASE)
                )
            case Call.ROLLBACK:
                self._await(ask, maybeDeferred(resource.rollback, xid))
            case Call.FORGET:
                self._await(ask, maybeDeferred(resource.forget, xid))

    def _await(self, ask: Ask, answer: Deferred[Any]) -> None:
        def answered(result: object) -> None:
            self._pass(ask)
            code = (
                xa.XA_RDONLY if ask.call is Call.PREPARE and result is Vote.READ_ONLY else xa.XA_OK
            )
            self._answered(Answered(ask.call, ask.branch, code))

        def failed(failure: Failure) -> None:
            error = failure.value
            if not isinstance(error, MessagingError):
                self._context.log.failure(
                    "A provider failed to {call} as it must not", failure, call=ask.call.value
                )
                error = XAError(xa.XAER_RMFAIL, f"{type(error).__name__}: {error}")
            self._answered(Answered(ask.call, ask.branch, xa.code_of(error), error))

        answer.addCallbacks(answered, failed).addErrback(self._broken)

    def _answered(self, answer: Answered) -> None:
        self._last[answer.branch] = answer
        self.tell(answer)

    def _pass(self, ask: Ask) -> None:
        """Pass the crash points of an answer."""
        if ask.call is Call.END:
            self._ends += 1
            if not ask.failed and self._ends == sum(
                branch.associations for branch in self.now.branches
            ):
                self._hit("xa.after-end")
        elif ask.call in _POINTS:
            points = _POINTS[ask.call]
            answered = self._counts.get(points, 0)
            self._counts[points] = answered + 1
            if answered < len(points):
                self._hit(points[answered])

    def _look_round(self) -> None:
        """Report answers to waiting callers, and the state to the coordinator."""
        if not self.now.told and not self._reached:
            # Its link goes on with it, and knows.
            return
        for index, (_, _, done) in list(self._reached.items()):
            if (
                self.now.branches[index].asking is None
                and self._reached.pop(index, None) is not None
            ):
                done.callback(self._last[index])
        self._count()
        if not self.listed and not self._reached:
            self._context.over(self)
        elif self.settled and any(self.needs(index) for index in range(len(self.now.branches))):
            self._context.left(self)

    def _count(self) -> None:
        now, counts = self.now, self._context.counts
        if (
            self._counted
            or not now.branches
            or not (self.over or now.state is TransactionState.HEURISTIC)
        ):
            return
        self._counted = True
        match now.state:
            case TransactionState.COMMITTED:
                counts.committed += 1
            case TransactionState.ROLLED_BACK:
                counts.rolled_back += 1
            case TransactionState.HEURISTIC:
                counts.heuristic += 1
            case TransactionState.UNKNOWN:
                counts.unknown += 1

    def _broken(self, failure: Failure) -> None:
        self._context.log.failure("Transaction {id} cannot go on", failure, id=self.id)


def transaction_of(entry: Entry) -> GlobalTransaction:
    """Return the state in which a logged transaction goes on after a start."""
    branches = tuple(
        Branch(one.bqual, one.ref_name, one.rm, one.state, associations=0, error=one.error)
        for one in entry.branches
    )
    states = {branch.state for branch in branches}
    if states & UNFINISHED or (entry.decided and not states & HEURISTIC and not entry.forgetting):
        state = TransactionState.WAITING
    else:
        state = TransactionState.FORGETTING if entry.forgetting else TransactionState.HEURISTIC
    return GlobalTransaction(state, branches, entry.decided, told=True)


def _reason(branch: Branch) -> str:
    if branch.state is BranchState.WAITING and branch.error == xa.XAER_NOTA:
        return "not known at the broker asked last"
    return ""
