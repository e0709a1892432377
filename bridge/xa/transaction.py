"""A link's global transaction: enlist sessions, then commit or roll back.

Decides which sessions share a branch. The name of a resource manager does not tell whether two
sessions have the same one: a name may lead to several brokers, as that of a connection factory with
``multi-rm="true"`` does, and a connection may lead to another broker later. So the providers are
asked, for each transaction. Where sessions of one name turn out to have several resource managers,
each gets a name of its own, which is also in the log.

What commit and rollback do is said in :mod:`bridge.xa.step`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from bridge.xa import xids
from bridge.xa.errors import Heuristic, Misuse, RolledBack, TooManyBranches
from bridge.xa.status import BranchState, TransactionState
from bridge.xa.transaction_run import TransactionRun
from bridge.xa.transaction_state import (
    HEURISTIC,
    UNFINISHED,
    Branch,
    Cause,
    CommitAsked,
    Joined,
    RollbackAsked,
    Separated,
    Started,
    StartFailed,
    one_of_several,
)
from gateway.instance import crashpoints
from gateway.messaging import xa
from gateway.messaging.errors import MessagingError, OutcomeUnknown, XAError
from gateway.messaging.provider import Flags, XAResource
from gateway.reactor.deferreds import shield

#: The crash points of the first association and of the second.
_POINTS: Final = ("xa.after-start-1", "xa.after-start-2")


@dataclass(frozen=True, slots=True)
class Committed:
    """The decision to commit is durable.

    :param waiting: ``ref-name`` of the resource managers whose branch waits for their recovery;
        usually none.
    """

    waiting: tuple[str, ...] = ()


class Transaction:
    """A global transaction.

    Made by :meth:`~bridge.xa.coordinator.Coordinator.begin`. Either :meth:`commit` or
    :meth:`rollback` must be called.
    """

    def __init__(self, run: TransactionRun, log: Logger) -> None:
        #: As operators see and type it.
        self.id: Final = run.id
        self._run: Final = run
        self._log: Final = log
        self._turns: Final[dict[str, DeferredLock]] = {}
        #: Whether two sessions have one resource manager.
        self._same: Final[dict[tuple[XAResource, XAResource], bool]] = {}
        self._enlisting = 0
        #: Enlistings that have not called ``start`` yet.
        self._unasked: Final[set[object]] = set()
        self._enlisted: Final[list[Deferred[None]]] = []
        self._numbers = 0
        self._started = 0

    @property
    def state(self) -> TransactionState:
        return self._run.now.state

    @property
    def over(self) -> bool:
        """Whether its outcome is known and final."""
        return self._run.over

    @property
    def left(self) -> Sequence[str]:
        """Return the ``ref-name`` of each branch that a rollback may have left.

        Recovery has yet to roll the branch back there.
        """
        return [
            branch.ref_name for branch in self._run.now.branches if branch.state is BranchState.LEFT
        ]

    @property
    def ending(self) -> Heuristic:
        """How each branch ended, as an error."""
        return Heuristic(
            self.id, {branch.ref_name: branch.state.value for branch in self._run.now.branches}
        )

    async def enlist(self, ref_name: str, rm: str, resource: XAResource) -> None:
        """Associate a session with this transaction.

        What the session does from then on is part of it.

        Its resource manager gets a branch, or, where it has one already, the session joins that. A
        session that takes part already stays so. Several may be enlisted at once. ``start`` is
        called before this waits for anything, unless another session of this name takes part and
        :meth:`meet` was not awaited. Commit may be called before this completes, and fails if this
        does.

        :param ref_name: of the connection factory.
        :param rm: :attr:`~gateway.messaging.provider.Provider.resource`. :raises XAError,
            ProviderUnavailable: it cannot take part; then the transaction can only be rolled back.
        :raises TooManyBranches:
        :raises Misuse: commit or rollback was asked before.
        """
        if self._run.now.state is not TransactionState.ACTIVE:
            raise Misuse(
                f"transaction {self.id} is {self._run.now.state.value}: no session can take part any more"
            )
        self._enlisting += 1
        one = object()
        self._unasked.add(one)
        turn = self._turns.setdefault(rm, DeferredLock())
        try:
            await turn.acquire()
            try:
                await self._enlist(ref_name, rm, resource, one)
            finally:
                turn.release()
        finally:
            self._unasked.discard(one)
            self._enlisting -= 1
            if not self._enlisting:
                waiting = self._enlisted[:]
                self._enlisted.clear()
                for done in waiting:
                    done.callback(None)

    async def meet(self, rm: str, resource: XAResource) -> int | None:
        """Ask whether a session shares the resource manager of a participant.

        Only participants of the same name are asked. The answer holds for this transaction.

        :param rm: as for :meth:`enlist`.
        :returns: the place of the branch that it would join.
        """
        for index in self._named(rm):
            pair = resource, self._run.resources[index][0]
            if pair not in self._same:
                self._same[pair] = await have_one_rm(*pair, self._log)
            if self._same[pair]:
                return index
        return None

    def _named(self, rm: str) -> list[int]:
        """Return the branches of resource managers of this name."""
        branches = self._run.now.branches
        return [
            index
            for index, branch in enumerate(branches)
            if branch.associations and branch.rm in (rm, _named_apart(rm, branch.bqual))
        ]

    async def _enlist(self, ref_name: str, rm: str, resource: XAResource, one: object) -> None:
        run = self._run
        known = self._named(rm)
        if any(one is resource for index in known for one in run.resources[index]):
            return
        index = await self.meet(rm, resource)
        if index is None:
            if self._numbers == xids.MOST_BRANCHES:
                raise TooManyBranches(self.id, xids.MOST_BRANCHES)
            self._numbers += 1
            bqual = xids.bqual(ref_name, self._numbers)
            if known:
                # One name leads to several resource managers.
                for one_known in known:
                    run.tell(
                        Separated(one_known, _named_apart(rm, run.now.branches[one_known].bqual))
                    )
                rm = _named_apart(rm, bqual)
        else:
            bqual = run.now.branches[index].bqual
        try:
            answer = resource.start(run.xid(bqual), Flags.NOFLAGS if index is None else Flags.JOIN)
        except Exception as failed:
            run.tell(StartFailed(_cause(ref_name, failed)))
            raise
        if index is None:
            index = len(run.now.branches)
            run.resources[index] = [resource]
            run.tell(Started(Branch(bqual, ref_name, rm)))
        else:
            run.resources[index].append(resource)
            run.tell(Joined(index))
        self._unasked.discard(one)
        try:
            await answer
        except Exception as failed:
            if run.now.state is TransactionState.ACTIVE:
                run.resources[index].remove(resource)
            run.tell(StartFailed(_cause(ref_name, failed), index))
            raise
        self._started += 1
        if self._started <= len(_POINTS):
            crashpoints.hit(_POINTS[self._started - 1])

    async def commit(
        self, after: Transaction | None = None, first: Deferred[None] | None = None
    ) -> Committed:
        """End the associations, then commit in two phases.

        A single branch is committed in one phase.

        :param after: a decided transaction whose messages come before these. Unless it is committed
            everywhere, this one is rolled back, with ProviderUnavailable as the cause.
        :param first: must fire before this one is decided, or committed in one phase; never fails.
        :raises RolledBack: nothing happened anywhere.
        :raises Heuristic: final and not clean.
        :raises OutcomeUnknown: there was one branch, and it is not known whether it was committed.
        :raises LogFailed: everything is prepared and stays so until the bridge is started anew.
        :raises Misuse: commit or rollback was called before, or an enlisting has not called
            ``start`` yet.
        """
        if self._unasked:
            raise Misuse(
                f"transaction {self.id} cannot be committed while somebody is being enlisted"
            )
        run = self._run
        run.after = None if after is None else after._run
        run.first = first
        if first is not None and len(run.now.branches) < 2:
            await shield(first)
        run.tell(CommitAsked())
        # Cancelling this does not cancel the transaction.
        await shield(run.told)
        now = run.now
        heuristic = self._heuristic()
        if heuristic is not None:
            raise heuristic
        cause = now.cause or Cause(xa.XAER_RMFAIL)
        why = cause.error or Misuse("no reason was given")
        if now.state is TransactionState.IN_DOUBT:
            raise why
        if now.state is TransactionState.UNKNOWN:
            raise OutcomeUnknown(str(why))
        if now.state is TransactionState.ROLLED_BACK:
            raise RolledBack(why, cause.ref_name)
        waiting = tuple(branch.ref_name for branch in now.branches if branch.state in UNFINISHED)
        if waiting:
            self._log.warn(
                "Transaction {id} is decided, and waits for {waiting} to be back to commit there",
                id=self.id,
                waiting=", ".join(waiting),
            )
        return Committed(waiting)

    async def decided(self) -> bool:
        """Wait for the decision.

        :returns: True once it is to commit and all branches were asked to; what their sessions do
            from then on comes after that. False where the outcome came first.
        """
        await shield(self._run.decided)
        return not self._run.now.told

    async def rollback(self) -> None:
        """Roll back all branches.

        Never fails: branches that cannot be reached are left to presumed abort. Waits where a
        commit is under way, and does nothing where it is over.
        """
        if self._enlisting:
            done: Deferred[None] = Deferred()
            self._enlisted.append(done)
            await done
        begun = self._run.now.state is TransactionState.ACTIVE
        if begun:
            self._run.tell(RollbackAsked())
        await shield(self._run.told)
        if begun:
            self._heuristic()

    def _heuristic(self) -> Heuristic | None:
        """Return, and log, the error for branches that ended on their own.

        A resource manager completed them against the others; None where there are no such branches.
        """
        if not any(branch.state in HEURISTIC for branch in self._run.now.branches):
            return None
        heuristic = self.ending
        self._log.error(
            "{error}; it is listed until it is forgotten: imqbridgemgr forget transaction",
            error=str(heuristic),
        )
        return heuristic


def _named_apart(rm: str, bqual: bytes) -> str:
    """Return the name of a resource manager among others of the same name."""
    return one_of_several(rm, f"branch {bqual[-1]}")


def _cause(ref_name: str, failed: Exception) -> Cause:
    """Return the cause of a failed start, also of what no provider may raise."""
    error = (
        failed
        if isinstance(failed, MessagingError)
        else XAError(xa.XAER_RMFAIL, f"{type(failed).__name__}: {failed}")
    )
    return Cause(xa.code_of(error), ref_name, error)


async def have_one_rm(one: XAResource, other: XAResource, log: Logger) -> bool:
    """Ask whether two sessions have the same resource manager.

    :param other: was asked something before.
    :returns: False where the providers do not know: two branches are always correct.
    """
    try:
        return await one.is_same_rm(other)
    except MessagingError as error:
        log.debug(
            "Whether two sessions have one resource manager is not known, so each has a branch of its own: {error}",
            error=error,
        )
        return False
