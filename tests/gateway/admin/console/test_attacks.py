"""Attacks on the console.

Texts that are scripts, many streams, sessions of others, and a flood of log-ins.
"""

from __future__ import annotations

import html
import http.client
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import pytest

from gateway.admin.console.live import MOST_OF_SESSION, MOST_STREAMS
from tests.chromium import Browser
from tests.crash.waiting import until
from tests.gateway.admin.console.crowded import Others
from tests.gateway.admin.console.serving import SHOP, Pages, Served, client, serving
from tests.gateway.admin.console.test_journeys import page
from tests.gateway.admin.console.test_messages import DEAD, Operator, dead
from tests.gateway_process import HOST, ROOT

pytestmark = pytest.mark.process

#: Event streams that are asked for at once, and log-ins of a flood.
_STREAMS: Final = 200
_LOG_INS: Final = 20
#: Seconds that a client may wait meanwhile, where other tests run beside.
_MOST_WAIT_S: Final = 0.5
#: Breaks out of a text, an attribute, a script and a JSON text. It has no slash, which ends the name
#: of a destination of some clients.
PAYLOAD: Final = "'\"><img src=x onerror=evil=1><svg onload=evil=1><script>evil=1<\\/script>"


#: The same as the name of a file, which has no slash; and of a user and its group.
FILE: Final = "'\"><img src=x onerror=evil=1><svg onload=evil=1>"
USER: Final = f"u{FILE}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("files")
    # No bridge can be made of this one, and the other's factory has no such certificate: both say
    # which file that is.
    broken = folder / f"{FILE}.xml"
    broken.write_text("<jmsbridge>")
    certificate = html.escape(str(folder / f"{FILE}.pem"))
    shop = SHOP.replace('name="away"', f'name="{html.escape(PAYLOAD)}"').replace(
        'lookup-name="stomp://127.0.0.1:{port}"/>',
        'lookup-name="stomp+tls://127.0.0.1:{port}">'
        f'<property name="stomp.ca" value="{certificate}"/></connection-factory>',
    )
    settings = {
        "imq.journal.level": "all",
        "imq.bridge.activelist": "stomp,shop,broken",
        "imq.bridge.broken.type": "jms",
        "imq.bridge.broken.xmlurl": str(broken),
    }
    with serving(tmp_path_factory.mktemp("console"), {"shop": shop}, settings) as found:
        yield found


class Stream:
    """The event stream of an open page, read when that is asked."""

    def __init__(self, served: Served, cookie: str, path: str = "", *, buffer: int = 0) -> None:
        self._socket = socket.socket()
        if buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.settimeout(20)
        port = served.port
        self._socket.connect((HOST, port))
        head = f"GET /console/live/{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nCookie: {cookie}\r\n"
        self._socket.sendall(f"{head}Connection: close\r\n\r\n".encode())
        self.read = b""

    def until(self, text: bytes) -> None:
        """Read until something was said."""
        while text not in self.read:
            octets = self._socket.recv(65536)
            if not octets:
                raise ConnectionError(f"it ended with {self.read[-2000:]!r}")
            self.read += octets

    def end(self) -> bytes:
        """Read to the end."""
        while octets := self._socket.recv(65536):
            self.read += octets
            if self.read.endswith(b"0\r\n\r\n"):
                break
        return self.read

    @property
    def status(self) -> int:
        """The answer's."""
        self.until(b"\r\n")
        return int(self.read.split()[1])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as ending:
        yield ending


def stream(opened: ExitStack, served: Served, cookie: str, path: str = "", **more: int) -> Stream:
    """A stream that is closed with the test."""
    return opened.enter_context(closing(Stream(served, cookie, path, **more)))


# --- texts of others


def test_a_payload_is_only_text_in_every_view(pages: Pages, served: Served) -> None:
    """One payload is the text of everything that a client or a file can name."""
    name = f"x{PAYLOAD}"
    id = dead(served, name, PAYLOAD, colour=PAYLOAD, **{"correlation-id": PAYLOAD, "type": PAYLOAD})
    admin = Operator(served, "admin")
    user = {"name": USER, "groups": f"viewer,{FILE}", "password": "evil", "again": "evil"}
    assert "is added." in admin.send("act/add-user", **user).text
    rule = {"rule": f"queue.{FILE}.produce.allow.user", "names": USER}
    assert "The rules are changed" in admin.send("act/change-rule", **rule).text
    with client(served, login=USER, passcode="evil", **{"client-id": PAYLOAD}) as evil:
        evil.put(f"/queue/{name}", PAYLOAD, colour=PAYLOAD, **{"correlation-id": PAYLOAD})
        evil.subscribe(
            f"/topic/{name}",
            id=PAYLOAD,
            **{"durable-subscriber-name": PAYLOAD, "persistent": "true"},
        )
        evil.put(f"/queue/{name}.held", PAYLOAD, colour=PAYLOAD, a="b")
        evil.send(
            "SUBSCRIBE",
            {"destination": f"/queue/{name}.held", "id": "2", "ack": "client"},
            selector="a <> '<img src=x>'",
        )
        evil.message()
        paused = {"type": "queue", "name": name, "pause": "ALL"}
        assert "Done." in admin.send("act/pause", **paused).text
        assert (
            "is under way."
            in admin.send("act/trace-destination", destination=f"queue:{name}", seconds="60").text
        )
        number = re.search(r"connection\?id=(\d+)", page(served, "connections", text="onerror"))
        assert number is not None
        texts: dict[str, str] = {}
        for path in (
            "",
            f"destinations?{urlencode({'text': PAYLOAD})}",
            f"destination?{urlencode({'type': 'queue', 'name': name})}",
            f"destination?{urlencode({'type': 'queue', 'name': f'{name}.held'})}",
            f"destination?{urlencode({'type': 'topic', 'name': name})}",
            "dead",
            f"messages?{urlencode({'name': name})}",
            f"messages?{urlencode({'name': name, 'selector': PAYLOAD})}",
            f"message?{urlencode({'name': DEAD, 'id': id})}",
            f"edit?{urlencode({'name': DEAD, 'id': id, 'to': PAYLOAD})}",
            f"search?{urlencode({'search': '1', 'destination': f'queue:{name}'})}",
            f"search?{urlencode({'search': '1', 'destination': PAYLOAD, 'selector': PAYLOAD, 'from': PAYLOAD, 'after': PAYLOAD})}",
            f"journey?{urlencode({'id': id})}",
            f"journey?{urlencode({'id': PAYLOAD})}",
            f"connections?{urlencode({'text': PAYLOAD})}",
            f"connection?id={number[1]}",
            f"bridges?{urlencode({'name': PAYLOAD})}",
            "bridges",
            f"link?{urlencode({'bridge': 'shop', 'link': PAYLOAD})}",
            f"link?{urlencode({'bridge': PAYLOAD, 'link': PAYLOAD})}",
            "transactions",
            "traces",
            f"try?{urlencode({'destination': name})}",
            "administration",
            f"administration?{urlencode({'user': USER, 'of': FILE, 'type': 'queue', 'operation': 'produce', 'destination': FILE})}",
            f"act/delete-user?{urlencode({'name': USER})}",
            f"act/user-groups?{urlencode({'name': USER, 'groups': FILE})}",
            f"act/change-rule?{urlencode({'rule': PAYLOAD, 'names': FILE})}",
            f"act/purge?{urlencode({'type': 'queue', 'name': name, 'selector': PAYLOAD})}",
            f"act/move-msg?{urlencode({'name': name, 'chosen': PAYLOAD, 'to': PAYLOAD})}",
            quote(PAYLOAD),
        ):
            pages.go(f"/console/{path}")
            found = pages.browser.run(
                "[typeof evil, document.querySelectorAll('img:not(.brand img), svg:not(.map svg), [onerror], [onload], "
                "script:not([src])').length]"
            )
            assert found == ["undefined", 0], path
            # The policy keeps one back that got through, and the browser says so.
            assert [each for each in pages.browser.console if "Content Security" in each] == [], (
                path
            )
            texts[path] = pages.browser.run("document.body.innerText")
    # All of these were there to be seen.
    for path, what in (
        ("bridges", f"{FILE}.xml"),
        ("bridges", f"{FILE}.pem"),
        ("", f"{FILE}.xml"),
        ("administration", USER),
        (f"connections?{urlencode({'text': PAYLOAD})}", USER),
    ):
        assert what in texts[path], path


def test_a_user_whose_name_is_a_script_sees_it_as_text(chromium: Browser, served: Served) -> None:
    admin = Operator(served, "admin")
    name = f"logs in {FILE}"
    user = {"name": name, "groups": f"viewer,{FILE}", "password": "evil", "again": "evil"}
    assert "is added." in admin.send("act/add-user", **user).text
    pages = Pages(chromium, served)
    chromium.forget_cookies()
    pages.go("/console/login")
    # First with a wrong password: the name is in the form again.
    pages.fill(user=name, password="wrong")
    chromium.click("button.main")
    pages.until_text("wrong user or password")
    assert chromium.run("document.querySelector('[name=user]').value") == name
    pages.fill(password="evil")
    chromium.click("button.main")
    chromium.until("location.pathname === '/console/'")
    pages.ready()
    assert name in pages.text("header")
    assert chromium.run(
        "[typeof evil, document.querySelectorAll('[onerror], [onload]').length]"
    ) == [
        "undefined",
        0,
    ]


# --- streams


def test_a_log_out_ends_streams_at_once(served: Served, opened: ExitStack) -> None:
    otto, other = Operator(served, "otto"), Operator(served, "otto")
    mine = stream(opened, served, otto.cookie, f"messages?{urlencode({'name': DEAD})}")
    others = stream(opened, served, other.cookie)
    assert (mine.status, others.status) == (200, 200)
    mine.until(b"retry: 3000\n\n")
    began = time.monotonic()
    assert otto.send("logout").status == 303
    assert b"event: ended\n" in mine.end()
    # That page looks again every 15 seconds only.
    assert time.monotonic() - began < 10
    others.until(b"data: {")
    assert b"event: ended" not in others.read


def test_a_user_who_is_removed_gets_no_more(
    served: Served, opened: ExitStack, tmp_path: Path
) -> None:
    secret = tmp_path / "rita"
    secret.write_text("imq.imqusermgr.password=rita\n")
    secret.chmod(0o600)
    changed(served, "add", "-u", "rita", "-g", "operator", "-passfile", str(secret))
    rita = Operator(served, "rita")
    follows = stream(opened, served, rita.cookie)
    follows.until(b"data: {")
    changed(served, "delete", "-u", "rita", "-f")
    form = {"type": "queue", "name": "of.rita"}
    refused = rita.send("act/create", **form)
    assert (refused.status, refused.headers["location"]) == (303, "/console/login")
    assert b"event: ended\n" in follows.end()
    assert "of.rita" not in page(served, "destinations")


def changed(served: Served, *arguments: str) -> None:
    """Change the users of the gateway."""
    gateway = served.gateway
    place = ("-varhome", str(gateway.varhome), "--instance", gateway.directory.name)
    subprocess.run(
        [sys.executable, "-m", "gateway.broker.security.usermgr", *arguments, *place],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    before = gateway.log.count("log files were reopened")
    gateway.signal(signal.SIGHUP)
    until(
        lambda: gateway.log.count("log files were reopened") > before,
        "the users are not read again",
    )


def test_one_user_leaves_room_for_the_streams_of_others(served: Served, opened: ExitStack) -> None:
    vera, otto = served.log_in("vera"), served.log_in("otto")
    cookies = [vera] * _STREAMS
    with Others(served.gateway.port) as others, ThreadPoolExecutor(20) as pool:
        asked = list(pool.map(lambda cookie: stream(opened, served, cookie), cookies))
        statuses = [each.status for each in asked]
        assert statuses.count(200) == MOST_OF_SESSION
        # Each has an answer.
        assert {*statuses} == {200, 503}
        refused = next(each for each in asked if each.status == 503)
        assert b"Retry-After: 30\r\n" in refused.end()
        assert stream(opened, served, otto).status == 200
        assert served.ask("/console/", cookie=vera).status == 200
    assert others.longest() < _MOST_WAIT_S


def test_the_pages_of_65_browsers_lock_no_command_out(served: Served, opened: ExitStack) -> None:
    cookies = [served.log_in("vera") for _ in range(6)]
    browsers = [stream(opened, served, cookies[number % 6]) for number in range(65)]
    statuses = [each.status for each in browsers]
    # One of the test before may still be open.
    assert statuses.count(200) in (MOST_STREAMS - 1, MOST_STREAMS)
    assert {*statuses} == {200, 503}
    # And each browser keeps a connection for what it asks next.
    kept = [http.client.HTTPConnection(HOST, served.port, timeout=20) for _ in range(65)]
    for connection in kept:
        opened.callback(connection.close)
        connection.request("GET", "/console/", headers={"Cookie": cookies[0]})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (200, True)
    gateway = served.gateway
    secret = gateway.directory / "etc/passfile"
    command = ("-m", "gateway.admin.cli.imqcmd", "list", "dst", "-u", "admin")
    place = ("-b", f"{HOST}:{gateway.port_mapper_port}", "-passfile", str(secret))
    done = subprocess.run(
        [sys.executable, *command, *place], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Successfully listed destinations." in done.stdout, done


@pytest.mark.long
def test_a_page_that_is_not_read_costs_a_bounded_memory(served: Served, opened: ExitStack) -> None:
    cookie = served.log_in("vera")
    with client(served) as sender:
        for number in range(60):
            sender.send("SEND", {"destination": f"/topic/{'long' * 50}.{number}"}, "x")
        sender.sync()
        slow = stream(opened, served, cookie, "destinations?order=in", buffer=4096)
        slow.until(b"retry: 3000\n\n")
        before = resident(served)
        # Each look differs from the last, and has 60 KiB.
        end = time.monotonic() + 12
        while time.monotonic() < end:
            sender.put(f"/topic/{'long' * 50}.1", *["x"] * 20)
        assert resident(served) - before < 8 * 1024 * 1024
    assert served.ask("/console/destinations", cookie=cookie).status == 200


def resident(served: Served) -> int:
    """The bytes of memory that the gateway has."""
    text = Path(f"/proc/{served.gateway.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


# --- log-ins


def test_a_session_is_never_one_that_somebody_else_has_chosen(served: Served) -> None:
    name = served.log_in("vera").partition("=")[0]
    chosen = f"{name}=chosen"
    form = {"user": "vera", "password": "vera"}
    reply = served.ask("/console/login", form, cookie=chosen)
    given = reply.headers["set-cookie"].partition(";")[0]
    assert (reply.status, given != chosen) == (303, True)
    assert served.ask("/console/destinations", cookie=chosen).status == 303
    # Whose browser logs in again has a new session, and the old one is over.
    again = served.ask("/console/login", form, cookie=given).headers["set-cookie"].partition(";")[0]
    assert again != given
    statuses = [served.ask("/console/destinations", cookie=each).status for each in (given, again)]
    assert statuses == [303, 200]


def test_a_flood_of_log_ins_keeps_no_client_waiting(served: Served) -> None:
    def log_in(number: int) -> int:
        try:
            return served.ask("/console/login", {"user": "vera", "password": str(number)}).status
        except (http.client.HTTPException, OSError):
            # There are more connections than the service takes.
            return 0

    with Others(served.gateway.port) as others, ThreadPoolExecutor(30) as pool:
        flood = [pool.submit(log_in, number) for number in range(_LOG_INS)]
        assert 303 not in [each.result() for each in flood]
        # Who knows the password gets in.
        assert served.log_in("vera")
    assert others.longest() < _MOST_WAIT_S
