"""What an administrator may do about prepared transaction branches.

This is for branches whose coordinator does not come back.

Owns these orders and the values that show branches. What a branch may do next is
:mod:`gateway.broker.xa.registry`'s.

An order is a *heuristic* decision: the coordinator may decide otherwise, and other resource
managers do what it says. So the branch is remembered, in the store too, until its coordinator or an
administrator forgets it, and the coordinator that asks is told what was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.xa.branch import Branch, State
from gateway.messaging.errors import XAError
from gateway.messaging.xa import XA_HEURCOM, xid_text
from gateway.reactor.deferreds import deferred


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch that is prepared, or was completed by an administrator.

    :param xid: by which it is named in orders: format id, global id and branch qualifier in
        hexadecimal, with points between.
    :param state: PREPARED, HEURISTIC_COMMIT or HEURISTIC_ROLLBACK.
    :param since_ms: when it was prepared, epoch milliseconds;
    :param age_ms: since then.
    :param sent: messages that it has sent, and
    :param acknowledged: messages that it has acknowledged; both 0 once it is completed, and without
        those that were not persistent after a restart.
    :param user: who has prepared it.
    """

    xid: str
    state: str
    since_ms: int
    age_ms: int
    sent: int
    acknowledged: int
    user: str


class BranchAdministration:
    """The operations. Called on the reactor's thread."""

    def __init__(self, provider: EmbeddedProvider) -> None:
        self._broker = provider.broker

    def branches(self) -> Sequence[BranchView]:
        """Branches prepared or completed by an administrator, oldest first."""
        now_ms = self._broker.turn.refresh()
        return [_view(branch, now_ms) for branch in self._broker.branches.prepared()]

    def commit(self, xid: str) -> Deferred[None]:
        """Commit a prepared branch; durable when it fires.

        Fails with AdministrationRefused where there is no such branch or it is completed, and with
        XAError.
        """
        return Deferred.fromCoroutine(self._decide(xid, True))

    def rollback(self, xid: str) -> Deferred[None]:
        """Roll a prepared branch back; otherwise as :meth:`commit`."""
        return Deferred.fromCoroutine(self._decide(xid, False))

    @deferred
    async def forget(self, xid: str) -> None:
        """Forget a branch that an administrator has completed.

        Durable when it fires. Fails with AdministrationRefused, XAError.
        """
        branch = self._find(
            xid,
            State.HEURISTIC,
            "is prepared: its coordinator may still end it; commit it or roll it back first",
        )
        await self._order(branch, self._broker.branches.forget(branch.xid))
        self._broker.log.info("branch {xid} is forgotten by an administrator", xid=xid)

    async def _decide(self, xid: str, commit: bool) -> None:
        branch = self._find(xid, State.PREPARED, "is completed already; it waits to be forgotten")
        await self._order(branch, self._broker.branches.decide(branch.xid, commit))
        what = "committed" if commit else "rolled back"
        self._broker.log.warn(
            "branch {xid} is {what} by an administrator, not by its coordinator", xid=xid, what=what
        )

    async def _order(self, branch: Branch, asked: Deferred[None]) -> None:
        try:
            await asked
        except XAError as error:
            raise AdministrationRefused(error.reason) from error

    def _find(self, xid: str, state: State, otherwise: str) -> Branch:
        for branch in self._broker.branches.prepared():
            if xid_text(branch.xid) == xid:
                if branch.state is not state:
                    raise AdministrationRefused(f"branch {xid} {otherwise}")
                return branch
        raise AdministrationRefused(f"there is no prepared branch {xid}")


def _view(branch: Branch, now_ms: int) -> BranchView:
    completed = branch.state is State.HEURISTIC
    outcome = "HEURISTIC_COMMIT" if branch.heuristic_code == XA_HEURCOM else "HEURISTIC_ROLLBACK"
    return BranchView(
        xid=xid_text(branch.xid),
        state=outcome if completed else "PREPARED",
        since_ms=branch.since_ms,
        age_ms=max(0, now_ms - branch.since_ms),
        sent=0 if completed else branch.sent,
        acknowledged=0 if completed else branch.acknowledged,
        user=branch.user,
    )
