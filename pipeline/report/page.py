"""A job's summary as one HTML page without network, script or other file.

Owns the page's parts and where it is put. What jobs hand over is bounded already; a page bounds it
once more. Knows no job and not Spark.

All that a page shows may come from a message, so the template escapes everything but the drawings,
and the page forbids the browser all but its own style.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gateway import __version__
from pipeline.errors import PipelineError
from pipeline.report.plots import Key, plot
from pipeline.report.text import plain
from pipeline.summary import Summary, Table, shown

#: Rows of one table.
MOST_ROWS: Final = 1_000
#: Characters that a cell has in one line even on a narrow page: those of a time, and of a message
#: id.
_SHORT: Final = 40
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class _Column:
    """A column's name and layout: ``number``, ``short`` or ``text``.

    Digits below each other; in one line; or as text.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class _Drawing:
    svg: Markup
    legend: tuple[Key, ...]
    note: str


@dataclass(frozen=True)
class _Section:
    name: str
    title: str
    columns: tuple[_Column, ...]
    rows: list[list[str]]
    note: str
    drawing: _Drawing | None


def write_page(
    folder: Path, summary: Summary, job: str, given: Mapping[str, str], when: datetime
) -> Path:
    """Write a summary as ``folder/job.html``, whole or not at all.

    It replaces the page of an earlier run.

    :param folder: made where it is not there.
    :param job: its name.
    :param given: what it was asked for: options and their values, none of them secret.
    :param when: it was done.
    :returns: the page's path.
    :raises PipelineError: it cannot be written.
    :raises ValueError: a chart speaks of a column that its table does not have.
    """
    text = page(summary, job, given, when)
    path = folder / f"{_NOT_IN_NAMES.sub('-', job) or 'report'}.html"
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise PipelineError(f"--report {folder}: {error.strerror or error}") from error
    return path


def page(summary: Summary, job: str, given: Mapping[str, str], when: datetime) -> str:
    """The page as text. The parameters are those of :func:`write_page`."""
    sections = [_section(table, number) for number, table in enumerate(summary.tables, 1)]
    facts = [
        (plain(name, 100), _text(value), _is_number(value)) for name, value in summary.facts.items()
    ]
    # What a job says before all figures, such as its verdict, stands before them.
    numbers = next((place for place, (_, _, is_number) in enumerate(facts) if is_number), 0)
    return _TEMPLATES.get_template("page.html").render(
        title=plain(summary.title, 300),
        job=plain(job),
        version=__version__,
        when=_text(when.astimezone(UTC).replace(microsecond=0)),
        first=facts[:numbers],
        figures=[(name, text) for name, text, is_number in facts if is_number],
        facts=[(name, text, False) for name, text, is_number in facts[numbers:] if not is_number],
        given=[(plain(name, 100), plain(value)) for name, value in given.items()],
        sections=sections,
        empty=not any(section.rows for section in sections),
    )


def _section(table: Table, number: int) -> _Section:
    rows = [[_text(value) for value in row] for row in table.rows[:MOST_ROWS]]
    columns = tuple(
        _Column(
            plain(name), _kind([row[place] for row in table.rows], [row[place] for row in rows])
        )
        for place, name in enumerate(table.columns)
    )
    notes = [plain(table.note)] if table.note else []
    if len(table.rows) > MOST_ROWS:
        notes.append(f"{MOST_ROWS:,} of {len(table.rows):,} rows are shown.")
    name = f"part-{number}"
    drawn = (
        plot(table, table.chart, f"{name}-plot") if table.chart is not None and table.rows else None
    )
    return _Section(
        name,
        plain(table.title, 300),
        columns,
        rows,
        " ".join(notes),
        # The one thing that is not escaped: what the module svg has made, from texts as texts.
        None if drawn is None else _Drawing(Markup(drawn.svg), drawn.legend, drawn.note),
    )


def _kind(values: list[object], texts: list[str]) -> str:
    if any(value is not None for value in values) and all(
        _is_number(value) or value is None for value in values
    ):
        return "number"
    return "short" if all(len(text) <= _SHORT and "\n" not in text for text in texts) else "text"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        # The page says once that all times are in UTC.
        text = shown(value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None))
        return text.removesuffix(".000")
    return plain(shown(value))
