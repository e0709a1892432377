"""Users, access rules and the end of the process, in the console."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import Client
from tests.crash.waiting import until
from tests.gateway.admin.asking import ask, post
from tests.gateway.admin.console.serving import Pages, Served, client, serving
from tests.gateway.admin.console.test_messages import Operator
from tests.gateway_process import HOST
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

SECRET = "a secret & a <half>"
PAGE = "/console/administration"
#: Seconds in which a page is there.
MOST_S = 1.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(served: Served) -> Operator:
    return Operator(served, "admin")


def added(admin: Operator, name: str, groups: str = "user") -> str:
    return admin.send("act/add-user", name=name, groups=groups, password=SECRET, again=SECRET).text


def shown(admin: Operator, query: str = "") -> str:
    """The page's text, in which a user is a row."""
    page = admin.served.ask(f"{PAGE}{query}", cookie=admin.cookie).text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def rules(served: Served) -> str:
    return (served.gateway.directory / "etc/accesscontrol.properties").read_text()


def test_a_user_is_added_changed_and_deleted(served: Served, admin: Operator) -> None:
    reply = added(admin, "anna")
    assert "User anna is added." in reply
    place = f"-varhome {served.gateway.varhome} --instance {served.gateway.directory.name}"
    assert f"imqusermgr add -u anna -g user {place}" in reply
    assert SECRET not in reply
    with client(served, login="anna", passcode=SECRET) as anna:
        anna.sync()
        assert "anna user active anywhere" in shown(admin)
        assert "User anna is changed." in admin.send("act/deactivate-user", name="anna").text
        # Who was connected is not any more.
        assert anna.frame().command == "ERROR"
    assert "anna user inactive anywhere" in shown(admin)
    late = Client(served.gateway.port)
    late.send("CONNECT", {"accept-version": "1.2", "login": "anna", "passcode": SECRET})
    assert late.frame().command == "ERROR"
    late.close()
    admin.send("act/activate-user", name="anna")
    admin.send("act/user-groups", name="anna", groups="user, viewer")
    assert "anna user, viewer active" in shown(admin)
    form = {"name": "anna", "password": "another one", "again": "another one"}
    assert "User anna is changed." in admin.send("act/user-password", **form).text
    with client(served, login="anna", passcode="another one") as anna:
        anna.sync()
    # A group is a role here.
    assert served.ask("/console/login", {"user": "anna", "password": "another one"}).status == 303
    assert "User anna is changed." in admin.send("act/confine-user", name="anna").text
    assert "anna user, viewer active this machine" in shown(admin)
    assert "User anna is changed." in admin.send("act/release-user", name="anna").text
    assert "anna user, viewer active anywhere" in shown(admin)
    assert "User anna is deleted." in admin.send("act/delete-user", name="anna").text
    assert "anna" not in shown(admin)
    log = served.log()
    for words in (
        "add -u anna -g user",
        "update -u anna -a false",
        "update -u anna -g user,viewer",
        "update -u anna --loopback",
        "update -u anna --any",
    ):
        assert f"audit: admin from {HOST} did in the console: imqusermgr {words} {place}: " in log
    assert f"imqusermgr update -u anna --password {place}: User anna is changed." in log
    assert SECRET not in log
    assert "another one" not in log
    assert "argon2" not in served.ask(PAGE, cookie=admin.cookie).text


def test_what_cannot_be_is_refused_and_changes_nothing(served: Served, admin: Operator) -> None:
    users = (served.gateway.directory / "etc/users").read_text()
    for form, why in (
        ({"name": "otto"}, "user 'otto' exists"),
        ({"name": "x:y"}, "none of them : , or *"),
        ({"name": "x", "groups": "a*b"}, "none of them : , or *"),
        ({"name": "x", "again": "another"}, "the two passwords differ"),
        ({"name": "x", "password": "", "again": ""}, "password is missing"),
    ):
        whole = {"groups": "user", "password": SECRET, "again": SECRET, **form}
        reply = admin.send("act/add-user", **whole).text
        assert why in reply.replace("&#39;", "'"), form
    assert "there is no user" in admin.send("act/delete-user", name="nobody").text
    assert (served.gateway.directory / "etc/users").read_text() == users


def test_an_administrator_does_not_lock_itself_out(served: Served, admin: Operator) -> None:
    added(admin, "berta", "admin")
    served_password = served.ask("/console/login", {"user": "berta", "password": SECRET})
    cookie = served_password.headers["set-cookie"].partition(";")[0]
    csrf = served.token(cookie)
    for action in ("deactivate-user", "delete-user"):
        form = {"csrf": csrf, "name": "berta"}
        refused = served.ask(f"/console/act/{action}", form, cookie=cookie).text
        assert "could not administer any more after it" in refused
    assert "berta admin active" in shown(admin)
    admin.send("act/delete-user", name="berta")


def test_a_rule_is_checked_before_it_is_changed_and_holds_at_once(
    served: Served, admin: Operator
) -> None:
    before = rules(served)
    form = {"rule": "queue.orders.produce.deny.user", "names": "nora"}
    plan = admin.send("act/change-rule", check="1", **form).text
    assert "These rules can be used" in plan
    wrong = {"rule": "queue.orders.prodce.deny.user", "names": "nora"}
    assert "the nearest is produce" in admin.send("act/change-rule", check="1", **wrong).text
    gone = admin.send("act/change-rule", rule="queue.orders.consume.deny.user", names="").text
    assert "there is no rule queue.orders.consume.deny.user to remove" in gone
    assert "is no access rule" in admin.send("act/change-rule", rule="version", names="1").text
    assert rules(served) == before
    with client(served, login="nora", passcode="nora") as nora:
        nora.put("/queue/orders", "before")
        reply = admin.send("act/change-rule", **form).text
        assert "The rules are changed, and hold." in reply
        assert "curl -u USER -X PUT" in reply
        nora.send("SEND", {"destination": "/queue/orders"}, "after")
        assert nora.frame().command == "ERROR"
    assert "queue.orders.produce.deny.user=nora" in rules(served)
    verdict = shown(admin, "?user=nora&operation=produce&type=queue&destination=orders")
    assert "produce: denied by queue.orders.produce.deny.user=nora" in verdict
    assert "create: allowed by queue.create.allow.user=*" in verdict
    other = shown(admin, "?user=new&of=a,b&operation=consume&type=topic&destination=news")
    assert "Not in the users file; groups: a, b." in other
    assert "consume: allowed by topic.*.consume.allow.user=*" in other
    admin.send("act/change-rule", rule=form["rule"], names="")
    assert "queue.orders" not in rules(served)
    with client(served, login="nora", passcode="nora") as nora:
        nora.put("/queue/orders", "again")


@pytest.mark.parametrize("asked", ["user-password?name=admin", "add-user"])
def test_a_password_manager_learns_whose_password_it_is(
    served: Served, admin: Operator, asked: str
) -> None:
    """One keeps a password for the text field before it, by its purpose."""
    page = served.ask(f"/console/act/{asked}", cookie=admin.cookie)
    fields = re.findall(r"<input [^>]*>", page.text)
    [at] = [n for n, field in enumerate(fields) if 'autocomplete="username"' in field]
    assert 'name="name"' in fields[at]
    assert 'type="hidden"' not in fields[at]
    assert f'value="{"admin" if "admin" in asked else ""}"' in fields[at]
    assert sum('autocomplete="new-password"' in field for field in fields[at + 1 :]) == 2


ACTIONS = {
    "add-user": {"name": "x", "groups": "admin", "password": "x", "again": "x"},
    "user-password": {"name": "admin", "password": "x", "again": "x"},
    "user-groups": {"name": "otto", "groups": "admin"},
    "activate-user": {"name": "otto"},
    "deactivate-user": {"name": "admin"},
    "delete-user": {"name": "admin"},
    "change-rule": {"rule": "connection.ADMIN.allow.user", "names": "otto"},
    "shutdown": {},
    "quiesce": {},
}


@pytest.mark.parametrize("user", ["vera", "otto"])
def test_others_see_and_change_nothing_of_that(served: Served, user: str) -> None:
    other = Operator(served, user)
    users, before = (served.gateway.directory / "etc/users").read_text(), rules(served)
    assert served.ask(PAGE, cookie=other.cookie).status == 403
    assert served.ask("/console/live/administration", cookie=other.cookie).status == 403
    assert "Administration" not in served.ask("/console/", cookie=other.cookie).text
    for action, form in ACTIONS.items():
        assert served.ask(f"/console/act/{action}", cookie=other.cookie).status in (400, 403)
        reply = other.send(f"act/{action}", **form)
        assert (reply.status, "needs the role administrator" in reply.text) == (403, True), action
    assert (served.gateway.directory / "etc/users").read_text() == users
    assert rules(served) == before
    assert (
        f"{user} from {HOST} was refused in the console: imqusermgr delete -u admin" in served.log()
    )


def test_a_form_of_elsewhere_changes_no_user(served: Served, admin: Operator) -> None:
    users = (served.gateway.directory / "etc/users").read_text()
    for action, form in ACTIONS.items():
        wrong = {**form, "csrf": "guessed"}
        reply = served.ask(f"/console/act/{action}", wrong, cookie=admin.cookie)
        assert reply.status == 403, action
        right = {**form, "csrf": admin.csrf}
        evil = served.ask(
            f"/console/act/{action}", right, cookie=admin.cookie, Origin="http://evil.example"
        )
        assert evil.status == 403, action
    assert (served.gateway.directory / "etc/users").read_text() == users


def test_many_users_and_rules_are_found_and_shown_by_pages(served: Served, admin: Operator) -> None:
    file = served.gateway.directory / "etc/users"
    access = served.gateway.directory / "etc/accesscontrol.properties"
    users, before = file.read_text(), access.read_text()
    hash = users.splitlines()[1].rpartition(":")[2]
    file.write_text(
        users + "".join(f"sensor{n:04}:field:active:any:{hash}\n" for n in range(3_000))
    )
    access.write_text(
        before + "".join(f"queue.room{n:04}.consume.allow.user=sensor{n:04}\n" for n in range(300))
    )
    served.gateway.signal(signal.SIGHUP)
    try:
        until(lambda: "sensor2999 field" in shown(admin, "?text=sensor2999"), "they were not read")
        began = time.perf_counter()
        page = served.ask(PAGE, cookie=admin.cookie).text
        assert time.perf_counter() - began < MOST_S
        assert len(page) < 300_000
        assert re.search(r"1–50 of 3 0\d\d", shown(admin))
        assert "more: find them by" in shown(admin)
        assert "sensor2999 field active anywhere" not in shown(admin)
        assert "sensor2999 field active anywhere" in shown(admin, "?text=SENSOR2999")
        one = shown(admin, "?text=room0123")
        assert "queue.room0123.consume.allow.user sensor0123" in one
        assert "room0124" not in one
        assert "2 951–3 000 of 3 000 (all: 3" in shown(admin, "?text=field&first=2950")
    finally:
        file.write_text(users)
        access.write_text(before)
        served.gateway.signal(signal.SIGHUP)
        until(lambda: "sensor0000" not in shown(admin), "they were not read")


@on_reactor
async def test_programs_add_and_change_users_too(served: Served) -> None:
    who = ("admin", served.passcode)
    given: dict[str, Any] = {
        "name": "prog",
        "password": SECRET,
        "groups": ["user"],
        "loopback": True,
    }
    assert (await post(served.port, "/v1/users", who, **given)).status == 200
    again = await post(served.port, "/v1/users", who, **given)
    assert (again.status, "exists" in again.error[1]) == (409, True)
    changed = await post(served.port, "/v1/users", who, "PUT", name="prog", loopback=False)
    assert changed.json == {"name": "prog", "notes": []}
    nothing = await post(served.port, "/v1/users", who, "PUT", name="prog")
    assert "nothing is to change" in nothing.error[1]
    path = "/v1/access/test?user=prog&operation=browse&type=queue&name=a"
    judged = (await ask(served.port, "GET", path, who=who)).json
    assert judged["groups"] == ["user"]
    assert judged["reasons"]["browse"]["rule"] == "queue.*.browse.allow.user"
    for wrong in ("operation=bake&type=queue&name=a", "operation=browse&type=q&name=a"):
        reply = await ask(served.port, "GET", f"/v1/access/test?user=prog&{wrong}", who=who)
        assert reply.error[0] == "bad_request"
    for other in (("otto", "otto"), ("vera", "vera")):
        assert (await post(served.port, "/v1/users", other, **given)).status == 403
        assert (await ask(served.port, "GET", path, who=other)).status == 403
    assert SECRET not in served.log()


def test_a_user_is_added_in_the_page_which_everyone_can_use(pages: Pages, served: Served) -> None:
    path = f"{PAGE}?user=guest&operation=produce&type=queue&destination=orders"
    for dark in (False, True):
        pages.go(path, dark=dark)
        assert pages.faults() == []
    pages.go(path, width=360)
    assert pages.browser.run("document.documentElement.scrollWidth") <= 360
    pages.go(path)
    pages.follow("Add a user")
    pages.browser.until("document.querySelector('dialog').open")
    assert pages.faults() == []
    pages.fill(name="carla", groups="user,viewer", password=SECRET, again=SECRET)
    pages.confirm()
    pages.until_text("User carla is added.", "dialog")
    pages.close_dialog()
    # The page follows once the dialog is closed, and what was asked of the rules stays.
    pages.until_text("carla")
    assert "queue.*.produce.allow.user=*" in pages.text(".judged")
    with client(served, login="carla", passcode=SECRET) as carla:
        carla.sync()
    assert pages.browser.console == []


def test_the_process_ends_when_that_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        admin = Operator(served, "admin")
        asked = served.ask("/console/act/shutdown", cookie=admin.cookie).text
        assert "nothing is accepted or delivered until it is started again" in asked
        assert "imqcmd shutdown bkr" in asked
        refused = admin.send("act/quiesce").text
        assert "no process stands by" in refused
        assert "It ends now." in admin.send("act/shutdown").text
        assert served.gateway.wait() == 0
        assert "did in the console: imqcmd shutdown bkr: It ends now." in served.log()
