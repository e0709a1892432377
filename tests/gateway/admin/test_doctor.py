"""``imqcmd doctor``: what operators forget, found in a real instance."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from certs.keystore import KeyStore
from gateway.admin.cli import imqcmd
from gateway.admin.doctor import instance, machine
from gateway.admin.doctor.finding import Finding, Severity
from gateway.admin.service.roles import Role, needed
from gateway.broker.security.passcodes import hash_passcode
from gateway.broker.security.users import User, write_users
from gateway.instance.layout import Layout
from gateway.instance.memory import host_memory
from gateway.instance.memory.budget import State, Usage
from tests.conformance.client import Client
from tests.gateway.admin.live import Live
from tests.gateway_process import HOST

pytestmark = pytest.mark.process
FILES: dict[str, str] = {}
SETTINGS = {"imq.bridge.stomp.tls.enabled": "true"}


def prepare(directory: Path) -> None:
    """Forget a few things."""
    layout = Layout(directory.parents[1], directory.name)
    layout.tls.mkdir(parents=True, mode=0o700)
    store = KeyStore(layout.tls)
    now = datetime.now(UTC)
    store.create_authority("an authority", now)
    store.issue_server("localhost", now, ["localhost"], [], days=20)
    (layout.tls / "server.key").chmod(0o640)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path, "i")
    layout.create()
    return layout


def bad(found: Iterable[Finding]) -> list[Finding]:
    return [each for each in found if each.severity is not Severity.OK]


def doctor(live: Live, *options: str, code: int) -> str:
    live.capsys.readouterr()
    ended = imqcmd.run(["doctor", *live.options, *options])
    out, err = live.capsys.readouterr()
    assert ended == code, out + err
    return out


def test_a_gateway_whose_operator_forgot_things(live: Live) -> None:
    client = Client(live.gateway.port)
    client.connect()
    small = ["-o", "maxNumMsgs=1", "-o", "limitBehavior=REMOVE_OLDEST"]
    assert imqcmd.run(["create", "dst", "-t", "q", "-n", "small", *small, *live.options]) == 0
    for text in ("one", "two"):
        client.put("/queue/small", text)
    client.ask("DISCONNECT")
    found = json.loads(doctor(live, "--json", code=2))["findings"]
    by_check: dict[str, Any] = {each["check"]: each for each in reversed(found)}
    # A check that has found something does not say as well that all is well.
    wrong = {each["check"] for each in found if each["severity"] != "ok"}
    assert not wrong & {each["check"] for each in found if each["severity"] == "ok"}
    assert by_check["permissions"]["severity"] == "error"
    assert by_check["permissions"]["remedy"].startswith("chmod 600 ")
    assert by_check["certificates"]["severity"] == "warning"
    assert "imqkeytool renew server --varhome" in by_check["certificates"]["remedy"]
    assert by_check["dead messages"]["figure"].startswith("1 message, ")
    for check in ("service", "ports", "memory", "clock", "journal", "sync"):
        assert check in by_check
    # The worst first.
    order = [["error", "warning", "ok"].index(each["severity"]) for each in found]
    assert order == sorted(order)
    # The start warned of it, too, which says nothing of now.
    assert "server.pem ends on" in live.gateway.said
    (server,) = (each for each in found if "server.pem" in each["text"])
    assert server["check"] == "certificates"

    (live.gateway.directory / "etc/tls/server.key").chmod(0o600)
    shown = doctor(live, code=1)
    assert "WARNING  dead messages: mq.sys.dmq has messages and no consumer" in shown
    assert "    -> imqcmd list msg -t q -n mq.sys.dmq" in shown
    assert "ok  permissions: files with secrets are their owner's alone" in shown
    assert "0 errors, " in shown

    # What the advice ends with is a command that sends them again.
    replay = by_check["dead messages"]["remedy"].rpartition(", imqcmd ")[2].split()
    assert imqcmd.run(["purge", "dst", "-t", "q", "-n", "small", "-f", *live.options]) == 0
    assert imqcmd.run([*replay, "-f", *live.options]) == 0
    assert "ok  dead messages: mq.sys.dmq is empty" in doctor(live, code=1)

    # The next start would be refused, of which the running gateway says nothing by itself.
    etc = live.gateway.directory / "etc"
    for file, line in (
        ("accesscontrol.properties", "queue.a.fly.allow.user=*"),
        ("gateway.properties", "imq.bridge.stomp.listener.web.port=99999"),
        ("gateway.properties", "imq.no.such=1"),
    ):
        before = (etc / file).read_text()
        (etc / file).write_text(f"{before}{line}\n")
        shown = doctor(live, code=2)
        told = next(each for each in shown.splitlines() if each.startswith("ERROR"))
        assert "the next start and SIGHUP refuse" in told
        assert f"{file}:" in told
        (etc / file).write_text(before)

    assert imqcmd.run(["pause", "svc", "-n", "stomp", "-f", *live.options]) == 0
    assert "service stomp is PAUSED" in doctor(live, code=1)
    assert imqcmd.run(["resume", "svc", "-n", "stomp", "-f", *live.options]) == 0


def test_no_broker_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert imqcmd.run(["doctor", "-b", f"{HOST}:1", "--json"]) == 2
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["severity"] == "error"
    assert f"no broker answers at {HOST}:1" in found["text"]


def test_only_administrators_are_told() -> None:
    assert needed("GET", "/v1/doctor") is Role.ADMINISTRATOR


def test_files_that_others_may_change(layout: Layout) -> None:
    write_users(layout.users, [])
    for path in (layout.settings, layout.access_control):
        path.write_text("")
        path.chmod(0o644)
    assert not bad(instance.permissions(layout, None))
    layout.users.chmod(0o644)
    (read,) = bad(instance.permissions(layout, None))
    assert read.severity is Severity.WARNING
    for path in (layout.users, layout.settings, layout.access_control):
        path.chmod(0o666)
    found = bad(instance.permissions(layout, None))
    assert [each.severity for each in found] == [Severity.ERROR] * 3
    assert found[2].remedy == f"chmod go-w {layout.access_control}"


def test_passcodes_that_everybody_knows(layout: Layout) -> None:
    groups = frozenset({"users"})
    guest = hash_passcode("guest")
    write_users(layout.users, [User("guest", groups, guest, loopback=True)])
    assert not bad(instance.passwords(layout, ("admin", "a long one"), ["stomp"]))
    write_users(
        layout.users,
        [
            User("guest", groups, guest),
            User("admin", groups, hash_passcode("admin"), active=False),
        ],
    )
    (found,) = bad(instance.passwords(layout, ("admin", "a long one"), ["stomp"]))
    assert found.severity is Severity.ERROR
    assert "user 'guest' has the passcode 'guest', and stomp can be reached" in found.text
    guest_found, admin_found = bad(instance.passwords(layout, ("admin", "admin"), []))
    assert {guest_found.severity, admin_found.severity} == {Severity.WARNING}


def test_certificates_that_end(layout: Layout) -> None:
    assert not bad(instance.certificates(layout))
    store = KeyStore(layout.tls)
    now = datetime.now(UTC)
    store.create_authority("an authority", now)
    store.issue_server("localhost", now, ["localhost"], [], days=40)
    assert not bad(instance.certificates(layout, now))
    (soon,) = bad(instance.certificates(layout, now + timedelta(days=30)))
    assert (soon.severity, soon.figure) == (Severity.WARNING, "9 days")
    (over,) = bad(instance.certificates(layout, now + timedelta(days=41)))
    assert over.severity is Severity.ERROR
    (layout.tls / "server.pem").write_text("none")
    (broken,) = bad(instance.certificates(layout, now))
    assert "expected certificates in PEM" in broken.text


def test_settings_that_have_no_effect(layout: Layout) -> None:
    many = [f"setting {number}" for number in range(25)]
    found = bad(instance.settings(many, layout.settings))
    assert len(found) == 21
    assert found[-1].figure == "5"


def test_the_machine() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert machine.descriptors(soft).severity is Severity.WARNING
    assert f"LimitNOFILE={soft + 200}" in machine.descriptors(soft).remedy
    assert machine.descriptors(-1).severity is Severity.WARNING
    assert machine.clock(0.4).severity is Severity.OK
    assert machine.clock(-3600).severity is Severity.WARNING
    most = host_memory.memory()
    used = dict.fromkeys(State, 0)
    assert machine.memory(Usage(used, {}, most, 0, 0)).severity is Severity.WARNING
    assert machine.memory(Usage(used, {}, most // 4, 0, 0)).severity is Severity.OK
    used[State.WAITING] = most // 4
    assert machine.memory(Usage(used, {}, most // 4, 0, 0)).severity is Severity.WARNING


def test_the_disk(tmp_path: Path) -> None:
    assert machine.sync_time(tmp_path).figure.endswith(" of 5")
    assert machine.sync_time(tmp_path / "gone").severity is Severity.ERROR
    assert [*tmp_path.iterdir()] == []
    both = [*machine.disks({"store": tmp_path, "log": tmp_path})]
    assert len(both) == 1
    (gone,) = machine.disks({"store": tmp_path / "gone"})
    assert gone.severity is Severity.ERROR
