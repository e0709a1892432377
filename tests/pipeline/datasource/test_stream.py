"""Streams of a real broker into Parquet: what comes once is there once, whatever ends on the
way.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from gateway.stomp.brokers import ACTIVEMQ, BROKERS
from pipeline.datasource import receiving, staging
from pipeline.datasource.batch_reader import StompConsumer
from pipeline.datasource.errors import StagingError
from pipeline.datasource.looking import Look
from pipeline.datasource.options import Use, parse
from pipeline.datasource.pause import SHORTEST
from pipeline.datasource.staged import End
from pipeline.datasource.stream_reader import StompStreamReader, staging_of
from pipeline.durable import sync
from tests.crash.client import encode
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.gateway_process import GatewayProcess
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.datasource.crashing import NAME, POINTS, death, into_parquet
from tests.servers import activemq

pytestmark = pytest.mark.brokers


def sink(session: SparkSession, folder: Path) -> list[str]:
    return [row.text for row in session.read.parquet(str(folder / "sink")).select("text").collect()]


def run(
    session: SparkSession, broker: Broker, folder: Path, name: str = "stomp", **options: object
) -> None:
    query = into_parquet(
        session,
        name,
        {**broker.options, "port": str(broker.port), "destination": f"queue:{broker.name}"}
        | {k: str(v) for k, v in options.items()},
        folder,
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def numbers(start: int, end: int) -> list[str]:
    return [f"m{number:06}" for number in range(start, end)]


def test_a_queue_is_read_by_competing_consumers_and_the_query_goes_on_where_it_was(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    gateway.fill(numbers(0, 300))
    run(session, gateway, tmp_path, partitions=2, batchSize=100)
    assert sorted(sink(session, tmp_path)) == numbers(0, 300)
    gateway.fill(numbers(300, 350))
    run(session, gateway, tmp_path, partitions=1)
    assert sorted(sink(session, tmp_path)) == numbers(0, 350)
    assert gateway.waiting() == []
    (row,) = session.read.parquet(str(tmp_path / "sink")).where("text = 'm000007'").collect()
    assert (row.body, row.body_type, row.destination, row.priority, row.persistent) == (
        b"m000007",
        "TEXT",
        f"queue:{gateway.name}",
        4,
        True,
    )
    assert row.headers["number"] == "m000007"
    assert row.message_id == row.headers["message-id"]


def test_a_task_ends_at_any_point(session: SparkSession, gateway: Broker, tmp_path: Path) -> None:
    """A worker that is killed fails the query, as nothing tries again on one machine; the next run
    goes on.
    """
    for place, point in enumerate(POINTS):
        gateway.fill(numbers(place * 50, place * 50 + 50))
        death(tmp_path / "staging").write_text(point)
        with pytest.raises(StreamingQueryException):
            run(session, gateway, tmp_path, NAME, batchSize=30)
        assert not death(tmp_path / "staging").exists(), point
    run(session, gateway, tmp_path, NAME, batchSize=30)
    assert sorted(sink(session, tmp_path)) == numbers(0, 200)
    assert gateway.waiting() == []


def test_a_durable_subscription(session: SparkSession, gateway: Broker, tmp_path: Path) -> None:
    topic = f"topic:{gateway.name}"
    options = {
        "destination": topic,
        "subscriptionName": "lake",
        "clientId": f"spark-{gateway.name}",
    }
    run(session, gateway, tmp_path, **options)
    gateway.fill(numbers(0, 40), f"/topic/{gateway.name}")
    run(session, gateway, tmp_path, **options)
    assert sink(session, tmp_path) == numbers(0, 40)
    assert (
        session.read.parquet(str(tmp_path / "sink"))
        .select("destination")
        .distinct()
        .collect()[0][0]
        == topic
    )


def test_a_folder_that_is_lost_is_told(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    gateway.fill(numbers(0, 5))
    run(session, gateway, tmp_path)
    (tmp_path / "staging").rename(tmp_path / "elsewhere")
    with pytest.raises(StreamingQueryException, match="has lost files"):
        run(session, gateway, tmp_path)
    gateway.fill(numbers(5, 8))
    run(session, gateway, tmp_path, failOnDataLoss="false")
    assert sorted(sink(session, tmp_path)) == numbers(0, 8)
    # From there on both belong together.
    gateway.fill(numbers(8, 9))
    run(session, gateway, tmp_path)
    assert sorted(sink(session, tmp_path)) == numbers(0, 9)


def test_a_checkpoint_that_is_older_than_the_folder_is_told(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    for number in range(3):
        gateway.fill(numbers(number, number + 1))
        run(session, gateway, tmp_path)
        if not number:
            for name in ("checkpoint", "sink"):
                shutil.copytree(tmp_path / name, tmp_path / f"{name}.copy")
    # Both come back from a copy, and the folder does not.
    for name in ("checkpoint", "sink"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / f"{name}.copy").rename(tmp_path / name)
    with pytest.raises(StreamingQueryException, match="the checkpoint is older"):
        run(session, gateway, tmp_path)
    gateway.fill(numbers(3, 4))
    run(session, gateway, tmp_path, failOnDataLoss="false")
    # Of the last micro-batch the folder has been told no commit, so that one is still there.
    assert sorted(sink(session, tmp_path)) == [*numbers(0, 1), *numbers(2, 4)]


@pytest.mark.parametrize(("partitions", "most"), [(2, 7), (3, 2)])
def test_a_micro_batch_has_no_more_messages_than_it_may(
    session: SparkSession, gateway: Broker, tmp_path: Path, partitions: int, most: int
) -> None:
    total = 3 * most - 1
    gateway.fill(numbers(0, total))
    options = gateway.reads(partitions=partitions, maxMessagesPerTrigger=most)
    query = into_parquet(session, "stomp", options, tmp_path)
    query.awaitTermination()
    rows = [progress.numInputRows for progress in query.recentProgress]
    assert [count for count in rows if count] == [most, most, most - 1]
    assert sorted(sink(session, tmp_path)) == numbers(0, total)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"stagingPath": "relative"}, "stagingPath"),
        ({"batchSize": "many"}, "batchSize"),
        ({"passcode": "guest"}, "passcode"),
        ({"sleector": "a"}, "sleector"),
    ],
)
def test_a_wrong_option_fails_before_there_is_a_query(
    session: SparkSession, gateway: Broker, options: dict[str, str], option: str
) -> None:
    with pytest.raises(Exception, match=f"option {option}: "):
        session.readStream.format("stomp").options(
            **{**gateway.reads(stagingPath="/staging"), **options}
        ).load()


def test_a_stream_without_staging_path_ends_before_it_reads(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    gateway.fill(["m"])
    rows = session.readStream.format("stomp").options(**gateway.queue).load()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException, match="option stagingPath: is missing"):
        query.awaitTermination()
    assert gateway.waiting() == ["m"]


# --- without Spark


def reader(broker: Broker, folder: Path, **options: object) -> StompStreamReader:
    given = {"stagingPath": str(folder), **{name: str(value) for name, value in options.items()}}
    return StompStreamReader(parse({**broker.queue, **given}, Use.STREAM))


def bodies(reader: StompStreamReader | StompConsumer, part: InputPartition) -> list[str]:
    return [
        row
        for batch in reader.read(part)
        for row in batch.column("body").cast("string").to_pylist()
    ]


def receive(query: StompStreamReader, start: int) -> list[str]:
    return [
        row
        for part in query.partitions({"batch": start}, {"batch": start + 1})
        for row in bodies(query, part)
    ]


@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_an_idle_query_makes_no_micro_batches(peer: str, gateway: Broker, tmp_path: Path) -> None:
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    query = reader(broker, tmp_path / "s", maxSeconds=1)
    limit = ReadAllAvailable()
    assert query.initialOffset() == {"batch": 0}
    assert query.latestOffset({"batch": 0}, limit) == {"batch": 1}
    assert receive(query, 0) == []
    for _ in range(2):
        assert query.latestOffset({"batch": 1}, limit) == {"batch": 1}
    query.commit({"batch": 1})
    assert query.latestOffset({"batch": 1}, limit) == {"batch": 1}
    broker.fill(["m"])
    assert query.latestOffset({"batch": 1}, limit) == {"batch": 2}
    assert receive(query, 1) == ["m"]
    query.stop()


def test_a_look_outlives_its_connection(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    process = start_gateway()
    (tmp_path / "passcode").write_text("guest")
    broker = Broker(process.port, {"login": "guest", "passcodeFile": str(tmp_path / "passcode")})
    look = Look(parse(broker.reads(stagingPath=tmp_path), Use.STREAM))
    assert look.empty(0.1, 0.05)
    process.restart(crash=True)
    assert look.empty(0.1, 0.05)
    broker.fill(["m"])
    assert not look.empty(0.1, 0.05)
    look.close()


def test_what_was_received_is_not_redelivered_in_vain(gateway: Broker, tmp_path: Path) -> None:
    """The broker does not send a second batch to a connection that is about to end."""
    gateway.fill(numbers(0, 100))
    query = reader(gateway, tmp_path, batchSize=10)
    for batch in range(10):
        (part,) = query.partitions({"batch": batch}, {"batch": batch + 1})
        rows = [row for found in query.read(part) for row in found.to_pylist()]
        assert [row["text"] for row in rows] == numbers(batch * 10, batch * 10 + 10)
        assert not any(row["redelivered"] for row in rows)


class Died(Exception):
    """A task has ended, and its connection with it."""


#: An ActiveMQ that sends four messages, and more when those are acknowledged.
IN_FOURS = replace(ACTIVEMQ, prefetch_limit=4)


@pytest.mark.parametrize(
    ("peer", "piece"), [("gateway", 1), ("activemq", 1), ("activemq", 2), ("activemq", 3)]
)
@pytest.mark.parametrize("point", POINTS)
def test_what_comes_again_is_known(
    peer: str,
    piece: int,
    point: str,
    gateway: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a task that ends at any point, for each broker whose message ids are stable, and with a
    partition more each time.
    """
    if piece > 1:
        monkeypatch.setitem(BROKERS, "activemq", IN_FOURS)
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    broker.fill(numbers(0, 30))
    dying = reader(broker, tmp_path, batchSize=10)
    left = 1 if point == "yielded" else piece

    def die(point_reached: str) -> None:
        nonlocal left
        left -= point_reached == point
        if not left:
            raise Died

    dying.reached = die  # type: ignore[method-assign,assignment]
    with pytest.raises(Died):
        receive(dying, 0)
    found: list[str] = []
    batch = 0
    while len(found) < 30:
        # Each run is of another driver, which may have another number of partitions.
        found += receive(reader(broker, tmp_path, batchSize=10, partitions=1 + batch % 2), batch)
        batch += 1
        assert batch < 10, found
    assert sorted(found) == numbers(0, 30)
    assert broker.waiting() == []


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_broker_that_waits_for_acknowledgements_gives_all_it_has(
    tmp_path: Path, ack: str
) -> None:
    """ActiveMQ sends some hundreds of a long queue, and no more until it is told of those, whatever
    it may send.
    """
    broker = Broker(activemq().port, {})
    broker.fill(numbers(0, 6000))
    options = broker.reads(
        browse="false", maxMessages=3000, stagingPath=tmp_path / "batch", ack=ack
    )
    consumer = StompConsumer(parse(options, Use.CONSUME))
    (part,) = consumer.partitions()
    assert bodies(consumer, part) == numbers(0, 3000)
    for batch, (start, end) in enumerate([(3000, 5000), (5000, 6000)]):
        assert receive(
            reader(broker, tmp_path / "stream", batchSize=2000, ack=ack), batch
        ) == numbers(start, end)
    parts = staging_of(parse(broker.reads(stagingPath=tmp_path / "stream"), Use.STREAM)).counts(2)
    assert [(part.received, part.ended) for part in parts] == [(1000, End.QUIET)]
    assert broker.waiting() == []


def test_messages_that_come_singly_are_no_pieces_of_their_own(tmp_path: Path) -> None:
    """A broker that is silent as it has no more is not asked for more after each message, also
    where the next comes as that is done.
    """
    broker = Broker(activemq().port, {})
    consumer = StompConsumer(
        parse(broker.reads(browse="false", maxMessages=30, stagingPath=tmp_path), Use.CONSUME)
    )
    (part,) = consumer.partitions()
    with ThreadPoolExecutor(1) as threads, broker.client() as client:
        received = threads.submit(bodies, consumer, part)
        for number in range(30):
            # Ten times the shortest pause: among those that a pause that doubles may fall short of
            # by little.
            time.sleep(10 * SHORTEST)
            client.ask(
                "SEND",
                {"destination": f"/queue/{broker.name}", "content-length": "2"},
                b"%02d" % number,
            )
        assert received.result() == [f"{number:02}" for number in range(30)]
    # How few they are in a time of their own test_pause.py shows; a busy machine keeps no pause.
    assert len(list(tmp_path.glob("*.arrow"))) <= 25


def dropping(proxy: Proxy, piece: int) -> Callable[[str], None]:
    """What a task is to be told where it is: it loses its connection when that piece is
    acknowledged, and only then.
    """
    left = piece

    def reached(point: str) -> None:
        nonlocal left
        if point == "acknowledged":
            left -= 1
            if not left:
                proxy.drop()

    return reached


def test_a_connection_lost_between_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch has what was staged, and the next goes on."""
    monkeypatch.setitem(BROKERS, "activemq", IN_FOURS)
    broker = Broker(activemq().port, {})
    broker.fill(numbers(0, 10))
    with Proxy(broker.port) as proxy:
        query = reader(broker, tmp_path, port=proxy.port)
        query.reached = dropping(proxy, 2)  # type: ignore[method-assign,assignment]
        assert receive(query, 0) == numbers(0, 8)
        assert receive(query, 1) == numbers(8, 10)
    assert broker.waiting() == []


def test_a_batch_read_goes_on_after_a_connection_that_was_lost_between_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with as many as it was to take, and not where that partition was ended."""
    monkeypatch.setitem(BROKERS, "activemq", IN_FOURS)
    broker = Broker(activemq().port, {})
    broker.fill(numbers(0, 20))
    with Proxy(broker.port) as proxy:
        options = broker.reads(
            browse="false", maxMessages=15, stagingPath=tmp_path, port=proxy.port
        )
        consumer = StompConsumer(parse(options, Use.CONSUME))
        consumer.reached = dropping(proxy, 2)  # type: ignore[method-assign,assignment]
        (part,) = consumer.partitions()
        received = bodies(consumer, part)
        # Whoever reads it later reads the same.
        assert bodies(consumer, part) == received
    assert len(received) == 15
    # ActiveMQ may have some for the connection that was lost still when it sends others to the
    # next.
    assert sorted([*received, *broker.waiting()]) == numbers(0, 20)


@pytest.mark.parametrize("seconds", [10, 1])
def test_a_large_message_may_come_slowly(gateway: Broker, tmp_path: Path, seconds: int) -> None:
    """A task waits a second for its first message; a part of it comes earlier than that, and again
    and again, also when the task's time is over.
    """
    marks = [f"mark {number}." for number in range(5)]
    body = "".join(mark.ljust(1 << 18) for mark in marks)
    with gateway.client() as client:
        client.write(encode("SEND", {"destination": f"/queue/{gateway.name}"}, body.encode()))
        client.ask("DISCONNECT", {})
    with Proxy(gateway.port) as proxy:
        for mark in marks:
            proxy.when(
                Trigger(
                    Toward.CLIENT,
                    re.escape(mark.encode()),
                    Fault.NONE,
                    then=lambda: time.sleep(0.3),
                )
            )
        assert receive(reader(gateway, tmp_path, port=proxy.port, maxSeconds=seconds), 0) == [body]


def test_a_micro_batch_has_no_more_octets_than_it_may(
    gateway: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many messages come at once: the rest goes back."""
    monkeypatch.setattr(receiving, "_MOST_OCTETS", 66)
    gateway.fill(numbers(0, 100))
    query = reader(gateway, tmp_path)
    for batch in range(10):
        assert receive(query, batch) == numbers(batch * 10, batch * 10 + 10)
    assert [
        part.ended
        for part in staging_of(parse(gateway.reads(stagingPath=tmp_path), Use.STREAM)).counts(10)
    ] == [End.FULL]
    assert gateway.waiting() == []


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_zombie_gives_back_what_it_has(gateway: Broker, tmp_path: Path, ack: str) -> None:
    """A task of a run that is over has received, and then another run begins."""
    gateway.fill(numbers(0, 20))
    old = reader(gateway, tmp_path, batchSize=10, ack=ack)
    new = reader(gateway, tmp_path, batchSize=10, ack=ack)
    (part,) = old.partitions({"batch": 0}, {"batch": 1})

    def begin_anew(point: str) -> None:
        if point == "received":
            new.partitions({"batch": 0}, {"batch": 1})

    old.reached = begin_anew  # type: ignore[method-assign]
    with pytest.raises(StagingError, match="another run of the query"):
        list(old.read(part))
    assert sorted(receive(new, 0) + receive(new, 1)) == numbers(0, 20)
    assert gateway.waiting() == []


def test_a_broker_that_comes_back_does_not_end_the_query(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    process = start_gateway()
    (tmp_path / "passcode").write_text("guest")
    broker = Broker(process.port, {"login": "guest", "passcodeFile": str(tmp_path / "passcode")})
    broker.fill(numbers(0, 10))
    query = reader(broker, tmp_path / "s")
    process.kill()
    with ThreadPoolExecutor(1) as threads:
        receiving = threads.submit(receive, query, 0)
        process.start()
        assert receiving.result() == numbers(0, 10)


def test_a_connection_that_is_lost_late_is_made_again(gateway: Broker, tmp_path: Path) -> None:
    """``timeoutSeconds`` is how long a broker may be away, whenever that begins."""
    with Proxy(gateway.port) as proxy:
        options = gateway.reads(
            browse="false",
            maxMessages=1,
            maxSeconds=60,
            timeoutSeconds=1,
            stagingPath=tmp_path / "s",
        )
        consumer = StompConsumer(parse({**options, "port": str(proxy.port)}, Use.CONSUME))
        (part,) = consumer.partitions()
        with ThreadPoolExecutor(1) as threads:
            receiving = threads.submit(
                lambda: [row["text"] for batch in consumer.read(part) for row in batch.to_pylist()]
            )
            began = time.monotonic()
            while not proxy.connections or time.monotonic() - began < 1.5:
                assert not receiving.done()
                time.sleep(0.01)
            proxy.drop()
            gateway.fill(["m"])
            assert receiving.result() == ["m"]
    assert gateway.waiting() == []


@pytest.mark.parametrize(
    ("toward", "pattern"),
    [(Toward.SERVER, b"ACK\nid:"), (Toward.CLIENT, b"RECEIPT\nreceipt-id:2\n")],
    ids=["ack", "receipt"],
)
@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_an_acknowledgement_that_nobody_confirms(
    peer: str, gateway: Broker, tmp_path: Path, toward: Toward, pattern: bytes
) -> None:
    """It is lost on its way, or its RECEIPT is: the rows are there once, whether the broker
    delivers again or not.
    """
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    broker.fill(numbers(0, 15))
    with Proxy(broker.port) as proxy:
        # The first RECEIPT is that of SUBSCRIBE.
        lost = proxy.when(Trigger(toward, pattern, Fault.DROP, after=False))
        query = reader(broker, tmp_path, batchSize=10, port=proxy.port)
        found = receive(query, 0)
        assert found == numbers(0, 10)
        lost.wait()
        query.commit({"batch": 1})
        for batch in (1, 2):
            found += receive(query, batch)
    assert sorted(found) == numbers(0, 15)
    assert broker.waiting() == []


def test_a_slow_disk_does_not_cost_the_connection(
    gateway: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.fill(numbers(0, 20))
    query = reader(gateway, tmp_path, batchSize=10, heartBeatSeconds=1.5)

    def slowly(path: Path) -> None:
        if path.name.startswith("0"):
            time.sleep(4)
        sync(path)

    monkeypatch.setattr(staging, "sync", slowly)
    assert receive(query, 0) == numbers(0, 10)
    assert [path.name for path in tmp_path.glob("*.settled")] == [
        "000000000001-0000-000000.settled"
    ]
    assert receive(query, 1) == numbers(10, 20)


@pytest.mark.parametrize("prefetch", ["activemq.prefetchSize", ""], ids=["asked", "unknown"])
def test_a_micro_batch_is_larger_than_the_brokers_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefetch: str
) -> None:
    """A broker that sends no more until some are acknowledged has not come to its end."""
    broker = Broker(activemq().port, {})
    broker.fill(numbers(0, 80))
    monkeypatch.setitem(
        BROKERS, "activemq", replace(ACTIVEMQ, prefetch_limit=25, prefetch=prefetch)
    )
    query = reader(broker, tmp_path, batchSize=60)
    assert receive(query, 0) == numbers(0, 60)
    assert receive(query, 1) == numbers(60, 80)
    found = staging_of(parse(broker.reads(stagingPath=tmp_path), Use.STREAM))
    assert [found.counts(batch)[0].ended for batch in (1, 2)] == [End.FULL, End.QUIET]


def test_a_micro_batch_is_as_large_as_a_window_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(activemq().port, {})
    broker.fill(numbers(0, 80))
    monkeypatch.setitem(
        BROKERS, "activemq", replace(ACTIVEMQ, prefetch_limit=50, keeps_window=True)
    )
    query = reader(broker, tmp_path, batchSize=60)
    assert receive(query, 0) == numbers(0, 50)
    assert (
        staging_of(parse(broker.reads(stagingPath=tmp_path), Use.STREAM)).counts(1)[0].ended
        is End.FULL
    )


def test_who_may_not_look_waits_in_tasks(gateway: Broker, tmp_path: Path) -> None:
    query = reader(gateway, tmp_path, destination="queue:unseen", maxSeconds=3)
    limit = ReadAllAvailable()
    assert receive(query, 0) == []
    assert query.latestOffset({"batch": 1}, limit) == {"batch": 2}
    (part,) = query.partitions({"batch": 1}, {"batch": 2})
    assert part.value.first == 3
    gateway.fill(["m"], "/queue/unseen")
    assert receive(query, 1) == ["m"]


def test_a_batch_read_has_a_folder_of_its_own(gateway: Broker, tmp_path: Path) -> None:
    reader(gateway, tmp_path).partitions({"batch": 0}, {"batch": 1})
    options = gateway.reads(browse="false", maxMessages=1, stagingPath=tmp_path)
    with pytest.raises(
        StagingError,
        match=rf"is that of queue:{gateway.name}, and this query reads .* by a batch read",
    ):
        StompConsumer(parse(options, Use.CONSUME)).partitions()


def test_a_rate_is_kept(gateway: Broker, tmp_path: Path) -> None:
    gateway.fill(numbers(0, 30))
    query = reader(gateway, tmp_path, ratePerSecond=20, maxSeconds=5)
    began = time.monotonic()
    assert receive(query, 0) + receive(query, 1) == numbers(0, 30)
    assert time.monotonic() - began >= 1.5
