"""Signed statements, as somebody else checks them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from pipeline.errors import PipelineError
from pipeline.statement import Source, key_of, sign, source_of
from pipeline.summary import Summary, Table
from tests.gateway.journal.test_chain import changed, filled

pytestmark = pytest.mark.process

SUMMARY = Summary(
    "Reconciliation of links",
    {"verdict": "agree", "messages": 3},
    [Table("Links", ("link", "what", "messages"), [("b/l", "messages", 3)])],
)


def written(path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def test_openssl_verifies_it_as_the_page_says(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline_reconcile.rst"
    typed = re.findall(r"^    (openssl .*)$", page.read_text(), re.MULTILINE)
    *makes, verifies = [shlex.split(line) for line in typed]
    for line in makes:
        subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
    file = tmp_path / "2026-03-01.json"
    for _ in range(2):
        sources = [Source("journal", 2, 1, "ab", ())]
        sign(key_of(tmp_path / "reconcile.key"), file, {"late": 3.0}, sources, True, SUMMARY)
    said = json.loads(file.read_bytes())
    assert (said["agrees"], said["asked"], said["facts"]["messages"]) == (True, {"late": 3.0}, 3)
    assert said["links"] == [["b/l", "messages", 3]]
    assert said["read"][0]["head"] == "ab"
    names = ["2026-03-01.json", "2026-03-01.json.sig", "reconcile.key", "reconcile.pub"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names

    def verified() -> bool:
        ended = subprocess.run(verifies, cwd=tmp_path, capture_output=True, check=False)
        return ended.returncode == 0

    assert verified()
    file.write_bytes(file.read_bytes().replace(b'"agrees": true', b'"agrees": True'))
    assert not verified()


def test_what_a_chain_shows_is_in_it(tmp_path: Path) -> None:
    assert source_of(str(tmp_path)) == Source(str(tmp_path))
    assert source_of("s3://bucket/events").head is None
    filled(tmp_path)
    source = source_of(str(tmp_path))
    assert (source.segments, source.found, list(source.problems)) == (4, 0, [])
    assert source.head is not None
    changed(tmp_path)
    assert len(source_of(str(tmp_path)).problems) == 1


def test_keys_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(PipelineError, match=r"--signed .*key.pem: No such file"):
        key_of(path)
    path.write_text("no key")
    with pytest.raises(PipelineError, match="expected a private key as PEM, without a passphrase"):
        key_of(path)
    other = generate_private_key(SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(PipelineError, match="expected a key for Ed25519, as openssl genpkey"):
        key_of(path)
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    with pytest.raises(PipelineError, match="without a passphrase"):
        key_of(path)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "absent" / "statement.json"
    with pytest.raises(PipelineError, match=r"--signed .*statement.json: No such file"):
        sign(Ed25519PrivateKey.generate(), file, {}, [], True, SUMMARY)
