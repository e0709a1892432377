"""Batch reads by Spark: what an action gets, and what is never seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.columns import MESSAGES
from tests.pipeline.datasource.brokers import Broker
from tests.servers import activemq

pytestmark = pytest.mark.brokers

SECRET = "the-passcode-of-somebody"


@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_what_is_consumed_is_consumed_once(
    session: SparkSession, gateway: Broker, tmp_path: Path, peer: str
) -> None:
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    bodies = [f"m{number:03}" for number in range(50)]
    broker.fill(bodies)
    assert session.read.format("stomp").options(**broker.queue).load().count() == 50
    consuming = broker.reads(
        browse="false", maxMessages=30, maxSeconds=20, stagingPath=tmp_path / "staging"
    )
    rows = session.read.format("stomp").options(**consuming).load()
    # Planning alone takes nothing.
    rows.explain()
    assert len(broker.waiting()) == 50
    first = [bytes(row.body).decode() for row in rows.select("body").collect()]
    assert first == bodies[:30]
    # An action again, and another DataFrame: the same messages, and no more are taken.
    assert rows.where("message_id IS NOT NULL").count() == 30
    again = session.read.format("stomp").options(**consuming).load()
    assert [bytes(row.body).decode() for row in again.select("body").collect()] == first
    assert broker.waiting() == bodies[30:]


def test_properties_are_columns(session: SparkSession, gateway: Broker, tmp_path: Path) -> None:
    properties = "region string, size bigint, amount double, good boolean"
    gateway.fill(["a"], region="north", size="-7", amount="1e3", good="TRUE")
    gateway.fill(["b"], region="", size="7.0", amount="x", good="1")
    gateway.fill(["c"], size="9223372036854775808")
    consuming = gateway.reads(
        browse="false", maxMessages=3, maxSeconds=20, stagingPath=tmp_path / "staging"
    )
    for options in (gateway.queue, consuming):
        rows = session.read.format("stomp").options(**options, properties=properties).load()
        found = [tuple(row) for row in rows.select("region", "size", "amount", "good").collect()]
        assert found == [
            ("north", -7, 1000.0, True),
            ("", None, None, None),
            (None, None, None, None),
        ]
    # The folder keeps whole messages, so a read that declares fewer properties works, too.
    assert session.read.format("stomp").options(**consuming).load().columns[-1] == "envelope"
    gateway.fill(["d"], region="south")
    streaming = gateway.reads(stagingPath=tmp_path / "stream", properties=properties)
    stream = session.readStream.format("stomp").options(**streaming).load()
    query = (
        stream.writeStream.format("memory").queryName("declared").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert [row.region for row in session.table("declared").collect()] == ["south"]


def test_a_passcode_is_nowhere(
    session: SparkSession,
    gateway: Broker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "wrong").write_text(SECRET)
    monkeypatch.setenv("STOMP_SOURCE_PASSCODE", SECRET)
    rows = (
        session.read.format("stomp")
        .options(**gateway.reads(passcodeFile=tmp_path / "wrong"))
        .load()
    )
    rows.explain("extended")
    said = capfd.readouterr().out
    assert "stomp" in said
    with pytest.raises(Exception, match="refused the login guest") as failed:
        rows.collect()
    said += str(failed.value) + repr(failed.value.__cause__)
    with pytest.raises(Exception, match="option passcode: ") as refused:
        session.read.format("stomp").options(**gateway.reads(passcode=SECRET)).load()
    said += str(refused.value)
    # The variable is read in the worker, which has been started before it was set.
    options = {name: value for name, value in gateway.queue.items() if name != "passcodeFile"}
    with pytest.raises(Exception, match="STOMP_SOURCE_PASSCODE is not set"):
        session.read.format("stomp").options(
            **options, passcodeEnv="STOMP_SOURCE_PASSCODE"
        ).load().collect()
    assert SECRET not in said + capfd.readouterr().out + capfd.readouterr().err
    assert SECRET not in (session.conf.get("spark.app.name") or "")


@pytest.mark.parametrize(
    "schema", ["a string", MESSAGES.replace("priority int", "priority bigint")]
)
def test_other_columns_are_refused(
    session: SparkSession, gateway: Broker, tmp_path: Path, schema: str
) -> None:
    gateway.fill(["m"])
    consuming = gateway.reads(browse="false", maxMessages=1, stagingPath=tmp_path / "staging")
    for options in (gateway.queue, consuming):
        with pytest.raises(Exception, match=r"the columns of stomp are body binary, text string"):
            session.read.format("stomp").schema(schema).options(**options).load().collect()
    assert gateway.waiting() == ["m"]
