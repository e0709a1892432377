"""Live traces of one client or destination, in the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.crash.waiting import until
from tests.gateway.admin.asking import ask, post
from tests.gateway.admin.console.serving import EVIL, Pages, Served, client, sent, serving
from tests.gateway.admin.console.test_messages import Operator
from tests.gateway_process import HOST
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

OTTO, VERA = ("otto", "otto"), ("vera", "vera")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"imq.journal.level": "dead", "imq.journal.segment.age": "1"}
    with serving(tmp_path_factory.mktemp("console"), more=settings) as found:
        yield found


def journal(served: Served) -> str:
    """What the journal's files have."""
    folder = served.gateway.directory / "journal"
    return "".join(file.read_text() for file in folder.glob("*.jsonl*"))


def test_a_client_is_followed_live_and_without_bodies(pages: Pages, served: Served) -> None:
    with client(served, **{"client-id": "followed"}) as one, client(served) as other:
        pages.go("/console/connections?text=followed")
        number = pages.text("tbody th")
        pages.follow(number)
        pages.browser.until("location.pathname === '/console/connection'")
        pages.ready()
        pages.follow("Trace")
        pages.browser.until("document.querySelector('dialog').open")
        assert "never a header or a body" in pages.text("dialog")
        assert f'-d \'{{"connection": "{number}", "seconds": "60"}}\'' in pages.text("dialog")
        pages.confirm()
        pages.until_text(f"Trace 1 of connection {number} is under way.", "dialog")
        pages.follow("Close")
        pages.browser.until("location.pathname === '/console/traces'")
        pages.ready()
        one.put("/queue/mine", "a body that is private", colour="a header that is private")
        other.put("/queue/of.the.other", "x")
        pages.until_text("produced")
        one.subscribe("/queue/mine", ack="client-individual")
        one.ack(one.message())
        one.sync()
        pages.until_text("acknowledged")
        page = pages.browser.run("document.documentElement.outerHTML")
        assert "private" not in page
        assert "of.the.other" not in page
        assert pages.browser.console == []
        assert "It is stopped" in pages.act("Stop")
        one.put("/queue/after", "x")
        pages.go("/console/traces")
        assert "ended" in pages.text(".traces")
        assert "queue:after" not in pages.text()
    # What is written is as the level says.
    sent(served, "mine", "x")
    with client(served) as consumer:
        consumer.subscribe("/queue/mine", ack="client-individual")
        consumer.settle("NACK", consumer.message(), requeue="false")
        consumer.sync()
    until(lambda: '"dead"' in journal(served), "the journal has no line")
    assert '"produced"' not in journal(served)
    assert '"acknowledged"' not in journal(served)
    log = served.log()
    assert f"audit: admin from {HOST} did in the console: curl -u USER" in log
    assert f"Trace 1 of connection {number} is under way." in log


@on_reactor
async def test_a_trace_of_a_destination_ends_by_itself(served: Served) -> None:
    before = (await ask(served.port, "GET", "/v1/traces", who=VERA)).json["traces"]
    begun = await post(served.port, "/v1/traces", OTTO, destination="queue:seen", seconds=1)
    id = begun.json["id"]
    sent(served, "seen", "abc", "de")
    sent(served, "not.seen", "abc")

    async def looked() -> dict[str, object]:
        found = await ask(served.port, "GET", f"/v1/traces/lines?id={id}", who=VERA)
        return dict(found.json)

    while (trace := await looked())["running"]:
        pass
    sent(served, "seen", "later")
    trace = await looked()
    lines = trace["lines"]
    assert isinstance(lines, list)
    assert {each["destination"] for each in lines} == {"queue:seen"}
    produced = [each for each in reversed(lines) if "produced" in each["steps"]]
    assert sum(each["count"] for each in produced) == 2
    assert sum(each["octets"] for each in produced) == 5
    after = (await ask(served.port, "GET", "/v1/traces", who=VERA)).json["traces"]
    assert [each["id"] for each in after] == [id, *(each["id"] for each in before)]


@on_reactor
async def test_what_cannot_be_followed_is_refused(served: Served) -> None:
    port = served.port
    for body, code, text in (
        ({}, "bad_request", "give a connection or a destination"),
        ({"connection": 999}, "no_connection", "there is no connection 999"),
        ({"destination": "orders"}, "bad_request", "expected queue:NAME or topic:NAME"),
        ({"destination": "queue:a", "seconds": 301}, "bad_request", "seconds is 301"),
    ):
        refused = (await post(port, "/v1/traces", OTTO, **body)).error
        assert (refused[0], text in refused[1]) == (code, True), refused
    assert (await post(port, "/v1/traces", VERA, destination="queue:a")).status == 403
    begun = [await post(port, "/v1/traces", OTTO, destination="queue:a") for _ in range(5)]
    assert [each.status for each in begun] == [200] * 4 + [409]
    for each in begun[:4]:
        await post(port, "/v1/traces/stop", OTTO, id=str(each.json["id"]))
    assert (await ask(port, "GET", "/v1/traces/lines?id=999", who=VERA)).status == 404


def test_without_a_trace_the_page_says_what_one_would_show(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "empty") as served:
        page = served.ask("/console/traces", cookie=served.log_in("vera"))
    assert "There is none. A trace shows here, line by line," in page.text


def test_who_only_looks_follows_nothing(served: Served) -> None:
    sent(served, "seen", "x")
    vera, otto = Operator(served, "vera"), Operator(served, "otto")
    page = served.ask("/console/destination?type=queue&name=seen", cookie=vera.cookie)
    assert (page.status, "act/trace" in page.text) == (200, False)
    otto.csrf = vera.csrf
    for who, name in ((vera, "vera"), (otto, "otto")):
        reply = who.send("act/trace-destination", destination="queue:seen", seconds="9")
        assert reply.status == 403
        assert re.search(
            rf"audit: {name} from {HOST} was refused in the console: curl .*/v1/traces: ",
            served.log(),
        )


def test_the_page_is_accessible_and_only_text(pages: Pages, served: Served) -> None:
    name = f"q{EVIL}"
    sent(served, name, "x")
    pages.go(f"/console/destination?{urlencode({'type': 'queue', 'name': name})}")
    pages.follow("Trace")
    pages.browser.until("document.querySelector('dialog').open")
    pages.confirm()
    pages.until_text(f"of queue:{name} is under way.", "dialog")
    sent(served, name, "y")
    for dark in (False, True):
        pages.go("/console/traces", dark=dark)
        pages.until_text(f"queue:{name}", "tbody")
        assert pages.faults() == []
    pages.go("/console/traces", width=360)
    assert pages.browser.run("document.documentElement.scrollWidth") <= 360
    assert "evil" not in pages.browser.run("document.title")
    assert pages.browser.console == []
