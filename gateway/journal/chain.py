"""A chain of hashes over whole segments, by which a change is seen later.

Owns the file :data:`CHAIN` in the journal's folder, and what it says: a line of JSON for each
segment, in the order in which they became whole, with its name, its octets, their SHA-256 and

    chain = SHA-256 of "BEFORE NAME SHA256 OCTETS", in hexadecimal

where BEFORE is the ``chain`` of the line before, and of the first line 64 zeros. So who changes,
removes, adds or reorders segments must make all later lines anew, and the last ``chain``, the head,
is another one. The head vouches for all of it where it is kept elsewhere: who can write the folder can
make the whole chain anew.

Called on the journal's thread; :func:`verify` on any.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Final

from gateway.journal.schema import segment_of

#: Not a segment's name: readers of segments take all files with theirs.
CHAIN: Final = "journal.chain"
#: What the first line follows.
BEGINNING: Final = "0" * 64

_BLOCK: Final = 1 << 20


class ChainDamaged(OSError):
    """The file of a chain cannot be read as one. ``str`` says where."""


@dataclass(frozen=True, slots=True)
class Link:
    """A line of the chain.

    :param sha256: of the segment, in hexadecimal.
    :param found: the segment was whole before it was chained: its process had been killed, or the
        chain was begun later. Until then nothing vouched for it.
    :param removed: it was removed, as too old or one of too many.
    """

    segment: str
    octets: int
    sha256: str
    chain: str
    found: bool = False
    removed: bool = False

    def line(self) -> bytes:
        """The line, with its line feed."""
        said: dict[str, object] = {
            "segment": self.segment,
            "octets": self.octets,
            "sha256": self.sha256,
            "chain": self.chain,
        }
        said |= {name: True for name in ("found", "removed") if getattr(self, name)}
        return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def following(before: str, segment: str, digest: str, octets: int) -> str:
    """The chain's value behind a segment. :param before: its value before it."""
    return sha256(f"{before} {segment} {digest} {octets}".encode()).hexdigest()


class Chain:
    """The chain of a journal that is written.

    :param folder: the journal's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._path: Final = folder / CHAIN
        #: By segment; None until it was read.
        self._links: dict[str, Link] | None = None

    def add(self, segment: str, digest: str, octets: int, *, found: bool = False) -> None:
        """Chain a segment that is about to become whole, durably.

        One that is chained already stays as it is.

        :raises OSError: it is not chained; :meth:`complete` does it.
        """
        links = self._read()
        if segment in links:
            return
        before = next(reversed(links.values())).chain if links else BEGINNING
        link = Link(segment, octets, digest, following(before, segment, digest, octets), found)
        try:
            _write(self._path, link.line(), os.O_APPEND)
        except OSError:
            # A part of the line may be there.
            self._links = None
            raise
        links[segment] = link

    def add_found(self, path: Path, segment: str) -> None:
        """Chain what a file has that is, or is to be, a whole segment.

        :raises OSError: as :meth:`add`.
        """
        if segment not in self._read():
            digest, octets = _digest(path)
            self.add(segment, digest, octets, found=True)

    def complete(self) -> None:
        """Chain the whole segments that are not chained, the oldest first.

        :raises OSError: one could not be.
        """
        left = [path for path in _segments(self._folder) if path.name not in self._read()]
        for path in sorted(left, key=lambda path: (path.stat().st_mtime, path.name)):
            self.add_found(path, path.name)

    def forget(self, removed: Iterable[str]) -> None:
        """Note that these segments were removed, as too old or too many.

        Of the lines before the first segment that is left one stays, which the next line follows.

        :raises OSError: it is not noted, so they are missing to who verifies.
        """
        gone = set(removed)
        links = self._read()
        if not gone & links.keys():
            return
        marked = [
            replace(each, removed=True) if each.segment in gone else each for each in links.values()
        ]
        first = sum([1 for _ in takewhile(attrgetter("removed"), marked)])
        marked = marked[max(0, first - 1) :]
        beside = self._path.with_name(f"{CHAIN}.new")
        _write(beside, b"".join([link.line() for link in marked]), os.O_TRUNC)
        beside.rename(self._path)
        self._links = {link.segment: link for link in marked}

    def _read(self) -> dict[str, Link]:
        if self._links is None:
            whole, torn = _links(self._path)
            if torn:
                # The line that was being written when its process or machine ended.
                _write(self._path, b"", 0, sum([len(link.line()) for link in whole]))
            self._links = {link.segment: link for link in whole}
        return self._links


@dataclass(frozen=True, slots=True)
class Verified:
    """What a journal's folder shows.

    :param segments: that are as they were chained.
    :param found: of them, those that were whole before they were chained.
    :param head: the value of the chain behind the last.
    :param problems: a sentence for each; empty where all is well.
    """

    segments: int
    found: int
    head: str
    problems: tuple[str, ...]


def verify(folder: Path, head: str | None = None) -> Verified:
    """Compare the segments of a folder with its chain. Changes nothing.

    It may run while the journal is written.

    :param head: a value that the chain has had, which is looked for; None for none.
    :raises OSError: something cannot be read; :class:`ChainDamaged`, or there is no chain.
    """
    # First these: a segment is chained before it gets its name.
    there = sorted([path.name for path in _segments(folder)])
    links, _ = _links(folder / CHAIN)
    if not links:
        raise ChainDamaged(f"{folder / CHAIN}: there is no chain; see imq.journal.chain")
    problems: list[str] = []
    before = "" if links[0].removed else BEGINNING
    good = found = 0
    for number, link in enumerate(links, 1):
        if before and link.chain != following(before, link.segment, link.sha256, link.octets):
            problems.append(
                f"line {number} of {CHAIN}, of {link.segment}, does not follow the line before it"
            )
        before = link.chain
        if link.removed:
            # No line's hash has the mark, and the retention begins with the oldest.
            if good:
                problems.append(
                    f"{link.segment} is marked as removed, and an older one is there; the retention removes the oldest first"
                )
            continue
        seen = _seen(folder / link.segment)
        if seen is None:
            problems.append(f"{link.segment} is missing; it had {link.octets} octets")
            continue
        digest, octets = seen
        if (digest, octets) != (link.sha256, link.octets):
            problems.append(
                f"{link.segment} was changed: it has {octets} octets of SHA-256 {digest}, and had {link.octets} of {link.sha256}"
            )
            continue
        good += 1
        found += link.found
    if head is not None and head not in {link.chain for link in links}:
        problems.append(
            f"the chain does not have the head {head}: it never had, or the retention has removed what it is of"
            if links[0].removed
            else f"the chain has never had the head {head}"
        )
    known = {link.segment for link in links}
    problems += [f"{name} is not in the chain" for name in there if name not in known]
    return Verified(good, found, before, tuple(problems))


def _segments(folder: Path) -> list[Path]:
    """Return the whole segments of a folder."""
    return [path for path in folder.iterdir() if segment_of(path.name) is not None]


def _seen(segment: Path) -> tuple[str, int] | None:
    """Return what is there of a segment that is chained; None for nothing."""
    # The second gets the name of the first just now, or at the next start.
    for path in (segment, segment.with_name(f"{segment.name}.open"), segment):
        try:
            return _digest(path)
        except FileNotFoundError:
            continue
    return None


def _digest(path: Path) -> tuple[str, int]:
    digest, octets = sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            octets += len(block)
    return digest.hexdigest(), octets


def _links(path: Path) -> tuple[list[Link], bool]:
    """Read a chain.

    :returns: its lines, and whether a torn one is behind them.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], False
    *lines, rest = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Link(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ChainDamaged(f"{path}, line {number}: expected a line of the chain") from error
    return found, bool(rest)


def _write(path: Path, data: bytes, mode: int, size: int | None = None) -> None:
    """Write durably. :param size: octets that the file is cut to before."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | mode, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        if size is not None:
            os.ftruncate(descriptor, size)
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
