"""``imqbridgemgr`` against a live gateway whose bridge has links that cannot start, and whose file
is changed for the worse.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.gateway.admin.live import Live

pytestmark = pytest.mark.process

FILE = """\
<jmsbridge name="odd">
  <link name="good" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <link name="whole" transacted="true">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="forgetful" destination-ref="out"/>
  </link>
  <link name="classless" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out" message-transformer-class="nowhere.Transformer"/>
  </link>
  <link name="jarless" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="java" destination-ref="out" message-transformer-class="com.acme.Nowhere"/>
  </link>
  <link name="guessing" transacted="false">
    <source connection-factory-ref="wrong" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="java" lookup-name="cf"/>
  <connection-factory ref-name="wrong" username="guest" password="no such password"/>
  <connection-factory ref-name="forgetful" lookup-name="stomp://127.0.0.1:{stomp}" username="guest" password="guest">
    <property name="stomp.dialect" value="generic"/>
  </connection-factory>
  <destination ref-name="in" name="in" type="queue"/>
  <destination ref-name="out" name="out" type="queue"/>
</jmsbridge>
"""


FILES = {"odd": FILE}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (
            "whole",
            "link whole has failed: link whole is transacted, and cannot be: its target, connection-factory 'forgetful' (stomp-gateway), "
            "neither takes part in XA transactions nor remembers duplicate ids. Expected XA on both sides ",
        ),
        ("classless", "link classless cannot have its message transformer: "),
        (
            "jarless",
            "link jarless cannot have its message transformer: message-transformer-class of the target of link jarless=com.acme.Nowhere: "
            "there is no module com, neither installed nor in {ext}; and in Java: there is no class com.acme.Nowhere in the empty class path nor in "
            "{ext}/*.jar",
        ),
        ("guessing", "link guessing has failed: "),
    ],
)
def test_a_link_that_cannot_start_is_refused_with_the_reason(
    live: Live, link: str, why: str
) -> None:
    told = live("start", "link", "-bn", "odd", "-ln", link, "-f", code=1)
    expected = why.format(ext=live.gateway.directory.parents[1] / "lib" / "ext")
    assert told.startswith(f"imqbridgemgr: Error: {expected}"), told
    assert "incident" not in told
    told = live("resume", "link", "-bn", "odd", "-ln", link, "-f", code=1)
    assert told.startswith(f"imqbridgemgr: Error: cannot resume link {link}, which is FAILED"), told


def test_programs_are_told_by_a_code(live: Live) -> None:
    for link in ("whole", "guessing"):
        error = json.loads(
            live("start", "link", "-bn", "odd", "-ln", link, "-f", "--json", code=1)
        )["error"]
        assert error["code"] == "link_failed"
        assert f"link {link} " in error["text"]


def test_a_reload_says_which_new_links_are_not_started_and_warns(live: Live) -> None:
    file = live.folder / "odd.xml"
    before = file.read_text()
    good = before.split("\n  <link", 2)[1]
    more = good.replace('"good"', '"second"').replace('transacted="false"', 'transacted="true"')
    more = more.replace(
        '<target connection-factory-ref="here"', '<target connection-factory-ref="forgetful"'
    )
    text = before.replace(
        '  <connection-factory ref-name="here"/>',
        f'  <link{more}\n  <connection-factory ref-name="here"/>',
    )
    try:
        file.write_text(
            text.replace('destination-ref="in"/>', 'destination-ref="in" durable-sub="d"/>', 1)
        )
        shown = live("reload", "bridge", "-bn", "odd", "-f")
        assert "Links added: second\nLinks changed: good\n" in shown
        assert re.search(
            rf'^Warning: {file}:\d+: source of link "good", attribute durable-sub="d": expected ',
            shown,
            re.MULTILINE,
        )
        # Those that did not change, and are not started, either, are no news.
        told = "Links of bridge odd that are not started yet: second. Query them to see why."
        assert shown.endswith(f"{told}\nSuccessfully reloaded the bridge.\n")
    finally:
        file.write_text(before)
        shown = live("reload", "bridge", "-bn", "odd", "-f")
    assert "not started" not in shown
    assert "Warning" not in shown


def test_a_reload_that_is_refused_tells_errors_from_warnings(live: Live) -> None:
    file = live.folder / "odd.xml"
    before = file.read_text()
    try:
        file.write_text(
            before.replace(
                'destination-ref="in"/>', 'destination-ref="in" durable-sub="d"/>', 1
            ).replace('ref-name="out" name="out"', 'ref-name="elsewhere" name="out"')
        )
        [first, *others] = live("reload", "bridge", "-bn", "odd", "-f", code=1).splitlines()
        assert first.startswith(f"imqbridgemgr: Error: {file}:")
        assert [line.startswith("Warning: ") for line in others[:-1]] == [False] * len(others[:-1])
        assert re.match(
            rf'Warning: {file}:\d+: source of link "good", attribute durable-sub="d": expected ',
            others[-1],
        )
        live("stop", "bridge", "-bn", "odd", "-f")
        started = live("start", "bridge", "-bn", "odd", "-f", code=1).splitlines()
        assert started[0].startswith(f"imqbridgemgr: Error: bridge odd: {file}:")
        assert started[-1].startswith(f"bridge odd: Warning: {file}:")
    finally:
        file.write_text(before)
        live("start", "bridge", "-bn", "odd", "-f")


def test_a_stopped_bridge_says_that_its_links_are_not_known(live: Live) -> None:
    live("stop", "bridge", "-bn", "odd", "-f")
    try:
        told = "Bridge odd is STOPPED, and its file is read when it starts.\n\n"
        assert live("list", "link", "-bn", "odd").endswith(f"{told}Successfully listed links.\n")
        assert live("query", "link", "-bn", "odd").endswith(
            f"{told}Successfully queried the links.\n"
        )
        assert "Link State" not in live("list", "link", "-bn", "odd")
    finally:
        live("start", "bridge", "-bn", "odd", "-f")
    assert "STOPPED, and its file" not in live("list", "link", "-bn", "odd")
