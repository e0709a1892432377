"""An instance's folder of keys and certificates, and their register.

Owns the names of the files, and that folder and register stay in step::

    ca.pem ca.key           the authority
    server.pem server.key   this server
    clients/NAME.pem .key   client certificates, to be handed to the clients
    crl.pem                 what the authority revoked
    register.json           every certificate it issued, also those whose files were replaced

What is in a certificate is :mod:`certs.authority`'s business.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from certs.authority import (
    AUTHORITY_DAYS,
    LEAF_DAYS,
    Authority,
    IPAddress,
    Issued,
    KeyType,
    Purpose,
    Revocation,
    check_common_name,
    extension,
    make_key,
)
from certs.files import (
    CertificateFileError,
    certificate_pem,
    key_pem,
    make_folder,
    read_certificates,
    read_key,
    read_revocation_lists,
    revocation_list_pem,
    same_key,
    write_private,
)
from certs.register import Register

#: What the authority and the server are called where a client's name could stand; no client has
#: these names.
AUTHORITY_NAME: Final = "ca"
SERVER_NAME: Final = "server"


class KeyStoreError(Exception):
    """What was asked cannot be done with this key store; ``str`` says why."""


@dataclass(frozen=True)
class Entry:
    """A certificate of the key store.

    :param name: ``ca``, ``server`` or a client's name.
    :param kind: ``ca``, ``server`` or ``client``.
    :param path: its file.
    :param revoked: when it was revoked, or None.
    """

    name: str
    kind: str
    path: Path
    certificate: x509.Certificate
    revoked: datetime | None


class KeyStore:
    """The key store in a folder.

    :param folder: ``etc/tls`` of an instance; made when something is first written.
    :param password: encrypts and decrypts the keys of the authority and the server; none, or an
        empty one: they are not encrypted. Client keys leave this machine, so they have passphrases
        of their own.

    Whatever reads or writes may raise :class:`~certs.files.CertificateFileError`. Two processes
    that change one key store wait for each other.
    """

    def __init__(self, folder: Path, password: bytes | None = None) -> None:
        self.folder: Final = folder
        self.authority_certificate: Final = folder / "ca.pem"
        self.authority_key: Final = folder / "ca.key"
        self.server_certificate: Final = folder / "server.pem"
        self.server_key: Final = folder / "server.key"
        self.revocation_list: Final = folder / "crl.pem"
        self.clients: Final = folder / "clients"
        self._password = password
        self.register: Final = folder / "register.json"

    def client_files(self, name: str) -> tuple[Path, Path]:
        """Return the paths of a client's certificate and key.

        :raises KeyStoreError: the name cannot be a client's.
        """
        try:
            check_common_name(name)
        except ValueError as error:
            raise KeyStoreError(str(error)) from None
        if name in (AUTHORITY_NAME, SERVER_NAME) or "/" in name or name.startswith("."):
            raise KeyStoreError(
                f"{name!r} cannot be a client's name: it is not ca or server, has no / and does not begin with a dot"
            )
        return self.clients / f"{name}.pem", self.clients / f"{name}.key"

    def create_authority(
        self,
        name: str,
        now: datetime,
        days: int = AUTHORITY_DAYS,
        key_type: KeyType = KeyType.EC,
        force: bool = False,
    ) -> x509.Certificate:
        """Make the authority, and its empty revocation list.

        :param name: its common name.
        :param force: replace one that is there; nothing that it issued is trusted any more.
        :raises KeyStoreError: there is one, or the name or ``days`` cannot be.
        """
        with self._changing() as register:
            for path in (self.authority_certificate, self.authority_key):
                if path.exists() and not force:
                    raise KeyStoreError(
                        f"{path} exists; imqkeytool ca --force replaces the authority, and nothing that the old one issued is trusted any more"
                    )
            with _refusals():
                authority = Authority.create(name, now, days, make_key(key_type))
            # The key first: a certificate without its key would look like an authority that is
            # whole.
            self.authority_certificate.unlink(missing_ok=True)
            write_private(self.authority_key, key_pem(authority.key, self._password))
            self._publish(authority, register, now)
            write_private(self.authority_certificate, certificate_pem(authority.certificate))
            return authority.certificate

    def issue_server(
        self,
        name: str,
        now: datetime,
        dns: Sequence[str],
        ips: Sequence[IPAddress],
        days: int = LEAF_DAYS,
        key_type: KeyType = KeyType.EC,
        force: bool = False,
    ) -> x509.Certificate:
        """Make the server's certificate and key.

        :param force: replace those that are there; the replaced certificate stays valid until it
            ends or is revoked.
        :raises KeyStoreError: there is one, or a name or ``days`` cannot be.
        """
        with self._changing() as register:
            authority = self.authority()
            self._vacant(self.server_certificate, force)
            self._vacant(self.server_key, force)
            with _refusals():
                issued = authority.issue_server(name, now, dns, ips, days, make_key(key_type))
            self._keep(authority, register, SERVER_NAME, Purpose.SERVER, issued, now)
            self._write_pair(self.server_certificate, self.server_key, issued, self._password)
            return issued.certificate

    def issue_client(
        self,
        name: str,
        now: datetime,
        days: int = LEAF_DAYS,
        key_type: KeyType = KeyType.EC,
        passphrase: bytes | None = None,
        force: bool = False,
        groups: Sequence[str] = (),
    ) -> x509.Certificate:
        """Make a client's certificate and key.

        :param name: the user that the client connects as.
        :param groups: that user's, which are organizational units of the certificate.
        :param passphrase: encrypts the client's key.
        :param force: replace those that are there; not needed when the certificate that is there is
            revoked.
        :raises KeyStoreError: there is one, or a name or ``days`` cannot be.
        """
        certificate, key = self.client_files(name)
        with self._changing() as register:
            authority = self.authority()
            if certificate.exists() and not force:
                force = (
                    register.revoked(read_certificates(certificate)[0].serial_number) is not None
                )
            self._vacant(certificate, force)
            self._vacant(key, force)
            with _refusals():
                issued = authority.issue_client(name, now, days, make_key(key_type), groups)
            self._keep(authority, register, name, Purpose.CLIENT, issued, now)
            self._write_pair(certificate, key, issued, passphrase)
            return issued.certificate

    def renew(self, name: str, now: datetime, days: int | None = None) -> x509.Certificate:
        """Renew a certificate: its names and its key stay.

        The authority's can be renewed, too: what it issued stays valid.

        :param name: ``ca``, ``server`` or a client's.
        :param days: None takes the default of its kind.
        :raises KeyStoreError: it is missing or revoked, or ``days`` cannot be.
        """
        with self._changing() as register:
            authority = self.authority()
            if name == AUTHORITY_NAME:
                with _refusals():
                    authority = authority.renewed(now, AUTHORITY_DAYS if days is None else days)
                self._publish(authority, register, now)
                write_private(self.authority_certificate, certificate_pem(authority.certificate))
                return authority.certificate
            path = self.server_certificate if name == SERVER_NAME else self.client_files(name)[0]
            if not path.exists():
                raise KeyStoreError(f"{path} does not exist")
            old = read_certificates(path)[0]
            if register.revoked(old.serial_number) is not None:
                raise KeyStoreError(f"{path} is revoked; make a new one")
            with _refusals():
                renewed = authority.renew(old, now, LEAF_DAYS if days is None else days)
            purpose = Purpose.SERVER if name == SERVER_NAME else Purpose.CLIENT
            register.add(name, purpose.value, renewed, authority.identifier)
            self._save(register)
            write_private(path, certificate_pem(renewed))
            return renewed

    def revoke(self, name: str, now: datetime, reason: x509.ReasonFlags | None = None) -> list[int]:
        """Revoke every certificate of that name that has not ended.

        Certificates of this authority whose files were replaced are revoked, too.

        :param name: ``server`` or a client's.
        :returns: their serial numbers.
        :raises KeyStoreError: no certificate has that name.
        """
        with self._changing() as register:
            authority = self.authority()
            serials = register.revoke(name, now, reason, authority.identifier)
            if not serials:
                raise KeyStoreError(
                    f"{name!r} has no certificate of this authority that could be revoked"
                )
            self._publish(authority, register, now)
            return serials

    def publish(self, now: datetime) -> int:
        """Write the revocation list anew, from the register.

        :returns: how many certificates it has.
        :raises KeyStoreError: there is no authority, or no register.
        """
        if not self.register.exists():
            raise KeyStoreError(
                f"{self.register} does not exist, and the list cannot be made without it; restore it from a backup"
            )
        with self._changing() as register:
            return self._publish(self.authority(), register, now)

    def entries(self) -> list[Entry]:
        """Return the certificates whose files are in the key store.

        The authority's, the server's, then the clients' by name.
        """
        register = self._loaded()
        found: list[tuple[str, str, Path]] = [
            (AUTHORITY_NAME, AUTHORITY_NAME, self.authority_certificate),
            (SERVER_NAME, Purpose.SERVER.value, self.server_certificate),
        ]
        found += [
            (path.stem, Purpose.CLIENT.value, path)
            for path in sorted(self.clients.glob("*.pem"))
            if path.name[0] != "."
        ]
        entries = []
        for name, kind, path in found:
            if path.exists():
                certificate = read_certificates(path)[0]
                entries.append(
                    Entry(
                        name, kind, path, certificate, register.revoked(certificate.serial_number)
                    )
                )
        return entries

    def authority(self) -> Authority:
        """Return the authority.

        :raises KeyStoreError: it is missing, or its key is not that of its certificate.
        """
        if not self.authority_certificate.exists():
            if self.authority_key.exists():
                raise KeyStoreError(
                    f"{self.authority_certificate} does not exist, and {self.authority_key} does; restore the certificate from a backup, "
                    "or replace the authority, and everything that it issued, with: imqkeytool ca --force"
                )
            raise KeyStoreError(
                f"{self.authority_certificate} does not exist; make the authority first: imqkeytool ca"
            )
        if not self.authority_key.exists():
            raise KeyStoreError(
                f"{self.authority_key} does not exist; restore it from a backup, or replace the authority, and everything that it issued, "
                "with: imqkeytool ca --force"
            )
        certificate = read_certificates(self.authority_certificate)[0]
        key = read_key(self.authority_key, self._password)
        if not same_key(certificate, key):
            raise KeyStoreError(
                f"{self.authority_key} is not the key of {self.authority_certificate}"
            )
        return Authority(certificate, key)

    @contextmanager
    def _changing(self) -> Iterator[Register]:
        """The register, while no other process changes the key store."""
        for folder in (self.folder, self.clients):
            make_folder(folder)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # gone with the descriptor
            yield self._loaded()
        finally:
            os.close(descriptor)

    def _loaded(self) -> Register:
        return Register.load(self.register) if self.register.exists() else Register()

    def _save(self, register: Register) -> None:
        write_private(self.register, register.dump())

    def _keep(
        self,
        authority: Authority,
        register: Register,
        name: str,
        purpose: Purpose,
        issued: Issued,
        now: datetime,
    ) -> None:
        """Register a certificate, before there is a file of it.

        One that is not in the register could not be revoked.
        """
        register.add(name, purpose.value, issued.certificate, authority.identifier)
        self._save(register)
        if not self.revocation_list.exists():
            self._publish(authority, register, now)

    def _publish(self, authority: Authority, register: Register, now: datetime) -> int:
        """Write the register, and the revocation list that follows from it.

        :returns: how many certificates the list has.

        What only the list there has stays on it: the register may have been lost since.
        """
        revoked = {each.serial: each for each in register.revocations(authority.identifier)}
        for listed in self._listed(authority, register):
            number = extension(listed, x509.CRLNumber)
            if number is not None:
                register.list_number = max(register.list_number, number.crl_number)
            for entry in listed:
                reason = extension(entry, x509.CRLReason)
                revoked.setdefault(
                    entry.serial_number,
                    Revocation(
                        entry.serial_number,
                        entry.revocation_date_utc,
                        None if reason is None else reason.reason,
                    ),
                )
        register.list_number += 1
        self._save(register)
        revocations = authority.revocation_list(revoked.values(), register.list_number, now)
        write_private(self.revocation_list, revocation_list_pem(revocations))
        return len(revoked)

    def _listed(
        self, authority: Authority, register: Register
    ) -> list[x509.CertificateRevocationList]:
        """Return the authority's lists in the file.

        A file that cannot be read is written over if the register says all that was on it.
        """
        if not self.revocation_list.exists():
            return []
        try:
            lists = read_revocation_lists(self.revocation_list)
        except CertificateFileError:
            if not register.list_number:
                raise
            return []
        return [each for each in lists if each.is_signature_valid(authority.key.public_key())]

    def _write_pair(
        self, certificate: Path, key: Path, issued: Issued, password: bytes | None
    ) -> None:
        # Without a certificate in between, a reader finds that something is missing, never a pair
        # that does not fit.
        certificate.unlink(missing_ok=True)
        write_private(key, key_pem(issued.key, password))
        write_private(certificate, certificate_pem(issued.certificate))

    def _vacant(self, path: Path, force: bool) -> None:
        if path.exists() and not force:
            raise KeyStoreError(f"{path} exists; --force replaces it")


@dataclass(frozen=True)
class Ending:
    """A certificate or revocation list that ends.

    :param name: ``ca``, ``server``, a client's name, or ``crl``.
    :param left: how long it lasts; not above zero: it has ended.
    """

    name: str
    path: Path
    end: datetime
    left: timedelta

    def __str__(self) -> str:
        """One line, with the day in UTC."""
        if self.left <= timedelta(0):
            return f"{self.name}: {self.path} expired on {self.end:%Y-%m-%d}"
        days = self.left.days
        in_days = f"in {days} day{'' if days == 1 else 's'}"
        return f"{self.name}: {self.path} expires on {self.end:%Y-%m-%d}, {in_days}"


@dataclass(frozen=True)
class Revoked:
    """The server's certificate, revoked, whose file is still there.

    It would be shown to clients.

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
    """Return what ends within that time or has ended, the first first.

    A revoked certificate is left out.

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


@contextmanager
def _refusals() -> Iterator[None]:
    """What the authority refuses, as errors of the key store."""
    try:
        yield
    except ValueError as error:
        raise KeyStoreError(str(error)) from None
