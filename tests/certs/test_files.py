"""Files of certificates and keys: modes, whole replacement, and errors that name the file."""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from certs.authority import Authority, KeyType, make_key
from certs.files import (
    CertificateFileError,
    certificate_pem,
    key_pem,
    read,
    read_certificates,
    read_key,
    read_revocation_lists,
    revocation_list_pem,
    same_key,
    write_private,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_what_is_written_is_its_owners_alone_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(path, b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.key"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(CertificateFileError, match=r"a\.key: cannot be written: "):
        write_private(path, b"new")
    assert os.listdir(tmp_path) == ["a.key"]
    with pytest.raises(CertificateFileError, match="No such file or directory"):
        write_private(tmp_path / "missing" / "a.key", b"new")


@pytest.mark.parametrize("key_type", list(KeyType))
@pytest.mark.parametrize("password", [None, "pässword".encode()])
def test_keys_come_back(tmp_path: Path, key_type: KeyType, password: bytes | None) -> None:
    key, path = make_key(key_type), tmp_path / "a.key"
    write_private(path, key_pem(key, password))
    assert (b"ENCRYPTED" in path.read_bytes()) == (password is not None)
    assert read_key(path, password).private_numbers() == key.private_numbers()


def test_a_password_for_a_key_that_has_none_is_ignored(tmp_path: Path) -> None:
    key, path = make_key(KeyType.EC), tmp_path / "a.key"
    write_private(path, key_pem(key))
    assert read_key(path, b"sesame").private_numbers() == key.private_numbers()


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    with pytest.raises(CertificateFileError, match="cannot be read: No such file") as missing:
        read_key(path)
    assert missing.value.path == path
    write_private(path, key_pem(make_key(KeyType.EC), b"sesame"))
    for password in (None, b""):
        with pytest.raises(
            CertificateFileError, match=r"is encrypted, and imq\.keystore\.password is not set"
        ):
            read_key(path, password)
    with pytest.raises(
        CertificateFileError, match=r"cannot be decrypted with imq\.keystore\.password"
    ) as wrong:
        read_key(path, b"simsim")
    assert "simsim" not in str(wrong.value)
    write_private(path, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(CertificateFileError, match="expected a private key in PEM"):
        read_key(path)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    write_private(path, other)
    with pytest.raises(CertificateFileError, match="expected an EC or RSA key"):
        read_key(path)


def test_chains_and_lists_come_back_in_order(tmp_path: Path) -> None:
    authorities = [Authority.create(f"CA {number}", NOW) for number in range(3)]
    chain = tmp_path / "chain.pem"
    write_private(chain, b"".join(certificate_pem(each.certificate) for each in authorities))
    assert read_certificates(chain) == [each.certificate for each in authorities]
    lists = [each.revocation_list([], 1, NOW) for each in authorities]
    path = tmp_path / "crl.pem"
    write_private(path, b"comment\n" + b"".join(map(revocation_list_pem, lists)))
    assert read_revocation_lists(path) == lists


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pem"
    path.write_bytes(data)
    with pytest.raises(CertificateFileError, match="expected certificates in PEM") as error:
        read_certificates(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"]
)
def test_what_is_no_revocation_list(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "crl.pem"
    path.write_bytes(data)
    with pytest.raises(
        CertificateFileError, match="expected certificate revocation lists in PEM"
    ) as error:
        read_revocation_lists(path)
    assert "\n" not in str(error.value)


def test_a_key_belongs_to_one_certificate() -> None:
    one, other = Authority.create("One", NOW), Authority.create("Other", NOW)
    assert same_key(one.certificate, one.key)
    assert not same_key(one.certificate, other.key)


def test_reading_a_folder_names_it(tmp_path: Path) -> None:
    with pytest.raises(CertificateFileError, match="cannot be read"):
        read(tmp_path)
