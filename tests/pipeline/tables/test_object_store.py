"""Tables in an object store: what is committed there, by two at once, too.

Spark needs jars to write there, which are not here; pyarrow puts the files as Spark names them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyarrow import fs, parquet
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.tables.answers import write_answer
from pipeline.tables.delta import DeltaFolder, Files
from pipeline.tables.storage import S3, Location
from tests.pipeline.tables.object_store import BUCKET, KEY, SECRET, ObjectStore, object_store

SCHEMA = StructType(
    [
        StructField("number", LongType()),
        StructField("time", TimestampType()),
        StructField("destination", StringType()),
        StructField("day", DateType()),
    ]
)
TABLE = f"s3a://{BUCKET}/some/table"
#: Another program that writes it.
RIVAL = """
import json, sys
from datetime import UTC, date, datetime
import pyarrow as pa
from deltalake import write_deltalake
address, options = sys.argv[1], json.loads(sys.argv[2])
for number in range(1000, 1010):
    rows = pa.table({
        "number": pa.array([number], pa.int64()),
        "time": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "destination": ["queue:theirs"],
        "day": pa.array([date(2026, 1, 1)]),
    })
    write_deltalake(address, rows, mode="append", storage_options=options)
"""
#: One that compacts it until its standard input ends, and says how many files it has put together.
COMPACTING = """
import json, sys, threading
from types import SimpleNamespace
from pipeline.tables.delta import DeltaFolder
address, settings = sys.argv[1], json.loads(sys.argv[2])
spark = SimpleNamespace(conf=SimpleNamespace(get=lambda key, other: settings.get(key, other)))
table = DeltaFolder(spark, address)
print("ready", flush=True)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
done = 0
while not over.is_set():
    done += table.compact()
print(done)
"""


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Iterator[ObjectStore]:
    """An object store that the session has the keys of."""
    with object_store(tmp_path) as running:
        values = (KEY, SECRET, "", running.address, "us-east-1")
        given = {f"spark.hadoop.{key}": value for key, value in zip(S3, values, strict=True)}
        for key, value in given.items():
            if value:
                spark.conf.set(key, value)
        yield running
        for key in given:
            spark.conf.unset(key)


def options(store: ObjectStore) -> dict[str, str]:
    """What a reader with delta-rs is told."""
    return {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": store.address,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


def system(store: ObjectStore) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=store.address, region="us-east-1"
    )


def put(store: ObjectStore, table: DeltaFolder, first: int, count: int) -> Files:
    """Put a file for each of two days, as an attempt of Spark's does."""
    attempt = f"data/{uuid.uuid4().hex}"
    for remainder in (0, 1):
        numbers = [one for one in range(first, first + count) if one % 2 == remainder]
        rows = pa.table(
            {
                "number": pa.array(numbers, pa.int64()),
                "time": pa.array(
                    [datetime(2026, 1, 1 + remainder, tzinfo=UTC)] * len(numbers),
                    pa.timestamp("us", "UTC"),
                ),
                "destination": [f"queue:ö/{one % 3}" for one in numbers],
            }
        )
        name = f"{attempt}/day=2026-01-0{1 + remainder}/part-0.parquet"
        parquet.write_table(
            rows, f"{TABLE.removeprefix('s3a://')}/{name}", filesystem=system(store)
        )
    return table.files_in(attempt, SCHEMA, ["day"], ("number", "time", "destination"))


def numbers(store: ObjectStore) -> list[int]:
    """What is in the table, on which three readers agree; sorted."""
    table = DeltaTable(TABLE, storage_options=options(store))
    rows = table.to_pyarrow_dataset()
    found = sorted(rows.to_table(["number"]).column("number").to_pylist())
    assert duckdb.from_arrow(rows).aggregate("count(*)").fetchall() == [(len(found),)]
    lazy = polars.scan_delta(TABLE, storage_options=options(store))
    assert lazy.select("number").collect()["number"].sort().to_list() == found
    return found


def test_what_is_committed_is_read_by_others(spark: SparkSession, store: ObjectStore) -> None:
    table = DeltaFolder(spark, TABLE)
    assert not table.exists()
    files = put(store, table, 0, 10)
    assert files.rows == 10
    assert table.append(files, ("app", 1))
    assert not table.append(files, ("app", 1))
    assert (table.exists(), table.newest("app"), table.partitioned()) == (True, 1, True)
    put(store, table, 100, 10)
    assert numbers(store) == list(range(10))
    days = DeltaTable(TABLE, storage_options=options(store)).to_pyarrow_dataset()
    found = days.to_table().to_pylist()
    assert {one["day"] for one in found if one["number"] % 2} == {date(2026, 1, 2)}
    (least, most) = (
        (one["min.number"], one["max.number"])
        for one in pa.table(
            DeltaTable(TABLE, storage_options=options(store)).get_add_actions(flatten=True)
        ).to_pylist()
    )
    assert sorted([least, most]) == [(0, 8), (1, 9)]


def _logged(file: AddAction) -> dict[str, object]:
    """What the log says of a file."""
    return {
        "path": file.path,
        "partitionValues": file.partition_values,
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": True,
        "stats": file.stats,
    }


@pytest.mark.parametrize("same", [False, True])
def test_of_two_who_commit_at_once_one_loses_and_tries_again(
    spark: SparkSession, store: ObjectStore, same: bool
) -> None:
    """It may be that the other one has committed the same batch."""
    table = DeltaFolder(spark, TABLE)
    table.append(put(store, table, 0, 2), ("app", 1))
    theirs, ours = put(store, table, 10, 2), put(store, table, 20, 2)
    said: list[dict[str, object]] = [{"add": _logged(one)} for one in theirs.actions]
    if same:
        said.append({"txn": {"appId": "app", "version": 2}})
    store.rival(f"some/table/_delta_log/{1:020d}.json", "\n".join(map(json.dumps, said)))
    assert table.append(ours, ("app", 2)) is not same
    assert numbers(store) == ([0, 1, 10, 11] if same else [0, 1, 10, 11, 20, 21])


def test_nothing_is_lost_beside_another_program_that_writes(
    spark: SparkSession, store: ObjectStore
) -> None:
    table = DeltaFolder(spark, TABLE)
    table.append(put(store, table, 0, 2), ("app", 1))
    other = subprocess.Popen([sys.executable, "-c", RIVAL, TABLE, json.dumps(options(store))])
    try:
        batches = 0
        while other.poll() is None or batches < 10:
            batches += 1
            files = put(store, table, 2 * batches, 2)
            assert table.append(files, ("app", 1 + batches))
    finally:
        assert other.wait() == 0
    assert numbers(store) == [*range(2 * batches + 2), *range(1000, 1010)]


def test_small_files_and_what_was_left_go(spark: SparkSession, store: ObjectStore) -> None:
    table = DeltaFolder(spark, TABLE)
    for batch in range(6):
        table.append(put(store, table, 2 * batch, 2))
    put(store, table, 100, 2)
    assert table.compact() == 12
    assert numbers(store) == list(range(12))
    assert table.compact() == 0
    about = pa.table(
        DeltaTable(TABLE, storage_options=options(store)).get_add_actions()
    ).to_pylist()
    assert sorted((one["min"]["number"], one["max"]["number"]) for one in about) == [
        (0, 10),
        (1, 11),
    ]
    assert table.vacuum(timedelta(0)) == 14
    assert numbers(store) == list(range(12))
    place = Location(spark, TABLE)
    assert len(place.files("*.parquet", below=True)) == 2
    # Nothing stands for a folder.
    assert all(one.octets > 0 for one in place.files(below=True))


@pytest.mark.parametrize("other", ["appends", "compacts"])
def test_of_two_who_compact_at_once_one_loses(
    spark: SparkSession, store: ObjectStore, other: str
) -> None:
    """After an append the loser tries again; after a compaction it gives up."""
    table = DeltaFolder(spark, TABLE)
    for batch in range(4):
        table.append(put(store, table, 2 * batch, 2))
    log = "some/table/_delta_log"
    if other == "appends":
        files = put(store, table, 10, 2)
        said = "\n".join(json.dumps({"add": _logged(one)}) for one in files.actions)
    else:
        # The commit of another process, taken back until the rival puts it there.
        DeltaFolder(spark, TABLE).compact()
        with system(store).open_input_file(f"{BUCKET}/{log}/{4:020d}.json") as file:
            said = file.read().decode()
        system(store).delete_file(f"{BUCKET}/{log}/{4:020d}.json")
    store.rival(f"{log}/{4:020d}.json", said)
    assert table.compact() == (8 if other == "appends" else 0)
    assert numbers(store) == [*range(8), *([10, 11] if other == "appends" else [])]


def test_two_processes_that_compact_beside_one_that_writes(
    spark: SparkSession, store: ObjectStore
) -> None:
    table = DeltaFolder(spark, TABLE)
    for batch in range(6):
        table.append(put(store, table, 2 * batch, 2))
    settings = {f"spark.hadoop.{key}": spark.conf.get(f"spark.hadoop.{key}", None) for key in S3}
    command = [sys.executable, "-c", COMPACTING, TABLE, json.dumps(settings)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for batch in range(6, 16):
        table.append(put(store, table, 2 * batch, 2))
    done = sum(int(one.communicate()[0]) for one in both)
    assert done > 0
    assert [one.returncode for one in both] == [0, 0]
    assert numbers(store) == list(range(32))
    table.compact()
    assert numbers(store) == list(range(32))
    assert len(DeltaTable(TABLE, storage_options=options(store)).file_uris()) <= 4


def test_an_endpoint_needs_no_scheme(spark: SparkSession, store: ObjectStore) -> None:
    table = DeltaFolder(spark, TABLE)
    table.append(put(store, table, 0, 2))
    spark.conf.set("spark.hadoop.fs.s3a.endpoint", store.address.removeprefix("http://"))
    spark.conf.set("spark.hadoop.fs.s3a.connection.ssl.enabled", "false")
    try:
        again = DeltaFolder(spark, TABLE)
        assert again.exists()
        assert put(store, again, 2, 2).rows == 2
    finally:
        spark.conf.unset("spark.hadoop.fs.s3a.connection.ssl.enabled")


def test_the_environment_may_say_where_the_store_is(
    spark: SparkSession, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": store.address,
        "AWS_REGION": "us-east-1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for key in S3:
        spark.conf.unset(f"spark.hadoop.{key}")
    table = DeltaFolder(spark, TABLE)
    assert not table.exists()
    table.append(put(store, table, 0, 4))
    assert numbers(store) == [0, 1, 2, 3]
    assert Location(spark, TABLE).is_folder()


def test_a_job_says_what_spark_lacks(spark: SparkSession, store: ObjectStore) -> None:
    table = DeltaFolder(spark, TABLE)
    table.append(put(store, table, 0, 4))
    with pytest.raises(Exception, match="FileSystem") as raised:
        table.frame().count()
    assert sentence(raised.value) == (
        "Spark lacks the package for s3a://: expected --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, of the version of hadoop-client-api among Spark's jars"
    )


def test_a_folder_that_cannot_be_exchanged_is_refused_before_the_answer_is_computed(
    spark: SparkSession, store: ObjectStore
) -> None:
    with system(store).open_output_stream(f"{BUCKET}/answer/part-0.csv") as file:
        file.write(b"old")
    answer = spark.range(1).selectExpr("raise_error('computed')")
    with pytest.raises(PipelineError, match="cannot exchange a folder for another in one step"):
        write_answer(answer, f"s3a://{BUCKET}/answer", "csv")


def test_a_store_that_does_not_know_the_bucket_is_told(
    spark: SparkSession, store: ObjectStore
) -> None:
    with pytest.raises(
        PipelineError,
        match=r"s3://none/t cannot be used: .*: The specified bucket does not exist \(NoSuchBucket\)$",
    ):
        DeltaFolder(spark, "s3://none/t").newest("app")


def test_a_store_that_does_not_answer_is_told(spark: SparkSession, store: ObjectStore) -> None:
    store.process.communicate()
    with pytest.raises(PipelineError, match="s3a://tables/some/table cannot be used: "):
        DeltaFolder(spark, TABLE).exists()
    with pytest.raises(PipelineError, match="cannot be reached from where this job's Python runs"):
        Location(spark, TABLE).exists()
