"""The order in which logins are verified: known ones first, and fair between those who ask.

Owns that order. Knows nothing of passcodes.

Verifying a passcode is made to be slow, so whoever sends many wrong ones fills a queue. Three
things keep it from being everybody's queue.

1. Users who are known to log in from an address have turns before all others, of which one in
   :data:`_SHARE` is given away.
2. Addresses take turns, and within an address so do the names that its logins ask for.
3. Among those of one name, which are all alike until they are verified, the oldest or the newest
   goes, by chance. A user who comes after many guesses that wait is soon the newest, and among many
   that hang up and come again the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from random import random
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Rank(IntEnum):
    """Whose login it is; the better first."""

    #: The user has logged in from that address before.
    KNOWN = 0
    OTHER = 1


#: Of so many turns, known users leave one to the others.
_SHARE: Final = 4
#: How often the newest of a name is taken.
_NEWEST: Final = 0.5


class LoginQueue(Generic[T]):
    """What waits to be verified. Each entry is there once. Lengths of single queues are looked at
    only when there is no room.

    :param chance: a number from 0 to 1; below a half, the newest of a name is taken.
    """

    def __init__(self, chance: Callable[[], float] = random) -> None:
        self._chance = chance
        self._places: dict[T, tuple[Rank, str, str]] = {}
        #: By rank, address and name; the one whose turn it is comes first.
        self._waiting: dict[Rank, OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]]] = {
            rank: OrderedDict() for rank in Rank
        }
        self._turns = 0

    def put(self, entry: T, address: str, name: str, rank: Rank) -> None:
        """It waits. One that waits already keeps its place, unless this rank is better."""
        place = self._places.get(entry)
        if place is not None:
            if place[0] <= rank:
                return
            self.remove(entry)
        self._places[entry] = rank, address, name
        self._waiting[rank].setdefault(address, OrderedDict()).setdefault(name, OrderedDict())[
            entry
        ] = None

    def take(self) -> T | None:
        """The one whose turn it is, or None."""
        if not self._places:
            return None
        self._turns += 1
        first, second = self._waiting[Rank.KNOWN], self._waiting[Rank.OTHER]
        if self._turns % _SHARE == 0:
            first, second = second, first
        addresses = first or second
        address, names = next(iter(addresses.items()))
        name, entries = next(iter(names.items()))
        entry = next(reversed(entries)) if self._chance() < _NEWEST else next(iter(entries))
        addresses.move_to_end(address)
        names.move_to_end(name)
        self.remove(entry)
        return entry

    def remove(self, entry: T) -> None:
        """It waits no longer. Idempotent."""
        place = self._places.pop(entry, None)
        if place is None:
            return
        rank, address, name = place
        addresses = self._waiting[rank]
        names = addresses[address]
        del names[name][entry]
        if not names[name]:
            del names[name]
            if not names:
                del addresses[address]

    def crowded_out(self, address: str, name: str, rank: Rank) -> T | None:
        """Room for one more, taken from the others first: of the address that has the most waiting,
        and of its name that has, the last goes.

        :returns: what has gone, or None: that would be what is to come.
        """
        lowest = next((each for each in reversed(Rank) if self._waiting[each]), None)
        if lowest is None or lowest < rank:
            return None
        addresses = self._waiting[lowest]
        most = max(addresses, key=lambda each: _length(addresses[each]))
        longest = 0
        if lowest == rank:
            mine = addresses.get(address, OrderedDict())
            if _length(addresses[most]) <= _length(mine) + 1:
                # It is this address that has the most.
                most, longest = address, len(mine.get(name, ())) + 1
        names = addresses.get(most, OrderedDict())
        entries = max(names.values(), key=len, default=OrderedDict[T, None]())
        if len(entries) <= longest:
            return None
        entry = next(reversed(entries))
        self.remove(entry)
        return entry

    def clear(self) -> None:
        """Forget all that waits."""
        self._places.clear()
        for addresses in self._waiting.values():
            addresses.clear()


def _length(names: OrderedDict[str, OrderedDict[T, None]]) -> int:
    return sum(map(len, names.values()))
