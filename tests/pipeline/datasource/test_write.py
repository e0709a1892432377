"""Writes: every row once, also when a task runs again; and rows that cannot be sent are refused
before any is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructType

from gateway.stomp.brokers import ACTIVEMQ, GATEWAY, RABBITMQ, Dialect
from gateway.stomp.wire import Frame, FrameParser, Limits, Version
from pipeline.datasource.batch_reader import StompBrowser
from pipeline.datasource.errors import OptionError
from pipeline.datasource.options import Options, Use, parse
from pipeline.datasource.sending import Sending, check_columns
from pipeline.datasource.writer import send
from pipeline.errors import PipelineError
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.datasource.crashing import NAME, death
from tests.servers import activemq, rabbitmq

pytestmark = pytest.mark.brokers

WRITE = parse({"destination": "queue:a"}, Use.WRITE)
ROWS = pa.schema([("body", pa.binary()), ("correlation_id", pa.string())])


def batch(bodies: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"body": body.encode(), "correlation_id": body} for body in bodies], schema=ROWS
    )


def sent(rows: pa.RecordBatch, dialect: Dialect = GATEWAY, **headers: str) -> list[Frame]:
    """The frames of rows, as the broker reads them."""
    parser = FrameParser(Limits(), Version.V1_2)
    for frame in Sending(WRITE, dialect, Version.V1_2, "run", 0).frames(rows, (*headers.items(),)):
        parser.receive(frame)
    return list(parser.frames(100))


def writes(broker: Broker, **more: object) -> Options:
    return parse(broker.reads(**more), Use.WRITE)


def test_messages_are_written_as_they_were_read(session: SparkSession, gateway: Broker) -> None:
    other = f"{gateway.name}-copy"
    gateway.fill(
        ["a", "b"],
        priority="7",
        type="order",
        **{"correlation-id": "c", "reply-to": "/queue/answers", "x-foo": "bar"},
    )
    rows = session.read.format("stomp").options(**gateway.queue).load()
    rows.drop("destination").write.format("stomp").options(
        **gateway.reads(destination=f"queue:{other}")
    ).mode("append").save()
    copy = (
        session.read.format("stomp").options(**gateway.reads(destination=f"queue:{other}")).load()
    )
    kept = [
        "body",
        "text",
        "body_type",
        "priority",
        "persistent",
        "type",
        "correlation_id",
        "reply_to",
    ]
    assert sorted(copy.select(*kept).collect()) == sorted(rows.select(*kept).collect())
    headers = copy.first().headers  # type: ignore[union-attr]
    assert (headers["x-foo"], headers["number"] in "ab") == ("bar", True)
    assert re.fullmatch(
        r"spark-[0-3][0-9a-f]/[0-9a-f]{32}\.\d+\.[0-9a-f]{32}\.0", headers["_AMQ_DUPL_ID"]
    )


def test_a_writer_that_ends_is_repeated_and_nothing_is_doubled(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    session.range(0, 3000, 1, 1).selectExpr(
        "cast(id AS string) AS text", "map('n', cast(id AS string)) AS headers"
    ).write.parquet(str(tmp_path / "in"))
    rows = session.readStream.schema("text string, headers map<string,string>").parquet(
        str(tmp_path / "in")
    )

    def run() -> None:
        writer = rows.writeStream.format(NAME).options(**gateway.reads(batchSize=100))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    death(gateway.options["passcodeFile"]).write_text("sent")
    with pytest.raises(StreamingQueryException):
        run()
    there = gateway.waiting()
    assert len(there) >= 2000
    run()
    assert sorted(gateway.waiting(), key=int) == [str(number) for number in range(3000)]


@pytest.mark.parametrize("options", [{}, {"idColumn": "correlation_id"}])
def test_an_attempt_again_sends_what_is_missing_in_whatever_order(
    gateway: Broker, options: dict[str, str]
) -> None:
    bodies = [f"m{number}" for number in range(500)]
    if not options:
        # Equal rows are different messages.
        bodies += ["same"] * 5
    send(writes(gateway, batchSize=100, **options), iter([batch(bodies[:200])]), "run")
    assert len(gateway.waiting()) == 200
    send(
        writes(gateway, batchSize=70, **options),
        iter([batch(bodies[300:]), batch(bodies[:300])]),
        "run",
    )
    assert sorted(gateway.waiting()) == sorted(bodies)
    if not options:
        send(writes(gateway), iter([batch(bodies[:1])]), "another run")
        assert len(gateway.waiting()) == len(bodies) + 1


@pytest.mark.parametrize("server", [activemq, rabbitmq])
def test_other_brokers_are_written_to(server: object, tmp_path: Path) -> None:
    (tmp_path / "passcode").write_text("guest")
    peer = server()  # type: ignore[operator]
    options = {"login": "guest", "passcodeFile": str(tmp_path / "passcode")}
    broker = Broker(peer.port, options)
    bodies = [f"m{number}" for number in range(250)]
    assert send(writes(broker, batchSize=100), iter([batch(bodies)]), "run").messages == 250
    headers = {
        "durable": "true",
        "auto-delete": "false",
        "exclusive": "false",
        "prefetch-count": "1000",
        "activemq.prefetchSize": "1000",
    }
    with broker.client(**({"host": "/"} if server is rabbitmq else {})) as client:
        found = client.ask(
            "SUBSCRIBE",
            {"id": "1", "destination": f"/queue/{broker.name}", "ack": "client", **headers},
        )
        while len(found) < 250:
            found.append(client.message())
    assert [frame.body.decode() for frame in found] == bodies
    with pytest.raises(OptionError, match="option idColumn"):
        send(writes(broker, idColumn="correlation_id"), iter([batch(bodies)]), "run")


@pytest.mark.parametrize("count", [1, 20_000])
def test_a_refusal_names_the_destination(gateway: Broker, count: int) -> None:
    """Also where the broker has closed the connection before all was sent."""
    rows = batch([f"{number:0500}" for number in range(count)])
    with pytest.raises(PipelineError, match=rf"127\.0\.0\.1:{gateway.port} refused.*secret"):
        send(writes(gateway, destination="queue:secret", batchSize=count), iter([rows]), "run")


def test_rows_that_are_slow_to_come_do_not_cost_the_connection(gateway: Broker) -> None:
    """Nobody sends heart-beats while Spark makes the next rows."""

    def slowly() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            yield batch([str(number)])
            time.sleep(4 if number < 1 else 0)

    assert send(writes(gateway, heartBeatSeconds=1.5), slowly(), "run").messages == 4
    assert sorted(gateway.waiting()) == ["0", "1", "2", "3"]


def test_a_rate_is_kept_all_the_time(gateway: Broker) -> None:
    began = time.monotonic()
    assert (
        send(
            writes(gateway, ratePerSecond=4, heartBeatSeconds=0.5), iter([batch(["m"] * 11)]), "run"
        ).messages
        == 11
    )
    assert time.monotonic() - began >= 2.7
    browser = StompBrowser(parse(gateway.queue, Use.BROWSE))
    (found,) = browser.read(browser.partitions()[0])
    times = [moment.timestamp() for moment in found.column("timestamp").to_pylist()]
    # Never more than those of a second at once, and one where a second ends.
    assert max(sum(start <= other < start + 0.5 for other in times) for start in times) <= 4


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (
            {"body": BinaryType(), "colour": StringType()},
            {},
            "column colour: no message has such a thing",
        ),
        (
            {"value": BinaryType()},
            {},
            "column value: no message has such a thing; the Kafka sink has that column; expected body or text",
        ),
        ({"body": IntegerType()}, {}, "column body: is int, expected binary or string"),
        ({"body": BinaryType(), "priority": StringType()}, {}, "column priority: is string"),
        (
            {"body": BinaryType(), "headers": MapType(StringType(), IntegerType())},
            {},
            r"column headers: is map<string,int>, expected map<string,string>",
        ),
        ({"correlation_id": StringType()}, {}, "columns: there is no body to send"),
        (
            {"body": BinaryType()},
            {"idColumn": "order"},
            "option idColumn: there is no column order",
        ),
        (
            {"body": BinaryType(), "order": BinaryType()},
            {"idColumn": "order"},
            "option idColumn: the column order is binary",
        ),
    ],
)
def test_rows_that_cannot_be_sent_are_refused_by_their_columns(
    columns: dict[str, DataType], options: dict[str, str], said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        check_columns(schema(**columns), parse({"destination": "queue:a", **options}, Use.WRITE))


def test_a_destination_is_needed(session: SparkSession, gateway: Broker) -> None:
    with pytest.raises(
        OptionError, match="option destination: is missing, and there is no column destination"
    ):
        check_columns(schema(body=BinaryType()), parse({}, Use.WRITE))
    rows = session.createDataFrame([("a",)], "text string")
    with pytest.raises(Exception, match="messages are added and replace nothing"):
        rows.write.format("stomp").options(**gateway.queue).mode("overwrite").save()
    with pytest.raises(Exception, match="column colour: no message has such a thing"):
        rows.selectExpr("text", "'red' AS colour").write.format("stomp").options(
            **gateway.queue
        ).mode("append").save()
    assert gateway.waiting() == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"body": None, "text": None}, "column body: is null"),
        ({"text": "a", "priority": 12}, "column priority: is 12"),
        ({"text": "a", "destination": "orders"}, "column destination: is 'orders'"),
        ({"text": "a", "destination": "topic:a.>"}, "wildcards"),
        ({"text": "a", "reply_to": "nowhere"}, "column reply_to"),
        ({"text": "a", "key": None}, "column key: is null, and it is the idColumn"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(row: dict[str, object], said: str) -> None:
    options = parse(
        {"destination": "queue:a", **({"idColumn": "key"} if "key" in row else {})}, Use.WRITE
    )
    columns = pa.schema(
        [
            (
                name,
                pa.int32()
                if name == "priority"
                else pa.binary()
                if name == "body"
                else pa.string(),
            )
            for name in row
        ]
    )
    with pytest.raises(PipelineError, match=said):
        Sending(options, GATEWAY, Version.V1_2, "run", 0).frames(
            pa.RecordBatch.from_pylist([row], schema=columns), ()
        )


def test_what_a_row_becomes() -> None:
    made = {
        **{
            "text": "fünf",
            "destination": "topic:b",
            "priority": 9,
            "persistent": False,
            "type": "t",
            "correlation_id": "c",
        },
        **{
            "reply_to": "queue:r",
            "expires": datetime(2030, 1, 1, tzinfo=UTC),
            "message_id": "ID-1",
            "redelivered": True,
        },
        "headers": [
            ("n", "1"),
            ("message-id", "ID-1"),
            ("content-length", "5"),
            ("priority", "1"),
            ("content-type", "text/plain"),
        ],
    }
    columns = pa.RecordBatch.from_pylist(
        [made],
        schema=pa.schema(
            [
                *[
                    (name, pa.string())
                    for name in (
                        "text",
                        "destination",
                        "type",
                        "correlation_id",
                        "reply_to",
                        "message_id",
                    )
                ],
                *[
                    ("priority", pa.int32()),
                    ("persistent", pa.bool_()),
                    ("redelivered", pa.bool_()),
                ],
                *[
                    ("expires", pa.timestamp("us", "UTC")),
                    ("headers", pa.map_(pa.string(), pa.string())),
                ],
            ]
        ),
    )
    [ours] = sent(columns, transaction="t")
    [theirs] = sent(columns, ACTIVEMQ, transaction="t")
    assert ours.body == theirs.body == "fünf".encode()
    identifier = ours.head.headers.pop("_AMQ_DUPL_ID")
    assert identifier.startswith("spark-")
    plain = {
        "destination": "/topic/b",
        "priority": "9",
        "persistent": "false",
        "type": "t",
        "correlation-id": "c",
        "reply-to": "/queue/r",
    }
    plain |= {
        "expires": "1893456000000",
        "n": "1",
        "content-type": "text/plain",
        "transaction": "t",
    }
    assert ours.head.headers == plain
    assert theirs.head.headers == {**plain, "amq-msg-type": "text", "content-length": "5"}


@pytest.mark.parametrize(("persistent", "said"), [(True, "true"), (False, None)])
def test_rabbitmq_is_not_told_to_make_a_queue_that_is_not_durable(
    persistent: bool, said: str | None
) -> None:
    """To it ``persistent`` is the queue's, too."""
    [made] = sent(
        pa.RecordBatch.from_pylist(
            [{"text": "a", "destination": "queue:b", "persistent": persistent}]
        ),
        RABBITMQ,
    )
    assert (made.head.headers.get("persistent"), made.head.headers["durable"]) == (said, "true")


def test_a_map_in_another_order_is_the_same_message() -> None:
    columns = pa.schema([("text", pa.string()), ("headers", pa.map_(pa.string(), pa.string()))])

    def identifier(entries: list[tuple[str, str]]) -> str:
        rows = pa.RecordBatch.from_pylist([{"text": "a", "headers": entries}], schema=columns)
        return sent(rows)[0].head.headers["_AMQ_DUPL_ID"]

    assert (
        identifier([("n", "1"), ("m", "2")])
        == identifier([("m", "2"), ("n", "1")])
        != identifier([("m", "1"), ("n", "2")])
    )


@pytest.mark.parametrize("dialect", [GATEWAY, ACTIVEMQ])
def test_octets_that_are_no_text_are_sent_as_they_are(dialect: Dialect) -> None:
    body = b"half \xed\xa0\x80"
    columns = pa.schema([("text", pa.string()), ("body", pa.binary()), ("body_type", pa.string())])
    rows = pa.RecordBatch.from_pylist(
        [{"text": None, "body": body, "body_type": "TEXT"}], schema=columns
    )
    [found] = sent(rows, dialect)
    assert (found.body, found.head.headers["content-length"]) == (body, "8")


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12), st.randoms())
def test_ids_belong_to_contents_and_not_to_places(bodies: list[str], random: object) -> None:
    def identifiers(rows: list[str]) -> list[tuple[str, str]]:
        return sorted(
            [
                (frame.body.decode(), frame.head.headers["_AMQ_DUPL_ID"])
                for frame in sent(batch(rows))
            ]
        )

    found = identifiers(bodies)
    assert len({identifier for _, identifier in found}) == len(bodies)
    shuffled = list(bodies)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert identifiers(shuffled) == found
