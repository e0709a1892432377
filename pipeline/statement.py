"""A signed statement of what a job has proved.

Owns its form: a file of JSON, and beside it, as ``FILE.sig``, the 64 octets of an Ed25519 signature
(RFC 8032) of that file. Who has the public key, and the head of the journal's chain that was noted
before, can tell that both are as they were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gateway import __version__
from gateway.journal.chain import CHAIN, verify
from pipeline.durable import sync
from pipeline.errors import PipelineError
from pipeline.summary import Summary


@dataclass(frozen=True)
class Source:
    """What was read, as its chain of hashes shows it.

    :param segments: that are as they were chained; of them
    :param found: those that were whole before they were chained.
    :param head: of the chain; None where the folder has no chain.
    :param problems: a sentence for each segment that is not as it was chained.
    """

    path: str
    segments: int = 0
    found: int = 0
    head: str | None = None
    problems: Sequence[str] = ()


def key_of(path: Path) -> Ed25519PrivateKey:
    """Read a private key, PEM without a passphrase.

    :raises PipelineError: it is no such key.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise PipelineError(f"--signed {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PipelineError(
            f"--signed {path}: expected a private key as PEM, without a passphrase"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise PipelineError(
            f"--signed {path}: expected a key for Ed25519, as openssl genpkey -algorithm ed25519 makes"
        )
    return key


def source_of(path: str) -> Source:
    """Look at what is read.

    :param path: a folder of a journal; of anything else, and of one without a chain, nothing is
        said but its name.
    :raises PipelineError: its chain cannot be read.
    """
    folder = Path(path)
    if not (folder / CHAIN).exists():
        return Source(path)
    try:
        verified = verify(folder)
    except OSError as error:
        raise PipelineError(str(error)) from error
    return Source(path, verified.segments, verified.found, verified.head, verified.problems)


def sign(
    key: Ed25519PrivateKey,
    file: Path,
    asked: Mapping[str, object],
    sources: Sequence[Source],
    agrees: bool,
    summary: Summary,
) -> None:
    """Write a statement and its signature, durably, in place of former ones.

    :param asked: what was to be proved, by the names of options.
    :raises PipelineError: they cannot be written.
    """
    said = {
        "statement": summary.title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": f"stomp-gateway {__version__}",
        "asked": dict(asked),
        "read": [asdict(source) for source in sources],
        "agrees": agrees,
        "facts": dict(summary.facts),
        "links": [
            list(row) for table in summary.tables if table.title == "Links" for row in table.rows
        ],
    }
    data = (json.dumps(said, indent=1, sort_keys=True, default=str) + "\n").encode()
    try:
        # The signature first: a statement never has the signature of another one beside it for long.
        _replace(file.with_name(f"{file.name}.sig"), key.sign(data))
        _replace(file, data)
    except OSError as error:
        raise PipelineError(f"--signed {file}: {error.strerror or error}") from error


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        sync(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)
