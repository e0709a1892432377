"""Recovery of one resource manager: what was decided is committed there, what was not is rolled
back.

Owns what is looked for and in which order. Branches are looked up when they are handled, not when
the scan begins: whatever a link does meanwhile, its transaction is known by then, or over; and what
is over has no branch that could be harmed. Of a transaction whose prepare still lies in a broken
connection's buffers nobody knows; it is rolled back at the next recovery after it has come to
light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twisted.logger import Logger

from bridge.xa import xids
from bridge.xa.decision_log import Presumptions
from bridge.xa.status import BranchState
from bridge.xa.transaction import HEURISTIC, Branch, Found, Missing, is_one_of_several
from bridge.xa.transaction_run import TransactionRun
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

    :param committed: branches that were decided. :param rolled_back: branches that were not. :param
        heuristic: branches that turned out to have been completed otherwise.
    """

    committed: int = 0
    rolled_back: int = 0
    heuristic: int = 0


class Recovery:
    """One run over one resource manager.

    :param ids: the coordinator's. :param presumed: likewise.
    :param runs: all transactions that are known, as they change.
    :param adopt: makes a transaction known again; None is one that was decided and did not have
        this branch. :param told: what was said before, as (rm, words); each is said once.
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
        """Do it. :raises ProviderUnavailable, XAError: something is left to do."""
        scanned: dict[xids.Unique, list[Xid]] = {}
        for xid in await self._resource.recover():
            unique = self._mine(xid)
            if unique is not None:
                scanned.setdefault(unique, []).append(xid)
        # In the order in which they began, for messages keep their order so.
        for unique in sorted(scanned):
            for xid in scanned[unique]:
                await self._found(unique, xid)
        for run in sorted(self._runs.values(), key=lambda run: run.unique):
            await self._not_found(run)
        if self._left is not None:
            raise self._left
        return self._did

    def _mine(self, xid: Xid) -> xids.Unique | None:
        origin = xids.origin(xid)
        if origin is None:
            return None
        gtrid = xids.gtrid_without_padding(xid.gtrid)
        run = self._runs.get(origin.unique)
        # What is known of one is known, whichever run it is of, and wherever that was.
        if (
            (run is not None and run.gtrid == gtrid)
            or self._presumed.of(gtrid)
            or self._ids.made(origin)
        ):
            return origin.unique
        if origin.identity in self._ids.former:
            self._once(
                origin.identity.hex(),
                "'{ref_name}' holds branches that were prepared where this transaction log was before, or where its original is in use, and that are not "
                "decided in this one; they are left alone, such as {xid}. If the original is in use, it ends them. Else: {remedy}",
                xid=xids.shown(xid),
                remedy=_REMEDY,
            )
        elif self._ids.mine(origin) or self._ids.cut_name == origin.name:
            self._once(
                origin.identity.hex(),
                "'{ref_name}' holds branches of another installation that is called '{name}' too, or that this transaction log does not know, as it was lost "
                "or put back from an older copy; they are left alone, such as {xid}, as nobody knows what was decided of them. {remedy}",
                name=origin.name,
                xid=xids.shown(xid),
                remedy=_REMEDY,
            )
        return None

    async def _found(self, unique: xids.Unique, xid: Xid) -> None:
        """A branch that the resource manager has."""
        bqual = xids.without_padding(xid.bqual)
        branch = Branch(
            bqual,
            xids.ref_name(bqual) or self._ref_name,
            self._rm,
            BranchState.LEFT,
            associations=0,
        )
        gtrid = xids.gtrid_without_padding(xid.gtrid)
        run = self._runs.get(unique) or self._adopt(unique, gtrid, branch)
        if run is None:
            self._not_its_own(unique.id, xid)
            return
        if not run.settled:
            return
        index = next(
            (index for index, branch in enumerate(run.now.branches) if branch.bqual == bqual),
            None,
        )
        if index is None:
            if run.now.decided:
                self._not_its_own(run.id, xid)
                return
            index = len(run.now.branches)
            run.tell(Found(branch))
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
                xid=xids.shown(xid),
            )
        if run.needs(index) or again or hazard:
            await self._reach(run, index, xid, holds=True)

    def _not_its_own(self, id: str, xid: Xid) -> None:
        self._once(
            xids.shown(xid),
            "'{ref_name}' holds branch {xid}, which transaction {id} did not have; it is left alone. {remedy}",
            id=id,
            xid=xids.shown(xid),
            remedy=_REMEDY,
        )

    async def _not_found(self, run: TransactionRun) -> None:
        """Those that wait for this resource manager and that it does not list: it may have
        completed them, and the answer was lost.
        """
        for index, branch in enumerate(run.now.branches):
            if (run.unique, index) in self._handled or not run.needs(index):
                continue
            if branch.state is BranchState.LEFT:
                if branch.rm == self._rm or branch.ref_name == self._ref_name:
                    await self._reach(run, index, run.xid(branch.bqual), listed=False)
            elif is_one_of_several(branch.rm) and (
                branch.rm == self._rm or branch.ref_name == self._ref_name
            ):
                self._missing(run, index, branch)
            elif branch.rm == self._rm:
                await self._reach(run, index, run.xid(branch.bqual))
            elif branch.ref_name == self._ref_name:
                self._once(
                    run.id + branch.rm,
                    "Transaction {id} waits for '{ref_name}', which was {before} and is {rm} now, and does not hold its branch; it goes on waiting. "
                    "If its branch is committed or lost, order: imqbridgemgr commit transaction",
                    id=run.id,
                    before=branch.rm,
                )

    def _missing(self, run: TransactionRun, index: int, branch: Branch) -> None:
        """It may have completed the branch, or be another than the one that holds it."""
        if branch.state is BranchState.WAITING:
            run.tell(Missing(index))
        self._once(
            xids.shown(run.xid(branch.bqual)),
            "Transaction {id} waits for '{ref_name}', which may lead to several brokers, and the one that is connected now does not hold its "
            "branch; it goes on waiting. If its branch is committed or lost, order: imqbridgemgr commit transaction",
            id=run.id,
        )

    async def _reach(
        self, run: TransactionRun, index: int, xid: Xid, listed: bool = True, holds: bool = False
    ) -> None:
        """:param listed: whether it holds messages, as far as is known; if not, nobody need wait
        for it. :param holds: whether it says that it has the branch.
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
            and not self._unknown(branch)
            and self._left is None
        ):
            self._left = answer.error or XAError(
                answer.code, f"transaction {run.id} is not completed"
            )

    def _unknown(self, branch: Branch) -> bool:
        """Whether it may be another resource manager that it waits for."""
        return branch.error == xa.XAER_NOTA and is_one_of_several(branch.rm)

    def _once(self, key: str, words: str, **values: object) -> None:
        if (self._rm, key) not in self._told:
            self._told.add((self._rm, key))
            self._log.warn(words, ref_name=self._ref_name, rm=self._rm, **values)
