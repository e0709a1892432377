"""Connections that are shared and held, over two brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from twisted.internet import reactor

from gateway.front.held import HeldProvider
from gateway.front.shared import SharedProvider
from gateway.messaging.provider import Provider
from tests.contract.backends.embedded import EmbeddedMemory
from tests.contract.backends.jms import JMS

_clock: Any = reactor


class Held(EmbeddedMemory):
    """The embedded broker, by connections that tell of a loss at once."""

    name = "held"

    def provider(self) -> Provider:
        return HeldProvider(super().provider(), _clock, 0.0, self.name, None)


class SharedJMS(JMS):
    """ActiveMQ, by connections that all tests share."""

    name = "shared"
    breaches: ClassVar[Mapping[str, str]] = {
        **JMS.breaches,
        **dict.fromkeys(
            (
                "test_subscribers_settle_each_for_itself",
                "test_recover_gives_back_in_order_what_is_outstanding",
                "test_recover_of_nothing_is_nothing",
                "test_what_recover_gives_back_comes_before_what_waits",
                "test_recover_leaves_other_sessions_alone",
                "test_recover_gives_back_what_single_acknowledgements_left",
                "test_recover_on_a_topic_gives_back_to_the_same_subscriber",
                "test_recover_gives_back_what_a_closed_consumer_kept",
                "test_what_a_selecting_consumer_gives_back_is_selected_again",
            ),
            "a session is others' as well, so it is not recovered",
        ),
        "test_no_local_leaves_out_what_the_connection_sent_itself": (
            "the broker does not tell the users of a connection apart"
        ),
    }

    def provider(self) -> Provider:
        shared = SharedProvider(super().provider(), _clock, 2)
        return HeldProvider(shared, _clock, 0.0, self.name, None)
