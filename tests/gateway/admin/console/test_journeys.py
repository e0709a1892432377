"""A message's journey and the search for messages, in the console."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.crash.waiting import until
from tests.gateway.admin.asking import ask
from tests.gateway.admin.console.serving import EVIL, Pages, Served, client, sent, serving
from tests.gateway.admin.console.test_messages import DEAD, Operator, dead, ids
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"imq.journal.level": "all", "imq.journal.segment.age": "1"}
    with serving(tmp_path_factory.mktemp("console"), more=settings) as found:
        yield found


def page(served: Served, path: str, **query: str) -> str:
    """What a viewer sees."""
    reply = served.ask(f"/console/{path}?{urlencode(query)}", cookie=served.log_in("vera"))
    assert reply.status == 200, reply
    return html.unescape(reply.text)


def rows(text: str) -> list[str]:
    """The ids that a search lists."""
    return re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a>', text)


def test_a_journey_says_where_it_is_and_where_it_was(pages: Pages, served: Served) -> None:
    with client(served) as sender:
        sender.put("/queue/travels", "a body that is private")
        id = ids(served, "travels")[0]
        pages.go("/console/search")
        pages.fill(id=id)
        pages.follow("Show its journey")
        pages.browser.until("location.pathname === '/console/journey'")
        pages.ready()
        assert "It waits: queue 'travels', 0 are delivered before it." in pages.text()
        assert f"imqcmd why msg -id {id}" in pages.text()
        pages.until_text("Move")
        sender.subscribe("/queue/travels", ack="client-individual")
        frame = sender.message()
        pages.go(f"/console/journey?id={id}")
        pages.until_text("A consumer has it: queue 'travels', connection")
        assert "act/move-msg" not in pages.browser.run("document.documentElement.outerHTML")
        sender.ack(frame)
        sender.sync()
    # The journal can be read when the segments with it are whole.
    told = [f'<th scope="row">{step}</th>' for step in ("acknowledged", "deleted")]

    def read() -> bool:
        text = page(served, "journey", id=id)
        return all(each in text for each in told)

    until(read, "the journal does not say all")
    pages.go(f"/console/journey?id={id}")
    steps = pages.browser.run(
        "[...document.querySelectorAll('tbody th')].map((one) => one.innerText)"
    )
    assert steps[0] == "produced"
    assert {"delivered", "acknowledged", "deleted"} <= {*steps}
    assert "It is nowhere at this broker." in pages.text()
    assert "private" not in pages.browser.run("document.documentElement.outerHTML")


def test_the_journey_of_a_dead_message_leads_to_its_replay(pages: Pages, served: Served) -> None:
    id = dead(served, "given.up", "x", colour="red")
    pages.go(f"/console/journey?id={id}")
    assert f"It is dead (UNDELIVERABLE), in queue {DEAD}." in pages.text()
    assert "refused by its consumer" in pages.text()
    assert "Edit and replay" in pages.text()
    assert "1 message was replayed." in pages.act("Replay")
    assert len(ids(served, "given.up")) == 1


def test_messages_are_found_by_property_time_and_destination(served: Served) -> None:
    sent(served, "found.one", "a", color="red")
    sent(served, "found.two", "b", color="red")
    sent(served, "found.two", "c", color="blue")
    with client(served, **{"client-id": "reader"}) as reader:
        reader.subscribe("/topic/found.news", **{"durable-subscriber-name": "all"})
    with client(served) as sender:
        sender.put("/topic/found.news", "d", color="red", persistent="true")
    red = "color = 'red'"
    one, two = ids(served, "found.one"), ids(served, "found.two")
    text = page(served, "search", search="1", selector=red)
    assert rows(text)[:2] == [one[0], two[0]]
    assert len(rows(text)) == 3
    assert "durable:reader:all" in text
    assert "3 found" in text
    assert rows(page(served, "search", search="1", destination="found.two")) == two
    of_topic = page(served, "search", search="1", destination="topic:found.news")
    assert rows(of_topic) == [rows(text)[2]]
    for bounds, count in (
        ({"from": "2000-01-01T00:00"}, 2),
        ({"to": "2000-01-01T00:00:01"}, 0),
        ({"from": "2100-01-01T00:00"}, 0),
        ({"from": "2000-01-01T00:00", "to": "2100-01-01T00:00"}, 2),
    ):
        found = page(served, "search", search="1", destination="queue:found.two", **bounds)
        assert len(rows(found)) == count, bounds
    listed = page(
        served, "search", search="1", destination="found.two", selector=red, to="2100-01-01T00:00"
    )
    assert (
        "imqcmd list msg -t q -n found.two -selector 'JMSTimestamp <= 4102444800000 AND (color = "
        in listed
    )


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"selector": "color ="}, "color ="),
        ({"from": "yesterday"}, "from is 'yesterday'; expected a time such as"),
        ({"destination": "queue:none.such"}, "there is no queue:none.such"),
        ({"destination": "what:ever"}, "expected queue:NAME or topic:NAME"),
        ({"after": "x"}, "after is not where a search has stopped"),
        ({"after": '["queue:gone", {}]'}, "after is not where a search has stopped"),
        ({"after": '["queue:gone", "waiting", 3]'}, "after is not where a search has stopped"),
        ({"after": '["queue:gone", "waiting", {}]'}, "queue:gone, where the search is to go on"),
    ],
    ids=str,
)
def test_a_search_that_cannot_be_is_refused_and_its_form_stays(
    served: Served, query: dict[str, str], text: str
) -> None:
    shown = page(served, "search", search="1", **query)
    assert re.search(rf'class="refused" role="alert">[^<]*{re.escape(text)}', shown), shown
    assert 'name="selector"' in shown


def test_paused_and_later_messages_are_found_with_their_states(
    pages: Pages, served: Served
) -> None:
    admin = Operator(served, "admin")
    later = {"AMQ_SCHEDULED_DELAY": "10000000", "color": "green"}
    with client(served) as sender:
        sender.put("/queue/states.paused", "a", color="green")
        sender.put("/queue/states.later", "b", "c", **later)
        sender.put("/topic/states.later", "d", **later)
        sender.put("/queue/states.again", "e", color="green")
        sender.subscribe("/queue/states.again", ack="client-individual")
        sender.settle("NACK", sender.message())
        sender.sync()
        form = {"type": "queue", "name": "states.paused", "pause": "CONSUMERS"}
        assert "Done." in admin.send("act/pause", **form).text
        green = {"search": "1", "selector": "color = 'green'"}
        pages.go(f"/console/search?{urlencode(green)}")
        cells = pages.browser.run(
            "[...document.querySelectorAll('tbody tr')].map((one) => "
            "[...one.querySelectorAll('td')].slice(0, 2).map((cell) => cell.innerText))"
        )
        told = sorted((place, re.sub(" at .*", "", state)) for place, state in cells)
        assert told == [
            ("queue:states.again", "pauses before it is delivered again"),
            ("queue:states.later", "is delivered"),
            ("queue:states.later", "is delivered"),
            ("queue:states.paused", "waits: it is paused"),
            ("topic:states.later", "is delivered"),
        ]
        assert "5 found, " in pages.text()
        # The same by destination, and after a time that none of them was sent at.
        for destination, count in (("queue:states.later", 2), ("topic:states.later", 1)):
            text = page(served, "search", destination=destination, **green)
            assert text.count("is delivered at") == count
        text = page(served, "search", **green, **{"from": "2100-01-01T00:00"})
        assert ", ".join(rows(text)) == ""


@on_reactor
async def test_a_search_among_those_of_later_goes_on_where_it_stopped(served: Served) -> None:
    with client(served) as sender:
        later = {"AMQ_SCHEDULED_DELAY": "10000000", "persistent": "true"}
        sender.put("/queue/much.later", *["x"] * 600, **later)
        sender.put("/queue/much.later", "y", persistent="true")
    served.gateway.restart()
    found: list[str] = []
    after, parts = "", 0
    while True:
        query = {"seconds": "0", "limit": "170", "destination": "much.later", "after": after}
        path = f"/v1/messages/search?{urlencode(query)}"
        answer = (await ask(served.port, "GET", path, who=("vera", "vera"))).json
        found += [f"{each['state']} {each['message_id']}" for each in answer["messages"]]
        after, parts = answer["next"], parts + 1
        if not after:
            break
    assert parts > 3
    assert [each.split()[0] for each in found] == ["waiting", *["scheduled"] * 600]
    assert len({*found}) == 601
    numbers = [int(each.rpartition("-")[2]) for each in found[1:]]
    assert numbers == sorted(numbers)


@on_reactor
async def test_the_seconds_of_a_search_are_a_number(served: Served) -> None:
    for given in ("nan", "-1", "1e3", "10.5", ""):
        path = f"/v1/messages/search?{urlencode({'seconds': given})}"
        reply = await ask(served.port, "GET", path, who=("vera", "vera"))
        assert reply.status == (400 if given else 200), given


@on_reactor
async def test_a_search_that_is_cut_up_finds_each_message_once(served: Served) -> None:
    """Also what is in the store only, and while messages come and go."""
    who = ("vera", "vera")
    with client(served) as sender:
        for queue in ("many.a", "many.b"):
            sender.put(f"/queue/{queue}", *["x" * 100] * 700, persistent="true")
            sender.put(f"/queue/{queue}", *["y"] * 5, priority="8", persistent="true")
    # What was there before is in the store only.
    served.gateway.restart()
    with client(served) as sender:
        sender.put("/queue/many.a", *["x"] * 20, persistent="true")
    wanted: list[str] = []
    for queue in ("many.a", "many.b"):
        reply = await ask(served.port, "GET", f"/v1/messages?name={queue}&limit=1000", who=who)
        wanted += [each["message_id"] for each in reply.json["messages"]]
    found: list[str] = []
    after, pages = "", 0
    while True:
        query = {"seconds": "0", "limit": "300", "selector": "JMSPriority > 0", "after": after}
        path = f"/v1/messages/search?{urlencode(query)}"
        answer = (await ask(served.port, "GET", path, who=who)).json
        found += [each["message_id"] for each in answer["messages"] if "many." in each["place"]]
        after, pages = answer["next"], pages + 1
        assert answer["looked_at"] <= 600
        if not after:
            break
        if pages < 3:
            sent(served, "between", "z")
    assert pages > 4
    assert found == wanted


def test_names_and_headers_of_clients_are_only_text(pages: Pages, served: Served) -> None:
    id = dead(served, f"q{EVIL}", "x", colour=EVIL, **{"correlation-id": EVIL})
    sent(served, f"r{EVIL}", "x", **{"correlation-id": EVIL})
    query = urlencode({"search": "1", "destination": f"queue:r{EVIL}", "selector": "TRUE"})
    for path in (f"/console/search?{query}", f"/console/journey?id={id}"):
        pages.go(path)
        pages.until_text(EVIL)
        assert "evil" not in pages.browser.run("document.title")
    assert pages.browser.console == []


def test_the_pages_are_accessible_and_fit_on_a_phone(pages: Pages, served: Served) -> None:
    sent(served, "seen", "x")
    for path in ("/console/search?search=1", f"/console/journey?id={ids(served, 'seen')[0]}"):
        for dark in (False, True):
            pages.go(path, dark=dark)
            assert pages.faults() == [], path
        pages.go(path, width=360)
        assert pages.browser.run("document.documentElement.scrollWidth") <= 360, path


def test_a_page_that_does_not_follow_has_no_stream(served: Served) -> None:
    otto = Operator(served, "otto")
    assert served.ask("/console/live/search?search=1", cookie=otto.cookie).status == 404
    assert "data-live" not in page(served, "search", search="1")
