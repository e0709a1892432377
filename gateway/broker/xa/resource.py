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
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, fail, succeed

from gateway.broker.xa.branch import Branch, State
from gateway.broker.xa.registry import Branches, collect, doomed
from gateway.messaging.errors import MessagingError, NotSupported, XAError
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Deliver,
    Done,
    Flags,
    Subscription,
    Vote,
    XAResource,
    Xid,
)
from gateway.messaging.xa import XA_RBROLLBACK, XAER_INVAL, XAER_PROTO, xa_error

if TYPE_CHECKING:
    from gateway.broker.sessions.consumer import EmbeddedConsumer
    from gateway.broker.sessions.session import EmbeddedSession

_MOST_OCTETS: Final = 64
_STARTS: Final = (Flags.NOFLAGS, Flags.JOIN, Flags.RESUME)
_ENDS: Final = (Flags.SUCCESS, Flags.SUSPEND, Flags.FAIL)


class EmbeddedXAResource:
    """The XA calls of one session, whose transactions become branches.

    Made by its XA session.
    """

    def __init__(self, session: EmbeddedSession, known: Branches) -> None:
        self.session = session
        #: Branches that it has begun or joined, and that are neither prepared nor over.
        self.branches: dict[Branch, None] = {}
        self._known = known
        self._current: Branch | None = None
        session.gate = self._check_inside
        session.closing = self._closed

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._done(lambda: self._start(xid, flags))

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._done(lambda: self._end(xid, flags))

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        if (closed := self._unusable()) is not None:
            return fail(closed)
        return self._known.prepare(xid, self.session.routing.origin.user)

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        if (closed := self._unusable()) is not None:
            return fail(closed)
        return self._known.commit(xid, one_phase)

    def rollback(self, xid: Xid) -> Deferred[None]:
        if (closed := self._unusable()) is not None:
            return fail(closed)
        return self._known.rollback(xid)

    def recover(self) -> Deferred[Sequence[Xid]]:
        if (closed := self._unusable()) is not None:
            return fail(closed)
        return succeed(self._known.recover())

    def forget(self, xid: Xid) -> Deferred[None]:
        if (closed := self._unusable()) is not None:
            return fail(closed)
        return self._known.forget(xid)

    def is_same_rm(self, other: XAResource) -> Deferred[bool]:
        return succeed(isinstance(other, EmbeddedXAResource) and other._known is self._known)

    # --- associations

    def _start(self, xid: Xid, flags: Flags) -> None:
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
            suspended = branch.resources.get(self) is False
            if suspended is not (flags == Flags.RESUME):
                raise xa_error(
                    XAER_PROTO, xid, f"was {'' if suspended else 'not '}suspended by this session"
                )
            if branch.state is not State.ACTIVE:
                raise xa_error(XAER_PROTO, xid, "is prepared, or ends")
            if branch.code:
                raise doomed(branch)
        self._associate(branch, True)

    def _end(self, xid: Xid, flags: Flags) -> None:
        if flags not in _ENDS:
            raise xa_error(XAER_INVAL, xid, f"cannot be ended with flags {flags:#x}")
        branch = self._known.find(xid)
        how = branch.resources.get(self)
        if how is None or (how is False and flags == Flags.SUSPEND):
            raise xa_error(XAER_PROTO, xid, "is not associated with this session")
        if how:
            collect(branch, self.session)
        if branch.code:
            self._associate(branch, None)
            raise doomed(branch)
        self._associate(branch, False if flags == Flags.SUSPEND else None)
        if flags == Flags.FAIL:
            branch.code = XA_RBROLLBACK

    def _associate(self, branch: Branch, how: bool | None) -> None:
        branch.resources[self] = how
        self.branches[branch] = None
        if how or branch is self._current:
            self._current = branch if how else None
            self._known.associate(self.session, self._current)

    # --- the session's

    def _check_inside(self, what: str) -> None:
        """Check that the session is associated with a branch that may go on.

        :raises NotSupported: it is associated with no branch.
        :raises XAError: the branch can only be rolled back.
        """
        if self._current is None:
            raise NotSupported(f"{what} outside of a branch")
        if self._current.code:
            raise doomed(self._current)

    def _closed(self) -> None:
        """The session ends, and with it what it has not prepared."""
        for branch in list(self.branches):
            if branch.state is State.ACTIVE:
                if branch is self._current:
                    collect(branch, self.session)
                self._associate(branch, None)
                self._known.abandon(branch)
        self.branches.clear()

    def _unusable(self) -> MessagingError | None:
        try:
            self.session.check_open()
        except MessagingError as error:
            return error
        return None

    def _done(self, work: Callable[[], None]) -> Deferred[None]:
        try:
            self.session.check_open()
            work()
        except MessagingError as error:
            return fail(error)
        return succeed(None)


def _check(xid: Xid) -> None:
    """Check that an id is valid. :raises XAError: XAER_INVAL, it is not."""
    if xid.format_id < 0 or not (
        1 <= len(xid.gtrid) <= _MOST_OCTETS and 1 <= len(xid.bqual) <= _MOST_OCTETS
    ):
        raise XAError(
            XAER_INVAL,
            f"no branch can be called {xid}: expected a format id of 0 or more, and 1 to 64 octets twice",
        )


class EmbeddedXASession:
    """One XA session. Made by its connection.

    :param session: of mode TRANSACTED, used by this one only.
    """

    def __init__(self, session: EmbeddedSession, known: Branches) -> None:
        self._session = session
        self._resource = EmbeddedXAResource(session, known)

    def resource(self) -> XAResource:
        return self._resource

    def send(self, messages: Sequence[Message]) -> None:
        """As ``Session.send``.

        :raises NotSupported: outside of a branch.
        :raises XAError: the branch can only be rolled back.
        """
        self._session.send(messages)

    def writable(self) -> bool:
        return self._session.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._session.on_writable(resume)

    def consumer(
        self, spec: Subscription, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> EmbeddedConsumer:
        return self._session.consumer(spec, deliver, failed)

    def completion(self, done: Done) -> None:
        self._session.completion(done)

    def commit(self, done: Done) -> None:
        """Refuse: the resource commits branches (JTA 1.1, section 3.2.3).

        :raises NotSupported: always.
        """
        raise NotSupported("commit of an XA session, whose resource commits branches")

    def rollback(self, done: Done) -> None:
        """:raises NotSupported: always; the resource does it."""
        raise NotSupported("rollback of an XA session, whose resource rolls branches back")

    def recover(self) -> None:
        """As ``Session.recover``; what was acknowledged in branches stays theirs."""
        self._session.check_open()
        self._session.return_outstanding()

    def close(self) -> None:
        """As ``Session.close``.

        Branches that it took part in and that are not prepared are rolled back.
        """
        self._session.close()
