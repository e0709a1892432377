"""Every option that is wrong fails by its name, before there is a broker or a query."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.messaging.destination import Kind
from gateway.stomp.brokers import (
    ACTIVEMQ,
    ARTEMIS,
    BROKERS,
    GATEWAY,
    GENERIC,
    RABBITMQ,
    recognise,
)
from pipeline.datasource import kafka
from pipeline.datasource.errors import OptionError
from pipeline.datasource.options import ALL, Options, Use, parse, parse_reading
from pipeline.datasource.places import Place, kind_headers, spelled
from pipeline.errors import PipelineError

QUEUE = {"destination": "queue:orders"}
TOPIC = {
    "destination": "topic:prices",
    "subscriptionName": "s",
    "clientId": "c",
    "stagingPath": "/staging",
}
STREAM = {**QUEUE, "stagingPath": "/staging"}
SECRET = "open sesame"


@pytest.mark.parametrize(
    ("use", "given", "option"),
    [
        (Use.BROWSE, {**QUEUE, "prot": "1"}, "prot"),
        (Use.BROWSE, {**QUEUE, "port": "0"}, "port"),
        (Use.BROWSE, {**QUEUE, "port": "http"}, "port"),
        (Use.BROWSE, {**QUEUE, "port": "-1"}, "port"),
        (Use.BROWSE, {**QUEUE, "host": " "}, "host"),
        (Use.BROWSE, {**QUEUE, "host": "broker..example"}, "host"),
        (Use.BROWSE, {**QUEUE, "passcode": SECRET}, "passcode"),
        (Use.BROWSE, {**QUEUE, "PassCode": SECRET}, "PassCode"),
        (Use.BROWSE, {**QUEUE, "password": SECRET}, "password"),
        (
            Use.BROWSE,
            {**QUEUE, "login": "a", "passcodeFile": "/f", "passcodeEnv": "E"},
            "passcodeEnv",
        ),
        (Use.BROWSE, {**QUEUE, "passcodeFile": "/f"}, "login"),
        (Use.BROWSE, {**QUEUE, "tls": "yes"}, "tls"),
        (Use.BROWSE, {**QUEUE, "caFile": "/ca.pem"}, "caFile"),
        (Use.BROWSE, {**QUEUE, "certFile": "/c.pem"}, "certFile"),
        (Use.BROWSE, {**QUEUE, "tls": "true", "keyFile": "/c.key"}, "keyFile"),
        (Use.BROWSE, {}, "destination"),
        (Use.BROWSE, {"destination": "orders"}, "destination"),
        (Use.BROWSE, {"destination": "queue:"}, "destination"),
        (Use.BROWSE, {"destination": "topic:prices"}, "destination"),
        (Use.BROWSE, {**QUEUE, "browse": "maybe"}, "browse"),
        (Use.BROWSE, {**QUEUE, "maxMessages": "0"}, "maxMessages"),
        (Use.BROWSE, {**QUEUE, "maxSeconds": "soon"}, "maxSeconds"),
        (Use.BROWSE, {**QUEUE, "broker": "hornetq"}, "broker"),
        (Use.BROWSE, {**QUEUE, "broker": "rabbitmq"}, "broker"),
        (Use.BROWSE, {**QUEUE, "maxSeconds": "1000001"}, "maxSeconds"),
        (Use.BROWSE, {**QUEUE, "timeoutSeconds": "0"}, "timeoutSeconds"),
        (Use.BROWSE, {**QUEUE, "timeoutSeconds": "3000000"}, "timeoutSeconds"),
        (Use.BROWSE, {**QUEUE, "heartBeatSeconds": "-1"}, "heartBeatSeconds"),
        (Use.BROWSE, {**QUEUE, "heartBeatSeconds": "999999999"}, "heartBeatSeconds"),
        (Use.BROWSE, {**QUEUE, "ratePerSecond": "0"}, "ratePerSecond"),
        (Use.BROWSE, {**QUEUE, "selector": ""}, "selector"),
        (Use.BROWSE, {**QUEUE, "envelope": "yes"}, "envelope"),
        (Use.WRITE, {**QUEUE, "envelope": "true"}, "envelope"),
        (Use.BROWSE, {**QUEUE, "properties": "region"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "region text"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "two words string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "content-type string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "JMSXGroupID string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "Headers string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "subscription string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "properties": "a string, A bigint"}, "properties"),
        (Use.BROWSE, {**QUEUE, "pushFilters": "priority"}, "pushFilters"),
        (Use.STREAM, {**STREAM, "pushFilters": "true"}, "pushFilters"),
        (
            Use.CONSUME,
            {**STREAM, "browse": "false", "maxMessages": "1", "pushFilters": "true"},
            "pushFilters",
        ),
        (Use.WRITE, {**QUEUE, "properties": "region string"}, "properties"),
        (Use.BROWSE, {**QUEUE, "idColumn": "id"}, "idColumn"),
        (Use.BROWSE, {**QUEUE, "path": "queue:orders"}, "path"),
        (Use.CONSUME, {**QUEUE, "browse": "false", "maxMessages": "1"}, "stagingPath"),
        (Use.CONSUME, {**STREAM, "browse": "false"}, "maxMessages"),
        (
            Use.CONSUME,
            {**STREAM, "browse": "false", "maxMessages": "1", "partitions": "2"},
            "partitions",
        ),
        (Use.STREAM, QUEUE, "stagingPath"),
        (Use.STREAM, {**STREAM, "stagingPath": "relative"}, "stagingPath"),
        (Use.STREAM, {**STREAM, "stagingPath": "s3a://bucket/staging"}, "stagingPath"),
        (Use.STREAM, {**STREAM, "browse": "true"}, "browse"),
        (Use.STREAM, {**STREAM, "maxMessages": "10"}, "maxMessages"),
        (Use.STREAM, {**STREAM, "ack": "auto"}, "ack"),
        (Use.STREAM, {**STREAM, "batchSize": "1e3"}, "batchSize"),
        (Use.STREAM, {**STREAM, "partitions": "0"}, "partitions"),
        (Use.STREAM, {**STREAM, "subscriptionName": "s"}, "subscriptionName"),
        (Use.STREAM, {**STREAM, "clientId": "c"}, "clientId"),
        (Use.STREAM, {**TOPIC, "partitions": "2"}, "partitions"),
        (
            Use.STREAM,
            {name: value for name, value in TOPIC.items() if name != "subscriptionName"},
            "subscriptionName",
        ),
        (
            Use.STREAM,
            {name: value for name, value in TOPIC.items() if name != "clientId"},
            "clientId",
        ),
        (Use.STREAM, {**STREAM, "maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        (Use.BROWSE, {**QUEUE, "maxMessagesPerTrigger": "5"}, "maxMessagesPerTrigger"),
        (Use.STREAM, {**STREAM, "failOnDataLoss": "no"}, "failOnDataLoss"),
        (Use.WRITE, {**QUEUE, "failOnDataLoss": "false"}, "failOnDataLoss"),
        (Use.WRITE, {**QUEUE, "selector": "a = 1"}, "selector"),
        (Use.WRITE, {**QUEUE, "stagingPath": "/staging"}, "stagingPath"),
        (Use.WRITE, {"destination": "topic:prices.*"}, "destination"),
    ],
)
def test_a_wrong_option_is_named(use: Use, given: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as failed:
        parse(given, use)
    assert failed.value.option == option
    assert str(failed.value).startswith(f"option {option}: ")
    assert "\n" not in str(failed.value)
    assert SECRET not in str(failed.value)


def test_every_option_is_tested_for_a_wrong_value_or_has_none() -> None:
    # A new option is to be given its place in the table above.
    tested = {
        "port",
        "host",
        "passcodeFile",
        "passcodeEnv",
        "login",
        "tls",
        "caFile",
        "certFile",
        "keyFile",
        "destination",
        "browse",
    }
    tested |= {
        "maxMessages",
        "maxSeconds",
        "broker",
        "timeoutSeconds",
        "heartBeatSeconds",
        "ratePerSecond",
        "selector",
        "idColumn",
    }
    tested |= {
        "stagingPath",
        "ack",
        "batchSize",
        "partitions",
        "subscriptionName",
        "clientId",
        "envelope",
        "properties",
        "pushFilters",
        "maxMessagesPerTrigger",
        "failOnDataLoss",
    }
    assert set(ALL) == tested


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("kafka.bootstrap.servers", "expected host and port"),
        ("subscribe", "expected destination, as queue:NAME"),
        ("subscribePattern", "expected destination, as topic:"),
        ("topic", "expected destination"),
        ("startingOffsets", "a queue has no offsets"),
        ("endingOffsets", "maxMessages or maxSeconds"),
        ("maxOffsetsPerTrigger", "expected maxMessagesPerTrigger"),
        ("minPartitions", "expected partitions"),
        ("kafka.group.id", "expected subscriptionName and clientId"),
        ("kafka.sasl.jaas.config", "passcodeFile"),
        ("kafka.max.poll.records", "STOMP has nothing of the kind"),
    ],
)
@pytest.mark.parametrize("use", list(Use))
def test_names_of_the_kafka_source_are_understood(use: Use, option: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as failed:
        parse({**QUEUE, option: SECRET}, use)
    assert str(failed.value).startswith(f"option {option}: is an option of the Kafka source's; ")
    assert SECRET not in str(failed.value)


def test_what_kafkas_options_become_is_there() -> None:
    """Each name that a hint gives is one of ours."""
    assert not {option.lower() for option in ALL} & set(kafka._OPTIONS)
    for words in kafka._OPTIONS.values():
        for name in re.findall(r"[a-z]+[A-Z]\w+", words):
            assert name in {*ALL, "processingTime"}, words


def test_right_options_are_read() -> None:
    given = {
        "HOST": "broker",
        "Port": "61613",
        "LOGIN": "me",
        "passcodeENV": "E",
        **TOPIC,
        "BATCHSIZE": "10",
        "ack": "client-individual",
    }
    options = parse({**given, "maxSeconds": "2.5", "checkpointLocation": "/x"}, Use.STREAM)
    assert (options.host, options.port, options.login, options.passcode_env) == (
        "broker",
        61613,
        "me",
        "E",
    )
    assert options.destination == Place(Kind.TOPIC, "prices")
    assert (options.batch, options.max_seconds, options.staging_path) == (10, 2.5, "/staging")
    assert parse({**QUEUE, "tls": "TRUE"}, Use.BROWSE).port == 7673
    assert parse({**QUEUE, "heartBeatSeconds": "0"}, Use.BROWSE).heart_beat == 0
    declared = parse({**STREAM, "properties": " region STRING,n  bigint"}, Use.STREAM)
    assert declared.properties == {"region": "string", "n": "bigint"}


@pytest.mark.parametrize(
    "given",
    [
        QUEUE,
        STREAM,
        TOPIC,
        {**STREAM, "browse": "false", "maxSeconds": "1"},
        {**QUEUE, "batchSize": "5"},
    ],
)
def test_a_read_that_could_be_right_is_let_through(given: dict[str, str]) -> None:
    if "batchSize" in given:
        with pytest.raises(OptionError, match="stagingPath"):
            parse_reading(given)
    else:
        parse_reading(given)


def test_passcodes_are_read_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "passcode"
    path.write_text(SECRET + "\nsecond line\n")
    options = Options(login="me", passcode_file=str(path))
    assert options.passcode() == SECRET
    assert SECRET not in repr(options)
    monkeypatch.setenv("STOMP_PASSCODE", SECRET)
    assert Options(login="me", passcode_env="STOMP_PASSCODE").passcode() == SECRET
    assert Options().passcode() is None
    path.write_text("")
    for wrong, option in (
        (Options(passcode_env="STOMP_MISSING"), "passcodeEnv"),
        (Options(passcode_file=str(path)), "passcodeFile"),
        (Options(passcode_file=str(tmp_path / "none")), "passcodeFile"),
    ):
        with pytest.raises(OptionError) as failed:
            wrong.passcode()
        assert failed.value.option == option


@pytest.mark.parametrize(
    ("text", "place", "header"),
    [
        ("queue:a.b/c", Place(Kind.QUEUE, "a.b/c"), "/queue/a.b/c"),
        ("/queue/a", Place(Kind.QUEUE, "a"), "/queue/a"),
        ("topic:a.*", Place(Kind.TOPIC, "a.*"), "/topic/a.*"),
        ("/topic/a", Place(Kind.TOPIC, "a"), "/topic/a"),
        (
            "/exchange/logs/key",
            Place(Kind.QUEUE, "/exchange/logs/key", "/exchange/logs/key"),
            "/exchange/logs/key",
        ),
    ],
)
def test_destinations(text: str, place: Place, header: str) -> None:
    assert Place.parse(text) == place
    assert spelled(GATEWAY, place) == header
    assert Place.parse(str(place)) == place


def test_brokers_differ() -> None:
    assert recognise("stomp-gateway/0.1.0") is GATEWAY
    assert recognise("ActiveMQ/5.17.2") is ACTIVEMQ
    assert recognise("ActiveMQ-Artemis/2.31.0 ActiveMQ Artemis Messaging Engine") is ARTEMIS
    assert recognise("RabbitMQ/3.10.8") is RABBITMQ
    assert recognise("") is GENERIC
    queue = Place(Kind.QUEUE, "a/b%")
    assert spelled(RABBITMQ, queue) == "/queue/a%2Fb%"
    with pytest.raises(
        PipelineError, match="queue:a%2Fb: the broker takes %2F in a name for a slash"
    ):
        spelled(RABBITMQ, Place(Kind.QUEUE, "a%2Fb"))
    assert (spelled(ARTEMIS, queue), kind_headers(ARTEMIS, queue, "subscription-type")) == (
        "a/b%",
        (("subscription-type", "ANYCAST"),),
    )
    assert [ARTEMIS.message_id(header) for header in ("57", "3,57", "")] == ["57", "57", ""]
    assert GATEWAY.message_id("ID:a,b") == "ID:a,b"
    assert ("durable", "true") in kind_headers(RABBITMQ, queue, "destination-type")
    assert all(name == dialect.name for name, dialect in BROKERS.items())
