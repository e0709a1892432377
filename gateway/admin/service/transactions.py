"""The transactions of a bridge, whatever kind of bridge it is, and how many of them call for
somebody.

Owns how they are found and counted. Shows nothing and orders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from bridge.manager import Bridge
from bridge.xa.status import TransactionState, TransactionStatus
from gateway.admin.service.ports import Coordinates

#: States that call for somebody: the decided that wait, and those that ended otherwise than
#: decided.
COUNTED: Final[Mapping[str, tuple[TransactionState, ...]]] = {
    "waiting": (TransactionState.WAITING, TransactionState.IN_DOUBT),
    "heuristic": (TransactionState.HEURISTIC,),
}


def coordinator_of(bridge: Bridge) -> Coordinates | None:
    """What coordinates the bridge's transactions; None where nothing does now."""
    # Bridges of other types, and those that could not be made, have none.
    return cast(Coordinates | None, getattr(bridge, "coordinator", None))


def transactions_of(bridge: Bridge) -> Sequence[TransactionStatus]:
    """The bridge's transactions, the oldest first."""
    coordinator = coordinator_of(bridge)
    return () if coordinator is None else coordinator.transactions()


def counted(transactions: Sequence[TransactionStatus]) -> dict[str, int]:
    """How many of them call for somebody, by the words of :data:`COUNTED`."""
    states = [each.state for each in transactions]
    return {word: sum(state in wanted for state in states) for word, wanted in COUNTED.items()}
