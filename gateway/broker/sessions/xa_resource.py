"""The resource manager's side of XA for one session.

Implements ``messaging.provider.XAResource``.

Owns which branch the session is associated with, and the flags of ``start`` and ``end``. What a
branch may do next is :mod:`gateway.broker.xa.registry`'s.

A session is associated with one branch at a time, and may have suspended others. Sessions of any
connections of this broker may join in one branch, at the same time or one after the other. A
session that began or joined it, and ends before it is prepared, ends the branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.sessions.session import EmbeddedSession
from gateway.broker.xa.branch import Association, Branch, State
from gateway.broker.xa.registry import Branches, collect, rollback_only
from gateway.messaging.errors import MessagingError, NotSupported, XAError
from gateway.messaging.provider import Flags, Vote, XAResource, Xid
from gateway.messaging.xa import XA_RBROLLBACK, XAER_INVAL, XAER_PROTO, xa_error

_Answer = TypeVar("_Answer")

_MOST_OCTETS: Final = 64
_STARTS: Final = (Flags.NOFLAGS, Flags.JOIN, Flags.RESUME)
_ENDS: Final = (Flags.SUCCESS, Flags.SUSPEND, Flags.FAIL)


class EmbeddedXAResource:
    """The XA calls of one session, whose transactions become branches.

    :param session: of mode TRANSACTED. What it does from now on belongs to branches.
    """

    def __init__(self, session: EmbeddedSession, known: Branches) -> None:
        self.session = session
        #: Branches that it has begun or joined, and that are neither prepared nor over.
        self.branches: dict[Branch, None] = {}
        self._known = known
        self._current: Branch | None = None
        session.xa_resource = self
        session.gate = self._check_inside
        session.closing = self._closed

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._while_open(lambda: self._start(xid, flags))

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._while_open(lambda: self._end(xid, flags))

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        user = self.session.routing.origin.user
        return self._while_open(lambda: self._known.prepare(xid, user))

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        return self._while_open(lambda: self._known.commit(xid, one_phase))

    def rollback(self, xid: Xid) -> Deferred[None]:
        return self._while_open(lambda: self._known.rollback(xid))

    def recover(self) -> Deferred[Sequence[Xid]]:
        return self._while_open(lambda: succeed(self._known.recover()))

    def forget(self, xid: Xid) -> Deferred[None]:
        return self._while_open(lambda: self._known.forget(xid))

    def is_same_rm(self, other: XAResource) -> Deferred[bool]:
        return succeed(isinstance(other, EmbeddedXAResource) and other._known is self._known)

    # --- associations

    def _start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        if flags not in _STARTS:
            raise xa_error(XAER_INVAL, xid, f"cannot be started with flags {flags:#x}")
        _check(xid)
        if self._current is not None:
            raise xa_error(
                XAER_PROTO, xid, "cannot be started: the session is associated with another branch"
            )
        if flags == Flags.NOFLAGS:
            branch = self._known.begin(xid)
        else:
            branch = self._known.find(xid)
            suspended = branch.resources.get(self) is Association.SUSPENDED
            if suspended is not (flags == Flags.RESUME):
                raise xa_error(
                    XAER_PROTO, xid, f"was {'' if suspended else 'not '}suspended by this session"
                )
            if branch.state is not State.ACTIVE:
                raise xa_error(XAER_PROTO, xid, "is prepared, or ends")
            if branch.rollback_code:
                raise rollback_only(branch)
        self._associate(branch, Association.ASSOCIATED)
        return succeed(None)

    def _end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        if flags not in _ENDS:
            raise xa_error(XAER_INVAL, xid, f"cannot be ended with flags {flags:#x}")
        branch = self._known.find(xid)
        how = branch.resources.get(self)
        if how in (None, Association.ENDED) or (
            how is Association.SUSPENDED and flags == Flags.SUSPEND
        ):
            raise xa_error(XAER_PROTO, xid, "is not associated with this session")
        if how is Association.ASSOCIATED:
            collect(branch, self.session)
        if branch.rollback_code:
            self._associate(branch, Association.ENDED)
            raise rollback_only(branch)
        suspend = flags == Flags.SUSPEND
        self._associate(branch, Association.SUSPENDED if suspend else Association.ENDED)
        if flags == Flags.FAIL:
            branch.rollback_code = XA_RBROLLBACK
        return succeed(None)

    def _associate(self, branch: Branch, how: Association) -> None:
        branch.resources[self] = how
        self.branches[branch] = None
        associated = how is Association.ASSOCIATED
        if associated or branch is self._current:
            self._current = branch if associated else None
            self._known.associate(self.session, self._current)

    # --- the session's

    def _check_inside(self, what: str) -> None:
        """Check that the session is associated with a branch that may go on.

        :raises NotSupported: it is associated with no branch.
        :raises XAError: the branch can only be rolled back.
        """
        if self._current is None:
            raise NotSupported(f"{what} outside of a branch")
        if self._current.rollback_code:
            raise rollback_only(self._current)

    def _closed(self) -> None:
        """The session ends, and with it what it has not prepared."""
        for branch in list(self.branches):
            if branch.state is State.ACTIVE:
                if branch is self._current:
                    collect(branch, self.session)
                self._associate(branch, Association.ENDED)
                self._known.abandon(branch)
        self.branches.clear()

    def _while_open(self, call: Callable[[], Deferred[_Answer]]) -> Deferred[_Answer]:
        try:
            self.session.check_open()
            return call()
        except MessagingError as error:
            return fail(error)


def _check(xid: Xid) -> None:
    """Check that an id is valid. :raises XAError: XAER_INVAL, it is not."""
    if xid.format_id < 0 or not (
        1 <= len(xid.gtrid) <= _MOST_OCTETS and 1 <= len(xid.bqual) <= _MOST_OCTETS
    ):
        raise XAError(
            XAER_INVAL,
            f"no branch can be called {xid}: expected a format id of 0 or more, and 1 to 64 octets twice",
        )
