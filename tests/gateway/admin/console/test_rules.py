"""Who gets into the console, and what they may do there."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import click
import pytest
from twisted.internet.task import Clock
from twisted.web.test.requesthelper import DummyRequest

from gateway.admin.console import sessions
from gateway.admin.console.actions import ACTIONS
from gateway.admin.console.administration import administration_actions
from gateway.admin.console.live import Streams
from gateway.admin.console.message_actions import LOOK_TO_EDIT, MESSAGE_ACTIONS
from gateway.admin.console.sessions import Session, Sessions
from gateway.admin.console.traces import TRACE_ACTIONS
from gateway.admin.console.transactions import TRANSACTION_ACTIONS
from gateway.admin.console.view import View, command_line
from gateway.admin.service.requests import AdminRequest
from gateway.admin.service.roles import Identity, Role, needed
from gateway.broker.security import usermgr
from tests.gateway.admin.asking import ask, post
from tests.gateway.admin.console.serving import USERS, Served, client, serving
from tests.gateway_process import HOST
from tests.on_reactor import on_reactor
from tests.why.scenes import parsed

pytestmark = pytest.mark.process

PURGE = {"type": "queue", "name": "rules"}
#: What is not there or cannot be: the status, the words of the answer, and the actions about it.
MISSING = [
    (
        400,
        "&#39;x&#39; is no type of a destination; expected queue or topic",
        [f"{word}?type=x&name=y" for word in ("purge", "pause", "resume", "limits", "destroy")],
    ),
    (
        404,
        "there is no queue &#39;nowhere&#39;",
        [
            *(
                f"{word}?type=queue&name=nowhere"
                for word in ("purge", "pause", "resume", "limits", "destroy")
            ),
            *(f"{word}-msg?name=nowhere&limit=1" for word in ("move", "copy", "replay")),
            "delete-msg?name=nowhere&limit=1",
            "look-body?name=nowhere&id=1",
        ],
    ),
    (
        404,
        "no message 1 waits in queue &#39;mq.sys.dmq&#39;",
        [
            *(f"{word}-msg?name=mq.sys.dmq&id=1" for word in ("move", "copy", "replay")),
            "delete-msg?name=mq.sys.dmq&id=1",
            "look-body?name=mq.sys.dmq&id=1",
        ],
    ),
    (
        404,
        "no bridge nowhere",
        [
            *(f"{word}-bridge?bridge=nowhere" for word in ("start", "stop", "pause", "resume")),
            *(f"{word}-link?bridge=nowhere&link=l" for word in ("start", "stop")),
            *(f"{word}-transaction?bridge=nowhere&id=1" for word in ("commit", "forget")),
        ],
    ),
    (404, "there is no link l in bridge stomp", ["pause-link?bridge=stomp&link=l"]),
    (
        404,
        "there is no prepared branch 1.ab.cd",
        [f"{word}-txn?xid=1.ab.cd" for word in ("commit", "rollback", "forget")],
    ),
    (
        404,
        "there is no connection 999999",
        ["destroy-connection?id=999999", "trace-client?connection=999999"],
    ),
    (404, "there is no trace 999999", ["stop-trace?id=999999"]),
    (
        404,
        "there is no user &#39;absent&#39;",
        [
            f"{word}?name=absent"
            for word in (
                *("user-password", "user-groups", "delete-user", "activate-user"),
                *("deactivate-user", "confine-user", "release-user"),
            )
        ],
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("console")) as found:
        yield found


def test_a_browser_is_led_to_the_log_in_and_a_program_is_not(served: Served) -> None:
    there = served.ask("/", Accept="text/html")
    assert (there.status, there.headers["location"]) == (303, "/console/login")
    assert served.ask("/", Accept="application/json").status == 401
    deep = served.ask("/console/destination?type=queue&name=a%20b")
    assert deep.headers["location"] == (
        "/console/login?to=%2Fconsole%2Fdestination%3Ftype%3Dqueue%26name%3Da%2520b"
    )


def test_the_session_is_a_cookie_that_scripts_and_other_sites_do_not_have(served: Served) -> None:
    form = {"user": "vera", "password": "vera", "to": "/console/destinations"}
    reply = served.ask("/console/login", form)
    assert (reply.status, reply.headers["location"]) == (303, "/console/destinations")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"gateway-{served.port}=")
    assert {"HttpOnly", "Path=/", "Max-Age=43200"} <= {part.strip() for part in cookie.split(";")}
    assert "samesite=strict" in cookie.lower()
    # Where to go is a page of the console and nothing else.
    for to in ("https://evil.example/", "//evil.example/console/", "/console/\\evil", "/v1"):
        reply = served.ask("/console/login", {**form, "to": to})
        assert reply.headers["location"] == "/console/"


@pytest.mark.parametrize(
    ("user", "password"), [("vera", "wrong"), ("nora", "nora"), ("guest", "guest"), ("", "")]
)
def test_who_has_no_role_does_not_get_in(served: Served, user: str, password: str) -> None:
    reply = served.ask("/console/login", {"user": user, "password": password})
    assert (reply.status, "wrong user or password" in reply.text) == (401, True)
    assert "set-cookie" not in reply.headers
    # Nor does the browser ask in a window of its own.
    assert "www-authenticate" not in reply.headers


def test_pages_run_nothing_of_others_and_are_in_no_frame(served: Served) -> None:
    cookie = served.log_in("vera")
    for path in ("/console/login", "/console/", "/console/destinations", "/console/none"):
        reply = served.ask(path, cookie=cookie)
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|<style|\sstyle=", reply.text)
        assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", reply.text)


def test_a_log_out_ends_the_session(served: Served) -> None:
    cookie = served.log_in("vera")
    reply = served.ask("/console/logout", {"csrf": served.token(cookie)}, cookie=cookie)
    assert (reply.status, reply.headers["location"]) == (303, "/console/login")
    assert served.ask("/console/", cookie=cookie).status == 303


@pytest.mark.parametrize(
    "wrong",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"csrf": ""},
        {"csrf": "guess"},
        {"csrf": "vera's"},
        {"Content_Type": "text/plain"},
    ],
    ids=str,
)
def test_a_change_from_elsewhere_is_refused(served: Served, wrong: dict[str, str]) -> None:
    with client(served) as sender:
        sender.put("/queue/rules", "kept")
    cookie = served.log_in("otto")
    token = served.token(cookie)
    if wrong.get("csrf") == "vera's":
        token = served.token(served.log_in("vera"))
    elif "csrf" in wrong:
        token = wrong["csrf"]
    headers = {name: value for name, value in wrong.items() if name != "csrf"}
    reply = served.ask("/console/act/purge", {**PURGE, "csrf": token}, cookie=cookie, **headers)
    assert reply.status in (403, 415), reply.text
    assert "1" in served.ask("/console/destination?type=queue&name=rules", cookie=cookie).text
    with client(served) as sender:
        assert sender.left("/queue/rules")


def test_a_log_in_from_elsewhere_is_refused(served: Served) -> None:
    form = {"user": "vera", "password": "vera"}
    assert served.ask("/console/login", form, Origin="http://evil.example").status == 403


def test_a_viewer_changes_nothing_in_the_console(served: Served) -> None:
    cookie = served.log_in("vera")
    page = served.ask("/console/destination?type=queue&name=mq.sys.dmq", cookie=cookie)
    assert page.status == 200
    assert "act/purge" not in page.text
    token = served.token(cookie)
    for form in (None, {**PURGE, "csrf": token}):
        path = "/console/act/purge?type=queue&name=rules"
        reply = served.ask(path, form, cookie=cookie)
        assert (reply.status, "needs the role operator" in reply.text) == (403, True)


@pytest.mark.parametrize(
    ("status", "text", "paths"),
    # What is not there yet may be traced, but is not offered.
    [*MISSING, (404, MISSING[1][1], ["trace-destination?destination=queue:nowhere"])],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_nothing_is_asked_about_what_is_not_there(
    served: Served, status: int, text: str, paths: list[str]
) -> None:
    cookie = served.log_in("admin")
    for path in paths:
        reply = served.ask(f"/console/act/{path}", cookie=cookie)
        assert (reply.status, text in reply.text) == (status, True), path
        assert '<form method="post" action="/console/act/' not in reply.text


@pytest.mark.parametrize(
    ("status", "text", "paths"),
    MISSING,
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_to_be_done_to_what_is_not_there_is_refused_alike(
    served: Served, status: int, text: str, paths: list[str]
) -> None:
    cookie = served.log_in("admin")
    token = served.token(cookie)
    for path in paths:
        action, _, query = path.partition("?")
        given = dict(parse_qsl(query))
        reply = served.ask(f"/console/act/{action}", {**given, "csrf": token}, cookie=cookie)
        assert (reply.status, text in reply.text) == (status, True), path
        last = served.log().rpartition(f"audit: admin from {HOST} ")[2].partition("\n")[0]
        assert last.startswith("was refused in the console: "), path
        assert html.unescape(text) in last, path


def test_the_editor_of_a_message_that_is_gone_answers_so(served: Served) -> None:
    cookie = served.log_in("admin")
    form = {"name": "mq.sys.dmq", "id": "1", "csrf": served.token(cookie)}
    reply = served.ask("/console/edit", form, cookie=cookie)
    assert (reply.status, "no message 1 waits in queue" in reply.text) == (404, True)


#: All that can be done in the console.
EVERY = {
    **ACTIONS,
    **MESSAGE_ACTIONS,
    **TRANSACTION_ACTIONS,
    **TRACE_ACTIONS,
    **administration_actions(Path("/var"), "i"),
    "edit": LOOK_TO_EDIT,
}
#: What is filled in where an action asks for it.
FILLED_IN = {"text": "7", "number": "7", "flag": "true", "password": "secret"}


def test_each_action_about_something_looks_for_it() -> None:
    assert [
        name for name, action in EVERY.items() if action.parameters and not action.subject
    ] == []


@pytest.mark.parametrize("name", ["orders", "-x", "-f", """o'r "d" $(e) `r` é"""])
@pytest.mark.parametrize("word", EVERY)
def test_each_action_shows_a_command_that_its_program_takes(word: str, name: str) -> None:
    action = EVERY[word]
    edit = json.dumps({"text": name, "properties": {name: "-1"}, "priority": "7"})
    given = dict.fromkeys(action.parameters, name) | {"type": "queue", "edit": edit}
    for least in (False, True):
        for each in action.fields:
            left_out = least and not each.required and not each.default and word != "limits"
            filled_in = each.choices[-1] if each.choices else FILLED_IN[each.kind]
            given[each.name] = "" if left_out else filled_in
        words = action.command({**given, "address": "http://127.0.0.1:7677"})
        line = command_line(words)
        assert "secret" not in line
        if words[0] in ("imqcmd", "imqbridgemgr"):
            parsed(line)
        elif words[0] == "imqusermgr":
            program = usermgr.command
            verb, command, rest = program.resolve_command(click.Context(program), [*words[1:]])
            assert command is not None
            command.make_context(verb, rest).close()
        else:
            # There is no command for it: it is asked over HTTP.
            assert words[0] == "curl"
            [address] = [each for each in words if each.startswith("http://127.0.0.1:7677/v1/")]
            assert address.endswith(action.path)


@on_reactor
async def test_the_roles_are_those_of_the_interface_for_programs_too(served: Served) -> None:
    port = served.port
    vera, otto, admin = (("vera", "vera"), ("otto", "otto"), ("admin", served.passcode))
    wanted = {"type": "queue", "name": "of-a-program"}
    for path in ("/v1/broker", "/v1/destinations", "/v1/bridges", "/metrics"):
        assert (await ask(port, "GET", path, who=vera)).status == 200, path
    refused = await post(port, "/v1/destinations", vera, **wanted)
    assert (refused.status, refused.error[0]) == (403, "forbidden")
    assert (await post(port, "/v1/destinations", otto, **wanted)).status == 200
    assert (await post(port, "/v1/broker/shutdown", otto)).status == 403
    assert (await ask(port, "GET", "/v1/broker", who=("nora", "nora"))).status == 401
    assert (await post(port, "/v1/destinations", admin, type="queue", name="x")).status == 200


@on_reactor
async def test_bodies_are_for_operators_and_each_look_is_logged(served: Served) -> None:
    with client(served) as sender:
        sender.put("/queue/bodies", "a text that is private")
    listed = await ask(served.port, "GET", "/v1/messages?name=bodies", who=("vera", "vera"))
    assert b"private" not in listed.body
    path = f"/v1/message/body?name=bodies&id={listed.json['messages'][0]['message_id']}"
    look = f"GET /v1/message/body name=bodies id={listed.json['messages'][0]['message_id']}"
    assert (await ask(served.port, "GET", path, who=("vera", "vera"))).status == 403
    was_refused = f"audit: vera from {HOST} was refused by HTTP: {look}: "
    assert f"{was_refused}that needs the role operator, and yours is viewer" in served.log()
    reply = await ask(served.port, "GET", path, who=("otto", "otto"))
    assert (reply.json["text"], reply.json["form"]) == ("a text that is private", "text")
    assert f"audit: otto from {HOST} did by HTTP: {look}: " in served.log()
    assert "private" not in served.log()


@on_reactor
async def test_what_commands_change_is_logged_with_what_it_was_about(served: Served) -> None:
    with client(served) as sender:
        sender.put("/queue/by command", "a", "b")
    path = "/v1/destination/purge"
    given = {"type": "queue", "name": "by command", "password": "a secret"}
    reply = await post(served.port, path, ("vera", "vera"), **given)
    assert reply.status == 403
    about = "POST /v1/destination/purge type=queue name='by command'"
    assert (
        f"audit: vera from {HOST} was refused by HTTP: {about}: that needs the role operator"
        in served.log()
    )
    reply = await post(served.port, path, ("otto", "otto"), **given)
    assert f"audit: otto from {HOST} did by HTTP: {about}: purged 2" in served.log()
    given["selector"] = "color ="
    await post(served.port, path, ("otto", "otto"), **given)
    assert (
        f"audit: otto from {HOST} was refused by HTTP: {about} selector='color =': " in served.log()
    )
    assert (await post(served.port, "/v1/nothing", ("otto", "otto"))).status == 404
    assert f"audit: otto from {HOST} was refused by HTTP: POST /v1/nothing: " in served.log()
    assert "a secret" not in served.log()


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"Host": "broker.example.com:8443"}, "http://broker.example.com:8443"),
        # A proxy speaks TLS: the page that asks has the scheme.
        (
            {"Host": "mq.example.com", "Referer": "https://mq.example.com/console/message?id=1"},
            "https://mq.example.com",
        ),
        ({"Host": "mq.example.com", "Referer": "https://evil.example/"}, "http://mq.example.com"),
        ({"Host": "mq.example.com", "Referer": "file://mq.example.com/"}, "http://mq.example.com"),
        (
            {"Host": "a';\"<b>", "Referer": "none"},
            "&#39;http://a&#39;&#34;&#39;&#34;&#39;;&#34;&lt;b&gt;",
        ),
    ],
)
def test_the_command_has_the_address_of_the_page(
    served: Served, headers: dict[str, str], address: str
) -> None:
    cookie = served.log_in("otto")
    with client(served) as sender:
        sender.put("/queue/addressed", "kept")
    shown = served.ask("/console/messages?name=addressed", cookie=cookie).text
    found = re.search(r"message\?name=addressed&amp;id=([^\"&]+)", shown)
    assert found is not None
    path = f"/console/act/look-body?name=addressed&id={found[1]}"
    reply = served.ask(path, None, cookie=cookie, **headers)
    assert f"curl -u USER -G {address}/v1/message/body" in reply.text


def test_what_nobody_has_thought_of_is_the_administrators() -> None:
    assert needed("POST", "/v1/destination/purge") is Role.OPERATOR
    assert needed("GET", "/v1/message") is Role.VIEWER
    assert needed("GET", "/v1/message/body") is Role.OPERATOR
    assert needed("GET", "/v1/message/original") is Role.OPERATOR
    assert needed("POST", "/v1/broker/shutdown") is Role.ADMINISTRATOR
    assert needed("GET", "/v1/users") is Role.ADMINISTRATOR
    assert needed("PUT", "/v1/anything") is Role.ADMINISTRATOR


def test_each_action_is_logged_with_who_and_the_command(served: Served) -> None:
    cookie = served.log_in("otto")
    with client(served) as sender:
        sender.put("/queue/logged", "a", "b")
    form = {"type": "queue", "name": "logged", "csrf": served.token(cookie)}
    reply = served.ask("/console/act/purge", form, cookie=cookie)
    assert "2 messages were purged." in reply.text
    assert (
        f"audit: otto from {HOST} did in the console: imqcmd purge dst -t q -n logged: 2 messages were purged."
        in served.log()
    )
    form["selector"] = "color ="
    reply = served.ask("/console/act/purge", form, cookie=cookie)
    assert 'class="refused"' in reply.text
    assert f"audit: otto from {HOST} was refused in the console: imqcmd purge dst" in served.log()


def test_an_action_that_is_refused_is_logged_as_well(served: Served) -> None:
    cookie = served.log_in("vera")
    mine = {"csrf": served.token(cookie)}
    queue = {"type": "queue", "name": "not\nvera's"}
    words = "imqcmd purge dst -t q -n not\\nvera's"
    was_refused = f"audit: vera from {HOST} was refused in the console: "
    for form, command, reason in (
        ({**queue, **mine}, words, "that needs the role operator, and yours is viewer"),
        (queue, words, "the form is of another session: load the page again"),
        (mine, "purge", "that needs the role operator, and yours is viewer"),
    ):
        before = served.log().count(was_refused)
        assert served.ask("/console/act/purge", form, cookie=cookie).status == 403
        assert f"{was_refused}{command}: {reason}" in served.log()
        assert served.log().count(was_refused) == before + 1
    look = {"name": "q", "id": "1", **mine}
    assert served.ask("/console/act/look-body", look, cookie=cookie).status == 403
    assert f"{was_refused}curl -u USER -G http://{HOST}:{served.port}/v1/" in served.log()
    # Who only asks what an action would do has done nothing.
    before = served.log().count(was_refused)
    path = "/console/act/purge?type=queue&name=q"
    assert served.ask(path, cookie=cookie).status == 403
    assert served.ask(path, {**mine, "check": "1"}, cookie=cookie).status == 403
    assert served.log().count(was_refused) == before


def test_a_user_who_is_removed_is_logged_out(served: Served) -> None:
    """The session asks what its user may do, each time."""
    roles: list[Role | None] = [Role.OPERATOR]
    found = Sessions(Clock().seconds, 100, 100)
    token, session = found.open(Identity("otto", Role.OPERATOR, lambda: roles[0]), HOST)
    assert found.role(session) is Role.OPERATOR
    roles[0] = Role.VIEWER
    assert found.role(session) is Role.VIEWER
    roles[0] = None
    assert found.find(token) is None


class Following(DummyRequest):
    """A request whose client takes all that it gets, by itself."""

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert streaming


@pytest.mark.parametrize("later", [Role.VIEWER, None])
def test_a_role_that_is_taken_away_ends_the_stream_of_a_page(later: Role | None) -> None:
    """Within a second, however rarely the page looks."""
    clock, roles = Clock(), [Role.OPERATOR, later]
    found = Sessions(clock.seconds, 1_000, 1_000)
    _, session = found.open(Identity("otto", Role.OPERATOR, lambda: roles[0]), HOST)

    async def fragment(session: Session, view: View, asked: AdminRequest) -> str:
        raise AssertionError("the page looked")

    async def look(asked: AdminRequest) -> Mapping[str, object]:
        return {}

    streams = Streams(clock, found, fragment)
    request = Following([b"live"])
    page = View("rare", "Rare", "traces.html", look, every_s=60.0)
    streams.open(request, session, page, AdminRequest("otto", role=Role.OPERATOR))
    clock.pump([1.0] * 3)
    assert (request.finished, b"".join(request.written)) == (0, b"retry: 3000\n\n")
    del roles[0]
    clock.advance(1.0)
    assert request.finished == 1
    assert request.written[-1] == b"event: ended\ndata: {}\n\n"
    assert clock.getDelayedCalls() == []


def test_a_look_that_ends_after_the_role_is_not_sent() -> None:
    clock, roles = Clock(), [Role.OPERATOR, Role.VIEWER]
    found = Sessions(clock.seconds, 1_000, 1_000)
    _, session = found.open(Identity("otto", Role.OPERATOR, lambda: roles[0]), HOST)

    async def look(asked: AdminRequest) -> Mapping[str, object]:
        return {}

    async def fragment(session: Session, view: View, asked: AdminRequest) -> str:
        # The role goes while the page is made.
        del roles[0]
        return "for operators"

    streams = Streams(clock, found, fragment)
    request = Following([b"live"])
    page = View("often", "Often", "traces.html", look, every_s=0.5)
    streams.open(request, session, page, AdminRequest("otto", role=Role.OPERATOR))
    clock.advance(0.5)
    written = b"".join(request.written)
    assert (request.finished, b"event: ended" in written) == (1, True)
    assert b"for operators" not in written


def test_a_session_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    found = Sessions(clock.seconds, life_s=100, idle_s=30)
    token, session = found.open(Identity("vera", Role.VIEWER), HOST)
    clock.advance(29)
    found.use(session)
    clock.advance(29)
    assert found.find(token) is session
    # An open page that follows does not count.
    assert found.role(session) is Role.ADMINISTRATOR
    clock.advance(1)
    assert found.find(token) is None
    token, session = found.open(Identity("vera", Role.VIEWER), HOST)
    for _ in range(9):
        clock.advance(11)
        found.use(session)
        assert found.find(token) is session
    clock.advance(1)
    assert found.find(token) is None
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    tokens = [found.open(Identity("vera", Role.VIEWER), HOST)[0] for _ in range(3)]
    assert [found.find(each) is not None for each in tokens] == [False, True, True]


def test_the_users_of_these_tests_have_the_groups_of_the_defaults() -> None:
    assert set(USERS.values()) == {"viewer", "operator", "user"}
