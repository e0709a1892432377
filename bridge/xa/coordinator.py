"""The transaction coordinator of one bridge, its recovery and its orders.

An operator gives the orders.

It has the list of all transactions that are live, or decided and not complete, or heuristic. How a
transaction goes on is decided in :mod:`bridge.xa.step`; the calls are made in
:mod:`bridge.xa.transaction_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock, fail
from twisted.logger import Logger

from bridge.xa import xids
from bridge.xa.decision_log import DecisionLog, Entry, Presumed, Presumptions, Removed
from bridge.xa.errors import Misuse, NotWritten, UnknownTransaction, WrongState
from bridge.xa.recovery import Recovered, Recovery
from bridge.xa.status import BranchState, TransactionCounts, TransactionState, TransactionStatus
from bridge.xa.transaction import Committed, Transaction, have_one_rm
from bridge.xa.transaction_run import SETTLED, RunContext, TransactionRun, transaction_of
from bridge.xa.transaction_state import HEURISTIC, UNFINISHED, Branch, GlobalTransaction, Order
from gateway.messaging.provider import XAResource, Xid
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import deferred

__all__ = ["Committed", "Coordinator", "Recovered", "Transaction"]

#: The states in which an order can be given, and what to say in any other.
_ORDERS: Final[Mapping[Order, tuple[tuple[TransactionState, ...], str]]] = {
    Order.COMMIT: (
        (TransactionState.WAITING,),
        "only one that is WAITING can be taken for committed",
    ),
    Order.ROLLBACK: (
        (TransactionState.WAITING,),
        "only one that is WAITING can be rolled back; a live one ends with its link",
    ),
    Order.FORGET: (
        (TransactionState.HEURISTIC, TransactionState.FORGETTING),
        "only one that is HEURISTIC can be forgotten; for one that is WAITING there are commit and rollback",
    ),
}


class Coordinator:
    """The coordinator of one bridge; presumed abort.

    Made by :func:`bridge.xa.log.opening.open_coordinator`.

    :param name: ``<instance>:<bridge>``.
    :param decisions: its log, just opened.
    :param ids: with the runs of that log.
    :param log: for operators.
    """

    def __init__(
        self,
        clock: Any,
        name: str,
        decisions: DecisionLog,
        ids: xids.Xids,
        log: Logger,
    ) -> None:
        self.name: Final = name
        self._clock: Final = clock
        self._decisions: Final = decisions
        self._ids: Final = ids
        self._log: Final = log
        #: How its transactions ended.
        self.counts: Final = TransactionCounts()
        #: Called with the ``ref-name`` of a resource manager that has yet to complete a
        #: transaction: until then it may hold its messages.
        self.left: Callable[[str], None] = lambda ref_name: None
        self._context: Final = RunContext(
            decisions, log, self._over, self._left, self._presume, self._now_ms, self.counts
        )
        self._presumed: Final = Presumptions(decisions.presumed)
        self._runs: Final[dict[xids.Unique, TransactionRun]] = {}
        self._turns: Final[dict[str, DeferredLock]] = {}
        self._resources: Final[dict[str, XAResource]] = {}
        self._told: Final[set[tuple[str, str]]] = set()
        self._closed = False
        for entry in decisions.entries:
            self._load(entry)

    def begin(self) -> Transaction:
        """Begin a transaction, without branches.

        :raises LogFailed: nothing can be decided any more, or the coordinator is closed.
        """
        if self._decisions.failed is not None:
            raise self._decisions.failed
        if self._closed:
            raise NotWritten(self._decisions.path, "it is closed")
        unique, gtrid = self._ids.next()
        run = TransactionRun(
            self._context, unique, gtrid, self._now_ms(), GlobalTransaction(), True
        )
        self._runs[unique] = run
        return Transaction(run, self._log)

    async def have_one(self, one: XAResource, other: XAResource) -> bool:
        """Return whether two sessions of one name have the same resource manager.

        :param other: was called before.
        """
        return await have_one_rm(one, other, self._log)

    @deferred
    async def recover(self, ref_name: str, rm: str, resource: XAResource) -> Recovered:
        """Commit or roll back this coordinator's branches in a resource manager.

        See :mod:`bridge.xa.recovery`.

        Never touches a live transaction, nor another coordinator's. Recoveries of one ``rm`` run
        one after the other.

        :param resource: of a session that is associated with no branch.
        :returns: fails with ProviderUnavailable or XAError where something could not be reached or
            not be completed yet: try again later.
        """

        turn = self._turns.setdefault(rm, DeferredLock())
        await turn.acquire()
        try:
            self._resources[rm] = resource
            recovery = Recovery(
                self._ids,
                self._runs,
                self._adopt,
                self._presumed,
                self._log,
                self._told,
                ref_name,
                rm,
                resource,
            )
            did = await recovery.run()
        finally:
            turn.release()
        if did != Recovered():
            self._log.info(
                "Recovered '{ref_name}': {committed} branches committed, {rolled_back} rolled back, {heuristic} completed heuristically",
                ref_name=ref_name,
                committed=did.committed,
                rolled_back=did.rolled_back,
                heuristic=did.heuristic,
            )
        return did

    def transactions(self) -> Sequence[TransactionStatus]:
        """Return the transactions that are not over, oldest first.

        They are live, decided and waiting, to be rolled back where a resource manager does not
        answer, or heuristic.
        """
        listed = [run for run in self._runs.values() if run.listed]
        return [run.status for run in sorted(listed, key=lambda run: run.unique)]

    def waits_for(self) -> Mapping[str, int]:
        """Count the settled transactions with work left, by ``ref-name``.

        A warning at the start gives these counts.
        """
        counts: dict[str, int] = {}
        for run in self._runs.values():
            if run.now.state in SETTLED:
                for branch in run.now.branches:
                    if branch.state in UNFINISHED or branch.state in HEURISTIC:
                        counts[branch.ref_name] = counts.get(branch.ref_name, 0) + 1
        return counts

    def commit(self, id: str) -> Deferred[None]:
        """Treat the branches that WAIT as committed, as an operator says so.

        For a resource manager that will not come back, or where the branch was committed by hand. If
        it comes back with the branch nevertheless, the branch is committed; a month later, or after
        some 2,000 such branches, it may be rolled back.

        :returns: fires when it is durable. Fails with UnknownTransaction, WrongState, LogFailed.
        """
        return self._order(id, Order.COMMIT)

    def rollback(self, id: str) -> Deferred[None]:
        """Roll back the branches that WAIT, by an operator's order.

        Against the decision, when their resource managers are back.

        The transaction is HEURISTIC then, as other branches are committed: what it moved is lost or
        doubled.

        :returns: fires when the order is durable. Fails with UnknownTransaction, WrongState,
            LogFailed.
        """
        return self._order(id, Order.ROLLBACK)

    def forget(self, id: str) -> Deferred[None]:
        """Operator's forget: drop a HEURISTIC transaction everywhere.

        It is forgotten here and at its resource managers.

        It is FORGETTING until the recovery of those that cannot be reached now. A second order
        forgets it here at once.

        :returns: fires when the order is durable. Fails with UnknownTransaction, WrongState,
            LogFailed.
        """
        return self._order(id, Order.FORGET)

    def close(self) -> Deferred[None]:
        """Write what is left to write, and close the log. Never fails; idempotent."""
        self._closed = True
        return self._decisions.close()

    def _order(self, id: str, order: Order) -> Deferred[None]:
        run = self._known(id)
        if run is None:
            return fail(UnknownTransaction(id))
        states, said = _ORDERS[order]
        state = run.now.state
        if state not in states:
            return fail(WrongState(run.id, order.value, state.value, said))
        if any(branch.asking for branch in run.now.branches):
            said = (
                "a resource manager is being asked about it just now; see what comes of that first"
            )
            return fail(WrongState(run.id, order.value, state.value, said))
        try:
            ordered = run.order(order)
        except Misuse:
            return fail(
                WrongState(
                    run.id,
                    order.value,
                    state.value,
                    "its branches are ordered to roll back already",
                )
            )
        self._log.warn(
            "An operator ordered: {order} transaction {id}, which was {state}: {text}",
            order=order.value,
            id=run.id,
            state=state.value,
            text=run.status.text,
        )
        if run.now.state is TransactionState.FORGETTING:
            ordered.addCallback(lambda _: self._forget_now(run))
        return ordered

    def _forget_now(self, run: TransactionRun) -> None:
        """Have resource managers that were reachable lately forget it.

        Nothing waits for that, and recovery tries again where it fails.
        """
        for index, branch in enumerate(run.now.branches):
            resource = self._resources.get(branch.rm)
            if resource is not None and run.needs(index):
                run.reach(index, resource, run.xid(branch.bqual))

    def _known(self, id: str) -> TransactionRun | None:
        wanted = id.strip().lower().lstrip("0")
        return next((run for run in self._runs.values() if run.id == wanted), None)

    def _adopt(self, unique: xids.Unique, gtrid: bytes, branch: Branch) -> TransactionRun | None:
        """Take up an unknown transaction of which a resource manager has a branch.

        It was not decided, or the branch was presumed committed.

        Returns None for one that was decided without this branch, and for one of a former identity,
        of which another coordinator may decide.
        """
        presumed = self._presumed.of(gtrid)
        origin = xids.origin(Xid(xids.FORMAT_ID, gtrid, branch.bqual))
        if branch.bqual in presumed:
            branch = branch._replace(state=BranchState.WAITING)
            now = GlobalTransaction(TransactionState.WAITING, (branch,), decided=True, told=True)
        elif presumed or origin is None or not self._ids.made(origin):
            return None
        else:
            now = GlobalTransaction(TransactionState.ROLLED_BACK, (branch,), told=True)
        run = self._runs[unique] = TransactionRun(
            self._context, unique, gtrid, self._now_ms(), now, False
        )
        return run

    def _presume(self, presumed: Presumed) -> None:
        # In this order, and before the log drops the decision.
        self._decisions.note(presumed)
        self._presumed.add(presumed)

    def _left(self, run: TransactionRun) -> None:
        for index, branch in enumerate(run.now.branches):
            if run.needs(index):
                self.left(branch.ref_name)

    def _load(self, entry: Entry) -> None:
        now = transaction_of(entry)
        origin = xids.origin(Xid(xids.FORMAT_ID, entry.gtrid, b"\0\1"))
        if origin is None or not any(
            branch.state in UNFINISHED or branch.state in HEURISTIC for branch in now.branches
        ):
            self._decisions.note(Removed(entry.gtrid))
            return
        run = TransactionRun(self._context, origin.unique, entry.gtrid, entry.since_ms, now, False)
        self._runs[origin.unique] = run

    def _over(self, run: TransactionRun) -> None:
        self._runs.pop(run.unique, None)

    def _now_ms(self) -> int:
        return wall_ms(self._clock)
