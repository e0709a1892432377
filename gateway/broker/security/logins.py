"""Logins: the order in which they are verified, and their memory.

Owns that order, who has logged in before, and how long an address that guesses waits for its
answers. Knows no passcodes. Verifying one is slow on purpose, so a sender of many wrong ones fills the
queue. Three rules keep the queue open for everybody else:

1. Users who are known to log in from an address have turns before all others, who get one turn in
   :data:`_SHARE`.
2. Addresses take turns, and within an address so do the names that its logins ask for.
3. Among the logins of one name, which look alike until they are verified, the oldest or the newest
   goes, by chance. A user who comes after many guesses that wait is soon the newest, and among many
   that hang up and come again the oldest.

What is kept of a login is its user's name and its address, in a file that outlives the process. A
digest of the passcode would tell a right one from a wrong one at once, also after a restart. But
with a copy of that file anybody could try a million passcodes a second, and the Argon2id hashes of
the users file would protect no one. So the file keeps the order in which logins are verified, and
never replaces the verifying.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from pathlib import Path
from random import random
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from gateway.instance.layout import replace

VERSION: Final = "StompGatewayLogins/1"

#: Failures of an address that are answered at once: typing errors cost nothing.
FREE: Final = 5
#: Seconds without a failure after which those of an address are forgotten.
FORGOTTEN_S: Final = 60.0
#: The first delay, in milliseconds; each further failure doubles it.
_FIRST_MS: Final = 250
#: Users with their addresses, and addresses with failures, that are remembered; those that were not
#: seen for longest are forgotten.
_MOST: Final = 10_000
#: Seconds for which news is gathered before the file is written.
_WRITE_S: Final = 1.0


T = TypeVar("T", bound=Hashable)


class Rank(IntEnum):
    """Whose login it is; the best first."""

    #: The user has logged in from that address before.
    KNOWN = 0
    OTHER = 1


#: Known users leave one turn in this many to the others.
_SHARE: Final = 4
#: How often the newest of a name is taken.
_NEWEST: Final = 0.5


class LoginQueue(Generic[T]):
    """The logins that wait to be verified, each once.

    The lengths of its parts are computed only when there is no room.

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
        """Add an entry.

        One that waits already keeps its place, unless this rank is better.
        """
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
        """Take out the entry whose turn it is; None where the queue is empty."""
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
        """Take an entry out. Idempotent."""
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
        """Make room for a new entry.

        Take out the last entry of the busiest name of the address that has the most waiting.

        :returns: the entry taken out; None if the new one would be it.
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


class Logins:
    """Who has logged in, and which addresses failed to.

    Called on the reactor's thread.

    :param path: the file, made when there is something to keep; None keeps nothing over restarts.
    :param most_delay_ms: the longest delay of the answer to a failure; 0 delays none.
    """

    _log: Final = Logger(namespace="gateway.broker")

    def __init__(self, reactor: Any, path: Path | None = None, most_delay_ms: int = 5000) -> None:
        self._reactor = reactor
        self._path = path
        self._most_delay_ms = most_delay_ms
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        #: By address: how many, and when the last was.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._changed = False
        self._writing: Any = None
        self._told = False
        if path is not None:
            self._read(path)

    def is_known(self, name: str, address: str) -> bool:
        """Whether this user has logged in from this address.

        "" is this process, where every user has.
        """
        return not address or (name, address) in self._known

    def succeeded(self, name: str, address: str) -> None:
        """A user has logged in."""
        if not address:
            return
        key = name, address
        if key in self._known:
            self._known.move_to_end(key)
            return
        self._known[key] = None
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        self._changed = True
        if self._path is not None and self._writing is None:
            self._writing = self._reactor.callLater(_WRITE_S, self._write_later)

    def failed(self, address: str) -> Deferred[None]:
        """Count a failed login from this address.

        :returns: fires when the failure may be answered; may be cancelled.
        """
        now = self._reactor.seconds()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGOTTEN_S else count + 1
        self._failures[address] = count, now
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)
        if not address or count <= FREE or not self._most_delay_ms:
            return succeed(None)
        delay_ms = min(self._most_delay_ms, _FIRST_MS << min(count - FREE - 1, 20))
        return deferLater(self._reactor, delay_ms / 1000)

    def close(self) -> None:
        """Keep what is not kept yet. Idempotent."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._changed and self._path is not None:
            self._changed = False
            self._write(self._path, self._text())

    def _write_later(self) -> None:
        self._writing = None
        if self._changed:
            self._changed = False
            self._reactor.callInThread(self._write, self._path, self._text())

    def _text(self) -> str:
        return "\n".join(
            [f"version={VERSION}", *(f"{address} {name}" for name, address in self._known), ""]
        )

    def _write(self, path: Path, text: str) -> None:
        """On a thread, while the reactor runs."""
        try:
            replace(path, text.encode())
        except OSError as error:
            if not self._told:
                self._told = True
                self._log.warn(
                    "{file} cannot be written: {error}; users who have logged in before are not verified first after a restart",
                    file=str(path),
                    error=error.strerror or str(error),
                )

    def _read(self, path: Path) -> None:
        try:
            first, *lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            self._log.warn(
                "{file} cannot be read and is not used: {error}", file=str(path), error=str(error)
            )
            return
        if first != f"version={VERSION}":
            self._log.warn(
                "{file} is not used: expected version={version} in its first line",
                file=str(path),
                version=VERSION,
            )
            return
        for line in lines[-_MOST - 1 :]:
            address, _, name = line.partition(" ")
            if name:
                self._known[name, address] = None
