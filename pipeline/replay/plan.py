"""A plan of a replay: a file to read, approve and carry out unchanged.

It says which messages go where.

Owns the file's form and whether it was changed. Knows nothing of Spark, nor of what the messages
are; a plan may name millions, so it is never held in memory.

The file is text in UTF-8, a JSON object on each line: first
``{"plan": 1, "made": ..., "request": {...}}``, what was asked for and when; then a message on each
line, by the names of :data:`ROWS`; last ``{"messages": N, "sha256": ...}``, the digest of all
octets before that line, which is also the plan's name. The digest finds what was changed by
mistake; one who can write the file can also write a new digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from pipeline.errors import PipelineError

VERSION: Final = 1
#: A message of a plan, as Spark SQL writes the type. ``place`` is its place in the order of
#: sending, from 1 on; ``digest`` is that of the whole original, ``died`` in epoch milliseconds.
ROWS: Final = "place bigint, key string, twin string, message_id string, queue string, target string, digest string, size bigint, died bigint"


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that was read to its end and is as it was written.

    :param request: what was asked for, by names that are the job's.
    :param messages: how many it names.
    :param digest: names the plan: SHA-256 in hexadecimal.
    """

    path: Path
    request: Mapping[str, Any]
    made: str
    messages: int
    digest: str


def write_plan(
    path: Path, request: Mapping[str, Any], made: str, rows: Iterable[Mapping[str, Any]]
) -> Plan:
    """Write a plan, which appears whole or not at all.

    :param made: when, for people.
    :param rows: by the names of :data:`ROWS`, in order.
    :raises PipelineError: the file is there already, or cannot be written.
    """
    # Its own: another may be at it at the same time.
    temporary = path.with_name(f"{path.name}.{token_hex(4)}.part")
    digest = hashlib.sha256()
    messages = 0
    try:
        with temporary.open("wb") as file:
            first = {"plan": VERSION, "made": made, "request": dict(request)}
            for messages, line in enumerate(_lines(first, rows)):  # noqa: B007
                digest.update(line)
                file.write(line)
            file.write(_line({"messages": messages, "sha256": digest.hexdigest()}))
            file.flush()
            os.fsync(file.fileno())
        # Not by a rename, which would replace a plan that may be approved already.
        os.link(temporary, path)
    except FileExistsError:
        raise PipelineError(
            f"--plan {path}: there is a file already; a plan is never replaced"
        ) from None
    except OSError as error:
        raise PipelineError(f"--plan {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return Plan(path, request, made, messages, digest.hexdigest())


def read_plan(path: Path) -> Plan:
    """Read a whole plan and check it.

    :raises PipelineError: it cannot be read, is no plan, is of an unknown version, or
        was changed since it was written.
    """
    try:
        digest, messages, first, last = _looked_at(path)
    except OSError as error:
        raise PipelineError(f"--approve {path}: {error.strerror}") from None
    header, footer = _object(first), _object(last)
    if "plan" not in header:
        raise PipelineError(f"--approve {path}: this is no plan of a replay")
    if header["plan"] != VERSION:
        raise PipelineError(
            f"--approve {path}: the plan has version {header['plan']}; this program knows version {VERSION}"
        )
    if (
        "sha256" not in footer
        or footer["sha256"] != digest
        or footer.get("messages") != messages - 1
    ):
        raise PipelineError(
            f"--approve {path}: the plan was changed, or cut short, since it was written: make a new one"
        )
    return Plan(path, header.get("request", {}), header.get("made", ""), messages - 1, digest)


def copy_plan(plan: Plan, folder: Path) -> Path:
    """Copy a plan that was read into a folder, which is made.

    :returns: the copy.

    :raises PipelineError: it cannot be made, or the plan has changed.
    """
    copy = folder / "plan"
    try:
        folder.mkdir()
        shutil.copyfile(plan.path, copy)
    except OSError as error:
        raise PipelineError(
            f"--approve {plan.path}: it cannot be copied to {folder}: {error.strerror}"
        ) from None
    if _looked_at(copy)[0] != plan.digest:
        raise PipelineError(
            f"--approve {plan.path}: the plan was changed while it was carried out: nothing was sent"
        )
    return copy


def _looked_at(path: Path) -> tuple[str, int, bytes, bytes]:
    """Return the digest of all lines but the last, their number, first, last."""
    digest = hashlib.sha256()
    lines = -1
    first = last = b""
    with path.open("rb") as file:
        for line in file:
            if lines < 0:
                first = line
            if last:
                digest.update(last)
            last = line
            lines += 1
    return digest.hexdigest(), lines, first, last


def _lines(first: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterable[bytes]:
    yield _line(first)
    for row in rows:
        yield _line(row)


def _line(values: Mapping[str, Any]) -> bytes:
    return (
        json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
        + b"\n"
    )


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
