"""What jobs do with an answer: show a summary, write a table, report.

Owns the options ``--output``, ``--format`` and ``--report``, what a terminal shows of a
:mod:`summary <pipeline.summary>`, and progress on long work. Knows no job.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from pipeline.errors import PipelineError
from pipeline.option_groups import option_group
from pipeline.session import is_remote, without_secrets
from pipeline.summary import Chart, Summary, Table, plain, shown
from pipeline.tables.names import check_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_Function = TypeVar("_Function", bound=Callable[..., Any])

FORMATS: Final = ("delta", "parquet", "csv", "json")
_POLL_SECONDS: Final = 0.3
#: Of lines that no terminal breaks.
_WIDTH: Final = 180


@dataclass(frozen=True)
class Output:
    """Where a job's answer goes besides the terminal.

    :param path: a folder to write, anything that Spark can write to; None: nowhere.
    :param format: of :data:`FORMATS`.
    :param report: the folder for a page; None: none.
    """

    path: str | None = None
    format: str = "delta"
    report: Path | None = None

    @property
    def kept(self) -> bool:
        """Whether Spark computes as well with what is written."""
        return self.path is not None and self.format in ("delta", "parquet")

    def write(self, frame: DataFrame, name: str = "") -> DataFrame:
        """Write a table whole, in place of what the folder had before.

        Until it is whole, and if it never is, the folder has what it had.

        CSV has no maps and arrays, and no octets: the former are written as JSON texts, the latter
        as Base64.

        :param name: of a folder below the path, where a job writes several tables.
        :returns: what was written, if it is :attr:`kept`; else the frame itself, and where no path
            was given nothing was done.
        """
        if self.path is None:
            return frame
        from pipeline.tables.answers import write_answer

        place = f"{self.path.rstrip('/')}/{name}" if name else self.path
        written = write_answer(flat(frame) if self.format == "csv" else frame, place, self.format)
        return written if self.kept else frame

    def finish(self, summary: Summary, console: Console | None = None) -> None:
        """Show the summary, and write the report where one was asked for.

        :raises PipelineError: when the report's packages are not installed.
        """
        console = console or Console(width=None if sys.stdout.isatty() else _WIDTH)
        show(summary, console)
        if self.path is not None:
            console.print(
                f"Written as {self.format} to {self.path}",
                soft_wrap=True,
                markup=False,
                highlight=False,
            )
        if self.report is None:
            return
        try:
            from pipeline.report.page import write_page
        except ModuleNotFoundError as error:
            raise PipelineError(
                f"--report needs the Python package {error.name}: pip install 'stomp-gateway[pipeline]'"
            ) from error
        page = write_page(self.report, summary, *_asked(), datetime.now(UTC))
        console.print(f"Report: {page}", soft_wrap=True, markup=False, highlight=False)


def report_option(command: _Function) -> _Function:
    """Give a click command ``--report`` alone: ``report``, a path or None."""
    path = click.Path(file_okay=False, path_type=Path)
    return click.option(
        "--report", type=path, metavar="DIR", help="A page with tables and plots, there."
    )(command)


def output_options(command: _Function) -> _Function:
    """Give a click command the output options: ``output``, an :class:`Output`."""

    options = (
        click.option(
            "--output", metavar="DIR", help="Write the answer there, in place of what was there."
        ),
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            default="delta",
            show_default=True,
            help="Of --output.",
        ),
        report_option,
    )
    return option_group(
        "output",
        options,
        _output,
    )(command)


def _output(given: Mapping[str, Any]) -> Output:
    if given["output"] is not None and given["format"] == "delta":
        check_name(given["output"])
    return Output(given["output"], given["format"], given["report"])


def _asked() -> tuple[str, dict[str, str]]:
    """Return the running job and its command line, without secrets.

    Without a command the name is a placeholder.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return "report", {}
    given: dict[str, str] = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params.get(name)
        if context.get_parameter_source(name) is ParameterSource.DEFAULT or value is None:
            continue
        # Of settings of Spark's the names: among the values are keys of storage.
        values = list(value) if isinstance(value, Mapping | list | tuple) else [value]
        said = (
            parameter.opts[0]
            if isinstance(parameter, click.Option)
            else parameter.human_readable_name
        )
        given[said.strip("[].")] = ", ".join(without_secrets(shown(one)) for one in values)
    return context.info_name or "report", given


def flat(frame: DataFrame) -> DataFrame:
    """Return the rows with columns that a CSV file can have.

    Maps, arrays and structures become JSON, bytes become Base64.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    columns: list[Column] = []
    for one in frame.schema.fields:
        column = frame[one.name]
        if isinstance(one.dataType, ArrayType | MapType | StructType):
            column = sql.to_json(column)
        elif isinstance(one.dataType, BinaryType):
            column = sql.base64(column)
        columns.append(column.alias(one.name))
    return frame.select(columns)


def top(
    frame: DataFrame, count: int, title: str, chart: Chart | None = None, long: bool = False
) -> Table:
    """Return a frame's first rows as a table of a summary.

    At most ``count`` + 1 of them come to the driver.
    """
    rows = frame.limit(count + 1).collect()
    return replace(first_rows(rows, frame.columns, count, title), chart=chart, long=long)


def first_rows(
    rows: Sequence[Sequence[object]], columns: Sequence[str], count: int, title: str
) -> Table:
    """Return rows that Spark has returned as a table of a summary.

    :param count: how many of them at most.
    """
    note = f"The first {count}; there are more." if len(rows) > count else ""
    return Table(title, tuple(columns), [tuple(map(in_utc, row)) for row in rows[:count]], note)


def in_utc(value: object) -> object:
    """Return Spark's naive times, which are in this machine's zone, in UTC.

    What is no time stays as it is.
    """
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def show(summary: Summary, console: Console) -> None:
    """Print a summary.

    Names and comments in it come from anybody: what a terminal would obey is written out.
    """
    console.print(Text(plain(summary.title), style="bold"))
    width = max((len(name) for name in summary.facts), default=0)
    for name, value in summary.facts.items():
        console.print(
            f"  {name.ljust(width)}  {_said(value)}", soft_wrap=True, markup=False, highlight=False
        )
    for table in summary.tables:
        if not table.rows or table.long:
            continue
        # The title and the note are lines of their own: in the table they would be broken where it
        # is narrow.
        console.print()
        console.print(Text(plain(table.title), style="bold"))
        drawn = RichTable()
        for place, name in enumerate(table.columns):
            numbers = all(isinstance(row[place], int | float | None) for row in table.rows)
            drawn.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(Text(_said(value)) for value in row))
        console.print(drawn)
        if table.note:
            console.print(Text(table.note))


def _said(value: object) -> str:
    return plain(shown(value))


@contextmanager
def progress(spark: SparkSession, text: str, console: Console | None = None) -> Iterator[None]:
    """Show Spark's progress on a terminal while the body runs.

    :param console: on the standard error, if not given.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=0)

        def show(stages: Iterable[tuple[int, int]]) -> None:
            counts = list(stages)
            bar.update(
                task,
                completed=sum(done for done, _ in counts),
                total=sum(all_ for _, all_ in counts),
            )

        with _followed(spark, show):
            yield


@contextmanager
def _followed(
    spark: SparkSession, show: Callable[[Iterable[tuple[int, int]]], None]
) -> Iterator[None]:
    """Show what is under way: of each stage, the tasks that are done and all."""
    if is_remote(spark):

        def told(
            stages: Iterable[Any] | None,
            inflight_tasks: int,
            operation_id: str | None,
            done: bool,
        ) -> None:
            show((one.num_completed_tasks, one.num_tasks) for one in stages or ())

        handler: Any = told
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
        return
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def follow() -> None:
        while not over.wait(_POLL_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            show((stage.numCompletedTasks, stage.numTasks) for stage in known)

    follower = threading.Thread(target=follow, name="progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
