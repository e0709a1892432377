"""The STOMP client in the page, in a real browser at a real gateway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

import pytest

from gateway.admin.console.trying import Missing, Offered, trying_views
from gateway.admin.service.requests import AdminRequest
from gateway.stomp.listeners import Listener
from gateway.stomp.open_listeners import ListenerView
from gateway.stomp.websocket.upgrade import Rules
from tests.chromium import Browser
from tests.crash.waiting import until, until_logged
from tests.gateway.admin.asking import post
from tests.gateway.admin.console.serving import EVIL, Pages, Served, client, sent, serving
from tests.gateway_process import HOST, free_port
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

WEB, OTHER = "imq.bridge.stomp.listener.web", "imq.bridge.stomp.listener.other"
#: An address of this machine that is not the page's.
ELSEWHERE = "127.0.0.2"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {
        f"{WEB}.port": str(free_port()),
        f"{WEB}.ws": "true",
        f"{OTHER}.port": str(free_port()),
        f"{OTHER}.ws": "true",
        f"{OTHER}.address": ELSEWHERE,
    }
    with serving(tmp_path_factory.mktemp("console"), more=settings) as found:
        yield found


def at(served: Served, name: str = WEB) -> str:
    host = ELSEWHERE if name == OTHER else HOST
    return f"ws://{host}:{served.gateway.settings[f'{name}.port']}"


class Trying(Pages):
    """The page, used as somebody at it does."""

    def put(self, **values: str) -> None:
        """Fill in fields by their ids."""
        for id, value in values.items():
            place = f"document.getElementById({json.dumps(id.replace('_', '-'))})"
            self.browser.run(f"({place}.value = {json.dumps(value)}, 0)")

    def connect(self, user: str = "guest", passcode: str = "guest") -> None:
        self.put(user=user, passcode=passcode)
        self.follow("Connect")

    def connected(self, destination: str = "") -> None:
        self.go(f"/console/try?destination={destination}")
        self.connect()
        self.until_text("Connected as guest.", "#state")

    def subscribed(self, destination: str, ack: str = "auto") -> None:
        self.put(subscribe_to=destination, ack=ack)
        self.follow("Subscribe")
        self.until_text(destination, "#subscriptions")

    def frames(self) -> list[str]:
        found: list[str] = self.browser.run(
            "[...document.querySelectorAll('#frames > li')].map((one) => one.innerText)"
        )
        return found


@pytest.fixture
def trying(chromium: Browser, served: Served) -> Trying:
    found = Trying(chromium, served)
    found.log_in("otto")
    return found


def test_a_message_is_sent_confirmed_and_received(trying: Trying, served: Served) -> None:
    sent(served, "tried", "before")
    trying.go("/console/destination?type=queue&name=tried")
    trying.browser.run("document.querySelector('main .buttons [href*=try]').click()")
    trying.browser.until("location.pathname === '/console/try'")
    trying.ready()
    trying.connect()
    # The keyboard goes on where the destination is, which came along.
    trying.browser.until("document.activeElement.id === 'subscribe-to'")
    trying.browser.press("Enter", 13)
    trying.until_text("before", "#frames")
    trying.put(headers="color: red\nsize:a:b\\", body="grüß dich\n世界")
    trying.follow("Send")
    trying.until_text("is confirmed.", "#state")
    trying.until_text("grüß dich\n世界", "#frames")
    trying.until_text("RECEIPT", "#frames")
    assert {frame.split("\n")[0] for frame in trying.frames()} == {
        "CONNECTED",
        "MESSAGE",
        "RECEIPT",
    }
    message = next(frame for frame in trying.frames() if "grüß" in frame)
    assert "color: red\n" in message
    assert "size: a:b\\\n" in message
    trying.follow("Unsubscribe")
    trying.browser.until("document.getElementById('subscriptions').childElementCount === 0")
    # It is a text for others, too, whose consumer is the only one now.
    trying.put(body="for another")
    trying.follow("Send")
    with client(served) as consumer:
        consumer.subscribe("/queue/tried")
        got = consumer.message()
        assert (got.text, got["color"]) == ("for another", "red")
    trying.follow("Disconnect")
    trying.until_text("Disconnected.", "#state")
    assert trying.browser.run("document.getElementById('session').hidden")
    assert trying.browser.console == []


def test_messages_are_acknowledged_one_by_one(trying: Trying, served: Served) -> None:
    trying.connected()
    trying.subscribed("/queue/one.by.one", "client-individual")
    sent(served, "one.by.one", "first", "second", "third")
    trying.until_text("3 not acknowledged", "#count")
    pressed = "[...document.querySelectorAll('#frames li')].find((one) => one.querySelector('.body')?.innerText === '{}').querySelector('[aria-label^={}]').click()"
    trying.browser.run(pressed.format("first", "ACK"))
    trying.browser.run(pressed.format("third", "NACK"))
    trying.until_text("Acknowledged", "#frames")
    trying.until_text("Refused by NACK", "#frames")
    trying.browser.until("document.activeElement.localName === 'li'")
    # What is not settled is another's when the subscription ends.
    trying.follow("Unsubscribe")
    trying.browser.until("document.querySelectorAll('#frames button').length === 0")
    trying.browser.until("!document.getElementById('count').innerText.includes('not ack')")
    with client(served) as consumer:
        consumer.subscribe("/queue/one.by.one")
        got = [consumer.message().text]
        while got[-1] != "second":
            got.append(consumer.message().text)
        assert "first" not in [*got, *consumer.left("/queue/one.by.one")]


def test_markup_in_a_message_is_text(trying: Trying, served: Served) -> None:
    trying.connected()
    trying.subscribed("/queue/evil")
    sent(served, "evil", EVIL, color=EVIL, **{"<b>name</b>": "x\u202etxt"})
    trying.until_text("MESSAGE", "#frames")
    message = trying.frames()[0]
    assert f"color: {EVIL}" in message
    assert "<b>name</b>: x\\u{202e}txt" in message
    assert trying.text("#frames .body") == EVIL
    assert (
        trying.browser.run(
            "document.querySelectorAll('#frames img, #frames script, #frames b').length"
        )
        == 0
    )
    assert trying.browser.run("document.title") == "Try it – stomp-gateway"
    # Nor does a destination that a link to the page brings along.
    trying.go("/console/try?destination=%22%3E%3Cimg%20src%3Dx%3E")
    assert trying.browser.run("document.querySelectorAll('main img').length") == 0
    assert trying.browser.console == []


def test_a_wrong_passcode_is_an_error_and_nothing_is_kept(trying: Trying, served: Served) -> None:
    trying.go("/console/try")
    trying.connect("guest", "a-secret-passcode")
    trying.until_text("The connection has ended (1008).", "#state")
    trying.until_text("ERROR", "#frames")
    assert trying.browser.run("document.getElementById('passcode').value") == ""
    assert trying.browser.run("document.cookie") == ""
    kept = "location.href + document.documentElement.outerHTML + JSON.stringify([localStorage, sessionStorage])"
    assert "secret" not in trying.browser.run(kept)
    assert "a-secret-passcode" not in served.log()
    # The next attempt begins anew.
    trying.browser.until("document.activeElement.id === 'user'")
    trying.connect()
    trying.until_text("Connected as guest.", "#state")
    trying.until_text("CONNECTED", "#frames")
    assert len(trying.frames()) == 1


def test_bytes_are_shown_and_pause_keeps_what_comes(trying: Trying, served: Served) -> None:
    trying.connected()
    trying.subscribed("/queue/many")
    with client(served) as sender:
        sender.send("SEND", {"destination": "/queue/many", "content-length": "3"}, b"\xff\0\x01")
    trying.until_text("ff 00 01", "#frames")
    trying.follow("Pause")
    sent(served, "many", *(f"body {number}" for number in range(250)))
    trying.until_text(
        "252 frames came; the latest 200 are kept; paused, 200 not shown yet", "#count"
    )
    assert len(trying.frames()) == 2
    trying.follow("Pause")
    trying.browser.until("document.querySelectorAll('#frames > li').length === 200")
    frames = trying.frames()
    assert "body 249" in frames[0]
    assert "body 50" in frames[-1]


def test_headers_that_cannot_be_are_not_sent(trying: Trying) -> None:
    trying.connected("/queue/headers")
    for text, problem in (
        ("no colon", '"no colon" is no header'),
        (": x", '": x" is no header'),
        ("receipt:1", "the header receipt is set by the page"),
    ):
        trying.put(headers=text)
        trying.follow("Send")
        trying.until_text(f"Not sent: {problem}", "#state")
    # What only the server can refuse, it does.
    trying.put(headers="", send_to="nowhere")
    trying.follow("Send")
    trying.until_text("The connection has ended", "#state")
    assert "nowhere" in trying.text("#state")


def test_a_listener_that_refuses_the_page_is_told(trying: Trying, served: Served) -> None:
    trying.go("/console/try")
    trying.put(listener=f"{at(served, OTHER)}/stomp")
    trying.connect()
    page = trying.browser.run("location.origin")
    trying.until_text(
        f"it refuses pages of {page}, unless imq.bridge.stomp.listener.other.origins names that",
        "#state",
    )
    until_logged(served.gateway, f"pages of {page} may not connect here")


def test_the_page_connects_to_the_listeners_and_to_nothing_else(
    trying: Trying, served: Served
) -> None:
    reply = served.ask("/console/try", cookie=served.log_in("otto"))
    policy = reply.headers["content-security-policy"].split("; ")
    assert f"connect-src {at(served)} {at(served, OTHER)}" in policy
    assert "script-src 'self'" in policy
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|<style|\sstyle=", reply.text)
    # By the name in the browser the page is of the listener's own host.
    reply = served.ask("/console/try", cookie=served.log_in("otto"), Host="localhost:1")
    assert f"ws://localhost:{served.gateway.settings[f'{WEB}.port']}/stomp" in reply.text
    trying.go("/console/try")
    stomp = f"ws://{HOST}:{served.gateway.port}"
    trying.browser.run(f"(new WebSocket({json.dumps(stomp)}), 0)")
    fetched = trying.browser.run("fetch('/console/').then(() => 'there', () => 'refused')")
    assert fetched == "refused"
    until(
        lambda: (
            trying.browser.run("true")
            and any(stomp in each and "violates" in each for each in trying.browser.console)
        ),
        "the browser does not say that the policy is violated",
    )


def test_the_page_is_for_operators(chromium: Browser, served: Served) -> None:
    cookie = served.log_in("vera")
    reply = served.ask("/console/try", cookie=cookie)
    assert (reply.status, "needs the role operator, and yours is viewer" in reply.text) == (
        403,
        True,
    )
    assert "Try it" not in reply.text
    assert (
        "Try it"
        not in served.ask("/console/destination?type=queue&name=mq.sys.dmq", cookie=cookie).text
    )
    assert "Try it" in served.ask("/console/", cookie=served.log_in("otto")).text


def test_it_is_accessible_and_fits_on_a_phone(trying: Trying, served: Served) -> None:
    for dark in (False, True):
        trying.go("/console/try", dark=dark)
        assert trying.faults() == []
        trying.connect()
        trying.until_text("Connected as guest.", "#state")
        trying.subscribed(f"/queue/seen.{dark}", "client-individual")
        sent(served, f"seen.{dark}", "x" * 400, color="y" * 400)
        trying.until_text("1 not acknowledged", "#count")
        assert trying.faults() == []
        trying.browser.resize(360)
        assert trying.browser.run("document.documentElement.scrollWidth") <= 360
        trying.follow("Disconnect")
        trying.until_text("Disconnected.", "#state")


@on_reactor
async def test_without_a_listener_it_says_what_makes_one(served: Served) -> None:
    for name in ("web", "other"):
        paused = await post(
            served.port, "/v1/services/pause", ("otto", "otto"), service=f"stomp-{name}"
        )
        assert paused.status == 200
    try:
        reply = served.ask("/console/try", cookie=served.log_in("otto"))
    finally:
        for name in ("web", "other"):
            await post(
                served.port, "/v1/services/resume", ("otto", "otto"), service=f"stomp-{name}"
            )
    assert (
        "imq.bridge.stomp.listener.NAME.port=7674\nimq.bridge.stomp.listener.NAME.ws=true"
        in reply.text
    )
    assert "stomp-web is PAUSED." in reply.text
    assert "connect-src 'none'" in reply.headers["content-security-policy"]


FRAMES = [
    (
        "MESSAGE\nid:1\na:b\\cc\\n\\\\\na:2\ncontent-length:3\n\na\0b\0",
        ["MESSAGE", "id=1,a=b:c\n\\,a=2,content-length=3", "a\0b"],
    ),
    ("\n\r\nRECEIPT\r\nreceipt-id:r\r\n\r\n\0\n", ["RECEIPT", "receipt-id=r", ""]),
    ("CONNECTED\nsession:a\\cb\n\n\0", ["CONNECTED", "session=a\\cb", ""]),
    ("ERROR\nmessage:grüß\n\nwhy 世界\0", ["ERROR", "message=grüß", "why 世界"]),
]


def test_frames_are_read_however_they_are_cut(trying: Trying) -> None:
    trying.go("/console/try")
    text = "".join(frame for frame, _ in FRAMES)
    for size in (1, 2, 3, 7, 1000):
        found = trying.browser.run(
            f"""(() => {{
              const octets = new TextEncoder().encode({json.dumps(text)}), reader = new Frames.Reader(), frames = [];
              for (let at = 0; at < octets.length; at += {size}) frames.push(...reader.read(octets.slice(at, at + {size})));
              return frames.map((one) => [one.command, one.headers.map((pair) => pair.join("=")).join(","), new TextDecoder().decode(one.octets)]);
            }})()"""
        )
        assert found == [frame for _, frame in FRAMES], size


@pytest.mark.parametrize(
    ("listens", "state", "host", "found"),
    [
        ("", "RUNNING", "mq.example.com", "ws://mq.example.com:7"),
        ("0.0.0.0", "RUNNING", "10.0.0.5", "ws://10.0.0.5:7"),
        ("10.0.0.5", "RUNNING", "mq.example.com", "ws://mq.example.com:7"),
        ("10.0.0.5", "RUNNING", "127.0.0.1", "ws://10.0.0.5:7"),
        ("localhost", "RUNNING", "127.0.0.1", "ws://127.0.0.1:7"),
        # The browser's machine is another one.
        ("127.0.0.1", "RUNNING", "10.0.0.5", "for its own machine only"),
        ("", "RUNNING", "::1", "name or an IPv4 address"),
        # What a browser might say must not end the policy.
        ("", "RUNNING", "a; script-src *", "name or an IPv4 address"),
        ("", "PAUSED", "mq.example.com", "is PAUSED"),
    ],
)
@on_reactor
async def test_the_host_is_the_pages_where_that_can_be(
    listens: str, state: str, host: str, found: str
) -> None:
    view = ListenerView("stomp-web", 7, False, listens, "stomp[WS]", state, "")
    [page] = trying_views(lambda: [(Listener("web", 7, listens, websocket=Rules()), view)])
    shown = await page.look(AdminRequest("otto", host=host))
    [one] = cast("list[Offered | Missing]", shown["offered"] or shown["missing"])
    if isinstance(one, Offered):
        assert (one.origin, shown["reached"]) == (found, [found])
    else:
        assert isinstance(one, Missing)
        assert (found in one.why, shown["reached"]) == (True, [])
