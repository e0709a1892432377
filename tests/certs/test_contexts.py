"""Real handshakes over the loopback: Twisted's listener with this package's contexts, Python's
``ssl`` and Twisted as clients.
"""

import shutil
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet import reactor as global_reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IReactorSSL, ISSLTransport
from twisted.internet.protocol import Factory, Protocol, ServerFactory, connectionDone
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS
from twisted.internet.threads import deferToThread
from twisted.logger import formatEvent
from twisted.python.failure import Failure

from certs.authority import Authority, KeyType, common_name
from certs.contexts import (
    ClientCertificates,
    ServerContextFactory,
    ServerFiles,
)
from certs.files import (
    CertificateFileError,
    certificate_pem,
    key_pem,
    read_certificates,
    revocation_list_pem,
    write_private,
)
from certs.keystore import KeyStore
from tests.logged import logged, logged_lines

pytestmark = pytest.mark.process

P = ParamSpec("P")

if TYPE_CHECKING:

    def ensureDeferred(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]: ...
else:
    from pytest_twisted import ensureDeferred

NOW = datetime.now(UTC)
LOOPBACK = ip_address("127.0.0.1")
NO_NAME = "nobody"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key store with an authority, a server, and the clients alice and bob."""
    folder = tmp_path_factory.mktemp("made") / "tls"
    store = KeyStore(folder)
    store.create_authority("Test CA", NOW)
    store.issue_server("broker", NOW, ["localhost"], [LOOPBACK])
    store.issue_client("alice", NOW)
    store.issue_client("bob", NOW)
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> KeyStore:
    """A copy of it that a test may change."""
    shutil.copytree(made, tmp_path / "tls")
    return KeyStore(tmp_path / "tls")


def files(store: KeyStore, password: bytes | None = None) -> ServerFiles:
    return ServerFiles(
        store.server_certificate,
        store.server_key,
        password,
        store.authority_certificate,
        store.revocation_list,
    )


class Greeter(Protocol):
    """Answers everything with the name that the client's certificate vouches for."""

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        certificate = transport.getPeerCertificate()
        name = None if certificate is None else common_name(certificate.to_cryptography())
        transport.write((name or NO_NAME).encode() + b"\n")


class GreeterFactory(ServerFactory[Greeter]):
    protocol = Greeter


@asynccontextmanager
async def listening(contexts: ServerContextFactory) -> AsyncIterator[int]:
    reactor = cast(IReactorSSL, global_reactor)
    port = reactor.listenSSL(0, GreeterFactory(), contexts, interface="127.0.0.1")
    try:
        yield cast(IPv4Address, port.getHost()).port
    finally:
        await maybeDeferred(port.stopListening)


@dataclass
class Answer:
    """What a client got."""

    name: str
    version: str | None
    cipher: str
    resumed: bool
    session: ssl.SSLSession | None


def client_context(
    store: KeyStore, client: str | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(store.authority_certificate))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if client is not None:
        certificate, key = store.client_files(client)
        context.load_cert_chain(certificate, key)
    return context


def _ask(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None, host: str) -> Answer:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as wrapped,
    ):
        wrapped.sendall(b"?")
        line = b""
        while not line.endswith(b"\n"):
            data = wrapped.recv(100)
            if not data:
                raise ConnectionResetError("closed without an answer")
            line += data
        cipher = wrapped.cipher()
        assert cipher is not None
        return Answer(
            line.decode().strip(),
            wrapped.version(),
            cipher[0],
            bool(wrapped.session_reused),
            wrapped.session,
        )


def ask(
    port: int,
    context: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
    host: str = "localhost",
) -> "Deferred[Answer]":
    """Connect with Python's own TLS, on a thread, and return what the server says."""
    return deferToThread(_ask, port, context, session, host)


REFUSED = (ssl.SSLError, ConnectionResetError, BrokenPipeError)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
@ensureDeferred
async def test_a_client_without_certificate_where_none_is_asked_for(
    store: KeyStore, version: ssl.TLSVersion
) -> None:
    async with listening(ServerContextFactory(files(store))) as port:
        answer = await ask(port, client_context(store, version=version))
    assert answer.name == NO_NAME
    assert answer.version == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
    assert "GCM" in answer.cipher or "CHACHA20" in answer.cipher


@pytest.mark.parametrize("version", VERSIONS)
@ensureDeferred
async def test_a_required_certificate_names_its_user(
    store: KeyStore, version: ssl.TLSVersion
) -> None:
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        assert (await ask(port, client_context(store, "alice", version))).name == "alice"


@pytest.mark.parametrize("version", VERSIONS)
@ensureDeferred
async def test_a_required_certificate_that_is_missing(
    store: KeyStore, version: ssl.TLSVersion
) -> None:
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        with pytest.raises(REFUSED):
            await ask(port, client_context(store, version=version))


@ensureDeferred
async def test_an_optional_certificate_may_be_missing_but_not_wrong(
    store: KeyStore, tmp_path: Path
) -> None:
    other = KeyStore(tmp_path / "other")
    other.create_authority("Other CA", NOW)
    other.issue_client("alice", NOW)
    wrong = client_context(store)
    wrong.load_cert_chain(*other.client_files("alice"))
    async with listening(ServerContextFactory(files(store), ClientCertificates.OPTIONAL)) as port:
        assert (await ask(port, client_context(store))).name == NO_NAME
        assert (await ask(port, client_context(store, "bob"))).name == "bob"
        with pytest.raises(REFUSED):
            await ask(port, wrong)


@ensureDeferred
async def test_a_certificate_of_another_authority_with_the_same_name(
    store: KeyStore, tmp_path: Path
) -> None:
    other = KeyStore(tmp_path / "other")
    other.create_authority("Test CA", NOW)
    other.issue_client("alice", NOW)
    context = client_context(store)
    context.load_cert_chain(*other.client_files("alice"))
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        with pytest.raises(REFUSED):
            await ask(port, context)


@ensureDeferred
async def test_a_servers_certificate_is_no_clients(store: KeyStore) -> None:
    context = client_context(store)
    context.load_cert_chain(store.server_certificate, store.server_key)
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        with pytest.raises(REFUSED):
            await ask(port, context)


@ensureDeferred
async def test_an_expired_client_certificate(store: KeyStore) -> None:
    store.issue_client("carol", NOW - timedelta(days=30), days=29)
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        assert (await ask(port, client_context(store, "alice"))).name == "alice"
        with pytest.raises(REFUSED):
            await ask(port, client_context(store, "carol"))


@pytest.mark.parametrize("version", VERSIONS)
@ensureDeferred
async def test_a_revoked_certificate_is_refused_from_the_reload_on(
    store: KeyStore, version: ssl.TLSVersion
) -> None:
    contexts = ServerContextFactory(files(store), ClientCertificates.REQUIRED)
    alice, bob = client_context(store, "alice", version), client_context(store, "bob", version)
    async with listening(contexts) as port:
        before = await ask(port, alice)
        assert before.name == "alice"
        store.revoke("alice", NOW)
        assert (await ask(port, alice)).name == "alice"
        contexts.reload()
        with pytest.raises(REFUSED):
            await ask(port, alice)
        with pytest.raises(REFUSED):
            await ask(port, alice, before.session)
        assert (await ask(port, bob)).name == "bob"
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        with pytest.raises(REFUSED):
            await ask(port, alice)


def test_who_is_revoked_is_known_from_the_reload_on(store: KeyStore) -> None:
    contexts = ServerContextFactory(files(store), ClientCertificates.REQUIRED)
    alice, bob = (read_certificates(store.client_files(name)[0])[0] for name in ("alice", "bob"))
    store.revoke("alice", NOW)
    assert not contexts.is_revoked(alice)
    contexts.reload()
    assert contexts.is_revoked(alice)
    assert not contexts.is_revoked(bob)
    store.revocation_list.write_text("nonsense\n")
    with pytest.raises(CertificateFileError):
        contexts.reload()
    assert contexts.is_revoked(alice), "what was read before stays in use"
    key = ec.generate_private_key(ec.SECP256R1())
    stranger = x509.CertificateBuilder(
        bob.subject, bob.subject, key.public_key(), alice.serial_number, NOW, NOW + timedelta(1)
    )
    assert not contexts.is_revoked(stranger.sign(key, hashes.SHA256())), (
        "a serial number is its authority's"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_that_is_revoked_during_the_handshake_is_refused(
    store: KeyStore, version: ssl.TLSVersion
) -> None:
    contexts = ServerContextFactory(files(store), ClientCertificates.REQUIRED)
    server = contexts.serverConnectionForTLS(None)  # type: ignore[arg-type]
    server.set_accept_state()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(store, "alice", version).wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    server.bio_write(outgoing.read())
    with pytest.raises(SSL.WantReadError):
        server.do_handshake()
    incoming.write(server.bio_read(1 << 16))
    store.revoke("alice", NOW)
    contexts.reload()
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    server.bio_write(outgoing.read())
    with pytest.raises(SSL.Error, match="certificate verify failed"):
        server.do_handshake()


@pytest.mark.parametrize("version", VERSIONS)
@ensureDeferred
async def test_no_session_is_ever_resumed(store: KeyStore, version: ssl.TLSVersion) -> None:
    context = client_context(store, "alice", version)
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        first = await ask(port, context)
        second = await ask(port, context, first.session)
    assert not second.resumed
    assert second.name == "alice"


@ensureDeferred
async def test_why_a_certificate_was_refused_is_in_the_log(store: KeyStore) -> None:
    store.revoke("alice", NOW)
    with logged() as events:
        async with listening(
            ServerContextFactory(files(store), ClientCertificates.REQUIRED)
        ) as port:
            with pytest.raises(REFUSED):
                await ask(port, client_context(store, "alice"))
    assert [(event["subject"], event["reason"]) for event in events if "subject" in event] == [
        ("alice", "cert revoked")
    ]


@ensureDeferred
async def test_tls_1_1_is_refused(store: KeyStore) -> None:
    context = client_context(store)
    context.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would refuse to try
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with listening(ServerContextFactory(files(store))) as port:
        with pytest.raises(ssl.SSLError) as refused:
            await ask(port, context)
    assert refused.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"


@ensureDeferred
async def test_ciphers_without_forward_secrecy_are_refused(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "tls")
    store.create_authority("Test CA", NOW)
    store.issue_server("broker", NOW, ["localhost"], [], key_type=KeyType.RSA)
    context = client_context(store, version=ssl.TLSVersion.TLSv1_2)
    async with listening(ServerContextFactory(files(store))) as port:
        assert (await ask(port, context)).cipher.startswith("ECDHE-RSA-")
        context.set_ciphers("AES256-GCM-SHA384")
        with pytest.raises(REFUSED):
            await ask(port, context)


@ensureDeferred
async def test_encrypted_keys_need_their_password(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "tls", b"sesame")
    store.create_authority("Test CA", NOW)
    store.issue_server("broker", NOW, ["localhost"], [])
    assert b"ENCRYPTED" in store.server_key.read_bytes()
    assert b"ENCRYPTED" in store.authority_key.read_bytes()
    with pytest.raises(
        CertificateFileError,
        match=r"server\.key: is encrypted, and imq\.keystore\.password is not set",
    ):
        ServerContextFactory(files(store))
    with pytest.raises(
        CertificateFileError, match=r"server\.key: cannot be decrypted with imq\.keystore\.password"
    ):
        ServerContextFactory(files(store, b"wrong"))
    async with listening(ServerContextFactory(files(store, b"sesame"))) as port:
        assert (await ask(port, client_context(store))).name == NO_NAME


@ensureDeferred
async def test_reload_changes_what_new_connections_see_and_keeps_old_ones(store: KeyStore) -> None:
    contexts = ServerContextFactory(files(store), ClientCertificates.OPTIONAL)
    options = twisted_client(store, "localhost", "alice")
    async with listening(contexts) as port:
        old = await connect(port, options)
        first = old.peer_serial()
        store.issue_server("broker", NOW, ["localhost"], [], force=True)
        contexts.reload()
        new = await connect(port, options)
        assert new.peer_serial() != first
        assert await old.ask() == b"alice\n"
        assert await new.ask() == b"alice\n"
        await old.end()
        await new.end()


@pytest.mark.parametrize("file", ["server.pem", "server.key", "ca.pem", "crl.pem"])
@ensureDeferred
async def test_a_reload_that_fails_keeps_what_there_was(store: KeyStore, file: str) -> None:
    contexts = ServerContextFactory(files(store), ClientCertificates.REQUIRED)
    write_private(store.folder / file, b"rubbish\n")
    with pytest.raises(CertificateFileError) as error:
        contexts.reload()
    assert error.value.path == store.folder / file
    async with listening(contexts) as port:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*store.client_files("bob"))
        assert (await ask(port, context)).name == "bob"


def own_pair(store: KeyStore, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    """Have the server show a certificate that is its own authority."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    made = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=365))
    write_private(store.server_key, key_pem(key))
    write_private(store.server_certificate, certificate_pem(made.sign(key, hashes.SHA256())))


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP192R1())],
    ids=["RSA", "EC"],
)
def test_a_key_that_is_too_small_is_refused_as_any_other_file(
    store: KeyStore, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
) -> None:
    contexts = ServerContextFactory(files(store))
    before, ends = contexts.getContext(), contexts.ends
    own_pair(store, key)
    for call in (contexts.reload, lambda: ServerContextFactory(files(store))):
        with pytest.raises(
            CertificateFileError, match=r"server\.pem: cannot be used with server\.key: .*too small"
        ):
            call()
    assert (contexts.getContext(), contexts.ends) == (before, ends)


def test_one_that_has_ended_does_not_take_the_place_of_one_that_has_not(store: KeyStore) -> None:
    now = NOW + timedelta(days=20)
    contexts = ServerContextFactory(files(store), now=lambda: now)
    before, ends = contexts.getContext(), contexts.ends
    store.issue_server("broker", NOW, ["localhost"], [], days=10, force=True)
    with pytest.raises(CertificateFileError, match=r"server\.pem: ended on .*in use, which ends"):
        contexts.reload()
    assert (contexts.getContext(), contexts.ends) == (before, ends)
    # One is better than none, and where that in use has ended, too.
    ended = ServerContextFactory(files(store), now=lambda: now)
    store.issue_server("broker", NOW, ["localhost"], [], days=11, force=True)
    ended.reload()
    assert ended.ends > NOW + timedelta(days=10, hours=1)


def test_the_log_warns_of_one_that_is_not_valid_yet(store: KeyStore) -> None:
    with logged() as events:
        ServerContextFactory(files(store), now=lambda: NOW - timedelta(days=2))
    (line,) = [formatEvent(event) for event in events]
    assert line.startswith(f"certificate {store.server_certificate} is not valid before 2")


def test_a_key_that_is_not_the_certificates(store: KeyStore) -> None:
    shutil.copy(store.client_files("alice")[1], store.server_key)
    with pytest.raises(
        CertificateFileError,
        match=r"server\.key: is not the key of the certificate in .*server\.pem",
    ):
        ServerContextFactory(files(store))


def test_a_revocation_list_that_nobody_trusted_signed(store: KeyStore) -> None:
    forged = Authority.create("Test CA", NOW).revocation_list([], 1, NOW)
    write_private(store.revocation_list, revocation_list_pem(forged))
    with pytest.raises(
        CertificateFileError, match="CN=Test CA is signed by none of the authorities"
    ):
        ServerContextFactory(files(store), ClientCertificates.REQUIRED)


def test_client_certificates_need_authorities(store: KeyStore) -> None:
    with pytest.raises(CertificateFileError, match="need a file of authorities"):
        ServerContextFactory(replace(files(store), authorities=None), ClientCertificates.OPTIONAL)


@ensureDeferred
async def test_clients_of_two_authorities(store: KeyStore, tmp_path: Path) -> None:
    other = KeyStore(tmp_path / "other")
    other.create_authority("Other CA", NOW)
    other.issue_client("carol", NOW)
    for ours, theirs in (
        (store.authority_certificate, other.authority_certificate),
        (store.revocation_list, other.revocation_list),
    ):
        write_private(ours, ours.read_bytes() + theirs.read_bytes())
    carol = client_context(store)
    carol.load_cert_chain(*other.client_files("carol"))
    contexts = ServerContextFactory(files(store), ClientCertificates.REQUIRED)
    async with listening(contexts) as port:
        assert (await ask(port, carol)).name == "carol"
        assert (await ask(port, client_context(store, "alice"))).name == "alice"
        other.revoke("carol", NOW)
        write_private(
            store.revocation_list,
            store.revocation_list.read_bytes().split(b"-----END X509 CRL-----\n")[0]
            + b"-----END X509 CRL-----\n",
        )
        write_private(
            store.revocation_list,
            store.revocation_list.read_bytes() + other.revocation_list.read_bytes(),
        )
        contexts.reload()
        with pytest.raises(REFUSED):
            await ask(port, carol)
        assert (await ask(port, client_context(store, "alice"))).name == "alice"


@ensureDeferred
async def test_without_a_revocation_list_nothing_is_revoked(store: KeyStore) -> None:
    store.revoke("alice", NOW)
    store.revocation_list.unlink()
    async with listening(ServerContextFactory(files(store), ClientCertificates.REQUIRED)) as port:
        assert (await ask(port, client_context(store, "alice"))).name == "alice"


def test_the_log_warns_of_what_ends_soon(store: KeyStore) -> None:
    with logged() as events:
        ServerContextFactory(files(store), now=lambda: NOW + timedelta(days=340))
        ServerContextFactory(files(store), now=lambda: NOW + timedelta(days=400))
        ServerContextFactory(files(store), now=lambda: NOW + timedelta(days=300))
    formats = [str(event["log_format"]) for event in events if "what" in event]
    assert formats == ["{what} ends on {end}, in {days} days", "{what} ended on {end}"]


class Talker(Protocol):
    """A Twisted client that asks one thing at a time."""

    def __init__(self) -> None:
        self.answer: Deferred[bytes] = Deferred()
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        answer, self.answer = self.answer, Deferred()
        answer.callback(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)
        self.answer.errback(reason)
        self.answer.addErrback(lambda _: None)

    def ask(self) -> "Deferred[bytes]":
        assert self.transport is not None
        self.transport.write(b"?")
        return self.answer

    def peer_serial(self) -> int:
        certificate: Any = cast(ISSLTransport, self.transport).getPeerCertificate()
        serial: int = certificate.get_serial_number()
        return serial

    async def end(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()
        await self.lost


def twisted_client(
    store: KeyStore, host: str, client: str | None = None
) -> IOpenSSLClientConnectionCreator:
    """What a Twisted client connects to that host with."""
    authority = Certificate.loadPEM(store.authority_certificate.read_bytes())
    own = None
    if client is not None:
        pem = b"".join(path.read_bytes() for path in store.client_files(client))
        own = PrivateCertificate.loadPEM(pem)  # type: ignore[no-untyped-call]
    options: IOpenSSLClientConnectionCreator = optionsForClientTLS(host, authority, own)
    return options


async def connect(port: int, options: IOpenSSLClientConnectionCreator) -> Talker:
    """A connection whose handshake is done."""
    endpoint = wrapClientTLS(options, HostnameEndpoint(global_reactor, b"localhost", port))
    talker = Talker()
    await endpoint.connect(Factory.forProtocol(lambda: talker))
    assert await talker.ask()
    return talker


@ensureDeferred
async def test_a_twisted_client_verifies_the_servers_name(store: KeyStore) -> None:
    async with listening(ServerContextFactory(files(store))) as port:
        right = await connect(port, twisted_client(store, "localhost"))
        assert await right.ask() == b"nobody\n"
        await right.end()
        numeric = await connect(port, twisted_client(store, "127.0.0.1"))
        await numeric.end()
        with pytest.raises(VerificationError):
            await connect(port, twisted_client(store, "elsewhere.example"))


@pytest.mark.parametrize("clients", list(ClientCertificates))
def test_the_log_warns_of_a_server_certificate_that_is_revoked(
    store: KeyStore, clients: ClientCertificates
) -> None:
    with logged() as events:
        context = ServerContextFactory(files(store), clients)
        store.revoke("alice", NOW)
        context.reload()
        assert events == []
        store.revoke("server", NOW)
        context.reload()
        ServerContextFactory(files(store), clients)
    told = [formatEvent(event) for event in events]
    assert len(told) == 2
    for line in told:
        assert line.startswith(
            f"certificate {store.server_certificate} is revoked by {store.revocation_list}"
        ), line


def test_a_listener_that_asks_for_no_certificates_only_warns_of_a_list_that_is_none(
    store: KeyStore,
) -> None:
    store.revocation_list.write_text("rubbish")
    with logged() as events:
        ServerContextFactory(files(store), ClientCertificates.NONE)
    assert [str(store.revocation_list) in formatEvent(event) for event in events] == [True]
    with pytest.raises(CertificateFileError, match="expected certificate revocation lists"):
        ServerContextFactory(files(store), ClientCertificates.REQUIRED)


def registered(store: KeyStore) -> ServerFiles:
    return replace(files(store), register=store.register)


@pytest.mark.parametrize("clients", [ClientCertificates.OPTIONAL, ClientCertificates.REQUIRED])
@ensureDeferred
async def test_a_missing_revocation_list_does_not_make_revoked_certificates_valid(
    store: KeyStore, clients: ClientCertificates
) -> None:
    store.revoke("alice", NOW)
    contexts = ServerContextFactory(registered(store), clients)
    store.revocation_list.unlink()
    with pytest.raises(
        CertificateFileError,
        match=r"crl\.pem: is missing, .* 1 certificate revoked, .*: imqkeytool crl --dir ",
    ):
        ServerContextFactory(registered(store), clients)
    with pytest.raises(CertificateFileError, match="is missing"):
        contexts.reload()
    async with listening(contexts) as port:
        assert (await ask(port, client_context(store, "bob"))).name == "bob"
        with pytest.raises(REFUSED):
            await ask(port, client_context(store, "alice"))
    store.publish(NOW)
    async with listening(ServerContextFactory(registered(store), clients)) as port:
        with pytest.raises(REFUSED):
            await ask(port, client_context(store, "alice"))


def test_a_missing_list_that_had_no_certificate_is_refused_too(store: KeyStore) -> None:
    store.revocation_list.unlink()
    with pytest.raises(
        CertificateFileError,
        match=r"crl\.pem: is missing, and .*register\.json says there was one; make it anew",
    ):
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    store.authority_key.unlink()
    with pytest.raises(CertificateFileError, match=r"restore it from a backup") as error:
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    assert "imqkeytool" not in str(error.value)


def test_a_listener_that_asks_for_no_certificates_only_warns_of_a_missing_list(
    store: KeyStore,
) -> None:
    store.revocation_list.unlink()
    with logged_lines() as lines:
        ServerContextFactory(registered(store))
    assert [line.startswith(f"{store.revocation_list}: is missing") for line in lines] == [True]


def test_a_list_that_is_older_than_the_register_is_warned_of(store: KeyStore) -> None:
    old = store.revocation_list.read_bytes()
    (serial,) = store.revoke("alice", NOW)
    with logged_lines() as lines:
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    assert lines == []
    write_private(store.revocation_list, old)
    with logged_lines() as lines:
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    (line,) = lines
    assert line.startswith(
        f"{store.revocation_list}: is older than {store.register}: it lacks 1 certificate"
    )
    assert f"{serial:x}" in line
    assert f"imqkeytool crl --dir {store.folder}" in line


@pytest.mark.parametrize("register", [None, b"rubbish"])
def test_a_register_that_is_lost_is_warned_of(store: KeyStore, register: bytes | None) -> None:
    store.revoke("alice", NOW)
    store.register.unlink() if register is None else store.register.write_bytes(register)
    with logged_lines() as lines:
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    (line,) = lines
    assert str(store.register) in line
    assert ("cannot be revoked by name" if register is None else "complete cannot be told") in line
    store.authority_key.unlink()
    with logged_lines() as lines:
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
    assert len(lines) == (0 if register is None else 1), (
        "an authority that is kept elsewhere has its register there"
    )


def test_without_register_and_list_a_register_that_cannot_be_read_is_an_error(
    store: KeyStore,
) -> None:
    store.revocation_list.unlink()
    store.register.write_text("rubbish")
    with pytest.raises(CertificateFileError, match=r"register\.json"):
        ServerContextFactory(registered(store), ClientCertificates.REQUIRED)
