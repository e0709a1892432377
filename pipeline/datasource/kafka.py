"""What users of Spark's Kafka source type, and what that is called here.

Owns the words, for errors. The page ``docs/from_kafka.rst`` has them as a table.
"""

from __future__ import annotations

from typing import Final

_NO_OFFSETS: Final = (
    "a queue has no offsets: a stream begins with what waits, and what is consumed is gone; "
    "to choose by time use selector, as JMSTimestamp > 1767225600000"
)
_TRY_AGAIN: Final = "expected timeoutSeconds, for which a connection is tried again"
#: What to type in place of an option, by its name in small letters.
_OPTIONS: Final = {
    "kafka.bootstrap.servers": "expected host and port, of one broker",
    "subscribe": "expected destination, as queue:NAME; or topic:NAME with subscriptionName and clientId",
    "subscribepattern": "expected destination, as topic:orders.* with subscriptionName and clientId",
    "assign": "the broker shares a queue out among its consumers; expected partitions, which says how many",
    "topic": "expected destination, as queue:NAME or topic:NAME",
    "startingoffsets": _NO_OFFSETS,
    "startingtimestamp": _NO_OFFSETS,
    "startingoffsetsbytimestamp": _NO_OFFSETS,
    "startingoffsetsbytimestampstrategy": _NO_OFFSETS,
    "endingoffsets": "a batch read ends after maxMessages or maxSeconds; expected one of these",
    "endingtimestamp": "a batch read ends after maxMessages or maxSeconds; expected one of these",
    "endingoffsetsbytimestamp": "a batch read ends after maxMessages or maxSeconds; expected one of these",
    "maxoffsetspertrigger": "expected maxMessagesPerTrigger",
    "minoffsetspertrigger": "a micro-batch begins with the first message; expected trigger(processingTime=...) for larger ones",
    "maxtriggerdelay": "a micro-batch begins with the first message; expected trigger(processingTime=...) for larger ones",
    "minpartitions": "expected partitions",
    "maxrecordsperpartition": "expected batchSize",
    "groupidprefix": "expected subscriptionName and clientId of a topic; consumers of a queue need no group",
    "kafka.group.id": "expected subscriptionName and clientId of a topic; consumers of a queue need no group",
    "includeheaders": "the column headers is always there",
    "kafkaconsumer.polltimeoutms": "expected timeoutSeconds",
    "fetchoffset.numretries": _TRY_AGAIN,
    "fetchoffset.retryintervalms": _TRY_AGAIN,
    "kafka.security.protocol": "expected tls=true",
    "kafka.ssl.truststore.location": "expected caFile, in PEM",
    "kafka.ssl.keystore.location": "expected certFile and keyFile, in PEM",
    "kafka.sasl.jaas.config": "expected login, and passcodeFile or passcodeEnv",
}
#: The same of the columns of a write.
_COLUMNS: Final = {
    "value": "expected body or text",
    "key": "expected correlation_id, or an entry of headers",
    "topic": "expected destination",
    "partition": "a destination has none",
}


def hint(option: str) -> str | None:
    """What is said of an option of the Kafka source's; None for another.

    :param option: in small letters.
    """
    words = _OPTIONS.get(option)
    if words is None and option.startswith("kafka."):
        words = "STOMP has nothing of the kind"
    return None if words is None else f"is an option of the Kafka source's; {words}"


def column_hint(column: str) -> str:
    """What is said of a column of the Kafka sink's; "" for another."""
    words = _COLUMNS.get(column.lower())
    return "" if words is None else f"the Kafka sink has that column; {words}"
