"""Reports as a browser shows them: no word on the console, all that should be there, and something
to be seen.
"""

from __future__ import annotations

from pathlib import Path

import lxml.html
import pytest
from PIL import Image

from pipeline.report.page import write_page
from tests.pipeline.report.chromium import Opened, opened
from tests.pipeline.report.samples import WHEN, summaries

pytestmark = pytest.mark.process

#: Of the first series, as the style sheet has it.
LIGHT = (0x2A, 0x78, 0xD6)
DARK = (0x4C, 0x95, 0xEC)


def shown(kind: str, folder: Path, dark: bool = False) -> Opened:
    return opened(
        write_page(folder, summaries()[kind], kind, {"JOURNAL": "/var/imq/journal"}, WHEN),
        folder,
        dark=dark,
    )


def colours(picture: Path) -> dict[tuple[int, ...], int]:
    with Image.open(picture) as image:
        found = image.convert("RGB").getcolors(1 << 24)
    assert found is not None
    return {colour: count for count, colour in found if isinstance(colour, tuple)}


@pytest.mark.parametrize("kind", list(summaries()))
def test_a_report_is_shown(kind: str, tmp_path: Path) -> None:
    page = shown(kind, tmp_path)
    summary = summaries()[kind]
    assert page.console == []
    document = lxml.html.document_fromstring(page.dom)
    assert document.xpath("//h2[not(@id='given')]/@id") == [
        f"part-{number}" for number in range(1, len(summary.tables) + 1)
    ]
    assert len(document.xpath("//*[local-name()='svg'][@role='img']")) == sum(
        table.chart is not None for table in summary.tables
    )
    rows = [
        len(section.xpath(".//tbody/tr"))
        for section in document.xpath("//section[not(@aria-labelledby='given')]")
    ]
    assert rows == [len(table.rows) for table in summary.tables]
    figures = [value for value in summary.facts.values() if isinstance(value, int)]
    assert document.xpath("//dl[@class='figures']//dd/text()") == [
        f"{value:,}" for value in figures
    ]
    if kind != "hostile":
        assert document.xpath("//h1/text()") == [summary.title]
        assert document.xpath("//h2[not(@id='given')]/text()") == [
            table.title for table in summary.tables
        ]
    seen = colours(page.picture)
    assert len(seen) > 20
    if kind != "empty":
        assert seen.get(LIGHT, 0) > 50


def test_what_a_message_holds_does_nothing(tmp_path: Path) -> None:
    document = lxml.html.document_fromstring(shown("hostile", tmp_path).dom)
    assert document.xpath("//script | //img | //iframe | //textarea") == []
    assert len(document.xpath("//h1")) == 1
    assert document.xpath("//head/title/text()")[0].startswith(
        "<script>document.title = 'taken'</script>"
    )


def test_a_dark_page_is_dark(tmp_path: Path) -> None:
    page = shown("journeys", tmp_path, dark=True)
    seen = colours(page.picture)
    assert max(seen, key=lambda colour: seen[colour]) == (0x17, 0x17, 0x15)
    assert seen.get(DARK, 0) > 50
    assert LIGHT not in seen
