"""Properties of destinations, and their text in the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.messaging.redelivery import RedeliveryPolicy

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
