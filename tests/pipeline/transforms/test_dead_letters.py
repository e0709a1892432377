"""Deaths and their groups, of events and of dead messages made with a known truth."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.messaging import dead
from pipeline.columns import EVENTS, MESSAGES
from pipeline.datasource.rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVENT_NAMES = [
    column.split()[0] for column in EVENTS.replace("map<string,string>", "map").split(",")
]
MESSAGE_NAMES = [
    column.split()[0] for column in MESSAGES.replace("map<string,string>", "map").split(",")
]


def events(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    full = [
        {"run": "r", "line": at, "place": 0, "instance": "i", "step": "dead", "time": NOW, **row}
        for at, row in enumerate(rows, 1)
    ]
    return spark.createDataFrame(
        [tuple(row.get(name) for name in EVENT_NAMES) for row in full], EVENTS
    )


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    pairs = [{**row, "headers": [*row["headers"].items()]} for row in rows]
    # By way of Arrow, which needs no Python worker.
    return spark.createDataFrame(
        pa.Table.from_pylist(
            [{name: row.get(name) for name in MESSAGE_NAMES} for row in pairs], schema=SCHEMA
        )
    )


def ms(time: datetime) -> str:
    return str(int(time.timestamp() * 1000))


def collected(frame: DataFrame) -> list[Row]:
    return frame.collect()


#: Two comments each of one trouble, and what they have in common.
TROUBLES = [
    ("order 17 of 3", "order 4711 of -2.5e3", "order <n> of <n>"),
    ("no room for 'red'", "no room for 'it\u00e4'", "no room for <value>"),
    ('bad "a, b"', 'bad ""', "bad <value>"),
    (
        "cannot reach 10.0.0.1:5672 now",
        "cannot reach 192.168.1.250 now",
        "cannot reach <address> now",
    ),
    ("cannot reach [::1]:5672", "cannot reach fe80::1:2", "cannot reach <address>"),
    ("refused by tcp://a.example:61616?x=1", "refused by stomp://b:1", "refused by <address>"),
    ("lost mq-1.example:7672.", "lost localhost:7673.", "lost <address>."),
    ("at 0x7f3a10", "at 0x00", "at <hex>"),
    ("hash deadbeef01 differs", "hash 0123456789abcdef differs", "hash <hex> differs"),
    (
        "transfer 123e4567-e89b-12d3-a456-426614174000",
        "transfer 00000000-0000-0000-0000-000000000000",
        "transfer <id>",
    ),
    ("message ID:8acc-17 died", "message ID:other:1:2 died", "message <id> died"),
    ("can't and won't\n  at line 3", "can't   and won't at line 12", "can't and won't at line <n>"),
    ("utf8 and Int32 stay", "utf8 and Int32 stay", "utf8 and Int32 stay"),
    ("order4711 is UTF8", "order0815 is UTF8", "order<n> is UTF8"),
    (
        "late since 2026-03-01T12:00:00.123Z, twice",
        "late since 2025-12-31T07:59+01:00, twice",
        "late since <n>, twice",
    ),
]


def test_exceptions_of_one_trouble_are_one(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.transforms.dead_letters import normalised

    frame = spark.createDataFrame(
        [pair[:2] for pair in TROUBLES], "one string, other string"
    ).coalesce(1)
    found = frame.select("one", normalised(sql.col("one")), normalised(sql.col("other"))).collect()
    assert [tuple(row) for row in found] == [
        (one, expected, expected) for one, _, expected in TROUBLES
    ]


def test_the_journal_tells_each_death_once(spark: SparkSession) -> None:
    from pipeline.transforms.dead_letters import of_events

    found = of_events(
        events(
            spark,
            {"message_id": "a", "step": "delivered", "destination": "queue:q"},
            {
                "message_id": "b",
                "destination": "queue:q",
                "reason": "UNDELIVERABLE",
                "comment": "NACK",
                "size": 5,
                "attempt": 7,
            },
            # The broker says both of one that expired, in a line of each or in one.
            {"message_id": "c", "step": "expired", "destination": "queue:q"},
            {"message_id": "c", "destination": "queue:q", "reason": "EXPIRED", "comment": "over"},
            {
                "message_id": "d",
                "step": "expired",
                "line": 9,
                "destination": "queue:q",
                "reason": "EXPIRED",
            },
            {
                "message_id": "d",
                "step": "dead",
                "line": 9,
                "destination": "queue:q",
                "reason": "EXPIRED",
            },
            # Its destination keeps no dead messages.
            {"message_id": "e", "step": "expired", "destination": "queue:q"},
            # It expired again, after it had been sent again.
            {
                "message_id": "e",
                "step": "expired",
                "destination": "queue:q",
                "time": NOW + timedelta(hours=1),
            },
            # A link says both, too.
            {
                "message_id": "x",
                "step": "expired",
                "line": 9,
                "destination": "queue:q",
                "link": "b/l",
                "reason": "MESSAGE_EXPIRED",
            },
            {
                "message_id": "x",
                "step": "buried",
                "line": 9,
                "destination": "queue:q",
                "link": "b/l",
                "reason": "MESSAGE_EXPIRED",
            },
            # Two durable subscriptions.
            {
                "message_id": "t",
                "destination": "topic:t",
                "subscription": "one",
                "reason": "UNDELIVERABLE",
            },
            {
                "message_id": "t",
                "destination": "topic:t",
                "subscription": "two",
                "reason": "UNDELIVERABLE",
            },
            {
                "message_id": "l",
                "step": "buried",
                "destination": "queue:q",
                "link": "b/l",
                "reason": "SEND_FAILURE",
                "comment": "no 7",
            },
        )
    )
    assert Counter(
        (row.message_id, row.reason, row.link, row.exception) for row in collected(found)
    ) == {
        ("b", "UNDELIVERABLE", None, "NACK"): 1,
        ("c", "EXPIRED", None, "over"): 1,
        ("d", "EXPIRED", None, ""): 1,
        ("x", "MESSAGE_EXPIRED", "b/l", ""): 1,
        ("e", "EXPIRED", None, ""): 2,
        ("t", "UNDELIVERABLE", None, ""): 2,
        ("l", "SEND_FAILURE", "b/l", "no <n>"): 1,
    }
    [row] = [row for row in collected(found) if row.message_id == "b"]
    assert (row.size, row.attempt, row.comment, row.found) == (5, 7, "NACK", None)


def test_dead_messages_tell_theirs_by_their_properties(spark: SparkSession) -> None:
    from pipeline.transforms.dead_letters import of_messages

    bridge = {
        **{
            dead.BRIDGE_REASON: "TRANSFORM_FAILURE",
            dead.BRIDGE_EXCEPTION: "bad 'x'",
            dead.BRIDGE_TIMESTAMP: ms(NOW),
        },
        **{
            dead.BRIDGE_SOURCE_MESSAGE_ID: "ID:before",
            dead.BRIDGE_SOURCE_DESTINATION: "queue:in",
            dead.BRIDGE_TARGET_DESTINATION: "queue:out",
        },
    }
    broker = {
        **{
            dead.UNDELIVERED_REASON: "EXPIRED",
            dead.UNDELIVERED_COMMENT: "over",
            dead.UNDELIVERED_TIMESTAMP: ms(NOW),
            dead.DELIVERY_COUNT: "3",
        },
        "JMS_SUN_DMQ_DESTINATION": "topic:t",
    }
    found = of_messages(
        messages(
            spark,
            {
                "message_id": "1",
                "destination": "/queue/imq.bridge.jms.dmq",
                "headers": bridge,
                "body": b"12345",
            },
            {"message_id": "2", "destination": "queue:mq.sys.dmq", "headers": broker},
            {"message_id": "3", "destination": "queue:other", "headers": {}},
        )
    )
    assert [tuple(row) for row in found.orderBy("found").collect()] == [
        (
            "ID:before",
            "1",
            _naive(NOW),
            "queue:in",
            "queue:in --> queue:out",
            "TRANSFORM_FAILURE",
            "bad 'x'",
            "bad <value>",
            5,
            None,
        ),
        ("2", "2", _naive(NOW), "topic:t", None, "EXPIRED", "over", "over", None, 3),
        ("3", "3", None, "queue:other", None, "UNKNOWN", None, "", None, None),
    ]


def _naive(time: datetime) -> datetime:
    # As collect() gives times: of this machine's zone.
    return time.astimezone().replace(tzinfo=None)


def test_a_time_that_is_none_is_no_time_and_the_others_are_told_of(spark: SparkSession) -> None:
    from pipeline.transforms.dead_letters import of_messages

    said = [ms(NOW), str(2**63 - 1), str(-(2**63)), "9" * 40, "253402300799999", "soon", "-1", "0"]
    rows = [
        {
            "message_id": f"ID:{each}",
            "destination": "queue:q",
            "headers": {dead.UNDELIVERED_TIMESTAMP: each},
        }
        for each in said
    ]
    found = {row.message_id[3:]: row.time for row in of_messages(messages(spark, *rows)).collect()}
    assert [each for each in said if found[each] is not None] == [ms(NOW), "0"]


def test_groups_agree_with_what_was_made(spark: SparkSession) -> None:
    from pipeline.transforms.dead_letters import groups, hours, of_events

    random = Random(7)
    troubles = [
        ("TRANSFORM_FAILURE", "b/l", "no 'colour' in order {}"),
        ("SEND_FAILURE", "b/l", "10.0.0.{} refused"),
        ("UNDELIVERABLE", None, ""),
    ]
    truth: dict[tuple[str, str | None], list[tuple[datetime, str]]] = {
        (reason, link): [] for reason, link, _ in troubles
    }
    rows = []
    for number in range(300):
        reason, link, text = troubles[min(random.randrange(4), 2)]
        time = NOW - timedelta(minutes=random.randrange(1, 360), microseconds=number)
        truth[reason, link].append((time, f"m{number:03}"))
        rows.append(
            {
                "message_id": f"m{number:03}",
                "time": time,
                "reason": reason,
                "link": link,
                "destination": "queue:q",
                "comment": text.format(number),
            }
        )
    deaths = of_events(events(spark, *rows))
    found = collected(groups(deaths, NOW, period_hours=2, examples=2))
    assert [row["count"] for row in found] == sorted(
        (len(each) for each in truth.values()), reverse=True
    )
    for row in found:
        dead_ones = sorted(truth[row.reason, row.link])
        last = sum(time > NOW - timedelta(hours=2) for time, _ in dead_ones)
        before = sum(
            NOW - timedelta(hours=4) < time <= NOW - timedelta(hours=2) for time, _ in dead_ones
        )
        assert (row["count"], row.in_period, row.before) == (len(dead_ones), last, before)
        assert (row.first, row.last) == (_naive(dead_ones[0][0]), _naive(dead_ones[-1][0]))
        assert row.trend == (
            "growing" if last > before else "falling" if last < before else "steady"
        )
        assert [each.message_id for each in row.examples] == [dead_ones[-1][1], dead_ones[-2][1]]
        assert row.per_hour == pytest.approx(
            len(dead_ones) / ((NOW - dead_ones[0][0]) / timedelta(hours=1)), abs=0.01
        )
    assert {row.exception for row in found} == {"no <value> in order <n>", "<address> refused", ""}
    by_hour = Counter(
        (_naive(time.replace(minute=0, second=0, microsecond=0)), reason)
        for (reason, _), each in truth.items()
        for time, _ in each
    )
    assert {(row.hour, row.reason): row["count"] for row in collected(hours(deaths))} == by_hour


_TIMES = st.none() | st.integers(0, 3).map(lambda hours: NOW - timedelta(hours=hours))


@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.none() | st.just("l"),
            _TIMES,
            st.none() | st.sampled_from("xyz"),
        ),
        max_size=30,
    ),
    st.integers(0, 4),
)
def test_the_examples_are_the_latest_and_those_without_a_time_are_last(
    spark: SparkSession, rows: list[tuple[str, str | None, datetime | None, str | None]], most: int
) -> None:
    from pipeline.transforms.dead_letters import DEATHS, groups

    deaths = spark.createDataFrame(
        [
            (id, f"{place:02}", time, "queue:q", link, reason, None, "", None, None)
            for place, (reason, link, time, id) in enumerate(rows)
        ],
        DEATHS,
    )
    expected: dict[tuple[str, str | None], list[Any]] = {}
    for place, (reason, link, time, id) in enumerate(rows):
        died = (NOW - time if time else timedelta(days=9), id or "", f"{place:02}")
        expected.setdefault((reason, link), []).append(died)
    found = collected(groups(deaths, NOW, examples=most))
    assert {
        (row.reason, row.link): (row["count"], [each.found for each in row.examples])
        for row in found
    } == {
        key: (len(each), [found for *_, found in sorted(each)[:most]])
        for key, each in expected.items()
    }


def test_what_died_long_ago_is_over(spark: SparkSession) -> None:
    from pipeline.transforms.dead_letters import groups, of_events

    [row] = collected(
        groups(of_events(events(spark, {"message_id": "a", "time": NOW - timedelta(days=3)})), NOW)
    )
    assert (row.trend, row.in_period, row.before, row.reason) == ("over", 0, 0, "UNKNOWN")


def test_the_plan_has_no_python(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    from pipeline.transforms.dead_letters import groups, of_events, of_messages

    for deaths in (
        of_events(spark.createDataFrame([], EVENTS)),
        of_messages(spark.createDataFrame([], MESSAGES)),
    ):
        groups(deaths, NOW).explain()
    assert "Python" not in capsys.readouterr().out
