"""The memory budget of the process, in all and in each state.

It is in bytes that clients may make the process hold.

Each connection counts what it holds in an :class:`Account`. Memory that is not taken yet, such as
that of an announced body, is reserved first. Memory that is taken already, such as output, is
counted in any case. A connection without room waits in a line and reads nothing meanwhile. If the
line does not move for a while, the connection that holds most is ended with a reason.

Owns the counts, the line and the choice of the connection to end. Knows nothing of STOMP, nor how a
connection ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

#: Seconds between two looks at the line, since not everything that makes room tells so.
_LOOK_S: Final = 0.1
#: A reservation of that many bytes or fewer is small: it passes the large ones, and may use the last
#: part of the budget, which they may not.
_SMALL: Final = 1024 * 1024
#: Of each limit one part in that many is for small reservations only.
_KEPT_FOR_SMALL: Final = 16
#: Seconds between two lines of the log that say how full memory is.
_REPORT_S: Final = 60.0


class State(IntEnum):
    """The purpose that memory is held for."""

    #: Frames that have begun and are not whole, and whole ones that wait to be carried out.
    RECEIVING = 0
    #: Messages sent and acknowledged in transactions that are open.
    TRANSACTIONS = 1
    #: What clients have not read, beyond the kernel's buffers.
    OUTPUT = 2
    #: Messages of the broker that wait for consumers or for the disk.
    WAITING = 3
    #: Messages that consumers have and have not settled.
    UNACKNOWLEDGED = 4

    @property
    def word(self) -> str:
        """For the log, metrics and settings."""
        return self.name.lower()


class Holder(Protocol):
    """The owner of an account: a connection."""

    @property
    def unacknowledged(self) -> int:
        """Bytes of messages that it has and has not settled.

        Counted when it is asked for: the broker counts them for all holders.
        """

    def memory_granted(self) -> None:
        """The reservation it waited for is counted now; it may go on."""

    def end_for_memory(self, reason: str) -> bool:
        """End, because others wait for its memory.

        :returns: False if it is ending already.
        """


@dataclass(frozen=True, slots=True)
class Usage:
    """The budget at one moment, in bytes.

    :param used: by state.
    :param limits: by state.
    :param total: the limit over all states.
    :param waiting: connections in the line.
    :param ended: connections that were ended for memory since the start.
    :param held_back: consumers that get no more messages before some are acknowledged.
    """

    used: Mapping[State, int]
    limits: Mapping[State, int]
    total: int
    waiting: int
    ended: int
    held_back: int = 0


class Account:
    """The bytes that one holder has. Made by :meth:`MemoryBudget.account`."""

    __slots__ = ("_budget", "_closed", "_holder", "held", "is_waiting")

    def __init__(self, budget: MemoryBudget, holder: Holder) -> None:
        self._budget: Final = budget
        #: Until the account is closed.
        self._holder = holder
        self._closed = False
        #: Bytes by state. Changed by the methods only.
        self.held: Final = [0, 0, 0]
        #: It is in the line.
        self.is_waiting = False

    @property
    def total(self) -> int:
        """Bytes in all states."""
        return sum(self.held) + self.unacknowledged

    @property
    def unacknowledged(self) -> int:
        """Bytes of messages that its holder has and has not settled."""
        return 0 if self._closed else self._holder.unacknowledged

    def hold(self, state: State, octets: int) -> bool:
        """Set the bytes held in this state.

        They are in memory already, or no longer.

        :returns: False if the budget is exceeded. Then the holder should take no more until
            :meth:`Holder.memory_granted`.
        """
        if self._closed:
            return True
        budget = self._budget
        more = octets - self.held[state]
        self.held[state] = octets
        budget.add(state, more)
        if more > 0 and budget.is_over(state):
            budget.wait(self, state, 0)
            return False
        return True

    def reserve(self, state: State, octets: int) -> bool:
        """Raise the bytes held in this state, before the memory is taken.

        :returns: False if there is no room yet. They are counted later, when
            :meth:`Holder.memory_granted` is called.
        """
        more = octets - self.held[state]
        budget = self._budget
        if self._closed or (not self.is_waiting and budget.has_room(state, more)):
            self.hold(state, octets)
            return True
        budget.wait(self, state, more)
        return False

    def withdraw(self) -> None:
        """Leave the line. Idempotent."""
        self._budget.withdraw(self)

    def close(self) -> None:
        """Give everything back and leave the line: the holder is gone. Idempotent."""
        if self._closed:
            return
        for state in (State.RECEIVING, State.TRANSACTIONS, State.OUTPUT):
            self.hold(state, 0)
        self._closed = True
        self._budget.leave(self)
        del self._holder

    # For the budget.

    def granted(self, state: State, extra: int) -> None:
        """Its turn has come, for ``extra`` more bytes in this state."""
        self.is_waiting = False
        self.held[state] += extra
        self._budget.add(state, extra)
        self._holder.memory_granted()

    def end(self, reason: str) -> bool:
        return self._holder.end_for_memory(reason)


class MemoryBudget:
    """The budget.

    :param clock: the reactor.
    :param total: bytes over all states.
    :param percent: of the total, for each state; 100 where it has none of its own.
    :param patience: seconds for which the line may stand still before the one who holds most is
        ended.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        total: int,
        percent: Mapping[State, int] | None = None,
        patience: float = 10.0,
    ) -> None:
        self._clock: Final = clock
        self.total: Final = total
        given = percent or {}
        self.limits: Final = {state: total * given.get(state, 100) // 100 for state in State}
        self._patience: Final = patience
        self._used: Final = [0, 0, 0]
        self._accounts: Final[dict[Account, None]] = {}
        #: Those that wait, small reservations and large ones apart, and each state: in the order of
        #: their coming, which a dict keeps, with the bytes that each waits for.
        self._lines: Final[dict[tuple[bool, State], dict[Account, int]]] = {
            (large, state): {} for large in (False, True) for state in State
        }
        #: When the line last moved.
        self._moved = 0.0
        self._look: IDelayedCall | None = None
        self._reported = -_REPORT_S
        self._ended = 0
        #: Something was taken although there was nothing left; and the least that was used since
        #: then.
        self._pressed = False
        self._least_used = 0
        # What the broker counts, in bytes, and the number of consumers that it holds back; set by
        # the composition root.
        self.waiting_messages: Callable[[], int] = _nothing
        self.unacknowledged_messages: Callable[[], int] = _nothing
        self.transactions_inside: Callable[[], int] = _nothing
        self.consumers_held_back: Callable[[], int] = _nothing

    def account(self, holder: Holder) -> Account:
        """Open an account; the holder must close it."""
        account = Account(self, holder)
        self._accounts[account] = None
        return account

    def fits(self, state: State, octets: int) -> bool:
        """Whether a single holder could have so much if it were alone."""
        return octets <= self._bound(self.limits[state], octets)

    def used(self, state: State) -> int:
        """Bytes held in that state now."""
        if state is State.WAITING:
            return self.waiting_messages()
        if state is State.UNACKNOWLEDGED:
            return self.unacknowledged_messages()
        return (
            self._used[state] + self.transactions_inside()
            if state is State.TRANSACTIONS
            else self._used[state]
        )

    def left(self, state: State) -> int:
        """Return the bytes that may be taken in this state.

        Negative when there are too many already.
        """
        return min(self.limits[state] - self.used(state), self.total - self.in_all())

    def in_all(self) -> int:
        """Bytes held in all states now."""
        return (
            sum(self._used)
            + self.waiting_messages()
            + self.unacknowledged_messages()
            + self.transactions_inside()
        )

    def usage(self) -> Usage:
        """The budget as it is now."""
        used = {state: self.used(state) for state in State}
        waiting = sum(map(len, self._lines.values()))
        return Usage(
            used, self.limits, self.total, waiting, self._ended, self.consumers_held_back()
        )

    def press(self) -> None:
        """Note that something was taken although there was nothing left.

        If the budget stays exceeded, the connection that holds most is ended.
        """
        if not self._pressed and self.in_all() > self.total:
            self._pressed = True
            self._least_used = self.in_all()
            self._look_soon()

    def __str__(self) -> str:
        states = ", ".join(
            f"{state.word} {self.used(state)} of {self.limits[state]}" for state in State
        )
        return f"{self.in_all()} of {self.total} bytes: {states}"

    # For accounts.

    def add(self, state: State, more: int) -> None:
        """Count ``more`` bytes in this state; fewer if negative."""
        self._used[state] += more
        if more < 0 and self._look is not None:
            # Not at once: the account that gives memory back may be in the middle of something.
            self._look.reset(0)

    def is_over(self, state: State) -> bool:
        """Whether more is held than should be, in this state or in all."""
        return self.used(state) > self.limits[state] or self.in_all() > self.total

    def has_room(self, state: State, more: int) -> bool:
        """Whether that much more fits in this state and no account waits for it."""
        return not self._lines[more > _SMALL, state] and self._has_room(state, more)

    def wait(self, account: Account, state: State, extra: int) -> None:
        """Put an account in the line; one that is there keeps its place."""
        if account.is_waiting:
            return
        self._look_soon()
        account.is_waiting = True
        self._lines[extra > _SMALL, state][account] = extra

    def leave(self, account: Account) -> None:
        """Forget an account."""
        self._accounts.pop(account, None)
        self.withdraw(account)

    def withdraw(self, account: Account) -> None:
        """Take an account out of the line."""
        account.is_waiting = False
        for line in self._lines.values():
            line.pop(account, None)

    # The line.

    def _look_soon(self) -> None:
        if self._look is None:
            self._moved = self._clock.seconds()
            self._look = self._clock.callLater(_LOOK_S, self._serve)
            if self._moved - self._reported >= _REPORT_S:
                self._reported = self._moved
                self._log.warn(
                    "memory is short, so that clients wait until others give some back; used {budget}",
                    budget=str(self),
                )

    def _has_room(self, state: State, more: int) -> bool:
        return self.used(state) + more <= self._bound(
            self.limits[state], more
        ) and self.in_all() + more <= self._bound(self.total, more)

    def _bound(self, limit: int, more: int) -> int:
        return limit - limit // _KEPT_FOR_SMALL if more > _SMALL else limit

    def _serve(self) -> None:
        """Grant what fits.

        If the line has stood still for too long, end the biggest holder.
        """
        self._look = None
        now = self._clock.seconds()
        for (_, state), line in self._lines.items():
            # First come, first served. An account that waits again at once is not looked at twice.
            for _ in range(len(line)):
                account = next(iter(line), None)
                if account is None or not self._has_room(state, line[account]):
                    break
                self._moved = now
                account.granted(state, line.pop(account))
        if self._pressed:
            used = self.in_all()
            self._pressed = used > self.total
            if used < self._least_used:
                self._least_used = used
                self._moved = now
        if not self._pressed and not any(self._lines.values()):
            return
        if now - self._moved >= self._patience:
            self._moved = now
            self._end_biggest()
        if self._look is None:
            self._look = self._clock.callLater(_LOOK_S, self._serve)

    def _end_biggest(self) -> None:
        """End the connection that holds most of the memory that is short."""
        short: State | None = None
        for (_, state), line in self._lines.items():
            if line:
                extra = next(iter(line.values()))
                if self.used(state) + extra > self._bound(self.limits[state], extra):
                    short = state
                break
        holds = {
            account: account.total if short is None else account.held[short]
            for account in self._accounts
        }
        for account in sorted(holds, key=holds.__getitem__, reverse=True):
            if not account.total:
                break
            held = ", ".join(
                f"{each.word} {account.held[each]}" for each in State if each < State.WAITING
            )
            held += f", {State.UNACKNOWLEDGED.word} {account.unacknowledged}"
            reason = (
                f"this connection holds more of the gateway's memory than any other ({held} bytes), "
                f"and others have waited for some for {self._patience:g} seconds"
            )
            if account.end(reason):
                self._ended += 1
                self._log.warn(
                    "a connection is ended for the memory that it held; used {budget}",
                    budget=str(self),
                )
                return
        self._log.warn(
            "memory is short, and no connection holds any that could be given back; used {budget}",
            budget=str(self),
        )


def _nothing() -> int:
    return 0
