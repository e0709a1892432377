"""The key store: its files stay in step with the register, and nothing is overwritten unasked."""

import os
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import alternative_names
from certs.files import (
    CertificateFileError,
    read_certificates,
    read_key,
    read_revocation_lists,
    same_key,
    write_private,
)
from certs.keystore import KeyStore, KeyStoreError

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    store = KeyStore(tmp_path / "etc" / "tls")
    store.create_authority("Test CA", NOW)
    return store


def revoked_serials(store: KeyStore) -> set[int]:
    (revocations,) = read_revocation_lists(store.revocation_list)
    return {revoked.serial_number for revoked in revocations}


def test_every_file_is_its_owners_alone(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [ip_address("::1")])
    store.issue_client("alice", NOW)
    store.revoke("alice", NOW)
    names = {
        str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()
    }
    assert names == {
        "ca.pem",
        "ca.key",
        "server.pem",
        "server.key",
        "clients/alice.pem",
        "clients/alice.key",
        "crl.pem",
        "register.json",
    }
    for path in (store.folder, *store.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_folders_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        KeyStore(tmp_path / "var" / "instances" / "one" / "etc" / "tls").create_authority(
            "Test CA", NOW
        )
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == 6
    for path in made:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    with pytest.raises(CertificateFileError, match="var: is in the place of a folder"):
        KeyStore(tmp_path / "var" / "tls").create_authority("Test CA", NOW)


def test_nothing_is_overwritten_unasked(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [])
    store.issue_client("alice", NOW)
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    with pytest.raises(
        KeyStoreError, match=r"ca\.pem exists; imqkeytool ca --force replaces the authority"
    ):
        store.create_authority("Test CA", NOW)
    with pytest.raises(KeyStoreError, match=r"server\.pem exists"):
        store.issue_server("broker", NOW, ["broker.example"], [])
    with pytest.raises(KeyStoreError, match=r"alice\.pem exists"):
        store.issue_client("alice", NOW)
    assert {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()} == before
    store.issue_server("broker", NOW, ["other.example"], [], force=True)
    (certificate,) = read_certificates(store.server_certificate)
    assert alternative_names(certificate) == [x509.DNSName("other.example")]
    assert same_key(certificate, read_key(store.server_key))


def test_a_key_without_its_certificate_is_not_overwritten_either(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [])
    store.server_certificate.unlink()
    with pytest.raises(KeyStoreError, match=r"server\.key exists"):
        store.issue_server("broker", NOW, ["broker.example"], [])


def test_revoking_a_name_revokes_also_the_certificates_that_were_replaced(store: KeyStore) -> None:
    first = store.issue_client("alice", NOW).serial_number
    second = store.issue_client("alice", NOW, force=True).serial_number
    third = store.renew("alice", NOW).serial_number
    bob = store.issue_client("bob", NOW).serial_number
    assert revoked_serials(store) == set()
    assert set(store.revoke("alice", NOW, x509.ReasonFlags.superseded)) == {first, second, third}
    assert revoked_serials(store) == {first, second, third}
    with pytest.raises(
        KeyStoreError, match="'alice' has no certificate of this authority that could be revoked"
    ):
        store.revoke("alice", NOW)
    assert store.revoke("bob", NOW) == [bob]
    assert revoked_serials(store) == {first, second, third, bob}


def test_revocation_lists_are_numbered_upwards(store: KeyStore) -> None:
    def number() -> int:
        (revocations,) = read_revocation_lists(store.revocation_list)
        return revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number

    numbers = [number()]
    for name in ("alice", "bob"):
        store.issue_client(name, NOW)
        store.revoke(name, NOW)
        numbers.append(number())
    assert numbers == sorted(set(numbers))


def test_an_expired_certificate_is_not_revoked_and_a_revoked_one_not_renewed(
    store: KeyStore,
) -> None:
    store.issue_client("alice", NOW, days=10)
    later = NOW + timedelta(days=11)
    with pytest.raises(KeyStoreError, match="could be revoked"):
        store.revoke("alice", later)
    store.renew("alice", later)
    store.revoke("alice", later)
    with pytest.raises(KeyStoreError, match=r"alice\.pem is revoked; make a new one"):
        store.renew("alice", later)
    new = store.issue_client("alice", later)  # needs no force
    assert new.serial_number not in revoked_serials(store)


def test_renewing_keeps_the_key_file(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [ip_address("10.0.0.1")])
    key = store.server_key.read_bytes()
    old = read_certificates(store.server_certificate)[0]
    new = store.renew("server", NOW + timedelta(days=300), days=100)
    assert store.server_key.read_bytes() == key
    assert read_certificates(store.server_certificate) == [new]
    assert alternative_names(new) == alternative_names(old)
    assert new.not_valid_after_utc == NOW + timedelta(days=400)


def test_a_renewed_authority_revokes_as_before(store: KeyStore) -> None:
    alice = store.issue_client("alice", NOW)
    later = NOW + timedelta(days=3000)
    certificate = store.renew("ca", later)
    assert certificate.not_valid_after_utc == later + timedelta(days=3650)
    alice.verify_directly_issued_by(certificate)
    bob = store.issue_client("bob", later)
    store.revoke("bob", later)
    assert revoked_serials(store) == {bob.serial_number}


def test_another_authority_begins_with_an_empty_list(store: KeyStore) -> None:
    store.issue_client("alice", NOW)
    store.revoke("alice", NOW)
    store.issue_client("bob", NOW)
    store.create_authority("Test CA", NOW, force=True)
    assert revoked_serials(store) == set()
    (revocations,) = read_revocation_lists(store.revocation_list)
    assert revocations.is_signature_valid(store.authority().key.public_key())
    with pytest.raises(KeyStoreError, match="of this authority"):
        store.revoke("bob", NOW)


def test_the_password_encrypts_the_keys_of_authority_and_server_and_no_clients(
    tmp_path: Path,
) -> None:
    store = KeyStore(tmp_path, b"sesame")
    store.create_authority("Test CA", NOW)
    store.issue_server("broker", NOW, ["broker.example"], [])
    store.issue_client("alice", NOW)
    store.issue_client("bob", NOW, passphrase=b"bob's own")
    encrypted = {path.name for path in tmp_path.rglob("*.key") if b"ENCRYPTED" in path.read_bytes()}
    assert encrypted == {"ca.key", "server.key", "bob.key"}
    assert read_key(store.client_files("bob")[1], b"bob's own")
    store.renew("bob", NOW)  # needs no passphrase
    with pytest.raises(CertificateFileError, match=r"ca\.key: is encrypted"):
        KeyStore(tmp_path).issue_client("carol", NOW)


def test_without_an_authority(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "tls")
    for act in (
        lambda: store.issue_client("alice", NOW),
        lambda: store.renew("server", NOW),
        lambda: store.revoke("alice", NOW),
    ):
        with pytest.raises(
            KeyStoreError, match=r"ca\.pem does not exist; make the authority first: imqkeytool ca"
        ):
            act()
    assert store.entries() == []


def test_an_authority_whose_key_is_anothers(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [])
    write_private(store.authority_key, store.server_key.read_bytes())
    with pytest.raises(KeyStoreError, match=r"ca\.key is not the key of .*ca\.pem"):
        store.authority()


@pytest.mark.parametrize(
    "name", ["ca", "server", "../alice", "a/b", ".hidden", "", "a\nb", "x" * 65]
)
def test_names_that_no_client_can_have(store: KeyStore, name: str) -> None:
    before = sorted(store.folder.parent.rglob("*"))
    with pytest.raises(KeyStoreError):
        store.issue_client(name, NOW)
    assert sorted(store.folder.parent.rglob("*")) == before


def test_entries(store: KeyStore) -> None:
    store.issue_server("broker", NOW, ["broker.example"], [])
    store.issue_client("b.c", NOW)
    store.issue_client("alice", NOW)
    store.revoke("alice", NOW)
    assert [(entry.name, entry.kind, entry.revoked) for entry in store.entries()] == [
        ("ca", "ca", None),
        ("server", "server", None),
        ("alice", "client", NOW),
        ("b.c", "client", None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "list_number": 1, "certificates": []}',
        '{"version": 1, "list_number": 1, "certificates": [{"serial": "xyz"}]}',
        '{"version": 1, "certificates": []}',
        '{"version": 1, "list_number": 1, "certificates": [{"serial": "1", "name": "a", "kind": "client", "authority": "x", "expires": "soon"}]}',
    ],
)
def test_a_damaged_register_is_refused_and_kept(store: KeyStore, text: str) -> None:
    register = store.folder / "register.json"
    write_private(register, text.encode())
    with pytest.raises(CertificateFileError) as error:
        store.issue_client("alice", NOW)
    assert error.value.path == register
    assert register.read_text() == text
    assert not store.client_files("alice")[0].exists()
