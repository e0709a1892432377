"""Properties of destinations as administrators spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties import administered_properties
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.messaging.destination import Queue
from gateway.messaging.redelivery import RedeliveryPolicy

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
