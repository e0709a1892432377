"""Resource managers that keep the rules of the X/Open specification, and the lines to them, which
are slow, forgetful and break.

A resource manager has messages, and branches that take and put some. What it has prepared or
decided survives its crashes; the rest does not. A session is a line: requests travel to the
resource manager and answers back, one after the other, when the test says so, or at once. A line
that breaks may have requests on the way that arrive later.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred

from gateway.messaging.errors import MessagingError, ProviderUnavailable, XAError
from gateway.messaging.provider import Flags, Vote, Xid

XA_RBROLLBACK, XA_RETRY, XA_HEURMIX, XA_HEURRB, XA_HEURCOM, XA_HEURHAZ = 100, 4, 5, 6, 7, 8
XAER_RMERR, XAER_NOTA, XAER_INVAL, XAER_PROTO, XAER_RMFAIL, XAER_DUPID = -3, -4, -5, -6, -7, -8


@dataclass
class Work:
    """A branch: what it has taken and put.

    :param sessions: those associated with it now.
    :param owners: those that ever were.
    """

    taken: list[int] = field(default_factory=list)
    put: list[int] = field(default_factory=list)
    sessions: set[Session] = field(default_factory=set)
    owners: set[Session] = field(default_factory=set)
    doomed: bool = False


class ResourceManager:
    """A queue of messages with XA.

    :param rm: what names it.
    :param messages: that it has at first.
    """

    def __init__(self, rm: str, messages: Sequence[int] = ()) -> None:
        self.rm = rm
        self.messages = list(messages)
        self.active: dict[Xid, Work] = {}
        self.prepared: dict[Xid, Work] = {}
        self.heuristics: dict[Xid, int] = {}
        #: Branches committed, by global transaction.
        self.committed: Counter[bytes] = Counter()
        #: Every call that arrived, for tests.
        self.calls: list[str] = []
        #: What to answer instead of doing the call named, once.
        self.refusals: dict[str, list[Exception]] = {}
        self.up = True

    def call(self, session: Session, name: str, arguments: Sequence[Any]) -> Any:
        self.calls.append(name)
        if not self.up:
            raise ProviderUnavailable(f"{self.rm} is down")
        if self.refusals.get(name):
            raise self.refusals[name].pop(0)
        return getattr(self, f"_{name}")(session, *arguments)

    def crash(self) -> None:
        """Everything volatile is gone."""
        for work in self.active.values():
            self._undo(work)
        self.active.clear()

    def disconnect(self, session: Session) -> None:
        """What the session did and has not prepared is rolled back."""
        for xid in [xid for xid, work in self.active.items() if session in work.owners]:
            self._undo(self.active.pop(xid))

    def decide(self, xid: Xid, code: int) -> None:
        """Heuristically."""
        work = self.prepared.pop(xid)
        if code == XA_HEURCOM:
            self._apply(xid, work)
        else:
            self._undo(work)
        self.heuristics[xid] = code

    def branch_of(self, session: Session) -> Work:
        work = next((work for work in self.active.values() if session in work.sessions), None)
        if work is None:
            raise XAError(XAER_PROTO, "work outside of a branch")
        return work

    def _start(self, session: Session, xid: Xid, flags: Flags) -> None:
        if any(session in work.sessions for work in self.active.values()):
            raise XAError(XAER_PROTO, "the session is associated already")
        known = xid in self.active or xid in self.prepared or xid in self.heuristics
        if flags is Flags.JOIN:
            if xid not in self.active:
                raise XAError(XAER_PROTO if known else XAER_NOTA, "join what")
        elif known:
            raise XAError(XAER_DUPID, "twice")
        work = self.active.setdefault(xid, Work())
        work.sessions.add(session)
        work.owners.add(session)

    def _end(self, session: Session, xid: Xid, flags: Flags) -> None:
        work = self.active.get(xid)
        if work is None:
            raise XAError(XAER_NOTA, "end what")
        if session not in work.sessions:
            raise XAError(XAER_PROTO, "not associated")
        work.sessions.discard(session)
        work.doomed = work.doomed or flags is Flags.FAIL

    def _idle(self, xid: Xid) -> Work:
        work = self.active.get(xid)
        if work is None:
            raise XAError(XAER_NOTA, "no such branch")
        if work.sessions:
            raise XAError(XAER_PROTO, "sessions are associated with it")
        return work

    def _prepare(self, session: Session, xid: Xid) -> Vote:
        if xid in self.prepared or xid in self.heuristics:
            raise XAError(XAER_PROTO, "prepared already")
        work = self._idle(xid)
        del self.active[xid]
        if work.doomed:
            self._undo(work)
            raise XAError(XA_RBROLLBACK, "it was doomed")
        if not work.taken and not work.put:
            return Vote.READ_ONLY
        self.prepared[xid] = work
        return Vote.OK

    def _commit(self, session: Session, xid: Xid, one_phase: bool) -> None:
        if xid in self.heuristics:
            raise XAError(self.heuristics[xid], "decided on its own")
        if xid in self.prepared:
            if one_phase:
                raise XAError(XAER_PROTO, "prepared")
            self._apply(xid, self.prepared.pop(xid))
            return
        work = self._idle(xid)
        if not one_phase:
            raise XAError(XAER_PROTO, "not prepared")
        del self.active[xid]
        if work.doomed:
            self._undo(work)
            raise XAError(XA_RBROLLBACK, "it was doomed")
        self._apply(xid, work)

    def _rollback(self, session: Session, xid: Xid) -> None:
        if xid in self.heuristics:
            raise XAError(self.heuristics[xid], "decided on its own")
        if xid in self.prepared:
            self._undo(self.prepared.pop(xid))
            return
        work = self._idle(xid)
        del self.active[xid]
        self._undo(work)

    def _recover(self, session: Session) -> Sequence[Xid]:
        return [*self.prepared, *self.heuristics]

    def _forget(self, session: Session, xid: Xid) -> None:
        if xid in self.prepared or xid in self.active:
            raise XAError(XAER_PROTO, "not complete")
        if xid not in self.heuristics:
            raise XAError(XAER_NOTA, "forget what")
        del self.heuristics[xid]

    def _is_same_rm(self, session: Session, other: Any) -> bool:
        return isinstance(other, Session) and other.manager is self

    def _take(self, session: Session) -> int | None:
        work = self.branch_of(session)
        if not self.messages:
            return None
        work.taken.append(self.messages.pop(0))
        return work.taken[-1]

    def _put(self, session: Session, message: int) -> None:
        self.branch_of(session).put.append(message)

    def _apply(self, xid: Xid, work: Work) -> None:
        self.messages += work.put
        self.committed[xid.gtrid] += 1

    def _undo(self, work: Work) -> None:
        self.messages[:0] = work.taken


@dataclass
class Request:
    """A call on its way. :param answer: None where nobody waits any more."""

    name: str
    arguments: Sequence[Any]
    answer: Deferred[Any] | None


class Session:
    """An XAResource, at the near end of a line to a resource manager.

    :param at_once: requests are done and answered inside of the call; else by :meth:`arrive` and
        :meth:`answer`.
    """

    def __init__(self, manager: ResourceManager, at_once: bool = True) -> None:
        self.manager = manager
        self.requests: deque[Request] = deque()
        self.answers: deque[tuple[Deferred[Any], Any]] = deque()
        self.broken = False
        #: The far end does not know yet that it is broken.
        self.lingering = False
        self.never_told: list[Deferred[Any]] = []
        self._at_once = at_once

    # what a provider gives

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self.ask("start", xid, flags)

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self.ask("end", xid, flags)

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        return self.ask("prepare", xid)

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        return self.ask("commit", xid, one_phase)

    def rollback(self, xid: Xid) -> Deferred[None]:
        return self.ask("rollback", xid)

    def recover(self) -> Deferred[Sequence[Xid]]:
        return self.ask("recover")

    def forget(self, xid: Xid) -> Deferred[None]:
        return self.ask("forget", xid)

    def is_same_rm(self, other: Any) -> Deferred[bool]:
        return self.ask("is_same_rm", other)

    def take(self) -> Deferred[int | None]:
        return self.ask("take")

    def put(self, message: int) -> Deferred[None]:
        return self.ask("put", message)

    def ask(self, name: str, *arguments: Any) -> Deferred[Any]:
        if self.broken:
            raise ProviderUnavailable("the line is broken")
        answer: Deferred[Any] = Deferred()
        self.requests.append(Request(name, arguments, answer))
        if self._at_once:
            self.go()
        return answer

    # what the world does

    def arrive(self, times: int = 1) -> None:
        """The next request reaches the resource manager.

        :param times: more than once, where it was sent again; the last answer counts.
        """
        request = self.requests.popleft()
        for _ in range(times):
            try:
                result: Any = self.manager.call(self, request.name, request.arguments)
            except MessagingError as raised:
                result = raised
        if request.answer is not None and not self.broken:
            self.answers.append((request.answer, result))

    def go(self) -> None:
        """The next request arrives and is answered."""
        self.arrive()
        self.answer()

    def answer(self) -> None:
        answer, result = self.answers.popleft()
        if isinstance(result, Exception):
            answer.errback(result)
        else:
            answer.callback(result)

    def snap(self, arriving: int, told: bool = True) -> None:
        """The line breaks.

        :param arriving: how many of the requests on it still arrive, later.
        :param told: whether those who wait are told; else they are gone.
        """
        if self.broken:
            return
        self.broken = self.lingering = True
        waiting = [request.answer for request in self.requests if request.answer is not None]
        lost = [answer for answer, _ in self.answers]
        self.answers.clear()
        self.requests = deque(
            Request(one.name, one.arguments, None) for one in list(self.requests)[:arriving]
        )
        if not told:
            # Kept, or the coroutines that wait would be closed when Python happens to collect them,
            # and do what they do then.
            self.never_told = lost + waiting
            return
        for answer in lost + waiting:
            answer.errback(ProviderUnavailable("the line broke"))

    def hang_up(self) -> None:
        """The far end learns that the line is broken."""
        self.lingering = False
        self.requests.clear()
        self.manager.disconnect(self)
