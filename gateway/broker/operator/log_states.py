"""The state of a bridge's decision log, as an operator is told it.

What the octets of a log mean is the bridges'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from gateway.broker.store.interface import StoreError


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

    def check_over(self, place: str) -> None:
        """Make sure that the log may be removed.

        :param place: where it is.
        :raises StoreError: something would be lost with it.
        """
        if self.problem:
            raise StoreError(f"{self.problem}. With -f it is removed as it is")
        if self.unfinished:
            raise StoreError(
                f"bridge {self.bridge} has {self.unfinished} unfinished transactions in {place}: have it finish them. "
                "With -f they are forgotten, and their branches must be ended by hand"
            )

    def __str__(self) -> str:
        if self.problem:
            return f"{self.bridge} (damaged)"
        return f"{self.bridge} ({self.unfinished} unfinished)" if self.unfinished else self.bridge


def listed(states: Sequence[LogState]) -> str:
    """Return the logs in a line."""
    return ", ".join(map(str, states))


def state_of(bridge: str, read: Callable[[], LogCopy]) -> LogState:
    """Return what an operator is told of the log of a bridge.

    :param read: reads it; raises StoreError when it is damaged.
    """
    try:
        return LogState(bridge, read().unfinished, "")
    except StoreError as error:
        return LogState(bridge, 0, str(error))
