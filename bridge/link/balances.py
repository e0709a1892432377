"""The balances of one bridge's links, written durably while they change.

Owns when they are written, what a link may move between two writes, and how one goes on from what
an earlier process has left. What the terms mean is said in :mod:`bridge.link.balance`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bridge.link.balance import Balance, BalanceMarks, BalancesNotKept
from bridge.link.balance_mark import Mark, decoded
from bridge.link.status import BalanceTerms

#: Seconds between two writes, while balances change.
WRITE_S: Final = 1.0


class BalanceStorage(Protocol):
    """Where the balances of one bridge are kept."""

    def read(self) -> Mapping[str, Any]:
        """Return them by link. :raises BalancesNotKept:"""

    def write(self, balances: Mapping[str, Any]) -> Deferred[None]:
        """Replace them, durably. Fails with :class:`BalancesNotKept`."""

    def marks(self, link: str) -> BalanceMarks:
        """Return where the marks of a link are."""

    @property
    def boot(self) -> int:
        """The number of the machine's start; 0 if it is unknown."""


class Balances:
    """The balances of one bridge's links.

    They are written a moment after they have changed, and when the bridge stops; the marks of each
    link make up for the moment.

    :param storage: None keeps them as long as the process.
    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self, clock: Any, storage: BalanceStorage | None, now_ms: Callable[[], int], log: Logger
    ) -> None:
        self._clock: Final = clock
        self._storage: Final = storage
        self._now_ms: Final = now_ms
        self._log: Final = log
        self._balances: Final[dict[str, Balance]] = {}
        #: Those of links that are not made yet, as they were read.
        self._kept: Final[dict[str, Mark]] = {}
        #: Links whose balance has changed since it was written.
        self._dirty: Final[set[str]] = set()
        self._call: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        #: A failure was logged, and none has succeeded since.
        self._failed = False
        if storage is not None:
            try:
                for link, kept in storage.read().items():
                    self._kept[link] = _found(kept)
            except BalancesNotKept as error:
                self._log.error(
                    "balances of links go on from their marks, or begin anew: {error}", error=error
                )

    def of(self, link: str) -> Balance:
        """Return the balance of a link that is made; the next one goes on with it."""
        found = self._balances.get(link)
        if found is not None:
            return found
        marks = None if self._storage is None else self._storage.marks(link)
        terms = BalanceTerms(since_ms=self._now_ms())
        balance = self._balances[link] = Balance(
            link,
            terms,
            partial(self._later, link),
            self._log,
            self._clock,
            marks,
            None if marks is None else partial(self._hurry, link),
        )
        kept = self._kept.pop(link, None)
        marked = None if marks is None else self._last_mark(link, marks)
        if marked is not None and (kept is None or marked.number >= kept.number):
            balance.goes_on(marked, from_mark=True)
        elif kept is not None:
            balance.goes_on(kept, from_mark=False)
        if kept is not None and kept.ahead and not self._is_trusted(kept, marked):
            balance.lacks(kept.ahead)
        return balance

    def _is_trusted(self, kept: Mark, marked: Mark | None) -> bool:
        """Whether no mark was lost."""
        assert self._storage is not None
        return (
            kept.boot == self._storage.boot and marked is not None and marked.number >= kept.number
        )

    def _last_mark(self, link: str, marks: BalanceMarks) -> Mark | None:
        try:
            found = [mark for data in marks.read() if (mark := decoded(data)) is not None]
        except BalancesNotKept as error:
            self._log.error(
                "link {link}: its balance may lack what was moved last: {error}",
                link=link,
                error=error,
            )
            return None
        return max(found, key=lambda mark: mark.number, default=None)

    def _later(self, link: str) -> None:
        self._dirty.add(link)
        if self._call is None and self._writing is None and self._storage is not None:
            self._call = self._clock.callLater(WRITE_S, self._write)

    def _hurry(self, link: str) -> None:
        self._dirty.add(link)
        if self._writing is None:
            if self._call is not None:
                self._call.cancel()
            self._write()

    def _write(self, ends: bool = False) -> None:
        """Write now.

        :param ends: the bridge has stopped, and moves nothing until it is started.
        """
        self._call = None
        if self._storage is None:
            return
        dirty = set(self._dirty)
        self._dirty.clear()
        for link in dirty:
            # First, so that what is written durably is never newer.
            self._balances[link].mark()
        kept = {link: _rendered(mark) for link, mark in self._kept.items()}
        reserved = {}
        for link, balance in self._balances.items():
            ahead, count = balance.reserve()
            reserved[link] = 0 if ends else ahead, count
            kept[link] = _rendered(
                Mark(
                    balance.number,
                    balance.terms,
                    ahead=reserved[link][0],
                    boot=self._storage.boot,
                    doubles=balance.doubles,
                )
            )
        writing = self._writing = self._storage.write(kept)
        writing.addCallback(self._written)
        writing.addErrback(self._not_written, dirty)
        writing.addCallback(self._reserved, reserved)

    def _written(self, _: None) -> None:
        self._writing, self._failed = None, False
        if self._dirty:
            self._later(next(iter(self._dirty)))

    def _reserved(self, _: None, reserved: Mapping[str, tuple[int, int]]) -> None:
        # A link goes on where the disk is full: the log has said so, and the marks have the rest.
        for link, (ahead, count) in reserved.items():
            self._balances[link].reserved(ahead, count)

    def _not_written(self, failure: Any, dirty: Collection[str]) -> None:
        self._writing = None
        if not self._failed:
            self._failed = True
            self._log.error(
                "balances of links cannot be kept, and are tried again: {error}",
                error=failure.value,
            )
        for link in dirty:
            self._later(link)

    async def flush(self) -> None:
        """Write what has changed. Never fails; the log is told."""
        await self._written_before()
        if self._call is not None:
            self._call.cancel()
        if self._balances:
            self._write(ends=True)
            # What fails now is not tried again: the marks have it.
            await self._written_before()
        if self._call is not None and self._failed:
            self._call.cancel()
            self._call = None
        for balance in self._balances.values():
            balance.close()

    async def _written_before(self) -> None:
        if self._writing is not None:
            waiting: Deferred[None] = Deferred()
            self._writing.addCallback(waiting.callback)
            await waiting


def _rendered(mark: Mark) -> dict[str, int]:
    return {
        **asdict(mark.terms),
        "mark": mark.number,
        "ahead": mark.ahead,
        "boot": mark.boot,
        "doubles": mark.doubles,
    }


def _found(kept: Any) -> Mark:
    """:raises BalancesNotKept: it is no balance."""
    names = {each.name for each in fields(BalanceTerms)}
    if not isinstance(kept, Mapping) or not all(isinstance(each, int) for each in kept.values()):
        raise BalancesNotKept(f"expected the terms of a balance: {kept!r}")
    terms = BalanceTerms(**{name: value for name, value in kept.items() if name in names})
    return Mark(
        kept.get("mark", 0),
        terms,
        ahead=kept.get("ahead", 0),
        boot=kept.get("boot", 0),
        doubles=bool(kept.get("doubles")),
    )
