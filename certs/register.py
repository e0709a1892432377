"""The register of issued certificates, so that each can be revoked.

Owns the register's format, JSON. Knows nothing of certificate files.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from certs.authority import Revocation
from certs.files import CertificateFileError, read

_VERSION: Final = 1


@dataclass
class _Record:
    """One certificate.

    Serial number and authority are hexadecimal, times ISO 8601 in UTC.
    """

    serial: str
    name: str
    kind: str
    authority: str
    expires: str
    revoked: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """:raises ValueError: a field is not what it should be."""
        for value in (self.name, self.kind, self.authority):
            if not isinstance(value, str):
                raise ValueError(f"{value!r}: expected a string")
        int(self.serial, 16)
        datetime.fromisoformat(self.expires)
        if self.revoked is not None:
            datetime.fromisoformat(self.revoked)
        if self.reason is not None:
            x509.ReasonFlags(self.reason)


class Register:
    """All issued certificates, and the number of the last revocation list.

    Certificates are found by their serial numbers.
    """

    def __init__(self) -> None:
        self.list_number = 0
        self._records: dict[int, _Record] = {}

    @classmethod
    def load(cls, path: Path) -> Register:
        """Read the register from a file.

        :raises CertificateFileError: it cannot be read, or is not a register.
        """
        register = cls()
        try:
            document: Any = json.loads(read(path))
            if document["version"] != _VERSION:
                raise CertificateFileError(
                    path, f"has version {document['version']!r}; expected {_VERSION}"
                )
            register.list_number = int(document["list_number"])
            for fields in document["certificates"]:
                record = _Record(**fields)
                register._records[int(record.serial, 16)] = record
        except (ValueError, TypeError, KeyError, LookupError) as error:
            raise CertificateFileError(
                path, f"is not a register of certificates: {error}"
            ) from error
        return register

    def dump(self) -> bytes:
        """The register as a file; :meth:`load` reads it back."""
        document = {
            "version": _VERSION,
            "list_number": self.list_number,
            "certificates": [asdict(record) for record in self._records.values()],
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    def add(self, name: str, kind: str, certificate: x509.Certificate, authority: str) -> None:
        """Remember a certificate.

        :param name: under which it can be revoked.
        :param authority: identifies who issued it.
        """
        serial = certificate.serial_number
        expires = certificate.not_valid_after_utc.isoformat()
        self._records[serial] = _Record(f"{serial:x}", name, kind, authority, expires)

    def revoke(
        self, name: str, now: datetime, reason: x509.ReasonFlags | None, authority: str
    ) -> list[int]:
        """Mark an authority's valid certificates of that name as revoked.

        Those that have ended or are revoked already stay as they are.

        :returns: their serial numbers.
        """
        serials = []
        for serial, record in self._records.items():
            if record.name != name or record.authority != authority or record.revoked is not None:
                continue
            if datetime.fromisoformat(record.expires) <= now:
                continue
            record.revoked = now.astimezone(UTC).isoformat()
            record.reason = None if reason is None else reason.value
            serials.append(serial)
        return serials

    def revoked(self, serial: int) -> datetime | None:
        """When that certificate was revoked; None if it is not, or is unknown."""
        record = self._records.get(serial)
        return (
            None
            if record is None or record.revoked is None
            else datetime.fromisoformat(record.revoked)
        )

    def revocations(self, authority: str | None = None) -> list[Revocation]:
        """Return the certificates that are revoked.

        :param authority: only those on this one's revocation list; None: of any.
        """
        return [
            Revocation(
                serial,
                datetime.fromisoformat(record.revoked),
                None if record.reason is None else x509.ReasonFlags(record.reason),
            )
            for serial, record in self._records.items()
            if record.revoked is not None and (authority is None or record.authority == authority)
        ]
