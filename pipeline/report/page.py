"""A job's summary as one HTML page, whose figures the browser draws.

Owns the page's parts, how large it becomes, and where it is put. Knows no job and not Spark.

A page asks for nothing: its scripts, its style and its data are in it, and it forbids the browser
all else, and every script but those, by their digests. All that it shows may come from a message.
What can not be seen (control characters, marks that turn the direction of what follows, half of a
surrogate pair) is written out, and a megabyte is cut. In its markup the template escapes it; among
its data there is no character by which a script could end.

It is bounded: scripts of 0.8 MB, :data:`MOST_ROWS` rows of each table, and :data:`MOST_DRAWN` of
what each figure is drawn of. The rows of a longer table are in a CSV file beside it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway import __version__
from pipeline.errors import PipelineError
from pipeline.summary import Chart, Summary, Table, plain, shown

#: Rows of one table in the page.
MOST_ROWS: Final = 1_000
#: Rows of its table that a figure is drawn of; a cube is bounded already.
MOST_DRAWN: Final = 20_000
#: Columns that a page can be filtered by, where there are any.
FILTERS: Final = ("destination", "link", "source", "target", "outcome", "reason", "status")
#: Figures whose trouble has a colour.
WRONG: Final = frozenset(
    {"lost", "in doubt", "doubled", "altered", "reordered", "dead messages", "dead", "missing"}
    | {"journal lines missing", "damaged lines", "failed", "refused", "cannot be sent"}
)
LATE: Final = frozenset({"late", "slow", "stuck", "redelivered", "expired"})
#: What is said where times come from a cube: its values have one in twenty of a decade.
_NEARLY: Final = "Times are within 6 %; those of the rows are exact."
#: Characters that a cell has in one line even on a narrow page: those of a time, and of a message
#: id.
_SHORT: Final = 40
#: Of a text that a figure is drawn of.
_NAME: Final = 300
#: Beyond it sums overflow. What is nearer to 0 than its inverse is drawn as 0.
_LARGEST: Final = 1e200
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SCRIPTS: Final = (
    "vendored/vega.min.js",
    "vendored/vega-lite.min.js",
    "vendored/vega-interpreter.js",
)
_OWN: Final = ("words.js", "figures.js", "page.js")
#: What could end a script, or begin a comment in it, and what is no line's end in JSON only.
_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
#: By which a spreadsheet takes a cell for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_TEMPLATES: Final = Environment(
    loader=PackageLoader("pipeline.report", ""),
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
    timed: bool


@dataclass(frozen=True)
class _Section:
    """A table of the page.

    :param figure: what the script knows of its figure; None: it has none.
    :param file: the name of the file with all rows; empty where all are in the page.
    :param total: how many rows there are.
    """

    name: str
    title: str
    columns: tuple[_Column, ...]
    rows: list[list[str]]
    note: str
    figure: dict[str, Any] | None
    file: str
    total: int


def write_page(
    folder: Path, summary: Summary, job: str, given: Mapping[str, str], when: datetime
) -> Path:
    """Write a summary as ``folder/job.html``, whole or not at all.

    It replaces the page of an earlier run, and the files beside it.

    :param folder: made where it is not there.
    :param job: its name.
    :param given: what it was asked for: options and their values, none of them secret.
    :param when: it was done.
    :returns: the page's path.
    :raises PipelineError: it cannot be written.
    :raises ValueError: a chart speaks of a column that its table does not have.
    """
    name = _NOT_IN_NAMES.sub("-", job) or "report"
    beside = {
        _file(name, number): table
        for number, table in enumerate(summary.tables, 1)
        if len(table.rows) > MOST_ROWS
    }
    text = page(summary, job, given, when)
    path = folder / f"{name}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, table in beside.items():
            _write(folder / file, _as_csv(table))
        _write(path, text)
        for old in folder.glob(_file(name, "*")):
            if old.name not in beside:
                old.unlink()
    except OSError as error:
        raise PipelineError(f"--report {folder}: {error.strerror or error}") from error
    return path


def page(summary: Summary, job: str, given: Mapping[str, str], when: datetime) -> str:
    """The page as text. The parameters are those of :func:`write_page`."""
    name = _NOT_IN_NAMES.sub("-", job) or "report"
    datasets: list[dict[str, Any]] = []
    cubes: dict[int, int] = {}
    sections = [
        _section(table, number, name, datasets, cubes)
        for number, table in enumerate(summary.tables, 1)
    ]
    facts = [
        (plain(name, 100), _text(value), _is_number(value), _alarm(name, value))
        for name, value in summary.facts.items()
    ]
    # What a job says before all figures, such as its verdict, stands before them.
    numbers = next((place for place, fact in enumerate(facts) if fact[2]), 0)
    figures = [section.figure for section in sections if section.figure is not None]
    data = {
        "datasets": datasets,
        "figures": figures,
        "filters": FILTERS,
        "nearly": _NEARLY if _has_times(summary.tables) else "",
        "total": _total(summary.tables, figures),
    }
    scripts = _scripts() if figures else ()
    return _TEMPLATES.get_template("page.html").render(
        title=plain(summary.title, 300),
        job=plain(job),
        version=__version__,
        when=_text(when.astimezone(UTC).replace(microsecond=0)),
        first=facts[:numbers],
        figures=[fact for fact in facts if fact[2]],
        facts=[fact for fact in facts[numbers:] if not fact[2]],
        given=[(plain(name, 100), plain(value)) for name, value in given.items()],
        sections=sections,
        empty=not any(section.rows for section in sections),
        allowed=" ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'",
        # The two things that are not escaped: the package's own scripts, and what cannot end one.
        scripts=[Markup(script) for script in scripts],
        data=Markup(_as_json(data)),
    )


# --- a table and what it is drawn of


def _section(
    table: Table,
    number: int,
    job: str,
    datasets: list[dict[str, Any]],
    cubes: dict[int, int],
) -> _Section:
    rows = [[_text(value) for value in row] for row in table.rows[:MOST_ROWS]]
    columns = tuple(
        _Column(
            plain(name),
            _kind([row[place] for row in table.rows], [row[place] for row in rows]),
            _column_kind([row[place] for row in table.rows]) == "time",
        )
        for place, name in enumerate(table.columns)
    )
    notes = [plain(table.note)] if table.note else []
    file = ""
    if len(table.rows) > MOST_ROWS:
        notes.append(f"{MOST_ROWS:,} of {len(table.rows):,} rows are shown.")
        file = _file(job, number)
    figure = None
    if table.chart is not None and table.rows:
        figure = _figure(table, table.chart, f"part-{number}", datasets, cubes)
        if len(table.rows) > MOST_DRAWN and table.chart.cube is None:
            notes.append(f"The first {MOST_DRAWN:,} are drawn.")
    return _Section(
        f"part-{number}",
        plain(table.title, 300),
        columns,
        rows,
        " ".join(notes),
        figure,
        file,
        len(table.rows),
    )


def _figure(
    table: Table,
    chart: Chart,
    name: str,
    datasets: list[dict[str, Any]],
    cubes: dict[int, int],
) -> dict[str, Any]:
    cube = chart.cube
    columns = table.columns if cube is None else cube.columns
    drawn = [chart.x, chart.by, *(chart.y if cube is None or chart.kind == "map" else ())]
    for one in (*filter(None, drawn), *chart.also):
        if one not in columns:
            raise ValueError(
                f"the chart of the table {table.title!r} speaks of a column {one!r}; it has {', '.join(columns)}"
            )
    if cube is None:
        number = len(datasets)
        datasets.append(_dataset(columns, table.rows[:MOST_DRAWN]))
    elif id(cube) in cubes:
        number = cubes[id(cube)]
    else:
        number = cubes[id(cube)] = len(datasets)
        datasets.append(_dataset(columns, cube.rows))
    return {
        "name": name,
        "title": plain(table.title, 300),
        "kind": chart.kind,
        "data": number,
        "x": plain(chart.x),
        "x_title": plain(chart.x, _NAME),
        "y": [plain(one) for one in chart.y],
        "y_title": plain(", ".join(chart.y), _NAME),
        "by": plain(chart.by),
        "also": [plain(one) for one in ((chart.by, *chart.also) if chart.also else ())],
        "unit": plain(chart.unit),
        "every": chart.every if cube is None else cube.every,
        "measure": chart.measure,
        "span": (0, 0) if cube is None else cube.span,
        "stages": [
            {
                "number": one.number,
                "phase": one.phase,
                "way": one.way,
                "what": one.what,
                "measure": one.measure,
                "untimed": one.untimed,
            }
            for one in chart.stages
        ],
    }


def _dataset(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, Any]:
    """Rows column by column; a text that many have is written once."""
    written = []
    for place, name in enumerate(columns):
        values = [row[place] for row in rows]
        kind = _column_kind(values)
        column: dict[str, Any] = {"name": plain(name), "kind": kind}
        if kind == "text":
            texts = [None if value is None else plain(_text(value), _NAME) for value in values]
            codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
            column |= {"values": list(codes), "codes": [codes[text] for text in texts]}
        else:
            column["values"] = [
                _seconds(value) if kind == "time" else _number(value) for value in values
            ]
        written.append(column)
    return {"length": len(rows), "columns": written}


def _column_kind(values: Sequence[object]) -> str:
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, date) for value in there):
        return "time"
    if there and all(_is_number(value) or isinstance(value, Decimal) for value in there):
        return "number"
    return "text"


def _seconds(value: object) -> float | None:
    """Return a time in seconds since 1970-01-01 UTC, its zone if it has none."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC).timestamp()
    return None


def _number(value: object) -> float | int | None:
    """Return the value as a number to draw; None if it cannot be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        found = float(value)
    except (OverflowError, ValueError):  # of a signalling NaN
        return None
    if not abs(found) < _LARGEST:
        return None
    if abs(found) < 1 / _LARGEST:
        return 0
    return int(found) if found.is_integer() and abs(found) < 1e15 else found


def _has_times(tables: Sequence[Table]) -> bool:
    return any(
        table.chart is not None and table.chart.kind in ("range", "flow") and table.chart.cube
        for table in tables
    )


def _total(tables: Sequence[Table], figures: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return by which figure's cube chosen messages are counted."""
    for figure in figures:
        if figure["measure"] and figure["kind"] in ("bar", "range"):
            return {key: figure[key] for key in ("data", "measure", "every")}
    return None


# --- texts and files


def _kind(values: list[object], texts: list[str]) -> str:
    if any(value is not None for value in values) and all(
        _is_number(value) or value is None for value in values
    ):
        return "number"
    return "short" if all(len(text) <= _SHORT and "\n" not in text for text in texts) else "text"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alarm(name: str, value: object) -> str:
    """The class of a figure that is wrong; empty where nothing is."""
    if not _is_number(value) or not value:
        return ""
    return "wrong" if name in WRONG else "late" if name in LATE else ""


def _text(value: object) -> str:
    if isinstance(value, datetime):
        # The page says once that all times are in UTC.
        text = shown(value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None))
        return text.removesuffix(".000")
    return plain(shown(value))


def _as_json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(
        _ESCAPED
    )


def vendored_scripts() -> tuple[str, ...]:
    """Return the scripts of others that draw, in the order to be run."""
    here = resources.files("pipeline.report")
    return tuple((here / name).read_text(encoding="utf-8") for name in _SCRIPTS)


@cache
def _scripts() -> tuple[str, ...]:
    """The page's scripts: those of others, and its own as one."""
    here = resources.files("pipeline.report")
    own = "".join((here / name).read_text(encoding="utf-8") for name in _OWN)
    return (*vendored_scripts(), f"(function () {{\n'use strict';\n{own}}})();\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(job: str, number: object) -> str:
    return f"{job}-part-{number}.csv"


def _as_csv(table: Table) -> str:
    """All rows, such that no spreadsheet takes a text for a formula."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\r\n")
    rows.writerow([_harmless(plain(name)) for name in table.columns])
    rows.writerows(
        [value if _is_number(value) else _harmless(_text(value)) for value in row]
        for row in table.rows
    )
    return written.getvalue()


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
