"""The transaction branches of one broker, by their ids.

It knows which call is allowed when, and X/Open's answer to one that is not.

Owns the registry, the states, the time-outs. What a call does to messages is
:mod:`gateway.broker.xa.work`'s, which session is associated with what is
:mod:`gateway.broker.sessions.xa_resource`'s.

Calls for one branch run one after the other. A full disk
refuses to prepare a branch that has sent something, which is a rollback, and delays a commit in one
phase that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from gateway.broker.acceptance.one_phase import Told
from gateway.broker.core.consumers.consumer import ConsumerOwner
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.store.interface import BranchRow, StoreError
from gateway.broker.timing.schedule import Schedule
from gateway.broker.xa.branch import Association, Branch, BranchSession, Part, State
from gateway.broker.xa.reminders import BranchReminders
from gateway.broker.xa.work import BranchWork, give_up
from gateway.messaging.errors import MessagingError, XAError
from gateway.messaging.provider import Vote, Xid
from gateway.messaging.xa import (
    XA_HEURCOM,
    XA_HEURRB,
    XA_RBROLLBACK,
    XA_RBTIMEOUT,
    XAER_DUPID,
    XAER_NOTA,
    XAER_PROTO,
    XAER_RMERR,
    XAER_RMFAIL,
    xa_error,
    xid_text,
)
from gateway.reactor.turn import Turn

_log: Final = Logger(namespace="gateway.broker")

_Answer = TypeVar("_Answer")

#: Looks at the clock in one time-out.
_LOOKS: Final = 4


class Branches:
    """Every branch that this resource manager knows.

    :param timeout: seconds after which work that was not prepared is rolled back; 0 for never.
    :param soon: does something at the end of the turn.
    """

    def __init__(
        self,
        turn: Turn,
        schedule: Schedule,
        commits: GroupCommit,
        work: BranchWork,
        timeout: int,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._turn = turn
        self._schedule = schedule
        self._commits = commits
        self.work = work
        self._timeout = timeout
        self._at_end_of_turn = soon
        self._branches: dict[Xid, Branch] = {}
        self._next_id = 1
        self._looking = False
        #: Sessions that are associated with a branch now.
        self._at_work: dict[object, Branch] = {}
        self._reminders = BranchReminders(turn, schedule, self.prepared)

    # --- for those who associate sessions

    def find(self, xid: Xid) -> Branch:
        """Find a branch. :raises XAError: XAER_NOTA, it is not known."""
        branch = self._branches.get(xid)
        if branch is None:
            raise xa_error(XAER_NOTA, xid, "is not known here")
        return branch

    def begin(self, xid: Xid) -> Branch:
        """A new branch. :raises XAError: XAER_DUPID, it is known already."""
        if xid in self._branches:
            raise xa_error(XAER_DUPID, xid, "is known already")
        branch = self._branches[xid] = Branch(xid, self._turn.refresh())
        self._look_later()
        return branch

    def associate(self, session: BranchSession, branch: Branch | None) -> None:
        """Let what the session does from now on belong to this branch.

        With None, it belongs to no branch.
        """
        if branch is None:
            self._at_work.pop(session, None)
        else:
            self._at_work[session] = branch

    def is_idle(self, session: ConsumerOwner) -> bool:
        """Whether the session is associated with no branch."""
        return session not in self._at_work

    def abandon(self, branch: Branch) -> None:
        """Roll back a branch when a session that took part has ended.

        The branch was not prepared, and never will be.
        """
        self._undo(branch)
        if branch.associated:
            branch.rollback_code = branch.rollback_code or XA_RBROLLBACK
        else:
            self._remove(branch)

    # --- XA

    def prepare(self, xid: Xid, user: str) -> Deferred[Vote]:
        """Prepare; when it fires with OK, the branch outlives everything.

        A branch without work has no second phase.

        :param user: who asks.

        Fails with XA_RBROLLBACK where limits, access rules or a full disk refuse it now, or with
        why it had to be rolled back before.
        """

        def work(branch: Branch) -> Deferred[Vote]:
            self._check_idle(branch)
            self._check_not_rollback_only(branch)
            if not branch.parts:
                self._remove(branch)
                return succeed(Vote.READ_ONLY)
            branch.id, branch.user = self._next_id, user
            branch.since_ms = self._turn.refresh()

            def prepared() -> None:
                branch.state = State.PREPARED
                branch.parts.clear()
                self._detach(branch)
                self._reminders.prepared(branch)

            done = self._end_work(branch, self.work.prepare, Vote.OK, prepared)
            self._next_id += 1
            return done

        return self._ask(xid, work)

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        """Commit; durable when it fires."""
        commit = self._commit_one_phase if one_phase else partial(self._decide, True, 0)
        return self._ask(xid, commit)

    def _commit_one_phase(self, branch: Branch) -> Deferred[None]:
        self._check_idle(branch)
        self._check_not_rollback_only(branch)
        return self._end_work(
            branch, self.work.commit_one_phase, None, partial(self._remove, branch)
        )

    def _end_work(
        self,
        branch: Branch,
        work: Callable[[Branch, Told], None],
        answer: _Answer,
        over: Callable[[], None],
    ) -> Deferred[_Answer]:
        """Do the last ``work`` of an active branch; ``over`` once it is durable."""
        try:
            done = self._answered(branch, partial(work, branch), answer, over)
        except MessagingError as error:
            raise self._refused(branch, error) from error
        branch.state = State.ENDING
        return done

    def _answered(
        self,
        branch: Branch,
        work: Callable[[Told], None],
        answer: _Answer,
        over: Callable[[], None],
    ) -> Deferred[_Answer]:
        """Do ``work``; when it is durable do ``over``, and tell."""
        done: Deferred[_Answer] = Deferred()

        def told(error: StoreError | None) -> None:
            if error is None:
                over()
            self._answer(branch, done, answer, error)

        work(told)
        branch.waiting = []
        return done

    def _decide(self, commit: bool, heuristic: int, branch: Branch) -> Deferred[None]:
        self._check_prepared(branch)
        return self._end(branch, commit, heuristic)

    def rollback(self, xid: Xid) -> Deferred[None]:
        """Roll back; if it was prepared, durable when it fires."""

        def work(branch: Branch) -> Deferred[None]:
            self._check_not_heuristic(branch)
            if branch.state is State.PREPARED:
                return self._end(branch, False, 0)
            self._check_idle(branch)
            self._roll_back(branch)
            done: Deferred[None] = Deferred()
            self._at_end_of_turn(lambda: done.callback(None))
            return done

        return self._ask(xid, work)

    def forget(self, xid: Xid) -> Deferred[None]:
        """Forget a branch that was completed heuristically; durable when it fires."""

        def work(branch: Branch) -> Deferred[None]:
            if branch.state is not State.HEURISTIC:
                raise xa_error(XAER_PROTO, branch.xid, "was not completed heuristically")
            self._commits.remove_branch(branch.id)
            return self._answered(branch, self._commits.wait, None, partial(self._remove, branch))

        return self._ask(xid, work)

    def recover(self) -> Sequence[Xid]:
        """Branches that are prepared or were completed heuristically."""
        return [branch.xid for branch in self.prepared()]

    # --- for administrators

    def prepared(self) -> Sequence[Branch]:
        """The same, the oldest first."""
        found = [
            branch
            for branch in self._branches.values()
            if branch.state in (State.PREPARED, State.HEURISTIC)
        ]
        return sorted(found, key=lambda branch: branch.id)

    def decide(self, xid: Xid, commit: bool) -> Deferred[None]:
        """End a prepared branch without its coordinator; durable when it fires.

        A coordinator that asks is told so, until it forgets the branch.
        """
        code = XA_HEURCOM if commit else XA_HEURRB
        return self._ask(xid, partial(self._decide, commit, code))

    # --- recovery

    def restore(self, branch: Branch) -> None:
        """A branch that the store knows."""
        self._next_id = max(self._next_id, branch.id + 1)
        self._branches[branch.xid] = branch
        if branch.state is State.PREPARED:
            self._reminders.prepared(branch)

    # --- what may be asked

    def _ask(self, xid: Xid, work: Callable[[Branch], Deferred[_Answer]]) -> Deferred[_Answer]:
        try:
            branch = self.find(xid)
            if branch.waiting is None:
                return work(branch)
        except XAError as error:
            return fail(error)
        later: Deferred[_Answer] = Deferred()

        def go_on() -> None:
            self._ask(xid, work).chainDeferred(later)

        branch.waiting.append(go_on)
        return later

    def _check_idle(self, branch: Branch) -> None:
        self._check_not_heuristic(branch)
        if branch.state is State.PREPARED:
            raise xa_error(XAER_PROTO, branch.xid, "is prepared already")
        if branch.associated:
            raise xa_error(
                XAER_PROTO, branch.xid, "is associated with a session, which has not ended that"
            )

    def _check_not_rollback_only(self, branch: Branch) -> None:
        if branch.rollback_code:
            self._roll_back(branch)
            raise rollback_only(branch)

    def _check_prepared(self, branch: Branch) -> None:
        self._check_not_heuristic(branch)
        if branch.state is not State.PREPARED:
            raise xa_error(XAER_PROTO, branch.xid, "is not prepared")

    def _check_not_heuristic(self, branch: Branch) -> None:
        if branch.state is State.HEURISTIC:
            done = "committed" if branch.heuristic_code == XA_HEURCOM else "rolled back"
            raise xa_error(
                branch.heuristic_code,
                branch.xid,
                f"was {done} by an administrator, and waits to be forgotten",
            )

    # --- what follows

    def _end(self, branch: Branch, commit: bool, heuristic: int) -> Deferred[None]:
        branch.waiting = []
        done: Deferred[None] = Deferred()
        row: BranchRow | None = branch.row(heuristic, (), ()) if heuristic else None

        def told(error: StoreError | None) -> None:
            if error is None and heuristic:
                branch.state, branch.heuristic_code = State.HEURISTIC, heuristic
            elif error is None:
                self._remove(branch)
            self._answer(branch, done, None, error)

        def ready() -> None:
            if commit and branch.unread_sends:
                lost = len(branch.unread_sends)
                error = xa_error(
                    XAER_RMERR,
                    branch.xid,
                    f"has sent {lost} messages that cannot be read from the store; the log says why",
                )
                self._answer(branch, done, None, error)
            elif commit:
                self.work.commit_prepared(branch, row, told)
            else:
                self.work.rollback_prepared(branch, row, told, self.is_idle)

        self.work.read(branch, ready)
        return done

    def _answer(
        self,
        branch: Branch,
        done: Deferred[_Answer],
        answer: _Answer,
        error: StoreError | XAError | None,
    ) -> None:
        """A call has ended: tell, then let those behind it go on."""
        waiting, branch.waiting = branch.waiting, None
        if error is None:
            done.callback(answer)
        elif isinstance(error, XAError):
            done.errback(error)
        else:
            done.errback(xa_error(XAER_RMFAIL, branch.xid, f"may have ended or not: {error}"))
        for go_on in waiting or ():
            go_on()

    def _refused(self, branch: Branch, error: MessagingError) -> XAError:
        self._roll_back(branch)
        return xa_error(XA_RBROLLBACK, branch.xid, f"is rolled back: {error}")

    def _roll_back(self, branch: Branch) -> None:
        self._undo(branch)
        self._remove(branch)

    def _undo(self, branch: Branch) -> None:
        sessions = []
        for resource, how in branch.resources.items():
            if how is Association.ASSOCIATED:
                collect(branch, resource.session)
            if self._at_work.get(resource.session, branch) is branch:
                sessions.append(resource.session)
        parts, branch.parts = branch.parts, []
        self.work.uncount(branch)
        give_up(parts, sessions)

    def _remove(self, branch: Branch) -> None:
        del self._branches[branch.xid]
        self.work.uncount(branch)
        self._detach(branch)

    def _detach(self, branch: Branch) -> None:
        for resource in branch.resources:
            resource.branches.pop(branch, None)
        branch.resources.clear()

    # --- time-outs

    def _look_later(self) -> None:
        timeout = self._timeout
        if timeout and not self._looking:
            self._looking = True
            self._schedule.after(timeout * 1000 // _LOOKS, self._look)

    def _look(self) -> None:
        self._looking = False
        active = [branch for branch in self._branches.values() if branch.state is State.ACTIVE]
        for branch in active:
            if branch.at_work and not branch.rollback_code:
                branch.ticks += 1
                if branch.ticks > _LOOKS:
                    self._time_out(branch)
        if active:
            self._look_later()

    def _time_out(self, branch: Branch) -> None:
        _log.warn(
            "branch {xid} is rolled back: it has had work for more than {seconds} seconds and was not prepared",
            xid=xid_text(branch.xid),
            seconds=self._timeout,
        )
        branch.rollback_code = XA_RBTIMEOUT
        self._undo(branch)


def collect(branch: Branch, session: BranchSession) -> None:
    """What the session has done since it was associated is the branch's."""
    work = session.hand_over()
    branch.octets += work.octets
    if work.sends or work.acknowledged:
        branch.parts.append(Part(session, work.sends, work.acknowledged))


def rollback_only(branch: Branch) -> XAError:
    """Why the branch can only be rolled back."""
    why = "has timed out" if branch.rollback_code == XA_RBTIMEOUT else "can only be rolled back"
    return xa_error(branch.rollback_code, branch.xid, why)
