"""Take the pictures of ``docs/screenshots``.

They show the console's pages and a report, in light and dark. A gateway runs for them, with bridges, clients and messages. Beside the pictures of each page is a
record of how it is built: its landmarks, headings, columns, links and buttons. Tests build the pages
again and compare that, not pixels.

Run it after a page has changed: ``.venv/bin/python docs/screenshots.py``. It needs Chromium, and Java
for the report; names of views as arguments take those only.
"""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image

from benchmarks.process import end_with_parent
from tests.chromium import Browser, browser
from tests.gateway.admin.console.serving import SHOP, Pages, Served, client, serving
from tests.gateway.admin.test_transactions import DOUBT, prepare
from tests.gateway_process import INSTANCE, ROOT, free_port

FOLDER: Final = Path(__file__).parent / "screenshots"
#: The views of the console: a path, which may name what :func:`places` finds, and a text that is there
#: when all is.
VIEWS: Final = {
    "now": ("/console/", "has no consumer"),
    "destinations": ("/console/destinations", "shop.out"),
    "destination": ("/console/destination?type=queue&name=invoices", "billing"),
    "bridges": ("/console/bridges", "40 moved"),
    "link": ("/console/link?bridge=shop&link=failing", "3 messages of link"),
    "dead": ("/console/dead", "I want none of these"),
    "connections": ("/console/connections", "billing"),
    "connection": ("/console/connection?id={connection}", "queue:invoices"),
    "search": ("/console/search?search=1&selector=TRUE&destination=orders", "50 found"),
    "journey": ("/console/journey?id={dead}", "produced"),
    "message": ("/console/message?name=mq.sys.dmq&id={dead}", "UNDELIVERABLE"),
    "transactions": ("/console/transactions", "HEURISTIC"),
    "traces": ("/console/traces?id=1", "acknowledged"),
    "try": ("/console/try?destination=/queue/tried", "Frames"),
    "administration": (
        "/console/administration?user=guest&operation=produce&type=queue&destination=orders",
        "queue.*.produce.allow.user=*",
    ),
    "messages": ("/console/messages?name=mq.sys.dmq", "UNDELIVERABLE"),
}
#: A listener for the client in the page.
WEB: Final = "imq.bridge.stomp.listener.web"
REPORT: Final = "journeys"
WIDTH: Final = 1_080
#: Of the window, so that a short page has a small picture.
LOW: Final = 400
#: Of a long page the upper part is shown.
HEIGHT: Final = 1_300
#: Of these more or less, as what matters is below, or all rows are alike.
HEIGHTS: Final = {"try": 1_750, "search": 900}
COLOURS: Final = 255

#: How a page is built, without what changes with its figures.
STRUCTURE: Final = """(() => {
  const numbered = (text) => text.replace(/ID-[0-9a-f]+-\\d+/g, 'ID').replace(/connection \\d+/gi, 'connection');
  const plain = (one) => numbered(one.textContent.replace(/\\s+/g, ' ').trim());
  const all = (what, where) => [...(where || document).querySelectorAll(what)];
  const shown = (what) => [...new Set(all(what).map(plain))];
  return {
    title: numbered(document.title),
    landmarks: all('header, nav, main, footer').map((one) =>
      one.localName + (one.ariaLabel ? ' ' + one.ariaLabel : '')),
    views: shown('nav a'),
    headings: all('h1, h2, h3').map((one) => one.localName + ' ' + plain(one)),
    columns: all('table').map((one) => all('thead th', one).map(plain)),
    buttons: shown('button, a.button'),
    fields: [...new Set(all('input, select').map((one) => one.name).filter((one) => one))],
  };
})()"""


@contextmanager
def shop(folder: Path) -> Iterator[Served]:
    """A gateway with messages that wait, that are moved, and that are dead.

    It has transactions that wait, too, those of a bridge and one of the broker, and a trace.
    """
    instance = folder / "var/instances" / INSTANCE
    prepare(instance)
    prepare_branch(instance / "store")
    settings = {
        "imq.journal.level": "all",
        "imq.journal.segment.age": "1",
        f"{WEB}.port": str(free_port()),
        f"{WEB}.ws": "true",
    }
    with (
        serving(folder, {"shop": SHOP, "doubt": DOUBT}, settings) as served,
        traced(served, "queue:invoices"),
        client(served, **{"client-id": "billing"}) as consumer,
        client(served) as sender,
    ):
        sender.put("/queue/orders", *(f"order {number}" for number in range(120)))
        sender.put("/queue/invoices", *(f"invoice {number}" for number in range(35)))
        sender.put("/queue/shop.in", *(f"order {number}" for number in range(40)))
        sender.put("/queue/shop.bad", "order A", "order B", "order C")
        sender.put("/queue/refused", "order X")
        consumer.subscribe("/queue/refused", id="refused", ack="client-individual")
        consumer.settle("NACK", consumer.message(), requeue="false")
        consumer.subscribe(
            "/queue/invoices", id="invoices", ack="client", **{"prefetch-count": "20"}
        )
        consumer.ack(consumer.messages(20)[9])
        consumer.sync()
        sender.sync()
        yield served


def prepare_branch(store: Path) -> None:
    """Leave a prepared branch whose coordinator is lost."""
    store.mkdir(parents=True)
    command = ("-m", "tests.crash.xa_child", str(store), "broker.before-submit:3", "admin")
    subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, check=False)


@contextmanager
def traced(served: Served, destination: str) -> Iterator[None]:
    """Follow a destination, longer than the block lasts."""
    cookie = served.log_in("otto")
    form = {"csrf": served.token(cookie), "destination": destination, "seconds": "300"}
    reply = served.ask("/console/act/trace-destination", form, cookie=cookie)
    assert "is under way." in reply.text, reply
    yield


def places(served: Served) -> dict[str, str]:
    """Return what paths name: a connection, and a dead message."""
    cookie = served.log_in("vera")

    def found(path: str, what: str) -> str:
        text = html.unescape(served.ask(path, cookie=cookie).text)
        match = re.search(what, text)
        assert match is not None, path
        return match[1]

    return {
        "connection": found("/console/connections?text=billing", r"connection\?id=(\d+)"),
        "dead": found("/console/messages?name=mq.sys.dmq", r"message\?[^\"]*id=([^\"&]+)"),
    }


def tried(pages: Pages) -> None:
    """Use the client in the page."""

    def fill(**values: str) -> None:
        for id, value in values.items():
            place = f"document.getElementById({json.dumps(id.replace('_', '-'))})"
            pages.browser.run(f"({place}.value = {json.dumps(value)}, 0)")

    fill(user="guest", passcode="guest")
    pages.follow("Connect")
    pages.until_text("Connected as guest.", "#state")
    fill(ack="client-individual")
    pages.follow("Subscribe")
    pages.until_text("/queue/tried", "#subscriptions")
    fill(headers="color: red", body="A first order")
    pages.follow("Send")
    pages.until_text("is confirmed.", "#state")
    pages.until_text("A first order", "#frames")


def structure(page: Browser) -> Any:
    """Return how the page in the browser is built."""
    return page.run(STRUCTURE)


def views(pages: Pages, names: Sequence[str] = tuple(VIEWS)) -> Iterator[tuple[str, bool]]:
    """Show each view in light and dark.

    :returns: its name, and whether it is dark.
    """
    known = places(pages.served)
    for name in names:
        path, text = VIEWS[name]
        for dark in (False, True):
            pages.go(path.format_map(known), width=WIDTH, dark=dark)
            pages.until_text(text)
            if name == "try":
                tried(pages)
            yield name, dark


def take(page: Browser, name: str, *, dark: bool) -> None:
    """Write the picture of a page, and the record of how it is built."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Image.open(BytesIO(page.picture(Path(folder, "page.png")).read_bytes()))
        part = whole.convert("RGB").crop(
            (0, 0, whole.width, min(whole.height, HEIGHTS.get(name, HEIGHT)))
        )
        file = FOLDER / f"{name}-{'dark' if dark else 'light'}.png"
        part.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    record = json.dumps(structure(page), indent=2, ensure_ascii=False) + "\n"
    FOLDER.joinpath(f"{name}.json").write_text(record, encoding="utf-8")


def report(served: Served, folder: Path) -> Path:
    """End a gateway, and return the report of its messages' journeys."""
    served.gateway.signal(signal.SIGTERM)
    served.gateway.wait()
    pipeline("journeys", served.gateway.directory / "journal", "--report", folder)
    return folder / f"{REPORT}.html"


def pipeline(*arguments: str | Path) -> None:
    """Run a job of the pipeline, which ends with this process."""
    program = "import sys; from pipeline.command import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=end_with_parent,
    )


def main(wanted: Sequence[str]) -> None:
    """Take the pictures of these views, or of all."""
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        served = ending.enter_context(shop(folder / "gateway"))
        page = ending.enter_context(browser(folder / "browser", here=True))
        pages = Pages(page, served)
        pages.log_in("admin")
        for name, dark in views(pages, [name for name in VIEWS if name in wanted]):
            page.resize(WIDTH, LOW)
            page.until("[...document.querySelectorAll('.chart')].every((one) => one.dataset.drawn)")
            take(page, name, dark=dark)
        if REPORT in wanted:
            made = report(served, folder / "reports")
            reader = ending.enter_context(browser(folder / "reader"))
            for dark in (False, True):
                reader.open(made, width=WIDTH, height=LOW, dark=dark)
                take(reader, REPORT, dark=dark)


if __name__ == "__main__":
    # Ends what was started, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    main(sys.argv[1:] or [*VIEWS, REPORT])
