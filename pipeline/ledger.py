"""The ledger of replays: messages that were to be sent, and were sent.

Owns one file, to which is only ever appended, and the lock that lets one replay at a time write it.
What :meth:`Ledger.append` has returned from is on the disk. Knows nothing of Spark, nor of how
messages are sent: the sender appends ``intended`` before, and ``sent`` once the broker has
confirmed. What is intended and not sent, after a crash, may be at the target or not; sent again
under the same duplicate id, it is there once.

The file ``ledger.jsonl`` is text in UTF-8, a JSON object on each line: first
``{"ledger": 1, "id": ...}``, then records by the names of :data:`RECORDS`. A last line without its
end was cut short by a crash; nothing was done on the strength of it, so it is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

from pipeline.durable import sync
from pipeline.errors import PipelineError

VERSION: Final = 1
FILE: Final = "ledger.jsonl"
#: A record, as Spark SQL writes the type. ``at`` is in microseconds since 1970-01-01 UTC; ``plan``
#: is the digest of the plan that was carried out.
RECORDS: Final = "state string, at bigint, key string, twin string, message_id string, target string, plan string"


class State(StrEnum):
    """What a record says of its message."""

    #: It is about to be sent.
    INTENDED = "intended"
    #: The broker has said that it has it.
    SENT = "sent"
    #: The dead message was taken from its queue.
    REMOVED = "removed"


class Ledger:
    """A ledger that only this process writes. Made by :func:`opened`.

    :ivar id: tells it from all other ledgers. :ivar path: of its file.
    """

    def __init__(self, path: Path, id: str, file: IO[bytes]) -> None:
        self.path: Final = path
        self.id: Final = id
        self._file: Final = file

    def append(
        self, state: State, at_us: int, plan: str, messages: Iterable[Mapping[str, Any]]
    ) -> None:
        """Write a record for each message, and return when all are on the disk.

        :param at_us: microseconds since the epoch, now.
        :param plan: the plan's digest.
        :param messages: each with ``key``, ``twin``, ``message_id`` and ``target``.
        :raises PipelineError: they cannot be written.
        """
        fields = ("key", "twin", "message_id", "target")
        records = [
            {
                "state": state.value,
                "at": at_us,
                **{name: each[name] for name in fields},
                "plan": plan,
            }
            for each in messages
        ]
        try:
            _write(self._file, b"".join(map(_line, records)))
        except OSError as error:
            raise PipelineError(
                f"the ledger {self.path} cannot be written: {error.strerror}"
            ) from None


@contextmanager
def opened(folder: Path, new_id: str) -> Iterator[Ledger]:
    """Open this folder's ledger, or make it, and lock it against writers.

    :param new_id: becomes the id of a new one.
    :raises PipelineError: it is in use, damaged, of a version that is not known here, or the folder
        cannot be written.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Without a buffer: what a full disk has refused is not tried once more when the file is
        # closed.
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise PipelineError(f"--ledger {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"--ledger {folder}: another replay uses it") from None
        except OSError as error:
            raise PipelineError(
                f"--ledger {folder}: it cannot be locked: {error.strerror}"
            ) from None
        id, whole = _checked(path)
        try:
            file.truncate(whole)
            _write(file, b"" if id else _line({"ledger": VERSION, "id": new_id}))
            sync(folder)
        except OSError as error:
            raise PipelineError(f"the ledger {path} cannot be written: {error.strerror}") from None
        yield Ledger(path, id or new_id, file)


def exists(folder: Path) -> bool:
    """Whether there is a non-empty ledger.

    :raises PipelineError: as :func:`opened`.
    """
    path = folder / FILE
    try:
        return path.is_file() and bool(_checked(path)[0])
    except OSError as error:
        raise PipelineError(f"--ledger {folder}: {error.strerror}") from None


def _write(file: IO[bytes], octets: bytes) -> None:
    """Write all of it, and return when it is on the disk."""
    left = memoryview(octets)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def _checked(path: Path) -> tuple[str, int]:
    """Return the ledger's id, "" if empty, and its bytes in whole lines."""
    id, whole, number = "", 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                said = json.loads(line)
                if number == 1:
                    version, id = said["ledger"], said["id"]
                    if version != VERSION:
                        raise PipelineError(
                            f"the ledger {path} has version {version}; this program knows version {VERSION}"
                        )
                elif said["state"] and said["key"]:
                    pass
            except (ValueError, TypeError, KeyError):
                raise PipelineError(
                    f"the ledger {path} is damaged in line {number}: nothing is replayed by it"
                ) from None
            whole += len(line)
    return id, whole


def _line(values: Mapping[str, Any]) -> bytes:
    return (
        json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
        + b"\n"
    )
