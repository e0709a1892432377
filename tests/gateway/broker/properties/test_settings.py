"""The broker's options from settings, and the properties of destinations.

The latter also as administrators spell them, and as text in the store.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties import administered_properties
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import (
    DMQ_PROPERTIES,
    SETTINGS,
    BrokerOptions,
    broker_options,
)
from gateway.instance.settings import read
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.redelivery import RedeliveryPolicy


def options(*given: str) -> BrokerOptions:
    settings, problems = read(SETTINGS, None, list(given))
    assert problems == []
    return broker_options(settings, "one")


def test_without_settings_the_options_are_their_own_defaults() -> None:
    assert options() == BrokerOptions(name="one")


def test_every_setting_of_the_broker_reaches_an_option() -> None:
    found = options(
        "imq.message.max_size=1k",
        "imq.message.expiration.interval=7",
        "imq.transaction.message.maxConsecutiveRollbacks=3",
        "imq.transaction.producer.maxNumMsgs=11",
        "imq.transaction.producer.maxTotalMsgBytes=2k",
        "imq.transaction.consumer.maxNumMsgs=12",
        "imq.transaction.xa.timeout=13",
        "imq.destination.logDeadMsgs=true",
        "imq.destination.DMQ.truncateBody=true",
        "imq.autocreate.topic=false",
        "imq.autocreate.reaptime=9",
        "imq.autocreate.destination.maxNumMsgs=5",
        "imq.autocreate.destination.maxTotalMsgBytes=3k",
        "imq.autocreate.destination.maxBytesPerMsg=4k",
        "imq.autocreate.destination.limitBehavior=FLOW_CONTROL",
        "imq.autocreate.destination.useDMQ=false",
        "imq.autocreate.queue.maxNumActiveConsumers=2",
    )
    assert found == BrokerOptions(
        name="one",
        max_size=1024,
        expiration_interval=7,
        most_rollbacks=3,
        transaction_messages=11,
        transaction_octets=2048,
        transaction_acknowledgements=12,
        xa_timeout=13,
        log_dead=True,
        truncate_dead=True,
        auto_queue=DestinationProperties(
            max_num_msgs=5,
            max_total_msg_bytes=3072,
            max_bytes_per_msg=4096,
            limit_behavior=LimitBehavior.FLOW_CONTROL,
            use_dmq=False,
            max_num_active_consumers=2,
        ),
        auto_topic=None,
        reap_time=9,
    )


def test_virtual_topics_and_dead_queues_reach_their_options() -> None:
    found = options(
        "imq.virtualTopics.names=>,news.*",
        "imq.virtualTopics.prefix=of.*.",
        "imq.autocreate.queue.deadLetterQueue=ActiveMQ.DLQ.Queue.",
        "imq.autocreate.topic.deadLetterQueue=DLQ",
        "imq.destination.queue.a.deadLetterQueue=DLQ.a",
        "imq.destination.queue.DLQ.a.isDMQ=true",
    )
    assert (found.virtual_topics, found.virtual_prefix) == ((">", "news.*"), "of.*.")
    assert found.auto_queue is not None
    assert found.auto_topic is not None
    assert found.auto_queue.dead_letter_queue == "ActiveMQ.DLQ.Queue."
    assert found.auto_topic.dead_letter_queue == "DLQ"
    destinations = dict(found.destinations)
    assert destinations[Queue("a")].dead_letter_queue == "DLQ.a"
    assert destinations[Queue("DLQ.a")].is_dmq
    assert options("imq.virtualTopics.names=").virtual_topics == ()


@pytest.mark.parametrize("prefix", ["", "Consumer", "Consumer.*", "Consumer..", ">.", ".*."])
def test_a_prefix_of_virtual_topics_that_is_not_one_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"imq\.virtualTopics\.prefix"):
        options(f"imq.virtualTopics.prefix={prefix}")


def test_what_is_set_for_one_destination_is_over_the_defaults() -> None:
    found = dict(
        options(
            "imq.autocreate.destination.maxNumMsgs=100",
            "imq.destination.queue.orders.eu.limitBehavior=REMOVE_OLDEST",
            "imq.destination.queue.orders.eu.maximumRedeliveries=2",
            "imq.destination.topic.news.maxNumMsgs=7",
            "imq.destination.topic.news.useExponentialBackOff=false",
        ).destinations
    )
    orders, news = found[Queue("orders.eu")], found[Topic("news")]
    assert (orders.max_num_msgs, orders.limit_behavior) == (100, LimitBehavior.REMOVE_OLDEST)
    assert orders.redelivery == RedeliveryPolicy(maximum_redeliveries=2)
    assert (news.max_num_msgs, news.limit_behavior) == (7, LimitBehavior.REJECT_NEWEST)
    assert (news.redelivery, len(found)) == (RedeliveryPolicy(use_exponential_back_off=False), 2)


def test_the_dead_message_queue_has_defaults_of_its_own() -> None:
    (found,) = options("imq.destination.queue.mq.sys.dmq.maxNumMsgs=10").destinations
    destination, properties = found
    assert destination == DMQ
    assert (properties.max_num_msgs, properties.max_total_msg_bytes) == (
        10,
        DMQ_PROPERTIES.max_total_msg_bytes,
    )
    assert properties.limit_behavior is LimitBehavior.REMOVE_OLDEST


@pytest.mark.parametrize("name", ["orders", "Queue.orders", "queue."])
def test_a_destination_that_is_neither_queue_nor_topic_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"imq\.destination\.queue\.NAME or imq\.destination\.topic\.NAME"
    ):
        options(f"imq.destination.{name}.maxNumMsgs=1")


@pytest.mark.parametrize("name", ["queue.orders.*", "queue.>", "topic.news.*"])
def test_a_pattern_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="wildcards are for subscriptions of topics"):
        options(f"imq.destination.{name}.maxNumMsgs=1")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("queue.mq.orders", "begin with 'mq.'"),
        ("topic.a\x01b", "control character"),
        ("queue.a\udcff", "half a surrogate pair"),
    ],
)
def test_a_name_that_no_destination_can_have_is_refused_with_the_setting(
    name: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=rf"^imq\.destination\.{re.escape(name)}: .*{sentence}"):
        options(f"imq.destination.{name}.maxNumMsgs=1")


NUMBERS = st.integers(-1, 2**40)
POLICIES = st.builds(
    RedeliveryPolicy,
    maximum_redeliveries=NUMBERS,
    initial_redelivery_delay=NUMBERS,
    redelivery_delay=NUMBERS,
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.floats(1.0, 1e6),
    maximum_redelivery_delay=NUMBERS,
)
PROPERTIES = st.builds(
    DestinationProperties,
    max_num_msgs=NUMBERS,
    max_total_msg_bytes=NUMBERS,
    max_bytes_per_msg=NUMBERS,
    limit_behavior=st.sampled_from(LimitBehavior),
    max_num_active_consumers=NUMBERS,
    use_dmq=st.booleans(),
    redelivery=POLICIES,
)


@given(PROPERTIES)
def test_text_holds_everything(properties: DestinationProperties) -> None:
    assert DestinationProperties.from_text(properties.to_text()) == properties


def test_the_text_has_the_names_of_the_original() -> None:
    text = DestinationProperties(
        max_num_msgs=5, limit_behavior=LimitBehavior.REMOVE_OLDEST, use_dmq=False
    ).to_text()
    assert {
        "maxNumMsgs=5",
        "limitBehavior=REMOVE_OLDEST",
        "useDMQ=false",
        "maxTotalMsgBytes=-1",
    } <= set(text.splitlines())


def test_absent_names_keep_their_defaults() -> None:
    assert DestinationProperties.from_text("") == DestinationProperties()
    assert DestinationProperties.from_text("maxNumMsgs=7") == DestinationProperties(max_num_msgs=7)


@pytest.mark.parametrize(
    "line",
    [
        "maxNumMsgs",
        "max_num_msgs=5",
        "maxNumMsgs=many",
        "limitBehavior=SOMETIMES",
        "redelivery.often=1",
        "useDMQ=perhaps",
    ],
)
def test_a_line_that_is_no_property_is_refused_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=line.replace(".", r"\.")):
        DestinationProperties.from_text(line)


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        (DestinationProperties(), False),
        (DestinationProperties(max_num_msgs=0), True),
        (DestinationProperties(max_total_msg_bytes=10), True),
        (DestinationProperties(max_bytes_per_msg=10), False),
    ],
)
def test_which_limits_bound_what_waits(properties: DestinationProperties, bounded: bool) -> None:
    assert properties.bounded is bounded


LIMITS = st.integers(-1, 2**40)
ANY = st.builds(
    DestinationProperties,
    max_num_msgs=LIMITS,
    max_total_msg_bytes=LIMITS,
    max_bytes_per_msg=LIMITS,
    limit_behavior=st.sampled_from(LimitBehavior),
    max_num_active_consumers=LIMITS,
    use_dmq=st.booleans(),
    redelivery=st.builds(
        RedeliveryPolicy,
        maximum_redeliveries=st.integers(-1, 100),
        initial_redelivery_delay=st.integers(0, 10**9),
        redelivery_delay=st.integers(0, 10**9),
        use_exponential_back_off=st.booleans(),
        back_off_multiplier=st.floats(1, 100),
        maximum_redelivery_delay=st.integers(-1, 10**9),
    ),
)


@given(ANY, ANY)
def test_what_differs_makes_the_one_of_the_other(
    ours: DestinationProperties, base: DestinationProperties
) -> None:
    differing = administered_properties.differing(ours, base)
    assert (
        administered_properties.over(
            base, administered_properties.from_text(administered_properties.to_text(differing))
        )
        == ours
    )
    checked, notes = administered_properties.check(Queue("q"), differing)
    assert (administered_properties.over(base, checked), notes) == (ours, [])


def test_sizes_are_kept_as_they_are_read_best() -> None:
    given = {
        "maxTotalMsgBytes": "10240k",
        "maxBytesPerMsg": " 5000b ",
        "useDMQ": "FALSE",
        "limitBehavior": "reject_newest",
    }
    kept, _ = administered_properties.check(Queue("q"), given)
    assert kept == {
        "maxTotalMsgBytes": "10m",
        "maxBytesPerMsg": "5000",
        "useDMQ": "false",
        "limitBehavior": "REJECT_NEWEST",
    }


@pytest.mark.parametrize("text", ["maxNumMsgs=many", "nothing=1", "maxNumMsgs"])
def test_text_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        administered_properties.over(
            DestinationProperties(), administered_properties.from_text(text)
        )


def test_every_property_of_the_original_is_known() -> None:
    known = {*administered_properties.NAMES, *administered_properties.IGNORED}
    assert known >= {
        "maxNumMsgs",
        "maxBytesPerMsg",
        "maxTotalMsgBytes",
        "limitBehavior",
        "maxNumProducers",
        "maxNumActiveConsumers",
        "maxNumBackupConsumers",
        "consumerFlowLimit",
        "isLocalOnly",
        "localDeliveryPreferred",
        "useDMQ",
        "validateXMLSchemaEnabled",
        "XMLSchemaURIList",
        "reloadXMLSchemaOnFailure",
    }
