"""A certificate authority as values: certificates go in and come out.

Owns what is in a certificate: names, validity, and extensions with their criticality (RFC 5280,
section 4.2). Knows no files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.files import PrivateKey, PublicKey

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 365

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Certificates are valid from a little before they are made: other machines' clocks are never quite
#: right.
_SKEW: Final = timedelta(minutes=10)
#: ub-common-name of RFC 5280, appendix A.1.
_LONGEST_COMMON_NAME: Final = 64

E = TypeVar("E", bound=x509.ExtensionType)


class KeyType(Enum):
    """Kinds of keys."""

    #: P-256: small and quick.
    EC = "ec"
    #: 3072 bits, for clients that know nothing else.
    RSA = "rsa"


class Purpose(Enum):
    """What a certificate is for."""

    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True)
class Issued:
    """A certificate and the key it is for."""

    certificate: x509.Certificate
    key: PrivateKey


@dataclass(frozen=True)
class Revocation:
    """A certificate that is no longer valid.

    :param reason: None says nothing about it.
    """

    serial: int
    date: datetime
    reason: x509.ReasonFlags | None = None


def make_key(key_type: KeyType) -> PrivateKey:
    """A new private key."""
    if key_type is KeyType.EC:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(65537, 3072)


class Authority:
    """A certificate authority. It does not remember what it issued.

    :param certificate: its own certificate.
    :param key: the key of that certificate.
    """

    def __init__(self, certificate: x509.Certificate, key: PrivateKey) -> None:
        self.certificate: Final = certificate
        self.key: Final = key

    @classmethod
    def create(
        cls, name: str, now: datetime, days: int = AUTHORITY_DAYS, key: PrivateKey | None = None
    ) -> Authority:
        """A new, self-signed authority, which issues leaf certificates only.

        :param name: its common name.
        :param key: its key; None makes an EC key.
        :raises ValueError: the name cannot be one, or ``days`` is not above 0.
        """
        key = make_key(KeyType.EC) if key is None else key
        subject = _subject(name)
        builder = _builder(subject, subject, key.public_key(), now, now + _lifetime(days))
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(
            _key_usage(key_cert_sign=True, crl_sign=True), critical=True
        )
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        return cls(builder.sign(key, SHA256()), key)

    def renewed(self, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
        """Return the same authority, name and key, with a new certificate.

        What it issued before stays valid.
        """
        return Authority.create(common_name(self.certificate) or "", now, days, self.key)

    @property
    def identifier(self) -> str:
        """Its subject key identifier in hexadecimal, which follows from its key."""
        return identifier_of(self.certificate)

    def issue_server(
        self,
        name: str,
        now: datetime,
        dns: Sequence[str] = (),
        ips: Sequence[IPAddress] = (),
        days: int = LEAF_DAYS,
        key: PrivateKey | None = None,
    ) -> Issued:
        """A certificate for a server. It ends with the authority's at the latest.

        :param name: its common name, which clients ignore: they look at ``dns`` and ``ips``.
        :param dns: host names in ASCII; the first label may be ``*``.
        :param ips: addresses that clients connect to by number.
        :param key: its key; None makes an EC key.
        :raises ValueError: a name cannot be one, there is neither a host name nor an address, or
            ``days`` is not above 0.
        """
        names: list[x509.GeneralName] = [x509.DNSName(check_dns(host)) for host in dns]
        names += [x509.IPAddress(ip) for ip in ips]
        if not names:
            raise ValueError("a server's certificate has at least one host name or IP address")
        return self._issue(name, Purpose.SERVER, names, now, days, key)

    def issue_client(
        self,
        name: str,
        now: datetime,
        days: int = LEAF_DAYS,
        key: PrivateKey | None = None,
        units: Sequence[str] = (),
    ) -> Issued:
        """A certificate for a client. It ends with the authority's at the latest.

        :param name: its common name, the user's.
        :param key: its key; None makes an EC key.
        :param units: its organizational units, the user's groups.
        :raises ValueError: a name cannot be one, or ``days`` is not above 0.
        """
        return self._issue(name, Purpose.CLIENT, (), now, days, key, units)

    def renew(
        self, old: x509.Certificate, now: datetime, days: int = LEAF_DAYS
    ) -> x509.Certificate:
        """Renew a certificate: its names, purpose and key stay.

        The serial number and the validity are new.

        :raises ValueError: ``old`` is neither a server's nor a client's certificate, or ``days`` is
            not above 0.
        """
        purpose = purpose_of(old)
        key = old.public_key()
        if purpose is None or not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
            raise ValueError("the certificate is neither a server's nor a client's")
        return self._sign(
            common_name(old) or "",
            purpose,
            alternative_names(old),
            now,
            days,
            key,
            units_of(old),
        )

    def revocation_list(
        self, revocations: Iterable[Revocation], number: int, now: datetime
    ) -> x509.CertificateRevocationList:
        """Make a certificate revocation list (RFC 5280, section 5).

        It is valid as long as the authority is.

        :param number: rises with each list of this authority.
        """
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - _SKEW)
            # A list that ran out would lock every client out, and these are not published every
            # week.
            .next_update(max(self.certificate.not_valid_after_utc, now))
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        for revocation in revocations:
            entry = (
                x509.RevokedCertificateBuilder()
                .serial_number(revocation.serial)
                .revocation_date(revocation.date)
            )
            if revocation.reason is not None:
                entry = entry.add_extension(x509.CRLReason(revocation.reason), critical=False)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, SHA256())

    def _issue(
        self,
        name: str,
        purpose: Purpose,
        names: Sequence[x509.GeneralName],
        now: datetime,
        days: int,
        key: PrivateKey | None,
        units: Sequence[str] = (),
    ) -> Issued:
        key = make_key(KeyType.EC) if key is None else key
        return Issued(self._sign(name, purpose, names, now, days, key.public_key(), units), key)

    def _sign(
        self,
        name: str,
        purpose: Purpose,
        names: Sequence[x509.GeneralName],
        now: datetime,
        days: int,
        key: PublicKey,
        units: Sequence[str],
    ) -> x509.Certificate:
        end = min(now + _lifetime(days), self.certificate.not_valid_after_utc)
        if end <= now:
            raise ValueError("the authority's own certificate has expired; renew it first")
        usage = (
            ExtendedKeyUsageOID.SERVER_AUTH
            if purpose is Purpose.SERVER
            else ExtendedKeyUsageOID.CLIENT_AUTH
        )
        encipherment = isinstance(key, rsa.RSAPublicKey)
        builder = (
            _builder(_subject(name, units), self.certificate.subject, key, now, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                _key_usage(digital_signature=True, key_encipherment=encipherment), critical=True
            )
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        if names:
            # Not critical: there is a subject, too (RFC 5280, section 4.2.1.6).
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, SHA256())

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            _subject_key_identifier(self.certificate)
        )


def extension(
    extended: x509.Certificate | x509.CertificateRevocationList | x509.RevokedCertificate,
    kind: type[E],
) -> E | None:
    """Return the extension of that kind; None if it has no such one."""
    try:
        return extended.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def identifier_of(certificate: x509.Certificate) -> str:
    """An authority's subject key identifier in hexadecimal."""
    return _subject_key_identifier(certificate).digest.hex()


def common_name(certificate: x509.Certificate) -> str | None:
    """Return the subject's common name.

    None if there is not exactly one that is not empty: which of several is meant cannot be known.
    """
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or not isinstance(names[0].value, str):
        return None
    return names[0].value or None


def units_of(certificate: x509.Certificate) -> list[str]:
    """The subject's organizational units, in their order."""
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return [str(unit.value) for unit in found]


def alternative_names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """The subject alternative names, in their order."""
    return list(extension(certificate, x509.SubjectAlternativeName) or ())


def purpose_of(certificate: x509.Certificate) -> Purpose | None:
    """Return what the certificate is for.

    None if it is an authority's, or for something else.
    """
    usages = extension(certificate, x509.ExtendedKeyUsage) or ()
    if ExtendedKeyUsageOID.SERVER_AUTH in usages:
        return Purpose.SERVER
    return Purpose.CLIENT if ExtendedKeyUsageOID.CLIENT_AUTH in usages else None


def check_common_name(name: str) -> str:
    """Return the name, if it can be a common name.

    :raises ValueError: it cannot.
    """
    if not 1 <= len(name) <= _LONGEST_COMMON_NAME or name != name.strip() or not name.isprintable():
        raise ValueError(
            f"{name!r}: expected a name of 1 to {_LONGEST_COMMON_NAME} printable characters, without blanks at its ends"
        )
    return name


def check_dns(name: str) -> str:
    """Return the name, if it can be a host name in a certificate.

    :raises ValueError: it cannot.
    """
    if not name.isascii():
        raise ValueError(
            f"{name!r}: expected the name in its ASCII form, with labels that begin xn--"
        )
    labels = name.removeprefix("*.").split(".")
    good = all(
        0 < len(label) < 64 and label.replace("-", "a").replace("_", "a").isalnum()
        for label in labels
    )
    if not good or len(name) > 253:
        raise ValueError(
            f"{name!r}: expected a host name, as in broker.example.org or *.example.org"
        )
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    raise ValueError(f"{name!r} is an IP address, not a host name")


def _subject(name: str, units: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, check_common_name(name))]
    # ub-organizational-unit-name of RFC 5280 is that of common names.
    parts += [
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, check_common_name(unit))
        for unit in units
    ]
    return x509.Name(parts)


def _lifetime(days: int) -> timedelta:
    if days < 1:
        raise ValueError(f"{days} days: expected at least 1")
    return timedelta(days=days)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
    )


def _key_usage(
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _subject_key_identifier(certificate: x509.Certificate) -> x509.SubjectKeyIdentifier:
    found = extension(certificate, x509.SubjectKeyIdentifier)
    # Without one it is of another make; RFC 5280, section 4.2.1.2, suggests this for it.
    return found or x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
