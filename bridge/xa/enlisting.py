"""A global transaction as a link has it: sessions are enlisted, then it is committed or rolled back.

Owns who takes part. What commit and rollback do is :mod:`bridge.xa.step`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from bridge import crash_points
from bridge.xa import codes, xids
from bridge.xa.course import Course
from bridge.xa.errors import Heuristic, Misuse, RolledBack, TooManyBranches
from bridge.xa.status import TransactionState
from bridge.xa.transaction import (
    HEURISTIC,
    UNFINISHED,
    Branch,
    Cause,
    CommitAsked,
    Joined,
    RollbackAsked,
    Started,
    StartFailed,
)
from gateway.messaging.errors import MessagingError, OutcomeUnknown
from gateway.messaging.provider import Flags, XAResource

#: The crash points of the first association and of the second.
_POINTS: Final = (crash_points.AFTER_START_1, crash_points.AFTER_START_2)


@dataclass(frozen=True, slots=True)
class Committed:
    """All is decided, and stays so.

    :param waiting: ``ref-name`` of the resource managers whose branch waits for their recovery; usually none.
    """

    waiting: tuple[str, ...] = ()


class Transaction:
    """A global transaction. Made by :meth:`~bridge.xa.coordinator.Coordinator.begin`, and over with :meth:`commit` or :meth:`rollback`, of which one
    must be called.

    :param passed: called at the crash points of enlisting; the course has the others.
    """

    def __init__(self, course: Course, passed: Callable[[str], None], log: Logger) -> None:
        #: As operators see and type it.
        self.id: Final = course.id
        self._course: Final = course
        self._passed: Final = passed
        self._log: Final = log
        self._turns: Final[dict[str, DeferredLock]] = {}
        self._enlisting = 0
        self._enlisted: Final[list[Deferred[None]]] = []
        self._numbers = 0
        self._started = 0

    @property
    def state(self) -> TransactionState:
        """Where it stands."""
        return self._course.now.state

    @property
    def over(self) -> bool:
        """Whether there is nothing left of it to be seen."""
        return self._course.over

    async def enlist(self, ref_name: str, rm: str, resource: XAResource) -> None:
        """Associate a session with this transaction; what is asked of that session from then on is work of it.

        Its resource manager gets a branch, or, where it has one already, the session joins that. A session that takes part already stays so. Several
        may be enlisted at once.

        :param ref_name: of the connection factory. :param rm: :attr:`~gateway.messaging.provider.Provider.resource`.
        :raises XAError, ProviderUnavailable: it cannot; then the transaction can only be rolled back.
        :raises TooManyBranches: :raises Misuse: commit or rollback was asked before.
        """
        if self._course.now.state is not TransactionState.ACTIVE:
            raise Misuse(f"transaction {self.id} is {self._course.now.state.value}: nobody can take part any more")
        self._enlisting += 1
        turn = self._turns.setdefault(rm, DeferredLock())
        try:
            await turn.acquire()
            try:
                await self._enlist(ref_name, rm, resource)
            finally:
                turn.release()
        finally:
            self._enlisting -= 1
            if not self._enlisting:
                waiting = self._enlisted[:]
                self._enlisted.clear()
                for done in waiting:
                    done.callback(None)

    async def _enlist(self, ref_name: str, rm: str, resource: XAResource) -> None:
        course = self._course
        branches = course.now.branches
        index = next((index for index, branch in enumerate(branches) if branch.rm == rm), None)
        if index is not None and any(one is resource for one in course.resources[index]):
            return
        if index is None:
            if self._numbers == xids.MOST_BRANCHES:
                raise TooManyBranches(self.id, xids.MOST_BRANCHES)
            self._numbers += 1
            bqual = xids.bqual(ref_name, self._numbers)
        else:
            bqual = branches[index].bqual
        try:
            await resource.start(course.xid(bqual), Flags.NOFLAGS if index is None else Flags.JOIN)
        except MessagingError as failed:
            course.tell(StartFailed(Cause(codes.code_of(failed), ref_name, failed)))
            raise
        if index is None:
            course.resources[len(course.now.branches)] = [resource]
            course.tell(Started(Branch(bqual, ref_name, rm)))
        else:
            course.resources[index].append(resource)
            course.tell(Joined(index))
        self._started += 1
        if self._started <= len(_POINTS):
            self._passed(_POINTS[self._started - 1])

    async def commit(self) -> Committed:
        """End the associations, then commit: by two phases, or by one where there is one branch.

        :raises RolledBack: nothing happened anywhere. :raises Heuristic: final and not clean.
        :raises OutcomeUnknown: there was one branch, and it is not known whether it was committed.
        :raises LogFailed: everything is prepared and stays so until the bridge is started anew.
        :raises Misuse: it, or a rollback, was asked before, or somebody is being enlisted.
        """
        if self._enlisting:
            raise Misuse(f"transaction {self.id} cannot be committed while somebody is being enlisted")
        self._course.tell(CommitAsked())
        await self._outcome()
        return self._committed()

    async def rollback(self) -> None:
        """Roll back all branches. Never fails: what cannot be reached is left to presumed abort. Waits where a commit is under way, and does
        nothing where it is over."""
        if self._enlisting:
            done: Deferred[None] = Deferred()
            self._enlisted.append(done)
            await done
        if self._course.now.state is TransactionState.ACTIVE:
            self._course.tell(RollbackAsked())
            await self._outcome()
            self._heuristic()
        else:
            await self._outcome()

    async def _outcome(self) -> None:
        """Wait for it. Whoever waits may be cancelled, and the transaction goes on."""
        if self._course.now.told and self._course.told.called:
            return
        waiting: Deferred[None] = Deferred()

        def told(result: None) -> None:
            if not waiting.called:
                waiting.callback(None)

        self._course.told.addCallback(told)
        await waiting

    def _committed(self) -> Committed:
        """What commit says, by the state."""
        now = self._course.now
        heuristic = self._heuristic()
        if heuristic is not None:
            raise heuristic
        cause = now.cause or Cause(codes.XAER_RMFAIL)
        why = cause.error or Misuse("nobody said why")
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

    def _heuristic(self) -> Heuristic | None:
        """What there is to say, and to log, of branches that a resource manager completed on its own against the others."""
        branches = self._course.now.branches
        if not any(branch.state in HEURISTIC for branch in branches):
            return None
        heuristic = Heuristic(self.id, {branch.ref_name: branch.state.value for branch in branches})
        self._log.error("{error}; it is listed until it is forgotten: imqbridgemgr forget transaction", error=str(heuristic))
        return heuristic
