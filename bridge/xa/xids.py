"""Make ids of transactions and branches, and tell ours from others'.

A global id (``gtrid``, at most 64 bytes) is::

    length of the name | name | identity: 8 bytes | generation: 4 bytes | counter: 6 bytes

The name is ``<instance>:<bridge>``. The identity is random, drawn at each opening of the log and
kept in it, for the *run* that begins so: two installations of the same names that share a broker
never take each other's branches for their own, nor does a log that was put back from an older copy
those of runs that it does not know. The generation counts the runs, and the counter the
transactions of one: no id comes twice, whatever the clock does. Older logs have one identity for
all their earlier runs. A branch qualifier (``bqual``) is::

    length of the name | name of the resource manager: ref-name of the factory, at most 62 bytes | counter: 1 byte
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.messaging.provider import Xid

#: Open MQ's: ``JMQ\\0``.
FORMAT_ID: Final = 1246580992
IDENTITY_OCTETS: Final = 8
MOST_BRANCHES: Final = 255

_MOST: Final = 64
_UNIQUE: Final = struct.Struct(">IHI")
_NAME_OCTETS: Final = _MOST - 1 - IDENTITY_OCTETS - _UNIQUE.size
_REF_NAME_OCTETS: Final = _MOST - 2
_COUNTER_BITS: Final = 48
_LAST_GENERATION: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, order=True)
class Unique:
    """What no two transactions of a coordinator share.

    Ordered: a later one is greater.
    """

    generation: int
    counter: int

    @property
    def id(self) -> str:
        """As operators see it: hex without leading zeros."""
        return f"{self.generation << _COUNTER_BITS | self.counter:x}"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a coordinator: from one opening of its log to the next.

    :param generation: its number; ids of a lower one may have this identity, too.
    """

    identity: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose transaction a branch is of, as its global id says.

    :param name: of the coordinator, as far as it fitted.
    :param identity: of the run.
    """

    name: str
    identity: bytes
    unique: Unique


class Xids:
    """Makes the ids of one coordinator.

    :param name: the coordinator's; cut where it does not fit.
    :param identity: 8 bytes, of this run.
    :param generation: from 1, of this run.
    :param earlier: the runs before that are known.
    :param former: identities of runs at other places, of which another may have the log now.
    :raises ValueError: a number or identity that has no room.
    """

    def __init__(
        self,
        name: str,
        identity: bytes,
        generation: int,
        earlier: Iterable[Run] = (),
        former: Collection[bytes] = (),
    ) -> None:
        if len(identity) != IDENTITY_OCTETS:
            raise ValueError(f"an identity of {len(identity)} octets, not {IDENTITY_OCTETS}")
        if not 0 < generation <= _LAST_GENERATION:
            raise ValueError(f"generation {generation} is not between 1 and {_LAST_GENERATION}")
        self.identity: Final = identity
        self.generation: Final = generation
        self.former: Final = frozenset(former)
        self._earlier: Final = {run.identity: run.generation for run in earlier}
        counted = _counted(name, _NAME_OCTETS)
        #: The name as far as it fits.
        self.cut_name: Final = counted[1:].decode()
        self._head: Final = counted + identity
        self._counter = 0

    def next(self) -> tuple[Unique, bytes]:
        """A unique part that never was, and the global id that has it."""
        self._counter += 1
        unique = Unique(self.generation, self._counter)
        return unique, self._head + _UNIQUE.pack(
            unique.generation, unique.counter >> 32, unique.counter & 0xFFFFFFFF
        )

    def mine(self, origin: Origin) -> bool:
        """Whether the branch is of a run of this coordinator that is known."""
        return origin.identity == self.identity or origin.identity in self._earlier

    def made(self, origin: Origin) -> bool:
        """Whether this coordinator has given it out, or may have before.

        If it is :meth:`mine` and not made, the log is older than the branch.
        """
        if origin.identity == self.identity and origin.unique <= Unique(
            self.generation, self._counter
        ):
            return True
        return origin.unique.generation <= self._earlier.get(origin.identity, 0)


def bqual(ref_name: str, number: int) -> bytes:
    """A branch qualifier.

    :param number: of the branch in its transaction, from 1 to :data:`MOST_BRANCHES`.
    :raises ValueError: another number.
    """
    if not 0 < number <= MOST_BRANCHES:
        raise ValueError(f"branch {number} is not between 1 and {MOST_BRANCHES}")
    return _counted(ref_name, _REF_NAME_OCTETS) + bytes((number,))


def origin(xid: Xid) -> Origin | None:
    """Whose branch it is; None where the id is not of this form."""
    gtrid = xid.gtrid
    if xid.format_id != FORMAT_ID or not gtrid:
        return None
    name, rest = gtrid[1 : 1 + gtrid[0]], gtrid[1 + gtrid[0] :]
    # A provider may give an id back padded with zeros to 64 octets, as the original's ids are.
    if len(rest) < IDENTITY_OCTETS + _UNIQUE.size or rest[IDENTITY_OCTETS + _UNIQUE.size :].strip(
        b"\0"
    ):
        return None
    generation, high, low = _UNIQUE.unpack_from(rest, IDENTITY_OCTETS)
    try:
        return Origin(name.decode(), rest[:IDENTITY_OCTETS], Unique(generation, high << 32 | low))
    except UnicodeDecodeError:
        return None


def gtrid_without_padding(gtrid: bytes) -> bytes:
    """Return a global id without zeros that a provider may have appended."""
    return gtrid[: 1 + gtrid[0] + IDENTITY_OCTETS + _UNIQUE.size]


def ref_name(bqual: bytes) -> str | None:
    """Return the ``ref-name`` in a branch qualifier, as far as it fitted.

    None where it is not of this form.
    """
    if len(bqual) < 2 or len(bqual) < bqual[0] + 2:
        return None
    try:
        return bqual[1 : 1 + bqual[0]].decode()
    except UnicodeDecodeError:
        return None


def without_padding(bqual: bytes) -> bytes:
    """Return a branch qualifier without zeros that a provider appended."""
    return bqual[: bqual[0] + 2] if bqual and not bqual[bqual[0] + 2 :].strip(b"\0") else bqual


def rendered(xid: Xid) -> str:
    """``FORMAT:GTRID:BQUAL``, the last two in hex."""
    return f"{xid.format_id}:{xid.gtrid.hex()}:{xid.bqual.hex()}"


def _counted(text: str, most: int) -> bytes:
    """A length byte and the text, cut between characters."""
    encoded = text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore").encode()
    return bytes((len(encoded),)) + encoded
