"""A chain of hashes over whole segments, by which a change is seen later.

Owns the file :data:`CHAIN` in the journal's folder, and what it says: a line of JSON for each
segment, in the order in which they became whole, with its name, its octets, their SHA-256 and

    chain = SHA-256 of "BEFORE NAME SHA256 OCTETS", in hexadecimal

where BEFORE is the ``chain`` of the line before, and of the first line 64 zeros. Behind OCTETS there is
" found" for a segment that was whole before it was chained. When the retention removes segments, a line
has their names, and SHA-256 of "BEFORE removed NAME NAME ...". So who changes, removes, adds or reorders
segments, or says so of any, must make all later lines anew, and the last ``chain``, the head, is another
one. The head vouches for all of it where it is kept elsewhere: who can write the folder can make the
whole chain anew.

Called on the journal's thread; :func:`verify` on any.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from gateway.journal.schema import segment_of

#: Not a segment's name: readers of segments take all files with theirs.
CHAIN: Final = "journal.chain"
#: What the first line follows.
BEGINNING: Final = "0" * 64

_BLOCK: Final = 1 << 20
#: How often a folder is looked at whose chain changes meanwhile.
_TRIES: Final = 5


class ChainDamaged(OSError):
    """The file of a chain cannot be read as one. ``str`` says where."""


@dataclass(frozen=True, slots=True)
class Link:
    """A line of the chain, of a segment.

    :param sha256: of the segment, in hexadecimal.
    :param found: the segment was whole before it was chained: its process had been killed, or the
        chain was begun later. Until then nothing vouched for it.
    """

    segment: str
    octets: int
    sha256: str
    chain: str
    found: bool = False

    def follows(self, before: str) -> bool:
        """Whether its chain's value is right.

        :param before: that of the line before.
        """
        return self.chain == following(before, self.segment, self.sha256, self.octets, self.found)

    def line(self) -> bytes:
        """The line, with its line feed."""
        said: dict[str, object] = {
            "segment": self.segment,
            "octets": self.octets,
            "sha256": self.sha256,
            "chain": self.chain,
        }
        if self.found:
            said["found"] = True
        return _line(said)


@dataclass(frozen=True, slots=True)
class Removal:
    """A line of the chain: the retention removed these segments."""

    removed: tuple[str, ...]
    chain: str

    def follows(self, before: str) -> bool:
        return self.chain == following_removal(before, self.removed)

    def line(self) -> bytes:
        return _line({"removed": self.removed, "chain": self.chain})


def following(before: str, segment: str, digest: str, octets: int, found: bool = False) -> str:
    """The chain's value behind a segment. :param before: its value before it."""
    said = " found" if found else ""
    return sha256(f"{before} {segment} {digest} {octets}{said}".encode()).hexdigest()


def following_removal(before: str, removed: Iterable[str]) -> str:
    """The chain's value behind a removal. :param before: its value before it."""
    return sha256(" ".join([before, "removed", *removed]).encode()).hexdigest()


class Chain:
    """The chain of a journal that is written.

    :param folder: the journal's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._path: Final = folder / CHAIN
        #: None until it was read.
        self._lines: list[Link | Removal] | None = None
        #: The segments of its lines.
        self._known: Final[set[str]] = set()

    def add(self, segment: str, digest: str, octets: int, *, found: bool = False) -> None:
        """Chain a segment that is about to become whole, durably.

        One that is chained already stays as it is.

        :raises OSError: it is not chained; :meth:`complete` does it.
        """
        lines = self._read()
        if segment in self._known:
            return
        before = lines[-1].chain if lines else BEGINNING
        chain = following(before, segment, digest, octets, found)
        link = Link(segment, octets, digest, chain, found)
        try:
            _write(self._path, link.line(), os.O_APPEND)
        except OSError:
            # A part of the line may be there.
            self._lines = None
            raise
        lines.append(link)
        self._known.add(segment)

    def add_found(self, path: Path, segment: str) -> None:
        """Chain what a file has that is, or is to be, a whole segment.

        :raises OSError: as :meth:`add`.
        """
        self._read()
        if segment not in self._known:
            digest, octets = _digest(path)
            self.add(segment, digest, octets, found=True)

    def complete(self) -> None:
        """Chain the whole segments that are not chained, the oldest first.

        :raises OSError: one could not be.
        """
        self._read()
        left = [path for path in _segments(self._folder) if path.name not in self._known]
        for path in sorted(left, key=lambda path: (path.stat().st_mtime, path.name)):
            self.add_found(path, path.name)

    def forget(self, removed: Iterable[str]) -> None:
        """Note that these segments are removed now, as too old or too many.

        Of the lines before the first segment that is left one stays, which the next line follows.

        :raises OSError: it is not noted, so they are missing to who verifies.
        """
        lines = self._read()
        gone = [name for name in removed if name in self._known]
        if not gone:
            return
        lines = [*lines, Removal(tuple(gone), following_removal(lines[-1].chain, gone))]
        away = _removed(lines)
        first = next(
            (
                place
                for place, line in enumerate(lines)
                if isinstance(line, Link) and line.segment not in away
            ),
            len(lines),
        )
        lines = lines[max(0, first - 1) :]
        beside = self._path.with_name(f"{CHAIN}.new")
        _write(beside, b"".join([line.line() for line in lines]), os.O_TRUNC)
        beside.rename(self._path)
        self._took(lines)

    def _read(self) -> list[Link | Removal]:
        if self._lines is None:
            whole, torn = _lines(self._path)
            if torn:
                # The line that was being written when its process or machine ended.
                _write(self._path, b"", 0, sum([len(line.line()) for line in whole]))
            return self._took(whole)
        return self._lines

    def _took(self, lines: list[Link | Removal]) -> list[Link | Removal]:
        self._lines = lines
        self._known.clear()
        # One that is removed and is there again is another segment.
        away = _removed(lines)
        self._known.update(
            line.segment for line in lines if isinstance(line, Link) and line.segment not in away
        )
        return lines


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
    for _ in range(_TRIES):
        before = _octets(folder / CHAIN)
        verified = _verify(folder, head)
        if not verified.problems or _octets(folder / CHAIN) == before:
            break
        # The retention has removed something meanwhile, which was noted before it went.
    return verified


def _verify(folder: Path, head: str | None) -> Verified:
    # First these: a segment is chained before it gets its name.
    there = sorted([path.name for path in _segments(folder)])
    lines, _ = _lines(folder / CHAIN)
    if not lines:
        raise ChainDamaged(f"{folder / CHAIN}: there is no chain; see imq.journal.chain")
    problems: list[str] = []
    away = _removed(lines)
    begun = isinstance(lines[0], Link) and lines[0].segment not in away
    before = BEGINNING if begun else ""
    good = found = 0
    for number, line in enumerate(lines, 1):
        if before and not line.follows(before):
            of = f"of {line.segment}" if isinstance(line, Link) else "of what was removed"
            problems.append(f"line {number} of {CHAIN}, {of}, does not follow the line before it")
        before = line.chain
        if isinstance(line, Removal):
            continue
        if line.segment in away:
            if good:
                problems.append(
                    f"{line.segment} is said to be removed, and an older one is there; the retention removes the oldest first"
                )
            continue
        seen = _seen(folder / line.segment)
        if seen is None:
            if _has_gone(folder, line.segment):
                continue
            problems.append(f"{line.segment} is missing; it had {line.octets} octets")
            continue
        digest, octets = seen
        if (digest, octets) != (line.sha256, line.octets):
            problems.append(
                f"{line.segment} was changed: it has {octets} octets of SHA-256 {digest}, and had {line.octets} of {line.sha256}"
            )
            continue
        good += 1
        found += line.found
    if head is not None and head not in {line.chain for line in lines}:
        problems.append(
            f"the chain has never had the head {head}"
            if begun
            else f"the chain does not have the head {head}: it never had, or the retention has removed what it is of"
        )
    # What is noted as removed goes a moment later.
    known = away | {line.segment for line in lines if isinstance(line, Link)}
    problems += [
        f"{name} is not in the chain"
        for name in there
        if name not in known and (folder / name).exists()
    ]
    return Verified(good, found, before, tuple(problems))


def _has_gone(folder: Path, segment: str) -> bool:
    """Whether the retention has noted the end of a segment, or removed it."""
    lines, _ = _lines(folder / CHAIN)
    return segment in _removed(lines) or all(
        isinstance(line, Removal) or line.segment != segment for line in lines
    )


def _removed(lines: Sequence[Link | Removal]) -> set[str]:
    """Return the segments that these lines say were removed."""
    return {name for line in lines if isinstance(line, Removal) for name in line.removed}


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


def _octets(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _lines(path: Path) -> tuple[list[Link | Removal], bool]:
    """Read a chain.

    :returns: its lines, and whether a torn one is behind them.
    """
    *lines, rest = _octets(path).split(b"\n")
    found: list[Link | Removal] = []
    for number, line in enumerate(lines, 1):
        try:
            said = json.loads(line)
            if "removed" in said:
                found.append(Removal(tuple(map(str, said.pop("removed"))), **said))
            else:
                found.append(Link(**said))
        except (ValueError, TypeError) as error:
            raise ChainDamaged(f"{path}, line {number}: expected a line of the chain") from error
    return found, bool(rest)


def _line(said: dict[str, object]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


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
