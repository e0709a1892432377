"""What the octets of a transaction log mean, whether or not it is open.

Owns what counts of a log's changes, and copies of logs: how one is made, and how two are told to be
the same log. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bridge.xa.decision_log import Change, Entry, Presumed, Presumptions, Removed
from bridge.xa.errors import LogDamaged
from bridge.xa.log.records import COPY, Header, frame, header, read_changes, read_header


class LogContents:
    """The transactions that are not over, and the presumed branches."""

    def __init__(self) -> None:
        self._live: Final[dict[bytes, Entry]] = {}
        self._presumed: Final = Presumptions()

    @property
    def entries(self) -> Sequence[Entry]:
        """The transactions that are not over, in the order in which they came."""
        return tuple(self._live.values())

    @property
    def presumed(self) -> Sequence[Presumed]:
        """The branches taken for committed, in the order in which they came."""
        return tuple(self._presumed)

    def apply(self, change: Change) -> None:
        """Take a change that was written behind the others."""
        if isinstance(change, Removed):
            self._live.pop(change.gtrid, None)
        elif isinstance(change, Presumed):
            self._presumed.add(change)
        else:
            self._live[change.gtrid] = change

    def encoded(self, of: Header) -> bytes:
        """Return the octets of a log with this header and nothing that is over."""
        data = header(of)
        kept: list[Change] = [*self._presumed, *self._live.values()]
        if kept:
            data += frame(kept, of, len(data), 0)
            data += frame((), of, len(data), len(data))
        return data


def decoded(data: bytes, name: str, whole: bool) -> tuple[Header, LogContents, int]:
    """Read the octets of a log.

    :param name: the log's, for errors.
    :param whole: a torn tail is damage, because writing there cannot leave one.
    :returns: its header, what it holds, and the length of a torn tail.
    :raises LogDamaged: with the place.
    """
    contents = LogContents()
    try:
        of, end = read_header(data, name)
        changes, good = read_changes(data, of, end, name)
    except (ValueError, KeyError, TypeError) as strange:
        raise LogDamaged(
            name, 0, f"it holds what this gateway does not write: {strange}"
        ) from strange
    torn = len(data) - good
    if torn and whole:
        raise LogDamaged(name, good, "what is there is not what was written")
    for change in changes:
        contents.apply(change)
    return of, contents, torn


class LogCopy:
    """A log that is not open.

    :param data: its octets.
    :param name: as errors call it.
    :param whole: see :func:`decoded`.
    :raises LogDamaged: with the place.
    """

    def __init__(self, data: bytes, name: str, whole: bool) -> None:
        self.name: Final = name
        self._header, self._contents, _ = decoded(data, name, whole)

    @property
    def unfinished(self) -> int:
        """How many transactions it has that are not over.

        They are decided and not committed everywhere, or ended heuristically.
        """
        return len(self._contents.entries)

    @property
    def octets(self) -> bytes:
        """Its octets, without a torn tail and what is over."""
        return self._contents.encoded(self._header)

    def is_copy_of(self, other: LogCopy) -> bool:
        """Whether both are of one run, and have the same transactions."""
        return (
            self._header.identity == other._header.identity
            and self._contents.entries == other._contents.entries
            and self._contents.presumed == other._contents.presumed
        )

    def continues(self, other: LogCopy) -> bool:
        """Whether it has gone on from where the other one is.

        Then nothing is in the other that this one has not known. One that was made of a copy of a
        log in use does not: that log may have gone on, too.
        """
        return other._header.identity in {run.identity for run in self._header.earlier}

    def encoded(self, ended: bool) -> bytes:
        """Return the octets of a copy.

        :param ended: its run is over, and decides nothing any more. Such a copy is the same log
            wherever it goes on. A copy of one that may decide more leaves branches that it does not
            know to be decided alone.
        """
        return self._contents.encoded(replace(self._header, place="" if ended else COPY))
