"""The broker's options from an operator's settings."""

from __future__ import annotations

import re

import pytest

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
