"""TLS contexts for Twisted, from files.

Owns what a listener accepts: TLS 1.2 and 1.3, forward-secret AEAD ciphers, verified
certificates, revocation. Does not know what is spoken over the connection, nor when files change:
it is told to reload.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import (
    IOpenSSLContextFactory,
    IOpenSSLServerConnectionCreator,
)
from twisted.logger import Logger
from zope.interface import implementer

from certs.authority import common_name
from certs.files import (
    CertificateFileError,
    PrivateKey,
    read_certificates,
    read_key,
    read_revocation_lists,
    same_key,
)
from certs.revocations import difference

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol

# The stubs of types-pyOpenSSL are of a time when it did not take certificates and keys of
# cryptography's.
_ssl: Any = SSL

#: For TLS 1.2; those of TLS 1.3 are all good.
_CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20"
_SESSION_CONTEXT: Final = b"stomp-gateway"
_WARN_BEFORE: Final = timedelta(days=30)
_LONGEST_LOGGED: Final = 100
#: The kinds of keys that sign revocation lists.
_SIGNERS: Final = (ec.EllipticCurvePublicKey, rsa.RSAPublicKey, ed25519.Ed25519PublicKey)
#: OpenSSL's words for the numbers that its verification callback gets.
_REASONS: Final = {
    code: name.removeprefix("ERR_").replace("_", " ").lower()
    for name, code in vars(_ssl.X509VerificationCodes).items()
    if name.startswith("ERR_")
}


class ClientCertificates(Enum):
    """Whether a listener asks its clients for certificates.

    One that is presented is always verified.
    """

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True)
class ServerFiles:
    """The files of a listener.

    :param certificate: the server's certificate, then those between it and the authority, if any.
    :param key: the private key of the first of them.
    :param password: decrypts it.
    :param authorities: certificates of the authorities whose client certificates are accepted;
        needed to ask for any.
    :param revocations: their revocation lists. Where the file does not exist nothing is revoked;
        where it does, it has a list of every authority that issues client certificates: those of
        another are refused.
    :param register: what the authority issued and revoked. Where it says that there was a
        revocation list, a missing one is an error.
    """

    certificate: Path
    key: Path
    password: bytes | None = field(default=None, repr=False)
    authorities: Path | None = None
    revocations: Path | None = None
    register: Path | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


@implementer(IOpenSSLContextFactory, IOpenSSLServerConnectionCreator)
class ServerContextFactory:
    """Makes the TLS contexts of a listener.

    ``reactor.listenSSL``, ``SSL4ServerEndpoint`` and ``TLSMemoryBIOFactory`` take one.

    There are no session tickets, and no session is resumed: each connection is verified against
    what is revoked now, also when that changed during its handshake.

    Warnings of an end, or of a revoked certificate of the server, are logged with ``passing=True``:
    another file makes them untrue.

    :param files: what to read, now and with each :meth:`reload`.
    :param client_certificates: whether clients are asked for certificates.
    :param now: the time, for warnings of certificates that end.
    :raises CertificateFileError: the files cannot be used.
    """

    _log = Logger()

    def __init__(
        self,
        files: ServerFiles,
        client_certificates: ClientCertificates = ClientCertificates.NONE,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._files = files
        self._client_certificates = client_certificates
        self._now = now
        #: When the server's certificate ends, as it was last read.
        self.ends = datetime.min.replace(tzinfo=UTC)
        self._context, self._revoked = self._read()

    def reload(self) -> None:
        """Read the files again, for connections that are made from now on.

        Those that exist are left alone: see :meth:`is_revoked`. A certificate that has ended does not
        take the place of one that has not.

        :raises CertificateFileError: the files cannot be used; what was read before stays in use.
        """
        self._context, self._revoked = self._read()

    def is_revoked(self, certificate: x509.Certificate) -> bool:
        """Whether a verified certificate is revoked by the lists last read.

        That a list has ended, or the certificate, does not make it so.
        """
        return (certificate.issuer, certificate.serial_number) in self._revoked

    def getContext(self) -> SSL.Context:
        """The context for the next connection (``IOpenSSLContextFactory``)."""
        return self._context

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """A connection with the files as they were last read.

        A ``tlsProtocol`` that has a method ``certificate_refused(name, serial, reason)`` is told of
        a client's certificate that is refused, with its subject's common name, its serial number
        and why; else the log is.
        """
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(tlsProtocol)
        return connection

    def _read(self) -> tuple[SSL.Context, frozenset[tuple[x509.Name, int]]]:
        files = self._files
        chain = read_certificates(files.certificate)
        key = read_key(files.key, files.password)
        if not same_key(chain[0], key):
            raise CertificateFileError(
                files.key, f"is not the key of the certificate in {files.certificate}"
            )
        end, begin = chain[0].not_valid_after_utc, chain[0].not_valid_before_utc
        if end <= self._now() < self.ends:
            raise CertificateFileError(
                files.certificate,
                f"ended on {end.date()}: expected one that has not ended, as that in use, which ends on {self.ends.date()}",
            )
        try:
            context: SSL.Context = _context(chain, key)
        except SSL.Error as error:
            # Such as a key that is too small.
            what = ", ".join([str(entry[-1]) for entry in error.args[0]])
            raise CertificateFileError(
                files.certificate, f"cannot be used with {files.key.name}: OpenSSL says: {what}"
            ) from error
        if begin > self._now():
            self._log.warn(
                "certificate {file} is not valid before {begin}",
                file=str(files.certificate),
                begin=f"{begin:%Y-%m-%dT%H:%M:%SZ}",
                passing=True,
            )
        self._warn_of_end(f"certificate {files.certificate}", end)
        self._warn_of_revocation(chain[0])
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_session_id(_SESSION_CONTEXT)
        revoked: frozenset[tuple[x509.Name, int]] = frozenset()
        if self._client_certificates is not ClientCertificates.NONE:
            revoked = _revoked(self._verify_clients(context))
        self.ends = chain[0].not_valid_after_utc
        return context, revoked

    def _verify_clients(self, context: Any) -> list[x509.CertificateRevocationList]:
        """Have the context ask for client certificates.

        :returns: the revocation lists.
        """
        files = self._files
        if files.authorities is None:
            raise CertificateFileError(
                files.certificate,
                "client certificates need a file of authorities, and none was given",
            )
        authorities = read_certificates(files.authorities)
        store = context.get_cert_store()
        for authority in authorities:
            self._warn_of_end(f"authority {files.authorities}", authority.not_valid_after_utc)
            store.add_cert(crypto.X509.from_cryptography(authority))
            context.add_client_ca(authority)
        self._compare_with_register()
        lists: list[x509.CertificateRevocationList] = []
        if files.revocations is not None and files.revocations.exists():
            lists = read_revocation_lists(files.revocations)
            for revocations in lists:
                _check_issuer(revocations, authorities, files.revocations)
                if revocations.next_update_utc is not None:
                    self._warn_of_end(
                        f"revocation list {files.revocations}", revocations.next_update_utc
                    )
                store.add_crl(revocations)
            store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
        mode = SSL.VERIFY_PEER
        if self._client_certificates is ClientCertificates.REQUIRED:
            mode |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        context.set_verify(mode, self._verified)
        return lists

    def _verified(
        self, connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
    ) -> bool:
        """Agree with OpenSSL, and say why a client was refused.

        The client itself learns a TLS alert only.

        OpenSSL knows the lists of when the handshake began; those of now are asked, too.
        """
        presented = certificate.to_cryptography()
        revoked = bool(ok) and depth == 0 and self.is_revoked(presented)
        if not ok or revoked:
            subject = (common_name(presented) or "")[:_LONGEST_LOGGED]
            reason = (
                "cert revoked" if revoked else _REASONS.get(error, f"verification error {error}")
            )
            tell = getattr(connection.get_app_data(), "certificate_refused", None)
            if tell is None:
                self._log.info(
                    "client certificate of {subject!r} refused: {reason}",
                    subject=subject,
                    reason=reason,
                )
            else:
                tell(subject, presented.serial_number, reason)
        return bool(ok) and not revoked

    def _warn_of_revocation(self, certificate: x509.Certificate) -> None:
        """Warn if the server's own certificate is revoked.

        It is shown anyway: without it no client could connect.
        """
        files = self._files
        if files.revocations is None:
            return
        if not files.revocations.exists():
            if self._client_certificates is ClientCertificates.NONE:
                self._compare_with_register()
            return
        try:
            lists = read_revocation_lists(files.revocations)
        except CertificateFileError as error:
            if self._client_certificates is not ClientCertificates.NONE:
                raise
            self._log.warn(
                "whether the server's certificate is revoked cannot be told: {error}",
                error=str(error),
            )
            return
        if (certificate.issuer, certificate.serial_number) in _revoked(lists):
            self._log.warn(
                "certificate {certificate} is revoked by {revocations}, and shown to clients all the same: make a new one, with "
                "imqkeytool server --force --dir {folder}",
                certificate=str(files.certificate),
                folder=shlex.quote(str(files.certificate.parent)),
                revocations=str(files.revocations),
                passing=True,
            )

    def _compare_with_register(self) -> None:
        """Warn where register and revocation list differ.

        :raises CertificateFileError: the list is missing, and clients are asked for certificates:
            revoked ones would be accepted.
        """
        files = self._files
        if files.register is None or files.revocations is None or files.authorities is None:
            return
        asked = self._client_certificates is not ClientCertificates.NONE
        try:
            found = difference(files.register, files.revocations, files.authorities)
        except CertificateFileError as error:
            if asked and (error.path != files.register or not files.revocations.exists()):
                raise
            self._log.warn(
                "whether {revocations} is complete cannot be told: {error}",
                revocations=str(files.revocations),
                error=str(error),
            )
            return
        if found is None:
            return
        if found.list_missing and asked:
            raise CertificateFileError(found.path, found.text)
        self._log.warn("{found}", found=str(found))

    def _warn_of_end(self, what: str, end: datetime) -> None:
        left = end - self._now()
        if left <= timedelta(0):
            self._log.warn("{what} ended on {end}", what=what, end=end.date(), passing=True)
        elif left <= _WARN_BEFORE:
            self._log.warn(
                "{what} ends on {end}, in {days} days",
                what=what,
                end=end.date(),
                days=left.days,
                passing=True,
            )


def _context(chain: Sequence[x509.Certificate], key: PrivateKey) -> Any:
    """Make a context for any listener that presents the certificate."""
    context = _ssl.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(_CIPHERS)
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_TICKET)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.use_certificate(chain[0])
    for certificate in chain[1:]:
        context.add_extra_chain_cert(certificate)
    context.use_privatekey(key)
    context.check_privatekey()
    return context


def _revoked(lists: Sequence[x509.CertificateRevocationList]) -> frozenset[tuple[x509.Name, int]]:
    """Return the revoked certificates, by issuer and serial number.

    A list itself is searched from end to end each time.
    """
    return frozenset(
        (revocations.issuer, revoked.serial_number)
        for revocations in lists
        for revoked in revocations
    )


def _check_issuer(
    revocations: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate], path: Path
) -> None:
    """:raises CertificateFileError: none of the authorities signed the list."""
    for authority in authorities:
        key = authority.public_key()
        if (
            revocations.issuer == authority.subject
            and isinstance(key, _SIGNERS)
            and revocations.is_signature_valid(key)
        ):
            return
    raise CertificateFileError(
        path,
        f"the list of {revocations.issuer.rfc4514_string()} is signed by none of the authorities",
    )
