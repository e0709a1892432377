"""The running balance of a link: every message that it took is somewhere.

``taken = out + dead + not transferred + in doubt + held``. Owns what each term means, when a message
moves from one to another, and what becomes of what a process that has crashed had under way. Where
it is kept beyond the process is :class:`BalanceStorage`'s business.

taken
    Messages that the source has handed over and not been given back.
out
    Of them, those that the target has for good and that the source has forgotten.
dead
    Those that a dead message queue has, and that the source has forgotten.
not transferred
    Those that a rule or a transformer wanted to go nowhere, and that the source has forgotten.
in doubt
    Those of a transaction that is decided, and not yet committed everywhere.
held
    Those under way: received, and not settled.

What is left is a *difference*: messages that were taken and are nowhere. A link whose quality of
service is AT_MOST_ONCE may lose some; for every other it is an alarm. Beside the balance stands how
many messages may be at the target twice, which is 0 for a link that transfers once and only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bridge.link.status import BalanceTerms
from bridge.link.transfer import Dead, Item, NotTransferred

#: Seconds between two writes, while balances change.
WRITE_S: Final = 1.0


class Balance:
    """The balance of one link.

    :param terms: as they are kept.
    :param changed: called when a term has changed.
    :param log: is told of a difference.
    :param left_in_doubt: messages that an earlier process has left in doubt.
    """

    def __init__(
        self,
        link: str,
        terms: BalanceTerms,
        changed: Callable[[], None],
        log: Logger,
        left_in_doubt: int = 0,
    ) -> None:
        self.terms: Final = terms
        self._link: Final = link
        self._changed: Final = changed
        self._log: Final = log
        self._left_in_doubt = left_in_doubt
        #: The difference that the log was told of last.
        self._told = terms.difference

    def taken(self, count: int) -> None:
        """The source has handed some over."""
        self.terms.taken += count
        self.terms.held += count
        self._changed()

    def returned(self, count: int) -> None:
        """The source has them again."""
        self.terms.taken -= count
        self.terms.held -= count
        self._check()

    def settled(self, items: Sequence[Item], count: int, *, doubted: bool = False) -> None:
        """The source has forgotten these, for good.

        :param count: messages of the batch; more than there are items where some were not judged.
        :param doubted: they were in doubt.
        """
        terms = self.terms
        if doubted:
            terms.in_doubt -= count
        else:
            terms.held -= count
        terms.out += sum([item.sent for item in items])
        for item in items:
            if isinstance(item.outcome, NotTransferred):
                terms.not_transferred += 1
            elif isinstance(item.outcome, Dead) and not item.sent:
                if item.lost:
                    terms.lost += 1
                else:
                    terms.dead += 1
        self._check()

    def doubted(self, count: int) -> None:
        """Their transaction is decided, and not yet committed everywhere."""
        self.terms.held -= count
        self.terms.in_doubt += count
        self._changed()

    def recovered(self) -> None:
        """What an earlier process has decided is committed."""
        left, self._left_in_doubt = self._left_in_doubt, 0
        if left:
            self.terms.out += left
            self.terms.in_doubt -= left
            self._changed()

    def doubled(self, count: int) -> None:
        """These may be at the target twice."""
        self.terms.possibly_twice += count
        self._changed()

    def _check(self) -> None:
        difference = self.terms.difference
        if difference != self._told:
            self._told = difference
            level = self._log.error if difference else self._log.info
            level(
                "link {link}: its balance has a difference of {difference} messages: {taken} taken, {out} out, {dead} dead, "
                "{not_transferred} not transferred, {in_doubt} in doubt, {held} held, {lost} lost as AT_MOST_ONCE allows",
                link=self._link,
                difference=difference,
                **asdict(self.terms),
            )
        self._changed()


class BalancesNotKept(Exception):
    """Balances cannot be read or written. ``str`` says why."""


class BalanceStorage(Protocol):
    """Where the balances of one bridge are kept."""

    def read(self) -> Mapping[str, Any]:
        """Return them by link. :raises BalancesNotKept:"""

    def write(self, balances: Mapping[str, Any]) -> Deferred[None]:
        """Replace them, durably. Fails with :class:`BalancesNotKept`."""


class Balances:
    """The balances of one bridge's links.

    They are written a moment after they have changed, and when the bridge stops. A process that
    crashes may take the changes of the last :data:`WRITE_S` seconds with it, all terms of a batch
    alike: the balance is right, and its sums may lack these batches.

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
        self._terms: Final[dict[str, BalanceTerms]] = {}
        self._left_in_doubt: Final[dict[str, int]] = {}
        self._call: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        #: A failure was logged, and none has succeeded since.
        self._failed = False
        if storage is not None:
            try:
                for link, kept in storage.read().items():
                    terms = self._terms[link] = _found(kept)
                    # What was under way then was given back.
                    terms.taken -= terms.held
                    terms.held = 0
                    self._left_in_doubt[link] = terms.in_doubt
            except BalancesNotKept as error:
                self._log.error("balances of links begin anew: {error}", error=error)

    def of(self, link: str) -> Balance:
        """Return the balance of a link that is made; the next one goes on with it."""
        terms = self._terms.setdefault(link, BalanceTerms(since_ms=self._now_ms()))
        left = self._left_in_doubt.pop(link, 0)
        return Balance(link, terms, self._later, self._log, left)

    def _later(self) -> None:
        if self._call is None and self._writing is None and self._storage is not None:
            self._call = self._clock.callLater(WRITE_S, self._write)

    def _write(self) -> None:
        self._call = None
        if self._storage is None:
            return
        kept = {link: asdict(terms) for link, terms in self._terms.items()}
        writing = self._writing = self._storage.write(kept)
        writing.addCallbacks(self._written, self._not_written)

    def _written(self, _: None) -> None:
        self._writing, self._failed = None, False

    def _not_written(self, failure: Any) -> None:
        self._writing = None
        if not self._failed:
            self._failed = True
            self._log.error(
                "balances of links cannot be kept, and are tried again: {error}",
                error=failure.value,
            )
        self._later()

    async def flush(self) -> None:
        """Write what has changed. Never fails; the log is told."""
        if self._writing is not None:
            waiting: Deferred[None] = Deferred()
            self._writing.addCallback(waiting.callback)
            await waiting
        if self._call is not None:
            self._call.cancel()
            self._write()
            await self.flush()


def _found(kept: Any) -> BalanceTerms:
    """:raises BalancesNotKept: it is no balance."""
    names = {each.name for each in fields(BalanceTerms)}
    if not isinstance(kept, Mapping) or not all(isinstance(each, int) for each in kept.values()):
        raise BalancesNotKept(f"expected the terms of a balance: {kept!r}")
    return BalanceTerms(**{name: value for name, value in kept.items() if name in names})
