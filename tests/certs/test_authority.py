"""What is in the certificates: names, validity, and every extension with its criticality (RFC 5280,
section 4.2).
"""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from certs.authority import (
    Authority,
    KeyType,
    Purpose,
    Revocation,
    alternative_names,
    common_name,
    make_key,
    purpose_of,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOPBACK = ipaddress.ip_address("127.0.0.1")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("Test CA", NOW)


def criticality(certificate: x509.Certificate) -> dict[x509.ObjectIdentifier, bool]:
    return {extension.oid: extension.critical for extension in certificate.extensions}


def key_usages(certificate: x509.Certificate) -> set[str]:
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
    )
    return {name for name in names if getattr(usage, name)}


def test_extensions_of_the_authority(authority: Authority) -> None:
    assert criticality(authority.certificate) == {
        ExtensionOID.BASIC_CONSTRAINTS: True,
        ExtensionOID.KEY_USAGE: True,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER: False,
    }
    constraints = authority.certificate.extensions.get_extension_for_class(
        x509.BasicConstraints
    ).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert key_usages(authority.certificate) == {"key_cert_sign", "crl_sign"}
    assert purpose_of(authority.certificate) is None
    authority.certificate.verify_directly_issued_by(authority.certificate)


@pytest.mark.parametrize("key_type", list(KeyType))
def test_extensions_of_a_server(authority: Authority, key_type: KeyType) -> None:
    issued = authority.issue_server(
        "broker", NOW, ["broker.example", "*.example"], [LOOPBACK], key=make_key(key_type)
    )
    certificate = issued.certificate
    assert criticality(certificate) == {
        ExtensionOID.BASIC_CONSTRAINTS: True,
        ExtensionOID.KEY_USAGE: True,
        ExtensionOID.EXTENDED_KEY_USAGE: False,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER: False,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER: False,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME: False,
    }
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (False, None)
    wanted = (
        {"digital_signature", "key_encipherment"}
        if key_type is KeyType.RSA
        else {"digital_signature"}
    )
    assert key_usages(certificate) == wanted
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    assert alternative_names(certificate) == [
        x509.DNSName("broker.example"),
        x509.DNSName("*.example"),
        x509.IPAddress(LOOPBACK),
    ]
    assert purpose_of(certificate) is Purpose.SERVER
    certificate.verify_directly_issued_by(authority.certificate)


def test_extensions_of_a_client(authority: Authority) -> None:
    certificate = authority.issue_client("alice", NOW).certificate
    assert criticality(certificate) == {
        ExtensionOID.BASIC_CONSTRAINTS: True,
        ExtensionOID.KEY_USAGE: True,
        ExtensionOID.EXTENDED_KEY_USAGE: False,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER: False,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER: False,
    }
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    assert common_name(certificate) == "alice"
    assert purpose_of(certificate) is Purpose.CLIENT


def test_key_identifiers_link_a_certificate_to_its_authority(authority: Authority) -> None:
    certificate = authority.issue_client("alice", NOW).certificate
    link = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert link.key_identifier is not None
    assert link.key_identifier.hex() == authority.identifier


def test_keys_are_p256_or_rsa_3072() -> None:
    elliptic, other = make_key(KeyType.EC), make_key(KeyType.RSA)
    assert isinstance(elliptic, ec.EllipticCurvePrivateKey)
    assert elliptic.curve.name == "secp256r1"
    assert isinstance(other, rsa.RSAPrivateKey)
    assert other.key_size == 3072


def test_validity_begins_a_little_before_now_and_ends_after_the_days(authority: Authority) -> None:
    certificate = authority.issue_client("alice", NOW, days=7).certificate
    assert NOW - timedelta(hours=1) < certificate.not_valid_before_utc < NOW
    assert certificate.not_valid_after_utc == NOW + timedelta(days=7)
    assert authority.certificate.not_valid_after_utc == NOW + timedelta(days=3650)


def test_no_certificate_outlives_its_authority() -> None:
    authority = Authority.create("Short", NOW, days=10)
    assert (
        authority.issue_client("alice", NOW, days=365).certificate.not_valid_after_utc
        == authority.certificate.not_valid_after_utc
    )
    with pytest.raises(ValueError, match="authority's own certificate has expired"):
        authority.issue_client("alice", NOW + timedelta(days=11))


def test_serial_numbers_are_never_the_same(authority: Authority) -> None:
    serials = {authority.issue_client("alice", NOW).certificate.serial_number for _ in range(20)}
    assert len(serials) == 20


def test_renewal_keeps_names_key_and_purpose(authority: Authority) -> None:
    old = authority.issue_server(
        "broker", NOW, ["broker.example"], [LOOPBACK], key=make_key(KeyType.EC)
    ).certificate
    later = NOW + timedelta(days=300)
    new = authority.renew(old, later)
    assert new.public_key() == old.public_key()
    assert alternative_names(new) == alternative_names(old)
    assert (common_name(new), purpose_of(new)) == ("broker", Purpose.SERVER)
    assert new.serial_number != old.serial_number
    assert new.not_valid_after_utc == later + timedelta(days=365)
    with pytest.raises(ValueError, match="neither"):
        authority.renew(authority.certificate, later)


def test_what_a_renewed_authority_issued_before_stays_valid(authority: Authority) -> None:
    certificate = authority.issue_client("alice", NOW).certificate
    renewed = authority.renewed(NOW + timedelta(days=3000))
    certificate.verify_directly_issued_by(renewed.certificate)
    assert renewed.identifier == authority.identifier
    assert renewed.certificate.not_valid_after_utc == NOW + timedelta(days=3000 + 3650)


def test_a_revocation_list_has_its_entries_number_and_issuer(authority: Authority) -> None:
    revocations = authority.revocation_list(
        [Revocation(17, NOW, x509.ReasonFlags.key_compromise), Revocation(18, NOW)], 5, NOW
    )
    assert {extension.oid: extension.critical for extension in revocations.extensions} == {
        ExtensionOID.CRL_NUMBER: False,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER: False,
    }
    assert revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 5
    assert revocations.next_update_utc == authority.certificate.not_valid_after_utc
    first, second = (
        revocations.get_revoked_certificate_by_serial_number(17),
        revocations.get_revoked_certificate_by_serial_number(18),
    )
    assert first is not None
    assert second is not None
    assert (
        first.extensions.get_extension_for_class(x509.CRLReason).value.reason
        is x509.ReasonFlags.key_compromise
    )
    assert len(second.extensions) == 0
    key = authority.key.public_key()
    assert revocations.is_signature_valid(key)


@pytest.mark.parametrize("name", ["", " alice", "alice ", "a\nb", "a\x00b", "x" * 65])
def test_names_that_cannot_be_common_names(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError, match="printable characters"):
        authority.issue_client(name, NOW)


@pytest.mark.parametrize(
    "name", ["", "a..b", "a b", "bäh.example", "127.0.0.1", "a.*.b", "x" * 64, "http://x"]
)
def test_names_that_cannot_be_host_names(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError, match=r"expected|IP address"):
        authority.issue_server("broker", NOW, [name])


def test_a_server_needs_a_name_and_days_are_positive(authority: Authority) -> None:
    with pytest.raises(ValueError, match="at least one host name"):
        authority.issue_server("broker", NOW)
    with pytest.raises(ValueError, match="0 days"):
        authority.issue_client("alice", NOW, days=0)


def test_two_common_names_are_none() -> None:
    key = make_key(KeyType.EC)
    names = [x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in ("alice", "admin")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name(names))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, SHA256())
    )
    assert common_name(certificate) is None
