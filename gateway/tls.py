"""The TLS contexts of the STOMP bridge, as the settings of its instance want them, from the files in its key store.

Part of the composition: it joins settings, which know no certificates, and certificates, which know no settings.
"""

from __future__ import annotations

from certs.contexts import ClientCertificates, ServerContextFactory, ServerFiles
from gateway.instance import settings_general
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings
from gateway.refusal import StartRefused
from gateway.stomp import settings as stomp_settings


def server_contexts(layout: Layout, settings: Settings) -> ServerContextFactory:
    """What the bridge makes TLS connections with.

    :raises StartRefused: there is no certificate, and how to make one.
    :raises CertificateFileError: a file cannot be used.
    """
    certificate, key = layout.tls / "server.pem", layout.tls / "server.key"
    if not certificate.exists() or not key.exists():
        where = settings.source(stomp_settings.TLS_ENABLED)
        raise StartRefused(
            [
                f"{where}: {stomp_settings.TLS_ENABLED.name}=true: expected a certificate in {certificate} and its key beside it; "
                f"make them with: imqkeytool ca --varhome {layout.varhome} --instance {layout.instance} "
                f"&& imqkeytool server --varhome {layout.varhome} --instance {layout.instance}"
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
        ),
        clients,
    )
