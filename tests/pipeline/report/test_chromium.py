"""Reports as a browser shows them, and as their readers use them.

There is no word on the console, no request, and something to be seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline.report.page import write_page
from pipeline.summary import Chart, Summary, Table
from tests.chromium import Browser, browser
from tests.pipeline.report.samples import HOSTILE, HOURS, START, WHEN, flow, summaries
from tests.scripts import script

pytestmark = pytest.mark.process

KINDS = tuple(summaries())
#: Of the first series, as the style sheet has it.
LIGHT = (0x2A, 0x78, 0xD6)
DARK = (0x4C, 0x95, 0xEC)
PHONE = 390

#: Texts of the page's figures and of its cards that lie upon each other.
OVERLAPS = """(() => {
  const found = [];
  for (const host of document.querySelectorAll('.plot-host')) {
    const boxes = [...host.querySelectorAll('svg.plot text, .step p, .flow h3')]
      .filter((one) => one.textContent.trim() && getComputedStyle(one).opacity !== '0' && one.style.opacity !== '0' && one.getAttribute('opacity') !== '0')
      .map((one) => [one.textContent, one.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
    boxes.forEach(([text, box], place) => {
      for (const [other, next] of boxes.slice(place + 1)) {
        const wide = Math.min(box.right, next.right) - Math.max(box.left, next.left);
        const high = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
        if (wide > 1.5 && high > 4) found.push([host.id, text, other]);
      }
    });
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def shown(
    chromium: Browser, summary: Summary, folder: Path, width: int = 1_200, dark: bool = False
) -> None:
    """Open a summary's page, in which nothing goes wrong."""
    page = write_page(folder, summary, "any", {"JOURNAL": "/var/imq/journal"}, WHEN)
    chromium.open(page, width=width, dark=dark)
    assert (chromium.console, chromium.requests) == ([], [])


def one(chart: Chart, columns: tuple[str, ...], rows: list[Any]) -> Summary:
    return Summary("One", {}, [Table("One", columns, rows, chart=chart)])


def points(chromium: Browser) -> list[int]:
    """How many values each figure draws."""
    found = chromium.run("[...document.querySelectorAll('.plot-host')].map(h => +h.dataset.points)")
    assert isinstance(found, list)
    return found


def drawn(chromium: Browser, number: int = 1) -> int:
    """How many marks a figure has in its drawing."""
    marks = (
        f"#part-{number}-plot svg.plot :is(.mark-rect, .mark-symbol, .mark-line, .mark-rule) path"
    )
    found = chromium.run(f"document.querySelectorAll('{marks}').length")
    assert isinstance(found, int)
    return found


def texts(chromium: Browser, where: str) -> list[str]:
    found = chromium.run(f"[...document.querySelectorAll(`{where}`)].map(one => one.textContent)")
    assert isinstance(found, list)
    return found


def told(chromium: Browser, number: int = 1) -> str:
    """What is said of a drawing in words."""
    [found] = texts(chromium, f"#part-{number}-text")
    return found


def choose(chromium: Browser, name: str, value: str) -> None:
    """Choose in a filter of the page, as its user does."""
    chromium.run(
        f"(box => {{ box.value = {value!r}; box.dispatchEvent(new Event('change')); }})"
        f"(document.getElementById('filter-{name}'))"
    )


def colours(picture: Path) -> dict[tuple[int, ...], int]:
    with Image.open(picture) as image:
        found = image.convert("RGB").getcolors(1 << 24)
    assert found is not None
    return {colour: count for count, colour in found if isinstance(colour, tuple)}


@pytest.mark.parametrize("width", [1_200, PHONE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_shown(kind: str, width: int, chromium: Browser, tmp_path: Path) -> None:
    summary = summaries()[kind]
    shown(chromium, summary, tmp_path, width)
    charts = [
        number for number, table in enumerate(summary.tables, 1) if table.chart and table.rows
    ]
    assert [bool(count) for count in points(chromium)] == [True] * len(charts)
    for number in charts:
        chart = summary.tables[number - 1].chart
        assert chart is not None
        if chart.kind != "flow":
            assert drawn(chromium, number) > 0
            assert len(told(chromium, number)) > 20
    assert [
        len(chromium.run(f"[...document.querySelectorAll('#part-{number}, #none')]"))
        for number in range(1, len(summary.tables) + 1)
    ] == [1] * len(summary.tables)
    # Nothing lies upon another, and the page is no wider than the window.
    assert chromium.run(OVERLAPS) == []
    assert chromium.run("document.documentElement.scrollWidth") == width
    seen = colours(chromium.picture(tmp_path / "page.png"))
    assert len(seen) > 20
    if charts and kind != "reconcile":
        assert seen.get(LIGHT, 0) > 50


@pytest.mark.parametrize("kind", ["journeys", "flow"])
def test_a_dark_page_is_dark(kind: str, chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()[kind], tmp_path, dark=True)
    seen = colours(chromium.picture(tmp_path / "page.png"))
    assert max(seen, key=lambda colour: seen[colour]) == (0x17, 0x17, 0x15)
    assert seen.get(DARK, 0) > 50
    assert LIGHT not in seen


# --- what messages hold


@pytest.mark.parametrize("name", [str(text)[:200] for text in HOSTILE if text])
def test_what_a_message_holds_does_nothing(name: str, chromium: Browser, tmp_path: Path) -> None:
    """As the name of a queue and of an outcome, wherever it is shown."""
    shown(chromium, flow((name, f"x {name}"), (name[::-1], "lost")), tmp_path)
    assert chromium.run("document.title") == "Flow"
    assert chromium.run("document.querySelectorAll('h1').length") == 1
    assert (
        chromium.run(
            "document.querySelectorAll('img, iframe, textarea, form, a:not([href^=\"#\"])').length"
        )
        == 0
    )
    assert chromium.run("document.querySelectorAll('script').length") == 5
    [first, second] = chromium.run(
        "[...document.getElementById('filter-destination').options].slice(1).map(o => o.value)"
    )
    chromium.run(
        "(box => { box.selectedIndex = 1; box.dispatchEvent(new Event('change')); })"
        "(document.getElementById('filter-destination'))"
    )
    assert chromium.console == []
    assert points(chromium)[4] == 3
    assert first != second
    # The hint of a mark.
    chromium.click("#part-3-plot .mark-rect path")
    assert chromium.console == []
    assert len(texts(chromium, ".tip b")) == 3
    assert chromium.run("document.querySelectorAll('.tip :not(span, b)').length") == 0


def test_a_page_of_hostile_texts_is_a_page(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["hostile"], tmp_path)
    assert chromium.run("document.title").startswith("<script>document.title = 'taken'</script>")
    assert chromium.run("document.querySelectorAll('h1').length") == 1
    names = texts(chromium, "#part-1-plot .mark-text text")
    assert "<script>document.title = 'taken'</script>" in names
    assert "(empty)" in names
    assert "(none)" in names


# --- what is drawn


def test_a_journey_is_told_step_by_step(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["journeys"], tmp_path)
    said = told(chromium, 3)
    assert "produced at 2026-03-01 06:00:00.000 UTC, stored after 1.2 ms" in said
    assert said.endswith("acknowledged after 1.19 s, deleted after 1.19 s.")
    assert "+1 s" in texts(chromium, "#part-3-plot .mark-text text")


def test_each_step_of_the_flow_has_its_count_rate_and_times(
    chromium: Browser, tmp_path: Path
) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    cards = {
        card[0]: card[1:]
        for card in chromium.run(
            "[...document.querySelectorAll('[data-step]')].map(c => [c.dataset.step, c.querySelector('.count b').textContent,"
            " c.querySelector('.count span').textContent, c.querySelector('.times').textContent])"
        )
    }
    # 143 an hour: 100 of 1 ms, 40 of 1 s, and 3 of a minute.
    assert cards == {
        "1": ["572", "2.38 a minute", "one event"],
        "3": ["572", "2.38 a minute", "p50 1 msp99 60 s"],
    }
    choose(chromium, "destination", "queue:invoices")
    assert texts(chromium, "[data-step='3'] .count b") == ["160"]
    assert texts(chromium, "[data-step='3'] .times") == ["p50 1 sp99 1 s"]
    choose(chromium, "from", str(int((START + timedelta(hours=HOURS - 1)).timestamp())))
    assert texts(chromium, "[data-step='3'] .count b") == ["40"]
    assert texts(chromium, "[data-step='3'] .count span") == ["40 an hour"]


def test_links_are_a_map_with_trouble_in_colour(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    assert told(chromium, 2) == (
        "Map of 2 routes. queue:orders to shop/erp to queue:erp: 396 delivered, 12 lost, 4 late; "
        "queue:invoices to shop/lake to queue:erp: 156 delivered, 4 late."
    )
    said = texts(chromium, "#part-2-plot .mark-text text")
    assert "12 lost, 4 late" in said
    assert said.count("queue:erp") == 1
    strands = chromium.run(
        "[...document.querySelectorAll('#part-2-plot .mark-line path')].map(p => p.getAttribute('stroke'))"
    )
    assert strands.count("var(--bad)") == 2
    assert strands.count("var(--late)") == 4
    assert strands.count("var(--good)") == 4
    assert texts(chromium, "#part-2-keys li") == ["delivered", "late", "lost"]


@pytest.mark.parametrize("kind", ["line", "range"])
def test_an_axis_is_logarithmic_although_something_is_zero(
    kind: Any, chromium: Browser, tmp_path: Path
) -> None:
    xs: tuple[Any, ...] = (
        tuple(START + timedelta(hours=hour) for hour in range(4))
        if kind == "line"
        else ("a", "b", "c", "d")
    )
    rows = list(zip(xs, (0.0, 1.0, 30.0, 60_000.0), (0.0, 2.0, 40.0, 90_000.0), strict=True))
    chart = Chart(kind, "x", ("p50_ms", "p99_ms"), unit="ms")
    shown(chromium, one(chart, ("x", "p50_ms", "p99_ms"), rows), tmp_path)
    assert "logarithmic scale" in texts(chromium, "#part-1-plot .axis")
    marks = texts(chromium, "#part-1-plot .role-axis-label text")
    assert {"0", "1 ms", "100 ms", "10 s"} <= set(marks)
    # Of 30 ms it is as far from 1 ms as it should be: not at the bottom with it.
    box = "document.querySelector('#part-1-plot svg').getBoundingClientRect()"
    side = "x" if kind == "range" else "y"
    size = chromium.run(f"{box}.{'width' if kind == 'range' else 'height'}")
    places = chromium.run(
        f"[...document.querySelectorAll('#part-1-plot .mark-symbol path')].map(p => p.getBoundingClientRect().{side})"
    )
    assert len({round(place * 12 / size) for place in places}) >= 4


def test_figures_that_are_all_zero_are_no_bars(chromium: Browser, tmp_path: Path) -> None:
    findings = ("lost", "in doubt", "doubled", "reordered", "altered", "late")
    rows = [(name, 0) for name in findings]
    shown(
        chromium,
        one(Chart("bar", "finding", ("messages",)), ("finding", "messages"), rows),
        tmp_path,
    )
    assert texts(chromium, "#part-1-plot") == ["All 6 are 0."]
    assert chromium.run("document.querySelectorAll('svg').length") == 0


def test_what_was_lost_has_its_colour_in_a_bar(chromium: Browser, tmp_path: Path) -> None:
    rows = [("delivered", 100), ("lost", 60), ("dead", 5)]
    chart = Chart("bar", "outcome", ("messages",))
    shown(chromium, one(chart, ("outcome", "messages"), rows), tmp_path)
    fills = chromium.run(
        "[...document.querySelectorAll('#part-1-plot .mark-rect path')].map(p => p.getAttribute('fill'))"
    )
    assert fills == ["var(--good)", "var(--bad)", "var(--dead)"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.25e-3, "250 µs"),
        (0.9996e-3, "1 ms"),
        (1e-3, "1 ms"),
        (0.99951, "1 s"),
        (12.34e-3, "12.3 ms"),
        (90, "90 s"),
        (119.6, "1.99 min"),
        (600, "10 min"),
        (10_800, "3 h"),
        (864_000, "10 d"),
    ],
)
def test_a_duration_has_one_way_to_be_written(
    seconds: float, said: str, chromium: Browser, tmp_path: Path
) -> None:
    chart = Chart("bar", "name", ("took_s",), unit="s")
    shown(chromium, one(chart, ("name", "took_s"), [("a", seconds)]), tmp_path)
    assert said in texts(chromium, "#part-1-plot .mark-text text")


ODD = (5e-324, 3e-200, -3e-200, 9e199, 1.6e308, -1.6e308, math.inf, Decimal("sNaN"), 10**400)


@pytest.mark.parametrize("kind", ["line", "bar", "range"])
@pytest.mark.parametrize("xs", [("a", "b"), (START, START + timedelta(1)), (5e-324, 1.6e308)])
def test_numbers_that_nobody_can_reckon_with_are_in_the_table(
    kind: Any, xs: tuple[Any, Any], chromium: Browser, tmp_path: Path
) -> None:
    chart = Chart(kind, "x", ("n",), unit="seconds")
    tables = [
        Table("T", ("x", "n"), [(xs[0], first), (xs[1], value)], chart=chart)
        for value in ODD
        for first in (1.0, 0.0)
    ]
    shown(chromium, Summary("T", {}, tables), tmp_path)
    assert len(points(chromium)) == len(tables)
    assert texts(chromium, "svg.plot")
    assert not [
        path
        for path in chromium.run(
            "[...document.querySelectorAll('path')].map(p => p.getAttribute('d'))"
        )
        if path and "NaN" in path
    ]
    assert chromium.run("document.querySelectorAll('tbody tr').length") == 2 * len(tables)


@pytest.mark.parametrize("kind", ["bar", "line", "timeline"])
@pytest.mark.parametrize("last", [datetime.min, datetime.max])
def test_a_message_of_the_last_day_that_there_is_has_its_place(
    kind: Any, last: datetime, chromium: Browser, tmp_path: Path
) -> None:
    rows = [(START, 1), (last.replace(tzinfo=START.tzinfo), 2)]
    tables = [
        Table("x", ("t", "n"), some, chart=Chart(kind, "t", ("n",))) for some in (rows, rows[1:])
    ]
    shown(chromium, Summary("x", {}, tables), tmp_path)
    assert points(chromium) == [2, 1]


def test_a_column_is_as_wide_as_its_time_whatever_lies_between(
    chromium: Browser, tmp_path: Path
) -> None:
    rows = [(START, 3), (START + timedelta(minutes=4), 1)]

    def widths(every: int) -> float:
        chart = Chart("bar", "time", ("n",), every=every)
        shown(chromium, one(chart, ("time", "n"), rows), tmp_path)
        first, last = chromium.run(
            "[...document.querySelectorAll('#part-1-plot .mark-rect path')].map(p => p.getBoundingClientRect()).map(b => [b.left, b.right])"
        )
        return float((first[1] - first[0]) / (last[1] - first[0]))

    assert widths(5) == pytest.approx(0.86 * 5 / (240 + 0.86 * 5), abs=0.003)
    assert widths(0) == pytest.approx(0.86 / 1.86, rel=0.01)


# --- what can be done with it


def test_a_filter_chooses_in_figures_and_tables(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    assert texts(chromium, "#chosen") == ["572 of 572 messages"]
    everything = told(chromium, 3)
    assert everything.endswith("messages: 12 to 560, highest at delivered.")
    assert not chromium.run(
        "getComputedStyle(document.querySelector('.state button')).display !== 'none'"
    )
    choose(chromium, "outcome", "lost")
    assert texts(chromium, "#chosen") == ["12 of 572 messages"]
    assert told(chromium, 3).endswith("1 place. messages: 12, highest at lost.")
    assert texts(chromium, "#part-3-rows tbody tr:not([hidden]) td") == ["lost", "12"]
    assert texts(chromium, "#part-3-rows .shown") == ["1 of them chosen"]
    # A table that says it by its own columns, and one that cannot.
    assert texts(chromium, "section:has(#part-7) tbody tr:not([hidden]) td")[:1] == ["ID:1"]
    assert len(texts(chromium, "#part-5-rows tbody tr:not([hidden])")) == 2
    choose(chromium, "destination", "queue:invoices")
    assert texts(chromium, "#part-3-plot") == ["Nothing of this was chosen."]
    assert texts(chromium, "section:has(#part-7) tbody tr:not([hidden])") == []
    # By the button all is as it was.
    chromium.click(".state button")
    assert texts(chromium, "#chosen") == ["572 of 572 messages"]
    assert told(chromium, 3) == everything


def test_a_time_is_chosen_by_its_ends(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    second = int((START + timedelta(hours=1)).timestamp())
    choose(chromium, "from", str(second))
    assert texts(chromium, "#chosen") == [f"{143 * (HOURS - 1)} of {143 * HOURS} messages"]
    choose(chromium, "to", str(second + 3_600))
    assert texts(chromium, "#chosen") == [f"143 of {143 * HOURS} messages"]
    assert "at 2026-03-01 07:00 UTC" in told(chromium, 4)
    assert len(texts(chromium, "#part-4-rows tbody tr:not([hidden])")) == 2


def test_a_figure_says_what_it_is_not_filtered_by(chromium: Browser, tmp_path: Path) -> None:
    tables = list(summaries()["flow"].tables)
    plain = Table(
        "Reasons",
        ("reason", "messages"),
        [("a", 1), ("b", 2)],
        chart=Chart("bar", "reason", ("messages",)),
    )
    shown(chromium, Summary("Both", {}, [*tables, plain]), tmp_path)
    choose(chromium, "destination", "queue:orders")
    assert texts(chromium, "#part-8-note") == ["Not told apart by destination: of all."]
    assert "Not told apart" not in "".join(texts(chromium, "#part-3-note"))


def test_a_click_on_a_bar_chooses_it_and_another_gives_it_up(
    chromium: Browser, tmp_path: Path
) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    chromium.click("#part-3-plot .mark-rect path")
    assert chromium.run("document.getElementById('filter-outcome').value") == "delivered"
    assert texts(chromium, "#chosen") == ["560 of 572 messages"]
    chromium.click("#part-3-plot .mark-rect path")
    assert texts(chromium, "#chosen") == ["572 of 572 messages"]


def test_a_figure_links_to_its_rows(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    opened = "document.getElementById('part-4-rows').open"
    assert not chromium.run(opened)
    chromium.click("a.rows[href='#part-4-rows']")
    assert chromium.run(opened)
    assert chromium.run("location.hash") == "#part-4-rows"
    assert chromium.run(
        "document.querySelector('#part-4-rows td').getBoundingClientRect().height > 0"
    )


def test_a_figure_is_told_apart_by_what_its_reader_asks(chromium: Browser, tmp_path: Path) -> None:
    shown(chromium, summaries()["flow"], tmp_path)
    assert texts(chromium, "#part-4-keys li") == ["delivered", "lost"]
    chromium.click("#part-4-by button[data-by='2']")
    assert texts(chromium, "#part-4-keys li") == ["shop/erp", "shop/lake"]
    assert (
        chromium.run("document.querySelector('#part-4-by [aria-pressed=true]').textContent")
        == "by link"
    )


def test_a_figure_is_drawn_again_when_the_window_is_another(
    chromium: Browser, tmp_path: Path
) -> None:
    shown(chromium, summaries()["journeys"], tmp_path)
    wide = chromium.run("document.querySelector('svg.plot').getBoundingClientRect().width")
    chromium.resize(500)
    chromium.until(f"document.querySelector('svg.plot').getBoundingClientRect().width < {wide} / 2")
    assert chromium.run("document.documentElement.scrollWidth") == 500
    assert chromium.console == []


@pytest.mark.parametrize("width", [1_200, PHONE])
def test_a_figure_of_any_length_is_in_one_line(
    width: int, chromium: Browser, tmp_path: Path
) -> None:
    shown(chromium, Summary("Long", {"messages": 1_234_567, "lost": 10**60}), tmp_path, width)
    assert chromium.run("document.documentElement.scrollWidth") == width
    heights = chromium.run("[...document.querySelectorAll('.figures dd')].map(d => d.clientHeight)")
    assert len(set(heights)) == 1
    cut = chromium.run(
        "[...document.querySelectorAll('.figures dd')].map(d => d.scrollWidth > d.clientWidth)"
    )
    assert cut == [False, True]


def test_the_picture_in_the_documentation_is_of_such_a_page(
    chromium: Browser, tmp_path: Path
) -> None:
    shown(chromium, summaries()["journeys"], tmp_path)
    screenshots = script("screenshots")
    built = screenshots.structure(chromium)
    kept = json.loads(screenshots.FOLDER.joinpath(f"{screenshots.REPORT}.json").read_text())
    assert built["landmarks"] == kept["landmarks"]
