"""Tables of Delta Lake that Spark has written and other programs read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyarrow import parquet
from pyarrow.dataset import Dataset
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pipeline.errors import PipelineError
from pipeline.tables import delta
from pipeline.tables.compaction import Exchange, put_together
from pipeline.tables.delta import DeltaFolder, Files


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    """A row for each number, with all kinds of columns."""
    number = sql.col("id")
    return spark.range(first, last, 1, 2).select(
        number.alias("number"),
        sql.timestamp_micros(number * 43_200_000_001 - 1).alias("time"),
        sql.concat(sql.lit("queue:ö/"), (number % 3).cast("string")).alias("destination"),
        sql.when(number % 2 == 0, sql.repeat(sql.lit("long"), 100)).alias("text"),
        sql.create_map(sql.lit("k"), number.cast("string")).alias("headers"),
        number.cast("string").cast("binary").alias("body"),
        sql.when(
            number % 5 > 0, sql.to_date(sql.timestamp_micros(number * 43_200_000_001 - 1))
        ).alias("day"),
    )


def asked(rows: Dataset, where: str) -> int:
    """How many of the rows DuckDB finds."""
    (found,) = duckdb.from_arrow(rows).filter(where).aggregate("count(*)").fetchall()
    return int(found[0])


def counts(spark: SparkSession, folder: Path) -> dict[str, int]:
    """How many rows each reader finds, and each that asks for some of them."""
    table = DeltaTable(folder)
    arrow = table.to_pyarrow_dataset()
    lazy = polars.scan_delta(str(folder))
    few = "number between 2 and 5 and destination = 'queue:ö/2'"
    return {
        "ours": DeltaFolder(spark, str(folder)).frame().count(),
        "plain Spark": spark.read.parquet(*table.file_uris()).count() if table.file_uris() else 0,
        "arrow": arrow.count_rows(),
        "DuckDB": asked(arrow, "true"),
        "polars": lazy.select(polars.len()).collect().item(),
        "some, ours": DeltaFolder(spark, str(folder)).frame().where(few).count(),
        "some, DuckDB": asked(arrow, few),
        "some, polars": lazy.filter(
            polars.col("number").is_between(2, 5), polars.col("destination") == "queue:ö/2"
        )
        .select(polars.len())
        .collect()
        .item(),
    }


def all_say(there: int, few: int) -> dict[str, int]:
    """:func:`counts` as they should be."""
    readers = ("ours", "plain Spark", "arrow", "DuckDB", "polars")
    some = ("some, ours", "some, DuckDB", "some, polars")
    return dict.fromkeys(readers, there) | dict.fromkeys(some, few)


def test_some_files_take_the_place_of_others_in_the_version_that_was_looked_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    assert table.snapshot() is None
    first = table.write(rows(spark, 0, 3), ["day"], ["number"])
    table.exchange(None, (), first, ("a", 1))
    with pytest.raises(PipelineError, match="was written by another run meanwhile"):
        table.exchange(None, (), first, ("a", 2))
    table.append(table.write(rows(spark, 3, 8), ["day"], ["number"]))
    then = table.snapshot()
    assert then is not None
    assert then.newest("a") == 1
    # The rows without a day, too.
    gone = {
        one["path"] for one in then.files if one["partition.day"] is None or one["min.number"] < 3
    }
    kept = then.frame(lambda one: one["path"] not in gone).count()
    assert 0 < kept < 8
    new = table.write(rows(spark, 20, 24), ["day"])
    table.exchange(then, gone, new, ("a", 2))
    assert counts(spark, tmp_path) == all_say(kept + 4, counts(spark, tmp_path)["some, DuckDB"])
    assert table.newest("a") == 2
    # Of two that looked at the same version one is told.
    with pytest.raises(PipelineError, match="was written by another run meanwhile"):
        table.exchange(then, gone, new, ("a", 3))
    assert counts(spark, tmp_path)["polars"] == kept + 4
    assert then.frame().count() == 8


def test_all_readers_find_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    assert not table.exists()
    table.append(table.write(rows(spark, 0, 10), ["day"]))
    assert counts(spark, tmp_path) == all_say(10, 2)
    table.append(table.write(rows(spark, 10, 14), ["day"]))
    assert counts(spark, tmp_path) == all_say(14, 2)
    # What was written, and not committed, is not seen.
    table.write(rows(spark, 20, 30), ["day"])
    assert counts(spark, tmp_path) == all_say(14, 2)
    table.replace(table.write(rows(spark, 5, 8), ["day"]))
    assert counts(spark, tmp_path) == all_say(3, 1)
    before = duckdb.from_arrow(DeltaTable(tmp_path, version=1).to_pyarrow_dataset())
    assert before.aggregate("count(*), count(text), max(time)::date::varchar").fetchall() == [
        (14, 7, "1970-01-07")
    ]
    table.replace(table.write(rows(spark, 0, 0), ["day"]))
    assert counts(spark, tmp_path) == all_say(0, 0)
    assert table.frame().columns == rows(spark, 0, 0).drop("day").columns


@pytest.mark.parametrize("indexed", [(), ("number", "time", "destination", "text")])
def test_no_reader_passes_over_a_file_that_has_what_it_asks_for(
    spark: SparkSession, tmp_path: Path, indexed: Sequence[str]
) -> None:
    """Also where a bound cannot be told, as of a long text."""
    table = DeltaFolder(spark, str(tmp_path))
    given = rows(spark, 0, 20)
    end = sql.timestamp_micros(sql.lit(253_402_300_799_999_999))
    ended = rows(spark, 20, 21).withColumn("time", end)
    empty = rows(spark, 21, 22).withColumn("text", sql.lit(None).cast("string"))
    for frame in (given, ended, empty):
        table.append(table.write(frame.drop("day"), (), indexed))
    arrow, lazy = DeltaTable(tmp_path).to_pyarrow_dataset(), polars.scan_delta(str(tmp_path))
    everything = table.frame()
    for where in (
        "number = 20",
        "number > 0 and text like 'long%'",
        "text > 'a'",
        "text is null",
        "text is null and number = 21",
        "time > timestamp '1969-12-31 00:00:00'",
        "time > timestamp '9999-12-31 00:00:00'",
        "destination = 'queue:ö/1'",
    ):
        expected = everything.where(where).count()
        assert expected > 0
        in_utc = where.replace("timestamp '", "timestamptz '").replace("00'", "00+00'")
        assert asked(arrow, in_utc) == expected, where
    long = polars.col("text").str.starts_with("long") & (polars.col("number") > 0)
    assert lazy.filter(long).select(polars.len()).collect().item() == 10
    table.compact()
    assert asked(DeltaTable(tmp_path).to_pyarrow_dataset(), "text is null") == (
        everything.where("text is null").count()
    )


def test_what_is_not_the_tables_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    folder, other = tmp_path / "answer", tmp_path / "other"
    table = DeltaFolder(spark, str(folder))
    table.replace(table.write(rows(spark, 0, 5)))
    below = DeltaFolder(spark, str(folder / "below"))
    below.replace(below.write(rows(spark, 0, 5)))
    other.mkdir()
    (folder / "link").symlink_to(other)
    mine = [folder / "notes.txt", folder / "data" / "mine.parquet", other / "theirs.parquet"]
    for path in mine:
        path.write_text("kept")
    assert table.vacuum(timedelta(0)) == 0
    assert [path.read_text() for path in mine] == ["kept"] * len(mine)
    assert below.frame().count() == 5


def test_files_that_do_not_fit_a_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    table.append(table.write(rows(spark, 0, 5), ["day"]))
    for frame, by, said in (
        (rows(spark, 0, 1), (), "partitioned by day: expected one by nothing"),
        (rows(spark, 0, 1).drop("text"), ["day"], r"other columns \(text\)"),
        (rows(spark, 0, 1).withColumn("text", sql.lit(1)), ["day"], r"other columns \(text\)"),
        (
            rows(spark, 0, 1).withColumnRenamed("text", "Text"),
            ["day"],
            r"other columns \(Text, text\)",
        ),
        (
            rows(spark, 0, 1).withColumn("new", sql.lit(1)).drop("text"),
            ["day"],
            r"other columns \(text\)",
        ),
    ):
        with pytest.raises(PipelineError, match=said):
            table.append(table.write(frame, by))
    with pytest.raises(PipelineError, match="partitioned by day"):
        table.replace(table.write(rows(spark, 0, 1)))
    assert table.frame().count() == 5


@pytest.mark.parametrize("by", [(), ("day",)])
@pytest.mark.parametrize("indexed", [(), ("number", "destination", "new")])
def test_a_table_gets_new_columns(
    spark: SparkSession, tmp_path: Path, by: Sequence[str], indexed: Sequence[str]
) -> None:
    """All readers see null in the rows before, also after a compaction."""
    table = DeltaFolder(spark, str(tmp_path))
    old = rows(spark, 0, 6)
    new = rows(spark, 6, 10).withColumn("new", sql.concat(sql.lit("n"), "number"))
    new = new.withColumn("pairs", sql.create_map(sql.lit("k"), sql.array(sql.col("number"))))
    table.append(table.write(old, by, [one for one in indexed if one != "new"]), ("app", 1))
    known = table.frame(known=new.schema)
    assert known.columns == new.drop(*by).columns
    assert known.where("new is null and pairs is null").count() == 6
    assert table.append(table.write(new, by, indexed), ("app", 2))
    assert not table.append(table.write(new, by, indexed), ("app", 2))
    expected = [*([None] * 6), "n6", "n7", "n8", "n9"]

    def check() -> None:
        assert counts(spark, tmp_path) == all_say(10, 2)
        frame = table.frame().orderBy("number")
        assert [row.new for row in frame.collect()] == expected
        assert [row.pairs for row in frame.collect()][5:7] == [None, {"k": [6]}]
        delta = DeltaTable(tmp_path)
        arrow, lazy = delta.to_pyarrow_dataset(), polars.scan_delta(str(tmp_path))
        there = arrow.to_table(["number", "new"]).sort_by("number").column("new").to_pylist()
        assert there == expected
        assert lazy.sort("number").collect()["new"].to_list() == expected
        plain = spark.read.option("mergeSchema", True).parquet(*delta.file_uris())
        assert plain.select(frame.columns).orderBy("number").collect() == frame.collect()
        for where, column in (
            ("new is null", polars.col("new").is_null()),
            ("new is not null", polars.col("new").is_not_null()),
            ("new = 'n7'", polars.col("new") == "n7"),
            (
                "new is null and number = 3",
                polars.col("new").is_null() & (polars.col("number") == 3),
            ),
        ):
            found = frame.where(where).count()
            assert found > 0
            assert asked(arrow, where) == found
            assert lazy.filter(column).select(polars.len()).collect().item() == found

    check()
    version = DeltaTable(tmp_path, version=0).to_pyarrow_dataset()
    assert version.schema.names == old.columns
    # A job of an earlier version is told which columns it lacks.
    with pytest.raises(PipelineError, match=r"other columns \(new, pairs\)"):
        table.append(table.write(old, by))
    # Into a partition with old rows, too.
    one = new.where("number = 6").withColumn("day", sql.lit("1970-01-02").cast("date"))
    for number in range(10, 30):
        row = one.withColumn("number", sql.lit(number).cast("long"))
        table.append(table.write(row.coalesce(1), by, indexed))
    expected += ["n6"] * 20
    assert table.compact() > 20
    assert [row.new for row in table.frame().orderBy("number").collect()] == expected
    assert asked(DeltaTable(tmp_path).to_pyarrow_dataset(), "new is null") == 6
    assert (
        polars.scan_delta(str(tmp_path)).filter(polars.col("new").is_null()).collect().height == 6
    )


def test_two_who_bring_a_column_at_once_bring_it_once(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    table.append(table.write(rows(spark, 0, 2)))
    files = [
        table.write(rows(spark, 10 * one, 10 * one + 2).withColumn("new", sql.lit(one)))
        for one in range(1, 5)
    ]
    together = threading.Barrier(len(files))

    def append(one: Files) -> bool:
        together.wait()
        return DeltaFolder(spark, str(tmp_path)).append(one)

    with ThreadPoolExecutor(len(files)) as pool:
        assert list(pool.map(append, files)) == [True] * len(files)
    found = Counter(row.new for row in table.frame().collect())
    assert found == {None: 2, 1: 2, 2: 2, 3: 2, 4: 2}


def test_a_row_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    given = rows(spark, 0, 7)
    table.append(table.write(given, ["day", "destination"]))
    without = given.drop("day", "destination").orderBy("number")
    assert table.frame().orderBy("number").collect() == without.collect()
    there = DeltaTable(tmp_path).to_pyarrow_dataset().to_table().to_pylist()
    assert {one["number"]: (one["day"], one["destination"]) for one in there} == {
        row.number: (row.day, row.destination) for row in given.collect()
    }
    assert sorted(one["number"] for one in there if one["day"] is None) == [0, 5]


def files_by_day(folder: Path) -> Counter[object]:
    """How many files each day has."""
    about = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    return Counter(one["partition.day"] for one in about)


def commits(folder: Path) -> list[dict[str, set[bool]]]:
    """Return the values of dataChange in each version, by action."""
    found = []
    for path in sorted((folder / "_delta_log").glob("*.json")):
        said: dict[str, set[bool]] = {}
        for line in path.read_text().splitlines():
            for kind, about in json.loads(line).items():
                if kind in ("add", "remove"):
                    said.setdefault(kind, set()).add(about["dataChange"])
        found.append(said)
    return found


def test_small_files_are_put_together_and_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    for first in range(0, 70, 7):
        table.append(table.write(rows(spark, first, first + 7), ["day"]))
    before = table.frame().orderBy("number").collect()
    assert len(before) == 70
    files = DeltaTable(tmp_path).file_uris()
    gone = table.compact()
    assert 0 < gone < len(files)
    assert max(files_by_day(tmp_path).values()) <= 2
    assert commits(tmp_path)[-1] == {"add": {False}, "remove": {False}}
    assert table.frame().orderBy("number").collect() == before
    assert counts(spark, tmp_path) == all_say(70, 2)
    assert table.compact() == 0
    # Who began to read before goes on.
    assert spark.read.parquet(*files).count() == 70
    assert table.vacuum(timedelta(0)) == gone
    assert counts(spark, tmp_path) == all_say(70, 2)


COMPACTING = """
import sys
from pipeline.tables.delta import DeltaFolder
table = DeltaFolder(None, f"file:{sys.argv[1]}")
print("ready", flush=True)
sys.stdin.readline()
print(table.compact())
"""


def test_two_who_compact_at_once_leave_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """One of them loses, also while a third process appends."""
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        table = DeltaFolder(spark, str(folder))
        for first in range(0, 32, 4):
            table.append(table.write(rows(spark, first, first + 4)))
        more = [table.write(rows(spark, first, first + 1)) for first in range(32, 40)]
        command = [sys.executable, "-c", COMPACTING, str(folder)]
        both = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        for files in more:
            table.append(files)
        gone = [int(one.communicate()[0]) for one in both]
        assert max(gone) >= 16
        assert counts(spark, folder) == all_say(40, 2)
        table.compact()
        assert len(DeltaTable(folder).file_uris()) <= 2
        assert counts(spark, folder) == all_say(40, 2)


@pytest.mark.parametrize("other", ["appends", "compacts", "replaces", "adds a column"])
def test_who_is_first_while_files_are_put_together_loses_nothing(
    spark: SparkSession, tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits after the rows were read, and before our commit."""
    table = DeltaFolder(spark, str(tmp_path))
    for first in range(0, 8, 2):
        table.append(table.write(rows(spark, first, first + 2)))
    again = DeltaFolder(spark, str(tmp_path))

    def outrun(*arguments: Any) -> Exchange:
        found = put_together(*arguments)
        with monkeypatch.context() as alone:
            alone.setattr(delta, "put_together", put_together)
            if other == "appends":
                again.append(again.write(rows(spark, 8, 10)))
            elif other == "compacts":
                assert again.compact() == 8
            elif other == "replaces":
                again.replace(again.write(rows(spark, 0, 3)))
            else:
                again.append(again.write(rows(spark, 8, 10).withColumn("new", sql.lit("x"))))
        return found

    monkeypatch.setattr(delta, "put_together", outrun)
    done, there, few = {
        "appends": (8, 10, 2),
        "compacts": (0, 8, 2),
        "replaces": (0, 3, 1),
        "adds a column": (8, 10, 2),
    }[other]
    assert table.compact() == done
    assert counts(spark, tmp_path) == all_say(there, few)


def test_large_bodies_are_put_together_in_little_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of 400 MiB; the new files have 128 MiB each."""
    table = DeltaFolder(spark, str(tmp_path))
    bodies = spark.range(100).select(
        "id", sql.expr("cast(cast(id as string) as binary)").alias("body")
    )
    files = table.write(bodies.coalesce(1))
    schema = pa.schema({"id": pa.int64(), "body": pa.binary()})
    attempt = tmp_path / files.folder
    for path in attempt.glob("*.parquet"):
        path.unlink()
    for number in range(25):
        ids = range(4 * number, 4 * number + 4)
        body = [hashlib.shake_128(b"%d" % one).digest(4 << 20) for one in ids]
        parquet.write_table(
            pa.table({"id": ids, "body": body}, schema), attempt / f"part-{number}.parquet"
        )
    table.append(table.files_in(files.folder, bodies.schema))
    # Not by getrusage, which begins with the peak of the parent.
    taken = """
import sys
from pathlib import Path
from pipeline.tables.delta import DeltaFolder
def most():
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in one)
    return int(line.split()[1]) >> 10
table = DeltaFolder(None, f"file:{sys.argv[1]}")
before = most()
print(table.compact(), most() - before)
"""
    said = subprocess.run(
        [sys.executable, "-c", taken, str(tmp_path)], stdout=subprocess.PIPE, check=True, text=True
    )
    done, mebibytes = map(int, said.stdout.split())
    assert done == 25
    assert mebibytes < 250
    sizes = pa.table(DeltaTable(tmp_path).get_add_actions()).column("size_bytes").to_pylist()
    assert len(sizes) == 4
    assert sorted(sizes)[1] >= 128 << 20
    lengths = table.frame().agg(sql.count("*"), sql.sum(sql.length("body"))).collect()
    assert [tuple(one) for one in lengths] == [(100, 400 << 20)]
    assert table.compact() == 0


def test_what_a_killed_compaction_has_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    table.append(table.write(rows(spark, 0, 4), ["day"]))
    left = tmp_path / "day=1970-01-01" / f"part-00001-{uuid.uuid4()}-c000.zstd.parquet"
    left.parent.mkdir()
    left.write_bytes(b"half of it")
    assert table.vacuum() == 0
    assert table.vacuum(timedelta(0)) == 1
    assert not left.exists()
    assert counts(spark, tmp_path) == all_say(4, 1)


@pytest.mark.parametrize("form", ["file:{}//deep", "file://{}/deep/", "{}//deep", "file:{}/./deep"])
def test_a_path_may_be_written_in_many_ways(spark: SparkSession, tmp_path: Path, form: str) -> None:
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "deep"))
    table = DeltaFolder(spark, form.format(tmp_path))
    table.adopt(spark.range(3).schema, ())
    assert table.frame().count() == 3
    assert DeltaTable(tmp_path / "deep").to_pyarrow_dataset().count_rows() == 3


@pytest.mark.parametrize("path", ["", " ", "file:relative", "file://host/x"])
def test_what_is_no_path_is_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(PipelineError, match=r"is no path|expected file:/PATH"):
        DeltaFolder(spark, path)


def test_a_batch_is_there_once_however_many_write_it_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Eight threads, and four batches: each batch is appended by two of them."""
    files = [
        DeltaFolder(spark, str(tmp_path)).write(rows(spark, 10 * batch, 10 * batch + 10))
        for batch in (1, 1, 2, 2, 3, 3, 4, 4)
    ]
    done: list[tuple[str, bool]] = []
    together = threading.Barrier(len(files))

    def append(place: int) -> None:
        table = DeltaFolder(spark, str(tmp_path))
        together.wait()
        # Batches of one application come one after the other; here each is of another.
        name = f"writer of {place // 2}"
        done.append((name, table.append(files[place], (name, 7))))

    threads = [threading.Thread(target=append, args=(place,)) for place in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [
        (f"writer of {number}", appended) for number in range(4) for appended in (False, True)
    ]
    numbers = [row.number for row in DeltaFolder(spark, str(tmp_path)).frame().collect()]
    assert sorted(numbers) == list(range(10, 50))
    table = DeltaFolder(spark, str(tmp_path))
    assert table.has(("writer of 1", 7))
    assert not table.has(("writer of 1", 8))
    assert not table.has(("another", 0))


def test_what_a_failed_attempt_has_left_is_removed_and_what_counts_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaFolder(spark, str(tmp_path))
    table.append(table.write(rows(spark, 0, 10)))
    bad = rows(spark, 0, 10).withColumn(
        "number",
        sql.when(sql.col("number") < 9, "number").otherwise(sql.raise_error(sql.lit("bad"))),
    )
    with pytest.raises(PySparkException, match="bad"):
        table.write(bad)
    table.write(rows(spark, 30, 40))
    assert table.vacuum() == 0
    assert table.vacuum(timedelta(0)) > 0
    used = {str(Path(uri)) for uri in DeltaTable(tmp_path).file_uris()}
    assert {str(path) for path in tmp_path.rglob("*.parquet")} == used
    assert len(list((tmp_path / "data").iterdir())) == 1
    assert counts(spark, tmp_path) == all_say(10, 2)


def test_a_table_that_its_files_alone_do_not_tell_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    DeltaTable.create(
        tmp_path,
        Schema([Field("number", PrimitiveType("long"))]),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    table = DeltaFolder(spark, str(tmp_path))
    with pytest.raises(PipelineError, match=r"has deletionVectors.* of Delta Lake: expected"):
        table.frame()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("{}}")
    with pytest.raises(PipelineError, match=f"the table {tmp_path} cannot be used: "):
        table.frame()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text('{"commitInfo":{"a')
    with pytest.raises(PipelineError, match=f"the table {tmp_path} cannot be used: .*[a-z]$"):
        table.frame()
    with pytest.raises(PipelineError, match="no Delta Lake table"):
        DeltaFolder(spark, str(tmp_path / "none")).frame()


def test_a_path_that_delta_rs_would_take_for_another_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a%2Fb", "a\\b", "a\nb", "a\tb"):
        (tmp_path / name).mkdir()
        with pytest.raises(PipelineError, match="cannot be the folder of a table"):
            DeltaFolder(spark, str(tmp_path / name))
        # The rest of the path is as good as the name.
        monkeypatch.chdir(tmp_path / name)
        with pytest.raises(PipelineError, match="cannot be the folder of a table"):
            DeltaFolder(spark, "events")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a%2Fb", r"/a%2Fb .* without % and two hexadecimal digits"),
        ("a\nb", r"/a\\nb .* without the character \\n"),
        ("a\x7fb", r"/a\\x7fb .* without the character \\x7f"),
        ("a\\b", r"/a\\b .* without the character \\"),
        ("a\udcffb", r"/a\\udcffb .* without the character \\udcff"),
    ],
)
def test_a_name_that_no_table_can_have_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        DeltaFolder(spark, f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["[a]^b|c<d>{e}`f\"g'h#i?j*k&l+m=n;o@p~q r%s,é日", "a:b"])
def test_a_name_may_have_all_other_characters(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = DeltaFolder(spark, str(tmp_path / name / name))
    for first in range(0, 8, 2):
        table.append(table.write(rows(spark, first, first + 2)))
    assert table.compact() > 0
    assert sorted(row.number for row in table.frame().collect()) == list(range(8))
    assert table.vacuum(timedelta(0)) > 0
    assert sorted(row.number for row in table.frame().collect()) == list(range(8))
