"""An archive has each message once, with its body and headers, and what was archived can be sent
again.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest

from gateway.messaging.message import BodyType
from pipeline.errors import PipelineError
from pipeline.output import Output
from tests.crash.waiting import until
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
    return Counter(
        bytes(row.body) for row in spark.read.parquet(str(folder)).select("body").collect()
    )


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
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    filled(graveyard, 0, 5)
    assert archive(spark, graveyard, folder) == 5
    filled(graveyard, 5, 8)
    assert archive(spark, graveyard, folder) == 3
    sent = graveyard.browsed("orders")
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(8))
    assert [path.name[:4] for path in folder.glob("day=*")] == ["day="]
    # No two bodies are alike, so no dictionary of them is kept.
    of_body, of_type = (
        encodings(next(folder.glob("day=*/*.parquet")), name) for name in ("body", "body_type")
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
    ids = [row.message_id for row in spark.read.parquet(str(folder)).select("message_id").collect()]
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
    rows = spark.read.parquet(str(folder)).orderBy("timestamp").collect()
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
    for query in spark.streams.active:
        query.stop()
    assert going.result() == 3
    assert graveyard.browsed("orders") == []
    assert bodies(spark, folder) == Counter(b"order %d" % number for number in range(8))
    with pytest.raises(PipelineError, match="made by --consume: expected another folder"):
        archive(spark, graveyard, folder)


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
