"""The format of a transaction log: a header, and frames of changes.

A log begins with ``SGtxlog1``. Then come frames, the first of them the header: identities,
generation and name of the coordinator. A frame is::

    mark: 2 bytes | length: 4 bytes | synced: 8 bytes | CRC-32: 4 bytes | changes, as JSON

A frame is whole or not at all, so changes that were written together stay together. ``synced`` is
up to where the file was known to be on the disk when the frame was written. This tells damage from
a torn tail: what was on the disk can only be damaged, what was not can be torn, in any order. The
CRC covers the frame's place and the header's identity and generation, so that bytes of another
log, or of another place, do not count as a frame.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bridge.xa.decision_log import Change, Entry, LoggedBranch, Presumed, Removed
from bridge.xa.errors import LogDamaged
from bridge.xa.status import BranchState
from bridge.xa.xids import IDENTITY_OCTETS, Run

MAGIC: Final = b"SGtxlog1"
#: The place in the header of a copy of a log that was in use, wherever the copy is.
COPY: Final = "copy"
_MAGIC_OF_ANY_VERSION: Final = MAGIC[:-1]
_MARK: Final = b"\xa7\xf4"
_HEAD: Final = struct.Struct(">2sIQI")
_PLACE: Final = struct.Struct(">IQQ")


@dataclass(frozen=True, slots=True)
class Header:
    """Whose log it is.

    :param identity: of the run that began when it was opened last.
    :param generation: how often it was opened.
    :param place: where that was; "" where it is not known; :data:`COPY`.
    :param former: identities that it had at other places, the last one first.
    :param earlier: the runs before at this place, likewise.
    """

    identity: bytes
    generation: int
    name: str
    place: str = ""
    former: tuple[bytes, ...] = ()
    earlier: tuple[Run, ...] = ()

    @property
    def seed(self) -> int:
        """Where the CRCs of this log's frames begin."""
        return zlib.crc32(self.identity + self.generation.to_bytes(8, "big"))


def header(of: Header) -> bytes:
    """The beginning of a log."""
    said = {
        "identity": of.identity.hex(),
        "generation": of.generation,
        "name": of.name,
        "place": of.place,
        "former": [identity.hex() for identity in of.former],
        "earlier": [[run.identity.hex(), run.generation] for run in of.earlier],
    }
    return MAGIC + _framed(json.dumps(said).encode(), 0, len(MAGIC), 0)


def frame(changes: Iterable[Change], of: Header, offset: int, synced: int) -> bytes:
    """Changes as a frame.

    :param offset: where it will be.
    :param synced: up to where the file is on the disk.
    """
    said = [_written(change) for change in changes]
    return _framed(json.dumps(said, separators=(",", ":")).encode(), of.seed, offset, synced)


def read_header(data: bytes, file: str) -> tuple[Header, int]:
    """The header, and where it ends.

    It is never torn, as a log is made in one step.

    :raises LogDamaged:
    """
    if not data.startswith(MAGIC):
        if data.startswith(_MAGIC_OF_ANY_VERSION):
            raise LogDamaged(
                file,
                0,
                f"it is of a version that this gateway does not know ({data[: len(MAGIC)]!r})",
            )
        raise LogDamaged(file, 0, "it does not begin as a transaction log does")
    found = _parsed(data, len(MAGIC), 0)
    if found is None:
        raise LogDamaged(file, len(MAGIC), "its header is not what was written")
    payload, _, end = found
    said = json.loads(payload)
    identity = bytes.fromhex(said["identity"])
    if len(identity) != IDENTITY_OCTETS:
        raise LogDamaged(file, len(MAGIC), "its header has no identity")
    former = tuple(bytes.fromhex(one) for one in said.get("former", ()))
    earlier = tuple(
        Run(bytes.fromhex(one), generation) for one, generation in said.get("earlier", ())
    )
    return Header(
        identity, said["generation"], said["name"], said.get("place", ""), former, earlier
    ), end


def read_changes(data: bytes, of: Header, offset: int, file: str) -> tuple[list[Change], int]:
    """Everything behind the header that is good.

    :returns: the changes, and where a torn tail begins; the length without one.
    :raises LogDamaged: there is something that cannot be understood, though it was on the disk when
        what follows was written.
    """
    changes: list[Change] = []
    while offset < len(data):
        found = _parsed(data, offset, of.seed)
        if found is None:
            _require_torn(data, of, offset, file)
            break
        payload, _, end = found
        changes += [_read(said) for said in json.loads(payload)]
        offset = end
    return changes, offset


def _require_torn(data: bytes, of: Header, broken: int, file: str) -> None:
    at = broken
    while (at := data.find(_MARK, at + 1)) >= 0:
        found = _parsed(data, at, of.seed)
        if found is not None and found[1] > broken:
            raise LogDamaged(
                file,
                broken,
                f"what is there is not what was written, and the log goes on at octet {at}",
            )


def _framed(payload: bytes, seed: int, offset: int, synced: int) -> bytes:
    return _HEAD.pack(_MARK, len(payload), synced, _crc(payload, seed, offset, synced)) + payload


def _parsed(data: bytes, offset: int, seed: int) -> tuple[bytes, int, int] | None:
    """Return payload, ``synced`` and the frame's end; None without a frame."""
    if offset + _HEAD.size > len(data):
        return None
    mark, length, synced, crc = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    if mark != _MARK or start + length > len(data):
        return None
    payload = data[start : start + length]
    return (payload, synced, start + length) if crc == _crc(payload, seed, offset, synced) else None


def _crc(payload: bytes, seed: int, offset: int, synced: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_PLACE.pack(len(payload), synced, offset), seed))


def _written(change: Change) -> dict[str, Any]:
    if isinstance(change, Removed):
        return {"removed": change.gtrid.hex()}
    if isinstance(change, Presumed):
        return {"presumed": change.gtrid.hex(), "bqual": change.bqual.hex(), "at": change.at_ms}
    return {
        "gtrid": change.gtrid.hex(),
        "since": change.since_ms,
        "decided": change.decided,
        "forgetting": change.forgetting,
        "branches": [
            [one.bqual.hex(), one.ref_name, one.rm, one.state.value, one.error]
            for one in change.branches
        ],
    }


def _read(said: dict[str, Any]) -> Change:
    if "removed" in said:
        return Removed(bytes.fromhex(said["removed"]))
    if "presumed" in said:
        return Presumed(bytes.fromhex(said["presumed"]), bytes.fromhex(said["bqual"]), said["at"])
    branches = (
        LoggedBranch(bytes.fromhex(bqual), ref_name, rm, BranchState(state), error)
        for bqual, ref_name, rm, state, error in said["branches"]
    )
    return Entry(
        bytes.fromhex(said["gtrid"]),
        said["since"],
        said["decided"],
        said["forgetting"],
        tuple(branches),
    )
