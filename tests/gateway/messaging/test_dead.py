"""The words of dead messages are Open MQ's own: operators and their tools look for them."""

from __future__ import annotations

from gateway.messaging import dead
from gateway.messaging.dead import BridgeDeadReason, DeadReason
from gateway.messaging.selector.selector import is_property_name, parse


def test_the_reasons_are_those_of_open_mq() -> None:
    assert {reason.value for reason in DeadReason} == {
        "OLDEST",
        "LOW_PRIORITY",
        "EXPIRED",
        "UNDELIVERABLE",
        "ERROR",
    }
    assert all(reason.name == reason.value for reason in DeadReason)


def test_the_properties_are_those_of_open_mq() -> None:
    assert (dead.UNDELIVERED_TIMESTAMP, dead.UNDELIVERED_REASON) == (
        "JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP",
        "JMS_SUN_DMQ_UNDELIVERED_REASON",
    )
    assert (dead.UNDELIVERED_EXCEPTION, dead.UNDELIVERED_COMMENT) == (
        "JMS_SUN_DMQ_UNDELIVERED_EXCEPTION",
        "JMS_SUN_DMQ_UNDELIVERED_COMMENT",
    )
    assert (dead.DELIVERY_COUNT, dead.BODY_TRUNCATED) == (
        "JMS_SUN_DMQ_DELIVERY_COUNT",
        "JMS_SUN_DMQ_BODY_TRUNCATED",
    )
    assert (dead.PRODUCING_BROKER, dead.DEAD_BROKER) == (
        "JMS_SUN_DMQ_PRODUCING_BROKER",
        "JMS_SUN_DMQ_DEAD_BROKER",
    )
    assert (dead.PRESERVE_UNDELIVERED, dead.LOG_DEAD_MESSAGES, dead.TRUNCATE_MSG_BODY) == (
        "JMS_SUN_PRESERVE_UNDELIVERED",
        "JMS_SUN_LOG_DEAD_MESSAGES",
        "JMS_SUN_TRUNCATE_MSG_BODY",
    )


def test_those_of_bridges_are_those_of_table_12_1() -> None:
    prefix = "JMS_SUN_JMSBRIDGE_"
    assert {name.removeprefix(prefix) for name in dead.BRIDGE_PROPERTIES} == {
        "DMQ_BODY_TRUNCATED",
        "DMQ_EXCEPTION",
        "DMQ_REASON",
        "DMQ_TIMESTAMP",
        "SOURCE_CORRELATIONID",
        "SOURCE_DESTINATION",
        "SOURCE_JMSTYPE",
        "SOURCE_MESSAGEID",
        "SOURCE_PROVIDER",
        "SOURCE_RESOURCE",
        "SOURCE_TIMESTAMP",
        "TARGET_DESTINATION",
        "TARGET_PROVIDER",
        "TARGET_CURRENT_DESTINATION",
    }
    named = {
        value
        for name, value in vars(dead).items()
        if name.startswith("BRIDGE_") and isinstance(value, str)
    }
    assert named == dead.BRIDGE_PROPERTIES
    reasons = {
        "MESSAGE_EXPIRED",
        "SEND_FAILURE",
        "ACK_FAILURE",
        "TRANSFORM_FAILURE",
        "COMMIT_FAILURE",
    }
    assert {reason.value for reason in BridgeDeadReason} == reasons


def test_a_selector_may_ask_for_all_of_them() -> None:
    names = [
        value for name, value in vars(dead).items() if name.isupper() and isinstance(value, str)
    ]
    assert len(names) == 14 + len(dead.BRIDGE_PROPERTIES)
    for name in names:
        assert is_property_name(name)
        parse(f"{name} IS NULL")
