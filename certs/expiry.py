"""Which certificates end soon, or are revoked and in use all the same.

Owns the question. Knows neither clocks nor commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from certs.files import read_revocation_lists
from certs.keystore import SERVER_NAME, KeyStore


@dataclass(frozen=True)
class Ending:
    """Something that ends. :param name: ``ca``, ``server``, a client's name, or ``crl``. :param
    left: how long it lasts; not above zero: it has ended.
    """

    name: str
    path: Path
    end: datetime
    left: timedelta

    def __str__(self) -> str:
        """One line, with the day in UTC."""
        if self.left <= timedelta(0):
            return f"{self.name}: {self.path} expired on {self.end:%Y-%m-%d}"
        return f"{self.name}: {self.path} expires on {self.end:%Y-%m-%d}, in {self.left.days} days"


@dataclass(frozen=True)
class Revoked:
    """The server's certificate is revoked, and its file is still there to be shown to clients.
    :param when: when it was revoked.
    """

    name: str
    path: Path
    when: datetime

    def __str__(self) -> str:
        """One line, with the day in UTC and what to do."""
        return f"{self.name}: {self.path} was revoked on {self.when:%Y-%m-%d}; imqkeytool server --force makes a new one"


def revoked_in_use(store: KeyStore) -> list[Revoked]:
    """The server's certificate, if it is revoked.

    A client's that is revoked is of no use to anybody, so nothing is left to be done about it.

    :raises CertificateFileError: a file cannot be read.
    """
    return [
        Revoked(entry.name, entry.path, entry.revoked)
        for entry in store.entries()
        if entry.name == SERVER_NAME and entry.revoked is not None
    ]


def ending(store: KeyStore, now: datetime, within: timedelta) -> list[Ending]:
    """What of the key store ends within that time or has ended, the first first. A revoked
    certificate has no end to wait for.

    :raises CertificateFileError: a file cannot be read.
    """
    found = [
        (entry.name, entry.path, entry.certificate.not_valid_after_utc)
        for entry in store.entries()
        if entry.revoked is None
    ]
    if store.revocation_list.exists():
        ends = [each.next_update_utc for each in read_revocation_lists(store.revocation_list)]
        found += [("crl", store.revocation_list, end) for end in ends if end is not None]
    near = [Ending(name, path, end, end - now) for name, path, end in found if end - now <= within]
    return sorted(near, key=lambda each: (each.end, each.name))
