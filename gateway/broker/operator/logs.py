"""Decision logs of bridges in a database, as an operator sees them.

Owns which of two logs of a bridge goes on. What their octets mean is the bridges': a reader is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import decision_tables
from gateway.broker.store.postgresql.decision_tables import StoredLog


class LogCopy(Protocol):
    """A log that is not open, as its octets say."""

    @property
    def unfinished(self) -> int:
        """How many transactions it has that are not over."""

    @property
    def octets(self) -> bytes:
        """Its octets, without a torn tail."""

    def is_copy_of(self, other: Self) -> bool:
        """Whether both are of one run, and have the same transactions."""

    def continues(self, other: Self) -> bool:
        """Whether it has gone on from where the other one is."""

    def encoded(self, ended: bool) -> bytes:
        """Return the octets of a copy.

        :param ended: its run is over, and decides nothing any more.
        """


#: Reads the octets of a log.
#:
#: Takes its name for errors, and whether a torn tail is damage; raises StoreError when it is
#: damaged.
Read: TypeAlias = Callable[[bytes, str, bool], LogCopy]


@dataclass(frozen=True)
class LogState:
    """A log as an operator is told of it.

    :param problem: what is damaged, "" for a whole one; then ``unfinished`` is not known, and 0.
    """

    bridge: str
    unfinished: int
    problem: str

    @property
    def over(self) -> bool:
        """Whether nothing that is known is lost with it."""
        return not self.unfinished and not self.problem

    def __str__(self) -> str:
        if self.problem:
            return f"{self.bridge} (damaged)"
        return f"{self.bridge} ({self.unfinished} unfinished)" if self.unfinished else self.bridge


def listed(states: Sequence[LogState]) -> str:
    """Return the logs in a line."""
    return ", ".join(map(str, states))


class TransactionLogs:
    """The logs of one broker.

    :param described: where they are.
    """

    def __init__(self, read: Read, described: str) -> None:
        self._read = read
        self._described = described

    def state(self, log: StoredLog) -> LogState:
        """Read a log that may be damaged."""
        try:
            return LogState(log.bridge, self._copy(log).unfinished, "")
        except StoreError as error:
            return LogState(log.bridge, 0, str(error))

    def states(self, logs: Sequence[StoredLog]) -> list[LogState]:
        """Read logs that may be damaged."""
        return [self.state(log) for log in logs]

    def _copy(self, log: StoredLog) -> LogCopy:
        name = f"of {log.bridge} in {self._described}"
        return self._read(decision_tables.joined(log.parts, name), name, True)
