"""An archive has each message once, with its body and headers, and what was archived can be sent
again.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable

from gateway.messaging.message import BodyType
from pipeline.errors import PipelineError
from pipeline.jobs.upgrade import run as upgrade
from pipeline.output import Output
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.messages import archived
from pipeline.transforms.archive import by_day
from tests.crash.waiting import until
from tests.documented_blocks import shown
from tests.pages import printed
from tests.pipeline.graveyard import BRIDGE_DMQ, BROKER_DMQ, Graveyard
from tests.pipeline.jobs.replays import Job, compared, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive(spark: SparkSession, graveyard: Graveyard, folder: Path, **options: Any) -> int:
    from pipeline.jobs.archive import check, run

    given = {
        "destination": "orders",
        "folder": str(folder),
        "connection": graveyard.connection(),
        "output": Output(),
        **options,
    }
    names = (
        "consume",
        "continuously",
        "staging",
        "batch",
        "partitions",
        "subscription",
        "client_id",
    )
    check({**dict.fromkeys(names), **given})
    return run(spark, **given)


def filled(graveyard: Graveyard, first: int, last: int) -> None:
    with graveyard.client() as client:
        for number in range(first, last):
            client.store(
                "/queue/orders",
                b"order %d" % number,
                colour="red",
                **{"correlation-id": f"c{number}", "x-extra": "e"},
            )


def bodies(spark: SparkSession, folder: Path) -> Counter[bytes]:
    table = DeltaFolder(spark, str(folder))
    rows = table.frame().select("body").collect() if table.exists() else []
    return Counter(bytes(row.body) for row in rows)


def encodings(path: Path, name: str) -> str:
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return " ".join(
        encoding
        for column in columns
        if column.path_in_schema == name
        for encoding in column.encodings
    )


def test_a_queue_is_browsed_into_a_folder_each_message_once_and_comes_back_from_there(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "archive"
    filled(graveyard, 0, 5)
    assert archive(spark, graveyard, folder) == 5
    filled(graveyard, 5, 8)
    assert archive(spark, graveyard, folder) == 3
    _, _, page = shown("pipeline_dead_letters", "$ gateway-pipeline archive").partition("\n")
    page = page.replace("7672", str(graveyard.gateway.port)).replace("/data/orders", str(folder))
    assert printed.has(capsys.readouterr().out, page)
    sent = graveyard.browsed("orders")
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(8))
    assert DeltaTable(folder).metadata().partition_columns == ["day"]
    # No two bodies are alike, so no dictionary of them is kept.
    of_body, of_type = (
        encodings(next(folder.rglob("*.parquet")), name) for name in ("body", "body_type")
    )
    assert "DICTIONARY" not in of_body
    assert "DICTIONARY" in of_type
    graveyard.emptied("orders")
    job = Job(spark, graveyard, tmp_path)
    done = job.run(approve=job.make(None, archive=str(folder), where="correlation_id <> 'c7'"))
    assert done.sent == 7
    found = graveyard.browsed("orders")
    own = {"subscription", "_AMQ_DUPL_ID"}
    assert [
        {name: value for name, value in frame.headers.items() if name not in own} for frame in found
    ] == [
        {name: value for name, value in frame.headers.items() if name not in own}
        for frame in sent[:7]
    ]
    assert [frame.body for frame in found] == [frame.body for frame in sent[:7]]
    graveyard.emptied("orders")


@pytest.mark.long
def test_what_died_again_after_it_was_sent_again_is_another_dead_message(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    graveyard.refused("shop", [b"one"])
    assert archive(spark, graveyard, folder, destination=BROKER_DMQ) == 1
    job = Job(spark, graveyard, tmp_path)
    assert job.run(approve=job.make(BROKER_DMQ), remove=True).removed == 1
    with graveyard.client() as client:
        client.ask(
            "SUBSCRIBE", {"destination": "/queue/shop", "id": "1", "ack": "client-individual"}
        )
        client.ask("NACK", {"id": client.message().headers["ack"], "requeue": "false"})
    [dead] = graveyard.browsed(BROKER_DMQ)
    assert [archive(spark, graveyard, folder, destination=BROKER_DMQ) for _ in range(2)] == [1, 0]
    ids = [
        row.message_id
        for row in DeltaFolder(spark, str(folder)).frame().select("message_id").collect()
    ]
    assert ids == [dead.headers["message-id"]] * 2
    # Its second death can be sent again from there, and the first one not.
    plan = job.make(None, archive=str(folder))
    assert job.run(approve=plan).sent == 1
    graveyard.emptied("shop")


@pytest.mark.parametrize("consume", [False, True])
def test_nothing_is_archived_of_nothing(
    consume: bool,
    spark: SparkSession,
    graveyard: Graveyard,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: dict[str, Any] = (
        {"consume": True, "staging": str(tmp_path / "staging")} if consume else {}
    )
    output = Output(str(tmp_path / "days"), "csv", tmp_path / "report")
    graveyard.emptied("orders")
    assert archive(spark, graveyard, tmp_path / "archive", output=output, **given) == 0
    assert "messages added  0" in capsys.readouterr().out
    assert (tmp_path / "days").is_dir()


@pytest.mark.parametrize("consume", [False, True])
def test_messages_of_every_type_come_back_from_an_archive_as_they_were(
    consume: bool, spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    sent = [order(number, kind) for number, kind in enumerate(BodyType)]
    graveyard.sent("orders", sent)
    given = {"consume": True, "staging": str(tmp_path / "staging")} if consume else {}
    assert archive(spark, graveyard, folder, **given) == 6
    rows = DeltaFolder(spark, str(folder)).frame().orderBy("timestamp").collect()
    assert [(row.body_type, bytes(row.body), row.headers["count"], row.type) for row in rows] == [
        (message.headers.body_type.name, message.body, "5", "order") for message in sent
    ]
    graveyard.emptied("orders")
    job = Job(spark, graveyard, tmp_path)
    assert job.run(approve=job.make(None, archive=str(folder))).sent == 6
    found = graveyard.whole("orders")
    assert [compared(message) for message in found] == [compared(message) for message in sent]
    graveyard.emptied("orders")


def test_what_links_gave_up_comes_back_from_an_archive_of_their_queue(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    sent = [order(1, BodyType.MAP), order(2)]
    graveyard.buried(sent)
    folder = tmp_path / "archive"
    assert archive(spark, graveyard, folder, destination=BRIDGE_DMQ) == 2
    job = Job(spark, graveyard, tmp_path)
    assert job.run(approve=job.make(None, archive=str(folder), to="queue:revived")).sent == 2
    assert [compared(message) for message in graveyard.whole("revived")] == [
        compared(message) for message in sent
    ]
    graveyard.emptied("revived")


def test_a_queue_is_consumed_up_to_now_or_as_messages_come(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    folder, staging = tmp_path / "archive", tmp_path / "staging"
    filled(graveyard, 0, 5)
    assert archive(spark, graveyard, folder, consume=True, staging=str(staging)) == 5
    # As if it had been killed when the table had the batch, and the stream's own log had not.
    last = max((folder / "_checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert DeltaFolder(spark, str(folder)).has((_id(folder), int(last.name)))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()
    archive(spark, graveyard, folder, consume=True, staging=str(staging))
    assert last.exists()
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(5))
    filled(graveyard, 5, 8)
    going = ThreadPoolExecutor(1).submit(
        archive,
        spark,
        graveyard,
        folder,
        consume=True,
        staging=str(staging),
        continuously=True,
        every=1,
    )
    until(
        lambda: going.done() or sum(bodies(spark, folder).values()) == 8,
        "the three that came later were never archived",
    )
    logs = [folder / "_checkpoint" / name for name in ("offsets", "commits")]
    until(
        lambda: len({frozenset(one.name for one in log.glob("[0-9]*")) for log in logs}) == 1,
        "the last batch never ended",
    )
    for query in spark.streams.active:
        query.stop()
    assert going.result() == 3
    assert graveyard.browsed("orders") == []
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(8))
    filled(graveyard, 8, 10)
    assert archive(spark, graveyard, folder) == 2
    assert archive(spark, graveyard, folder) == 0
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(10))
    graveyard.emptied("orders")


@pytest.mark.parametrize("consumed", [False, True])
def test_an_archive_of_an_earlier_version_becomes_a_table(
    consumed: bool, spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    folder, staging = tmp_path / "archive", tmp_path / "staging"
    new = tmp_path / "new"
    filled(graveyard, 0, 5)
    given: dict[str, Any] = {"consume": True, "staging": str(staging)} if consumed else {}
    assert archive(spark, graveyard, new, **given) == 5
    # As it was written: by day, and where it was consumed by a sink that has a log of its files.
    rows = by_day(DeltaFolder(spark, str(new)).frame())
    if consumed:
        rows.write.parquet(str(tmp_path / "rows"))
        stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
        query = (
            stream.writeStream.partitionBy("day")
            .option("checkpointLocation", str(folder / "_checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder), "parquet")
        )
        query.awaitTermination()
        stray = next(folder.rglob("*.parquet"))
        stray.with_name("part-of-a-task-that-failed.parquet").write_bytes(stray.read_bytes())
    else:
        rows.write.partitionBy("day").parquet(str(folder))
    with pytest.raises(PipelineError, match="earlier version: gateway-pipeline upgrade makes"):
        archive(spark, graveyard, folder)
    job = Job(spark, graveyard, tmp_path)
    with pytest.raises(PipelineError, match="earlier version: gateway-pipeline upgrade makes"):
        job.make(None, archive=str(folder))
    assert upgrade(spark, str(folder)) == {"messages": 5}
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(5))
    if consumed:
        assert DeltaFolder(spark, str(folder)).has((_id(folder), 0))
    assert spark.read.parquet(*DeltaTable(folder).file_uris()).count() == 5
    with pytest.raises(PipelineError, match="is a table of Delta Lake already"):
        upgrade(spark, str(folder))
    with pytest.raises(
        PipelineError, match="has no archive, table or ledger of an earlier version"
    ):
        upgrade(spark, str(tmp_path / "nothing"))
    graveyard.emptied("orders")


def test_an_archive_gets_a_column_that_a_later_version_knows(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    new, folder = tmp_path / "new", tmp_path / "archive"
    filled(graveyard, 0, 3)
    assert archive(spark, graveyard, new) == 3
    rows = by_day(DeltaFolder(spark, str(new)).frame().drop("correlation_id"))
    table = DeltaFolder(spark, str(folder))
    table.append(table.write(rows, ["day"]))
    assert [row.correlation_id for row in archived(spark, str(folder)).collect()] == [None] * 3
    filled(graveyard, 3, 5)
    assert archive(spark, graveyard, folder) == 2
    rows_there = archived(spark, str(folder)).collect()
    found = {bytes(row.body): row.correlation_id for row in rows_there}
    known = {b"order %d" % number: f"c{number}" if number > 2 else None for number in range(5)}
    assert found == known
    there = DeltaTable(folder).to_pyarrow_dataset().to_table().to_pylist()
    assert {row["body"]: row["correlation_id"] for row in there} == known
    graveyard.emptied("orders")


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.long)])
def test_an_archive_of_many_batches_has_few_files(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path, count: int
) -> None:
    folder = tmp_path / "archive"
    filled(graveyard, 0, count)
    given = {"consume": True, "staging": str(tmp_path / "staging"), "batch": 1}
    assert archive(spark, graveyard, folder, **given) == count
    table = DeltaTable(folder)
    assert table.version() >= count
    path, *more = table.file_uris()
    assert len(more) <= 1
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(count))
    of_body, of_type = (encodings(Path(path), name) for name in ("body", "body_type"))
    assert "DICTIONARY" not in of_body
    assert "DICTIONARY" in of_type


def _id(folder: Path) -> str:
    return str(json.loads((folder / "_checkpoint" / "metadata").read_text())["id"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"consume": True}, "--consume needs --staging"),
        ({"staging": "/tmp/x"}, "--staging belongs to --consume"),
        ({"destination": "topic:news"}, "a topic cannot be browsed"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    options: dict[str, Any], said: str, spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=said):
        archive(spark, graveyard, tmp_path / "archive", **options)
