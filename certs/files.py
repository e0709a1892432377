"""Certificates, keys and revocation lists in PEM files.

Owns writing them so that they are whole, durable and their owner's alone, and reading them with
errors that name the file. Does not know which file is for what.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

#: The kinds of keys that are made and used here.
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

#: Where the password of encrypted keys comes from, for errors that say so.
PASSWORD_NAME: Final = "imq.keystore.password"

_CRL_BEGIN: Final = b"-----BEGIN X509 CRL-----"


class CertificateFileError(Exception):
    """A file of certificates, keys or revocation lists cannot be used.

    :param path: the file.
    :param what: what is wrong, and what was expected.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


def write_private(path: Path, data: bytes) -> None:
    """Replace the file whole or not at all, with mode 0600.

    It is durable when this returns.

    :raises CertificateFileError: it cannot be written; what was there still is.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", dir=path.parent
        )  # mode 0600
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise CertificateFileError(path, f"cannot be written: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing.

    They are for their owner alone, whatever the umask; those that are there stay as they are.

    :raises CertificateFileError: one cannot be made, or is no folder.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir(0o700)
    except FileExistsError as error:
        if not folder.is_dir():  # else another process was quicker
            raise CertificateFileError(folder, "is in the place of a folder") from error
    except OSError as error:
        raise CertificateFileError(folder, f"cannot be made: {error.strerror or error}") from error


def read(path: Path) -> bytes:
    """What is in the file. :raises CertificateFileError: it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateFileError(path, f"cannot be read: {error.strerror or error}") from error


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of the file, at least one, in its order.

    :raises CertificateFileError: it cannot be read, or holds none.
    """
    data = read(path)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateFileError(path, f"expected certificates in PEM: {error}") from error


def read_key(path: Path, password: bytes | None = None) -> PrivateKey:
    """The private key of the file.

    :param password: decrypts it; not needed, and ignored, where it is not encrypted.
    :raises CertificateFileError: it cannot be read, is encrypted with another password, or is
        neither an EC nor an RSA key.
    """
    data = read(path)
    try:
        if password and b"ENCRYPTED" not in data:
            password = None
        key = load_pem_private_key(data, password or None)
    except TypeError as error:
        raise CertificateFileError(path, f"is encrypted, and {PASSWORD_NAME} is not set") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if b"ENCRYPTED" in data:
            raise CertificateFileError(path, f"cannot be decrypted with {PASSWORD_NAME}") from error
        raise CertificateFileError(path, "expected a private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise CertificateFileError(path, "expected an EC or RSA key")
    return key


def read_revocation_lists(path: Path) -> list[x509.CertificateRevocationList]:
    """Return the revocation lists of the file, at least one, in its order.

    :raises CertificateFileError: it cannot be read, or holds none.
    """
    data = read(path)
    blocks = [_CRL_BEGIN + block for block in data.split(_CRL_BEGIN)[1:]]
    if not blocks:
        raise CertificateFileError(path, "expected certificate revocation lists in PEM")
    try:
        return [x509.load_pem_x509_crl(block) for block in blocks]
    except ValueError as error:
        raise CertificateFileError(
            path, f"expected certificate revocation lists in PEM: {error}"
        ) from error


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM)


def key_pem(key: PrivateKey, password: bytes | None = None) -> bytes:
    """Return the key in PEM (PKCS #8).

    :param password: encrypts it; None or an empty one does not.
    """
    encryption: KeySerializationEncryption = (
        BestAvailableEncryption(password) if password else NoEncryption()
    )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def revocation_list_pem(revocations: x509.CertificateRevocationList) -> bytes:
    """The certificate revocation list in PEM."""
    return revocations.public_bytes(Encoding.PEM)


def same_key(certificate: x509.Certificate, key: PrivateKey) -> bool:
    """Whether the certificate is for this key."""
    return certificate.public_key() == key.public_key()
