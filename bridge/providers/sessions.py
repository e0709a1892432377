"""The sessions of one connection to a broker.

Owns which are open, and which are closed and still have completions to tell.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Tracked(Protocol):
    """A session as its connection sees it."""

    closed: bool

    @property
    def waiting(self) -> bool:
        """Whether completions are pending."""


S = TypeVar("S", bound=Tracked)


class Sessions(Generic[S]):
    """The sessions of one connection."""

    def __init__(self) -> None:
        self.open: dict[S, None] = {}
        #: Those that are closed and have completions pending.
        self._closed: dict[S, None] = {}

    def all(self) -> list[S]:
        """Those that have something under way or pending."""
        return [*self.open, *self._closed]

    def own(self, session: object) -> S | None:
        """The session, if it is one of these and open."""
        return next((each for each in self.open if each is session and not each.closed), None)

    def forget(self, session: S) -> None:
        """Drop a closed session; its pending completions are still told."""
        self.open.pop(session, None)
        self._closed = {each: None for each in [*self._closed, session] if each.waiting}

    def clear(self) -> None:
        """Drop all: the connection has ended."""
        self.open.clear()
        self._closed.clear()
