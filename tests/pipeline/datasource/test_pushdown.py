"""Filters that go to the broker: the same rows come, and fewer messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from gateway.messaging.destination import Queue
from gateway.messaging.envelope import CONTENT_TYPE, encode
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import Byte, Float, Int, Short
from gateway.stomp.brokers import ACTIVEMQ, GATEWAY
from pipeline.datasource.batch_reader import FilteringBrowser
from pipeline.datasource.errors import BrokerError
from pipeline.datasource.options import Use, parse
from pipeline.datasource.pushdown import selector
from pipeline.datasource.source import register
from tests.gateway_process import GatewayProcess
from tests.pipeline.datasource.brokers import Broker
from tests.servers import activemq

pytestmark = pytest.mark.brokers

PROPERTIES: Final = {"region": "string", "size": "bigint", "amount": "double", "good": "boolean"}
DECLARED: Final = ", ".join([f"{name} {kind}" for name, kind in PROPERTIES.items()])
PUSH: Final = "spark.sql.python.filterPushdown.enabled"
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)

#: What texts may be, as headers and in conditions: quotes, wildcards, numbers, booleans, and more.
TEXTS: Final = (
    *("north", "north%", "nor_th", "it's", "a'' b", "!x", "100%", "\\", "", "null", "ünïcode"),
    *("5", "05", "5.0", "-7", "1e3", "0.1", "true", "FALSE", "NaN", "Infinity", "x" * 300, "a:b"),
)


def sent(broker: Broker, **headers: str) -> None:
    broker.fill(["m"], **headers)


def varied(broker: Broker) -> None:
    """Messages with each text as each header, and each priority."""
    for number, text in enumerate(TEXTS):
        # A gateway trims none; ActiveMQ keeps no empty header apart from none.
        shown = text.replace("\\", "\\\\").replace(":", "\\c")
        own = {"type": shown, "correlation-id": shown, "priority": str(number % 10)}
        sent(broker, **own, region=shown, size=shown, amount=shown, good=shown)
        sent(broker, persistent="false" if number % 2 else "true", region=shown)
    sent(broker)


@pytest.fixture(scope="session")
def messages(gateway_process: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A queue with varied messages, some of whose properties have types."""
    passcode = tmp_path_factory.mktemp("pushdown") / "passcode"
    passcode.write_text("guest\n")
    broker = Broker(gateway_process.port, {"login": "guest", "passcodeFile": str(passcode)})
    varied(broker)
    lines = (gateway_process.directory / "etc" / "passfile").read_text().splitlines()
    known = dict(line.partition("=")[::2] for line in lines)
    numbers = (Int(5), 5, Byte(-7), Short(1000), Float(0.1), 0.1, True, False, 5.0, None, 2**62)
    with broker.client(login="admin", passcode=known["imq.bridge.admin.password"]) as client:
        for value in numbers:
            properties = dict.fromkeys(PROPERTIES, value)
            headers = Headers(Queue(broker.name), body_type=BodyType.TEXT, properties=properties)
            octets = encode(Message(headers, b"typed"))
            told = {"destination": f"/queue/{broker.name}", "content-type": CONTENT_TYPE}
            client.ask("SEND", told, octets)
    return broker


def ids(rows: DataFrame) -> list[str]:
    return sorted([row.message_id for row in rows.select("message_id").collect()])


def text_conditions(column: str) -> st.SearchStrategy[str]:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    text = st.sampled_from(TEXTS).map(quoted)
    part = st.sampled_from([each[:3] for each in TEXTS]).map(quoted)
    return st.one_of(
        st.builds(f"{column} {{}} {{}}".format, st.sampled_from(["=", "<>", "<=>", "<"]), text),
        st.builds(
            f"{{}}({column}, {{}})".format,
            st.sampled_from(["startswith", "endswith", "contains"]),
            part,
        ),
        st.lists(text, min_size=1, max_size=4).map(lambda each: f"{column} IN ({', '.join(each)})"),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
    )


def number_conditions(column: str, numbers: tuple[str, ...]) -> st.SearchStrategy[str]:
    number = st.sampled_from(numbers)
    sign = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return st.one_of(
        st.builds(f"{column} {{}} {{}}".format, sign, number),
        st.lists(number, min_size=1, max_size=3).map(
            lambda each: f"{column} IN ({', '.join(each)})"
        ),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
    )


CONDITIONS: Final = st.one_of(
    *[text_conditions(column) for column in ("type", "correlation_id", "region")],
    number_conditions("priority", ("0", "4", "5", "9", "-1", "2147483647")),
    number_conditions("size", ("5", "0", "-7", "1000", f"{2**62}L")),
    number_conditions("amount", ("5D", "0.1D", "1000D", "-7D", "1e300D", "-0D")),
    number_conditions(
        "timestamp", tuple(f"timestamp_micros(TIME + {off})" for off in (-1000, -1, 0, 1, 1500))
    ),
    *[st.sampled_from([name, f"{name} = false"]) for name in ("persistent", "good")],
)
FILTERS: Final = st.lists(
    st.tuples(CONDITIONS, st.booleans()).map(
        lambda each: f"NOT ({each[0]})" if each[1] else f"({each[0]})"
    ),
    min_size=1,
    max_size=3,
).map(" AND ".join)


@pytest.fixture(scope="session")
def both(spark: SparkSession, messages: Broker) -> dict[str, tuple[Broker, DataFrame]]:
    """A queue of each broker that can browse, and all its messages."""
    register(spark)
    other = Broker(activemq().port, {})
    varied(other)
    found = {}
    for peer, broker in (("gateway", messages), ("activemq", other)):
        options = broker.reads(properties=DECLARED)
        rows = spark.read.format("stomp").options(**options).load().drop("body", "envelope")
        found[peer] = (broker, spark.createDataFrame(rows.collect(), rows.schema).cache())
    return found


@settings(max_examples=30)
@given(condition=FILTERS, peer=st.sampled_from(["gateway", "activemq"]))
def test_the_same_rows_come_with_filters_and_without(
    spark: SparkSession,
    both: dict[str, tuple[Broker, DataFrame]],
    peer: str,
    condition: str,
) -> None:
    broker, rows = both[peer]
    times = sorted([row.at for row in rows.selectExpr("unix_micros(timestamp) AS at").collect()])
    condition = condition.replace("TIME", str(times[len(times) // 2]))
    spark.conf.set(PUSH, "true")
    options = broker.reads(properties=DECLARED, pushFilters="true")
    pushed = spark.read.format("stomp").options(**options).load().where(condition)
    assert ids(pushed) == ids(rows.where(condition)), condition


def column(name: str) -> tuple[str, ...]:
    return (name,)


TYPE, REGION, PRIORITY, SIZE, AMOUNT, TIME = (
    column(name) for name in ("type", "region", "priority", "size", "amount", "timestamp")
)
MS: Final = 1767268800000  # NOON


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (EqualTo(TYPE, "a'b"), "JMSType = 'a''b'"),
        (Not(EqualTo(TYPE, "5")), "(NOT (JMSType = '5'))"),
        (EqualNullSafe(TYPE, "a"), "JMSType = 'a'"),
        (Not(EqualNullSafe(TYPE, "a")), ""),
        (In(TYPE, ("a", None, "b")), "(JMSType = 'a' OR JMSType = 'b')"),
        (Not(In(TYPE, ("a", None))), ""),
        (Not(In(TYPE, ("a",))), "(NOT ((JMSType = 'a')))"),
        (IsNull(TYPE), "JMSType IS NULL"),
        (IsNotNull(TYPE), "JMSType IS NOT NULL"),
        (StringStartsWith(TYPE, "a%_!"), "JMSType LIKE 'a!%!_!!%' ESCAPE '!'"),
        (StringEndsWith(TYPE, "a"), "JMSType LIKE '%a' ESCAPE '!'"),
        (Not(StringContains(TYPE, "a")), "JMSType NOT LIKE '%a%' ESCAPE '!'"),
        (GreaterThan(TYPE, "a"), ""),
        (EqualTo(TYPE, "a\nb"), ""),
        (EqualTo(REGION, "north"), "region = 'north'"),
        (Not(EqualTo(REGION, "north")), "(region IS NULL OR NOT (region = 'north'))"),
        (EqualTo(REGION, "5"), ""),
        (EqualTo(REGION, ""), ""),
        (StringContains(REGION, "rue"), ""),
        (StringContains(REGION, "or"), "region LIKE '%or%' ESCAPE '!'"),
        (IsNotNull(REGION), ""),
        (GreaterThan(PRIORITY, 4), "JMSPriority > 4"),
        (Not(LessThanOrEqual(PRIORITY, 4)), "JMSPriority > 4"),
        (In(PRIORITY, (4, 5)), "(JMSPriority = 4 OR JMSPriority = 5)"),
        (Not(In(SIZE, (4, 5))), "NOT (size = 4 OR size = 5)"),
        (IsNotNull(SIZE), "size IS NOT NULL"),
        (IsNull(SIZE), ""),
        (GreaterThan(AMOUNT, 2.0), "amount >= 1.999998"),
        (EqualTo(AMOUNT, 2.0), "(amount >= 1.999998 AND amount <= 2.000002)"),
        (Not(EqualTo(AMOUNT, 2.0)), ""),
        (LessThan(AMOUNT, float("nan")), ""),
        (EqualTo(column("good"), False), "good = FALSE"),
        (Not(EqualTo(column("persistent"), True)), "JMSDeliveryMode = 'NON_PERSISTENT'"),
        (GreaterThanOrEqual(TIME, NOON), f"JMSTimestamp >= {MS}"),
        (GreaterThanOrEqual(TIME, NOON.replace(microsecond=1)), f"JMSTimestamp >= {MS + 1}"),
        (GreaterThan(TIME, NOON.replace(microsecond=1)), f"JMSTimestamp > {MS}"),
        (LessThan(TIME, NOON.replace(microsecond=1)), f"JMSTimestamp < {MS + 1}"),
        (LessThanOrEqual(TIME, NOON.replace(microsecond=1)), f"JMSTimestamp <= {MS}"),
        (EqualTo(TIME, NOON.replace(microsecond=1)), ""),
        (EqualTo(column("text"), "a"), ""),
        (EqualTo(("headers", "type"), "a"), ""),
    ],
)
def test_what_a_filter_becomes(wanted: Filter, said: str) -> None:
    assert selector([wanted], PROPERTIES, GATEWAY) == said


def test_activemq_is_asked_for_texts_only() -> None:
    filters = [EqualTo(REGION, "north"), EqualTo(SIZE, 5), EqualTo(PRIORITY, 5)]
    assert selector(filters, PROPERTIES, ACTIVEMQ) == "region = 'north' AND JMSPriority = 5"


def shown(broker: Broker, *filters: Filter, **more: object) -> list[str]:
    """The bodies that come from the broker, before Spark filters them again."""
    options = parse(broker.reads(properties=DECLARED, pushFilters="true", **more), Use.BROWSE)
    reader = FilteringBrowser(options)
    assert reader.pushFilters(list(filters)) == list(filters)
    batches = reader.read(InputPartition(0))
    return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_fewer_messages_come(gateway: Broker, peer: str) -> None:
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    for region in ("north", "south"):
        broker.fill([f"{region}{number}" for number in range(20)], region=region, type=region)
    north = [f"north{number}" for number in range(20)]
    assert shown(broker, EqualTo(REGION, "north"), GreaterThan(PRIORITY, 3)) == north
    assert shown(broker, Not(In(TYPE, ("south", "east")))) == north
    assert shown(broker, StringEndsWith(REGION, "orth"), IsNotNull(REGION)) == north
    # With the selector that is an option; a condition of either has no say in the other.
    either = "region = 'south' OR number = 'north7'"
    assert shown(broker, EqualTo(REGION, "north"), selector=either) == ["north7"]
    assert len(shown(broker, EqualTo(REGION, "west"))) == 0


def test_a_number_of_messages_is_of_those_before_they_are_filtered(gateway: Broker) -> None:
    gateway.fill(["a"], region="south")
    gateway.fill(["b"], region="north")
    assert shown(gateway, EqualTo(REGION, "north"), maxMessages=1) == ["a"]


def test_a_selector_that_is_too_costly_is_not_asked_for(start_gateway: Any, tmp_path: Path) -> None:
    passcode = tmp_path / "passcode"
    passcode.write_text("guest\n")
    process = start_gateway(settings={"imq.selectors.maxCost": "15"})
    broker = Broker(process.port, {"login": "guest", "passcodeFile": str(passcode)})
    broker.fill(["a"], region="south")
    broker.fill(["b"], region="north")
    assert shown(broker, EqualTo(REGION, "north")) == ["b"]
    wanted = [StringContains(REGION, word) for word in ("or", "ort", "orth")]
    assert shown(broker, *wanted) == ["a", "b"]
    # One that the broker is to refuse does not become another.
    with pytest.raises(BrokerError, match="refused to show"):
        shown(broker, EqualTo(REGION, "north"), selector="a = 1) OR (b = 2")


def test_what_spark_is_told_where_its_own_setting_is_off(
    session: SparkSession, gateway: Broker
) -> None:
    session.conf.set(PUSH, "false")
    rows = session.read.format("stomp").options(**gateway.reads(pushFilters="true")).load()
    with pytest.raises(Exception, match=PUSH):
        rows.collect()
