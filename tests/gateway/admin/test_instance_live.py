"""Instances as files, and bridges that come and go, in real processes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.admin.cli import imqbridgemgr, imqcmd
from tests.conformance.client import Client
from tests.gateway_process import HOST, GatewayProcess

pytestmark = pytest.mark.process

SHOP = """<jmsbridge name="{name}">
<link name="ab" transacted="false">
<source connection-factory-ref="here" destination-ref="a"/>
<target connection-factory-ref="here" destination-ref="b"/>
</link>
<connection-factory ref-name="here"/>
<destination ref-name="a" name="A" type="queue"/>
<destination ref-name="b" name="{target}" type="queue"/>
</jmsbridge>
"""


@dataclass
class Operator:
    """Who gives commands to a gateway."""

    gateway: GatewayProcess
    user: str = "admin"
    passfile: Path | None = None

    def __call__(
        self, program: str, *arguments: str, code: int = 0, input: str | io.StringIO = ""
    ) -> str:
        """What it prints, on both streams; it must end with that code."""
        options = [
            "-b",
            f"{HOST}:{self.gateway.port_mapper_port}",
            "-u",
            self.user,
            "-passfile",
            str(self.passfile or self.gateway.directory / "etc" / "passfile"),
        ]
        out, stdin = io.StringIO(), sys.stdin
        run = {"imqcmd": imqcmd.run, "imqbridgemgr": imqbridgemgr.run}[program]
        try:
            sys.stdin = io.StringIO(input) if isinstance(input, str) else input
            with redirect_stdout(out), redirect_stderr(out):
                ended = run([*arguments, *options])
        finally:
            sys.stdin = stdin
        assert ended == code, out.getvalue()
        return out.getvalue()

    def imqcmd(self, *arguments: str, code: int = 0, input: str | io.StringIO = "") -> str:
        return self("imqcmd", *arguments, code=code, input=input)

    def export(self) -> str:
        return self.imqcmd("export", "-")


@pytest.fixture(scope="module")
def varhomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("instances")


@pytest.fixture(scope="module")
def one(varhomes: Path) -> Iterator[Operator]:
    with GatewayProcess(varhomes / "one") as gateway:
        gateway.wait_for_output("is ready")
        yield Operator(gateway)


@pytest.fixture(scope="module")
def other(varhomes: Path) -> Iterator[Operator]:
    with GatewayProcess(varhomes / "other") as gateway:
        gateway.wait_for_output("is ready")
        yield Operator(gateway)


def moved(operator: Operator, target: str, body: str) -> str:
    """What comes out of the target when that is sent to the bridge's source."""
    client = Client(operator.gateway.port)
    client.connect()
    client.subscribe(f"/queue/{target}")
    client.send("SEND", {"destination": "/queue/A"}, body)
    text = client.message().text
    client.ask("DISCONNECT")
    return text


def wanted(standing: str, **sections: str) -> str:
    """An export with more below its sections."""
    for section, more in sections.items():
        standing = standing.replace(f"\n[{section}]\n", f"\n{more}\n")
    return standing


def test_an_instance_is_as_its_file_declares(
    one: Operator, other: Operator, tmp_path: Path
) -> None:
    empty = one.export()
    file = tmp_path / "orders.toml"
    document = SHOP.format(name="shop", target="B")
    file.write_text(
        wanted(
            empty,
            queue='[queue.orders]\nmaxNumMsgs = 10\n[queue."mq.sys.dmq"]\nmaxNumMsgs = 5000',
            topic="[topic.\"it's news.eu\"]\nmaxBytesPerMsg = '1k'",
            bridge=f"[bridge.shop]\ndocument = '''{document}'''\nproperties = {{level = 'FINE'}}",
            access='[access]\n"queue.orders.consume.allow.user" = ["alice"]',
        )
        + '[user.alice]\ngroups = ["traders"]\n'
        + [line for line in empty.splitlines() if line.startswith("hash")][1]
        + "\n"
    )
    said = one.imqcmd("plan", str(file), code=2)
    assert "  + queue orders\n      + maxNumMsgs = 10\n" in said
    assert "Plan: 4 to create, 2 to change, 0 to destroy." in said
    # Whoever answers no has changed nothing.
    assert "Nothing was changed." in one.imqcmd("apply", str(file), input="n\n")
    assert one.export() == empty
    said = one.imqcmd("apply", str(file), input="yes\n")
    assert "bridge shop: created.\n" in said
    assert "Successfully made 6 changes." in said
    assert one.imqcmd("plan", str(file)) == one.imqcmd("apply", str(file))
    assert moved(one, "B", "by the bridge") == "by the bridge"
    # Alice's is guest's hash.
    alice = Client(one.gateway.port)
    alice.connect(login="alice", passcode="guest")
    alice.subscribe("/queue/orders")

    kept = tmp_path / "kept.toml"
    assert "exported" in one.imqcmd("export", str(kept))
    assert kept.stat().st_mode & 0o777 == 0o600
    said = other.imqcmd("apply", str(kept), "-f")
    assert "links connect as 'admin' with imq.bridge.admin.password" in said
    assert other.export() == kept.read_text() == one.export()
    # It is so after a restart, too.
    other.gateway.restart()
    assert other.export() == kept.read_text()

    # What the file has no more goes only where that is asked for.
    file.write_text(empty)
    assert "No changes." in one.imqcmd("plan", str(file))
    said = one.imqcmd("plan", str(file), "-prune", code=2)
    assert "Plan: 0 to create, 2 to change, 4 to destroy." in said
    one.imqcmd("apply", str(file), "-prune", "-f")
    assert one.export() == empty
    assert alice.frame().headers["message"]


def test_a_last_value_queue_goes_from_instance_to_instance(
    one: Operator, other: Operator, tmp_path: Path
) -> None:
    def left(operator: Operator) -> list[str]:
        """What waits of four messages with two keys."""
        client = Client(operator.gateway.port)
        client.connect()
        for number, key in enumerate("abab"):
            client.ask("SEND", {"destination": "/queue/quotes", "symbol": key}, str(number))
        return client.left("/queue/quotes")

    one.imqcmd("create", "dst", "-t", "q", "-n", "quotes", "-o", "lastValueKey=symbol")
    file = tmp_path / "quotes.toml"
    one.imqcmd("export", str(file))
    queue = '[queue.quotes]\nlastValueKey = "symbol"\n'
    assert queue in file.read_text()
    said = other.imqcmd("plan", str(file), code=2)
    assert "  + queue quotes\n      + lastValueKey = symbol\n" in said
    other.imqcmd("apply", str(file), "-f")
    # What the other has besides stays.
    assert queue in other.export()
    assert left(other) == ["2", "3"]
    # Another key, and none.
    for line, change in (
        ('lastValueKey = "name"\n', "~ lastValueKey = symbol -> name"),
        ("", "- lastValueKey = name"),
    ):
        text = other.export()
        key = next(each for each in text.splitlines(True) if each.startswith("lastValueKey"))
        file.write_text(text.replace(key, line))
        assert change in other.imqcmd("plan", str(file), code=2)
        other.imqcmd("apply", str(file), "-f")
        assert other.export() == file.read_text()
    assert left(other) == ["0", "1", "2", "3"]
    for operator in (one, other):
        operator.imqcmd("destroy", "dst", "-t", "q", "-n", "quotes", "-f")


def test_a_queue_that_use_has_made_becomes_what_the_file_says(tmp_path: Path) -> None:
    """Neither limits of the settings nor a client's address are left to it."""
    settings = {
        "imq.bridge.stomp.profile": "artemis",
        "imq.autocreate.queue.maxNumActiveConsumers": "3",
    }
    with GatewayProcess(tmp_path / "used", settings=settings) as gateway:
        operator, client = Operator(gateway), Client(gateway.port)
        client.connect()
        sent = {"destination": "orders::orders.east", "destination-type": "ANYCAST"}
        client.ask("SEND", sent, "a chair")
        client.close()
        text = operator.export() + '\n[queue."orders.east"]\nmaxNumMsgs = 10\n'
        file = tmp_path / "orders.toml"
        file.write_text(text)
        assert "- address = orders" in operator.imqcmd("plan", str(file), code=2)
        operator.imqcmd("apply", str(file), "-f")
        assert "No changes" in operator.imqcmd("plan", str(file))


def test_an_apply_stops_at_the_first_refusal_and_says_what_was_done(
    one: Operator, tmp_path: Path
) -> None:
    before = one.export()
    file = tmp_path / "bad.toml"
    file.write_text("format = 1\n[queue.first]\n[queue.other]\n[queue.second]\n[topic.third]\n")

    class Answer(io.StringIO):
        """An administrator who answers when another has made a queue."""

        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            one.imqcmd("create", "dst", "-t", "q", "-n", "other")
            return "yes\n"

    said = one.imqcmd("apply", str(file), code=1, input=Answer())
    assert "queue first: created.\n" in said
    assert "queue:other exists already" in said
    assert "Done before that: queue first: created. Not done: 3 changes, this one included." in said
    assert one.export() == before.replace("[queue]", "[queue.first]\n\n[queue.other]")
    file.write_text("format = 1\n[queue]\n")
    one.imqcmd("apply", str(file), "-f", "-prune")
    assert one.export() == before


def declared(name: str) -> str:
    """A bridge of a file."""
    return f"[bridge.{name}]\ndocument = '''\n{SHOP.format(name=name, target='B')}'''"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "[user.eve]\ngroups = []",
            ":3:7: user.eve: user 'eve' is new and has no hash of a passcode",
        ),
        (
            "[user.eve]\nhash = 'plain'",
            ":4:1: user.eve.hash: user 'eve': expected an Argon2id hash of the passcode",
        ),
        (
            "[user.'a:b']\nhash = 'x'",
            ":3:7: user.\"a:b\": user name 'a:b': expected printable characters",
        ),
        (
            "[user.eve]\ngroups = ['a,b']",
            ":4:1: user.eve.groups: group name 'a,b': expected printable characters",
        ),
        (
            "[access]\n'queue.a.fly.allow.user' = ['bob']",
            ":4:1: access.\"queue.a.fly.allow.user\": operation 'fly': expected produce",
        ),
        (
            "[access]\n'queue.a.browse.allow.user' = ['bo*']",
            ":4:1: access.\"queue.a.browse.allow.user\": 'bo*': * stands for everyone",
        ),
        (
            "[access]\n'queue.a.browse.allow.user' = ['alice,bob']",
            ":4:1: access.\"queue.a.browse.allow.user\": 'alice,bob' is not one name: expected each name by itself",
        ),
        ("[access]\nversion = ['1']", ":4:1: access.version: version is no access rule"),
        ("[queue.'z.*']", ':3:8: queue."z.*": a destination\'s name has no wildcards'),
        ("[topic.'>']", ':3:8: topic.">": a destination\'s name has no wildcards'),
        ("[queue.'mq.own']", ":3:8: queue.\"mq.own\": names that begin with 'mq.' are"),
        (declared("stomp"), ":3:9: bridge.stomp: the bridge of type STOMP is in the settings"),
        (declared("tm"), ":3:9: bridge.tm: 'tm' can be no bridge's name"),
        ("[bridge.a]", ":3:9: bridge.a: bridge a needs either a document or imq.bridge.a.xmlurl"),
        (
            f"{declared('a')}\nproperties = {{levle = 'FINE'}}",
            ":15:15: bridge.a.properties.levle: there is no setting imq.bridge.a.levle",
        ),
        ("[bridge.a]\ndocument = '<a/>'", ":4: a: expected a document"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    one: Operator, tmp_path: Path, text: str, refusal: str
) -> None:
    before = one.export()
    file = tmp_path / "bad.toml"
    file.write_text(f"format = 1\n[queue.aok]\n{text}\n")
    for words in (("plan", str(file)), ("apply", str(file), "-f")):
        assert f"{file}{refusal}" in one.imqcmd(*words, code=1)
        assert one.export() == before


def test_all_that_the_broker_would_refuse_is_told(one: Operator, tmp_path: Path) -> None:
    before = one.export()
    file = tmp_path / "bad.toml"
    file.write_text('format = 1\n[queue."z.*"]\n[user."a:b"]\n[topic.good]\n[queue."mq.a"]\n')
    said = one.imqcmd("plan", str(file), code=1)
    told = [line.split(f"{file}:")[1][0] for line in said.splitlines() if str(file) in line]
    assert told == ["2", "3", "3", "5"]
    assert said.endswith("Nothing was changed.\n")
    assert one.export() == before


def test_nothing_is_done_where_a_bridge_s_document_is_wrong(one: Operator, tmp_path: Path) -> None:
    before = one.export()
    file = tmp_path / "bad.toml"
    wrong = declared("shop").replace('destination-ref="b"', 'destination-ref="c"')
    file.write_text(f"format = 1\n[queue.first]\n{wrong}\n")
    for words in (("plan", str(file)), ("apply", str(file), "-f")):
        said = one.imqcmd(*words, code=1)
        assert f'{file}:8: target of link "ab", attribute destination-ref="c": expected' in said
    assert one.export() == before


def test_administrators_do_not_lock_themselves_out(one: Operator, tmp_path: Path) -> None:
    hash = [line for line in one.export().splitlines() if line.startswith("hash")][1]
    file = tmp_path / "users.toml"
    file.write_text(f'format = 1\n[user.carol]\ngroups = ["admin"]\n{hash}\n')
    one.imqcmd("apply", str(file), "-f")
    passfile = tmp_path / "passfile"
    passfile.write_text("imq.imqcmd.password=guest\n")
    passfile.chmod(0o600)
    carol = Operator(one.gateway, "carol", passfile)
    rules = tmp_path / "rules.toml"
    for text in (
        f'[user.carol]\ngroups = ["users"]\n{hash}',
        f'[user.carol]\ngroups = ["admin"]\nactive = false\n{hash}',
        '[access]\n"connection.ADMIN.deny.user" = ["carol"]',
    ):
        rules.write_text(f"format = 1\n[queue.aok]\n{text}\n")
        before = one.export()
        for words in (("plan", str(rules)), ("apply", str(rules), "-f")):
            said = carol.imqcmd(*words, code=1)
            assert "user 'carol', who asks for this, could not administer any more" in said
            assert one.export() == before
    # Another may, and she can do no more.
    one.imqcmd("apply", str(rules), "-f")
    assert "wrong user or password" in carol.imqcmd("list", "dst", code=1)


def test_bridges_come_and_go_without_a_restart(other: Operator, tmp_path: Path) -> None:
    document = tmp_path / "mail.xml"
    document.write_text(SHOP.format(name="mail", target="C"))
    settings = other.gateway.directory / "etc" / "gateway.properties"
    settings.write_text(f"# A comment of its operator.\n{settings.read_text()}")
    said = other(
        "imqbridgemgr", "create", "bridge", "-bn", "mail", "-xml", str(document), "-o", "level=FINE"
    )
    assert "Successfully created the bridge; it is STARTED." in said
    said = other("imqbridgemgr", "create", "bridge", "-bn", "mail", "-o", "xmlurl=m.xml", code=1)
    assert "bridge mail exists already" in said
    other.gateway.restart()
    other.gateway.wait_for_output("bridge mail STARTED")
    assert settings.read_text().startswith("# A comment of its operator.\n")
    said = other("imqbridgemgr", "destroy", "bridge", "-bn", "mail", input="n\n")
    assert "The bridge was not destroyed." in said
    other("imqbridgemgr", "destroy", "bridge", "-bn", "mail", "-f")
    assert "mail" not in settings.read_text()
    assert "mail" not in other("imqbridgemgr", "list", "bridge")
    assert "bridge mail is destroyed by administrator admin" in other.gateway.log
    other.gateway.restart()
    other.gateway.wait_for_output("is ready")
    assert "mail" not in other.gateway.said
    # Its settings may be its operator's own, too.
    elsewhere = other.gateway.directory / "etc" / "mail.xml"
    elsewhere.write_text(document.read_text())
    other(
        "imqbridgemgr",
        "create",
        "bridge",
        "-bn",
        "mail",
        "-o",
        "xmlurl=mail.xml",
        "-o",
        "autostart=false",
    )
    assert "STOPPED" in other("imqbridgemgr", "list", "bridge", "-bn", "mail")
    other("imqbridgemgr", "destroy", "bridge", "-bn", "mail", "-f")
    assert elsewhere.exists()
