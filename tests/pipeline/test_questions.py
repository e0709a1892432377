"""The page of questions: each is asked of DuckDB and of Spark, as written there."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from pipeline.command import main
from tests.documented_blocks import blocks, shown
from tests.end_to_end.sessions import commands
from tests.pages import printed
from tests.pipeline.delivery_steps import LINKS, QUEUES, TOOK, write_steps
from tests.pipeline.generated import Truth, write_journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = Path(__file__).parents[2] / "docs" / "pipeline_questions.rst"
MESSAGES: Final = 200


@dataclass(frozen=True)
class Page:
    """What the page has in code.

    :param views: the statements that make them.
    :param programs: in Python: for DuckDB, and for Spark.
    :param questions: SQL by its heading.
    """

    views: list[str]
    programs: list[str]
    questions: dict[str, str]


def read_page() -> Page:
    views, programs, questions = [], [], {}
    text = PAGE.read_text(encoding="utf-8")
    heading = ""
    for found in re.finditer(
        r"^(?P<heading>[^\n]+)\n-{5,}$|^\.\. code-block:: (?P<language>\w+)\n\n(?P<code>(?:(?:    [^\n]*)?\n)+)",
        text,
        re.MULTILINE,
    ):
        if found["heading"]:
            heading = found["heading"]
        elif found["language"] == "python":
            programs.append(dedent(found["code"]))
        elif found["code"].lstrip().startswith("create"):
            views.append(dedent(found["code"]))
        else:
            assert heading not in questions
            questions[heading] = dedent(found["code"])
    return Page(views, programs, questions)


WRITTEN: Final = read_page()


@dataclass(frozen=True)
class Kept:
    """The tables of a journal, in both.

    :param said: what the jobs printed that made them.
    """

    folder: Path
    said: str
    truth: Truth | None
    duckdb: duckdb.DuckDBPyConnection
    spark: SparkSession

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """The answer, which is the same of both."""
        query = WRITTEN.questions[question]
        columns = [column[0] for column in self.duckdb.execute(query).description or ()]
        one = [tuple(map(_plain, row)) for row in self.duckdb.execute(query).fetchall()]
        self.expose()
        frame = self.spark.sql(query)
        other = [tuple(map(_plain, row)) for row in frame.collect()]
        assert columns == frame.columns
        assert one == other
        return one

    def expose(self) -> None:
        """Make the views of this session, which other tables may have taken since."""
        exec(_placed(WRITTEN.programs[1], self.folder), {"spark": self.spark})
        for view in WRITTEN.views:
            self.spark.sql(view)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return round(value, 6) if isinstance(value, float) else value


def _placed(program: str, folder: Path) -> str:
    assert program.count('"/data/') == 2
    return program.replace('"/data/', f'"{folder}/')


def kept(spark: SparkSession, folder: Path, truth: Truth | None) -> Iterator[Kept]:
    events, answer = str(folder / "events"), str(folder / "answer")
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["ingest", "--journal", str(folder / "journal"), "--into", events]) == 0
        assert main(["journeys", events, "--output", answer]) == 0
    names: dict[str, Any] = {}
    exec(_placed(WRITTEN.programs[0], folder), names)
    database: duckdb.DuckDBPyConnection = names["database"]
    for view in WRITTEN.views:
        database.execute(view)
    yield Kept(folder, out.getvalue(), truth, database, spark)
    database.close()
    for name in ("events", "journeys", "links", "dead_letters"):
        spark.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def steps(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Of messages that take each step, and of links with trouble."""
    folder = tmp_path_factory.mktemp("steps")
    write_steps(folder / "journal", MESSAGES)
    yield from kept(spark, folder, None)


@pytest.fixture(scope="module")
def traffic(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Of messages that wait, are given back, and die."""
    folder = tmp_path_factory.mktemp("traffic")
    truth = write_journal(folder / "journal", 4_000, seed=20, queues=5)
    yield from kept(spark, folder, truth)


def test_there_are_ten() -> None:
    assert len(WRITTEN.questions) == 10
    assert (len(WRITTEN.views), len(WRITTEN.programs)) == (2, 2)


@pytest.mark.parametrize("question", list(WRITTEN.questions))
def test_both_give_the_same_answer(question: str, traffic: Kept) -> None:
    answer = traffic.ask(question)
    if "ID:lake/orders-0" not in WRITTEN.questions[question]:
        assert len(answer) > 0


def test_what_became_of_messages_and_what_is_lost(traffic: Kept) -> None:
    truth = traffic.truth
    assert truth is not None
    outcomes = traffic.ask("What became of the messages?")
    assert {row[0]: row[1] for row in outcomes} == truth.outcomes
    missing = traffic.ask("What is lost, or in doubt, and who sent it?")
    assert {row[0] for row in missing if row[1] == "lost"} == truth.ids["lost"]
    assert {row[0] for row in missing if row[1] == "in doubt"} == truth.ids["in doubt"]
    assert {row[5] for row in missing if row[1] == "lost"} == {"guest"}


def test_what_waits_dies_and_is_given_back(traffic: Kept) -> None:
    truth = traffic.truth
    assert truth is not None
    waiting = traffic.ask("Where do messages wait, and since when?")
    assert sum(row[1] for row in waiting) == truth.outcomes["waiting"]
    dead = traffic.ask("What dies where, and why?")
    assert sum(row[3] for row in dead) == truth.outcomes["dead"] + truth.outcomes["expired"]
    consumers = traffic.ask("Which consumers give messages back?")
    assert {row[1] for row in consumers} == {"reader"}
    assert sum(row[3] for row in consumers) == len(truth.redelivered)


def test_how_slow_destinations_and_how_late_links_are(steps: Kept) -> None:
    slow = {row[0]: row[1:] for row in steps.ask("Which destinations are slow?")}
    usual, rare = (TOOK["routed"][place] + TOOK["delivered"][place] for place in (0, 1))
    for queue in QUEUES:
        assert slow[queue] == (MESSAGES, usual, rare, TOOK["acknowledged"][1])
    late = {row[0]: row[1:] for row in steps.ask("How late are links?")}
    assert set(late) == set(LINKS)
    for link, (_, _, count, lost, died, overdue) in LINKS.items():
        messages, half, _, minutes = late[link]
        assert (messages, half, minutes) == (count - lost - died, 12, overdue)
    hours = steps.ask("How much comes in each hour?")
    assert sum(row[2] for row in hours) == MESSAGES * len(QUEUES) + sum(
        link[2] for link in LINKS.values()
    )
    assert {row[3] for row in hours if row[1] == QUEUES[0]} == {300 * MESSAGES}


def test_whether_links_deliver_all(steps: Kept) -> None:
    found = {row[0]: row[1:] for row in steps.ask("Did each link deliver all that it took?")}
    assert found == {
        link: (source, target, count, count - lost - died, lost, died, 0)
        for link, (source, target, count, lost, died, _) in LINKS.items()
    }


def test_what_happened_to_one_message(steps: Kept) -> None:
    answer = steps.ask("What happened to this message?")
    assert [row[1] for row in answer] == ["received", "sent", "arrived", "settled"]
    assert {row[3] for row in answer} == {"lake/orders"}


def test_the_page_of_the_pipeline_shows_what_is_printed(
    traffic: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    session = list(commands(shown("pipeline", "$ gateway-pipeline ingest")))
    [(ingest, ingested), (journeys, outcomes), (one, steps)] = session
    said = traffic.said.replace(str(traffic.folder), "/data")
    assert ingest.split()[1:3] == ["ingest", "--journal"]
    assert printed.has(said, ingested), said
    assert journeys == "gateway-pipeline journeys /data/events"
    facts, table = outcomes.strip().split("\n\n")
    assert printed.has(said, facts), said
    for line in table.splitlines():
        assert printed.has(said, line), f"{line}\n{said}"
    name = "ID:7-127.0.0.1(e2:91)-40123-11513"
    assert one == f"gateway-pipeline journeys /data/events --message '{name}'"
    query = "select message_id from journeys where outcome = 'delivered' and produced is not null limit 1"
    [[id]] = traffic.duckdb.execute(query).fetchall()
    capsys.readouterr()
    assert main(["journeys", str(traffic.folder / "events"), "--message", id]) == 0
    said = capsys.readouterr().out
    # Columns without anything are left out.
    columns, there = (
        next(re.findall(r"[^┃ ]+", line) for line in text.splitlines() if " step " in line)
        for text in (steps, said)
    )
    assert there == [column for column in columns if column not in ("attempt", "reason")]
    assert {"produced", "delivered", "acknowledged"} <= set(said.split())


def test_the_page_of_tables_is_run(traffic: Kept) -> None:
    page = [block.text for block in blocks(PAGE.with_name("pipeline_tables.rst"))]
    names: dict[str, Any] = {"spark": traffic.spark}
    ran = 0
    for text in page:
        # That one needs jars of Delta Lake's, which no test has.
        if 'format("delta")' in text:
            continue
        text = text.replace("/data/archive", "/data/answer/journeys")
        exec(text.replace('"/data/', f'"{traffic.folder}/'), names)
        ran += 1
    assert ran == len(page) - 1 == 3
