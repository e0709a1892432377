"""Recovery of a resource manager: commit the decided, roll back the rest.

:meth:`Recovery.run` works in seven steps:

1. Ask the resource manager for the branches that it has prepared.
2. Keep those of this coordinator. Leave all others alone, and warn once of those that were made
   under its name elsewhere, or by a run that its log does not know.
3. Go through the transactions in the order in which they began, as messages keep their order so.
4. Find the transaction of each branch. One that is not known any more was not decided (presumed
   abort), unless the branch was presumed committed.
5. Leave alone what is not settled, for its link is at work on it, and what needs nothing. Commit or
   roll back the rest, or have it forgotten, as the transaction says.
6. Ask about the branches that wait for this resource manager and that it has not listed: it may have
   completed them, and the answer was lost.
7. Fail with the first error if anything is left to do. Else report what was done.

Branches are looked up when they are handled, not when the scan begins: whatever a link does
meanwhile, its transaction is known by then, or over; and what is over has no branch that could be
harmed. A prepare that still lies in the buffers of a broken connection is not listed; its branch is
rolled back at the next recovery after it has come to light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twisted.logger import Logger

from bridge.xa import xids
from bridge.xa.decision_log import Presumptions
from bridge.xa.status import BranchState
from bridge.xa.transaction_run import TransactionRun
from bridge.xa.transaction_state import HEURISTIC, Branch, Found, Missing, is_one_of_several
from gateway.messaging import xa
from gateway.messaging.errors import MessagingError, ProviderUnavailable, XAError
from gateway.messaging.provider import XAResource, Xid

#: What is to be done with branches that are left alone.
_REMEDY: Final = (
    "Its messages are locked until it is ended by hand at its broker, with the broker's own tools; at an embedded broker: imqcmd list txn, then "
    "imqcmd commit txn or imqcmd rollback txn"
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did.

    :param committed: branches that were decided.
    :param rolled_back: branches that were not.
    :param heuristic: branches that turned out to have been completed otherwise.
    """

    committed: int = 0
    rolled_back: int = 0
    heuristic: int = 0


class Recovery:
    """One run over one resource manager.

    :param ids: the coordinator's.
    :param presumed: likewise.
    :param runs: all transactions that are known, as they change.
    :param adopt: makes a transaction known again; None is one that was decided and did not have
        this branch.
    :param told: what was said before, as (rm, words); each is said once.
    """

    def __init__(
        self,
        ids: xids.Xids,
        runs: Mapping[xids.Unique, TransactionRun],
        adopt: Callable[[xids.Unique, bytes, Branch], TransactionRun | None],
        presumed: Presumptions,
        log: Logger,
        told: set[tuple[str, str]],
        ref_name: str,
        rm: str,
        resource: XAResource,
    ) -> None:
        self._ids = ids
        self._runs = runs
        self._adopt = adopt
        self._presumed = presumed
        self._log = log
        self._told = told
        self._ref_name = ref_name
        self._rm = rm
        self._resource = resource
        self._did = Recovered()
        self._handled: set[tuple[xids.Unique, int]] = set()
        self._left: MessagingError | None = None

    async def run(self) -> Recovered:
        """Recover. :raises ProviderUnavailable, XAError: something is left to do."""
        # 1. Ask for the prepared branches. 2. Keep those of this coordinator.
        prepared: dict[xids.Unique, list[Xid]] = {}
        for xid in await self._resource.recover():
            unique = self._mine(xid)
            if unique is not None:
                prepared.setdefault(unique, []).append(xid)
        # 3. The oldest transaction first.
        for unique in sorted(prepared):
            for xid in prepared[unique]:
                # 4. Find the transaction. 5. Complete the branch.
                found = self._transaction_of(unique, xid)
                if found is not None:
                    await self._complete(*found, xid)
        # 6. Ask about the branches that are waited for and were not listed.
        for run in sorted(self._runs.values(), key=lambda run: run.unique):
            await self._complete_unlisted(run)
        # 7. Report.
        if self._left is not None:
            raise self._left
        return self._did

    def _mine(self, xid: Xid) -> xids.Unique | None:
        """Return whose branch it is, if it is this coordinator's (step 2)."""
        origin = xids.origin(xid)
        if origin is None:
            return None
        gtrid = xids.gtrid_without_padding(xid.gtrid)
        run = self._runs.get(origin.unique)
        # A transaction that is known is this coordinator's, whichever run made it, and wherever.
        if (
            (run is not None and run.gtrid == gtrid)
            or self._presumed.of(gtrid)
            or self._ids.made(origin)
        ):
            return origin.unique
        if origin.identity in self._ids.former:
            self._warn_once(
                origin.identity.hex(),
                "'{ref_name}' holds branches that were prepared where this transaction log was before, or where its original is in use, and that are not "
                "decided in this one; they are left alone, such as {xid}. If the original is in use, it ends them. Else: {remedy}",
                xid=xids.rendered(xid),
                remedy=_REMEDY,
            )
        elif self._ids.mine(origin) or self._ids.cut_name == origin.name:
            self._warn_once(
                origin.identity.hex(),
                "'{ref_name}' holds branches of another installation that is called '{name}' too, or that this transaction log does not know, as it was lost "
                "or put back from an older copy; they are left alone, such as {xid}, as it is not known what was decided of them. {remedy}",
                name=origin.name,
                xid=xids.rendered(xid),
                remedy=_REMEDY,
            )
        return None

    def _transaction_of(self, unique: xids.Unique, xid: Xid) -> tuple[TransactionRun, int] | None:
        """Return a prepared branch's transaction and its place (step 4).

        None where it is to be left alone.
        """
        bqual = xids.without_padding(xid.bqual)
        ref_name = xids.ref_name(bqual) or self._ref_name
        branch = Branch(bqual, ref_name, self._rm, BranchState.LEFT, associations=0)
        gtrid = xids.gtrid_without_padding(xid.gtrid)
        run = self._runs.get(unique) or self._adopt(unique, gtrid, branch)
        if run is not None and not run.settled:
            return None
        if run is not None:
            for index, known in enumerate(run.now.branches):
                if known.bqual == bqual:
                    return run, index
            if not run.now.decided:
                run.tell(Found(branch))
                return run, len(run.now.branches) - 1
        self._warn_once(
            xids.rendered(xid),
            "'{ref_name}' holds branch {xid}, which transaction {id} did not have; it is left alone. {remedy}",
            id=unique.id,
            xid=xids.rendered(xid),
            remedy=_REMEDY,
        )
        return None

    async def _complete(self, run: TransactionRun, index: int, xid: Xid) -> None:
        """Commit, roll back or forget a prepared branch, if due (step 5)."""
        branch = run.now.branches[index]
        # Taken for committed on an operator's word, or for rolled back as another broker did not
        # know it, and it was not.
        again = (
            branch.state in (BranchState.COMMITTED, BranchState.ROLLED_BACK)
            and branch.asking is None
        )
        hazard = run.unheard_of(index)
        if hazard:
            self._log.warn(
                "Transaction {id}: '{ref_name}' holds branch {xid} after all, which was not known there when it was asked to commit it; it is committed, as was "
                "decided. What was to be sent in this transaction is in the dead message queues, too",
                id=run.id,
                ref_name=self._ref_name,
                xid=xids.rendered(xid),
            )
        if run.needs(index) or again or hazard:
            await self._reach(run, index, xid, holds=True)

    async def _complete_unlisted(self, run: TransactionRun) -> None:
        """Ask about waiting branches that a manager did not list (step 6)."""
        for index, branch in enumerate(run.now.branches):
            if (run.unique, index) in self._handled or not run.needs(index):
                continue
            same_rm, same_name = branch.rm == self._rm, branch.ref_name == self._ref_name
            if branch.state is BranchState.LEFT:
                if same_rm or same_name:
                    await self._reach(run, index, run.xid(branch.bqual), listed=False)
            elif is_one_of_several(branch.rm) and (same_rm or same_name):
                # It may have completed the branch, or be another than the one that holds it.
                if branch.state is BranchState.WAITING:
                    run.tell(Missing(index))
                self._warn_once(
                    xids.rendered(run.xid(branch.bqual)),
                    "Transaction {id} waits for '{ref_name}', which may lead to several brokers, and the one that is connected now does not hold its "
                    "branch; it goes on waiting. If its branch is committed or lost, order: imqbridgemgr commit transaction",
                    id=run.id,
                )
            elif same_rm:
                await self._reach(run, index, run.xid(branch.bqual))
            elif same_name:
                self._warn_once(
                    run.id + branch.rm,
                    "Transaction {id} waits for '{ref_name}', which was {before} and is {rm} now, and does not hold its branch; it goes on waiting. "
                    "If its branch is committed or lost, order: imqbridgemgr commit transaction",
                    id=run.id,
                    before=branch.rm,
                )

    async def _reach(
        self, run: TransactionRun, index: int, xid: Xid, listed: bool = True, holds: bool = False
    ) -> None:
        """Go on with a branch, and count what became of it.

        :param listed: whether it holds messages, as far as is known; if not, no link need wait for
            it.
        :param holds: whether the resource manager says that it has the branch.
        """
        self._handled.add((run.unique, index))
        answer = await run.reach(index, self._resource, xid, holds)
        branch, did = run.now.branches[index], self._did
        if answer.code == xa.XAER_RMFAIL:
            raise answer.error or ProviderUnavailable("the resource manager does not answer")
        if branch.state is BranchState.COMMITTED:
            self._did = replace(did, committed=did.committed + 1)
        elif branch.state is BranchState.ROLLED_BACK:
            self._did = replace(did, rolled_back=did.rolled_back + 1)
        elif branch.state in HEURISTIC:
            self._did = replace(did, heuristic=did.heuristic + 1)
        elif (
            listed
            and branch.state is not BranchState.FORGOTTEN
            # It may be another resource manager that it waits for.
            and not (branch.error == xa.XAER_NOTA and is_one_of_several(branch.rm))
            and self._left is None
        ):
            self._left = answer.error or XAError(
                answer.code, f"transaction {run.id} is not completed"
            )

    def _warn_once(self, key: str, words: str, **values: object) -> None:
        if (self._rm, key) not in self._told:
            self._told.add((self._rm, key))
            self._log.warn(words, ref_name=self._ref_name, rm=self._rm, **values)
