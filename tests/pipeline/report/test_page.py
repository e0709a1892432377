"""A report's page as text: whole, alone in the world, and nothing in it but text."""

from __future__ import annotations

import html.parser
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import lxml.html
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.output import Output, output_options
from pipeline.report.page import MOST_ROWS, page, write_page
from pipeline.summary import Chart, Summary, Table
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


def drawings(text: str) -> Iterator[ElementTree.Element]:
    for found in re.findall(r'<svg viewBox="[^"]*" role="img".*?</svg>', text, re.DOTALL):
        yield ElementTree.fromstring(found)


def visible(document: Any) -> str:
    return " ".join("".join(document.body.itertext()).split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed(kind: str) -> None:
    text = page_of(kind)
    balance = Balance()
    balance.feed(text)
    assert (balance.amiss, balance.open) == ([], [])
    document = lxml.html.document_fromstring(text)
    ids = document.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {
        reference.removeprefix("#")
        for reference in document.xpath("//a/@href | //*[local-name()='use']/@href")
    } <= set(ids)
    described = " ".join(document.xpath("//@aria-labelledby")).split()
    assert set(described) <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_nothing_else(kind: str) -> None:
    document = lxml.html.document_fromstring(page_of(kind))
    assert (
        document.xpath(
            "//script | //link | //img | //iframe | //object | //embed | //form | //base | //textarea"
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
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    [style] = document.xpath("//style/text()")
    assert "http" not in style
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("empty", "hostile")])
def test_each_drawing_is_told_in_words_and_has_its_table(kind: str) -> None:
    text = page_of(kind)
    document = lxml.html.document_fromstring(text)
    charts = [table for table in summaries()[kind].tables if table.chart is not None]
    found = list(drawings(text))
    assert len(found) == len(charts) > 0
    for svg, table in zip(found, charts, strict=True):
        told = {child.tag: child.text for child in svg[:2]}
        assert told["title"] == table.title
        assert told["desc"]
        assert len(told["desc"]) > 20
    details = document.xpath("//figure/following-sibling::details[1]")
    assert [len(one.xpath(".//tbody/tr")) for one in details] == [
        len(table.rows) for table in charts
    ]
    assert [one.xpath(".//th/text()") for one in details] == [
        list(table.columns) for table in charts
    ]


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
    [journey] = document.xpath("//*[@id='part-3-plot-text']/text()")
    assert "produced at 2026-03-01 06:00:00.000 UTC, stored after 1.2 ms" in journey
    # The letters of a drawing are letters.
    assert document.xpath("//*[local-name()='text'][contains(., '+1 s')]")


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
    assert (
        len(document.xpath("//h1"))
        == len(document.xpath("//title[not(ancestor::*[local-name()='svg'])]"))
        == 1
    )
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
    names = document.xpath("//*[local-name()='svg'][.//*[local-name()='text'][text()='(empty)']]")
    assert names
    text.encode("utf-8")


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
    assert len(document.xpath("//script | //img | //iframe")) == 0
    for svg in drawings(text):
        assert not [
            value
            for element in svg.iter()
            for value in element.attrib.values()
            if "nan" in value.split()
        ]


@pytest.mark.parametrize("kind", ["line", "bar", "range"])
@pytest.mark.parametrize(
    "value",
    [
        5e-324,
        3e-200,
        -3e-200,
        9e199,
        1.6e308,
        -1.6e308,
        math.inf,
        Decimal("sNaN"),
        pytest.param(10**400, id="long"),
    ],
)
@pytest.mark.parametrize("xs", [("a", "b"), (START, START + timedelta(1)), (5e-324, 1.6e308)])
@pytest.mark.parametrize("first", [1.0, 0.0])
def test_numbers_that_nobody_can_reckon_with_are_in_the_table(
    kind: Any, value: Any, xs: tuple[Any, Any], first: float
) -> None:
    table = Table(
        "T",
        ("x", "n"),
        [(xs[0], first), (xs[1], value)],
        chart=Chart(kind, "x", ("n",), unit="seconds"),
    )
    text = page(Summary("T", {}, [table]), "any", {}, WHEN)
    assert len(list(drawings(text))) == 1
    assert len(lxml.html.document_fromstring(text).xpath("//tbody/tr")) == 2


def test_a_column_is_as_wide_as_its_time_whatever_lies_between() -> None:
    rows = [(START, 3), (START + timedelta(minutes=4), 1)]

    def widths(every: int) -> list[float]:
        table = Table(
            "Deaths", ("time", "n"), rows, chart=Chart("bar", "time", ("n",), every=every)
        )
        [svg] = drawings(page(Summary("Deaths", {}, [table]), "any", {}, WHEN))
        [path] = [
            one.attrib["d"]
            for one in svg.iter("path")
            if "--series-1" in one.attrib.get("style", "")
        ]
        xs = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path)]
        return [max(xs[:4]) - min(xs[:4]), max(xs) - min(xs)]

    width, all_of_it = widths(5)
    assert width / all_of_it == pytest.approx(0.86 * 5 / (240 + 0.86 * 5), rel=0.01)
    width, all_of_it = widths(0)
    assert width / all_of_it == pytest.approx(0.86 / 1.86, rel=0.01)


@pytest.mark.parametrize("kind", ["bar", "line"])
@pytest.mark.parametrize("last", [datetime.min, datetime.max])
def test_a_message_of_the_last_day_that_there_is_has_its_place(kind: Any, last: datetime) -> None:
    rows = [(START, 1), (last.replace(tzinfo=UTC), 2)]
    for some in (rows, rows[1:]):
        [drawn] = drawings(
            page(
                Summary("x", {}, [Table("x", ("t", "n"), some, chart=Chart(kind, "t", ("n",)))]),
                "any",
                {},
                WHEN,
            )
        )
        assert drawn is not None


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = [(number,) for number in range(MOST_ROWS + 5)]
    document = lxml.html.document_fromstring(
        page(Summary("Long", {}, [Table("Numbers", ("n",), rows)]), "any", {}, WHEN)
    )
    assert len(document.xpath("//tbody/tr")) == MOST_ROWS
    assert "1,000 of 1,005 rows are shown." in visible(document)


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
