"""The work of each job is spread over tasks, however it is shared out.

Two things are looked at: what Spark plans, and how many rows the busiest task of each stage was
given where nine of ten rows are alike: one link, body, queue or trouble has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pipeline.transforms.dead_letters import groups, of_events
from pipeline.transforms.journeys import journeys
from pipeline.transforms.perhaps_sent import doubtful
from pipeline.transforms.reconcile import compared, counts, gaps, messages, transfers
from tests.pipeline import crowded

_END: Final = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
_EVENTS: Final = 24_000
_PARTITIONS: Final = 16
#: What a window may be over: of each there are few rows, or it is a stretch of a sequence.
_SMALL: Final = ("message_id", "_stretch", "_second")
#: Rows of a stage that one task may have, whatever share of all that is.
_FEW: Final = 400


def reconciled(events: DataFrame, seen: DataFrame) -> DataFrame:
    return messages(transfers(events), seen, late=60.0)


def judged(spark: SparkSession, count: int, alike: bool) -> DataFrame:
    return reconciled(crowded.on_links(spark, count, alike), crowded.seen(spark, count))


def links(events: DataFrame, seen: DataFrame) -> DataFrame:
    return counts(reconciled(events, seen))


def missing(events: DataFrame, seen: DataFrame) -> DataFrame:
    return gaps(transfers(events), seen, events)


def at_target(found: DataFrame, _: DataFrame) -> DataFrame:
    return compared(found, crowded.lying(found), crowded.TARGET)


def troubles(events: DataFrame, _: DataFrame) -> DataFrame:
    return groups(of_events(events), _END)


def unsure(events: DataFrame, _: DataFrame) -> DataFrame:
    named = {"key": "message_id", "twin": "message_id", "target": "destination", "place": "line"}
    pending = events.select("time", *(sql.col(at).alias(name) for name, at in named.items()))
    records = pending.where("place % 100 = 0").select(
        sql.lit("intended").alias("state"), sql.col("time").alias("at"), "key", "twin", "target"
    )
    return doubtful(pending, records, "127.0.0.1:7672", 0)


Job = Callable[[DataFrame, DataFrame], DataFrame]
Made = Callable[[SparkSession, int, bool], DataFrame]
JOBS: Final[list[tuple[Job, Made]]] = [
    (links, crowded.on_links),
    (missing, crowded.on_links),
    (at_target, judged),
    (troubles, crowded.deaths),
    (unsure, crowded.deaths),
    (journeys, crowded.at_queues),
]
jobs = pytest.mark.parametrize(("job", "made"), JOBS, ids=[job.__name__ for job, _ in JOBS])


def _kept(frame: DataFrame, folder: Path) -> DataFrame:
    """The frame from files, so that Spark does not know what is in it."""
    frame.write.parquet(str(folder))
    return frame.sparkSession.read.parquet(str(folder))


@jobs
def test_no_step_is_one_task(spark: SparkSession, tmp_path: Path, job: Job, made: Made) -> None:
    rows = _kept(made(spark, 100, True), tmp_path / "rows")
    seen = _kept(crowded.seen(spark, 100), tmp_path / "seen")
    assert narrow_places(job(rows, seen)) == []


def test_a_step_that_is_one_task_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    rows = _kept(crowded.deaths(spark, 100, True), tmp_path / "rows")
    count = sql.count("*")
    for keys in ((), ("instance",), ("instance", "link")):
        alone = rows.withColumn("all", count.over(Window.partitionBy(*keys)))
        assert narrow_places(alone)
    assert narrow_places(rows.repartition(1))
    assert narrow_places(rows.agg(count)) == []


@pytest.mark.parametrize("count", [_EVENTS, pytest.param(1_000_000, marks=pytest.mark.long)])
@jobs
def test_no_task_has_what_is_alike(
    spread: SparkSession, tmp_path: Path, job: Job, made: Made, count: int
) -> None:
    rows = _kept(made(spread, count, True), tmp_path / "rows")
    seen = _kept(crowded.seen(spread, count), tmp_path / "seen")
    for most, together in rows_of_tasks(job(rows, seen)):
        assert most <= max(together / 2, _FEW)


def test_a_task_that_has_what_is_alike_is_seen(spread: SparkSession) -> None:
    over = Window.partitionBy("destination")
    rows = crowded.deaths(spread, _EVENTS, True)
    alike = rows.withColumn("all", sql.count("*").over(over))
    [(most, together)] = rows_of_tasks(alike)
    assert most >= together * 0.9


@pytest.fixture
def spread(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with many partitions, however small they are."""
    chosen = {
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    before = {name: spark.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def narrow_places(frame: DataFrame) -> list[str]:
    """Return the steps of a plan that are one task, or Python.

    What is counted already is few rows: a task may have it all.
    """
    found = []
    for node in _nodes(frame._jdf.queryExecution().executedPlan()):
        text = str(node.simpleString(1_000))
        name = str(node.nodeName())
        window = name == "Window" and not any(f"{each}#" in _over(node) for each in _SMALL)
        single = name == "Exchange" and "SinglePartition" in text
        if "Python" in name or ((window or single) and not _counted(node)):
            found.append(text)
    return found


def _nodes(plan: Any) -> Iterator[Any]:
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.inputPlan()
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _over(window: Any) -> str:
    """What a window's partitions have in common, as Spark writes it."""
    return str(window.partitionSpec())


def _counted(node: Any) -> bool:
    """Whether a step's rows are sums, or the first ones of each task."""
    children = list(_each(node.children()))
    # A semi-join has rows of its left side only.
    if not children or (len(children) > 1 and "LeftSemi" not in str(node.simpleString(1_000))):
        return False
    child = children[0]
    name = str(child.nodeName())
    if name.endswith("Aggregate") or "LocalLimit" in name:
        return True
    if name == "WindowGroupLimit" and "Partial" in str(child.simpleString(1_000)):
        return True
    return _counted(child)


def _each(many: Any) -> Iterator[Any]:
    """What is in one of Scala's sequences."""
    return (many.apply(place) for place in range(many.size()))


def rows_of_tasks(frame: DataFrame) -> list[tuple[int, int]]:
    """Return the rows that the busiest task of each stage read, and all.

    Only what it was given by an earlier stage counts.
    """
    context = frame.sparkSession.sparkContext
    group = str(uuid4())
    context.setJobGroup(group, "rows of tasks")
    try:
        frame.write.format("noop").mode("overwrite").save()
    finally:
        context._jsc.clearJobGroup()
    java = context._jsc.sc()
    # What the tasks say of themselves comes by this bus.
    java.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for info in infos if info is not None for stage in info.stageIds}
    found = []
    for stage in sorted(stages):
        tasks = java.statusStore().taskList(stage, 0, 10_000)
        read = [
            int(task.taskMetrics().get().shuffleReadMetrics().recordsRead())
            for task in _each(tasks)
            if task.taskMetrics().isDefined()
        ]
        if sum(read):
            found.append((max(read), sum(read)))
    assert found, "no stage read what another had written"
    return found
