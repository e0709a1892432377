"""The TLS contexts of the STOMP bridge, as its instance's settings say.

They are made from the files of the instance.

Part of the composition: it joins settings, which know no certificates, and certificates, which know
no settings.
"""

from __future__ import annotations

import shlex

from certs.contexts import ClientCertificates, ServerContextFactory, ServerFiles
from gateway.exit_codes import StartRefused
from gateway.instance import settings_general
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings
from gateway.stomp import listeners
from gateway.stomp import settings as stomp_settings


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


def server_contexts(layout: Layout, settings: Settings) -> ServerContextFactory:
    """What the bridge makes TLS connections with.

    :raises StartRefused: there is no certificate, and how to make one.
    :raises CertificateFileError: a file cannot be used.
    """
    certificate, key = layout.tls / "server.pem", layout.tls / "server.key"
    if not certificate.exists() or not key.exists():
        asked = stomp_settings.TLS_ENABLED.name
        if not settings[stomp_settings.TLS_ENABLED]:
            given = settings.names(listeners.ENCRYPTED)
            asked = listeners.ENCRYPTED.full_name(
                next(name for name in given if settings.named(listeners.ENCRYPTED, name))
            )
        raise StartRefused(
            [
                f"{settings.source_of(asked)}: {asked}=true: expected a certificate in {certificate} and its key beside it; "
                f"{way_to_certificate(layout)}"
            ]
        )
    password = settings[settings_general.KEYSTORE_PASSWORD]
    if settings[stomp_settings.TLS_REQUIRE_CLIENT_AUTH]:
        clients = ClientCertificates.REQUIRED
    elif settings[stomp_settings.TLS_CERTIFICATE_LOGIN]:
        clients = ClientCertificates.OPTIONAL
    else:
        clients = ClientCertificates.NONE
    return ServerContextFactory(
        ServerFiles(
            certificate,
            key,
            password.encode() if password else None,
            authorities=layout.tls / "ca.pem",
            revocations=layout.tls / "crl.pem",
            register=layout.tls / "register.json",
        ),
        clients,
    )
