"""What one mark of a link's balance says, and its octets.

A mark is written at each step that a crash could leave half done, see :mod:`bridge.link.balance`.
So it is small, cheap to make, and known to be whole when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter
from struct import Struct
from typing import Final
from zlib import crc32

from bridge.link.status import BalanceTerms
from bridge.link.transfer import Dead, Item, NotTransferred

_MAGIC: Final = b"balance1"
#: Magic, checksum of the rest, its length, number.
_HEAD: Final = Struct(">8sIIQ")
_NAMES: Final = [each.name for each in fields(BalanceTerms)]
_values: Final = attrgetter(*_NAMES)
_TERMS: Final = Struct(f">{len(_NAMES)}qq")
_GROUP: Final = Struct(">cI")
#: No id of a message has it.
_BETWEEN: Final = "\0"


class Fate(Enum):
    """The term of the balance of a message that its source has forgotten."""

    OUT = "out"
    DEAD = "dead"
    NOT_TRANSFERRED = "not_transferred"
    LOST = "lost"


_OUT: Final = b"o"
_DEAD: Final = b"d"
_NOT_TRANSFERRED: Final = b"n"
_LOST: Final = b"l"
_LETTERS: Final[Mapping[Fate, bytes]] = {
    Fate.OUT: _OUT,
    Fate.DEAD: _DEAD,
    Fate.NOT_TRANSFERRED: _NOT_TRANSFERRED,
    Fate.LOST: _LOST,
}
_FATES: Final[Mapping[bytes, Fate]] = {letter: fate for fate, letter in _LETTERS.items()}


def asked_octets(items: Iterable[Item], unsent: Fate) -> bytes:
    """Return what becomes of each message if its source forgets it.

    Called with each batch, so it makes no more than the octets.

    :param unsent: of those that are to be sent, and are not sent yet.
    :returns: for :func:`encoded`.
    """
    by_letter: dict[bytes, list[str]] = {}
    letter_of_unsent = _LETTERS[unsent]
    for item in items:
        letter = letter_of_unsent
        if item.sent:
            letter = _OUT
        elif isinstance(item.outcome, NotTransferred):
            letter = _NOT_TRANSFERRED
        elif isinstance(item.outcome, Dead):
            letter = _LOST if item.lost else _DEAD
        id = item.received.message.message_id
        if letter in by_letter:
            by_letter[letter].append(id)
        else:
            by_letter[letter] = [id]
    return b"".join([_group(letter, ids) for letter, ids in by_letter.items()])


def _group(letter: bytes, ids: Sequence[str]) -> bytes:
    text = _BETWEEN.join(ids).encode("utf-8", "surrogatepass")
    return _GROUP.pack(letter, len(text)) + text


def groups_of(data: bytes, at: int = 0) -> tuple[dict[str, Fate], dict[str, Fate]]:
    """Read groups of messages.

    :returns: those that were asked for, and presumed ones, by id.
    """
    asked: dict[str, Fate] = {}
    presumed: dict[str, Fate] = {}
    while at < len(data):
        letter, size = _GROUP.unpack_from(data, at)
        at += _GROUP.size
        ids = data[at : at + size].decode("utf-8", "surrogatepass").split(_BETWEEN)
        at += size
        into = presumed if letter.isupper() else asked
        into.update(dict.fromkeys(ids, _FATES[letter.lower()]))
    return asked, presumed


def group_octets(ids: Mapping[str, Fate], presumed: bool = False) -> bytes:
    """Return the octets of these messages, for :func:`encoded`.

    :param presumed: see :attr:`Mark.presumed`.
    """
    by_letter: dict[bytes, list[str]] = {}
    for id, fate in ids.items():
        by_letter.setdefault(_LETTERS[fate], []).append(id)
    return b"".join(
        [_group(letter.upper() if presumed else letter, each) for letter, each in by_letter.items()]
    )


@dataclass(slots=True)
class Mark:
    """One mark.

    :param number: of two marks the one with the larger number is the newer.
    :param terms: the balance.
    :param sending: messages that were being sent, which their source may give out again.
    :param asked: those that their source was asked to forget, and did not confirm, by id.
    :param presumed: those that count as forgotten and may yet come again, by id.
    :param ahead: of one that is written durably: messages that may be moved before the next.
    :param boot: likewise: of the machine.
    :param doubles: likewise: the link may have messages twice at its target.
    """

    number: int
    terms: BalanceTerms
    sending: int = 0
    asked: dict[str, Fate] = field(default_factory=dict)
    presumed: dict[str, Fate] = field(default_factory=dict)
    ahead: int = 0
    boot: int = 0
    doubles: bool = False


def encoded(number: int, terms: BalanceTerms, sending: int, groups: Sequence[bytes]) -> bytes:
    """Return the octets of a mark. :param groups: see :func:`group_octets`."""
    rest = b"".join([_TERMS.pack(*_values(terms), sending), *groups])
    return _HEAD.pack(_MAGIC, _checksum(number, rest), len(rest), number) + rest


def decoded(data: bytes) -> Mark | None:
    """Return the mark that these octets begin with; None if it is damaged."""
    if len(data) < _HEAD.size:
        return None
    magic, checksum, length, number = _HEAD.unpack_from(data)
    rest = data[_HEAD.size : _HEAD.size + length]
    if (
        magic != _MAGIC
        or len(rest) != length
        or length < _TERMS.size
        or _checksum(number, rest) != checksum
    ):
        return None
    *terms, sending = _TERMS.unpack_from(rest)
    mark = Mark(number, BalanceTerms(*terms), sending)
    mark.asked, mark.presumed = groups_of(rest, _TERMS.size)
    return mark


def _checksum(number: int, rest: bytes) -> int:
    return crc32(rest, crc32(number.to_bytes(8, "big")))
