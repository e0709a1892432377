"""Sessions whose users have shown a token end with it, or get a newer one."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import ClassVar, Final

import jwt
import pytest

from tests.conformance.client import Client, encode, upgrade
from tests.crash.waiting import until_logged
from tests.gateway.broker.security.issuing import AUDIENCE, ISSUER, Issuer
from tests.gateway_process import HOST, GatewayProcess, free_port

TOKEN: Final = "/session/token"
_WEB: Final = "imq.bridge.stomp.listener.web"
#: Seconds that a token lasts here that is to end.
_SHORT: Final = 3


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def gateway(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "keys.json").write_bytes(issuer.set())
    oidc = "imq.authentication.oidc"
    settings = {
        "imq.authentication.basic.user_repository": "file,oidc",
        f"{oidc}.issuer": ISSUER,
        f"{oidc}.audience": AUDIENCE,
        f"{oidc}.keys": str(folder / "keys.json"),
        f"{_WEB}.port": str(free_port()),
        f"{_WEB}.ws": "true",
    }
    with GatewayProcess(folder, settings=settings) as gateway:
        rules = gateway.directory / "etc" / "accesscontrol.properties"
        rules.write_text(rules.read_text() + "\nqueue.staff.produce.deny.group=others\n")
        gateway.restart()
        yield gateway


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[Client]:
    made = Client(gateway.port)
    yield made
    made.close()


def _end_of(token: str) -> float:
    end: float = jwt.decode(token, options={"verify_signature": False})["exp"]
    return end


def test_a_token_as_passcode_opens_a_session_of_its_user(
    client: Client, gateway: GatewayProcess, issuer: Issuer
) -> None:
    client.connect(login="", passcode=issuer.token(time.time() + 60, groups=["staff"]))
    client.put("/queue/staff", "a")
    assert client.left("/queue/staff") == ["a"]
    stomp = gateway.directory / "bridges" / "stomp" / "stomp0.log"
    assert "user alice" in stomp.read_text() or "'alice'" in stomp.read_text()
    assert "eyJ" not in gateway.log


def test_groups_of_the_token_are_those_of_the_rules(client: Client, issuer: Issuer) -> None:
    client.connect(login="alice", passcode=issuer.token(time.time() + 60, groups=["others"]))
    client.send("SEND", {"destination": "/queue/staff", "receipt": "r"}, "a")
    client.error("alice", "may not")


def test_users_of_the_file_log_in_as_before(client: Client) -> None:
    client.connect()
    client.put("/queue/a", "a")


@pytest.mark.parametrize("login", ["bob", "guest"])
def test_a_token_is_not_for_another_login(client: Client, issuer: Issuer, login: str) -> None:
    token = issuer.token(time.time() + 60)
    client.send("CONNECT", {"accept-version": "1.2", "login": login, "passcode": token})
    assert token not in client.error("another user").headers["message"]


def test_a_session_ends_with_its_token_to_the_second(client: Client, issuer: Issuer) -> None:
    token = issuer.token(int(time.time()) + _SHORT)
    client.connect(login="", passcode=token)
    client.subscribe("/queue/ending", ack="client-individual")
    client.send("SEND", {"destination": "/queue/ending"}, "held")
    client.message()
    client.error("the token of user 'alice' has ended")
    assert 0 <= time.time() - _end_of(token) < 1
    client.rest()
    # What it held is there for others, and a second login with it is refused.
    other = Client(client._port)
    other.connect(login="", passcode=issuer.token(time.time() + 60))
    assert other.left("/queue/ending") == ["held"]
    other.close()
    late = Client(client._port)
    late.send("CONNECT", {"accept-version": "1.2", "login": "", "passcode": token})
    late.error("the token has ended")
    late.close()


def test_a_newer_token_has_it_go_on_without_a_gap(client: Client, issuer: Issuer) -> None:
    first = issuer.token(int(time.time()) + _SHORT, groups=["others"])
    client.connect(login="", passcode=first)
    client.subscribe("/queue/lasting", ack="client")
    newer = issuer.token(int(time.time()) + 60, groups=["staff"])
    client.send("SEND", {"destination": TOKEN, "receipt": "newer"}, newer)
    assert client.expect("RECEIPT")["receipt-id"] == "newer"
    number = 0
    while time.time() < _end_of(first) + 1:
        client.send("SEND", {"destination": "/queue/lasting"}, str(number))
        message = client.message()
        assert message.text == str(number)
        client.ack(message)
        number += 1
    assert number > 10
    # It has the newer token's groups, too.
    client.put("/queue/staff", "in")
    assert client.left("/queue/staff") == ["in"]


def test_what_came_before_a_newer_token_has_the_rights_of_the_former(
    client: Client, issuer: Issuer
) -> None:
    client.connect(login="", passcode=issuer.token(time.time() + 60, groups=["staff"]))
    newer = issuer.token(time.time() + 60, groups=["others"])
    sent = (("/queue/staff", "in time"), (TOKEN, newer), ("/queue/staff", "too late"))
    frames = [
        encode("SEND", {"destination": each, "receipt": str(place)}, body.encode(), "1.2")
        for place, (each, body) in enumerate(sent)
    ]
    client.write(b"".join(frames[:2]))
    # Both in one turn, and either may be answered first.
    assert {client.expect("RECEIPT")["receipt-id"] for _ in range(2)} == {"0", "1"}
    client.write(frames[2])
    client.error("may not produce", receipt_id="2")


@pytest.mark.parametrize(
    ("claims", "headers", "told"),
    [
        ({"sub": "bob"}, {}, "another user's"),
        ({"aud": "bank"}, {}, "another audience"),
        ({}, {"transaction": "t"}, "transaction"),
    ],
)
def test_one_that_does_not_do_ends_the_session(
    client: Client,
    issuer: Issuer,
    claims: dict[str, str],
    headers: dict[str, str],
    told: str,
) -> None:
    client.connect(login="", passcode=issuer.token(time.time() + 60))
    if headers:
        client.send("BEGIN", {"transaction": "t"})
    newer = issuer.token(time.time() + 60, **claims)
    client.send("SEND", {"destination": TOKEN, "receipt": "newer", **headers}, newer)
    error = client.error(told)
    assert error["receipt-id"] == "newer"


def test_a_user_of_the_file_has_no_token_to_renew(client: Client, issuer: Issuer) -> None:
    client.connect()
    client.send("SEND", {"destination": TOKEN}, issuer.token(time.time() + 60))
    client.error("another user's")


def test_nothing_can_be_received_from_where_tokens_go(client: Client, issuer: Issuer) -> None:
    client.connect(login="", passcode=issuer.token(time.time() + 60))
    client.send("SUBSCRIBE", {"destination": TOKEN, "id": "s"})
    client.error()


def test_a_token_may_come_with_the_request_for_a_websocket(
    gateway: GatewayProcess, issuer: Issuer
) -> None:
    token = issuer.token(int(time.time()) + _SHORT)
    frame = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
    port = int(gateway.settings[f"{_WEB}.port"])
    with socket.create_connection((HOST, port), timeout=30) as web:
        web.sendall(upgrade(f"Authorization: Bearer {token}"))
        web.sendall(bytes((0x82, 0x80 | len(frame), 0, 0, 0, 0)) + frame)
        said = b""
        while piece := web.recv(4096):
            said += piece
    assert b"CONNECTED" in said
    assert b"the token of user 'alice' has ended" in said
    # Closed with 1008, and a reason.
    assert b"\x03\xf0the token of user" in said
    assert 0 <= time.time() - _end_of(token) < 1.5


class _Provider(BaseHTTPRequestHandler):
    """Has the documents of an issuer; hangs where it is told to."""

    documents: ClassVar[dict[str, bytes]] = {}
    hanging: ClassVar[Event] = Event()

    def do_GET(self) -> None:
        if not self.hanging.is_set():
            self.hanging.wait(60)
        found = self.documents.get(self.path)
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_issuer_that_is_away_or_hangs_holds_only_its_users_up(
    tmp_path: Path, issuer: Issuer
) -> None:
    port = free_port()
    url = f"http://{HOST}:{port}/realms/shop"
    _Provider.documents = {
        "/realms/shop/.well-known/openid-configuration": json.dumps(
            {"jwks_uri": f"{url}/keys"}
        ).encode(),
        "/realms/shop/keys": issuer.set(),
    }
    oidc = "imq.authentication.oidc"
    settings = {
        "imq.authentication.basic.user_repository": "oidc,file",
        f"{oidc}.issuer": url,
        f"{oidc}.audience": AUDIENCE,
    }
    token = issuer.token(time.time() + 600, iss=url)
    login = {"accept-version": "1.2", "login": "", "passcode": token}
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        early = Client(gateway.port)
        early.send("CONNECT", login)
        early.error("tokens cannot be verified now")
        early.close()
        until_logged(gateway, "tokens cannot be verified")
        server = ThreadingHTTPServer((HOST, port), _Provider)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gateway.restart()
        waiting = Client(gateway.port)
        waiting.send("CONNECT", login)
        # Others log in meanwhile.
        other = Client(gateway.port)
        other.connect()
        other.put("/queue/a", "a")
        other.close()
        _Provider.hanging.set()
        waiting.expect("CONNECTED")
        waiting.close()
        server.shutdown()
        server.server_close()
