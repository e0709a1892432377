"""``imqbridgemgr`` against a live gateway with bridges: every command and option, and its output
character by character.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway import __version__
from gateway.admin.cli import imqbridgemgr, imqcmd
from tests.gateway.admin.live import Live, send, take, wait
from tests.gateway_process import HOST, ROOT, Certificates, GatewayProcess, heed_interrupts

pytestmark = pytest.mark.process

#: Fails with every message, so that the link buries it.
FAILING = """\
from gateway.messaging.transformer import MessageTransformer


class Failing(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        raise ValueError("I want none of these")
"""

PUMP = """\
<jmsbridge name="pump">
  <link name="one" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <link name="a/b" transacted="false">
    <source connection-factory-ref="here" destination-ref="in2"/>
    <target connection-factory-ref="here" destination-ref="out" stay-connected="false"/>
  </link>
  <link name="off" enabled="false" transacted="false">
    <source connection-factory-ref="here" destination-ref="in3"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <link name="failing" transacted="false">
    <source connection-factory-ref="here" destination-ref="bad"/>
    <target connection-factory-ref="here" destination-ref="out" message-transformer-class="failing.Failing"
        consume-no-transfer-on-transform-error="true"/>
  </link>
  <connection-factory ref-name="here"/>
  <destination ref-name="in" name="in" type="queue"/>
  <destination ref-name="in2" name="in2" type="queue"/>
  <destination ref-name="in3" name="in3" type="queue"/>
  <destination ref-name="bad" name="bad" type="queue"/>
  <destination ref-name="out" name="out" type="queue"/>
</jmsbridge>
"""
FAR = """\
<jmsbridge name="far">
  <link name="away" transacted="false">
    <source connection-factory-ref="there" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <dmq name="far-dead" connection-factory-ref="here" destination-ref="dead" stay-connected="false"/>
  <dmq name="topical" connection-factory-ref="here" destination-ref="news" stay-connected="false"/>
  <dmq name="foreign" connection-factory-ref="there" destination-ref="dead" stay-connected="false"/>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="there" lookup-name="stomp://127.0.0.1:{port}"/>
  <destination ref-name="dead" name="far.dead" type="queue"/>
  <destination ref-name="news" name="far.news" type="topic"/>
  <destination ref-name="in" name="faraway" type="queue"/>
  <destination ref-name="out" name="out" type="queue"/>
</jmsbridge>
"""


TRANSFORMERS = {"failing": FAILING}
FILES = {
    "pump": PUMP,
    "far": FAR,
    "broken": '<jmsbridge name="broken">\n  <link name="x" colour="red"/>\n</jmsbridge>\n',
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the command read this from its standard input, which is no terminal."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


BRIDGES = """\
------------------------------------------
Bridge Name    Bridge Type    Bridge State
------------------------------------------
stomp          STOMP          STARTED
pump           JMS            STARTED
far            JMS            STARTED
broken         JMS            STOPPED

"""


def test_list_bridge(live: Live) -> None:
    shown = live("list", "bridge")
    problem = f"broken: {live.folder}/broken.xml:2: "
    head, rest = shown.split("broken: ", 1)
    assert (
        head == "Listing the bridges on the broker specified by:\n\n" + live.broker_table + BRIDGES
    )
    assert all(line.startswith(problem) for line in f"broken: {rest}".split("\n\n")[0].splitlines())
    assert rest.endswith("\n\nSuccessfully listed bridges.\n")


def test_list_bridge_of_a_type(live: Live) -> None:
    assert live("list", "bridge", "-t", "stomp") == (
        "Listing the bridges of the type on the broker specified by:\n"
        "\n"
        "-----------\n"
        "Bridge Type\n"
        "-----------\n"
        "stomp\n"
        "\n" + live.broker_table + "------------------------------------------\n"
        "Bridge Name    Bridge Type    Bridge State\n"
        "------------------------------------------\n"
        "stomp          STOMP          STARTED\n"
        "\n"
        "Successfully listed bridges.\n"
    )


WHICH = """\
-----------
Bridge Name
-----------
pump

On the broker specified by:

"""
PUMP_TABLES = """\
------------------------------------------------
Bridge Name   Bridge Type   Bridge State   Links
------------------------------------------------
pump          JMS           STARTED        3

----------------------------------------------------------------------------
Link Name   Link State      Source             Target             Transacted
----------------------------------------------------------------------------
one         STARTED         here:D:queue:in    here:D:queue:out   false
a/b         STARTED         here:D:queue:in2   here:P:queue:out   false
off         UNINITIALIZED   here::queue:in3    here::queue:out    false
failing     STARTED         here:D:queue:bad   here:D:queue:out   false

"""
BALANCED_LINKS = """\
------------------------------------------------
Bridge Name   Bridge Type   Bridge State   Links
------------------------------------------------
pump          JMS           STARTED        3

--------------------------------------------------------------------------------------------------------------
Link Name   Link State      Source             Target             Transacted   Oldest    Difference   Possibly
                                                                                                      Twice
--------------------------------------------------------------------------------------------------------------
one         STARTED         here:D:queue:in    here:D:queue:out   false        -         0            0
a/b         STARTED         here:D:queue:in2   here:P:queue:out   false        -         0            0
off         UNINITIALIZED   here::queue:in3    here::queue:out    false        unknown   0            0
failing     STARTED         here:D:queue:bad   here:D:queue:out   false        -         0            0

"""


def move_one(live: Live) -> None:
    """Have the link whose target is of a pool move a message: until then nobody knows of what kind
    its connections are.
    """
    before = live.json("query", "link", "-bn", "pump", "-ln", "a/b")["counters"]["acknowledged"]
    send(live, "in2", "x")
    wait(
        lambda: (
            live.json("query", "link", "-bn", "pump", "-ln", "a/b")["counters"]["acknowledged"]
            > before
        )
    )
    assert take(live, "out") == ["x"]


def test_list_bridge_by_name_and_list_link(live: Live) -> None:
    move_one(live)
    assert (
        live("list", "bridge", "-bn", "pump")
        == "Listing the bridge:\n\n"
        + WHICH
        + live.broker_table
        + PUMP_TABLES
        + "Successfully listed bridges.\n"
    )
    assert live("list", "link", "-bn", "pump") == (
        "Listing the links of the bridge:\n\n"
        + WHICH
        + live.broker_table
        + BALANCED_LINKS
        + "Successfully listed links.\n"
    )


def test_list_link_says_how_old_what_waits_is(live: Live) -> None:
    one = ("-bn", "pump", "-ln", "one")
    live("pause", "link", *one, "-f")
    send(live, "in", "x")
    shown = live("list", "link", *one)
    live("resume", "link", *one, "-f")
    assert re.search(r"^one +PAUSED .* false +00:00:0\d +0 +0$", shown, re.MULTILINE), shown
    assert take(live, "out") == ["x"]


def test_a_link_that_has_not_connected_has_no_kind_of_connections(live: Live) -> None:
    shown = live("list", "link", "-bn", "far", "-ln", "away")
    assert re.search(
        r"^away +RETRYING +there:D?:queue:faraway +here:D?:queue:out +false +unknown +0 +0$",
        shown,
        re.MULTILINE,
    ), shown


def test_list_bridge_by_name_of_the_stomp_bridge(live: Live) -> None:
    assert "stomp          STOMP          STARTED\n" in live("list", "bridge", "-bn", "stomp")


def test_list_link_by_name_with_a_slash_in_it(live: Live) -> None:
    assert [
        link["name"] for link in live.json("list", "link", "-bn", "pump", "-ln", "a/b")["links"]
    ] == ["a/b"]


def test_debug_shows_pools_and_dead_message_queues(live: Live) -> None:
    move_one(live)
    shown = live("list", "bridge", "-bn", "pump", "-debug")
    pools = shown.split(PUMP_TABLES)[1]
    assert pools.startswith(
        "-----------------------------------------------------------------------\n"
        "     Pooled          XA    In-Use   Idle    Idle       Max      Retry\n"
        "ConnectionFactory                          Timeout   Retries   Interval\n"
        "-----------------------------------------------------------------------\n"
        "      here          true     0       1      1800       -1         5\n"
    ), pools
    assert re.search(
        r"^built-in-dmq +queue:imq\.bridge\.jms\.dmq +D? +\d+ +0 +0$", pools, re.MULTILINE
    ), pools


def test_query_link(live: Live) -> None:
    before = live.json("query", "link", "-bn", "pump", "-ln", "one")["counters"]["sent"]
    send(live, "in", "hello")
    wait(
        lambda: (
            live.json("query", "link", "-bn", "pump", "-ln", "one")["counters"]["acknowledged"]
            > before
        )
    )
    assert take(live, "out") == ["hello"]
    shown = live("query", "link", "-bn", "pump", "-ln", "one")
    rows = dict(
        re.findall(r"^(\S.*?) {3,}(\S.*)$", shown.split(live.broker_table)[1], re.MULTILINE)
    )
    assert list(rows) == [
        "Link Name",
        "Bridge Name",
        "Link State",
        "Enabled",
        "Source",
        "Target",
        "Transacted",
        "Quality of Service",
        "Messages Received",
        "Messages Sent",
        "Octets Sent",
        "Messages Acknowledged",
        "Batches",
        "In Flight",
        "Doing",
        "Most Messages a Second",
        "Most Octets a Second",
        "Waited for Its Rates",
        "Last Transfer",
        "Lag",
        "Dead Messages",
        "Expired",
        "Not Transferred",
        "Transform Failures",
        "Refused by the Target",
        "Possible Duplicates",
        "Reconnects",
        "Failed Attempts",
        "Next Attempt",
        "Last Error",
        "Balance Since",
        "Taken from the Source",
        "Possibly Twice",
    ]
    assert rows["Source"] == "here:D:queue:in"
    assert rows["Messages Sent"].startswith(f"{before + 1} (")
    assert rows["Last Error"] == "none"
    assert shown.endswith("\nSuccessfully queried the link.\n")


def test_query_link_tells_of_a_provider_that_is_not_there(live: Live) -> None:
    away = live.json("query", "link", "-bn", "far", "-ln", "away")
    assert (away["state"], away["bridge"], away["name"]) == ("RETRYING", "far", "away")
    assert away["attempt"] >= 1
    assert away["last_error"] != ""
    assert away["last_error"] in live("query", "link", "-bn", "far")


@pytest.mark.parametrize("bridge", ["pump", "stomp"])
def test_bridges_are_paused_resumed_stopped_and_started(live: Live, bridge: str) -> None:
    for operation, doing, done, state in (
        ("pause", "Pausing", "paused", "PAUSED"),
        ("resume", "Resuming", "resumed", "STARTED"),
        ("stop", "Stopping", "stopped", "STOPPED"),
        ("start", "Starting", "started", "STARTED"),
    ):
        shown = live(operation, "bridge", "-bn", bridge, "-f")
        assert (
            shown
            == f"{doing} the bridge:\n\n"
            + WHICH.replace("pump", bridge)
            + live.broker_table
            + f"Successfully {done} the bridge.\n"
        )
        assert live.state(bridge) == state


def test_bridges_of_a_type(live: Live) -> None:
    shown = live("pause", "bridge", "-t", "Stomp", "-f")
    assert shown == (
        "Pausing all bridges of the type:\n\n"
        + WHICH.replace("Bridge Name", "Bridge Type").replace("pump", "Stomp")
        + live.broker_table
        + "------------------------------------------\n"
        "Bridge Name    Bridge Type    Bridge State\n"
        "------------------------------------------\n"
        "stomp          STOMP          PAUSED\n"
        "\n"
        "Successfully paused the bridges.\n"
    )
    live("start", "bridge", "-bn", "stomp", "-t", "stomp", "-f")
    assert live.state("stomp") == "STARTED"


def test_one_bridge_s_failure_is_told_and_the_others_start(live: Live) -> None:
    live("stop", "bridge", "-bn", "pump", "-f")
    told = live("start", "bridge", "-f", code=1)
    assert told.startswith(f"imqbridgemgr: Error: bridge broken: {live.folder}/broken.xml:2: ")
    assert told.endswith("\ndone for: stomp, pump, far\n")
    assert live.state("pump") == "STARTED"


def test_links_are_paused_resumed_stopped_and_started(live: Live) -> None:
    for operation, doing, done, state in (
        ("pause", "Pausing", "paused", "PAUSED"),
        ("resume", "Resuming", "resumed", "STARTED"),
        ("stop", "Stopping", "stopped", "STOPPED"),
        ("start", "Starting", "started", "STARTED"),
    ):
        assert live(operation, "link", "-bn", "pump", "-ln", "one", "-t", "jms", "-f") == (
            f"{doing} the link:\n"
            "\n"
            "---------------------------------------\n"
            "Bridge Name    Bridge Type    Link Name\n"
            "---------------------------------------\n"
            "pump           jms            one\n"
            "\n"
            "On the broker specified by:\n"
            "\n" + live.broker_table + f"Successfully {done} the link.\n"
        )
        assert live.state("pump", "one") == state


def test_a_link_that_cannot_connect_is_started_and_retries(live: Live) -> None:
    live("stop", "link", "-bn", "far", "-ln", "away", "-f")
    shown = live("start", "link", "-bn", "far", "-ln", "away", "-f")
    assert re.search(r"^The link is RETRYING: \S.*$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["list", "bridge", "-bn", "nope"],
            "Error [BB4006]: there is no bridge nope; those that there are: stomp, pump, far, broken",
        ),
        (
            ["list", "bridge", "-t", "corba"],
            "Error [BB4005]: there is no type corba of bridges: expected JMS or STOMP",
        ),
        (
            ["list", "bridge", "-bn", "pump", "-t", "stomp"],
            "Error [BB4007]: bridge pump is of type JMS, not STOMP",
        ),
        (
            ["list", "link", "-bn", "pump", "-ln", "two"],
            "Error [BSJ4019]: there is no link two in bridge pump; those that there are: one, a/b, off, failing",
        ),
        (
            ["start", "link", "-bn", "pump", "-ln", "off", "-f"],
            "Error: cannot start link off, which is UNINITIALIZED",
        ),
        (
            ["pause", "link", "-bn", "stomp", "-ln", "x", "-f"],
            "Error [BSS4000]: bridge stomp is of type STOMP, which has no links",
        ),
        (
            ["start", "link", "-bn", "broken", "-ln", "x", "-f"],
            "Error [BSJ4000]: cannot start link x: bridge broken is STOPPED, and must be STARTED",
        ),
        (
            ["pause", "bridge", "-bn", "broken", "-f"],
            "Error: cannot pause bridge broken, which is STOPPED",
        ),
        (["reload", "bridge", "-bn", "stomp", "-f"], "Error: cannot reload bridge stomp: "),
        (["level", "bridge", "-bn", "nope"], "Error [BB4006]: "),
        (["list", "dead", "-selector", "a ="], "Error: selector 'a =' is invalid"),
        (
            ["replay", "dead", "-to", "somewhere", "-f"],
            "Error: 'somewhere' is no destination; expected queue:NAME or topic:NAME",
        ),
        (
            ["list", "dead", "-bn", "far", "-dmq", "nope"],
            "Error: there is no dead message queue nope in bridge far; those that there are: built-in-dmq, far-dead, topical, foreign",
        ),
        (
            ["list", "dead", "-bn", "stomp", "-dmq", "x"],
            "Error: there is no dead message queue x in bridge stomp; ",
        ),
        (
            ["list", "dead", "-bn", "broken", "-dmq", "x"],
            "Error: there is no dead message queue x in bridge broken: it is STOPPED, and its file is read when it starts",
        ),
        (["list", "dead", "-bn", "nope", "-dmq", "x"], "Error [BB4006]: "),
        (
            ["purge", "dead", "-bn", "far", "-dmq", "foreign", "-f"],
            "Error: dead message queue foreign of bridge far is queue:far.dead at the provider of connection-factory there: ",
        ),
        (
            ["replay", "dead", "-bn", "far", "-dmq", "topical", "-f"],
            "Error: dead message queue topical of bridge far is topic:far.news, and only a queue keeps",
        ),
        (["list", "bridge", "-secure"], "Error: the admin service of 127.0.0.1:"),
    ],
)
def test_what_the_broker_refuses(live: Live, arguments: Sequence[str], text: str) -> None:
    assert live(*arguments, code=1).startswith(f"imqbridgemgr: {text}")


@pytest.mark.parametrize("name", ["a/b?c", "a%2Fb", "a b#c", "a//b", "..", "stomp/", "/x"])
@pytest.mark.parametrize(
    "command",
    [
        ["list", "bridge"],
        ["list", "link"],
        ["list", "link", "-ln", "x"],
        ["start", "bridge", "-f"],
        ["reload", "bridge", "-f"],
        ["level", "bridge"],
        ["level", "bridge", "-level", "INFO"],
        ["list", "transactions"],
        ["stop", "link", "-ln", "x", "-f"],
    ],
)
def test_a_name_that_no_bridge_can_have_is_an_unknown_bridge(
    live: Live, command: Sequence[str], name: str
) -> None:
    usual, answer = (live(*command, "-bn", each, code=1) for each in ("nope", name))
    [error] = [line for line in usual.splitlines() if "Error" in line]
    assert error.startswith("imqbridgemgr: Error [BB4006]: ")
    assert error.replace("nope", name) in answer.splitlines()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a subcommand is missing"),
        (["reset", "bridge"], "there is no subcommand reset; expected one of "),
        (["list"], "there is no list without an argument; expected list bridge or link or dead"),
        (["list", "queue"], "there is no list queue; expected list bridge or link or dead"),
        (["start", "dead"], "there is no start dead"),
        (["list", "bridge", "more"], "unrecognized arguments: more"),
        (["list", "bridge", "-pass", "x"], "there is no option -pass"),
        (["list", "bridge", "-bnpump"], "there is no option -bnpump"),
        (["list", "bridge", "-bn"], "option -bn needs a value"),
        (["list", "link"], "[BA3000]: the name of the bridge is missing"),
        (["reload", "bridge"], "[BA3000]: the name of the bridge is missing"),
        (["level", "bridge"], "[BA3000]: the name of the bridge is missing"),
        (["start", "link", "-ln", "x"], "[BA3000]: the name of the bridge is missing"),
        (["start", "link", "-bn", "x"], "[BA3001]: the name of the link is missing"),
        (["start", "bridge", "-ln", "x"], "[BA3002]: -ln is not for bridges"),
        (["pause", "bridge"], "[BB4008]: pause bridge needs -bn or -t"),
        (["resume", "bridge"], "[BB4009]: resume bridge needs -bn or -t"),
        (["list", "bridge", "-p", "secret"], "-p is refused: other users"),
        (["list", "bridge", "-b", "host:port"], "-b 'host:port' is no broker; expected HOST:PORT"),
        (["list", "bridge", "-rtm", "-2"], "-rtm -2: expected a whole number, -1 or more"),
        (["list", "bridge", "-rtr", "1.5"], "-rtr 1.5: expected a whole number, -1 or more"),
        (["list", "bridge", "-selector", "a"], "-selector is not for list bridge"),
        (
            ["list", "dead", "-to", "queue:a"],
            "-to is not for list dead, but for transfer bridge, replay dead",
        ),
        (["list", "dead", "-limit", "0"], "-limit 0: expected a whole number, 1 or more"),
        (
            ["list", "dead", "-bn", "x"],
            "-bn names a dead message queue of a bridge only with -dmq; without both it is the built-in one",
        ),
        (
            ["purge", "dead", "-dmq", "x"],
            "-dmq names a dead message queue of a bridge only with -bn; ",
        ),
        (
            ["list", "link", "-bn", "x", "-dmq", "y"],
            "-dmq is not for list link, but for list dead, replay dead, purge dead",
        ),
        (
            ["level", "bridge", "-bn", "x", "-level", "LOUD"],
            "-level LOUD: expected one of SEVERE, ",
        ),
        (["watch", "bridge", "-interval", "0"], "-interval 0: expected 0.1 to 3600 seconds"),
        (["watch", "bridge", "-count", "-1"], "-count -1: expected a whole number, 0 or more"),
        (["validate"], "validate needs the file to look at"),
    ],
)
def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert imqbridgemgr.run(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith((f"imqbridgemgr: Error: {text}", f"imqbridgemgr: Error {text}"))
    assert "secret" not in err
    assert err.endswith("\nimqbridgemgr -h says how it is used.\n")


@pytest.mark.parametrize("option", ["-h", "-help", "--help"])
def test_help_wins_over_everything(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert imqbridgemgr.run(["nonsense", "-x", option]) == 0
    out, err = capsys.readouterr()
    assert (
        out.startswith("usage: imqbridgemgr SUBCOMMAND ARGUMENT [options]\n"),
        "Examples:" in out,
        err,
    ) == (True, False, "")


@pytest.mark.parametrize("option", ["-H", "-Help"])
def test_the_long_help_has_examples(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert imqbridgemgr.run([option, "list"]) == 0
    assert "Examples:" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["-v", "-version", "--version"])
def test_the_version(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert imqbridgemgr.run(["list", "bridge", option]) == 0
    assert capsys.readouterr().out == f"imqbridgemgr {__version__} (stomp-gateway)\n"


def test_what_is_meant_for_a_jvm_is_taken_and_not_used(live: Live) -> None:
    assert live(
        "list",
        "bridge",
        "-javahome",
        "/usr",
        "-Da=b",
        "-D",
        "c=d",
        "-vmargs",
        "x",
        "-varhome",
        "/y",
        "-adebug",
        "-nocheck",
        "-verbose",
        "-t",
        "stomp",
    )


def test_silent_prints_nothing_but_errors(live: Live) -> None:
    assert live("list", "bridge", "-s") == ""
    assert live("pause", "bridge", "-bn", "stomp", "-s", "-f") == ""
    assert live("resume", "bridge", "-bn", "stomp", "-s", "-f") == ""
    assert live("list", "bridge", "-bn", "nope", "-s", code=1) != ""


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [
        ("y\n", 0, "PAUSED"),
        ("YES\n", 0, "PAUSED"),
        ("n\n", 0, "STARTED"),
        ("No\n", 0, "STARTED"),
        ("\n", 0, "STARTED"),
        ("maybe\n", 1, "STARTED"),
        ("", 1, "STARTED"),
    ],
)
def test_it_is_asked_whether_it_shall_be_done(
    live: Live, answers: Callable[[str], None], answer: str, code: int, state: str
) -> None:
    answers(answer)
    shown = live("pause", "bridge", "-bn", "stomp", code=code)
    assert live.state("stomp") == state
    live("resume", "bridge", "-bn", "stomp", "-f")
    if code:
        assert ("is neither y nor n" if answer else "there is nobody to ask") in shown
    else:
        assert shown.endswith(
            "\nSuccessfully paused the bridge.\n"
            if state == "PAUSED"
            else "\nThe bridge was not paused.\n"
        )


def test_every_list_and_change_in_json(live: Live) -> None:
    assert [(each["name"], each["state"]) for each in live.json("list", "bridge")["bridges"]] == [
        ("stomp", "STARTED"),
        ("pump", "STARTED"),
        ("far", "STARTED"),
        ("broken", "STOPPED"),
    ]
    assert live.json("list", "link", "-bn", "pump")["enabled_links"] == 3
    assert live.json("pause", "bridge", "-bn", "stomp", "-f")["bridges"][0]["state"] == "PAUSED"
    assert live.json("resume", "bridge", "-bn", "stomp", "-f")["bridges"][0]["state"] == "STARTED"
    assert (
        live.json("pause", "link", "-bn", "pump", "-ln", "one", "-f")["links"][0]["state"]
        == "PAUSED"
    )
    assert (
        live.json("resume", "link", "-bn", "pump", "-ln", "one", "-f")["links"][0]["state"]
        == "STARTED"
    )
    assert live.json("level", "bridge", "-bn", "pump") == {"bridge": "pump", "level": "INFO"}
    assert set(live.json("list", "dead")) == {"queue", "messages", "more"}
    assert live.json("watch", "bridge", "-count", "1")["bridges"][0]["name"] == "stomp"
    error = json.loads(live("list", "bridge", "-bn", "nope", "--json", code=1))
    assert error["error"]["code"] == "BB4006"
    error = json.loads(live("lst", "--json", code=1))
    assert error["error"]["text"].startswith("there is no subcommand lst")


def test_levels_at_run_time(live: Live) -> None:
    log = live.gateway.directory / "bridges" / "pump" / "pump0.log"
    assert (
        live("level", "bridge", "-bn", "pump") == "The log of bridge pump takes INFO and above.\n"
    )
    live("level", "bridge", "-bn", "pump", "-level", "off")
    before = log.read_text()
    live("pause", "bridge", "-bn", "pump", "-f")
    assert log.read_text() == before
    assert live("level", "bridge", "-bn", "pump", "--level=error").startswith(
        "The log of bridge pump takes SEVERE and above until"
    )
    live("level", "bridge", "-bn", "pump", "-level", "info")
    live("resume", "bridge", "-bn", "pump", "-f")
    assert log.read_text() != before


def test_reload(live: Live) -> None:
    assert (
        live("reload", "bridge", "-bn", "pump", "-f")
        == "Reloading the bridge:\n\n"
        + WHICH
        + live.broker_table
        + "Nothing has changed.\n\nSuccessfully reloaded the bridge.\n"
    )
    since = live.json("query", "link", "-bn", "pump", "-ln", "one")["since_ms"]
    file = live.folder / "pump.xml"
    try:
        file.write_text(
            PUMP.replace('name="off" enabled="false"', 'name="off"').replace(
                "</jmsbridge>", '  <destination ref-name="more" name="m"/>\n</jmsbridge>'
            )
        )
        shown = live("reload", "bridge", "-bn", "pump", "-f")
        assert (
            "Links changed: off, failing\nLinks unchanged: one, a/b\nDestinations that differ: more\n"
            in shown
        )
        assert live.state("pump", "off") == "STARTED"
        # One that did not change has run on.
        assert live.json("query", "link", "-bn", "pump", "-ln", "one")["since_ms"] == since
        file.write_text("<jmsbridge name='pump'><link/></jmsbridge>")
        told = live("reload", "bridge", "-bn", "pump", "-f", code=1)
        assert f"{file}:1: link" in told
        assert live.state("pump", "one") == "STARTED"
    finally:
        file.write_text(PUMP)
        live("reload", "bridge", "-bn", "pump", "-f")
    assert live.state("pump", "off") == "UNINITIALIZED"


def test_dead_messages_are_listed_replayed_and_purged(
    live: Live, answers: Callable[[str], None]
) -> None:
    live("purge", "dead", "-f")
    for number in range(5):
        send(live, "bad", f"message {number}", number=str(number))
    wait(lambda: len(live.json("list", "dead")["messages"]) == 5)
    shown = live("list", "dead", "-limit", "2", "-debug")
    ids = [each["message_id"] for each in live.json("list", "dead")["messages"]]
    table = shown.split(live.broker_table)[1].splitlines()
    originals = [each["source_message_id"] for each in live.json("list", "dead")["messages"]]
    width = max(map(len, ids[:2]))
    titles = "Reason              Dead Since             Source      Target      Original   Original Message ID"
    assert table[1] == f"{'Message ID'.ljust(width)}   {titles}"
    assert "" not in originals
    assert re.fullmatch(
        rf"{re.escape(ids[0].ljust(width))}   TRANSFORM_FAILURE   \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ   queue:bad   queue:out   TEXT 9     "
        + re.escape(originals[0]),
        table[3],
    )
    assert "There are more; --limit N shows so many.\n" in shown
    assert f"\n{ids[0]}\n    exception: " in shown
    assert "I want none of these" in shown
    assert len(live.json("list", "dead", "-selector", "number > 2")["messages"]) == 2

    dry = live("replay", "dead", "-selector", "number > 2", "-to", "queue:rescued", "-dry-run")
    assert dry == (
        "Replaying the dead messages that the selector matches:\n"
        "\n"
        "---------------------------\n"
        "Selector      To\n"
        "---------------------------\n"
        "number > 2    queue:rescued\n"
        "\n"
        "On the broker specified by:\n"
        "\n" + live.broker_table + "Messages matched: 2\n"
        "Messages would be replayed: 2\n"
        "\n"
        "Nothing was changed.\n"
    )
    assert len(live.json("list", "dead")["messages"]) == 5

    answers("n\n")
    assert live("replay", "dead").endswith("\nThe messages were not replayed.\n")
    answers("y\n")
    assert live("replay", "dead", "-selector", "number > 2", "-to", "queue:rescued").endswith(
        "Messages matched: 2\nMessages replayed: 2\n\nSuccessfully replayed dead messages.\n"
    )
    assert take(live, "rescued", 2) == ["message 3", "message 4"]
    # To where it came from: the link fails with it again.
    live("stop", "link", "-bn", "pump", "-ln", "failing", "-f")
    assert live.json("replay", "dead", "-limit", "1", "-f")["done"] == 1
    assert take(live, "bad") == ["message 0"]
    live("start", "link", "-bn", "pump", "-ln", "failing", "-f")
    assert live.json("purge", "dead", "-selector", "number = 1", "-f")["done"] == 1
    assert "Messages purged: 1\n" in live("purge", "dead", "-f")
    assert live.json("list", "dead")["messages"] == []


def test_a_dead_message_queue_of_a_bridge_is_named(live: Live) -> None:
    which = ("-bn", "far", "-dmq", "far-dead")
    send(live, "far.dead", "no envelope")
    assert live("list", "dead", *which).startswith(
        "Listing the dead messages:\n"
        "\n"
        "---------------------------------\n"
        "Bridge Name    Dead Message Queue\n"
        "---------------------------------\n"
        "far            far-dead\n"
        "\n"
        "On the broker specified by:\n"
        "\n" + live.broker_table
    )
    listed = live.json("list", "dead", *which)
    assert (listed["queue"], len(listed["messages"])) == ("far.dead", 1)
    left = live("replay", "dead", *which, "-f", code=1)
    assert left.startswith("imqbridgemgr: Error: 1 of 1 messages stay: its body is no envelope")
    assert live.json("purge", "dead", *which, "-f")["done"] == 1
    assert (
        live.json("list", "dead", "-bn", "far", "-dmq", "built-in-dmq")["queue"]
        == "imq.bridge.jms.dmq"
    )


def test_connections_tell_which_link_has_them(live: Live) -> None:
    move_one(live)
    listed = imqcmd_json(live, "list", "cxn", "-svn", "bridge")["connections"]
    held = {each["holder"]: each for each in listed}
    for whose in (
        "link one, source",
        "link one, target",
        "link a/b, source",
        "connection-factory here",
        "dead message queue built-in-dmq",
    ):
        assert held[f"bridge pump, {whose}"]["id"], held
    assert held["bridge pump, link one, source"]["consumers"] == 1
    assert held["bridge pump, link one, target"]["consumers"] == 0
    assert "" not in held


def imqcmd_json(live: Live, *arguments: str) -> Any:
    """What ``imqcmd`` answers."""
    live.capsys.readouterr()
    assert imqcmd.run([*arguments, "--json", *live.options]) == 0
    return json.loads(live.capsys.readouterr().out)


def test_validate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pump.xml"
    file.write_text(PUMP)
    assert imqbridgemgr.run(["validate", str(file)]) == 0
    assert capsys.readouterr() == (f"{file} configures bridge pump with 4 links.\n", "")
    assert imqbridgemgr.run(["validate", str(file), "-bn", "other"]) == 1
    assert "other" in capsys.readouterr().err
    file.write_text(
        '<jmsbridge name="x">\n<link name="a" enabled="maybe"/>\n<queue/>\n</jmsbridge>'
    )
    assert imqbridgemgr.run(["validate", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    problems = err.splitlines()
    assert len(problems) >= 3
    assert all(problem.startswith(f"Error: {file}:") for problem in problems)
    assert imqbridgemgr.run(["validate", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["valid"], [f"Error: {problem['text']}" for problem in told["problems"]]) == (
        False,
        problems,
    )
    assert imqbridgemgr.run(["validate", str(tmp_path / "none.xml")]) == 1
    assert "none.xml" in capsys.readouterr().err


def test_validate_marks_warnings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pump.xml"
    file.write_text(
        PUMP.replace('destination-ref="in"/>', 'destination-ref="in" durable-sub="d"/>')
    )
    assert imqbridgemgr.run(["validate", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{file} configures bridge pump with 4 links.\n"
    assert re.fullmatch(
        rf'Warning: {file}:\d+: source of link "one", attribute durable-sub="d": expected [^\n]+\n',
        err,
    )


def test_validate_takes_transacted_links(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Whether both sides can take part shows when they are connected.
    file = tmp_path / "pump.xml"
    file.write_text(PUMP.replace(' transacted="false"', "", 1))
    assert imqbridgemgr.run(["validate", str(file)]) == 0
    assert capsys.readouterr() == (f"{file} configures bridge pump with 4 links.\n", "")
    assert imqbridgemgr.run(["validate", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_validate_does_not_need_the_passfile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "pump.xml"
    file.write_text(
        PUMP.replace(
            'ref-name="here"/>', 'ref-name="here" username="u" password="${passfile:zz}"/>', 1
        )
    )
    assert imqbridgemgr.run(["validate", str(file)]) == 0, capsys.readouterr().err
    needed = "imq.bridge.config.password.zz"
    assert (
        capsys.readouterr().out
        == f"{file} configures bridge pump with 4 links.\nNeeds in the passfile: {needed}\n"
    )
    assert imqbridgemgr.run(["validate", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passfile"] == [needed]


def test_watch_without_a_terminal_prints_each_look(live: Live) -> None:
    shown = live("watch", "link", "-bn", "pump", "-count", "2", "-interval", "0.1")
    assert shown.count("JMS bridge pump is STARTED\n") == 2
    assert re.search(r"one +│ STARTED", shown)
    shown = live("watch", "link", "-bn", "far", "-ln", "away", "-count", "1")
    assert re.search(r"^away, \d{4}-", shown, re.MULTILINE)
    shown = live("watch", "bridge", "-t", "jms", "-count", "1")
    assert "broken" in shown
    assert "stomp" not in shown
    assert (
        len(live("watch", "bridge", "-count", "3", "-interval", "0.1", "--json").splitlines()) == 3
    )


# --- as real processes

COMMAND = (sys.executable, "-m", "gateway.admin.cli.imqbridgemgr")


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_as_a_process(live: Live) -> None:
    done = child("list", "bridge", "-t", "stomp", *live.options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == live("list", "bridge", "-t", "stomp")
    assert child("list", "bridge", "-bn", "nope", *live.options).returncode == 1


def test_in_a_script_a_password_must_be_in_a_passfile(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str], answers: Callable[[str], None]
) -> None:
    answers("admin\nadmin\n")
    asking = ["list", "bridge", "-b", live.broker]

    def refused(*more: str) -> str:
        assert imqbridgemgr.run([*asking, *more]) == 1
        return capsys.readouterr().err

    assert refused("-u", "admin") == (
        "imqbridgemgr: Error: the administrator's password is not given, and there is no terminal to ask at: "
        "give -passfile with imq.imqbridgemgr.password\n"
    )
    assert "username is not given, and there is no terminal to ask at: give -u" in refused()
    assert "username is not given, and -f was given: give -u" in refused("-f")
    empty = tmp_path / "passfile"
    empty.write_text("imq.imqcmd.password=x\n")
    empty.chmod(0o600)
    assert f"passfile {empty} has no imq.imqbridgemgr.password" in refused(
        "-u", "admin", "-passfile", str(empty)
    )
    empty.chmod(0o644)
    assert "permissions" in refused("-u", "admin", "-passfile", str(empty))
    assert "none" in refused("-u", "admin", "-passfile", str(tmp_path / "none"))


def test_no_broker(free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert imqbridgemgr.run(["list", "bridge", "-b", f"localhost:{port}", "-u", "admin"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"no broker answers at localhost:{port}" in err


def test_at_a_terminal_name_password_and_consent_are_asked_for(live: Live) -> None:
    passwords = dict(
        line.partition("=")[::2]
        for line in (live.gateway.directory / "etc" / "passfile").read_text().splitlines()
    )
    password = passwords["imq.imqbridgemgr.password"]
    shown, code = at_a_terminal(
        ["pause", "bridge", "-bn", "stomp", "-b", live.broker],
        [
            ("Username: ", "admin"),
            ("Password: ", password),
            ("Are you sure you want to pause this bridge? (y/n)[n] ", "y"),
        ],
    )
    assert (code, "Successfully paused the bridge." in shown, password in shown) == (0, True, False)
    assert live.state("stomp") == "PAUSED"
    live("resume", "bridge", "-bn", "stomp", "-f")


def test_watch_at_a_terminal_is_live_until_it_is_interrupted(live: Live) -> None:
    shown, code = at_a_terminal(
        ["watch", "link", "-bn", "pump", "-interval", "0.1", *live.options], [("a/b", "\x03")]
    )
    assert (code, "Traceback" in shown, "STARTED" in shown) == (0, False, True)


def at_a_terminal(arguments: Sequence[str], dialogue: Sequence[tuple[str, str]]) -> tuple[str, int]:
    """Run the command on a terminal of its own; each answer is typed once its question has been
    shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ |= {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        heed_interrupts()
        os.execv(COMMAND[0], [*COMMAND, *arguments])
    shown, left = "", list(dialogue)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            try:
                octets = os.read(terminal, 65536)
            except OSError:
                break
            if not octets:
                break
            shown += octets.decode(errors="replace")
        if left and left[0][0] in shown:
            answer = left.pop(0)[1]
            os.write(terminal, answer.encode() if answer == "\x03" else f"{answer}\n".encode())
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert left == [], shown
    return shown, os.waitstatus_to_exitcode(status)


# --- users, and metrics


def test_another_user_may_not(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "passfile"
    secret.write_text("imq.imqbridgemgr.password=guest\n")
    secret.chmod(0o600)
    assert (
        imqbridgemgr.run(
            ["list", "bridge", "-b", live.broker, "-u", "guest", "-passfile", str(secret)]
        )
        == 1
    )
    assert capsys.readouterr().err == "imqbridgemgr: Error: wrong user or password\n"


def test_metrics(live: Live) -> None:
    import urllib.request
    from base64 import b64encode

    from prometheus_client.parser import text_string_to_metric_families

    from gateway.admin.cli.client import find

    passwords = dict(
        line.partition("=")[::2]
        for line in (live.gateway.directory / "etc" / "passfile").read_text().splitlines()
    )
    send(live, "bad", "nobody wants it")
    wait(lambda: bool(live.json("list", "dead")["messages"]))
    address = find(HOST, live.gateway.port_mapper_port)
    credentials = b64encode(f"admin:{passwords['imq.bridge.admin.password']}".encode()).decode()
    request = urllib.request.Request(
        f"http://{address.host}:{address.port}/metrics",
        headers={"Authorization": f"Basic {credentials}"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        families = {
            family.name: family
            for family in text_string_to_metric_families(response.read().decode())
        }

    def value(family: str, **labels: str) -> float:
        [found] = [sample.value for sample in families[family].samples if sample.labels == labels]
        return found

    sent = live.json("query", "link", "-bn", "pump", "-ln", "one")["counters"]["sent"]
    assert value("stomp_gateway_link_messages_sent", bridge="pump", link="one") == sent
    assert {sample.name for sample in families["stomp_gateway_link_messages_received"].samples} == {
        "stomp_gateway_link_messages_received_total"
    }
    assert value("stomp_gateway_link_state", bridge="far", link="away", state="RETRYING") == 1
    assert value("stomp_gateway_bridge_state", bridge="broken", type="JMS", state="STOPPED") == 1
    assert (
        value(
            "stomp_gateway_link_messages_dead",
            bridge="pump",
            link="failing",
            reason="TRANSFORM_FAILURE",
        )
        >= 1
    )
    assert value("stomp_gateway_dmq_messages_sent", bridge="pump", queue="built-in-dmq") >= 1
    assert value("stomp_gateway_destination_messages", type="queue", name="imq.bridge.jms.dmq") >= 1
    assert families["stomp_gateway_stomp_connections"].type == "gauge"
    assert value("stomp_gateway_stomp_messages_in") >= 1
    assert value("stomp_gateway_destination_consumers", type="queue", name="in") == 1
    assert value("stomp_gateway_destination_messages", type="queue", name="mq.sys.dmq") >= 0
    assert value("stomp_gateway_dead_queue_messages", name="mq.sys.dmq") >= 0
    assert value("stomp_gateway_destinations_left_out") == 0
    live("purge", "dead", "-f")


def test_over_tls_with_the_authority_that_is_trusted(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with GatewayProcess(
        tmp_path / "var", tls=certificates, settings={"imq.bridge.admin.tls.enabled": "true"}
    ) as gateway:
        options = [
            "-b",
            f"localhost:{gateway.port_mapper_port}",
            "-u",
            "admin",
            "-passfile",
            str(gateway.directory / "etc" / "passfile"),
            "-secure",
        ]
        assert imqbridgemgr.run(["list", "bridge", *options, "-cacert", str(certificates.ca)]) == 0
        assert "stomp          STOMP          STARTED" in capsys.readouterr().out
        assert imqbridgemgr.run(["list", "bridge", *options]) == 1
        assert "cannot be trusted" in capsys.readouterr().err
        assert (
            imqbridgemgr.run(["list", "bridge", *options, "-cacert", str(tmp_path / "none.pem")])
            == 1
        )
        assert "none.pem: no certificates can be read from it" in capsys.readouterr().err


def test_the_admin_service_in_the_clear_on_a_network_is_refused_at_start(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "var", settings={"imq.bridge.admin.hostname": "0.0.0.0"})
    gateway.launch()
    assert gateway.wait() == 2
    assert (
        "-D: imq.bridge.admin.hostname=0.0.0.0: expected an address of the loopback" in gateway.said
    )
