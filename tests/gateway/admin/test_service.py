"""The admin service as HTTP: who is let in, what is bounded, how it refuses, where it listens. Real
sockets.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from bridge.config.problems import ConfigurationError, Problem
from bridge.link.status import WrongState
from certs.contexts import ServerContextFactory, ServerFiles
from gateway.admin.service import service
from gateway.admin.service.guard import MOST_FAILURES
from gateway.admin.service.requests import AdminRequest, Plain, Refused, Routes
from gateway.admin.service.roles import Identity, Role
from gateway.admin.service.service import LARGEST_BODY, AdminService
from gateway.admin.service.settings import AdminOptions
from gateway.instance import logs
from gateway.instance.portmapper import PortMapper
from gateway.messaging.errors import AuthenticationFailed, ProviderUnavailable
from tests.gateway.admin.asking import ADMIN, Reply, ask, basic, post
from tests.gateway_process import Certificates
from tests.logged import recording
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

reactor = cast(Any, global_reactor)

OPTIONS = AdminOptions(user=ADMIN[0], password=ADMIN[1])


class Echo:
    """A resource that says what it was asked, and fails as it is told to."""

    def __init__(self) -> None:
        self.held: Deferred[None] | None = None
        self.reached: Deferred[None] = Deferred()
        self.done: Deferred[None] = Deferred()

    def __call__(self, routes: Routes) -> None:
        routes.add("GET", "/v1/echo/<what>", self.get)
        routes.add("POST", "/v1/echo/<what>", self.change)
        routes.add("GET", "/v1/fails/<how>", self.failing)
        routes.add("POST", "/v1/slow", self.slow)
        routes.add("GET", "/v1/plain", lambda request: Plain(b"as it is", "text/plain"))

    def get(self, request: AdminRequest, what: str) -> dict[str, object]:
        return {
            "what": what,
            "user": request.user,
            "query": dict(request.query),
            "n": request.number("n", 3, 0, 9),
        }

    async def change(self, request: AdminRequest, what: str) -> dict[str, object]:
        return {"what": what, "text": request.needed("text"), "flag": request.flag("flag")}

    def failing(self, request: AdminRequest, how: str) -> object:
        errors: dict[str, Exception] = {
            "state": WrongState("link one", "pause", "STOPPED"),
            "file": ConfigurationError([Problem("a.xml", 3, "link", "name", None, "a name")]),
            "broker": ProviderUnavailable("it is gone"),
            "refused": Refused("no", "mine"),
            "defect": KeyError("the secret of the vault"),
        }
        raise errors[how]

    async def slow(self, request: AdminRequest) -> dict[str, object]:
        self.held = Deferred()
        self.reached.callback(None)
        await self.held
        self.done.callback(None)
        return {"slow": True}


@asynccontextmanager
async def running(
    echo: Echo | None = None,
    options: AdminOptions = OPTIONS,
    authenticate: Any = None,
    log: Logger | None = None,
    **more: Any,
) -> AsyncIterator[AdminService]:
    admin = AdminService(reactor, options, [echo or Echo()], authenticate, log=log, **more)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.stop()


@on_reactor
async def test_an_administrator_is_answered_in_json() -> None:
    async with running() as admin:
        reply = await ask(admin.port, "GET", "/v1/echo/a%20b?x=1&n=7")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.json == {"what": "a b", "user": "admin", "query": {"x": "1", "n": "7"}, "n": 7}
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["server"] == "stomp-gateway"
        about = await ask(admin.port, "GET", "/v1")
        assert (about.json["product"], about.json["user"]) == ("stomp-gateway", "admin")
        plain = await ask(admin.port, "GET", "/v1/plain")
        assert (plain.headers["content-type"], plain.body) == ("text/plain", b"as it is")
        changed = await post(admin.port, "/v1/echo/x", text="t", flag=True)
        assert changed.json == {"what": "x", "text": "t", "flag": True}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("admin", "wrong"),
        basic("somebody", ADMIN[1]),
        basic("admin", ""),
        basic("", ""),
        {"Authorization": "Bearer abc"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic YWRtaW4="},
    ],
)
@on_reactor
async def test_nobody_else_is_let_in_nor_told_what_there_is(headers: dict[str, str]) -> None:
    async with running() as admin:
        for path in ("/v1/echo/a", "/v1/nothing"):
            reply = await ask(admin.port, "GET", path, headers=headers, who=None)
            assert (reply.status, reply.error) == (401, ("unauthorized", "wrong user or password"))
            assert (
                reply.headers["www-authenticate"] == 'Basic realm="stomp-gateway", charset="UTF-8"'
            )


@on_reactor
async def test_without_a_password_in_the_settings_it_lets_nobody_in_by_it() -> None:
    async with running(options=AdminOptions(user="admin")) as admin:
        reply = await ask(admin.port, "GET", "/v1", who=("admin", ""))
        assert reply.status == 401
    async with running(options=AdminOptions()) as admin:
        reply = await ask(admin.port, "GET", "/v1", who=("", ""))
        assert reply.status == 401


@on_reactor
async def test_other_administrators_are_asked_of_who_knows_them() -> None:
    asked: list[tuple[str, str, str]] = []

    def authenticate(user: str, password: str, address: str) -> Deferred[Identity | None]:
        asked.append((user, password, address))
        if user == "unknown":
            return fail(AuthenticationFailed(user))
        return succeed(Identity(user, Role.VIEWER) if user == "olga" else None)

    async with running(authenticate=authenticate) as admin:
        assert (await ask(admin.port, "GET", "/v1", who=("olga", "pässword:x"))).json[
            "user"
        ] == "olga"
        assert (await ask(admin.port, "GET", "/v1", who=("guest", "guest"))).status == 401
        assert (await ask(admin.port, "GET", "/v1", who=("unknown", "x"))).status == 401
        assert (await ask(admin.port, "GET", "/v1")).status == 200
    assert asked == [
        ("olga", "pässword:x", "127.0.0.1"),
        ("guest", "guest", "127.0.0.1"),
        ("unknown", "x", "127.0.0.1"),
    ]


@on_reactor
async def test_nobody_on_this_machine_locks_the_administrator_out() -> None:
    async with running() as admin:
        replies = await gatherResults(
            [
                ask(admin.port, "GET", "/v1", who=("admin", f"guess {n}"))
                for n in range(4 * MOST_FAILURES)
            ]
        )
        assert {reply.status for reply in replies} == {401}
        assert (await ask(admin.port, "GET", "/v1")).status == 200


@on_reactor
async def test_wrong_passwords_have_some_lines_and_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "MOST_A_SECOND", 2)
    log, events = recording()
    async with running(log=log) as admin:
        replies = await gatherResults(
            [ask(admin.port, "GET", "/v1", who=("admin", "wrong")) for _ in range(30)]
        )
        assert {reply.status for reply in replies} == {401}
    refused = [event for event in events if "was refused" in str(event["log_format"])]
    left_out = [event["more"] for event in events if "more" in event]
    assert left_out
    assert len(refused) + sum(left_out) == 30


@on_reactor
async def test_asking_without_a_password_is_no_failed_attempt() -> None:
    async with running() as admin:
        for _ in range(MOST_FAILURES + 1):
            assert (await ask(admin.port, "GET", "/v1", who=None)).status == 401
        assert (await ask(admin.port, "GET", "/v1")).status == 200


@on_reactor
async def test_a_body_has_a_bound() -> None:
    async with running() as admin:
        just = json.dumps({"text": "x" * (LARGEST_BODY - 12)}).encode()
        assert len(just) == LARGEST_BODY
        headers = {"Content-Type": "application/json"}
        assert (await ask(admin.port, "POST", "/v1/echo/a", just, headers)).status == 200
        over = await ask(admin.port, "POST", "/v1/echo/a", just + b" ", headers)
        assert (over.status, over.error[0]) == (413, "too_large")
        # Also without a word of how long it will be, and for who has no password.
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(just) + 1, just + b" ")
        told = await deferToThread(
            _raw,
            admin.port,
            b"POST /v1/echo/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        )
        assert told.startswith(b"HTTP/1.1 413 ")


@on_reactor
async def test_endless_bodies_are_cut_off() -> None:
    async with running() as admin:
        assert await deferToThread(_pour, admin.port) < 64 * 1024 * 1024


def _raw(port: int, octets: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(octets)
        return connection.recv(65536)


def _pour(port: int) -> int:
    poured = 0
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(
            b"POST /v1/echo/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
        )
        try:
            while poured < 1_000_000_000:
                connection.sendall(bytes(65536))
                poured += 65536
        except OSError:
            return poured
    return poured


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "/v1/nothing", None, {}, 404, "not_found"),
        ("GET", "/", None, {}, 404, "not_found"),
        ("DELETE", "/v1/echo/a", None, {}, 405, "method_not_allowed"),
        ("POST", "/v1/echo/a", b"{}", {"Content-Type": "text/plain"}, 415, "bad_request"),
        (
            "POST",
            "/v1/echo/a",
            b"text=a",
            {"Content-Type": "application/x-www-form-urlencoded"},
            415,
            "bad_request",
        ),
        ("POST", "/v1/echo/a", b"{", {"Content-Type": "application/json"}, 400, "bad_request"),
        (
            "POST",
            "/v1/echo/a",
            b"[" * 60000,
            {"Content-Type": "application/json"},
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/echo/a",
            b"[]",
            {"Content-Type": "application/json; charset=utf-8"},
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/echo/a",
            b"\xff\xfe",
            {"Content-Type": "application/json"},
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/echo/a",
            b'{"text": 1}',
            {"Content-Type": "application/json"},
            400,
            "bad_request",
        ),
        ("POST", "/v1/echo/a", b"", {"Content-Type": "application/json"}, 400, "bad_request"),
        (
            "POST",
            "/v1/echo/a",
            b'{"text": "a", "flag": "maybe"}',
            {"Content-Type": "application/json"},
            400,
            "bad_request",
        ),
        ("GET", "/v1/echo/a?n=10", None, {}, 400, "bad_request"),
        ("GET", "/v1/echo/a?n=x", None, {}, 400, "bad_request"),
        ("GET", "/v1/fails/state", None, {}, 409, "wrong_state"),
        ("GET", "/v1/fails/file", None, {}, 409, "configuration"),
        ("GET", "/v1/fails/broker", None, {}, 409, "messaging"),
        ("GET", "/v1/fails/refused", None, {}, 400, "mine"),
    ],
)
@on_reactor
async def test_what_cannot_be_done_is_refused_with_status_and_code(
    method: str, path: str, body: bytes | None, headers: dict[str, str], status: int, code: str
) -> None:
    async with running() as admin:
        reply = await ask(admin.port, method, path, body, headers)
        assert (reply.status, reply.error[0]) == (status, code)
        assert reply.error[1] != ""


@on_reactor
async def test_a_defect_is_an_incident_that_the_log_has_and_nobody_else() -> None:
    log, events = recording()
    async with running(log=log) as admin:
        reply = await ask(admin.port, "GET", "/v1/fails/defect")
        code, text = reply.error
        assert (reply.status, code) == (500, "internal_error")
        assert "secret" not in text
    [incident] = [event["incident"] for event in events if "incident" in event]
    assert incident in text
    [failure] = [event["log_failure"] for event in events if event.get("log_failure")]
    assert "the secret of the vault" in str(failure.value)


@pytest.mark.parametrize(
    ("line", "host", "named"),
    [
        (b"GET /%ff", b"x", "path"),
        (b"GET /v1/echo/%ff", b"x", "path"),
        (b"GET /v1/echo/a", b"\xff", "host"),
    ],
)
@on_reactor
async def test_what_is_no_text_is_refused_in_one_line_of_the_log(
    line: bytes, host: bytes, named: str
) -> None:
    log, events = recording()
    async with running(log=log) as admin:
        events.clear()
        who = "".join(f"{name}: {value}\r\n" for name, value in basic(*ADMIN).items()).encode()
        request = b"%b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n%b\r\n" % (line, host, who)
        answer = await deferToThread(_raw, admin.port, request)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert f"the {named} of the request is not UTF-8".encode() in answer
        assert len(events) == 1
        assert "log_failure" not in events[0]


@on_reactor
async def test_a_defect_of_those_who_know_the_administrators_is_answered() -> None:
    log, events = recording()

    def broken(user: str, password: str, address: str) -> Deferred[bool]:
        return fail(ZeroDivisionError("secret detail"))

    async with running(authenticate=broken, log=log) as admin:
        reply = await ask(admin.port, "GET", "/v1", who=("other", "secret"))
        assert (reply.status, reply.error[0]) == (500, "internal_error")
        assert b"secret detail" not in reply.body
    assert [
        event["incident"] in reply.error[1] for event in events if event.get("log_failure")
    ] == [True]


@on_reactor
async def test_what_was_begun_is_ended_though_the_client_is_gone() -> None:
    echo = Echo()
    async with running(echo) as admin:
        request = b"POST /v1/slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 0\r\nAuthorization: "
        connection = await deferToThread(socket.create_connection, ("127.0.0.1", admin.port), 20)
        await deferToThread(
            connection.sendall, request + basic(*ADMIN)["Authorization"].encode() + b"\r\n\r\n"
        )
        await echo.reached
        connection.close()
        # The service has noticed once it lists no connection.
        await _until(lambda: not admin._connections.protocols)
        assert echo.held is not None
        echo.held.callback(None)
        await echo.done


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        turn: Deferred[None] = Deferred()
        reactor.callLater(0.01, turn.callback, None)
        await turn


@on_reactor
async def test_a_stop_answers_what_is_under_way_and_then_closes() -> None:
    echo = Echo()
    async with running(echo) as admin:
        port = admin.port
        idle = await deferToThread(socket.create_connection, ("127.0.0.1", port), 20)
        asked = post(port, "/v1/slow")
        await echo.reached
        stopped = admin.stop()
        assert echo.held is not None
        echo.held.callback(None)
        assert (await asked).json == {"slow": True}
        await stopped
        assert await deferToThread(idle.recv, 1) == b""
        idle.close()
        with pytest.raises(ConnectionRefusedError):
            await ask(port, "GET", "/v1")


@on_reactor
async def test_a_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STOP_S", 0.05)
    echo = Echo()
    async with running(echo) as admin:
        asked = post(admin.port, "/v1/slow")
        asked.addErrback(lambda failure: None)
        await echo.reached
        await admin.stop()
        assert admin.port == 0
        assert echo.held is not None
        echo.held.callback(None)
        await asked


@on_reactor
async def test_strangers_connections_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_CONNECTIONS", 2)
    async with running() as admin:
        there = [
            await deferToThread(socket.create_connection, ("127.0.0.1", admin.port), 20)
            for _ in range(2)
        ]
        await _until(lambda: len(admin._connections.protocols) == 2)
        assert (await ask(admin.port, "GET", "/v1")).status == 200
        with pytest.raises(ConnectionResetError):
            await deferToThread(there[0].recv, 1)
        for connection in there:
            connection.close()
        await _until(lambda: not admin._connections.protocols)
        assert not admin._connections._leaving


@on_reactor
async def test_strangers_that_dribble_are_cut_off_and_administrators_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An administrator has spoken by then, on a busy machine too.
    monkeypatch.setattr(service, "STRANGE_S", 2.0)
    async with running() as admin:
        known = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
        assert await deferToThread(_status, known) == 200
        assert await deferToThread(_dribbled_for, admin.port) < 10
        assert len(admin._connections.protocols) == 1
        assert await deferToThread(_status, known) == 200
        known.close()
        await _until(lambda: not admin._connections.protocols)
        assert not admin._connections._limits


def _dribbled_for(port: int) -> float:
    """Send a head byte by byte until the service ends it.

    :returns: the seconds that took.
    """
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 0.05) as connection:
        connection.sendall(b"GET /v1 HTTP/1.1\r\nX: ")
        while time.monotonic() < began + 10:
            try:
                connection.sendall(b"x")
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - began


@on_reactor
async def test_a_stranger_has_one_answer_on_a_connection() -> None:
    """Requests without end would keep the reactor from all others."""
    log, events = recording()
    async with running(log=log) as admin:
        events.clear()
        flood = b"GET /v1 HTTP/1.1\r\nHost: h\r\n\r\n" * 1000
        answer = await deferToThread(_raw, admin.port, flood)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"\r\nConnection: close\r\n" in answer
        # Of who was let in the connection is kept.
        known = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
        assert await deferToThread(_status, known) == 200
        there = known.sock
        assert await deferToThread(_status, known) == 200
        assert known.sock is there is not None
        known.close()
        odd = b"GET /v1 HTTP/1.1\r\nHost: h\r\nAuthorization: Basic \xff\r\n\r\n"
        answer = await deferToThread(_raw, admin.port, odd)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"the header Authorization of the request is not UTF-8" in answer
        assert events == []


@on_reactor
async def test_a_connection_that_only_waits_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "MOST_CONNECTIONS", 2)
    async with running() as admin:
        there = [http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20) for _ in range(2)]
        for connection in there:
            assert await deferToThread(_status, connection) == 200
        assert (await ask(admin.port, "GET", "/v1")).status == 200
        # The oldest was closed in order, which a client looks for before it asks again.
        assert there[0].sock is not None
        assert await deferToThread(there[0].sock.recv, 1) == b""
        there[0].close()
        for connection in there:
            assert await deferToThread(_status, connection) == 200
            connection.close()
        await _until(lambda: not admin._connections.protocols)
        assert not admin._connections._leaving


class Slow:
    """A resource that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Deferred[str]] = []

    def __call__(self, routes: Routes) -> None:
        routes.add("GET", "/v1/slow", self._wait)

    def _wait(self, request: AdminRequest) -> Deferred[str]:
        self.asked.append(Deferred())
        return self.asked[-1]


@on_reactor
async def test_a_request_too_many_is_told_so_and_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "MOST_REQUESTS", 3)
    slow = Slow()
    admin = AdminService(reactor, OPTIONS, [slow])
    await admin.start()
    under_way: list[Deferred[Reply]] = []
    while len(under_way) < 3:
        # One after the other: which of several threads is the first to ask is not known.
        under_way.append(ask(admin.port, "GET", "/v1/slow"))
        await _until(lambda: len(slow.asked) == len(under_way))
    refused = await ask(admin.port, "GET", "/v1")
    assert (refused.status, refused.error[0]) == (503, "busy")
    assert "3 requests and open pages are under way" in refused.error[1]
    assert refused.headers["retry-after"] == "2"
    assert refused.headers["connection"] == "close"
    slow.asked[0].callback("done")
    assert (await under_way[0]).json == "done"
    # There is room again, and the others were not touched.
    assert (await ask(admin.port, "GET", "/v1")).status == 200
    for waiting in slow.asked[1:]:
        waiting.callback("done")
    assert [(await each).status for each in under_way[1:]] == [200, 200]
    await admin.stop()


@on_reactor
async def test_a_line_that_is_too_long_is_answered() -> None:
    async with running() as admin:
        refused = await ask(admin.port, "GET", f"/v1/why/message?id={'x' * 100_000}")
        assert refused.status == 414
        assert (await ask(admin.port, "GET", "/v1")).status == 200


@on_reactor
async def test_strangers_requests_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_REQUESTS", 2)
    checked: list[Deferred[Identity | None]] = []

    def authenticate(user: str, password: str, address: str) -> Deferred[Identity | None]:
        checked.append(Deferred())
        return checked[-1]

    async with running(authenticate=authenticate) as admin:
        strangers = [ask(admin.port, "GET", "/v1", who=("bob", "b"))]
        await _until(lambda: len(checked) == 1)
        strangers.append(ask(admin.port, "GET", "/v1", who=("bob", "b")))
        await _until(lambda: len(checked) == 2)
        assert (await ask(admin.port, "GET", "/v1")).status == 200
        assert (await strangers[0]).status == 503
        # Its password was right, which is known too late; the other's is in time.
        for each in checked:
            each.callback(Identity("bob", Role.ADMINISTRATOR))
        assert (await strangers[1]).json["user"] == "bob"
        assert (await ask(admin.port, "GET", "/v1")).status == 200


def _status(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/v1", headers=basic(*ADMIN))
    response = connection.getresponse()
    response.read()
    return response.status


@on_reactor
async def test_the_port_mapper_has_it_while_it_listens() -> None:
    mapper = PortMapper(reactor, "imqbroker", "1")
    async with running(register_port=mapper.register) as admin:
        assert f"bridge_admin tcp ADMIN {admin.port} [hostname=127.0.0.1]\n" in mapper.table()
        await admin.stop()
        assert "bridge_admin" not in mapper.table()


@on_reactor
async def test_over_tls(certificates: Certificates) -> None:
    import http.client
    import ssl

    files = ServerFiles(
        certificates.directory / "server.pem", certificates.directory / "server.key"
    )
    mapper = PortMapper(reactor, "imqbroker", "1")
    options = AdminOptions(tls=True, user=ADMIN[0], password=ADMIN[1])
    async with running(
        options=options,
        tls_context_factory=ServerContextFactory(files),
        register_port=mapper.register,
    ) as admin:
        assert f"bridge_admin tls ADMIN {admin.port} " in mapper.table()

        def asked() -> int:
            context = ssl.create_default_context(cafile=str(certificates.ca))
            connection = http.client.HTTPSConnection(
                "localhost", admin.port, context=context, timeout=20
            )
            try:
                connection.request("GET", "/v1", headers=basic(*ADMIN))
                return connection.getresponse().status
            finally:
                connection.close()

        assert await deferToThread(asked) == 200


def test_it_never_speaks_in_the_clear_on_a_network() -> None:
    with pytest.raises(ValueError, match=r"in the clear on 0\.0\.0\.0"):
        AdminService(reactor, AdminOptions(hostname="0.0.0.0"), [])
    with pytest.raises(ValueError, match="nothing to make TLS connections with"):
        AdminService(reactor, AdminOptions(tls=True), [])
