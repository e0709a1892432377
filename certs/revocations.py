"""Compare the revocation list with the register of certificates.

Owns the comparison, and what to do about a difference. A list that is missing or out of date makes
revoked certificates valid again.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from certs.authority import identifier_of
from certs.files import read_certificates, read_revocation_lists
from certs.register import Register


@dataclass(frozen=True)
class Difference:
    """What one of the two files lacks.

    :param path: the file.
    :param text: what is wrong with it, and what to do.
    :param list_missing: the whole revocation list is missing.
    """

    path: Path
    text: str
    list_missing: bool = False

    def __str__(self) -> str:
        """One line."""
        return f"{self.path}: {self.text}"


def difference(register: Path, revocations: Path, authority: Path) -> Difference | None:
    """Compare the revocation list with the register.

    :param authority: the authority's certificates; its key, where it is kept here, is beside them.
        :returns: None where nothing is amiss.
    :raises CertificateFileError: a file cannot be read.
    """
    if not register.exists():
        # An authority that is kept elsewhere has its register there.
        if not revocations.exists() or not authority.with_suffix(".key").exists():
            return None
        return Difference(
            register,
            f"is missing. The {_certificates(len(_entries(revocations)))} on {revocations} stay revoked; but what else was issued is not known any more, "
            "and cannot be revoked by name. Expected it from a backup",
        )
    issued = Register.load(register)
    if not revocations.exists():
        count = len(issued.revocations())
        if not issued.list_number and not count:
            return None
        would = (
            f"; it has {_certificates(count)} revoked, which would be accepted again"
            if count
            else ""
        )
        return Difference(
            revocations,
            f"is missing, and {register} says there was one{would}; {_anew(authority)}",
            True,
        )
    listed = {each.serial_number for each in _entries(revocations)}
    authorities = read_certificates(authority) if authority.exists() else []
    lacking = [
        f"{revoked.serial:x}"
        for each in authorities
        for revoked in issued.revocations(identifier_of(each))
        if revoked.serial not in listed
    ]
    if not lacking:
        return None
    return Difference(
        revocations,
        f"is older than {register}: it lacks {_certificates(len(lacking))} revoked there (serial number {', '.join(sorted(set(lacking)))}), "
        f"which would be accepted; {_anew(authority)}",
    )


def _anew(authority: Path) -> str:
    if not authority.exists() or not authority.with_suffix(".key").exists():
        return "restore it from a backup: without the authority's certificate and key it cannot be made anew"
    return f"make it anew with: imqkeytool crl --dir {shlex.quote(str(authority.parent))}"


def _entries(revocations: Path) -> Sequence[x509.RevokedCertificate]:
    return [entry for each in read_revocation_lists(revocations) for entry in each]


def _certificates(count: int) -> str:
    return f"{count} certificate" if count == 1 else f"{count} certificates"
