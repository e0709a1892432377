"""The pages that the jobs write with ``--report``, of a journal with a known truth and of a real
queue, opened in a browser.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lxml.html
import pytest

from pipeline.command import main
from tests.chromium import opened
from tests.gateway_process import ROOT
from tests.pipeline.delivery_steps import LINKS, QUEUES, TOOK, write_steps
from tests.pipeline.generated import Truth, write_journal
from tests.pipeline.graveyard import BROKER_DMQ, Graveyard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: With it some messages die, some expire, and some are redelivered.
SEED = 20


@dataclass(frozen=True)
class Written:
    """A journal, its truth, and the table that ingest has made of it, with its report."""

    truth: Truth
    table: Path
    folder: Path


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("reports")
    truth = write_journal(folder / "journal", 4_000, seed=SEED, queues=5)
    table = folder / "events"
    assert (
        main(
            [
                "ingest",
                "--journal",
                str(folder / "journal"),
                "--into",
                str(table),
                "--report",
                str(folder / "reports"),
            ]
        )
        == 0
    )
    return Written(truth, table, folder / "reports")


class Page:
    """What the browser makes of a report."""

    def __init__(self, path: Path, folder: Path) -> None:
        page = opened(path, folder)
        assert (page.console, page.requests) == ([], [])
        self.document: Any = lxml.html.document_fromstring(page.dom)

    @property
    def figures(self) -> dict[str, int]:
        names, values = (
            self.document.xpath(f"//dl[@class='figures']//{kind}/text()") for kind in ("dt", "dd")
        )
        return {
            name: int(value.replace(",", "")) for name, value in zip(names, values, strict=True)
        }

    @property
    def headings(self) -> list[str]:
        return [str(text) for text in self.document.xpath("//h2/text()")]

    def drawn(self, heading: str) -> str:
        """What is told of the drawing below a heading."""
        [told] = self.document.xpath(
            f"//section[h2[text()='{heading}']]//*[local-name()='desc']/text()"
        )
        return str(told)

    def rows(self, heading: str) -> list[tuple[str, ...]]:
        found = self.document.xpath(f"//section[h2[text()='{heading}']]//tbody/tr")
        return [tuple(cell.text or "" for cell in row.xpath("td")) for row in found]


def test_of_ingest(written: Written, tmp_path: Path) -> None:
    page = Page(written.folder / "ingest.html", tmp_path)
    assert (page.figures["events"], page.figures["damaged lines"]) == (written.truth.events, 0)
    [by_destination] = [
        heading
        for heading in page.headings
        if heading.startswith("Events per ") and "destination" in heading
    ]
    counted = page.rows(by_destination)
    assert sum(int(row[2].replace(",", "")) for row in counted) == written.truth.events
    assert len({row[0] for row in counted}) <= 200
    assert len(written.truth.destinations) == 8
    assert len({row[1] for row in counted}) == 8
    assert "others" in {row[1] for row in counted}
    assert page.drawn(by_destination).startswith("Bar chart of events")
    assert sum(int(row[1].replace(",", "")) for row in page.rows("Batches")) == written.truth.events


def test_of_journeys(written: Written, tmp_path: Path) -> None:
    assert main(["journeys", str(written.table), "--report", str(written.folder)]) == 0
    page = Page(written.folder / "journeys.html", tmp_path)
    truth = written.truth
    assert page.figures["journeys"] == truth.journeys
    assert page.figures["lost"] == truth.outcomes["lost"]
    assert page.figures["redelivered"] == len(truth.redelivered)
    assert {row[0]: int(row[1].replace(",", "")) for row in page.rows("Outcomes")} == truth.outcomes
    latency = "Latency by destination, from the first step to the last"
    assert page.drawn(latency).startswith(
        "Range plot of p50_ms, p90_ms, p99_ms in ms by destination"
    )
    assert {row[0] for row in page.rows(latency)} <= set(truth.destinations)
    assert page.drawn("The slowest journeys, one of each destination").startswith(
        "Time line of 4 journeys. ID:7-"
    )
    assert [
        row[0]
        for row in page.rows("Latency by link, from received by a link to durable at its target")
    ] == ["bridge/lake"]


def test_each_delivery_step_is_counted_and_timed(spark: SparkSession, tmp_path: Path) -> None:
    """Those two, too, that journeys leave out: 5 and 10."""
    flowing = write_steps(tmp_path / "journal", 200)
    assert main(["journeys", str(flowing.journal), "--report", str(tmp_path / "reports")]) == 0
    page = Page(tmp_path / "reports" / "journeys.html", tmp_path)
    everything = flowing.messages * len(QUEUES)
    rows = {row[0]: row for row in page.rows("The flow of messages")}
    assert list(rows) == [*map(str, range(1, 11)), *"abcd", "i"]
    assert {rows[str(step)][3] for step in range(1, 11)} == {str(everything)}
    since = {"3": "stored", "4": "confirmed", "5": "routed", "6": "delivered"}
    since |= {"8": "acknowledged", "9": "deleted", "10": "acknowledgement confirmed"}
    for number, step in since.items():
        # Of every fiftieth message it took longer, so the 99th percentile is of one of those.
        assert [int(value) for value in rows[number][5:8]] == [*TOOK[step], TOOK[step][1]]
    assert rows["1"][5:] == rows["7"][5:] == ("", "", "")
    # What is drawn is the same, within what the page says.
    drawn = {
        card.get("data-step"): [
            text.replace(",", "") for text in card.xpath(".//p/b/text() | .//p/span/b/text()")
        ]
        for card in page.document.xpath("//li[@data-step]")
    }
    assert list(drawn) == list(rows)
    assert {drawn[str(step)][0] for step in range(1, 11)} == {str(everything)}
    for number, step in since.items():
        found = [float(text.split()[0]) for text in drawn[number][1:]]
        assert found == pytest.approx(TOOK[step], rel=0.06)
    # The picture in the documentation is of such a page.
    kept = json.loads((ROOT / "docs" / "screenshots" / "journeys.json").read_text())
    pictured = {each.removeprefix("h2 ") for each in kept["headings"] if each.startswith("h2 ")}
    timed = re.compile(r"(?<=Messages per )\w+|(?<=Latency by )(?:second|minute|hour|day)")
    pictured, here = (
        {timed.sub("time", each) for each in found} for found in (pictured, set(page.headings))
    )
    # Those of outcomes are there where there are such messages.
    outcomes = {"Lost", "Slow", "Dead", "Redelivered"}
    assert pictured - outcomes == here - outcomes
    # The links, of which the rows say it in numbers.
    links = {row[1]: row for row in page.rows("Links, and what became of their messages") if row[2]}
    assert set(links) == set(LINKS)
    for link, (source, target, count, lost, dead, late) in LINKS.items():
        assert links[link][:3] == (source, link, target)
        assert links[link][3:6] == (str(count - lost - dead), str(late), str(count - lost - dead))
    told = page.drawn("Links, and what became of their messages")
    assert "queue:orders.out to lake/orders to queue:lake: 241 delivered, 9 late" in told
    assert "queue:orders.out to erp/orders to (none): 6 lost" in told
    assert "queue:stock to erp/stock to (none): 4 dead" in told


def test_of_one_journey(written: Written, tmp_path: Path) -> None:
    message = min(written.truth.redelivered, key=lambda name: (len(name), name))
    assert (
        main(
            [
                "journeys",
                str(written.table),
                "--message",
                message,
                "--report",
                str(written.folder / "one"),
            ]
        )
        == 0
    )
    page = Page(written.folder / "one" / "journeys.html", tmp_path)
    steps = [row[1] for row in page.rows("Steps")]
    assert steps[:6] == ["produced", "stored", "confirmed", "delivered", "returned", "redelivered"]
    told = page.drawn("Steps")
    assert told.startswith("Time line of 1 journey. produced at 2026-03-0")
    assert all(f"{step} after " in told for step in steps[1:])


def test_of_dead_letters(written: Written, tmp_path: Path) -> None:
    assert main(["dead-letters", str(written.table), "--report", str(written.folder)]) == 0
    page = Page(written.folder / "dead-letters.html", tmp_path)
    truth = written.truth.outcomes
    assert page.figures["dead messages"] == truth["dead"] + truth["expired"]
    by_reason = {
        row[0]: int(row[1].replace(",", "")) for row in page.rows("Dead messages by reason")
    }
    assert sum(by_reason.values()) == truth["dead"] + truth["expired"]
    assert len(by_reason) > 1
    assert page.drawn("Dead messages by reason").startswith("Bar chart of messages")
    [per_time] = [heading for heading in page.headings if heading.startswith("Dead messages per ")]
    assert sum(int(row[2]) for row in page.rows(per_time)) == truth["dead"] + truth["expired"]


def test_of_reconcile(written: Written, tmp_path: Path) -> None:
    assert main(["reconcile", str(written.table), "--report", str(written.folder)]) == 1
    page = Page(written.folder / "reconcile.html", tmp_path)
    assert page.figures["in doubt"] == written.truth.outcomes["in doubt"]
    findings = {row[0]: row[1] for row in page.rows("What does not agree")}
    assert findings["in doubt"] == str(written.truth.outcomes["in doubt"])
    assert set(findings) == {"lost", "in doubt", "doubled", "reordered", "altered", "late"}
    assert len(page.rows("In doubt")) == written.truth.outcomes["in doubt"]
    linked = page.drawn("Links, and what became of their messages")
    assert f"{written.truth.outcomes['in doubt']} in doubt" in linked
    assert "agree" in page.document.xpath("//dl[1]//dd/text()")[0]


def test_of_an_archive_and_of_nothing_dead(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    connection = graveyard.connection().options
    options = [
        "--port",
        connection["port"],
        "--login",
        connection["login"],
        "--passcode-file",
        connection["passcodeFile"],
    ]
    graveyard.emptied("kept")
    with graveyard.client() as client:
        for number in range(3):
            client.store("/queue/kept", b"<script>" * number)
    reports = tmp_path / "reports"
    assert (
        main(["archive", "kept", str(tmp_path / "archive"), "--report", str(reports), *options])
        == 0
    )
    page = Page(reports / "archive.html", tmp_path)
    assert page.figures == {"messages added": 3}
    assert [
        sum(int(row[1]) for row in page.rows(f"{what} per second"))
        for what in ("Messages", "Octets")
    ] == [3, 24]
    graveyard.emptied("kept")
    assert main(["dead-letters", "--queue", "mq.sys.dmq", "--report", str(reports), *options]) == 0
    page = Page(reports / "dead-letters.html", tmp_path)
    assert page.document.xpath("//p[@class='empty']/text()") == [
        "There is nothing to show: no rows were found."
    ]
    assert page.headings == ["What was asked for"]
    assert connection["passcodeFile"] in page.document.body.text_content()


def test_of_a_replay(spark: SparkSession, graveyard: Graveyard, tmp_path: Path) -> None:
    graveyard.refused(
        "shop<script>", [b"one", b"two"], **{"customer": "<img src=x onerror=alert(1)>"}
    )
    graveyard.refused("till", [b"three"])
    reports, ledger = tmp_path / "reports", str(tmp_path / "ledger")
    words = ["replay", "--ledger", ledger]
    looking = [*words, *graveyard.arguments(), "--queue", BROKER_DMQ, "--report", str(reports)]
    assert main([*looking, "--plan", str(tmp_path / "plan")]) == 0
    page = Page(reports / "replay.html", tmp_path)
    assert (page.figures["chosen"], page.figures["to be sent"]) == (3, 3)
    expected = [("queue:shop<script>", "to be sent", "2"), ("queue:till", "to be sent", "1")]
    assert page.rows("Messages by target and status") == expected
    assert page.drawn("Messages by target and status").startswith(
        "Bar chart of messages in messages by target, 2 places. "
    )
    assert sum(int(row[2]) for row in page.rows("Messages by reason and status")) == 3
    [by_time] = [
        heading
        for heading in page.headings
        if heading.startswith("Deaths of these messages per ") and "status" in heading
    ]
    assert sum(int(row[2]) for row in page.rows(by_time)) == 3
    assert page.document.xpath("//img") == []
    assert len(page.document.xpath("//script")) == 5

    assert (
        main([*words, "--approve", str(tmp_path / "plan"), "--remove", "--report", str(reports)])
        == 0
    )
    page = Page(reports / "replay.html", tmp_path)
    assert (page.figures["sent"], page.figures["removed"]) == (3, 3)
    assert page.rows("Messages by target and status") == [
        ("queue:shop<script>", "sent", "2"),
        ("queue:till", "sent", "1"),
    ]
    [per_time] = [heading for heading in page.headings if heading.startswith("Messages sent per ")]
    assert {row[1:] for row in page.rows(per_time)} == {
        ("queue:shop<script>", "2"),
        ("queue:till", "1"),
    }
    graveyard.emptied("shop<script>", "till")


def test_of_a_replay_of_nothing(spark: SparkSession, graveyard: Graveyard, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    assert (
        main(["replay", "--queue", BROKER_DMQ, "--report", str(reports), *graveyard.arguments()])
        == 0
    )
    page = Page(reports / "replay.html", tmp_path)
    assert page.document.xpath("//p[@class='empty']/text()") == [
        "There is nothing to show: no rows were found."
    ]
