"""The port for a coordinator's decision log: its values and contract.

The log of this gateway is a file, :mod:`bridge.xa.log`; nothing here knows that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from bridge.xa.errors import LogFailed
from bridge.xa.status import BranchState

#: Presumed branches that are remembered at most; of more, the last.
MOST_PRESUMED: Final = 2000
#: A presumed branch is remembered until another is so much younger.
PRESUMED_KEPT_MS: Final = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class LoggedBranch:
    """A branch of a logged transaction.

    :param error: the last code of XA, or 0.
    """

    bqual: bytes
    ref_name: str
    rm: str
    state: BranchState
    error: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction in the log: one that is decided, or ended heuristically.

    :param since_ms: when it was first written.
    :param decided: to commit.
    :param forgetting: an operator has ordered it.
    """

    gtrid: bytes
    since_ms: int
    decided: bool
    forgetting: bool
    branches: tuple[LoggedBranch, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """The transaction is over, and the log may drop it."""

    gtrid: bytes


@dataclass(frozen=True, slots=True)
class Presumed:
    """A branch presumed committed without its resource manager's word.

    That did not know the branch, or an operator has given it up. If the branch is reported later,
    it is committed.

    :param at_ms: since when.
    """

    gtrid: bytes
    bqual: bytes
    at_ms: int


Change: TypeAlias = Entry | Removed | Presumed


class DecisionLog(Protocol):
    """A durable log of a coordinator's decisions.

    All methods are called on the reactor's thread and never block. Callbacks come on that thread,
    in the order of the calls, and not from inside of the call that they answer.

    **Contents.** The log holds the changes in the order in which they were given, by :meth:`write`
    and
    :meth:`note` alike. Of each transaction its last Entry counts, until it is Removed. Of presumed
    branches those count that :class:`Presumptions` remembers.

    **Opening.** Opening a log reads what earlier runs left, and locks it until it is closed. It
    begins a run of the coordinator with an identity and a generation that no run had before, see
    :class:`bridge.xa.xids.Xids`. The run, and all that was read, is durable before a coordinator
    gets the log: nothing is done because of an entry that could still be lost. The last changes of
    a run that crashed may be missing, from some change on. A log that is damaged is refused with
    LogDamaged, and left as it is.

    **Durability.** When a :meth:`write` has fired, its change and all that were given before it
    survive a crash of the process and of the machine (of the process only, where an operator has
    turned ``txlogSync`` off). A change that was noted survives once a later write has fired, or
    some moments later; until then a crash may lose it.

    **Errors.** NotWritten: the change is not in the log, and will not be; the next write may
    succeed, as when the disk has room again. Any other LogFailed: it is not known whether the change
    is in the log, and the next opening tells. From then on :attr:`failed` says why, and every write
    fails with NotWritten. A note never fails: it is tried again with the next write, until the log
    fails or is closed.

    **Compaction.** The log drops what does not count any more when it likes. At every moment a crash
    leaves either the old contents or the new.
    """

    @property
    def path(self) -> str:
        """Where it is, as errors name it."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Return the transactions that earlier runs left, in their order."""

    @property
    def presumed(self) -> Sequence[Presumed]:
        """Return the branches that earlier runs presumed committed, in order."""

    @property
    def failed(self) -> LogFailed | None:
        """Why nothing can be written any more; None while it can."""

    def write(self, change: Change) -> Deferred[None]:
        """Append a change durably.

        Fires when it is; fails with NotWritten or LogFailed.
        """

    def note(self, change: Change, written: Callable[[], None] | None = None) -> None:
        """Append a change some time, at the latest with the next write.

        :param written: called when the log has it; never, if it cannot be written.
        """

    def close(self) -> Deferred[None]:
        """Write what was given, and close the log. Never fails; idempotent.

        Changes given afterwards are not written: a write of them fails with NotWritten.
        """


class Presumptions:
    """The presumed branches that are remembered.

    They are the last :data:`MOST_PRESUMED`, without those older than :data:`PRESUMED_KEPT_MS`.

    :param known: from earlier, in the order in which they came.
    """

    def __init__(self, known: Iterable[Presumed] = ()) -> None:
        self._known: Final[dict[tuple[bytes, bytes], Presumed]] = {}
        self._branches: Final[dict[bytes, set[bytes]]] = {}
        for one in known:
            self.add(one)

    def __iter__(self) -> Iterator[Presumed]:
        return iter(self._known.values())

    def add(self, one: Presumed) -> None:
        """Remember one; forget the oldest above the bound, and the too old."""
        self._drop(one)
        self._known[one.gtrid, one.bqual] = one
        self._branches.setdefault(one.gtrid, set()).add(one.bqual)
        first = next(iter(self))
        while len(self._known) > MOST_PRESUMED or first.at_ms < one.at_ms - PRESUMED_KEPT_MS:
            self._drop(first)
            first = next(iter(self))

    def of(self, gtrid: bytes) -> Collection[bytes]:
        """Return the branch qualifiers of a transaction's presumed branches.

        A transaction with any was decided.
        """
        return self._branches.get(gtrid, ())

    def _drop(self, one: Presumed) -> None:
        if self._known.pop((one.gtrid, one.bqual), None) is not None:
            branches = self._branches[one.gtrid]
            branches.discard(one.bqual)
            if not branches:
                del self._branches[one.gtrid]
