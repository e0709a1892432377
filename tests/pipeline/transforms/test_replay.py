"""What is chosen, where it goes, what is left out because it was replayed, and what becomes of the
rows of all body types.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gateway.messaging import dead
from gateway.messaging.destination import Queue
from gateway.messaging.envelope import CONTENT_TYPE, decode, encode
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import Short, encode_map
from pipeline.errors import PipelineError
from tests.pipeline.transforms.test_dead_letters import messages, ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NOW_MS = int(ms(NOW))


def buried(
    number: int, died: datetime = NOW, kind: BodyType = BodyType.MAP, **more: Any
) -> dict[str, Any]:
    """A bridge's dead message as it is browsed, of the message ``ID:number``."""
    headers = Headers(Queue("orders"), body_type=kind, properties={"small": Short(number)})
    envelope = encode(
        Message(
            headers, encode_map({"n": number}), message_id=f"ID:{number}", timestamp=NOW_MS - 1000
        )
    )
    said = {
        **{
            dead.BRIDGE_REASON: "TRANSFORM_FAILURE",
            dead.BRIDGE_EXCEPTION: f"bad {number}",
            dead.BRIDGE_TIMESTAMP: ms(died),
        },
        **{
            dead.BRIDGE_SOURCE_MESSAGE_ID: f"ID:{number}",
            dead.BRIDGE_SOURCE_DESTINATION: "queue:orders",
        },
        **{
            dead.BRIDGE_TARGET_DESTINATION: "queue:out",
            dead.BRIDGE_SOURCE_RESOURCE: "embedded:1",
            "content-type": CONTENT_TYPE,
        },
        **more.pop("said", {}),
    }
    said = {name: value for name, value in said.items() if value is not None}
    whole = {
        "message_id": f"dead{number}",
        "destination": "queue:imq.bridge.jms.dmq",
        "body": envelope,
        "envelope": envelope,
    }
    return {**whole, "body_type": "BYTES", "headers": said, **more}


def expired(number: int, died: datetime = NOW) -> dict[str, Any]:
    said = {
        dead.UNDELIVERED_REASON: "EXPIRED",
        dead.UNDELIVERED_TIMESTAMP: ms(died),
        "JMS_SUN_DMQ_DESTINATION": "topic:news",
        "colour": "red",
    }
    more = {
        "body": b"t",
        "text": "t",
        "body_type": "TEXT",
        "priority": 4,
        "persistent": True,
        "expires": NOW - timedelta(hours=1),
    }
    return {
        "message_id": f"ID:{number}",
        "destination": "queue:mq.sys.dmq",
        "headers": said,
        **more,
    }


def plain(number: int) -> dict[str, Any]:
    return {
        "message_id": f"ID:{number}",
        "destination": "queue:archived",
        "headers": {},
        "body": b"t",
        "body_type": "TEXT",
    }


def chosen(frame: DataFrame, where: str | None) -> set[str]:
    from pipeline.transforms.replay import candidates, choose

    return {row.message_id for row in choose(candidates(frame), where).collect()}


def test_messages_are_chosen_by_what_is_known_of_their_death(spark: SparkSession) -> None:
    frame = messages(spark, buried(1), buried(2), expired(3), plain(4))
    assert chosen(frame, None) == {"dead1", "dead2", "ID:3", "ID:4"}
    where = "reason = 'TRANSFORM_FAILURE' and destination like '%orders%' and comment like '%2' and time >= '2026-03-01'"
    assert chosen(frame, where) == {"dead2"}
    assert chosen(frame, "headers['colour'] = 'red' or queue = 'queue:archived'") == {
        "ID:3",
        "ID:4",
    }


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("raeson = 'X'", "--where: there is no column `raeson`; there are body, "),
        ("reason = ", "--where: no SQL predicate: "),
        ("reason + map()", "--where: "),
        ("sum(size) > 1", "--where: "),
    ],
)
def test_a_predicate_that_is_none_is_one_line(spark: SparkSession, where: str, said: str) -> None:
    from pipeline.transforms.replay import candidates, choose

    with pytest.raises(PipelineError) as refused:
        choose(candidates(messages(spark)), where)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


def planned(frame: DataFrame, to: str | None, to_gateway: bool) -> dict[str, Any]:
    from pipeline.transforms.replay import candidates, directed
    from pipeline.transforms.replay import planned as made

    return {
        row.message_id: row
        for row in made(directed(candidates(frame), to, to_gateway), to_gateway).collect()
    }


def test_each_goes_to_where_it_was_first(spark: SparkSession) -> None:
    rows = [
        buried(1),
        buried(
            2, said={dead.BRIDGE_SOURCE_RESOURCE: None, dead.BRIDGE_SOURCE_PROVIDER: "ActiveMQ"}
        ),
        expired(3),
        plain(4),
        buried(5, said={dead.BRIDGE_BODY_TRUNCATED: "true"}),
        buried(6, said={dead.BRIDGE_SOURCE_DESTINATION: "/temp-queue/x"}),
        {**expired(7), "headers": {dead.UNDELIVERED_REASON: "EXPIRED"}},
    ]
    found = planned(messages(spark, *rows), None, True)
    assert {name: (row.target, row.problem) for name, row in found.items()} == {
        "dead1": ("queue:orders", None),
        "dead2": (
            "queue:orders",
            "it came from another provider, ActiveMQ: name a destination by --to",
        ),
        "ID:3": ("topic:news", None),
        "ID:4": ("queue:archived", None),
        "dead5": ("queue:orders", "it holds its original as text only"),
        "dead6": (
            "/temp-queue/x",
            "it came from a temporary destination: name a destination by --to",
        ),
        "ID:7": ("queue:mq.sys.dmq", "it does not say where it was: name a destination by --to"),
    }
    one = found["dead1"]
    assert (one.body_type, one.size, one.original_id, one.key) == (
        "MAP",
        len(encode_map({"n": 1})),
        "ID:1",
        f"dead1/{NOW_MS}",
    )
    assert len({row.digest for row in found.values()} - {None}) == 6


def test_all_go_to_where_they_are_sent_but_for_where_they_are(spark: SparkSession) -> None:
    from pipeline.transforms.replay import candidates, directed

    rows = candidates(
        messages(spark, buried(1, said={dead.BRIDGE_SOURCE_RESOURCE: None}), plain(2))
    )
    for to, lies, expected in (
        ("queue:archived", None, [("queue:archived", None)] * 2),
        ("queue:archived", "queue:archived", [("queue:archived", "it is there already")] * 2),
        # A queue that nobody calls a dead message queue.
        (
            None,
            "queue:archived",
            [("queue:archived", "it does not say where it was: name a destination by --to")],
        ),
    ):
        found = directed(
            rows if to else rows.where("message_id = 'ID:2'"), to, True, lies
        ).collect()
        assert [(row.target, row.nowhere) for row in found] == expected


def test_for_another_broker_what_is_lost_is_listed(spark: SparkSession) -> None:
    frame = messages(spark, buried(1), buried(2, kind=BodyType.BYTES))
    found = planned(frame, "queue:x", False)
    assert found["dead1"].problem == "STOMP has no form for a body of type MAP"
    assert (found["dead2"].problem, found["dead2"].lost) == (
        None,
        ["property small becomes text: it is of type short"],
    )
    assert (
        planned(frame, None, False)["dead2"].problem
        == "it came from the gateway's own broker: name a destination by --to"
    )


def test_what_is_sent_holds_the_original(spark: SparkSession) -> None:
    from pipeline.transforms.replay import candidates, sends

    frame = candidates(messages(spark, *[buried(number) for number in range(5)], expired(9)))
    found = {row.key: row for row in sends(frame, ("key", "time"), True, NOW_MS, False).collect()}
    assert len(found) == 6
    restored = {key: decode(bytes(row.body)) for key, row in found.items()}
    assert restored[f"dead3/{NOW_MS}"].headers == Headers(
        Queue("orders"), body_type=BodyType.MAP, properties={"small": Short(3)}
    )
    assert type(restored[f"dead3/{NOW_MS}"].headers.properties["small"]) is Short
    again = restored[f"ID:9/{NOW_MS}"]
    assert (
        again.headers.properties,
        again.expires,
        again.body,
        str(again.headers.destination),
    ) == (
        {"colour": "red"},
        0,
        b"t",
        "topic:news",
    )
    assert {(row.body_type, tuple(row.headers.items())) for row in found.values()} == {
        ("BYTES", (("content-type", CONTENT_TYPE),))
    }


def test_a_death_is_replayed_once_and_a_new_one_again(spark: SparkSession) -> None:
    from pipeline.transforms.replay import candidates, once, replayed

    # It died anew before the replay was told that it had been sent.
    later, begun, sent = (
        NOW + timedelta(hours=2),
        NOW + timedelta(hours=1),
        NOW + timedelta(hours=3),
    )
    rows = candidates(
        messages(
            spark,
            buried(1),
            # Buried a second time, when the link had lost its connection.
            buried(1, NOW + timedelta(seconds=1), message_id="again1"),
            # Died again after it was replayed, and that was buried twice, too.
            buried(1, later, message_id="later1"),
            buried(1, later + timedelta(seconds=1), message_id="latest1"),
            buried(2),
            expired(3),
            expired(3, later),
            plain(4),
        )
    )
    twin = {row.message_id: row.twin for row in rows.collect()}
    keys = {f"dead1/{NOW_MS}": "dead1", f"ID:3/{NOW_MS}": "ID:3", "queue:archived/ID:4": "ID:4"}
    ledger = spark.createDataFrame(
        pa.table(
            {
                "key": [*keys],
                "twin": [twin[name] for name in keys.values()],
                "begun": [begun] * 3,
                "at": [sent] * 3,
            }
        )
    )
    found = replayed(rows, ledger)
    assert {row.key for row in found.where("replayed is not null").collect()} == {
        f"dead1/{NOW_MS}",
        f"again1/{NOW_MS + 1000}",
        f"ID:3/{NOW_MS}",
        "queue:archived/ID:4",
    }
    assert {row.key for row in once(found.where("replayed is null")).collect()} == {
        f"later1/{ms(later)}",
        f"dead2/{NOW_MS}",
        f"ID:3/{ms(later)}",
    }


def test_what_becomes_of_each_is_told(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.transforms.replay import candidates, outcomes, replayed, with_status

    rows = candidates(
        messages(
            spark,
            buried(1),
            buried(1, NOW + timedelta(seconds=1), message_id="again1"),
            buried(2),
            buried(3),
        )
    )
    twins = {row.key: row.twin for row in rows.collect()}
    two = f"dead2/{NOW_MS}"
    ledger = spark.createDataFrame(
        pa.table(
            {
                "key": [two],
                "twin": [twins[two]],
                "begun": [NOW + timedelta(hours=1)],
                "at": [NOW + timedelta(hours=2)],
            }
        )
    )
    bad = sql.when(sql.col("message_id") == "dead3", "bad")
    found = with_status(replayed(rows, ledger).withColumn("problem", bad)).collect()
    assert {row.message_id: row.status for row in found} == {
        **{
            "dead1": "to be sent",
            "again1": "told of twice",
            "dead2": "replayed before",
            "dead3": "cannot be sent",
        },
    }
    plan = rows.select(
        "key",
        "twin",
        "message_id",
        "queue",
        "size",
        "time",
        sql.lit("queue:x").alias("target"),
        sql.lit(1).alias("place"),
    )
    for began, status in ((NOW, "sent"), (NOW + timedelta(hours=3), "sent before")):
        told = {row.message_id: row.status for row in outcomes(plan, ledger, began).collect()}
        assert told == {
            "dead1": "not sent",
            "again1": "not sent",
            "dead2": status,
            "dead3": "not sent",
        }
