"""A gateway whose certificates are replaced while clients are connected."""

from __future__ import annotations

import re
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from socket import create_connection
from urllib.request import Request, urlopen

import pytest

from certs.files import read_certificates, write_private
from certs.keystore import KeyStore
from gateway.admin.cli.client import find
from gateway.instance import passfile
from tests.gateway_process import HOST, GatewayProcess, make_certificates

pytestmark = pytest.mark.process


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def connected(gateway: GatewayProcess, authority: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority))
    return context.wrap_socket(
        create_connection((HOST, gateway.tls_port), 30), server_hostname="localhost"
    )


def shown(gateway: GatewayProcess, authority: Path) -> int:
    """The serial number of the certificate that clients are shown."""
    with closing(connected(gateway, authority)) as peer:
        return int(str(peer.getpeercert()["serialNumber"]), 16)  # type: ignore[index]


def ask(peer: ssl.SSLSocket, frame: bytes) -> bytes:
    peer.sendall(frame + b"\0")
    answer = b""
    while not answer.rstrip(b"\n").endswith(b"\0"):
        answer += peer.recv(4096)
    return answer


def ends(gateway: GatewayProcess) -> float:
    """The metric."""
    address = find(HOST, gateway.port_mapper_port)
    password = passfile.read(gateway.directory / "etc/passfile")["imq.imqcmd.password"]
    authorization = "Basic " + b64encode(f"admin:{password}".encode()).decode()
    request = Request(f"http://{address.host}:{address.port}/metrics")
    request.add_header("Authorization", authorization)
    with urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(
        r'^stomp_gateway_certificate_end_timestamp_seconds\{service="stomp"\} (\S+)$',
        text,
        re.MULTILINE,
    )
    assert found is not None
    return float(found[1])


def test_a_new_certificate_is_shown_and_no_connection_is_lost(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "tls")
    settings = {"imq.tls.watch": "1"}
    gateway = GatewayProcess(tmp_path / "var", tls=certificates, settings=settings)
    with gateway:
        gateway.wait_for_output("is ready")
        store = KeyStore(gateway.directory / "etc/tls")
        with closing(connected(gateway, certificates.ca)) as before:
            hello = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:guest\npasscode:guest\n\n"
            assert ask(before, hello).startswith(b"CONNECTED")
            old = shown(gateway, certificates.ca)
            store.renew("server", datetime.now(UTC), 100)
            until(lambda: shown(gateway, certificates.ca) != old)
            (renewed,) = read_certificates(store.server_certificate)[:1]
            assert shown(gateway, certificates.ca) == renewed.serial_number
            end = renewed.not_valid_after_utc
            assert f"read again; {store.server_certificate} ends on {end.date()}" in gateway.log
            assert ends(gateway) == end.timestamp()

            write_private(store.server_key, certificates.client_key.read_bytes())
            until(lambda: "certificates stay as they were" in gateway.log)
            assert shown(gateway, certificates.ca) == renewed.serial_number
            assert "is not the key of the certificate" in gateway.log
            sent = ask(before, b"SEND\ndestination:/queue/a\nreceipt:1\n\nbody")
            assert sent.startswith(b"RECEIPT")
        assert gateway.log.count("certificates stay as they were") == 1
