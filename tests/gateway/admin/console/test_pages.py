"""The console's pages in Chromium, with a real gateway and real messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import Browser
from tests.gateway.admin.console.serving import EVIL, SHOP, Pages, Served, client, sent, serving
from tests.gateway.admin.console.test_messages import Operator

pytestmark = pytest.mark.process

#: So that a client may be late, and stays connected for the time of a test.
TOLERANCE = "imq.bridge.stomp.heartbeat.tolerance"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("console"), {"shop": SHOP}, {TOLERANCE: "20"}) as found:
        yield found


def test_a_log_in_with_the_keyboard_alone(chromium: Browser, served: Served) -> None:
    pages = Pages(chromium, served)
    chromium.forget_cookies()
    pages.go("/console/destinations", end="/console/login?to=%2Fconsole%2Fdestinations")
    assert chromium.run("document.activeElement.name") == "user"
    pages.fill(user="vera")
    chromium.press("Tab", 9)
    assert chromium.run("document.activeElement.name") == "password"
    pages.fill(password="vera")
    chromium.press("Enter", 13)
    # It goes to where it was wanted.
    chromium.until("location.pathname === '/console/destinations'")
    pages.ready()
    assert "vera (viewer)" in pages.text("header")
    pages.follow("Log out")
    chromium.until("location.pathname === '/console/login'")


def test_what_is_wrong_comes_and_goes_while_one_looks(pages: Pages, served: Served) -> None:
    pages.go("/console/")
    sent(served, "waits", "a", "b")
    pages.until_text("has no consumer: 2 messages wait")
    assert "imqcmd purge dst -t q -n waits" in pages.text()
    with client(served) as consumer:
        consumer.subscribe("/queue/waits", ack="client")
        held = consumer.messages(2)
        pages.browser.until("!document.querySelector('main').innerText.includes('Queue waits')")
        consumer.ack(held[-1])
    assert pages.browser.console == []


def test_destinations_are_found_and_sorted(pages: Pages, served: Served) -> None:
    sent(served, "many.one", *["x"] * 3)
    sent(served, "many.two", *["x"] * 5)
    pages.go("/console/destinations")
    pages.fill(text="MANY.")
    pages.follow("Show")
    pages.browser.until("location.search.includes('text=MANY.')")
    pages.ready()
    rows = pages.browser.run(
        "[...document.querySelectorAll('tbody th')].map((one) => one.innerText)"
    )
    assert rows == ["many.two", "many.one"]
    # What follows is the same part.
    sent(served, "many.one", *["x"] * 4)
    pages.browser.until("document.querySelector('tbody th').innerText === 'many.one'")
    assert pages.browser.run("document.querySelectorAll('tbody tr').length") == 2


def test_one_destination_has_its_consumers_and_rates(pages: Pages, served: Served) -> None:
    sent(served, "looked", *["x"] * 5)
    with client(served, **{"client-id": "shop"}) as consumer:
        consumer.subscribe("/queue/looked", ack="client", **{"prefetch-count": "2"})
        consumer.messages(2)
        pages.go("/console/destination?type=queue&name=looked")
        pages.until_text("shop")
        row = pages.text("tbody tr").split("\t")
        assert (row[1], row[5], row[6]) == ("guest", "0", "2")
        assert "queue 'looked'" in pages.text(".causes")
        pages.browser.until("document.querySelector('.chart').dataset.drawn === 'yes'")
        assert pages.browser.run("document.querySelectorAll('.chart canvas').length") == 1
    assert pages.browser.console == []


def test_an_action_asks_and_shows_the_command(pages: Pages, served: Served) -> None:
    sent(served, "purged", "red", color="red")
    sent(served, "purged", "blue", color="blue")
    pages.go("/console/destination?type=queue&name=purged")
    pages.follow("Purge")
    pages.browser.until("document.querySelector('dialog').open")
    assert "Give up what waits in queue purged?" in pages.text("dialog")
    assert "imqcmd purge dst -t q -n purged" in pages.text("dialog")
    # Escape does nothing but close it, and the page is where it was.
    pages.browser.press("Escape", 27)
    pages.browser.until("!document.querySelector('dialog').open")
    assert pages.browser.run("document.activeElement.innerText") == "Purge"
    told = pages.act("Purge", selector="color = 'red'")
    assert "1 message was purged." in told
    assert """imqcmd purge dst -t q -n purged -selector 'color = '"'"'red'"'"''""" in told
    with client(served) as consumer:
        assert consumer.left("/queue/purged") == ["blue"]


def test_a_destination_is_made_paused_limited_and_destroyed(pages: Pages, served: Served) -> None:
    pages.go("/console/destinations")
    assert "queue made is created." in pages.act("Create a destination", name="made")
    pages.go("/console/destination?type=queue&name=made")
    pages.act("Pause", pause="CONSUMERS")
    pages.until_text("CONSUMERS_PAUSED")
    pages.act("Resume")
    pages.until_text("RUNNING")
    assert "imqcmd update dst -t q -n made -o maxNumMsgs=7" in pages.act(
        "Change limits", maxNumMsgs="7"
    )
    pages.until_text("7", ".properties")
    refused = pages.act("Change limits", maxNumMsgs="many")
    assert "maxNumMsgs" in refused
    pages.follow("Destroy")
    pages.browser.until("document.querySelector('dialog').open")
    pages.confirm()
    pages.until_text("It is destroyed.", "dialog")
    pages.follow("Close")
    pages.browser.until("location.pathname === '/console/destinations'")


def test_a_dialog_says_what_is_gone_meanwhile(pages: Pages, served: Served) -> None:
    sent(served, "going", "x")
    pages.go("/console/destination?type=queue&name=going")
    pages.follow("Destroy")
    pages.browser.until("document.querySelector('dialog').open")
    assert Operator(served, "otto").send("act/destroy", type="queue", name="going").status == 200
    pages.confirm()
    pages.until_text("there is no queue 'going'", "dialog")
    pages.close_dialog()


def test_names_of_clients_are_only_text(pages: Pages, served: Served) -> None:
    with client(served, **{"client-id": EVIL}) as sender:
        sender.put(f"/queue/{EVIL}", "x")
        sender.subscribe(f"/queue/{EVIL}", id=EVIL, ack="client", selector=f"a = '{EVIL[:20]}'")
        pages.go("/console/destinations?text=onerror")
        pages.until_text("<img src=x onerror=")
        pages.follow(EVIL)
        pages.until_text("Consumers")
        pages.browser.until("location.pathname === '/console/destination'")
        pages.ready()
        pages.until_text(EVIL, "h1")
        pages.until_text(EVIL, "tbody")
        pages.follow("Purge")
        pages.browser.until("document.querySelector('dialog').open")
        pages.until_text(EVIL, "dialog")
        pages.go("/console/")
        assert pages.browser.run("document.title") == "Now – stomp-gateway"
        assert pages.browser.console == []


def test_links_show_their_state_and_obey(pages: Pages, served: Served) -> None:
    sent(served, "shop.in", "a", "b")
    pages.go("/console/bridges")
    pages.until_text("2 moved")
    pages.until_text("RETRYING")
    assert "shop.in" in pages.text(".links")
    assert pages.browser.run("document.querySelectorAll('.links .causes').length") == 1
    pages.browser.run("document.getElementById('act-pause-link-shop-moving').focus()")
    pages.browser.press("Enter", 13)
    pages.browser.until("document.querySelector('dialog').open")
    assert "imqbridgemgr pause link -bn shop -ln moving" in pages.text("dialog")
    pages.confirm()
    pages.until_text("It is PAUSED.", "dialog")
    pages.follow("Close")
    pages.browser.until("document.getElementById('act-resume-link-shop-moving') !== null")
    pages.go("/console/")
    pages.until_text("Link moving of shop")
    pages.go("/console/bridges?name=shop")
    pages.browser.run("document.getElementById('act-resume-link-shop-moving').focus()")
    pages.browser.press("Enter", 13)
    pages.browser.until("document.querySelector('dialog').open")
    pages.confirm()
    pages.until_text("It is STARTED.", "dialog")


def test_a_connection_says_what_it_holds_and_is_ended(pages: Pages, served: Served) -> None:
    sent(served, "held", "a", "b")
    with client(served, **{"client-id": "holder"}) as consumer:
        consumer.subscribe("/queue/held", ack="client")
        consumer.messages(2)
        pages.go("/console/connections?text=HOLDER")
        cells = pages.text("tbody tr").split("\t")
        assert (cells[1], cells[2]) == ("guest", "holder")
        assert cells[6].endswith(" ago")
        assert cells[11].startswith("2 for ")
        pages.follow(cells[0])
        pages.browser.until("location.pathname === '/console/connection'")
        pages.ready()
        number = cells[0]
        pages.follow("Destroy")
        pages.browser.until("document.querySelector('dialog').open")
        assert f"imqcmd destroy cxn -n {number}" in pages.text("dialog")
        pages.confirm()
        pages.until_text("It is ended.", "dialog")
        assert "an administrator has ended the connection" in consumer.frame()["message"]
        pages.follow("Close")
        pages.browser.until("location.pathname === '/console/connections'")


def test_a_late_connection_is_told_with_its_subscriptions(pages: Pages, served: Served) -> None:
    sent(served, "late.held", "a", "b", "c")
    cookie = served.log_in("vera")
    beats = {"client-id": "sleepy", "heart-beat": "2000,0"}
    with client(served, **beats) as consumer:
        consumer.subscribe(
            "/topic/news", id="red", ack="client-individual", selector="colour = 'red'"
        )
        consumer.subscribe("/queue/late.*", id="all", ack="client", **{"prefetch-count": "5"})
        consumer.messages(3)
        pages.go("/console/connections?text=sleepy")
        pages.until_text("LATE", "tbody")
        pages.follow(pages.text("tbody th"))
        pages.browser.until("location.pathname === '/console/connection'")
        pages.ready()
        pages.until_text("LATE")
        assert "each 2\u202f000 ms" in pages.text()
        rows = pages.browser.run(
            "[...document.querySelectorAll('tbody tr')].map((one) => [...one.children].map((cell) => cell.innerText))"
        )
        by_id = {row[1]: row for row in rows}
        assert by_id["all"][0] == "queue:late.*"
        assert (by_id["all"][4], by_id["all"][5], by_id["all"][6]) == ("client", "2", "3")
        assert by_id["all"][7].endswith(" s")
        assert (by_id["red"][0], by_id["red"][3], by_id["red"][4]) == (
            "topic:news",
            "colour = 'red'",
            "client-individual",
        )
        assert (by_id["red"][6], by_id["red"][7]) == ("0", "–")
        assert pages.faults() == []
        # One frame, and it is not late.
        consumer.sync()
        assert "LATE" not in served.ask("/console/connections?text=sleepy", cookie=cookie).text


def test_dead_messages_are_grouped_looked_at_and_replayed(pages: Pages, served: Served) -> None:
    sent(served, "shop.bad", "secret <b>one</b>", "two")
    with client(served) as consumer:
        consumer.put("/queue/refused", "three")
        consumer.subscribe("/queue/refused", ack="client-individual")
        consumer.settle("NACK", consumer.message(), requeue="false")
        consumer.sync()
    pages.go("/console/dead")
    pages.browser.until("document.querySelectorAll('tbody tr').length === 2")
    text = pages.text("tbody")
    assert text.index("queue:shop.bad") < text.index("queue:refused")
    assert "I want none of these" in text
    # Those of bridges and of the broker are counted alike.
    pages.go("/console/")
    pages.until_text("Dead messages\n3\n", "#figures")
    pages.go("/console/dead")
    # One of them: what it says is hidden until it is asked for.
    pages.browser.run("document.querySelector('tbody [aria-label^=\"1: message\"]').click()")
    pages.browser.until("location.pathname === '/console/message'")
    pages.ready()
    assert "I want none of these" in pages.text()
    assert "secret" not in pages.browser.run("document.documentElement.outerHTML")
    pages.follow("Show the body")
    pages.browser.until("document.querySelector('dialog').open")
    pages.confirm()
    pages.until_text("secret <b>one</b>", "dialog pre")
    pages.follow("Close")
    there = f"http://127.0.0.1:{served.port}/v1/message/body"
    assert f"did in the console: curl -u USER -G {there} --data-urlencode" in served.log()
    assert "secret" not in served.log()
    # A plan first, which changes nothing.
    pages.go("/console/dead")
    pages.follow("Replay")
    pages.browser.until("document.querySelector('dialog').open")
    pages.until_text("It would take 2 of 2 messages.", "dialog")
    pages.fill(to="queue:again", limit="1")
    pages.follow("Look what it would do")
    pages.until_text("It would take 1 of 1 messages.", "dialog")
    pages.until_text("-to queue:again -limit 1", "dialog")
    pages.confirm()
    pages.until_text("1 message was replayed.", "dialog")
    with client(served) as consumer:
        assert consumer.left("/queue/again") == ["secret <b>one</b>"]


def test_messages_of_a_queue_are_browsed(pages: Pages, served: Served) -> None:
    sent(served, "browsed", "one", color=EVIL)
    sent(served, "browsed", "two", color="blue")
    pages.go("/console/messages?name=browsed")
    assert pages.browser.run("document.querySelectorAll('tbody tr').length") == 2
    pages.browser.run("document.querySelector('tbody a').click()")
    pages.browser.until("location.pathname === '/console/message'")
    pages.ready()
    pages.until_text(EVIL)
    assert pages.browser.run("document.querySelectorAll('.causes').length") == 1
    pages.go("/console/messages?name=browsed&selector=color%20%3D%20%27blue%27")
    assert pages.browser.run("document.querySelectorAll('tbody tr').length") == 1
    pages.go("/console/messages?name=browsed&selector=color%20%3D")
    assert pages.browser.run("document.querySelectorAll('.refused').length") == 1
    assert pages.browser.run("document.title") == "Messages of browsed – stomp-gateway"


def test_the_map_draws_each_link_and_leads_to_its_page(pages: Pages, served: Served) -> None:
    sent(served, "shop.bad", "a")
    pages.go("/console/bridges")
    columns = pages.browser.run(
        "[...document.querySelectorAll('.map .place .name')].map((one) => one.textContent)"
    )
    assert columns == ["This broker", "there"]
    arrow = "document.getElementById('map-shop/failing')"
    pages.browser.until(f"/[1-9] dead [+] 0 not transferred/.test({arrow}.textContent)")
    assert "STARTED" in pages.browser.run(f"{arrow}.textContent")
    # What follows is drawn, too: a paused link has another mark and line.
    there = "document.getElementById('map-shop/away')"
    looks = f"[{there}.querySelector('.mark').localName, getComputedStyle({there}.querySelector('.way')).strokeDasharray]"
    assert pages.browser.run(looks) == ["path", "9px, 5px"]
    otto = Operator(served, "otto")
    assert "PAUSED" in otto.send("act/pause-link", bridge="shop", link="away").text
    pages.browser.until(f"{there}.textContent.includes('PAUSED')")
    assert pages.browser.run(looks) == ["rect", "2px, 5px"]
    assert pages.browser.run(f"{there}.namespaceURI") == "http://www.w3.org/2000/svg"
    otto.send("act/resume-link", bridge="shop", link="away")
    # By the keyboard alone, from the region that may be scrolled.
    pages.browser.run("document.querySelector('.map [role=region]').focus()")
    for _ in range(2):
        pages.browser.press("Tab", 9)
    assert pages.browser.run("document.activeElement.id") == "map-shop/failing"
    heard = pages.browser.run("document.activeElement.ariaLabel")
    assert "shop: failing STARTED" in heard
    assert "From this broker to this broker" in heard
    pages.browser.press("Enter", 13)
    pages.browser.until("location.pathname === '/console/link'")
    pages.ready()
    rows = pages.browser.run(
        "[...document.querySelectorAll('.balance tbody tr')].map((one) => [...one.children].slice(0, 2).map((cell) => cell.innerText))"
    )
    assert [row[0] for row in rows] == [
        *("In", "Out", "Dead", "Not transferred", "In doubt", "Held"),
        *("Difference", "Possibly twice"),
    ]
    assert (rows[0][1], rows[2][1], rows[6][1]) == (rows[2][1], rows[0][1], "0")
    assert "imqbridgemgr query link -bn shop -ln failing" in pages.text()
    # On a phone the list has all of that.
    pages.go("/console/bridges", width=360)
    assert pages.browser.run("getComputedStyle(document.querySelector('.map')).display") == "none"
    assert "dead + 0 not transferred + 0 in doubt + 0 held; difference 0" in pages.text(".links")


PATHS = [
    "/console/dead",
    "/console/messages?name=seen",
    "/console/",
    "/console/destinations",
    "/console/bridges",
    "/console/link?bridge=shop&link=failing",
    "/console/connections",
    "/console/destination?type=queue&name=seen",
]


def test_pages_are_accessible_in_light_and_dark(pages: Pages, served: Served) -> None:
    sent(served, "seen", "x")
    for path in PATHS:
        for dark in (False, True):
            pages.go(path, dark=dark)
            assert pages.faults() == [], path
    pages.follow("Purge")
    pages.browser.until("document.querySelector('dialog').open")
    assert pages.faults() == []


def test_pages_fit_on_a_phone(pages: Pages) -> None:
    for path in PATHS:
        pages.go(path, width=360)
        assert pages.browser.run("document.documentElement.scrollWidth") <= 360, path


def test_nothing_comes_from_elsewhere(pages: Pages, served: Served) -> None:
    pages.go("/console/")
    assert pages.browser.requests
    for address in pages.browser.requests:
        assert address.startswith(f"http://127.0.0.1:{served.port}/console/"), address


def test_a_stream_ends_with_its_session(pages: Pages) -> None:
    pages.go("/console/")
    # The stream is open when the page has followed once.
    at = pages.browser.run("document.getElementById('figures').dataset.at")
    pages.browser.until(f"document.getElementById('figures').dataset.at !== '{at}'")
    # The page is led away before there is an answer.
    pages.browser.run(
        "(fetch('/console/logout', {method: 'POST', body: new URLSearchParams(new FormData(document.querySelector('.who')))}), 0)"
    )
    pages.browser.until("location.pathname === '/console/login'")


def test_a_page_that_comes_back_into_sight_leads_to_the_log_in(pages: Pages) -> None:
    """Its session has ended while it was hidden, and did not follow."""
    pages.go("/console/")
    pages.browser.run(
        """(async () => {
          Object.defineProperty(document, 'hidden', {value: true, configurable: true});
          document.dispatchEvent(new Event('visibilitychange'));
          await fetch('/console/logout', {method: 'POST', body: new URLSearchParams(new FormData(document.querySelector('.who')))});
          delete document.hidden;
          document.dispatchEvent(new Event('visibilitychange'));
        })()"""
    )
    pages.browser.until("location.pathname === '/console/login'")


def test_a_screenshot_can_be_taken(pages: Pages, tmp_path: Path) -> None:
    pages.go("/console/", dark=True)
    assert pages.browser.picture(tmp_path / "now.png").stat().st_size > 10_000
