"""A report's page as text: whole, alone in the world, and bounded."""

from __future__ import annotations

import base64
import csv
import hashlib
import html.parser
import io
import json
import re
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import click
import lxml.html
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.output import Output, output_options
from pipeline.report.page import MOST_DRAWN, MOST_ROWS, page, write_page
from pipeline.summary import Chart, Summary, Table, plain
from tests.pipeline.report.samples import HOSTILE, START, WHEN, summaries

pytestmark = pytest.mark.slow

KINDS = tuple(summaries())
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Balance(html.parser.HTMLParser):
    """Says what is opened and never closed, and closed and never opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.amiss: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.amiss.append(f"</{tag}> in line {self.getpos()[0]}")


@cache
def page_of(kind: str) -> str:
    return page(summaries()[kind], kind, {"JOURNAL": "/var/imq/journal"}, WHEN)


def data_of(text: str) -> Any:
    """What the page's figures are drawn of."""
    [data] = lxml.html.document_fromstring(text).xpath("//script[@id='data']/text()")
    return json.loads(data)


def visible(document: Any) -> str:
    """Its text, without its scripts."""
    found = document.xpath("//body//text()[not(ancestor::script)]")
    return " ".join("".join(found).split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed(kind: str) -> None:
    text = page_of(kind)
    balance = Balance()
    balance.feed(text)
    assert (balance.amiss, balance.open) == ([], [])
    document = lxml.html.document_fromstring(text)
    ids = document.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {reference.removeprefix("#") for reference in document.xpath("//a/@href")} <= set(ids)
    described = " ".join(document.xpath("//@aria-labelledby")).split()
    assert set(described) <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_nothing_else(kind: str) -> None:
    document = lxml.html.document_fromstring(page_of(kind))
    assert (
        document.xpath(
            "//link | //img | //iframe | //object | //embed | //form | //base | //textarea"
        )
        == []
    )
    assert document.xpath("//@src | //@srcset | //@action | //@style[contains(., 'http')]") == []
    attributes = {
        name
        for element in document.iter()
        if isinstance(element.tag, str)
        for name in element.attrib
    }
    assert not {name for name in attributes if name.startswith("on")}
    assert [where for where in document.xpath("//@href") if not where.startswith("#")] == []
    [policy] = document.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    allowed = re.fullmatch(
        r"default-src 'none'; script-src ([^;]*); style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        policy,
    )
    assert allowed
    scripts = re.findall(r"<script>(.*?)</script>", page_of(kind), re.DOTALL)
    assert allowed[1].split() == [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    ] or (not scripts and allowed[1] == "'none'")
    # Only data besides.
    assert document.xpath("//script/@type") == (["application/json"] if scripts else [])
    [style] = document.xpath("//style/text()")
    assert "http" not in style
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("empty", "hostile")])
def test_each_figure_has_its_data_and_its_table(kind: str) -> None:
    text = page_of(kind)
    document = lxml.html.document_fromstring(text)
    charts = [table for table in summaries()[kind].tables if table.chart is not None]
    data = data_of(text)
    assert [figure["title"] for figure in data["figures"]] == [table.title for table in charts]
    assert len(charts) > 0
    for figure, table in zip(data["figures"], charts, strict=True):
        assert table.chart is not None
        dataset = data["datasets"][figure["data"]]
        rows = table.rows if table.chart.cube is None else table.chart.cube.rows
        assert dataset["length"] == len(rows)
        assert all(
            len(column.get("codes", column["values"])) == len(rows) for column in dataset["columns"]
        )
    details = document.xpath("//figure/following-sibling::details[1]")
    assert [len(one.xpath(".//tbody/tr")) for one in details] == [
        len(table.rows) for table in charts
    ]
    assert [one.xpath(".//th/text()") for one in details] == [
        list(table.columns) for table in charts
    ]
    assert document.xpath("//a[@class='rows']/@href") == [
        f"#{one}" for one in document.xpath("//details/@id")
    ]


def test_figures_of_one_cube_have_it_once() -> None:
    data = data_of(page_of("flow"))
    assert len(data["figures"]) == 6
    assert len(data["datasets"]) == 1


def test_the_figures_are_there() -> None:
    document = lxml.html.document_fromstring(page_of("journeys"))
    assert document.xpath("//head/title/text()") == ["Journeys of /var/imq/journal"]
    assert document.xpath("//h1/text()") == ["Journeys of /var/imq/journal"]
    figures = dict(
        zip(
            document.xpath("//dl[@class='figures']//dt/text()"),
            document.xpath("//dl[@class='figures']//dd/text()"),
            strict=True,
        )
    )
    assert figures == {
        "messages": "40,231",
        "delivered": "40,111",
        "waiting": "12",
        "lost": "2",
        "dead": "106",
    }
    assert document.xpath("//h2[text()='Stuck']/following-sibling::p/text()") == ["None."]
    assert "Written 2026-03-03 12:30:00." in visible(document)


def test_what_is_wrong_has_a_colour_and_what_is_not_has_none() -> None:
    summary = Summary("Any", {"messages": 9, "lost": 60, "late": 2, "in doubt": 0, "events": 1})
    document = lxml.html.document_fromstring(page(summary, "any", {}, WHEN))
    figures = document.xpath("//dl[@class='figures']/div")
    assert {one.xpath("dt/text()")[0]: one.get("class") for one in figures} == {
        "messages": None,
        "lost": "wrong",
        "late": "late",
        "in doubt": None,
        "events": None,
    }


def test_nothing_found_is_said() -> None:
    document = lxml.html.document_fromstring(page_of("empty"))
    assert document.xpath("//p[@class='empty']/text()") == [
        "There is nothing to show: no rows were found."
    ]
    only_headings = Summary(
        "Nothing",
        {"events": 0},
        [Table("Events", ("time", "events"), [], chart=Chart("line", "time", ("events",)))],
    )
    document = lxml.html.document_fromstring(page(only_headings, "ingest", {}, WHEN))
    assert document.xpath("//section//p[@class='empty']/text()") == ["None."]
    assert "nothing to show" in visible(document)


def test_what_a_message_holds_is_text() -> None:
    text = page_of("hostile")
    document = lxml.html.document_fromstring(text)
    assert "<h1>taken" not in text
    assert str(7 * 191) not in text
    assert len(document.xpath("//h1")) == len(document.xpath("//title")) == 1
    seen = visible(document)
    for hostile in HOSTILE[:4]:
        assert seen.count(" ".join(str(hostile).split())) > 3
    assert "\\u202egnp.exe\\u2066" in seen
    assert "\\x00\\x1b[31mred\\x07\\x7f\\x9b" in seen
    assert "\\ud800 half" in seen
    assert "x… (5,000 characters)" in seen
    assert "x" * 2_001 not in text
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]", text
    )
    text.encode("utf-8")
    [data] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL
    )
    assert not re.search("[<>&\u2028\u2029]", data)
    # And yet it says the same.
    names = json.loads(data)["datasets"][0]["columns"][0]["values"]
    assert HOSTILE[0] in names
    assert HOSTILE[3] in names


TEXTS = st.text(max_size=30) | st.sampled_from([str(text)[:200] for text in HOSTILE])
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats()
    | TEXTS
    | st.datetimes().map(lambda time: time.replace(tzinfo=UTC))
)
TIMES = st.none() | (st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)) | st.datetimes()).map(
    lambda time: time.replace(tzinfo=UTC)
)


@settings(max_examples=60)
@given(
    title=TEXTS,
    kind=st.sampled_from(["line", "bar", "range", "timeline"]),
    xs=st.lists(TIMES, max_size=6)
    | st.lists(TEXTS, max_size=6)
    | st.lists(st.integers(-9, 9), max_size=6)
    | st.lists(VALUES, max_size=6),
    values=st.lists(st.tuples(VALUES, VALUES, TEXTS), min_size=6, max_size=6),
    by=st.booleans(),
)
def test_any_table_becomes_a_page(
    title: str, kind: Any, xs: list[Any], values: list[Any], by: bool
) -> None:
    rows = [(x, *value) for x, value in zip(xs, values, strict=False)]
    chart = Chart(kind, "x", ("low", "high"), by="name" if by else "", unit="seconds")
    text = page(
        Summary(
            title, {title: title}, [Table(title, ("x", "low", "high", "name"), rows, chart=chart)]
        ),
        "any",
        {},
        WHEN,
    )
    document = lxml.html.document_fromstring(text)
    assert len(document.xpath("//tbody/tr")) == len(rows)
    assert len(document.xpath("//img | //iframe")) == 0
    assert {one.get("type") for one in document.xpath("//script")} <= {None, "application/json"}
    [data] = document.xpath("//script[@id='data']/text()") or ["{}"]
    # Not what only JavaScript has.
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = [(number,) for number in range(MOST_ROWS + 5)]
    document = lxml.html.document_fromstring(
        page(Summary("Long", {}, [Table("Numbers", ("n",), rows)]), "any", {}, WHEN)
    )
    assert len(document.xpath("//tbody/tr")) == MOST_ROWS
    assert "1,000 of 1,005 rows are shown. All 1,005 rows, as CSV." in visible(document)
    assert document.xpath("//a/@href") == ["any-part-1.csv"]


def test_all_rows_of_a_long_table_are_beside_the_page(tmp_path: Path) -> None:
    rows = [(number, f"=cmd|{number}", START) for number in range(MOST_ROWS + 5)]
    table = Table("Numbers", ("n", "name", "time"), rows)
    write_page(
        tmp_path, Summary("Long", {}, [Table("Short", ("n",), [(1,)]), table]), "j", {}, WHEN
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["j-part-2.csv", "j.html"]
    beside = (tmp_path / "j-part-2.csv").read_text(encoding="utf-8")
    found = list(csv.reader(io.StringIO(beside)))
    assert found[0] == ["n", "name", "time"]
    assert len(found) == MOST_ROWS + 6
    # No formula.
    assert found[-1] == [str(MOST_ROWS + 4), f"'=cmd|{MOST_ROWS + 4}", "2026-03-01 06:00:00"]
    write_page(tmp_path, Summary("Short"), "j", {}, WHEN)
    assert [one.name for one in tmp_path.iterdir()] == ["j.html"]


def test_a_page_is_bounded_whatever_a_job_hands_over() -> None:
    rows = [(f"queue:{'x' * 5_000}{number}", number) for number in range(MOST_DRAWN + 7)]
    table = Table("Numbers", ("name", "n"), rows, chart=Chart("bar", "name", ("n",)))
    text = page(Summary("Long", {}, [table]), "any", {}, WHEN)
    assert data_of(text)["datasets"][0]["length"] == MOST_DRAWN
    # The scripts, a thousand cells of 2,000 characters, and twenty thousand names of 300.
    assert len(text) < 10_000_000
    assert "The first 20,000 are drawn." in text


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(1, 100))
def test_a_plain_text_can_be_seen_and_written(text: str, limit: int) -> None:
    found = plain(text, limit)
    found.encode("utf-8")
    assert not {
        letter
        for letter in found
        if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"
    }
    if all(letter.isprintable() for letter in text):
        assert found.startswith(text[:limit])
    assert (found == plain(text, len(text))) or f"({len(text):,} characters)" in found


def test_a_chart_of_a_column_that_is_not_there_is_refused() -> None:
    wrong = Summary(
        "Wrong", {}, [Table("Numbers", ("n", "m"), [(1, 2)], chart=Chart("line", "n", ("x",)))]
    )
    with pytest.raises(ValueError, match="speaks of a column 'x'; it has n, m"):
        page(wrong, "any", {}, WHEN)


def test_a_page_replaces_that_of_an_earlier_run(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "today"
    first = write_page(folder, Summary("First"), "dead-letters", {}, WHEN)
    second = write_page(folder, Summary("Second"), "dead-letters", {}, WHEN + timedelta(hours=1))
    assert first == second == folder / "dead-letters.html"
    assert [path.name for path in folder.iterdir()] == ["dead-letters.html"]
    assert "Second" in second.read_text(encoding="utf-8")
    assert "First" not in second.read_text(encoding="utf-8")


def test_the_same_summary_is_the_same_page() -> None:
    assert page(
        summaries()["journeys"], "journeys", {"JOURNAL": "/var/imq/journal"}, WHEN
    ) == page_of("journeys")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"^--report .*file/reports: Not a directory$"):
        write_page(tmp_path / "file" / "reports", Summary("Any"), "ingest", {}, WHEN)


def test_a_job_writes_the_page_of_its_name(tmp_path: Path) -> None:
    @click.command("dead-letters")
    @click.argument("journal", nargs=-1)
    @click.option("--since")
    @click.option("--shown", default=20)
    @click.option(
        "--conf",
        multiple=True,
        callback=lambda context, option, value: dict(each.split("=") for each in value),
    )
    @output_options
    def job(
        journal: tuple[str, ...],
        since: str | None,
        shown: int,
        conf: dict[str, str],
        output: Output,
    ) -> None:
        table = Table(
            "Times", ("time", "n"), [(START, 1)], chart=Chart("bar", "time", ("n",)), long=True
        )
        output.finish(Summary("Dead messages", {"dead": 1}, [table]), Console(width=200))

    arguments = [
        "s3a://key:secret@host/a",
        "b",
        "--since",
        "<2026>",
        "--conf",
        "spark.hadoop.fs.s3a.secret.key=hidden",
    ]
    result = CliRunner().invoke(
        job, [*arguments, "--report", str(tmp_path / "reports")], catch_exceptions=False
    )
    path = tmp_path / "reports" / "dead-letters.html"
    assert f"Report: {path}" in result.output
    assert "Times" not in result.output
    document = lxml.html.document_fromstring(path.read_text(encoding="utf-8"))
    given = document.xpath("//section[@aria-labelledby='given']//div")
    assert {one.xpath("dt/text()")[0]: one.xpath("dd/text()")[0] for one in given} == {
        "JOURNAL": "s3a://host/a, b",
        "--since": "<2026>",
        "--conf": "spark.hadoop.fs.s3a.secret.key",
        "--report": str(tmp_path / "reports"),
    }
    assert document.xpath("//h2/text()") == ["Times", "What was asked for"]


@pytest.mark.process
def test_a_page_needs_no_spark() -> None:
    said = "import sys, pipeline.report.page; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
