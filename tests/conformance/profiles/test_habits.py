"""What a profile does beside the table of its page."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join


@pytest.mark.parametrize("profile", ["openmq", "standard", "activemq", "artemis"])
def test_a_message_tells_who_has_sent_it(join: Join, name: str, profile: str) -> None:
    client = join(profile)
    client.send("SEND", {"destination": f"/queue/{name}", "JMSXUserID": "forged"}, "body")
    client.subscribe(f"/queue/{name}")
    assert client.message()["JMSXUserID"] == "guest"


def test_rabbitmq_does_not_tell_who_has_sent_a_message(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.put(f"/queue/{name}", "body")
    client.subscribe(f"/queue/{name}")
    assert "JMSXUserID" not in client.message()


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_activemq_trims_destinations(join: Join, name: str, version: str) -> None:
    client = join("activemq", version)
    client.ask("SUBSCRIBE", {"destination": f" /queue/{name} ", "id": "s"})
    for destination in (f" /queue/{name} ", f"  {name}", f"/queue/{name}"):
        client.send("SEND", {"destination": destination}, "body")
    assert len(client.messages(3)) == 3


def test_activemqs_header_names_a_durable_subscription(join: Join, name: str) -> None:
    client = join("activemq", client_id=name)
    durable = {"id": "s", "activemq.subscriptionName": "d"}
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.ask("UNSUBSCRIBE", id="s")
    client.ask("UNSUBSCRIBE", {**durable, "durable-subscription-name": "another"})
    client.put(f"/topic/{name}", "lost", persistent="true")
    client.ask("SUBSCRIBE", {**durable, "destination": f"/topic/{name}"})
    client.send("SEND", {"destination": f"/topic/{name}"}, "later")
    assert client.message().text == "later"


def test_activemq_takes_no_timestamp_that_is_none(join: Join, name: str) -> None:
    client = join("activemq")
    client.send("SEND", {"destination": f"/queue/{name}", "timestamp": "now", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"
    assert client.left(f"/queue/{name}") == []
