"""The TLS contexts of an instance, as its settings say.

They are made from the files of the instance.

Part of the composition: it joins settings, which know no certificates, and certificates, which know
no settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from twisted.logger import Logger

from certs.contexts import ClientCertificates, ServerContextFactory, ServerFiles
from certs.files import CertificateFileError
from certs.watch import CertificateWatch
from gateway.instance import settings_general
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings
from gateway.stomp.listeners import ENCRYPTED, TLS, Listener
from gateway.stomp.settings import TLS_CERTIFICATE_LOGIN, TLS_ENABLED
from gateway.stomp.transport.tls import NoTLS


def way_to_certificate(layout: Layout) -> str:
    """Say what to do where the certificate or its key is missing.

    Name the commands that work with the other files that are there.
    """
    folder = layout.tls
    missing = [name for name in ("server.pem", "server.key") if not (folder / name).exists()]
    said = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; "
    where = (
        f"--varhome {shlex.quote(str(layout.varhome))} --instance {shlex.quote(layout.instance)}"
    )
    # What is left of a pair is of no use, and is replaced.
    server = f"imqkeytool server{'' if len(missing) == 2 else ' --force'} {where}"
    authority, key = (folder / "ca.pem").exists(), (folder / "ca.key").exists()
    if authority == key:
        # With no authority at all this makes one, too.
        return f"{said}make them with: {server}"
    return (
        f"{said}{'ca.key' if authority else 'ca.pem'} is missing, too: restore it from a backup, then: {server} (or replace the authority, "
        f"whose new ca.pem all clients must then be given, with: imqkeytool ca --force {where} && {server})"
    )


def server_files(layout: Layout, settings: Settings, asked: str) -> ServerFiles:
    """Return the server's certificate and key, and what opens the key.

    :param asked: the setting that asks for them.
    :raises NoTLS: they are not there, and how to make them.
    """
    certificate, key = layout.tls / "server.pem", layout.tls / "server.key"
    if not certificate.exists() or not key.exists():
        raise NoTLS(
            f"{settings.source_of(asked)}: {asked}=true: expected a certificate in {certificate} and its key beside it; "
            f"{way_to_certificate(layout)}"
        )
    password = settings[settings_general.KEYSTORE_PASSWORD]
    return ServerFiles(certificate, key, password.encode() if password else None)


class ServerContexts:
    """Makes the TLS contexts of listeners.

    There is one for all that ask the same of their clients. Reads the files of certificates when the
    first listener needs them.

    :param settings: the instance's, as they were at its start.
    """

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self._layout: Final = layout
        self._settings: Final = settings
        self._made: Final[dict[ClientCertificates, ServerContextFactory]] = {}

    def prepare(self, listeners: Iterable[Listener]) -> None:
        """Make those that these listeners need.

        :raises NoTLS: as calling this does.
        """
        for listener in listeners:
            if listener.tls:
                self(listener)

    def __call__(self, listener: Listener) -> ServerContextFactory:
        """What makes the TLS connections of a listener.

        :raises NoTLS: there is no certificate, and how to make one; or a file cannot be used.
        """
        if listener.client_auth:
            clients = ClientCertificates.REQUIRED
        elif self._settings[TLS_CERTIFICATE_LOGIN]:
            clients = ClientCertificates.OPTIONAL
        else:
            clients = ClientCertificates.NONE
        if clients not in self._made:
            try:
                self._made[clients] = self._make(listener, clients)
            except CertificateFileError as error:
                raise NoTLS(str(error)) from error
        return self._made[clients]

    def reload(self) -> None:
        """Read the files again, for connections that are made from now on.

        :raises CertificateFileError: the files cannot be used; what was read before stays in use,
            where it was not read anew.
        """
        for contexts in self._made.values():
            contexts.reload()

    def is_revoked(self, certificate: x509.Certificate) -> bool:
        """Whether a verified certificate is revoked by the lists last read."""
        return any(contexts.is_revoked(certificate) for contexts in self._made.values())

    @property
    def are_used(self) -> bool:
        """Whether a listener has needed them."""
        return bool(self._made)

    @property
    def ends(self) -> datetime | None:
        """When the server's certificate ends; None without one."""
        return min((each.ends for each in self._made.values()), default=None)

    def _make(self, listener: Listener, clients: ClientCertificates) -> ServerContextFactory:
        asked = TLS_ENABLED.name if listener.name == TLS else ENCRYPTED.full_name(listener.name)
        tls = self._layout.tls
        files = replace(
            server_files(self._layout, self._settings, asked),
            authorities=tls / "ca.pem",
            revocations=tls / "crl.pem",
            register=tls / "register.json",
        )
        return ServerContextFactory(files, clients)


class Certificates:
    """The certificates that clients are shown, read again when they change.

    :param reactor: the clock.
    :param stomp: those of listeners.
    :param admin: those of the admin service; None where it speaks in the clear.
    :param end_revoked: ends the connections of clients whose certificates are revoked.
    """

    _log = Logger(namespace="gateway.app")

    def __init__(
        self,
        reactor: Any,
        layout: Layout,
        settings: Settings,
        stomp: ServerContexts,
        admin: ServerContextFactory | None,
        end_revoked: Callable[[], None],
    ) -> None:
        self._stomp: Final = stomp
        self._admin: Final = admin
        self._end_revoked: Final = end_revoked
        self._file: Final = layout.tls / "server.pem"
        self._watch: Final = CertificateWatch(
            reactor,
            settings[settings_general.TLS_WATCH],
            [layout.tls / name for name in ("server.pem", "server.key", "ca.pem", "crl.pem")],
            self._changed,
        )

    def start(self) -> None:
        """Look at the files from now on."""
        self._watch.start()

    def stop(self) -> None:
        """Look no more. Idempotent."""
        self._watch.stop()

    def parts(self) -> list[tuple[str, Callable[[], None]]]:
        """What SIGHUP has :func:`gateway.rereading.read_again` read."""
        used = self._stomp.are_used or self._admin is not None
        return [("certificates", self._reload_asked)] if used else []

    def ends(self) -> dict[str, datetime]:
        """When the certificate ends that is shown, by the service that shows it."""
        admin = None if self._admin is None else self._admin.ends
        found = {"stomp": self._stomp.ends, "admin": admin}
        return {service: end for service, end in found.items() if end is not None}

    def _reload_asked(self) -> None:
        # A failure is told to those who have asked.
        self._watch.seen()
        self._reload()

    def _reload(self) -> None:
        """:raises CertificateFileError: as :meth:`ServerContexts.reload`."""
        self._stomp.reload()
        if self._admin is not None:
            self._admin.reload()

    def _changed(self) -> None:
        if not self.parts():
            return
        self._reload()
        self._end_revoked()
        end = min(self.ends().values())
        self._log.info(
            "certificates have changed and were read again; {file} ends on {end}",
            file=str(self._file),
            end=end.date(),
            event="configuration.reloaded",
        )
